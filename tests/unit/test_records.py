"""Records of batches are what a plain writer makes of the same entries by the same routes."""

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings, target
from hypothesis import strategies as st
from typing_extensions import Buffer

from sluice.protocol.canal.entry_pb2 import (
    ALTER,
    DELETE,
    INSERT,
    QUERY,
    ROWDATA,
    TRANSACTIONBEGIN,
    TRANSACTIONEND,
    UPDATE,
    Column,
    Entry,
    Header,
    RowChange,
    RowData,
)
from sluice.protocol.canal.packet_pb2 import Messages, Packet
from sluice.protocol.canal.records import RecordEncoder, Records, Route, hash_partition, java_hash
from sluice.protocol.errors import DecodeError, MarkerError, RecordTooLargeError
from tests.effort import times
from tests.unit.entries import among_others, entries, frame, mutated, plain_flat, texts

HUGE = 1 << 30
FIXED = Route(0, 0, 0)


def encoder(form: str = "flat", route: Route = FIXED, *, limit: int = HUGE, **options: Any) -> RecordEncoder:
    options.setdefault("whole", route == FIXED)
    return RecordEncoder(form, lambda _schema, _table: route, limit=limit, **options)


def plain_hash(text: str) -> int:
    units = text.encode("utf-16-le")
    result = 0
    for i in range(0, len(units), 2):
        result = (31 * result + int.from_bytes(units[i : i + 2], "little")) % 2**32
    return result - 2**32 if result >= 2**31 else result


def plain_partition(hash_: int, partitions: int) -> int:
    absolute = hash_ if hash_ == -(2**31) else abs(hash_)
    return abs(absolute) % partitions


@given(texts)
def test_a_hash_is_that_of_java(text: str) -> None:
    assert java_hash(text) == plain_hash(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("polygenelubricants", -(2**31)),
        ("é", 233),
        ("€", 8364),
        ("😀", 31 * 0xD83D + 0xDE00),
        ("Aa", 2112),
        ("BB", 2112),
    ],
)
def test_hashes_of_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected


@pytest.mark.parametrize(
    ("hash_", "partitions", "expected"),
    [(0, 3, 0), (7, 3, 1), (-7, 3, 1), (-(2**31), 3, 2), (-(2**31), 4, 0), (2**31 - 1, 2**31 - 1, 0), (-1, 1, 0)],
)
def test_the_partition_of_a_hash(hash_: int, partitions: int, expected: int) -> None:
    assert hash_partition(hash_, partitions) == expected == plain_partition(hash_, partitions)


# --- compared with a plain writer

routes = st.builds(
    lambda topic, fixed, hashed, seed: Route(topic, *fixed, *(() if hashed is None else (*hashed, seed))),
    st.integers(0, 3),
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
    st.none() | st.tuples(st.integers(1, 7), st.none() | st.lists(texts, max_size=3, unique=True).map(tuple)),
    st.integers(-(2**31), 2**31 - 1),
)


class Tables:
    """A route for each table, drawn when it is asked for."""

    def __init__(self, data: st.DataObject, names: list[str]) -> None:
        self.known: dict[tuple[str, str], Route] = {}
        self._data = data
        self._names = names

    def __call__(self, schema: str, table: str) -> Route:
        assert (schema, table) not in self.known, "it is asked for once"
        route = self._data.draw(routes)
        if route.columns is not None and self._names:
            route = route._replace(columns=tuple(self._data.draw(st.lists(st.sampled_from(self._names), unique=True))))
        self.known[schema, table] = route
        return route


def is_sent(entry: Entry) -> bool:
    if entry.entryType != ROWDATA:
        return False
    change = RowChange.FromString(entry.storeValue)
    return change.eventType != QUERY or change.isDdl


def shown(change: RowChange, row: RowData, *, merged: bool) -> list[Column]:
    """The cells of a row by which it is hashed."""
    image = list(row.beforeColumns if change.eventType == DELETE else row.afterColumns)
    if merged and change.eventType == UPDATE and any(it.key == "sluice.absent" and it.value for it in change.props):
        given = {it.index for it in image}
        image += [it for it in row.beforeColumns if it.index not in given]
    return image


