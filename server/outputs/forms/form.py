"""What an output asks of a form."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from ....protocol.errors import ConfigError
from ..routing import Router
from ..settings import OnMarker, Output
from ..target import Prepared
from .encoding import KEY_TEXT, AnyEncoder
from .settings import Key, RecordSettings


class Subject(NamedTuple):
    """Whose rows a record has, as far as it says so."""

    schema: str
    table: str
    key: str = ""
    """Of its first row, as it is shown to people."""


class Progress:
    """How far an encoder is, and what of it is kept with the cursor."""

    def __init__(self) -> None:
        self.confirmed = ""
        """The state of the encoder at the cursor."""

    def restore(self, known: Mapping[str, Any], moved: str) -> None:
        """Continue as ``known``, what was kept with the cursor, says; ``moved``: how it was moved by hand since."""
        self.confirmed = "" if moved else known.get("state", "")

    def resume(self, state: str, server: str) -> str:
        """Return the state in which an encoder begins an attempt, with a batch that was read from ``server``."""
        del server
        return state

    def before(self, batches: Sequence[Prepared]) -> bool:
        """Take note of what is sent next; return whether that has to be kept before it is sent."""
        del batches
        return False

    def after(self, prepared: Prepared) -> None:
        """Take note of a batch that is confirmed."""
        self.confirmed = prepared.state

    def kept(self) -> dict[str, Any]:
        """Return what is kept with the cursor."""
        return {"state": self.confirmed} if self.confirmed else {}


class Form(ABC):
    """How an output lays changes into records."""

    takes_transactions: ClassVar[bool] = False
    """See `Target.takes_transactions`."""
    not_transactional: ClassVar[str] = ""
    """Why its readers cannot take what is written in transactions of the other side; empty if they can."""
    is_for_kafka: ClassVar[bool] = False
    """Its records depend on more than the batch: only outputs to Kafka keep that."""

    def check(self, output: Output, settings: RecordSettings) -> None:
        """Raise ConfigError for settings that it cannot follow."""
        if settings.cluster_id:
            raise ConfigError(f"{output}: sluice.output.{output.name}.clusterId belongs to format tidb")

    def topic(self, output: Output, settings: RecordSettings) -> str:
        """Return the topic where everything goes that no rule has another one for."""
        return settings.topic or output.destination

    @abstractmethod
    def encoder(self, settings: RecordSettings, router: Router, limit: int, *, strict: bool) -> AnyEncoder:
        """Make the encoder. ``limit``: bytes of a record; ``strict``: exactly as Canal's."""

    def begin_at(self, encoder: AnyEncoder, state: str, source: tuple[str, int]) -> None:
        """Let an encoder begin where another one was in this ``state``; ``source``: host and port that are read."""
        del source
        encoder.state = state

    def progress(self, settings: RecordSettings, shape: str, limit: int) -> Progress:
        """Make what says how far the encoder is; ``shape``: see `Output.shape`."""
        del settings, shape, limit
        return Progress()

    @abstractmethod
    def subject(self, value: bytes) -> Subject:
        """Say whose rows a record has, by its value."""


def asked_placement(settings: RecordSettings) -> dict[str, bool]:
    """Tell of each setting that says where records go, and which there are, whether it is used."""
    return {
        "dynamicTopic": settings.dynamic_topic != "",
        "partition": settings.partition != 0,
        "partitionHash": settings.partition_hash != "",
        "key": settings.key is not Key.NONE,
        "splitKeyUpdates": settings.split_key_updates,
        "statements": settings.statements,
    }


def check_whole(output: Output, settings: RecordSettings) -> None:
    """Raise ConfigError for what a form cannot follow whose only topic has whole transactions in their order."""
    unusable = {
        **asked_placement(settings),
        "late": settings.late,
        "onMarker = send": settings.on_marker is OnMarker.SEND,
    }
    refuse_settings(
        output,
        settings,
        unusable,
        "which has the transactions of the source, and nothing else, in partition 0 of one topic",
    )
    if not output.has_transactions:
        raise ConfigError(
            f"{output}: format {settings.form} needs the begins and ends of transactions: set"
            " canal.instance.filter.transaction.entry = false"
        )


def refuse_settings(output: Output, settings: RecordSettings, unusable: Mapping[str, bool], why: str) -> None:
    """Raise ConfigError when one of these keys is set, which the form cannot follow."""
    for key, is_set in unusable.items():
        if is_set:
            raise ConfigError(
                f"{output}: sluice.output.{output.name}.{key} cannot be used with format {settings.form}, {why}"
            )


def key_text(columns: Iterable[tuple[str, object]]) -> str:
    """Return a key as it is shown to people."""
    return ", ".join(f"{name}={value}" for name, value in columns)[:KEY_TEXT]
