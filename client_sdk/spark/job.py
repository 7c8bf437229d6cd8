"""A job: a function for each batch of changes, where a stream would be too much."""

import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from ...protocol.errors import BadParameterError, ConnectionLostError, SluiceError
from ..batch import Range
from ..client import Client
from .options import Options
from .ranges import Form, Typed, advised, form_of
from .subscription import PATIENCE, POLL, Subscription

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)


class SubscriptionJob:
    """Gives a function one batch of changes after the other, and acknowledges each when the function is done with it.

    A batch is a range of the stream. The driver only marks it on the server and never has its rows: Spark's executors
    fetch them when the function does something with the DataFrame. Batches are marked ahead, and acknowledged strictly
    in the order of their marks::

        job = SubscriptionJob(spark, {"destination": "shop", "clientId": 2001})
        signal.signal(signal.SIGTERM, lambda *_: job.stop())
        job.run(lambda batch, changes: changes.write.mode("append").parquet("/data/changes"))

    Every change comes at least once. What was not acknowledged when a function failed, or a driver died, is in the
    first batch of the next run, which begins at the same place but may end later. So the example may write rows twice.
    To see each change exactly once, store ``batch.to`` together with the results, all or nothing, and begin the next
    run there::

        job.run(process, after=stored)

    A batch without rows for the client starts no Spark job: a DDL, or what its filter leaves out.
    """

    def __init__(self, spark: "SparkSession", options: Mapping[str, Any], *, prefetch: int = 2) -> None:
        """Prepare; nothing is sent yet.

        Args:
            spark: the session.
            options: those of the source (docs/spark-reference.md): ``url``, ``destination``, ``clientId``, ``filter``,
                ``table``; ``maxRowsPerTrigger`` and ``maxBytesPerTrigger`` limit a batch.
            prefetch: how many batches are marked beyond the one in work.

        Raises:
            BadParameterError: an option is unknown, or its value cannot be used.
        """
        self._spark = spark
        self._given = {name: str(value) for name, value in options.items()}
        self._options = Options.parse(self._given)
        if self._options.from_ is not None or self._options.to is not None:
            raise BadParameterError("a job takes no options from and to: see `after` of its run", "from")
        self._prefetch = prefetch
        self._stopping = False

    def stop(self) -> None:
        """Have `run` return when the batch in work is done; from any thread, or a handler of a signal."""
        self._stopping = True

    def run(
        self,
        process: "Callable[[Range, DataFrame], object]",
        *,
        once: bool = False,
        after: str | None = None,
    ) -> None:
        """Call ``process(batch, changes)`` for batch after batch, until `stop`.

        ``batch`` is the range: ``from_``, ``to``, ``rows``, ``bytes``, ``partial``. ``changes`` is a DataFrame of its
        rows, in no order; each action reads them again, and always the same. When the function raises, all that is
        marked is given back, and the error leaves this method; the next run begins where the batch did.

        Args:
            process: the function.
            once: return when everything is done that the source has now.
            after: the position where to begin, such as ``batch.to`` of the last batch that is known to be done; what
                is before it is acknowledged with the first batch. None: after the last batch acknowledged.

        Raises:
            StaleSessionError: another job or query was started with the same ``clientId``.
            PurgedError, GoneError, ReshapedError, SourceChangedError: what comes next is not there any more.
            DecodeError: rows are missing, and ``onMarker`` is ``fail``.
            SchemaMismatchError: the ``table`` was changed. The next run has its new columns.
            ConnectionLostError: the server stays out of reach.
            SluiceError: anything else that the server refuses.
        """
        with advised():
            form = form_of(self._options)
            subscription = Subscription(self._options, form)
            begin = subscription.begin()
            client = subscription.open()
            until = client.latest() if once else None
        limits = MicroBatchLimits(until, self._options.max_rows_per_trigger, subscription.max_bytes)
        try:
            with Marks(client, after or begin, limits, self._prefetch) as marks:
                deadline = time.monotonic() + PATIENCE
                while not self._stopping:
                    batch = marks.next()
                    if batch.rows:
                        self._process(process, form, batch)
                    with advised():
                        if batch.entries:
                            if not batch.rows:
                                subscription.look_at(batch)
                            subscription.ack(batch.to, durable=True)
                        if once and batch.reached:
                            break
                        if batch.to != batch.from_:
                            deadline = time.monotonic() + PATIENCE
                        elif once:
                            subscription.wait(deadline)
        finally:
            self._stopping = False
            if not isinstance(sys.exception(), ConnectionLostError):
                _give_back(client)
            subscription.close()

    def _process(self, process: "Callable[[Range, DataFrame], object]", form: Form, batch: Range) -> None:
        begin = time.monotonic()
        reader = self._spark.read.format("sluice").options(**self._given, **_pinned(form))
        try:
            process(batch, reader.options(**{"from": batch.from_, "to": batch.to}).load())
        except BaseException as error:
            error.add_note(
                f"The batch from {batch.from_} to {batch.to} is not acknowledged: the next run of the job begins where"
                " it did. Results of it that are stored already are stored again then, if the function allows it."
            )
            raise
        logger.info("%d rows up to %s done in %.1f s", batch.rows, batch.to, time.monotonic() - begin)


@dataclass(frozen=True, slots=True)
class MicroBatchLimits:
    """What a micro-batch has at most."""

    until: str | None
    rows: int | None
    bytes: int


class Marks:
    """Marks ranges one after the other, by a thread, so that some are there before they are asked for."""

    def __init__(self, client: Client, place: str, limits: MicroBatchLimits, prefetch: int) -> None:
        """Prepare; ``prefetch`` ranges are marked beyond the one that was asked for last."""
        self._client = client
        self._place = place
        self._limits = limits
        self._pool = ThreadPoolExecutor(1, "sluice-marks")
        self._pending: deque[Future[Range]] = deque()
        self._prefetch = prefetch

    def __enter__(self) -> Self:
        while len(self._pending) <= self._prefetch:
            self._pending.append(self._pool.submit(self._mark))
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def next(self) -> Range:
        """Return the next range, an empty one when nothing came; raises what stands in its way."""
        found = self._pending.popleft().result()
        self._pending.append(self._pool.submit(self._mark))
        return found

    @advised()
    def _mark(self) -> Range:
        limits = self._limits
        found = self._client.position(
            self._place, until=limits.until, timeout=POLL, max_rows=limits.rows, max_bytes=limits.bytes
        )
        self._place = found.to
        return found


def _pinned(form: Form) -> dict[str, str]:
    """Return the options that keep the columns of all batches the same, whatever the table has meanwhile."""
    if not isinstance(form, Typed):
        return {}
    columns = ", ".join(f"`{name.replace('`', '``')}` {type_}" for name, type_ in form.columns)
    return {"columns": columns, "timeZone": form.time_zone}


def _give_back(client: Client) -> None:
    try:
        client.rollback()
    except SluiceError as error:  # the next run begins at the last ack all the same
        logger.warning("what was marked ahead could not be given back: %s", error)