def partition(route: Route, cells: list[Column], *, ignoring_case: bool) -> int:
    if not route.hash_partitions:
        return route.partition
    hash_ = route.seed
    for cell in cells:
        names = route.columns
        if names is None:
            is_key = cell.isKey
        elif ignoring_case:
            is_key = cell.name.encode().lower() in {name.encode().lower() for name in names}
        else:
            is_key = cell.name in names
        if is_key:
            hash_ ^= plain_hash(cell.value)
    return plain_partition(hash_, route.hash_partitions)


def partitions_of(entry: Entry, route: Route, *, ignoring_case: bool, merged: bool) -> list[int]:
    """The partition of each row; empty for what has none."""
    change = RowChange.FromString(entry.storeValue)
    if change.isDdl or change.eventType not in (INSERT, UPDATE, DELETE):
        return []
    return [partition(route, shown(change, row, merged=merged), ignoring_case=ignoring_case) for row in change.rowDatas]


def plain_messages(batch: list[Entry], tables: Tables, *, strict: bool) -> Iterator[tuple[int, int, int, int, str]]:
    for number, entry in enumerate(batch):
        if not is_sent(entry):
            continue
        route = tables.known[entry.header.schemaName, entry.header.tableName]
        message = plain_flat(entry, 5, 17, strict=strict)
        places = partitions_of(entry, route, ignoring_case=False, merged=not strict)
        for place in sorted(set(places)) or [route.bare]:
            mine = [i for i, it in enumerate(places) if it == place]
            part = {name: message[name] and [message[name][i] for i in mine] for name in ("data", "old")}
            text = json.dumps(message | part, ensure_ascii=False, separators=(",", ":"))
            yield route.topic, place, len(mine), number, text


@given(st.lists(entries(), max_size=5), st.booleans(), st.data())
@settings(max_examples=times(60, 300))
def test_flat_records_equal_those_of_a_plain_writer(batch: list[Entry], strict: bool, data: st.DataObject) -> None:
    tables = Tables(data, column_names(batch))
    encode = RecordEncoder("flat", tables, whole=False, limit=HUGE, strict=strict)
    records = encode.encode([frame(batch[:2]), frame(batch[2:], 5)], 5, ts=17)
    found = zip(records.topics, records.partitions, records.rows, records.entries, records.values, strict=True)
    expected = list(plain_messages(batch, tables, strict=strict))
    assert [(*it[:-1], it[-1].decode()) for it in found] == expected
    assert (records.end, records.refused, records.keys) == (len(batch), None, None)


def column_names(batch: list[Entry]) -> list[str]:
    changes = [RowChange.FromString(it.storeValue) for it in batch if it.entryType == ROWDATA]
    return sorted(
        {cell.name for it in changes for row in it.rowDatas for cell in (*row.beforeColumns, *row.afterColumns)}
    )


Place = tuple[int, int]


def packets(records: Records, *, whole: bool = False) -> dict[Place, list[tuple[Entry, RowChange]]]:
    """The entries of each partition of a topic, and what is in them."""
    found: dict[Place, list[tuple[Entry, RowChange]]] = defaultdict(list)
    for topic, place, rows, value in zip(records.topics, records.partitions, records.rows, records.values, strict=True):
        packet = Packet.FromString(value)
        assert packet.type == Packet.MESSAGES
        assert packet.HasField("version") == (not whole)
        messages = Messages.FromString(packet.body)
        assert messages.batch_id == (5 if whole else 0)
        got = [Entry.FromString(it) for it in messages.messages]
        assert rows == sum(len(RowChange.FromString(it.storeValue).rowDatas) for it in got if it.entryType == ROWDATA)
        found[topic, place] += [unpacked(it) for it in got]
    return dict(found)


def unpacked(entry: Entry) -> tuple[Entry, RowChange]:
    copy = Entry()
    copy.CopyFrom(entry)
    copy.storeValue = b""
    return copy, RowChange.FromString(entry.storeValue) if entry.entryType == ROWDATA else RowChange()


def plain_packets(batch: list[Entry], tables: Tables) -> dict[Place, list[tuple[Entry, RowChange]]]:
    found: dict[Place, list[tuple[Entry, RowChange]]] = defaultdict(list)
    for entry in batch:
        if not is_sent(entry):
            continue
        route = tables.known[entry.header.schemaName, entry.header.tableName]
        places = partitions_of(entry, route, ignoring_case=True, merged=True)
        outside, change = unpacked(entry)
        if not places or not route.hash_partitions:
            found[route.topic, places[0] if places else route.bare].append((outside, change))
            continue
        for row, place in zip(change.rowDatas, places, strict=True):
            one = RowChange()
            one.CopyFrom(change)
            del one.rowDatas[:]
            one.rowDatas.append(row)
            found[route.topic, place].append((outside, one))
    return dict(found)


