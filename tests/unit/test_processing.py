"""Rows that a function processes: what becomes of the entries, and of a function that fails, hangs or is none."""

from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.sources.process import rows
from sluice.instance.sources.process.config import ProcessConfig
from sluice.instance.sources.process.pool import Pool, ProcessorError, Worker
from sluice.instance.sources.process.rows import Failure, Frame
from sluice.protocol.canal.entry_pb2 import Entry, EntryType, EventType, RowChange
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.canal.rows import Change, Row, decode_changes
from sluice.protocol.canal.types import JSON_NULL
from sluice.server.conformance.changes import edge, entry, statement

ADDED = {("conformance", "changes"): {"customer": "varchar(20)", "total": "decimal(10,2)", "n": "tinyint"}}


def frame(*entries: Entry) -> bytes:
    """A batch of entries, the n-th one at the place 100:n."""
    head = Messages(batch_id=1, from_position="s/log.1@0:100:0", to_position="s/log.1@0:200:0")
    for n in range(len(entries)):
        head.positions.extend((100, n))
    body = Messages(messages=[it.SerializeToString() for it in entries])
    return head.SerializeToString() + body.SerializeToString()


def processed(data: bytes, function: Callable[[list[Row]], Any]) -> list[Change]:
    made = Frame(data, ADDED)
    made.process(made.numbers(), function)
    return decode_changes(made.data())


def test_entries_that_a_function_leaves_alone_keep_their_bytes() -> None:
    data = frame(edge(EntryType.TRANSACTIONBEGIN), entry(1), statement("ALTER TABLE t"), edge(EntryType.TRANSACTIONEND))
    made = Frame(data, ADDED)
    made.process(made.numbers(), lambda rows: rows)
    assert made.data() == data


def test_a_function_gets_all_rows_of_a_batch_in_their_order() -> None:
    seen: list[int] = []

    def note(rows: list[Row]) -> list[Row]:
        seen.extend(it.key["id"] for it in rows)
        return rows

    processed(frame(entry(1), statement("x"), entry(2), entry(3)), note)
    assert seen == [1, 2, 3]


def test_dropped_rows_leave_no_entry_and_the_others_keep_their_places() -> None:
    made = Frame(frame(entry(1), entry(2), entry(3)), ADDED)
    made.process(made.numbers(), lambda rows: [it for it in rows if it.key["id"] != 2])
    read = Messages.FromString(made.data())
    assert [it.rows()[0].key for it in decode_changes(made.data())] == [{"id": 1}, {"id": 3}]
    assert list(read.positions) == [100, 0, 100, 2]


def test_an_entry_with_several_rows_says_how_many_are_left() -> None:
    several = entry(1)
    change = RowChange.FromString(several.storeValue)
    change.rowDatas.append(change.rowDatas[0])
    several.storeValue = change.SerializeToString()
    several.header.props.add(key="rowsCount", value="2")
    (made,) = processed(frame(several), lambda rows: rows[1:])
    assert (len(made.rows()), made.header_props["rowsCount"]) == (1, "1")


def test_nothing_is_left_of_a_batch_whose_rows_are_all_dropped() -> None:
    made = Frame(frame(entry(1), entry(2)), ADDED)
    made.process(made.numbers(), lambda rows: [])
    assert made.data() == b""


def test_columns_are_changed_added_and_left_out() -> None:
    def change(rows: list[Row]) -> list[Row]:
        for row in rows:
            assert row.after is not None
            del row.after["text"]
            row.after.update(customer="Ann", total=Decimal("9.50"), n=None)
        return rows

    (made,) = processed(frame(entry(1)), change)
    assert made.rows()[0].after == {"id": 1, "customer": "Ann", "total": Decimal("9.50"), "n": None}
    assert made.rows()[0].changed == ("id", "customer", "total", "n")


