"""The embedded server: waiting for batches, sessions, durable acks, and what a restart keeps."""

import asyncio
import contextlib
import errno
import gc
import json
import math
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.columns import SourceColumn
from sluice.instance.conditions.where import Conditions
from sluice.instance.config import BatchMode, InstanceConfig
from sluice.instance.meta.base import InUse
from sluice.instance.meta.memory import MemoryMetaStore
from sluice.instance.serving import serving
from sluice.instance.serving.tail import Followed
from sluice.instance.sink.filters import TableFilter
from sluice.instance.source import Expiry, Proof, TableReader
from sluice.instance.status import ParserStatus
from sluice.protocol.errors import (
    BadParameterError,
    BadPositionError,
    ConfigError,
    DestinationStoppedError,
    FilterError,
    GoneError,
    NotStoredError,
    NotSubscribedError,
    PurgedError,
    SluiceError,
    SourceChangedError,
    SourceError,
    StaleSessionError,
    UnknownBatchError,
    UnknownDestinationError,
)
from sluice.protocol.gtid import GtidSet, MariadbGtidSet
from sluice.protocol.position import Position
from sluice.server.caller import Caller, caller
from sluice.server.embedded import EmbeddedServer, calls
from sluice.server.ha.cluster import Cluster, Identity
from sluice.server.ha.election import State
from sluice.server.ha.operations import Ask, Look, Running, Seen
from sluice.store import allowance
from sluice.store.cursor import OLDEST, Changes, Cursor, StoredClient
from sluice.store.log import log as log_module
from sluice.store.log.log import SEEN
from sluice.store.readers import Readers
from sluice.store.ring import Ring
from sluice.store.snapshot import TableProgress
from tests.source import start_embedded
from tests.stream import STEP, Stream, entries
from tests.waiting import soon

NAME = "example"
CLIENT = 1001


