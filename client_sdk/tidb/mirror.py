"""Keeping a MySQL or MariaDB server like a TiDB cluster: each transaction of its binlog is applied exactly once.

Several that follow one another are joined to one transaction on the target. Of the changes of a row only the last one
counts there; why that is right says `sluice.client_sdk.spark.apply`, which does the same for Spark. How far a job came
stands in a table on the target and is written in the transaction of the changes:

    sluice_tidb     job | commit_ts, record | ddl_commit_ts, ddl_before

``record`` is the offset of the record with the commit_ts. A DDL commits by itself, so that its place cannot be written
with it. Before it, its commit_ts is noted, with a digest of what the target's catalogue says of the schema. When a job
finds such a note, that DDL was begun: if the catalogue says something else now, it was done; if not, it either was not
or changes nothing that is seen, such as TRUNCATE, and is done again. The session holds a lock under the job's name, so
that a statement of a session that was lost has ended before the catalogue is looked at.
"""

import hashlib
import time
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pymysql

from ...protocol.canal.arrow import EnvelopeDecoder
from ...protocol.canal.ddl import is_of_database
from ...protocol.canal.rows import Change
from ...protocol.errors import TargetError
from ...protocol.identifiers import quote_name
from ...sql.changes import last_of_keys
from ...sql.database import Database, reason
from ...sql.statements import TargetTable
from ...sql.target import RETRY, ROWS, SIZE, Target, execute, is_passing
from .message import Message, batch_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymysql.cursors import Cursor


SECONDS: Final = 1.0
"""That a transaction on the target may take, about: after a longer one the next one has fewer rows."""


class Checkpoint(NamedTuple):
    """How far a job came."""

    commit_ts: int
    """Of the last transaction that was applied; 0 before the first one."""
    record: int
    """The offset of its record; -1 before the first one."""
    ddl_commit_ts: int
    """Of a DDL that was begun, 0 if there is none ..."""
    ddl_before: str
    """... and the digest of the catalogue before it."""


