"""Conditions on rows: what is understood, what is refused, and which rows pass."""

import itertools
import operator
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.instance.columns import SourceColumn
from sluice.instance.conditions.condition import And, Compare, In, IsNull, Like, Not
from sluice.instance.conditions.domains import domain_of
from sluice.instance.conditions.masks import Masks
from sluice.instance.conditions.where import MAX_CONSTANTS, MAX_TESTS, Conditions, parse_condition
from sluice.instance.sources.mysql.decode.decoder import Status
from sluice.instance.sources.mysql.decode.events import BinlogEvent
from sluice.instance.sources.mysql.decode.plan import PlanOptions, TablePlan
from sluice.instance.sources.mysql.decode.table_map import TableMap
from sluice.instance.values.types import Type
from sluice.protocol.canal.entry_pb2 import RowChange
from sluice.protocol.canal.tags import EventType
from sluice.protocol.errors import ConfigError, DecodeError, FilterError
from tests.binlog import Log
from tests.decoding import Decoded, Options, decode
from tests.unit.plans import packed, plan, rows, table_map, wire
from tests.unit.test_config import filled

COLLATIONS = {"general": 45, "bin": 46, "uca": 255, "swedish": 8}


def integer(number: int) -> bytes:
    return number.to_bytes(4, "little", signed=True)


def row(*numbers: int | None) -> bytes:
    """An image of INT columns."""
    nulls = sum((it is None) << i for i, it in enumerate(numbers))
    return bytes([0xFF << len(numbers) & 0xFF | nulls]) + b"".join(integer(it) for it in numbers if it is not None)


def passing(condition: str, *images: bytes, kind: int = EventType.INSERT) -> list[str | None]:
    """The first column of each row that passes; a table has three INT columns."""
    plans = plan("int", "int", "int", where=parse_condition(condition))
    encoded = plans.encode(b"".join(images), kind)
    return [(after or before)[0].value for before, after in rows(encoded)]


