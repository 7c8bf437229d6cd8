"""When two decoders agree on a value, and which values one of them cannot judge."""

import io
from collections import Counter
from datetime import date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from pymysqlreplication.constants import FIELD_TYPE, NONE_SOURCE
from rich.console import Console

from sluice.protocol.canal.types import JSON_NULL, JsonExpression
from sluice.protocol.errors import ConfigError
from sluice.server.cli.verify import show
from sluice.verify.comparison import EPOCH, BinlogPlace, Report, as_json, compare_values

NEW_YEAR = datetime(2026, 1, 1)  # noqa: DTZ001  as the server wrote it


def verdict(kind: str, ours: Any, theirs: Any, none_source: str = "", **column: Any) -> bool | str:
    described = {
        "type": getattr(FIELD_TYPE, kind),
        "set_values": ["a", "b"],
        "enum_values": ["", "a"],
        "character_set_name": "utf8mb4",
    } | column
    return compare_values(SimpleNamespace(**described), ours, theirs, none_source)


@pytest.mark.parametrize(
    ("kind", "ours", "theirs"),
    [
        ("LONG", 1, 1),
        ("NEWDECIMAL", Decimal("1.50"), Decimal("1.50")),
        ("FLOAT", 0.1, 0.10000000149011612),
        ("DOUBLE", 0.1, 0.1),
        ("VARCHAR", "a", "a"),
        ("BLOB", b"a", b"a"),
        ("BLOB", b"", ""),
        ("STRING", b"a\0\0", b"a"),
        ("STRING", b"\0\0", ""),
        ("YEAR", 0, 1900),
        ("YEAR", 2026, 2026),
        ("BIT", 5, "0000000101"),
        ("ENUM", "a", "a"),
        ("SET", frozenset("ab"), {"a", "b"}),
        ("SET", frozenset(), None),
        ("DATE", date(2026, 1, 1), date(2026, 1, 1)),
        ("TIMESTAMP2", NEW_YEAR, NEW_YEAR),
        ("TIME2", timedelta(hours=-800), timedelta(hours=-800)),
        ("JSON", {"a": [1, 2.5, None]}, {b"a": [1, Decimal("2.5"), None]}),
        ("LONG", None, None),
    ],
)
def test_equal_values_are_equal(kind: str, ours: Any, theirs: Any) -> None:
    assert verdict(kind, ours, theirs) is True


@pytest.mark.parametrize(
    ("kind", "ours", "theirs"),
    [
        ("LONG", 1, 2),
        ("LONG", 1, True),
        ("LONG", None, 0),
        ("FLOAT", 0.1, 0.2),
        ("DOUBLE", 0.1, 0.10000000149011612),
        ("BIT", 5, "0000000100"),
        ("SET", frozenset("a"), {"a", "b"}),
        ("SET", frozenset("a"), None),
        ("DATE", date(2026, 1, 1), NEW_YEAR),
        ("TIMESTAMP2", "0000-00-00 00:00:00", NEW_YEAR),
        ("JSON", {"a": 1}, {b"a": 2}),
        ("JSON", {"a": 1}, {b"a": True}),
        ("VARCHAR", "a", "b"),
        ("VARCHAR", "a", ""),
    ],
)
def test_unequal_values_differ(kind: str, ours: Any, theirs: Any) -> None:
    assert verdict(kind, ours, theirs) is False


def test_null_differs_from_every_value() -> None:
    assert verdict("LONG", 0, None, NONE_SOURCE.NULL) is False
    assert verdict("LONG", None, None, NONE_SOURCE.NULL) is True


