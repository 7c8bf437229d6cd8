"""The compiled FlatMessage is byte for byte what a plain writer makes of the same entries."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import Buffer

from sluice.protocol.canal.entry_pb2 import INSERT, ROWDATA, UPDATE, Column, Entry, Header, RowChange
from sluice.protocol.canal.flat import flat_json, flat_ndjson
from sluice.protocol.errors import DecodeError
from tests.effort import times
from tests.unit.entries import among_others, encode_change, entries, frame, mutated, plain_flat


def dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@given(st.lists(entries(), max_size=5), st.integers(0, 5), st.booleans(), st.integers(-1, 2**62))
@settings(max_examples=times(60, 300))
def test_messages_equal_those_of_a_plain_writer(batch: list[Entry], cut: int, strict: bool, batch_id: int) -> None:
    slices: list[Buffer] = [frame(batch[:cut]), memoryview(frame(batch[cut:], 5))]
    expected = [plain_flat(it, batch_id, 17, strict=strict) for it in batch if it.entryType == ROWDATA]
    assert flat_json(slices, batch_id, ts=17, strict=strict).decode() == dump(expected)
    lines = "".join(dump(message) + "\n" for message in expected)
    assert flat_ndjson(slices, batch_id, ts=17, strict=strict).decode() == lines


def update(*rows: tuple[tuple[str, str], tuple[str, str]]) -> bytes:
    """Rows of two columns, before and after."""
    change = RowChange(eventType=UPDATE, isDdl=False)
    for before, after in rows:
        row = change.rowDatas.add()
        for i, name in enumerate("ab"):
            row.beforeColumns.add(index=i, name=name, value=before[i])
            row.afterColumns.add(index=i, name=name, value=after[i], updated=before[i] != after[i])
    header = Header(eventType=UPDATE)
    return frame([Entry(header=header, entryType=ROWDATA, storeValue=change.SerializeToString())])


def test_old_has_the_columns_that_changed_in_this_row() -> None:
    data = update((("1", "x"), ("2", "x")), (("3", "y"), ("3", "z")))
    (message,) = json.loads(flat_json([data], 1))
    assert message["old"] == [{"a": "1"}, {"b": "y"}]


def test_strict_old_collects_the_columns_of_earlier_rows_as_canal_does() -> None:
    data = update((("1", "x"), ("2", "x")), (("3", "y"), ("3", "z")))
    (message,) = json.loads(flat_json([data], 1, strict=True))
    assert message["old"] == [{"a": "1"}, {"a": "3", "b": "y"}]


@pytest.mark.parametrize(("key", "value"), [("snapshot", "3000000001"), ("member", "north")])
def test_what_a_header_says_of_rows_is_in_their_message_except_in_canals_own_form(key: str, value: str) -> None:
    change = RowChange(eventType=INSERT, isDdl=False)
    change.rowDatas.add(afterColumns=[Column(name="id", value="1", sqlType=4, mysqlType="int", isKey=True)])
    header = Header(schemaName="shop", tableName="goods", eventType=INSERT, executeTime=1000)
    header.props.add(key=f"sluice.{key}", value=value)
    data = frame([Entry(header=header, entryType=ROWDATA, storeValue=change.SerializeToString())])
    own = (
        '[{"data":[{"id":"1"}],"database":"shop","es":1000,"gtid":"","id":1,"isDdl":false,"mysqlType":{"id":"int"},'
        '"old":null,"pkNames":["id"],"sql":"","sqlType":{"id":4},"table":"goods","ts":17,"type":"INSERT"}]'
    )
    (message,) = json.loads(flat_json([data], 1, ts=17))
    assert list(message) == sorted(message)
    assert message == {**json.loads(own)[0], key: value}
    assert flat_json([data], 1, ts=17, strict=True).decode() == own


def test_every_control_character_is_escaped() -> None:
    text = "".join(map(chr, range(0x80))) + '\x7f"\\/é€😀'
    (message,) = json.loads(flat_json([update(((text, ""), (text * 3, "")))], 1))
    assert message["data"] == [{"a": text * 3, "b": ""}]
    assert message["old"] == [{"a": text}]


def test_no_entries_make_an_empty_list() -> None:
    assert flat_json([], 1) == b"[]"
    assert flat_ndjson([b""], 1) == b""


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (Entry(entryType=ROWDATA, storeValue=b"\x12\x05"), "does not fit into its message"),
        (Entry(entryType=ROWDATA, storeValue=b"\x10\x63"), "event type is unknown"),
        (Entry(entryType=ROWDATA, storeValue=bytes.fromhex("1001 6208 1206 08ffffffff0f")), "an index that no table"),
    ],
    ids=["cut", "unknown type", "column index"],
)
def test_bytes_that_are_not_an_entry_are_an_error(entry: Entry, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        flat_json([frame([entry])], 1)


@given(st.lists(entries(), min_size=1, max_size=3), st.data())
@settings(max_examples=times(100, 500))
def test_broken_bytes_are_an_error_or_harmless(batch: list[Entry], data: st.DataObject) -> None:
    broken = mutated(data, frame(batch))
    part = broken[: data.draw(st.just(len(broken)) | st.integers(0, len(broken)))]
    assert outcome(part) == outcome(among_others(part))


def outcome(data: Buffer) -> bytes | str:
    """The messages of bytes, or why they are refused."""
    try:
        return flat_json([data], 1, ts=17)
    except DecodeError as error:
        return str(error)


@st.composite
def alike(draw: st.DrawFn) -> list[Entry]:
    """Inserts into few tables, whose columns are mostly those of the entry before."""
    kinds = [("int", 4), ("text", 12), ("x" * 200, 12)]
    columns = [
        [(name, *draw(st.sampled_from(kinds)), draw(st.booleans())) for name in draw(st.permutations(names))]
        for names in ("ab", "ab", "abc", "b", [f"c{i}" for i in range(70)])
    ]
    batch = []
    for _ in range(draw(st.integers(1, 6))):
        header = Header(eventType=INSERT, schemaName="shop", tableName=draw(st.sampled_from(["goods", "sales"])))
        change = RowChange(eventType=INSERT, isDdl=False)
        table = draw(st.sampled_from(columns))
        for _ in range(draw(st.integers(1, 3))):
            row = change.rowDatas.add()
            nulls = draw(st.sampled_from(["", "a", "b", "ab"]))
            for index, (name, mysql_type, sql_type, is_key) in enumerate(table):
                column = row.afterColumns.add(index=index, name=name, mysqlType=mysql_type, isKey=is_key)
                column.isNull = name in nulls
                column.sqlType = 2004 if column.isNull and sql_type == 4 else sql_type
                if not column.isNull:
                    column.value = str(index)
        batch.append(Entry(header=header, entryType=ROWDATA, storeValue=encode_change(change, is_ours=True)))
    return batch


@given(alike())
@settings(max_examples=times(60, 300))
def test_a_message_is_the_same_whatever_came_before_it(batch: list[Entry]) -> None:
    expected = "".join(dump(plain_flat(it, 1, 17, strict=False)) + "\n" for it in batch)
    assert flat_ndjson([frame(batch)], 1, ts=17).decode() == expected
