"""What the commands ask a topic without starting anything."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from ....login.topic import Topic
from ....protocol.errors import ConfigError, SluiceError
from ....store.cursor import Cursor
from ...quarantine import Item
from ...source import Report, Reread
from .config import KafkaConfig
from .start import find, find_first


class KafkaExamination:
    """A connection to the brokers: see `sluice.instance.source.Examination`."""

    unchecked_tls = ""

    def __init__(self, config: KafkaConfig) -> None:
        """Prepare. Raises SourceError when a setting is wrong."""
        self._config = config
        self._topic = Topic(config.brokers, config.topic, config.library_settings())

    @property
    def exposure(self) -> str:
        """See `sluice.instance.source.Examination.exposure`."""
        if self._config.security_protocol != "SASL_PLAINTEXT" or self._config.sasl_mechanism != "PLAIN":
            return ""
        return "the password goes to the brokers as it is: set sluice.instance.kafka.securityProtocol = SASL_SSL"

    @property
    def protection(self) -> str:
        """See `sluice.instance.source.Examination.protection`."""
        return "" if not self._config.sasl_username else self._config.security_protocol

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._topic.close()

    def check(self, *, is_replaced: bool) -> None:
        """See `sluice.instance.source.Examination.check`."""
        del is_replaced
        self._topic.bounds()

    def summary(self) -> str:
        """See `sluice.instance.source.Examination.summary`."""
        low, high = self._topic.bounds()
        return f"{self._config.place}, offsets from {low} to {high}"

    def advice(self) -> list[str]:
        """See `sluice.instance.source.Examination.advice`."""
        return []

    def tables(self) -> list[tuple[str, str]]:
        """A topic does not say which tables it will have."""
        return []

    def find(self, place: Cursor | None) -> str:
        """See `sluice.instance.source.Examination.find`."""
        found = find(self._topic, self._config, place)
        return f"{self._topic}, offset {found.offset}, after the commit_ts {found.commit_ts}"

    def refused(self, places: Sequence[Cursor | None]) -> Mapping[Cursor | None, SluiceError]:
        """See `sluice.instance.source.Examination.refused`."""
        start, refused = find_first(self._topic, self._config, places)
        if start is None:
            raise next(iter(refused.values()))
        return refused

    def shortage(self, configs: Sequence[Any]) -> str:
        """Any number of destinations may read a topic."""
        del configs
        return ""

    def reread(self, item: Item) -> Reread:
        """Refuse: nothing of a topic is put into quarantine."""
        raise self._refusal(f"decode {item.position} again")

    def compare(self, start: str | None, stop: str | None, advance: Callable[[str, int, int], None]) -> Report:
        """Refuse: there is no other decoder."""
        del start, stop, advance
        raise self._refusal("be compared with another decoder")

    def _refusal(self, what: str) -> ConfigError:
        return ConfigError(f"{self._config.destination}: {self._config.source_title} as a source cannot {what}")
