"""Measure, and write the result as JSON, with the versions and the hardware it was measured on."""

import argparse
import json
import sys
from pathlib import Path

from bench import (
    acks,
    apply,
    canal,
    captures,
    deliver,
    failover,
    history,
    kafka,
    latency,
    memory,
    merge,
    peers,
    process,
    report,
    scale,
    sink,
    snapshot,
    spark,
    stages,
    store,
    switch,
    tenants,
    waiting,
)
from bench.environment import environment

BENCHES = {
    "workloads": captures,
    "stages": stages,
    "deliver": deliver,
    "latency": latency,
    "memory": memory,
    "scale": scale,
    "peers": peers,
    "canal": canal,
    "kafka": kafka,
    "history": history,
    "store": store,
    "sink": sink,
    "snapshot": snapshot,
    "failover": failover,
    "switch": switch,
    "tenants": tenants,
    "acks": acks,
    "waiting": waiting,
    "merge": merge,
    "process": process,
    "apply": apply,
    "report": report,
    "spark": spark,
}


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    benches = parser.add_subparsers(dest="bench", required=True)
    for name, bench in BENCHES.items():
        bench_parser = benches.add_parser(name, help=bench.__doc__, description=bench.__doc__)
        bench_parser.add_argument("--json", default="-", metavar="FILE", help="where to write the result; - prints it")
        bench.add_arguments(bench_parser)
    arguments = parser.parse_args()
    surroundings = environment()
    result = arguments.run(arguments)
    surroundings["versions"] |= result.pop("versions")
    text = json.dumps({"bench": arguments.bench, "environment": surroundings, **result}, indent=2) + "\n"
    if arguments.json == "-":
        sys.stdout.write(text)
    else:
        file = Path(arguments.json)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


main()