@given(st.lists(entries(), max_size=5), st.data())
@settings(max_examples=times(60, 300))
def test_packets_hold_the_entries_that_a_plain_writer_puts_there(batch: list[Entry], data: st.DataObject) -> None:
    tables = Tables(data, column_names(batch))
    encode = RecordEncoder("canal", tables, whole=False, limit=HUGE)
    records = encode.encode([frame(batch[:2]), frame(batch[2:], 5)], 5)
    assert packets(records) == plain_packets(batch, tables)


@given(st.lists(entries(), max_size=5))
def test_a_whole_batch_is_one_packet_with_begins_and_ends(batch: list[Entry]) -> None:
    records = encoder("canal", Route(0, 3, 4), whole=True, statements=True).encode([frame(batch)], 5)
    body = b"\x08\x05" + frame(batch)
    length = len(body)
    assert records.values == ([b"\x18\x07\x2a" + varint(length) + body] if batch else [])
    assert list(records.partitions) == [3][: len(batch)]


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


# --- too large


@given(st.lists(entries(), max_size=4), st.sampled_from(["flat", "canal"]), st.integers(20, 3000), st.data())
@settings(max_examples=times(20, 400))
def test_no_record_is_larger_than_allowed_and_none_is_lost(
    batch: list[Entry], form: str, limit: int, data: st.DataObject
) -> None:
    route = data.draw(routes)
    options = {name: data.draw(st.booleans(), label=name) for name in ("keyed", "split_key_updates", "statements")}
    whole = route.hash_partitions == 0 and data.draw(st.booleans())
    free, bound = (
        RecordEncoder(form, lambda *_: route, whole=whole, limit=it, **options).encode([frame(batch)], 5, ts=17)
        for it in (HUGE, limit)
    )
    sizes = [len(it) for it in bound.values]
    if bound.keys is not None:
        sizes = [size + len(key or b"") for size, key in zip(sizes, bound.keys, strict=True)]
    assert all(size <= limit for size in sizes)
    target(float(len(sizes)))
    if bound.refused is None:
        assert bound.end == len(batch)
    else:
        assert isinstance(bound.refused, RecordTooLargeError)
        assert bound.refused.size > limit == bound.refused.limit
        assert bound.end == bound.refused.entry
        free = RecordEncoder(form, lambda *_: route, whole=whole, limit=HUGE, **options).encode(
            [frame(batch[: bound.end])], 5, ts=17
        )
    assert rows_in(bound, form) == rows_in(free, form)


def rows_in(records: Records, form: str) -> dict[int, list[Any]]:
    """What each partition got, row by row."""
    found: dict[int, list[Any]] = defaultdict(list)
    for place, value in zip(records.partitions, records.values, strict=True):
        if form == "flat":
            message = json.loads(value)
            old = message.pop("old") or [None] * len(message["data"] or [None])
            rows = message.pop("data") or [None]
            found[place] += [(message, *it) for it in zip(rows, old, strict=True)]
            continue
        for data in Messages.FromString(Packet.FromString(value).body).messages:
            outside, change = unpacked(Entry.FromString(data))
            rows = list(change.rowDatas)
            del change.rowDatas[:]
            found[place] += [(outside, change, row) for row in rows or [None]]
    return dict(found)


Images = tuple[dict[str, str | None] | None, dict[str, str | None] | None]


def change(type_: int, *rows: Images, table: str = "goods") -> Entry:
    """Rows, each before and after; the first column is the key."""
    body = RowChange(eventType=type_, isDdl=False)  # type: ignore[arg-type]
    for before, after in rows:
        row = body.rowDatas.add()
        for image, columns in ((before, row.beforeColumns), (after, row.afterColumns)):
            for i, (name, value) in enumerate((image or {}).items()):
                updated = columns is row.afterColumns and (before is None or before.get(name) != value)
                columns.add(
                    index=i, name=name, isKey=not i, updated=updated, isNull=value is None, value=value or "",
                    sqlType=12, mysqlType="text",
                )  # fmt: skip
    header = Header(schemaName="shop", tableName=table, eventType=type_)  # type: ignore[arg-type]
    return Entry(header=header, entryType=ROWDATA, storeValue=body.SerializeToString())


