"""A small shop that is never quiet: the writer of the demo."""

import json
import random
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pymysql

SCHEMA = "shop"

TABLES = {
    "customers": """
        id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY,
        name VARCHAR(80) NOT NULL,
        level ENUM('basic', 'silver', 'gold') NOT NULL DEFAULT 'basic',
        interests SET('books', 'music', 'garden') NOT NULL DEFAULT '',
        joined DATE NOT NULL,
        profile JSON""",
    "orders": """
        id INT AUTO_INCREMENT PRIMARY KEY,
        customer BIGINT UNSIGNED NOT NULL,
        status ENUM('new', 'paid', 'sent') NOT NULL DEFAULT 'new',
        total DECIMAL(12,2) NOT NULL,
        placed DATETIME(6) NOT NULL,
        remark TEXT""",
    "lines": """
        order_id INT NOT NULL,
        line SMALLINT NOT NULL,
        product VARCHAR(40) CHARACTER SET latin1 NOT NULL,
        quantity INT NOT NULL,
        price DECIMAL(10,2) NOT NULL,
        PRIMARY KEY (order_id, line)""",
    "parcels": """
        id INT AUTO_INCREMENT PRIMARY KEY,
        order_id INT NOT NULL,
        weight DOUBLE NOT NULL,
        label VARBINARY(16) NOT NULL,
        due TIME NOT NULL""",
}

DDL = "ALTER TABLE orders ADD COLUMN rating TINYINT NULL"

_NAMES = ("Ada Lovelace", "Grace Hopper", "Jürgen Groß", "李雷", "Zoë Ångström", "Søren 🚲 Kierkegaard", "Иван Петров")
_PRODUCTS = ("tea", "café crème", "rake", "piano score", "tulips", "notebook")
_INSERT_CUSTOMER = "INSERT INTO customers (name, interests, joined, profile) VALUES (%s, %s, CURDATE(), %s)"


class Connect(Protocol):
    """Opens a connection in autocommit mode."""

    def __call__(self, *, database: str | None = None) -> "pymysql.connections.Connection[Any]":
        """Open it, on a schema or on none."""


class Traffic:
    """Makes the schema, then writes transactions until stopped; counts the rows that each table's binlog gets."""

    def __init__(self, connect: Connect) -> None:
        """`connect` reaches the server to write to."""
        self.rows: Counter[str] = Counter()
        self.transactions = 0
        self._random = random.Random(7)
        self._stop = threading.Event()
        self._orders: list[int] = []
        self._failure: Exception | None = None
        with connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {SCHEMA} CHARACTER SET utf8mb4")
            for table, columns in TABLES.items():
                cursor.execute(f"CREATE TABLE {SCHEMA}.{table} ({columns})")
        self._connection = connect(database=SCHEMA)
        self._connection.autocommit(False)
        self._cursor = self._connection.cursor()
        self._thread = threading.Thread(target=self._work, name="traffic")

    def start(self) -> None:
        """Begin to write, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Finish the current transaction and end; raises what the writer failed with."""
        self._stop.set()
        self._thread.join()
        self._connection.close()
        if self._failure:
            raise self._failure

    def _work(self) -> None:
        kinds = [self._new_customer, self._new_order, self._pay, self._send, self._cancel, self._import]
        try:
            while not self._stop.wait(self._random.expovariate(10)):
                if self.transactions == 40:
                    self._cursor.execute(DDL)
                work = self._random.choices(kinds, weights=[4, 8, 6, 5, 2, 1])[0]
                work()
                self._connection.commit()
                self.transactions += 1
        except pymysql.MySQLError as error:
            self._failure = error

    def _write(self, table: str, sql: str, *rows: tuple[object, ...]) -> None:
        """Run one statement for many rows and count those it changed."""
        self.rows[table] += self._cursor.executemany(sql, rows) or 0

    def _new_customer(self) -> None:
        profile = json.dumps({"since": "2026", "visits": self._random.randrange(100)})
        row = (self._random.choice(_NAMES), self._random.choice(["", "books", "books,music", "garden"]), profile)
        self._write("customers", _INSERT_CUSTOMER, row)

    def _new_order(self) -> None:
        """One transaction over two tables."""
        count = self._random.randrange(1, 5)
        prices = [self._random.randrange(100, 10000) / 100 for _ in range(count)]
        placed = datetime.now(UTC).replace(tzinfo=None)
        remark = self._random.choice([None, "as a gift", "ring twice; it's loud \N{BELL}"])
        self._write(
            "orders",
            "INSERT INTO orders (customer, total, placed, remark) VALUES (%s, %s, %s, %s)",
            (self._random.randrange(1, 50), round(sum(prices), 2), placed, remark),
        )
        order = self._cursor.lastrowid
        self._orders.append(order)
        lines = [(order, n, self._random.choice(_PRODUCTS), n + 1, price) for n, price in enumerate(prices)]
        self._write("lines", "INSERT INTO `lines` VALUES (%s, %s, %s, %s, %s)", *lines)

    def _pay(self) -> None:
        self._write("orders", "UPDATE orders SET status = 'paid' WHERE status = 'new' ORDER BY id LIMIT %s", (3,))
        self._write("customers", "UPDATE customers SET level = 'gold' WHERE level = 'basic' ORDER BY id LIMIT %s", (1,))

    def _send(self) -> None:
        self._write("orders", "UPDATE orders SET status = 'sent' WHERE status = 'paid' ORDER BY id LIMIT %s", (2,))
        due = timedelta(hours=self._random.randrange(8, 20))
        row = (self._random.choice(self._orders or [0]), self._random.uniform(0.1, 30), self._random.randbytes(8), due)
        self._write("parcels", "INSERT INTO parcels (order_id, weight, label, due) VALUES (%s, %s, %s, %s)", row)

    def _cancel(self) -> None:
        if self._orders:
            order = self._orders.pop(self._random.randrange(len(self._orders)))
            self._write("lines", "DELETE FROM `lines` WHERE order_id = %s", (order,))
            self._write("orders", "DELETE FROM orders WHERE id = %s", (order,))

    def _import(self) -> None:
        """Many rows in one statement."""
        rows = [(f"Imported {n}", "", '{"imported": true}') for n in range(200)]
        self._write("customers", _INSERT_CUSTOMER, *rows)
