"""``sluice snapshot``: tables as they are now, for a client, among its changes."""

import argparse
import time
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from rich.text import Text

from ...protocol.errors import SourceError
from ..wording import counted, duration
from .common import QUIET, add_client, add_command, add_server, log, out, positive, remote_of
from .remote import Remote

GLANCE = 0.5  # seconds between two looks at how far a snapshot is


def add_commands(commands: Any) -> None:
    """Add the command to those of the command line."""
    snapshot = add_command(
        commands,
        "snapshot",
        snapshot_command,
        "give a client the current rows of tables",
        "Give a client the current rows of tables, between its changes and without a lock. Its consumer has to run.\n"
        "The command shows the progress until the client has acked all rows. Ctrl-C stops the progress display, not\n"
        "the snapshot. Without a TABLE, list the snapshots of the client.",
        "sluice snapshot example 1001 shop.orders shop.items",
        r"sluice snapshot example 1001 'shop\..*' --where 'shop.orders: id BETWEEN 1 AND 999' --rate 5000",
        "sluice snapshot example 1001",
        "sluice snapshot example 1001 --watch 3000000001",
        "sluice snapshot example 1001 --cancel 3000000001",
    )
    add_client(snapshot)
    snapshot.add_argument(
        "tables", nargs="*", metavar="TABLE", help="schema.table, or a regular expression in Canal's syntax for several"
    )
    snapshot.add_argument(
        "--where",
        action="append",
        type=_condition,
        default=[],
        metavar="'TABLE: CONDITION'",
        help="copy only the rows of schema.table that match (may be repeated, for other tables)",
    )
    snapshot.add_argument(
        "--rate", type=positive, default=0, metavar="N", help="maximum number of rows to read per second"
    )
    snapshot.add_argument(
        "--member", default="", metavar="NAME", help="of a group: copy the tables of this member only"
    )
    one = snapshot.add_mutually_exclusive_group()
    one.add_argument("--watch", type=positive, metavar="ID", help="show the progress of a snapshot until it ends")
    one.add_argument("--pause", type=positive, metavar="ID", help="pause a snapshot")
    one.add_argument("--resume", type=positive, metavar="ID", help="resume a snapshot after the last acked row")
    one.add_argument("--cancel", type=positive, metavar="ID", help="cancel a snapshot")
    add_server(snapshot)
    snapshot.set_defaults(refuse=snapshot.error)


def snapshot_command(options: Any) -> int:
    """Begin a snapshot and watch it, or do what the options say."""
    remote = remote_of(options)
    path = f"/v1/destinations/{quote(options.destination, safe='')}/clients/{options.client}/snapshots"
    snapshot_id = options.watch or options.pause or options.resume or options.cancel
    if snapshot_id and options.tables:
        options.refuse("name TABLEs to begin a snapshot, or the ID of one that was begun, not both")
    if (options.where or options.rate or options.member) and not options.tables:
        options.refuse("--where, --rate and --member are for a snapshot that begins: name its TABLEs")
    if len(dict(options.where)) < len(options.where):
        options.refuse("a table has one --where: join its conditions by AND or OR")
    if options.tables:
        body = {"tables": ",".join(options.tables), "where": dict(options.where), "maxRowsPerSecond": options.rate}
        body |= {"member": options.member} if options.member else {}  # a server of an earlier version knows no groups
        snapshot_id = remote.request("POST", path, body=body).json()["id"]
        log.print(Text(f"snapshot {snapshot_id} has begun"))
    elif options.pause:
        remote.request("POST", f"{path}/{snapshot_id}/pause")
        out.print(f"paused: sluice snapshot {options.destination} {options.client} --resume {snapshot_id} goes on")
        return 0
    elif options.cancel:
        remote.request("DELETE", f"{path}/{snapshot_id}")
        out.print(f"snapshot {snapshot_id} is cancelled")
        return 0
    elif options.resume:
        remote.request("POST", f"{path}/{snapshot_id}/resume")
        out.print(f"snapshot {snapshot_id} goes on")
        return 0
    elif not options.watch:
        for view in (found := remote.request("GET", path).json()):
            out.print(Text(f"{view['id']} {view['state']}: {described(view)}{waiting(remote, path, view)}"))
        if not found:
            out.print("no snapshot")
        return 0
    try:
        view = _watch(remote, path, str(snapshot_id))
    except (KeyboardInterrupt, SourceError):
        begin = f"sluice snapshot {options.destination} {options.client}"
        log.print(
            Text(f"the snapshot continues: {begin} --watch {snapshot_id} shows it, --cancel {snapshot_id} ends it")
        )
        raise
    out.print(Text(f"done: {described(view)}"))
    return 0


def described(view: dict[str, Any]) -> str:
    """Say how far a snapshot is, as the API tells it."""
    tables = view["tables"]
    if view["state"] == "done":
        return (
            f"{counted(view['rows'], 'row')} of {tables[0]['table'] if len(tables) == 1 else f'{len(tables)} tables'}"
        )
    number, table = next((n, it["table"]) for n, it in enumerate(tables, 1) if it["state"] != "done")
    place = f" ({number} of {len(tables)})" if len(tables) > 1 else ""
    said = [f"{table}{place}", f"{view['rows']} of about {counted(view['expected'], 'row')}"]
    if view["state"] == "paused":
        said.append("paused")
    else:
        said.append(f"{view['rowsPerSecond']:.0f} rows/s")
        if view["secondsLeft"] is not None:
            said.append(f"{timedelta(seconds=round(view['secondsLeft']))} left")
    return ", ".join(said) + (f": {view['error']}" if view["error"] else "")


def waiting(remote: Remote, path: str, view: dict[str, Any]) -> str:
    """Say why a snapshot that is taken does not go on; empty if it does, or has said it."""
    if view["state"] in ("done", "paused") or view["rowsPerSecond"] or view["error"]:
        return ""
    client = remote.request("GET", path.rpartition("/")[0]).json()
    if client["lag"]["stage"] != "none":
        return f"; it waits: {client['lag']['explanation']}"
    return f"; it waits until the client takes what was read: its last call was {duration(client['idle'])} ago"


def _watch(remote: Remote, path: str, snapshot_id: str) -> dict[str, Any]:
    """Show how far a snapshot is until it is done: a bar on a terminal, else a line now and then; return its view."""
    from rich.progress import BarColumn, Progress, TextColumn

    columns = BarColumn(), TextColumn("{task.description}", markup=False)
    said = time.monotonic()
    with Progress(*columns, console=log, transient=True, disable=not log.is_terminal) as progress:
        bar = progress.add_task("")
        while True:
            view: dict[str, Any] = remote.request("GET", f"{path}/{snapshot_id}").json()
            if view["state"] == "done":
                return view
            text = described(view) + waiting(remote, path, view)
            progress.update(bar, completed=view["rows"], total=view["expected"] or None, description=text)
            if not log.is_terminal and time.monotonic() - said > QUIET:
                said = time.monotonic()
                log.print(Text(text))
            time.sleep(GLANCE)


def _condition(text: str) -> tuple[str, str]:
    table, colon, condition = (part.strip() for part in text.partition(":"))
    if not (table and colon and condition):
        raise argparse.ArgumentTypeError(f"{text!r} has to be 'schema.table: condition'")
    return table, condition
