"""What can be said of an output to Kafka without asking a broker."""

from collections.abc import Collection

from ....protocol.errors import ConfigError
from ..forms.registry import FORMS
from ..forms.settings import OnInvalidTopic
from ..routing import Having, Name, Router, Rules
from ..settings import Output
from ..target import Complaints
from .settings import KafkaSettings
from .translation import translate


def rules_of(output: Output) -> Rules:
    """Return Canal's rules for topics and partitions."""
    settings = output.settings
    assert isinstance(settings, KafkaSettings)
    return Rules(
        FORMS[settings.form].topic(output, settings),
        settings.dynamic_topic,
        settings.partition,
        settings.partitions,
        settings.partition_hash,
        settings.topic_partitions,
        settings.database_hash,
        settings.on_invalid_topic is OnInvalidTopic.MAP,
    )


def complaints(output: Output) -> Complaints:
    """See `Checks.complaints`."""
    settings = output.settings
    assert isinstance(settings, KafkaSettings)
    Router(rules_of(output))
    form = FORMS[settings.form]
    form.check(output, settings)
    if settings.transactional and form.not_transactional:
        raise ConfigError(
            f"{output}: sluice.output.{output.name}.transactional cannot be used with format {settings.form.value}:"
            f" {form.not_transactional}"
        )
    translated = translate(output.library, output.folder)
    return Complaints(translated.unknown, translated.unlike)


def doubts(output: Output, tables: Collection[Name], having: Having) -> list[str]:
    """See `Checks.doubts`."""
    return Router(rules_of(output)).doubts(tables, having)
