"""Compressed events: MariaDB's log_bin_compress and MySQL's binlog_transaction_compression."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.protocol.canal.entry_pb2 import Entry, EntryType
from tests.conftest import Database
from tests.delivery import deliver, delivered, end_of_binlog, execute, props, rows_of, transcript
from tests.servers import Server

LONG = "x" * 500
STATEMENTS = [
    "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(1000))",
    "BEGIN",
    f"INSERT INTO t VALUES (1, '{LONG}'), (2, NULL)",
    f"UPDATE t SET v = '{LONG}é' WHERE id = 2",
    "DELETE FROM t WHERE id = 1",
    "COMMIT",
    f"CREATE TABLE u (w INT COMMENT '{LONG}')",
    "INSERT INTO t VALUES (3, 'z')",
]
EXPECTED = [
    f"CREATE t: {STATEMENTS[0]}",
    "BEGIN",
    f"INSERT t 1,{LONG}",
    "INSERT t 2,NULL",
    f"UPDATE t 2,NULL > 2,{LONG}é",
    f"DELETE t 1,{LONG}",
    "END",
    f"CREATE u: {STATEMENTS[6]}",
    "BEGIN",
    "INSERT t 3,z",
    "END",
]


@pytest.fixture(params=["mariadb118", pytest.param("mariadb1011", marks=pytest.mark.extended)])
def compressing(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A MariaDB that compresses all that it can."""
    server: Server = request.getfixturevalue(request.param)
    server.query("SET GLOBAL log_bin_compress = ON")
    server.query("SET GLOBAL log_bin_compress_min_len = 10")
    yield server
    server.query("SET GLOBAL log_bin_compress = DEFAULT")
    server.query("SET GLOBAL log_bin_compress_min_len = DEFAULT")


def event_kinds(server: Server, file: str, offset: int) -> set[str]:
    """The types of the events after a place, as the server names them."""
    return {row[2] for row in server.query(f"SHOW BINLOG EVENTS IN '{file}' FROM {offset}")}


