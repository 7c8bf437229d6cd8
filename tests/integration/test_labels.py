"""The labels of ENUM and SET, from sources that do not log them, in every character set."""

from pathlib import Path

import pytest

from sluice.protocol.canal.entry_pb2 import Entry, EntryType, RowChange
from tests.conftest import Database
from tests.delivery import deliver, end_of_binlog, execute
from tests.servers import Server

LABELS = {
    "armscii8": "Ա",
    "big5": "中功",
    "cp1250": "ł",
    "cp1251": "Я",
    "cp1256": "ب",
    "cp1257": "ė",
    "cp850": "é",
    "cp852": "ł",
    "cp866": "Я",
    "cp932": "表①",
    "dec8": "é",
    "eucjpms": "表①",
    "euckr": "한",
    "gb18030": "中😀",
    "gb2312": "中",
    "gbk": "中",
    "geostd8": "ა",
    "greek": "Ω",
    "hebrew": "א",
    "hp8": "é",
    "keybcs2": "ř",
    "koi8r": "Я",
    "koi8u": "Ї",
    "latin1": "é€",
    "latin2": "ł",
    "latin5": "ş",
    "latin7": "ė",
    "macce": "ł",
    "macroman": "é",
    "sjis": "表ソ",
    "tis620": "ก",
    "ucs2": "é中",
    "ujis": "表",
    "utf16": "é😀",
    "utf16le": "é😀",
    "utf32": "é😀",
    "utf8mb3": "中",
    "utf8mb4": "中😀",
}
"""Some that each character set has, by its name."""
WIDE = {"ucs2", "utf16", "utf16le", "utf32"}


def statements(charset: str, label: str) -> list[str]:
    """What makes a table of a character set, writes rows, and leaves no trace of it at the source."""
    columns = f"id INT PRIMARY KEY, e ENUM('a', '{label}'), s SET('{label}', 'b ')"
    return [
        f"CREATE TABLE {charset} ({columns}) CHARSET {charset}",
        f"INSERT INTO {charset} VALUES (1, 2, 1)",
        f"ALTER TABLE {charset} ADD f ENUM('{label}', 'c') CHARACTER SET {charset} AFTER id",
        f"INSERT INTO {charset} VALUES (2, 1, 2, 3)",
        f"DROP TABLE {charset}",
    ]


def types(label: str) -> list[list[str]]:
    """The types of the columns with labels of each of its rows."""
    added, *first = f"enum('{label}','c')", f"enum('a','{label}')", f"set('{label}','b')"
    return [first, [added, *first]]


def types_of(entries: list[Entry]) -> dict[str, list[list[str]]]:
    """The types of the columns with labels of each row, and what is said of it."""
    found: dict[str, list[list[str]]] = {}
    for entry in entries:
        said = [
            f"{it.key}: {it.value}" for it in entry.header.props if it.key in ("sluice.schema", "sluice.quarantine")
        ]
        for row in RowChange.FromString(entry.storeValue).rowDatas if entry.entryType == EntryType.ROWDATA else ():
            types = [it.mysqlType for it in row.afterColumns if it.name != "id"]
            found.setdefault(entry.header.tableName, []).append(types + said)
    return found


@pytest.fixture
def labels(server: Server) -> dict[str, str]:
    """Those of the character sets that it has, and of which it shows them: MySQL before 8.0 does not of wide ones."""
    names = {"utf8mb3" if row[0] == "utf8" else row[0] for row in server.query("SHOW CHARACTER SET")}
    unshown = WIDE if server.name in ("mysql56", "mysql57") else frozenset()
    return {it: LABELS[it] for it in sorted(names & LABELS.keys() - unshown)}


def test_the_labels_of_statements_are_those_of_the_server_also_for_who_comes_late(
    server: Server, labels: dict[str, str], database: Database, tmp_path: Path
) -> None:
    schema = database(server)
    settings = {"filter_regex": rf"{schema}\..*", "filter_query_ddl": True}
    file, offset = end_of_binlog(server)
    expected = {it: types(label) for it, label in labels.items()}
    with deliver(server, tmp_path / "first", **settings) as delivery:
        delivery.read()
        execute(server, [it for item in labels.items() for it in statements(*item)], database=schema)
        assert types_of(delivery.read()) == expected
    place = {"master_journal_name": file, "master_position": offset}
    with deliver(server, tmp_path / "late", **settings, **place) as late:
        assert types_of(late.read()) == expected


