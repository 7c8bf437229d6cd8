"""The topics that an output writes to: they are there, they fit, and they are those that they were."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.admin._topic import TopicDescription
from confluent_kafka.cimpl import NewTopic

from ..routing import Router
from ..target import DeliveryError, MissingError, RejectedError
from .errors import GONE, WAITING, meaning

logger = logging.getLogger(__name__)

ANSWER: Final = 1.0
"""Seconds that a broker may take to answer a question."""
ANSWERS: Final = 5
"""How often it is asked: the first connection takes longer."""
COMING: Final = 20
"""How often a topic is looked for that the brokers are making."""
MEMORY: Final = 4096
"""Bytes that are kept with the cursor, which is written again and again."""


class Topics:
    """Asks the brokers for topics. One thread calls it.

    A topic that an output has never sent to may be made by the brokers, as they are configured. One that it has sent to
    is not made again: consumers would miss what it held, unnoticed. A topic that was made again has another
    id, which is how it is told from the one that it was.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        router: Router,
        limit: int,
        pause: Callable[[], None],
        hear: Callable[[KafkaError], None],
    ) -> None:
        """``limit``: bytes of a request that a topic has to take.

        ``pause`` waits a moment, and raises what has happened meanwhile; ``hear`` is told of trouble.
        """
        self.ids: Mapping[str, str] = {}
        """What the ids of the topics were, to be kept with the cursor; the first of them if they are many."""
        self._config = config
        self._router = router
        self._limit = limit
        self._pause = pause
        self._hear = hear
        self._trouble = ""
        self._asker: AdminClient | None = None
        self._ids: dict[str, str] = {}
        self._present: set[str] = set()
        self._losses: list[str] = []

    def open(self, ids: Mapping[str, str] | None = None) -> None:
        """Look again whether topics are there; ``ids`` is what was kept with the cursor, None when that was moved."""
        self._asker = self._client()
        self._present.clear()
        self._ids = {} if ids is None else {**ids, **self._ids}
        self.ids = _first(self._ids)

    def close(self) -> None:
        """Leave the brokers."""
        self._asker = None

    def losses(self) -> list[str]:
        """Return, once, what was found to be lost."""
        found, self._losses = self._losses, []
        return found

    def require(self, topics: Iterable[str]) -> None:
        """See that topics are there and fit. Raises DeliveryError, RejectedError."""
        for topic in topics:
            if topic in self._router.wrong:
                raise RejectedError(self._router.wrong[topic])
            if topic not in self._present:
                self._require(topic)

    def fit(self, topic: str) -> str:
        """Say how a topic fits.

        Raises RejectedError when it does not, or is missing; MissingError when it is, and is made by the brokers;
        DeliveryError.
        """
        if self._asker is None:
            self.open()
        description = self.find(topic)
        if description is not None:
            return self._fit(description)
        if (partitions := self._made_with()) >= self._router.partitions(topic):
            raise MissingError(
                f"topic {topic} does not exist yet: the brokers make it when the output starts, with {partitions}"
                " partitions (auto.create.topics.enable)"
            )
        raise self._missing(topic)

    def _made_with(self) -> int:
        """Return how many partitions a topic has that the brokers make by themselves; 0 if they make none."""
        assert self._asker is not None
        try:
            brokers = self._asker.list_topics(timeout=ANSWER).brokers
            asked = [ConfigResource(ResourceType.BROKER, str(it)) for it in brokers]
            answers = [it.result(2 * ANSWER) for it in self._asker.describe_configs(asked).values()]
        except (KafkaException, TimeoutError):  # the user may not ask
            return 0
        makes = answers and all(str(it["auto.create.topics.enable"].value) == "true" for it in answers)
        return min(int(it["num.partitions"].value) for it in answers) if makes else 0

    def _require(self, topic: str) -> None:
        description = self.find(topic)
        if description is None and topic not in self._ids:
            description = self._made(topic)
        if description is None:
            raise self._missing(topic)
        self._fit(description)
        self.learn(description)

    def learn(self, description: TopicDescription) -> None:
        """Take a topic as it is for the one that is sent to from here on."""
        topic = description.name
        self._present.add(topic)
        identity = str(description.topic_id)
        if (former := self._ids.get(topic, identity)) != identity:
            self._losses.append(f"topic {topic} was deleted and made again: what it held is lost")
        if former != identity or topic not in self._ids:
            self._ids[topic] = identity
            self.ids = _first(self._ids)

    def make(self, topic: str, partitions: int, settings: dict[str, str]) -> TopicDescription:
        """Make a topic that is not there. Raises DeliveryError, RejectedError."""
        assert self._asker is not None
        new = NewTopic(topic, partitions, config=settings)
        try:
            self._asker.create_topics([new], request_timeout=ANSWER)[topic].result(2 * ANSWER)
        except TimeoutError:
            raise DeliveryError(f"topic {topic}: no broker answers") from None
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another output has made it
                raise self._meaning(error, topic) from None
        found = self._await(topic)
        if found is None:
            raise DeliveryError(f"topic {topic} is being made")
        return found

    def end(self, topic: str, partition: int) -> int:
        """Return the offset after all records of a partition, whether committed or not. Raises DeliveryError."""
        assert self._asker is not None
        place = TopicPartition(topic, partition)
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = self._asker.list_offsets({place: latest}, request_timeout=ANSWER)[place]
        try:
            offset = int(asked.result(2 * ANSWER).offset)
        except TimeoutError:
            offset = OFFSET_INVALID
        except KafkaException as error:
            raise self._meaning(error, topic) from None
        if offset < 0:  # librdkafka says so, without an error, when a broker that it knows already does not answer
            raise DeliveryError(f"topic {topic}: no broker answers")
        return offset

    def _made(self, topic: str) -> TopicDescription | None:
        """Let the brokers make a topic, if they do."""
        # A client of its own: one that stays would also make a topic again that vanishes.
        maker = self._client(creates=True)
        try:
            maker.list_topics(topic, ANSWER)
        except KafkaException as error:
            raise self._meaning(error, topic) from None
        return self._await(topic)

    def _await(self, topic: str) -> TopicDescription | None:
        """Wait for a topic that is being made; None when it does not come."""
        for _ in range(COMING):
            self._pause()
            if (description := self.find(topic)) is not None and all(it.leader for it in description.partitions):
                return description
        return None

    def _missing(self, topic: str) -> RejectedError:
        command = f"kafka-topics.sh --create --topic {topic} --partitions {self._router.partitions(topic)}"
        if topic in self._ids:
            return RejectedError(f"topic {topic}: {GONE} ({command})")
        return RejectedError(f"topic {topic} does not exist: create it ({command})")

    def _fit(self, found: TopicDescription) -> str:
        """Say how a topic fits. Raises RejectedError when it does not, DeliveryError."""
        topic, partitions = found.name, len(found.partitions)
        needed = self._router.partitions(topic)
        if partitions < needed:
            raise RejectedError(
                f"topic {topic} has {partitions} partitions, and {needed} are configured: add partitions"
                f" (kafka-topics.sh --alter --topic {topic} --partitions {needed}), or lower partitionsNum"
            )
        largest = int(self.setting(topic, "max.message.bytes") or 0)
        if largest and largest < self._limit:
            raise RejectedError(
                f"topic {topic} takes requests of {largest} bytes (max.message.bytes), and they may have {self._limit}"
                f" here: set kafka.max.request.size = {largest}, or raise that of the topic"
            )
        return f"topic {topic} has {partitions} partitions and takes {largest or 'an unknown number of'} bytes"

    def find(self, topic: str) -> TopicDescription | None:
        """Describe a topic; None without it. Raises DeliveryError, RejectedError."""
        asker = self._asker
        assert asker is not None
        for left in reversed(range(ANSWERS)):
            asked = asker.describe_topics(TopicCollection([topic]), request_timeout=ANSWER)[topic]
            try:
                description: TopicDescription = asked.result(2 * ANSWER)
            except TimeoutError:
                if not left:
                    raise DeliveryError(f"topic {topic}: no broker answers") from None
            except KafkaException as error:
                asker.poll(0)  # for what `hear` is told
                code = error.args[0].code()
                if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    return None
                if not left or code not in WAITING:
                    raise self._meaning(error, topic) from None
            else:
                return description
            self._pause()
        raise AssertionError

    def setting(self, topic: str, name: str) -> str | None:
        """Return a setting of a topic; None when the broker does not say."""
        assert self._asker is not None
        asked = self._asker.describe_configs([ConfigResource(ResourceType.TOPIC, topic)], request_timeout=ANSWER)
        try:
            (answer,) = (it.result(2 * ANSWER) for it in asked.values())
        except (KafkaException, TimeoutError):  # the user may not ask
            return None
        return str(answer[name].value)

    def _meaning(self, error: KafkaException, topic: str) -> DeliveryError | RejectedError:
        return meaning(error.args[0], f"{topic} ({self._trouble})" if self._trouble else topic)

    def _client(self, *, creates: bool = False) -> AdminClient:
        config: dict[str, Any] = {**self._config, "log_level": 2, "error_cb": self._hear_of}
        return AdminClient({**config, "allow.auto.create.topics": creates}, logger=logger)

    def _hear_of(self, error: KafkaError) -> None:
        self._trouble = str(error.str())
        self._hear(error)


def _first(ids: dict[str, str]) -> dict[str, str]:
    """Return as many ids as there is room for."""
    kept = dict(ids)
    while len(json.dumps(kept)) > MEMORY:
        kept.popitem()
    return kept