def test_a_row_that_is_too_large_is_refused_by_name_and_nothing_of_its_entry_is_sent() -> None:
    batch = [
        change(INSERT, (None, {"id": "1", "text": "x"})),
        change(INSERT, (None, {"id": "2", "text": "y"}), (None, {"id": "3", "text": "z" * 500})),
        change(INSERT, (None, {"id": "4", "text": "w"})),
    ]
    for form in ("flat", "canal"):
        encode = encoder(form, limit=400)
        records = encode.encode([frame(batch)], 5)
        assert isinstance(records.refused, RecordTooLargeError)
        assert (records.refused.schema, records.refused.table, records.refused.key) == ("shop", "goods", "id=3")
        assert "the row id=3 of shop.goods is too large" in str(records.refused)
        assert list(records.rows) == [1]
        assert records.end == 1
        rest = encode.encode([frame(batch)], 5, begin=2)
        assert (list(rest.entries), rest.end, rest.refused) == ([2], 3, None)


def test_an_error_shows_the_beginning_of_a_long_key() -> None:
    batch = [change(INSERT, (None, {"id": "k" * 500}))]
    refused = encoder(limit=400).encode([frame(batch)], 5).refused
    assert isinstance(refused, RecordTooLargeError)
    assert refused.key == "id=" + "k" * 97


def test_a_record_may_be_as_large_as_the_limit() -> None:
    batch = [change(INSERT, (None, {"id": "1"}), (None, {"id": "2"}))]
    for form in ("flat", "canal"):
        size = len(encoder(form).encode([frame(batch)], 5, ts=17).values[0])
        assert list(encoder(form, limit=size).encode([frame(batch)], 5, ts=17).rows) == [2]
        assert list(encoder(form, limit=size - 1).encode([frame(batch)], 5, ts=17).rows) == [1, 1]


def test_a_statement_that_is_too_large_is_refused() -> None:
    ddl = RowChange(eventType=ALTER, isDdl=True, sql="ALTER" + " " * 500)
    header = Header(schemaName="shop", tableName="goods", eventType=ALTER)
    records = encoder(limit=400).encode(
        [frame([Entry(header=header, entryType=ROWDATA, storeValue=bytes(ddl.SerializeToString()))])], 5
    )
    assert str(records.refused).startswith("a change of shop.goods is too large for a record")


# --- keys


def test_a_keyed_record_has_one_row_and_its_key() -> None:
    batch = [change(INSERT, (None, {'i"d': "1", "a": "x"}), (None, {'i"d': "é\n", "a": "y"}))]
    for form in ("flat", "canal"):
        records = encoder(form, keyed=True).encode([frame(batch)], 5)
        assert list(records.rows) == [1, 1]
        assert records.keys == [
            rb'{"database":"shop","table":"goods","pk.i\"d":"1"}',
            '{"database":"shop","table":"goods","pk.i\\"d":"é\\n"}'.encode(),
        ]


def test_the_key_is_that_of_the_row_after_the_change_or_before_a_delete() -> None:
    batch = [
        change(UPDATE, ({"id": "1"}, {"id": "2"})),
        change(DELETE, ({"id": "3"}, None)),
    ]
    records = encoder(keyed=True).encode([frame(batch)], 5)
    assert [json.loads(it or b"")["pk.id"] for it in records.keys or ()] == ["2", "3"]


def test_a_key_that_the_image_after_leaves_out_is_that_before() -> None:
    partial = change(UPDATE, ({"id": "7"}, {}))
    body = RowChange.FromString(partial.storeValue)
    body.rowDatas[0].afterColumns.add(index=1, name="a", value="x", updated=True)
    body.props.add(key="sluice.absent", value='["b"]')
    partial.storeValue = body.SerializeToString()
    route = Route(0, 0, 0, 5, None, 0)
    records = encoder(route=route, keyed=True).encode([frame([partial])], 5)
    assert [json.loads(it or b"")["pk.id"] for it in records.keys or ()] == ["7"]
    assert list(records.partitions) == [plain_partition(plain_hash("7"), 5)]


def test_what_has_no_key_has_a_record_without_one() -> None:
    body = RowChange(eventType=ALTER, isDdl=True, sql="ALTER")
    batch = [Entry(header=Header(eventType=ALTER), entryType=ROWDATA, storeValue=body.SerializeToString())]
    assert encoder(keyed=True).encode([frame(batch)], 5).keys == [None]


