"""The commands about the clients of a running server."""

import contextlib
import json
import time
from datetime import datetime, timedelta
from typing import Any

from rich.table import Table
from rich.text import Text

from ..wording import duration
from .common import NO, add_client, add_command, add_server, out, remote_of
from .remote import Remote
from .status import show_all, summarize

WATCHED = 2.0
"""Seconds between two looks of `sluice status --watch`."""


def add_commands(commands: Any) -> None:
    """Add the commands to those of the command line."""
    _add_commands_about_clients(commands)
    _add_commands_about_batches(commands)


def _add_commands_about_clients(commands: Any) -> None:
    clients = add_command(
        commands,
        "clients",
        clients_command,
        "list the clients and when they were last heard of",
        "An abandoned client keeps its place in the stream: sluice unsubscribe removes it. Calls are not stored: of a\n"
        "client that has made none since the destination was started on this server, that start is shown.",
        "sluice clients",
        "sluice clients example",
    )
    clients.add_argument("destination", nargs="?", metavar="DESTINATION", help="of this one; of all when not given")
    add_server(clients)

    unsubscribe = add_command(
        commands,
        "unsubscribe",
        unsubscribe_command,
        "remove a client and its cursor",
        "What the client had not acknowledged is not delivered again. A new subscription begins at another place.",
        "sluice unsubscribe example 1001",
    )
    add_client(unsubscribe)
    add_server(unsubscribe)

    status = add_command(
        commands,
        "status",
        status_command,
        "show destinations and where clients stand",
        "Show the destinations of a running server, their clients, cursors, outstanding batches and lag. The first\n"
        "line sums them up, the next ones name what needs attention. Of more than three destinations each has a line,\n"
        "the slowest first; name one to see all of it. The exit status is 1 when something is wrong: changes are not\n"
        "delivered, or will be lost.",
        "sluice status",
        "sluice status --problems --watch",
        "sluice status example --json",
    )
    status.add_argument("destination", nargs="?", metavar="DESTINATION", help="only this one")
    form = status.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as the API says it")
    form.add_argument("--watch", action="store_true", help=f"show it again each {WATCHED:.0f} s, until Ctrl-C")
    status.add_argument("--problems", action="store_true", help="only destinations that need attention")
    add_server(status)

    protect = add_command(
        commands,
        "protect",
        protect_command,
        "let the log keep what a client needs",
        "Let the log on disk keep what a client has not acknowledged, whatever its limits of bytes and age. What has\n"
        "to stay free on the disk ranks above that: then the source waits for the client. sluice status shows what\n"
        "each such client holds.",
        "sluice protect example 1001",
        "sluice protect example 1001 --off",
    )
    add_client(protect)
    protect.add_argument("--off", action="store_true", help="no longer")
    add_server(protect)


def _add_commands_about_batches(commands: Any) -> None:
    ack = add_command(
        commands,
        "ack",
        ack_command,
        "acknowledge batches of a client",
        "Acknowledge for a client whose consumer cannot: a batch, or everything up to a position. What is\n"
        "acknowledged is never delivered again.",
        "sluice ack example 1001 --batch 3000000007",
        "sluice ack example 1001 --position 1/mysql-bin.000003@1767225600:4096:0",
    )
    add_client(ack)
    what = ack.add_mutually_exclusive_group(required=True)
    what.add_argument("--batch", type=int, metavar="ID", help="the oldest outstanding batch, as sluice status shows it")
    what.add_argument("--position", metavar="POSITION", help="everything before this position")
    add_server(ack)

    rollback = add_command(
        commands,
        "rollback",
        rollback_command,
        "have unacknowledged batches of a client delivered again",
        "Forget the outstanding batches of a client: what is in them is delivered again, in the same order.",
        "sluice rollback example 1001",
    )
    add_client(rollback)
    rollback.add_argument("--batch", type=int, metavar="ID", help="only this batch, the oldest outstanding one")
    add_server(rollback)

    seek = add_command(
        commands,
        "seek",
        seek_command,
        "move the cursor of a client",
        "Move the cursor of a client to a place, forward or back, and forget its outstanding batches: what is between\n"
        "is not delivered, or is delivered again. Stop its consumer before. The cursor of an output wins over the\n"
        "place that Kafka has of it.",
        "sluice seek example 1001 earliest",
        "sluice seek example 1001 1/mysql-bin.000003@1767225600:4096:0",
        "sluice seek example 1001 mysql-bin.000003:4096",
        "sluice seek example 1001 2026-01-31T12:00",
    )
    add_client(seek)
    seek.add_argument(
        "place",
        metavar="PLACE",
        help="a position, FILE:OFFSET or a GTID set of the source, a time (2026-01-31T12:00), earliest (of what is"
        " stored), oldest (that the source has, too), or latest",
    )
    add_server(seek)

    skip = add_command(
        commands,
        "skip",
        skip_command,
        "skip a transaction that a client cannot take",
        "Confirm the one transaction that a client gets next, without delivering it: for an output that stands still\n"
        "at a change that the other side refuses. The position has to lie in that transaction, as the error says it.",
        "sluice skip example 1001 1/mysql-bin.000003@1767225600:4096:2",
    )
    add_client(skip)
    skip.add_argument("position", metavar="POSITION", help="of the change that cannot be delivered")
    add_server(skip)


