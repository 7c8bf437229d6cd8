"""What can be said of an output to files without looking at its folder."""

from collections.abc import Collection

from ....protocol.errors import ConfigError
from ....protocol.formats.arrow import ARROW
from ..routing import Having, Name
from ..settings import OnRefused, Output
from ..target import Complaints
from .settings import FileFormat, FileSettings


def complaints(output: Output) -> Complaints:
    """See `Checks.complaints`."""
    if output.settings.on_refused is OnRefused.SKIP:
        raise ConfigError(
            f"{output}: sluice.output.{output.name}.onRefused = skip cannot be used with type file, which takes all"
        )
    assert isinstance(output.settings, FileSettings)
    if output.settings.form is FileFormat.PB and not output.has_transactions:
        raise ConfigError(
            f"{output}: format pb cannot be used with canal.instance.filter.transaction.entry, for its readers join the"
            " changes of a transaction"
        )
    if output.settings.form is FileFormat.PB and output.settings.late:
        raise ConfigError(f"{output}: format pb cannot be used with late = true: its readers need the order of places")
    if output.settings.form is FileFormat.PARQUET and not ARROW.is_installed:
        raise ConfigError(f"{output}: format parquet needs pyarrow: pip install 'sluice-cdc[arrow]'")
    return Complaints([], [])


def doubts(output: Output, tables: Collection[Name], having: Having) -> list[str]:
    """See `Checks.doubts`: every table has its place."""
    del output, tables, having
    return []
