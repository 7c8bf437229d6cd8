"""The mirror: the tables of a source kept alike in another MySQL or MariaDB server, each change exactly once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from ...protocol.errors import BadParameterError, SluiceError, TargetError
from ...protocol.position import Position
from ...sql.database import Database
from ...sql.target import RETRY, Target
from .apply import Applier
from .options import Options
from .progress import BUCKETS, Place, Progress, Run
from .ranges import place_of_one
from .shares import Share, ShareSource

if TYPE_CHECKING:
    from ..client import Client

START = 15.0
"""Seconds for which a target out of reach is tried before the query starts."""
REASON = 2000
"""Characters of what Spark says about a job that failed."""
RESULT = "place array<bigint>, error string"
"""What a task gives back."""


def start_mirror(
    spark: SparkSession,
    target: Database,
    checkpoint: str,
    options: Mapping[str, Any],
    *,
    job: str | None = None,
    schemas: Mapping[str, str] | None = None,
    progress: str = "sluice",
    tasks: int | None = None,
    once: bool = False,
    interval: float = 0.0,
) -> StreamingQuery:
    """Start to apply all changes to the tables of another server, each exactly once, whatever is killed and restarted.

    The tables have to be there, with the same columns and primary keys, and with the rows as they were where the
    changes begin. How far the mirror has come is kept on the target, in the same transactions as the rows, so that a
    lost checkpoint does no harm. Between two micro-batches the target is as the source was at one moment; within one,
    rows are written in any order. DDL is not applied: docs/spark.md says what to do.

    Args:
        spark: the session.
        target: the server and an account that may write its tables.
        checkpoint: folder where Spark remembers how far it came.
        options: of the source: ``url``, ``destination``, ``clientId``, ``filter`` … (docs/spark.md).
        job: name of the progress; two mirrors to one target need two names. ``destination/clientId`` when not given.
        schemas: under which name a schema of the source stands on the target, where that is another one.
        progress: schema on the target for the tables of the progress; it is made when it is not there.
        tasks: that write at the same time, each over a connection of its own; as Spark has cores when not given. Each
            reads all changes of a micro-batch and applies those of its keys.
        once: stop when everything is applied that the source has now.
        interval: seconds from the begin of a micro-batch to that of the next, at least.

    Raises:
        BadParameterError: an option cannot be used; a mirror takes all tables that pass the ``filter``, no ``table``.
        TargetError: the target is out of reach, or cannot keep the progress.
    """
    parsed = Options.parse({name: str(value) for name, value in options.items()})
    if parsed.table is not None:
        raise BadParameterError("a mirror has the rows of all tables in one form: choose by `filter`", "table")
    if tasks is None:
        tasks = spark.sparkContext.defaultParallelism
    name = f"{parsed.destination}/{parsed.client_id}"
    keeper = Target(target, retry=START)
    kept = Progress(keeper, progress, job or name)
    mirror = _Mirror(parsed, target, kept, kept.start(), dict(schemas or {}), max(1, min(tasks, BUCKETS)))
    keeper.retry = RETRY
    spark.dataSource.register(ShareSource)
    changes = spark.readStream.format(ShareSource.name()).options(**options, tasks=mirror.tasks).load()
    writer = changes.writeStream.foreachBatch(mirror.apply).option("checkpointLocation", checkpoint)
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{interval} seconds")
    return writer.queryName(f"mirror {name}").start()


class _Mirror:
    """A mirror's driver side."""

    def __init__(
        self,
        options: Options,
        database: Database,
        progress: Progress,
        run: Run,
        schemas: Mapping[str, str],
        tasks: int,
    ) -> None:
        self._options = options
        self._database = database
        self._progress = progress
        self._run = run
        self._schemas = schemas
        self.tasks = tasks
        self._client: Client | None = None
        self._zone = ""
        self._is_source = False

    def apply(self, changes: DataFrame, number: int) -> None:
        """Apply a micro-batch."""
        position = self._position()
        query = changes.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        batch = f"{query}/{number}"
        self._progress.begin(batch, position)
        task = Task(self._options, self._database, self._zone, self._run, self._schemas, self._is_source, batch)
        try:
            results = _map_in_arrow(changes.where("share IS NOT NULL"), task, RESULT).collect()
        except (Py4JError, PySparkException) as error:  # as long as it is, with two stacks, Spark fails to report it
            raise SluiceError(_shortened(str(error))) from None
        errors = {result.error for result in results if result.error is not None}
        if errors:
            raise TargetError(min(errors))
        if results:
            self._progress.finish(max(Place(*result.place) for result in results), position)

    def _position(self) -> Position:
        """Return the client's cursor, which is before the micro-batch; the first time, look at both sides."""
        if self._client is not None:
            return place_of_one(self._client.status()["position"])
        client = self._options.client()
        position = place_of_one(client.status()["position"])
        self._zone = self._options.time_zone or client.destination()["timeZone"] or "UTC"
        self._is_source = self._progress.is_source(position)
        self._client = client
        return position


def _map_in_arrow(frame: DataFrame, task: "Task", schema: str) -> DataFrame:
    """Do what `DataFrame.mapInArrow` does, which asks for pandas, of which nothing is used."""
    function = UserDefinedFunction(task, schema, "apply", PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = function(*(frame[name] for name in frame.columns))
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)  # noqa: SLF001


def _shortened(text: str) -> str:
    """Return the text of an error of Spark as one line, without Java's stack."""
    lines = [line.strip() for line in text.splitlines() if not line.startswith("\tat ")]
    return "a job of Spark failed: " + " ".join(filter(None, lines))[:REASON]


@dataclass(frozen=True)
class Task:
    """Applies the changes of some buckets, in an executor."""

    options: Options
    database: Database
    time_zone: str
    run: Run
    schemas: Mapping[str, str]
    is_source: bool
    batch: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give the place of the last change, or what went wrong; nothing when there are no changes."""
        for text in [text for batch in batches for text in batch["share"].to_pylist()]:
            changes = Share.parse(text).read(self.options)
            if changes is None:
                continue
            place, error = None, None
            try:
                place = self._applier().apply(changes, self.batch).place
            except TargetError as failure:  # raised here, Spark would try it again
                error = str(failure)
            yield pa.RecordBatch.from_pydict({"place": [place], "error": [error]}, _RESULT)

    def _applier(self) -> Applier:
        """Return that of this process, which lives on between tasks, as its connection does."""
        key = self.database, self.time_zone, self.run, tuple(self.schemas.items()), self.is_source
        if key not in _appliers:
            for _, (target, _) in list(_appliers.items()):
                target.close()
            _appliers.clear()
            target = Target(self.database, self.time_zone)
            _appliers[key] = target, Applier(target, self.run, self.schemas, is_source=self.is_source)
        return _appliers[key][1]


_RESULT = pa.schema([("place", pa.list_(pa.int64())), ("error", pa.string())])
_appliers: dict[object, tuple[Target, Applier]] = {}
