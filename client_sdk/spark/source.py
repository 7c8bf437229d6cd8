"""The data source ``sluice``."""

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sluice.client_sdk.spark.options import Options
from sluice.client_sdk.spark.reader import BatchReader, StreamReader
from sluice.protocol.arrow import EnvelopeDecoder
from sluice.protocol.errors import BadParameterError


class SluiceDataSource(DataSource):
    """``spark.readStream.format("sluice")`` and, for a range, ``spark.read.format("sluice")``."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Read the options; nothing is sent yet."""
        self._options = Options.parse(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "sluice"

    def schema(self) -> StructType:
        """Return the columns: docs/arrow-types.md says what is in them."""
        return from_arrow_schema(EnvelopeDecoder().schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Make the reader of a stream."""
        del schema
        return StreamReader(self._options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of a range."""
        del schema
        from_, to = self._options.from_, self._options.to
        if from_ is None or to is None:
            raise BadParameterError("a batch needs the options from and to", "from" if from_ is None else "to")
        return BatchReader(self._options, from_, to)
