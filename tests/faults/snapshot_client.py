"""A consumer for tests to kill: it copies tables by the loop of docs/howto/snapshots.md, and keeps a journal.

python -m tests.faults.snapshot_client FOLDER FILTER ROWS_PER_SECOND URL…
"""

import re
import sqlite3
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sluice.client_sdk import Batch, Client, Limits, Snapshot, Start

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "snapshots.md"


def loop() -> str:
    """Return the loop of the page on snapshots."""
    blocks: list[str] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (found,) = (code for code in blocks if 'start="snapshot"' in code)
    return found


class Copy:
    """The tables in a file of SQLite. What is committed survives a kill of the process."""

    def __init__(self, file: Path) -> None:
        self._connection = sqlite3.connect(file, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = OFF")  # the machine stays up
        self._connection.execute("CREATE TABLE IF NOT EXISTS items (id INTEGER PRIMARY KEY, version INTEGER, v TEXT)")
        self._connection.execute("CREATE TABLE IF NOT EXISTS finished (id INTEGER PRIMARY KEY)")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make what is done in it durable, all or nothing."""
        self._connection.execute("BEGIN")
        yield
        self._connection.execute("COMMIT")

    def clear(self, table: str) -> None:
        """Remove all rows."""
        self._connection.execute(f"DELETE FROM {table}")

    def remove(self, table: str, key: Mapping[str, Any]) -> None:
        """Remove a row, if it is there."""
        self._connection.execute(f"DELETE FROM {table} WHERE id = ?", (key["id"],))

    def put(self, table: str, row: Mapping[str, Any]) -> None:
        """Insert a row, or replace the one with its key."""
        places = ", ".join("?" * len(row))
        self._connection.execute(f"REPLACE INTO {table} VALUES ({places})", tuple(row.values()))


class JournalingClient(Client):
    """Notes what it is given before anything is done with it: READ, PUT or GONE, the key and the version."""

    journal: Path
    rows_per_second: int

    def subscribe(self, filter: str = "", start: Start = "earliest", **options: Any) -> dict[str, Any]:  # noqa: A002
        """Begin with the tables, so slowly that there is time for a kill; a rate of 0 is none."""
        assert start == "snapshot"
        return super().subscribe(filter, Snapshot(max_rows_per_second=self.rows_per_second), **options)

    def batches(self, *_: Any, **__: Any) -> Generator[Batch, None, None]:
        """Give the batches after they are noted."""
        with self.journal.open("a") as file:
            file.write("\n")  # after what a kill has cut off
            for batch in super().batches(limits=Limits(max_entries=50)):
                lines = []
                for row in batch:
                    if row.table != "items":
                        continue
                    if row.before is not None:
                        lines.append(f"GONE {row.before['id']} {row.before['version']}.\n")
                    if row.after is not None:
                        kind = "READ" if row.type == "READ" else "PUT"
                        lines.append(f"{kind} {row.after['id']} {row.after['version']}.\n")
                file.write("".join(lines))
                file.flush()
                yield batch


def main() -> None:
    """Copy until the process is killed."""
    folder, wanted, rate, *urls = sys.argv[1:]
    JournalingClient.journal = Path(folder) / "journal"
    JournalingClient.rows_per_second = int(rate)
    with JournalingClient(urls, "shop", 1001, retry=300, timeout=10) as client:
        program = loop().replace(r'r"shop\..*"', repr(wanted))
        exec(program, {"client": client, "copy": Copy(Path(folder) / "copy.db")})


if __name__ == "__main__":
    main()
