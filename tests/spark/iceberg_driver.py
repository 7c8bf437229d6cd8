"""A driver of an older Spark that keeps a table of Iceberg like one of the source: by MERGE, all that is there now.

python -m tests.spark.iceberg_driver '{"jar": …, "folder": …, "options": {…}}', whose last line is the table, as JSON
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from tests.spark.conftest import start_spark

TABLE = "lake.shop.goods"


def main() -> None:
    order = json.loads(sys.argv[1])
    folder = Path(order["folder"])
    spark = start_spark(
        **{
            "spark.jars": order["jar"],
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": f"{folder}/lake",
            "spark.sql.catalog.lake.cache-enabled": "false",  # foreachBatch writes in a session of its own
        }
    )
    spark.sql(f"CREATE TABLE IF NOT EXISTS {TABLE} (id INT, name STRING) USING iceberg")

    def merge(changes: DataFrame, _: int) -> None:
        changes.createOrReplaceTempView("changes")
        changes.sparkSession.sql(
            f"""
            MERGE INTO {TABLE} t
            USING (SELECT id, max_by(struct(_op, name), _pos) AS last FROM changes GROUP BY id) s ON t.id = s.id
            WHEN MATCHED AND s.last._op = 'DELETE' THEN DELETE
            WHEN MATCHED THEN UPDATE SET t.name = s.last.name
            WHEN NOT MATCHED AND s.last._op != 'DELETE' THEN INSERT (id, name) VALUES (s.id, s.last.name)
            """
        )

    stream = spark.readStream.format("sluice").options(**order["options"]).load()
    writer = stream.writeStream.foreachBatch(merge).option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    rows = spark.table(TABLE).orderBy("id").collect()
    spark.stop()
    print(json.dumps([list(row) for row in rows]))  # noqa: T201


if __name__ == "__main__":
    main()
