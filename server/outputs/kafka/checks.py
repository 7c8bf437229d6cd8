"""What can be said of an output to Kafka without asking a broker."""

from collections.abc import Collection

from ....protocol.errors import ConfigError
from ..routing import Router, Rules
from ..settings import OnMarker, Output
from ..target import Complaints
from .settings import Form, KafkaSettings, Key, OnInvalidTopic
from .translation import translate


def rules_of(output: Output) -> Rules:
    """Return Canal's rules for topics and partitions."""
    settings = output.settings
    assert isinstance(settings, KafkaSettings)
    topic = settings.topic or (f"{settings.cluster_id}_obinlog" if settings.cluster_id else output.destination)
    return Rules(
        topic,
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
    Router(rules_of(output))
    _check_form(output)
    translated = translate(output.library, output.folder)
    return Complaints(translated.unknown, translated.unlike)


def doubts(output: Output, tables: Collection[tuple[str, str]]) -> list[str]:
    """See `Checks.doubts`."""
    return Router(rules_of(output)).doubts(tables)


def _check_form(output: Output) -> None:
    """Raise ConfigError for what a form that has whole transactions, in one order, cannot follow."""
    settings = output.settings
    assert isinstance(settings, KafkaSettings)
    own = f"sluice.output.{output.name}."
    if settings.cluster_id and settings.form is not Form.TIDB:
        raise ConfigError(f"{output}: {own}clusterId belongs to format {Form.TIDB.value}")
    if settings.form not in (Form.TDSQL, Form.TIDB):
        return
    if settings.form is Form.TIDB:
        _check_tidb(output, settings)
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
                f"{output}: {own}{key} cannot be used with format {settings.form.value}, which"
                " has the transactions of the source, and nothing else, in partition 0 of one topic"
            )
    if not output.has_transactions:
        raise ConfigError(
            f"{output}: format {settings.form.value} needs the begins and ends of transactions: set"
            " canal.instance.filter.transaction.entry = false"
        )


def _check_tidb(output: Output, settings: KafkaSettings) -> None:
    own = f"sluice.output.{output.name}."
    if not (settings.topic or settings.cluster_id):
        raise ConfigError(
            f"{output}: format tidb needs {own}clusterId, for the topic <clusterId>_obinlog, or {own}topic"
        )
    if settings.transactional:
        raise ConfigError(
            f"{output}: {own}transactional cannot be used with format tidb: TiDB's reader for Go waits 11 minutes for a"
            " record where Kafka has the end of a transaction"
        )
    if output.strict:
        raise ConfigError(
            f"{output}: format tidb cannot be used with canal.instance.parser.strictCanal, by which the rows of an XA"
            " transaction come before it is committed"
        )
