"""Updates of parts of JSON (binlog_row_value_options=PARTIAL_JSON) arrive as the documents that the server has."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.protocol.canal.entry_pb2 import Entry, EventType
from sluice.protocol.canal.flat import flat_json
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.canal.rows import decode_rows
from sluice.protocol.canal.types import JsonExpression
from tests.conftest import Database
from tests.delivery import deliver, end_of_binlog, execute, rows_of, values
from tests.servers import Server

ROWS = 10
NAMES = ["a", "b", "long_name", "été", "with space", 'q"uo\\te', "it's", "dot.ted[0]", "tab\t\x01", "", "👍"]
PADDING = "text that makes a whole document dearer than its differences " * 20


def random_value(chance: random.Random) -> str:
    """Return a value as SQL."""
    makers: list[Callable[[], str]] = [
        lambda: str(chance.randrange(-(2**33), 2**33)),
        lambda: f"{chance.uniform(-9, 9):.3f}e{chance.randrange(-20, 20)}",
        lambda: f"CAST({chance.randrange(10**6)}.25 AS DECIMAL(12,3))",
        lambda: "CAST('2026-01-02 03:04:05.678' AS DATETIME(3))",
        lambda: "CAST('-11:22:33' AS TIME)",
        lambda: "CAST(x'00ff41' AS BINARY)",
        lambda: chance.choice(("true", "false", "CAST('null' AS JSON)")),
        lambda: quoted("".join(chance.choice("aé👍\"\\'\n\0") for _ in range(chance.randrange(6)))),
        lambda: f"JSON_ARRAY({', '.join(random_value(chance) for _ in range(chance.randrange(3)))})",
        lambda: f"JSON_OBJECT({quoted(chance.choice(NAMES))}, {random_value(chance)})",
    ]
    return chance.choice(makers)()


def quoted(text: str) -> str:
    """Return a string of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0") + "'"


def leg(name: str) -> str:
    """Return the part of a path for a key."""
    return "." + json.dumps(name, ensure_ascii=False)


def paths(it: Any, path: str = "$") -> Iterator[tuple[str, Any]]:
    """Each value of a document with its path."""
    yield path, it
    if isinstance(it, dict):
        for key, value in it.items():
            yield from paths(value, path + leg(key))
    elif isinstance(it, list):
        for place, value in enumerate(it):
            yield from paths(value, f"{path}[{place}]")


def random_path(chance: random.Random, document: Any) -> str:
    """Of a value that a document has, of one that it could get, or of its last ones."""
    path, it = chance.choice([(path, it) for path, it in paths(document) if '"padding"' not in path])
    end = chance.random()
    if path == "$" or end < 0.4:
        if isinstance(it, list) and chance.random() < 0.8:
            return path + chance.choice((f"[{len(it)}]", f"[{len(it) + 3}]", "[last]", "[last-1]", "[0]"))
        if isinstance(it, dict):
            return path + leg(chance.choice(NAMES))
        return path + chance.choice(("[0]", "[1]", "[last]"))
    return path


def random_change(chance: random.Random, document: Any) -> str:
    """Return an expression of SQL over the column."""
    column = "j"
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        path = quoted(random_path(chance, document))
        if chance.random() < 0.3:
            column = f"JSON_REMOVE({column}, {path})"
        else:
            function = chance.choice(("JSON_SET", "JSON_SET", "JSON_REPLACE"))
            column = f"{function}({column}, {path}, {random_value(chance)})"
    return column


def seed_document(chance: random.Random, depth: int = 3) -> Any:
    """Return objects in arrays in objects."""
    if depth == 0:
        return chance.choice((1, 2.5, "text", None, True))
    if depth % 2:
        return {name: seed_document(chance, depth - 1) for name in chance.sample(NAMES, 4)}
    return [seed_document(chance, depth - 1) for _ in range(chance.randrange(1, 4))]


