"""``sluice cluster restore``: cursors that ZooKeeper has lost are written back."""

import getpass
import os
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ...instance.audit import Change, keep, path_of
from ...protocol.errors import ConfigError
from ...store.moves import By
from ..config import Configuration
from ..wording import counted, duration
from .cluster import in_session, shared
from .common import NO, add_command, add_conf, add_group, out

if TYPE_CHECKING:
    from ...instance.config import InstanceConfig
    from ...store.cursor import Cursor, StoredClient
    from ..config.addresses import Addresses
    from ..ha.restore import Candidate, Plan


def add_commands(commands: Any) -> None:
    """Add the command to those of the command line."""
    group = add_group(commands, "cluster", "restore cursors that ZooKeeper has lost")
    restore = add_command(
        group,
        "restore",
        restore_command,
        "write saved cursors back to a ZooKeeper that has lost them",
        "Show the cursors that this server has saved for its destinations, their age, and what ZooKeeper has. Ask,\n"
        "and write them to ZooKeeper; then a server takes the destinations over. A cursor in ZooKeeper that may be\n"
        "newer stays. If another server owned a destination later, nothing is written for it: run the command\n"
        "there, or copy its file here. The exit status is 1 when something that is lost was not restored.",
        "sluice cluster restore --conf conf",
        "sluice cluster restore example --yes",
        "sluice cluster restore example --discard",
    )
    restore.add_argument(
        "destinations",
        nargs="*",
        metavar="DESTINATION",
        help="restore these, even if no loss is known (default: all that ZooKeeper has lost)",
    )
    restore.add_argument("--yes", action="store_true", help="do not ask")
    restore.add_argument(
        "--overwrite",
        action="store_true",
        help="also overwrite cursors that may be newer, in ZooKeeper or saved on another server",
    )
    restore.add_argument(
        "--discard", action="store_true", help="write no cursors: continue with the clients that ZooKeeper has"
    )
    add_conf(restore)


def restore_command(options: Any) -> int:
    """Write saved cursors back to ZooKeeper."""
    shared(options)
    configuration = Configuration(options.conf, os.environ)
    done = True
    for name in options.destinations or configuration.destinations():
        config = configuration.instance(name)
        if config.route and options.destinations:
            raise ConfigError(f"{name} is a view of {config.route}, and is restored with it: name {config.route}")
        if config.meta.is_shared and not config.route:
            done = _restore(configuration.addresses, config, options) and done
    return 0 if done else NO


def _restore(addresses: "Addresses", config: "InstanceConfig", options: Any) -> bool:
    """Restore a destination with its views; whether nothing is lost any more."""
    from ..ha.backup import read_all
    from ..ha.restore import plan, write_back

    name, server = config.destination, addresses.server
    backup = read_all(config.file_data_dir, name)
    opened = time.monotonic()
    found = in_session(server, lambda session: plan(session, config, backup))
    out.print(Text(f"{name}  ", style="bold") + Text(found.loss or "ZooKeeper is not known to have lost anything"))
    if not (found.loss or options.destinations):
        return True
    out.print(Text(f"  saved in {config.file_data_dir / name}"))
    clients = _choose(found, overwrite=options.overwrite, discard=options.discard)
    if problem := _obstacle(found, "{}:{}".format(*addresses.address), options):
        out.print(Text(f"  {problem}", style="red"))
        return False
    number = sum(map(len, clients.values()))
    if not (
        options.yes or _agreed(f"  write {counted(number, 'client')} to ZooKeeper, and let a server take {name} over?")
    ):
        out.print("  nothing was written")
        return False
    time.sleep(max(0.0, opened + found.timeout - time.monotonic()))  # what a server believes has ended by then
    by = By(f"user {getpass.getuser()}", time.time())  # noqa: TID251  it outlives the process
    given_up = in_session(server, lambda session: write_back(session, config, backup, clients, by))
    detail = f"{counted(number, 'client')} written to ZooKeeper"
    for destination, client_ids in given_up.items():
        if client_ids:
            detail += f"; given up: {', '.join(map(str, client_ids))} of {destination}"
    keep(path_of(config.file_data_dir, name), Change("cluster restore", by.who, by.ms, detail=detail))
    out.print(Text(f"  {detail}: a server takes {name} over"))
    return True