def test_compressed_rows_and_statements_arrive_as_any_others(
    compressing: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(compressing)
    place = end_of_binlog(compressing)
    assert transcript(delivered(compressing, tmp_path, schema, STATEMENTS, filter_query_dml=True)) == EXPECTED
    kinds = event_kinds(compressing, *place)
    assert {"Query_compressed", "Write_rows_compressed_v1", "Update_rows_compressed_v1"} <= kinds


def test_canal_drops_compressed_statements(compressing: Server, database: Database, tmp_path: Path) -> None:
    schema = database(compressing)
    compressing.query("CREATE TABLE t (id INT)", database=schema)
    statements = [f"ALTER TABLE t COMMENT '{LONG}'", "INSERT INTO t VALUES (1)"]
    entries = delivered(compressing, tmp_path, schema, statements, strict_canal=True, filter_query_dml=True)
    assert transcript(entries) == ["INSERT t 1", "END"]


COMPRESS = "SET SESSION binlog_transaction_compression = ON"


def test_a_compressed_transaction_arrives_as_any_other(mysql97: Server, database: Database, tmp_path: Path) -> None:
    schema = database(mysql97)
    place = end_of_binlog(mysql97)
    assert transcript(delivered(mysql97, tmp_path, schema, [COMPRESS, *STATEMENTS])) == EXPECTED
    assert "Transaction_payload" in event_kinds(mysql97, *place)


def test_its_entries_share_the_place_of_the_payload(mysql97: Server, database: Database, tmp_path: Path) -> None:
    schema = database(mysql97)
    entries = delivered(mysql97, tmp_path, schema, [COMPRESS, *STATEMENTS])[1:6]
    assert len({(entry.header.logfileOffset, entry.header.eventLength) for entry in entries}) == 1
    ((_, offset, kind, *_),) = [
        row
        for row in mysql97.query(f"SHOW BINLOG EVENTS IN '{entries[0].header.logfileName}'")
        if row[1] == entries[0].header.logfileOffset
    ]
    assert kind == "Transaction_payload"
    assert offset == entries[0].header.logfileOffset


def test_the_statements_of_rows_are_compressed_too(mysql97: Server, database: Database, tmp_path: Path) -> None:
    schema = database(mysql97)
    statements = [COMPRESS, "SET SESSION binlog_rows_query_log_events = ON", "INSERT INTO t VALUES (1)"]
    mysql97.query("CREATE TABLE t (id INT)", database=schema)
    lines = transcript(delivered(mysql97, tmp_path, schema, statements, filter_regex=""))
    assert lines == ["BEGIN", "QUERY: INSERT INTO t VALUES (1)", "INSERT t 1", "END"]


def test_xa_and_tables_made_from_others_may_be_compressed(mysql97: Server, database: Database, tmp_path: Path) -> None:
    schema = database(mysql97)
    statements = [
        COMPRESS,
        "CREATE TABLE u SELECT 1 AS q",
        "XA START 'p'",
        "INSERT INTO u VALUES (4)",
        "XA END 'p'",
        "XA PREPARE 'p'",
        "XA COMMIT 'p'",
        "XA START 'q'",
        "INSERT INTO u VALUES (5)",
        "XA END 'q'",
        "XA COMMIT 'q' ONE PHASE",
    ]
    entries = delivered(mysql97, tmp_path, schema, statements)
    lines = [line.partition(": ")[0] for line in transcript(entries)]
    assert lines == [
        *["BEGIN", "CREATE u", "INSERT u 1", "END"],
        *["BEGIN", "INSERT u 4", "END"],
        *["BEGIN", "INSERT u 5", "END"],
    ]
    marks = [props(entry).get("sluice.xa") for entry in entries]
    assert marks == [*[None] * 4, *["committed X'70',X'',1"] * 3, *["one-phase X'71',X'',1"] * 3]


def test_a_compressed_prepared_part_is_found_in_the_binlog(mysql97: Server, database: Database, tmp_path: Path) -> None:
    schema = database(mysql97)
    mysql97.query("CREATE TABLE u (q INT)", database=schema)
    statements = [COMPRESS, "XA START 'p'", "INSERT INTO u VALUES (4)", "XA END 'p'", "XA PREPARE 'p'"]
    execute(mysql97, statements, database=schema)
    mysql97.query("FLUSH BINARY LOGS")
    entries = delivered(mysql97, tmp_path, schema, ["XA COMMIT 'p'"])
    assert transcript(entries) == ["BEGIN", "INSERT u 4", "END"]


def test_a_large_compressed_transaction_is_inflated_piece_by_piece(
    mysql97: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mysql97)
    mysql97.query("CREATE TABLE t (id INT, v VARCHAR(2000))", database=schema)
    numbers = "SELECT a.n + 10 * b.n + 100 * c.n FROM d a, d b, d c"
    digits = " UNION ALL ".join(f"SELECT {digit} AS n" for digit in range(10))
    mysql97.query(f"CREATE TABLE d AS {digits}", database=schema)
    statements = [COMPRESS, "BEGIN"]
    statements += [
        f"INSERT INTO t SELECT x.*, REPEAT(CHAR({65 + part}), 2000) FROM ({numbers}) x" for part in range(20)
    ]
    statements += ["COMMIT"]
    with deliver(mysql97, tmp_path, filter_regex=rf"{schema}\.t") as delivery:
        place = end_of_binlog(mysql97)
        connection = mysql97.connect(database=schema)
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        connection.close()
        entries = delivery.read()
    assert end_of_binlog(mysql97)[1] - place[1] < 1 << 20  # of 40 MB
    assert _ends(entries) == [EntryType.TRANSACTIONBEGIN, EntryType.TRANSACTIONEND]
    rows = [row.afterColumns for _, change in rows_of(entries) for row in change.rowDatas]
    assert len(rows) == 20_000
    for part in range(20):
        of_part = rows[1000 * part : 1000 * (part + 1)]
        assert sorted(int(row[0].value) for row in of_part) == list(range(1000))
        assert {row[1].value for row in of_part} == {chr(65 + part) * 2000}


def _ends(entries: list[Entry]) -> list[int]:
    return [entry.entryType for entry in entries if entry.entryType != EntryType.ROWDATA]