def delivered_values(entries: list[Entry]) -> Iterator[tuple[tuple[int, int], str | None, str | None, Any]]:
    """The number and the key of each updated row, and its document in Canal's entry, in FlatMessage and typed."""
    updates = [entry for entry in entries if entry.header.eventType == EventType.UPDATE and entry.storeValue]
    data = Messages(messages=[entry.SerializeToString() for entry in updates]).SerializeToString()
    images = [row.afterColumns for _, change in rows_of(updates) for row in change.rowDatas]
    flat = [row for message in json.loads(flat_json([data], 1)) for row in message["data"]]
    typed = [row.after or {} for row in decode_rows(data)]
    for image, row, after in zip(images, flat, typed, strict=True):
        yield (after["n"], after["id"]), values(image)["j"], row["j"], after["j"]


def parts_in_binlog(server: Server, file: str, offset: int) -> int:
    """How many of the first events after a place have parts of documents."""
    with server.connect(use_unicode=False) as connection, connection.cursor() as cursor:  # names of any character set
        cursor.execute(f"SHOW BINLOG EVENTS IN '{file}' FROM {offset} LIMIT 1000")
        return sum(event[2] == b"Update_rows_partial" for event in cursor.fetchall())


@pytest.mark.parametrize(
    ("version", "changes"),
    [
        ("mysql97", 2_000),
        pytest.param("mysql80", 5_000, marks=pytest.mark.extended),
        pytest.param("mysql97", 20_000, marks=pytest.mark.extended),
        pytest.param("mysql97", 200_000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
def test_random_changes_are_delivered_as_the_server_has_them(
    request: pytest.FixtureRequest, database: Database, tmp_path: Path, version: str, changes: int
) -> None:
    server: Server = request.getfixturevalue(version)
    schema = database(server)
    server.query("CREATE TABLE t (id INT PRIMARY KEY, n INT, j JSON)", database=schema)
    chance = random.Random(changes)
    begin = end_of_binlog(server)
    compared = 0
    connection = server.connect(database=schema, autocommit=True)
    with connection, connection.cursor() as cursor, deliver(server, tmp_path, filter_regex=rf"{schema}\.t") as delivery:
        cursor.execute("SET binlog_row_value_options = 'PARTIAL_JSON', sql_mode = ''")
        n = 0
        while compared < changes:
            kept: dict[tuple[int, int], str] = {}
            cursor.execute("DELETE FROM t")
            whole = {"padding": PADDING, **seed_document(chance)}
            for key in range(ROWS):
                cursor.execute("INSERT INTO t VALUES (%s, 0, %s)", (key, json.dumps(whole)))
            for _ in range(50):
                n += 1
                cursor.execute(f"UPDATE t SET n = {n}, j = {random_change(chance, whole)}")
                cursor.execute("SELECT id, j FROM t")
                now = dict(cursor.fetchall())
                kept |= {(n, key): text for key, text in now.items()}
                whole = json.loads(chance.choice(list(now.values())))
                if len(now[0]) > 3 * len(PADDING) or len(now[0]) < len(PADDING):
                    break
            for place, text, flat, typed in delivered_values(delivery.read()):
                assert text == flat == kept.pop(place)
                assert not isinstance(typed, JsonExpression)
                compared += 1
            assert not kept
    assert parts_in_binlog(server, *begin), "no document was sent in parts"


def test_a_document_that_the_row_before_lacks_is_an_expression(
    mysql97: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mysql97)
    with deliver(mysql97, tmp_path, filter_regex=rf"{schema}\..*") as delivery:
        execute(
            mysql97,
            [
                "CREATE TABLE t (id INT PRIMARY KEY, j JSON)",
                f"""INSERT INTO t VALUES (1, '{{"a": 1, "b": "{PADDING}"}}')""",
                "SET binlog_row_value_options = 'PARTIAL_JSON', binlog_row_image = MINIMAL",
                "UPDATE t SET j = JSON_SET(j, '$.a', 2)",
                "SET binlog_row_image = FULL",
                "UPDATE t SET j = JSON_SET(j, '$.a', 3)",
            ],
            database=schema,
        )
        (_, (_, minimal), (_, full)) = [it for it in rows_of(delivery.read(), "t") if it[1].rowDatas]
    assert values(minimal.rowDatas[0].afterColumns) == {"j": "JSON_REPLACE(j, '$.a', 2)"}
    assert values(full.rowDatas[0].afterColumns) == {"id": "1", "j": json.dumps({"a": 3, "b": PADDING})}
