"""The change log: every change of a destination as a row in Parquet files, exactly once."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...protocol.errors import BadParameterError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARTITIONS = {
    "date": "date_from_unix_date(CAST(floor(unix_seconds(_ts) / 86400D) AS INT))",  # in UTC, whatever the session has
    "schema": "_schema",
    "table": "_table",
}
"""The folders of the files, and what names them."""


def start_changelog(
    spark: "SparkSession",
    path: str,
    checkpoint: str,
    options: Mapping[str, Any],
    *,
    once: bool = False,
    interval: float = 10.0,
) -> "StreamingQuery":
    """Start to write all changes to Parquet files, each exactly once, whatever is killed and started again.

    The files are in ``date=…/schema=…/table=…`` below ``path`` and have the columns of the envelope
    (docs/arrow-types.md). ``spark.read.parquet(path)`` gives those of all finished micro-batches, also while more are
    written; a reader of the folder by other means sees unfinished ones, too. To have the changes of a table in the
    order of the source, order by ``_pos``.

    Args:
        spark: the session.
        path: folder of the files, as Spark names folders; nothing else may be in it.
        checkpoint: folder where Spark remembers how far it came. Without it, begin with another ``path``.
        options: of the source: ``url``, ``destination``, ``clientId``, ``filter`` … (docs/spark-reference.md).
        once: stop when everything is written that the source has now.
        interval: seconds from the begin of a micro-batch to that of the next; each writes files of its own.

    Raises:
        BadParameterError: the option ``table`` is given: a change log holds all tables that pass the ``filter``.
    """
    if any(name.lower() == "table" for name in options):
        raise BadParameterError("a change log has the rows of all tables in one form: choose by `filter`", "table")
    changes = spark.readStream.format("sluice").options(**options).load()
    for name, expression in PARTITIONS.items():
        changes = changes.selectExpr("*", f"{expression} AS `{name}`")
    writer = changes.writeStream.format("parquet").partitionBy(*PARTITIONS).outputMode("append")
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{interval} seconds")
    return writer.option("checkpointLocation", checkpoint).queryName(f"changelog {path}").start(path)
