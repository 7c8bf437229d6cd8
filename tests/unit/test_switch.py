"""A switch between two sources, whose changes come from the test, while something else is done with the destination."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.config import InstanceConfig
from sluice.instance.meta.file import FileMetaStore
from sluice.instance.serving import instance as instance_module
from sluice.instance.serving import switch as switch_module
from sluice.instance.serving.instance import Instance
from sluice.instance.source import Proof, TableReader
from sluice.instance.sources.mysql.config import MysqlConfig
from sluice.protocol.errors import (
    DestinationStoppedError,
    GoneError,
    LostTransactionsError,
    PurgedError,
    SluiceError,
    SourceChangedError,
    SourceError,
    SwitchRefusedError,
)
from sluice.protocol.gtid import MariadbGtidSet, Transactions
from sluice.server.caller import Caller, caller
from sluice.store.cursor import Cursor
from sluice.store.ring import Kind
from sluice.store.snapshot import TableProgress
from tests.stream import SERVER_ID, Stream, entries
from tests.unit.test_embedded import WrittenByTest
from tests.unit.test_views import CLIENT, MAIN, VIEW, Setup
from tests.waiting import soon

FIRST, SECOND = "one", "two"


class Source(WrittenByTest):
    """Of a server with an address."""

    proving = threading.Event()
    """A proof has begun ..."""
    proof = threading.Event()
    """... and ends when this is set, or the parser is stopped."""

    def __init__(self, config: MysqlConfig, *arguments: Any, **options: Any) -> None:
        super().__init__(config, *arguments, **options)
        self.address, self.is_reader, self.reads = config.master_address.host, config.is_reader, False
        self.stopped = threading.Event()

    def start(self) -> None:
        self.reads = True
        super().start()

    def stop(self) -> None:
        self.reads = False
        self.stopped.set()

    def prove(self, place: Cursor, sample: bytes) -> Proof:
        self.proving.set()
        while not self.proof.wait(0.01):
            if self.stopped.is_set():
                raise SourceError("the destination stops")
        return super().prove(place, sample)

    def table_reader(self) -> TableReader:
        raise SourceError(f"{self.address} does not answer")


class Pair(Setup):
    """A server with a destination of two sources, and a view of it."""

    readers = 0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.parsers: list[Source] = []

    def config(self, name: str, **more: Any) -> InstanceConfig:
        options: dict[str, Any] = {
            "master_address": f"{FIRST}:1",
            "standby_address": f"{SECOND}:1",
            "db_username": "reader",
        }
        return MysqlConfig(
            destination=name,
            file_data_dir=self.folder,
            file_flush_period=3_600_000,
            catch_up_readers=self.readers,
            **(options | more),
        )

    def make_parser(self, *arguments: Any, **options: Any) -> Source:
        made = self.parser = Source(*arguments, **options)
        self.parsers.append(made)
        return made

    @property
    def instance(self) -> Instance:
        return self.server._known_main(MAIN)

    @property
    def reading(self) -> list[Source]:
        return [it for it in self.parsers if it.reads]

    def tear(self, number: int = 0, server: int = SERVER_ID) -> None:
        """End what is read in the middle of a transaction: a switch has to begin the stream again.

        It has this number as its GTID, or none that is known.
        """
        (parser,) = self.reading
        parser.stream.stage(b"begin", Kind.TRANSACTION_BEGIN)
        parser.stream.put()
        source = self.instance.ring.gtid_sources.intern(("", (0, server)))
        parser.status = replace(parser.status, gtid_in_part=(source, number) if number else None)

    def keep_log(self, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
        """Have a log on disk when the destination is started."""
        monkeypatch.setattr(Pair, "readers", 1)
        self.main = self.config(MAIN, store="mixed", store_min_free=0, **more)

    async def take_one(self) -> None:
        """Start with a client that takes the one transaction that is written."""
        await self.start(MAIN)
        await self.server.subscribe(MAIN, CLIENT)
        self.write("orders", b"one")
        assert await self.take(MAIN) == [b"one"]

    async def logged(self) -> None:
        """Wait until the log has all that was written."""
        (parser,) = self.reading
        instance = self.instance
        await soon(lambda: (log := instance.cursors.track.log) is not None and log.end == parser.stream.end)

    def switch(self) -> "asyncio.Task[None]":
        return asyncio.create_task(self.server.switch_source(MAIN))


@pytest.fixture
async def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    for module in (instance_module, switch_module):
        monkeypatch.setattr(module, "CLOSING", 0.2)
    monkeypatch.setattr(Source, "proving", threading.Event())
    monkeypatch.setattr(Source, "proof", threading.Event())
    made = Pair(tmp_path)
    yield made
    Source.proof.set()
    with contextlib.suppress(SluiceError):
        await made.server.close()


@contextlib.contextmanager
def held(monkeypatch: pytest.MonkeyPatch, pair: Pair) -> Iterator[asyncio.Event]:
    """Let the stream begin again only when the event is set, or the block is left."""
    load, go_on = pair.instance._load, asyncio.Event()

    async def wait(clients: Any) -> None:
        await go_on.wait()
        await load(clients)

    monkeypatch.setattr(pair.instance, "_load", wait)
    yield go_on
    go_on.set()


async def begins_again(pair: Pair) -> "asyncio.Task[None]":
    """Switch, and return when the stream begins again."""
    pair.tear()
    Source.proof.set()
    switching = pair.switch()
    await soon(lambda: pair.state(MAIN)[0] == "starting")
    return switching


async def test_a_stop_waits_until_a_stream_that_begins_again_has_begun(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody would ever end what is half begun: its files would stay locked."""
    await pair.start(MAIN, VIEW)
    with held(monkeypatch, pair) as go_on:
        switching = await begins_again(pair)
        stopping = asyncio.create_task(pair.server.stop(MAIN))
        await asyncio.sleep(0.5)
        go_on.set()
    await asyncio.gather(switching, stopping)
    assert pair.state(MAIN) == ("stopped", "")
    assert not pair.reading
    await pair.start(MAIN)
    assert (pair.state(MAIN)[0], pair.state(VIEW)[0]) == ("running", "running")
    assert [it.address for it in pair.reading] == [SECOND]


