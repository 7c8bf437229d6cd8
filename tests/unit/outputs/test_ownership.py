"""Outputs own their clients, and exist as soon as they are configured. The other side is a list."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.protocol.errors import ConfigError, OwnedError
from sluice.protocol.position import Position
from sluice.server.embedded import EmbeddedServer
from sluice.server.outputs import delivery, outputs
from sluice.server.outputs.configured import CANALS_CLIENT
from sluice.server.outputs.outputs import Outputs, assign
from sluice.server.outputs.settings import Output, OutputSettings
from sluice.store.cursor import SKIP, StoredClient
from sluice.store.snapshot import Selection
from tests.source import Source, start_embedded
from tests.unit.outputs.test_delivery import ListTarget
from tests.waiting import soon

NAME = "example"
FIRST = 32001


class Setup:
    """A destination whose changes are numbers, and what is configured of its outputs."""

    def __init__(self, embedded: EmbeddedServer, source: Source) -> None:
        self.embedded = embedded
        self.source = source
        self.targets: dict[str, ListTarget] = {}
        self.configured: list[Output] = []
        self.missing = ""
        """Why no other side can be made."""
        self.free = threading.Event()
        """Whether one can be made at once."""
        self.free.set()
        self.outputs = Outputs(embedded, lambda _: self.configured, self.make)
        embedded.companions = self.outputs

    def make(self, output: Output) -> ListTarget:
        self.free.wait(60)
        if self.missing:
            raise ConfigError(self.missing)
        return self.targets.setdefault(output.name, ListTarget())

    async def start(self, *outputs: Output) -> None:
        self.configured = list(outputs)
        await self.outputs.start(NAME)

    @property
    def states(self) -> dict[str, str]:
        return {it.name: it.state for it in self.outputs.status(NAME)}

    @property
    def owners(self) -> dict[int, str]:
        return {it.client_id: it.output for it in self.embedded.clients(NAME)}

    async def run(self, *outputs: Output) -> None:
        """Start them, and wait until they deliver."""
        await self.start(*outputs)
        await soon(lambda: all(state == "running" for state in self.states.values()))


def place(number: int) -> str:
    """Where the change of that number begins."""
    return f"101/bin.000001@1700000000:{4 + 100 * number}:0"


PLACES = place(0), place(1)


def output(name: str, client_id: int | None = None, mistake: str = "", **settings: Any) -> Output:
    return Output(NAME, name, OutputSettings(client_id=client_id, **settings), shared=False, mistake=mistake)


@pytest.fixture
async def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Setup]:
    monkeypatch.setattr(delivery, "SHORTEST", 0.01)
    embedded, sources = await start_embedded(tmp_path)
    yield Setup(embedded, sources[NAME])
    await embedded.close()


class TestCallsOfOthers:
    """Who is not the output takes, confirms and forgets nothing of its client."""

    @pytest.mark.parametrize("session", [None, "1-guessed", "99999999999-newer"])
    @pytest.mark.parametrize(
        "call",
        [
            lambda it, **session: it.get_without_ack(NAME, FIRST, **session),
            lambda it, **session: it.ack(NAME, FIRST, batch_id=1, **session),
            lambda it, **session: it.ack(NAME, FIRST, position=place(0), **session),
            lambda it, **session: it.rollback(NAME, FIRST, **session),
            lambda it, **session: it.go_back(NAME, FIRST, **session),
            lambda it, **session: it.position(NAME, FIRST, after=place(0), **session),
        ],
        ids=["get", "ack", "ack by position", "rollback", "go back", "position"],
    )
    async def test_with_a_session_or_without_are_refused(
        self, setup: Setup, call: Callable[..., Awaitable[object]], session: str | None
    ) -> None:
        await setup.run(output("a"))
        with pytest.raises(OwnedError, match="client 32001 is that of the output a"):
            await call(setup.embedded, session=session)

    @pytest.mark.parametrize(
        "call",
        [
            lambda it: it.subscribe(NAME, FIRST, filter="crm\\..*"),
            lambda it: it.subscribe(NAME, FIRST, output="", start=Selection()),
            lambda it: it.unsubscribe(NAME, FIRST),
            lambda it: it.splits(NAME, FIRST, *PLACES, 2),
            lambda it: anext(it.rows(NAME, FIRST, *PLACES)),
            lambda it: asyncio.to_thread(it.open_session, NAME, FIRST),
            lambda it: asyncio.to_thread(it.check, NAME, FIRST),
        ],
        ids=["subscribe", "snapshot", "unsubscribe", "splits", "rows", "session", "check"],
    )
    async def test_without_a_session_are_refused(
        self, setup: Setup, call: Callable[[EmbeddedServer], Awaitable[object]]
    ) -> None:
        await setup.run(output("a"))
        before = setup.embedded.clients(NAME)
        with pytest.raises(OwnedError):
            await call(setup.embedded)
        assert [replace(it, refused="") for it in setup.embedded.clients(NAME)] == before

    async def test_end_when_an_output_begins_to_own_the_client(self, setup: Setup) -> None:
        await setup.embedded.subscribe(NAME, 7)
        setup.source.put(1)
        batch = await setup.embedded.get_without_ack(NAME, 7)
        waiting = asyncio.create_task(setup.embedded.get_without_ack(NAME, 7, timeout=60))
        await setup.run(output("a", 7))
        with pytest.raises(OwnedError):
            await waiting
        with pytest.raises(OwnedError):
            await setup.embedded.ack(NAME, 7, batch_id=batch.batch_id)
        await soon(lambda: setup.targets["a"].confirmed == [0])

    async def test_of_an_operator_are_allowed(self, setup: Setup) -> None:
        await setup.run(output("a"))
        target = setup.targets["a"]
        target.free.clear()
        setup.source.put(4)
        await soon(lambda: "send" in target.calls)
        await setup.embedded.ack(NAME, FIRST, position=place(1), by_operator=True)
        acked = setup.embedded.moved(NAME, FIRST)
        await setup.embedded.skip(NAME, FIRST, place(1))
        skipped = setup.embedded.moved(NAME, FIRST)
        assert acked, "the output is told"
        assert skipped not in ("", acked)
        assert not skipped.endswith(SKIP), "it has not seen the other move"
        await setup.embedded.seek(NAME, FIRST, place(3))
        assert setup.embedded.snapshots(NAME, FIRST) == []
        await setup.outputs.stop(NAME)
        target.free.set()
        await setup.outputs.start(NAME)
        await soon(lambda: target.confirmed == [3])

    async def test_are_kept_and_said_once_a_minute(self, setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
        await setup.run(output("a"))
        for call in (setup.embedded.rollback, setup.embedded.get_without_ack):
            with pytest.raises(OwnedError):
                await call(NAME, FIRST)
        (client,) = setup.embedded.clients(NAME)
        assert client.refused.endswith("+00:00 rollback by the server")
        (said,) = (it for it in caplog.messages if "is refused" in it)
        assert said == (
            "rollback by the server on client 32001 is refused: client 32001 is that of the output a, which alone"
            " takes its changes"
        )

    async def test_are_not_those_of_the_output_whose_stream_has_begun_again(self, setup: Setup) -> None:
        await setup.run(output("a"))
        session = setup.outputs._deliveries[NAME][0]._session
        await setup.outputs.stop(NAME)
        await setup.embedded.begin_again(NAME)
        setup.embedded.check(NAME, FIRST, session)
        assert [it.refused for it in setup.embedded.clients(NAME)] == [""]

    async def test_do_not_expire_it(self, setup: Setup) -> None:
        await setup.run(output("a"))
        cursors = setup.embedded.instances[NAME].cursors
        cursors.clients.subscribers[FIRST].expire_after = 1  # as a cursor that Canal wrote says nothing of it
        assert cursors.expire(float("inf")) == []


async def test_an_output_that_becomes_another_client_goes_on_where_it_is(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    await setup.run(output("a", 7))
    setup.source.put(2)
    await soon(lambda: setup.targets["a"].confirmed == [0, 1])
    await soon(lambda: not setup.embedded.status(NAME, 7).lag.entries)  # else what is confirmed comes again
    await setup.outputs.stop(NAME)
    setup.source.put(2)
    await setup.run(output("a", 8, start="latest"))
    await soon(lambda: setup.targets["a"].confirmed == [0, 1, 2, 3])
    assert setup.owners == {7: "", 8: "a"}
    assert "output a of example is client 8 from here on, and resumes at the cursor of client 7" in caplog.text
    former, present = setup.embedded.clients(NAME)
    assert former.cursor is not None
    assert former.cursor.position == Position.parse(place(2))
    assert present.expire_after == 0
    assert not setup.embedded.moves(NAME), "nothing was passed over"


class TestEnd:
    """The client is free when the configuration, which is valid, has its output no longer."""

    async def test_when_the_output_is_gone_the_cursor_stays(
        self, setup: Setup, caplog: pytest.LogCaptureFixture
    ) -> None:
        await setup.run(output("a"))
        setup.source.put(2)
        await soon(lambda: setup.targets["a"].confirmed == [0, 1])
        await soon(lambda: not setup.embedded.status(NAME, FIRST).lag.entries)
        await setup.start()
        assert setup.owners == {FIRST: ""}
        assert "client 32001 is no longer that of the output a" in caplog.text
        change = (await setup.embedded.audited(NAME, 1))[-1]
        assert str(change) == "release of client 32001 by the configuration: it was that of the output a"
        setup.source.put(1)
        assert (await setup.embedded.get_without_ack(NAME, FIRST)).rows == 1

    async def test_when_a_destination_starts_without_it(self, setup: Setup) -> None:
        await setup.run(output("a"))
        await setup.embedded.stop(NAME)
        setup.configured = []
        await setup.embedded.start(NAME)
        assert setup.owners == {FIRST: ""}

    async def test_never_by_a_mistake_in_another_one(self, setup: Setup) -> None:
        await setup.run(output("a"), output("b"))
        await setup.start(output("b", mistake="window: has to be a number"))
        assert setup.owners == {FIRST: "a", FIRST + 1: "b"}
        assert setup.states == {"a": "running", "b": "running"}
        (_, error) = sorted(it.error for it in setup.outputs.status(NAME))
        assert error == "keeps its previous settings, because the new ones cannot be used: window: has to be a number"
        setup.source.put(1)
        await soon(lambda: setup.targets["a"].confirmed == setup.targets["b"].confirmed == [0])
        await setup.run(output("b"))
        assert setup.owners == {FIRST: "", FIRST + 1: "b"}
        assert [it.error for it in setup.outputs.status(NAME)] == [""]

    async def test_never_by_files_that_cannot_be_read(self, setup: Setup) -> None:
        def fail(_: str) -> list[Output]:
            raise ConfigError("instance.properties:7: nonsense")

        await setup.run(output("a"))
        setup.outputs._load = fail
        await setup.outputs.start(NAME)
        (status,) = setup.outputs.status(NAME)
        assert (setup.owners, status.state) == ({FIRST: "a"}, "running")
        assert "instance.properties:7" in status.error

    @pytest.mark.parametrize("others", [[], [output("c", mistake="window: has to be a number")]])
    async def test_another_name_takes_it_over(self, setup: Setup, others: list[Output]) -> None:
        await setup.run(output("a", 7))
        await setup.start(output("b", 7), *others)
        await soon(lambda: setup.states.pop("b") == "running")
        assert setup.owners.pop(7) == "b"
        assert "a" not in setup.states

    async def test_an_output_with_a_mistake_goes_on_as_it_was_unless_another_one_is_its_client(
        self, setup: Setup
    ) -> None:
        await setup.run(output("a", 7))
        await setup.start(output("a", 7, mistake="window: has to be a number"))
        assert setup.states == {"a": "running"}
        await setup.start(output("a", 8, mistake="window: has to be a number"), output("b", 7))
        await soon(lambda: setup.states == {"a": "error", "b": "running"})
        assert setup.owners == {7: "b", 8: "a"}

    async def test_an_output_goes_on_as_it_was_when_what_it_is_to_be_hangs(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(outputs, "MAKING", 0.1)
        await setup.run(output("a", 7))
        setup.free.clear()
        await asyncio.wait_for(setup.start(output("a", 7, window=3), output("b")), 30)
        (status, _) = setup.outputs.status(NAME)
        assert (status.state, status.error.partition(": ")[2]) == (
            "running",
            "type kafka takes more than 0.1 s to be made: ask the author of its package",
        )
        setup.free.set()
        await soon(lambda: setup.states == {"a": "running", "b": "running"})


class TestOneThatCannotBeMade:
    """An output exists as soon as it is configured: it holds what it is due, and reports its error."""

    async def test_has_a_client_and_an_error(self, setup: Setup) -> None:
        setup.missing = "pip install 'sluice-cdc[kafka]'"
        await setup.embedded.subscribe(NAME, 7)
        await setup.start(output("a"))
        await soon(lambda: setup.states == {"a": "error"})
        (status,) = setup.outputs.status(NAME)
        assert (status.error, status.client_id) == (setup.missing, FIRST)
        setup.source.put(3)
        batch = await setup.embedded.get_without_ack(NAME, 7)
        await setup.embedded.ack(NAME, 7, batch_id=batch.batch_id)
        setup.missing = ""
        await setup.outputs.start(NAME)
        await soon(lambda: setup.targets["a"].confirmed == [0, 1, 2])

    @pytest.mark.parametrize(
        "broken",
        [
            output("a", mistake="window: has to be a whole number"),
            output("a", filter="shop.("),
        ],
        ids=["mistake", "filter"],
    )
    async def test_holds_what_it_is_due_until_the_mistake_is_corrected(self, setup: Setup, broken: Output) -> None:
        await setup.embedded.subscribe(NAME, 7)
        await setup.start(broken)
        await soon(lambda: setup.states == {"a": "error"})
        assert setup.owners == {7: "", FIRST: "a"}
        setup.source.put(3)
        batch = await setup.embedded.get_without_ack(NAME, 7)
        await setup.embedded.ack(NAME, 7, batch_id=batch.batch_id)
        await setup.run(output("a"))
        await soon(lambda: setup.targets["a"].confirmed == [0, 1, 2])


class TestIds:
    """Which client an output is."""

    async def test_is_kept_over_a_restart(self, setup: Setup) -> None:
        await setup.run(output("a"), output("b"))
        await setup.embedded.stop(NAME)
        setup.configured = [output("b")]
        await setup.embedded.start(NAME)
        await soon(lambda: setup.states == {"b": "running"})
        assert setup.owners == {FIRST: "", FIRST + 1: "b"}

    @pytest.mark.parametrize(
        ("outputs", "clients", "expected"),
        [
            ([output("a"), output("b")], [], [FIRST, FIRST + 1]),
            ([output("a"), output("b", 5)], [StoredClient(CANALS_CLIENT)], [FIRST, 5]),
            ([output("a")], [StoredClient(FIRST), StoredClient(FIRST + 1)], [FIRST + 2]),
            ([output("a"), output("b", FIRST)], [], [FIRST + 1, FIRST]),
            ([output("b"), output("a")], [StoredClient(FIRST, output="a")], [FIRST + 1, FIRST]),
        ],
    )
    def test_is_a_free_one_from_32001_on_or_as_configured(
        self, outputs: list[Output], clients: list[StoredClient], expected: list[int]
    ) -> None:
        assert [it.client_id for it in assign(outputs, clients)] == expected

    def test_of_an_older_installation_stays(self) -> None:
        """It has subscribed as 1001, never to expire, before outputs owned their clients."""
        older = StoredClient(CANALS_CLIENT, expire_after=0)
        assert [it.client_id for it in assign([output("a")], [older])] == [CANALS_CLIENT]
        assert [it.client_id for it in assign([output("mq", CANALS_CLIENT), output("a")], [older])] == [1001, FIRST]

    def test_of_another_output_is_a_mistake(self) -> None:
        first, second = assign([output("a"), output("b", FIRST)], [StoredClient(FIRST, output="a")])
        assert (first.client_id, first.mistake) == (FIRST, "")
        assert second.client_id != FIRST
        assert second.mistake == (
            "the outputs a and b are the same client, 32001: set sluice.output.b.clientId to another number"
        )
