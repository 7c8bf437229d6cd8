"""Databases that feed each other: what an output has applied does not come back to where it was written first.

With a channel, each transaction on a target begins with a row of the table that Drainer uses for this, ``id`` of which
is that of a session. An output leaves out what has its own channel, and what its target has written by itself: that has
GTIDs of the target.
"""

import hashlib
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from ....sql.database import Database
from ....sql.progress import create_tables
from .progress import TABLES

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

SCHEMA: Final = "retl"
TABLE: Final = "_drainer_repl_mark"


class LoopGuard:
    """What an output leaves out, and its marks. `prepare` belongs to one thread, `write` to each session's."""

    def __init__(self, job: str, channel: int | None, schema: str) -> None:
        """``channel``: None writes no marks; ``schema``: that of the progress."""
        self._job = job
        self._channel = channel
        self._schema = schema
        self._first = int.from_bytes(hashlib.sha256(job.encode()).digest()[:6], "big") << 8
        self.mark: list[bytes] | None = None
        """As `Transactions` takes it."""
        self.drops_open = False
        """Whether the transaction that goes on is left out."""
        self.returned = 0
        """Groups of transactions that were left out."""

    def open(self, cursor: "Cursor", database: Database, identity: str) -> None:
        """Create the table of marks; ``identity``: the target's, as positions name it. Raises as `create_tables`."""
        self.drops_open = False
        if self._channel is None:
            return
        create_tables(cursor, database, SCHEMA, {TABLE: _COLUMNS})
        gtid = f"-{identity}-" if identity.isdigit() else f"{identity}:"
        self.mark = [it.encode() for it in (SCHEMA, TABLE, "channel_id", str(self._channel), gtid)]

    def write(self, cursor: "Cursor", session: int) -> None:
        """Begin a transaction on the target with its mark."""
        if self._channel is None:
            return
        cursor.execute(
            f"INSERT INTO {SCHEMA}.{TABLE} (id, channel_id, val, channel_info) VALUES (%s, %s, 1, %s)"  # noqa: S608
            " ON DUPLICATE KEY UPDATE channel_id = VALUES(channel_id), val = val + 1",
            (self._first + session, self._channel, self._job[:64]),
        )

    def owns(self, schema: str, table: str) -> bool:
        """Whether a table is one that outputs keep on their targets."""
        return (schema == self._schema and table in TABLES) or (
            self._channel is not None and (schema, table) == (SCHEMA, TABLE)
        )

    def without_own(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """Return changes without those of the tables that outputs keep on their targets."""
        schemas, tables = changes["_schema"], changes["_table"]
        own = pc.and_(pc.equal(schemas, self._schema), pc.is_in(tables, _OWN))
        if self._channel is not None:
            own = pc.or_(own, pc.and_(pc.equal(schemas, SCHEMA), pc.equal(tables, TABLE)))
        return changes.filter(pc.invert(own)) if pc.any(own).as_py() else changes


_OWN: Final = pa.array(list(TABLES))
_COLUMNS: Final = (
    "id BIGINT PRIMARY KEY, channel_id BIGINT NOT NULL DEFAULT 0, val BIGINT DEFAULT 0, channel_info VARCHAR(64)"
)
