"""Changes one thing in the compiled core and asks the unit tests whether they notice: ``python -m tests.mutants``.

A mutant is one token of a .pyx file replaced: a comparison by its neighbour, a number by the next one, `and` by `or`.
Of all that there could be, a seed draws as many as are asked for. For each one its module is rebuilt without
optimization in a copy of the sources, and the tests of that module run, then, if it survives, all unit tests.

What was tried is kept in build/mutants, so that an interrupted run goes on where it was; a file that has changed since
is tried again. Survivors that are explained in tests/survivors.txt are passed over. Exits with 1 when there are others.
"""

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import tokenize
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "mutants"
EXPLAINED = Path(__file__).with_name("survivors.txt")
"""Lines ``path | old -> new | the line of code | why nobody can notice``; others are comments."""
PACKAGES = ("protocol", "store", "instance", "server", "client_sdk", "pyspark_sluice")
FLAGS = "-O0 -g0 -DNDEBUG -fwrapv"
LONGEST = 900.0
"""Seconds that tests may take: a mutant that hangs is found."""
DECODER = ("test_decoder", "test_control", "test_executed", "test_plan")
TESTS: dict[str, tuple[str, ...]] = {
    "client_sdk/spark/changes.pyx": ("test_spark_changes",),
    "instance/parser/charset.pyx": ("test_charset", "test_plan"),
    "instance/parser/json.pyx": ("test_json",),
    "instance/parser/plan.pyx": ("test_plan", "test_values", "test_decoder"),
    "instance/parser/values.pyx": ("test_values", "test_plan"),
    "protocol/canal/arrow.pyx": ("test_arrow",),
    "protocol/canal/flat.pyx": ("test_flat",),
    "protocol/resultset.pyx": ("test_resultset",),
    "protocol/canal/rows.pyx": ("test_rows",),
    "store/ring.pyx": ("test_ring", "test_ring_model", "test_ranges", "test_cursors"),
    "store/segment.pyx": ("test_ring", "test_ring_model"),
}
"""The unit tests to ask first, by module; of others those of the decoder."""
REPLACEMENTS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "+": "-",
    "-": "+",
    "<<": ">>",
    ">>": "<<",
    "&": "|",
    "|": "&",
    "+=": "-=",
    "-=": "+=",
    "and": "or",
    "or": "and",
    "True": "False",
    "False": "True",
    "break": "continue",
    "continue": "break",
}
LAYOUT = frozenset(
    {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENDMARKER}
)
DECLARATIONS = frozenset({"cdef", "cpdef", "ctypedef", "def", "class", "from", "import", "cimport", "@", "for"})
"""First words of lines that are left alone: there is little to notice but a compiler's error."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A token of a file, and what takes its place."""

    path: str
    line: int
    column: int
    old: str
    new: str
    code: str
    """The whole line, without blanks around it."""
    version: str
    """Of the file."""

    @property
    def key(self) -> str:
        return f"{self.path}:{self.line}:{self.column} {self.old} -> {self.new} {self.version}"

    @property
    def explanation(self) -> str:
        """How the list of explained survivors names it."""
        return f"{self.path} | {self.old} -> {self.new} | {self.code}"

    def apply(self, text: str) -> str:
        lines = text.splitlines(keepends=True)
        line = lines[self.line - 1]
        lines[self.line - 1] = line[: self.column] + self.new + line[self.column + len(self.old) :]
        return "".join(lines)


def mutants_of(path: Path) -> Iterator[Mutant]:
    """All mutants of a file. Operators stand between blanks: a `<` that does not begins a cast."""
    text = path.read_text()
    lines = text.splitlines()
    version = hashlib.sha256(text.encode()).hexdigest()[:12]
    first = ""
    for token in tokenize.generate_tokens(iter(text.splitlines(keepends=True)).__next__):
        if token.type in LAYOUT:
            first = "" if token.type == tokenize.NEWLINE else first
            continue
        first = first or token.string
        if first in DECLARATIONS:
            continue
        (row, start), (_, end) = token.start, token.end
        line = lines[row - 1]
        if line.strip() == "return 0":  # "no error", as is every other number but -1
            continue
        between_blanks = line[start - 1 : start] in ("", " ") and line[end : end + 1] in ("", " ", ":", ")")
        new = REPLACEMENTS.get(token.string) if between_blanks else None
        if token.type == tokenize.NUMBER:
            new = str(int(token.string, 0) + 1) if token.string.isalnum() else None
        if new is not None:
            code = line.strip()
            yield Mutant(str(path.relative_to(ROOT)), row, start, token.string, new, code, version)


