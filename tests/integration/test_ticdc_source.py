"""A topic of TiCDC as a source of Sluice, on a real broker: what is delivered, and where it goes on."""

import asyncio
import functools
import itertools
import json
import time
from pathlib import Path

import pytest

from sluice.instance.sources.registry import make_parser
from sluice.instance.sources.ticdc.config import TicdcConfig
from sluice.protocol.canal.rows import decode_changes
from sluice.protocol.errors import PurgedError
from sluice.protocol.position import Position
from sluice.server.embedded import EmbeddedServer
from sluice.store.cursor import Cursor
from sluice.store.ring import Ring
from tests import commands, topics
from tests.servers.kafka import Kafka
from tests.ticdc import change, insert, produce, statement, watermark
from tests.topics import error_of, ids, take
from tests.waiting import soon

_numbers = itertools.count(1)
serving = functools.partial(topics.serving, TicdcConfig)
HOUR = 3_600_000
"""Milliseconds."""


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """A new topic."""
    name = f"ticdc{next(_numbers)}"
    kafka.create(name)
    return name


def now() -> int:
    """The time of TiDB in ms, with which a commit_ts is made: brokers have the times of records, too."""
    return time.time_ns() // 1_000_000


def ts(milliseconds: int, logical: int = 0) -> int:
    return milliseconds << 18 | logical


async def running(server: EmbeddedServer) -> None:
    await soon(lambda: server.destination_status("example").state == "running")


