"""The commands about the clients of a running server."""

import contextlib
import json
import time
from datetime import datetime, timedelta
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from ...protocol.errors import ConfigError
from ..wording import counted
from .common import NO, add_client, add_command, add_server, amount, out, remote_of
from .remote import Remote
from .status import lag_of, show_all, show_pump, summarize

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
        "list the clients and when they were last seen",
        "List the clients with the time of their last call. The server does not store calls: a client that has made\n"
        "none since the destination started on this server shows the time of that start. An abandoned client keeps\n"
        "its position in the stream until sluice unsubscribe removes it.",
        "sluice clients",
        "sluice clients example",
    )
    clients.add_argument(
        "destination", nargs="?", metavar="DESTINATION", help="list only the clients of this one (default: all)"
    )
    add_server(clients)

    unsubscribe = add_command(
        commands,
        "unsubscribe",
        unsubscribe_command,
        "remove a client and its cursor",
        "Remove a client. Changes that it has not acknowledged are not delivered again. A new subscription does not\n"
        "resume at the old position.",
        "sluice unsubscribe example 1001",
    )
    add_client(unsubscribe)
    add_server(unsubscribe)

    status = add_command(
        commands,
        "status",
        status_command,
        "show the state of destinations and clients",
        "Show the destinations of a running server, their clients, cursors, outstanding batches and lag, and its\n"
        "pump for TiDB. The first line is a summary. The next lines name the problems. More than three destinations\n"
        "have one line each, the slowest first; name one to see its details. The exit status is 1 when changes are\n"
        "not delivered, or will be lost.",
        "sluice status",
        "sluice status --problems --watch",
        "sluice status example --json",
    )
    status.add_argument("destination", nargs="?", metavar="DESTINATION", help="show only this one (default: all)")
    form = status.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the JSON that the API returns of destinations")
    form.add_argument("--watch", action="store_true", help=f"repeat every {WATCHED:.0f} s, until Ctrl-C")
    status.add_argument("--problems", action="store_true", help="show only destinations with problems")
    add_server(status)

    protect = add_command(
        commands,
        "protect",
        protect_command,
        "make the log retain what a client needs",
        "Make the log on disk retain all changes that a client has not acknowledged, beyond its limits of bytes and\n"
        "age. When the disk runs short of its free space, the destination stops reading the source until the client\n"
        "has caught up. sluice status shows how much each protected client retains.",
        "sluice protect example 1001",
        "sluice protect example 1001 --off",
    )
    add_client(protect)
    protect.add_argument("--off", action="store_true", help="stop protecting the client")
    add_server(protect)
    _add_limit_command(commands)


def _add_limit_command(commands: Any) -> None:
    limit = add_command(
        commands,
        "limit",
        limit_command,
        "limit how much a client gets",
        "Limit how many bytes a second, or a day, a client gets. 0 stands for any number, and default for what the\n"
        "configuration says (sluice.client.maxRate, sluice.client.quota). An option that is missing changes nothing.\n"
        "A client above its rate waits. A client that has used up its quota gets an error until midnight in UTC.",
        "sluice limit example 1001 --max-rate 1048576",
        "sluice limit example 1001 --quota 10737418240 --max-rate default",
    )
    add_client(limit)
    limit.add_argument("--max-rate", type=_limit, metavar="BYTES", help="bytes a second, 0, or default")
    limit.add_argument("--quota", type=_limit, metavar="BYTES", help="bytes a day, 0, or default")
    add_server(limit)


