"""A load in bulk, in a process of its own: `python -m bench.load '{...}'` inserts rows until it is killed.

A thread takes them from the server meanwhile. Prints a line when the first rows have come.
"""

import json
import sys
import threading

import pymysql

from bench.workloads import SYSBENCH
from sluice.client_sdk import Client

STATEMENT = 1000  # rows


def main() -> None:
    """Do what the command line says."""
    task = json.loads(sys.argv[1])
    client = Client(task["url"], task["destination"])
    client.subscribe("", "latest")
    threading.Thread(target=take, args=(client,), daemon=True).start()
    with pymysql.connect(**task["account"], autocommit=True) as connection, connection.cursor() as cursor:
        while True:
            fill(cursor, task["rows"])


def fill(cursor: "pymysql.cursors.Cursor", rows: int) -> None:
    """Make the table anew, and insert rows."""
    cursor.execute("CREATE DATABASE IF NOT EXISTS bulk")
    cursor.execute("DROP TABLE IF EXISTS bulk.t")
    cursor.execute(f"CREATE TABLE bulk.t ({SYSBENCH})")
    tail = "7, REPEAT('01234567890-', 10), REPEAT('abcdefghij-', 5)"
    for first in range(0, rows, STATEMENT):
        values = ", ".join(f"({number}, {tail})" for number in range(first, first + STATEMENT))
        cursor.execute(f"INSERT INTO bulk.t VALUES {values}")


def take(client: Client) -> None:
    """Take what comes, and tell of the first."""
    told = False
    for batch in client.stream():
        if batch and not told:
            told = True
            sys.stdout.write("begin\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