# --- updates of a key


def test_an_update_of_the_key_is_split_if_asked() -> None:
    batch = [
        change(
            UPDATE,
            ({"id": "1", "a": "x"}, {"id": "1", "a": "y"}),
            ({"id": "2", "a": "x"}, {"id": "3", "a": "z"}),
            ({"id": "4", "a": "x"}, {"id": "4", "a": "y"}),
        )
    ]
    records = encoder(split_key_updates=True).encode([frame(batch)], 5)
    messages = [json.loads(it) for it in records.values]
    assert [(it["type"], it["data"], it["old"]) for it in messages] == [
        ("UPDATE", [{"id": "1", "a": "y"}], [{"a": "x"}]),
        ("DELETE", [{"id": "2", "a": "x"}], None),
        ("INSERT", [{"id": "3", "a": "z"}], None),
        ("UPDATE", [{"id": "4", "a": "y"}], [{"a": "x"}]),
    ]
    assert {json.dumps([it["sqlType"], it["pkNames"]]) for it in messages} == {'[{"id": 12, "a": 12}, ["id"]]'}
    records = encoder("canal", split_key_updates=True).encode([frame(batch)], 5)
    ((_, found),) = packets(records, whole=True).items()
    assert all(outside.HasField("entryType") for outside, _ in found)
    assert [(outside.header.eventType, change.eventType) for outside, change in found] == [
        (UPDATE, UPDATE), (DELETE, DELETE), (INSERT, INSERT), (UPDATE, UPDATE),
    ]  # fmt: skip
    assert [(len(it.rowDatas[0].beforeColumns), len(it.rowDatas[0].afterColumns)) for _, it in found] == [
        (2, 2), (2, 0), (0, 2), (2, 2),
    ]  # fmt: skip


@pytest.mark.parametrize("form", ["flat", "canal"])
def test_halves_of_updates_are_cut_into_records_that_fit(form: str) -> None:
    rows: list[Images] = [({"id": "1", "a": "x" * 50}, {"id": "2", "a": "x" * 50})]
    rows += [({"id": str(i), "a": "x"}, {"id": str(i), "a": "y"}) for i in range(20)]
    batch = [change(UPDATE, *rows, table="t" * 300)]  # what stands around the rows is larger than the one that is split
    records = encoder(form, limit=800, split_key_updates=True).encode([frame(batch)], 5)
    assert (records.refused, sum(records.rows)) == (None, 22)


@pytest.mark.parametrize("form", ["flat", "canal"])
def test_both_halves_go_where_their_rows_are_hashed_to(form: str) -> None:
    route = Route(0, 0, 0, 7, ("a",), 0)
    batch = [change(UPDATE, ({"id": "1", "a": "x"}, {"id": "1", "a": "y"}))]
    records = encoder(form, route, split_key_updates=True, keyed=True).encode([frame(batch)], 5)
    where = dict(zip(records.partitions, records.values, strict=True))
    assert where.keys() == {plain_partition(plain_hash(it), 7) for it in "xy"}


# --- routes


def test_each_table_has_a_route_of_its_own() -> None:
    names = ["b", "a", "b", "ab", "b"]
    batch = [change(INSERT, (None, {"id": "1"}), table=name) for name in names]
    encode = RecordEncoder("flat", lambda _schema, table: Route(len(table), ord(table[0]), 0), whole=False, limit=HUGE)
    for _ in range(2):
        records = encode.encode([frame(batch)], 5)
        assert list(zip(records.topics, records.partitions, strict=True)) == [
            (len(name), ord(name[0])) for name in names
        ]


# --- what is left out


def marker(key: str = "sluice.quarantine") -> Entry:
    body = RowChange(eventType=QUERY, isDdl=False, sql=f"-- {key}: why")
    header = Header(schemaName="shop", tableName="goods", eventType=QUERY)
    header.props.add(key=key, value="why")
    return Entry(header=header, entryType=ROWDATA, storeValue=body.SerializeToString())


