"""``sluice backup`` and ``sluice restore``: what a server has stored, in one file."""

import getpass
import json
import os
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from rich.text import Text

from ...instance.audit import Change, keep, path_of
from ...instance.files import make_private_folder
from ...instance.meta import MetaKind
from ...instance.meta.base import epoch_by_clock
from ...instance.meta.canal import MALFORMED, dumps
from ...instance.meta.file import FILE_NAME, PARSE_NAME, read_client, replace_file
from ...instance.meta.nodes import NodeSession, NoNodeError
from ...instance.meta.zookeeper import ZooKeeperClients, read_epoch
from ...protocol.errors import ConfigError
from ...protocol.paths import destination_node, epoch_node
from ...store.cursor import StoredClient
from ...store.folder import sync_folder
from ...store.log.log import COMPRESSED
from ..archive import CREDENTIALS, PARTS, BackupWriter, Contents, Manifest, extract, require_new, verify
from ..config import Configuration
from ..config.folder import INSTANCE_FILE, MAIN_FILE
from ..wording import counted
from .cluster import in_session
from .common import Line, add_command, add_conf, out

if TYPE_CHECKING:
    from ...instance.config import InstanceConfig
    from ..ha.backup import Backup

SAVED_NAME = "cursors-backup.dat"
"""File of the cursors that were in ZooKeeper, as `sluice cluster restore` reads it."""
ATTEMPTS = 10
"""To read the cursors in ZooKeeper while no client goes."""
RESTORING = ".restoring"
"""How a file ends that is not at its place yet."""
LISTS = (PARSE_NAME, "audit.jsonl", "audit.1.jsonl", "quarantine.jsonl", "quarantine.db", "skipped.jsonl")
"""Files beside the cursors, in the order in which they are copied."""
HISTORY = ("schema.end", "schema.db")
"""In this order: the end that is noted must not be after that of the database."""
USED = re.compile(
    r"meta\.(?:dat|lock)|lock|parse\.dat|cursors-.*|(schema|quarantine)\..*|.*\.(jsonl|log|index|restoring)"
)
"""Files of a destination that was used."""


def add_commands(commands: Any) -> None:
    """Add the commands to those of the command line."""
    backup = add_command(
        commands,
        "backup",
        backup_command,
        "write what the server has stored to one file",
        "Write the cursors, the lists of quarantined and skipped changes, the log on disk and the schema history of\n"
        "this server's destinations to one tar file. The server may run. The file has no secrets, and so no\n"
        "configuration, unless you ask for them. An existing file is not replaced.",
        "sluice backup --to /backups --conf conf",
        "sluice backup example --to example.tar --without-log",
        "sluice backup --verify example.tar",
    )
    backup.add_argument(
        "destinations", nargs="*", metavar="DESTINATION", help="only these and their views (default: all)"
    )
    what = backup.add_mutually_exclusive_group(required=True)
    what.add_argument("--to", type=Path, metavar="FILE.tar", help="write this file, or a new one in this folder")
    what.add_argument("--verify", type=Path, metavar="FILE", help="read a backup to its end, and check all sums")
    backup.add_argument("--without-log", action="store_true", help="leave the log on disk out")
    backup.add_argument(
        "--with-secrets", action="store_true", help="add the configuration with its passwords, and the credentials"
    )
    add_conf(backup)
    restore = add_command(
        commands,
        "restore",
        restore_command,
        "restore what sluice backup has written",
        "Check a backup, and write it to the folders that the configuration names. These have to be unused. Each\n"
        "client resumes at the position that it had at the time of the backup; what it has acknowledged since is\n"
        "delivered again. If the cursors were in ZooKeeper, run sluice cluster restore after this command.",
        "sluice restore --from example.tar --conf conf --dry-run",
        "sluice restore --from example.tar --conf conf",
    )
    restore.add_argument("--from", dest="file", type=Path, required=True, metavar="FILE", help="the backup")
    restore.add_argument("--dry-run", action="store_true", help="check and show everything, and write nothing")
    add_conf(restore)


