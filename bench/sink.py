"""Rows chosen by their content, and masks, beside decoding all rows as they are; and many destinations of a server."""

import argparse
import functools

from bench import destinations
from bench.captures import captured
from bench.measuring import Case, Progress, add_choices, case, chosen, take_turns
from bench.stages import in_thread, replay
from bench.workloads import ROWS

CASES: dict[str, dict[str, object]] = {
    "where-all": {"filter_where": "bench.t: k < 1000000 AND c >= '0'"},
    "where-few": {"filter_where": "bench.t: k < 10000 AND c >= '0'"},
    "mask": {"filter_mask": "bench.t.c: sha256", "filter_query_dml": True},
}
"""The settings of each: all rows match; one in a hundred does; one of four columns is hashed."""
GOALS = {"where-all": 0.6, "where-few": 1.0}
"""Times the rate without them."""
MANY = f"destinations-{destinations.COUNT}"
SOURCE, WORKLOAD = "mysql97", "bulk"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    add_choices(parser, [*CASES, MANY])
    parser.add_argument("--count", type=int, default=destinations.COUNT, help=f"destinations of {MANY} (%(default)s)")
    parser.add_argument("--rows", type=int, default=ROWS[WORKLOAD], help="row changes (%(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Measure the chosen cases."""
    names = list(chosen(arguments))
    cases: list[Case] = []
    versions: dict[str, str] = {}
    if decoded := [name for name in names if name != MANY]:
        cases += _decoded(decoded, arguments, versions)
    if MANY in names:
        progress = Progress(MANY, 1, 120.0)
        cases.append(destinations.measure(arguments.count, versions))
        progress.done(MANY)
    return {"versions": versions, "cases": cases}


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
