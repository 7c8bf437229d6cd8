"""The stream of a source in Spark: what arrives, where micro-batches end, what restarts and errors do."""

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sluice.server.credentials import Credentials, Grant
from tests.faults.harness import Sluice
from tests.servers import Server
from tests.spark.streams import Sink, failure, load, options, until
from tests.waiting import eventually


def ids(sink: Sink) -> list[int]:
    """Of rows that were inserted."""
    return [int(row["after"]["id"]) for row in sink.rows]


def lag(sluice: Sluice) -> dict[str, Any]:
    """Of the only client."""
    (client,) = sluice.destination()["clients"]
    found: dict[str, Any] = client["lag"]
    return found


@pytest.fixture
def numbers(source: Server, schema: str) -> str:
    """A table of numbers."""
    source.query(f"CREATE TABLE {schema}.numbers (id INT PRIMARY KEY, filler VARCHAR(100))")
    return f"{schema}.numbers"


def insert(source: Server, table: str, first: int, last: int, *, whole: bool = True) -> None:
    """Insert numbers, each in a transaction of its own, or else all in one."""
    with source.connect(autocommit=whole) as connection, connection.cursor() as cursor:
        for number in range(first, last + 1):
            cursor.execute(f"INSERT INTO {table} VALUES (%s, 'x')", (number,))
        connection.commit()


def test_changes_arrive_once_and_are_acked(
    spark: SparkSession, source: Server, schema: str, sluice: Sluice, tmp_path: Path
) -> None:
    source.query(f"CREATE TABLE {schema}.goods (id INT PRIMARY KEY, name VARCHAR(20))")
    source.query(f"INSERT INTO {schema}.goods VALUES (1, 'a'), (2, NULL)")
    source.query(f"UPDATE {schema}.goods SET name = 'b' WHERE id = 1")
    source.query(f"UPDATE {schema}.goods SET id = 3 WHERE id = 1")
    source.query(f"DELETE FROM {schema}.goods WHERE id = 2")
    sink = Sink(tmp_path)
    for _ in range(2):
        sink.read_available(load(spark, sluice))
    assert [(row["_op"], row["_key"], row["before"], row["after"]) for row in sink.rows] == [
        ("INSERT", ["1"], None, {"id": "1", "name": "a"}),
        ("INSERT", ["2"], None, {"id": "2", "name": None}),
        ("UPDATE", ["1"], {"id": "1", "name": "a"}, {"id": "1", "name": "b"}),
        ("DELETE", ["1"], {"id": "1", "name": "b"}, None),
        ("INSERT", ["3"], None, {"id": "3", "name": "b"}),
        ("DELETE", ["2"], {"id": "2", "name": None}, None),
    ]
    assert {(row["_schema"], row["_table"]) for row in sink.rows} == {(schema, "goods")}
    assert lag(sluice)["entries"] == 0
    written = sorted((sink.checkpoint / "offsets").glob("[0-9]*"))
    offsets = [json.loads(path.read_text().splitlines()[-1]) for path in written]
    assert [list(offset) for offset in offsets] == [["position", "begin"]] + [["position"]] * (len(offsets) - 1)


@pytest.mark.extended
def test_a_range_can_be_read_as_a_batch(spark: SparkSession, source: Server, numbers: str, sluice: Sluice) -> None:
    with sluice.client() as client:
        client.subscribe()
        begin = client.position(client.status()["position"], timeout=10).to
        source.query(f"INSERT INTO {numbers} VALUES (1, 'x'), (2, 'x'), (3, 'x')")
        end = client.position(begin, timeout=10).to
    found = options(sluice, from_=begin, to=end)
    batch = spark.read.format("sluice").options(**found).load()
    assert [row["after"]["id"] for row in batch.orderBy("_pos").collect()] == ["1", "2", "3"]
    with pytest.raises(Exception, match="is subscribed to '', which a batch cannot change"):
        spark.read.format("sluice").options(**found, filter="shop\\..*").load().collect()
    with pytest.raises(Exception, match="a batch needs the options from and to"):
        spark.read.format("sluice").options(**options(sluice)).load().collect()


