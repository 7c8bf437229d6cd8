"""Subscriptions and cursors in Canal's ``meta.dat``: one JSON file per destination, with keys of ours beside Canal's.

Layout (keys in alphabetical order, as Canal writes them; ``postion`` is Canal's spelling)::

    {"clientDatas": [
        {"clientIdentity": {"clientId": 1001, "destination": "example", "filter": ""},
         "cursor": {"identity": {"slaveId": -1, "sourceAddress": {"address": "localhost", "port": 3306}},
                    "postion": {"gtid": "", "included": false, "journalName": "mysql-bin.000003", "position": 1520,
                                "serverId": 1, "timestamp": 1700000000000}},
         "sluice": {"delivered": "<position>", "expireAfter": "600", "position": "<position>"}}],
     "destination": "example",
     "sluice": {"epoch": 3, "moves": {"1001": [{"reason": "seek", …}]},
                "source": {"accepted": "", "address": "db2:3306"}}}

Canal reads such a file; what it writes has no ``sluice`` keys, and its cursors resume at their event.
"""

import asyncio
import fcntl
import json
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ...protocol.errors import ConfigError
from ...store.cursor import Changes, Cursor, StoredClient, earliest
from ...store.folder import sync_folder
from ..files import make_private_folder, open_private, restrict
from .base import HeldError, InUse, epoch_by_clock
from .canal import (
    MALFORMED,
    Address,
    client_keys,
    dumps,
    log_position,
    moves_keys,
    place_data,
    read_address,
    read_cursor,
    read_expiry,
    read_late,
    read_limits,
    read_memory,
    read_moves,
    read_owner,
    read_place,
    read_protection,
    read_snapshots,
    read_source,
    read_token,
    read_where,
    source_keys,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...store.moves import Move

FILE_NAME = "meta.dat"
PARSE_NAME = "parse.dat"
LOCK_NAME = "meta.lock"


class FileMetaStore:
    """Keeps the clients of a destination in a file that is replaced as a whole, so it is never half written."""

    def __init__(self, folder: Path, destination: str, address: Address, *, parse: bool = False) -> None:
        """``address`` is that of the source. Canal needs it in each cursor; an address already there is kept.

        With ``parse`` the place is kept, too, in Canal's ``parse.dat``.
        """
        self.path = folder / destination / FILE_NAME
        self.place: Cursor | None = None
        self.source: InUse | None = None
        self.moves: Mapping[int, Sequence[Move]] = {}
        self._parse = folder / destination / PARSE_NAME if parse else None
        self._destination = destination
        self._address = address
        self._addresses: dict[int, Address] = {}
        self._clients: dict[int, StoredClient] = {}
        self._encoded: dict[int, tuple[StoredClient, Address, bytes]] = {}
        """What the file holds of each client, and of which data that was made."""
        self._writing = asyncio.Lock()
        self._lock: IO[bytes] | None = None

    async def open(self) -> tuple[int, list[StoredClient]]:
        """Read the file, and increase the epoch in it. See `MetaStore.open`."""
        return await asyncio.to_thread(self._open)

    async def write(self, changes: Changes, epoch: int) -> None:
        """Replace the file by one with the changes. See `MetaStore.write`."""
        for client_id, client in changes.clients.items():
            if client is None:
                self._clients.pop(client_id, None)
                self._addresses.pop(client_id, None)
            else:
                self._clients[client_id] = client
        self.moves = {it: moves for it, moves in {**self.moves, **changes.moves}.items() if moves}
        async with self._writing:
            await asyncio.to_thread(self._store, list(self._clients.values()), epoch)

    async def keep_source(self, source: InUse, epoch: int) -> None:
        """Replace the file by one that names it. See `MetaStore.keep_source`."""
        async with self._writing:
            before = self.source, self._address, self._addresses
            self.source, self._address, self._addresses = source, source.host_and_port, {}
            try:
                await asyncio.to_thread(self._store, list(self._clients.values()), epoch)
            except OSError:
                self.source, self._address, self._addresses = before
                raise

    async def close(self) -> None:
        """Let another process use the file."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def where(self) -> str:
        """The path of the file."""
        return str(self.path)

    def read(self) -> list[StoredClient]:
        """Return the clients in the file, and read the place, without using or changing it. Raises ConfigError."""
        return self._read()[1]

    def _open(self) -> tuple[int, list[StoredClient]]:
        folder = self.path.parent
        try:
            make_private_folder(folder)
            lock = open_private(folder / LOCK_NAME, "ab")
        except OSError as error:
            raise _unusable(folder, error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            epoch, clients = self._read()
            self._clients = {client.client_id: client for client in clients}
            self._replace(clients, epoch)
            if self._parse is not None:
                restrict(self._parse)
        except BlockingIOError:
            lock.close()
            text = f"another process uses {self.path}: stop it, or set canal.file.data.dir"
            raise HeldError(text, self._is_free) from None
        except OSError as error:
            lock.close()
            raise _unusable(folder, error) from error
        except ConfigError:
            lock.close()
            raise
        self._lock = lock
        return epoch, clients

    def _is_free(self) -> bool:
        """Whether no process uses the file."""
        try:
            with open_private(self.path.parent / LOCK_NAME, "ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _read(self) -> tuple[int, list[StoredClient]]:
        """Return the next epoch and the clients; the place is remembered."""
        if self._parse is not None and self._parse.exists():
            self.place = read_place(self._parse.read_bytes(), str(self._parse))
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return 1, []
        try:
            data = json.loads(text)
            if data["destination"] != self._destination:
                raise ConfigError(f"{self.path} belongs to the destination {data['destination']!r}")
            items = data.get("clientDatas", [])
            clients = [read_client(item) for item in items]
            found = {int(item["clientIdentity"]["clientId"]): read_address(item.get("cursor") or {}) for item in items}
            self._addresses = {client_id: address for client_id, address in found.items() if address is not None}
            ours = data.get("sluice")
            epoch = int(ours["epoch"]) + 1 if ours is not None else epoch_by_clock()
            self.source = read_source(ours or {})
            self.moves = read_moves((ours or {}).get("moves", {}))
            self._address = self.source.host_and_port if self.source is not None else self._address
        except MALFORMED as error:
            raise ConfigError(
                f"{self.path} is not a file of subscriptions and cursors ({type(error).__name__}: {error}): "
                "restore it, or move it away to begin without them"
            ) from error
        return epoch, clients

    def _store(self, clients: list[StoredClient], epoch: int) -> None:
        self._replace(clients, epoch)
        if self._parse is None:
            return
        place = earliest([client.cursor for client in clients if client.cursor is not None])
        if place not in (None, self.place):
            assert place is not None
            replace_file(self._parse, place_data(place, self._address))
            self.place = place

    def _replace(self, clients: list[StoredClient], epoch: int) -> None:
        # Where there are many clients, most are as they were.
        self._encoded = {it.client_id: self._encode(it) for it in clients}
        items = b",".join(data for _, _, data in self._encoded.values())
        ours = {"epoch": epoch, **moves_keys(self.moves), **source_keys(self.source)}
        rest = dumps({"destination": self._destination, "sluice": ours})
        replace_file(self.path, b'{"clientDatas":[' + items + b"]," + rest[1:])

    def _encode(self, client: StoredClient) -> tuple[StoredClient, Address, bytes]:
        address = self._addresses.get(client.client_id, self._address)
        known = self._encoded.get(client.client_id)
        if known is not None and known[0] is client and known[1] == address:
            return known
        return client, address, dumps(client_data(client, self._destination, address))


def _unusable(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot keep cursors in {folder}: {error.strerror}; canal.file.data.dir names another folder")


def replace_file(path: Path, data: bytes) -> None:
    """Write a file beside it, make that durable, and replace the file by it. Raises OSError that names the file."""
    new = path.with_suffix(".tmp")
    try:
        with open_private(new, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def client_data(client: StoredClient, destination: str, address: Address) -> dict[str, Any]:
    """Return what the file holds of a client; ``address`` is that of the source."""
    identity = {"clientId": client.client_id, "destination": destination, "filter": client.filter}
    data: dict[str, Any] = {"clientIdentity": identity}
    if client.cursor is not None:
        data["cursor"] = log_position(client.cursor, address)
    if ours := client_keys(client):
        data["sluice"] = ours
    return data


def read_client(data: dict[str, Any]) -> StoredClient:
    """Read a client. Raises one of `MALFORMED` if it is something else."""
    identity = data["clientIdentity"]
    ours = data.get("sluice", {})
    cursor = read_cursor(data["cursor"], ours) if "cursor" in data else None
    text = whole(identity.get("filter") or "")  # an escape of half a character is refused as a filter
    memory, moved = read_memory(ours)
    more = read_expiry(ours), read_late(ours), memory, read_snapshots(ours), read_protection(ours)
    owners = *read_owner(ours), read_token(ours)
    client_id, where, limits = int(identity["clientId"]), read_where(ours), read_limits(ours)
    return StoredClient(client_id, text, cursor, *more, where, *owners, moved, *limits)