async def test_a_view_that_is_started_while_the_stream_begins_again_is_served(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pair.start(MAIN, VIEW)
    await pair.server.stop(VIEW)
    with held(monkeypatch, pair):
        switching = await begins_again(pair)
        await pair.server.start(VIEW)
    await switching
    await soon(lambda: pair.state()[0] == "running")
    await pair.server.subscribe(VIEW, CLIENT)
    pair.write("orders", b"one")
    assert await pair.take() == [b"one"]


async def test_a_view_that_opens_while_the_stream_begins_again_keeps_its_clients(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pair.start(MAIN, VIEW)
    await pair.server.subscribe(VIEW, CLIENT)
    await pair.server.stop(VIEW)
    opened, go_on = FileMetaStore.open, asyncio.Event()

    async def wait(store: FileMetaStore) -> Any:
        found = await opened(store)
        await go_on.wait()
        return found

    monkeypatch.setattr(FileMetaStore, "open", wait)
    starting = asyncio.create_task(pair.server.start(VIEW))
    await soon(lambda: pair.state()[0] == "starting")
    with held(monkeypatch, pair):
        switching = await begins_again(pair)
        go_on.set()
        await starting
    await switching
    assert [it.client_id for it in pair.server.destination_status(VIEW).clients] == [CLIENT]


async def test_no_switch_begins_while_rows_of_the_quarantine_are_kept(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else two parsers would fill one ring."""
    await pair.start(MAIN)
    await pair.server.subscribe(MAIN, CLIENT)
    pair.write("orders", b"one")
    kept = threading.Event()
    monkeypatch.setattr(instance_module, "keep_late", lambda *_: kept.wait(5))
    redelivering = asyncio.create_task(pair.instance.redeliver([]))
    await asyncio.sleep(0.05)
    switching = pair.switch()
    await soon(Source.proving.is_set)
    kept.set()
    await redelivering
    await asyncio.gather(switching, return_exceptions=True)
    assert [it.address for it in pair.reading] == [FIRST]
    assert pair.server.destination_status(MAIN).source.switching == ""  # type: ignore[union-attr]


async def test_a_proof_that_does_not_end_is_given_up(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    await pair.start(MAIN)
    pair.write("orders", b"one")

    def prove(*_: Any) -> Proof:
        Source.proving.set()
        Source.proof.wait(5)
        raise SourceError("it does not answer")

    monkeypatch.setattr(Source, "prove", prove)
    switching = pair.switch()
    await soon(Source.proving.is_set)
    await pair.server.begin_again(MAIN)
    await asyncio.gather(switching, return_exceptions=True)
    assert [it.address for it in pair.reading] == [FIRST]
    assert pair.server.destination_status(MAIN).source.switching == ""  # type: ignore[union-attr]


async def test_a_stop_gives_up_a_switch_that_waits_for_the_source_to_be_left(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pair.start(MAIN)
    waits = asyncio.Event()

    async def wait(_: object) -> None:
        waits.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(pair.instance, "stop_reading", wait)
    switching = pair.switch()
    await waits.wait()
    async with asyncio.timeout(10):
        await pair.server.stop(MAIN)
    assert pair.state(MAIN) == ("stopped", "")
    assert (status := pair.instance.source_status) is not None
    assert not status.switching
    with pytest.raises(DestinationStoppedError, match=f"the destination was stopped before the switch to {SECOND}"):
        await switching


async def test_no_reader_of_the_former_source_is_left(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is behind asks for one while the readers are closed."""
    monkeypatch.setattr(Pair, "readers", 1)
    pair.main = pair.config(MAIN)
    monkeypatch.setattr(Source, "join", lambda *_: threading.Event().wait(0.2))
    await pair.start(MAIN)
    pair.write("orders", b"before")  # the set of GTIDs is not empty
    for client in (CLIENT, 2):
        await pair.server.subscribe(MAIN, client, start="latest")
    pair.write("orders", b"one")
    batch = await pair.server.get_without_ack(MAIN, 2)
    await pair.server.ack(MAIN, 2, batch_id=batch.batch_id)
    cursors = pair.instance.cursors
    cursors.clients.subscribers[CLIENT].detach(cursors.track, GoneError("it is slow"))
    waiting = asyncio.create_task(pair.server.get_without_ack(MAIN, CLIENT, timeout=5))
    await soon(lambda: len(pair.reading) == 2)
    Source.proof.set()
    switching = pair.switch()
    while not switching.done():
        pair.instance._tend()
        await asyncio.sleep(0.01)
    await switching
    assert {it.address for it in pair.reading} == {SECOND}
    waiting.cancel()


async def test_a_snapshot_that_begins_in_a_switch_is_read_once(pair: Pair) -> None:
    await pair.start(MAIN, VIEW)
    await pair.server.subscribe(MAIN, CLIENT)
    pair.write("orders", b"one")
    switching = pair.switch()
    await soon(Source.proving.is_set)
    pair.instance.cursors.snapshots.add(CLIENT, [TableProgress("shop", "orders", "", 1)], 0)
    pair.instance.tend_snapshots()
    Source.proof.set()
    await switching

    def tasks() -> int:
        return sum(task.get_name() == f"snapshot of {MAIN}/{CLIENT}" for task in asyncio.all_tasks())

    assert tasks() == 1
    await pair.server.stop(MAIN)
    assert tasks() == 0


def asked(monkeypatch: pytest.MonkeyPatch, *lacks: str) -> list[Cursor]:
    """Let sources lack some GTIDs, each of which stands at the end of a set; return what they are asked for."""
    found: list[Cursor] = []

    def prove(_: Source, place: Cursor, sample: bytes) -> Proof:
        found.append(place)
        return Proof(place, Transactions(f"{it}-{it[-1]}" for it in lacks if place.gtid.endswith(it)))

    monkeypatch.setattr(Source, "prove", prove)
    return found


def unanswered(*_: object) -> Proof:
    raise SourceError("two does not answer")


@pytest.mark.parametrize("is_given", [True, False])
async def test_a_transaction_that_was_given_in_part_has_to_be_there(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, is_given: bool
) -> None:
    places = asked(monkeypatch, "0-101-2")
    await pair.take_one()
    pair.tear(2)
    if not is_given:
        await pair.server.switch_source(MAIN)
        assert [it.gtid for it in places] == ["0-101-1"]
        return
    assert (await pair.get(MAIN)).entries == 1
    with monkeypatch.context() as patch:
        patch.setattr(Source, "prove", unanswered)
        with pytest.raises(SourceError):
            await pair.server.switch_source(MAIN)
    # The stream has begun again, and the first source gives nothing more.
    assert pair.instance.cursors.track.end == pair.reading[0].stream.end
    with pytest.raises(LostTransactionsError, match="does not have 1 transactions that were delivered: 0-101-2-2"):
        await pair.server.switch_source(MAIN)
    await pair.server.switch_source(MAIN, accept=True)
    source = pair.server.destination_status(MAIN).source
    assert source is not None
    assert (source.address, source.accepted) == (f"{SECOND}:1", ("0-101-2-2",))


async def test_what_was_given_in_part_and_then_as_a_whole_is_asked_for_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = asked(monkeypatch, "0-101-2")
    await pair.start(MAIN)
    await pair.server.subscribe(MAIN, CLIENT)
    pair.write("orders", b"one")
    pair.tear(2)
    assert (await pair.get(MAIN)).entries == 4
    with pytest.raises(LostTransactionsError):
        await pair.server.switch_source(MAIN)
    pair.write("orders", b"one")
    pair.write("orders", b"two")
    places.clear()
    with pytest.raises(LostTransactionsError):
        await pair.server.switch_source(MAIN)
    assert [it.gtid for it in places] == ["0-101-2"]


async def test_what_the_log_has_must_be_there_though_the_stream_has_not_begun(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client behind its end is given it from the log."""
    pair.keep_log(monkeypatch)
    await pair.take_one()
    pair.write("orders", b"two")
    await pair.logged()
    await pair.server.stop(MAIN)
    monkeypatch.setattr(Source, "waits", True)
    await pair.start(MAIN)
    places = asked(monkeypatch, "0-101-2")
    with pytest.raises(LostTransactionsError, match="0-101-2"):
        await pair.server.switch_source(MAIN)
    assert [it.gtid for it in places] == ["0-101-2"]


async def test_a_client_whose_changes_are_purged_does_not_hold_the_others_back(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pair.start(MAIN)
    for client in (CLIENT, 7):
        await pair.server.subscribe(MAIN, client)
    pair.write("orders", b"before")
    batch = await pair.server.get_without_ack(MAIN, 7)
    await pair.server.ack(MAIN, 7, batch_id=batch.batch_id)
    old = pair.server.status(MAIN, 7).position
    pair.write("orders", b"one")
    assert await pair.take(MAIN) == [b"before", b"one"]
    await pair.server.stop(MAIN)
    monkeypatch.setattr(Source, "waits", True)
    await pair.start(MAIN)

    def prove(_: Source, place: Cursor, sample: bytes) -> Proof:
        if str(place.position) == old:
            raise PurgedError("two has purged what comes next")
        return Proof(place)

    monkeypatch.setattr(Source, "prove", prove)
    await pair.server.switch_source(MAIN)
    assert [it.address for it in pair.reading] == [SECOND]
    await pair.server.unsubscribe(MAIN, CLIENT)
    with pytest.raises(SwitchRefusedError, match="client 7: two has purged what comes next"):
        await pair.server.switch_source(MAIN)


async def test_a_switch_that_is_refused_leaves_the_stream_as_it_is_with_a_log_too(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.keep_log(monkeypatch)
    await pair.start(MAIN)
    await pair.server.subscribe(MAIN, CLIENT)
    pair.write("orders", b"one")
    batch = await pair.get(MAIN)
    asked(monkeypatch, "0-101-1")
    with pytest.raises(LostTransactionsError):
        await pair.server.switch_source(MAIN)
    await pair.server.ack(MAIN, CLIENT, batch_id=batch.batch_id)
    pair.write("orders", b"two")
    assert await pair.take(MAIN) == [b"two"]
    await pair.logged()
    assert len(pair.server.destination_status(MAIN).log.stretches) == 1  # type: ignore[union-attr]


async def test_a_view_that_starts_while_the_ring_has_changes_of_both_sources_keeps_its_clients(pair: Pair) -> None:
    Source.proof.set()
    await pair.start(MAIN, VIEW)
    await pair.server.subscribe(MAIN, CLIENT)
    await pair.server.subscribe(VIEW, CLIENT)
    pair.write("orders", b"one")
    assert await pair.take(VIEW) == [b"one"]
    pair.write("orders", b"two")
    await pair.server.stop(VIEW)
    await pair.server.switch_source(MAIN)
    pair.parser.stream = Stream(pair.instance.ring, events=200, name="102")
    pair.write("orders", b"three")
    await pair.start(VIEW)
    found = list[bytes]()
    while len(found) < 2:
        batch = await pair.server.get_without_ack(VIEW, CLIENT, timeout=10.0)
        await pair.server.ack(VIEW, CLIENT, batch_id=batch.batch_id)
        found += [it for it in entries(batch.slices) if it not in (b"begin", b"end")]
    assert found == [b"two", b"three"]
    assert await pair.take(MAIN) == [b"one", b"two", b"three"]


async def test_ranges_give_what_the_former_source_has_written_up_to_where_it_was_left(pair: Pair) -> None:
    """What comes then is a matter of the new one, whose places a consumer of ranges does not have."""
    Source.proof.set()
    await pair.start(MAIN)
    await pair.server.subscribe(MAIN, CLIENT)
    begin = pair.server.status(MAIN, CLIENT).acked
    for row in (b"one", b"two"):
        pair.write("orders", row)
    left = str(pair.parser.stream.end)
    await pair.server.switch_source(MAIN)
    pair.parser.stream = Stream(pair.instance.ring, events=200, name="102")
    for rows in (100, 50):  # before and after the new one has written something
        found = (await pair.server.position(MAIN, CLIENT, after=begin, max_rows=rows)).range
        assert (found.rows, found.to, found.reached) == (2, left, False)
        pair.write("orders", b"three")
    end = str(pair.parser.stream.end)
    found = (await pair.server.position(MAIN, CLIENT, after=begin, until=end)).range
    assert (found.rows, found.to, found.reached) == (2, left, False)
    given = [batch async for batch in pair.server.rows(MAIN, CLIENT, begin, left)]
    assert [it for batch in given for it in entries(batch.slices)] == [
        b"begin",
        b"one",
        b"end",
        b"begin",
        b"two",
        b"end",
    ]
    with pytest.raises(SourceChangedError, match="have no order"):
        await pair.server.position(MAIN, CLIENT, after=left)
    new = str(pair.parser.stream.position(200))
    found = (await pair.server.position(MAIN, CLIENT, after=new)).range
    assert (found.rows, found.to, found.reached) == (2, end, True)
    given = [batch async for batch in pair.server.rows(MAIN, CLIENT, new, found.to)]
    assert sum(it.rows for it in given) == 2, "although what the former one has written is not acked yet"


async def test_a_switch_is_listed_with_who_asked_for_it_and_both_servers(pair: Pair) -> None:
    Source.proof.set()
    await pair.take_one()
    token = caller.set(Caller("alice"))
    await pair.server.switch_source(MAIN)
    caller.reset(token)
    (change,) = await pair.server.audited(MAIN, 10)
    assert (change.action, change.who) == ("switch", "alice")
    assert (change.before, change.after) == (f"{FIRST}:1", f"{SECOND}:1")


async def test_a_view_that_starts_after_a_switch_gets_what_only_the_log_has_of_the_former_source(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(source: Source) -> None:
        executed = "0-101-0"
        if source.address == SECOND:
            source.stream, executed = Stream(source.stream.ring, events=200, name="102"), "0-101-2"
        source.on_begin(source.stream.end, MariadbGtidSet.parse(executed))

    pair.keep_log(monkeypatch)
    monkeypatch.setattr(Source, "begin", begin)
    Source.proof.set()
    await pair.start(MAIN, VIEW)
    for name in (MAIN, VIEW):
        await pair.server.subscribe(name, CLIENT)
    pair.write("orders", b"one")
    assert await pair.take(VIEW) == [b"one"]
    pair.write("orders", b"two")
    assert await pair.take(MAIN) == [b"one", b"two"]
    await pair.logged()
    await pair.server.stop(VIEW)
    await pair.server.switch_source(MAIN)
    pair.write("orders", b"three")
    await pair.logged()
    assert len(pair.server.destination_status(MAIN).log.stretches) == 1  # type: ignore[union-attr]
    await pair.start(VIEW)
    found = list[bytes]()
    while len(found) < 2:
        batch = await pair.server.get_without_ack(VIEW, CLIENT, timeout=10.0)
        await pair.server.ack(VIEW, CLIENT, batch_id=batch.batch_id)
        found += [it for it in entries(batch.slices) if it not in (b"begin", b"end")]
    assert found == [b"two", b"three"]


async def test_what_was_given_in_part_and_has_come_no_more_is_not_asked_for(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first source has lost it, too, and was read on."""
    await pair.take_one()
    pair.tear(2, server=55)
    assert (await pair.get(MAIN)).entries == 1
    places = asked(monkeypatch, "0-55-2")
    with pytest.raises(LostTransactionsError, match="0-55-2"):
        await pair.server.switch_source(MAIN)
    pair.write("orders", b"two")
    places.clear()
    await pair.server.switch_source(MAIN)
    assert [it.gtid for it in places] == ["0-101-1"]


async def test_of_two_that_were_given_in_part_the_later_one_is_remembered(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream begins again where a slower client is."""
    await pair.start(MAIN)
    for client in (CLIENT, 7):
        await pair.server.subscribe(MAIN, client)
    with monkeypatch.context() as patch:
        patch.setattr(Source, "prove", unanswered)
        for rows in ([b"one", b"two", b"three"], [b"one"]):
            for row in rows:
                pair.write("orders", row)
            assert await pair.take(MAIN) == (rows if len(rows) > 1 else [])
            pair.tear(len(rows) + 1)
            if len(rows) > 1:
                assert (await pair.get(MAIN)).entries == 1
            with pytest.raises(SourceError):
                await pair.server.switch_source(MAIN)
    asked(monkeypatch, "0-101-4")
    with pytest.raises(LostTransactionsError, match="0-101-4"):
        await pair.server.switch_source(MAIN)


async def test_a_client_whose_changes_are_purged_needs_another_one_beside_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the transaction is there of which it was given a part is not enough."""
    await pair.start(MAIN)
    await pair.server.subscribe(MAIN, CLIENT)
    pair.write("orders", b"one")
    pair.tear(2)
    assert (await pair.get(MAIN)).entries == 4
    monkeypatch.setattr(Source, "waits", True)
    asked(monkeypatch, "0-101-2")
    with pytest.raises(LostTransactionsError):
        await pair.server.switch_source(MAIN)

    def prove(_: Source, place: Cursor, sample: bytes) -> Proof:
        if place.gtid != "0-101-2":
            raise PurgedError("two has purged what comes next")
        return Proof(place)

    monkeypatch.setattr(Source, "prove", prove)
    with pytest.raises(SwitchRefusedError, match="client 1001: two has purged what comes next"):
        await pair.server.switch_source(MAIN)


async def test_a_client_in_a_log_without_gtids_is_asked_for_by_its_place(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.keep_log(monkeypatch)
    monkeypatch.setattr(Source, "begin", lambda self: self.on_begin(self.stream.end, None))
    await pair.take_one()
    pair.write("orders", b"two")
    await pair.logged()
    await pair.server.stop(MAIN)
    monkeypatch.setattr(Source, "waits", True)
    await pair.start(MAIN)

    def prove(*_: object) -> Proof:
        raise SourceChangedError("without GTIDs it cannot be known")

    monkeypatch.setattr(Source, "prove", prove)
    with pytest.raises(SwitchRefusedError, match="client 1001: without GTIDs it cannot be known"):
        await pair.server.switch_source(MAIN)


async def test_a_switch_that_is_refused_leaves_out_no_marker_of_another_configuration(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Source] = []
    monkeypatch.setattr(Source, "announce", lambda self, _: said.append(self))
    pair.keep_log(monkeypatch)
    await pair.take_one()
    await pair.logged()
    await pair.server.stop(MAIN)
    pair.keep_log(monkeypatch, filter_black_field="shop.orders:id")
    await pair.start(MAIN)
    assert said == pair.reading
    monkeypatch.setattr(Source, "prove", unanswered)
    with pytest.raises(SourceError):
        await pair.server.switch_source(MAIN)
    assert said[-1:] == pair.reading


async def test_a_source_that_was_chosen_and_is_not_configured_here_is_shown(pair: Pair) -> None:
    await pair.take_one()
    Source.proof.set()
    await pair.switch()
    source = pair.server.destination_status(MAIN).source
    assert source is not None
    assert (source.address, source.unlisted) == (f"{SECOND}:1", "")
    await pair.server.stop(MAIN)
    pair.main = pair.config(MAIN, standby_address="another:1")
    await pair.start(MAIN)
    source = pair.server.destination_status(MAIN).source
    assert source is not None
    assert (source.address, source.unlisted) == (f"{FIRST}:1", f"{SECOND}:1")


def without_gtids(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(source: Source) -> None:
        source.on_begin(source.stream.end, None)
        source.on_state("running", "")

    monkeypatch.setattr(Source, "begin", begin)
    Source.proof.set()


async def restart_with_one_ahead(pair: Pair, *names: str) -> None:
    """Restart, and read again less than a client has got of each of these destinations; client 7 got nothing."""
    await pair.start(*names)
    await pair.server.subscribe(MAIN, 7)
    for name in names:
        await pair.server.subscribe(name, CLIENT)
    for row in (b"one", b"two"):
        pair.write("orders", row)
    for name in names:
        assert await pair.take(name) == [b"one", b"two"]
    await pair.server.stop(MAIN)
    await pair.server.start(MAIN)
    pair.write("orders", b"one")


async def go_on_at_second(pair: Pair, *rows: bytes) -> None:
    """Let the second source, which is read now, write these."""
    pair.parser.stream = Stream(pair.instance.ring, events=200, name="102")
    for row in rows:
        pair.write("orders", row)


async def test_without_gtids_a_switch_waits_until_the_stream_has_come_to_all_clients(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_gtids(monkeypatch)
    await restart_with_one_ahead(pair, MAIN, VIEW)
    assert pair.server.status(MAIN, CLIENT).state == "ahead"
    with pytest.raises(SwitchRefusedError, match=f"2 clients wait .* {CLIENT} of {MAIN}, at .*{CLIENT} of {VIEW}, at"):
        await pair.server.switch_source(MAIN)
    assert [it.address for it in pair.reading] == [FIRST]
    pair.write("orders", b"two")
    await pair.server.switch_source(MAIN)
    await go_on_at_second(pair, b"three")
    assert [await pair.take(it) for it in (MAIN, VIEW)] == [[b"three"]] * 2


@pytest.mark.parametrize("name", [MAIN, VIEW])
async def test_without_gtids_a_switch_waits_until_an_output_has_applied_what_was_read(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    without_gtids(monkeypatch)
    monkeypatch.setattr(instance_module, "DRAINING", 0.05)
    for it in (MAIN, VIEW):
        await pair.start(it)
    await pair.server.subscribe(name, 7, output="copy")
    pair.write("orders", b"one")
    refused = rf"1 clients wait .* 7 of {name} \(output copy\), at .*those of outputs"
    with pytest.raises(SwitchRefusedError, match=refused):  # it has not said yet what its target has
        await pair.server.switch_source(MAIN)
    drained = False
    pair.server.attend_drain(name, 7, lambda: drained)
    with pytest.raises(SwitchRefusedError, match=refused):
        await pair.server.switch_source(MAIN)
    assert [it.address for it in pair.reading] == [FIRST]
    monkeypatch.setattr(instance_module, "DRAINING", 60)
    switching = pair.switch()
    await asyncio.sleep(0.1)
    assert not switching.done()
    drained = True
    await switching
    assert [it.address for it in pair.reading] == [SECOND]


async def test_with_gtids_or_at_once_a_switch_does_not_wait_for_outputs(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    Source.proof.set()
    await pair.take_one()
    await pair.server.subscribe(MAIN, 7, start="latest", output="copy")
    await pair.server.switch_source(MAIN)
    without_gtids(monkeypatch)
    await pair.server.switch_source(MAIN, accept=True)
    assert [it.address for it in pair.reading] == [FIRST]


@pytest.mark.parametrize("by_itself", [False, True])
async def test_a_client_that_the_stream_has_not_come_to_is_told_of_a_switch_that_could_not_wait(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, by_itself: bool
) -> None:
    without_gtids(monkeypatch)
    await restart_with_one_ahead(pair, MAIN, VIEW)
    if by_itself:
        await pair.instance.switch_of("")._begin(f"{SECOND}:1", accept=False, by_itself=True)
    else:
        await pair.server.switch_source(MAIN, accept=True)
    await go_on_at_second(pair, b"two", b"three")
    for name in (MAIN, VIEW):
        (gap,) = pair.server.destination_status(name).gaps[CLIENT]
        assert (gap.reason, gap.before) == ("switch", pair.where(name))
        marker = await pair.server.get_without_ack(name, CLIENT, timeout=5)
        assert (marker.entries, marker.rows) == (1, 0)
        await pair.server.ack(name, CLIENT, batch_id=marker.batch_id)
        assert await pair.take(name) == [b"two", b"three"]


async def test_a_client_that_waits_for_a_reader_of_the_former_source_is_told_what_it_does_not_get(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_gtids(monkeypatch)
    monkeypatch.setattr(Pair, "readers", 1)
    pair.main = pair.config(MAIN, memory_buffer_size=16)
    await pair.start(MAIN)
    for client in (CLIENT, 7, 8):
        await pair.server.subscribe(MAIN, client)
    cursors = pair.instance.cursors
    cursors.clients.subscribers[7].detach(cursors.track, GoneError("it is slow"))
    await pair.server.unsubscribe(MAIN, 8)
    for _ in range(3):  # more than stays in the ring
        pair.write("orders", b"one")
        assert await pair.take(MAIN) == [b"one"]
    await pair.server.subscribe(MAIN, 8)
    cursors.clients.subscribers[8].detach(cursors.track, GoneError("it is slow, and its place is still there"))
    with pytest.raises(SwitchRefusedError, match=f"1 clients wait .* 7 of {MAIN}, at "):
        await pair.server.switch_source(MAIN)
    floor = cursors.track.floor
    await pair.server.switch_source(MAIN, accept=True)
    (gap,) = pair.server.destination_status(MAIN).gaps[7]
    assert (gap.before, gap.after) == (pair.server.status(MAIN, 7).position, str(floor))
    await go_on_at_second(pair, b"two")
    assert await pair.take(MAIN) == [b"two"]
    assert [pair.server.status(MAIN, it).state for it in (7, 8)] == ["attached"] * 2


async def test_what_a_client_has_got_before_a_restart_has_to_be_there_though_it_is_not_read_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    Source.proof.set()
    monkeypatch.setattr(Pair, "readers", 1)
    pair.main = pair.config(MAIN)
    await restart_with_one_ahead(pair, MAIN)
    places = asked(monkeypatch, "0-101-2")
    with pytest.raises(LostTransactionsError, match="0-101-2"):
        await pair.server.switch_source(MAIN)
    assert [it.gtid for it in places] == ["0-101-1", "0-101-2"]
