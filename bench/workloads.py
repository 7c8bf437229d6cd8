"""The workloads: what a source writes for measurements, the same in every run."""

import contextlib
import functools
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pymysql.constants.CLIENT import MULTI_STATEMENTS

from tests.servers import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = "bench"
SYSBENCH = "id INT PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL"
WIDE = (
    "id BIGINT UNSIGNED PRIMARY KEY, visits INT NOT NULL, name VARCHAR(80), city VARCHAR(80), note TEXT,"
    " price DECIMAL(18,4), tax DECIMAL(10,2), quantity SMALLINT UNSIGNED, ratio DOUBLE, share FLOAT, level TINYINT,"
    " state ENUM('new', 'paid', 'sent', 'back'), flags SET('gift', 'fragile', 'express'), changed DATETIME(6),"
    " seen TIMESTAMP(3) NULL, born DATE, due TIME, document TEXT, digest VARBINARY(32), bits BIT(8)"
)
TEXT = "id INT PRIMARY KEY, title VARCHAR(1000) NOT NULL, body TEXT NOT NULL, comments JSON NOT NULL"
SCRIPTS = {
    "订单已经发货请在三天之内确认收货如有问题随时联系客服我们会尽快为您处理谢谢您的支持": 4,
    "Заказ отправлен сегодня утром и будет доставлен в течение трёх дней, спасибо за покупку ": 4,
    "😀🎉🚚📦💬👍🔔🌍🍵🧾": 1,
    "the parcel is on its way, ": 1,
}
"""What texts are made of, and how often it comes."""
VARIETY = 1000
"""Rows that differ in more than their key; then they come again."""

ROWS = {
    "bulk": 500_000,
    "single": 200_000,
    "update": 200_000,
    "wide": 200_000,
    "mixed": 100_000,
    "text": 20_000,
    "ascii": 20_000,
}
"""The workloads, and how many row changes each has."""

WRITTEN = {
    "bulk": 100_000,
    "single": 30_000,
    "update": 150_000,
    "wide": 30_000,
    "mixed": 8_000,
    "text": 4_000,
    "ascii": 4_000,
}
"""Rows per second in which they are written, by which the time of a measurement is estimated."""

TABLES = {"bulk": "t", "single": "t", "update": "t", "wide": "w", "mixed": None, "text": "x", "ascii": "y"}
"""Their tables in `SCHEMA`; mixed has two."""


@dataclass(frozen=True, slots=True)
class Written:
    """What was written."""

    rows: int
    """Row changes."""
    file: str
    """The binlog file that begins with them."""
    ends: tuple[tuple[str, int], ...]
    """Where the binlog ended, file and offset, when each of the times was written."""
    seconds: float
    """For which they were written, without the preparation."""


END = "the end of a time"
"""What the row of `mark_end` has, and no other, nor a statement."""


def mark_end(server: Server) -> None:
    """Write a row that has the text `END`."""
    server.query(f"CREATE TABLE IF NOT EXISTS {SCHEMA}.ends (text TEXT)")
    server.query(f"INSERT INTO {SCHEMA}.ends VALUES (CONCAT('{END[:7]}', '{END[7:]}'))")


def write(
    server: Server, workload: str, rows: int, times: int = 1, after: Callable[[], object] = lambda: None
) -> Written:
    """Write a workload of ``rows`` row changes ``times`` times, one after the other; call ``after`` after each.

    bulk: inserts of 1,000 rows; single: inserts of one row, each a transaction; update: one transaction that updates
    all rows; wide: inserts of 200 rows of 20 columns; mixed: transactions of an insert, an update on each of two tables
    and, every third, a delete; text: inserts of 20 rows of some 5 kB of Chinese, Cyrillic and emoji; ascii: likewise of
    as many bytes of ASCII. The tables are made before, and filled where there is something to update.

    Raises:
        ValueError: the rows do not make whole statements or transactions.
    """
    if rows % 1000:
        raise ValueError(f"{rows} rows: whole thousands are needed")
    with _prepared(server, workload, rows) as writer:
        server.query("FLUSH BINARY LOGS")
        file = server.query("SHOW BINARY LOGS")[-1][0]
        ends = []
        begin = time.monotonic()
        for _ in range(times):
            getattr(writer, f"write_{workload}")(rows)
            ends.append(server.query("SHOW BINARY LOGS")[-1][:2])
            after()
        seconds = time.monotonic() - begin
    return Written(rows * times, file, tuple(ends), seconds)


