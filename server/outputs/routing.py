r"""Which topic and partition the changes of a table go to: Canal's rules for message queues.

Rules are separated by `,` or `;`, anywhere, and are not stripped of blanks. A pattern without any of `* ? + | ( ) { } [
] \ $ ^` is a name, whatever its case; any other is a regular expression for a whole name, as in a table filter.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

from ...instance.sink.patterns import Matcher, check_text, check_weight, translate
from ...protocol.canal.records import Route, hash_partition, java_hash
from ...protocol.errors import ConfigError, FilterError

_SIGNS = frozenset("*?+|(){}[]\\$^")
_TOPIC: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}")
"""The name of a topic, as brokers take it."""

NAMES: Final = "a topic's name has letters, digits, '.', '_' and '-' only, and at most 249 of them"
"""What brokers ask of the name of a topic."""

Matches = Callable[[str], bool]
Name = tuple[str, str]
"""Schema and name of a table."""
Having = Callable[[str], Collection[Name]]
"""Gives the tables that have a column."""


class Rules(NamedTuple):
    """Canal's settings, as they are written."""

    topic: str
    """``canal.mq.topic``: where everything goes that no rule has another topic for."""
    dynamic_topic: str = ""
    """``canal.mq.dynamicTopic``: ``topic:pattern``, or a pattern alone, whose topic is the name that it matches.

    A pattern with ``\\.`` or a dot is for ``schema.table``, any other for a schema.
    """
    partition: int = 0
    """``canal.mq.partition``: where everything goes without a ``partition_hash``."""
    partitions: int = 1
    """``canal.mq.partitionsNum``: how many partitions are hashed to."""
    partition_hash: str = ""
    """``canal.mq.partitionHash``: ``pattern:column^column``, ``pattern:$pk$``, or a pattern alone, for the name."""
    topic_partitions: str = ""
    """``canal.mq.dynamicTopicPartitionNum``: ``pattern:number`` for topics with other than ``partitions``."""
    database_hash: bool = True
    """``canal.mq.database.hash``: whether the database's name counts in the hash of a row."""
    maps_names: bool = False
    """Whether a table whose name no topic can have goes to one that is called alike, with a digest of the name."""


class Router:
    """Finds the route of a table. The topics are numbered in the order in which they are first used."""

    def __init__(self, rules: Rules) -> None:
        """Read the rules; raises ConfigError."""
        self._rules = rules
        self._dynamic = list(_read_topics(rules.dynamic_topic))
        self._hashes = list(_read_hashes(rules.partition_hash))
        self._sizes = list(_read_sizes(rules.topic_partitions))
        if rules.partitions < 1 or any(size is not None and size < 1 for _, size in self._sizes):
            raise ConfigError("canal.mq.partitionsNum and canal.mq.dynamicTopicPartitionNum: at least 1 partition")
        if rules.partition < 0:
            raise ConfigError("canal.mq.partition: partitions are counted from 0")
        self.topics = [self._final(rules.topic)]
        """The topics by their numbers; the first one is the default. It grows while batches are encoded."""
        self._numbers = {self.topics[0]: 0}
        self.wrong: dict[str, str] = {}
        """Topics of tables that nothing can be sent to, and why. It grows while batches are encoded."""
        self._origins: dict[str, str] = {}  # the name that a topic was mapped from
        for topic in self.fixed_topics:
            if not _TOPIC.fullmatch(topic):
                raise ConfigError(f"no topic can be called {topic[:300]!r}: {NAMES}")

    @property
    def fixed_topics(self) -> list[str]:
        """The topics that are known without any table: the default, and those that rules name."""
        named = [self._final(rule.topic) for rule in self._dynamic if rule.topic is not None]
        return list(dict.fromkeys([self.topics[0], *named]))

    @property
    def is_whole(self) -> bool:
        """Whether no rule parts what is fetched together."""
        return not self._dynamic and not self._hashes

    def partitions(self, topic: str) -> int:
        """How many partitions a topic needs at least."""
        return self._size(topic) if self._hashes else self._rules.partition + 1

    def doubts(self, tables: Collection[Name], having: Having) -> list[str]:
        """Say which rules for partitions do nothing with these tables; nothing is known of tables without any.

        ``having`` gives the tables that have a column. Raises as that does.
        """
        if not self._hashes:
            return []
        found = []
        for rule in self._hashes if tables else ():
            if not _matches_any(rule, tables):
                found.append(f"the rule '{rule.text}' of partitionHash matches none of the tables that there are")
                continue
            found += [
                f"the rule '{rule.text}' of partitionHash names the column {column}, which no table has that it matches"
                for column in rule.columns or ()
                if not _matches_any(rule, having(column))
            ]
        if max([self._rules.partitions, *(size or 1 for _, size in self._sizes)]) == 1:
            found.append("partitionHash has no effect: every topic has one partition (partitionsNum)")
        return found

    def route(self, schema: str, table: str) -> Route:
        """Find where the changes of a table go; both names are empty for a statement of none."""
        topic = self._topic(schema, table)
        number = self._number(topic)
        if not self._hashes:
            return Route(number, self._rules.partition, self._rules.partition)
        name = f"{schema}.{table}"
        rule = next((it for it in self._hashes if it.matches(name)), None)
        if rule is None:
            return Route(number, 0, 0)
        size = self._size(topic)
        if rule.by_table:
            return Route(number, hash_partition(java_hash(table), size), 0)
        seed = java_hash(schema) if self._rules.database_hash else 0
        return Route(number, 0, 0, size, rule.columns, seed)

    def number(self, topic: str) -> int:
        """Return the number of a topic that is named; empty is the default."""
        if topic and not _TOPIC.fullmatch(topic):
            self.wrong[topic] = f"no topic can be called {topic[:300]!r}, as the form does: {NAMES}"
        return self._number(topic) if topic else 0

    def _number(self, topic: str) -> int:
        number = self._numbers.setdefault(topic, len(self.topics))
        if number == len(self.topics):
            self.topics.append(topic)
        return number

    def _topic(self, schema: str, table: str) -> str:
        for name in (f"{schema}.{table}", schema) if schema and table else ():
            for rule in self._dynamic:
                if rule.matches(name):
                    return self._of_table(name.lower()) if rule.topic is None else self._final(rule.topic)
        return self.topics[0]

    def _of_table(self, name: str) -> str:
        """Return the topic that a rule without one gives a name."""
        topic = self._final(name)
        if not _TOPIC.fullmatch(topic):
            if not self._rules.maps_names:
                self.wrong[topic] = (
                    f"no topic can be called {topic!r}, as {name!r} would go to: {NAMES}. Give it a topic by a rule of"
                    " dynamicTopic (topic:pattern, before the others), or set onInvalidTopic = map"
                )
                return topic
            digest = hashlib.sha256(name.encode()).hexdigest()[:8]
            topic = f"{re.sub('[^A-Za-z0-9_-]', '_', topic)}-{digest}"
            self._origins.setdefault(topic, "" if topic in self._numbers else name)
        if self._origins.get(topic, name) != name:
            self.wrong[topic] = (
                f"topic {topic} would have changes of {name!r} and of another name, to which it is mapped:"
                " give one of them another topic by a rule of dynamicTopic (topic:pattern, before the others)"
            )
        return topic

    def _final(self, topic: str) -> str:
        return topic.replace(".", "_") if self._dynamic else topic

    def _size(self, topic: str) -> int:
        found = next((size for matches, size in self._sizes if matches(topic)), None)
        return self._rules.partitions if found is None else found