def backup_command(options: Any) -> int:
    """Write a backup, or verify one."""
    if options.verify is not None:
        with _Progress("verifying") as progress:
            manifest = verify(options.verify, progress.add)
        _show(manifest)
        out.print(Text(f"{options.verify} is whole"))
        return 0
    path = _path(options.to)
    configuration = Configuration(options.conf, os.environ)
    configs = _configs(configuration, options.destinations)
    with (
        _Progress("copying") as progress,
        BackupWriter(path, progress.add) as writer,
        tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as folder,
    ):
        # What depends on something is copied before it: a cursor on the log, and the log on the history of tables.
        contents = {it.destination: _add_places(writer, configuration, it, Path(folder)) for it in configs}
        for config in configs:
            if not config.route and config.has_log and not options.without_log:
                _add_log(writer, config)
        for config in configs:
            _add_lists(writer, config, Path(folder))
        if options.with_secrets:
            _add_secrets(writer, configuration)
        manifest = writer.finish(contents)
    _show(manifest)
    out.print(Text(f"{path}: {manifest.bytes} bytes in {counted(len(manifest.items), 'file')}"))
    if not manifest.has_secrets:
        out.print("it has no configuration and no credentials, which hold secrets: --with-secrets adds them")
    return 0


def _configs(configuration: Configuration, names: Sequence[str]) -> "list[InstanceConfig]":
    """Return the destinations to be backed up: all, or these with their views. Raises ConfigError."""
    configs = {it: configuration.instance(it) for it in names or configuration.destinations()}
    if not names:
        return [*configs.values()]
    for name, config in configs.items():
        if config.route:
            raise ConfigError(f"{name} is a view of {config.route}, and is backed up with it: name {config.route}")
    others = (configuration.instance(it) for it in configuration.destinations() if it not in configs)
    return [*configs.values(), *(it for it in others if it.route in configs)]


def _path(to: Path) -> Path:
    """Return where a backup is written. Raises ConfigError."""
    if to.is_dir():
        to /= f"sluice-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar"  # noqa: TID251  a name
    if to.suffix != ".tar":
        raise ConfigError(f"{to} is neither a folder nor the name of a .tar file")
    require_new(to)
    if not to.parent.is_dir():
        raise ConfigError(f"the folder {to.parent} does not exist: make it")
    return to


def _add_places(writer: BackupWriter, configuration: Configuration, config: "InstanceConfig", folder: Path) -> Contents:
    """Add the cursors of a destination, as they are now."""
    name = config.destination
    if config.meta is MetaKind.MEMORY:
        return Contents(meta="memory")
    if config.meta.is_shared:
        if config.route:  # its clients are with those of its main
            return Contents(meta="zookeeper")
        saved = _saved(configuration, config, folder / name)
        writer.add(f"data/{name}/{SAVED_NAME}", folder / name)
        clients = [client for it in saved.saved.values() for client in it.clients.values()]
        return Contents(meta="zookeeper", clients=_shown(clients))
    path = config.file_data_dir / name / FILE_NAME
    if not path.exists():
        return Contents(meta="file")
    copy = folder / f"{name}.meta"
    shutil.copyfile(path, copy)  # it is replaced as a whole, so this is one state of it
    try:
        found = [read_client(it) for it in json.loads(copy.read_bytes()).get("clientDatas", [])]
    except MALFORMED as error:
        raise ConfigError(f"{path} is not a file of subscriptions and cursors: {error}") from error
    writer.add(f"data/{name}/{FILE_NAME}", copy)
    return Contents(meta="file", clients=_shown(found))


def _shown(clients: Iterable[StoredClient]) -> dict[int, str]:
    """Return where clients go on."""
    cursors = {it.client_id: it.cursor for it in clients}
    return {it: "" if at is None else str(at.position or f"{at.journal}:{at.offset}") for it, at in cursors.items()}


def _saved(configuration: Configuration, config: "InstanceConfig", path: Path) -> "Backup":
    """Write what ZooKeeper has of a destination and its views to a file of `sluice.server.ha.backup`."""
    from ..ha.backup import NO_EPOCH, Backup, Saved, write

    name = config.destination
    views = [it for it in configuration.found() if configuration.instance(it).route == name]

    async def read(session: NodeSession) -> Backup:
        node = await session.find(epoch_node(name))
        backup = Backup(name, NO_EPOCH if node is None else read_epoch(node.data, name))
        for it in (name, *views):
            if not configuration.instance(it).meta.is_shared:
                continue
            parse = it == name and config.log_position == "parse"
            store = ZooKeeperClients(session, it, config.address, parse=parse)
            try:
                clients = await store.read()
            except NoNodeError as error:
                if error.path == destination_node(it):  # nobody has subscribed yet
                    continue
                raise
            at = time.time()  # noqa: TID251  is stored
            found = {client.client_id: client for client in clients}
            backup.saved[it] = Saved(backup.epoch, at, "sluice backup", found, store.moves)
            if it == name:
                backup.source, backup.place = store.source, store.place
        return backup

    async def read_whole(session: NodeSession) -> Backup:
        for _ in range(ATTEMPTS - 1):
            with suppress(NoNodeError):  # a client was unsubscribed while it was read
                return await read(session)
        return await read(session)

    backup = in_session(configuration.server, read_whole)
    write(path, backup, config.address)
    return backup


