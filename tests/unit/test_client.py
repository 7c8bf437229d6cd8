"""Both clients against the HTTP server; behind it stands, in place of a database, a source that is told what to say."""

import asyncio
import contextlib
import re
import ssl
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Self, TypeVar

import pyarrow as pa
import pytest
import urllib3

from sluice.client_sdk import AsyncClient, Batch, Client
from sluice.client_sdk import calls as sdk_calls
from sluice.client_sdk.batch import Column as TableColumn
from sluice.client_sdk.calls import Attempts, Call, Endpoint, Interrupted, Limits, Reply, error_of
from sluice.instance.config import Address, InstanceConfig
from sluice.instance.parser import columns
from sluice.instance.parser.status import ParserStatus
from sluice.instance.sink.filters import TableFilter
from sluice.protocol import errors
from sluice.protocol.entry_pb2 import INSERT, QUERY, ROWDATA, Column, Entry, Header, RowChange
from sluice.protocol.packet_pb2 import Messages
from sluice.protocol.position import Position
from sluice.server.config import ServerConfig
from sluice.server.embedded import EmbeddedServer
from sluice.server.http.auth import Credentials, Grant
from sluice.server.http.transport import Server
from sluice.server.process import serve
from sluice.store.cursor import Cursor
from sluice.store.ring import Flag, Kind, Ring, Staging
from sluice.store.segment import SegmentWriter
from tests.faults.harness import eventually
from tests.proxy import Proxy

T = TypeVar("T")

CREATED = 1_700_000_000
STEP = 100  # bytes of the binlog that a transaction takes
ENDPOINT = Endpoint("http://localhost", "example", 1001, None, insecure=False)


def entry(number: int) -> bytes:
    """A transaction of one insert: a table with the column id."""
    change = RowChange(eventType=INSERT)
    column = Column(name="id", mysqlType="int", sqlType=4, value=str(number), updated=True, isKey=True)
    change.rowDatas.add().afterColumns.append(column)
    header = Header(logfileName="bin.000001", schemaName="shop", tableName="goods", eventType=INSERT)
    return Entry(header=header, entryType=ROWDATA, storeValue=change.SerializeToString()).SerializeToString()


def position(number: int) -> str:
    """The place before the transaction of that number."""
    return f"7/bin.000001@{CREATED}:{4 + STEP * number}:0"


class Source:
    """A binlog of numbered transactions, and the parser that reads it into the ring."""

    failure = None
    status = ParserStatus(behind=0.0)

    def __init__(self) -> None:
        self.count = 0
        self._grown = threading.Condition()
        self._stopped = threading.Event()

    def write(self, count: int) -> None:
        with self._grown:
            self.count += count
            self._grown.notify_all()

    def __call__(
        self,
        config: InstanceConfig,
        ring: Ring,
        *,
        start: Cursor | None,
        later: Sequence[Cursor] = (),
        on_begin: Callable[..., None],
        on_state: Callable[[str, str], None],
    ) -> "Source":
        self._ring, self._on_begin, self._on_state = ring, on_begin, on_state
        self._first = 0 if start is None or start.position is None else (start.position.begin - 4) // STEP
        return self

    def refilter(self, table_filter: TableFilter) -> None:
        """The test says what comes."""

    def columns(self, schema: str, table: str) -> list[columns.Column]:
        return [columns.Column("id", f"int of {schema}.{table}", is_key=True)]

    def tables(self) -> list[tuple[str, str]]:
        return [("shop", "goods"), ("shop", "orders")]

    def end(self) -> Position:
        return Position.parse(position(self.count))

    def start(self) -> None:
        self._stopped.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        with self._grown:
            self._stopped.set()
            self._grown.notify_all()
        self._ring.wake()

    def join(self, timeout: float | None = None) -> None:
        self._thread.join(timeout)

    def _run(self) -> None:
        ring, staging, writer = self._ring, Staging(), SegmentWriter(self._ring.pool)
        source, file = ring.sources.intern("7"), ring.files.intern(("bin.000001", CREATED))
        self._on_begin(Position.parse(position(self._first)), None)
        self._on_state("running", "")
        done = self._first
        while True:
            with self._grown:
                while self.count <= done and not self._stopped.is_set():
                    self._grown.wait()
                count = self.count
            if self._stopped.is_set():
                break
            for number in range(done, count):
                writer.write_framed(entry(number))
                begin = 4 + STEP * number
                place = {"file": file, "begin": begin, "next_file": file, "next_begin": begin + STEP}
                staging.add_entry(
                    writer, Kind.ROW_DATA, event_type=INSERT, flags=Flag.BOUNDARY, rows=1, source=source, **place
                )
            done = count
            ring.put(staging, self._stopped)
        writer.close()


