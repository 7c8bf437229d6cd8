"""The reader of a stream on Spark 4.1, called as that calls it: no limits, no begins, acks by the next micro-batch."""

import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from sluice.client_sdk.spark import subscription, unlimited
from sluice.client_sdk.spark.options import Options
from sluice.client_sdk.spark.ranges import form_of
from sluice.client_sdk.spark.stream import Offset
from sluice.client_sdk.spark.unlimited import UnlimitedStream
from sluice.protocol.errors import BadParameterError, SchemaMismatchError, SourceError
from tests.faults.harness import Sluice
from tests.servers import Server
from tests.spark.streams import options
from tests.waiting import eventually


@contextmanager
def reading(sluice: Sluice, **others: object) -> Iterator[UnlimitedStream]:
    """A reader such as controls a query."""
    parsed = Options.parse(options(sluice, **others))
    made: UnlimitedStream = pickle.loads(pickle.dumps(UnlimitedStream(parsed, form_of(parsed))))
    yield made
    made.stop()


def resumed(stream: UnlimitedStream, end: Offset) -> UnlimitedStream:
    """Tell a reader where its checkpoint ends, as Spark does when a query goes on."""
    assert stream.partitions(end, end) == []
    return stream


def ids(stream: UnlimitedStream, start: Offset, end: Offset) -> list[int]:
    batches = [batch for part in stream.partitions(start, end) for batch in stream.read(part)]
    return pa.Table.from_batches(batches)["id"].to_pylist() if batches else []


@pytest.fixture
def numbers(source: Server, schema: str) -> str:
    source.query(f"CREATE TABLE {schema}.numbers (id INT PRIMARY KEY, filler VARCHAR(1000))")
    return f"{schema}.numbers"


def fill(source: Server, table: str, first: int, last: int) -> None:
    values = ", ".join(f"({number}, REPEAT('x', 500))" for number in range(first, last + 1))
    source.query(f"INSERT INTO {table} VALUES {values}")


def test_what_is_there_now_is_one_micro_batch_that_begins_at_the_cursor(
    source: Server, numbers: str, sluice: Sluice
) -> None:
    fill(source, numbers, 1, 3)
    with reading(sluice, table=numbers) as stream:
        pinned = stream.latestOffset()  # before anything else, for a query of what is there now
        fill(source, numbers, 4, 6)
        start = stream.initialOffset()
        assert pinned["begin"] == start["position"]
        assert ids(stream, start, pinned) == [1, 2, 3]
    with reading(sluice, table=numbers) as stream:
        end = resumed(stream, pinned).latestOffset()
        assert ids(stream, pinned, end) == [4, 5, 6]
        stream.commit(pinned)
        assert stream.latestOffset() == end
        stream.commit(end)
        stream.commit(end)
        with sluice.client() as client:
            assert client.status()["lag"]["rows"] == 0


def test_a_micro_batch_may_be_larger_than_the_ring(source: Server, numbers: str, sluice: Sluice) -> None:
    sluice.stop()
    settings = {"canal__instance__memory__buffer__size": 1024, "canal__instance__memory__buffer__memunit": 256}
    sluice.add("shop", source, canal__instance__filter__regex=re.escape(numbers).replace("\\", "\\\\"), **settings)
    sluice.start()
    sluice.wait_running()
    with reading(sluice, table=numbers) as stream:
        start = stream.initialOffset()
        for number in range(20):
            fill(source, numbers, 100 * number, 100 * number + 99)
        eventually(lambda: sluice.destination()["full"])
        end = stream.latestOffset()
        assert ids(stream, start, end) == list(range(2000))
        fill(source, numbers, 2000, 2000)
        following = stream.latestOffset()
        stream.commit(end)
        assert ids(stream, end, following) == [2000]
        with sluice.client() as client:
            assert client.status()["acked"] == end["position"]


def test_nothing_wanted_leaves_the_offset_alone(
    source: Server, schema: str, numbers: str, sluice: Sluice, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reading(sluice, table=numbers) as stream:
        start = stream.initialOffset()
        source.query(f"CREATE TABLE {schema}.others (id INT)")
        source.query(f"INSERT INTO {schema}.others VALUES (1)")
        source.query(f"ALTER TABLE {numbers} COMMENT 'changes no column'")
        assert stream.latestOffset() == start
        assert stream.latestOffset() == start
        monkeypatch.setattr(unlimited, "IDLE", 0.0)
        moved = stream.latestOffset()
        assert moved != start
        assert ids(stream, start, moved) == []


def test_a_ddl_that_ends_the_query_begins_a_micro_batch(source: Server, numbers: str, sluice: Sluice) -> None:
    with reading(sluice, table=numbers) as stream:
        start = stream.initialOffset()
        fill(source, numbers, 1, 3)
        source.query(f"ALTER TABLE {numbers} ADD price INT")
        source.query(f"INSERT INTO {numbers} VALUES (4, 'x', 4)")
        end = stream.latestOffset()
        assert ids(stream, start, end) == [1, 2, 3]
        with pytest.raises(SchemaMismatchError, match="price is new"):
            stream.latestOffset()
    with reading(sluice, table=numbers) as stream:
        assert ids(stream, end, resumed(stream, end).latestOffset()) == [4]


def test_a_source_that_does_not_answer_is_not_taken_for_one_without_changes(
    sluice: Sluice, numbers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (unlimited, subscription):
        monkeypatch.setattr(module, "PATIENCE", 0.0)

    def fail() -> str:
        raise SourceError("the source cannot be asked")

    with reading(sluice, table=numbers) as stream:
        start = stream.initialOffset()
        client = stream._subscription.open()
        monkeypatch.setattr(client, "latest", fail)
        with pytest.raises(SourceError):
            stream.latestOffset()
        monkeypatch.undo()
        assert stream.latestOffset() == start
        monkeypatch.setattr(client, "latest", fail)
        assert stream.latestOffset() == start, "a query that runs waits"


def test_limits_are_refused(sluice: Sluice) -> None:
    for name in ("maxRowsPerTrigger", "maxBytesPerTrigger"):
        with pytest.raises(BadParameterError, match=f"{name} needs Spark 4.2"), reading(sluice, **{name: 5}):
            pass