def _add_commands_about_batches(commands: Any) -> None:
    ack = add_command(
        commands,
        "ack",
        ack_command,
        "acknowledge batches of a client",
        "Acknowledge a batch, or everything before a position, for a client whose consumer cannot. Acknowledged\n"
        "changes are never delivered again.",
        "sluice ack example 1001 --batch 3000000007",
        "sluice ack example 1001 --position 1/mysql-bin.000003@1767225600:4096:0",
    )
    add_client(ack)
    what = ack.add_mutually_exclusive_group(required=True)
    what.add_argument("--batch", type=int, metavar="ID", help="the oldest outstanding batch, as sluice status shows it")
    what.add_argument("--position", metavar="POSITION", help="acknowledge everything before this position")
    add_server(ack)

    rollback = add_command(
        commands,
        "rollback",
        rollback_command,
        "redeliver the outstanding batches of a client",
        "Forget the outstanding batches of a client. Their changes are delivered again, in the same order.",
        "sluice rollback example 1001",
    )
    add_client(rollback)
    rollback.add_argument(
        "--batch", type=int, metavar="ID", help="roll back only this batch, the oldest outstanding one"
    )
    add_server(rollback)

    seek = add_command(
        commands,
        "seek",
        seek_command,
        "move the cursor of a client",
        "Move the cursor of a client forward or back, and forget its outstanding batches. Going forward skips the\n"
        "changes in between; going back delivers them again. Stop the consumer first. If the client is an output,\n"
        "the cursor overrides the position that Kafka has stored for it.",
        "sluice seek example 1001 earliest",
        "sluice seek example 1001 1/mysql-bin.000003@1767225600:4096:0",
        "sluice seek example 1001 mysql-bin.000003:4096",
        "sluice seek example 1001 2026-01-31T12:00",
    )
    add_client(seek)
    seek.add_argument(
        "place",
        metavar="PLACE",
        help="a position; FILE:OFFSET or a GTID set of the source; a time (2026-01-31T12:00); earliest: the oldest"
        " stored change; oldest: the oldest change that Sluice or the source still has; or latest",
    )
    add_server(seek)

    skip = add_command(
        commands,
        "skip",
        skip_command,
        "skip a transaction that cannot be delivered",
        "Skip the next transaction of a client, without delivering it. Use it for an output whose target refuses a\n"
        "change. The position must be inside that transaction; the error of the output shows it.",
        "sluice skip example 1001 1/mysql-bin.000003@1767225600:4096:2",
    )
    add_client(skip)
    skip.add_argument("position", metavar="POSITION", help="position of the change that cannot be delivered")
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
                lag_of(client),
                Text(" where ".join(filter(None, (client["filter"], client["where"])))),
            )
    out.print(table if table.row_count else "no client")
    return 0


def _last_call(client: dict[str, Any]) -> str:
    since = timedelta(seconds=round(client["idle"]))
    return f"{since} ago" if client["called"] else f"none since the start, {since} ago"


def unsubscribe_command(options: Any) -> int:
    """Remove a client and its cursor."""
    move = remote_of(options).client_call(options.destination, options.client, "unsubscribe").json()["passedOver"]
    out.print(f"client {options.client} and its cursor are gone")
    if move["rows"] != 0:
        rows = "an unknown number of rows" if move["rows"] is None else counted(move["rows"], "row")
        out.print(Text(f"it was at {move['before'] or 'an unknown place'}, and had not acknowledged {rows}"))
    return 0


def protect_command(options: Any) -> int:
    """Let the log keep what a client needs, or no longer."""
    remote_of(options).client_call(options.destination, options.client, "protect", {}, {"protect": not options.off})
    what = "keeps only what its limits allow" if options.off else "keeps what it needs"
    out.print(f"client {options.client}: the log {what}")
    return 0


def _limit(text: str) -> int | Literal["default"]:
    """Read a limit of a client of the command line."""
    return "default" if text == "default" else amount(text)


def limit_command(options: Any) -> int:
    """Limit how much a client gets."""
    given = {"maxRate": options.max_rate, "quota": options.quota}
    body = {name: None if it == "default" else it for name, it in given.items() if it is not None}
    if not body:
        raise ConfigError("nothing to change: give --max-rate, --quota, or both")
    view = remote_of(options).client_call(options.destination, options.client, "limit", {}, body).json()
    rate = f"{view['maxRate']} bytes/s" if view["maxRate"] else "any number of bytes a second"
    quota = f"{view['quota']} bytes a day" if view["quota"] else "any number of bytes a day"
    out.print(f"client {options.client} gets at most {rate}, {quota}")
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
    pumps = [] if options.destination else remote.call("GET", "/v1/pumps")
    summary = summarize(destinations, pumps)
    if options.json:
        print(json.dumps(found or destinations, indent=2))
        return NO if summary.is_wrong else 0
    if options.watch:
        out.clear()
    summary.show(out)
    show_all(out, [it for it in destinations if it["conditions"] or not options.problems])
    for pump in pumps:
        if pump["conditions"] or not options.problems:
            show_pump(out, pump)
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
    out.print(Text(f"skipped: client {options.client} resumes at {view['position']}"))
    if view["passedOver"] is not None:
        out.print(Text(f"passed over: {view['passedOver']['text']}"))
    _retry_outputs(remote, options)
    return 0


def seek_command(options: Any) -> int:
    """Move the cursor of a client."""
    remote, start = remote_of(options), options.place
    with contextlib.suppress(ValueError):  # else it is no time
        start = {"timestamp": int(datetime.fromisoformat(start).astimezone().timestamp() * 1000)}
    view = remote.client_call(options.destination, options.client, "seek", {}, {"start": start}).json()
    out.print(Text(f"client {options.client} resumes at {view['position'] or options.place}"))
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
