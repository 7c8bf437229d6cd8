"""A job: batches one after the other, acknowledged in order, given back when something fails."""

import json
import signal
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sluice.client_sdk.batch import Range
from sluice.client_sdk.spark.job import SubscriptionJob
from sluice.protocol.errors import BadParameterError, SchemaMismatchError, StaleSessionError
from tests.faults.harness import Sluice
from tests.servers import Server
from tests.spark.conftest import start_spark

CLIENT = 1001


class Seen(list[tuple[Range, list[int]]]):
    """A function for a job, which remembers its batches and the ids in them."""

    def __call__(self, batch: Range, changes: DataFrame) -> None:
        self.append((batch, sorted(int(row["after"]["id"]) for row in changes.collect())))

    @property
    def ids(self) -> list[int]:
        return [number for _, ids in self for number in ids]


def options(sluice: Sluice, **others: Any) -> dict[str, Any]:
    return {"url": sluice.url, "destination": "shop", "clientId": CLIENT, "maxRowsPerTrigger": 2} | others


@pytest.fixture
def job(spark: SparkSession, sluice: Sluice) -> SubscriptionJob:
    return SubscriptionJob(spark, options(sluice))


@pytest.fixture
def numbers(source: Server, schema: str) -> str:
    """A table with the ids 1 to 10, a transaction each."""
    table = f"{schema}.numbers"
    source.query(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
    insert(source, table, *range(1, 11))
    return table


def insert(source: Server, table: str, *ids: int) -> None:
    with source.connect(autocommit=True) as connection, connection.cursor() as cursor:
        for number in ids:
            cursor.execute(f"INSERT INTO {table} VALUES ({number})")


def client(sluice: Sluice) -> dict[str, Any]:
    """Where the client stands."""
    (status,) = sluice.destination()["clients"]
    assert isinstance(status, dict)
    return status


@pytest.mark.extended
def test_batches_are_marked_ahead_and_acked_in_order_when_they_are_done(
    sluice: Sluice, numbers: str, job: SubscriptionJob
) -> None:
    seen, before = Seen(), []

    def process(batch: Range, changes: DataFrame) -> None:
        seen(batch, changes)
        before.append(client(sluice))

    job.run(process, once=True)
    assert [ids for _, ids in seen] == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]
    assert [it["position"] for it in before[1:]] == [batch.from_ for batch, _ in seen[1:]]
    assert before[0]["marks"][1:], "more than the one in work"
    assert all(first.to == second.from_ for (first, _), (second, _) in pairwise(seen))
    after = client(sluice)
    assert (after["marks"], after["lag"]["entries"]) == ([], 0)


@pytest.mark.extended
def test_what_has_no_rows_for_the_client_is_acked_and_not_a_batch(
    source: Server, spark: SparkSession, sluice: Sluice, schema: str, numbers: str
) -> None:
    source.query(f"CREATE TABLE {schema}.others (id INT PRIMARY KEY)")
    insert(source, f"{schema}.others", *range(20))
    insert(source, numbers, 11)
    insert(source, f"{schema}.others", *range(20, 40))
    seen = Seen()
    SubscriptionJob(spark, options(sluice, filter=rf"{schema}\.numbers", maxRowsPerTrigger=100)).run(seen, once=True)
    assert seen.ids == list(range(1, 12))
    assert len(seen) == 1
    assert client(sluice)["lag"]["entries"] == 0


@pytest.mark.extended
def test_a_batch_that_fails_is_given_back_and_comes_again(sluice: Sluice, numbers: str, job: SubscriptionJob) -> None:
    seen = Seen()

    def fail(batch: Range, changes: DataFrame) -> None:
        seen(batch, changes)
        if len(seen) == 2:
            raise ArithmeticError("no")

    with pytest.raises(ArithmeticError) as error:
        job.run(fail, once=True)
    (note,) = error.value.__notes__
    assert f"The batch from {seen[1][0].from_} to {seen[1][0].to} is not acknowledged" in note
    assert (client(sluice)["position"], client(sluice)["marks"]) == (seen[1][0].from_, [])
    again = Seen()
    job.run(again, once=True)
    assert (again[0][0].from_, again[0][0].to, again[0][1]) == (seen[1][0].from_, seen[1][0].to, [3, 4])
    assert again.ids == list(range(3, 11))