class TestWhatIsUnderstood:
    def test_each_table_has_a_condition_of_its_own(self) -> None:
        conditions = Conditions("shop.orders: a = 1 ; Shop.`x`: b IS NULL;")
        assert conditions.of("SHOP", "Orders") == Compare("a", "=", 1)
        assert conditions.of("shop", "items") is None

    def test_a_semicolon_in_quotes_does_not_end_a_condition(self) -> None:
        assert Conditions(r"s.t: a = 'x;\';' AND `b;` IS NULL").of("s", "t") == And(
            (Compare("a", "=", "x;';"), IsNull("b;"))
        )

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("1 < a", Compare("a", ">", 1)),
            ("a <> 1", Not(Compare("a", "=", 1))),
            ("a <=> NULL", IsNull("a")),
            ("a <=> 1", And((Not(IsNull("a")), Compare("a", "=", 1)))),
            ("a BETWEEN 1 AND 2", And((Compare("a", ">=", 1), Compare("a", "<=", 2)))),
            ("a = TRUE", Compare("a", "=", 1)),
            ("a = X'00ff'", Compare("a", "=", b"\0\xff")),
            ("NOT a = 1 AND b = 2", And((Not(Compare("a", "=", 1)), Compare("b", "=", 2)))),
            ("'x' < a COLLATE UTF8MB4_bin", Compare("a", ">", "x", "utf8mb4_bin")),
            ("a COLLATE `c` NOT IN ('x')", Not(In("a", ("x",), "c"))),
            ("a COLLATE 'c' LIKE 'x'", Like("a", "x", "c")),
            ("a COLLATE c BETWEEN 'x' AND 'y'", And((Compare("a", ">=", "x", "c"), Compare("a", "<=", "y", "c")))),
            ("a COLLATE c <=> 'x'", And((Not(IsNull("a")), Compare("a", "=", "x", "c")))),
        ],
    )
    def test_other_ways_to_write_a_test_are_the_same_test(self, text: str, expected: object) -> None:
        assert parse_condition(text) == expected

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("a", "is not a test: write what it is compared with, such as a = 1"),
            (" ", "the condition is empty: write one, such as total > 10"),
            ("a = ", "is not a condition of SQL at character"),
            ("a = 'x", "is not a condition of SQL"),
            ("a = NULL", "a = NULL: a comparison with NULL is never true"),
            ("a IN (1, NULL)", "is never true; write IS NULL"),
            ("a IN ()", "a list has 1 to"),
            ("a IN", "a list has 1 to"),
            ("a NOT IN", "a list has 1 to"),
            ("a IN (SELECT 1)", "supported are =, <>"),
            ("a = b", "b: is not a constant"),
            ("1 = 1", "1 = 1: compares two constants"),
            ("LOWER(a) = 'x'", "LOWER\\(a\\) = 'x': compares two constants, or an expression"),
            ("a + 1 > 2", "an expression"),
            ("t.a = 1", "t.a: write the column without its table: a"),
            ("a = 1 XOR b = 1", "XOR b = 1: supported are"),
            ("a REGEXP 'x'", "supported are"),
            ("a LIKE 'x' ESCAPE '!'", "ESCAPE '!': supported are"),
            ("a LIKE 5", "a pattern is a text"),
            ("a IS TRUE", "only IS NULL"),
            ("a = 'x' COLLATE utf8mb4_bin", "write COLLATE after the column"),
            ("a COLLATE x.y = 'b'", "is not the name of a collation"),
            ("a COLLATE 'x y' = 'b'", "is not the name of a collation"),
            ("LOWER(a) COLLATE c = 'b'", "an expression"),
            ("a COLLATE c", "supported are"),
            ("a = 1 /*!50000 OR 1=1 */", "a comment that begins with /.! or /.M! is code"),
            ("/*M!100100 b = 2 OR */ a = 1", "is code for a server"),
            ("a = 1e999", "too large for a DOUBLE"),
            ("a = -1e", "-1e: is not a number: write digits after the e, as in 1e6"),
            ("a IN (1e)", "1e: is not a number"),
            ("a > 1 /* \ud800 */", "the condition is not a text: character 10 is half of one, a lone surrogate"),
            ("a = " + "1" * 66, "more than 65 digits"),
            (" AND ".join(["a = 1"] * (MAX_TESTS + 1)), "more than 256 tests"),
            (f"a IN ({','.join(['1'] * (MAX_CONSTANTS + 1))})", "1 to 1000 constants"),
            (f"a LIKE '{'x' * 1001}'", "more than 1000 characters"),
            ("(" * 5000 + "a = 1" + ")" * 5000, "nested too deeply"),
            ("NOT " * 5000 + "a = 1", "nested too deeply"),
            ("NOT " * 40 + "a = 1", "more than 32 deep"),
        ],
    )
    def test_all_else_is_refused_with_its_place_and_the_reason(self, text: str, reason: str) -> None:
        with pytest.raises(FilterError, match=reason):
            parse_condition(text)

    @pytest.mark.parametrize("text", ["s.t: a > 1 /* \ud800 */", "s.\ud800: a > 1", "\ud800"])
    def test_half_a_character_is_refused_by_a_text_that_can_be_shown(self, text: str) -> None:
        with pytest.raises(FilterError, match="lone surrogate") as caught:
            Conditions(text)
        assert str(caught.value).isascii()

    @pytest.mark.parametrize(
        ("table", "schema", "name"),
        [("`shop`.`orders`", "Shop", "Orders"), ("shop . `or``ders`", "shop", "or`ders"), ("`a;b`.c", "a;b", "c")],
    )
    def test_a_table_in_backticks_is_the_table(self, table: str, schema: str, name: str) -> None:
        conditions = Conditions(f"{table}: a = 1")
        assert conditions.of(schema, name) == Compare("a", "=", 1)
        assert conditions.text_of(schema, name) == "a = 1"
        assert {(it.upper(), other.upper()) for it, other in conditions.tables} == {(schema.upper(), name.upper())}

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("a = 1", "is not a condition of a table: write schema.table: condition"),
            ("orders: a = 1", "is not a condition of a table"),
            ("s.t: a = 1; S.T: b = 2", "S.T has two conditions"),
            ("s.t: a = 1; `s`.t: b = 2", "`s`.t has two conditions"),
            ("`s.t`: a = 1", "'`s.t`': write each name without quotes, or in backticks of its own"),
            ('"s"."t": a = 1', "write each name without quotes"),
            ("s.``: a = 1", "is not a condition of a table"),
            ("s.t: a = 1; s.u: b ==", "s.u: "),
            ("s.t: a = '" + "x" * (1 << 16) + "'", "characters, more than 65536"),
        ],
    )
    def test_the_configuration_names_key_place_and_table(self, text: str, reason: str) -> None:
        with pytest.raises(ConfigError, match=rf"f:1: sluice.instance.filter.where: .*{reason}"):
            filled(sluice__instance__filter__where=text)


