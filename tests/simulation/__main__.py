"""``python -m tests.simulation [COUNT]`` runs so many schedules; ``--seed SEED`` shows what happens in one of them."""

import argparse
import functools
import sys
import time
import traceback

from tests.simulation.run import run_many
from tests.simulation.schedule import Schedule


def replay(seed: int) -> int:
    """Run one schedule and print its trace."""
    schedule = Schedule(seed, trace=True)
    failure = ""
    try:
        schedule.run()
    except Exception:  # noqa: BLE001  whatever it is, the trace comes first
        failure = traceback.format_exc()
    print(*schedule.world.trace or (), failure or "all is well", sep="\n")  # noqa: T201
    return bool(failure)


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--first", type=int, default=0, help="seed of the first schedule")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return replay(arguments.seed)
    begun = time.monotonic()
    result = run_many(arguments.first, arguments.count, report=functools.partial(print, flush=True))
    print(  # noqa: T201
        f"{result.schedules} schedules, {result.steps} steps, {result.take_overs} take-overs, "
        f"{result.switches} switches of the source, "
        f"{len(result.failures)} failed, {time.monotonic() - begun:.0f} s"
    )
    return bool(result.failures)


if __name__ == "__main__":
    sys.exit(main())
