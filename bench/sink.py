"""Rows chosen by their content, and masks, beside decoding all rows as they are; views; many destinations of a server.

Views, and many destinations as views of a few, are beside destinations that read the source each.
"""

import argparse
import functools
import statistics
from collections.abc import Sequence

from bench import destinations
from bench.captures import captured
from bench.deliver import TIMES, by_way
from bench.measuring import Case, Progress, Run, add_choices, case, chosen, take_turns
from bench.sources import source, version_of
from bench.stages import in_thread, replay
from bench.workloads import ROWS, write

CASES: dict[str, dict[str, object]] = {
    "where-all": {"filter_where": "bench.t: k < 1000000 AND c >= '0'"},
    "where-few": {"filter_where": "bench.t: k < 10000 AND c >= '0'"},
    "mask": {"filter_mask": "bench.t.c: sha256"},
}
"""The settings of each: all rows match; one in a hundred does; one of four columns is hashed."""
GOALS = {"where-all": 0.6, "where-few": 1.0}
"""Times the rate without them."""
MANY = f"destinations-{destinations.COUNT}"
MANY_VIEWS = f"{MANY}-routed"
VIEWS = 10
ROUTE = f"route-{VIEWS}"
ROUTE_GOAL = 1.5
"""Times the CPU of a destination without views, at most."""
ROUTED = ("bulk", "single")
"""Many rows in a transaction, and many transactions."""
SOURCE, WORKLOAD = "mysql97", "bulk"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    add_choices(parser, [*CASES, ROUTE, MANY, MANY_VIEWS])
    parser.add_argument("--count", type=int, default=destinations.COUNT, help=f"destinations of {MANY} (%(default)s)")
    parser.add_argument("--rows", type=int, default=ROWS[WORKLOAD], help="row changes (%(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure the chosen cases."""
    names = list(chosen(arguments))
    cases: list[Case] = []
    versions: dict[str, str] = {}
    if decoded := [name for name in names if name in CASES]:
        cases += _decoded(decoded, arguments, versions)
    if ROUTE in names:
        cases.append(_routed(arguments, versions))
    for name in (MANY, MANY_VIEWS):
        if name in names:
            progress = Progress(name, 1, 120.0)
            cases.append(destinations.measure(arguments.count, versions, routed=name == MANY_VIEWS))
            progress.done(name)
    return {"versions": versions, "cases": cases}


def _routed(arguments: argparse.Namespace, versions: dict[str, str]) -> Case:
    """Measure the CPU of a server whose destination has views without clients, and of one without views.

    One client reads the destination. The figure is that of the workload for which views cost most.
    """
    progress = Progress(ROUTE, 2 * arguments.repeats * len(ROUTED), 20.0 * arguments.repeats)
    found: dict[str, Case] = {}
    for workload in ROUTED:
        with source(SOURCE) as server:
            versions[SOURCE] = version_of(server)
            written = write(server, workload, min(arguments.rows, ROWS[workload]), TIMES)
            results = take_turns(
                f"{ROUTE}, {workload}",
                {
                    "with": functools.partial(by_way, server, written, "stream", None, None, views=VIEWS),
                    "without": functools.partial(by_way, server, written, "stream", None, None),
                },
                arguments.repeats,
                progress,
            )
        ours, anchor = (_cpu(results[name]) for name in ("with", "without"))
        found[workload] = {
            "ours": statistics.median(ours),
            "anchor": statistics.median(anchor),
            "ratio": round(statistics.median(ours) / beside, 3) if (beside := statistics.median(anchor)) else None,
            "spread": [min(ours), max(ours)],
            "repeats": ours,
            "anchor_spread": [min(anchor), max(anchor)],
            "anchor_repeats": anchor,
        }
    most = max(found.values(), key=lambda it: it["ratio"] or 0.0)
    described = {"case": ROUTE, "unit": "CPU s of the server per million rows", "anchor_name": "no views"}
    return described | most | {"goal_ratio": ROUTE_GOAL, "workloads": found}


def _cpu(runs: Sequence[Run]) -> list[float]:
    return [round(run.cpu_per_million()["server"], 4) for run in runs]


def _decoded(names: list[str], arguments: argparse.Namespace, versions: dict[str, str]) -> list[Case]:
    """Measure how fast rows are decoded."""
    progress = Progress("sink", 2 * arguments.repeats * len(names), 4.0 * arguments.repeats * len(names))
    capture = captured(SOURCE, WORKLOAD, arguments.rows)
    cases: list[Case] = []
    versions[SOURCE] = capture.version
    with replay(capture) as (port, pid):
        task = {"source": SOURCE, "workload": WORKLOAD, "rows": arguments.rows, "port": port, "stage": "filter"}
        for name in names:
            results = take_turns(
                name,
                {
                    "with": functools.partial(in_thread, task | {"settings": CASES[name]}, pid),
                    "without": functools.partial(in_thread, task, pid),
                },
                arguments.repeats,
                progress,
            )
            cases.append(
                case(name, results["with"], "all rows, as they are", results["without"])
                | {"goal_ratio": GOALS.get(name)}
            )
    return cases