@pytest.mark.extended
def test_the_server_may_be_killed_while_a_batch_is_in_work(sluice: Sluice, numbers: str, job: SubscriptionJob) -> None:
    seen = Seen()

    def process(batch: Range, changes: DataFrame) -> None:
        if len(seen) in (1, 3):
            sluice.kill()
            sluice.start()
        seen(batch, changes)

    job.run(process, once=True)
    assert seen.ids == list(range(1, 11))


@pytest.mark.extended
@pytest.mark.timeout(300)
def test_after_a_kill_between_function_and_ack_the_batch_comes_again_or_not_as_wanted(
    sluice: Sluice, numbers: str, job: SubscriptionJob, tmp_path: Path
) -> None:
    stored = tmp_path / "stored"
    command = [sys.executable, "-m", "tests.spark.test_job", sluice.url, str(stored)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    done = json.loads(stored.read_text())
    assert done["ids"] == [3, 4]
    assert client(sluice)["position"] == done["from"]
    again = Seen()

    def give_up(batch: Range, changes: DataFrame) -> None:
        again(batch, changes)
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        job.run(give_up, once=True)
    ((batch, ids),) = again
    assert (batch.from_, batch.to, ids) == (done["from"], done["to"], done["ids"])
    rest = Seen()
    job.run(rest, once=True, after=done["to"])
    assert rest.ids == list(range(5, 11))
    assert client(sluice)["lag"]["entries"] == 0


@pytest.mark.extended
def test_it_stops_when_the_batch_in_work_is_done(
    source: Server, sluice: Sluice, numbers: str, job: SubscriptionJob
) -> None:
    seen = Seen()

    def process(batch: Range, changes: DataFrame) -> None:
        seen(batch, changes)
        job.stop()

    job.run(process)
    assert seen.ids == [1, 2]
    assert (client(sluice)["position"], client(sluice)["marks"]) == (seen[0][0].to, [])
    idle = threading.Timer(1, job.stop)
    job.run(seen, once=True)
    idle.start()
    job.run(seen)
    assert seen.ids == list(range(1, 11))


@pytest.mark.extended
def test_a_second_job_of_the_client_ends_the_first(
    spark: SparkSession, sluice: Sluice, numbers: str, job: SubscriptionJob
) -> None:
    second = Seen()

    def process(batch: Range, changes: DataFrame) -> None:
        SubscriptionJob(spark, options(sluice)).run(second, once=True)

    with pytest.raises(StaleSessionError, match="each needs its own"):
        job.run(process)
    assert second.ids == list(range(1, 11))


@pytest.mark.extended
def test_a_table_that_is_changed_ends_a_run_after_the_rows_before_and_the_next_has_its_new_columns(
    source: Server, spark: SparkSession, sluice: Sluice, numbers: str
) -> None:
    found: list[Any] = []
    job = SubscriptionJob(spark, options(sluice, table=numbers, maxRowsPerTrigger=100))

    def process(batch: Range, changes: DataFrame) -> None:
        found.append(
            [row.asDict() for row in changes.drop("_pos", "_ts", "_gtid", "_op", "_xa").orderBy("id").collect()]
        )
        if len(found) == 1:
            source.query(f"ALTER TABLE {numbers} ADD COLUMN name VARCHAR(10) DEFAULT 'x'")
            source.query(f"INSERT INTO {numbers} (id) VALUES (11)")

    with pytest.raises(SchemaMismatchError, match="name is new"):
        job.run(process)
    assert found == [[{"id": number} for number in range(1, 11)]]
    found.append([])
    job.run(process, once=True)
    assert found[2:] == [[{"id": 11, "name": "x"}]]


def test_a_job_does_not_take_a_range(spark: SparkSession) -> None:
    with pytest.raises(BadParameterError, match="see `after` of its run"):
        SubscriptionJob(spark, {"From": "1/mysql-bin.000001@0:4:0"})


def die_before_an_ack(url: str, stored: Path) -> None:
    """Be the driver that is killed when its function has stored the second batch."""
    spark, seen = start_spark(), Seen()

    def process(batch: Range, changes: DataFrame) -> None:
        seen(batch, changes)
        if len(seen) == 2:
            stored.write_text(json.dumps({"from": batch.from_, "to": batch.to, "ids": seen[1][1]}))
            signal.raise_signal(signal.SIGKILL)

    given = {"url": url, "destination": "shop", "clientId": CLIENT, "maxRowsPerTrigger": 2}
    SubscriptionJob(spark, given).run(process)


if __name__ == "__main__":
    die_before_an_ack(sys.argv[1], Path(sys.argv[2]))
