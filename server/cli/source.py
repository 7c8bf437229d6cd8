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
        "switch a destination to its other server",
        "Switch a destination to the other one of its two servers (canal.instance.master.address and\n"
        "standby.address), or back. The switch happens only if it is proven that no change is missed. If the other\n"
        "server lacks delivered transactions, the command lists them and refuses; --accept switches nevertheless.\n"
        "Without GTIDs the same holds for clients that wait for places which only the former server knows. A\n"
        "replica first executes what it has received. The command waits up to 60 s; after that the switch\n"
        "continues, and sluice status shows it.",
        "sluice source switch example",
        "sluice source switch example --to db2:3306 --accept",
        "sluice source switch example --member master1",
    )
    add_destination(switch)
    switch.add_argument("--to", default="", metavar="ADDRESS", help="the server to read (default: the other one)")
    switch.add_argument("--member", default="", metavar="NAME", help="the member, if the destination is a group")
    switch.add_argument("--accept", action="store_true", help="switch even if it lacks transactions or places")
    add_server(switch)


def switch_command(options: Any) -> int:
    """Read another server."""
    query = {"to": options.to, "accept": str(options.accept).lower()}
    query |= {"member": options.member} if options.member else {}
    path = f"/v1/destinations/{quote(options.destination, safe='')}/source/switch"
    found = remote_of(options).request("POST", path, query).json()
    show_source(out, found["memberSources"][options.member] if options.member else found["source"])
    return 0