class TestWhichRowsPass:
    def test_null_is_neither_true_nor_false(self) -> None:
        images = row(1, 5, None), row(2, None, None), row(3, 6, None)
        assert passing("c1 = 5", *images) == ["1"]
        assert passing("c1 <> 5", *images) == passing("NOT c1 = 5", *images) == ["3"]
        assert passing("c1 = 5 OR c2 IS NULL", *images) == ["1", "2", "3"]
        assert passing("NOT (c1 = 5 AND c2 IS NULL)", *images) == ["3"]
        assert passing("c1 <=> 5", *images) == ["1"]
        assert passing("NOT c1 <=> 5", *images) == ["2", "3"]

    def test_an_update_passes_when_the_row_matches_before_or_after(self) -> None:
        images = row(1, 0, 0), row(1, 5, 0), row(2, 5, 0), row(2, 0, 0), row(3, 0, 0), row(3, 1, 0)
        assert passing("c1 = 5", *images, kind=EventType.UPDATE) == ["1", "2"]

    def test_a_deleted_row_is_judged_as_it_was(self) -> None:
        assert passing("c1 = 5", row(1, 5, 0), row(2, 0, 0), kind=EventType.DELETE) == ["1"]

    def test_an_event_without_a_match_gives_no_rows(self) -> None:
        assert passing("c1 = 7", row(1, 5, 0), row(2, 0, 0)) == []

    def test_an_image_of_only_what_changed_has_the_rest_from_the_image_before(self) -> None:
        """MariaDB's FULL_NODUP."""
        plans = plan("int", "int", where=parse_condition("c1 = 5"))
        encoded = plans.encode(row(1, 5) + row(2) + row(3, 4) + row(4), EventType.UPDATE, b"\x03", b"\x01")
        assert [before[0].value for before, _ in rows(encoded)] == ["1"]
        assert not RowChange.FromString(encoded).props

    def test_rows_pass_with_a_remark_when_their_image_lacks_a_column(self) -> None:
        plans = plan("int", "int", where=parse_condition("c1 = 5 OR c0 = 2"))
        encoded = plans.encode(row(1) + row(2), EventType.DELETE, b"\x01", b"\x01")
        assert len(rows(encoded)) == 2
        assert [(it.key, it.value) for it in RowChange.FromString(encoded).props] == [("sluice.where", "unjudged")]

    def test_rows_pass_with_a_remark_when_their_table_lacks_a_column(self) -> None:
        encoded = plan("int", where=parse_condition("gone = 5")).encode(row(1), EventType.INSERT)
        assert len(rows(encoded)) == 1
        assert [it.value for it in RowChange.FromString(encoded).props] == ["unjudged"]

    def test_rows_that_are_judged_have_no_remark(self) -> None:
        encoded = plan("int", where=parse_condition("c0 = 1")).encode(row(1), EventType.INSERT)
        assert not RowChange.FromString(encoded).props

    def test_a_column_that_is_not_delivered_can_be_named(self) -> None:
        plans = plan("int", "int", where=parse_condition("C1 = 5"), fields=frozenset({"C0"}))
        assert [after[0].value for _, after in rows(plans.encode(row(1, 5) + row(2, 4), EventType.INSERT))] == ["1"]

    def test_a_negative_zero_is_zero(self) -> None:
        """No server writes one, but the layout can hold it."""
        decimal = SourceColumn("d", "decimal(4,2)")
        domain = domain_of(decimal, Type.NEWDECIMAL, 4 << 8 | 2)
        assert domain is not None
        assert domain.range(Compare("d", "=", Decimal(0))) == (0x7FFF, 0x8000)

    @pytest.mark.parametrize(
        ("condition", "expected"),
        [
            ("c1 < '{}'", ["1"]),
            ("c1 <= '{}'", ["1"]),
            ("c1 = '{}'", []),
            ("c1 <> '{}'", ["1", "2", "3"]),
            ("c1 > '{}'", ["2", "3"]),
            ("c1 >= '{}'", ["2", "3"]),
            ("c1 IN ('{}', '2001-09-09 01:46:40')", ["3"]),
            ("c1 BETWEEN '0000-00-00' AND '{}'", ["1"]),
        ],
    )
    @pytest.mark.parametrize("constant", ["0001-01-01", "1950-01-01 00:00:00.5", "1969-12-31"])
    def test_a_zero_timestamp_is_less_than_every_date(self, condition: str, expected: list[str], constant: str) -> None:
        plans = plan("int", "timestamp", where=parse_condition(condition.format(constant)), time_zone="UTC")
        seconds = 0, 1, 1_000_000_000
        images = [b"\xfc" + integer(i) + it.to_bytes(4, "big") for i, it in enumerate(seconds, 1)]
        encoded = plans.encode(b"".join(images), EventType.INSERT)
        assert [after[0].value for _, after in rows(encoded)] == expected

    @pytest.mark.parametrize("size", [1, 3, 6])
    def test_an_event_that_ends_within_a_row_is_an_error(self, size: int) -> None:
        plans = plan("int", "int", where=parse_condition("c1 = 9"))
        with pytest.raises(DecodeError, match="the event ends within"):
            plans.encode(row(1, 5) + row(1, 5)[:size], EventType.INSERT)


