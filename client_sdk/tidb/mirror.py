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

import pyarrow.compute as pc

from ...protocol.canal.arrow import EnvelopeDecoder
from ...protocol.errors import TargetError
from ...protocol.identifiers import quote_name
from ...sql.database import Database
from ...sql.definitions import define, digest
from ...sql.progress import create_tables
from ...sql.tables import Tables
from ...sql.target import RETRY, ROWS, SIZE, Target
from ...sql.writer import Writer
from .message import Message, batch_of

if TYPE_CHECKING:
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
        self._tables = Tables(source)
        self._writer = Writer(self._tables)
        self._decoder = EnvelopeDecoder()

    def close(self) -> None:
        """Leave the target."""
        self.target.close()

    def open(self, commit_ts: int = 0) -> Checkpoint:
        """Return how far the job came; a new one begins at a commit_ts. Raises TargetError."""

        def work(cursor: "Cursor") -> Checkpoint:
            create_tables(cursor, self.target.database, self._schema, {self._name: _COLUMNS})
            cursor.execute(
                f"INSERT IGNORE INTO {self._table} (job, commit_ts) VALUES (%s, %s)",  # noqa: S608
                (self._job, commit_ts),
            )
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
        data = batch_of(messages).data
        changes = self._decoder.decode(data)
        is_known = bool(self._tables)

        def work(cursor: "Cursor") -> int:
            done = self._checkpoint(cursor).commit_ts
            left = [it for it in messages if it.commit_ts > done]
            if left:
                later = changes.filter(pc.greater(pc.struct_field(changes["_pos"], "begin"), done))
                self._writer.write(cursor, later, data, self.target.packet)
                self._move(cursor, left[-1])
            return len(left)

        try:
            count = self.target.transact(work)
        except TargetError:
            if not is_known:
                raise
            self._tables.forget()  # somebody may have altered them
            count = self.target.transact(work)
        self._note(count, messages[-1])
        is_slow = time.monotonic() - begun > SECONDS
        self.most_rows = max(self.most_rows // 2, 1) if is_slow else min(2 * self.most_rows, ROWS)

    # --- statements

    def _apply_statement(self, message: Message) -> bool:
        """Run a DDL, and say whether that was not done before; see the head of the module."""
        (change,) = message.changes()
        self._tables.forget()
        schema, commit_ts = change.ddl_schema, message.commit_ts

        def note(cursor: "Cursor") -> bool:
            found = self._checkpoint(cursor)
            if found.commit_ts < commit_ts and found.ddl_commit_ts != commit_ts:
                cursor.execute(
                    f"UPDATE {self._table} SET ddl_commit_ts = %s, ddl_before = %s WHERE job = %s",  # noqa: S608
                    (commit_ts, digest(cursor, change.sql, schema), self._job),
                )
            return found.commit_ts < commit_ts

        def run(cursor: "Cursor") -> None:
            if self._checkpoint(cursor).ddl_before == digest(cursor, change.sql, schema):
                define(cursor, schema, change.sql, self._source)

        def finish(cursor: "Cursor") -> None:
            self._checkpoint(cursor)
            self._move(cursor, message)

        if not self.target.transact(note):
            return False
        self.target.transact(run)
        self.target.transact(finish)
        return True

    # --- the place

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


_COLUMNS: Final = (
    "job VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY, commit_ts BIGINT NOT NULL,"
    " record BIGINT NOT NULL DEFAULT -1, ddl_commit_ts BIGINT NOT NULL DEFAULT 0,"
    " ddl_before CHAR(64) CHARACTER SET ascii NOT NULL DEFAULT ''"
)
