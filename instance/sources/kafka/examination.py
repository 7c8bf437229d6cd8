"""What the commands ask a topic without starting anything."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from ....login.topic import Topic
from ....protocol.errors import SluiceError
from ....store.cursor import Cursor
from ..examination import ServerlessExamination
from .config import TopicConfig
from .start import RecordFinder, TopicFinder


class KafkaExamination(ServerlessExamination):
    """A connection to the brokers: see `sluice.instance.source.Examination`."""

    finder: ClassVar[type[TopicFinder]] = RecordFinder

    def __init__(self, config: TopicConfig) -> None:
        """Prepare. Raises SourceError when a setting is wrong."""
        self._config: TopicConfig = config
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

    def tables(self, column: str = "") -> list[tuple[str, str]]:
        """A topic does not say which tables it will have."""
        del column
        return []

    def find(self, place: Cursor | None) -> str:
        """See `sluice.instance.source.Examination.find`."""
        found = self.finder(self._topic, self._config).find(place)
        return f"{self._topic}, offset {found.offset}, after the commit_ts {found.commit_ts}"

    def refused(self, places: Sequence[Cursor | None]) -> Mapping[Cursor | None, SluiceError]:
        """See `sluice.instance.source.Examination.refused`."""
        start, refused = self.finder(self._topic, self._config).find_first(places)
        if start is None:
            raise next(iter(refused.values()))
        return refused
