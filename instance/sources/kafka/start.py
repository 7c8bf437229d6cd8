"""Where in a topic the stream begins."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ....login.topic import SLICE, Topic
from ....protocol.errors import PurgedError, SluiceError, SourceChangedError
from ....protocol.position import Position
from ....protocol.tidb.entries import commit_ts_of
from ....protocol.tidb.search import OffsetSearch
from ....protocol.tidb.tags import LOGICAL_BITS
from ....store.cursor import OLDEST, Cursor
from .config import KafkaConfig

SOURCE: Final = "tidb"
"""The source of all positions: a commit_ts means the same in every topic of a cluster."""
MANY: Final = 1000
"""Records that are taken from the brokers at once."""


class Start(NamedTuple):
    """Where to read from, and what to leave out there."""

    offset: int
    commit_ts: int
    """Transactions up to this one are left out, ..."""
    skipped: int = 0
    """... and so many entries of the next one, if its commit_ts is the next number."""
    gap: str = ""
    """What is missing before it, "" for nothing."""


def file_of(config: KafkaConfig) -> str:
    """Return what entries name as their file: topic and partition."""
    return f"{config.topic}.0"


def position_of(config: KafkaConfig, commit_ts: int, n: int = 0) -> Position:
    """Return the place before the n-th entry of a transaction, or before the first one after its commit_ts."""
    return Position(SOURCE, file_of(config), 0, commit_ts, n)


def find(topic: Topic, config: KafkaConfig, cursor: Cursor | None) -> Start:
    """Find a saved place; None is the place that the configuration says.

    Raises:
        PurgedError: the topic no longer has what follows.
        SourceChangedError: it is not a place of this topic.
        SourceError: the topic cannot be read.
    """
    if cursor is None:
        return search(topic, config, config.commit_ts) if config.commit_ts else find_end(topic)
    position = cursor.position
    if position is None or not position.same_history(position_of(config, 0)):
        raise SourceChangedError(f"{position or cursor.journal} is not a place of {topic}")
    commit_ts = position.begin - 1
    if position.n == 0 and (offset := topic.after(cursor.offset, commit_ts)) is not None:
        return Start(offset, commit_ts)
    return search(topic, config, commit_ts)._replace(skipped=position.n)


def find_first(
    topic: Topic, config: KafkaConfig, places: Sequence[Cursor | None]
) -> tuple[Start | None, dict[Cursor | None, SluiceError]]:
    """Find the start for the first of some places that the topic has; also say why it lacks others."""
    start: Start | None = None
    refused: dict[Cursor | None, SluiceError] = {}
    for place in places:
        if place is None and start is not None:
            continue  # where the configuration says: only if no other place is left
        if place == OLDEST:
            purged = [it for it in refused.values() if isinstance(it, PurgedError)]
            if start is None and purged:
                start = Start(topic.bounds()[0], 0)
            continue
        try:
            found = find(topic, config, place)
        except (PurgedError, SourceChangedError) as error:
            refused[place] = error
        else:
            start = start or found
    return start, refused


def search(topic: Topic, config: KafkaConfig, commit_ts: int) -> Start:
    """Find the place after a commit_ts; if it is no longer there, raise PurgedError, or begin with a gap."""
    found = topic.find(commit_ts)
    gap = _gap_before(topic, found)
    if gap and not config.auto_reset_latest_pos_mode:
        raise PurgedError(gap)
    return Start(found.start, commit_ts, gap=gap)


def find_place(topic: Topic, milliseconds: int | None) -> int:
    """Return the commit_ts before which nothing was committed since a time, in ms since 1970; None: ever.

    Raises as `find`, and DecodeError.
    """
    if milliseconds is None:
        record = topic.first(topic.bounds()[0])
        return find_end(topic).commit_ts + 1 if record is None else commit_ts_of(record[1])
    commit_ts = milliseconds << LOGICAL_BITS
    if gap := _gap_before(topic, topic.find(commit_ts - 1)):
        raise PurgedError(gap)
    return commit_ts


def _gap_before(topic: Topic, found: OffsetSearch) -> str:
    """Say what the topic has lost of what follows the commit_ts that was looked for; "" for nothing."""
    if not found.low or not found.is_before_oldest:
        return ""
    return (
        f"{topic} begins with the commit_ts {found.oldest} at offset {found.low}, after {found.commit_ts}: the"
        " changes in between are lost"
    )


def find_end(topic: Topic) -> Start:
    """Find the place after the last transaction. Raises SourceError, DecodeError."""
    low, high = topic.bounds()
    back = 1
    while high - back // 2 > low:  # records that were aborted, and markers, may stand at the end
        record = topic.first(max(high - back, low))
        if record is not None:
            found = [record]
            while not topic.is_at_end:
                found = topic.read(MANY, SLICE) or found
            return Start(found[-1][0] + 1, commit_ts_of(found[-1][1]))
        back *= 2
    return Start(high, 0)
