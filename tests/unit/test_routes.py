"""Where the changes of an output go: tables and columns under other names, and what is left out."""

import pytest

from sluice.instance.sources.api import framed
from sluice.protocol.canal.entry_pb2 import Entry, EntryType, EventType, RowChange
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.canal.rows import Change, decode_changes, decode_rows
from sluice.protocol.errors import ConfigError, DecodeError
from sluice.server.outputs.mysql.routes import Routes
from sluice.server.outputs.target import RejectedError
from sluice.store.batch import Batch

INSERT, UPDATE, DELETE = EventType.INSERT, EventType.UPDATE, EventType.DELETE
BEGIN, END = Entry(entryType=EntryType.TRANSACTIONBEGIN), Entry(entryType=EntryType.TRANSACTIONEND)


def entry(schema: str, table: str, kind: "EventType.ValueType", rows: int = 1, **values: str) -> Entry:
    found = Entry(entryType=EntryType.ROWDATA)
    found.header.schemaName, found.header.tableName, found.header.eventType = schema, table, kind
    found.header.logfileName, found.header.logfileOffset = "binlog.000001", 4
    change = RowChange(eventType=kind, tableId=7)
    for _ in range(rows):
        row = change.rowDatas.add()
        images = [row.beforeColumns] * (kind != INSERT) + [row.afterColumns] * (kind != DELETE)
        for columns in images:
            for number, (name, value) in enumerate(values.items()):
                columns.add(index=number, sqlType=12, name=name, mysqlType="text", value=value, updated=True)
    found.storeValue = change.SerializeToString()
    return found


def ddl(schema: str, sql: str) -> Entry:
    found = Entry(entryType=EntryType.ROWDATA)
    found.header.schemaName, found.header.tableName, found.header.eventType = schema, "t", EventType.ALTER
    found.storeValue = RowChange(isDdl=True, sql=sql, ddlSchemaName=schema).SerializeToString()
    return found


def batch(*entries: Entry, snapshot: int = 0) -> Batch:
    data = framed(entries)
    return Batch(1, [memoryview(data)], "", "", len(entries), 1, len(data), 0, snapshot=snapshot)


def entries(found: Batch) -> list[Entry]:
    return [Entry.FromString(it) for it in Messages.FromString(b"".join(found.slices)).messages]


def change(schema: str, sql: str) -> Change:
    (found,) = decode_changes(framed([ddl(schema, sql)]))
    return found


def test_a_table_goes_where_the_first_route_that_matches_says() -> None:
    routes = Routes(r"shop\.orders_[0-9]+ -> all.orders; shop\..* -> copy.*; .*\.log -> *.journal")
    assert routes.target("shop", "orders_12") == ("all", "orders")
    assert routes.target("shop", "items") == ("copy", "items")
    assert routes.target("web", "log") == ("web", "journal")
    assert routes.target("web", "users") == ("web", "users")
    tables = [("shop", "orders_2"), ("web", "users"), ("shop", "orders_1")]
    assert routes.sources(tables) == {
        ("all", "orders"): [("shop", "orders_1"), ("shop", "orders_2")],
        ("web", "users"): [("web", "users")],
    }


def test_changes_are_written_anew_with_the_names_of_the_target() -> None:
    routes = Routes(r"shop\..* -> copy.*", "shop.t: note -> remark, secret ->")
    some = entry("shop", "t", UPDATE, 2, id="1", note="a", secret="b")
    other = entry("web", "t", INSERT, id="1", note="a")
    found = routes.rewrite(batch(BEGIN, some, other, END))
    rows = decode_rows(b"".join(found.slices))
    assert [(it.schema, it.table, it.after) for it in rows] == [
        ("copy", "t", {"id": "1", "remark": "a"}),
        ("copy", "t", {"id": "1", "remark": "a"}),
        ("web", "t", {"id": "1", "note": "a"}),
    ]
    assert rows[0].before == {"id": "1", "remark": "a"}
    begin, written, same, end = entries(found)
    assert (begin, same, end) == (BEGIN, other, END)
    assert RowChange.FromString(written.storeValue).tableId == 7
    assert written.header.logfileName == "binlog.000001"


def test_what_no_route_is_about_stays_as_it_is() -> None:
    same = batch(BEGIN, entry("web", "t", INSERT, id="1"), ddl("shop", "ALTER TABLE t ADD v INT"), END)
    assert Routes().rewrite(same) is same
    assert Routes(r"shop\..* -> copy.*").rewrite(same) is same


def test_names_change_places() -> None:
    routes = Routes("", "shop.t: a -> b, b -> a")
    (row,) = decode_rows(b"".join(routes.rewrite(batch(entry("shop", "t", INSERT, a="1", b="2"))).slices))
    assert row.after == {"b": "1", "a": "2"}


