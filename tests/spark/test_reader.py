"""The reader of a stream, called as Spark calls it: what it sends, what it waits for, what it leaves alone."""

import logging
import os
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from sluice.client_sdk.calls import Call
from sluice.client_sdk.spark import limited, ranges, subscription
from sluice.client_sdk.spark.options import Options
from sluice.client_sdk.spark.ranges import Typed, form_of
from sluice.client_sdk.spark.reader import BatchReader, StreamReader
from sluice.client_sdk.spark.source import SluiceDataSource
from sluice.client_sdk.spark.stream import Offset
from sluice.protocol.errors import (
    BadParameterError,
    FilterError,
    NotSubscribedError,
    SchemaMismatchError,
    SluiceError,
    StaleSessionError,
)
from sluice.protocol.position import Position
from tests.faults.harness import Sluice
from tests.servers import Server, next_second
from tests.spark.streams import options
from tests.waiting import eventually

ALL = ReadAllAvailable()


@contextmanager
def reading(sluice: Sluice, **others: object) -> Iterator[StreamReader]:
    """A reader such as controls a query."""
    parsed = Options.parse(options(sluice, **others))
    made: StreamReader = pickle.loads(pickle.dumps(StreamReader(parsed, form_of(parsed))))  # as Spark hands it on
    yield made
    made.stop()


def next_offset(stream: StreamReader, start: Offset, limit: ReadLimit = ALL) -> Offset:
    """The end of the next micro-batch; waits for it."""
    ends: list[Offset] = []

    def ask() -> bool:
        ends.append(stream.latestOffset(start, limit))
        return ends[-1] != start

    eventually(ask)
    return ends[-1]


def rows(stream: StreamReader, start: Offset, end: Offset) -> pa.Table:
    """All rows of a micro-batch."""
    batches = [batch for part in stream.partitions(start, end) for batch in stream.read(part)]
    return pa.Table.from_batches(batches)


def ids(table: pa.Table) -> list[int]:
    return [int(dict(row)["id"]) for row in table["after"].to_pylist()]


@pytest.fixture
def numbers(source: Server, schema: str) -> str:
    source.query(f"CREATE TABLE {schema}.numbers (id INT PRIMARY KEY, filler VARCHAR(1000))")
    return f"{schema}.numbers"


@pytest.fixture
def others(source: Server, schema: str, numbers: str) -> Callable[[], object]:
    """Write what no filter wants."""
    source.query(f"CREATE TABLE {schema}.others (id INT)")
    return lambda: source.query(f"INSERT INTO {schema}.others VALUES (1)")


def fill(source: Server, table: str, first: int, last: int) -> None:
    values = ", ".join(f"({number}, REPEAT('x', 500))" for number in range(first, last + 1))
    source.query(f"INSERT INTO {table} VALUES {values}")


def test_a_new_client_is_made_durably_and_nothing_else_is_done(source: Server, numbers: str, sluice: Sluice) -> None:
    fill(source, numbers, 1, 3)
    with reading(sluice, filter=re.escape(numbers)) as stream:
        start = stream.initialOffset()
        sluice.kill()
        sluice.start()
        assert stream.initialOffset() == start
        with sluice.client() as client:
            status = client.status()
            assert (status["position"], status["filter"], status["marks"]) == (
                start["position"],
                re.escape(numbers),
                [],
            )
        end = next_offset(stream, start)
        assert end == {"position": end["position"], "begin": start["position"]}
        assert stream.initialOffset() == start
        assert ids(rows(stream, start, end)) == [1, 2, 3]


@pytest.mark.parametrize(
    "first",
    [
        "latestOffset",
        "partitions",
        *(
            pytest.param(it, marks=pytest.mark.extended)
            for it in ("initialOffset", "commit", "prepareForTriggerAvailableNow")
        ),
    ],
)
def test_the_first_call_whichever_it_is_ends_older_queries(
    source: Server, numbers: str, sluice: Sluice, first: str
) -> None:
    fill(source, numbers, 1, 3)
    with reading(sluice) as old, reading(sluice) as new:
        start = old.initialOffset()
        end = next_offset(old, start)
        arguments: dict[str, Any] = {"latestOffset": (start, ALL), "partitions": (start, end), "commit": (start,)}
        getattr(new, first)(*arguments.get(first, ()))
        with pytest.raises(StaleSessionError, match="another one was started with the same clientId"):
            old.latestOffset(end, ALL)
        new.commit(end)


