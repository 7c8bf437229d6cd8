"""What the SDK makes of a row is what a driver for Python makes of it when it selects the row."""

import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pymysql.cursors import DictCursor

from sluice.protocol.canal.rows import decode_rows
from tests.conftest import Database
from tests.delivery import deliver

if TYPE_CHECKING:
    from tests.servers import Server

COLUMNS = {
    "tiny": ("TINYINT UNSIGNED", ["0", "255"]),
    "small": ("SMALLINT", ["-32768", "32767"]),
    "medium": ("MEDIUMINT UNSIGNED", ["16777215", "0"]),
    "big": ("BIGINT UNSIGNED", ["18446744073709551615", "0"]),
    "signed": ("BIGINT", ["-9223372036854775808", "9223372036854775807"]),
    "exact": ("DECIMAL(65,30)", ["-1.5", "0"]),
    "single": ("FLOAT", ["1.25", "-1e10"]),
    "twice": ("DOUBLE", ["0.1", "-1e-300"]),
    "bits": ("BIT(40)", ["b'1111111100000000111111110000000011111111'", "0"]),
    "yr": ("YEAR", ["2155", "0"]),
    "d": ("DATE", ["'2024-02-29'", "'0000-00-00'"]),
    "t": ("TIME", ["'-838:59:59'", "'00:00:01'"]),
    "tf": ("TIME(6)", ["'-00:00:00.500001'", "'12:34:56.000007'"]),
    "dt": ("DATETIME(3)", ["'1000-01-01 00:00:00.001'", "'9999-12-31 23:59:59.999'"]),
    "ts": ("TIMESTAMP NULL", ["'2038-01-19 03:14:07'", "'1970-01-01 00:00:01'"]),
    "words": ("VARCHAR(50) CHARACTER SET utf8mb4", ["'naïve 😀 ''quoted'' \\\\'", "''"]),
    "old_words": ("TEXT CHARACTER SET latin1", ["'€ÿ'", "'plain'"]),
    "bytes": ("VARBINARY(20)", ["x'00ff80c3a9'", "''"]),
    "blobs": ("MEDIUMBLOB", ["x'deadbeef'", "x'0a'"]),
    "choice": (r"ENUM('a','it''s','x,y','back\\slash','line\n','ü')", ["'it''s'", r"'back\\slash'"]),
    "choices": (r"SET('a','it''s','ü','n\n')", ["'a,ü'", "''"]),
}
DOCUMENTS = [r"""'{"k": [1, 2.5, null, true, "ü\\n"], "n": {"m": -7}}'""", "'\"text\"'"]


def as_the_sdk(name: str, value: Any) -> Any:
    """A value as PyMySQL gives it, in the types of the SDK."""
    if value is None:
        return None
    if name == "bits":
        return int.from_bytes(value, "big")
    if name == "choices":
        return frozenset(value.split(",")) - {""}
    return json.loads(value) if name == "document" else value


@pytest.mark.parametrize(
    ("name", "metadata"),
    [
        ("mariadb118", "MINIMAL"),
        ("mariadb118", "FULL"),
        ("mysql97", "MINIMAL"),
        ("mysql97", "FULL"),
        ("mysql56", "MINIMAL"),  # it knows nothing else
    ],
)
def test_a_row_has_the_values_that_a_driver_selects(
    name: str, metadata: str, request: pytest.FixtureRequest, database: Database, tmp_path: Path
) -> None:
    server: Server = request.getfixturevalue(name)
    schema = database(server)
    columns = dict(COLUMNS)
    if name == "mysql97":
        columns["document"] = ("JSON", DOCUMENTS)
    if metadata == "FULL":
        server.query("SET GLOBAL binlog_row_metadata = FULL")
    connection = server.connect(
        database=schema,
        charset="utf8mb4",
        init_command="SET sql_mode = '', time_zone = '+00:00'",
        cursorclass=DictCursor,
    )
    try:
        with deliver(server, tmp_path, filter_regex=f"{schema}\\..*") as delivery, connection.cursor() as cursor:
            definitions = ", ".join(f"`{column}` {kind}" for column, (kind, _) in columns.items())
            cursor.execute(f"CREATE TABLE t (id INT PRIMARY KEY, {definitions}) CHARACTER SET utf8mb4")
            for number in range(2):
                literals = ", ".join(values[number] for _, values in columns.values())
                cursor.execute(f"INSERT INTO t VALUES ({number}, {literals})")
            cursor.execute(
                f"INSERT INTO t (id, {', '.join(f'`{it}`' for it in columns)}) VALUES (2{', NULL' * len(columns)})"
            )
            connection.commit()
            cursor.execute("SELECT * FROM t ORDER BY id")
            selected = [{column: as_the_sdk(column, row[column]) for column in row} for row in cursor.fetchall()]
            cursor.execute("UPDATE t SET tiny = 7, choice = 'ü', words = words WHERE id = 1")
            cursor.execute("DELETE FROM t WHERE id = 0")
            connection.commit()
            delivery.read()
            rows = decode_rows(b"".join(delivery.ring.collect(0).slices))
    finally:
        connection.close()
        if metadata == "FULL":
            server.query("SET GLOBAL binlog_row_metadata = DEFAULT")
    inserted, (update, delete) = rows[:3], rows[3:]
    for row, right in zip(inserted, selected, strict=True):
        assert row.after is not None
        assert list(row.after) == ["id", *columns]
        assert {it: (type(value), value) for it, value in row.after.items()} == {
            it: (type(value), value) for it, value in right.items()
        }
        assert (row.type, row.before, row.changed) == ("INSERT", None, tuple(right))
    assert (update.type, update.changed, update.key) == ("UPDATE", ("tiny", "choice"), {"id": 1})
    assert update.before == selected[1]
    assert update.after == selected[1] | {"tiny": 7, "choice": "ü"}
    assert (delete.type, delete.before, delete.after, delete.changed) == ("DELETE", selected[0], None, ())
    kinds = {type(value) for row in selected for value in row.values()} - {type(None), dict}
    assert kinds == {int, float, str, bytes, frozenset, Decimal, date, datetime, timedelta}
