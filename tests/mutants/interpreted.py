"""Runs the unit tests on mutants of Python modules, each in a fork of a process that has collected all tests.

Which tests execute a line is found out first, by running each file of tests once; only those are asked, the quickest
first, up to the first that fails. In the fork the code of one function is replaced. What an import executes cannot be
replaced so: such a mutant has a fork of a process that has imported all else, and collects its tests itself.
"""

import functools
import gc
import hashlib
import importlib
import importlib.util
import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import hypothesis
import pytest

from tests.mutants.mutant import ROOT, Mutant, python_mutants
from tests.mutants.processes import FAILED, adopt_orphans, run_all

SOURCES = (
    "store/*.py",
    "instance/meta/*.py",
    "instance/merge/*.py",
    "server/ha/*.py",
    "server/certificates.py",
    "server/credentials.py",
    "server/http/auth.py",
    "server/http/checks.py",
    "server/lag.py",
)
TESTS = (
    "tests/unit/**/test_*.py",
    "tests/simulation/test_schedules.py",
    "tests/integration/test_cluster.py",
    "tests/integration/test_object_store.py",
    "tests/integration/test_restore.py",
    "tests/integration/test_zookeeper*.py",
)
"""Without those that need more than a ZooKeeper, which is there in a second or two, or moto's server in the process."""
HELPERS = ("tests/*.py", "tests/unit/**/*.py", "tests/simulation/*.py", "tests/integration/conftest.py")
TOO_LONG = "tests/simulation/test_schedules.py::test_what_must_hold_holds_in_random_schedules"
OPTIONS = (
    *("-q", "-x", "-n", "0", "-s", "--tb=no", "--assert=plain", "-p", "no:cacheprovider"),
    *("--timeout=0", "--hypothesis-profile=mutants"),
)
BUDGET = 30.0
"""Seconds that the tests of a mutant take, the quickest first: a few lines are executed by nearly all there are."""
SHORTEST = 10.0
"""Seconds of computing, and of sleep, that a mutant has at least; and thrice what its tests took when their lines were
noted, which is slow."""
LONGEST = 600.0
"""The same for a file of tests while it is looked what it executes."""
SURVIVES, KILLED = 0, 1

Line = tuple[str, int]


@dataclass
class Test:
    """A test, and what it executes."""

    name: str
    seconds: float = 0.0
    lines: set[Line] = field(default_factory=set)

    @property
    def file(self) -> str:
        return self.name.partition("::")[0]

    @functools.cached_property
    def paths(self) -> frozenset[str]:
        """The sources of which it executes something."""
        return frozenset(path for path, _ in self.lines)


