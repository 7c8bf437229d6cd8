"""Merging: a group of four sources, beside a destination of one source that writes the same."""

import argparse
import contextlib
import functools
import statistics
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from bench.deliver import RATES, follow, lines_of
from bench.latency import TABLE, Beats, beat, make_table
from bench.measuring import Case, Progress, Run, add_choices, case, chosen, cpu, peaks, take_turns
from bench.merged import TIMES
from bench.sources import SOURCES, source, version_of
from bench.workloads import ROWS, SCHEMA, WRITTEN, Written, mark_end, write
from scripts.serving import lines_for, started
from tests.servers import Server

DESTINATION: Final = "bench"
MEMBERS: Final = ("a", "b", "c", "d")
SECONDS, MICROSECONDS = "mariadb118", "mysql97"
"""A source whose stamps are whole seconds, and one whose stamps are µs."""
SAME_BYTES: Final = {"bulk-4": "bulk", "single-4": "single"}
"""Cases of as many bytes by four members as by one source, and their workloads."""
PACED: Final = {
    "latency-us": (MICROSECONDS,) * 4,
    "latency-s": (SECONDS,) * 4,
    "latency-mixed": (MICROSECONDS, MICROSECONDS, SECONDS, SECONDS),
}
"""Cases of commits at a pace, and the sources of their members."""
GOALS: Final = {"bulk-4": 0.8, "single-4": 0.8, "latency-us": 20, "latency-s": 1100, "latency-mixed": 200}
"""Of the ratio; of what the group adds to the p99, in ms, with commits on all members in turn."""
PACE: Final = 1000
"""Commits a second, of all members together."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    add_choices(parser, (*SAME_BYTES, *PACED))
    parser.add_argument("--source", choices=SOURCES, default=SECONDS, help="of the cases of as many bytes")
    parser.add_argument("--rows", type=int, help="row changes that count; otherwise as many as the workload has")
    parser.add_argument("--seconds", type=float, default=10, help="of commits that count (%(default)s)")
    parser.add_argument("--warm-up", type=float, default=3, help="seconds before these (%(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure the cases; every run has a new server and a new client."""
    names = list(chosen(arguments))
    progress = Progress("merge", 2 * len(names) * arguments.repeats, sum(estimate(arguments, name) for name in names))
    versions: dict[str, str] = {}
    cases = [(same_bytes if name in SAME_BYTES else paced)(arguments, name, versions, progress) for name in names]
    return {"versions": versions, "cases": cases}


def estimate(arguments: argparse.Namespace, name: str) -> float:
    """Return about how many seconds a case takes."""
    turns: int = 2 * arguments.repeats
    if name in PACED:
        seconds: float = arguments.seconds + arguments.warm_up + 5
        return 30 + turns * seconds
    workload = SAME_BYTES[name]
    rows: int = TIMES * (arguments.rows or ROWS[workload])
    return 30 + 2 * rows / WRITTEN[workload] + turns * (5 + rows / RATES[workload])


# --- as many bytes ----------------------------------------------------------------------------------------------------


