"""Changes one thing in the sources and asks the tests whether they notice: ``python -m tests.mutants``.

A mutant is a comparison replaced by its neighbour, a number by the next one, `and` by `or`, a condition by its
opposite, or a call whose result is not used by nothing. All those of the Python modules that decide what is delivered
to whom are tried (`tests.mutants.interpreted`); of those of the compiled core a seed draws some
(`tests.mutants.compiled`).

What was tried is kept in tests/results/mutants.jsonl, so that an interrupted run goes on where it was. A function of
Python, or a compiled file, that has changed since is tried again; so is what survived when the tests have changed.
Survivors that are explained in tests/survivors.txt are passed over. Exits with 1 when there are others.
"""

import argparse
import hashlib
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from tests.mutants import compiled, interpreted
from tests.mutants.mutant import ROOT, Mutant, compiled_mutants, is_explained, python_mutants

FOLDER = ROOT / "build" / "mutants"
RESULTS = ROOT / "tests" / "results" / "mutants.jsonl"

Done = Callable[[Mutant, str, str], None]


class Results:
    """What has become of mutants, in this run and earlier ones: `killed`, `survived`, or `invalid`, not compilable."""

    def __init__(self) -> None:
        FOLDER.mkdir(parents=True, exist_ok=True)
        lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
        self._known = {name: (outcome, tests) for _, name, outcome, tests in map(json.loads, lines)}
        self._begin = time.monotonic()

    def outcome(self, mutant: Mutant) -> str:
        """Return what has become of a mutant; `explained` for one that need not be tried."""
        return "explained" if is_explained(mutant) else self._known[_name(mutant)][0]

    def is_open(self, mutant: Mutant, tests: str) -> bool:
        """Whether a mutant is to be tried, with these tests."""
        known = self._known.get(_name(mutant))
        return not is_explained(mutant) and (known is None or (known[0] == "survived" and known[1] != tests))

    def add(self, mutant: Mutant, outcome: str, tests: str) -> None:
        """Keep what has become of a mutant, with tests of this version."""
        self._known[_name(mutant)] = outcome, tests
        with RESULTS.open("a") as file:
            file.write(_line(mutant, outcome, tests))
        sys.stderr.write(f"{time.monotonic() - self._begin:5.0f} s  {outcome:8}  {mutant.explanation}\n")

    def keep_only(self, mutants: Iterable[Mutant]) -> None:
        """Forget those of code that is no more."""
        kept = [it for it in mutants if not is_explained(it)]
        RESULTS.write_text("".join(_line(it, *self._known[_name(it)]) for it in kept))


def _name(mutant: Mutant) -> str:
    return hashlib.sha256(mutant.key.encode()).hexdigest()[:12]


def _line(mutant: Mutant, outcome: str, tests: str) -> str:
    return json.dumps([mutant.path, _name(mutant), outcome, tests if outcome == "survived" else ""]) + "\n"


def report(results: Results, name: str, mutants: Sequence[Mutant]) -> int:
    """Print the survivors without an explanation, and how many mutants came to what; return the number of survivors."""
    counts = Counter(results.outcome(mutant) for mutant in mutants)
    for mutant in mutants:
        if results.outcome(mutant) == "survived":
            sys.stdout.write(f"{mutant.path}:{mutant.line}: {mutant.old} -> {mutant.new}: {mutant.code}\n")
    sys.stdout.write(json.dumps({"mutants of": name, **dict(sorted(counts.items()))}) + "\n")
    return counts["survived"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="which of the compiled core are drawn (%(default)s)")
    parser.add_argument("--limit", type=int, default=150, help="how many of the compiled core (%(default)s)")
    parser.add_argument("--only", default="", help="of files whose paths hold this")
    options = parser.parse_args()
    results = Results()
    python = [it for path in interpreted.sources() if options.only in str(path) for it in python_mutants(path)]
    found = [it for path in compiled.sources() if options.only in str(path) for it in compiled_mutants(path)]
    drawn = random.Random(options.seed).sample(found, min(options.limit, len(found)))
    sys.stderr.write(
        f"Python: {len(python)} mutants; seed {options.seed}: {len(drawn)} of {len(found)} compiled ones\n"
    )
    survivors = 0
    for name, mutants, judge in (
        ("Python", python, interpreted.judge_all),
        ("the compiled core", drawn, compiled.judge_all),
    ):
        judge(FOLDER, mutants, results.is_open, results.add)
        survivors += report(results, name, mutants)
    if not options.only:
        results.keep_only([*python, *drawn])
    raise SystemExit(1 if survivors else 0)


if __name__ == "__main__":
    main()
