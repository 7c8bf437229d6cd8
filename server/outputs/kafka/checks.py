"""What can be said of an output to Kafka without asking a broker."""

from collections.abc import Collection

from ....protocol.errors import ConfigError
from ..forms.registry import check_records, rules_of
from ..routing import Having, Name, Router
from ..settings import Output
from ..target import Complaints
from .settings import KafkaSettings
from .translation import translate


def complaints(output: Output) -> Complaints:
    """See `Checks.complaints`."""
    settings = output.settings
    assert isinstance(settings, KafkaSettings)
    form = check_records(output, settings)
    if settings.transactional and form.not_transactional:
        raise ConfigError(
            f"{output}: sluice.output.{output.name}.transactional cannot be used with format {settings.form}:"
            f" {form.not_transactional}"
        )
    translated = translate(output.library, output.folder)
    return Complaints(translated.unknown, translated.unlike)


def doubts(output: Output, tables: Collection[Name], having: Having) -> list[str]:
    """See `Checks.doubts`."""
    settings = output.settings
    assert isinstance(settings, KafkaSettings)
    return Router(rules_of(output, settings)).doubts(tables, having)