def updating(*images: bytes, present: bytes = b"\x03\x03", kind: int = BinlogEvent.UPDATE_ROWS_EVENT) -> Log:
    """A transaction with one event, of a table of two INT columns, between two INSERTs of another one."""
    log = Log().query("BEGIN").table_map().insert(1)
    log.add(BinlogEvent.TABLE_MAP_EVENT, b"\6\0\0\0\0\0\1\0\4shop\0\1t\0\2\3\3\0\0")
    log.add(kind, b"\6\0\0\0\0\0\1\0\2\0\2" + present + b"".join(images))
    return log.table_map().insert(2).xid()


def split(condition: str = "c1 = 5", **options: Any) -> Callable[[TableMap, int], TablePlan]:
    """Plan the table with updates that are split; the first column is the key."""

    def make_plan(table_map: TableMap, number: int) -> TablePlan:
        columns = [SourceColumn(f"c{i}", "int", None, i == 0) for i in range(len(table_map.types))]
        where = parse_condition(condition) if table_map.table == "t" and table_map.schema == "shop" else None
        return TablePlan(table_map, columns, number, PlanOptions(where=where, splits=True, **options))

    return make_plan


def changes(decoded: Decoded) -> list[str]:
    """Each entry of the table with its rows: `UPDATE 1,5>1,6`."""
    lines = []
    for entry in decoded.entries:
        if entry.header.tableName != "t" or entry.header.schemaName != "shop":
            continue
        images = [
            ">".join(
                ",".join("NULL" if it.isNull else it.value for it in image)
                for image in (row.beforeColumns, row.afterColumns)
                if image
            )
            for row in RowChange.FromString(entry.storeValue).rowDatas
        ]
        lines.append(" ".join([EventType(entry.header.eventType).name, *images]))
    return lines


