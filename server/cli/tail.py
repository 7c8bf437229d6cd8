"""``sluice tail``: changes as lines for people, or for programs, as they come."""

import contextlib
import io
import itertools
import os
import random
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from rich.text import Text

from ...protocol.canal.rows import Change, Row, decode_changes
from ...protocol.canal.types import JsonNull
from ...protocol.errors import ConfigError, SluiceError
from ...protocol.formats import FORMATS, PROTOBUF
from ...protocol.formats.rows import sql_time
from ..logging import one_line
from .common import (
    add_command,
    add_destination,
    add_server,
    discard_output,
    interrupt,
    out,
    positive,
    remote_of,
    write_line,
)
from .remote import Remote

CLIENT_IDS = range(30_000, 32_001)
"""One of these that is free is the client id of a tail, so that several can run side by side."""
EXPIRY = 600  # seconds after which the server removes the client of a tail that was killed
WAIT = 10_000  # ms that a call waits for changes
LONGEST_VALUE = 60  # characters of a value that are shown
STYLES = {"INSERT": "green", "UPDATE": "yellow", "DELETE": "red"}


def add_commands(commands: Any) -> None:
    """Add the command to those of the command line."""
    tail = add_command(
        commands,
        "tail",
        tail_command,
        "show changes as they come",
        "Subscribe to a running server under a client id of its own, show changes, and unsubscribe at the end. This\n"
        "does not affect other consumers: each has its own cursor. Changes that no other client has subscribed to\n"
        "are not kept.",
        "sluice tail example",
        r"sluice tail example --filter 'shop\.orders' --from earliest",
        r"sluice tail example --filter 'shop\.orders' --from '2026-11-21 07:30' --csv > orders.csv",
        "sluice tail example --where \"shop.orders: status = 'paid' OR total IS NULL\"",
        "sluice tail example --rows | jq 'select(.type == \"DELETE\").before'",
        "sluice tail example --json --limit 10 | jq .data",
    )
    add_destination(tail)
    tail.add_argument("--filter", default="", metavar="REGEX", help=r"tables to show, such as 'shop\..*'")
    tail.add_argument(
        "--where", default="", metavar="CONDITIONS", help='rows to show, such as "shop.orders: total > 10"'
    )
    tail.add_argument(
        "--from",
        dest="start",
        type=_start,
        default="latest",
        metavar="START",
        help="latest (default); earliest, the oldest stored change; oldest, the oldest change that Sluice or the source"
        " still has; a position; or a time, which is local if it names no zone: '2026-11-21 07:30', 2026-11-21T07:30Z",
    )
    tail.add_argument("--limit", type=positive, metavar="N", help="stop after N rows, messages or statements")
    tail.add_argument(
        "--full", action="store_true", help="do not shorten long values, which happens only on a terminal"
    )
    form = tail.add_mutually_exclusive_group()
    form.add_argument("--transactions", action="store_true", help="also show the begin and end of transactions")
    for it in (it.lines for it in FORMATS if it.lines):
        form.add_argument(f"--{it.flag}", dest="lines", action="store_const", const=it, help=it.help)
    add_server(tail)


def tail_command(options: Any) -> int:
    """Show changes as they come."""
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
        signal.signal(signal.SIGHUP, interrupt)  # its terminal is closed: it unsubscribes then, too
    remote = remote_of(options)
    if options.lines:
        tail = Tail(remote, options.lines.media_type, options.lines.open(), write_line)
    else:
        longest = LONGEST_VALUE if sys.stdout.isatty() and not options.full else None
        lines = partial(described, transactions=options.transactions, longest=longest)
        tail = Tail(remote, PROTOBUF.media_type, lines, out.print)
    _end_with_reader(tail)
    tail.run(
        options.destination, table_filter=options.filter, where=options.where, start=options.start, limit=options.limit
    )
    return 0


def _end_with_reader(tail: "Tail") -> None:
    """End a tail when whoever reads the output has left, as head does, also while there is nothing to write."""
    try:
        output = sys.stdout.fileno()
    except io.UnsupportedOperation:  # it is kept in memory
        return

    def wait() -> None:
        poll = select.poll()
        poll.register(output, 0)  # an error and a hang-up are told nevertheless
        poll.poll()
        os.kill(os.getpid(), signal.SIGUSR1)  # not SIGPIPE, which a lost connection raises, too

    def leave(_number: int, _frame: object) -> None:
        discard_output()
        if not tail.is_ending:
            raise SystemExit(0)

    signal.signal(signal.SIGUSR1, leave)
    threading.Thread(target=wait, daemon=True, name="reader of the output").start()


