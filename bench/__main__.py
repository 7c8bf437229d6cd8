"""Measure one stage and print the result as JSON, with the versions and the hardware it was measured on."""

import argparse
import json
import sys

from bench import decode
from bench.environment import environment


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    stages = parser.add_subparsers(dest="stage", required=True)
    decode.add_arguments(stages.add_parser("decode", help=decode.__doc__, description=decode.__doc__))
    arguments = parser.parse_args()
    result = {"stage": arguments.stage, **arguments.run(arguments), **environment()}
    json.dump(result, sys.stdout, indent=2)
    print()


main()
