"""TiDB's secondary binlog as a source of Sluice, on a real broker: what is delivered, and where it goes on."""

import functools
import itertools
from pathlib import Path

import pytest
from pydantic import ValidationError

from sluice.instance.sources.kafka.config import KafkaConfig
from sluice.instance.sources.registry import make_parser
from sluice.protocol.canal.rows import decode_changes
from sluice.protocol.canal.tags import EntryType
from sluice.protocol.errors import PurgedError
from sluice.protocol.position import Position
from sluice.protocol.tidb.entries import EntryEncoder
from sluice.store.cursor import Cursor
from sluice.store.ring import Ring
from tests import commands, topics
from tests.servers.kafka import Kafka
from tests.tidb import captured, ddl, dml, produce, table
from tests.topics import error_of, ids, take
from tests.waiting import soon

_numbers = itertools.count(1)
serving = functools.partial(topics.serving, KafkaConfig)


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """A new topic."""
    name = f"source{next(_numbers)}_obinlog"
    kafka.create(name)
    return name


def row(commit_ts: int, name: str = "t") -> bytes:
    return dml(commit_ts, table("s", name, "*id bigint", [(None, (commit_ts,))]))


async def test_what_drainer_wrote_is_delivered_as_if_from_mysql(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    produce(kafka, topic, [it.value for it in captured()])
    first = captured()[0].commit_ts - 1
    encoder = EntryEncoder("f.0")
    entries = [entry for it in captured() for entry in encoder.encode(it.value, 0).entries]
    count = sum(it.entry_type == EntryType.ROWDATA for it in entries)
    async with serving(kafka, topic, tmp_path, **{"sluice.instance.kafka.commitTs": first}) as server:
        found = await take(server, count)
    assert [it.sql + ";" for it in found if it.is_ddl] == [
        it.decoded["ddl"]["query"] for it in captured() if "ddl" in it.decoded
    ]
    assert {(it.logfile_name, it.execute_time >> 20) for it in found} == {(f"{topic}.0", captured()[0].commit_ts >> 38)}
    assert sum(len(it.rows()) for it in found) == sum(
        1000 if "note" in it.decoded else sum(len(found["mutations"]) for found in it.decoded.get("tables", ()))
        for it in captured()
    )


async def test_a_client_begins_at_a_time_or_with_the_oldest_record(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    times = (1_700_000_000_000, 1_700_000_001_000, 1_700_000_002_000)
    first, second, third = (time << 18 for time in times)
    produce(kafka, topic, map(row, (first, second, third)))
    async with serving(kafka, topic, tmp_path) as server:
        await soon(lambda: server.destination_status("example").state == "running")
        await server.seek("example", 1001, {"timestamp": times[1]})
        assert ids(await take(server, 2)) == [second, third]
        await server.seek("example", 1001, "oldest")
        assert ids(await take(server, 3)) == [first, second, third]
        kafka.truncate(topic, 1)
        await server.seek("example", 1001, "oldest")
        assert ids(await take(server, 2)) == [second, third]
        with pytest.raises(PurgedError, match=f"begins with the commit_ts {second} at offset 1"):
            await server.seek("example", 1001, {"timestamp": times[0]})


async def test_after_a_restart_it_goes_on_after_what_was_acked_and_drops_repetitions(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    async with serving(kafka, topic, tmp_path) as server:
        produce(kafka, topic, map(row, (10, 20, 30)))
        assert ids(await take(server, 3)) == [10, 20, 30]
        await soon((tmp_path / "example" / "meta.dat").exists)
    produce(kafka, topic, map(row, (20, 30, 40)))
    async with serving(kafka, topic, tmp_path) as server:
        assert ids(await take(server, 1, ack=False)) == [40]
    async with serving(kafka, topic, tmp_path) as server:
        assert ids(await take(server, 1)) == [40]
        produce(kafka, topic, map(row, (30, 40, 50)))
        assert ids(await take(server, 1)) == [50]


async def test_what_retention_has_removed_is_an_error_or_a_recorded_gap(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    async with serving(kafka, topic, tmp_path) as server:
        produce(kafka, topic, map(row, (10, 20)))
        assert ids(await take(server, 2)) == [10, 20]
    kafka.truncate(topic, 2)
    produce(kafka, topic, map(row, (30, 40)))
    async with serving(kafka, topic, tmp_path) as server:  # nothing was missed
        assert ids(await take(server, 2, ack=False)) == [30, 40]
    kafka.truncate(topic, 3)
    async with serving(kafka, topic, tmp_path) as server:
        await soon(lambda: "begins with the commit_ts 40 at offset 3" in error_of(server))
    async with serving(kafka, topic, tmp_path, **{"canal.auto.reset.latest.pos.mode": True}) as server:
        gap, change = await take(server, 2)
        assert "begins with the commit_ts 40 at offset 3, after 20" in gap.header_props["sluice.gap"]
        assert ids([change]) == [40]


def test_a_range_begins_and_ends_inside_transactions_and_a_new_shape_is_said_before_rows(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    def both(commit_ts: int) -> bytes:
        changes = [(None, (commit_ts,))]
        return dml(commit_ts, table("s", "a", "*id bigint", changes), table("s", "b", "*id bigint", changes))

    produce(kafka, topic, [both(10), both(20), both(30), both(40)])

    def read(begin: tuple[int, int], end: tuple[int, int], shape: str = "") -> list[str]:
        keys = {"sluice.instance.kafka.brokers": kafka.servers, "sluice.instance.kafka.topic": topic}
        keys |= {"canal.instance.destination": "example"}
        config = KafkaConfig.model_validate(keys, context={"folder": tmp_path})
        start, stop = (Position("tidb", f"{topic}.0", 0, *it) for it in (begin, end))
        ring = Ring(64)
        parser = make_parser(
            config, ring, start=Cursor.at(start), on_begin=lambda *_: None, on_state=lambda *_: None, stop=stop
        )
        parser.announce(shape)
        parser.start()
        parser.join(30)
        assert parser.failure is None
        changes = decode_changes(b"".join(ring.collect(0).slices)) if len(ring) else []
        return [f"{it.table or it.sql or it.entry_type[11:]}{it.execute_time}" for it in changes]

    assert [len(read((20, 0), (30, n))) for n in range(5)] == [4, 5, 6, 7, 8]
    assert [len(read((20, n), (30, 0))) for n in range(4)] == [4, 3, 2, 1]
    assert read((21, 0), (30, 0)) == []
    assert read((40, 1), (41, 0), "another filter") == ["-- sluice.shape: another filter0", "a0", "b0", "END0"]


async def test_filters_choose_tables_and_kinds(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    settings = {"canal.instance.filter.regex": r"s\.a", "canal.instance.filter.query.ddl": True}
    async with serving(kafka, topic, tmp_path, **settings) as server:
        produce(kafka, topic, [row(10, "b"), ddl(11, "s", "ALTER TABLE `a` ADD COLUMN `x` INT;", "a"), row(12, "a")])
        assert ids(await take(server, 1)) == [12]
        assert error_of(server) == ""


async def test_an_undecodable_record_is_an_error_with_its_offset(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    async with serving(kafka, topic, tmp_path) as server:
        produce(kafka, topic, [row(10), b"hello", row(20)])
        assert ids(await take(server, 1)) == [10]
        await soon(lambda: f"topic {topic}, offset 1: not a record" in error_of(server))


def test_check_asks_the_brokers(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    (tmp_path / "example").mkdir()
    (tmp_path / "canal.properties").write_text("canal.destinations = example\n")
    produce(kafka, topic, [row(10)])
    for name, status, text in ((topic, 0, "offsets from 0 to 1"), (f"{topic}2", 1, f"topic {topic}2: ")):
        (tmp_path / "example" / "instance.properties").write_text(
            f"sluice.instance.source = kafka\nsluice.instance.kafka.topic = {name}\n"
            f"sluice.instance.kafka.brokers = {kafka.servers}\n"
        )
        found = commands.run("check", "--conf", str(tmp_path))
        assert (found.returncode, text in found.stdout) == (status, True), found.stdout


def test_a_filter_of_columns_is_refused(tmp_path: Path) -> None:
    keys = {
        "sluice.instance.kafka.brokers": "a:1",
        "sluice.instance.kafka.topic": "t",
        "canal.instance.destination": "example",
        "canal.instance.filter.field": "s.t:id",
    }
    with pytest.raises(ValidationError, match="columns and rows of TiDB are delivered as they come"):
        KafkaConfig.model_validate(keys, context={"folder": tmp_path})
