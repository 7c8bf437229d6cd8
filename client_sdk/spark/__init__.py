"""Changes in Spark: ``spark.readStream.format("sluice")``; needs ``sluice[spark]`` and Java 17."""

from sluice.client_sdk.spark.source import SluiceDataSource

__all__ = ["SluiceDataSource"]