def prepare(server: Server, workload: str, rows: int) -> None:
    """Make the tables of a workload, and fill them where there is something to update, as `write` does before."""
    with _prepared(server, workload, rows):
        pass


@contextlib.contextmanager
def _prepared(server: Server, workload: str, rows: int) -> "Iterator[_Writer]":
    server.query(f"CREATE DATABASE {SCHEMA} CHARACTER SET utf8mb4")
    writer = _Writer(server)
    try:
        getattr(writer, f"prepare_{workload}")(rows)
        yield writer
    finally:
        writer.close()


class _Writer:
    """One connection, and the keys that were used."""

    def __init__(self, server: Server) -> None:
        self._connection = server.connect(database=SCHEMA, client_flag=MULTI_STATEMENTS)
        self._cursor = self._connection.cursor()
        self._next = self._turn = 0
        self._chance = random.Random(1)
        self._tails = functools.cache(self._make_tails)

    def close(self) -> None:
        self._connection.close()

    def prepare_bulk(self, _rows: int) -> None:
        self._cursor.execute(f"CREATE TABLE t ({SYSBENCH})")

    def write_bulk(self, rows: int) -> None:
        self._insert("t", rows, 1000)

    def prepare_single(self, _rows: int) -> None:
        self._cursor.execute(f"CREATE TABLE t ({SYSBENCH})")
        digits = "-".join(["01234567890"] * 10)
        self._cursor.execute(
            "CREATE PROCEDURE fill(first INT, n INT) BEGIN DECLARE i INT DEFAULT first; WHILE i < first + n DO"
            f" INSERT INTO t VALUES (i, i * 7919 % 1000000, '{digits}', '{digits[:59]}'); SET i = i + 1;"
            " END WHILE; END"
        )

    def write_single(self, rows: int) -> None:
        self._cursor.execute("CALL fill(%s, %s)", (self._take(rows), rows))

    def prepare_update(self, rows: int) -> None:
        self._cursor.execute(f"CREATE TABLE t ({SYSBENCH})")
        self._insert("t", rows, 1000)

    def write_update(self, rows: int) -> None:
        self._cursor.execute("UPDATE t SET k = k + 1 LIMIT %s", (rows,))

    def prepare_wide(self, _rows: int) -> None:
        self._cursor.execute(f"CREATE TABLE w ({WIDE})")

    def write_wide(self, rows: int) -> None:
        self._insert("w", rows, 200)

    def prepare_text(self, _rows: int) -> None:
        self._cursor.execute(f"CREATE TABLE x ({TEXT})")

    def write_text(self, rows: int) -> None:
        self._insert("x", rows, 20)

    def prepare_ascii(self, _rows: int) -> None:
        self._cursor.execute(f"CREATE TABLE y ({TEXT})")

    def write_ascii(self, rows: int) -> None:
        self._insert("y", rows, 20)

    def prepare_mixed(self, _rows: int) -> None:
        self._cursor.execute(f"CREATE TABLE t ({SYSBENCH})")
        self._cursor.execute(f"CREATE TABLE w ({WIDE})")
        self._insert("t", VARIETY, VARIETY)
        self._next = 0
        self._insert("w", VARIETY, VARIETY)
        self._keys = {"t": (0, VARIETY), "w": (0, VARIETY)}  # the first that is left, and the first that is free

    def write_mixed(self, rows: int) -> None:
        written = 0
        while written < rows:
            statements = self._transaction()[: rows - written]
            self._cursor.execute(f"BEGIN; {'; '.join(statements)}; COMMIT")
            while self._cursor.nextset():
                pass
            written += len(statements)

    def _transaction(self) -> list[str]:
        inserted, deleted = ("t", "w")[self._turn % 2], ("t", "w")[self._turn // 3 % 2]
        self._turn += 1
        first, free = self._keys[inserted]
        self._keys[inserted] = first, free + 1
        statements = [f"INSERT INTO {inserted} VALUES ({free}, {self._tails(inserted)[free % VARIETY]})"]
        for table, column in (("t", "k"), ("w", "visits")):
            key = self._chance.randrange(*self._keys[table])
            statements.append(f"UPDATE {table} SET {column} = {column} + 1 WHERE id = {key}")
        if self._turn % 3 == 0:
            first, free = self._keys[deleted]
            self._keys[deleted] = first + 1, free
            statements.append(f"DELETE FROM {deleted} WHERE id = {first}")
        return statements

    def _take(self, keys: int) -> int:
        self._next += keys
        return self._next - keys

    def _insert(self, table: str, rows: int, of: int) -> None:
        """Insert rows, ``of`` of them in a statement."""
        tails = self._tails(table)
        for _ in range(rows // of):
            first = self._take(of)
            values = ", ".join(f"({number}, {tails[number % VARIETY]})" for number in range(first, first + of))
            self._cursor.execute(f"INSERT INTO {table} VALUES {values}")

    def _make_tails(self, table: str) -> list[str]:
        """Rows as SQL, without their keys."""
        chance = random.Random(1)
        row = {"t": sysbench_row, "w": wide_row, "x": text_row, "y": ascii_row}[table]
        return [", ".join(self._connection.escape(value) for value in row(chance)) for _ in range(VARIETY)]


def sysbench_row(chance: random.Random) -> tuple[Any, ...]:
    """Make a row of the table `SYSBENCH`, without its key."""
    digits = "-".join(f"{chance.randrange(10**11):011d}" for _ in range(10))
    return chance.randrange(10**6), digits, digits[:59]


def wide_row(chance: random.Random) -> tuple[Any, ...]:
    """Make a row of the table `WIDE`, without its key; one in five values of a third of the columns is NULL."""
    day = f"2026-{chance.randrange(1, 13):02d}-{chance.randrange(1, 29):02d}"
    second = f"{chance.randrange(24):02d}:{chance.randrange(60):02d}:{chance.randrange(60):02d}"

    def sometimes(value: Any) -> Any:
        return None if chance.random() < 0.2 else value

    return (
        chance.randrange(-(2**31), 2**30),
        f"Zoë Müller {chance.randrange(10**6)}",
        sometimes(f"São Paulo {chance.randrange(1000)}"),
        sometimes("ring twice and leave it at the door " * chance.randrange(1, 4)),
        f"{chance.randrange(10**12)}.{chance.randrange(10**4):04d}",
        sometimes(f"{chance.randrange(10**6)}.{chance.randrange(100):02d}"),
        chance.randrange(2**16),
        chance.random(),
        sometimes(chance.randrange(1000) / 8),
        chance.randrange(-128, 128),
        chance.choice(["new", "paid", "sent", "back"]),
        sometimes(",".join(chance.sample(["gift", "fragile", "express"], 2))),
        f"{day} {second}.{chance.randrange(10**6):06d}",
        sometimes(f"{day} {second}.{chance.randrange(1000):03d}"),
        day,
        second,
        sometimes(json.dumps({"n": chance.randrange(10**6), "tags": ["a", "b"]})),
        chance.randbytes(16),
        chance.randrange(256),
    )


def text_row(chance: random.Random) -> tuple[str, ...]:
    """Make a row of the table `TEXT`, without its key: some 5 kB of UTF-8, most of it not ASCII."""

    def text(size: int) -> str:
        pieces = []
        while size > 0:
            script = chance.choices(list(SCRIPTS), list(SCRIPTS.values()))[0]
            start = chance.randrange(len(script))
            pieces.append(script[start : start + chance.randrange(5, 60)])
            size -= len(pieces[-1].encode())
        return "".join(pieces)

    comments = [{"author": text(20), "text": text(150), "likes": chance.randrange(1000)} for _ in range(8)]
    return text(100), text(3500), json.dumps(comments, ensure_ascii=False)


def ascii_row(chance: random.Random) -> tuple[str, ...]:
    """Make the row that `text_row` makes, with as many letters for each character as it has bytes."""
    return tuple(
        "".join(letter if letter.isascii() else "text"[: len(letter.encode())] for letter in text)
        for text in text_row(chance)
    )
