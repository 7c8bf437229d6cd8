"""``python -m tests.simulation [COUNT]`` runs COUNT schedules of each kind; ``--seed SEED`` shows one of them."""

import argparse
import functools
import sys
import time
import traceback

from tests.simulation.run import KINDS, run_many


def replay(kind: str, seed: int) -> int:
    """Run one schedule and print its trace."""
    schedule = KINDS[kind](seed, trace=True)
    failure = ""
    try:
        schedule.run()
    except Exception:  # noqa: BLE001  whatever it is, the trace comes first
        failure = traceback.format_exc()
    print(*schedule.lines, failure or "all is well", sep="\n")  # noqa: T201
    return bool(failure)


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--first", type=int, default=0, help="seed of the first schedule")
    parser.add_argument("--kind", choices=KINDS, help="of what; otherwise of each, and of servers to replay")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return replay(arguments.kind or next(iter(KINDS)), arguments.seed)
    failed = 0
    for kind in [arguments.kind] if arguments.kind else KINDS:
        begun = time.monotonic()
        result = run_many(kind, arguments.first, arguments.count, report=functools.partial(print, flush=True))
        counted = ", ".join(f"{number} {name}" for name, number in result.counted.items())
        print(  # noqa: T201
            f"{kind}: {result.schedules} schedules, {counted}, {len(result.failures)} failed,"
            f" {time.monotonic() - begun:.0f} s"
        )
        failed += len(result.failures)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
