"""What the history of many tables takes: `python -m bench.tables NUMBER` loads it, and notes DDL of them."""

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.processes import memory_of
from sluice.instance.sources.mysql.history.file import FileDatabase
from sluice.instance.sources.mysql.history.statements import Context, apply
from sluice.instance.sources.mysql.history.tables import Catalog, Column, Database, Table
from sluice.instance.sources.mysql.history.versions import History
from sluice.protocol.lexer import Dialect
from sluice.protocol.position import Position
from sluice.store.cursor import Cursor

COLUMNS = 10
STATEMENTS = 200
DIALECT = Dialect((11, 8, 0), mariadb=True, charsets=frozenset({"utf8mb4"}))


def main() -> None:
    """Do what the command line says."""
    count = int(sys.argv[1])
    start = Position("1", "bin.000001", 1, 1000, 0)
    with tempfile.TemporaryDirectory(prefix="sluice-tables-") as folder:
        make(Path(folder), count, start)
        before = memory_of()
        history, catalog = History(FileDatabase(Path(folder), writes=True), writes=True), Catalog()
        begin = time.perf_counter()
        if not history.begin_at(catalog, Cursor.at(start)):
            raise SystemExit("the place is not known")
        seconds = time.perf_counter() - begin
        read = sum(1 for number in range(count) if isinstance(catalog.get("shop", f"table_{number}"), Table))
        if read != count:
            raise SystemExit(f"{read} tables were loaded of {count}")
        size = memory_of() - before
        found = {"s": round(seconds, 3), "mb": round(size, 1), "p50_ms": round(note(history, catalog, start), 3)}
        history.close()
    json.dump(found, sys.stdout)


def make(folder: Path, count: int, start: Position) -> None:
    """Write a history of ``count`` tables."""
    catalog = Catalog()
    columns = tuple(Column(f"column_{number}", "varchar(255)", "utf8mb4") for number in range(COLUMNS))
    tables = {f"table_{number}": Table(columns, ("column_0",), "utf8mb4") for number in range(count)}
    catalog.put_database("shop", Database("utf8mb4", dict(tables), is_complete=True))
    history = History(FileDatabase(folder, writes=True), writes=True)
    history.begin(catalog, start, "")
    history.close()


def note(history: History, catalog: Catalog, start: Position) -> float:
    """Return the median of the milliseconds that it takes to note a statement beyond reading it."""
    taken = []
    for number in range(STATEMENTS):
        catalog.changes.clear()
        apply(catalog, DIALECT, f"ALTER TABLE table_{number} ADD more INT", Context("shop"))
        place = Position(start.source, start.file, start.created, start.begin + 100 * (number + 1), 0)
        begin = time.perf_counter()
        history.add(place, "", "ALTER TABLE", catalog.changes)
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken) * 1000


if __name__ == "__main__":
    main()
