"""A driver of an older Spark that writes a table of Iceberg or Delta Lake from a stream: all that is there now.

python -m tests.spark.lake_driver '{"lake": "delta", "jars": …, "folder": …, "options": {…}, "work": "merge"}'

The last line that it prints is the table, as JSON. The work is `merge`, which keeps the table like that of the source;
or `append`, which adds every change; or `append as before`, without the `member` of `_pos`, as an earlier version did.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import start_spark

SETTINGS = {
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": "{folder}/lake",
        "spark.sql.catalog.lake.cache-enabled": "false",  # foreachBatch writes in a session of its own
    },
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
}
TABLES = {"iceberg": "lake.shop.goods", "delta": "delta.`{folder}/goods`"}
PLACES = {"iceberg": "pos", "delta": "_pos"}
"""The column of positions. Iceberg keeps `_pos` for itself, and cannot read a table that has it."""


def merge(spark: SparkSession, lake: str, table: str, stream: DataFrame) -> Any:
    """The writer of a stream that keeps a table like that of the source."""
    spark.sql(f"CREATE TABLE IF NOT EXISTS {table} (id INT, name STRING) USING {lake}")

    def write(changes: DataFrame, _: int) -> None:
        changes.createOrReplaceTempView("changes")
        changes.sparkSession.sql(
            f"""
            MERGE INTO {table} t
            USING (SELECT id, max_by(struct(_op, name), _pos) AS last FROM changes GROUP BY id) s ON t.id = s.id
            WHEN MATCHED AND s.last._op = 'DELETE' THEN DELETE
            WHEN MATCHED THEN UPDATE SET t.name = s.last.name
            WHEN NOT MATCHED AND s.last._op != 'DELETE' THEN INSERT (id, name) VALUES (s.id, s.last.name)
            """
        )

    return stream.writeStream.foreachBatch(write)


def append(stream: DataFrame, lake: str) -> Any:
    """The writer of a stream that adds every change."""
    return stream.withColumnRenamed("_pos", PLACES[lake]).writeStream.format(lake).outputMode("append")


def main() -> None:
    order = json.loads(sys.argv[1])
    folder, lake = Path(order["folder"]), order["lake"]
    settings = {key: value.format(folder=folder) for key, value in SETTINGS[lake].items()}
    spark = start_spark(**settings, **{"spark.jars": order["jars"]})
    table = TABLES[lake].format(folder=folder)
    for statement in order.get("before", ()):
        spark.sql(statement.format(table=table))
    stream = spark.readStream.format("sluice").options(**order["options"]).load()
    match order["work"]:
        case "merge":
            writer, order_by = merge(spark, lake, table, stream), "id"
        case "append":
            writer, order_by = append(stream, lake), PLACES[lake]
        case "append as before":
            writer = append(stream.withColumn("_pos", stream["_pos"].dropFields("member")), lake)
            order_by = PLACES[lake]
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    # A table of Delta Lake has a path, as there is no catalog that would outlive this process.
    query = writer.toTable(table) if lake == "iceberg" and order["work"] != "merge" else writer.start(f"{folder}/goods")
    query.awaitTermination()
    rows = spark.table(table).orderBy(order_by).select(*order.get("columns", ("id", "name"))).collect()
    spark.stop()
    print(json.dumps([list(row) for row in rows]))  # noqa: T201


if __name__ == "__main__":
    main()