class TestUpdatesThatCrossTheCondition:
    ROWS = (
        *(row(1, 4), row(1, 5)),  # comes to match
        *(row(2, 4), row(2, 5)),
        *(row(3, 5), row(3, 4)),  # ceases to match
        *(row(4, 4), row(4, 4)),  # never does
        *(row(5, 5), row(6, 5)),  # always does
        *(row(7, 4), row(7, 5)),
    )
    ENTRIES = ("INSERT 1,5 2,5", "DELETE 3,5", "UPDATE 5,5>6,5", "INSERT 7,5")

    def test_come_as_insert_and_delete_in_the_order_of_the_rows(self) -> None:
        decoded = decode(updating(*self.ROWS).packets, make_plan=split())
        assert changes(decoded) == list(self.ENTRIES)
        assert [(slot.event_type, slot.rows) for slot, _ in decoded.slots if slot.table == 2] == [
            (EventType.INSERT, 2),
            (EventType.DELETE, 1),
            (EventType.UPDATE, 1),
            (EventType.INSERT, 1),
        ]
        assert decoded.kinds == ["ADVANCE", "TRANSACTION_BEGIN", *["ROW_DATA"] * 6, "TRANSACTION_END"]
        assert {it.key for change in decoded.changes for it in change.props} == set()

    @given(updates=st.lists(st.tuples(*[st.tuples(st.none() | st.integers(1, 9), st.sampled_from((4, 5, None)))] * 2)))
    def test_any_rows_come_in_runs_of_one_type(
        self, updates: list[tuple[tuple[int | None, int | None], tuple[int | None, int | None]]]
    ) -> None:
        given_rows = [
            ({(True, False): "DELETE", (False, True): "INSERT"}.get(matches, "UPDATE"), before, after)
            for before, after in updates
            if any(matches := (before[1] == 5, after[1] == 5))
        ]
        expected = []
        for kind, found in itertools.groupby(given_rows, key=operator.itemgetter(0)):
            images = [{"INSERT": [after], "DELETE": [before]}.get(kind, [before, after]) for _, before, after in found]
            texts = [">".join(",".join(str(it or "NULL") for it in image) for image in row) for row in images]
            expected.append(" ".join([kind, *texts]))
        log = updating(*(row(*image) for update in updates for image in update))
        assert changes(decode(log.packets, make_plan=split())) == expected

    def test_a_row_that_is_neither_true_nor_false_does_not_match(self) -> None:
        log = updating(row(1, None), row(1, 5), row(2, 5), row(2, None))
        assert changes(decode(log.packets, make_plan=split())) == ["INSERT 1,5", "DELETE 2,5"]

    def test_the_columns_of_an_insert_are_all_new(self) -> None:
        decoded = decode(updating(row(1, 4), row(1, 5)).packets, make_plan=split())
        (inserted,) = decoded.changes[1].rowDatas
        assert [it.updated for it in inserted.afterColumns] == [True, True]
        assert EventType(decoded.changes[1].eventType) == EventType.INSERT

    def test_each_entry_has_a_place_of_its_own(self) -> None:
        decoded = decode(updating(*self.ROWS).packets, make_plan=split())
        places = [
            before.n for (before, _), (slot, _) in zip(decoded.positions, decoded.slots, strict=True) if slot.rows
        ]
        assert places == [2, 4, 5, 6, 7, 9]
        for (_, after), (before, _) in zip(decoded.positions, decoded.positions[1:], strict=False):
            assert after <= before

    def test_the_stream_can_be_resumed_and_stopped_between_them(self) -> None:
        log = updating(*self.ROWS)
        whole = decode(log.packets, make_plan=split())
        for i, (before, _) in list(enumerate(whole.positions))[1:]:
            resumed = decode(log.packets, make_plan=split(), position=before)
            assert [entry for _, entry in resumed.slots] == [entry for _, entry in whole.slots[i:]], f"from {before}"
            stopped = decode(log.packets, make_plan=split(), stop=before)
            assert stopped.status == Status.STOPPED
            assert stopped.end == before or before.n == 0
            assert [entry for _, entry in stopped.slots] == [entry for _, entry in whole.slots[:i]], f"to {before}"

    def test_a_filter_of_inserts_or_updates_counts_for_what_becomes_of_them(self) -> None:
        log = updating(*self.ROWS)
        no_inserts = decode(log.packets, Options(filter_dml_insert=True), make_plan=split())
        assert changes(no_inserts) == ["DELETE 3,5", "UPDATE 5,5>6,5"]
        no_updates = decode(log.packets, Options(filter_dml_update=True), make_plan=split())
        assert changes(no_updates) == ["INSERT 1,5 2,5", "DELETE 3,5", "INSERT 7,5"]

    def test_an_image_of_only_what_changed_is_completed_for_an_insert(self) -> None:
        """MariaDB's FULL_NODUP."""
        log = updating(row(1, 4), row(5), row(None, 4), row(5), row(3, 5), row(6), present=b"\x03\x02")
        decoded = decode(log.packets, make_plan=split())
        assert changes(decoded) == ["INSERT 1,5 NULL,5", "DELETE 3,5"]
        assert [list(change.props) for change in decoded.changes] == [[]] * 4

    def test_what_is_masked_is_masked_in_an_insert_that_is_completed(self) -> None:
        log = updating(row(4, 12345), row(5), row(4, None), row(5), present=b"\x03\x01")
        for mask, expected in (("first 2", "12"), ("null", "NULL")):
            plans = split("c0 = 5", masks=Masks(f"shop.t.c1: {mask}").of("shop", "t"))
            assert changes(decode(log.packets, make_plan=plans)) == [f"INSERT 5,{expected} 5,NULL"]

    def test_a_column_that_both_images_lack_leaves_an_update_with_a_remark(self) -> None:
        log = updating(row(4), row(5), row(5), row(4), present=b"\x02\x02")
        decoded = decode(log.packets, make_plan=split())
        assert changes(decoded) == ["UPDATE 4>5", "DELETE 5"]
        update, delete = decoded.changes[1:3]
        assert {it.key: it.value for it in update.props} == {"sluice.absent": '["c0"]', "sluice.where": "unsplit"}
        assert {it.key: it.value for it in delete.props} == {"sluice.absent": '["c0"]'}

    def test_a_column_that_is_not_delivered_may_be_missing(self) -> None:
        log = updating(row(4), row(5), present=b"\x02\x02")
        decoded = decode(log.packets, make_plan=split(fields=frozenset({"C1"})))
        assert changes(decoded) == ["INSERT 5"]

    def test_what_cannot_be_judged_stays_an_update(self) -> None:
        log = updating(row(1), row(2), present=b"\x01\x01")
        decoded = decode(log.packets, make_plan=split())
        assert changes(decoded) == ["UPDATE 1>2"]
        assert ("sluice.where", "unjudged") in [(it.key, it.value) for it in decoded.changes[1].props]
        after = decoded.positions[3][1]
        resumed = decode(log.packets, make_plan=split(), position=after)
        assert changes(resumed) == []
        assert len(resumed.entries) == 2

    def test_bytes_that_do_not_fit_give_nothing_of_the_event(self) -> None:
        log = updating(row(1, 4), row(1, 5), row(2, 5), row(2, 4), row(3, 4)[:-1])
        decoded = decode(log.packets, make_plan=split())
        (failed,) = [event for event in decoded.controls if event.error]
        assert failed.position == replace(decoded.positions[1][0], n=4)
        assert decoded.kinds == ["ADVANCE", "TRANSACTION_BEGIN", "ROW_DATA", "ROW_DATA", "TRANSACTION_END"]
        assert [before.n for before, _ in decoded.positions][2:4] == [2, 6]

    def test_the_begin_comes_although_the_first_event_of_the_transaction_does_not_fit(self) -> None:
        log = Log().query("BEGIN")
        log.add(BinlogEvent.TABLE_MAP_EVENT, b"\6\0\0\0\0\0\1\0\4shop\0\1t\0\2\3\3\0\0")
        images = row(1, 4), row(1, 5), row(2, 5), row(2, 4), row(3, 4)[:-1]
        log.add(BinlogEvent.UPDATE_ROWS_EVENT, b"\6\0\0\0\0\0\1\0\2\0\2\x03\x03" + b"".join(images))
        decoded = decode(log.table_map().insert(2).xid().packets, make_plan=split())
        assert decoded.kinds == ["ADVANCE", "TRANSACTION_BEGIN", "ROW_DATA", "TRANSACTION_END"]

    def test_inserts_and_deletes_are_as_without_it(self) -> None:
        images = row(1, 5), row(2, 4), row(3, 5)
        for kind, name in ((BinlogEvent.WRITE_ROWS_EVENT, "INSERT"), (BinlogEvent.DELETE_ROWS_EVENT, "DELETE")):
            log = updating(*images, present=b"\x03", kind=kind)
            assert changes(decode(log.packets, make_plan=split())) == [f"{name} 1,5 3,5"]


