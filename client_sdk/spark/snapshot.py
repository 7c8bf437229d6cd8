"""A snapshot, then the stream: a target gets a copy of the tables, and then the changes since the copy was begun.

First the place is held where the changes will begin, then the tables are read in parts while they go on changing. A
row that changed after it was read, or before but after that place, comes again with the changes, whose last image of a
row is what counts. So when the changes are applied up to where the source was at the end of the copy, the target is as
the source was there.

The parts are read, and seen to be visible, by the rules of a client's snapshot (`login.tables`, `login.visibility`).
What differs is the window: executors read parts at the same time and write them to the target by themselves, so no
stream has a place for them, in which the rows that change meanwhile would be left out. Changes come over them instead.
"""

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pymysql

from ...login.tables import KeyRange, SnapshotTable, estimate
from ...login.visibility import wait_until_visible
from ...protocol.errors import BadParameterError, SourceError, TargetError
from ...protocol.position import Position
from ...sql.database import Database, reason
from ...sql.target import RETRY, Target
from ..client import Client
from . import keyranges
from .apply import copy_of
from .loading import TABLES, Chunk, Progress, Run, load, prepare
from .options import Options
from .progress import TABLES as TABLES_OF_MIRROR
from .progress import Progress as ProgressOfMirror
from .ranges import Envelope, place_of_one
from .subscription import Subscription
from .tables import database_of, describe_all, split_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

LOOK: Final = 0.5
"""Seconds between two looks at whether to stop."""
START: Final = 15.0
"""Seconds for which a target out of reach is tried before anything is done."""


@dataclass(slots=True)
class Loaded:
    """How far a snapshot is."""

    tables: int
    tables_done: int = 0
    chunks_done: int = 0
    rows: int = 0
    """That are loaded, by earlier runs, too."""
    expected: int = 0
    """Rows of all tables: an estimate of the source, when it was asked."""
    of_this_run: int = 0
    since: float = field(default_factory=time.monotonic)

    @property
    def rows_per_second(self) -> float:
        """Of this run."""
        return self.of_this_run / max(time.monotonic() - self.since, 0.001)

    def __str__(self) -> str:
        return (
            f"{self.tables_done} of {self.tables} tables, {self.chunks_done} chunks, {self.rows:,} of about"
            f" {max(self.expected, self.rows):,} rows, {self.rows_per_second:,.0f} rows/s"
        )


Report = Callable[[Loaded], None]


