"""Measurements in turn, the most important first: `python -m bench.everything`. Each writes what it has at once.

`canal`, `failover`, `acks`, `waiting`, `process`, `apply`, `kafka` and `spark` are not among them. A step is one
workload, or one group of cases; what does not fit into the time any more is left out, and named. Then the tables and
plots are made.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.measuring import duration, say
from bench.report import RESULTS
from bench.workloads import ROWS

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Step:
    """A call of `python -m bench`, and about how long it takes on two quiet cores."""

    bench: str
    seconds: float
    arguments: tuple[str, ...]


def plan(repeats: int) -> Iterator[Step]:
    """Give the steps. `repeats` are those of the runs beside Canal; the others do with fewer."""
    fewer = min(repeats, 3)
    few = min(repeats, 2)
    canal = {
        "bulk": (20, 28),
        "single": (25, 44),
        "update": (9, 23),
        "wide": (25, 30),
        "mixed": (43, 27),
        "text": (15, 30),
    }
    for workload, (writing, run) in canal.items():
        names = [workload, f"{workload}-tcp"] if workload in {"bulk", "single"} else [workload]
        yield Step("peers", writing + repeats * run, ("--repeats", str(repeats), *_only(names)))
    for workload in ROWS:
        yield Step("stages", few * 19, ("--repeats", str(few), *_only([workload])))
    for names in (
        ["1000", "1000-poll", "1000-loaded"],
        ["100", "100-poll", "5000", "5000-poll"],
        ["1000-log", "1000-readers"],
    ):
        arguments = ("--repeats", str(few), "--seconds", "8", "--warm-up", "2", *_only(names))
        yield Step("latency", 10 + few * 14 * len(names), arguments)
    delivery = {
        "bulk": (20, 35),
        "single": (25, 14),
        "update": (9, 9),
        "wide": (25, 12),
        "mixed": (43, 11),
        "text": (15, 10),
        "ascii": (15, 10),
    }
    for workload, (writing, run) in delivery.items():
        names = [workload, *(f"bulk-{way}" for way in ("get", "rows", "arrow", "json") if workload == "bulk")]
        yield Step("deliver", writing + fewer * run, ("--repeats", str(fewer), *_only(names)))
    for case, seconds in {"idle": 10, "transaction": 100, "row": 15, "columns": 20, "tables": 60}.items():
        yield Step("memory", seconds, ("--repeats", "1", *_only([case])))
    for source in ("mysql97", "mysql97-compressed"):
        for workload in ("bulk", "single"):
            arguments = ("--repeats", str(few), "--source", source, *_only([workload]))
            yield Step("deliver", 25 + few * 14, arguments)
    for group, seconds in {"subscribers": 55, "destinations": 55, "batch": 40}.items():
        counts = (10, 100, 1000, 10_000) if group == "batch" else (1, 10, 100)
        yield Step("scale", seconds, ("--repeats", "1", *_only([f"{group}-{count}" for count in counts])))


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m bench.everything", description=__doc__)
    parser.add_argument("--minutes", type=float, default=35, help="that it may take (%(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each contender beside Canal (%(default)s)")
    parser.add_argument("--only", action="append", metavar="BENCH", help="one of the measurements; may be repeated")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results (%(default)s)")
    parser.add_argument("more", nargs="*", help="given to each measurement, after --")
    arguments = parser.parse_args()
    steps = [step for step in plan(arguments.repeats) if step.bench in (arguments.only or [step.bench])]
    say(f"everything: {len(steps)} steps, about {duration(sum(step.seconds for step in steps))} on two quiet cores")
    begin = time.monotonic()
    written: set[Path] = set()
    for step in steps:
        left = arguments.minutes * 60 - (time.monotonic() - begin)
        command = ["-m", "bench", step.bench, *step.arguments, *arguments.more]
        if step.seconds > left:
            say(f"everything: left out, for {duration(left)} are left: python {' '.join(command)}")
            continue
        done = subprocess.run([sys.executable, *command], stdout=subprocess.PIPE, text=True, cwd=ROOT, check=False)
        if done.returncode:
            say(f"everything: failed: python {' '.join(command)}")
            continue
        file = arguments.results / f"{step.bench}.json"
        add(file, done.stdout, anew=file not in written)
        written.add(file)
    say(f"everything: {duration(time.monotonic() - begin)} taken; python -m bench report makes the page")


def add(file: Path, text: str, *, anew: bool) -> None:
    """Add the cases of a result to those of the same run that a file has."""
    result = json.loads(text)
    if not anew:
        before = json.loads(file.read_text())
        before["environment"]["versions"] |= result["environment"]["versions"]
        result = before | {"cases": before["cases"] + result["cases"]}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=2) + "\n")


def _only(names: list[str]) -> list[str]:
    return [word for name in names for word in ("--only", name)]


if __name__ == "__main__":
    main()