def test_a_changed_column_of_an_update_is_marked_when_it_differs_from_the_row_before() -> None:
    def change(rows: list[Row]) -> list[Row]:
        for row in rows:
            assert row.before is not None
            assert row.after is not None
            row.before["text"], row.after["text"] = "same", "same"
            row.before["n"], row.after["n"] = 1, 2
        return rows

    (made,) = processed(frame(entry(1, 5, EventType.UPDATE)), change)
    assert made.rows()[0].before == {"id": 1, "text": "same", "n": 1}
    assert "text" not in made.rows()[0].changed
    assert "n" in made.rows()[0].changed


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("tinyint", -128),
        ("bigint unsigned", 2**64 - 1),
        ("decimal(20,4)", Decimal("-12.3400")),
        ("double", 1e300),
        ("varchar(20)", "grün ✓"),
        ("varbinary(20)", b"\x00\xff"),
        ("date", date(2026, 2, 28)),
        ("datetime", datetime(2026, 2, 28, 23, 59, 59)),  # noqa: DTZ001  as the server wrote it
        ("datetime(3)", datetime(2026, 2, 28, 1, 2, 3, 45000)),  # noqa: DTZ001
        ("time(6)", -timedelta(hours=30, microseconds=7)),
        ("json", {"a": [1, None, "ü"]}),
        ("json", JSON_NULL),
        ("year", 1999),
    ],
)
def test_clients_read_the_values_that_a_function_has_given(type_: str, value: object) -> None:
    def change(rows: list[Row]) -> list[Row]:
        for row in rows:
            assert row.after is not None
            row.after["it"] = value
        return rows

    made = Frame(frame(entry(1)), {("conformance", "changes"): {"it": type_}})
    made.process(made.numbers(), change)
    (row,) = decode_changes(made.data())[0].rows()
    assert row.after is not None
    assert (row.after["it"], type(row.after["it"])) == (value, type(value))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda row: row.after.update(n=300), "column n cannot be 300 as tinyint: it is out of range"),
        (lambda row: row.after.update(n="x"), "column n cannot be 'x' as tinyint: it is no str, but an int"),
        (lambda row: row.after.update(customer=5), "column customer cannot be 5 as varchar"),
        (lambda row: row.after.update(id=7), "column id is of the primary key: it cannot be changed"),
        (lambda row: row.after.pop("id"), "column id is of the primary key: it cannot be left out"),
        (lambda row: row.after.update(other=1), "column other is new: add it to sluice.processor.columns"),
        (lambda row: row.after.update(text="x" * 2000), "more than 1000 in addition"),
    ],
)
def test_what_clients_could_not_read_is_refused(
    change: Callable[[Any], object], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "LARGEST", 1000)

    def process(given: list[Row]) -> list[Row]:
        for row in given:
            change(row)
        return given

    made = Frame(frame(entry(1)), ADDED)
    with pytest.raises(ValueError, match=text):
        made.process(made.numbers(), process)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda _rows: None, "returned None"),
        (lambda rows: rows[::-1], "not one of the rows it was given, in their order"),
        (lambda rows: [rows[0], rows[0]], "not one of the rows it was given, in their order"),
        (lambda _rows: [1], "not one of the rows it was given, in their order"),
    ],
)
def test_a_function_returns_rows_that_it_was_given(function: Callable[[list[Row]], Any], text: str) -> None:
    made = Frame(frame(entry(1), entry(2)), ADDED)
    with pytest.raises(ValueError, match=text):
        made.process(made.numbers(), function)


def test_a_marker_takes_the_place_of_an_entry_that_fails() -> None:
    made = Frame(frame(entry(1), entry(2)), ADDED)
    made.fail(1, "why")
    marker = decode_changes(made.data())[1]
    assert (marker.type, marker.sql, marker.header_props["sluice.quarantine"]) == (
        "QUERY",
        "-- sluice.quarantine: why",
        "why",
    )
    assert [(it.place, it.table, it.reason) for it in made.failures] == [((100, 1), "changes", "why")]


# --- the configuration


