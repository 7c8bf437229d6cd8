"""Tables of a server that are delivered as one."""

from pathlib import Path

import pytest

from sluice.protocol import props
from sluice.protocol.canal.entry_pb2 import Entry, EntryType
from sluice.protocol.canal.rows import decode_rows
from sluice.protocol.errors import BadParameterError, UnknownTableError
from sluice.store.ring import Kind
from tests.conftest import Database
from tests.delivery import Delivery, deliver, execute
from tests.servers import Server


@pytest.fixture(
    params=["mariadb118", *(pytest.param(name, marks=pytest.mark.extended) for name in ("mysql97", "mysql56"))]
)
def source(request: pytest.FixtureRequest) -> Server:
    """Names of columns come from the schema in the first and the last, from the event in the other."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Server)
    return found


def own_names(entries: list[Entry]) -> list[tuple[str, str | None]]:
    """Return of each entry of rows the name of its table, and the property that has its own."""
    return [
        (it.header.tableName, next((pair.value for pair in it.header.props if pair.key == props.TABLE), None))
        for it in entries
        if it.entryType == EntryType.ROWDATA and it.header.eventType in (1, 2, 3)
    ]


def kinds(delivery: Delivery) -> list[tuple[Kind, str]]:
    """Return of each slot with rows, or a marker instead, its kind and the table that filters of clients know."""
    ring = delivery.ring
    slots = [ring.slot(number) for number in range(ring.first, ring.next)]
    tables = [(Kind(it.kind), ring.tables[it.table]) for it in slots if it.kind in (Kind.ROW_DATA, Kind.QUARANTINE)]
    return [(kind, str((table or ("", ""))[1])) for kind, table in tables]


def test_rows_of_split_tables_come_under_one_name(source: Server, database: Database, tmp_path: Path) -> None:
    schema = database(source)
    with deliver(source, tmp_path, group_as=f"{schema}.orders: orders_[0-9]+") as delivery:
        tables = ("orders_1", "orders_2", "items")
        execute(
            source,
            [
                *(f"CREATE TABLE {it} (id int PRIMARY KEY, name varchar(20))" for it in tables),
                "INSERT INTO orders_1 VALUES (1, 'a')",
                "INSERT INTO orders_2 VALUES (2, 'b'), (3, 'c')",
                "INSERT INTO items VALUES (4, 'd')",
                "UPDATE orders_1 SET name = 'x'",
                "DELETE FROM orders_2 WHERE id = 2",
            ],
            database=schema,
        )
        entries = delivery.read()
        names = [it.name for it in delivery.parser.columns(schema, "orders")]
        found = kinds(delivery)
    one, two = f"{schema}.orders_1", f"{schema}.orders_2"
    assert own_names(entries) == [("orders", one), ("orders", two), ("items", None), ("orders", one), ("orders", two)]
    assert [table for _, table in found] == ["orders", "orders", "items", "orders", "orders"]
    assert names == ["id", "name"]
    created = [it.header.tableName for it in entries if it.header.eventType == 4]
    assert created == list(tables)  # a statement keeps the name that its text has


def test_a_table_with_other_columns_goes_into_quarantine_until_all_agree(
    source: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(source)
    with deliver(source, tmp_path, group_as=f"{schema}.orders: orders_[0-9]+") as delivery:
        alter = "ALTER TABLE orders_{} ADD COLUMN name varchar(20)"
        insert = "INSERT INTO orders_{} VALUES ({})"
        execute(
            source,
            [
                *(f"CREATE TABLE orders_{number} (id int PRIMARY KEY)" for number in (1, 2)),
                insert.format(1, "1"),
                insert.format(2, "2"),
                alter.format(2),
                insert.format(2, "3, 'b'"),  # differs from orders_1
                insert.format(1, "4"),
                alter.format(1),
                insert.format(2, "5, 'c'"),  # they agree again
                insert.format(1, "6, 'd'"),
            ],
            database=schema,
        )
        entries = delivery.read()
        found = kinds(delivery)
        rows = decode_rows(b"".join(delivery.ring.collect(delivery.ring.first).slices))
    assert found == [(Kind.ROW_DATA, "orders")] * 2 + [
        (Kind.QUARANTINE, "orders"),
        *[(Kind.ROW_DATA, "orders")] * 3,
    ]
    assert [it.key["id"] for it in rows] == [1, 2, 4, 5, 6]
    (marker,) = [it for it in entries if any(pair.key == props.QUARANTINE for pair in it.header.props)]
    (reason,) = [pair.value for pair in marker.header.props if pair.key == props.QUARANTINE]
    assert f"{schema}.orders_2 is delivered as {schema}.orders" in reason
    assert f"not those of {schema}.orders_1 (id int" in reason
    assert marker.header.tableName == "orders"


def test_snapshots_of_split_tables_are_refused(mariadb118: Server, database: Database, tmp_path: Path) -> None:
    schema = database(mariadb118)
    with deliver(mariadb118, tmp_path, group_as=f"{schema}.orders: orders_[0-9]+") as delivery:
        with pytest.raises(UnknownTableError, match=r"no table that sluice\.group\.as delivers"):
            delivery.parser.columns(schema, "orders")
        execute(
            mariadb118,
            ["CREATE TABLE orders_1 (id int PRIMARY KEY)", "CREATE TABLE items (id int PRIMARY KEY)"],
            database=schema,
        )
        reader = delivery.parser.table_reader()
        try:
            assert [it.name for it in reader.describe(schema, "items", "")] == ["items"]
            with pytest.raises(BadParameterError, match="delivered as those of another table"):
                reader.describe(schema, "orders_1", "")
        finally:
            reader.close()
