"""A group in Spark: offsets are places of all members, and each row says from which one it comes."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluice.protocol.cut import Cut
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.groups import Group, Row, configure
from tests.servers import Server
from tests.spark.streams import Sink, load, options

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
