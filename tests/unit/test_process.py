"""The server process: a signal ends it in order at any moment, also while it starts."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from sluice.server import stamp
from sluice.server.config import Configuration
from sluice.server.embedded import EmbeddedServer
from sluice.server.http.config import HttpConfig
from sluice.server.http.transport import Server
from sluice.server.logins import LoginLimiter
from sluice.server.metrics import Metrics
from sluice.server.process import run, serve
from sluice.server.resources import Resources
from sluice.server.waiting import Stopping
from tests.canal import stored
from tests.source import Source
from tests.waiting import soon

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def restored_signals() -> Iterator[None]:
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    (tmp_path / "shop").mkdir()
    (tmp_path / "canal.properties").write_text(
        "canal.destinations = shop\nsluice.http.port = 0\ncanal.port = 0\ncanal.auto.scan = false\n"
    )
    (tmp_path / "shop" / "instance.properties").write_text(
        "canal.instance.master.address = 127.0.0.1:1\ncanal.instance.dbUsername = cdc\n"
    )
    return Configuration(tmp_path, {})


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[EmbeddedServer]:
    """The servers that were closed."""
    found: list[EmbeddedServer] = []
    close = EmbeddedServer.close

    async def note(self: EmbeddedServer) -> None:
        found.append(self)
        await close(self)

    monkeypatch.setattr(EmbeddedServer, "close", note)
    return found


def starting(monkeypatch: pytest.MonkeyPatch, number: int, then: Callable[[], Awaitable[object]]) -> None:
    """Let a signal come while a destination starts."""

    async def start(_self: EmbeddedServer, _name: str) -> None:
        os.kill(os.getpid(), number)
        await then()

    monkeypatch.setattr(EmbeddedServer, "start", start)


@pytest.mark.parametrize("number", SIGNALS)
async def test_a_signal_while_it_starts_ends_it_in_order(
    configuration: Configuration,
    closed: list[EmbeddedServer],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: int,
) -> None:
    caplog.set_level("INFO")
    starting(monkeypatch, number, asyncio.Event().wait)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.create_task(run(configuration, LoginLimiter())), 30)
    assert closed
    assert "serves http" not in caplog.text


async def test_it_ends_although_what_is_being_started_passes_over_being_cancelled(
    configuration: Configuration, closed: list[EmbeddedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go_on() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    starting(monkeypatch, signal.SIGTERM, go_on)
    await asyncio.wait_for(asyncio.create_task(run(configuration, LoginLimiter())), 30)
    assert closed


async def test_the_files_with_secrets_of_the_server_are_watched(
    configuration: Configuration, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(stamp, "RELOAD", 0.01)
    file = configuration.folder / "secret"
    file.write_text(stored("former"))
    with configuration.main_file.open("a") as main:
        main.write(f"canal.passwdFile = {file}\n")
    running = asyncio.create_task(run(Configuration(configuration.folder, {}), LoginLimiter()))
    await soon(lambda: "Canal's clients are served" in caplog.text)
    file.write_text(stored("present"))
    await soon(lambda: "new logins need the present one" in caplog.text)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(running, 30)
    assert stored("present") not in caplog.text


async def test_a_front_that_fails_ends_the_server_with_its_error(
    closed: list[EmbeddedServer], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def fail(_self: Server, _counter: int) -> bool:
        raise RuntimeError("broken")

    monkeypatch.setattr(Server, "on_tick", fail)
    embedded = EmbeddedServer(lambda _: pytest.fail("nothing starts"), Source)
    resources = Resources(embedded, Metrics(embedded), Stopping(), LoginLimiter())
    served: list[object] = []
    config = HttpConfig(port=0, credentials=tmp_path / "none")
    serving = asyncio.create_task(serve([config], resources, served.append))
    await soon(serving.done, "the server goes on without its front", 30)
    with pytest.raises(RuntimeError, match="broken"):
        await serving
    assert served
    assert closed == [embedded]