def _choose(found: "Plan", *, overwrite: bool, discard: bool) -> "dict[str, list[StoredClient]]":
    """Show all clients, and return those that are to be written."""
    chosen: dict[str, list[StoredClient]] = {}
    for name, candidates in found.candidates.items():
        saved = found.backup.saved[name]
        at = datetime.fromtimestamp(saved.at).astimezone()
        age = duration(max(0.0, time.time() - saved.at))  # noqa: TID251  it outlives the process
        out.print(Text(f"  {name}: as {saved.server} stored it in epoch {saved.epoch}, {at:%F %T}, {age} ago"))
        chosen[name] = []
        for candidate in candidates:
            writes, text = _judge(candidate, overwrite=overwrite, discard=discard)
            if writes and candidate.saved is not None:
                chosen[name].append(candidate.saved)
            cursor = candidate.saved.cursor if candidate.saved is not None else None
            out.print(Text(f"    client {candidate.client_id}  {_place(cursor)}: {text}"))
    return {} if discard else chosen


def _judge(candidate: "Candidate", *, overwrite: bool, discard: bool) -> tuple[bool, str]:
    """Return whether a client is written, and what to say of it."""
    if candidate.saved is None:
        return False, "not saved, but ZooKeeper has it: it stays; unsubscribe it if you do not need it"
    if candidate.present is None and discard:
        return False, "is given up: ZooKeeper does not have it, and it begins anew when it subscribes"
    if candidate.present is None:
        return True, "is written: ZooKeeper does not have it"
    there = f"ZooKeeper has {_place(candidate.present.cursor)}"
    if candidate.is_same:
        return True, "ZooKeeper has the same"
    if discard:
        return False, f"is not written: {there}"
    if not candidate.may_be_newer:
        return True, f"is written: {there}, which is not newer"
    if overwrite:
        return True, f"is written over what may be newer: {there}"
    return False, f"is not written: {there}, which may be newer (--overwrite writes it nevertheless)"


def _obstacle(found: "Plan", address: str, options: Any) -> str:
    """Return what keeps a destination from being restored, and what to do; empty for nothing."""
    backup, name = found.backup, found.backup.destination
    if found.running:
        return (
            f"a server has it now, as ZooKeeper says ({found.running}): stop it there first, or wait until the session"
            " of one that is gone has expired"
        )
    saved = backup.saved.get(name)
    newest = saved.epoch if saved is not None else -1
    if options.discard or (options.overwrite and saved is not None):
        return ""
    if newest < backup.epoch and backup.owner != address:
        where = backup.owner or "another server"
        other = "; --overwrite writes these nevertheless" if saved is not None else ""
        return (
            f"{where} had it later, in epoch {backup.epoch}, and has saved newer cursors: run this there, or copy its"
            f" cursors-*.dat into this folder{other}; --discard goes on with what ZooKeeper has"
        )
    if saved is None:
        return "nothing was saved of it here: run this on the server that had it, or --discard to go on without it"
    return ""


def _place(cursor: "Cursor | None") -> str:
    if cursor is None:
        return "no place yet"
    at = f" ({datetime.fromtimestamp(cursor.timestamp / 1000).astimezone():%F %T})" if cursor.timestamp else ""
    return f"{cursor.position or f'{cursor.journal}:{cursor.offset}'}{at}"


def _agreed(question: str) -> bool:
    """Ask; without anybody who answers, the answer is no."""
    try:
        return out.input(Text(f"{question} [y/N] ")).strip().lower() in ("y", "yes")
    except EOFError:
        out.print("nobody answers: --yes writes without asking")
        return False
