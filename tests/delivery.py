"""What a destination delivers of a server's binlog, read by the real parser into a ring."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from sluice.instance.sources.mysql.config import MysqlConfig
from sluice.instance.sources.mysql.parser import Parser
from sluice.protocol.canal.entry_pb2 import Entry, EntryType, EventType, RowChange
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.store.ring import Collected, Ring
from tests.servers import Server
from tests.waiting import eventually


def config_for(server: Server, folder: Path, **settings: Any) -> MysqlConfig:
    """A destination that reads the server."""
    return MysqlConfig.model_validate(
        {
            "destination": "test",
            "master_address": f"{server.host}:{server.port}",
            "db_username": server.user,
            "db_password": server.password,
            "file_data_dir": folder,
            "time_zone": "UTC",
            **settings,
        }
    )


def end_of_binlog(server: Server) -> tuple[str, int]:
    """The file and offset that the server writes next."""
    statement = "SHOW BINARY LOG STATUS" if server.name == "mysql97" else "SHOW MASTER STATUS"
    file, offset, *_ = server.query(statement)[0]
    return file, offset


class Delivery:
    """The entries of a server's binlog from a place on. `read()` returns those up to the present end."""

    def __init__(self, server: Server, folder: Path, **settings: Any) -> None:
        self.server = server
        if "master_journal_name" not in settings:
            file, offset = end_of_binlog(server)
            settings |= {"master_journal_name": file, "master_position": offset}
        # A set of GTIDs comes before the place, and may begin anywhere
        at_place = not settings.get("master_gtid")
        file, offset = settings["master_journal_name"], settings.get("master_position", 0)
        self._start = (int(file.rpartition(".")[2]), offset) if at_place else (0, 0)
        self.states: list[tuple[str, str]] = []
        self.ring = Ring(1 << 18, 1 << 30)
        self.next = 0
        self.parser = Parser(
            config_for(server, folder, **settings), self.ring, on_state=lambda *state: self.states.append(state)
        )

    def read(self) -> list[Entry]:
        """Wait until the source is being read and everything in its binlog now has arrived; return what is new."""
        messages = Messages.FromString(b"".join(self.collect().slices))
        return [Entry.FromString(message) for message in messages.messages]

    def collect(self, seconds: float = 60) -> Collected:
        """As `read`, but as a subscriber gets it."""
        file, offset = end_of_binlog(self.server)
        end = int(file.rpartition(".")[2]), offset
        eventually(
            lambda: self.states and self._end() >= end,
            lambda: f"{end}, where {self._end()} is all that arrived; states: {self.states}",
            seconds,
        )
        collected = self.ring.collect(self.next)
        self.next = collected.stop
        return collected

    def _end(self) -> tuple[int, int]:
        place = self.ring.after(self.ring.next - 1)
        if place is None:
            return self._start
        _, file, begin, _ = place
        return int(self.ring.files[file][0].rpartition(".")[2]), begin


@contextmanager
def deliver(server: Server, folder: Path, **settings: Any) -> Iterator[Delivery]:
    """Read from the present end of the server's binlog on, or from where the settings say."""
    delivery = Delivery(server, folder, **settings)
    delivery.parser.start()
    try:
        yield delivery
    finally:
        delivery.parser.stop()
        delivery.parser.join(10)
        delivery.ring.close()


def rows_of(entries: list[Entry], table: str = "") -> list[tuple[str, RowChange]]:
    """The row changes among the entries, each with the name of its table; of one table where it is given."""
    return [
        (entry.header.tableName, RowChange.FromString(entry.storeValue))
        for entry in entries
        if entry.entryType == EntryType.ROWDATA and (not table or entry.header.tableName == table)
    ]


def values(columns: Any) -> dict[str, str | None]:
    """The texts of an image by column name; None is NULL."""
    return {column.name: None if column.isNull else column.value for column in columns}


def transcript(entries: list[Entry]) -> list[str]:
    """The entries as lines, one for each row.

    `BEGIN`, `INSERT t 1,a`, `UPDATE t 1,a > 1,b`, `DELETE t 1,NULL`, `END`, `CREATE t: <the statement>`,
    `QUERY: <the statement>`. The name of the schema is left out.
    """
    return [line for entry in entries for line in _lines(entry)]


def _lines(entry: Entry) -> Iterator[str]:
    if entry.entryType != EntryType.ROWDATA:
        yield EntryType.Name(entry.entryType).removeprefix("TRANSACTION")
        return
    change = RowChange.FromString(entry.storeValue)
    assert change.eventType == entry.header.eventType
    subject = f"{EventType.Name(change.eventType)} {entry.header.tableName}".rstrip()
    if change.sql:
        yield f"{subject}: {change.sql}"
    for row in change.rowDatas:
        yield f"{subject} " + " > ".join(
            ",".join("NULL" if column.isNull else column.value for column in image)
            for image in (row.beforeColumns, row.afterColumns)
            if image
        )


def execute(server: Server, statements: Iterable[str | bytes], **options: Any) -> int:
    """Run the statements on one connection, and return its thread id; `options` are PyMySQL's."""
    connection = server.connect(**options)
    try:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        return int(connection.thread_id())  # type: ignore[no-untyped-call]
    finally:
        connection.close()


def delivered(
    server: Server, folder: Path, schema: str, statements: Iterable[str | bytes], **settings: Any
) -> list[Entry]:
    """Run the statements in the schema, and return what is delivered of its tables."""
    with deliver(server, folder, **({"filter_regex": rf"{schema}\..*"} | settings)) as delivery:
        execute(server, statements, database=schema)
        return delivery.read()


def without_place(entry: Message) -> Message:
    """An entry as it would be at any other place of the binlog."""
    copy = type(entry)()
    copy.CopyFrom(entry)
    for name in ("logfileName", "logfileOffset", "executeTime"):
        copy.header.ClearField(name)  # type: ignore[attr-defined]
    return copy


def props(entry: Entry) -> dict[str, str]:
    """The properties of an entry's header, without the doubt that rows of the second of their table's DDL are in."""
    return {pair.key: pair.value for pair in entry.header.props if pair.key != "sluice.schema"}
