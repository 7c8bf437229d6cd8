"""The two sources of a run, and who writes to them."""

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Self

import pymysql

from tests.chaos.journal import Purged
from tests.chaos.plan import SHARED, TABLES
from tests.faults.pair import Pair
from tests.servers import Server
from tests.waiting import eventually

RATE = 200
"""Numbers a second that are written to each schema, ..."""
TRANSACTION = 20
"""... this number at a time, ..."""
XA = 17
"""... and one of this number in an XA transaction."""
PARTS = 3
"""The number of parts; a row belongs to one, by which a client chooses."""

Numbers = Mapping[str, list[int]]
"""What was written to each table, ascending."""

LOST = (pymysql.err.OperationalError, pymysql.err.InterfaceError)
"""The server is away, or has forgotten the connection."""


class Writer(threading.Thread):
    """Writes increasing numbers to a schema; what is there at the end was written, whatever a lost answer meant."""

    def __init__(self, source: Server, schema: str) -> None:
        super().__init__(daemon=True, name=f"writer of {schema}")
        self._source, self._schema = source, schema
        self._stopping = threading.Event()
        self.preparing = threading.Lock()
        """Held while an XA transaction is prepared and not committed yet."""
        columns = "id INT PRIMARY KEY, v VARCHAR(40), part INT"
        source.script(f"CREATE DATABASE IF NOT EXISTS {schema};\n")
        source.script("".join(f"CREATE TABLE {table} ({columns});\n" for table in TABLES), database=schema)

    def run(self) -> None:
        """Write until it is told to stop."""
        first = 1
        due = time.monotonic()
        while not self._stopping.is_set():
            try:
                self._forget_prepared()
                with self._source.connect(database=self._schema, autocommit=False, read_timeout=10) as connection:
                    while not self._stopping.wait(max(0.0, due - time.monotonic())):
                        due = max(due + TRANSACTION / RATE, time.monotonic() - 1)
                        first, begin = first + TRANSACTION, first
                        self._write(connection, begin)
            except LOST:
                self._stopping.wait(0.2)

    def _write(self, connection: "pymysql.connections.Connection[pymysql.cursors.Cursor]", begin: int) -> None:
        name = f"'{self._schema}-{begin}'" if begin // TRANSACTION % XA == 0 else ""
        with connection.cursor() as cursor:
            if name:
                cursor.execute(f"XA START {name}")
            for table, start, stop in _shares(begin):
                rows = ",".join(f"({number},'number {number}',{number % PARTS})" for number in range(start, stop))
                cursor.execute(f"INSERT INTO {table} (id, v, part) VALUES {rows}")
            if not name:
                connection.commit()
                return
            cursor.execute(f"XA END {name}")
            with self.preparing:
                cursor.execute(f"XA PREPARE {name}")
                self._stopping.wait(begin % 10 / 50)
                cursor.execute(f"XA COMMIT {name}")

    def _forget_prepared(self) -> None:
        """Roll back what a lost connection has left: committed now, it would come after greater numbers."""
        for *_, name in self._source.query("XA RECOVER"):
            text = name.decode() if isinstance(name, bytes) else name  # as MariaDB gives it
            if text.startswith(f"{self._schema}-"):
                self._source.query(f"XA ROLLBACK '{text}'")

    def _is_forgotten(self) -> bool:
        """Try it: a server that has not noticed the end of a connection refuses to roll back what that has prepared."""
        try:
            self._forget_prepared()
        except LOST:
            return False
        return True

    def stop(self) -> None:
        """Write no more."""
        self._stopping.set()

    def finish(self) -> Numbers:
        """Stop, and return what the tables hold."""
        self.stop()
        self.join()
        eventually(self._is_forgotten, lambda: self._source.query("XA RECOVER"))
        query = self._source.query
        return {
            table: [int(row[0]) for row in query(f"SELECT id FROM {table} ORDER BY id", database=self._schema)]
            for table in TABLES
        }


def _shares(first: int) -> Iterator[tuple[str, int, int]]:
    """Return which numbers of a transaction go to which table; it changes from one to the next."""
    size = len(TABLES)
    turn = first // TRANSACTION
    cuts = [first, first + 1 + turn % 7, first + 10 + turn % 5, first + TRANSACTION]
    for number, (start, stop) in enumerate(itertools.pairwise(cuts)):
        yield TABLES[(turn + number) % size], start, stop


class Sources(contextlib.ExitStack):
    """Two servers of which one replicates from the other, which is written to."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind
        self.writers: dict[str, Writer] = {}
        """By schema."""

    def __enter__(self) -> Self:
        super().__enter__()
        # Else rows have the names of columns of a later ALTER, where a server reads them that has not seen it come.
        options = ["--binlog-row-metadata=FULL"]
        if not self._kind.startswith("mariadb"):
            options += ["--gtid-mode=ON", "--enforce-gtid-consistency=ON"]
        self._pair = self.enter_context(Pair(self._kind, *options))
        self.servers = {"first": self._pair.first, "second": self._pair.second}
        self.writers = {schema: Writer(self._pair.first, schema) for schema in SHARED}
        for writer in self.writers.values():
            self.callback(writer.stop)
        return self

    def purge(self, name: str) -> Purged | None:
        """Remove the binlog of one, as far as the other one does not need it; None if it cannot be removed now."""
        server = self.servers[name]
        with contextlib.suppress(*LOST):
            if not self._flush(server):
                return None
            last = {
                schema: {
                    table: int(server.query(f"SELECT COALESCE(MAX(id), 0) FROM {schema}.{table}")[0][0])
                    for table in TABLES
                }
                for schema in self.writers
            }
            files = server.query("SHOW BINARY LOGS")
            if name == "first" and not self._is_replicated(last):
                return None
            server.query(f"PURGE BINARY LOGS TO '{files[-1][0]}'")
            return Purged(time.time(), name, last)
        return None

    def _flush(self, server: Server, seconds: float = 5.0) -> bool:
        """Begin a file that needs none before it: no XA transaction is prepared in one and committed in the other."""
        deadline = time.monotonic() + seconds
        with contextlib.ExitStack() as held:
            for writer in self.writers.values():
                held.enter_context(writer.preparing)
            while server.query("XA RECOVER"):
                if time.monotonic() >= deadline:
                    return False
                time.sleep(0.1)
            server.query("FLUSH BINARY LOGS")
        return True

    def _is_replicated(self, last: Mapping[str, Mapping[str, int]], seconds: float = 10.0) -> bool:
        """Whether the second one comes to have these numbers, and so all before them."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(*LOST):
                if all(
                    int(self._pair.second.query(f"SELECT COALESCE(MAX(id), 0) FROM {schema}.{table}")[0][0]) >= number
                    for schema, numbers in last.items()
                    for table, number in numbers.items()
                ):
                    return True
            time.sleep(0.2)
        return False

    def alter(self, table: str) -> None:
        """Give a table one more column, or take that away again."""
        with contextlib.suppress(*LOST):
            server = self._pair.first
            columns = [row[0] for row in server.query(f"SHOW COLUMNS FROM {table}")]
            change = "DROP COLUMN more" if "more" in columns else "ADD COLUMN more INT DEFAULT 5 FIRST"
            Pair.run(server, f"ALTER TABLE {table} {change}")
