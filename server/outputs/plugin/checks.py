"""What can be said of an output of another package without asking the other side."""

from collections.abc import Collection

from ....protocol.errors import ConfigError
from ....protocol.formats import FORMATS
from ..api import RECORDS
from ..forms.registry import check_records, configured_form, rules_of
from ..forms.settings import RecordSettings
from ..routing import Having, Name, Router
from ..settings import OnRefused, Output
from ..target import Complaints
from .kind import kind_of


def complaints(output: Output) -> Complaints:
    """See `Checks.complaints`."""
    settings, kind = output.settings, kind_of(output.settings.type)
    if isinstance(settings, RecordSettings) and kind.format == RECORDS:
        if configured_form(output, settings).is_for_kafka:
            raise ConfigError(f"{output}: format {settings.form} is for outputs to Kafka only")
        check_records(output, settings)
    elif kind.format not in {it.name for it in FORMATS if it.is_installed}:
        raise ConfigError(
            f"{output}: its package asks for the format {kind.format[:100]!r}, which is unknown or not installed"
        )
    elif settings.on_refused is OnRefused.SKIP:
        raise ConfigError(
            f"{output}: sluice.output.{output.name}.onRefused = skip cannot be used with type {settings.type}, which"
            " takes whole batches"
        )
    return Complaints([], [])


def doubts(output: Output, tables: Collection[Name], having: Having) -> list[str]:
    """See `Checks.doubts`."""
    settings = output.settings
    if isinstance(settings, RecordSettings):
        return Router(rules_of(output, settings)).doubts(tables, having)
    return []
