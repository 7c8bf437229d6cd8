"""A parser, or an embedded server, that reads a real server or its files, and what arrives of it, as text."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sluice.instance.config import InstanceConfig
from sluice.instance.sources.files.config import FilesConfig
from sluice.instance.sources.files.parser import FilesParser
from sluice.instance.sources.mysql.config import MysqlConfig
from sluice.instance.sources.mysql.connection import Connection
from sluice.instance.sources.mysql.parser import BinlogParser, Parser
from sluice.instance.sources.registry import make_parser
from sluice.protocol.canal import entry_pb2 as pb
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.position import Position
from sluice.server.embedded import EmbeddedServer
from sluice.store.cursor import Cursor
from sluice.store.ring import Kind, Ring
from tests.servers import Server
from tests.waiting import eventually, soon

if TYPE_CHECKING:
    from sluice.protocol.gtid import GtidSet


def with_full_metadata(server: Server) -> Iterator[Server]:
    """Let a server write names, character sets and collations of columns; for a fixture to ``yield from``."""
    with server.variable("binlog_row_metadata", "FULL"):
        yield server


def config(server: Server, folder: Path | None = None, **options: Any) -> MysqlConfig:
    """The configuration of a destination on the server; other keys by their attribute names."""
    settings: dict[str, Any] = {
        "destination": "example",
        "master_address": f"{server.host}:{server.port}",
        "db_username": server.user,
        "db_password": server.password,
        "file_data_dir": folder or Path("data"),
    }
    return MysqlConfig(**(settings | options))


def files_config(source: Path, folder: Path, **options: Any) -> FilesConfig:
    """The configuration of a destination on binlog files; they end where the last one ends."""
    settings: dict[str, Any] = {"destination": "example", "folder": source, "file_data_dir": folder, "at_end": "end"}
    return FilesConfig(**(settings | options))


def cursor(position: Position, gtid: str = "") -> Cursor:
    """A saved cursor of ours."""
    return Cursor.at(position, gtid)


@asynccontextmanager
async def embedded(configuration: InstanceConfig) -> AsyncIterator[EmbeddedServer]:
    """Serve this destination while the block lasts."""
    server = EmbeddedServer(lambda _: configuration, make_parser)
    await server.start(configuration.destination)
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def followed(configuration: InstanceConfig, client: int = 1001) -> AsyncIterator[EmbeddedServer]:
    """Serve this destination while the block lasts, with a client that is to have all that is written in it."""
    async with embedded(configuration) as server:
        await server.subscribe(configuration.destination, client)
        await soon(lambda: server.status(configuration.destination, client).position)
        yield server


class Reading:
    """Runs a parser while the block lasts; `with Reading(config(server, tmp_path)) as reading:`."""

    def __init__(
        self,
        configuration: MysqlConfig | FilesConfig,
        start: Cursor | None = None,
        stop: Position | None = None,
        ring: Ring | None = None,
    ) -> None:
        self.ring = Ring() if ring is None else ring
        self.states: list[tuple[str, str]] = []
        self.begun: list[tuple[Position | None, GtidSet | None]] = []
        make: Any = Parser if isinstance(configuration, MysqlConfig) else FilesParser
        self.parser: BinlogParser[Any, Any] = make(
            configuration,
            self.ring,
            start=start,
            stop=stop,
            on_begin=lambda *place: self.begun.append(place),
            on_state=lambda *state: self.states.append(state),
        )

    def __enter__(self) -> Self:
        self.parser.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.parser.stop()
        self.parser.join(10)
        self.ring.close()

    @property
    def running(self) -> bool:
        return bool(self.states) and self.states[-1][0] == "running"

    @property
    def error(self) -> str:
        """The text of the present error state, "" without."""
        return self.states[-1][1] if self.states and self.states[-1][0] == "error" else ""

    def wait_for_error(self) -> str:
        """Wait until the parser cannot read; the text."""
        self.wait(lambda: bool(self.error), 20)
        return self.error

    def wait_for_end(self) -> list[str]:
        """Wait until the source has ended; all lines."""
        self.wait(lambda: bool(self.error) or self.states[-1:] == [("finished", "")])
        assert not [text for state, text in self.states if state == "error"]
        return self.lines()

    def wait(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        eventually(condition, lambda: f"states {self.states}, read {self.lines()}", seconds)

    def wait_for(self, line: str, seconds: float = 20) -> list[str]:
        """Wait until a line begins like this; all lines."""
        self.wait(lambda: any(it.startswith(line) for it in self.lines()), seconds)
        return self.lines()

    def entries(self) -> list[pb.Entry]:
        data = b"".join(self.ring.collect(self.ring.first).slices)
        return [pb.Entry.FromString(message) for message in Messages.FromString(data).messages]

    def lines(self) -> list[str]:
        """Every entry but the texts of statements with rows: `INSERT shop.t 1,a`, `ALTER shop.t`, `BEGIN`, `END`."""
        return [line for entry in self.entries() for line in _lines(entry)]

    def rows(self) -> list[str]:
        """The lines of rows only."""
        return [line for line in self.lines() if line.split(" ")[0] in ("INSERT", "UPDATE", "DELETE")]

    def kinds(self) -> list[Kind]:
        return [Kind(self.ring.slot(number).kind) for number in range(self.ring.first, self.ring.next)]

    def boundaries(self) -> list[Position]:
        """The places after transactions and DDLs."""
        found = []
        for number in range(self.ring.first, self.ring.next):
            slot = self.ring.slot(number)
            if slot.kind in (Kind.TRANSACTION_END, Kind.DDL):
                _, source = self.ring.sources[slot.source]
                name, created = self.ring.files[slot.next_file]
                found.append(Position(source, name, created, slot.next_begin, slot.next_n))
        return found


def _lines(entry: pb.Entry) -> list[str]:
    if entry.entryType == pb.TRANSACTIONBEGIN:
        return ["BEGIN"]
    if entry.entryType == pb.TRANSACTIONEND:
        return ["END"]
    change = pb.RowChange.FromString(entry.storeValue)
    kind = pb.EventType.Name(entry.header.eventType)
    name = f"{kind} {entry.header.schemaName}.{entry.header.tableName}"
    if not change.rowDatas:
        is_marker = any(it.key.startswith("sluice.") for it in entry.header.props)
        return [] if name == "QUERY ." and not change.isDdl and not is_marker else [name]
    return [
        f"{name} " + ",".join("NULL" if it.isNull else it.value for it in row.afterColumns or row.beforeColumns)
        for row in change.rowDatas
    ]


def connect(server: Server, **options: Any) -> Connection:
    return Connection(config(server, **options))