@pytest.mark.extended
def test_a_micro_batch_has_at_most_the_rows_asked_for(
    spark: SparkSession, source: Server, numbers: str, sluice: Sluice, tmp_path: Path
) -> None:
    insert(source, numbers, 1, 25)
    sink = Sink(tmp_path)
    query = sink.read_available(load(spark, sluice, maxRowsPerTrigger=10))
    assert [len(rows) for rows in sink.batches.values()] == [10, 10, 5]
    assert [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]] == [10, 10, 5]
    assert ids(sink) == list(range(1, 26))
    assert lag(sluice)["entries"] == 0


@pytest.mark.extended
def test_available_now_ends_at_what_the_source_had_when_it_began(
    spark: SparkSession, source: Server, schema: str, numbers: str, sluice: Sluice, tmp_path: Path
) -> None:
    insert(source, numbers, 1, 20)
    source.query(f"CREATE TABLE {schema}.others (id INT)")
    source.query(f"INSERT INTO {schema}.others VALUES (1), (2)")  # the end is something that the filter leaves out
    writing = threading.Event()
    writing.set()

    def write() -> None:
        number = 1000
        while writing.is_set():
            insert(source, numbers, number, number)
            number += 1

    sink = Sink(tmp_path)
    writer = threading.Thread(target=write)
    query = sink.start(load(spark, sluice, filter=re.escape(numbers), maxRowsPerTrigger=6), availableNow=True)
    try:
        until(lambda: sink.runs, query)
        writer.start()
        assert query.awaitTermination(60)
    finally:
        query.stop()
        writing.clear()
        writer.join()
    assert ids(sink) == list(range(1, 21))
    with sluice.client() as client:
        client.ack(client.position(client.status()["acked"], timeout=5).to)
    sink.read_available(load(spark, sluice))
    assert ids(sink)[:21] == [*range(1, 21), 1000]


@pytest.mark.extended
def test_nothing_wanted_leaves_the_offset_alone(
    spark: SparkSession, source: Server, schema: str, numbers: str, sluice: Sluice, tmp_path: Path
) -> None:
    sink = Sink(tmp_path)
    insert(source, numbers, 1, 1)
    query = sink.start(load(spark, sluice, filter=re.escape(numbers)))
    try:
        until(lambda: len(sink.runs) == 1, query)
        source.query(f"CREATE TABLE {schema}.others (id INT)")
        for number in range(30):
            source.query(f"INSERT INTO {schema}.others VALUES ({number})")
        insert(source, numbers, 2, 2)
        until(lambda: len(sink.runs) > 1, query)
    finally:
        query.stop()
    assert [len(rows) for rows in sink.batches.values()] == [1, 1]
    assert lag(sluice)["stage"] in ("none", "client")


@pytest.mark.extended
@pytest.mark.parametrize(("number", "whole"), [(1, True), (0, True), (1, False)])
def test_a_batch_that_failed_is_repeated_unchanged_and_the_rest_follows(
    spark: SparkSession, source: Server, numbers: str, sluice: Sluice, tmp_path: Path, number: int, whole: bool
) -> None:
    """Also when a micro-batch ends inside of a transaction, because that is larger."""
    insert(source, numbers, 1, 20, whole=whole)
    sink = Sink(tmp_path)
    sink.fails = number
    assert "the sink fails" in failure(sink.start(load(spark, sluice, maxRowsPerTrigger=10), availableNow=True))
    first = dict(sink.batches)
    insert(source, numbers, 21, 30)
    sluice.stop()
    sluice.start()
    sink.runs.clear()
    sink.read_available(load(spark, sluice, maxRowsPerTrigger=7))
    assert sink.runs[0] == number
    assert sink.batches[number] == first[number]
    assert ids(sink) == list(range(1, 31))
    assert lag(sluice)["entries"] == 0


@pytest.mark.extended
def test_a_query_survives_the_server(
    spark: SparkSession, source: Server, numbers: str, sluice: Sluice, tmp_path: Path
) -> None:
    sink = Sink(tmp_path)
    insert(source, numbers, 1, 5)
    query = sink.start(load(spark, sluice))
    try:
        until(lambda: ids(sink) == list(range(1, 6)), query)
        for last in (10, 15):
            sluice.kill()
            insert(source, numbers, last - 4, last)
            sluice.start()
            until(lambda last=last: ids(sink) == list(range(1, last + 1)), query)  # type: ignore[misc]
        until(lambda: lag(sluice)["entries"] == 0, query)
    finally:
        query.stop()
    assert ids(sink) == list(range(1, 16))


