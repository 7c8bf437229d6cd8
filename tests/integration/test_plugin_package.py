"""A package with a source, an output and a form: built, installed, and used by a server that is killed."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluice.instance.plugins import FORMS, OUTPUTS
from tests.plugins import EXAMPLE, install
from tests.servers.server import free_port
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
SLUICE = [sys.executable, "-c", "from sluice.server.cli import main; main()"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for Python's path in which the wheel of the package is installed."""
    source, folder = tmp_path_factory.mktemp("source") / "package", tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "install", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--no-compile", "--target", folder, source], check=True)
    return folder


class Server:
    """A conf folder with a destination of all three, and the processes that serve it."""

    def __init__(self, folder: Path, *installed: Path) -> None:
        self.changes, self.journal, self.log = folder / "changes.jsonl", folder / "journal", folder / "log"
        self.environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [ROOT / "src", *installed]))}
        self.conf = folder / "conf"
        (self.conf / "lines").mkdir(parents=True)
        (self.conf / "canal.properties").write_text(
            f"canal.destinations = lines\nsluice.http.port = {free_port()}\ncanal.withoutNetty = true\n"
        )
        (self.conf / "lines" / "instance.properties").write_text(
            "sluice.instance.source = json-lines\nsluice.instance.json-lines.file = ../changes.jsonl\n"
            "canal.file.flush.period = 1\nsluice.instance.timeZone = UTC\nsluice.outputs = copy\n"
            "sluice.output.copy.type = journal\nsluice.output.copy.file = ../journal\n"
            "sluice.output.copy.format = rows\nsluice.output.copy.maxBytes = 1024\nsluice.output.copy.window = 2\n"
        )
        self.changes.touch()

    def write(self, first: int, count: int) -> None:
        with self.changes.open("a") as lines:
            for number in range(first, first + count):
                row = {"id": str(number), "name": "x" * 200}
                lines.write(json.dumps({"schema": "shop", "table": "t", "type": "INSERT", "row": row}) + "\n")

    def run(self, *arguments: str) -> str:
        command = [*SLUICE, *arguments]
        return subprocess.run(command, env=self.environ, check=True, capture_output=True, text=True).stdout

    @contextmanager
    def serving(self) -> Iterator[subprocess.Popen[bytes]]:
        """Serve in a process that is killed at the end."""
        with self.log.open("a") as log:
            command = [*SLUICE, "serve", "--conf", str(self.conf)]
            process = subprocess.Popen(command, env=self.environ, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def ids(self) -> list[int]:
        """The rows that count in the journal."""
        state = self.journal.with_name("journal.state")
        size = json.loads(state.read_text())["size"] if state.exists() else 0
        lines = self.journal.read_bytes()[:size].splitlines() if size else []
        return [int(json.loads(line)["row"]["id"]) for line in lines]

    def arrives(self, count: int) -> None:
        """Wait for rows, and fail with the log if they do not come."""
        eventually(lambda: len(self.ids()) >= count, lambda: f"{len(self.ids())} rows: {self.log.read_text()[-3000:]}")


def test_a_package_is_installed_listed_checked_and_served(installed: Path, tmp_path: Path) -> None:
    server = Server(tmp_path, installed)
    server.write(0, 20)
    listed = [line.split(":")[0] for line in server.run("plugins").splitlines()]
    assert listed == ["ok   sluice.sources json-lines", "ok   sluice.outputs journal", "ok   sluice.forms rows"]
    with server.serving():
        server.arrives(20)
    with server.serving():
        server.write(20, 5)
        server.arrives(25)
    assert server.ids() == list(range(25))


@pytest.mark.extended
def test_the_commands_know_the_package(installed: Path, tmp_path: Path) -> None:
    server = Server(tmp_path, installed)
    server.write(0, 3)
    checked = server.run("check", "--conf", str(server.conf))
    assert "ok   lines: JSON lines in a file, history " in checked
    assert f"ok   output copy of lines: {tmp_path}/journal can be written; each change once" in checked


@pytest.mark.extended
def test_each_change_is_there_once_whenever_the_server_is_killed(installed: Path, tmp_path: Path) -> None:
    server = Server(tmp_path, installed)
    chosen = random.Random(7)
    count = 0
    for _ in range(4):
        server.write(count, 2000)
        begin, count = count, count + 2000
        with server.serving():
            server.arrives(chosen.randrange(begin + 1, count))
    with server.serving():
        server.arrives(count)
    assert server.ids() == list(range(count))


STUCK = """
import time
from sluice_example.output import Journal

class Form:
    api = 1

    def records(self, data):
        print("it hangs", flush=True)
        time.sleep(600)

class Output(Journal):
    def __init__(self, settings, identity):
        Form().records(b"")
"""


@pytest.mark.extended
@pytest.mark.parametrize("setting", ["format", "type"])
def test_a_form_or_an_output_that_hangs_keeps_no_server_from_stopping(
    setting: str, installed: Path, tmp_path: Path
) -> None:
    install(tmp_path / "site", "stuck", {FORMS: {"stuck": "stuck:Form"}, OUTPUTS: {"stuck": "stuck:Output"}}, STUCK)
    server = Server(tmp_path, installed, tmp_path / "site")
    with (server.conf / "lines" / "instance.properties").open("a") as own:
        own.write(f"sluice.output.copy.{setting} = stuck\n")
    server.write(0, 1)
    with server.serving() as process:
        eventually(lambda: "it hangs" in server.log.read_text())
        process.terminate()
        assert process.wait(20) == 0


@pytest.mark.extended
def test_its_author_can_try_its_promises(installed: Path, tmp_path: Path) -> None:
    server = Server(tmp_path, installed)
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(tmp_path)]
    command = [*pytest_, shutil.copy(EXAMPLE / "promises.py", tmp_path)]
    environ = {name: it for name, it in server.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=tmp_path, env=environ, check=False, capture_output=True, text=True)
    assert "3 passed" in done.stdout, done.stdout