def clients_command(options: Any) -> int:
    """List the clients of destinations."""
    remote = remote_of(options)
    found = remote.call("GET", "/v1/destinations", options.destination) if options.destination else None
    table = Table("destination", "client", "state", "last call", "behind", "filter", box=None, header_style="bold")
    for destination in [found] if found else remote.call("GET", "/v1/destinations"):
        for client in destination["clients"]:
            table.add_row(
                Text(destination["destination"]),
                str(client["clientId"]),
                client["state"],
                _last_call(client),
                duration(client["lag"]["seconds"], 1),
                Text(" where ".join(filter(None, (client["filter"], client["where"])))),
            )
    out.print(table if table.row_count else "no client")
    return 0


def _last_call(client: dict[str, Any]) -> str:
    since = timedelta(seconds=round(client["idle"]))
    return f"{since} ago" if client["called"] else f"none since the start, {since} ago"


def unsubscribe_command(options: Any) -> int:
    """Remove a client and its cursor."""
    remote = remote_of(options)
    clients = remote.call("GET", "/v1/destinations", options.destination)["clients"]
    remote.client_call(options.destination, options.client, "unsubscribe")
    out.print(f"client {options.client} and its cursor are gone")
    for client in clients:
        if client["clientId"] == options.client and client["lag"]["rows"]:
            rows = f"{client['lag']['rows']} rows that are stored"
            out.print(Text(f"it was at {client['position']}, and had not acknowledged {rows}"))
    return 0


def protect_command(options: Any) -> int:
    """Let the log keep what a client needs, or no longer."""
    remote_of(options).client_call(options.destination, options.client, "protect", {}, {"protect": not options.off})
    what = "keeps only what its limits allow" if options.off else "keeps what it needs"
    out.print(f"client {options.client}: the log {what}")
    return 0


def status_command(options: Any) -> int:
    """Show where destinations and clients stand, once or again and again."""
    remote = remote_of(options)
    while options.watch:
        _show_status(remote, options)
        time.sleep(WATCHED)
    return _show_status(remote, options)


def _show_status(remote: Remote, options: Any) -> int:
    found = remote.call("GET", "/v1/destinations", options.destination) if options.destination else None
    destinations = [found] if found else remote.call("GET", "/v1/destinations")
    summary = summarize(destinations)
    if options.json:
        print(json.dumps(found or destinations, indent=2))
        return NO if summary.is_wrong else 0
    if options.watch:
        out.clear()
    summary.show(out)
    show_all(out, [it for it in destinations if it["conditions"] or not options.problems])
    return NO if summary.is_wrong else 0


def ack_command(options: Any) -> int:
    """Acknowledge for a client."""
    what = {"batchId": options.batch} if options.batch is not None else {"position": options.position}
    body = {"operator": True, **what}
    remote_of(options).client_call(options.destination, options.client, "ack", {"durable": "true"}, body)
    out.print(Text(f"acknowledged {options.batch or options.position}"))
    return 0


def rollback_command(options: Any) -> int:
    """Have batches of a client delivered again."""
    body = {} if options.batch is None else {"batchId": options.batch}
    remote_of(options).client_call(options.destination, options.client, "rollback", {}, body)
    out.print("rolled back")
    return 0


def skip_command(options: Any) -> int:
    """Skip a transaction."""
    remote = remote_of(options)
    view = remote.client_call(options.destination, options.client, "skip", {}, {"position": options.position}).json()
    out.print(Text(f"skipped: client {options.client} goes on at {view['position']}"))
    _retry_outputs(remote, options)
    return 0


def seek_command(options: Any) -> int:
    """Move the cursor of a client."""
    remote, start = remote_of(options), options.place
    with contextlib.suppress(ValueError):  # else it is no time
        start = {"timestamp": int(datetime.fromisoformat(start).astimezone().timestamp() * 1000)}
    view = remote.client_call(options.destination, options.client, "seek", {}, {"start": start}).json()
    out.print(Text(f"client {options.client} goes on at {view['position'] or options.place}"))
    if (move := view["passedOver"]) is not None:
        out.print(Text(f"passed over: {move['text']}"))
        if move["held"] and move["before"]:
            undo = f"sluice seek {options.destination} {options.client} {move['before']}"
            out.print(Text(f"the place that it left is still there: {undo}"))
    for name in _retry_outputs(remote, options):
        out.print(Text(f"it is the output {name}: the cursor wins over the place that Kafka has of it"))
    return 0


def _retry_outputs(remote: Remote, options: Any) -> list[str]:
    """Have the output that a client is try again now; return its name."""
    outputs = remote.call("GET", "/v1/destinations", options.destination)["outputs"]
    found = [output["name"] for output in outputs if output["clientId"] == options.client]
    if found:
        remote.call("POST", "/v1/destinations", options.destination, "start")
    return found
