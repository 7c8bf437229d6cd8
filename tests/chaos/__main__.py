"""``python -m tests.chaos --seed SEED --minutes MINUTES``: faults on real servers, and an independent judge."""

import argparse
import logging
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.plan import make_plan
from tests.chaos.run import Run
from tests.servers import CI


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)  # noqa: T201


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the sequence of faults; a random one is taken, and printed")
    parser.add_argument("--minutes", type=float, default=3.0, help="for which there are faults")
    parser.add_argument("--server", choices=sorted(CI), default="mariadb118", help="the sources")
    parser.add_argument("--folder", type=Path, help="for journals and logs; stays when it is given, or after a failure")
    arguments = parser.parse_args()
    seed = random.randrange(1_000_000) if arguments.seed is None else arguments.seed
    logging.getLogger("sluice").setLevel(logging.ERROR)  # a client that asks in vain is no news here
    plan = make_plan(seed, 60 * arguments.minutes, arguments.server)
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="sluice-chaos-"))
    folder.mkdir(exist_ok=True)
    say(f"{plan}; journals in {folder}")
    begun = time.monotonic()
    verdict = Run(plan, folder, say).carry_out()
    say(f"{verdict}; {time.monotonic() - begun:.0f} s")
    if verdict.violations:
        say("\n".join(verdict.violations[:20]))
        say(f"{len(verdict.violations)} violations; read on in {folder}")
        say(f"again: make chaos SEED={seed} MINUTES={arguments.minutes:g} SERVER={plan.kind}")
    elif arguments.folder is None:
        shutil.rmtree(folder)
    return bool(verdict.violations)


if __name__ == "__main__":
    sys.exit(main())
