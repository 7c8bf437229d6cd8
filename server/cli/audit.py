"""``sluice audit``: what was changed at a destination, and by whom."""

import json
from datetime import datetime
from typing import Any

from rich.text import Text

from .common import add_command, add_destination, add_server, out, remote_of


def add_commands(commands: Any) -> None:
    """Add the commands to those of the command line."""
    audit = add_command(
        commands,
        "audit",
        audit_command,
        "list who changed what",
        "List the last operations on a destination, oldest first: changes of positions (seek, skip, ack, rollback),\n"
        "of clients, snapshots and the source, starts and stops. Each of several servers keeps a list of its own.",
        "sluice audit example",
        "sluice audit example --limit 10 --json",
    )
    add_destination(audit)
    audit.add_argument(
        "--limit", type=int, default=100, metavar="N", help="maximum number of operations (default: 100)"
    )
    audit.add_argument("--json", action="store_true", help="print the JSON that the API returns")
    add_server(audit)


def audit_command(options: Any) -> int:
    """List what was changed."""
    query = {"limit": str(options.limit)}
    found = remote_of(options).call("GET", "/v1/destinations", options.destination, "audit", query=query)
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    for it in found:
        at = datetime.fromtimestamp(it["time"] / 1000).astimezone()
        client = "" if it["client"] is None else f" of client {it['client']}"
        out.print(Text(f"{at:%Y-%m-%d %H:%M:%S}  {it['action']}{client} by {it['who']}", style="bold"))
        for name, value in (("from", it["before"]), ("to", it["after"]), ("", it["detail"])):
            if value:
                out.print(Text(f"  {name:<5}{value}"))
    if not found:
        out.print("nothing was changed")
    return 0
