"""Keep a full-text index of `shop.goods` in SQLite (FTS5), and search it.

It begins with the goods that exist. A batch is acknowledged after the index is committed. After a crash it arrives
again, and gives the same index.

    python examples/search_index.py goods.db                        # follows the changes
    python examples/search_index.py goods.db --search 'green tea'
"""

import argparse
import contextlib
import sqlite3

from sluice.client_sdk import Change, Client

CREATE = "CREATE VIRTUAL TABLE IF NOT EXISTS goods USING fts5 (name, description)"
PUT = "INSERT INTO goods (rowid, name, description) VALUES (:id, :name, :description)"
SEARCH = "SELECT rowid, name FROM goods WHERE goods MATCH ? ORDER BY rank"


def apply(index: sqlite3.Connection, change: Change) -> None:
    """Bring one change into the index."""
    if change.type == "TRUNCATE":
        index.execute("DELETE FROM goods")
    for row in change.rows():
        for image in (row.before, row.after):  # a row of a snapshot has no `before`, and may be there already
            if image is not None:
                index.execute("DELETE FROM goods WHERE rowid = ?", (image["id"],))
        if row.after is not None:
            index.execute(PUT, row.after)


def follow(index: sqlite3.Connection, client: Client) -> None:
    """Keep the index current."""
    client.subscribe(r"shop\.goods", start="snapshot")
    for batch in client.batches():  # asking for the next one acknowledges this one
        with index:  # a transaction
            for change in batch.changes():
                apply(index, change)


def main() -> None:
    """Search, or follow the changes until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Keep a full-text index of shop.goods, and search it.")
    parser.add_argument("index", help="file of the index")
    parser.add_argument("--search", metavar="WORDS", help="print what matches these words, best first, and end")
    parser.add_argument("--url", default="http://127.0.0.1:11180", help="address of Sluice")
    parser.add_argument("--destination", default="example")
    parser.add_argument("--client", type=int, default=1102, help="id of this client")
    given = parser.parse_args()
    with contextlib.closing(sqlite3.connect(given.index)) as index:
        index.execute(CREATE)
        if given.search:
            for number, name in index.execute(SEARCH, (given.search,)):
                print(number, name)
        else:
            with Client(given.url, given.destination, given.client) as client:
                follow(index, client)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