async def test_transactions_come_whole_in_their_order_and_once(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    begin = now()
    produce(kafka, topic, [watermark(ts(begin))])
    async with serving(kafka, topic, tmp_path) as server:
        await running(server)
        rows = [
            insert(ts(begin, 2), 3),
            insert(ts(begin, 1), 1),
            insert(ts(begin, 2), 4, "shop.items"),
            insert(ts(begin, 1), 2),
        ]
        produce(kafka, topic, [*rows, *rows[:2], watermark(ts(begin, 3)), *rows, watermark(ts(begin, 4))])
        ddl = statement(ts(begin, 5), "ALTER TABLE orders ADD COLUMN v INT")
        produce(kafka, topic, [ddl, ddl, insert(ts(begin, 6), 5), watermark(ts(begin, 7))])
        found = await take(server, 5)
    shown = [(it.table, it.sql or [row.after for row in it.rows()], it.execute_time) for it in found]
    assert shown == [
        ("orders", [{"id": 1}, {"id": 2}], begin),
        ("orders", [{"id": 3}], begin),
        ("items", [{"id": 4}], begin),
        ("orders", "ALTER TABLE orders ADD COLUMN v INT", begin),
        ("orders", [{"id": 5}], begin),
    ]
    assert {it.logfile_name for it in found} == {f"{topic}.0"}


async def test_partitions_are_one_stream_in_the_order_of_the_commits(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    begin, name = now(), f"{topic}-several"
    kafka.create(name, 3)
    for number in range(3):
        produce(kafka, name, [watermark(ts(begin))], partition=number)
    ddl = statement(ts(begin, 3), "ALTER TABLE orders ADD COLUMN v INT")
    values = [
        [insert(ts(begin, 4), 4), insert(ts(begin, 1), 1), ddl, watermark(ts(begin, 9))],
        [insert(ts(begin, 2), 2), ddl, watermark(ts(begin, 9))],
        [insert(ts(begin, 4), 5), insert(ts(begin, 2), 3, "shop.items"), ddl, watermark(ts(begin, 3))],
    ]
    async with serving(kafka, name, tmp_path) as server:
        await running(server)
        for number, its in enumerate(values):
            produce(kafka, name, its, partition=number)
        found = await take(server, 3)
        assert [it.sql or ids([it]) for it in found] == [[1], [2], [3]]
        await soon((tmp_path / "example" / "meta.dat").exists)
    produce(kafka, name, [insert(ts(begin, 4), 5), watermark(ts(begin, 9))], partition=2)
    async with serving(kafka, name, tmp_path) as server:
        found = await take(server, 2)
    assert [it.sql or ids([it]) for it in found] == ["ALTER TABLE orders ADD COLUMN v INT", [4, 5]]
    assert {it.logfile_name for it in found} == {f"{name}.0"}


async def test_a_partition_that_is_ahead_is_not_read_on_while_much_waits_for_the_others(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    begin, name, count = now(), f"{topic}-ahead", 30
    kafka.create(name, 2)
    for number in range(2):
        produce(kafka, name, [watermark(ts(begin))], partition=number)
    async with serving(kafka, name, tmp_path, **{"sluice.instance.ticdc.memory": 8}) as server:
        await running(server)
        for it in range(1, count + 1):
            large = change(ts(begin, it), None, {"id": str(it), "v": "x" * 400_000})
            produce(kafka, name, [large, watermark(ts(begin, it + 1))])
        await asyncio.sleep(1)  # in which nothing but the other partition is waited for
        assert not error_of(server)
        produce(kafka, name, [watermark(ts(begin, it)) for it in range(2, count + 2)], partition=1)
        found = await take(server, count)
    assert ids(found) == list(range(1, count + 1))


async def test_a_partition_that_is_added_is_read_before_its_transactions_are_complete(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    begin = now()
    produce(kafka, topic, [watermark(ts(begin))])
    async with serving(kafka, topic, tmp_path) as server:
        await running(server)
        produce(kafka, topic, [insert(ts(begin, 1), 1), watermark(ts(begin, 2))])
        assert ids(await take(server, 1)) == [1]
        kafka.enlarge(topic, 2)
        produce(kafka, topic, [insert(ts(begin, 4), 3), watermark(ts(begin, 2)), watermark(ts(begin, 5))], partition=1)
        produce(kafka, topic, [insert(ts(begin, 3), 2), insert(ts(begin, 6), 4), watermark(ts(begin, 7))])
        assert ids(await take(server, 2)) == [2, 3]
        produce(kafka, topic, [watermark(ts(begin, 7))], partition=1)
        assert ids(await take(server, 1)) == [4]


async def test_a_partition_without_watermarks_is_named_and_nothing_is_called_read(
    kafka: Kafka, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.instance.sources.ticdc.parser.PATIENCE", 1.0)
    begin, name = now(), f"{topic}-silent"
    kafka.create(name, 3)
    for number in range(2):
        produce(kafka, name, [insert(ts(begin, 1), number), watermark(ts(begin, 2))], partition=number)
    async with serving(kafka, name, tmp_path) as server:
        await soon(lambda: "no watermark comes in partition 2," in error_of(server))
        assert "partition-num in the sink-uri" in error_of(server)
        await asyncio.sleep(1)
        behind = server.destination_status("example").parser.behind
        assert behind is None or behind > 0.9
        produce(kafka, name, [watermark(ts(begin, 2))], partition=2)
        await server.seek("example", 1001, "oldest")
        assert ids(await take(server, 1)) == [0, 1]
        await soon(lambda: not error_of(server))


async def test_after_a_restart_it_goes_on_after_what_was_acked(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    begin = now()
    produce(kafka, topic, [watermark(ts(begin))])
    async with serving(kafka, topic, tmp_path) as server:
        await running(server)
        # A row of the transaction that comes next stands before the watermark of the one before it.
        produce(kafka, topic, [insert(ts(begin, 9), 3), insert(ts(begin, 2), 1), watermark(ts(begin, 5))])
        assert ids(await take(server, 1)) == [1]
        await soon((tmp_path / "example" / "meta.dat").exists)
    produce(kafka, topic, [insert(ts(begin, 2), 1), insert(ts(begin, 9), 4), watermark(ts(begin, 10))])
    async with serving(kafka, topic, tmp_path) as server:
        assert ids(await take(server, 1, ack=False)) == [3, 4]
    async with serving(kafka, topic, tmp_path) as server:
        assert ids(await take(server, 1)) == [3, 4]


async def test_a_client_begins_at_a_time_or_with_the_oldest_message(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    times = [now() - 3 * HOUR, now() - 2 * HOUR, now() - HOUR]
    for number, it in enumerate(times):
        produce(kafka, topic, [insert(ts(it, 1), number), watermark(ts(it, 2))], time=it)
    async with serving(kafka, topic, tmp_path) as server:
        await running(server)
        await server.seek("example", 1001, {"timestamp": times[1]})
        assert ids(await take(server, 2)) == [1, 2]
        await server.seek("example", 1001, "oldest")
        assert ids(await take(server, 3)) == [0, 1, 2]
        kafka.truncate(topic, 2)
        await server.seek("example", 1001, "oldest")
        assert ids(await take(server, 2)) == [1, 2]
        with pytest.raises(PurgedError, match="begins at offset 2 with what was written at"):
            await server.seek("example", 1001, {"timestamp": times[0]})


async def test_what_retention_has_removed_is_an_error_or_a_recorded_gap(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    begin = now() - 2 * HOUR
    produce(kafka, topic, [watermark(ts(begin))], time=begin)
    async with serving(kafka, topic, tmp_path) as server:
        await running(server)
        produce(kafka, topic, [insert(ts(begin, 1), 1), watermark(ts(begin, 2))], time=begin)
        assert ids(await take(server, 1)) == [1]
    later = begin + HOUR
    produce(kafka, topic, [insert(ts(later, 1), 2), insert(ts(later, 3), 3), watermark(ts(later, 4))], time=later)
    kafka.truncate(topic, 4)
    async with serving(kafka, topic, tmp_path) as server:
        await soon(lambda: "begins at offset 4 with what was written at" in error_of(server))
    async with serving(kafka, topic, tmp_path, **{"canal.auto.reset.latest.pos.mode": True}) as server:
        gap, change = await take(server, 2)
        assert "the changes in between are lost" in gap.header_props["sluice.gap"]
        assert ids([change]) == [3]


async def test_the_cursor_of_an_idle_client_follows_the_watermarks(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    begin = now() - HOUR
    produce(kafka, topic, [watermark(ts(begin))])
    async with serving(kafka, topic, tmp_path) as server:
        await running(server)
        later = ts(begin + 60_000)
        produce(kafka, topic, [watermark(later)])
        wanted = Position("tidb", f"{topic}.0", 0, later, 0)
        await soon(lambda: server.status("example", 1001).acked == str(wanted))
        assert not server.destination_status("example").error


def test_a_range_begins_and_ends_inside_transactions(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    begin = now()
    values = [it for n in range(1, 5) for it in (insert(ts(begin, n), n, "s.a"), insert(ts(begin, n), n, "s.b"))]
    produce(kafka, topic, [*reversed(values), watermark(ts(begin, 9))])

    def read(first: tuple[int, int], last: tuple[int, int]) -> list[str]:
        config = TicdcConfig.model_validate(topics.keys(kafka, topic, tmp_path), context={"folder": tmp_path})
        start, stop = (Position("tidb", f"{topic}.0", 0, ts(begin, number), n) for number, n in (first, last))
        ring = Ring(64)
        parser = make_parser(
            config, ring, start=Cursor.at(start), on_begin=lambda *_: None, on_state=lambda *_: None, stop=stop
        )
        parser.start()
        parser.join(30)
        assert parser.failure is None
        changes = decode_changes(b"".join(ring.collect(0).slices)) if len(ring) else []
        return [f"{it.table or it.entry_type[11:]}{ids([it])}" for it in changes]

    assert [len(read((2, 0), (3, n))) for n in range(5)] == [4, 5, 6, 7, 8]
    assert [len(read((2, n), (3, 0))) for n in range(4)] == [4, 3, 2, 1]
    assert read((2, 0), (3, 0)) == ["BEGIN[]", "b[2]", "a[2]", "END[]"]
    assert read((5, 0), (8, 0)) == []


async def test_a_topic_without_the_extension_is_an_error_with_what_to_set(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    value = json.loads(insert(1, 1))
    del value["_tidb"]
    produce(kafka, topic, [json.dumps(value).encode()])
    async with serving(kafka, topic, tmp_path) as server:
        await soon(lambda: f"topic {topic}, offset 0: a message has no _tidb.commitTs" in error_of(server))
        assert "set enable-tidb-extension=true" in error_of(server)


async def test_more_than_the_memory_is_an_error_with_what_to_raise(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    begin = now()
    produce(kafka, topic, [watermark(ts(begin))])
    async with serving(kafka, topic, tmp_path, **{"sluice.instance.ticdc.memory": 1}) as server:
        await running(server)
        large = {"id": "1", "v": "x" * 400_000}
        produce(kafka, topic, [change(ts(begin, number), None, large) for number in range(1, 5)])
        await soon(lambda: "more than 1 MiB of changes wait for a watermark" in error_of(server))
        assert "raise sluice.instance.ticdc.memory" in error_of(server)


def test_check_asks_the_brokers_and_looks_at_the_last_messages(kafka: Kafka, topic: str, tmp_path: Path) -> None:
    (tmp_path / "example").mkdir()
    (tmp_path / "canal.properties").write_text("canal.destinations = example\n")
    other, several = f"{topic}-drainer", f"{topic}-several"
    kafka.create(other)
    kafka.create(several, 2)
    produce(kafka, topic, [watermark(ts(now()))])
    produce(kafka, other, [b"\x08\x00\x10\x05"])
    expected = {
        topic: (0, "offsets from 0 to 1"),
        other: (1, "offset 0: not a message of TiCDC's canal-json"),
        several: (0, "2 partitions, offsets from 0 to 0, 0 to 0"),
    }
    for name, (status, text) in expected.items():
        (tmp_path / "example" / "instance.properties").write_text(
            f"sluice.instance.source = ticdc\nsluice.instance.kafka.topic = {name}\n"
            f"sluice.instance.kafka.brokers = {kafka.servers}\n"
        )
        found = commands.run("check", "--conf", str(tmp_path))
        assert (found.returncode, text in found.stdout) == (status, True), found.stdout