class ServerThread:
    """The server in a thread; it can be stopped and started again, on the same port."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.source = Source()
        self._folder = folder
        self._options = options
        self.port = 0
        self.url = ""

    def _load(self, destination: str) -> InstanceConfig:
        return InstanceConfig(
            destination=destination,
            master_address=Address("127.0.0.1"),
            db_username="nobody",
            file_data_dir=self._folder,
            file_flush_period=50,
        )

    def _make_server(self, *arguments: Any) -> Server:
        self._server = Server(*arguments)
        return self._server

    async def _serve(self) -> None:
        embedded = EmbeddedServer(self._load, self.source)
        await embedded.start("example")
        config = ServerConfig(
            http_port=self.port,
            http_credentials=self._folder / "credentials.json",
            without_netty=True,
            **self._options,
        )
        with pytest.MonkeyPatch.context() as patch:  # signals, which stop a server, reach the main thread only
            patch.setattr("sluice.server.http.serve.Server", self._make_server)
            await serve(embedded, config, self._listens)

    def _listens(self, url: str) -> None:
        self.url = url
        self.port = int(url.rpartition(":")[2])
        self._listening.set()

    def start(self) -> None:
        self._listening = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._listening.wait(10)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerThread]:
    thread = ServerThread(tmp_path)
    thread.start()
    yield thread
    thread.stop()


class Waiting:
    """An AsyncClient with the methods of a Client, so that one test serves both: its loop runs in a thread."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._client = AsyncClient(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*arguments: Any, **options: Any) -> Any:
            result = method(*arguments, **options)
            return self._iterate(result) if isinstance(result, AsyncIterator) else self._wait(result)

        return call

    def _wait(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _iterate(self, batches: Any) -> Iterator[Batch]:
        async def following() -> Batch:
            return await anext(batches)

        try:
            while True:
                yield self._wait(following())
        finally:
            self._wait(batches.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._wait(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


MakeClient = Callable[..., Any]


@pytest.fixture(params=[Client, Waiting], ids=["sync", "async"])
def make_client(request: pytest.FixtureRequest) -> Iterator[MakeClient]:
    with contextlib.ExitStack() as stack:

        def make(url: str, **options: Any) -> Any:
            return stack.enter_context(request.param(url, **options))

        yield make


@pytest.fixture
def client(make_client: MakeClient, server: ServerThread) -> Any:
    client = make_client(server.url)
    client.subscribe()
    return client


def numbers(batch: Batch) -> list[int]:
    return [row.after["id"] for row in batch if row.after is not None]


def test_a_batch_has_rows_positions_and_an_id(client: Any, server: ServerThread) -> None:
    server.source.write(3)
    batch = client.get_without_ack(timeout=5, limits=Limits(max_entries=3))
    while len(numbers(batch)) < 3:
        client.rollback()
        batch = client.get_without_ack(timeout=5, limits=Limits(max_entries=3))
    assert batch
    assert numbers(batch) == [0, 1, 2]
    assert (batch.from_, batch.to) == (position(0), position(3))
    assert [change.table for change in batch.changes()] == ["goods"] * 3
    assert [item.header.tableName for item in batch.entries()] == ["goods"] * 3
    client.ack(batch)
    assert batch.acked
    assert client.status()["marks"] == []


def test_a_range_is_marked_split_read_and_acked(client: Any, server: ServerThread) -> None:
    server.source.write(10)
    whole = client.position(position(0), until=position(10), timeout=5, max_rows=4)
    while whole.rows < 4:  # the first transactions may have come alone
        client.rollback()
        whole = client.position(position(0), until=position(10), timeout=5, max_rows=4)
    assert (whole.from_, whole.to, whole.partial, whole.reached) == (position(0), position(4), False, False)
    assert whole.latest == position(10)
    assert client.position(position(0), until=position(10), max_rows=4) == whole
    parts = client.splits(whole.from_, whole.to, 2)
    assert [(part.from_, part.to, part.rows) for part in parts] == [
        (position(0), position(2), 2),
        (position(2), position(4), 2),
    ]
    assert [numbers(client.rows(part.from_, part.to)) for part in parts] == [[0, 1], [2, 3]]
    stands = client.rows(parts[1].from_, parts[1].to).to_arrow().column("_pos").to_pylist()
    assert stands[0] == {"file": 1, "begin": int(parts[1].from_.split(":")[-2]), "n": 0, "row": 0}
    client.ack(whole.to)
    assert client.status()["acked"] == position(4)
    rest = client.position(whole.to, until=position(10), timeout=5, max_rows=100)
    assert (rest.to, rest.rows, rest.reached) == (position(10), 6, True)


def test_a_range_is_the_same_after_a_restart_of_the_server(client: Any, server: ServerThread) -> None:
    server.source.write(5)
    whole = client.position(position(0), timeout=5, max_rows=1)
    data = client.rows(whole.from_, whole.to).data
    server.stop()
    server.start()
    assert client.rows(whole.from_, whole.to).data == data
    client.ack(whole.to)
    assert client.status()["acked"] == whole.to == position(1)


def test_a_batch_becomes_an_arrow_record_batch(client: Any, server: ServerThread) -> None:
    server.source.write(2)
    batch = next(client.batches(limits=Limits(max_entries=2)))
    rows = batch.to_arrow("shop.goods").to_pylist()
    assert [(row["_op"], row["id"]) for row in rows] == [("INSERT", number) for number in range(len(rows))]
    begin = int(batch.from_.split(":")[-2])
    assert rows[0]["_pos"] == {"file": 1, "begin": begin, "n": 0, "row": 0}
    assert [row["_key"] for row in batch.to_arrow().to_pylist()] == [[str(row["id"])] for row in rows]
    assert [row["after"] for row in batch.to_arrow().to_pylist()] == [[("id", str(row["id"]))] for row in rows]
    assert batch.to_arrow("shop.goods", [("id", "bigint unsigned")]).schema.field("id").type == pa.decimal128(20)
    assert batch.to_arrow("shop.other").num_rows == 0


def test_an_empty_batch_is_false_and_needs_no_ack(client: Any) -> None:
    batch = client.get_without_ack()
    assert not batch
    assert batch.rows() == []
    assert batch.to_arrow().num_rows == 0
    client.ack(batch)
    client.ack(batch.batch_id)


def test_a_marker_is_seen(caplog: pytest.LogCaptureFixture) -> None:
    header = Header(logfileName="bin.000001", logfileOffset=4, eventType=QUERY)
    header.props.add(key="sluice.quarantine", value="why")
    change = RowChange(eventType=QUERY, sql="-- sluice.quarantine: why")
    marker = Entry(header=header, entryType=ROWDATA, storeValue=change.SerializeToString())
    data = Messages(messages=[entry(1), marker.SerializeToString(), entry(2)]).SerializeToString()
    batch = Batch(7, "", "", data)
    assert numbers(batch) == [1, 2]
    assert [it.sql for it in batch.markers()] == ["-- sluice.quarantine: why"]
    assert "rows are missing at bin.000001:4" in caplog.text
    caplog.clear()
    assert batch.to_arrow().num_rows == 2
    assert "rows are missing at bin.000001:4" in caplog.text
    assert Batch(8, "", "", Messages(messages=[entry(1)]).SerializeToString()).markers() == []


def test_get_acks_at_once(client: Any, server: ServerThread) -> None:
    server.source.write(1)
    assert numbers(client.get(timeout=5)) == [0]
    client.rollback()
    assert not client.get()


def test_rollback_gives_batches_again(client: Any, server: ServerThread) -> None:
    server.source.write(2)
    one = Limits(max_entries=1)
    first, second = client.get_without_ack(5, one), client.get_without_ack(5, one)
    client.ack(first.batch_id)
    client.rollback()
    again = client.get_without_ack(5, one)
    assert numbers(again) == numbers(second) == [1]
    assert again.batch_id > second.batch_id
    with pytest.raises(errors.UnknownBatchError):
        client.ack(second)


def test_ack_up_to_a_position(client: Any, server: ServerThread) -> None:
    server.source.write(3)
    got: list[Batch] = []
    while sum(len(batch.rows()) for batch in got) < 3:
        got.append(client.get_without_ack(5, Limits(max_entries=1)))
    client.ack(Position.parse(position(2)), durable=True)
    assert client.status()["marks"] == [got[2].batch_id]
    client.ack(position(2))
    client.ack(got[2])


def test_acks_are_in_order(client: Any, server: ServerThread) -> None:
    server.source.write(2)
    one = Limits(max_entries=1)
    _, second = client.get_without_ack(5, one), client.get_without_ack(5, one)
    with pytest.raises(errors.AckOutOfOrderError):
        client.ack(second)


def test_a_start_by_time_or_position_is_passed_on(client: Any) -> None:
    client.unsubscribe()
    with pytest.raises(errors.NotSubscribedError):
        client.get()
    assert client.subscribe(start=datetime(2000, 1, 1, tzinfo=UTC))["clientId"] == 1001
    client.unsubscribe()
    with pytest.raises(errors.SourceChangedError):
        client.subscribe(start=Position.parse(position(0).replace("7/", "8/")))


def test_errors_have_the_class_of_their_type(make_client: MakeClient, server: ServerThread) -> None:
    with pytest.raises(errors.UnknownDestinationError):
        make_client(server.url, destination="öther ?x").status()
    with pytest.raises(errors.BadParameterError):
        make_client(server.url, client_id=1 << 20).status()


def test_a_newer_session_fences_the_older(make_client: MakeClient, client: Any, server: ServerThread) -> None:
    client.open_session()
    other = make_client(server.url)
    other.open_session()
    with pytest.raises(errors.StaleSessionError):
        client.get()
    other.get()


def test_the_destination_its_end_its_tables_and_their_columns_are_told(client: Any, server: ServerThread) -> None:
    assert client.destination()["capacity"] > 0
    server.source.write(3)
    assert client.latest() == position(3)
    assert client.tables() == ["shop.goods", "shop.orders"]
    assert client.tables(r"shop\.g.*") == ["shop.goods"]
    assert client.columns("shop.ö/d") == [TableColumn("id", "int of shop.ö/d", is_key=True)]


@pytest.mark.parametrize("method", ["batches", "stream"])
class TestIterators:
    def test_every_change_comes_once_and_is_acked(self, client: Any, server: ServerThread, method: str) -> None:
        server.source.write(50)
        received: list[int] = []
        with closing(getattr(client, method)(limits=Limits(max_entries=7))) as batches:
            for batch in batches:
                received += numbers(batch)
                if len(received) == 50:
                    server.source.write(10)
                if len(received) == 60:
                    client.ack(batch)
                    break
        assert received == list(range(60))
        status = client.status()
        assert (status["acked"], status["marks"]) == (position(60), [])

    def test_what_is_left_in_the_middle_comes_again(self, client: Any, server: ServerThread, method: str) -> None:
        server.source.write(20)
        with closing(getattr(client, method)(limits=Limits(max_entries=1))) as batches:
            assert [numbers(next(batches)) for _ in range(3)] == [[0], [1], [2]]
        assert numbers(client.get_without_ack(5, Limits(max_entries=1))) == [2]

    def test_without_auto_ack_the_caller_acks(self, client: Any, server: ServerThread, method: str) -> None:
        server.source.write(3)
        with closing(getattr(client, method)(auto_ack=False, limits=Limits(max_entries=1))) as batches:
            for batch in [next(batches) for _ in range(3)]:
                client.ack(batch)
        assert client.status()["acked"] == position(3)

    def test_over_a_connection_that_is_cut_nothing_is_missing_and_order_is_kept(
        self, make_client: MakeClient, client: Any, server: ServerThread, method: str
    ) -> None:
        server.source.write(2000)
        received: list[int] = []
        with Proxy(("127.0.0.1", server.port), seed=5) as proxy:
            proxy.cut_randomly(20_000)
            cut = make_client(f"http://127.0.0.1:{proxy.port}")
            with closing(getattr(cut, method)(limits=Limits(max_entries=20))) as batches:
                for batch in batches:
                    received += numbers(batch)
                    if received[-1] == 1999:
                        proxy.heal()
                        break
            assert proxy.cuts > 0
        assert list(dict.fromkeys(received)) == list(range(2000))
        assert all(after <= before + 1 for before, after in pairwise(received))

    def test_a_restart_of_the_server_is_survived(self, client: Any, server: ServerThread, method: str) -> None:
        server.source.write(30)
        received: list[int] = []
        with closing(getattr(client, method)(limits=Limits(max_entries=1))) as batches:
            for batch in batches:
                received += numbers(batch)
                if received == list(range(10)):
                    server.stop()
                    server.start()
                if received[-1] == 29:
                    break
        assert list(dict.fromkeys(received)) == list(range(30))

    def test_another_consumer_takes_over(
        self, make_client: MakeClient, client: Any, server: ServerThread, method: str
    ) -> None:
        server.source.write(5)
        one = Limits(max_entries=1)
        with (
            closing(getattr(client, method)(limits=one)) as first,
            closing(getattr(make_client(server.url), method)(limits=one)) as other,
        ):
            assert numbers(next(first)) == [0]
            assert numbers(next(other)) == [0]
            with pytest.raises(errors.StaleSessionError):
                list(first)
            assert numbers(next(other)) == [1]

    def test_an_unreachable_server_is_given_up_after_a_while(
        self, make_client: MakeClient, server: ServerThread, method: str
    ) -> None:
        client = make_client("http://127.0.0.1:1", retry=0.3)
        with pytest.raises(errors.ConnectionLostError, match=r"127\.0\.0\.1"):
            next(getattr(client, method)())


class TestAcksOfAStream:
    def test_batches_that_follow_at_once_share_an_ack(self, client: Any, server: ServerThread) -> None:
        server.source.write(200)
        with closing(client.stream(window=20, limits=Limits(max_entries=1))) as batches:
            assert [numbers(next(batches)) for _ in range(200)] == [[number] for number in range(200)]
        assert client.status()["acked"] == position(199)
        assert calls_of(server)["ack"] < 100

    def test_a_pause_acks_what_is_done(self, client: Any, server: ServerThread) -> None:
        server.source.write(3)
        with closing(client.stream(window=20, limits=Limits(max_entries=1))) as batches, ThreadPoolExecutor(1) as pool:
            for _ in range(3):
                next(batches)
            waiting = pool.submit(next, batches)
            eventually(lambda: client.status()["acked"] == position(3), client.status)
            server.source.write(1)
            assert numbers(waiting.result()) == [3]

    def test_what_is_done_is_not_rolled_back(self, client: Any, server: ServerThread) -> None:
        server.source.write(9)
        with closing(client.stream(window=20, limits=Limits(max_entries=1))) as batches:
            received = [numbers(next(batches)) for _ in range(5)]
            client.rollback()
            received += [numbers(next(batches)) for _ in range(5)]
        assert received == [[0], [1], [2], [3], [4], [4], [5], [6], [7], [8]]


def test_an_ack_whose_reply_is_lost_is_done_once(make_client: MakeClient, client: Any, server: ServerThread) -> None:
    server.source.write(1)
    with Proxy(("127.0.0.1", server.port)) as proxy:
        shaky = make_client(f"http://127.0.0.1:{proxy.port}")
        batch = shaky.get_without_ack(5)
        proxy.cut_after(20)  # within the reply's head
        timer = threading.Timer(0.5, proxy.heal)
        timer.start()
        shaky.ack(batch)
        timer.join()
    assert client.status()["acked"] == position(1)


def test_a_get_whose_reply_is_lost_loses_nothing(make_client: MakeClient, client: Any, server: ServerThread) -> None:
    server.source.write(1)
    with Proxy(("127.0.0.1", server.port)) as proxy:
        proxy.cut_after(20)
        timer = threading.Timer(0.5, proxy.heal)
        timer.start()
        batch = make_client(f"http://127.0.0.1:{proxy.port}").get_without_ack(5)
        timer.join()
    assert numbers(batch) == [0]
    assert client.status()["marks"] == [batch.batch_id]


def test_a_get_that_is_given_up_keeps_nothing_from_the_next(
    make_client: MakeClient, client: Any, server: ServerThread
) -> None:
    server.source.write(1)
    with Proxy(("127.0.0.1", server.port)) as proxy:
        shaky = make_client(f"http://127.0.0.1:{proxy.port}", retry=0)
        proxy.cut_after(20)
        with pytest.raises(errors.ConnectionLostError):
            shaky.get_without_ack(5)
        proxy.heal()
        batch = shaky.get_without_ack(5)
    assert numbers(batch) == [0]
    assert client.status()["marks"] == [batch.batch_id]


def test_get_goes_on_after_an_ack_that_did_not_arrive(
    make_client: MakeClient, client: Any, server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    del client  # it has subscribed
    server.source.write(2)
    ack = sdk_calls.ack
    with Proxy(("127.0.0.1", server.port)) as proxy:

        def stalled(*arguments: Any, **options: Any) -> Call[None]:
            proxy.stall()
            return ack(*arguments, **options)

        shaky = make_client(f"http://127.0.0.1:{proxy.port}", retry=0, timeout=0.5)
        monkeypatch.setattr(sdk_calls, "ack", stalled)
        with pytest.raises(errors.ConnectionLostError):
            shaky.get(5, Limits(max_entries=1))
        monkeypatch.undo()
        proxy.cut()
        proxy.heal()
        assert [numbers(shaky.get(5, Limits(max_entries=1))) for _ in range(2)] == [[0], [1]]


def test_a_get_that_is_cancelled_when_its_reply_is_there_loses_nothing(client: Any, server: ServerThread) -> None:
    server.source.write(1)
    replied = asyncio.Event()

    class Slow(AsyncClient):
        async def _exchange(self, server: str, call: Call[T]) -> T:
            result = await super()._exchange(server, call)
            if isinstance(result, Batch) and not replied.is_set():
                replied.set()
                await asyncio.sleep(60)
            return result

    async def run() -> Batch:
        async with Slow(server.url) as slow:
            lost = asyncio.create_task(slow.get_without_ack(5))
            await replied.wait()
            lost.cancel()
            batch = await slow.get_without_ack(5)
            await slow.ack(batch)
            return batch

    assert numbers(asyncio.run(run())) == [0]
    assert client.status()["acked"] == position(1)


class TestAckOfAGet:
    """``get_without_ack(ack=...)``."""

    ONE = Limits(max_entries=1)

    def test_it_is_one_call(self, client: Any, server: ServerThread) -> None:
        server.source.write(3)
        first = client.get_without_ack(5, self.ONE)
        second = client.get_without_ack(5, self.ONE, ack=first, durable=True)
        assert (first.acked, second.acked) == (True, False)
        third = client.get_without_ack(5, self.ONE, ack=second)
        assert [numbers(it) for it in (first, second, third)] == [[0], [1], [2]]
        status = client.status()
        assert (status["acked"], status["marks"]) == (position(2), [third.batch_id])
        assert calls_of(server) == {"getWithoutAck": 3}

    def test_an_empty_batch_or_none_needs_no_ack(self, client: Any, server: ServerThread) -> None:
        batch = None
        for _ in range(2):
            batch = client.get_without_ack(ack=batch)
            assert not batch
        server.source.write(1)
        assert numbers(client.get_without_ack(5, ack=batch)) == [0]

    def test_what_is_refused_raises_and_no_batch_is_lost(self, client: Any, server: ServerThread) -> None:
        server.source.write(3)
        first, second = client.get_without_ack(5, self.ONE), client.get_without_ack(5, self.ONE)
        with pytest.raises(errors.AckOutOfOrderError):
            client.get_without_ack(5, self.ONE, ack=second)
        client.rollback()
        with pytest.raises(errors.UnknownBatchError):
            client.get_without_ack(5, self.ONE, ack=first)
        assert (first.acked, second.acked) == (False, False)
        assert numbers(client.get_without_ack(5, self.ONE)) == [0]

    def test_a_newer_session_fences_it(self, make_client: MakeClient, client: Any, server: ServerThread) -> None:
        server.source.write(2)
        client.open_session()
        first = client.get_without_ack(5, self.ONE)
        newer = make_client(server.url)
        newer.open_session()
        with pytest.raises(errors.StaleSessionError):
            client.get_without_ack(5, self.ONE, ack=first)
        assert newer.status()["marks"] == [first.batch_id]

    @pytest.mark.parametrize("with_session", [False, True])
    def test_when_the_reply_is_lost_it_acks_once_and_loses_nothing(
        self, make_client: MakeClient, client: Any, server: ServerThread, *, with_session: bool
    ) -> None:
        server.source.write(3)
        with Proxy(("127.0.0.1", server.port)) as proxy:
            shaky = make_client(f"http://127.0.0.1:{proxy.port}")
            if with_session:
                shaky.open_session()
            first = shaky.get_without_ack(5, self.ONE)
            proxy.delay = 0.5
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(shaky.get_without_ack, 5, self.ONE, ack=first)
                eventually(lambda: client.status()["marks"] not in ([], [first.batch_id]), client.status)
                proxy.delay = 0.0
                proxy.cut()
                second = waiting.result()
            assert first.acked
            assert [numbers(it) for it in (first, second)] == [[0], [1]]
            status = client.status()
            assert (status["acked"], status["marks"]) == (position(1), [second.batch_id])
            assert numbers(shaky.get_without_ack(5, self.ONE, ack=second)) == [2]

    def test_over_a_restart_of_the_server_it_acks_by_position(self, client: Any, server: ServerThread) -> None:
        server.source.write(2)
        first = client.get_without_ack(5, self.ONE)
        server.stop()
        timer = threading.Timer(0.3, server.start)
        timer.start()
        second = client.get_without_ack(5, self.ONE, ack=first)
        timer.join()
        assert first.acked
        assert numbers(second) == [1]
        assert client.status()["acked"] == position(1)


def calls_of(server: ServerThread) -> dict[str, int]:
    """How many gets and acks the server has answered."""
    metrics = urllib3.request("GET", f"{server.url}/metrics").data.decode()
    counted = re.findall(
        r'^sluice_http_request_duration_seconds_count\{.*/(ack|getWithoutAck)".*\} ([0-9.]+)$', metrics, re.MULTILINE
    )
    return {call: int(float(count)) for call, count in counted}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("call", ["get", "batches", "stream"])
def test_closing_a_client_ends_what_waits_in_another_thread(
    call: str, tls: bool, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    thread = ServerThread(tmp_path, **({"http_tls_cert": cert, "http_tls_key": key} if tls else {}))
    thread.start()
    client = Client(thread.url, ca=cert if tls else None, retry=1)
    pool = ThreadPoolExecutor(1)

    def wait() -> None:
        if call == "get":
            assert client.get(5)
            client.get(60)
        else:
            for _ in getattr(client, call)():
                pass

    try:
        client.subscribe()
        thread.source.write(1)
        waiting = pool.submit(wait)
        eventually(lambda: client.status()["position"] == position(1))
        time.sleep(0.2)  # until it waits for the next one; if not, that is refused
        client.close()
        with pytest.raises(errors.ConnectionLostError, match="the client is closed"):
            waiting.result(10)
        with pytest.raises(errors.ConnectionLostError, match="the client is closed"):
            client.get()
    finally:
        thread.stop()


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")  # urllib3's own word on verify=False
def test_tokens_and_tls(make_client: MakeClient, tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    token = Credentials(tmp_path / "credentials.json").issue("test", Grant(), timedelta(hours=1)).text
    thread = ServerThread(tmp_path, http_tls_cert=cert, http_tls_key=key)
    thread.start()
    try:
        client = make_client(thread.url, token=token, ca=cert)
        client.subscribe()
        thread.source.write(1)
        assert numbers(client.get(5)) == [0]
        assert make_client(thread.url, token=token, verify=False).status()["clientId"] == 1001
        with pytest.raises(errors.UnauthorizedError):
            make_client(thread.url, ca=cert).status()
        with pytest.raises(errors.ConnectionLostError, match=r"(?i)certificate"):
            make_client(thread.url, token=token).status()
    finally:
        thread.stop()


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("127.0.0.1:11180", {}),
        ("ftp://127.0.0.1", {}),
        ("http://user:password@127.0.0.1", {}),
        ("http://127.0.0.1/?q", {}),
        ("http://[::1", {}),
        ("http://127.0.0.1:many", {}),
        ("http://127.0.0.1:1,", {}),
        ("http://127.0.0.1:1,http://db.example.org", {"token": "t"}),
        ([], {}),
        ("http://db.example.org", {"token": "t"}),
        ("http://192.0.2.1:11180", {"token": "t"}),
    ],
)
def test_an_unusable_or_unsafe_url_is_refused(url: str | list[str], options: dict[str, Any]) -> None:
    with pytest.raises(errors.BadParameterError):
        Client(url, **options)


@pytest.mark.parametrize("url", ["http://localhost:1", "http://[::1]:1", "https://db.example.org"])
def test_a_token_goes_where_nobody_else_reads_it(url: str) -> None:
    Client(url, token="t").close()


@pytest.mark.parametrize("status", [200, 409, 503])
def test_an_answer_that_breaks_off_within_its_headers_is_no_answer(status: int) -> None:
    call = sdk_calls.get_without_ack(0, Limits(), "text")
    with pytest.raises(Interrupted) as caught:
        ENDPOINT.read(ENDPOINT.server, call, Reply(status, {"con": ""}, b""))
    assert caught.value.may_be_done


class TestErrors:
    @pytest.mark.parametrize("kind", [errors.GoneError, errors.PurgedError, errors.FencedError, errors.FilterError])
    def test_a_problem_is_an_error_with_detail_and_advice(self, kind: type[errors.SluiceError]) -> None:
        body = b'{"type": "%s", "title": "T", "detail": "What.", "advice": "Do."}' % kind.type.encode()
        error = error_of(Reply(400, {}, body))
        assert type(error) is kind
        assert str(error) == "What. Do."

    def test_attributes_of_errors_are_kept(self) -> None:
        error = error_of(Reply(429, {"retry-after": "7"}, b'{"type": "too-many-attempts", "title": "T"}'))
        assert isinstance(error, errors.TooManyAttemptsError)
        assert error.retry_after == 7
        error = error_of(Reply(422, {}, b'{"type": "bad-parameter", "detail": "D", "parameter": "filter"}'))
        assert isinstance(error, errors.BadParameterError)
        assert error.parameter == "filter"

    @pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b"\xff"])
    def test_anything_else_is_a_general_error(self, body: bytes) -> None:
        error = error_of(Reply(500, {}, body))
        assert type(error) is errors.SluiceError
        assert "500" in str(error)


class TestAttempts:
    LOST = Interrupted(errors.ConnectionLostError("cut"), may_be_done=True)
    REFUSED = Interrupted(errors.ConnectionLostError("refused"), may_be_done=False)

    def test_delays_grow_to_a_limit(self) -> None:
        attempts = Attempts(ENDPOINT, sdk_calls.status(), 1000)
        delays = [attempts.delay(self.REFUSED) for _ in range(10)]
        assert delays[0] <= 0.1
        assert 2.5 <= delays[-1] <= 5

    def test_patience_ends(self) -> None:
        with pytest.raises(errors.ConnectionLostError):
            Attempts(ENDPOINT, sdk_calls.status(), 0).delay(self.REFUSED)

    def test_a_call_that_was_never_sent_is_repeated_as_it_is(self) -> None:
        call = sdk_calls.get_without_ack(0, Limits(), "text")
        attempts = Attempts(ENDPOINT, call, 60)
        attempts.delay(self.REFUSED)
        assert (attempts.before, attempts.call) == ([], call)

    def test_a_get_rolls_back_before_it_is_repeated(self) -> None:
        attempts = Attempts(ENDPOINT, sdk_calls.get_without_ack(0, Limits(), "text"), 60)
        attempts.delay(self.LOST)
        assert [before.rolls_back for before in attempts.before] == [True]

    def test_an_ack_by_id_alone_is_not_repeated(self) -> None:
        attempts = Attempts(ENDPOINT, sdk_calls.ack(7, durable=False), 60)
        with pytest.raises(errors.ConnectionLostError):
            attempts.delay(self.LOST)

    def test_an_ack_of_a_batch_is_repeated_by_position(self) -> None:
        attempts = Attempts(ENDPOINT, sdk_calls.ack(Batch(7, "a", "b", b""), durable=True), 60)
        attempts.delay(self.LOST)
        assert (attempts.call.body, attempts.call.query) == ({"position": "b"}, {"durable": "true"})


def test_tls_is_verified_by_default() -> None:
    from sluice.client_sdk.client import tls_context

    context = tls_context(None, verify=True)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
