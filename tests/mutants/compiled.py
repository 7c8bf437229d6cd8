"""Runs the unit tests on mutants of the compiled core.

For each one its module is rebuilt without optimization in a copy of the sources, and the tests of that module run,
then, if it survives, the other unit tests of what is compiled.
"""

import contextlib
import ctypes
import functools
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.mutant import ROOT, Mutant

PACKAGES = ("protocol", "login", "store", "sql", "instance", "server", "client_sdk", "verify")
FLAGS = "-O0 -g0 -DNDEBUG -fwrapv"
LONGEST, LONGEST_NEAR = 900.0, 180.0
"""Seconds that all tests, and those of a module, may take: a mutant that hangs is found."""
DIE_WITH_PARENT = functools.partial(ctypes.CDLL(None).prctl, 1, signal.SIGKILL)
"""PR_SET_PDEATHSIG: a mutant that loops does not outlive a run that is killed."""
DECODER = ("test_decoder", "test_control", "test_executed", "test_plan")
TESTS: dict[str, tuple[str, ...]] = {
    "sql/changes.pyx": ("test_spark_changes",),
    "instance/merge/order.pyx": ("test_merge_order", "test_merger"),
    "instance/sources/kafka/stager.pyx": ("tidb/test_stager",),
    "instance/sources/ticdc/partition.pyx": ("tidb/test_partition",),
    "instance/values/charset.pyx": ("test_charset", "test_plan"),
    "instance/values/json.pyx": ("test_json",),
    "instance/values/json_differences.pyx": ("test_json_differences",),
    "instance/sources/mysql/decode/plan.pyx": ("test_plan", "test_values", "test_decoder"),
    "instance/values/binary.pyx": ("test_values", "test_plan"),
    "protocol/canal/arrow.pyx": ("test_arrow",),
    "protocol/canal/columns.pyx": ("test_tdsql", "tidb/test_transactions"),
    "protocol/canal/flat.pyx": ("test_flat",),
    "protocol/canal/resultset.pyx": ("test_resultset",),
    "protocol/canal/rows.pyx": ("test_rows",),
    "protocol/gtid_text.pyx": ("test_gtid", "test_executed"),
    "protocol/tdsql/messages.pyx": ("test_tdsql",),
    "protocol/tidb/canal_json.pyx": ("tidb/test_canal_json", "tidb/test_partition"),
    "protocol/tidb/encoder.pyx": ("tidb/test_entries", "tidb/test_canal_json"),
    "protocol/tidb/entries.pyx": ("tidb/test_entries",),
    "protocol/tidb/transactions.pyx": ("tidb/test_transactions",),
    "store/ring.pyx": ("test_ring", "test_ring_model", "test_ranges", "test_cursors"),
    "store/segment.pyx": ("test_ring", "test_ring_model"),
}
"""The unit tests to ask first, by module; of others those of the decoder."""
ELSEWHERE = (
    "client_sdk",
    "cli",
    *(
        f"test_{name}.py"
        for name in ("auth", "bench_report", "config", "config_bounds", "configuration_page", "database")
    ),
    *(f"test_{name}.py" for name in ("ddl", "docs", "examples", "files", "imports", "lengths", "locks", "logging")),
    *(f"test_{name}.py" for name in ("mutants", "mysql_session", "patterns", "properties", "proxy", "tcp_auth")),
)
"""The unit tests that are not asked: what is compiled only serves in them, or is not used at all."""
OTHERS = ("tests/unit", *(f"--ignore=tests/unit/{name}" for name in ELSEWHERE))


def sources() -> list[Path]:
    """Return the modules that are changed."""
    return sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.pyx"))


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
        shutil.rmtree(self.sources / "src", ignore_errors=True)  # its links would be there already
        shutil.copytree(ROOT / "src", self.sources / "src", symlinks=True, ignore=ignored)
        for name in ("__init__.py", "setup.py", "pyproject.toml", "README.md", "LICENSE"):
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

    def passes(self, longest: float, *tests: str) -> bool:
        """Whether tests pass with what is built, and end in `longest` seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.run(longest, *tests).returncode == 0
        return False

    def run(self, longest: float | None, *tests: str) -> subprocess.CompletedProcess[str]:
        """Run tests with what is built. Raises TimeoutExpired."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests]
        environment = {**os.environ, "PYTHONPATH": str(self.sources / "library")}
        return subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=longest,
            preexec_fn=DIE_WITH_PARENT,
        )

    def judge(self, mutant: Mutant) -> str:
        """Return what becomes of a mutant: `killed`, `survived`, or `invalid` when it cannot be compiled."""
        with self.kept(mutant.path) as path:
            path.write_text(mutant.apply(path.read_text()))
            if self.build():
                return "invalid"
            near = [f"tests/unit/{name}.py" for name in TESTS.get(mutant.path, DECODER)]
            return "survived" if self.passes(LONGEST_NEAR, *near) and self.passes(LONGEST, *OTHERS) else "killed"

    @contextlib.contextmanager
    def kept(self, name: str) -> Iterator[Path]:
        """Put a module's source back at the end, and what was built of it, so that it need not be built again."""
        stem = f"sluice/{name.removesuffix('.pyx')}"
        built = (f"build/cython/src/{stem}.cpp", f"objects/temp*/build/cython/src/{stem}.o", f"library/{stem}.*.so")
        files = [path for place in (name, *built) for path in self.sources.glob(place)]
        with tempfile.TemporaryDirectory() as folder:
            for number, path in enumerate(files):
                shutil.copy2(path, f"{folder}/{number}")
            try:
                yield self.sources / name
            finally:
                for number, path in enumerate(files):
                    shutil.copy2(f"{folder}/{number}", path)


def judge_all(
    folder: Path,
    mutants: Sequence[Mutant],
    is_open: Callable[[Mutant, str], bool],
    done: Callable[[Mutant, str, str], None],
) -> None:
    """Try the mutants that are open with the unit tests as they are, and say what became of each."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "tests" / "unit").rglob("*.py")):
        digest.update(path.read_bytes())
    tests = digest.hexdigest()[:12]
    left = [mutant for mutant in mutants if is_open(mutant, tests)]
    workshops: SimpleQueue[Workshop] = SimpleQueue()
    count = min(len(os.sched_getaffinity(0)), len(left))
    for number in range(count):
        workshop = Workshop(folder / str(number))
        if not workshop.folder.exists() and number:
            shutil.copytree(folder / "0", workshop.folder, symlinks=True)
        workshop.prepare()
        workshops.put(workshop)
    if left and (unchanged := Workshop(folder / "0").run(None, *OTHERS)).returncode:
        raise SystemExit(f"the unit tests fail without a mutant:\n{unchanged.stdout[-4000:]}")

    def judge(mutant: Mutant) -> None:
        workshop = workshops.get()
        try:
            outcome = workshop.judge(mutant)
        finally:
            workshops.put(workshop)
        done(mutant, outcome, tests)

    with ThreadPoolExecutor(max(count, 1)) as threads:
        list(threads.map(judge, left))
