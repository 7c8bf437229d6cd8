"""The reader of TiDB's secondary binlog on a real broker: where it begins, what it passes over, and what it refuses."""

import asyncio
import itertools
import logging

import pytest
from confluent_kafka import Producer

from sluice.client_sdk.tidb import NEWEST, OLDEST, AsyncTiDBReader, Message, TiDBReader
from sluice.protocol.errors import BadParameterError, DecodeError, PurgedError, SourceError
from tests.servers.kafka import Kafka
from tests.tidb import captured, dml, produce, table

_numbers = itertools.count(1)
WAIT = 10.0


def row(commit_ts: int, size: int = 0) -> bytes:
    """Return a record of one row, whose id is the commit_ts."""
    return dml(commit_ts, table("s", "t", "*id bigint, v longtext", [(None, (commit_ts, "v" * size))]))


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """A new topic."""
    name = f"{next(_numbers)}_obinlog"
    kafka.create(name)
    return name


def stamps(reader: TiDBReader, count: int) -> list[int]:
    """Return the commit_ts of the next messages, of which there are no more at present."""
    found: list[int] = []
    while len(found) < count:
        message = reader.get(WAIT)
        assert message is not None, found
        found.append(message.commit_ts)
    assert is_quiet(reader)
    return found


def is_quiet(reader: TiDBReader) -> bool:
    """Read to the end, if nothing is to come before it."""
    while not reader.is_at_end:
        assert reader.get(0.05) is None
    return True


# --- where it begins -------------------------------------------------------------------------------------------------


def test_from_the_oldest_record_it_gives_what_drainer_wrote(kafka: Kafka, topic: str) -> None:
    produce(kafka, topic, [it.value for it in captured()])
    with TiDBReader(kafka.servers, topic=topic, offset=OLDEST) as reader:
        messages = list(itertools.islice(reader, len(captured())))
    assert [(it.offset, it.commit_ts) for it in messages] == [(it.offset, it.commit_ts) for it in captured()]
    assert [it.binlog.SerializeToString() for it in messages] == [it.value for it in captured()]
    assert messages[8].rows()[0].after == messages[8].batch().rows()[0].after != {}
    assert [it.is_ddl for it in messages[0].changes()] == [True]
    assert f"{messages[0].time:%Y-%m-%d}" == "2026-11-21"


def test_the_topic_of_a_cluster_is_drainers(kafka: Kafka) -> None:
    number = next(_numbers)
    kafka.create(f"{number}_obinlog")
    produce(kafka, f"{number}_obinlog", [row(5)])
    with TiDBReader(kafka.servers, cluster_id=number, offset=0) as reader:
        assert (reader.topic, stamps(reader, 1)) == (f"{number}_obinlog", [5])


@pytest.mark.parametrize(
    ("commit_ts", "expected"), [(10, [20, 30, 40]), (15, [20, 30, 40]), (30, [40]), (40, []), (99, [])]
)
def test_from_a_commit_ts_it_begins_with_the_first_greater_one(
    kafka: Kafka, topic: str, commit_ts: int, expected: list[int]
) -> None:
    produce(kafka, topic, map(row, (10, 20, 30, 40)))
    with TiDBReader(kafka.servers, topic=topic, commit_ts=commit_ts, offset=OLDEST, strict=True) as reader:
        assert stamps(reader, len(expected)) == expected


def test_a_commit_ts_beyond_the_end_is_waited_for(kafka: Kafka, topic: str) -> None:
    produce(kafka, topic, [row(10)])
    with TiDBReader(kafka.servers, topic=topic, commit_ts=12) as reader:
        assert is_quiet(reader)
        produce(kafka, topic, [row(11), row(12), row(13)])
        assert stamps(reader, 1) == [13]