def _add_log(writer: BackupWriter, config: "InstanceConfig") -> None:
    """Add the files of the log, oldest first; each after its index, which then names no more than it has."""

    def add(path: Path) -> bool:
        return [_add_if_there(writer, f"log/{name}/{it.name}", it) for it in (path.with_suffix(".index"), path)][1]

    name, listed = config.destination, sorted(config.log_folder.glob("*.log"))
    for path in listed:
        compressed = path.with_suffix(COMPRESSED)
        if not add(path) and compressed not in listed:  # it was compressed meanwhile, or removed
            add(compressed)


def _add_if_there(writer: BackupWriter, name: str, path: Path) -> bool:
    """Add a file; whether it was there."""
    try:
        writer.add(name, path)
    except FileNotFoundError:
        if path.exists():
            raise
        return False
    return True


def _add_lists(writer: BackupWriter, config: "InstanceConfig", folder: Path) -> None:
    """Add the lists of a destination, and its history of tables."""
    name, own = config.destination, config.file_data_dir / config.destination
    parts = [("data", own, LISTS), ("history", config.history_folder, () if config.route else HISTORY)]
    for part, place, files in parts:
        for file in files:
            path, item = place / file, f"{part}/{name}/{file}"
            if path.suffix == ".db" and path.exists():
                copy = folder / f"{name}-{file}"
                _copy_database(path, copy)
                writer.add(item, copy)
            elif path.suffix != ".db":
                _add_if_there(writer, item, path)