@pytest.mark.parametrize(
    ("kind", "ours", "theirs", "none_source", "reason"),
    [
        ("DATE", "0000-00-00", None, NONE_SOURCE.OUT_OF_DATE_RANGE, "zero or invalid dates"),
        ("DATETIME2", "2020-00-00 00:00:00", None, NONE_SOURCE.OUT_OF_DATETIME2_RANGE, "zero or invalid dates"),
        ("TIMESTAMP2", "0000-00-00 00:00:00", EPOCH, "", "zero timestamps"),
        ("TIME2", timedelta(seconds=-1.5), timedelta(seconds=-1), "", "negative TIMEs with a fraction"),
        ("TIME", timedelta(seconds=-1), timedelta(seconds=1), "", "negative TIMEs from before MySQL 5.6.4"),
        ("ENUM", "a", None, "", "ENUMs without labels"),
        ("JSON", JsonExpression("JSON_REMOVE(a, '$.b')"), None, "", "partial JSON updates"),
        ("VARCHAR", "a", b"a", "", "texts and addresses in a form that it leaves as bytes"),
        ("JSON", ["-01:00:00.000000"], [clock(1)], "", "negative TIMEs inside JSON"),
        ("JSON", "base64:type15:Yf8=", "a", "", "binary values inside JSON"),
    ],
)
def test_what_the_other_decoder_cannot_read_has_a_reason(
    kind: str, ours: Any, theirs: Any, none_source: str, reason: str
) -> None:
    assert verdict(kind, ours, theirs, none_source) == reason


def test_a_difference_in_the_charset_of_a_column_may_have_a_reason() -> None:
    verdict_of_zero = verdict("STRING", "::", "", character_set_name="binary")
    assert verdict_of_zero == "texts and addresses in a form that it leaves as bytes"
    assert "UTF-16" in str(verdict("VARCHAR", "a", "愀", character_set_name="utf16"))


def test_a_date_that_only_the_other_decoder_calls_invalid_differs() -> None:
    assert verdict("DATE", date(2026, 1, 1), None, NONE_SOURCE.OUT_OF_DATE_RANGE) is False


def test_the_document_null_is_what_the_other_decoder_has_for_null_too() -> None:
    assert verdict("JSON", JSON_NULL, None, NONE_SOURCE.NULL) is True
    assert verdict("JSON", JSON_NULL, 0, "") is False
    assert verdict("JSON", None, 0, "") is False


def test_numbers_of_json_are_compared_exactly_where_a_float_would_round() -> None:
    assert as_json([1, 2.0]) == as_json([1.0, Decimal(2)])
    assert as_json((1 << 60) + 1) != as_json(1 << 60)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mysql-bin.000003", "mysql-bin.000003:4"),
        ("mysql-bin.000003:4096", "mysql-bin.000003:4096"),
        ("1/mysql-bin.000003@1700000000:4096:2", "mysql-bin.000003:4096"),
    ],
)
def test_a_place_is_a_file_an_offset_or_a_position(text: str, shown: str) -> None:
    assert str(BinlogPlace.parse(text)) == shown


@pytest.mark.parametrize("text", ["mysql-bin", "mysql-bin.000003:x", ":4", ""])
def test_text_that_is_not_a_place_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a place in a binlog; write mysql-bin\.000003"):
        BinlogPlace.parse(text)


def test_places_are_ordered_by_the_number_of_the_file() -> None:
    assert BinlogPlace.of("b.999999", 9) < BinlogPlace.of("b.1000000", 4) < BinlogPlace.of("b.1000000", 5)


def test_a_report_names_what_differs_and_what_was_not_compared() -> None:
    report = Report("b.000001:4", "b.000001:900", events=2, rows=3, values=9)
    report.unread = Counter({"values: zero timestamps": 2})
    stream = io.StringIO()
    assert show(report, "2 events, 3 rows, 9 values", Console(file=stream, soft_wrap=True)) is True
    assert "not compared 2 values: zero timestamps" in stream.getvalue()
    assert "b.000001:4 to b.000001:900: 2 events, 3 rows, 9 values: equal" in stream.getvalue()
    for number in range(25):
        report.differs(f"row {number}")
    assert show(report, "2 events, 3 rows, 9 values", Console(file=stream, soft_wrap=True)) is False
    assert "differs row 0\n" in stream.getvalue()
    assert "... and 5 more" in stream.getvalue()
    assert "25 differences" in stream.getvalue()
