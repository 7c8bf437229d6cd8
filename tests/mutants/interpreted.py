"""Runs the unit tests on mutants of Python modules, each in a fork of a process that has imported all else.

Which tests execute a line is found out first, by running each file of tests once; only those are asked.
"""

import ctypes
import functools
import hashlib
import importlib
import importlib.util
import json
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, TypeVar

import hypothesis
import pytest

from tests.mutants.mutant import ROOT, Mutant, python_mutants

SOURCES = (
    "store/*.py",
    "instance/meta/*.py",
    "instance/merge/*.py",
    "server/ha/*.py",
    "server/credentials.py",
    "server/http/auth.py",
    "server/http/checks.py",
    "server/lag.py",
)
TESTS = (
    "tests/unit/**/test_*.py",
    "tests/simulation/test_schedules.py",
    "tests/integration/test_cluster.py",
    "tests/integration/test_zookeeper*.py",
)
"""Without those that need more than a ZooKeeper, which is there in a second or two."""
HELPERS = ("tests/*.py", "tests/unit/**/*.py", "tests/simulation/*.py", "tests/integration/conftest.py")
TOO_LONG = "tests/simulation/test_schedules.py::test_what_must_hold_holds_in_random_schedules"
OPTIONS = ("-q", "-x", "-n", "0", "--tb=no", "--assert=plain", "-p", "no:cacheprovider", "--hypothesis-profile=mutants")
BUDGET = 60.0
"""Seconds that the tests of a mutant take, the quickest first: a few lines are executed by nearly all there are."""
SHORTEST = 15.0
"""Seconds that a mutant has at least; and thrice what its tests take while their lines are noted, which is slow."""
LONGEST = 300.0
"""Seconds for a file of tests while it is looked what it executes."""
SURVIVES, KILLED, FAILED = 0, 1, 2

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

Line = tuple[str, int]
T = TypeVar("T")


@dataclass
class Test:
    """A test, and what it executes."""

    name: str
    seconds: float = 0.0
    lines: set[Line] = field(default_factory=set)

    @property
    def file(self) -> str:
        return self.name.partition("::")[0]