class WrittenByTest:
    """A parser whose changes come from the test, which writes in the same thread."""

    failure: SluiceError | None = None
    refused: Mapping[Cursor, SluiceError] = {}
    waits = False  # for the test to let it begin
    status = ParserStatus(behind=0.0)

    def __init__(
        self,
        config: InstanceConfig,
        ring: Ring,
        *,
        start: Cursor | None,
        later: Sequence[Cursor | None] = (),
        on_begin: Callable[[Position | None, GtidSet | None], None],
        on_state: Callable[[str, str], None],
        epoch: int = 0,
        stop: Position | None = None,
    ) -> None:
        self.start_cursor = start
        self.filter = config.table_filter()
        begin = start.position.begin if start and start.position else 4
        self.stream = Stream(ring, events=(begin - 4) // STEP)
        self.on_begin = on_begin
        self.on_state = on_state

    def table_reader(self) -> TableReader:
        """There is none."""
        raise ConfigError("this source has no tables to read")

    def find_place(self, wanted: int | str | None) -> Cursor:
        """Say that it has all of a time from its second event on, and nothing older than its first."""
        return Cursor.at(self.stream.position(4 + STEP * isinstance(wanted, int)))

    def expiries(self, places: Sequence[Position]) -> list[Expiry | None]:
        """Nothing is purged."""
        return [None] * len(places)

    def distances(self, places: Sequence[Position], to: Position) -> list[int | None]:
        """Nothing is known."""
        del to
        return [None] * len(places)

    def begin_at(self, places: Sequence[Cursor | None]) -> None:
        self.places = places

    def prove(self, place: Cursor, sample: bytes) -> Proof:
        """It has everything."""
        del sample
        return Proof(place)

    def probe(self) -> None:
        """It answers."""

    def announce(self, change: str) -> None:
        """It says nothing of itself."""

    def refilter(self, table_filter: TableFilter) -> None:
        self.filter = table_filter

    def columns(self, schema: str, table: str, at: Position | None = None) -> list[SourceColumn]:
        return [SourceColumn("id", f"int of {schema}.{table}", is_key=True)]

    def check_conditions(self, conditions: Conditions) -> None:
        """All can be judged."""

    def tables(self) -> list[tuple[str, str]]:
        return [("crm", "notes"), ("shop", "goods"), ("shop", "orders")]

    def end(self) -> Position:
        return self.stream.end

    def start(self) -> None:
        if self.failure is not None:
            self.on_state("error", str(self.failure))
        elif not self.waits:
            self.begin()

    def begin(self) -> None:
        self.on_begin(self.stream.end, MariadbGtidSet())
        self.on_state("running", "")

    def stop(self) -> None:
        pass

    def join(self, timeout: float | None = None) -> None:
        pass

    def write(self, *rows: bytes, table: tuple[str, str] = ("shop", "orders")) -> None:
        self.stream.transaction(*rows, table=table)
        self.stream.put()


class Setup:
    """A server with one destination."""

    def __init__(self, folder: Path) -> None:
        self.parser: WrittenByTest
        self.failure: SluiceError | None = None
        self.lost: SluiceError | None = None
        """Why the parser cannot begin."""
        self.waits = False
        self.config = InstanceConfig(
            destination=NAME,
            file_data_dir=folder,
            file_flush_period=3_600_000,
            catch_up_readers=0,
        )
        self.server = EmbeddedServer(self.load, self.make_parser)

    def load(self, destination: str) -> InstanceConfig:
        if destination != NAME:
            raise UnknownDestinationError(destination)
        return self.config

    def make_parser(self, *arguments: object, **options: object) -> WrittenByTest:
        if self.failure is not None:
            raise self.failure
        self.parser = WrittenByTest(*arguments, **options)  # type: ignore[arg-type]
        self.parser.failure, self.parser.waits = self.lost, self.waits
        return self.parser

    def change(self, **values: object) -> None:
        self.config = self.config.model_copy(update=values)


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[Setup]:
    made = Setup(tmp_path)
    await made.server.start(NAME)
    await asyncio.sleep(0)
    yield made
    await made.server.close()


async def test_a_subscription_waits_for_the_source_to_say_where_it_begins_and_stores_that(
    setup: Setup, tmp_path: Path
) -> None:
    setup.waits = True
    await setup.server.stop(NAME)
    await setup.server.start(NAME)
    subscribing = asyncio.create_task(setup.server.subscribe(NAME, CLIENT))
    await asyncio.sleep(0.05)
    assert not subscribing.done()
    setup.parser.begin()
    place = str(setup.parser.stream.end)
    assert (await subscribing)["position"] == place
    assert place in (tmp_path / NAME / "meta.dat").read_text()


async def test_a_subscription_does_not_wait_for_a_source_that_cannot_be_reached(setup: Setup) -> None:
    setup.lost = SourceError("the source does not answer")
    await setup.server.stop(NAME)
    await setup.server.start(NAME)
    async with asyncio.timeout(1):
        assert (await setup.server.subscribe(NAME, CLIENT))["position"] == ""


async def test_a_client_that_has_the_reserved_id_already_keeps_it(setup: Setup, tmp_path: Path) -> None:
    with pytest.raises(BadParameterError, match="client id -1 is reserved"):
        await setup.server.subscribe(NAME, -1)
    await setup.server.subscribe(NAME, CLIENT)
    await setup.server.stop(NAME)
    stored = tmp_path / NAME / "meta.dat"
    stored.write_text(stored.read_text().replace(f'"clientId":{CLIENT}', '"clientId":-1'))
    await setup.server.start(NAME)
    await setup.server.subscribe(NAME, -1)
    assert [it.client_id for it in setup.server.destination_status(NAME).clients] == [-1]


@pytest.mark.parametrize("answers", [True, False])
async def test_a_cursor_is_moved_also_if_the_source_does_not_say_what_it_still_has(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, *, answers: bool
) -> None:
    await setup.server.subscribe(NAME, CLIENT)
    setup.parser.write(b"one")
    moved = threading.Event()
    if not answers:
        monkeypatch.setattr(serving, "PATIENCE", 0.05)
        monkeypatch.setattr(setup.parser, "find_place", lambda _: moved.wait(60))
    move = await setup.server.seek(NAME, CLIENT, "latest")
    moved.set()
    assert move is not None
    assert move.held is answers


async def test_get_returns_at_once_what_is_there(setup: Setup) -> None:
    await setup.server.subscribe(NAME, CLIENT)
    setup.parser.write(b"one")
    batch = await setup.server.get_without_ack(NAME, CLIENT)
    assert entries(batch.slices) == [b"begin", b"one", b"end"]
    assert (batch.entries, batch.rows) == (3, 1)


async def test_a_limited_client_holds_a_full_ring_no_longer_than_a_slow_one(setup: Setup) -> None:
    setup.change(detach_after=1, memory_buffer_size=8)
    await setup.server.stop(NAME)
    await setup.server.start(NAME)
    for client_id in (CLIENT, 1002):
        await setup.server.subscribe(NAME, client_id)
    await setup.server.limit(NAME, CLIENT, {"max_rate": 1})

    def write_all() -> None:
        for _ in range(9):
            setup.parser.write(b"x" * 1000)

    writing = asyncio.create_task(asyncio.to_thread(write_all))

    async def state_while_the_other_reads() -> str:
        batch = await setup.server.get_without_ack(NAME, 1002, timeout=0.1)
        if batch.batch_id > 0:
            await setup.server.ack(NAME, 1002, batch_id=batch.batch_id)
        with contextlib.suppress(GoneError):
            limited = await setup.server.get_without_ack(NAME, CLIENT, timeout=0.1)
            if limited.batch_id > 0:
                await setup.server.ack(NAME, CLIENT, batch_id=limited.batch_id)
        return setup.server.status(NAME, CLIENT).state

    async with asyncio.timeout(60):
        while not writing.done():
            state = await state_while_the_other_reads()
        await writing
    assert state == "gone"


@pytest.mark.parametrize("waits", [True, False], ids=["told by a put", "found by a look each second"])
async def test_a_mistake_on_the_event_loop_is_the_error_of_the_destination_until_it_is_started_again(
    setup: Setup, waits: bool
) -> None:
    await setup.server.subscribe(NAME, CLIENT)
    waiting = asyncio.create_task(setup.server.get_without_ack(NAME, CLIENT, timeout=30))
    await asyncio.sleep(0)
    if not waits:
        setup.parser.stream.ring.on_put = None
    setup.parser.stream.gtid = 99  # of a source that the ring does not know
    setup.parser.stream.advance()
    setup.parser.stream.put()
    with pytest.raises(DestinationStoppedError, match=f"destination:{NAME} has failed: IndexError: 99; stop and start"):
        await waiting
    status = setup.server.destination_status(NAME)
    assert (status.state, status.error.partition(";")[0]) == ("error", "IndexError: 99")
    setup.parser.on_state("running", "")  # said before the parser was stopped
    await asyncio.sleep(0.05)
    assert setup.server.destination_status(NAME).state == "error"
    await setup.server.stop(NAME)
    await setup.server.start(NAME)
    setup.parser.write(b"one")
    assert entries((await setup.server.get_without_ack(NAME, CLIENT)).slices) == [b"begin", b"one", b"end"]


async def test_a_position_that_the_source_does_not_have_confirms_nothing_in_a_new_life_with_a_full_ring(
    setup: Setup,
) -> None:
    setup.change(memory_buffer_size=4)
    await setup.server.subscribe(NAME, CLIENT)
    await setup.server.stop(NAME)
    await setup.server.start(NAME)
    stopping = threading.Event()
    for row in (b"one", b"two"):
        setup.parser.stream.transaction(row)
    putting = asyncio.create_task(asyncio.to_thread(setup.parser.stream.put, stopping))
    try:
        await soon(lambda: setup.server.instances[NAME].ring.waiting)
        with pytest.raises(BadPositionError, match="beyond the end of the source's binlog"):
            await setup.server.ack(NAME, CLIENT, position=str(setup.parser.stream.position(99)))
        batch = await setup.server.get_without_ack(NAME, CLIENT, max_entries=3)
        assert entries(batch.slices) == [b"begin", b"one", b"end"]
        await setup.server.ack(NAME, CLIENT, batch_id=batch.batch_id)
    finally:
        stopping.set()
        setup.server.instances[NAME].ring.close()
        await putting


async def test_an_ack_that_waits_for_the_stream_is_refused_when_the_destination_has_begun_another_life(
    setup: Setup,
) -> None:
    await setup.server.subscribe(NAME, CLIENT)
    setup.parser.write(b"one")
    given = await setup.server.get_without_ack(NAME, CLIENT)
    setup.waits = True
    for _ in range(2):
        await setup.server.stop(NAME)
        await setup.server.start(NAME)
        acking = asyncio.create_task(setup.server.ack(NAME, CLIENT, position=given.to))
        await asyncio.sleep(0.01)
    before = setup.server.instances[NAME]
    setup.waits = False
    await setup.server.stop(NAME)
    await setup.server.start(NAME)
    before.wake()
    with pytest.raises(DestinationStoppedError, match="should start first"):
        await acking
    setup.parser.write(b"one")
    assert entries((await setup.server.get_without_ack(NAME, CLIENT)).slices) == [b"begin", b"one", b"end"]


async def test_an_ack_that_asks_for_the_end_of_the_source_is_refused_when_the_destination_has_begun_another_life(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setup.server.subscribe(NAME, CLIENT)
    await setup.server.stop(NAME)
    await setup.server.start(NAME)
    end, asked, answered = setup.parser.stream.end, threading.Event(), threading.Event()

    def says_its_end() -> Position:
        asked.set()
        answered.wait(10)
        return end

    monkeypatch.setattr(setup.parser, "end", says_its_end)
    acking = asyncio.create_task(setup.server.ack(NAME, CLIENT, position=str(setup.parser.stream.position(3))))
    await soon(asked.is_set)
    await setup.server.stop(NAME)
    await setup.server.start(NAME)
    answered.set()
    with pytest.raises(DestinationStoppedError, match="should start first"):
        await acking


class TestCatchingUp:
    """A client whose place the ring has left."""

    @pytest.fixture
    async def start(self, setup: Setup) -> str:
        """Its place; it is client 2, and there is one reader."""
        setup.change(catch_up_readers=1)
        await setup.server.stop(NAME)
        await setup.server.start(NAME)
        await setup.server.subscribe(NAME, CLIENT)
        start = setup.server.status(NAME, CLIENT).position
        setup.parser.write(b"one")
        batch = await setup.server.get_without_ack(NAME, CLIENT)
        await setup.server.ack(NAME, CLIENT, batch_id=batch.batch_id)
        await setup.server.subscribe(NAME, 2, start=start)
        assert setup.server.status(NAME, 2).state == "catching-up"
        return start

    @pytest.mark.usefixtures("start")
    async def test_a_get_without_a_timeout_waits_for_its_reader_and_what_that_gives_first(self, setup: Setup) -> None:
        main = setup.parser
        getting = asyncio.create_task(setup.server.get_without_ack(NAME, 2))
        await soon(lambda: setup.parser is not main)
        await asyncio.sleep(0.05)
        assert not getting.done()
        setup.parser.write(b"one")
        async with asyncio.timeout(2):
            batch = await getting
            assert entries(batch.slices) == [b"begin", b"one", b"end"]
            assert not (await setup.server.get_without_ack(NAME, 2)).entries, "it was given all, and has to confirm it"
            await setup.server.ack(NAME, 2, batch_id=batch.batch_id)
            await soon(lambda: setup.server.status(NAME, 2).state == "attached")
            assert not (await setup.server.get_without_ack(NAME, 2)).entries

    @pytest.mark.usefixtures("start")
    async def test_a_get_without_a_timeout_does_not_wait_for_ever_for_a_reader(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(calls, "FIRST_DATA", 0.05)
        async with asyncio.timeout(2):
            assert not (await setup.server.get_without_ack(NAME, 2)).entries

    @pytest.mark.usefixtures("start")
    async def test_a_full_batch_is_not_waited_for_where_more_comes_only_after_an_ack(self, setup: Setup) -> None:
        main = setup.parser
        call = setup.server.get_without_ack(NAME, 2, batch_size=1000, timeout=math.inf, wait_full=True)
        getting = asyncio.create_task(call)
        await soon(lambda: setup.parser is not main)
        setup.parser.write(b"one")
        async with asyncio.timeout(2):
            assert entries((await getting).slices) == [b"begin", b"one", b"end"]

    async def test_clients_that_wait_for_a_reader_do_not_each_look_at_all_others(
        self, setup: Setup, start: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clients = range(2, 22)
        for client in clients:
            await setup.server.subscribe(NAME, client, start=start)
        waiting = [asyncio.create_task(setup.server.get_without_ack(NAME, client, timeout=60)) for client in clients]
        instance = setup.server.instances[NAME]
        await soon(lambda: instance.catch_up.count == 1)
        looks: list[float] = []
        monkeypatch.setattr(instance.cursors.readers, "take_turns", lambda _turns, now: looks.append(now))
        instance.wake()
        await asyncio.sleep(0.1)
        assert len(looks) <= 1, "that of each second"
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    async def test_reading_a_range_is_a_call(self, setup: Setup, start: str) -> None:
        end, main = str(setup.parser.stream.end), setup.parser
        reading = asyncio.create_task(anext(setup.server.rows(NAME, CLIENT, start, end)))
        await soon(lambda: setup.parser is not main)
        asked = setup.server.status(NAME, CLIENT).last_active
        setup.parser.write(b"one")
        assert entries((await reading).slices) == [b"begin", b"one", b"end"]
        read = setup.server.status(NAME, CLIENT).last_active
        assert asked < read
        assert await setup.server.splits(NAME, CLIENT, start, end, 2)
        split = setup.server.status(NAME, CLIENT).last_active
        assert read < split
        await anext(setup.server.rows(NAME, CLIENT, end, end))
        assert split < setup.server.status(NAME, CLIENT).last_active


async def test_a_client_that_is_gone_is_noticed_without_a_put_a_call_or_a_write(setup: Setup) -> None:
    await setup.server.subscribe(NAME, CLIENT, expire_after=1)
    assert [it.client_id for it in setup.server.destination_status(NAME).clients] == [CLIENT]
    await soon(lambda: not setup.server.destination_status(NAME).clients, seconds=4)
    with pytest.raises(NotSubscribedError):
        await setup.server.get_without_ack(NAME, CLIENT)


async def test_a_mistake_that_also_breaks_the_stop_leaves_a_destination_that_can_be_started(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(*_: object) -> None:
        raise IndexError(99)

    await setup.server.subscribe(NAME, CLIENT)
    with monkeypatch.context() as broken:
        broken.setattr(Readers, "leave", leave)
        with pytest.raises(IndexError):
            await setup.server.stop(NAME)
    await setup.server.start(NAME)
    setup.parser.write(b"one")
    assert entries((await setup.server.get_without_ack(NAME, CLIENT)).slices) == [b"begin", b"one", b"end"]


async def test_get_without_changes_returns_no_batch_after_the_timeout(setup: Setup) -> None:
    await setup.server.subscribe(NAME, CLIENT)
    batch = await setup.server.get_without_ack(NAME, CLIENT, timeout=0.05)
    assert (batch.batch_id, batch.slices) == (-1, [])
    assert setup.server.status(NAME, CLIENT).marks == []


async def test_waiting_get_is_woken_by_the_first_entry(setup: Setup) -> None:
    await setup.server.subscribe(NAME, CLIENT)
    waiter = asyncio.create_task(setup.server.get_without_ack(NAME, CLIENT, timeout=math.inf))
    await asyncio.sleep(0.01)
    assert not waiter.done()
    setup.parser.write(b"one")
    async with asyncio.timeout(5):
        assert (await waiter).entries == 3


async def test_cancelled_waiter_takes_no_batch(setup: Setup) -> None:
    await setup.server.subscribe(NAME, CLIENT)
    waiter = asyncio.create_task(setup.server.get_without_ack(NAME, CLIENT, timeout=60))
    await asyncio.sleep(0.01)
    setup.parser.write(b"one")
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert setup.server.status(NAME, CLIENT).marks == []
    assert (await setup.server.get_without_ack(NAME, CLIENT)).entries == 3


async def test_excluded_changes_do_not_end_the_wait(setup: Setup) -> None:
    await setup.server.subscribe(NAME, CLIENT, filter=r"shop\.users")
    waiter = asyncio.create_task(setup.server.get_without_ack(NAME, CLIENT, timeout=60))
    setup.parser.write(b"order")
    await asyncio.sleep(0.01)
    assert not waiter.done()
    setup.parser.write(b"user", table=("shop", "users"))
    async with asyncio.timeout(5):
        assert entries((await waiter).slices) == [b"begin", b"user", b"end"]


async def test_min_bytes_waits_for_more_but_not_beyond_linger(setup: Setup) -> None:
    await setup.server.subscribe(NAME, CLIENT)
    call = setup.server.get_without_ack(NAME, CLIENT, timeout=60, min_bytes=100)
    waiter = asyncio.create_task(call)
    setup.parser.write(b"one")
    await asyncio.sleep(0.01)
    assert not waiter.done()
    setup.parser.write(b"x" * 100)
    async with asyncio.timeout(5):
        assert (await waiter).entries == 6
    setup.parser.write(b"two")
    async with asyncio.timeout(5):
        batch = await setup.server.get_without_ack(NAME, CLIENT, timeout=60, min_bytes=100, linger=0.05)
    assert batch.entries == 3


async def test_excluded_changes_do_not_end_a_wait_that_lingers(setup: Setup) -> None:
    await setup.server.subscribe(NAME, CLIENT, filter=r"shop\.users")
    call = setup.server.get_without_ack(NAME, CLIENT, batch_size=1000, timeout=60, wait_full=True, linger=0.01)
    waiter = asyncio.create_task(call)
    for _ in range(3):
        setup.parser.write(b"order")
        await asyncio.sleep(0.03)
    assert not waiter.done()
    setup.parser.write(b"user", table=("shop", "users"))
    async with asyncio.timeout(5):
        assert entries((await waiter).slices) == [b"begin", b"user", b"end"]


@pytest.mark.parametrize(("mode", "entries_given"), [(BatchMode.ITEMSIZE, 4), (BatchMode.MEMSIZE, 6)])
async def test_canals_get_waits_for_a_full_batch(setup: Setup, mode: BatchMode, entries_given: int) -> None:
    await setup.server.stop(NAME)
    setup.change(memory_batch_mode=mode, memory_buffer_memunit=8)
    await setup.server.start(NAME)
    await setup.server.subscribe(NAME, CLIENT)
    setup.parser.write(b"one")  # 3 entries, 17 bytes
    call = setup.server.get_without_ack(NAME, CLIENT, batch_size=4, timeout=60, wait_full=True)
    waiter = asyncio.create_task(call)
    await asyncio.sleep(0.01)
    assert not waiter.done()
    setup.parser.write(b"two")
    async with asyncio.timeout(5):
        assert (await waiter).entries == entries_given


async def test_batch_size_counts_entries_or_units_of_memory(setup: Setup) -> None:
    await setup.server.subscribe(NAME, CLIENT)
    for _ in range(100):
        setup.parser.write(b"x" * 100)
    assert (await setup.server.get_without_ack(NAME, CLIENT, batch_size=1)).entries < 100
    await setup.server.rollback(NAME, CLIENT)
    assert (await setup.server.get_without_ack(NAME, CLIENT, max_entries=5)).entries == 5
    assert (await setup.server.get_without_ack(NAME, CLIENT, max_bytes=300)).bytes <= 300
    assert (await setup.server.get_without_ack(NAME, CLIENT)).entries > 200


async def test_ack_in_order_and_by_position(setup: Setup) -> None:
    await setup.server.subscribe(NAME, CLIENT)
    setup.parser.write(b"one")
    setup.parser.write(b"two")
    first = await setup.server.get_without_ack(NAME, CLIENT, max_entries=3)
    second = await setup.server.get_without_ack(NAME, CLIENT, max_entries=3)
    await setup.server.ack(NAME, CLIENT, batch_id=first.batch_id)
    with pytest.raises(UnknownBatchError):
        await setup.server.ack(NAME, CLIENT, batch_id=first.batch_id)
    await setup.server.ack(NAME, CLIENT, position=second.to)
    assert setup.server.status(NAME, CLIENT).marks == []
    with pytest.raises(BadParameterError):
        await setup.server.ack(NAME, CLIENT)


async def test_rollback_wakes_a_waiter_of_the_same_client(setup: Setup) -> None:
    await setup.server.subscribe(NAME, CLIENT)
    setup.parser.write(b"one")
    await setup.server.get_without_ack(NAME, CLIENT)
    waiter = asyncio.create_task(setup.server.get_without_ack(NAME, CLIENT, timeout=60))
    await asyncio.sleep(0.01)
    await setup.server.rollback(NAME, CLIENT)
    async with asyncio.timeout(5):
        assert (await waiter).entries == 3


async def test_newer_session_ends_the_wait_of_the_older(setup: Setup) -> None:
    await setup.server.subscribe(NAME, CLIENT)
    old = setup.server.open_session(NAME, CLIENT)
    waiter = asyncio.create_task(setup.server.get_without_ack(NAME, CLIENT, timeout=60, session=old))
    await asyncio.sleep(0.01)
    setup.server.open_session(NAME, CLIENT)
    async with asyncio.timeout(5):
        with pytest.raises(StaleSessionError):
            await waiter


@pytest.mark.parametrize("change", ["put", "filter", "seek", "rollback", "session", "unsubscribe", "stop"])
async def test_one_that_rests_while_others_are_written_to_is_woken_by_what_concerns_it(
    setup: Setup, change: str
) -> None:
    server, begin = setup.server, str(setup.parser.stream.end)
    await server.subscribe(NAME, CLIENT, filter=r"shop\.users")
    setup.parser.write(b"user", table=("shop", "users"))
    given = await server.get_without_ack(NAME, CLIENT)
    old = server.open_session(NAME, CLIENT)
    waiter = asyncio.create_task(server.get_without_ack(NAME, CLIENT, timeout=60, session=old))
    resting = server.instances[NAME].cursors.resting
    for _ in range(2):  # the first order is of a table that the filter has not met
        await soon(lambda: CLIENT in list(resting))
        setup.parser.write(b"order")
        await asyncio.sleep(0)
    await soon(lambda: CLIENT in list(resting))
    if change == "put":
        setup.parser.write(b"user", table=("shop", "users"))
    elif change == "filter":
        await server.subscribe(NAME, CLIENT, filter="")
        setup.parser.write(b"order")
    elif change == "seek":
        await server.seek(NAME, CLIENT, begin)
    elif change == "rollback":
        await server.rollback(NAME, CLIENT)
    elif change == "session":
        server.open_session(NAME, CLIENT)
    elif change == "unsubscribe":
        await server.unsubscribe(NAME, CLIENT)
    else:
        await server.stop(NAME)
    ends = {"session": StaleSessionError, "unsubscribe": NotSubscribedError, "stop": DestinationStoppedError}
    async with asyncio.timeout(5):
        if change in ends:
            with pytest.raises(ends[change]):
                await waiter
        else:
            assert (await waiter).entries == given.entries


async def test_stop_ends_every_wait(setup: Setup) -> None:
    await setup.server.subscribe(NAME, CLIENT)
    waiter = asyncio.create_task(setup.server.get_without_ack(NAME, CLIENT, timeout=60))
    await asyncio.sleep(0.01)
    await setup.server.stop(NAME)
    with pytest.raises(DestinationStoppedError, match="should start first"):
        await waiter
    assert setup.server.destination_status(NAME).state == "stopped"


async def test_a_destination_that_was_stopped_with_a_batch_outstanding_has_a_status(setup: Setup) -> None:
    await setup.server.subscribe(NAME, CLIENT)
    setup.parser.write(b"one")
    setup.parser.write(b"two")
    first = await setup.server.get_without_ack(NAME, CLIENT, max_entries=3)
    await setup.server.ack(NAME, CLIENT, batch_id=first.batch_id)
    await setup.server.get_without_ack(NAME, CLIENT)
    await setup.server.stop(NAME)
    status = setup.server.destination_status(NAME)
    assert [(it.client_id, it.position, it.acked) for it in status.clients] == [(CLIENT, first.to, "")]


async def test_one_is_stopped_also_while_it_is_given_up_to_another_server(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = setup.server
    await server.stop(NAME)
    server.cluster = Cluster("127.0.0.1:1", 4.0, Identity("127.0.0.1:1", "http://127.0.0.1:2"), server, setup.load)
    await server.start(NAME)
    await server.activate(NAME, MemoryMetaStore())
    closing = threading.Event()
    monkeypatch.setattr(setup.parser, "join", lambda _: closing.wait())
    giving_up = asyncio.create_task(server.deactivate(NAME))
    await soon(lambda: server.destination_status(NAME).state == "stopped")
    try:
        await server.stop(NAME)
        assert not server.cluster.participant.election(NAME).wanted
    finally:
        closing.set()
        await giving_up
    assert server.destination_status(NAME).state == "stopped"
    await server.start(NAME)
    assert server.cluster.participant.election(NAME).wanted


async def test_one_that_was_left_to_canal_takes_part_again_when_its_operator_starts_it(setup: Setup) -> None:
    server = setup.server
    await server.stop(NAME)
    cluster = Cluster("127.0.0.1:1", 4.0, Identity("127.0.0.1:1", "http://127.0.0.1:2"), server, setup.load)
    server.cluster = cluster
    await server.start(NAME)
    cluster.participant.opened(7, 4.0, 0.0)
    for action in cluster.participant.take_actions():
        if isinstance(action, Ask) and isinstance(action.operation, Look):
            canal = Running(9, "10.0.0.9:11111", fenced=False)
            cluster.participant.answered(action.number, Seen(canal, 4, 7), 0.0)
    assert cluster.participant.election(NAME).state is State.REFUSED
    await server.start(NAME)
    assert cluster.participant.election(NAME).state is State.STANDBY


def log_end(server: EmbeddedServer) -> Position | None:
    log = server.destination_status(NAME).log
    return log.files[-1].end if log is not None and log.files else None


class SeeingCluster(Cluster):
    """It says what ZooKeeper has of destinations that other servers serve."""

    stored = Followed(None, {})

    async def follow(self, destination: str, views: Sequence[str]) -> Followed:
        return self.stored

    def check(self, destination: str) -> None:
        """Let it be served: there is no ZooKeeper."""


def seeing(setup: Setup) -> SeeingCluster:
    setup.change(store="mixed", store_standby=True, store_min_free=0, store_max_bytes=1, catch_up_readers=1)
    identity = Identity("127.0.0.1:1", "http://127.0.0.1:2")
    return SeeingCluster("127.0.0.1:1", 4.0, identity, setup.server, setup.load)


async def test_the_log_of_one_that_stands_by_follows_protected_clients_and_the_source(setup: Setup) -> None:
    server = setup.server
    await server.stop(NAME)
    server.cluster = cluster = seeing(setup)
    before = setup.parser
    await server.start(NAME)
    await soon(lambda: setup.parser is not before)
    tail = setup.parser
    begin = Cursor.at(tail.stream.end)
    tail.write(b"one")
    await soon(lambda: log_end(server) == tail.stream.end)
    log = server._tails[NAME].cursors.track.log
    assert log is not None
    assert log.held == {SEEN: OLDEST}, "somebody may be protected meanwhile"
    end = Cursor.at(tail.stream.end, "0-101-1")
    cluster.stored = Followed(
        None, {7: StoredClient(7, cursor=begin, protected=True), 8: StoredClient(8, cursor=begin)}
    )
    await server.tend_log(NAME)
    assert log.held == {7: begin, SEEN: end}
    tail.write(b"two")
    await soon(lambda: log_end(server) == tail.stream.end)
    assert log.held == {7: begin, SEEN: end}, "whatever comes"
    assert setup.parser is tail
    cluster.stored = replace(cluster.stored, source=InUse("db2:3306"))
    await server.tend_log(NAME)
    assert setup.parser is not tail, "it reads the other source"
    assert setup.parser.start_cursor is not None
    assert setup.parser.start_cursor.position == tail.stream.end
    log = server._tails[NAME].cursors.track.log
    assert log is not None
    assert log.held == {7: begin, SEEN: OLDEST}, "before anything is written to it"
    await server.stop(NAME)


async def test_one_that_stands_by_writes_no_log_before_it_is_known_who_is_protected(setup: Setup) -> None:
    server = setup.server
    await server.stop(NAME)
    seeing(setup)
    server.cluster = Cluster("127.0.0.1:1", 4.0, Identity("127.0.0.1:1", "http://127.0.0.1:2"), server, setup.load)
    before = setup.parser
    await server.start(NAME)
    await server.tend_log(NAME)
    assert setup.parser is before
    assert server.destination_status(NAME).state == "standby"
    await server.stop(NAME)


async def test_one_that_stands_by_reads_the_source_into_its_log_until_it_is_activated(setup: Setup) -> None:
    server = setup.server
    await server.stop(NAME)
    server.cluster = seeing(setup)
    before = setup.parser
    await server.start(NAME)
    await soon(lambda: setup.parser is not before)
    tail = setup.parser
    begin = tail.stream.end
    tail.write(b"one")
    await soon(lambda: log_end(server) == tail.stream.end)
    status = server.destination_status(NAME)
    assert (status.state, status.clients, status.entries) == ("standby", [], 0)
    start = server.log_start(NAME)
    assert start is not None
    assert start.position == begin
    await server.activate(NAME, MemoryMetaStore())
    assert setup.parser is not tail
    assert setup.parser.start_cursor is not None
    assert setup.parser.start_cursor.position == tail.stream.end, "after what it has read while it stood by"
    await server.subscribe(NAME, CLIENT)
    batch = await server.get_without_ack(NAME, CLIENT, timeout=5)
    assert entries(batch.slices) == [b"begin", b"one", b"end"]
    active = setup.parser
    await server.deactivate(NAME)
    await soon(lambda: setup.parser is not active)
    await server.stop(NAME)
    assert server.log_start(NAME) is None


async def test_one_that_could_not_be_activated_stands_by(setup: Setup) -> None:
    await setup.server.stop(NAME)
    setup.failure = ConfigError("the folder for the quarantine cannot be written")
    with pytest.raises(ConfigError):
        await setup.server.activate(NAME, MemoryMetaStore())
    assert setup.server.destination_status(NAME).state == "standby"


async def test_durable_ack_is_on_disk_when_it_returns(setup: Setup, tmp_path: Path) -> None:
    await setup.server.subscribe(NAME, CLIENT)
    setup.parser.write(b"one")
    batch = await setup.server.get_without_ack(NAME, CLIENT)
    await setup.server.ack(NAME, CLIENT, batch_id=batch.batch_id, durable=True)
    data = json.loads((tmp_path / NAME / "meta.dat").read_text())
    assert data["clientDatas"][0]["sluice"]["position"] == batch.to


async def test_a_stop_stores_cursors_before_it_waits_for_the_source(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setup.server.subscribe(NAME, CLIENT)
    setup.parser.write(b"one")
    batch = await setup.server.get_without_ack(NAME, CLIENT)
    await setup.server.ack(NAME, CLIENT, batch_id=batch.batch_id)
    stored: list[bool] = []

    def join(_: float) -> None:
        stored.append(batch.to in (tmp_path / NAME / "meta.dat").read_text())

    monkeypatch.setattr(setup.parser, "join", join)
    await setup.server.stop(NAME)
    assert stored == [True]


async def test_cursors_are_stored_in_the_next_period_after_an_unforeseen_failure(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup.change(file_flush_period=10)
    await setup.server.stop(NAME)
    await setup.server.start(NAME)
    await setup.server.subscribe(NAME, CLIENT)
    setup.parser.write(b"one")
    batch = await setup.server.get_without_ack(NAME, CLIENT)
    meta = setup.server.instances[NAME]._meta

    async def fails(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(meta, "write", fails)
        with pytest.raises(NotStoredError, match="can't start new thread"):
            await setup.server.ack(NAME, CLIENT, batch_id=batch.batch_id, durable=True)
        await soon(lambda: setup.server.destination_status(NAME).error)
    await soon(lambda: batch.to in (tmp_path / NAME / "meta.dat").read_text())
    await soon(lambda: not setup.server.destination_status(NAME).error)


async def test_a_stream_does_not_begin_again_while_cursors_cannot_be_stored(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk it would end, and not begin; then nothing would start it when there is room again."""
    await setup.server.subscribe(NAME, CLIENT)
    setup.parser.write(b"one")
    batch = await setup.server.get_without_ack(NAME, CLIENT)
    await setup.server.ack(NAME, CLIENT, batch_id=batch.batch_id)

    async def fails(*_: object) -> None:
        raise OSError(errno.EFBIG, "File too large")

    with monkeypatch.context() as patch:
        patch.setattr(setup.server.instances[NAME]._meta, "write", fails)
        with pytest.raises(NotStoredError, match="File too large"):
            await setup.server.begin_again(NAME)
    assert setup.server.destination_status(NAME).state == "running"
    setup.parser.write(b"two")
    assert (await setup.server.get_without_ack(NAME, CLIENT)).to != batch.to
    await setup.server.begin_again(NAME)
    assert setup.server.destination_status(NAME).state == "running"


async def test_a_reload_protection_and_what_is_done_with_a_snapshot_are_listed_with_who_did_it(setup: Setup) -> None:
    server = setup.server
    await server.subscribe(NAME, CLIENT)
    snapshot = server.instances[NAME].cursors.snapshots.add(CLIENT, [TableProgress("shop", "goods")], 0)
    token = caller.set(Caller("alice"))
    for is_paused in (True, False):
        await server.pause_snapshot(NAME, CLIENT, snapshot.snapshot_id, is_paused=is_paused)
    await server.cancel_snapshot(NAME, CLIENT, snapshot.snapshot_id)
    await server.protect(NAME, CLIENT, protected=False)
    await server.reload(NAME)
    caller.reset(token)
    await server.reload(NAME)  # what the server does by itself is none
    found = await server.audited(NAME, 10)
    assert [(it.action, it.client, it.who) for it in found] == [
        ("pause of a snapshot", CLIENT, "alice"),
        ("resumption of a snapshot", CLIENT, "alice"),
        ("cancelling of a snapshot", CLIENT, "alice"),
        ("end of protection", CLIENT, "alice"),
        ("reload", None, "alice"),
    ]


async def test_files_of_the_log_that_somebody_takes_away_are_listed(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "FILE_SIZE", 1)
    setup.change(store="mixed", store_min_free=0)
    server = setup.server
    await server.stop(NAME)
    await server.start(NAME)
    for row in (b"one", b"two", b"three"):
        setup.parser.write(row)
        await soon(lambda: log_end(server) == setup.parser.stream.end)
    token = caller.set(Caller("alice"))
    would_go = await server.prune_log(NAME, 0, dry_run=True)
    assert await server.audited(NAME, 10) == []
    taken = await server.prune_log(NAME, 0)
    caller.reset(token)
    assert taken == would_go != []
    (change,) = await server.audited(NAME, 10)
    assert (change.action, change.who) == ("prune of the log", "alice")
    assert (change.before, change.after) == (str(taken[0].start), str(taken[-1].end))
    assert change.detail == f"{len(taken)} files, {sum(it.bytes for it in taken)} bytes"


async def test_the_error_of_a_stream_that_begins_again_is_wanted_though_its_caller_was_stopped(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an output, say: Python would log that the exception of a task was never retrieved."""
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    begun, ends = asyncio.Event(), asyncio.Event()

    async def begin_again() -> None:
        begun.set()
        await ends.wait()
        raise SourceError("it does not answer")

    monkeypatch.setattr(setup.server.instances[NAME], "begin_again", begin_again)
    beginning = asyncio.create_task(setup.server.begin_again(NAME))
    await begun.wait()
    beginning.cancel()
    ends.set()
    await asyncio.wait([beginning])
    assert beginning.cancelled()
    del beginning
    gc.collect()
    assert reported == []


async def test_a_stream_begins_again_though_what_came_meanwhile_cannot_be_stored_and_stores_it_later(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full from just then on; nothing would start it when there is room again."""
    await setup.server.subscribe(NAME, CLIENT)
    setup.parser.write(b"one")
    batch = await setup.server.get_without_ack(NAME, CLIENT)
    instance = setup.server.instances[NAME]
    write, writes = instance._meta.write, 0

    async def fills_the_disk(changes: Changes, epoch: int) -> None:
        nonlocal writes
        writes += 1
        if writes > 1:
            raise OSError(errno.EFBIG, "File too large")
        await write(changes, epoch)
        instance.cursors.ack(CLIENT, batch.batch_id, now=time.monotonic())

    with monkeypatch.context() as patch:
        patch.setattr(instance._meta, "write", fills_the_disk)
        instance.cursors.clients.unstored.add(CLIENT)
        await setup.server.begin_again(NAME)
        assert writes == 2
        setup.parser.write(b"two")
        following = await setup.server.get_without_ack(NAME, CLIENT)
        assert entries(following.slices) == [b"begin", b"two", b"end"]
        with pytest.raises(NotStoredError, match="File too large"):
            await instance.flush()
    assert batch.to not in (tmp_path / NAME / "meta.dat").read_text()
    await instance.flush()
    assert batch.to in (tmp_path / NAME / "meta.dat").read_text()


async def test_durable_acks_that_come_together_share_writes(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    for client_id in range(20):
        await setup.server.subscribe(NAME, client_id)
    setup.parser.write(b"one")
    batches = [await setup.server.get_without_ack(NAME, client_id) for client_id in range(20)]
    meta = setup.server.instances[NAME]._meta
    writes = 0
    write = meta.write

    async def counted(*arguments: object) -> None:
        nonlocal writes
        writes += 1
        await write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(meta, "write", counted)
    await asyncio.gather(
        *(
            setup.server.ack(NAME, client_id, batch_id=batch.batch_id, durable=True)
            for client_id, batch in enumerate(batches)
        )
    )
    assert 1 <= writes <= 2


async def test_restart_goes_on_at_the_cursor(setup: Setup) -> None:
    await setup.server.subscribe(NAME, CLIENT)
    setup.parser.write(b"one")
    setup.parser.write(b"two")
    batch = await setup.server.get_without_ack(NAME, CLIENT, max_entries=4)
    await setup.server.ack(NAME, CLIENT, batch_id=batch.batch_id)
    await setup.server.stop(NAME)
    await setup.server.start(NAME)
    assert setup.parser.start_cursor is not None
    assert setup.parser.start_cursor.position == setup.parser.stream.position(3)
    setup.parser.write(b"two")
    again = await setup.server.get_without_ack(NAME, CLIENT)
    assert entries(again.slices) == [b"begin", b"two", b"end"]
    assert again.batch_id > batch.batch_id + 1_000_000


async def test_state_of_the_parser_is_shown(setup: Setup) -> None:
    setup.parser.on_state("error", "the source is away")
    await asyncio.sleep(0.01)
    status = setup.server.destination_status(NAME)
    assert (status.state, status.error) == ("error", "the source is away")
    assert setup.server.instances[NAME].state == "error"
    await setup.server.subscribe(NAME, CLIENT)


async def test_invalid_arguments_are_refused(setup: Setup) -> None:
    with pytest.raises(UnknownDestinationError):
        await setup.server.get_without_ack("other", CLIENT)
    with pytest.raises(UnknownDestinationError):
        await setup.server.start("other")
    with pytest.raises(NotSubscribedError):
        await setup.server.get_without_ack(NAME, CLIENT)
    with pytest.raises(BadParameterError):
        await setup.server.subscribe(NAME, 1 << 15)
    with pytest.raises(FilterError):
        await setup.server.subscribe(NAME, CLIENT, filter="(")
    await setup.server.subscribe(NAME, CLIENT)
    setup.parser.write(b"one")
    batch = await setup.server.get_without_ack(NAME, CLIENT)
    await setup.server.ack(NAME, CLIENT, batch_id=batch.batch_id)
    with pytest.raises(GoneError):
        await setup.server.subscribe(NAME, 2, start=batch.from_)


async def test_a_get_without_limits_calls_nothing_that_limits(setup: Setup) -> None:
    def called() -> set[str]:
        return {name for file, name in made if file == allowance.__file__}

    made: set[tuple[str, str]] = set()
    await setup.server.subscribe(NAME, CLIENT)
    for limits in ({}, {"quota": 1 << 30}):
        await setup.server.limit(NAME, CLIENT, limits)
        setup.parser.write(b"one")
        made.clear()
        sys.setprofile(lambda frame, *_: made.add((frame.f_code.co_filename, frame.f_code.co_name)))
        try:
            await setup.server.get_without_ack(NAME, CLIENT)
        finally:
            sys.setprofile(None)
        assert bool(called()) == bool(limits), called()


@pytest.mark.parametrize("clock", [0.0, -3600.0], ids=["", "the clock is set back"])
async def test_client_that_holds_a_full_ring_back_for_too_long_leaves_it_until_the_next_start(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, clock: float
) -> None:
    await setup.server.stop(NAME)
    setup.change(memory_buffer_size=4, detach_after=1, file_flush_period=50)
    await setup.server.start(NAME)
    await asyncio.sleep(0)
    for client_id in (CLIENT, 2):
        await setup.server.subscribe(NAME, client_id)
    setup.parser.write(b"one")
    batch = await setup.server.get_without_ack(NAME, CLIENT)
    await setup.server.ack(NAME, CLIENT, batch_id=batch.batch_id)
    unix_time = time.time
    monkeypatch.setattr(time, "time", lambda: unix_time() + clock)
    putter = threading.Thread(target=setup.parser.write, args=(b"two",), daemon=True)
    putter.start()
    begun = await setup.server.get_without_ack(NAME, CLIENT, timeout=5)
    await setup.server.ack(NAME, CLIENT, batch_id=begun.batch_id)
    async with asyncio.timeout(5):
        while setup.server.status(NAME, 2).state == "attached":  # noqa: ASYNC110  only its status tells
            await asyncio.sleep(0.01)
    putter.join()
    status = setup.server.status(NAME, 2)
    assert (status.state, status.problem, status.position) == ("gone", "gone", batch.from_)
    assert "held the others back for more than 1 s" in status.error
    assert (await setup.server.get_without_ack(NAME, CLIENT)).entries == 2
    await setup.server.stop(NAME)
    await setup.server.start(NAME)
    await asyncio.sleep(0)
    assert str(setup.parser.start_cursor and setup.parser.start_cursor.position) == batch.from_
    setup.parser.write(b"one")
    assert entries((await setup.server.get_without_ack(NAME, 2, timeout=5)).slices) == [b"begin", b"one", b"end"]


async def test_a_reload_restarts_a_destination_only_if_what_it_reads_is_another(setup: Setup) -> None:
    parser = setup.parser
    await setup.server.reload(NAME)
    assert setup.parser is parser
    setup.change(time_zone="UTC")
    await setup.server.reload(NAME)
    assert setup.parser is not parser
    assert setup.server.instances[NAME].config.time_zone == "UTC"


async def test_a_reload_of_a_mistake_stops_nothing(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> InstanceConfig:
        raise ConfigError("instance.properties:3: canal.instance.gtidon")

    monkeypatch.setattr(setup.server, "_load", fail)
    with pytest.raises(ConfigError):
        await setup.server.reload(NAME)
    await asyncio.sleep(0)
    assert setup.server.destination_status(NAME).state == "running"


async def test_a_reload_starts_a_stopped_destination(setup: Setup) -> None:
    await setup.server.stop(NAME)
    await setup.server.reload(NAME)
    await asyncio.sleep(0.01)
    assert setup.server.destination_status(NAME).state == "running"


async def test_destination_with_a_broken_file_does_not_start(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "meta.dat").write_text("{")
    setup = Setup(tmp_path)
    with pytest.raises(ConfigError):
        await setup.server.start(NAME)
    status = setup.server.destination_status(NAME)
    assert status.state == "stopped"
    assert "meta.dat" in status.error


async def test_destination_that_cannot_start_says_so_and_starts_when_it_can(setup: Setup) -> None:
    await setup.server.stop(NAME)
    setup.failure = SluiceError("something is wrong")
    with pytest.raises(SluiceError, match="something is wrong"):
        await setup.server.start(NAME)
    status = setup.server.destination_status(NAME)
    assert (status.state, status.error) == ("stopped", "something is wrong")
    setup.failure = None
    await setup.server.start(NAME)
    await asyncio.sleep(0.01)
    assert setup.server.destination_status(NAME).state == "running"


async def test_mistake_of_ours_keeps_one_destination_from_starting_and_no_other(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setup.server.stop(NAME)
    monkeypatch.setattr(WrittenByTest, "__init__", lambda *_, **__: 1 / 0)
    with pytest.raises(SluiceError, match="cannot start: ZeroDivisionError"):
        await setup.server.start(NAME)
    assert setup.server.destination_status(NAME).state == "stopped"
    monkeypatch.undo()
    await setup.server.start(NAME)


@pytest.mark.parametrize("error", [PurgedError("the source has purged it"), SourceChangedError("another history")])
async def test_what_the_source_has_lost_is_an_error_for_calls_that_wait_for_it(
    setup: Setup, error: SluiceError
) -> None:
    others = CLIENT + 1
    for client in (CLIENT, others):
        await setup.server.subscribe(NAME, client)
    setup.parser.write(b"one")
    begin = setup.server.status(NAME, CLIENT).position
    end = (await setup.server.get_without_ack(NAME, others)).to
    await setup.server.ack(NAME, others, position=end)
    await setup.server.stop(NAME)
    setup.lost = error
    await setup.server.start(NAME)
    await asyncio.sleep(0)
    with pytest.raises(type(error), match=str(error)):
        await setup.server.position(NAME, CLIENT, after=begin)
    with pytest.raises(type(error), match=str(error)):
        await setup.server.ack(NAME, CLIENT, position=end)
    with pytest.raises(type(error), match=str(error)):  # the stream would have begun at a later place that is left
        await setup.server.position(NAME, others, after=end)
    for client in (CLIENT, others):
        for wait_full in (False, True):
            with pytest.raises(type(error), match=str(error)):
                async with asyncio.timeout(3):
                    await setup.server.get_without_ack(NAME, client, timeout=math.inf, wait_full=wait_full)
    setup.change(auto_reset_latest_pos_mode=True)
    await setup.server.stop(NAME)
    await setup.server.start(NAME)
    if isinstance(error, PurgedError):  # soon the stream goes on after a gap
        assert (await setup.server.position(NAME, CLIENT, after=begin)).range.entries == 0


async def test_columns_are_told_of_tables_that_are_delivered_only(setup: Setup) -> None:
    assert (await setup.server.columns(NAME, "shop", "orders"))[0].mysql_type == "int of shop.orders"
    assert await setup.server.columns(NAME, "shop", "orders", r"shop\.o.*")
    with pytest.raises(FilterError, match=r"the filter 'shop\\.a.*' leaves shop\.orders out"):
        await setup.server.columns(NAME, "shop", "orders", r"shop\.a.*")
    setup.change(filter_regex=r"crm\..*")
    await setup.server.stop(NAME)
    await setup.server.start(NAME)
    with pytest.raises(FilterError, match=r"does not deliver shop\.orders: no item of the filter matches"):
        await setup.server.columns(NAME, "shop", "orders")


async def test_tables_are_told_that_are_delivered_and_wanted(setup: Setup) -> None:
    assert await setup.server.tables(NAME) == ["crm.notes", "shop.goods", "shop.orders"]
    setup.change(filter_regex=r"shop\..*", filter_black_regex=r".*\.orders")
    await setup.server.stop(NAME)
    await setup.server.start(NAME)
    assert await setup.server.tables(NAME) == ["shop.goods"]
    assert await setup.server.tables(NAME, r"shop\.o.*") == []
    with pytest.raises(FilterError):
        await setup.server.tables(NAME, r"crm\.notes")


async def test_client_whose_filter_fits_no_longer_is_gone_until_it_subscribes_with_another(setup: Setup) -> None:
    await setup.server.subscribe(NAME, CLIENT, filter=r"shop\.orders")
    await setup.server.stop(NAME)
    setup.change(filter_regex=r"crm\..*")
    await setup.server.start(NAME)
    setup.parser.write(b"one", table=("crm", "people"))
    status = setup.server.status(NAME, CLIENT)
    assert (status.state, status.problem) == ("gone", "filter-matches-nothing")
    with pytest.raises(FilterError, match="matches nothing that"):
        await setup.server.get_without_ack(NAME, CLIENT)
    await setup.server.subscribe(NAME, CLIENT, filter=r"crm\..*")
    assert entries((await setup.server.get_without_ack(NAME, CLIENT)).slices) == [b"begin", b"one", b"end"]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("stored", [r"shop\.(?=o).*", r"shop\.(a{1000}){1000}", "shop\\.\ud800"])
async def test_a_stored_filter_that_is_refused_stops_its_client_alone(
    setup: Setup, tmp_path: Path, caplog: pytest.LogCaptureFixture, stored: str, shared: bool
) -> None:
    await setup.server.subscribe(NAME, CLIENT, filter=r"shop\.orders")
    await setup.server.subscribe(NAME, 1002)
    await setup.server.stop(NAME)
    meta = tmp_path / NAME / "meta.dat"
    assert r"shop\\.orders" in meta.read_text()
    meta.write_text(meta.read_text().replace(r"shop\\.orders", json.dumps(stored)[1:-1]))
    setup.change(shared_filter=shared)
    await setup.server.start(NAME)
    setup.parser.write(b"one")
    assert entries((await setup.server.get_without_ack(NAME, 1002)).slices) == [b"begin", b"one", b"end"]
    with pytest.raises(FilterError):
        await setup.server.get_without_ack(NAME, CLIENT)
    assert "client 1001 is not served" in caplog.text
    await setup.server.subscribe(NAME, CLIENT, filter=r"shop\.orders")
    assert entries((await setup.server.get_without_ack(NAME, CLIENT)).slices) == [b"begin", b"one", b"end"]


async def test_half_a_character_in_a_condition_keeps_no_cursor_from_being_stored(setup: Setup, tmp_path: Path) -> None:
    with pytest.raises(FilterError, match="lone surrogate"):
        await setup.server.subscribe(NAME, CLIENT, where="shop.orders: id > 1 /* \ud800 */")
    await setup.server.subscribe(NAME, CLIENT, where="shop.orders: id > 1 /* half */")
    await setup.server.stop(NAME)
    meta = tmp_path / NAME / "meta.dat"
    meta.write_text(meta.read_text().replace("half", r"\ud800"))
    await setup.server.start(NAME)
    await setup.server.subscribe(NAME, 1002)
    assert setup.server.status(NAME, CLIENT).where == r"shop.orders: id > 1 /* \ud800 */"


class TestSharedFilter:
    """Canal's rule: the filter of the last subscriber is that of the destination."""

    @pytest.fixture
    async def setup(self, setup: Setup) -> Setup:
        await setup.server.stop(NAME)
        setup.change(shared_filter=True, filter_regex=r"shop\..*", filter_black_regex=r".*\.secret")
        await setup.server.start(NAME)
        await asyncio.sleep(0)
        return setup

    async def test_the_last_filter_takes_the_place_of_the_destinations(self, setup: Setup) -> None:
        await setup.server.subscribe(NAME, 1, filter=r"shop\.users")
        assert not setup.parser.filter.accepts("shop", "orders")
        await setup.server.subscribe(NAME, 2, filter=r"crm\..*")
        assert setup.parser.filter.accepts("crm", "orders")
        assert not setup.parser.filter.accepts("crm", "secret")
        assert not setup.parser.filter.accepts("shop", "users")

    async def test_an_empty_filter_leaves_it_unchanged(self, setup: Setup) -> None:
        await setup.server.subscribe(NAME, 1, filter=r"crm\..*")
        await setup.server.subscribe(NAME, 1)
        assert setup.parser.filter.accepts("crm", "orders")

    async def test_every_client_is_given_what_passes(self, setup: Setup) -> None:
        await setup.server.subscribe(NAME, 1, filter=r"shop\.users")
        await setup.server.subscribe(NAME, 2, filter=r"shop\.orders")
        setup.parser.write(b"order")
        for client_id in (1, 2):
            assert (await setup.server.get_without_ack(NAME, client_id)).entries == 3

    async def test_an_invalid_filter_changes_nothing(self, setup: Setup) -> None:
        with pytest.raises(FilterError):
            await setup.server.subscribe(NAME, 1, filter="shop.(")
        assert setup.parser.filter.accepts("shop", "orders")

    async def test_after_a_restart_the_last_one_that_is_stored_counts(self, setup: Setup) -> None:
        await setup.server.subscribe(NAME, 1, filter=r"crm\..*")
        await setup.server.subscribe(NAME, 2)
        await setup.server.stop(NAME)
        await setup.server.start(NAME)
        assert setup.parser.filter.accepts("crm", "orders")
        assert not setup.parser.filter.accepts("shop", "orders")

    async def test_otherwise_a_filter_narrows_that_of_the_destination(self, setup: Setup) -> None:
        await setup.server.stop(NAME)
        setup.change(shared_filter=False)
        await setup.server.start(NAME)
        await setup.server.subscribe(NAME, 1, filter=r"shop\.users")
        assert setup.parser.filter.accepts("shop", "orders")


async def test_a_destination_that_was_given_up_or_is_taken_over_does_not_answer_until_its_clients_are_loaded(
    setup: Setup,
) -> None:
    await setup.server.subscribe(NAME, CLIENT)
    setup.parser.write(b"a")
    batch = await setup.server.get_without_ack(NAME, CLIENT, timeout=1)
    await setup.server.deactivate(NAME)
    # Another server may have had it since: what is still in memory here must neither be acked nor asked.
    with pytest.raises(DestinationStoppedError, match="is starting"):
        await setup.server.ack(NAME, CLIENT, batch_id=batch.batch_id)
    with pytest.raises(DestinationStoppedError, match="is starting"):
        setup.server.open_session(NAME, CLIENT)


async def test_a_client_that_has_not_called_since_the_start_is_told_from_one_that_has(tmp_path: Path) -> None:
    embedded, _ = await start_embedded(tmp_path)
    await embedded.subscribe("example", 7)
    assert embedded.status("example", 7).called
    await embedded.stop("example")
    await embedded.start("example")
    assert not embedded.status("example", 7).called
    await embedded.get_without_ack("example", 7)
    assert embedded.status("example", 7).called
    await embedded.close()