def _start(text: str) -> str | int:
    """Read where a tail begins: a time becomes ms since 1970, all else is for the server."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return text


class Tail:
    """Shows changes until it is interrupted, or has shown enough."""

    def __init__(
        self,
        remote: Remote,
        media_type: str,
        lines: Callable[[bytes], Iterable[Sequence[Any]]],
        show: Callable[[Any], None],
    ) -> None:
        """``lines`` makes the lines of each entry of a batch, asked for in a media type, and ``show`` prints one."""
        self._remote = remote
        self._media_type = media_type
        self._lines = lines
        self._show = show
        self.is_ending = False
        """It only unsubscribes any more."""

    def run(self, destination: str, *, table_filter: str, where: str, start: str | int, limit: int | None) -> None:
        """Subscribe, show at most ``limit`` lines, unsubscribe; a number as ``start`` is ms since 1970.

        Raises SluiceError.
        """
        client = destination, self._free_id(destination)
        body = {"filter": table_filter, "start": {"timestamp": start} if isinstance(start, int) else start}
        subscribed = False
        try:
            self._remote.client_call(*client, "subscribe", body=body | {"where": where, "expireAfter": EXPIRY})
            subscribed = True
            left = limit
            while left is None or left > 0:
                shown = self._show_batch(client, left)
                left = None if left is None else left - shown
        finally:
            self.is_ending = True
            # An interrupt may come after the server has subscribed the client and before this knows it.
            with contextlib.suppress(*() if subscribed else (SluiceError,)):
                self._remote.client_call(*client, "unsubscribe")

    def _free_id(self, destination: str) -> int:
        """Choose an unused id: subscribing with another client's would take over its place in the stream."""
        clients = self._remote.call("GET", "/v1/destinations", destination)["clients"]
        taken = {client["clientId"] for client in clients}
        free = [it for it in CLIENT_IDS if it not in taken]
        if not free:
            raise ConfigError(
                f"all client ids from {CLIENT_IDS[0]} to {CLIENT_IDS[-1]} are taken: see `sluice clients`"
            )
        return random.choice(free)  # noqa: S311  no secret

    def _show_batch(self, client: tuple[str, int], most: int | None) -> int:
        query = {"timeout": str(WAIT)}
        if most is not None:
            query["maxEntries"] = str(most)
        response = self._remote.client_call(*client, "getWithoutAck", query, accept=self._media_type)
        batch_id = int(response.headers["sluice-batch-id"])
        if batch_id < 0:
            return 0
        shown = 0
        for line in itertools.islice(itertools.chain.from_iterable(self._lines(response.data)), most):
            self._show(line)
            shown += 1
        self._remote.client_call(*client, "ack", body={"batchId": batch_id})
        return shown


def described(body: bytes, **options: Any) -> Iterator[list[Text]]:
    """Write each entry of a batch as lines for people; options are those of `describe`."""
    for change in decode_changes(body):
        yield describe(change, **options)


def describe(change: Change, *, transactions: bool = False, longest: int | None = LONGEST_VALUE) -> list[Text]:
    """Write a change as lines: one for each row, or one for a DDL. Transactions' ends are left out unless wanted.

    Values of more than ``longest`` characters are cut; None: they are whole.
    """
    time = Text(f"{datetime.fromtimestamp(change.execute_time / 1000).astimezone():%Y-%m-%d %H:%M:%S} ", style="dim")
    if change.entry_type == "ROWDATA":
        if change.type == "QUERY" and not change.is_ddl:  # the statement that the rows after it come from
            return [time + Text(f"-- {one_line(change.sql, ' ')}", style="dim")]
        if change.is_ddl or change.sql:
            return [time + Text(f"{change.type} ", style="magenta") + Text(one_line(change.sql, " "))]
        table = Text(f"{one_line(change.schema)}.{one_line(change.table)} ", style="bold") + _describe_xa(change)
        return [time + table + _describe_row(row, longest) for row in change.rows()]
    if transactions:
        word = {"TRANSACTIONBEGIN": "BEGIN", "TRANSACTIONEND": "COMMIT"}.get(change.entry_type, change.entry_type)
        end = Text(f"{word} {change.gtid or change.transaction_id}".rstrip() + " ", style="dim") + _describe_xa(change)
        end.rstrip()
        return [time + end]
    return []


def _describe_xa(change: Change) -> Text:
    """Say to which XA transaction a change belongs; nothing of one that belongs to none."""
    return Text() if change.xa is None else Text(f"XA {one_line(str(change.xa))} ", style="magenta")


def _describe_row(row: Row, longest: int | None) -> Text:
    text = Text(f"{row.type} ", style=STYLES.get(row.type, ""))
    before = {one_line(name): _value(value, longest) for name, value in (row.before or {}).items()}
    after = {one_line(name): _value(value, longest) for name, value in (row.after or {}).items()}
    if row.type != "UPDATE":
        return text + Text(", ".join(f"{name}={value}" for name, value in (after or before).items()))
    parts = [f"{one_line(name)}={_value(value, longest)}" for name, value in row.key.items()]
    names = map(one_line, row.changed)
    parts += [f"{name}: {before.get(name, 'NULL')} → {after.get(name, 'NULL')}" for name in names]
    return text + Text(", ".join(parts))


def _value(value: Any, longest: int | None) -> str:
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
        case timedelta():
            text = sql_time(value)
        case _:
            text = str(value)
    return text if longest is None or len(text) <= longest else text[: longest - 1] + "…"
