"""What all measurements share: contenders in turn, progress, and the form of a case."""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Case = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """What one contender did once."""

    rows: int
    seconds: float
    cpu: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds of each process meanwhile."""
    peak_mb: Mapping[str, float] = field(default_factory=dict)
    """The largest resident memory of each process."""
    bytes: int = 0
    """That were delivered."""

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds

    def cpu_per_million(self) -> dict[str, float]:
        """Return the CPU seconds per million rows of each process."""
        return {name: seconds / self.rows * 1e6 for name, seconds in self.cpu.items()}


class Progress:
    """Says on the standard error what is measured, and how long it is going to take."""

    def __init__(self, bench: str, runs: int, seconds: float) -> None:
        """Announce the number of runs; ``seconds`` is how long they all take on two quiet cores."""
        self._bench, self._runs, self._done = bench, runs, 0
        self._begin = time.monotonic()
        say(f"{bench}: {runs} runs, about {duration(seconds)} on two quiet cores")

    def done(self, what: str) -> None:
        """Count a run."""
        self._done += 1
        taken = time.monotonic() - self._begin
        left = taken / self._done * (self._runs - self._done)
        say(f"{self._bench}: {self._done}/{self._runs} {what}; {duration(taken)} taken, about {duration(left)} left")


def say(text: str) -> None:
    """Print a line on the standard error."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def duration(seconds: float) -> str:
    """Return a time as one reads it."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def take_turns(
    name: str, contenders: Mapping[str, Callable[[], Run]], repeats: int, progress: Progress
) -> dict[str, list[Run]]:
    """Run the contenders in turn, A B B A, so that what the machine does meanwhile meets all of them."""
    runs: dict[str, list[Run]] = {contender: [] for contender in contenders}
    for number in range(repeats):
        order = list(contenders.items())
        for contender, perform in reversed(order) if number % 2 else order:
            run = perform()
            runs[contender].append(run)
            progress.done(f"{name}, {contender}: {run.rate:,.0f} rows/s")
    return runs


def case(name: str, ours: Sequence[Run], anchor_name: str | None = None, anchor: Sequence[Run] = ()) -> Case:
    """Sum up a case in rows per second, beside another contender where there is one."""
    rate = statistics.median(run.rate for run in ours)
    result: Case = {
        "case": name,
        "unit": "rows/s",
        "ours": round(rate),
        "anchor_name": anchor_name,
        "anchor": None,
        "ratio": None,
        "spread": spread(ours),
        "cpu_s_per_mrow": cpu(ours),
        "peak_mb": peaks(ours),
        "rows": ours[0].rows,
        "repeats": [round(run.rate) for run in ours],
    }
    if ours[0].bytes:
        result["mb_per_s"] = round(statistics.median(run.bytes / run.seconds for run in ours) / 1e6, 1)
    if anchor:
        other = statistics.median(run.rate for run in anchor)
        result |= {
            "anchor": round(other),
            "ratio": round(rate / other, 3),
            "anchor_spread": spread(anchor),
            "anchor_cpu_s_per_mrow": cpu(anchor),
            "anchor_peak_mb": peaks(anchor),
            "anchor_repeats": [round(run.rate) for run in anchor],
        }
    return result


def spread(runs: Sequence[Run]) -> list[int]:
    """Return the least and the most, in rows per second."""
    return [round(of(run.rate for run in runs)) for of in (min, max)]


def cpu(runs: Sequence[Run]) -> dict[str, float]:
    """Return the median CPU seconds per million rows of each process."""
    each = [run.cpu_per_million() for run in runs]
    return {name: round(statistics.median(one[name] for one in each), 3) for name in each[0]}


def peaks(runs: Sequence[Run]) -> dict[str, int]:
    """Return the largest resident memory of each process in all runs, in MB."""
    return {name: round(max(run.peak_mb[name] for run in runs)) for name in runs[0].peak_mb}


def add_choices(
    parser: argparse.ArgumentParser, cases: Collection[str], usual: Collection[str] = (), *, repeats: int = 5
) -> None:
    """Add what every measurement lets choose: the cases, of which some are the usual ones, and the repeats."""
    parser.add_argument(
        "--only",
        action="append",
        choices=cases,
        metavar="CASE",
        help=f"one of {', '.join(cases)}; may be repeated",
    )
    if repeats > 1:
        parser.add_argument("--repeats", type=int, default=repeats, help="runs of each contender (%(default)s)")
    parser.set_defaults(cases=tuple(usual or cases))


def chosen(arguments: argparse.Namespace) -> Iterator[str]:
    """Give the cases to measure, each once."""
    yield from dict.fromkeys(arguments.only or arguments.cases)
