"""``sluice gaps``: what clients do not get, and where their places jumped."""

import json
from datetime import datetime
from typing import Any

from rich.text import Text

from .common import NO, add_client, add_command, add_destination, add_group, add_server, out, remote_of


def add_commands(commands: Any) -> None:
    """Add the commands to those of the command line."""
    gaps = add_group(commands, "gaps", "list and confirm changes that clients missed")
    found = add_command(
        gaps,
        "list",
        list_command,
        "list the changes that clients missed",
        "List the changes that clients of a destination missed without a request: the source had purged them, or\n"
        "the client had expired. The exit status is 1 until all of them are confirmed. With --all, also list what\n"
        "was skipped on request (seek, skip, unsubscribe, ack), and what is confirmed.",
        "sluice gaps list example",
        "sluice gaps list example --all",
    )
    add_destination(found)
    found.add_argument("--all", action="store_true", help="also list what was skipped on request, or is confirmed")
    found.add_argument("--json", action="store_true", help="print the JSON that the API returns")
    add_server(found)
    confirm = add_command(
        gaps,
        "confirm",
        confirm_command,
        "confirm the changes that a client missed",
        "Confirm that a client may continue without the changes that it missed. If you need them, copy them first.\n"
        "An output that has stopped at the marker of such a gap resumes.",
        "sluice gaps confirm example 1001",
    )
    add_client(confirm)
    add_server(confirm)


def list_command(options: Any) -> int:
    """List what clients do not get."""
    moves = remote_of(options).call("GET", "/v1/destinations", options.destination, "moves")
    is_open = any(_is_open(move) for move in moves)
    shown = [move for move in moves if options.all or _is_open(move)]
    if options.json:
        print(json.dumps(shown, indent=2))
        return NO if is_open else 0
    for move in shown:
        at = datetime.fromtimestamp(move["time"] / 1000).astimezone()
        out.print(Text(f"client {move['clientId']}  {move['state']}", style="red" if _is_open(move) else ""))
        out.print(Text(f"  {at:%Y-%m-%d %H:%M:%S}, {move['who']}: {move['text']}"))
    if not shown:
        out.print("no gap" if not options.all else "no client has skipped changes")
    return NO if is_open else 0


def confirm_command(options: Any) -> int:
    """Confirm what a client does not get."""
    found = remote_of(options).client_call(options.destination, options.client, "gaps/confirm").json()["confirmed"]
    out.print(f"client {options.client}: confirmed {found}" if found else f"client {options.client} has no open gap")
    return 0


def _is_open(move: dict[str, Any]) -> bool:
    return move["state"] in ("open", "told")