def test_a_client_that_has_been_removed_is_made_again_where_the_checkpoint_stands(
    source: Server, numbers: str, sluice: Sluice
) -> None:
    fill(source, numbers, 1, 3)
    with reading(sluice) as stream:
        start = stream.initialOffset()
        end = next_offset(stream, start)
        fill(source, numbers, 4, 6)
    with sluice.client() as client:
        client.unsubscribe()
    with reading(sluice, startingPosition="latest") as stream:
        last = next_offset(stream, end)
        assert ids(rows(stream, end, last)) == [4, 5, 6]


def test_what_was_given_back_though_it_is_processed_is_acked_all_the_same(
    source: Server, numbers: str, sluice: Sluice
) -> None:
    with reading(sluice) as stream:
        start = stream.initialOffset()
        fill(source, numbers, 1, 3)
        middle = next_offset(stream, start)
        fill(source, numbers, 4, 6)
        end = next_offset(stream, middle)
        with sluice.client() as client:
            client.rollback()
            assert stream.latestOffset(end, ALL) == end
            assert client.status()["position"] == end["position"]


def test_idle_calls_wait_in_the_server_and_leave_the_offset_alone(
    source: Server, numbers: str, others: Callable[[], object], sluice: Sluice, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reading(sluice, filter=re.escape(numbers)) as stream:
        start = stream.initialOffset()
        others()  # of which MariaDB sends the statements at least
        eventually(lambda: stream.latestOffset(start, ALL) == start and stream._place != start["position"])
        client = stream._subscription.open()
        sent: list[str] = []
        perform = client._perform

        def count(call: Call[Any]) -> Any:
            sent.append(call.path)
            return perform(call)

        monkeypatch.setattr(client, "_perform", count)
        assert stream.latestOffset(start, ALL) is start
        assert sent == ["/ack", "/position"]
        writer = threading.Timer(subscription.POLL / 5, fill, (source, numbers, 1, 3))
        monkeypatch.setattr(limited, "POLL", 20.0)
        writer.start()
        end = stream.latestOffset(start, ALL)
        assert ids(rows(stream, start, end)) == [1, 2, 3]


def test_the_offset_moves_over_what_is_not_wanted_now_and_then(
    source: Server, numbers: str, others: Callable[[], object], sluice: Sluice, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reading(sluice, filter=re.escape(numbers)) as stream:
        start = stream.initialOffset()
        others()
        with sluice.client() as client:
            end = client.latest()
        eventually(lambda: sluice.destination()["last"] == end)
        assert stream.latestOffset(start, ALL) == start
        monkeypatch.setattr(limited, "IDLE", 0.0)
        moved = stream.latestOffset(start, ALL)
        assert Position.parse(moved["position"]) > Position.parse(start["position"])
        assert stream.partitions(start, moved)[0].pieces == [(start["position"], moved["position"])]  # type: ignore[attr-defined]
        assert list(stream.read(stream.partitions(start, moved)[0])) == []
        assert stream.latestOffset(moved, ALL) == moved


def test_entries_without_rows_are_passed_and_confirmed_with_what_follows(
    source: Server, numbers: str, sluice: Sluice
) -> None:
    with reading(sluice) as stream:
        start = stream.initialOffset()
        source.query(f"ALTER TABLE {numbers} COMMENT 'a'")
        source.query(f"ALTER TABLE {numbers} COMMENT 'b'")
        for _ in range(2):
            assert stream.latestOffset(start, ALL) == start
        fill(source, numbers, 1, 3)
        end = next_offset(stream, start)
        assert ids(rows(stream, start, end)) == [1, 2, 3]
        stream.latestOffset(end, ALL)
        assert sluice.destination()["clients"][0]["marks"] == []


def test_a_query_of_what_is_there_now_confirms_entries_without_rows_at_its_end(
    source: Server, numbers: str, sluice: Sluice
) -> None:
    fill(source, numbers, 1, 3)
    with reading(sluice) as stream:
        source.query(f"ALTER TABLE {numbers} COMMENT 'a'")
        source.query("FLUSH BINARY LOGS")  # so that the end is not a place after a change
        stream.prepareForTriggerAvailableNow()
        fill(source, numbers, 4, 6)
        start = stream.initialOffset()
        first = stream.latestOffset(start, ALL)
        second = stream.latestOffset(first, ALL)
        assert ids(rows(stream, start, first)) == [1, 2, 3]
        assert second != first
        assert stream.latestOffset(second, ALL) == second
        assert sluice.destination()["clients"][0]["marks"] == []


def test_entries_without_rows_that_fill_the_ring_move_the_offset(source: Server, numbers: str, sluice: Sluice) -> None:
    with reading(sluice, maxBytesPerTrigger=400) as stream:
        start = stream.initialOffset()
        for _ in range(3):
            source.query(f"ALTER TABLE {numbers} COMMENT '{'x' * 200}'")
        moved = next_offset(stream, start, stream.getDefaultReadLimit())
        assert moved != start


def test_limits_of_options_are_told_to_spark_and_its_own_count(
    source: Server, numbers: str, sluice: Sluice, caplog: pytest.LogCaptureFixture
) -> None:
    for client_id in (2, 3):
        with sluice.client(client_id) as client:
            client.subscribe()
    for number in range(1, 31):
        fill(source, numbers, number, number)
    with reading(sluice, maxRowsPerTrigger=10) as stream:
        assert stream.getDefaultReadLimit() == ReadMaxRows(10)
        start = stream.initialOffset()
        end = next_offset(stream, start, ReadMaxRows(10))
        assert ids(rows(stream, start, end)) == list(range(1, 11))
        last = next_offset(stream, end, ALL)
        assert ids(rows(stream, end, last)) == list(range(11, 31))
    with reading(sluice, maxBytesPerTrigger=1 << 30, clientId=2) as stream, caplog.at_level(logging.WARNING):
        start = stream.initialOffset()
        half = sluice.destination()["capacity"] // 2
        assert f"maxBytesPerTrigger={1 << 30} is more than half" in caplog.text
        assert f"it counts as {half}" in caplog.text
        assert ids(rows(stream, start, next_offset(stream, start))) == list(range(1, 31))
    with reading(sluice, maxBytesPerTrigger=2000, clientId=3) as stream:
        start = stream.initialOffset()
        assert stream.getDefaultReadLimit() == ReadMaxBytes(2000)
        assert 0 < len(ids(rows(stream, start, next_offset(stream, start, ReadMaxBytes(2000))))) < 10
        assert len(ids(rows(stream, start, next_offset(stream, start, ALL)))) == 30


def test_a_new_client_begins_where_told_and_an_existing_one_at_its_cursor(
    source: Server, numbers: str, sluice: Sluice, caplog: pytest.LogCaptureFixture
) -> None:
    fill(source, numbers, 1, 1)
    with sluice.client(9) as client:
        client.subscribe()
        first = client.position(client.status()["position"], timeout=10)
        next_second()
        now = int(source.query("SELECT UNIX_TIMESTAMP()")[0][0])
        fill(source, numbers, 2, 2)
        eventually(lambda: sluice.destination()["last"] == client.latest())
    starts = {"earliest": [1, 2, 3], "latest": [3], first.to: [2, 3], str(now * 1000): [2, 3]}
    for client_id, where in enumerate(starts, 10):
        with reading(sluice, clientId=client_id, startingPosition=where) as stream:
            stream.initialOffset()
    fill(source, numbers, 3, 3)
    assert "startingPosition has no effect" not in caplog.text
    for client_id, (where, wanted) in enumerate(starts.items(), 10):
        caplog.clear()
        with reading(sluice, clientId=client_id, startingPosition="latest") as stream:
            start = stream.initialOffset()
            assert "resumes at its cursor, startingPosition has no effect" in caplog.text
            found: list[int] = []
            end = start
            while not found or found[-1] != 3:
                begin, end = end, next_offset(stream, end)
                found += ids(rows(stream, begin, end))
            assert found == wanted, where


def test_another_filter_takes_the_place_of_the_one_before_with_a_warning(
    source: Server, schema: str, numbers: str, sluice: Sluice, caplog: pytest.LogCaptureFixture
) -> None:
    with reading(sluice, filter=re.escape(numbers)) as stream:
        stream.initialOffset()
    with reading(sluice) as stream:
        stream.initialOffset()
    assert caplog.text == ""
    with reading(sluice, table=numbers, filter=rf"{schema}\..*") as stream:
        stream.initialOffset()
    assert f"was subscribed to {re.escape(numbers)!r}, now it is to" in caplog.text
    assert sluice.destination()["clients"][0]["filter"] == rf"{schema}\..*"


def test_conditions_on_rows_are_those_of_the_option_or_stay(
    source: Server, numbers: str, sluice: Sluice, caplog: pytest.LogCaptureFixture
) -> None:
    with reading(sluice, where=f"{numbers}: id IN (2, 4, 5)") as stream:
        start = stream.initialOffset()
    assert caplog.text == ""
    fill(source, numbers, 1, 5)
    with reading(sluice) as stream:
        found: list[int] = []
        end = start
        while len(found) < 3:
            begin, end = end, next_offset(stream, end)
            found += ids(rows(stream, begin, end))
    assert found == [2, 4, 5]
    assert caplog.text == ""
    with reading(sluice, where="") as stream:
        stream.initialOffset()
    assert "now it is to" in caplog.text
    assert sluice.destination()["clients"][0]["where"] == ""


def test_a_filter_that_leaves_the_table_out_is_refused(schema: str, numbers: str, sluice: Sluice) -> None:
    reason = f"leaves {schema}.numbers out"
    for others in ({}, {"columns": "id int"}):
        parsed = Options.parse(options(sluice, table=numbers, filter=rf"{schema}\.others", **others))
        with pytest.raises(FilterError, match=reason):
            form_of(parsed)
    with sluice.client(5) as client:
        client.subscribe(rf"{schema}\.others")
    begin = sluice.destination()["last"]
    parsed = Options.parse(options(sluice, clientId=5, table=numbers))
    with pytest.raises(FilterError, match=reason):
        BatchReader(parsed, form_of(parsed), begin, begin).partitions()


def test_columns_of_a_table_that_is_gone_may_be_named_with_a_filter(schema: str, sluice: Sluice) -> None:
    parsed = Options.parse(options(sluice, table=f"{schema}.gone", filter=rf"{schema}\..*", columns="id int"))
    form = form_of(parsed)
    assert isinstance(form, Typed)
    assert form.columns == (("id", "int"),)


def test_a_large_range_is_cut_for_tasks_and_read_in_pieces(
    source: Server, numbers: str, sluice: Sluice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "PIECE", 20_000)
    monkeypatch.setattr(ranges, "TASK", 50_000)
    for number in range(0, 1000, 10):
        fill(source, numbers, number, number + 9)
    with reading(sluice, partitions=3, clientId=5) as stream:
        start = stream.initialOffset()
        with sluice.client() as client:
            eventually(lambda: sluice.destination()["last"] == client.latest())
        end = next_offset(stream, start)
        assert ids(rows(stream, start, end)) == list(range(1000)), "in order, as long as the parts are not mixed"
        parts: Any = stream.partitions(start, end)
        assert len(parts) == 3
        assert all(len(part.pieces) > 5 for part in parts)
        sizes = [sum(batch.nbytes for batch in stream.read(part)) for part in parts]
        assert max(sizes) < 2 * min(sizes)
        assert all(batch.nbytes < 30_000 for part in parts for batch in stream.read(part))
        ends = [place for part in parts for piece in part.pieces for place in piece]
        assert ends[0] == start["position"]
        assert ends[-1] == end["position"]
        assert ends[1:-1:2] == ends[2::2], "one after the other"
        small = next_offset(stream, start, ReadMaxRows(10))
        assert len(stream.partitions(start, small)) == 1
        batch = BatchReader(stream._options, stream._form, start["position"], end["position"])
        assert sum(part.num_rows for it in batch.partitions() for part in batch.read(it)) == 1000


def test_a_batch_needs_a_client_that_has_subscribed(sluice: Sluice) -> None:
    begin = sluice.destination()["last"]
    parsed = Options.parse(options(sluice, clientId=77))
    with pytest.raises(NotSubscribedError, match="In Spark: the clientId is that of a stream"):
        BatchReader(parsed, form_of(parsed), begin, begin).partitions()


def test_the_zone_of_timestamps_is_that_of_the_server_or_has_to_be_named(
    source: Server, schema: str, sluice: Sluice, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.query(f"CREATE TABLE {schema}.plain (id INT)")
    source.query(f"CREATE TABLE {schema}.timed (id INT, t TIMESTAMP NULL)")

    def zone(table: str, **others: object) -> str:
        form = form_of(Options.parse(options(sluice, table=f"{schema}.{table}", **others)))
        assert isinstance(form, Typed)
        return form.time_zone

    for told, wanted in (("Asia/Shanghai", "Asia/Shanghai"), ("CST-8", "")):
        sluice.stop()
        monkeypatch.setenv("TZ", told)
        sluice.start()
        assert sluice.destination()["timeZone"] == wanted
        assert zone("timed", timeZone="+08:00") == "+08:00"
        assert zone("plain") == wanted or "UTC"
    with pytest.raises(BadParameterError, match="cannot name the time zone that it writes TIMESTAMP values in"):
        zone("timed")


def test_a_source_that_cannot_be_read_ends_a_query_that_needs_it(
    source: Server, sluice: Sluice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "PATIENCE", 0.0)
    sluice.stop()
    sluice.add("lost", source, canal__instance__dbPassword="wrong")
    sluice.start()
    eventually(lambda: sluice.destination("lost")["error"])
    with (
        reading(sluice, destination="lost") as stream,
        pytest.raises(SluiceError, match=r"cannot read its source: .*denied"),
    ):
        stream.initialOffset()


def test_a_first_micro_batch_is_repeated_from_its_begin_though_the_cursor_has_moved(
    source: Server, numbers: str, sluice: Sluice
) -> None:
    fill(source, numbers, 1, 3)
    with reading(sluice) as stream:
        start = stream.initialOffset()
        end = next_offset(stream, start)
    with sluice.client() as client:
        client.ack(end["position"], durable=True)
    with reading(sluice) as stream:
        now = stream.initialOffset()
        assert now != start
        assert ids(rows(stream, now, end)) == [1, 2, 3]
        fill(source, numbers, 4, 5)
        following = next_offset(stream, end)
        assert list(following) == ["position"]
        assert ids(rows(stream, end, following)) == [4, 5]


@pytest.mark.parametrize(
    ("source", "statement"),
    [
        ("mariadb118", "DROP TABLE {}"),
        pytest.param("mariadb118", "RENAME TABLE {} TO {}_old", marks=pytest.mark.extended),
        pytest.param("mariadb118", "DROP DATABASE {schema}", marks=pytest.mark.extended),
        pytest.param("mysql97", "DROP DATABASE {schema}", marks=pytest.mark.extended),
        ("mariadb118", "TRUNCATE TABLE {}"),
    ],
    indirect=["source"],
)
def test_a_typed_query_ends_when_its_table_goes_away(
    source: Server, schema: str, numbers: str, sluice: Sluice, statement: str
) -> None:
    fill(source, numbers, 1, 1)
    with reading(sluice, table=numbers) as stream:
        end = next_offset(stream, stream.initialOffset())
        source.query(f"CREATE TABLE {schema}.another (id INT)")
        source.query(statement.format(numbers, numbers, schema=schema))
        if statement.startswith("TRUNCATE"):
            fill(source, numbers, 2, 2)
            assert rows(stream, end, next_offset(stream, end)).num_rows == 1
        else:
            with pytest.raises(SchemaMismatchError, match=rf"{statement.split(maxsplit=1)[0]}.*it is gone"):
                next_offset(stream, end)


@pytest.mark.parametrize(
    "kept", [*(pytest.param(it, marks=pytest.mark.extended) for it in ("none", "_op")), "_ts, _op"]
)
def test_a_query_may_leave_out_the_columns_that_are_not_the_tables(
    source: Server, numbers: str, sluice: Sluice, kept: str
) -> None:
    fill(source, numbers, 1, 3)
    with reading(sluice, table=numbers, metadata=kept) as stream:
        start = stream.initialOffset()
        found = rows(stream, start, next_offset(stream, start))
    names = [] if kept == "none" else kept.split(", ")
    assert found.column_names == [*names, "id", "filler"]
    assert found["id"].to_pylist() == [1, 2, 3]
    schema = SluiceDataSource(options(sluice, table=numbers, metadata=kept)).schema()
    assert schema.names == found.column_names
    with pytest.raises(BadParameterError, match="'_position' is not one of _pos, _gtid, _ts, _op, _xa"):
        SluiceDataSource(options(sluice, table=numbers, metadata="_position")).schema()


def test_spark_finds_the_source_from_any_folder(tmp_path: Path) -> None:
    """It looks for modules of that name where packages that are installed in place are not."""
    code = "import pkgutil; print(*(it.name for it in pkgutil.iter_modules() if it.name.startswith('pyspark_')))"
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.check_output([sys.executable, "-c", code], cwd=tmp_path, env=environ, text=True)
    assert found.split() == ["pyspark_sluice"]