def test_before_the_oldest_one_it_warns_or_refuses(kafka: Kafka, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    produce(kafka, topic, [row(11), row(20)])
    with pytest.raises(PurgedError, match=r"begins with the commit_ts 11 at offset 0, after 9: .* may be lost"):
        TiDBReader(kafka.servers, topic=topic, commit_ts=9, strict=True)
    with caplog.at_level(logging.WARNING), TiDBReader(kafka.servers, topic=topic, commit_ts=9) as reader:
        assert "the changes in between may be lost" in caplog.text
        assert stamps(reader, 2) == [11, 20]
    with TiDBReader(kafka.servers, topic=topic, commit_ts=10, strict=True) as reader:  # nothing can be between
        assert stamps(reader, 2) == [11, 20]


def test_an_offset_is_where_it_begins_and_the_newest_is_after_the_last(kafka: Kafka, topic: str) -> None:
    produce(kafka, topic, map(row, (10, 20, 30)))
    with TiDBReader(kafka.servers, topic=topic, offset=1) as reader:
        assert stamps(reader, 2) == [20, 30]
    with TiDBReader(kafka.servers, topic=topic, offset=NEWEST) as reader:
        produce(kafka, topic, [row(40)])
        assert stamps(reader, 1) == [40]
    with pytest.raises(PurgedError, match="has the offsets from 0 to 4, and not 5"):
        TiDBReader(kafka.servers, topic=topic, offset=5)


@pytest.mark.parametrize("start", [{"commit_ts": 5}, {"offset": OLDEST}, {"offset": NEWEST}, {"offset": 0}])
def test_an_empty_topic_is_waited_for_and_does_not_hold_the_constructor(
    kafka: Kafka, topic: str, start: dict[str, int]
) -> None:
    with TiDBReader(kafka.servers, topic=topic, strict=True, **start) as reader:  # type: ignore[arg-type]
        assert is_quiet(reader)
        produce(kafka, topic, [row(7)])
        assert stamps(reader, 1) == [7]


def test_after_a_message_it_goes_on_and_tells_whether_something_was_missed(kafka: Kafka, topic: str) -> None:
    produce(kafka, topic, map(row, (10, 20, 30)))
    with TiDBReader(kafka.servers, topic=topic, after=(1, 20), strict=True) as reader:
        assert stamps(reader, 1) == [30]
    kafka.truncate(topic, 3)
    with TiDBReader(kafka.servers, topic=topic, after=(2, 30), strict=True) as reader:
        produce(kafka, topic, [row(40)])
        assert stamps(reader, 1) == [40]
    with pytest.raises(PurgedError, match="begins with the commit_ts 40 at offset 3, after 20"):
        TiDBReader(kafka.servers, topic=topic, after=(1, 20), strict=True)


def test_after_a_message_in_a_topic_that_was_made_again_the_commit_ts_counts(kafka: Kafka, topic: str) -> None:
    produce(kafka, topic, map(row, (10, 20, 30, 40)))
    with TiDBReader(kafka.servers, topic=topic, after=(3, 20)) as reader:
        assert stamps(reader, 2) == [30, 40]
    with TiDBReader(kafka.servers, topic=topic, after=(99, 20)) as reader:
        assert stamps(reader, 2) == [30, 40]


# --- holes and repetitions -------------------------------------------------------------------------------------------


@pytest.mark.extended
def test_markers_of_transactions_and_what_was_aborted_are_holes(kafka: Kafka, topic: str) -> None:
    ends = ["commit", "abort", "commit", "abort", "abort", "commit", "abort"]
    produce(kafka, topic, map(row, (10, 20, 30, 40, 50, 60, 70)), ends=ends)
    for commit_ts in range(10, 75):
        with TiDBReader(kafka.servers, topic=topic, commit_ts=commit_ts, strict=True) as reader:
            expected = [it for it in (30, 60) if it > commit_ts]
            found = [message.offset for message in itertools.islice(reader, len(expected))]
            assert found == [{30: 4, 60: 10}[it] for it in expected]
    for offset, expected in ((1, [30, 60]), (5, [60]), (11, []), (13, [])):
        with TiDBReader(kafka.servers, topic=topic, offset=offset) as reader:
            assert stamps(reader, len(expected)) == expected


def test_what_was_removed_is_an_error_when_it_was_to_be_read(kafka: Kafka, topic: str) -> None:
    produce(kafka, topic, map(row, range(10, 20)))
    kafka.truncate(topic, 6)
    with pytest.raises(PurgedError, match="has the offsets from 6 to 10, and not 3"):
        TiDBReader(kafka.servers, topic=topic, offset=3)
    with pytest.raises(PurgedError, match="begins with the commit_ts 16 at offset 6, after 14"):
        TiDBReader(kafka.servers, topic=topic, commit_ts=14, strict=True)
    with TiDBReader(kafka.servers, topic=topic, commit_ts=16, strict=True) as reader:
        assert stamps(reader, 3) == [17, 18, 19]


def test_repetitions_are_left_out(kafka: Kafka, topic: str) -> None:
    produce(kafka, topic, map(row, (10, 20, 30, 20, 30, 40, 10, 20, 50)))
    with TiDBReader(kafka.servers, topic=topic, offset=OLDEST) as reader:
        assert stamps(reader, 5) == [10, 20, 30, 40, 50]
    with TiDBReader(kafka.servers, topic=topic, commit_ts=20) as reader:
        assert stamps(reader, 3) == [30, 40, 50]


# --- what it refuses -------------------------------------------------------------------------------------------------


def test_what_cannot_be_decoded_is_an_error_with_its_offset_and_stays(kafka: Kafka, topic: str) -> None:
    produce(kafka, topic, [row(10), b"hello", row(20)])
    with TiDBReader(kafka.servers, topic=topic, offset=OLDEST) as reader:
        assert [it.commit_ts for it in reader.take(WAIT)] == [10]
        for _ in range(2):
            with pytest.raises(DecodeError, match=f"topic {topic}, offset 1: not a record"):
                reader.get(WAIT)
    with TiDBReader(kafka.servers, topic=topic, offset=2) as reader:
        assert stamps(reader, 1) == [20]


def test_a_record_without_a_value_is_an_error_too(kafka: Kafka, topic: str) -> None:
    produce(kafka, topic, [row(10)])
    producer = Producer({"bootstrap.servers": kafka.servers})
    producer.produce(topic, None, partition=0)
    assert producer.flush(30) == 0
    with TiDBReader(kafka.servers, topic=topic, offset=OLDEST) as reader:
        assert [it.commit_ts for it in reader.take(WAIT)] == [10]
        with pytest.raises(DecodeError, match=f"topic {topic}, offset 1: not a record"):
            reader.get(WAIT)


def test_neither_topic_nor_cluster_is_an_error_at_once() -> None:
    for kind in (TiDBReader, AsyncTiDBReader):
        with pytest.raises(BadParameterError, match="topic or cluster_id has to be given"):
            kind("127.0.0.1:1")
    with pytest.raises(BadParameterError, match="an offset is a number"):
        TiDBReader("127.0.0.1:1", topic="t", offset=-3)
    with pytest.raises(BadParameterError, match="a commit_ts is a number"):
        TiDBReader("127.0.0.1:1", topic="t", commit_ts=-3)


def test_a_missing_topic_several_partitions_and_silent_brokers_are_errors(kafka: Kafka) -> None:
    with pytest.raises(SourceError, match=r"topic missing_obinlog: .*[Uu]nknown topic"):
        TiDBReader(kafka.servers, topic="missing_obinlog")
    name = f"{next(_numbers)}_obinlog"
    kafka.create(name, 2)
    with pytest.raises(SourceError, match="has 2 partitions, and one is possible"):
        TiDBReader(kafka.servers, topic=name)
    with pytest.raises(SourceError, match="topic t: "):
        TiDBReader("127.0.0.1:1", topic="t", timeout=0.5)
    with pytest.raises(SourceError, match=r'No such configuration property: "no\.such"'):
        TiDBReader(kafka.servers, topic="t", settings={"no.such": "1"})


# --- forms -----------------------------------------------------------------------------------------------------------


def test_batches_join_messages_for_rows_and_arrow(kafka: Kafka, topic: str) -> None:
    produce(kafka, topic, map(row, range(1, 3001)))
    ids: list[int] = []
    stamped: list[int] = []
    with TiDBReader(kafka.servers, topic=topic, offset=OLDEST) as reader:
        for batch in reader.batches():
            found = batch.to_arrow("s.t").select(["id"]).to_pydict()["id"]
            assert found == [it.after["id"] for it in batch.rows() if it.after is not None]
            stamped += [it["begin"] for it in batch.to_arrow()["_pos"].to_pylist()]
            ids += found
            assert batch.to == f"tidb/{topic}.0@0:{ids[-1] + 1}:0"
            if ids[-1] == 3000:
                break
    assert ids == stamped == list(range(1, 3001))


def test_what_is_taken_at_once_has_so_many_rows_or_bytes_or_those_of_one_message(kafka: Kafka, topic: str) -> None:
    three = dml(30, table("s", "t", "*id bigint", [(None, (number,)) for number in range(3)]))
    produce(kafka, topic, [row(10), row(20), three, row(40), row(50)])
    with TiDBReader(kafka.servers, topic=topic, offset=OLDEST) as reader:
        while len(reader._pending) < 5:
            reader._pending.extend(reader._topic.read(5, WAIT))
        taken = [reader.take(WAIT, 3), reader.take(WAIT, 1), reader.take(WAIT, most_bytes=1)]
    assert [[it.commit_ts for it in some] for some in taken] == [[10, 20, 30], [40], [50]]


def test_a_record_larger_than_a_request_is_read(kafka: Kafka) -> None:
    name = f"{next(_numbers)}_obinlog"
    kafka.create(name, max_message_bytes=str(40 << 20))
    produce(kafka, name, [row(10, 30 << 20)])
    with TiDBReader(kafka.servers, topic=name, offset=OLDEST) as reader:
        (found,) = reader.take(30)
    (only,) = found.rows()
    assert only.after is not None
    assert len(only.after["v"]) == 30 << 20


async def test_the_reader_for_asyncio_gives_the_same(kafka: Kafka, topic: str) -> None:
    produce(kafka, topic, [it.value for it in captured()])
    found: list[Message] = []
    async with AsyncTiDBReader(kafka.servers, topic=topic, offset=OLDEST) as reader:
        async for message in reader:
            found.append(message)
            if len(found) == len(captured()):
                break
        while not reader.is_at_end:
            assert await reader.get(0.05) is None
    assert [it.commit_ts for it in found] == [it.commit_ts for it in captured()]
    async with AsyncTiDBReader(kafka.servers, topic=topic, commit_ts=captured()[-2].commit_ts) as reader:
        async for batch in reader.batches():
            assert batch.changes()[-1].sql == "DROP DATABASE `gone`"
            break


async def test_a_call_that_is_cancelled_loses_nothing(kafka: Kafka, topic: str) -> None:
    found: list[Message | None] = []
    cancelled = 0
    async with AsyncTiDBReader(kafka.servers, topic=topic, offset=OLDEST) as reader:
        while len(found) < 5:
            try:
                found.append(await asyncio.wait_for(reader.get(WAIT), 0.05))
            except TimeoutError:
                cancelled += 1
                await asyncio.to_thread(produce, kafka, topic, [row(cancelled)])
    assert [it.commit_ts for it in found if it is not None] == [1, 2, 3, 4, 5]
    assert cancelled >= 5