def test_rows_of_kinds_of_events_that_are_left_out_do_not_arrive() -> None:
    routes = Routes(events=("insert", "update"))
    found = routes.rewrite(batch(*(entry("shop", "t", kind, id="1") for kind in (INSERT, UPDATE, DELETE))))
    assert [it.type for it in decode_rows(b"".join(found.slices))] == ["INSERT", "UPDATE"]
    assert len(entries(found)) == 3  # each keeps its place in the batch


def test_the_statement_that_empties_a_table_before_its_snapshot_is_about_that_of_the_target() -> None:
    found = Routes("shop.t -> copy.u").rewrite(batch(ddl("shop", "TRUNCATE TABLE t"), snapshot=1))
    (change_,) = decode_changes(b"".join(found.slices))
    assert (change_.schema, change_.table) == ("copy", "u")


@pytest.mark.parametrize(
    ("sql", "refusal"),
    [
        ("ALTER TABLE items ADD v INT", ""),
        ("CREATE TABLE later (id INT)", ""),
        ("ALTER TABLE shop.items ADD v INT", "the target has shop.items as copy.items"),
        ("ALTER TABLE orders_1 ADD v INT", "several tables may go to all.orders"),
        ("ALTER TABLE old ADD v INT", "the target has shop.old as shop.new"),
        ("ALTER TABLE masked ADD v INT", "the rules for columns are about shop.masked"),
        ("ALTER TABLE web.users ADD v INT", ""),
        ("RENAME TABLE items TO web.items", "the target has shop.items as copy.items"),
    ],
)
def test_a_ddl_runs_in_another_schema_or_is_refused_where_it_would_have_to_say_other_names(
    sql: str, refusal: str
) -> None:
    routes = Routes(r"shop\.orders_[0-9]+ -> all.orders; shop.old -> *.new; shop\..* -> copy.*", "shop.masked: a ->")
    found = routes.refusal(change("shop", sql))
    assert found.startswith(refusal)
    assert bool(found) == bool(refusal)


def test_a_ddl_is_moved_to_the_schema_that_it_runs_in() -> None:
    routes = Routes(r"shop\..* -> copy.*")
    (moved,) = decode_changes(routes.move_statement(framed([ddl("shop", "ALTER TABLE items ADD v INT")])))
    assert (moved.schema, moved.ddl_schema, moved.sql) == ("copy", "copy", "ALTER TABLE items ADD v INT")
    same = framed([ddl("web", "ALTER TABLE items ADD v INT")])
    assert routes.move_statement(same) == same


@pytest.mark.parametrize(
    ("routes", "may_join"),
    [
        (r"shop\..* -> copy.*", False),
        ("shop.t -> copy.u", False),
        (r".*\.t -> *.u", False),
        (r".*\.t -> copy.*", True),
        (r"shop\.t_[0-9] -> shop.t", True),
        ("shop.t -> copy.u; shop.u -> copy.u", True),
        ("", False),
    ],
)
def test_it_is_known_where_several_tables_may_go_to_one(routes: str, *, may_join: bool) -> None:
    found = Routes(routes)
    assert (found.may_join("shop", "t") or found.may_join("shop", "t_1")) == may_join


def test_a_table_without_a_key_does_not_take_the_place_of_others_that_go_to_the_same() -> None:
    routes = Routes(r"shop\.t_? -> copy.u")
    with pytest.raises(RejectedError, match=r"shop\.t has no key, and its rows would replace those of other tables"):
        routes.rewrite(batch(ddl("shop", "TRUNCATE TABLE t"), snapshot=1))


@pytest.mark.parametrize(
    ("routes", "columns", "problem"),
    [
        ("shop.t", "", "has to be TABLES -> SCHEMA.TABLE"),
        ("shop.t -> t", "", "has to be TABLES -> SCHEMA.TABLE"),
        ("shop.t -> a.b.c", "", "is not the name of a table"),
        ("shop.t -> a.b*", "", "is not the name of a table"),
        ("-> a.b", "", "names no table"),
        ("shop.( -> a.b", "", "routes: "),
        ("", "shop.t", "has to be TABLES: COLUMN -> NAME"),
        ("", "shop.t: a", "has to be TABLES: COLUMN -> NAME"),
        ("", "shop.t: a -> b, a -> c", "has a column twice"),
        ("", "shop.t: a -> b, c -> B", "has a column twice"),
        ("", "shop.t: a -> b c", "is not the name of a column"),
    ],
)
def test_a_rule_that_cannot_be_used_is_named(routes: str, columns: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Routes(routes, columns)


def test_bytes_that_are_no_entries_are_an_error() -> None:
    routes = Routes(r"shop\..* -> copy.*")
    whole = framed([entry("shop", "t", INSERT, id="1")])
    for end in range(2, len(whole)):
        with pytest.raises(DecodeError):
            routes.rewrite(Batch(1, [memoryview(whole[:end])], "", "", 1, 1, end, 0))
