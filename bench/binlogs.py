"""Binlog files to measure with, written by a real server once and kept in the cache."""

import json
import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.servers import Server

CHUNK = 1000
"""Rows of a transaction."""

TABLES = {
    "narrow": ("id INT PRIMARY KEY, name VARCHAR(40)", "(%s, %s)"),
    "sysbench": ("id INT PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL", "(%s, %s, %s, %s)"),
    "mixed": (
        (
            "id BIGINT UNSIGNED PRIMARY KEY, a INT, b SMALLINT UNSIGNED, price DECIMAL(20,4), ratio DOUBLE,"
            " made DATETIME(6), day DATE, seen TIMESTAMP(3) NULL, name VARCHAR(80), note TEXT, data VARBINARY(32),"
            " kind ENUM('x', 'y', 'z'), flags SET('p', 'q', 'r'), document JSON"
        ),
        "(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
    ),
}
"""The tables: columns, and placeholders of a row."""


@dataclass(frozen=True, slots=True)
class Binlog:
    """A binlog file, and what has to be known of its source to decode it."""

    path: Path
    version: str
    charsets: dict[int, str]
    rows: int


def _row(table: str, number: int, chance: random.Random) -> tuple[object, ...]:
    if table == "narrow":
        return number, f"name {number}"
    if table == "sysbench":
        digits = "-".join(f"{chance.randrange(10**11):011d}" for _ in range(10))
        return number, chance.randrange(10**6), digits, digits[:59]
    day = f"2026-{chance.randrange(1, 13):02d}-{chance.randrange(1, 29):02d}"
    when = f"{day} {chance.randrange(24):02d}:15:{chance.randrange(60):02d}"
    return (
        *(number, chance.randrange(-(2**31), 2**31), chance.randrange(2**16), chance.randrange(10**12) / 1000),
        *(chance.random(), f"{when}.{chance.randrange(10**6):06d}", day, f"{when}.5", f"Zoë {number}", "a note " * 5),
        *(
            chance.randbytes(16),
            "y",
            "p,r",
            json.dumps({"n": number, "tags": ["a", "b"], "deep": {"x": chance.random()}}),
        ),
    )


def write(server: Server, table: str, rows: int) -> int:
    """Change so many rows, rounded down: half by INSERT, then an UPDATE of each of them. Returns the number."""
    rows -= rows % (2 * CHUNK)
    chance = random.Random(1)
    columns, placeholders = TABLES[table]
    server.query("CREATE DATABASE bench")
    with server.connect(database="bench", autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE t ({columns})")
        for start in range(0, rows // 2, CHUNK):
            many = [_row(table, number, chance) for number in range(start, start + CHUNK)]
            cursor.executemany(f"INSERT INTO t VALUES {placeholders}", many)
            connection.commit()
        column = {"narrow": "name", "sysbench": "c", "mixed": "name"}[table]
        for start in range(0, rows // 2, CHUNK):
            cursor.execute(
                f"UPDATE t SET {column} = REVERSE({column}) WHERE id >= %s AND id < %s", (start, start + CHUNK)
            )
            connection.commit()
    return rows


def binlog(source: str, table: str, rows: int) -> Binlog:
    """Return a binlog of `source` (a server of the tests) with so many row changes of a table."""
    rows -= rows % (2 * CHUNK)
    cache = os.environ.get("SLUICE_CACHE") or f"{os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache'}/sluice"
    folder = Path(cache, "bench", f"{source}-{table}-{rows}")
    if not (folder / "facts.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        with Server(source, ["--binlog-row-metadata=FULL", "--max-binlog-size=1G"]) as server:
            write(server, table, rows)
            name = server.query("SHOW BINARY LOGS")[-1][0]
            server.query("FLUSH LOGS")
            shutil.copyfile(server.data / name, folder / name)
            view = "collation_character_set_applicability" if server.mariadb else "collations"  # MariaDB: more ids
            charsets = dict(server.query(f"SELECT id, character_set_name FROM information_schema.{view}"))
            facts = {"file": name, "version": server.query("SELECT version()")[0][0], "charsets": charsets}
            (folder / "facts.json").write_text(json.dumps(facts))
    facts = json.loads((folder / "facts.json").read_text())
    charsets = {int(number): charset for number, charset in facts["charsets"].items()}
    return Binlog(folder / facts["file"], facts["version"], charsets, rows)
