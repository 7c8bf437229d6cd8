"""What a test says when a server that it uses ends, and when it waits in vain."""

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.servers import ServerError
from tests.servers.server import ending, finish
from tests.waiting import eventually, soon
from tests.watching import Watch


class Program:
    """A server."""

    def __init__(self, log: Path) -> None:
        self.log = log
        with log.open("wb") as file:
            self.process: subprocess.Popen[bytes] | None = subprocess.Popen(
                ["sh", "-c", "echo last words; sleep 60 & wait"], stdout=file
            )
        eventually(log.read_text)

    @property
    def end(self) -> str:
        return ending("mariadb118", self.process, self.log)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    made = Program(tmp_path / "log")
    yield made
    finish(made.process, signal.SIGKILL, 10)


def use_of(*names: str, **params: str) -> Any:
    """A test that uses fixtures of these names, and is parametrized."""
    return SimpleNamespace(fixturenames=list(names), callspec=SimpleNamespace(params=params))


@pytest.mark.parametrize("test", [use_of("mariadb118"), use_of("server", server="mariadb118")])
def test_a_server_that_ends_by_itself_ends_the_test_that_uses_it_and_those_that_follow(
    program: Program, test: Any
) -> None:
    watch = Watch(interval=0.01)
    said = r"mariadb118 was killed by SIGKILL though no test has stopped it; its log ends:\nlast words"
    assert program.process is not None
    with watch.over("mariadb118", program):
        watch.check(test)
        with pytest.raises(ServerError, match=said), watch.during(test):  # noqa: PT012
            program.process.kill()
            time.sleep(30)
        with pytest.raises(ServerError, match=said):
            watch.check(test)


def test_tests_that_use_other_servers_go_on(program: Program) -> None:
    watch = Watch(interval=0.01)
    other = use_of("mysql97", "database", where="mysql97")
    assert program.process is not None
    with watch.over("mariadb118", program), watch.during(other):
        program.process.kill()
        eventually(lambda: program.end)
        time.sleep(0.05)
        watch.check(other)
        assert "mariadb118 was killed" in program.end


def test_a_server_that_a_test_stops_has_not_ended_by_itself(program: Program) -> None:
    process, program.process = program.process, None
    finish(process, signal.SIGTERM, 10)
    assert program.end == ""


def test_its_exit_status_is_said(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("no space\n")
    process = subprocess.Popen(["sh", "-c", "exit 3"])
    process.wait()
    text = ending("Kafka", process, tmp_path / "log")
    assert text == "Kafka ended with exit status 3 though no test has stopped it; its log ends:\nno space\n"


def test_what_was_waited_for_in_vain_is_said_in_words_or_as_it_stands_in_the_test() -> None:
    with pytest.raises(AssertionError, match="waited 0 s in vain: the purge"):
        eventually(lambda: False, "the purge", seconds=0)
    with pytest.raises(AssertionError, match="in vain: 3 files"):
        eventually(lambda: False, lambda: "3 files", seconds=0)
    left: list[str] = []
    with pytest.raises(AssertionError, match=r"in vain: eventually\(lambda: len\(left\) > 2, seconds=0\)"):
        eventually(lambda: len(left) > 2, seconds=0)


async def test_a_coroutine_says_it_too() -> None:
    with pytest.raises(AssertionError, match="waited 0 s in vain: the purge"):
        await soon(lambda: False, "the purge", seconds=0)


def test_an_item_that_is_not_there_yet_is_waited_for() -> None:
    stretches: list[str] = []

    def looked() -> bool:
        try:
            return stretches[0] == "mysql-bin.000001"
        finally:
            stretches.append("mysql-bin.000001")

    eventually(looked)
    with pytest.raises(AssertionError, match="in vain: the client") as raised:
        eventually(lambda: {"server": 1}["client"], "the client", seconds=0)
    assert repr(raised.value.__cause__) == "KeyError('client')"
