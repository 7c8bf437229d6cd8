"""What can be said of an output to Kafka without asking a broker."""

from ..routing import Router, Rules
from ..settings import Output
from ..target import Complaints
from .settings import KafkaSettings
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
    translated = translate(output.library, output.folder)
    return Complaints(translated.unknown, translated.unlike)
