"""What can be said of an output to Kafka without asking a broker."""

from ....protocol.errors import ConfigError
from ..routing import Router, Rules
from ..settings import OnMarker, Output
from ..target import Complaints
from .settings import Form, KafkaSettings, Key
from .translation import translate


def rules_of(output: Output) -> Rules:
    """Return Canal's rules for topics and partitions."""
    settings = output.settings
    assert isinstance(settings, KafkaSettings)
    return Rules(
        settings.topic or output.destination,
        settings.dynamic_topic,
        settings.partition,
        settings.partitions,
        settings.partition_hash,
        settings.topic_partitions,
        settings.database_hash,
    )


def complaints(output: Output) -> Complaints:
    """See `Checks.complaints`."""
    Router(rules_of(output))
    _check_form(output)
    translated = translate(output.library, output.folder)
    return Complaints(translated.unknown, translated.unlike)


def _check_form(output: Output) -> None:
    """Raise ConfigError for what a form that has whole transactions, in one order, cannot follow."""
    settings = output.settings
    assert isinstance(settings, KafkaSettings)
    if settings.form is not Form.TDSQL:
        return
    unusable = {
        "dynamicTopic": settings.dynamic_topic != "",
        "partition": settings.partition != 0,
        "partitionHash": settings.partition_hash != "",
        "key": settings.key is not Key.NONE,
        "splitKeyUpdates": settings.split_key_updates,
        "statements": settings.statements,
        "late": settings.late,
        "onMarker = send": settings.on_marker is OnMarker.SEND,
    }
    for key, is_set in unusable.items():
        if is_set:
            raise ConfigError(
                f"{output}: sluice.output.{output.name}.{key} cannot be used with format {settings.form.value}, which"
                " has the transactions of the source, and nothing else, in partition 0 of one topic"
            )
    if not output.has_transactions:
        raise ConfigError(
            f"{output}: format {settings.form.value} needs the begins and ends of transactions: set"
            " canal.instance.filter.transaction.entry = false"
        )
