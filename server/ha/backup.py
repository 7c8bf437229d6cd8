"""What a server keeps of the cursors in ZooKeeper in files of its own, for when ZooKeeper has lost them.

Layout of ``cursors-<address of the server>.dat`` in ``<canal.file.data.dir>/<destination>``, with clients as in Canal's
``meta.dat``::

    {"destination": "example", "epoch": 8, "group": "", "lost": false, "owner": "10.0.0.2:11111", "place": null,
     "zxid": 4711, "saved": {"example": {"at": 1700000000, "epoch": 7, "server": "10.0.0.1:11111", "clientDatas": []}},
     "source": {"accepted": "", "address": "db2:3306"}}

Servers may have the same folder, and the file of one can be copied into that of another: all are read.
"""

import asyncio
import contextlib
import glob
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...instance.config import InstanceConfig
from ...instance.files import make_private_folder
from ...instance.meta.base import InUse
from ...instance.meta.canal import (
    MALFORMED,
    Address,
    dumps,
    moves_keys,
    place_data,
    read_moves,
    read_place,
    read_source,
    source_keys,
)
from ...instance.meta.file import client_data, read_client, replace_file
from ...protocol.errors import ConfigError
from ...store.cursor import Changes, Cursor, StoredClient
from ...store.moves import Move

logger = logging.getLogger(__name__)

PERIOD = 1.0
"""Seconds between two writes of a file."""
NO_EPOCH = -1
"""That of a destination for which ZooKeeper has none."""


@dataclass(slots=True)
class Saved:
    """The clients of a destination, or of a view of it, as a server has stored them in ZooKeeper last."""

    epoch: int
    """In which that server had the destination."""
    at: float
    """When it has read or stored them, in seconds since 1970."""
    server: str
    """Its address."""
    clients: dict[int, StoredClient]
    moves: Mapping[int, Sequence[Move]] = field(default_factory=dict)
    """The jumps of clients, also of those that have left."""


@dataclass(slots=True)
class Backup:
    """What a server knows of a destination in ZooKeeper."""

    destination: str
    epoch: int = NO_EPOCH
    """The greatest that it has seen."""
    zxid: int = 0
    """The number of the last transaction of ZooKeeper that it has seen in that epoch."""
    owner: str = ""
    """Address of the server that had the destination in that epoch."""
    lost: bool = False
    """ZooKeeper has lost something of it, and nobody has raised the epoch above this one since."""
    group: str = ""
    """The name that all servers have in common; empty where it is not used."""
    source: InUse | None = None
    """Which of several sources is read, if that was chosen."""
    place: Cursor | None = None
    """Where the stream was last read from for its clients, if that is kept."""
    saved: dict[str, Saved] = field(default_factory=dict)
    """The clients, by the name of the destination and of each of its views."""

    def loss(self, epoch: int, zxid: int) -> str:
        """Return what ZooKeeper has lost, and how that is restored; empty if it has lost nothing.

        Args:
            epoch: that of the destination there, `NO_EPOCH` without.
            zxid: the number of the last transaction there.
        """
        if epoch > self.epoch or (epoch == self.epoch and zxid >= self.zxid and not self.lost):
            return ""
        now = f"an older state (epoch {epoch})" if epoch > 0 else "none"
        return (
            f"ZooKeeper has lost cursors: this server has seen epoch {self.epoch} there, and now there is {now}. No"
            " server takes the destination over, so that no change is skipped, until"
            f" `sluice cluster restore {self.destination}` has written back what the servers have saved"
        )


def path_of(folder: Path, destination: str, address: str) -> Path:
    """Return where the server at an address writes its backup of a destination, in the folder of all."""
    return folder / destination / f"cursors-{address}.dat"


def read_all(folder: Path, destination: str) -> Backup:
    """Return the newest of all backups of a destination in the folder of all. Raises ConfigError."""
    backups = [read(path, destination) for path in folder.glob(f"{glob.escape(destination)}/cursors-*.dat")]
    newest = max(backups, key=lambda it: (it.epoch, it.zxid), default=Backup(destination))
    newest.lost = any(it.lost for it in backups if it.epoch == newest.epoch)
    for backup in backups:
        newest.group = newest.group or backup.group
        for name, saved in backup.saved.items():
            if name not in newest.saved or (saved.epoch, saved.at) > (newest.saved[name].epoch, newest.saved[name].at):
                newest.saved[name] = saved
    return newest


def read(path: Path, destination: str) -> Backup:
    """Read a backup. Raises ConfigError."""
    try:
        data = json.loads(path.read_bytes())
        if data["destination"] != destination:
            raise ConfigError(f"{path} belongs to the destination {data['destination']!r}")
        place = json.dumps(data["place"]).encode() if data["place"] is not None else b""
        return Backup(
            destination,
            int(data["epoch"]),
            int(data["zxid"]),
            str(data["owner"]),
            bool(data["lost"]),
            str(data["group"]),
            read_source(data),
            read_place(place, str(path)),
            {name: _read_saved(it) for name, it in data["saved"].items()},
        )
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except MALFORMED as error:
        raise ConfigError(
            f"{path} is not a backup of cursors ({type(error).__name__}: {error}): restore it, or move it away to go on"
            " with what ZooKeeper has"
        ) from error


def write(path: Path, backup: Backup, address: Address) -> None:
    """Replace the file by one with this backup, durably; ``address`` is that of the source. Raises OSError."""
    make_private_folder(path.parent)
    place = json.loads(place_data(backup.place, address)) if backup.place is not None else None
    data = {
        "destination": backup.destination,
        "epoch": backup.epoch,
        "group": backup.group,
        "lost": backup.lost,
        "owner": backup.owner,
        "place": place,
        "saved": {name: _saved_data(name, it, address) for name, it in backup.saved.items()},
        "zxid": backup.zxid,
    }
    replace_file(path, dumps(data | source_keys(backup.source)))


