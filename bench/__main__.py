"""Measure one stage and write the result as JSON, with the versions and the hardware it was measured on."""

import argparse
import json
import sys
from pathlib import Path

from bench import arrow, decode, deliver, spark
from bench.environment import environment

STAGES = {"decode": decode, "arrow": arrow, "deliver": deliver, "spark": spark}


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    stages = parser.add_subparsers(dest="stage", required=True)
    for name, stage in STAGES.items():
        stage_parser = stages.add_parser(name, help=stage.__doc__, description=stage.__doc__)
        stage_parser.add_argument("--json", default="-", metavar="FILE", help="where to write the result; - prints it")
        stage.add_arguments(stage_parser)
    arguments = parser.parse_args()
    result = arguments.run(arguments)
    if "cases" in result:
        result = {"bench": arguments.stage, "environment": environment(result.pop("versions")), **result}
    else:
        result = {"stage": arguments.stage, **result, **environment()}
    text = json.dumps(result, indent=2) + "\n"
    if arguments.json == "-":
        sys.stdout.write(text)
    else:
        file = Path(arguments.json)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


main()