def _copy_database(path: Path, copy: Path) -> None:
    """Copy a database that may be written meanwhile: as it is after one of the transactions."""
    try:
        with (
            closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
    except sqlite3.Error as error:
        raise ConfigError(f"{path} cannot be copied: {error}") from error


def _credentials_of(configuration: Configuration) -> Path:
    """Return the credentials file."""
    from ..http.config import HttpConfig

    return configuration.addresses.front(HttpConfig).credentials


def _add_secrets(writer: BackupWriter, configuration: Configuration) -> None:
    """Add the configuration and the credentials."""
    server = configuration.server
    _add_if_there(writer, f"conf/{MAIN_FILE}", server.conf_dir / MAIN_FILE)
    for name in configuration.found():
        _add_if_there(writer, f"conf/{name}/{INSTANCE_FILE}", configuration.instance_file(name))
    _add_if_there(writer, CREDENTIALS, _credentials_of(configuration))


def restore_command(options: Any) -> int:
    """Restore a backup."""
    with _Progress("verifying") as progress:
        manifest = verify(options.file, progress.add)
    _show(manifest)
    conf = {
        it.name: options.conf / it.name.removeprefix("conf/") for it in manifest.items if it.name.startswith("conf/")
    }
    if f"conf/{MAIN_FILE}" in conf and not (options.conf / MAIN_FILE).exists():
        _require_free(conf)
        if options.dry_run:
            out.print(Text(f"would write the configuration to {options.conf}, and all else where that says"))
            return 0
        _write(options.file, manifest, conf)
    configuration = Configuration(options.conf, os.environ)
    targets = _targets(configuration, manifest)
    _require_free(targets)
    if options.dry_run:
        for folder in sorted({str(it.parent) for it in targets.values()}):
            out.print(Text(f"would write to {folder}"))
        return 0
    _write(options.file, manifest, targets)
    for name, contents in manifest.destinations.items():
        detail = f"backup of {manifest.made:%Y-%m-%d %H:%M:%S} UTC"
        change = Change("restore", f"user {getpass.getuser()}", time.time_ns() // 1_000_000, detail=detail)
        keep(path_of(configuration.instance(name).file_data_dir, name), change)
        _tell(name, contents, manifest, options.conf)
    return 0


def _targets(configuration: Configuration, manifest: Manifest) -> dict[str, Path]:
    """Return where each item goes that is not of the configuration. Raises ConfigError."""
    configs = {name: configuration.instance(name) for name in manifest.destinations}
    for name, config in configs.items():
        kind, before = _kind(config), manifest.destinations[name].meta
        if kind != before:
            raise ConfigError(
                f"the cursors of {name} were kept in {before}, and are to be kept in {kind} as configured: set"
                f" sluice.instance.meta = {before}, restore, and change it then"
            )
    targets = {}
    for item in manifest.items:
        part, *rest = item.name.split("/")
        if item.name == CREDENTIALS:
            targets[item.name] = _credentials_of(configuration)
        elif part != "conf":
            name, file = rest
            if name not in configs:
                raise ConfigError(f"the backup has {item.name}, but its manifest has no destination {name}")
            config = configs[name]
            own = config.file_data_dir / name
            targets[item.name] = {"data": own, "log": config.log_folder, "history": config.history_folder}[part] / file
    return targets


def _kind(config: "InstanceConfig") -> Literal["file", "memory", "zookeeper"]:
    """Return where the cursors of a destination are kept."""
    if config.meta.is_shared:
        return "zookeeper"
    return "memory" if config.meta is MetaKind.MEMORY else "file"


def _require_free(targets: Mapping[str, Path]) -> None:
    """Raise ConfigError if a file is there already, or any other of a destination that was used there."""
    for target in targets.values():
        if target.exists():
            raise ConfigError(f"{target} exists: stop the server, and move it away before you restore")
    for folder in {path.parent for name, path in targets.items() if name.startswith(PARTS)}:
        used = [it.name for it in folder.iterdir() if USED.fullmatch(it.name)] if folder.is_dir() else []
        if used:
            raise ConfigError(
                f"{folder} is in use, or not empty: it has {min(used)}. Stop the server, and move the folder away"
                " before you restore"
            )


def _write(file: Path, manifest: Manifest, targets: Mapping[str, Path]) -> None:
    """Write items to their places: all beside them first, then each at its place, those with cursors last."""
    staged = {name: path.with_name(path.name + RESTORING) for name, path in targets.items()}
    for folder in {it.parent for it in staged.values()}:
        make_private_folder(folder)
    with _Progress("restoring") as progress:
        try:
            extract(file, manifest, staged, progress.add)
            for path in staged.values():
                if path.name == FILE_NAME + RESTORING:
                    _raise_epoch(path)
        except BaseException:
            for path in staged.values():
                path.unlink(missing_ok=True)
            raise
    for name in sorted(targets, key=lambda it: (it.startswith("data/"), it.endswith(FILE_NAME))):
        staged[name].replace(targets[name])
    for folder in {it.parent for it in targets.values()}:
        sync_folder(folder)


def _raise_epoch(path: Path) -> None:
    """Let no batch of the time after the backup be acked from here on."""
    try:
        data = json.loads(path.read_bytes())
        ours = data.setdefault("sluice", {})
        ours["epoch"] = epoch_by_clock(int(ours.get("epoch", 0)))
    except MALFORMED as error:
        raise ConfigError(f"the backup has cursors that cannot be read ({type(error).__name__}): {error}") from error
    replace_file(path, dumps(data))


def _show(manifest: Manifest) -> None:
    """Print what a backup has."""
    out.print(Text(f"backup of {manifest.made:%Y-%m-%d %H:%M:%S} UTC by Sluice {manifest.version}", style="bold"))
    for name, contents in manifest.destinations.items():
        log = sum(it.bytes for it in manifest.items if it.name.startswith(f"log/{name}/"))
        clients = (
            "no cursors, which were in memory"
            if contents.meta == "memory"
            else counted(len(contents.clients), "client")
        )
        out.print(Text(f"  {name}: {clients}, {log} bytes of log"))
        for client_id, place in contents.clients.items():
            out.print(Text(f"    client {client_id}  {place or 'no place yet'}"))


def _tell(name: str, contents: Contents, manifest: Manifest, conf: Path) -> None:
    """Print what was restored of a destination, and what follows."""
    at = f"{manifest.made:%Y-%m-%d %H:%M:%S} UTC"
    if contents.meta == "zookeeper":
        then = f"now write the cursors to ZooKeeper: sluice cluster restore {name} --conf {conf}"
        out.print(Text(f"{name}: restored as of {at}" + (f"; {then}" if contents.clients else "")))
    elif contents.meta == "memory":
        out.print(Text(f"{name}: restored as of {at}, without clients"))
    else:
        out.print(
            Text(
                f"{name}: restored as of {at}. Each client resumes where it was then: what it has acked since is"
                " delivered again"
            )
        )


class _Progress:
    """Says how many bytes were copied."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._bytes = 0
        self._line = Line(f"{what} …")

    def __enter__(self) -> Self:
        self._line.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._line.__exit__()

    def add(self, size: int) -> None:
        """Count bytes."""
        self._bytes += size
        self._line.say(lambda: f"{self._what}: {self._bytes >> 20} MiB")
