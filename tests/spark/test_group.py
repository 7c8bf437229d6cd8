"""A group in Spark: offsets are places of all members, and each row says from which one it comes."""

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluice.protocol.cut import Cut
from tests import commands
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.groups import NAME, Group, Row, configure
from tests.servers import Server
from tests.spark.streams import Sink, failure, load, options
from tests.waiting import eventually

pytestmark = pytest.mark.extended


@pytest.fixture
def group(mysql97: Server, mariadb118: Server, database: Database) -> Group:
    return Group({name: (it, database(it)) for name, it in (("my", mysql97), ("maria", mariadb118))})


@pytest.fixture
def merged(group: Group, tmp_path: Path) -> Sluice:
    made = Sluice(tmp_path / "sluice")
    configure(made, group.members)
    return made


def rows(sink: Sink) -> list[Row]:
    return sorted((row["_pos"]["member"], row["after"]["id"]) for batch in sink.batches.values() for row in batch)


def test_a_stream_of_a_group_goes_on_from_its_checkpoint_after_a_restart_of_the_server(
    spark: SparkSession, group: Group, merged: Sluice, tmp_path: Path
) -> None:
    sink, written = Sink(tmp_path), list[Row]()
    with merged:
        merged.wait_running()
        sink.read_available(load(spark, merged))
    for number in range(3):
        with merged:
            merged.wait_running()
            for row in range(4):
                for name in group.members:
                    group.write(name, 10 * number + row)
                    written.append((name, str(10 * number + row)))
            sink.read_available(load(spark, merged, maxRowsPerTrigger=3))
            assert rows(sink) == sorted(written)
            merged.kill()
    for name in group.members:
        places = [row["_pos"] for batch in sink.batches.values() for row in batch if row["_pos"]["member"] == name]
        assert places == sorted(places)
    files = sorted((sink.checkpoint / "offsets").glob("[0-9]*"), key=lambda it: int(it.name))
    offsets = [json.loads(it.read_text().splitlines()[-1])["position"] for it in files]
    assert [str(Cut.parse(it)) for it in offsets] == offsets
    with merged:
        merged.wait_running()
        given = options(merged, from_=offsets[0], to=offsets[-1])
        again = spark.read.format("sluice").options(**given).load().collect()
        before = {(it["_pos"]["member"], it["after"]["id"]) for it in sink.batches[min(sink.batches)]}
        assert {(it["_pos"]["member"], it["after"]["id"]) for it in again} == {*written} - before


def test_a_checkpoint_from_before_a_member_joined_gives_all_of_that_or_fails_at_once(
    spark: SparkSession, group: Group, tmp_path: Path
) -> None:
    made, sink = Sluice(tmp_path / "sluice"), Sink(tmp_path)
    made.settings = {"canal__auto__scan": "true", "canal__auto__scan__interval": 0.2}
    common = {
        "canal__instance__filter__regex": ",".join(rf"{schema}\\..*" for _, schema in group.members.values()),
        "canal__instance__memory__buffer__size": 64,
    }
    configure(made, {"my": group.members["my"]}, **common)
    with made:
        made.wait_running()
        sink.read_available(load(spark, made))
        group.write("my", 1)
        sink.read_available(load(spark, made))
        assert rows(sink) == [("my", "1")]
        old = Sink(tmp_path / "old")
        shutil.copytree(sink.checkpoint, old.checkpoint)
        before = made.call("GET", f"/{NAME}/clients/1001")["acked"]
        configure(made, group.members, **common)
        eventually(lambda: "member maria  merged" in commands.run("status", NAME, "--url", made.url).stdout)
        group.write("maria", 2)
        sink.read_available(load(spark, made))
        for number in range(10, 50):  # more than the ring holds
            group.write("my", number)
        sink.read_available(load(spark, made))
        written = [("maria", "2"), ("my", "1"), *(("my", str(it)) for it in range(10, 50))]
        assert rows(sink) == written
        after = made.call("GET", f"/{NAME}/clients/1001")["acked"]
        given = options(made, from_=before, to=after)
        again = spark.read.format("sluice").options(**given).load().collect()
        assert sorted((it["_pos"]["member"], it["after"]["id"]) for it in again) == sorted({*written} - {("my", "1")})
    with made:
        made.wait_running()
        query = old.start(load(spark, made))
        assert "member maria has joined the group since" in failure(query)