def texts(condition: str, collation: int, *values: str, kind: str = "varchar(20)") -> list[str]:
    """Those values that pass."""
    optional = bytes([2]) + packed(bytes([collation]) if collation < 251 else b"\xfc" + collation.to_bytes(2, "little"))
    described = TableMap.parse(table_map(wire(kind), optional=optional))
    columns = [SourceColumn("c", kind, "utf8mb4")]
    plans = TablePlan(described, columns, 1, PlanOptions(where=parse_condition(condition)))
    data = b"".join(b"\xfe" + packed(it.encode()) for it in values)
    return [after[0].value for _, after in rows(plans.encode(data, EventType.INSERT))]


class TestTexts:
    def test_each_collation_has_its_own_equality(self) -> None:
        values = ("paid", "PAID", "páid", "paid ", "pai")
        assert texts("c = 'paid'", COLLATIONS["bin"], *values) == ["paid", "paid "]
        assert texts("c = 'paid'", COLLATIONS["general"], *values) == ["paid", "PAID", "páid", "paid "]
        assert texts("c = 'paid'", COLLATIONS["uca"], *values) == ["paid", "PAID", "páid"]

    def test_a_collation_that_is_named_takes_the_place_of_that_of_the_column(self) -> None:
        values = ("paid", "PAID", "páid", "paid ", "pai")
        for column in COLLATIONS.values():  # of one that is not known, too
            assert texts("c COLLATE utf8mb4_bin = 'paid'", column, *values) == ["paid", "paid "]
            assert texts("c COLLATE utf8mb4_nopad_bin = 'paid'", column, *values) == ["paid"]
            assert texts("c COLLATE utf8mb4_general_ci LIKE 'P%d'", column, *values) == ["paid", "PAID", "páid"]
            assert texts("c COLLATE utf8mb4_0900_ai_ci IN ('PAI', 'x')", column, *values) == ["pai"]

    def test_a_collation_that_is_named_needs_none_in_the_binlog(self) -> None:
        for kind, column in (("varchar(9)", b"\xfe" + packed(b"a")), ("enum('A','b')", b"\xfe\1")):
            for name, collation in (("utf8mb4_bin", False), ("utf8mb4_general_ci", True)):
                plans = plan(kind, where=parse_condition(f"c0 COLLATE {name} = 'a'"))
                passes = bool(rows(plans.encode(column, EventType.INSERT)))
                assert passes == (collation or kind == "varchar(9)")

    def test_a_pattern_takes_time_that_is_bounded(self) -> None:
        pattern = "%a" * 400 + "b"
        assert texts(f"c LIKE '{pattern}'", COLLATIONS["uca"], "a" * 250) == []

    @pytest.mark.parametrize(
        ("condition", "collation", "reason"),
        [
            ("c = 'x'", COLLATIONS["swedish"], "shop.t.c: texts of the collation number 8 cannot be compared here"),
            ("c = 1", COLLATIONS["bin"], "shop.t.c: a number beside texts"),
            ("c = X'00'", COLLATIONS["bin"], "shop.t.c: bytes beside texts"),
            ("c COLLATE latin1_bin = 'a'", COLLATIONS["bin"], "shop.t.c: .* is not one of its character set, utf8mb4"),
            ("c COLLATE utf8mb4_x_ci = 'a'", COLLATIONS["bin"], "shop.t.c: texts of the collation utf8mb4_x_ci cannot"),
        ],
    )
    def test_what_cannot_be_compared_is_refused(self, condition: str, collation: int, reason: str) -> None:
        with pytest.raises(ConfigError, match=f"sluice.instance.filter.where: {reason}"):
            texts(condition, collation)


