"""``sluice log``: the log on disk of a destination."""

from datetime import datetime
from typing import Any
from urllib.parse import quote

from rich.text import Text

from ..wording import counted
from .common import add_command, add_destination, add_group, add_server, out, remote_of


def add_commands(commands: Any) -> None:
    """Add the commands to those of the command line."""
    log = add_group(commands, "log", "list and prune the log on disk")
    held = add_command(
        log,
        "list",
        log_list_command,
        "list the files of a log",
        "List the files of a destination's log on disk, oldest first, with their first and last positions.",
        "sluice log list example",
    )
    add_destination(held)
    add_server(held)
    prune = add_command(
        log,
        "prune",
        log_prune_command,
        "delete old files",
        "Delete the oldest files of a log until it has the given size. A client that still needs deleted changes\n"
        "gets them from the source; if the source has purged them, the client cannot continue. The newest file\n"
        "stays, and so do files that protected clients need (sluice protect).",
        "sluice log prune example --bytes 10000000000 --dry-run",
    )
    add_destination(prune)
    prune.add_argument("--bytes", type=int, required=True, metavar="N", help="maximum size of the log")
    prune.add_argument("--dry-run", action="store_true", help="only list the files to delete")
    add_server(prune)


def log_list_command(options: Any) -> int:
    """List the files of a log."""
    files = remote_of(options).request("GET", _path(options)).json()
    for file in files:
        if not file["continues"] and file is not files[0]:
            out.print(Text("the changes in between are missing", style="yellow"))
        _show(file)
    if not files:
        out.print(f"no file: {options.destination} has no log on disk (sluice.instance.store), or nothing is in it yet")
    return 0


def log_prune_command(options: Any) -> int:
    """Take old files away, or say which would go."""
    query = {"bytes": str(options.bytes), "dryRun": str(options.dry_run).lower()}
    files = remote_of(options).request("POST", f"{_path(options)}/prune", query).json()
    for file in files:
        _show(file)
    size = sum(file["bytes"] for file in files)
    out.print(f"{counted(len(files), 'file')}, {size} bytes {'would go' if options.dry_run else 'are gone'}")
    return 0


def _path(options: Any) -> str:
    return f"/v1/destinations/{quote(options.destination, safe='')}/log"


def _show(file: dict[str, Any]) -> None:
    written = datetime.fromtimestamp(file["written"]).astimezone()
    out.print(Text(f"{file['name']}  {file['bytes']} bytes, written {written:%Y-%m-%d %H:%M:%S}", style="bold"))
    out.print(Text(f"  from {file['from']}\n  to   {file['to']}"))
