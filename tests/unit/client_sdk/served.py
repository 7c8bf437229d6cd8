"""An HTTP server in a thread; its source is not a database, but is told what to say."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import urllib3

from sluice.client_sdk import AsyncClient, Batch
from sluice.instance import columns
from sluice.instance.conditions.where import Conditions
from sluice.instance.config import InstanceConfig
from sluice.instance.sink.filters import TableFilter
from sluice.instance.source import Expiry, Proof, TableReader
from sluice.instance.status import ParserStatus
from sluice.protocol.canal.entry_pb2 import INSERT, ROWDATA, Column, Entry, Header, RowChange
from sluice.protocol.errors import ConfigError, SluiceError
from sluice.protocol.position import Position
from sluice.server.embedded import EmbeddedServer
from sluice.server.front import FrontConfig
from sluice.server.http.config import HttpConfig
from sluice.server.logins import LoginLimiter
from sluice.server.metrics import Metrics
from sluice.server.process import serve
from sluice.server.resources import Resources
from sluice.server.waiting import Stopping
from sluice.store.cursor import Cursor
from sluice.store.ring import Flag, Kind, Ring, Staging
from sluice.store.segment import SegmentWriter
from tests.waiting import SECONDS

CREATED = 1_700_000_000

STEP = 100  # bytes of the binlog that a transaction takes


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
    refused: Mapping[Cursor, SluiceError] = {}
    status = ParserStatus(behind=0.0)

    def __init__(self) -> None:
        self.count = 0
        self.entry: Callable[[int], bytes] = entry
        """Makes the entry of a number."""
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
        later: Sequence[Cursor | None] = (),
        on_begin: Callable[..., None],
        on_state: Callable[[str, str], None],
        epoch: int = 0,
        stop: Position | None = None,
    ) -> "Source":
        self._ring, self._on_begin, self._on_state = ring, on_begin, on_state
        self._first = 0 if start is None or start.position is None else (start.position.begin - 4) // STEP
        return self

    def table_reader(self) -> TableReader:
        """There is none."""
        raise ConfigError("this source has no tables to read")

    def find_place(self, wanted: int | str | None) -> Cursor:
        """It has all from its first event on."""
        del wanted
        return Cursor.at(Position.parse(position(0)))

    def expiries(self, places: Sequence[Position]) -> list[Expiry | None]:
        """Nothing is purged."""
        return [None] * len(places)

    def distances(self, places: Sequence[Position], to: Position) -> list[int | None]:
        """Nothing is known."""
        del to
        return [None] * len(places)

    def begin_at(self, places: Sequence[Cursor | None]) -> None:
        """It has begun."""

    def prove(self, place: Cursor, sample: bytes) -> Proof:
        """It has everything."""
        del sample
        return Proof(place)

    def probe(self) -> None:
        """It answers."""

    def announce(self, change: str) -> None:
        """It says nothing of itself."""

    def refilter(self, table_filter: TableFilter) -> None:
        """The test says what comes."""

    def columns(self, schema: str, table: str, at: Position | None = None) -> list[columns.SourceColumn]:
        return [columns.SourceColumn("id", f"int of {schema}.{table}", is_key=True)]

    def check_conditions(self, conditions: Conditions) -> None:
        """All can be judged."""

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
        source, file = ring.sources.intern(("", "7")), ring.files.intern(("bin.000001", CREATED))
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
                writer.write_framed(self.entry(number))
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
            file_data_dir=self._folder,
            file_flush_period=50,
        )

    def waiting(self) -> int:
        """How many calls are under way."""
        return sum("run_asgi" in repr(task.get_coro()) for task in asyncio.all_tasks(self._loop))

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        embedded = EmbeddedServer(self._load, self.source)
        await embedded.start("example")
        config = HttpConfig(port=self.port, credentials=self._folder / "credentials.json", **self._options)
        self._stopping = Stopping()
        resources = Resources(embedded, Metrics(embedded), self._stopping, LoginLimiter())
        await serve([config], resources, self._listens)

    def _listens(self, addresses: Mapping[type[FrontConfig], str]) -> None:
        self.url = addresses[HttpConfig]
        self.port = int(self.url.rpartition(":")[2])
        self._listening.set()

    def start(self) -> None:
        self._listening = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._listening.wait(SECONDS)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.announce)  # signals reach the main thread only
        self._thread.join()


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


def numbers(batch: Batch) -> list[int]:
    return [row.after["id"] for row in batch if row.after is not None]


def calls_of(server: ServerThread) -> dict[str, int]:
    """How many gets and acks the server has answered."""
    metrics = urllib3.request("GET", f"{server.url}/metrics").data.decode()
    counted = re.findall(
        r'^sluice_http_request_duration_seconds_count\{.*/(ack|getWithoutAck)".*\} ([0-9.]+)$', metrics, re.MULTILINE
    )
    return {call: int(float(count)) for call, count in counted}