@pytest.mark.parametrize(
    ("kind", "condition", "reason"),
    [
        ("int", "c0 = '1'", "'1' is a text, but the column has numbers"),
        ("int", "c0 > 1e3", "has an exponent"),
        ("int", "c0 LIKE '1%'", "LIKE is for texts"),
        ("float(7,2)", "c0 = 1.25", r"servers compare a float\(7,2\) with a tolerance"),
        ("double(9,3)", "c0 < 1", r"servers compare a double\(9,3\) with a tolerance"),
        ("year", "c0 = 26", "write its four digits"),
        ("date", "c0 = 20260101", "is not a date; write '2026-12-31'"),
        ("date", "c0 = '2026-02-30'", "'2026-02-30' is not a date"),
        ("datetime(3)", "c0 = 'now'", "is not a date"),
        ("time", "c0 = '25'", "is not a time"),
        ("time(1)", "c0 > '10:00:00.05'", "has more digits after the point than the column: 1"),
        ("json", "c0 = '{}'", "of the type json only IS NULL"),
        ("set('a')", "c0 = 'a'", "of the type set only IS NULL"),
        ("inet6", "c0 = '::1'", "of the type inet6 only IS NULL"),
        ("varchar(9)", "c0 = 'a'", "the binlog does not name its collation"),
        ("int", "c0 COLLATE utf8mb4_bin = 1", "COLLATE is for texts; the column has none"),
        ("varbinary(9)", "c0 COLLATE utf8mb4_bin = 'a'", "COLLATE is for texts; the column has bytes"),
    ],
)
def test_a_test_that_a_type_does_not_know_is_refused_with_the_column(kind: str, condition: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"sluice.instance.filter.where: shop\.t\.c0: .*{reason}"):
        plan(kind, where=parse_condition(condition))


def test_every_type_can_be_null() -> None:
    encoded = plan("json", where=parse_condition("c0 IS NULL")).encode(b"\xff\xfe\1\0\0\0\0", EventType.INSERT)
    assert [after[0].isNull for _, after in rows(encoded)] == [True]
