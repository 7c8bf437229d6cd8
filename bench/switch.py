"""The time without changes when the source of a destination dies or stands still, and its replica is read instead."""

import argparse
import os
import random
import re
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from bench.measuring import Case, Progress, add_choices, chosen, say
from bench.sources import version_of
from sluice.client_sdk import Client
from tests.faults.harness import Sluice
from tests.faults.pair import DETECTING, SCHEMA, Writer, configure, pair_of, wait_for_replica

CASES = {
    "mariadb118-kill": signal.SIGKILL,
    "mariadb118-freeze": signal.SIGSTOP,
    "mysql97-kill": signal.SIGKILL,
    "mysql97-freeze": signal.SIGSTOP,
}
"""The signal that the source gets."""
GOAL = 1.0
"""Seconds from the detection to the first change of the other server."""
LATER = 1_000_000
"""The first row that only the replica has."""
PATIENCE = 60.0
DETECTED = re.compile(r"(\S+ \S+) .*the source did not answer \d+ times in a row")


class Arrivals(threading.Thread):
    """Takes what comes."""

    def __init__(self, client: Client) -> None:
        """``client`` is subscribed."""
        super().__init__(daemon=True)
        self.rows: list[int] = []
        self.first: float | None = None
        """When the first row of the replica came."""
        self._client = client

    def run(self) -> None:
        """Read until the client is closed."""
        while self.first is None:
            batch = self._client.get_without_ack(1)
            self.rows += [int(row.after["id"]) for row in batch.rows() if row.after]
            if self.rows and self.rows[-1] >= LATER:
                self.first = time.time()
            self._client.ack(batch)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    add_choices(parser, CASES)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure each case several times, each time with two new servers."""
    names = list(chosen(arguments))
    runs = len(names) * arguments.repeats
    progress = Progress("switch", runs, 15.0 * runs)
    versions: dict[str, str] = {}
    cases = []
    for name in names:
        taken = []
        for _ in range(arguments.repeats):
            taken.append(measure(name, versions))
            progress.done(f"{name}: {taken[-1][0]:.2f} s after it was detected, {taken[-1][1]:.2f} s in all")
        cases.append(summary(name, taken))
    return {"versions": versions, "cases": cases}


def measure(name: str, versions: dict[str, str]) -> tuple[float, float]:
    """Return the seconds from when the end of the source was detected, and from the end, to the first new row.

    The replica is written to as soon as it has executed what it has received. Raises SystemExit when a row is missing
    or comes twice.
    """
    kind, _, _ = name.partition("-")
    with tempfile.TemporaryDirectory(prefix="sluice-") as folder, pair_of(kind) as pair:
        versions[kind] = version_of(pair.first)
        wait_for_replica(pair)
        sluice = Sluice(Path(folder))
        configure(sluice, pair, **DETECTING)
        with sluice, sluice.client() as client:
            sluice.wait_running()
            client.subscribe()
            arrivals, writer = Arrivals(client), Writer(pair.first)
            arrivals.start()
            writer.start()
            writer.reach(100)
            time.sleep(random.random())  # anywhere between two questions
            end = time.time()
            os.kill(pair.first.pid, CASES[name])
            pair.promote(pair.second)
            later = Writer(pair.second, LATER)
            later.start()
            arrivals.join(PATIENCE)
            later.stop()
            pair.first.kill()
            if arrivals.first is None:
                raise SystemExit(f"no new row came within {PATIENCE:g} s:\n{''.join(sluice.log)}")
            written = [row for (row,) in pair.second.query(f"SELECT id FROM {SCHEMA}.t ORDER BY id")]
            if arrivals.rows != written[: len(arrivals.rows)]:
                raise SystemExit(f"{len(arrivals.rows)} rows came, and not those that were written first")
            detected = next(it for it in map(DETECTED.match, sluice.log) if it)
            at = datetime.fromisoformat(detected[1]).astimezone().timestamp()
            return arrivals.first - at, arrivals.first - end


def summary(name: str, taken: Sequence[tuple[float, float]]) -> Case:
    """Sum up a case."""
    detected, ended = ([round(seconds, 3) for seconds in column] for column in zip(*taken, strict=True))
    if max(detected) > GOAL:
        say(f"switch: {name} took {max(detected):.2f} s at most after it was detected, more than {GOAL:g} s")
    return {
        "case": name,
        "unit": "s after it was detected",
        "ours": statistics.median(detected),
        "anchor_name": "goal",
        "anchor": GOAL,
        "ratio": round(statistics.median(detected) / GOAL, 3),
        "spread": [min(detected), max(detected)],
        "repeats": detected,
        "median_s": statistics.median(ended),
        "max_s": max(ended),
    }