def _saved_data(name: str, saved: Saved, address: Address) -> dict[str, Any]:
    clients = [client_data(it, name, address) for it in saved.clients.values()]
    data = {"at": saved.at, "clientDatas": clients, "epoch": saved.epoch, "server": saved.server}
    return data | moves_keys(saved.moves)


def _read_saved(data: dict[str, Any]) -> Saved:
    clients = {it.client_id: it for it in map(read_client, data["clientDatas"])}
    moves = read_moves(data.get("moves", {}))
    return Saved(int(data["epoch"]), float(data["at"]), str(data["server"]), clients, moves)


class Backups:
    """The backups of a server's destinations. All methods belong to one event loop."""

    def __init__(self, address: str, configure: Callable[[str], InstanceConfig]) -> None:
        """``address`` is that of the server; ``configure`` reads the configuration of a destination."""
        self._address = address
        self._configure = configure
        self._known: dict[str, Backup] = {}
        self._files: dict[str, tuple[Path, Address]] = {}
        self._changed: set[str] = set()
        self._problems: dict[str, str] = {}
        self._stopping = asyncio.Event()

    @property
    def group(self) -> str:
        """The name that all servers have in common; empty if it is not known."""
        return next((it.group for it in self._known.values() if it.group), "")

    @group.setter
    def group(self, name: str) -> None:
        for backup in self._known.values():
            if backup.group != name:
                backup.group = name
                self._changed.add(backup.destination)

    def problem(self, destination: str) -> str:
        """Return why the cursors of a destination are not saved; empty if they are."""
        return self._problems.get(destination, "")

    async def compare(self, destination: str, epoch: int, zxid: int, owner: str) -> str:
        """Note what ZooKeeper has now, unless it has lost something: return that. See `Backup.loss`.

        Raises ConfigError: the file cannot be read.
        """
        backup = self._known.get(destination)
        if backup is None:
            backup = await asyncio.to_thread(self._read, destination)
            backup = self._known.setdefault(destination, backup)
        loss = backup.loss(epoch, zxid)
        if bool(loss) != backup.lost:
            backup.lost = bool(loss)
            self._changed.add(destination)
        if loss:
            return loss
        if epoch > backup.epoch and zxid < backup.zxid:
            logger.warning(
                "ZooKeeper had lost the data of epoch %d, and epoch %d has begun there since. Unless that was"
                " `sluice cluster restore`, the server that owns the destination did not know of the loss, and clients"
                " may have skipped changes",
                backup.epoch,
                epoch,
                extra={"destination": destination},
            )
        if epoch > backup.epoch or (owner and owner != backup.owner):
            backup.epoch, backup.owner = epoch, owner
            self._changed.add(destination)
        backup.zxid = zxid
        return ""

    def left(self, zxid: int) -> None:
        """Note the last transaction that was seen in a session."""
        for backup in self._known.values():
            if backup.epoch != NO_EPOCH and not backup.lost and zxid > backup.zxid:
                backup.zxid = zxid
                self._changed.add(backup.destination)

    def loaded(
        self,
        destination: str,
        name: str,
        epoch: int,
        clients: Iterable[StoredClient],
        moves: Mapping[int, Sequence[Move]],
    ) -> None:
        """Note the clients of a destination, or of its view of that name, which this server has taken over."""
        backup = self._known[destination]
        backup.epoch = max(backup.epoch, epoch)
        backup.saved[name] = Saved(epoch, _time(), self._address, {it.client_id: it for it in clients}, moves)
        self._changed.add(destination)

    def stored(self, destination: str, name: str, changes: Changes, epoch: int | None) -> None:
        """Note what is durable in ZooKeeper, and the epoch if it was raised."""
        backup = self._known[destination]
        saved = backup.saved[name]
        for client_id, client in changes.clients.items():
            if client is None:
                saved.clients.pop(client_id, None)
            else:
                saved.clients[client_id] = client
        saved.moves = {it: moves for it, moves in {**saved.moves, **changes.moves}.items() if moves}
        saved.at = _time()
        if epoch is not None:
            backup.epoch = max(backup.epoch, epoch)
            saved.epoch = epoch
        self._changed.add(destination)

    def placed(self, destination: str, source: InUse | None, place: Cursor | None) -> None:
        """Note which source is read, and the place that is kept."""
        backup = self._known[destination]
        backup.source, backup.place = source, place

    async def run(self) -> None:
        """Write what has changed, at most once a period, until `stop`, and then once more."""
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PERIOD):
                    await self._stopping.wait()
            await self._write()
        await self._write()  # what has changed during the last one

    def stop(self) -> None:
        """End `run`."""
        self._stopping.set()

    async def _write(self) -> None:
        changed, self._changed = self._changed, set()
        for destination in changed:
            backup = self._known[destination]
            saved = {name: replace(it, clients=dict(it.clients)) for name, it in backup.saved.items()}
            path, address = self._files[destination]
            try:
                await asyncio.to_thread(write, path, replace(backup, saved=saved), address)
                self._problems.pop(destination, None)
            except Exception as error:  # noqa: BLE001  unsaid, nothing would be saved any more
                self._changed.add(destination)
                reason = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
                text = f"the cursors are not saved in {path}, for when ZooKeeper loses them: {reason}"
                if self._problems.get(destination) != text:
                    logger.warning("%s", text, extra={"destination": destination})
                self._problems[destination] = text

    def _read(self, destination: str) -> Backup:
        config = self._configure(destination)
        self._files[destination] = path_of(config.file_data_dir, destination, self._address), config.address
        return read_all(config.file_data_dir, destination)


def _time() -> float:
    return time.time()  # noqa: TID251  outlives the process