def config(folder: Path, processor: str, **settings: Any) -> ProcessConfig:
    given = {"destination": "out", "feeder": "in", "client_id": 7, "file_data_dir": folder, "processor": processor}
    return ProcessConfig.model_validate({**given, **settings})


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"processor": "module"}, "processor\n.* should match pattern"),
        ({"feeder": "out"}, "is this destination itself"),
        ({"added": "orders.total: int"}, "write schema.table.column: type"),
        ({"added": "shop.orders.total: money"}, "'money' is not a type such as"),
        ({"meta": "zookeeper"}, "Set sluice.processor.deterministic = true"),
        ({"filter_where": "shop.orders: id > 1"}, "sluice.instance.filter.where: not with another destination"),
    ],
)
def test_mistakes_in_the_configuration_are_named(tmp_path: Path, settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        config(tmp_path, **{"processor": "m:f", **settings})


def test_several_servers_may_process_what_always_gives_the_same(tmp_path: Path) -> None:
    assert config(tmp_path, "m:f", meta="zookeeper", deterministic=True).meta.is_shared


# --- the processes

MODULE = """
def strange(rows):
    raise ValueError("no text: \\udc80")

import os, time

def double(rows):
    for row in rows:
        row.after["text"] *= 2
    return rows

def odd(rows):
    for row in rows:
        number = row.key["id"]
        if number == 1:
            raise ZeroDivisionError("one")
        if number == 2:
            time.sleep(60)
        if number == 3:
            os._exit(7)
        if number == 4:
            bytearray(1 << 32)
    return rows

async def later(rows):
    return rows

def two(rows, more):
    return rows

number = 1
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that Python finds."""
    (tmp_path / "functions_of_a_user.py").write_text(MODULE)
    (tmp_path / "broken_module.py").write_text("import nothing_like_this")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_batches_come_out_in_the_order_in_which_they_went_in(tmp_path: Path, module: None) -> None:
    pool = Pool(config(tmp_path, "functions_of_a_user:double", workers=2))
    try:
        found = []
        for number in range(1, 7):
            pool.add(frame(entry(number, number)))
            if pool.is_full:
                found.append(pool.take()[0])
        while pool.is_busy:
            found.append(pool.take()[0])
    finally:
        pool.close()
    images = [it.rows()[0].after for data in found for it in decode_changes(data)]
    assert images == [{"id": number, "text": "x" * 2 * number} for number in range(1, 7)]


def test_entries_that_fail_hang_or_end_the_process_are_left_to_markers_and_the_others_come(
    tmp_path: Path, module: None
) -> None:
    pool = Pool(config(tmp_path, "functions_of_a_user:odd", timeout=2, memory=512))
    try:
        pool.add(frame(*(entry(number) for number in range(6))))
        data, failures = pool.take()
    finally:
        pool.close()
    reasons = [it.reason for it in failures]
    assert [it.place[1] for it in failures] == [1, 2, 3, 4]
    assert [text in reason for text, reason in zip(REASONS, reasons, strict=True)] == [True] * 4, reasons
    assert [it.rows()[0].key["id"] for it in decode_changes(data) if it.type == "INSERT"] == [0, 5]


REASONS = ("ZeroDivisionError: one", "took longer than 2 s", "ended by itself", "MemoryError")


def test_a_failure_stops_the_destination_where_it_is_told_to(tmp_path: Path, module: None) -> None:
    pool = Pool(config(tmp_path, "functions_of_a_user:odd", quarantine=False))
    try:
        pool.add(frame(entry(0), entry(1)))
        with pytest.raises(ProcessorError, match="functions_of_a_user:odd has failed: ZeroDivisionError: one"):
            pool.take()
    finally:
        pool.close()
    assert not pool.is_busy


def test_an_error_that_utf8_cannot_have_is_told_in_a_text_that_it_can(tmp_path: Path, module: None) -> None:
    pool, listing = (Pool(config(tmp_path, "functions_of_a_user:strange", quarantine=it)) for it in (False, True))
    try:
        pool.add(frame(entry(0)))
        with pytest.raises(ProcessorError, match=r"ValueError: no text: \\udc80"):
            pool.take()
        listing.add(frame(entry(0)))
        _, failures = listing.take()
    finally:
        pool.close()
        listing.close()
    assert [it.reason for it in failures] == [r"ValueError: no text: \udc80"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no_such_module:f", "there is no module 'no_such_module' for .*: install its package there, or set PYTHON"),
        ("broken_module:f", "there is no module 'nothing_like_this'"),
        ("functions_of_a_user:other", "has no function 'other'"),
        ("functions_of_a_user:number", "has no function 'number'"),
        ("functions_of_a_user:later", "it is asynchronous"),
        ("functions_of_a_user:two", "it has to take one argument, a list of rows: missing a required argument: 'more'"),
    ],
)
def test_what_is_wrong_with_a_function_is_said_before_it_is_called(
    tmp_path: Path, module: None, name: str, text: str
) -> None:
    worker = Worker(config(tmp_path, name))
    try:
        with pytest.raises(ProcessorError, match=text):
            worker.start()
    finally:
        worker.end()


def test_a_failure_is_told_with_what_its_list_needs() -> None:
    made = Frame(frame(entry(1)), ADDED)
    made.fail(0, "x" * 5000)
    (failure,) = made.failures
    table, reason = ("conformance", "changes"), "x" * 1000
    assert failure == Failure((100, 0), "log.1", *table, EventType.INSERT, 0, 0, failure.size, reason)