def same_bytes(arguments: argparse.Namespace, name: str, versions: dict[str, str], progress: Progress) -> Case:
    """Write a workload to one source, and in equal parts to four; deliver both."""
    workload = SAME_BYTES[name]
    rows = arguments.rows or ROWS[workload]
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(source(arguments.source)) for _ in range(1 + len(MEMBERS))]
        versions[arguments.source] = version_of(servers[0])
        one, *members = servers
        (alone,) = write_all([one], workload, rows)
        parts = write_all(members, workload, rows // len(MEMBERS))
        group = group_of(members, parts)
        contenders = {
            "group": functools.partial(deliver, group, len(members), rows, database=members[0].pid),
            "one source": functools.partial(deliver, lines_of(one, alone), 1, rows, database=one.pid),
        }
        found = take_turns(name, contenders, arguments.repeats, progress)
    return case(name, found["group"], "one source", found["one source"]) | {"ratio_goal": GOALS[name]}


def write_all(servers: Sequence[Server], workload: str, rows: int) -> list[Written]:
    """Write a workload to servers at the same time; each time of it begins on all of them at once."""
    together = threading.Barrier(len(servers))

    def end(server: Server) -> None:
        together.wait()
        mark_end(server)
        together.wait()
        time.sleep(1.1)  # stamps in whole seconds show which time comes first, too

    def write_one(server: Server) -> Written:
        try:
            return write(server, workload, rows, TIMES, functools.partial(end, server))
        except BaseException:
            together.abort()
            raise

    with ThreadPoolExecutor(len(servers)) as pool:
        return list(pool.map(write_one, servers))


def group_of(servers: Sequence[Server], written: Sequence[Written] = ()) -> list[str]:
    """Return the lines of a group whose members begin with what was written; without that where they are."""
    lines = ["sluice.instance.source = group", f"sluice.group.members = {','.join(MEMBERS)}"]
    for number, (name, server) in enumerate(zip(MEMBERS, servers, strict=True)):
        own = lines_of(server, written[number]) if written else lines_at(server)
        lines += [f"sluice.group.{name}.canal.instance.{line}" for line in own if not line.startswith("filter.")]
    return [*lines, rf"filter.regex = {SCHEMA}\\..*"]


def lines_at(server: Server) -> list[str]:
    """Return the lines of a destination that begins where its source is."""
    return lines_for(f"{server.host}:{server.port}", server.user, server.password)


def deliver(lines: Sequence[str], members: int, rows: int, **pids: int) -> Run:
    """Deliver what members hold."""
    with started({DESTINATION: lines}) as sluice:
        task = {"url": sluice.url, "destination": DESTINATION, "members": members}
        return follow("bench.merged", task, rows, **pids, server=sluice.pid)


# --- commits at a pace ------------------------------------------------------------------------------------------------


def paced(arguments: argparse.Namespace, name: str, versions: dict[str, str], progress: Progress) -> Case:
    """Commit on four members at a quarter of the pace each, and on one of them, read alone, at the pace."""
    groups, alone = list[Beats](), list[Beats]()
    with contextlib.ExitStack() as stack:
        members = [stack.enter_context(source(kind)) for kind in PACED[name]]
        versions |= {kind: version_of(it) for kind, it in zip(PACED[name], members, strict=True)}
        for it in members:
            make_table(it)
        turns = ((groups, group_of(members), members), (alone, lines_at(members[0]), members[:1]))
        for number in range(arguments.repeats):
            for kept, lines, servers in reversed(turns) if number % 2 else turns:
                kept.append(measure(arguments, lines, servers))
                progress.done(f"{name}, {len(servers)} sources: p99 {kept[-1].latency['p99_ms']} ms")
    return summary(name, groups, alone)


def measure(arguments: argparse.Namespace, lines: Sequence[str], servers: Sequence[Server]) -> Beats:
    """Commit at the pace, on each of ``servers`` in turn."""
    with started({DESTINATION: lines}) as sluice:
        task = {"url": sluice.url, "destination": DESTINATION, "filter": TABLE.replace(".", r"\."), "way": "stream"}
        return beat(arguments, PACE, task, servers, sluice)


def summary(name: str, groups: Sequence[Beats], alone: Sequence[Beats]) -> Case:
    """Sum up a case: the medians of the runs, and what the group adds to the p99."""
    p99 = [one.latency["p99_ms"] for one in groups]
    of_one = statistics.median(one.latency["p99_ms"] for one in alone)
    ours = statistics.median(p99)
    return {
        "case": name,
        "unit": "ms",
        "ours": ours,
        "anchor_name": "one source",
        "anchor": of_one,
        "ratio": round(ours / of_one, 3),
        "spread": [min(p99), max(p99)],
        "cpu_s_per_mrow": cpu([one.used for one in groups]),
        "peak_mb": peaks([one.used for one in groups]),
        "p50_ms": statistics.median(one.latency["p50_ms"] for one in groups),
        "p99_ms": ours,
        "max_ms": max(one.latency["max_ms"] for one in groups),
        "added_p99_ms": round(ours - of_one, 3),
        "added_p99_goal_ms": GOALS[name],
        "repeats": [one.latency for one in groups],
        "anchor_repeats": [one.latency for one in alone],
    }
