"""The history of TiDB's DDL jobs: which table an id means at a version of the schema."""

import json
from typing import Any

import pytest

from sluice.instance.sources.pump.definitions import MAX_BYTES, Definitions, Statement
from sluice.protocol.errors import DecodeError
from tests.tidb import history

JOBS: list[dict[str, Any]] = json.loads(history())


def table(table_id: int, name: str, columns: str = "a", *, partitions: tuple[int, ...] = ()) -> dict[str, Any]:
    kind = {"Tp": 3, "Flag": 0, "Flen": 11, "Decimal": 0, "Charset": "binary", "Elems": None}
    return {
        "id": table_id,
        "name": {"O": name},
        "cols": [{"id": n, "name": {"O": it}, "type": kind, "state": 5} for n, it in enumerate(columns.split(), 1)],
        "index_info": None,
        "partition": {"definitions": [{"id": it} for it in partitions]} if partitions else None,
    }


def job(
    number: int, kind: int, version: int, found: dict[str, Any] | None, table_id: int, **more: Any
) -> dict[str, Any]:
    binlog = {"SchemaVersion": version, "DBInfo": None, "TableInfo": found, **more}
    return {"id": number, "type": kind, "schema_id": 1, "table_id": table_id, "schema_name": "s", "binlog": binlog}


def names(found: Definitions, table_id: int, *versions: int) -> list[str | None]:
    """The table of an id at some versions, with its columns."""
    tables = [found.table(table_id, it) for it in versions]
    return [f"{it.schema}.{it.name} {' '.join(column.name for column in it.columns)}" if it else None for it in tables]


def define(*jobs: dict[str, Any]) -> Definitions:
    return Definitions(json.dumps(jobs).encode())


def test_a_table_is_what_its_last_job_up_to_the_version_has_made_of_it() -> None:
    found = Definitions(history())
    before = "shop.orders id customer amount note"
    after = "shop.orders2 id customer amount note m1x m2"
    assert names(found, 86, 41, 42, 52, 53, 70, 82, 1000) == [
        *(None, before, before),
        *("shop.orders id customer amount note extra", before, after, after),
    ]


def test_a_truncated_table_has_another_id() -> None:
    assert names(Definitions(history()), 90, 82, 83) == ["shop.nopk a b", None]
    assert names(Definitions(history()), 110, 82, 83) == [None, "shop.nopk a b"]


def test_the_tables_of_a_dropped_database_are_unknown_from_then_on() -> None:
    found = Definitions(history())
    assert names(found, 125, 99, 100) == ["gone.t a", None]
    assert "gone" not in {it.schema for it in found.newest()}


def test_a_dropped_table_is_unknown_from_then_on() -> None:
    assert names(Definitions(history()), 92, 92, 93) == ["shop.clustered code v", None]


def test_an_exchanged_partition_and_its_table_change_ids() -> None:
    found = define(
        job(1, 3, 1, table(10, "parts", partitions=(11, 12)), 10),
        job(2, 3, 2, table(20, "plain", "b"), 20),
        job(3, 42, 3, table(10, "parts", partitions=(20, 12)), 20),
    )
    assert names(found, 10, 2, 3) == ["s.parts a", "s.parts a"]
    assert names(found, 20, 2, 3) == ["s.plain b", None]
    assert names(found, 11, 2, 3) == [None, "s.plain b"]


def test_tables_that_one_statement_renames_stay_in_their_databases() -> None:
    found = define(
        job(1, 3, 1, table(10, "a"), 10),
        job(2, 3, 2, table(20, "b"), 20),
        job(3, 47, 3, table(20, "a"), 20, MultipleTableInfos=[table(10, "b"), table(20, "a")]),
    )
    assert (names(found, 10, 3), names(found, 20, 3)) == (["s.b a"], ["s.a a"])


def test_columns_and_keys_that_statements_do_not_see_are_left_out() -> None:
    found = table(10, "t", "a b c")
    found["cols"][1]["state"] = 2
    found["cols"][2]["hidden"] = True
    key = {"idx_cols": [{"name": {"O": "a"}}], "is_unique": True, "is_primary": False}
    found["index_info"] = [
        {**key, "idx_name": {"O": "u"}, "state": 5},
        {**key, "idx_name": {"O": "new"}, "state": 3},
        {**key, "idx_name": {"O": "of_hidden"}, "state": 5, "idx_cols": [{"name": {"O": "c"}}]},
        {**key, "idx_name": {"O": "plain"}, "state": 5, "is_unique": False},
    ]
    known = define(job(1, 3, 1, found, 10)).table(10, 1)
    assert known is not None
    assert ([it.name for it in known.columns], known.unique_keys) == (["a"], (("u", "a"),))


def test_types_are_written_as_tidb_shows_them() -> None:
    known = Definitions(history()).table(94, 49)
    assert known is not None
    assert {it.name: it.mysql_type for it in known.columns} == {
        "id": "int(10) unsigned", "c_tiny": "tinyint(4)", "c_utiny": "tinyint(3) unsigned", "c_bool": "tinyint(1)",
        "c_small": "smallint(6)", "c_medium": "mediumint(9)", "c_int": "int(11)", "c_big": "bigint(20)",
        "c_ubig": "bigint(20) unsigned", "c_float": "float", "c_double": "double", "c_decimal": "decimal(30,10)",
        "c_bit": "bit(10)", "c_date": "date", "c_datetime": "datetime(3)", "c_timestamp": "timestamp(6)",
        "c_time": "time(2)", "c_year": "year(4)", "c_char": "char(10)", "c_varchar": "varchar(50)", "c_text": "text",
        "c_longtext": "longtext", "c_binary": "binary(8)", "c_varbinary": "varbinary(20)", "c_blob": "blob",
        "c_longblob": "longblob", "c_enum": "enum('red','green','blue')", "c_set": "set('a','b','c','d')",
        "c_json": "json", "c_latin": "varchar(20)", "c_gbk": "varchar(20)",
    }  # fmt: skip


def test_a_job_says_which_table_it_has_changed() -> None:
    found = Definitions(history())
    assert found.statement(109) == Statement("shop", "orders2", drops_column=False)
    assert found.statement(106) == Statement("shop", "orders", drops_column=True)
    assert found.statement(127) == Statement("gone", "", drops_column=False)
    assert found.statement(115) is None  # it has failed
    with pytest.raises(KeyError):
        found.statement(1)


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        (b"", "not a history of TiDB's DDL jobs: Invalid JSON"),
        (b"{}", "not a history of TiDB's DDL jobs: Input should be a valid array at the start"),
        (b"[{}]", "Field required at 0.id"),
        (json.dumps([{**JOBS[0], "id": "x"}]).encode(), "at 0.id"),
        (json.dumps([{**JOBS[0], "id": 1 << 63}]).encode(), "at 0.id"),
        (json.dumps([{**JOBS[0], "table_id": -1}]).encode(), "at 0.table_id"),
    ],
)
def test_what_is_no_history_is_refused(history: bytes, reason: str) -> None:
    with pytest.raises(DecodeError) as refused:
        Definitions(history)
    assert reason in str(refused.value)


def test_a_history_that_is_too_large_is_not_read() -> None:
    with pytest.raises(DecodeError, match=f"of {MAX_BYTES + 1} bytes: {MAX_BYTES} are read at most"):
        Definitions(bytes(MAX_BYTES + 1))