@pytest.mark.extended
def test_progress_tells_how_far_the_query_is_behind(
    spark: SparkSession, source: Server, numbers: str, sluice: Sluice, tmp_path: Path
) -> None:
    insert(source, numbers, 1, 20)
    sink = Sink(tmp_path)
    query = sink.read_available(load(spark, sluice, maxRowsPerTrigger=10))
    reports = [json.loads(progress["sources"][0]["latestOffset"]) for progress in query.recentProgress]
    assert [report["lagTransactions"] for report in reports] == [20, 10]
    assert reports[0]["lagBytes"] > reports[1]["lagBytes"] > 0
    assert reports[0]["lagSeconds"] > 0
    assert reports[0]["position"].partition("/")[0] == str(source.query("SELECT @@server_id")[0][0])


@pytest.mark.extended
def test_a_second_query_of_the_client_ends_the_first(
    spark: SparkSession, source: Server, numbers: str, sluice: Sluice, tmp_path: Path
) -> None:
    insert(source, numbers, 1, 3)
    first, second = Sink(tmp_path / "first"), Sink(tmp_path / "second")
    old = first.start(load(spark, sluice))
    until(lambda: first.runs, old)
    new = second.start(load(spark, sluice))
    try:
        assert "because another one was started with the same clientId" in failure(old)
        insert(source, numbers, 4, 6)
        until(lambda: 6 in ids(second), new)
    finally:
        new.stop()


@pytest.mark.extended
def test_what_the_source_has_purged_is_an_error_that_says_what_to_do(
    spark: SparkSession, source: Server, numbers: str, sluice: Sluice, tmp_path: Path
) -> None:
    insert(source, numbers, 1, 3)
    sink = Sink(tmp_path)
    stream = load(spark, sluice)
    sink.read_available(stream)
    insert(source, numbers, 4, 6)
    sluice.kill()
    purge(source)
    sluice.start()
    error = failure(sink.start(stream))
    assert "purged" in error
    assert "take a new snapshot" in error


@pytest.mark.extended
def test_a_gap_ends_the_query_unless_markers_are_to_be_skipped(
    spark: SparkSession, source: Server, schema: str, numbers: str, sluice: Sluice, tmp_path: Path
) -> None:
    insert(source, numbers, 1, 3)
    sink = Sink(tmp_path)
    sink.read_available(load(spark, sluice))
    insert(source, numbers, 4, 6)
    sluice.kill()
    purge(source)
    sluice.settings["canal__auto__reset__latest__pos__mode"] = "true"
    sluice.add("shop", source, canal__instance__filter__regex=rf"{schema}\\..*")
    sluice.start()
    sluice.wait_running()
    insert(source, numbers, 7, 9)
    assert "does not get changes from" in failure(sink.start(load(spark, sluice), availableNow=True))
    sink.read_available(load(spark, sluice, onMarker="skip"))
    assert ids(sink) == [1, 2, 3, 7, 8, 9]
    assert not sluice.destination("shop")["gaps"]


def purge(source: Server) -> None:
    """Let the source forget all that is there now."""
    first, *_ = source.query("SHOW BINARY LOGS")[-1]

    def is_done() -> bool:  # which needs that it has noticed, by sending something, that no server reads there
        source.query("FLUSH BINARY LOGS")
        last, *_ = source.query("SHOW BINARY LOGS")[-1]
        source.query(f"PURGE BINARY LOGS TO '{last}'")
        return all(file > first for file, *_ in source.query("SHOW BINARY LOGS"))

    eventually(is_done)


@pytest.mark.extended
def test_what_the_source_has_purged_is_read_from_the_log_on_disk(
    spark: SparkSession, source: Server, schema: str, numbers: str, tmp_path: Path
) -> None:
    sluice = Sluice(tmp_path / "sluice")
    sluice.add("shop", source, canal__instance__filter__regex=rf"{schema}\\..*", sluice__instance__store="mixed")
    sink = Sink(tmp_path)
    with sluice:
        sluice.wait_running()
        insert(source, numbers, 1, 3)
        stream = load(spark, sluice, maxRowsPerTrigger="20")
        sink.read_available(stream)
        insert(source, numbers, 4, 60)
        purge(source)
        newest, *_ = source.query("SHOW BINARY LOGS")[-1]
        eventually(lambda: f"/{newest}@" in sluice.destination()["log"]["stretches"][-1][1])
        sluice.kill()
        sluice.start()
        sluice.wait_running()
        insert(source, numbers, 61, 63)
        sink.read_available(stream)
    assert ids(sink) == list(range(1, 64))
    assert len(sink.batches) >= 4, "micro-batches of 20 rows at most"


