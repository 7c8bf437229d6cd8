"""Changes in Spark: ``spark.readStream.format("sluice")``, and jobs; needs ``sluice[spark]`` and Java 17."""

from sluice.client_sdk.spark.changelog import start_changelog
from sluice.client_sdk.spark.job import SubscriptionJob
from sluice.client_sdk.spark.source import SluiceDataSource

__all__ = ["SluiceDataSource", "SubscriptionJob", "start_changelog"]
