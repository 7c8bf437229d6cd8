"""Run the demo; the exit status says whether everything written was delivered.

SLUICE_MYSQL=user:password@host:port shows the changes of that server instead, and writes nothing.
SLUICE_DEMO_SECONDS is how long it runs (20).
"""

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from scripts.demo.replica import Replica, checksum
from scripts.demo.traffic import SCHEMA, TABLES, Traffic
from scripts.serving import serving
from sluice.client_sdk import Client
from sluice.protocol.canal.rows import Change, Row
from sluice.server.cli.tail import describe
from tests.servers import Server

DESTINATION = "demo"
CLIENT = 1001
SHOWN = 3
"""Rows of one statement that are shown."""
DSN = re.compile(r"(?P<user>[^:@]+):(?P<password>.*)@(?P<host>[^@]+?):(?P<port>\d+)")

console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
stop = threading.Event()


def explain(url: str, what: str) -> None:
    """Say where the API is, and what to try meanwhile."""
    client = f"{url}/v1/destinations/{DESTINATION}/clients/1002"
    console.print(f"[bold]{what}[/]\n\nAPI: {url}  (all calls: {url}/docs). Try meanwhile:\n")
    for line in (
        f"curl -X POST {client}/subscribe",
        f"curl -X POST '{client}/getWithoutAck?timeout=1000'",
        f"curl {url}/v1/destinations/{DESTINATION}",
    ):
        console.print(f"  {line}", soft_wrap=True, markup=False)
    console.print()


def show(change: Change) -> None:
    """Print a change as `sluice tail` does, and of one that has many rows the first."""
    if change.type == "QUERY" and not change.is_ddl:
        return  # the text of the statement whose rows follow
    lines = describe(change)
    for line in lines[:SHOWN]:
        console.print(line, no_wrap=True, overflow="ellipsis")
    if len(lines) > SHOWN:
        console.print(f"[dim]{'':20}… and {len(lines) - SHOWN} more rows of this statement[/]")


def consume(client: Client, replica: Replica, finished: Callable[[], bool]) -> None:
    """Show, and apply to the replica, what arrives until `finished`."""
    while not finished():
        batch = client.get_without_ack(timeout=0.2)
        if batch.batch_id == -1:
            continue
        changes = batch.changes()
        for change in changes:
            show(change)
            for row in change.rows():
                replica.apply(row)
        client.ack(batch.batch_id)


def prove(server: Server, traffic: Traffic, replica: Replica) -> bool:
    """Compare what was written with what was delivered, table by table, and print it."""
    table = Table("table", "rows written", "rows delivered", "checksum of the source", "of the delivered copy", "")
    correct = True
    for name in TABLES:
        columns = [column for column, *_ in server.query(f"SHOW COLUMNS FROM {SCHEMA}.`{name}`")]
        selected = [dict(zip(columns, row, strict=True)) for row in server.query(f"SELECT * FROM {SCHEMA}.`{name}`")]
        source, copy = checksum(selected, columns), checksum(replica.tables[name].values(), columns)
        equal = source == copy and traffic.rows[name] == replica.rows[name]
        correct = correct and equal
        verdict = "[green]equal[/]" if equal else "[red]DIFFERENT[/]"
        table.add_row(name, str(traffic.rows[name]), str(replica.rows[name]), source, copy, verdict)
    console.print(table)
    written, delivered = traffic.rows.total(), replica.rows.total()
    console.print(
        f"{'[green]PROOF[/]' if correct else '[red]NO PROOF[/]'}  {traffic.transactions} transactions,"
        f" rows written {written} {'=' if written == delivered else '≠'} rows delivered {delivered},"
        f" checksums {'equal' if correct else 'NOT equal'}"
    )
    return correct


def embedded(seconds: float) -> bool:
    """The whole path on a MariaDB of our own."""
    console.print("starting a private MariaDB")
    with Server("mariadb118", ["--binlog-row-metadata=FULL"]) as server:
        address = f"{server.host}:{server.port}"
        with serving(DESTINATION, address, server.user, server.password, rf"filter.regex = {SCHEMA}\\..*") as url:
            explain(url, f"MariaDB on {address}, traffic for {seconds:.0f} s (Ctrl-C ends it earlier)")
            client = Client(url, DESTINATION, CLIENT)
            client.subscribe()
            traffic, replica = Traffic(server.connect), Replica()
            deadline = time.monotonic() + seconds
            traffic.start()
            try:
                consume(client, replica, lambda: stop.is_set() or time.monotonic() > deadline)
            finally:
                traffic.stop()
            deadline = time.monotonic() + 30
            consume(client, replica, lambda: replica.rows == traffic.rows or time.monotonic() > deadline)
            return prove(server, traffic, replica)


def attached(dsn: str, seconds: float) -> bool:
    """Show the changes of a server that is there already."""
    match = DSN.fullmatch(dsn)
    if match is None:
        sys.exit("SLUICE_MYSQL has to be user:password@host:port")
    address = f"{match['host']}:{match['port']}"
    with serving(DESTINATION, address, match["user"], match["password"]) as url:
        explain(url, f"changes on {address} for {seconds:.0f} s; nothing is written there")
        client = Client(url, DESTINATION, CLIENT)
        client.subscribe()
        deadline = time.monotonic() + seconds
        shown = Counting()
        consume(client, shown, lambda: stop.is_set() or time.monotonic() > deadline)
    console.print(f"{shown.rows.total()} rows delivered")
    return True


class Counting(Replica):
    """Only counts: of tables whose beginning was not seen no copy can be made."""

    def apply(self, row: Row) -> None:
        """Count a row."""
        self.rows[row.table] += 1


if __name__ == "__main__":
    for number in signal.SIGINT, signal.SIGTERM:
        signal.signal(number, lambda *_: stop.set())
    seconds = float(os.environ.get("SLUICE_DEMO_SECONDS", "20"))
    dsn = os.environ.get("SLUICE_MYSQL")
    sys.exit(0 if (attached(dsn, seconds) if dsn else embedded(seconds)) else 1)
