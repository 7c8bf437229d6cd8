"""Changes in Spark: ``spark.readStream.format("sluice")``, and jobs; needs ``sluice-cdc[spark]`` and Java 17."""

from .changelog import start_changelog
from .job import SubscriptionJob
from .source import SluiceDataSource

__all__ = ["SluiceDataSource", "SubscriptionJob", "start_changelog"]
