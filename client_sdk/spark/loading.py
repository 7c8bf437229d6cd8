"""Loading tables into a target: parts of them, and how far each is loaded, kept on the target with the rows.

    sluice_snapshot   job | run | position | is_done
    sluice_chunks     job, source_schema, source_table, number | run | after_key, to_key, last_key | loaded | is_done

A chunk is a range of a table's key: the rows after ``after_key``, up to ``to_key`` and with it. ``last_key`` is that
of the last row that was loaded; it is committed with the rows, so the next run begins after it. ``run`` counts the
starts: tasks of an earlier one, of which some may still be at work somewhere, are refused.
"""

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ...login.tables import LITERAL, Key, KeyRange, SnapshotTable
from ...protocol.canal.arrow import EnvelopeDecoder
from ...protocol.errors import TargetError
from ...protocol.identifiers import quote_table
from ...sql.database import Database
from ...sql.progress import create_tables
from ...sql.statements import TargetTable
from ...sql.target import Target, execute
from . import keyranges

if TYPE_CHECKING:
    import pyarrow as pa
    from pymysql.cursors import Cursor

TABLES: Final = ("sluice_snapshot", "sluice_chunks")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A range of a table, and how far it is loaded."""

    table: tuple[str, str]
    """Schema and name at the source."""
    number: int
    part: KeyRange
    loaded: int = 0
    """Rows."""
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """One start of a snapshot: what its tasks have to know."""

    schema: str
    """Of the tables of the progress."""
    job: str
    number: int
    position: str
    """Where the changes begin that the snapshot may not have."""
    is_done: bool
    """All is loaded already."""

    def resume(self, cursor: "Cursor", chunk: Chunk) -> Chunk:
        """Return a chunk as it is now, after what is loaded, and keep it locked to the end of the transaction.

        Raises:
            TargetError: another run has taken over.
        """
        cursor.execute(
            f"SELECT run, last_key, loaded, is_done FROM {self._chunks} WHERE {_CHUNK} FOR UPDATE",  # noqa: S608
            (self.job, *chunk.table, chunk.number),
        )
        found = cursor.fetchall()
        if not found or found[0][0] != self.number:
            raise _taken_over(self.job)
        _, last, loaded, is_done = found[0]
        part = chunk.part if last is None else replace(chunk.part, after=_read_key(last))
        return replace(chunk, part=part, loaded=loaded, is_done=bool(is_done))

    def advance(self, cursor: "Cursor", chunk: Chunk) -> None:
        """Note how far a chunk is."""
        cursor.execute(
            f"UPDATE {self._chunks} SET last_key = %s, loaded = %s, is_done = %s WHERE {_CHUNK}",  # noqa: S608
            (_write_key(chunk.part.after), chunk.loaded, chunk.is_done, self.job, *chunk.table, chunk.number),
        )

    @property
    def _chunks(self) -> str:
        return quote_table(self.schema, "sluice_chunks")


class Progress:
    """What is loaded, as the driver keeps it."""

    def __init__(self, target: Target, schema: str, job: str) -> None:
        """``schema`` is that of the tables of the progress, which are made when they are not there."""
        self._target = target
        self._schema = schema
        self._job = job
        self._snapshot = quote_table(schema, "sluice_snapshot")
        self._chunks = quote_table(schema, "sluice_chunks")

    def start(self, position: str) -> Run:
        """Begin a run; those before it are over. The position is that of the first run, whatever is given later.

        Raises:
            TargetError: the tables cannot be made or written.
        """
        tables = dict(zip(TABLES, (_SNAPSHOT, _CHUNKS), strict=True))
        self._target.transact(lambda it: create_tables(it, self._target.database, self._schema, tables))
        return self._target.transact(lambda cursor: self._start(cursor, position))

    def chunks(self, table: tuple[str, str]) -> list[Chunk]:
        """Return the chunks that a table is cut into so far, in their order."""

        def work(cursor: "Cursor") -> list[Chunk]:
            cursor.execute(
                f"SELECT number, after_key, to_key, loaded, is_done FROM {self._chunks}"  # noqa: S608
                " WHERE job = %s AND source_schema = %s AND source_table = %s ORDER BY number",
                (self._job, *table),
            )
            return [
                Chunk(table, number, KeyRange(_read_key(after), _read_key(to)), loaded, bool(is_done))
                for number, after, to, loaded, is_done in cursor.fetchall()
            ]

        return self._target.transact(work)

    def add(self, run: Run, chunk: Chunk) -> None:
        """Keep a chunk that was cut. Raises TargetError when another run has taken over."""
        key = self._job, *chunk.table, chunk.number

        def work(cursor: "Cursor") -> None:
            self._check(cursor, run)
            cursor.execute(
                f"INSERT IGNORE INTO {self._chunks} (job, source_schema, source_table, number, run, after_key, to_key)"  # noqa: S608
                " VALUES (%s, %s, %s, %s, %s, %s, %s)",
                (*key, run.number, _write_key(chunk.part.after), _write_key(chunk.part.to)),
            )

        self._target.transact(work)

    def finish(self, run: Run) -> None:
        """Note that all is loaded. Raises TargetError when another run has taken over."""

        def work(cursor: "Cursor") -> None:
            self._check(cursor, run)
            cursor.execute(f"UPDATE {self._snapshot} SET is_done = TRUE WHERE job = %s", (self._job,))  # noqa: S608

        self._target.transact(work)

    def _check(self, cursor: "Cursor", run: Run) -> None:
        cursor.execute(f"SELECT run FROM {self._snapshot} WHERE job = %s FOR UPDATE", (self._job,))  # noqa: S608
        if cursor.fetchall() != ((run.number,),):
            raise _taken_over(self._job)

    def _start(self, cursor: "Cursor", position: str) -> Run:
        cursor.execute(
            f"INSERT INTO {self._snapshot} (job, position) VALUES (%s, %s)"  # noqa: S608
            " ON DUPLICATE KEY UPDATE run = run + 1",
            (self._job, position),
        )
        cursor.execute(f"SELECT run, position, is_done FROM {self._snapshot} WHERE job = %s", (self._job,))  # noqa: S608
        number, begin, is_done = cursor.fetchall()[0]
        cursor.execute(f"UPDATE {self._chunks} SET run = %s WHERE job = %s", (number, self._job))  # noqa: S608
        return Run(self._schema, self._job, number, begin, bool(is_done))


def prepare(target: Target, table: SnapshotTable, copy: tuple[str, str], *, is_begun: bool, overwrite: bool) -> None:
    """Make sure that a table can be loaded into its copy on the target; before it is begun, that this is empty.

    Raises:
        TargetError: the copy is not there, holds rows, or has another key.
    """

    def work(cursor: "Cursor") -> None:
        known = TargetTable.load(cursor, copy, str(table))
        theirs = {column.name.lower() for column in known.key}
        ours = {column.name.lower() for column in table.columns if column.is_key}
        if ours != theirs:
            raise TargetError(
                f"the primary key of {table} on the source is ({', '.join(sorted(ours)) or 'none'}), that of"
                f" {'.'.join(copy)} on the target is ({', '.join(sorted(theirs))}): they have to be the same; or leave"
                " the table out by the filter"
            )
        if is_begun:
            return
        cursor.execute(f"SELECT 1 FROM {quote_table(*copy)} LIMIT 1")  # noqa: S608
        if not cursor.fetchall():
            return
        if not overwrite:
            raise TargetError(
                f"{'.'.join(copy)} on the target has rows: empty it, or say that a snapshot may overwrite it"
            )
        cursor.execute(f"TRUNCATE TABLE {quote_table(*copy)}")

    target.transact(work)


def load(
    source: Database,
    target: Target,
    run: Run,
    chunk: Chunk,
    table: SnapshotTable,
    copy: tuple[str, str],
    *,
    rate: float | None = None,
) -> int:
    """Load a chunk, or what is left of it, and return how many rows that was; each piece is a transaction.

    ``rate``: maximum number of rows a second.

    Raises:
        SourceError: the source cannot be read.
        TargetError: the target refuses, or another run has taken over.
    """
    decoder = EnvelopeDecoder()
    chunk = target.transact(lambda cursor: run.resume(cursor, chunk))
    begin = chunk.loaded
    if chunk.is_done:
        return 0
    written = target.transact(lambda cursor: TargetTable.load(cursor, copy, str(table)))
    for piece in keyranges.read(source, table, chunk.part, rate=rate):
        rows = decoder.decode(piece.data)
        after = replace(chunk, part=replace(chunk.part, after=piece.last), loaded=chunk.loaded + piece.rows)
        _write(target, run, (chunk, after), written, rows)
        chunk = after
    _write(target, run, (chunk, replace(chunk, is_done=True)), written)
    return chunk.loaded - begin


def _write(
    target: Target, run: Run, chunks: tuple[Chunk, Chunk], table: TargetTable, rows: "pa.RecordBatch | None" = None
) -> None:
    """Write rows and, with them, that a chunk has come from one state to another."""
    before, after = chunks

    def work(cursor: "Cursor") -> None:
        now = run.resume(cursor, before)
        if now == after:  # the commit of the try before, whose answer was lost
            return
        if now != before:
            raise _taken_over(run.job)
        if rows is not None:
            execute(cursor, table, table.insert(rows.column("after"), rows.column("_key"), target.packet))
        run.advance(cursor, after)

    target.transact(work)


def _read_key(text: str | None) -> Key | None:
    if text is None:
        return None
    key = tuple(map(str, json.loads(text)))
    if not all(map(LITERAL.fullmatch, key)):
        raise TargetError(f"the progress of the snapshot on the target was changed: {text!r} is not a key")
    return key


def _write_key(key: Key | None) -> str | None:
    return None if key is None else json.dumps(key)


def _taken_over(job: str) -> TargetError:
    return TargetError(
        f"the snapshot of job {job} was started again elsewhere, or its progress was removed from the target: only one"
        " may be taken under the name of a job"
    )


_JOB = "job VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
_NAME = "VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
_CHUNK = "job = %s AND source_schema = %s AND source_table = %s AND number = %s"
_SNAPSHOT = (
    f"{_JOB}, run BIGINT NOT NULL DEFAULT 1, position VARCHAR(1000) CHARACTER SET ascii NOT NULL,"
    " is_done BOOLEAN NOT NULL DEFAULT FALSE, PRIMARY KEY (job)"
)
_CHUNKS = (
    f"{_JOB}, source_schema {_NAME}, source_table {_NAME}, number INT NOT NULL, run BIGINT NOT NULL,"
    " after_key MEDIUMTEXT CHARACTER SET ascii, to_key MEDIUMTEXT CHARACTER SET ascii,"
    " last_key MEDIUMTEXT CHARACTER SET ascii, loaded BIGINT NOT NULL DEFAULT 0, is_done BOOLEAN NOT NULL DEFAULT"
    " FALSE, PRIMARY KEY (job, source_schema, source_table, number)"
)