class Tracer:
    """A plugin of pytest that notes which lines of the sources each test executes."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.tests: list[Test] = []
        self.failed: list[str] = []
        self._paths = {str(ROOT / path): path for path in paths}
        self._lines: set[Line] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note what this test executes."""
        test = Test(item.nodeid)
        self._lines = test.lines
        begin = time.monotonic()
        try:
            return (yield)
        finally:
            test.seconds = time.monotonic() - begin
            self.tests.append(test)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that fails without a mutant."""
        if report.failed:
            self.failed.append(report.nodeid)

    def trace(self, frame: FrameType, _event: str, _argument: Any) -> Callable[..., Any] | None:
        """See a call; those of other files are not followed."""
        path = self._paths.get(frame.f_code.co_filename)
        if path is None or frame.f_code.co_name == "<module>":
            return None

        def step(frame: FrameType, _event: str, _argument: Any) -> Callable[..., Any]:
            self._lines.add((path, frame.f_lineno))
            return step

        return step


class _Mutated(SourceFileLoader):
    """Loads a module from a text that is not that of its file."""

    def __init__(self, mutant: Mutant) -> None:
        super().__init__(_module(ROOT / mutant.path), str(ROOT / mutant.path))
        self._text = mutant.apply((ROOT / mutant.path).read_text())

    def find_spec(self, name: str, _path: object = None, _target: ModuleType | None = None) -> ModuleSpec | None:
        """Answer the import system for this module."""
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, _name: str) -> CodeType:
        """Compile the mutant."""
        return compile(self._text, self.path, "exec")


def sources() -> list[Path]:
    """Return the modules that are changed."""
    return sorted(path for pattern in SOURCES for path in ROOT.glob(pattern))


def _module(path: Path) -> str:
    """Return the name of a module, or of the package whose file it is."""
    return ".".join(("sluice", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


def judge_all(
    folder: Path,
    mutants: Sequence[Mutant],
    is_open: Callable[[Mutant, str], bool],
    done: Callable[[Mutant, str, str], None],
) -> None:
    """Try the mutants that are open, and say what became of each. Raises SystemExit."""
    if mutants:
        # One more than there are processors: half of a test's time is waiting.
        interpreter = Interpreter(folder / "python", len(os.sched_getaffinity(0)) + 1)
        interpreter.prepare()
        interpreter.judge_all(mutants, is_open, done)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _fork(work: Callable[[], int]) -> int:
    """Do some work in a process of its own that says nothing and ends with this one; return its id."""
    if child := os.fork():
        return child
    try:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        code = work()
    except BaseException:  # noqa: BLE001  whatever it is, the parent goes on with the next one
        code = FAILED
    finally:
        os._exit(code)


def _run_all(jobs: Iterable[tuple[T, Callable[[], int], float]], done: Callable[[T, int], None], places: int) -> None:
    """Run jobs in processes, some at a time; each has so many seconds, and one that takes longer is killed."""
    running: dict[int, tuple[T, float]] = {}
    for what, work, seconds in jobs:
        if len(running) == places:
            _await_one(running, done)
        running[_fork(work)] = what, time.monotonic() + seconds
    while running:
        _await_one(running, done)


def _await_one(running: dict[int, tuple[T, float]], done: Callable[[T, int], None]) -> None:
    """Wait until one of the processes has ended; kill those that take too long."""
    while True:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child in running:
            break
        for late in [it for it, (_, end) in running.items() if time.monotonic() > end]:
            os.kill(late, signal.SIGKILL)
        time.sleep(0.02)
    for process in Path("/proc/self/task", str(os.getpid()), "children").read_text().split():
        if int(process) not in running:  # it was started by the one that has ended, and left behind
            os.kill(int(process), signal.SIGKILL)
    done(running.pop(child)[0], os.waitstatus_to_exitcode(status))


class Interpreter:
    """What is imported once for all mutants, and which tests execute which lines."""

    def __init__(self, folder: Path, places: int) -> None:
        self._folder = folder
        self._places = places
        self._tests: list[Test] = []

    def prepare(self) -> None:
        """Import what no mutant changes, and see what the tests execute. Raises SystemExit when one of them fails."""
        self._folder.mkdir(parents=True, exist_ok=True)
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        hypothesis.settings.register_profile(
            "mutants", derandomize=True, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
        )
        self._import()
        files = sorted({str(path.relative_to(ROOT)) for pattern in TESTS for path in ROOT.glob(pattern)})
        common = hashlib.sha256()
        helpers = [path for pattern in HELPERS for path in ROOT.glob(pattern) if not path.name.startswith("test_")]
        for path in [*sources(), *sorted(helpers)]:
            common.update(path.read_bytes())
        notes = {}
        for file in files:
            version = common.copy()
            version.update((ROOT / file).read_bytes())
            notes[file] = self._folder / f"{Path(file).stem}-{version.hexdigest()[:16]}.json"
        missing = [file for file in files if not notes[file].exists()]
        failed: list[str] = []

        def done(file: str, code: int) -> None:
            sys.stderr.write(f"{file}: {'seen' if code == SURVIVES else 'fails without a mutant'}\n")
            if code != SURVIVES:
                failed.append(file)

        _run_all(((file, functools.partial(_look, file, notes[file]), LONGEST) for file in missing), done, self._places)
        if failed:
            raise SystemExit(f"fail without a mutant: {', '.join(failed)}")
        self._tests = [_read(it) for file in files for it in json.loads(notes[file].read_text())]

    def judge_all(
        self,
        mutants: Iterable[Mutant],
        is_open: Callable[[Mutant, str], bool],
        done: Callable[[Mutant, str, str], None],
    ) -> None:
        """Try the mutants that are open with the tests that execute them, and say what became of each."""
        jobs = []
        for mutant in mutants:
            tests = self.tests_of(mutant)
            digest = hashlib.sha256()
            for file in sorted({it.file for it in tests}):
                digest.update((ROOT / file).read_bytes())
            version = digest.hexdigest()[:12]
            tests = _quickest(tests)
            if not is_open(mutant, version):
                continue
            if not tests:
                done(mutant, "survived", version)
                continue
            seconds = sum(it.seconds for it in tests)
            work = functools.partial(_try, mutant, tests)
            jobs.append(((mutant, version), work, SHORTEST + 3 * seconds))

        def ended(what: tuple[Mutant, str], code: int) -> None:
            mutant, version = what
            done(mutant, "survived" if code == SURVIVES else "killed", version)

        _run_all(jobs, ended, self._places)

    def tests_of(self, mutant: Mutant) -> list[Test]:
        """Return the tests that execute what a mutant changes.

        What an import executes, such as a constant, is seen by all that execute anything of the folder: other modules
        use it.
        """
        first, last = mutant.statement
        if not first:
            folder = f"{Path(mutant.path).parent}/"
            return [test for test in self._tests if any(path.startswith(folder) for path, _ in test.lines)]
        return [
            test
            for test in self._tests
            if any(path == mutant.path and first <= line <= last for path, line in test.lines)
        ]

    def _import(self) -> None:
        """Import the libraries, and the compiled modules with what they import."""
        names = self._folder / "modules.json"
        collected: list[int] = []
        _run_all([(None, lambda: _collect(names), LONGEST)], lambda _, code: collected.append(code), 1)
        if collected != [SURVIVES]:
            raise SystemExit("the unit tests cannot be collected: make test ARGS='--collect-only tests/unit'")
        for name in json.loads(names.read_text()):
            importlib.import_module(name)
        for path in sources():
            assert _module(path) not in sys.modules or not python_mutants(path), f"a compiled module imports {path}"


def _quickest(tests: Sequence[Test]) -> list[Test]:
    """Return the quickest tests, for as long as there is time."""
    found: list[Test] = []
    left = BUDGET
    for test in sorted(tests, key=lambda it: it.seconds):
        if left < 0:
            break
        found.append(test)
        left -= test.seconds
    return found


def _collect(names: Path) -> int:
    """Write down what the tests import that is compiled or a library."""
    tests = [str(path.relative_to(ROOT)) for pattern in TESTS for path in ROOT.glob(pattern)]
    code = pytest.main([*OPTIONS, "--collect-only", *tests])
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        ours = name.partition(".")[0] in ("sluice", "tests", "bench", "scripts", "conftest", "pyspark_sluice")
        if file and (file.endswith(".so") or not ours) and not file.startswith(str(ROOT / "tests")):
            found.append(name)
    names.write_text(json.dumps(found))
    return code


def _look(file: str, notes: Path) -> int:
    """Run a file of tests, and write down what they execute."""
    tracer = Tracer(str(path.relative_to(ROOT)) for path in sources())
    threading.settrace(tracer.trace)
    sys.settrace(tracer.trace)
    code = pytest.main([*OPTIONS, "--deselect", TOO_LONG, file], plugins=[tracer])
    sys.settrace(None)
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return FAILED
    data = []
    for test in tracer.tests:
        lines = defaultdict(list)
        for path, line in sorted(test.lines):
            lines[path].append(line)
        data.append({"name": test.name, "seconds": round(test.seconds, 4), "lines": lines})
    new = notes.with_suffix(".new")
    new.write_text(json.dumps(data))
    new.replace(notes)
    return SURVIVES


def _read(data: Mapping[str, Any]) -> Test:
    lines = {(path, line) for path, numbers in data["lines"].items() for line in numbers}
    return Test(data["name"], data["seconds"], lines)


def _try(mutant: Mutant, tests: Sequence[Test]) -> int:
    """Run tests on a mutant: first those of the file that has most of them to ask for the time."""
    sys.meta_path.insert(0, _Mutated(mutant))
    by_file = defaultdict(list)
    for test in tests:
        by_file[test.file].append(test)
    near = max(by_file, key=lambda it: len(by_file[it]) / (1 + sum(test.seconds for test in by_file[it])))
    others = [test.name for test in tests if test.file != near]
    for names in ([test.name for test in by_file[near]], others):
        if names and pytest.main([*OPTIONS, *names]) != pytest.ExitCode.OK:
            return KILLED
    return SURVIVES
