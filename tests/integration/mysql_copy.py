"""A schema on a target, and an output to it that a test sends changes by hand."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sluice.instance.sources.api import framed
from sluice.protocol.canal.entry_pb2 import Entry, EntryType, EventType, RowChange
from sluice.protocol.wire import varint
from sluice.server.outputs.mysql.settings import MysqlSettings
from sluice.server.outputs.mysql.target import MysqlTarget
from sluice.server.outputs.settings import Output
from sluice.server.outputs.target import Place, Prepared
from sluice.sql.database import Database as Account
from sluice.store.batch import Batch
from tests.servers import Server

Row = Mapping[str, object]
BEGIN, END = Entry(entryType=EntryType.TRANSACTIONBEGIN), Entry(entryType=EntryType.TRANSACTIONEND)
_numbers = itertools.count(1)


class Copy:
    """A schema on a target, and an output to it."""

    def __init__(self, server: Server, schema: str, progress: str, **settings: Any) -> None:
        self.server, self.schema, self.progress = server, schema, progress
        self.settings = {"start": "earliest"} | settings
        self.memory = ""

    def target(self, **settings: Any) -> MysqlTarget:
        server = self.server
        found = MysqlSettings(
            client_id=7,
            url=f"mysql://{server.user}@{server.host}:{server.port}/",
            password=server.password,  # type: ignore[arg-type]
            progress=self.progress,
            **self.settings | settings,
        )
        output = Output("shop", "copy", found, shared=False, time_zone="UTC")
        return MysqlTarget(output, Account(server.host, server.port, server.user, server.password))

    @contextmanager
    def opened(self, epoch: int = 1, **settings: Any) -> Iterator[MysqlTarget]:
        target = self.target(**settings)
        target.open(self.memory, "", epoch)
        try:
            yield target
        finally:
            target.close()

    def send(
        self, target: MysqlTarget, *entries: Entry, end: int, n: int = 0, snapshot: int = 0, begin: int = 0
    ) -> None:
        """Send entries as a batch, which ends at the n-th event of the transaction at an offset.

        ``begin``: the offset of its first transaction; that of each further one is larger by 1.
        """
        prepared = self.prepare(target, *entries, snapshot=snapshot, begin=begin)
        target.send([prepared], place(end, n))
        self.memory = target.memory_after(prepared)

    def prepare(
        self, target: MysqlTarget, *entries: Entry, snapshot: int = 0, begin: int = 0, server: str = "source"
    ) -> Prepared:
        data, positions, at = framed(entries), b"", begin
        for it in entries:
            positions += varint(at) + varint(0)
            at += it.entryType == EntryType.TRANSACTIONEND
        from_, to = place(begin, server=server).position, place(at, server=server).position
        batch = Batch(
            1, [memoryview(data)], from_, to, len(entries), 1, len(data), 0, positions=positions, snapshot=snapshot
        )
        return target.prepare(batch)

    def change(self, table: str, before: Row | None, after: Row | None, key: Sequence[str] = ("id",)) -> Entry:
        kind = EventType.INSERT if before is None else EventType.DELETE if after is None else EventType.UPDATE
        found = Entry(entryType=EntryType.ROWDATA)
        found.header.schemaName, found.header.tableName, found.header.eventType = self.schema, table, kind
        change = RowChange(eventType=kind)
        row = change.rowDatas.add()
        for columns, image in ((row.beforeColumns, before), (row.afterColumns, after)):
            for number, (name, value) in enumerate((image or {}).items()):
                column = columns.add(index=number, sqlType=4, name=name, isKey=name in key, mysqlType="int")
                column.updated = before is None or before[name] != value
                column.isNull = value is None
                column.value = "" if value is None else str(value)
        found.storeValue = change.SerializeToString()
        return found

    def read(self, table: str, *rows: Row) -> Entry:
        """Rows of a snapshot."""
        found = self.change(table, None, rows[0])
        found.header.props.add(key="sluice.snapshot", value="1")
        return found

    def ddl(self, sql: str, kind: "EventType.ValueType" = EventType.ALTER, table: str = "t") -> Entry:
        found = Entry(entryType=EntryType.ROWDATA)
        found.header.schemaName, found.header.tableName, found.header.eventType = self.schema, table, kind
        change = RowChange(eventType=kind, isDdl=True, sql=sql, ddlSchemaName=self.schema)
        found.storeValue = change.SerializeToString()
        return found

    def create(self, definition: str, table: str = "t") -> None:
        self.server.query(f"CREATE TABLE {self.schema}.{table} ({definition})")

    def rows(self, table: str = "t") -> list[tuple[Any, ...]]:
        return sorted(self.server.query(f"SELECT * FROM {self.schema}.{table}"), key=repr)


def place(begin: int, n: int = 0, server: str = "source") -> Place:
    return Place(f"{server}/binlog.000001@1:{begin}:{n}", "")


@contextmanager
def copy_of(server: Server, schema: str, **settings: Any) -> Iterator[Copy]:
    """A schema on a server as the target of an output, whose place is removed afterwards."""
    progress = f"progress_{next(_numbers)}"
    try:
        yield Copy(server, schema, progress, **settings)
    finally:
        server.query(f"DROP DATABASE IF EXISTS {progress}")
