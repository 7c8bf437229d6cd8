"""Records for Kafka: those of Canal's own producer for the same entries and rules.

All is equal but `ts`, the time of building. Where a row hash splits an entry, Canal writes its fields in the order of
their numbers; Sluice copies them as they are, so that those entries are compared as what they say.
"""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import pytest

from sluice.protocol.canal.entry_pb2 import (
    ALTER,
    DELETE,
    INSERT,
    QUERY,
    ROWDATA,
    TRANSACTIONBEGIN,
    TRANSACTIONEND,
    UPDATE,
    Entry,
    EventType,
    Header,
    RowChange,
)
from sluice.protocol.canal.packet_pb2 import Messages, Packet
from sluice.protocol.canal.records import RecordEncoder
from sluice.server.outputs.routing import Router, Rules
from tests.clients.canal_server import ProducerProcess
from tests.unit.entries import encode_change, frame

pytestmark = pytest.mark.extended

SCHEMAS = ("shop", "Shop", "mall_1", "bücher", "s")
TABLES = ("goods", "Goods", "orders", "log_1", "log_2", "größe", "t")
COLUMNS = ("id", "Name", "text", "größe", "n")
VALUES = (
    "", "0", "1", "42", "-7", "polygenelubricants", "Aa", "BB", "é", "ß€", "😀", "a😀b\U0010ffff", 'quote " \\ /',
    "line\nend\r\t", "\x00\x01\x1f\x7f", "\u2028\u2029", "\ufeff\ufffd", "x" * 300, None,
)  # fmt: skip
TOPICS = (
    "shop.goods", "shop", "SHOP.Goods", r"shop\..*", r".*\..*", r"(shop|mall_1)\.(goods|log_[12])", "sh.*", "b.cher",
    "one:shop.goods", "two.b:.*", r"three:.*\.log_.*", "four: mall_1 ", " shop.orders", "shop.größe", "a:b:c",
)  # fmt: skip
HASHES = (
    "shop.goods:id", r".*\..*:$pk$", r".*\..*", "shop.orders", "shop.goods:id^name", r".*\..*:id", "shop.goods:$pk$",
    r"shop\..*:Name^größe^nothing", r".*\.log_.*:$PK$", "mall_1.t:",
)  # fmt: skip
SIZES = ("all:3", "shop_goods:5", "one:7", "two.*:2", "shop.*:many", ".*:4")