@pytest.mark.extended
def test_a_source_of_another_history_is_an_error_that_says_what_to_do(
    spark: SparkSession, source: Server, numbers: str, sluice: Sluice, tmp_path: Path
) -> None:
    insert(source, numbers, 1, 3)
    sink = Sink(tmp_path)
    stream = load(spark, sluice)
    sink.read_available(stream)
    sluice.kill()
    source.query("RESET MASTER")
    insert(source, numbers, 4, 6)
    sluice.start()
    error = failure(sink.start(stream))
    assert re.search(r"SourceChangedError|PurgedError|GoneError", error)
    assert "new checkpoint" in error


@pytest.mark.extended
def test_a_source_that_was_reset_under_a_running_server_has_not_been_read(
    spark: SparkSession, source: Server, numbers: str, sluice: Sluice, tmp_path: Path
) -> None:
    source.query("FLUSH BINARY LOGS")
    insert(source, numbers, 1, 3)
    sink = Sink(tmp_path)
    stream = load(spark, sluice)
    sink.read_available(stream)
    source.query("RESET MASTER")
    insert(source, numbers, 4, 4)
    for _ in range(2):
        error = failure(sink.start(stream, availableNow=True))
        assert "SourceChangedError" in error
        assert "new checkpoint" in error


@pytest.mark.extended
@pytest.mark.parametrize("table", [False, True])
def test_a_marker_ends_the_query_unless_it_is_to_be_skipped(
    spark: SparkSession, source: Server, schema: str, numbers: str, sluice: Sluice, tmp_path: Path, table: bool
) -> None:
    sink = Sink(tmp_path)
    others = {"table": f"{schema}.t", "columns": "id int", "onSchemaChange": "continue"} if table else {}
    source.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, b INT)")
    insert(source, numbers, 1, 1)
    sink.read_available(load(spark, sluice, **others))
    sluice.stop()
    source.query(f"INSERT INTO {schema}.t VALUES (1, 2)")
    source.query(f"ALTER TABLE {schema}.t DROP b")  # the metadata is not FULL: it is not known any more what b was
    source.query(f"INSERT INTO {schema}.t VALUES (3)")
    for file in (sluice.data / "shop").glob("schema.*"):
        file.unlink()
    sluice.start()
    sluice.wait_running()
    error = failure(sink.start(load(spark, sluice, **others), availableNow=True))
    assert re.search(rf"rows of {schema}\.t are missing at \S+:\d+ \(.*fix the cause.*onMarker=skip", error)
    sink.read_available(load(spark, sluice, onMarker="skip", **others))
    assert [row["id"] if table else row["after"]["id"] for row in sink.rows][-1] in (3, "3")


@pytest.mark.extended
def test_the_token_is_shown_nowhere(
    spark: SparkSession,
    source: Server,
    numbers: str,
    sluice: Sluice,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    token = Credentials(sluice.conf / "credentials.json").issue("spark", Grant()).text
    insert(source, numbers, 1, 3)
    with pytest.raises(Exception, match="UnauthorizedError"):
        Sink(tmp_path / "none").start(load(spark, sluice)).awaitTermination(60)
    sink = Sink(tmp_path)
    stream = load(spark, sluice, token=token)
    query = sink.read_available(stream)
    assert ids(sink) == [1, 2, 3]
    stream.explain(extended=True)
    plans = capfd.readouterr().out
    assert "sluice" in plans
    broken = failure(Sink(tmp_path / "broken").start(load(spark, sluice, token=token, clientId=70_000)))
    shown = [plans, broken, *(progress.json for progress in query.recentProgress)]
    shown += [str(query.lastProgress), str(query._jsq.toString())]
    shown += [path.read_text(errors="replace") for path in sink.checkpoint.rglob("*") if path.is_file()]
    assert [text for text in shown if token.split("_", 2)[2] in text] == []
    with sluice.client() as client:
        client._endpoint._token = token
        position = client.status()["acked"]
    (tmp_path / "token").write_text(f"{token}\n")
    batch = options(sluice, tokenFile=tmp_path / "token", from_=position, to=position)
    assert spark.read.format("sluice").options(**batch).load().collect() == []