class _TopicRule(NamedTuple):
    topic: str | None
    matches: Matches


class _HashRule(NamedTuple):
    text: str
    matches: Matches
    by_table: bool = False
    columns: tuple[str, ...] | None = None


def _matches_any(rule: _HashRule, tables: Collection[Name]) -> bool:
    return any(rule.matches(f"{schema}.{table}") for schema, table in tables)


def _read_topics(text: str) -> Iterator[_TopicRule]:
    for item in _items(text):
        name, colon, rest = item.partition(":")
        topic, pattern = (name.strip(), rest.strip()) if colon else (None, item)
        matches = _matcher("canal.mq.dynamicTopic", item, pattern)
        if _is_name(pattern):
            yield _TopicRule(topic, matches)
            continue
        for_table = "\\." in pattern
        yield _TopicRule(topic, lambda name, it=matches, dot=for_table: ("." in name) == dot and it(name))  # type: ignore[misc]


def _read_hashes(text: str) -> Iterator[_HashRule]:
    for item in _items(text):
        pattern, colon, key = item.rpartition(":")
        if not colon or not pattern:
            yield _HashRule(item, _matcher("canal.mq.partitionHash", item, item), by_table=True)
            continue
        columns = None if key.lower() == "$pk$" else tuple(name for name in key.split("^") if name)
        yield _HashRule(item, _matcher("canal.mq.partitionHash", item, pattern), columns=columns)


def _read_sizes(text: str) -> Iterator[tuple[Matches, int | None]]:
    for item in _items(text):
        pattern, colon, size = item.rpartition(":")
        if colon and pattern:
            number = int(size) if size.isdecimal() else None
            yield _matcher("canal.mq.dynamicTopicPartitionNum", item, pattern), number


def _items(text: str) -> list[str]:
    return [item for item in text.replace(",", ";").split(";") if item]


def _is_name(pattern: str) -> bool:
    return _SIGNS.isdisjoint(pattern)


def _matcher(key: str, item: str, pattern: str) -> Matches:
    if _is_name(pattern):
        return lambda name: _is_same(name, pattern)
    try:
        check_text(pattern)
        translated = translate(pattern)
        check_weight([translated])
        return Matcher([translated]).matches
    except FilterError as error:
        raise ConfigError(f"{key}: rule '{item}': {error}") from None


def _is_same(one: str, other: str) -> bool:
    """Whether two names are equal but for the case of their characters."""
    return len(one) == len(other) and all(
        a == b or a.upper() == b.upper() or a.lower() == b.lower() for a, b in zip(one, other, strict=True)
    )
