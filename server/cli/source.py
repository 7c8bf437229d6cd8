"""``sluice source``: which of several servers with the same data a destination reads."""

from typing import Any
from urllib.parse import quote

from .common import add_command, add_destination, add_group, add_server, out, remote_of
from .status import show_source


def add_commands(commands: Any) -> None:
    """Add the commands to those of the command line."""
    source = add_group(commands, "source", "switch to another server with the same data")
    switch = add_command(
        source,
        "switch",
        switch_command,
        "read the other server",
        "Read the other one of the two servers of a destination (canal.instance.master.address and standby.address),\n"
        "or switch back. It is done only if it is proven that nothing is missed. Transactions that were delivered and\n"
        "that the other server does not have are listed; --accept switches nevertheless. A replica first executes\n"
        "what it has received: after 60 s the command does not wait any more, but the switch goes on, and\n"
        "sluice status shows it.",
        "sluice source switch example",
        "sluice source switch example --to db2:3306 --accept",
    )
    add_destination(switch)
    switch.add_argument("--to", default="", metavar="ADDRESS", help="the server to read; default: the other one")
    switch.add_argument("--accept", action="store_true", help="also if it lacks transactions that were delivered")
    add_server(switch)


def switch_command(options: Any) -> int:
    """Read another server."""
    query = {"to": options.to, "accept": str(options.accept).lower()}
    path = f"/v1/destinations/{quote(options.destination, safe='')}/source/switch"
    show_source(out, remote_of(options).request("POST", path, query).json()["source"])
    return 0
