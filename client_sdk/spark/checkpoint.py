"""The checkpoint of a query, which Spark keeps."""

import json
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def committed(spark: "SparkSession", path: str) -> str | None:
    """Return the position up to which a query that reads nothing but one of our streams has committed; None: nothing.

    Spark reads the files, so they may be where only Spark gets at them.
    """
    try:
        numbers = spark.read.text(f"{path}/commits").selectExpr("max(CAST(_metadata.file_name AS BIGINT))").first()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return None
    if numbers is None or numbers[0] is None:
        return None
    (log,) = spark.read.text(f"{path}/offsets/{numbers[0]}", wholetext=True).collect()
    return str(json.loads(log[0].splitlines()[-1])["position"])