def load_snapshot(
    spark: "SparkSession",
    target: Database,
    options: Mapping[str, Any],
    *,
    job: str | None = None,
    schemas: Mapping[str, str] | None = None,
    progress: str = "sluice",
    tasks: int | None = None,
    overwrite: bool = False,
    report: Report | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> str | None:
    """Copy the tables of a destination to another server; `start_mirror` with the same job then applies the changes.

    The client id is subscribed first, at the source's present end unless it is already; changes wait there until the
    mirror is started. The tables have to be on the target, with the same columns and primary keys, and empty. When it
    ends early, by whatever, the next call with the same job goes on after the last rows that were loaded. After it is
    complete a call returns at once. A table must not be altered meanwhile.

    Args:
        spark: the session.
        target: the server and an account that may write its tables.
        options: of the source, as for `start_mirror`, and of the reading of its tables: ``snapshot``,
            ``snapshotPassword`` or ``snapshotPasswordFile``, ``snapshotRows``, ``maxRowsPerSecond`` (docs/spark.md).
        job: name of the progress, the same as for `start_mirror`: ``destination/clientId`` when not given.
        schemas: under which name a schema of the source stands on the target, where that is another one.
        progress: schema on the target for the tables of the progress; it is made when it is not there.
        tasks: that load at the same time, each over a connection to both sides; as Spark has cores when not given.
        overwrite: empty the tables of the target before they are loaded.
        report: gets how far the snapshot is whenever a chunk is done; else it is logged now and then.
        stop: asked twice a second; the snapshot ends when it is true, and goes on with the next call.

    Returns:
        The position where the changes begin; None when it was stopped before it was complete.

    Raises:
        BadParameterError: an option cannot be used.
        SourceError: the database refuses, or stays out of reach.
        TargetError: the target refuses, stays out of reach, or its tables do not fit.
    """
    parsed = Options.parse({name: str(value) for name, value in options.items()})
    if parsed.table is not None:
        raise BadParameterError("a snapshot for a mirror has all tables that pass the `filter`", "table")
    source = database_of(parsed)
    job = job or f"{parsed.destination}/{parsed.client_id}"
    keeper = Target(target, retry=START)
    try:
        with closing(Subscription(parsed, Envelope())) as subscription:
            client = subscription.open("latest" if parsed.starting_position is None else parsed.starting_position)
            position = place_of_one(subscription.begin())
            kept = Progress(keeper, progress, job)
            run = kept.start(str(position))
            keeper.retry = RETRY
            if run.is_done:
                return run.position
            _check_cursor(position, run)
            is_source = ProgressOfMirror(keeper, progress, job).is_source(position)
            names = _tables(client, parsed.filter)
        snapshot = _Snapshot(spark, source, keeper, kept, run, parsed, tasks, schemas or {}, is_source=is_source)
        if not snapshot.load(describe_all(source, names), overwrite=overwrite, report=report or _Log(), stop=stop):
            return None
        kept.finish(run)
        return run.position
    finally:
        keeper.close()


def _check_cursor(position: Position, run: Run) -> None:
    begin = Position.parse(run.position)
    if not begin.same_history(position) or position > begin:
        raise TargetError(
            f"the snapshot of job {run.job} was begun at {begin}, but its client id stands at {position}: changes in"
            " between were confirmed, and the copy would lack them. Start over with another job and another client id,"
            " on empty tables"
        )


def _tables(client: Client, wanted: str | None) -> list[tuple[str, str]]:
    found = [split_name(name) for name in client.tables(wanted if wanted is not None else client.status()["filter"])]
    found = [name for name in found if name[1] not in (*TABLES, *TABLES_OF_MIRROR)]
    if not found:
        raise BadParameterError("the source has no table that passes the filters of destination and client", "filter")
    return found


class _StoppedError(Exception):
    """Somebody wants the snapshot to stop."""


class _Log:
    """Logs how far a snapshot is, twice a minute."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, loaded: Loaded) -> None:
        if time.monotonic() > self._next:
            self._next = time.monotonic() + 30
            logger.info("snapshot: %s", loaded)


class _Snapshot:
    """The driver's side: cuts tables, and has the chunks loaded by jobs of one task each."""

    def __init__(
        self,
        spark: "SparkSession",
        source: Database,
        target: Target,
        progress: Progress,
        run: Run,
        options: Options,
        tasks: int | None,
        schemas: Mapping[str, str],
        *,
        is_source: bool,
    ) -> None:
        self._context = spark.sparkContext
        self._source = source
        self._target = target
        self._progress = progress
        self._run = run
        self._rows = options.snapshot_rows
        self._tasks = tasks or self._context.defaultParallelism
        self._rate = options.max_rows_per_second and options.max_rows_per_second / self._tasks
        self._schemas = schemas
        self._is_source = is_source
        self._tag = f"sluice-snapshot-{uuid.uuid4()}"
        self._running: dict[Future[int], SnapshotTable] = {}
        self._open: dict[SnapshotTable, int] = {}
        """Chunks that are not loaded, and one more while the table is cut."""

    def load(self, tables: list[SnapshotTable], *, overwrite: bool, report: Report, stop: Callable[[], bool]) -> bool:
        """Load the tables; false when it was stopped. Chunks are cut a little ahead of the tasks that load them."""
        known = {table: self._progress.chunks((table.schema, table.name)) for table in tables}
        for table, chunks in known.items():
            prepare(self._target, table, self._copy(table), is_begun=bool(chunks), overwrite=overwrite)
        loaded = Loaded(len(tables), expected=self._expect(tables))
        for chunk in (chunk for chunks in known.values() for chunk in chunks):
            loaded.rows += chunk.loaded
            loaded.chunks_done += chunk.is_done
        pool = ThreadPoolExecutor(self._tasks, "sluice-snapshot")
        try:
            for table in tables:
                self._open[table] = 1
                for chunk in self._chunks(table, known[table]):
                    self._open[table] += 1
                    self._running[pool.submit(self._run_task, table, chunk)] = table
                    while len(self._running) >= 2 * self._tasks:
                        self._collect(loaded, report, stop)
                self._close(table, loaded, report)
            while self._running:
                self._collect(loaded, report, stop)
        except _StoppedError:
            return False
        finally:
            self._context.cancelJobsWithTag(self._tag)
            pool.shutdown(cancel_futures=True)
        return True

    def _collect(self, loaded: Loaded, report: Report, stop: Callable[[], bool]) -> None:
        """Wait a moment for chunks that are loaded."""
        done, _ = wait(self._running, LOOK, return_when=FIRST_COMPLETED)
        if stop():
            raise _StoppedError
        for future in done:
            table, rows = self._running.pop(future), future.result()
            loaded.rows += rows
            loaded.of_this_run += rows
            loaded.chunks_done += 1
            self._close(table, loaded, report)

    def _close(self, table: SnapshotTable, loaded: Loaded, report: Report) -> None:
        self._open[table] -= 1
        loaded.tables_done += not self._open[table]
        report(loaded)

    def _copy(self, table: SnapshotTable) -> tuple[str, str]:
        return copy_of((table.schema, table.name), self._schemas, is_source=self._is_source)

    def _chunks(self, table: SnapshotTable, known: list[Chunk]) -> Iterator[Chunk]:
        """Give what is not loaded of a table, first what was cut before."""
        yield from (chunk for chunk in known if not chunk.is_done)
        if known and known[-1].part.to is None:
            return
        parts = keyranges.ranges(self._source, table, self._rows, known[-1].part.to if known else None)
        for number, part in enumerate(parts, len(known)):
            chunk = Chunk((table.schema, table.name), number, part)
            self._progress.add(self._run, chunk)
            yield chunk

    def _expect(self, tables: Iterable[SnapshotTable]) -> int:
        """Look at the source: that it shows all that stands before the position, and about how many rows it has."""
        with closing(keyranges.connect(self._source)) as session:
            try:
                wait_until_visible(session, Position.parse(self._run.position))
                return sum(estimate(session, table, KeyRange()) for table in tables)
            except (pymysql.MySQLError, OSError) as error:
                raise SourceError(f"{self._source} refuses: {reason(error)}") from error

    def _run_task(self, table: SnapshotTable, chunk: Chunk) -> int:
        """Load a chunk by a job of one task, in a thread that waits for it."""
        task = _Task(self._source, self._target.database, self._run, chunk, table, self._copy(table), self._rate)
        self._context.addJobTag(self._tag)
        [(rows, error)] = self._context.parallelize([task], 1).map(_Task.load).collect()
        if error is not None:
            raise error
        return rows


@dataclass(frozen=True, slots=True)
class _Task:
    """Loads a chunk, in an executor."""

    source: Database
    target: Database
    run: Run
    chunk: Chunk
    table: SnapshotTable
    copy: tuple[str, str]
    rate: float | None

    def load(self) -> tuple[int, SourceError | TargetError | None]:
        """Return how many rows were loaded, or what went wrong: raised here, Spark would only try it again."""
        with closing(Target(self.target)) as target:
            try:
                return load(self.source, target, self.run, self.chunk, self.table, self.copy, rate=self.rate), None
            except (SourceError, TargetError) as error:
                return 0, type(error)(str(error))
