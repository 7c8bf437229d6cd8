"""A table's plan turns the rows of an event into Canal's RowData, or says what does not fit."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.instance.columns import SourceColumn
from sluice.instance.conditions.masks import Mask
from sluice.instance.sources.mysql.decode.plan import PlanOptions, TablePlan
from sluice.instance.sources.mysql.decode.table_map import TableMap
from sluice.protocol.canal.entry_pb2 import Column as PbColumn
from sluice.protocol.canal.tags import EventType
from sluice.protocol.errors import DecodeError
from tests.unit.plans import plan, rows, table_map

ONE, TWO = (number.to_bytes(4, "little") for number in (1, 2))


def values(columns: list[PbColumn]) -> list[tuple[int, str | None, bool]]:
    """Return index, value and the updated flag of each column."""
    return [(it.index, None if it.isNull else it.value, it.updated) for it in columns]


def test_an_inserted_row_has_columns_after_and_all_are_updated() -> None:
    ((before, after),) = rows(plan("int(11)", "varchar(10)").encode(b"\xfc" + ONE + b"\1a", EventType.INSERT))
    assert before == []
    assert after == [
        PbColumn(index=0, sqlType=4, name="c0", isKey=True, updated=True, isNull=False, value="1", mysqlType="int(11)"),
        PbColumn(
            index=1, sqlType=12, name="c1", isKey=False, updated=True, isNull=False, value="a", mysqlType="varchar(10)"
        ),
    ]


def test_a_deleted_row_has_columns_before_and_none_is_updated() -> None:
    ((before, after),) = rows(plan("int", "int").encode(b"\xfe" + ONE, EventType.DELETE))
    assert (values(before), after) == ([(0, "1", False), (1, None, False)], [])


def test_updated_is_what_differs_from_the_image_before() -> None:
    before_row, after_row = b"\xf4" + ONE + ONE + TWO, b"\xf2" + ONE + ONE + TWO
    only = plan("int", "int", "int", "int")
    ((before, after),) = rows(only.encode(before_row + after_row, EventType.UPDATE))
    assert values(before) == [(0, "1", False), (1, "1", False), (2, None, False), (3, "2", False)]
    assert values(after) == [(0, "1", False), (1, None, True), (2, "1", True), (3, "2", False)]


def test_two_nulls_are_not_an_update() -> None:
    ((_, after),) = rows(plan("int", "int").encode(b"\xfe" + ONE + b"\xfe" + TWO, EventType.UPDATE))
    assert values(after) == [(0, "2", True), (1, None, False)]


def test_updated_compares_texts() -> None:
    """Bytes that differ, but read as the same text, are not an update: both are U+FFFD here."""
    ((_, after),) = rows(plan("varchar(9)").encode(b"\xfe\1\xff\xfe\1\xfe", EventType.UPDATE))
    assert values(after) == [(0, "\ufffd", False)]


def test_columns_that_an_image_lacks_keep_their_place() -> None:
    """binlog_row_image=MINIMAL: the key before, what changed after."""
    data = b"\xfe" + ONE + b"\xfe" + TWO
    ((before, after),) = rows(plan("int", "int", "int").encode(data, EventType.UPDATE, b"\x01", b"\x04"))
    assert values(before) == [(0, "1", False)]
    assert values(after) == [(2, "2", True)]


def test_the_image_before_of_one_row_does_not_affect_the_next() -> None:
    row = b"\xfe" + ONE + b"\xfe" + ONE
    first, second = rows(plan("int", "int").encode(row * 2, EventType.UPDATE, b"\x01", b"\x01"))
    assert values(first[1]) == values(second[1]) == [(0, "1", False)]


def test_the_null_bits_of_many_columns_take_several_bytes() -> None:
    ((_, after),) = rows(plan(*["int"] * 18).encode(b"\xff\xfe\xff" + ONE, EventType.INSERT))
    assert [it.isNull for it in after] == [i != 8 for i in range(18)]


@given(
    st.lists(st.lists(st.none() | st.text(max_size=200).map(lambda it: it.replace("\0", "")), min_size=3, max_size=3))
)
def test_any_rows_come_out_in_order(table: list[list[str | None]]) -> None:
    data = b""
    for row in table:
        texts = [None if it is None else it.encode("utf-8", "ignore") for it in row]
        nulls = sum((it is None) << i for i, it in enumerate(texts))
        data += bytes([0xF8 | nulls])
        data += b"".join(len(it).to_bytes(2, "little") + it for it in texts if it is not None)
    encoded = plan("text", "text", "text").encode(data, EventType.INSERT)
    assert [[None if it.isNull else it.value for it in after] for _, after in rows(encoded)] == [
        [None if it is None else it.encode("utf-8", "ignore").decode() for it in row] for row in table
    ]


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 5_000, 16_383, 16_384, 60_000])
def test_rows_of_every_size_follow_each_other(size: int) -> None:
    """The length of a row takes one to three bytes, guessed from the row before it."""
    data = b"".join(b"\xfe" + n.to_bytes(2, "little") + b"x" * n for n in (size, 1, size, 50_000))
    encoded = plan("text").encode(data, EventType.INSERT)
    assert [len(after[0].value) for _, after in rows(encoded)] == [size, 1, size, 50_000]


def test_an_entry_larger_than_a_segment_is_moved_to_a_larger_one() -> None:
    data = b"\xfe\x60\xea" + b"x" * 60_000 + b"\xfe\x60\xea" + b"x" * 60_000
    decoded = rows(plan("text").encode(data * 100, EventType.UPDATE))
    assert len(decoded) == 100
    assert all(not after[0].updated for _, after in decoded)


class TestFieldFilter:
    def test_only_the_fields_wanted_are_delivered(self) -> None:
        only = plan("int", "int", fields=frozenset({"C1"}), black_fields=frozenset({"C1"}))
        ((_, after),) = rows(only.encode(b"\xfc" + ONE + TWO, EventType.INSERT))
        assert values(after) == [(1, "2", True)]

    def test_black_fields_are_left_out_of_both_images(self) -> None:
        only = plan("int", "int", "int", black_fields=frozenset({"C0"}))
        data = b"\xf8" + ONE + TWO + ONE + b"\xfa" + TWO + ONE
        ((before, after),) = rows(only.encode(data, EventType.UPDATE))
        assert values(before) == [(1, "2", False), (2, "1", False)]
        assert values(after) == [(1, None, True), (2, "1", False)]

    def test_a_black_field_that_cannot_be_read_stops_nothing(self) -> None:
        data = b"\xf8" + ONE + b"\1\0\0\0\xff" + TWO
        with pytest.raises(DecodeError, match=r"shop\.t\.c1: "):
            plan("int", "json", "int").encode(data, EventType.INSERT)
        ((_, after),) = rows(plan("int", "json", "int", black_fields=frozenset({"C1"})).encode(data, EventType.INSERT))
        assert values(after) == [(0, "1", True), (2, "2", True)]


class TestPartialJson:
    """PARTIAL_UPDATE_ROWS of binlog_row_value_options=PARTIAL_JSON. What differences do: test_json_differences.py."""

    DOCUMENT = bytes.fromhex("00 0100 0c00 0b00 0100 05 0100 61")  # {"a": 1}
    AFTER = b"\x01\x01\xfc" + ONE + b"\x09\0\0\0" + b"\0\3$.a\3\5\2\0"  # replace $.a by 2

    def encode(self, before: bytes, present: bytes = b"\3", *, strict_canal: bool = False) -> list[PbColumn]:
        encoded = plan("int", "json", strict_canal=strict_canal).encode(
            before + self.AFTER, EventType.UPDATE, present, b"\3", partial_json=True
        )
        ((_, after),) = rows(encoded)
        return after

    def test_the_value_is_the_document_after_the_change(self) -> None:
        before = b"\xfc" + ONE + len(self.DOCUMENT).to_bytes(4, "little") + self.DOCUMENT
        assert values(self.encode(before)) == [(0, "1", False), (1, '{"a": 2}', True)]

    def test_under_strict_canal_it_is_canals_expression(self) -> None:
        before = b"\xfc" + ONE + len(self.DOCUMENT).to_bytes(4, "little") + self.DOCUMENT
        after = self.encode(before, strict_canal=True)
        assert values(after) == [(0, "1", False), (1, "JSON_REPLACE(c1, '$.a', 2)", True)]

    @pytest.mark.parametrize(
        ("before", "present"), [(b"\xfe" + ONE, b"\1"), (b"\xfe" + ONE, b"\3")], ids=["absent", "NULL"]
    )
    def test_without_a_document_before_it_is_an_expression(self, before: bytes, present: bytes) -> None:
        after = self.encode(before, present)
        assert values(after) == [(0, "1", False), (1, "JSON_REPLACE(c1, '$.a', 2)", True)]

    def test_the_document_of_another_row_is_not_taken(self) -> None:
        first = b"\xfc" + ONE + len(self.DOCUMENT).to_bytes(4, "little") + self.DOCUMENT + self.AFTER
        second = b"\xfe" + TWO + self.AFTER.replace(ONE, TWO, 1)
        encoded = plan("int", "json").encode(first + second, EventType.UPDATE, partial_json=True)
        assert [values(after)[1][1] for _, after in rows(encoded)] == ['{"a": 2}', "JSON_REPLACE(c1, '$.a', 2)"]

    @pytest.mark.parametrize("present", [b"\7", b"\5"], ids=["before", "absent"])
    @pytest.mark.parametrize("masks", [{}, {"C1": Mask("sha256")}], ids=["plain", "masked"])
    def test_differences_of_a_column_that_is_not_delivered_are_passed_over(
        self, present: bytes, masks: dict[str, Mask]
    ) -> None:
        only = plan("int", "json", "int", black_fields=frozenset({"C1"}), masks=masks)
        document = len(self.DOCUMENT).to_bytes(4, "little") + self.DOCUMENT if present == b"\7" else b""
        data = b"\xf8" + ONE + document + ONE + self.AFTER.replace(b"\xfc", b"\xf8", 1) + TWO
        ((before, after),) = rows(only.encode(data, EventType.UPDATE, present, b"\7", partial_json=True))
        assert values(before) == [(0, "1", False), (2, "1", False)]
        assert values(after) == [(0, "1", False), (2, "2", True)]

    def test_differences_that_do_not_fit_are_an_error_of_the_column(self) -> None:
        array = bytes.fromhex("02 0000 0400")
        before = b"\xfc" + ONE + len(array).to_bytes(4, "little") + array
        with pytest.raises(DecodeError, match=r"shop\.t\.c1: .* do not fit the value before them, at byte"):
            self.encode(before)

    def test_unknown_options_are_an_error(self) -> None:
        with pytest.raises(DecodeError, match="options of a partial update"):
            plan("int").encode(b"\xfe" + ONE + b"\2\xfe" + ONE, EventType.UPDATE, partial_json=True)


class TestErrors:
    DATA = b"\xf8" + ONE + b"\2ab" + b"\1\0x"

    def test_every_cut_is_an_error_that_says_where(self) -> None:
        only = plan("int", "varchar(9)", "text")
        only.encode(self.DATA, EventType.INSERT)
        for end in range(1, len(self.DATA)):
            with pytest.raises(DecodeError, match=r"^shop\.t.*: the event ends within .*, at byte \d+ of the event's"):
                only.encode(self.DATA[:end], EventType.INSERT)

    def test_the_column_is_named(self) -> None:
        with pytest.raises(DecodeError, match=r"shop\.t\.c1: the event ends within a value, at byte 6"):
            plan("int", "varchar(9)").encode(self.DATA[:6], EventType.INSERT)

    def test_an_update_without_its_image_after_is_an_error(self) -> None:
        with pytest.raises(DecodeError, match="null bits"):
            plan("int").encode(b"\xfe" + ONE, EventType.UPDATE)

    def test_a_row_of_no_columns_is_an_error(self) -> None:
        with pytest.raises(DecodeError, match="no columns"):
            plan("int").encode(b"x", EventType.INSERT, b"\0", b"\0")

    @pytest.mark.parametrize("count", [0, 1, 3])
    def test_columns_of_another_number_are_refused(self, count: int) -> None:
        with pytest.raises(DecodeError, match=rf"shop\.t: the event has 2 columns, but the known schema has {count}"):
            TablePlan(TableMap.parse(table_map((3, b""), (3, b""))), [SourceColumn("c", "int")] * count, 1)

    @pytest.mark.parametrize("mysql_type", ["bigint", "varchar(9)", "json", "timestamp", "uuid"])
    def test_a_column_of_another_type_is_refused(self, mysql_type: str) -> None:
        with pytest.raises(DecodeError, match=r"shop\.t\.c: the event has the type LONG, but the known schema has"):
            TablePlan(TableMap.parse(table_map((3, b""))), [SourceColumn("c", mysql_type)], 1)

    @pytest.mark.parametrize(
        ("code", "metadata", "mysql_type", "charset", "message"),
        [
            (3, b"", "hypercube", None, "the type hypercube is unknown"),
            (244, b"", "int", None, "the event has the type TYPED_ARRAY"),
            (200, b"", "int", None, "the event has the type 200"),
            (15, b"\4\0", "varchar(1)", None, "its character set is not known"),
            (15, b"\4\0", "varchar(1)", "klingon", "the character set klingon is unknown"),
            (246, b"\x43\0", "decimal(67,0)", None, r"DECIMAL\(67,0\) is not a type"),
            (246, b"\2\3", "decimal(2,3)", None, r"DECIMAL\(2,3\) is not a type"),
            (19, b"\7", "time(7)", None, "7 digits .* is not a type"),
            (252, b"\5", "blob", None, "length of 5 bytes is not one"),
            (16, b"\0\x09", "bit(72)", None, r"BIT\(72\) is not a type"),
        ],
    )
    def test_a_column_that_cannot_be_read_is_refused(
        self, code: int, metadata: bytes, mysql_type: str, charset: str | None, message: str
    ) -> None:
        with pytest.raises(DecodeError, match=rf"shop\.t\.c: .*{message}"):
            TablePlan(TableMap.parse(table_map((code, metadata))), [SourceColumn("c", mysql_type, charset)], 1)

    @given(
        st.lists(st.just(0xFF) | st.integers(0, 0xFF), max_size=60).map(bytes),  # bits that are set are nulls
        st.sampled_from((EventType.INSERT, EventType.UPDATE, EventType.DELETE)),
        st.binary(min_size=1, max_size=1),
        st.booleans(),
    )
    def test_any_bytes_are_rows_or_an_error(self, data: bytes, kind: EventType, present: bytes, partial: bool) -> None:
        only = plan("int", "varchar(9)", "json", "datetime(3)", "decimal(9,2)", "time(2)", "geometry", "bit(9)")
        count = present[0].bit_count()
        sizes = (0 if kind == EventType.INSERT else count, 0 if kind == EventType.DELETE else count)
        with suppress(DecodeError):
            found = rows(only.encode(data, kind, present, present, partial_json=partial))
            assert all((len(before), len(after)) == sizes for before, after in found)


def test_an_excluded_table_needs_no_columns() -> None:
    excluded = TablePlan(TableMap.parse(table_map((3, b""))), [], 5, PlanOptions(excluded=True), 2)
    assert (excluded.excluded, excluded.number, excluded.slot_flags, excluded.column_count) == (True, 5, 2, 1)
    with pytest.raises(DecodeError, match="the table is excluded"):
        excluded.encode(b"\xfe" + ONE, EventType.INSERT)


def test_a_table_that_cannot_be_read_has_its_error_for_every_event() -> None:
    broken = TablePlan(TableMap.parse(table_map((3, b""))), [], 5, None, 0, "no such schema")
    assert broken.error == "no such schema"
    with pytest.raises(DecodeError, match=r"^no such schema$"):
        broken.encode(b"\xfe" + ONE, EventType.INSERT)


def test_names_that_are_not_utf8_do_not_spoil_the_message() -> None:
    body = table_map((3, b"")).replace(b"shop", b"sh\xffp")
    only = TablePlan(TableMap.parse(body), [SourceColumn("c\ud800", "int")], 1)
    assert only.schema == "sh\ufffdp"
    assert rows(only.encode(b"\xfe" + ONE, EventType.INSERT))[0][1][0].name == "c?"