class TiDBMirror:
    """Applies messages of `TiDBReader` to a target. Tables have to be there, unless their DDL comes, too.

    What is applied at once is one transaction there, but for a DDL, which is one of its own. Rows are found by the
    primary key, those of a table without one by all columns.
    """

    def __init__(
        self,
        database: Database,
        job: str,
        *,
        schema: str = "sluice",
        time_zone: str = "UTC",
        retry: float = RETRY,
        source: str = "TiDB",
        table: str = "sluice_tidb",
    ) -> None:
        """Prepare; nothing is sent yet.

        ``job``: the name that the place is kept under; ``schema``: of its table; ``time_zone``: of the Drainer that
        wrote the TIMESTAMP values; ``retry``: seconds to wait for a target that is unavailable; ``source``: what the
        changes come from, for errors; ``table``: that keeps the place.
        """
        self.target = Target(database, time_zone, retry, lock=_lock_of(table, schema, job))
        self.most_rows = ROWS
        """Rows that should be applied at once, at most: fewer where the target is slow."""
        self.most_bytes = SIZE
        """Bytes of records likewise."""
        self.count = 0
        """Messages that were applied ..."""
        self.last: Message | None = None
        """... and the last one that is done, now or earlier."""
        self._schema = schema
        self._job = job
        self._source = source
        self._name = table
        self._table = f"{quote_name(schema)}.{quote_name(table)}"
        self._tables: dict[tuple[str, str], TargetTable] = {}
        self._decoder = EnvelopeDecoder()

    def close(self) -> None:
        """Leave the target."""
        self.target.close()

    def open(self, commit_ts: int = 0) -> Checkpoint:
        """Return how far the job came; a new one begins at a commit_ts. Raises TargetError."""

        def work(cursor: "Cursor") -> Checkpoint:
            try:
                self._make_table(cursor)
                cursor.execute(
                    f"INSERT IGNORE INTO {self._table} (job, commit_ts) VALUES (%s, %s)",  # noqa: S608
                    (self._job, commit_ts),
                )
            except pymysql.MySQLError as error:
                if is_passing(error):
                    raise
                raise TargetError(
                    f"{self.target.database} cannot keep the progress: {reason(error)}. Let the account create and"
                    f" write tables in the schema {self._schema}, or name another schema for it"
                ) from error
            return self._checkpoint(cursor)

        return self.target.transact(work)

    def apply(self, messages: Sequence[Message]) -> None:
        """Apply messages, in their order; those that were applied before are left out.

        Raises:
            TargetError: the target refuses, stays out of reach, or does not fit the changes. `last` says what is done.
            DecodeError: a value is not what its type says.
        """
        for is_ddl, some in groupby(messages, key=lambda it: it.is_ddl):
            if is_ddl:
                for message in some:
                    self._note(self._apply_statement(message), message)
            else:
                self._apply_rows(list(some))

    def _note(self, count: int, last: Message) -> None:
        self.count += count
        self.last = last

    # --- rows

    def _apply_rows(self, messages: Sequence[Message]) -> None:
        begun = time.monotonic()
        changes = self._decoder.decode(batch_of(messages).data)
        is_known = bool(self._tables)

        def work(cursor: "Cursor") -> int:
            done = self._checkpoint(cursor).commit_ts
            left = [it for it in messages if it.commit_ts > done]
            if left:
                self._write(cursor, changes.filter(pc.greater(pc.struct_field(changes["_pos"], "begin"), done)))
                self._move(cursor, left[-1])
            return len(left)

        try:
            count = self.target.transact(work)
        except TargetError:
            if not is_known:
                raise
            self._tables.clear()  # somebody may have altered them
            count = self.target.transact(work)
        self._note(count, messages[-1])
        is_slow = time.monotonic() - begun > SECONDS
        self.most_rows = max(self.most_rows // 2, 1) if is_slow else min(2 * self.most_rows, ROWS)

    def _write(self, cursor: "Cursor", changes: pa.RecordBatch) -> None:
        schemas, tables = (changes[name].dictionary_encode() for name in ("_schema", "_table"))
        numbers = pc.add(pc.multiply(schemas.indices, len(tables.dictionary)), tables.indices)
        for number in pc.unique(numbers).to_pylist():
            some = changes.filter(pc.equal(numbers, number))
            name = some["_schema"][0].as_py(), some["_table"][0].as_py()
            has_key = some["_key"].null_count == 0
            if name not in self._tables:
                source = f"{'.'.join(name)} of {self._source}"
                self._tables[name] = TargetTable.load(cursor, name, source, needs_key=has_key)
            write = self._write_by_key if has_key else self._write_by_columns
            write(cursor, self._tables[name], some)

    def _write_by_key(self, cursor: "Cursor", table: TargetTable, changes: pa.RecordBatch) -> None:
        """Make each row as its last change leaves it."""
        last = last_of_keys(changes["_schema"], changes["_table"], changes["_key"])
        changes = changes if last is None else changes.take(last)
        deleted = pc.equal(changes["_op"], "DELETE")
        rows = pc.indices_nonzero(deleted).cast(pa.int32())
        execute(cursor, table, table.delete(changes["before"], changes["_key"], rows))
        rows = pc.indices_nonzero(pc.invert(deleted)).cast(pa.int32())
        execute(cursor, table, table.replace(changes["after"], changes["_key"], self.target.packet, rows))

    def _write_by_columns(self, cursor: "Cursor", table: TargetTable, changes: pa.RecordBatch) -> None:
        """Repeat the changes in their order, each on one of the rows that are equal."""
        for operation, rows in _runs(changes["_op"]):
            if operation == "INSERT":
                execute(cursor, table, table.insert_each(changes["after"], self.target.packet, rows))
            elif operation == "UPDATE":
                execute(cursor, table, table.update_each(changes["before"], changes["after"], rows))
            else:
                execute(cursor, table, table.delete_each(changes["before"], rows))

    # --- statements

    def _apply_statement(self, message: Message) -> bool:
        """Run a DDL, and say whether that was not done before; see the head of the module."""
        (change,) = message.changes()
        self._tables.clear()
        schema, commit_ts = change.ddl_schema, message.commit_ts

        def note(cursor: "Cursor") -> bool:
            found = self._checkpoint(cursor)
            if found.commit_ts < commit_ts and found.ddl_commit_ts != commit_ts:
                cursor.execute(
                    f"UPDATE {self._table} SET ddl_commit_ts = %s, ddl_before = %s WHERE job = %s",  # noqa: S608
                    (commit_ts, _digest(cursor, schema), self._job),
                )
            return found.commit_ts < commit_ts

        def run(cursor: "Cursor") -> None:
            if self._checkpoint(cursor).ddl_before == _digest(cursor, schema):
                self._run(cursor, change)

        def finish(cursor: "Cursor") -> None:
            self._checkpoint(cursor)
            self._move(cursor, message)

        if not self.target.transact(note):
            return False
        self.target.transact(run)
        self.target.transact(finish)
        return True

    def _run(self, cursor: "Cursor", change: Change) -> None:
        try:
            if change.ddl_schema and not is_of_database(change.sql):
                cursor.execute(f"USE {quote_name(change.ddl_schema)}")
            cursor.execute(change.sql)
        except pymysql.MySQLError as error:
            if is_passing(error):
                raise
            raise TargetError(
                f"{self.target.database} refuses a statement of {self._source}: {reason(error)}: {change.sql[:1000]}."
                f" Change the schema {change.ddl_schema} there as the statement means it, then start again: what has"
                " changed counts as done"
            ) from error

    # --- the place

    def _make_table(self, cursor: "Cursor") -> None:
        cursor.execute(
            "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
            (self._schema, self._name),
        )
        if not cursor.fetchall()[0][0]:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {quote_name(self._schema)}")
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {self._table} ({_COLUMNS}) ENGINE = InnoDB")

    def _checkpoint(self, cursor: "Cursor") -> Checkpoint:
        """Return the place of the job, locked to the end of the transaction."""
        cursor.execute(
            f"SELECT commit_ts, record, ddl_commit_ts, ddl_before FROM {self._table}"  # noqa: S608
            " WHERE job = %s FOR UPDATE",
            (self._job,),
        )
        found = cursor.fetchall()
        if not found:
            raise TargetError(f"the place of the job {self._job} was removed from {self._table} on the target")
        return Checkpoint(*found[0])

    def _move(self, cursor: "Cursor", message: Message) -> None:
        cursor.execute(
            f"UPDATE {self._table} SET commit_ts = %s, record = %s, ddl_commit_ts = 0, ddl_before = ''"  # noqa: S608
            " WHERE job = %s",
            (message.commit_ts, message.offset, self._job),
        )


def _lock_of(table: str, schema: str, job: str) -> str:
    """Return a name for a lock, which may have 64 characters."""
    return f"{table.replace('_', ' ')} " + hashlib.sha256(f"{schema}/{job}".encode()).hexdigest()[:40]


def _runs(operations: pa.StringArray) -> "Iterator[tuple[str, pa.Int32Array]]":
    """Give the numbers of the rows that follow one another with the same operation."""
    encoded = pc.run_end_encode(operations, run_end_type=pa.int32())
    begin = 0
    for end, operation in zip(encoded.run_ends.to_pylist(), encoded.values.to_pylist(), strict=True):
        yield operation, pa.array(range(begin, end), pa.int32())
        begin = end


def _digest(cursor: "Cursor", schema: str) -> str:
    """Return a digest of what the catalogue says of a schema."""
    digest = hashlib.sha256()
    for table, columns in _CATALOGUE.items():
        owner = "schema_name" if table == "schemata" else "table_schema"
        cursor.execute(
            f"SELECT {columns} FROM information_schema.{table} WHERE {owner} = %s ORDER BY {columns}",  # noqa: S608
            (schema,),
        )
        digest.update(repr(cursor.fetchall()).encode())
    return digest.hexdigest()


_CATALOGUE: Final = {
    "schemata": "schema_name, default_character_set_name, default_collation_name",
    "tables": "table_name, table_type, engine, table_collation, create_options, table_comment",
    "columns": "table_name, column_name, ordinal_position, column_default, is_nullable, column_type,"
    " character_set_name, collation_name, extra, column_comment",
    "statistics": "table_name, index_name, seq_in_index, non_unique, column_name, collation, sub_part, index_type,"
    " index_comment",
    "partitions": "table_name, partition_name, subpartition_name, partition_method, partition_expression,"
    " partition_description",
    "views": "table_name, view_definition, check_option, security_type",
    "table_constraints": "table_name, constraint_name, constraint_type",
}
"""What is compared, by the table of ``information_schema``."""
_COLUMNS: Final = (
    "job VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY, commit_ts BIGINT NOT NULL,"
    " record BIGINT NOT NULL DEFAULT -1, ddl_commit_ts BIGINT NOT NULL DEFAULT 0,"
    " ddl_before CHAR(64) CHARACTER SET ascii NOT NULL DEFAULT ''"
)