class Tracer:
    """A plugin of pytest that notes which lines of the sources each test executes."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.tests: list[Test] = []
        self.failed: list[str] = []
        self._paths = {str(ROOT / path): path for path in paths}
        self._lines: dict[CodeType, frozenset[int]] = {}
        self._unseen: dict[CodeType, set[int]] = {}
        """Of the code that this test has called: a loop is not followed for ever."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note what this test executes."""
        test = Test(item.nodeid)
        self._unseen = {}
        begin = _clock()
        try:
            return (yield)
        finally:
            test.seconds = _clock() - begin
            for code, unseen in self._unseen.items():
                test.lines |= {(self._paths[code.co_filename], line) for line in self._lines[code] - unseen}
            self.tests.append(test)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that fails without a mutant."""
        if report.failed:
            self.failed.append(report.nodeid)

    def trace(self, frame: FrameType, _event: str, _argument: Any) -> Callable[..., Any] | None:
        """See a call; it is followed if it may execute a line of the sources that this test has not executed yet."""
        code = frame.f_code
        if code.co_filename not in self._paths or code.co_name == "<module>":
            return None
        unseen = self._unseen.get(code)
        if unseen is None:
            if code not in self._lines:
                self._lines[code] = frozenset(line for _, _, line in code.co_lines() if line)
            unseen = self._unseen[code] = set(self._lines[code])
        unseen.discard(frame.f_lineno)
        return self._step if unseen else None

    def _step(self, frame: FrameType, _event: str, _argument: Any) -> Callable[..., Any]:
        self._unseen[frame.f_code].discard(frame.f_lineno)
        return self._step


def _clock() -> float:
    """Return the seconds for which this thread has computed and slept: to wait for a processor does not count."""
    waited = int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    return time.monotonic() - waited


class Functions:
    """The functions of the sources that this process has imported, and replaces the code of."""

    def __init__(self) -> None:
        paths = {str(path) for path in sources()}
        self._found = defaultdict[tuple[str, str, int], list[FunctionType]](list)
        gc.unfreeze()
        for it in gc.get_objects():
            if isinstance(it, FunctionType) and it.__code__.co_filename in paths:
                code = it.__code__
                self._found[code.co_filename, code.co_qualname, code.co_firstlineno].append(it)
        gc.freeze()

    def replace(self, mutant: Mutant) -> None:
        """Let a function do what a mutant does, from its next call on. Raises KeyError and ValueError if that fails."""
        path, unit = str(ROOT / mutant.path), mutant.unit
        functions = self._found.get((path, unit.name, unit.line))
        if functions is None:
            raise KeyError(f"nothing has imported {unit.name} of {mutant.path}")
        module = compile(mutant.apply(Path(path).read_text()), path, "exec")
        code = next(it for it in _codes(module) if (it.co_qualname, it.co_firstlineno) == (unit.name, unit.line))
        for function in functions:
            function.__code__ = code


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Give all that is compiled inside of a piece of code."""
    for it in code.co_consts:
        if isinstance(it, CodeType):
            yield it
            yield from _codes(it)


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
        # More than there are processors: half of a test's time is waiting, and so is all that of a mutant that hangs.
        interpreter = Interpreter(folder / "python", 2 * len(os.sched_getaffinity(0)))
        interpreter.prepare()
        interpreter.judge_all(mutants, is_open, done)


class Interpreter:
    """What is imported once for all mutants, and which tests execute which lines."""

    def __init__(self, folder: Path, places: int) -> None:
        self._folder = folder
        self._places = places
        self._tests: list[Test] = []
        self._tests_at: dict[Line, list[Test]] = defaultdict(list)

    def prepare(self) -> None:
        """Import what no mutant changes, and see what the tests execute. Raises SystemExit when one of them fails."""
        self._folder.mkdir(parents=True, exist_ok=True)
        adopt_orphans()
        hypothesis.settings.register_profile(
            "mutants",
            derandomize=True,
            deadline=None,
            max_examples=30,
            phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],  # an example that fails need not be short
            suppress_health_check=list(hypothesis.HealthCheck),
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

        run_all(((file, functools.partial(_look, file, notes[file]), LONGEST) for file in missing), done, self._places)
        if failed:
            raise SystemExit(f"fail without a mutant: {', '.join(failed)}")
        self._tests = [_read(it) for file in files for it in json.loads(notes[file].read_text())]
        for test in self._tests:
            for line in test.lines:
                self._tests_at[line].append(test)

    def judge_all(
        self,
        mutants: Iterable[Mutant],
        is_open: Callable[[Mutant, str], bool],
        done: Callable[[Mutant, str, str], None],
    ) -> None:
        """Try the mutants that are open with the tests that execute them, and say what became of each."""
        imported, replaced = list[_Job](), list[_Job]()
        for mutant in mutants:
            tests = self.tests_of(mutant)
            digest = hashlib.sha256()
            for file in sorted({it.file for it in tests}):
                digest.update((ROOT / file).read_bytes())
            version = digest.hexdigest()[:12]
            if not is_open(mutant, version):
                continue
            if not tests:
                done(mutant, "survived", version)
                continue
            jobs = replaced if mutant.is_replaceable else imported
            jobs.append(_Job(mutant, version, _quickest(tests, mutant.path)))

        def ended(job: _Job, code: int) -> None:
            if code == FAILED:
                raise SystemExit(f"cannot be tried: {job.mutant.explanation}")
            done(job.mutant, "survived" if code == SURVIVES else "killed", job.version)

        run_all(((it, functools.partial(_import_and_try, it), it.seconds) for it in imported), ended, self._places)
        if replaced:
            names = {test.file for job in replaced for test in job.tests}
            judge = Judge(replaced, ended, self._places)
            pytest.main([*OPTIONS, *sorted(names)], plugins=[judge])
            if judge.left:
                raise SystemExit("not all could be tried")

    def tests_of(self, mutant: Mutant) -> list[Test]:
        """Return the tests that execute what a mutant changes.

        What an import executes, such as a constant, is seen by all that execute anything of the folder: other modules
        use it.
        """
        first, last = mutant.statement
        if not first:
            folder = f"{Path(mutant.path).parent}/"
            return [test for test in self._tests if any(path.startswith(folder) for path in test.paths)]
        found = {
            test.name: test for line in range(first, last + 1) for test in self._tests_at.get((mutant.path, line), ())
        }
        return list(found.values())

    def _import(self) -> None:
        """Import the libraries, and the compiled modules with what they import."""
        names = self._folder / "modules.json"
        collected: list[int] = []
        run_all([(None, lambda: _collect(names), LONGEST)], lambda _, code: collected.append(code), 1)
        if collected != [SURVIVES]:
            raise SystemExit("the unit tests cannot be collected: make test ARGS='--collect-only tests/unit'")
        for name in json.loads(names.read_text()):
            importlib.import_module(name)
        for path in sources():
            assert _module(path) not in sys.modules or not python_mutants(path), f"a compiled module imports {path}"


