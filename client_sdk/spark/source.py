"""The data source ``sluice``."""

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ...protocol.errors import BadParameterError
from . import tables
from .options import Options
from .ranges import Form, form_of
from .reader import BatchReader, StreamReader


class SluiceDataSource(DataSource):
    """``spark.readStream.format("sluice")`` and, for a range or a snapshot, ``spark.read.format("sluice")``."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Read the options; nothing is sent yet."""
        self._options = Options.parse(options)
        self._form: Form | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "sluice"

    def schema(self) -> StructType:
        """Return the columns, which docs/arrow-types.md describes; Spark asks once, when a stream is loaded."""
        self._form = form_of(self._options) if self._options.snapshot is None else tables.form_of(self._options)
        return from_arrow_schema(self._form.schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Make the reader of a stream."""
        if self._options.snapshot is not None:
            raise BadParameterError("a snapshot is read by spark.read, the changes by spark.readStream", "snapshot")
        if self._options.from_ is not None or self._options.to is not None:
            raise BadParameterError(
                "the options from and to are for a batch (spark.read): a stream resumes from its checkpoint, or from"
                " the cursor of its clientId; startingPosition is where a new one starts",
                "from" if self._options.from_ is not None else "to",
            )
        return StreamReader(self._options, self._checked_form(schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of a range or a snapshot."""
        if self._options.snapshot is not None:
            return tables.TableReader(self._options, self._checked_form(schema))
        from_, to = self._options.from_, self._options.to
        if from_ is None or to is None:
            raise BadParameterError(
                "a batch needs the options from and to, or snapshot", "from" if from_ is None else "to"
            )
        return BatchReader(self._options, self._checked_form(schema), from_, to)

    def _checked_form(self, schema: StructType) -> Form:
        if self._form is None or from_arrow_schema(self._form.schema) != schema:
            raise BadParameterError("the source has a schema of its own: leave out .schema(), or use option columns")
        return self._form
