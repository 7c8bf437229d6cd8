"""How far a mirror has come, kept on the target, so that it is committed together with the changes.

The changes of a job are spread over buckets by their key. A bucket's progress is the place of the last change in it
that was applied. Between two micro-batches all buckets stand at the same place. While one is applied each moves on by
itself, and what is at or before its place is dropped when the micro-batch comes again.

    sluice_mirror     job, source_member | run | position | pos_file, pos_begin, pos_n, pos_row
    sluice_progress   job, source_member, bucket | run | batch | pos_file, pos_begin, pos_n, pos_row

``source_member`` is ``member`` of ``_pos``, empty for null: places of two members have no order. ``run`` counts the
starts of a job: tasks of an earlier one, of which some may still be at work somewhere, are refused. ``position`` is
where the source stood, which tells whether places can be compared at all. ``batch`` names the micro-batch that a bucket
has begun; it is NULL when that one is finished.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pymysql
from pymysql.constants import ER

from ...protocol.errors import TargetError
from ...protocol.identifiers import quote_name
from ...protocol.position import Position
from ...sql.database import reason
from ...sql.progress import create_tables
from ...sql.target import Target

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

BUCKETS = 64
"""Parts that the keys are spread over: that many tasks can apply changes at the same time."""

TABLES = ("sluice_mirror", "sluice_progress")

_PLACE = "pos_file, pos_begin, pos_n, pos_row"
_SET_PLACE = "pos_file = %s, pos_begin = %s, pos_n = %s, pos_row = %s"
_KEY = "job = %s AND source_member = ''"


class Place(NamedTuple):
    """Where a change stands among those of one member: ``_pos`` of the envelope without ``member``."""

    file: int
    begin: int
    n: int
    row: int


@dataclass(frozen=True, slots=True)
class Run:
    """One start of a job: what its tasks have to know to keep its progress."""

    schema: str
    """Of the tables of the progress."""
    job: str
    number: int

    def places(self, cursor: "Cursor", buckets: Collection[int]) -> dict[int, Place]:
        """Return how far the buckets have come, and keep them locked to the end of the transaction.

        Raises:
            TargetError: another run has taken over.
        """
        cursor.execute(
            f"SELECT bucket, run, {_PLACE} FROM {quote_name(self.schema)}.sluice_progress"  # noqa: S608
            f" WHERE {_KEY} AND bucket IN ({_listed(buckets)}) ORDER BY bucket FOR UPDATE",
            (self.job,),
        )
        found = cursor.fetchall()
        if len(found) != len(buckets) or any(run != self.number for _, run, *_ in found):
            raise _taken_over(self.job)
        return {bucket: Place(*place) for bucket, _, *place in found}

    def advance(self, cursor: "Cursor", buckets: Collection[int], batch: str, place: Place) -> None:
        """Note how far the buckets have come within a micro-batch."""
        cursor.execute(
            f"UPDATE {quote_name(self.schema)}.sluice_progress SET batch = %s, {_SET_PLACE}"  # noqa: S608
            f" WHERE {_KEY} AND bucket IN ({_listed(buckets)})",
            (batch, *place, self.job),
        )


class Progress:
    """The progress of a job, as the driver keeps it between the micro-batches of a run."""

    def __init__(self, target: Target, schema: str, job: str) -> None:
        """``schema`` is that of the tables of the progress, which are made when they are not there."""
        self._target = target
        self._schema = schema
        self._job = job
        self._mirror = f"{quote_name(schema)}.sluice_mirror"
        self._progress = f"{quote_name(schema)}.sluice_progress"
        self._run = 0

    def start(self) -> Run:
        """Begin a run; those before it are over.

        Raises:
            TargetError: the tables cannot be made or written.
        """
        tables = {"sluice_mirror": _MIRROR, "sluice_progress": _PROGRESS}
        self._target.transact(lambda it: create_tables(it, self._target.database, self._schema, tables))
        self._target.transact(self._add_members)
        self._run = self._target.transact(self._begin_run)
        return Run(self._schema, self._job, self._run)

    def is_source(self, position: Position) -> bool:
        """Whether the target is the server that a position belongs to, as far as they tell."""

        def work(cursor: "Cursor") -> bool:
            cursor.execute("SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_uuid', 'server_id')")
            found = dict(cursor.fetchall())
            return position.is_of(str(found.get("server_uuid", found["server_id"])))

        return self._target.transact(work)

    def begin(self, batch: str, position: Position) -> None:
        """Begin a micro-batch. ``batch`` is the same whenever the changes are; ``position`` is before them.

        When another one is unfinished, all buckets go back to where the last finished one ended, for this one may end
        elsewhere. Changes that were applied are then applied again, which leaves each row as its last change says.

        Raises:
            TargetError: another run has taken over, or the changes come from another source, or another history of it.
        """

        def work(cursor: "Cursor") -> None:
            known, *place = self._locked(cursor, f"position, {_PLACE}")
            if known is not None and not position.is_comparable(Position.parse(known)):
                raise TargetError(
                    f"job {self._job} has mirrored up to {known}, and the changes now come from {position}: from"
                    " another source, or one whose binlog was reset (RESET MASTER, a restored backup). Load the"
                    " target again, or make sure that it is as the source was there; then go on under another job name"
                )
            cursor.execute(
                f"SELECT COUNT(*) FROM {self._progress} WHERE {_KEY} AND batch <> %s",  # noqa: S608
                (self._job, batch),
            )
            if cursor.fetchall()[0][0]:
                self._move(cursor, Place(*place))

        self._target.transact(work)

    def finish(self, place: Place, position: Position) -> None:
        """Note that everything up to a place is applied; ``position`` as at the begin.

        Raises:
            TargetError: another run has taken over.
        """

        def work(cursor: "Cursor") -> None:
            self._locked(cursor, "job")
            self._move(cursor, place)
            cursor.execute(
                f"UPDATE {self._mirror} SET position = %s, {_SET_PLACE} WHERE {_KEY}",  # noqa: S608
                (str(position), *place, self._job),
            )

        self._target.transact(work)

    def _add_members(self, cursor: "Cursor") -> None:
        """Have the tables of a job that began without members go on as those of a source of one."""
        for table, key in ((self._mirror, _MIRROR_KEY), (self._progress, _PROGRESS_KEY)):
            cursor.execute(f"SHOW COLUMNS FROM {table} LIKE 'source_member'")
            if cursor.fetchall():
                continue
            try:
                cursor.execute(f"ALTER TABLE {table} ADD COLUMN {_MEMBER} AFTER job, DROP PRIMARY KEY, ADD {key}")
            except pymysql.MySQLError as error:
                if error.args[0] == ER.DUP_FIELDNAME:  # another job has just done it
                    continue
                raise TargetError(
                    f"{self._target.database} cannot keep the progress: {reason(error)}. {table} was made by an earlier"
                    " version: let the account alter it, or start the mirror once with an account that may"
                ) from error

    def _begin_run(self, cursor: "Cursor") -> int:
        cursor.execute(
            f"INSERT INTO {self._mirror} (job) VALUES (%s) ON DUPLICATE KEY UPDATE run = run + 1",  # noqa: S608
            (self._job,),
        )
        cursor.execute(f"SELECT run FROM {self._mirror} WHERE {_KEY}", (self._job,))  # noqa: S608
        run = int(cursor.fetchall()[0][0])
        cursor.execute(f"UPDATE {self._progress} SET run = %s WHERE {_KEY}", (run, self._job))  # noqa: S608
        cursor.execute(f"SELECT COUNT(*) FROM {self._progress} WHERE {_KEY}", (self._job,))  # noqa: S608
        if not cursor.fetchall()[0][0]:
            rows = ",".join(f"(%s, {bucket}, {run})" for bucket in range(BUCKETS))
            cursor.execute(f"INSERT INTO {self._progress} (job, bucket, run) VALUES {rows}", (self._job,) * BUCKETS)  # noqa: S608
        return run

    def _locked(self, cursor: "Cursor", columns: str) -> tuple[Any, ...]:
        """Return columns of the job, which no other run writes now."""
        cursor.execute(f"SELECT run, {columns} FROM {self._mirror} WHERE {_KEY} FOR UPDATE", (self._job,))  # noqa: S608
        found = cursor.fetchall()
        if not found or found[0][0] != self._run:
            raise _taken_over(self._job)
        return tuple(found[0][1:])

    def _move(self, cursor: "Cursor", place: Place) -> None:
        cursor.execute(
            f"UPDATE {self._progress} SET batch = NULL, {_SET_PLACE} WHERE {_KEY}",  # noqa: S608
            (*place, self._job),
        )


def _taken_over(job: str) -> TargetError:
    return TargetError(
        f"the job {job} was started again elsewhere, or its progress was removed from the target: only one query may"
        " mirror under the name of a job"
    )


def _listed(buckets: Collection[int]) -> str:
    return ",".join(map(str, sorted(buckets)))


_JOB = "job VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
_PLACES = ", ".join(f"{name} BIGINT NOT NULL DEFAULT 0" for name in _PLACE.split(", "))
_MEMBER = "source_member VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT ''"
_MIRROR_KEY, _PROGRESS_KEY = "PRIMARY KEY (job, source_member)", "PRIMARY KEY (job, source_member, bucket)"
_MIRROR = (
    f"{_JOB}, {_MEMBER}, run BIGINT NOT NULL DEFAULT 1, position VARCHAR(1000) CHARACTER SET ascii, {_PLACES},"
    f" {_MIRROR_KEY}"
)
_PROGRESS = f"{_JOB}, {_MEMBER}, bucket INT, run BIGINT NOT NULL, batch VARCHAR(200), {_PLACES}, {_PROGRESS_KEY}"