def _quickest(tests: Sequence[Test], path: str) -> list[Test]:
    """Return the quickest tests, for as long as there is time; first those that execute something of a file."""
    found: list[Test] = []
    left = BUDGET
    for test in sorted(tests, key=lambda it: (path not in it.paths, it.seconds)):
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


@dataclass
class _Job:
    """A mutant, the version of its tests, and those that are run."""

    mutant: Mutant
    version: str
    tests: list[Test]

    @property
    def seconds(self) -> float:
        """How long it may compute, or sleep."""
        return SHORTEST + 3 * sum(it.seconds for it in self.tests)


class Judge:
    """A plugin of pytest that tries mutants with what was collected, instead of running that."""

    def __init__(self, jobs: Sequence[_Job], done: Callable[[_Job, int], None], places: int) -> None:
        self.left = list(jobs)
        self._done = done
        self._places = places

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Fork for each mutant."""
        items = {it.nodeid: it for it in session.items}
        functions = Functions()

        def work(job: _Job) -> int:
            functions.replace(job.mutant)
            return _try(session, [items[it.name] for it in job.tests])

        run_all(((it, functools.partial(work, it), it.seconds) for it in self.left), self._done, self._places)
        self.left = []
        return True


def _try(session: pytest.Session, items: Sequence[pytest.Item]) -> int:
    """Run tests that were collected, up to the first that fails."""
    try:
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                return KILLED
    except BaseException:  # noqa: BLE001  such as SystemExit, which ends all tests
        return KILLED
    return SURVIVES


def _import_and_try(job: _Job) -> int:
    """Import a mutant and run its tests: first those of the file that has most of them to ask for the time."""
    sys.meta_path.insert(0, _Mutated(job.mutant))
    by_file = defaultdict(list)
    for test in job.tests:
        by_file[test.file].append(test)
    near = max(by_file, key=lambda it: len(by_file[it]) / (1 + sum(test.seconds for test in by_file[it])))
    others = [test.name for test in job.tests if test.file != near]
    for names in ([test.name for test in by_file[near]], others):
        if names and pytest.main([*OPTIONS, *names]) != pytest.ExitCode.OK:
            return KILLED
    return SURVIVES