@pytest.mark.parametrize("form", ["flat", "canal"])
@pytest.mark.parametrize("key", ["sluice.quarantine", "sluice.gap"])
def test_a_marker_ends_the_records_unless_it_is_sent(form: str, key: str) -> None:
    row = change(INSERT, (None, {"id": "1"}))
    batch = [row, marker(key), row]
    records = encoder(form).encode([frame(batch)], 5)
    assert isinstance(records.refused, MarkerError)
    assert f"-- {key}: why" in str(records.refused)
    assert (records.end, records.refused.entry, records.refused.table, list(records.entries)) == (1, 1, "goods", [0])
    sent = encoder(form, markers=True).encode([frame(batch)], 5)
    assert (sent.end, sent.refused, len(rows_in(sent, form)[0])) == (3, None, 3)


@pytest.mark.parametrize("form", ["flat", "canal"])
def test_a_marker_where_nothing_is_missing_does_not_end_them(form: str) -> None:
    row = change(INSERT, (None, {"id": "1"}))
    records = encoder(form).encode([frame([row, marker("sluice.shape"), row])], 5)
    assert (records.end, records.refused, len(rows_in(records, form)[0])) == (3, None, 2)


@pytest.mark.parametrize("form", ["flat", "canal"])
def test_statements_before_their_rows_are_sent_only_if_asked(form: str) -> None:
    body = RowChange(eventType=QUERY, sql="INSERT INTO goods VALUES (1)")
    statement = Entry(header=Header(eventType=QUERY), entryType=ROWDATA, storeValue=body.SerializeToString())
    assert encoder(form).encode([frame([statement])], 5).values == []
    assert len(encoder(form, statements=True).encode([frame([statement])], 5).values) == 1


@pytest.mark.parametrize("type_", [TRANSACTIONBEGIN, TRANSACTIONEND])
def test_begins_and_ends_are_sent_only_with_whole_batches(type_: int) -> None:
    batch = [Entry(header=Header(), entryType=type_)]  # type: ignore[arg-type]
    assert encoder("flat").encode([frame(batch)], 5).values == []
    assert encoder("canal", whole=False).encode([frame(batch)], 5).values == []
    assert len(encoder("canal", whole=True).encode([frame(batch)], 5).values) == 1


def test_the_bytes_of_a_packet() -> None:
    batch = [Entry(header=Header(), entryType=TRANSACTIONBEGIN), change(INSERT, (None, {"id": "1"}))]
    body = frame(batch[1:])
    assert encoder("canal", whole=False).encode([frame(batch)], 300).values == [
        b"\x10\x01\x18\x07\x2a" + bytes([len(body)]) + body
    ]
    body = b"\x08\xac\x02" + frame(batch)
    assert encoder("canal", whole=True).encode([frame(batch)], 300).values == [
        b"\x18\x07\x2a" + bytes([len(body)]) + body
    ]


# --- trouble


def test_bytes_that_are_not_entries_are_an_error() -> None:
    encode = encoder()
    with pytest.raises(DecodeError, match="does not fit"):
        encode.encode([b"\x12\x05\x01"], 1)
    assert encode.encode([], 1).values == []


def test_an_error_of_a_route_is_raised() -> None:
    def route(_schema: str, _table: str) -> Route:
        raise RuntimeError("no route")

    encode = RecordEncoder("flat", route, whole=False, limit=HUGE)
    with pytest.raises(RuntimeError, match="no route"):
        encode.encode([frame([change(INSERT, (None, {"id": "1"}))])], 1)


def test_a_form_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="flat or canal, not json"):
        encoder("json")


@given(st.lists(entries(), min_size=1, max_size=3), st.data())
@settings(max_examples=times(50, 500))
def test_broken_bytes_are_an_error_or_harmless(batch: list[Entry], data: st.DataObject) -> None:
    broken = mutated(data, frame(batch))
    options = {name: data.draw(st.booleans()) for name in ("keyed", "split_key_updates", "strict", "whole")}
    form = data.draw(st.sampled_from(["flat", "canal"]))
    route, limit = data.draw(routes), data.draw(st.integers(0, 500))
    part = broken[: data.draw(st.just(len(broken)) | st.integers(0, len(broken)))]
    once, again = (outcome(encoder(form, route, limit=limit, **options), it) for it in (part, among_others(part)))
    assert once == again


def outcome(encode: RecordEncoder, data: Buffer) -> object:
    """The records of bytes, or why they are refused."""
    try:
        found = encode.encode([data], 1, ts=17)
    except DecodeError as error:
        return str(error)
    return found.values, found.keys, found.partitions, str(found.refused)
