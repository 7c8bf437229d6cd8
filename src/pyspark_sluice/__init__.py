"""Where Spark looks for the data source: it registers `DefaultSource` of each module whose name begins so.

With this module on the driver's path `format("sluice")` needs no call before it.
"""

from sluice.client_sdk.spark import SluiceDataSource as DefaultSource

__all__ = ["DefaultSource"]