class Draw:
    """Rules and batches from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def rules(self) -> Rules:
        draw = self._random
        return Rules(
            draw.choice(["all", "all.changes"]),
            self._some(TOPICS, 3),
            draw.randint(0, 3),
            draw.choice([1, 2, 3, 4, 7, 16]),
            self._some(HASHES, 2),
            self._some(SIZES, 2),
            draw.random() < 0.5,
        )

    def _some(self, items: Sequence[str], most: int) -> str:
        chosen = self._random.sample(items, self._random.randint(0, most))
        return "".join(self._random.choice(",;") * bool(i) + it for i, it in enumerate(chosen))

    def batch(self, rows: int) -> list[Entry]:
        batch = [Entry(header=Header(executeTime=1), entryType=TRANSACTIONBEGIN, storeValue=b"\x20\x07")]
        while rows > 0:
            batch.append(self._rows(count := min(rows, self._random.randint(1, 8))))
            rows -= count
            if self._random.random() < 0.1:
                batch.append(self._statement())
        batch.append(Entry(header=Header(executeTime=1), entryType=TRANSACTIONEND, storeValue=b"\x12\x017"))
        return batch

    def _header(self, type_: int) -> Header:
        header = Header(
            version=1, logfileName="mysql-bin.000001", logfileOffset=self._random.randrange(1 << 40), serverId=1,
            serverenCode="UTF-8", executeTime=self._random.randrange(1 << 41), eventLength=100, eventType=type_,  # type: ignore[arg-type]
            gtid=self._random.choice(["", "0b5cc00d-1111-2222-3333-444455556666:1-7"]),
        )  # fmt: skip
        header.props.add(key="rowsCount", value="1")
        return header

    def _statement(self) -> Entry:
        type_ = self._random.choice([QUERY, ALTER, *EventType.values()[1:]])
        header = self._header(type_)
        if self._random.random() < 0.7:
            header.schemaName = self._random.choice(SCHEMAS)
            header.tableName = self._random.choice([*TABLES, ""])
        body = RowChange(
            eventType=type_, isDdl=self._random.random() < 0.6, sql="ALTER 'ü' \"😀\"\n", ddlSchemaName="shop"
        )
        return Entry(header=header, entryType=ROWDATA, storeValue=body.SerializeToString())

    def _rows(self, count: int) -> Entry:
        draw = self._random
        type_ = draw.choice([INSERT, UPDATE, DELETE])
        header = self._header(type_)
        header.schemaName, header.tableName = draw.choice(SCHEMAS), draw.choice(TABLES)
        columns = COLUMNS[: draw.randint(1, len(COLUMNS))]
        keys = set(draw.sample(columns, draw.randint(0, min(2, len(columns)))))
        body = RowChange(tableId=7, eventType=type_, isDdl=False)
        for _ in range(count):
            row = body.rowDatas.add()
            before = [draw.choice(VALUES) for _ in columns]
            after = [draw.choice([value, draw.choice(VALUES)]) for value in before]
            for image, values in ((row.beforeColumns, before), (row.afterColumns, after)):
                if type_ == (INSERT if image is row.beforeColumns else DELETE):
                    continue
                for i, (name, value) in enumerate(zip(columns, values, strict=True)):
                    image.add(
                        index=i, name=name, isKey=name in keys, isNull=value is None, value=value or "", sqlType=12 - i,
                        updated=image is row.afterColumns and (type_ == INSERT or value != before[i]),
                        mysqlType=f"varchar({i})",
                    )  # fmt: skip
        return Entry(header=header, entryType=ROWDATA, storeValue=encode_change(body, draw.random() < 0.5))


Records = dict[tuple[str, int], list[bytes]]


def ours(rules: Rules, batch_id: int, messages: bytes, *, flat: bool) -> Iterator[tuple[str, int, bytes]]:
    router = Router(rules)
    encoder = RecordEncoder(
        "flat" if flat else "canal", router.route, whole=router.is_whole, limit=1 << 30, statements=True, strict=True
    )
    records = encoder.encode([messages], batch_id)
    assert records.refused is None
    for topic, partition, value in zip(records.topics, records.partitions, records.values, strict=True):
        assert partition < max(router.partitions(router.topics[topic]), 1)
        yield router.topics[topic], partition, value


def by_place(records: list[tuple[str, int, bytes]]) -> Records:
    places = defaultdict(list)
    for topic, partition, value in records:
        places[topic, partition].append(re.sub(rb'(?<=,"ts":)\d+(?=,"type":")', b"0", value))
    return dict(places)


def said(value: bytes) -> list[bytes]:
    """What a packet says, in one order of fields."""
    packet = Packet.FromString(value)
    entries = [Entry.FromString(it) for it in Messages.FromString(packet.body).messages]
    for entry in entries:
        if entry.entryType == ROWDATA:
            entry.storeValue = RowChange.FromString(entry.storeValue).SerializeToString()
    packet.ClearField("body")
    return [packet.SerializeToString(), *(it.SerializeToString() for it in entries)]


@pytest.fixture(scope="module")
def canal() -> Iterator[ProducerProcess]:
    with ProducerProcess() as process:
        yield process


def compare(canal: ProducerProcess, seed: int, rows: int) -> Counter[str]:
    draw = Draw(seed)
    rules = draw.rules()
    batch = frame(draw.batch(rows))
    seen: Counter[str] = Counter()
    for flat in (True, False):
        theirs = by_place(canal.send(rules, seed, batch, flat=flat))
        mine = by_place(list(ours(rules, seed, batch, flat=flat)))
        assert theirs.keys() == mine.keys(), rules
        for place, values in theirs.items():
            if flat:
                assert mine[place] == values, (rules, place)
            else:
                assert [said(it) for it in mine[place]] == [said(it) for it in values], (rules, place)
                seen["packets of equal bytes"] += mine[place] == values
            seen["flat" if flat else "canal"] += len(values)
            seen[f"topic {place[0]}"] += 1
            seen[f"partition {place[1]}"] += 1
    seen["hash -2147483648"] += (
        b"polygenelubricants" in batch and not rules.database_hash and "pk" in rules.partition_hash
    )
    return seen


def test_10000_rows_by_100_sets_of_rules_equal_those_of_canals_producer(canal: ProducerProcess) -> None:
    seen: Counter[str] = sum((compare(canal, seed, 100) for seed in range(100)), Counter())
    # That all sorts have come.
    assert len([it for it in seen if it.startswith("topic ")]) > 20
    assert len([it for it in seen if it.startswith("partition ")]) > 10
    assert seen["flat"] > seen["canal"] > seen["packets of equal bytes"] > 100
