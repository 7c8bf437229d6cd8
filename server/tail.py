"""Changes as lines for people, or as Canal's FlatMessages."""

import random
import sys
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from sluice.protocol.rows import Change, Row, decode_changes
from sluice.protocol.types import JsonNull
from sluice.server.logging import one_line
from sluice.server.remote import Remote

CLIENT_IDS = range(30_000, 1 << 15)
"""One of these, at random, is the client id of a tail, so that several can run side by side."""
WAIT = 10_000  # ms that a call waits for changes
LONGEST_VALUE = 60  # characters of a value that are shown
STYLES = {"INSERT": "green", "UPDATE": "yellow", "DELETE": "red"}


class Tail:
    """Shows changes until it is interrupted, or has shown enough."""

    def __init__(self, remote: Remote, console: Console, *, as_json: bool, transactions: bool) -> None:
        self._remote = remote
        self._console = console
        self._as_json = as_json
        self._transactions = transactions

    def run(self, destination: str, *, table_filter: str, start: str, limit: int | None) -> None:
        """Subscribe, show at most ``limit`` entries, unsubscribe. Raises SluiceError."""
        client = destination, random.choice(CLIENT_IDS)  # noqa: S311  no secret
        self._remote.client_call(*client, "subscribe", body={"filter": table_filter, "start": start})
        try:
            left = limit
            while left is None or left > 0:
                shown = self._show_batch(client, left)
                left = None if left is None else left - shown
        finally:
            self._remote.client_call(*client, "unsubscribe")

    def _show_batch(self, client: tuple[str, int], most: int | None) -> int:
        query = {"timeout": str(WAIT)}
        if most is not None:
            query["maxEntries"] = str(most)
        accept = "application/x-ndjson" if self._as_json else "application/x-protobuf"
        response = self._remote.client_call(*client, "getWithoutAck", query, accept=accept)
        batch_id = int(response.headers["sluice-batch-id"])
        if batch_id < 0:
            return 0
        shown = self._show_json(response.data) if self._as_json else self._show_changes(response.data)
        self._remote.client_call(*client, "ack", body={"batchId": batch_id})
        return shown

    def _show_json(self, data: bytes) -> int:
        *messages, _summary = data.decode().splitlines()
        sys.stdout.write("".join(message + "\n" for message in messages))
        sys.stdout.flush()
        return len(messages)

    def _show_changes(self, data: bytes) -> int:
        shown = 0
        for change in decode_changes(data):
            lines = describe(change, transactions=self._transactions)
            for line in lines:
                self._console.print(line)
            shown += bool(lines)
        return shown


def describe(change: Change, *, transactions: bool = False) -> list[Text]:
    """Write a change as lines: one for each row, or one for a DDL. Transactions' ends are left out unless wanted."""
    time = Text(f"{datetime.fromtimestamp(change.execute_time / 1000).astimezone():%Y-%m-%d %H:%M:%S} ", style="dim")
    if change.entry_type == "ROWDATA":
        if change.type == "QUERY" and not change.is_ddl:  # the statement that the rows after it come from
            return [time + Text(f"-- {one_line(change.sql, ' ')}", style="dim")]
        if change.is_ddl or change.sql:
            return [time + Text(f"{change.type} ", style="magenta") + Text(one_line(change.sql, " "))]
        table = Text(f"{one_line(change.schema)}.{one_line(change.table)} ", style="bold") + _describe_xa(change)
        return [time + table + _describe_row(row) for row in change.rows()]
    if transactions:
        word = {"TRANSACTIONBEGIN": "BEGIN", "TRANSACTIONEND": "COMMIT"}.get(change.entry_type, change.entry_type)
        if word == "COMMIT" and change.xa is not None and change.xa.state == "prepared":
            word = "PREPARE"
        end = Text(f"{word} {change.gtid or change.transaction_id}".rstrip() + " ", style="dim") + _describe_xa(change)
        end.rstrip()
        return [time + end]
    return []


def _describe_xa(change: Change) -> Text:
    """Say to which XA transaction a change belongs; nothing of one that belongs to none."""
    return Text() if change.xa is None else Text(f"XA {one_line(str(change.xa))} ", style="magenta")


def _describe_row(row: Row) -> Text:
    text = Text(f"{row.type} ", style=STYLES.get(row.type, ""))
    before, after = row.before or {}, row.after or {}
    if row.type != "UPDATE":
        return text + Text(", ".join(f"{one_line(name)}={_value(value)}" for name, value in (after or before).items()))
    parts = [f"{one_line(name)}={_value(value)}" for name, value in row.key.items()]
    parts += [f"{one_line(name)}: {_value(before.get(name))} → {_value(after.get(name))}" for name in row.changed]
    return text + Text(", ".join(parts))


def _value(value: Any) -> str:
    match value:
        case None:
            text = "NULL"
        case JsonNull():
            text = "null"
        case str():
            text = repr(value)
        case bytes():
            text = f"0x{value.hex()}" if value else "0x"
        case frozenset() | set():
            text = "{" + ",".join(sorted(map(str, value))) + "}"
        case _:
            text = str(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