class Workshop:
    """A copy of the sources, and what is built of it without optimization."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sources = folder / "sources"

    def prepare(self) -> None:
        """Take over the sources as they are, and build what has changed. Raises SystemExit."""
        self.sources.mkdir(parents=True, exist_ok=True)
        ignored = shutil.ignore_patterns("*.so", "__pycache__")
        for name in PACKAGES:
            shutil.copytree(ROOT / name, self.sources / name, dirs_exist_ok=True, ignore=ignored)
        for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
            shutil.copy2(ROOT / name, self.sources / name)
        if failure := self.build():
            raise SystemExit(f"the sources cannot be built:\n{failure}")

    def build(self) -> str:
        """Build what has changed; return why it cannot be built."""
        done = subprocess.run(
            [sys.executable, "setup.py", "-q", "build", "--build-base", "objects", "--build-lib", "library"],
            cwd=self.sources,
            env={**os.environ, "CXXFLAGS": FLAGS},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stderr[-4000:] if done.returncode else ""

    def passes(self, *tests: str) -> bool:
        """Whether tests pass with what is built."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests]
        environment = {**os.environ, "PYTHONPATH": str(self.sources / "library")}
        try:
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False, timeout=LONGEST)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def judge(self, mutant: Mutant) -> str:
        """Return what becomes of a mutant: `killed`, `survived`, or `invalid` when it cannot be compiled."""
        with self.kept(mutant.path) as path:
            path.write_text(mutant.apply(path.read_text()))
            if self.build():
                return "invalid"
            near = [f"tests/unit/{name}.py" for name in TESTS.get(mutant.path, DECODER)]
            return "survived" if self.passes(*near) and self.passes("tests/unit") else "killed"

    @contextlib.contextmanager
    def kept(self, name: str) -> Iterator[Path]:
        """Put a module's source back at the end, and what was built of it, so that it need not be built again."""
        stem = name.removesuffix(".pyx")
        built = (f"build/cython/{stem}.cpp", f"objects/temp*/build/cython/{stem}.o", f"library/sluice/{stem}.*.so")
        files = [path for place in (name, *built) for path in self.sources.glob(place)]
        with tempfile.TemporaryDirectory() as folder:
            for number, path in enumerate(files):
                shutil.copy2(path, f"{folder}/{number}")
            try:
                yield self.sources / name
            finally:
                for number, path in enumerate(files):
                    shutil.copy2(f"{folder}/{number}", path)


def survivors(results: Sequence[tuple[Mutant, str]]) -> list[Mutant]:
    """Return the mutants that survived without an explanation."""
    explained = {line.rpartition(" | ")[0] for line in EXPLAINED.read_text().splitlines() if not line.startswith("#")}
    return [mutant for mutant, outcome in results if outcome == "survived" and mutant.explanation not in explained]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="which are drawn (%(default)s)")
    parser.add_argument("--limit", type=int, default=150, help="how many (%(default)s)")
    parser.add_argument("--only", default="", help="of files whose paths hold this")
    options = parser.parse_args()
    sources = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.pyx") if options.only in str(path))
    found = [mutant for path in sources for mutant in mutants_of(path)]
    chosen = random.Random(options.seed).sample(found, min(options.limit, len(found)))
    known_file = FOLDER / "results.jsonl"
    FOLDER.mkdir(parents=True, exist_ok=True)
    lines = known_file.read_text().splitlines() if known_file.exists() else []
    known: dict[str, str] = {key: outcome for line in lines for key, outcome in json.loads(line).items()}
    left = [mutant for mutant in chosen if mutant.key not in known]
    sys.stderr.write(f"seed {options.seed}: {len(chosen)} of {len(found)} mutants, {len(left)} of them to be tried\n")
    workshops: SimpleQueue[Workshop] = SimpleQueue()
    count = min(len(os.sched_getaffinity(0)), len(left))
    for number in range(count):
        workshop = Workshop(FOLDER / str(number))
        if not workshop.folder.exists() and number:
            shutil.copytree(FOLDER / "0", workshop.folder, ignore=shutil.ignore_patterns("links"))
        workshop.prepare()
        workshops.put(workshop)
    if left and not Workshop(FOLDER / "0").passes("tests/unit"):
        raise SystemExit("the unit tests fail without a mutant")
    begin = time.monotonic()

    def judge(mutant: Mutant) -> None:
        workshop = workshops.get()
        try:
            outcome = known[mutant.key] = workshop.judge(mutant)
        finally:
            workshops.put(workshop)
        with known_file.open("a") as file:
            file.write(json.dumps({mutant.key: outcome}) + "\n")
        sys.stderr.write(f"{time.monotonic() - begin:5.0f} s  {outcome:8}  {mutant.explanation}\n")

    with ThreadPoolExecutor(max(count, 1)) as threads:
        list(threads.map(judge, left))
    results = [(mutant, known[mutant.key]) for mutant in chosen]
    alive = survivors(results)
    for mutant in alive:
        sys.stdout.write(f"{mutant.path}:{mutant.line}: {mutant.old} -> {mutant.new}: {mutant.code}\n")
    outcomes = [outcome for _, outcome in results]
    counts = {outcome: outcomes.count(outcome) for outcome in ("killed", "survived", "invalid")}
    sys.stdout.write(json.dumps({**counts, "unexplained": len(alive)}) + "\n")
    raise SystemExit(1 if alive else 0)


if __name__ == "__main__":
    main()
