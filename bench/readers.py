"""Clients at many places of a log on disk, in a process of its own: `python -m bench.readers '{...}'`.

Rows in bulk are written and taken first. Prints a line when the clients begin to read them again, each from a place of
its own, and goes on until it is killed.
"""

import json
import sys
import threading
from typing import Any

import pymysql

from bench.load import fill
from sluice.client_sdk import Client

FILTER = r"bulk\.t"


def main() -> None:
    """Do what the command line says."""
    task = json.loads(sys.argv[1])
    first = Client(task["url"], task["destination"], 2000)
    first.subscribe(FILTER, "latest")
    with pymysql.connect(**task["account"], autocommit=True) as connection, connection.cursor() as cursor:
        threading.Thread(target=take, args=(first, task), daemon=True).start()
        fill(cursor, task["rows"])
    threading.Event().wait()


def take(first: Client, task: dict[str, Any]) -> None:
    """Take all rows, then let the clients begin."""
    places: list[str] = []
    left = task["rows"]
    for batch in first.stream():
        left -= sum(row.after is not None for row in batch)
        places.append(str(batch.to))
        if left <= 0:
            break
    first.unsubscribe()
    for number in range(task["clients"]):
        client = Client(task["url"], task["destination"], 3000 + number, retry=600)
        client.subscribe(FILTER, places[number * len(places) // task["clients"]])
        threading.Thread(target=read, args=(client,), daemon=True).start()
    sys.stdout.write("begin\n")
    sys.stdout.flush()


def read(client: Client) -> None:
    """Take everything; its rows are not looked at."""
    batch = None
    while True:
        batch = client.get_without_ack(5.0, ack=batch)


if __name__ == "__main__":
    main()