def test_labels_of_a_table_that_was_there_before_are_those_that_the_catalogue_shows(
    server: Server, labels: dict[str, str], database: Database, tmp_path: Path
) -> None:
    schema = database(server)
    shown = {it: label.replace("😀", "") for it, label in labels.items()}
    execute(server, [statements(*item)[0] for item in shown.items()], database=schema)
    with deliver(server, tmp_path, filter_regex=rf"{schema}\..*", filter_query_ddl=True) as delivery:
        delivery.read()
        execute(server, [it for item in shown.items() for it in statements(*item)[1:]], database=schema)
        assert types_of(delivery.read()) == {it: types(label) for it, label in shown.items()}


def test_labels_after_a_conversion_are_their_bytes_in_the_new_character_set_or_in_doubt(
    mysql97: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mysql97)
    tables = {"latin1": ("q", "é"), "gbk": ("q", "中"), "ucs2": ("q", "中"), "utf8mb3": ("q", "中")}
    made = []
    for charset, labels in tables.items():
        for number, label in enumerate(labels):
            name = f"{charset}_{number}"
            made += [
                f"CREATE TABLE {name} (id INT, e ENUM('{label}')) CHARSET {charset}",
                f"ALTER TABLE {name} CONVERT TO CHARACTER SET utf8mb4",
                f"INSERT INTO {name} VALUES (1, 1)",
                f"DROP TABLE {name}",
            ]
    with deliver(mysql97, tmp_path, filter_regex=rf"{schema}\..*", filter_query_ddl=True) as delivery:
        delivery.read()
        execute(mysql97, made, database=schema)
        found = types_of(delivery.read())
    known = {
        "latin1_0": "enum('q')",
        "gbk_0": "enum('q')",
        "ucs2_0": r"enum('\0q')",
        "ucs2_1": "enum('N-')",
        "utf8mb3_0": "enum('q')",
        "utf8mb3_1": "enum('中')",
    }
    doubted = {it: [["enum('?')", "sluice.schema: from-the-future"]] for it in ("latin1_1", "gbk_1")}
    assert found == {it: [[type_]] for it, type_ in known.items()} | doubted


def test_labels_that_a_conversion_has_spoiled_before_the_start_are_in_doubt(
    mysql97: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mysql97)
    charsets = ("utf8mb4", "utf8mb3", "gbk")
    for it in charsets:
        mysql97.query(f"CREATE TABLE {it} (id INT, e ENUM('é', 'b')) CHARSET latin1", database=schema)
        mysql97.query(f"ALTER TABLE {it} CONVERT TO CHARACTER SET {it}", database=schema)
    with deliver(mysql97, tmp_path, filter_regex=rf"{schema}\..*", filter_query_ddl=True) as delivery:
        delivery.read()
        execute(mysql97, [f"INSERT INTO {it} VALUES (1, 2)" for it in charsets], database=schema)
        found = types_of(delivery.read())
    flag = "sluice.schema: from-the-future"
    assert found == {
        "utf8mb4": [["enum('','b')", flag]],
        "utf8mb3": [["enum('?','b')", flag]],
        "gbk": [["enum('','b')"]],  # as SELECT shows it
    }


@pytest.mark.parametrize(("client", "label"), [("latin1", "é"), ("gbk", "中"), ("cp1251", "Я"), ("utf8mb3", "中")])
def test_the_labels_of_a_statement_are_read_as_its_client_wrote_them(
    server: Server, database: Database, tmp_path: Path, client: str, label: str
) -> None:
    schema = database(server)
    with deliver(server, tmp_path, filter_regex=rf"{schema}\..*", filter_query_ddl=True) as delivery:
        delivery.read()
        made = [
            f"CREATE TABLE t (id INT PRIMARY KEY, e ENUM('{label}', 'b'), f ENUM('{label}') CHARACTER SET utf8mb4)",
            "INSERT INTO t VALUES (1, 1, 1)",
            "DROP TABLE t",
        ]
        name = "utf8" if client == "utf8mb3" else client
        execute(server, [f"ALTER DATABASE {schema} CHARACTER SET {name}", *made], database=schema, charset=name)
        assert types_of(delivery.read()) == {"t": [[f"enum('{label}','b')", f"enum('{label}')"]]}
