"""Cursors that ZooKeeper has lost, written back from what a server has saved of them (`Backup`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...instance.config import InstanceConfig
from ...instance.meta.base import epoch_by_clock
from ...instance.meta.canal import dumps, place_data
from ...instance.meta.nodes import Create, Delete, NodeExistsError, NoNodeError, Operation, Put
from ...instance.meta.zookeeper import ZooKeeperClients, epoch_data, read_epoch
from ...protocol.errors import ConfigError
from ...protocol.paths import GROUP, destination_node, epoch_node, running_node, servers_node
from ...store.cursor import Changes, Cursor, StoredClient, place_of, same_history
from ...store.moves import By, Gate, Move, Reason
from .backup import NO_EPOCH, Backup, Saved
from .zookeeper import ZooKeeperSession

HOLDER = "sluice cluster restore"
"""What stands for an address in ``running`` while cursors are written back."""
GIVEN_UP = "its saved cursor was given up after ZooKeeper had lost it"
"""The detail of the record of a client that is not written back."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A client that was saved, or that ZooKeeper has, of a destination or a view of it."""

    saved: StoredClient | None
    present: StoredClient | None
    """As ZooKeeper has it."""

    @property
    def client_id(self) -> int:
        """Its id."""
        client = self.saved or self.present
        assert client is not None
        return client.client_id

    @property
    def is_same(self) -> bool:
        """Whether ZooKeeper has what was saved."""
        return self.saved == self.present

    @property
    def may_be_newer(self) -> bool:
        """Whether ZooKeeper may have a newer place: a greater one, or one that has no order with what was saved."""
        present = self.present.cursor if self.present is not None else None
        saved = self.saved.cursor if self.saved is not None else None
        return present is not None and (saved is None or not _is_ahead(saved, present))


@dataclass(frozen=True, slots=True)
class Plan:
    """What can be written back for a destination."""

    backup: Backup
    loss: str
    """See `Backup.loss`."""
    running: str
    """What ZooKeeper says of the server that has the destination now; empty when none has."""
    candidates: Mapping[str, Sequence[Candidate]]
    """By the name of the destination and of each of its views."""
    timeout: float
    """Seconds after which no server goes on with what it had before ZooKeeper lost it."""


async def find_loss(session: ZooKeeperSession, backup: Backup) -> str:
    """Return what ZooKeeper has lost of a destination. See `Backup.loss`. Raises ConfigError, ZooKeeperError."""
    await session.sync()
    node = await session.find(epoch_node(backup.destination))
    epoch = NO_EPOCH if node is None else read_epoch(node.data, backup.destination)
    return backup.loss(epoch, session.zxid)


async def plan(session: ZooKeeperSession, config: InstanceConfig, backup: Backup) -> Plan:
    """Compare what was saved of a destination with what ZooKeeper has. Raises ConfigError, ZooKeeperError."""
    loss = await find_loss(session, backup)
    node = await session.find(running_node(backup.destination))
    candidates = {}
    for name, saved in backup.saved.items():
        try:
            clients = await ZooKeeperClients(session, name, config.address).read()
        except NoNodeError:
            clients = ()
        candidates[name] = _compared(saved, clients)
    running = "" if node is None else node.data.decode(errors="replace")
    return Plan(backup, loss, running, candidates, session.timeout)


async def write_back(
    session: ZooKeeperSession,
    config: InstanceConfig,
    backup: Backup,
    clients: Mapping[str, Sequence[StoredClient]],
    by: By,
) -> dict[str, list[int]]:
    """Write clients of a destination and its views to ZooKeeper, and raise the epoch: then a server takes it over.

    While that is done no server has the destination, as this session has ``running``. If it ends before, ZooKeeper
    still counts as having lost something, and all can be done again.

    Args:
        session: in ZooKeeper.
        config: that of the destination.
        backup: what was saved of it.
        clients: what is written of that, by the name of the destination and of each of its views; nothing, not even
            the place and the source, if it is empty.
        by: who asked for it.

    Returns the ids of the saved clients that are given up, by the same names: ZooKeeper does not have them, and they
    were not to be written. Each has a record of that, as if it were unsubscribed.

    Raises:
        ConfigError: a server has the destination; or nodes hold something else.
        ZooKeeperError: it cannot be written.
    """
    destination = backup.destination
    await session.ensure(servers_node(destination))
    await session.sync()
    node = await session.find(epoch_node(destination))
    epoch = NO_EPOCH if node is None else read_epoch(node.data, destination)
    fence: Operation = (
        Create(epoch_node(destination), epoch_data(0))
        if node is None
        else Put(epoch_node(destination), node.data, node.version)
    )
    holder = dumps({"active": True, "address": HOLDER})
    try:
        results = await session.commit([fence, Create(running_node(destination), holder, ephemeral=True)])
    except NodeExistsError as error:
        raise ConfigError(f"a server has {destination} now, so nothing was written: stop it there first") from error
    version = results[0] or 0
    parse = bool(clients) and config.log_position == "parse"
    given_up: dict[str, list[int]] = {}
    for name, saved in backup.saved.items():
        await session.ensure(destination_node(name))
        store = ZooKeeperClients(session, name, config.address, parse=parse and name == destination, fence=destination)
        present = await store.read()
        if clients and name == destination and backup.source is not None:
            await store.store(version, Changes({}), None, backup.source)
        given_up[name] = await _write_clients(store, version, saved, present, clients.get(name, ()), by)
        if parse and name == destination and store.place is None and backup.place is not None:
            data = place_data(backup.place, config.address)
            await session.commit([Create(f"{destination_node(destination)}/parse", data)])
    if clients and backup.group and await session.find(GROUP) is None:
        await session.create(GROUP, backup.group.encode())
    raised = epoch_data(epoch_by_clock(max(backup.epoch, epoch)))
    await session.commit([Put(epoch_node(destination), raised, version), Delete(running_node(destination))])
    return given_up


async def _write_clients(
    store: ZooKeeperClients,
    version: int,
    saved: Saved,
    present: Sequence[StoredClient],
    restored: Sequence[StoredClient],
    by: By,
) -> list[int]:
    """Write clients, one by one: a request of ZooKeeper has a limit. Return the ids of those that are given up."""
    for client in restored:
        moves = {client.client_id: saved.moves.get(client.client_id, ())}
        await store.store(version, Changes({client.client_id: client}, moves), None)
    for client_id, moved in saved.moves.items():  # of those that have left
        if client_id not in saved.clients and client_id not in store.moves:
            await store.store(version, Changes({}, {client_id: moved}), None)
    given_up = sorted(saved.clients.keys() - {it.client_id for it in (*present, *restored)})
    gate = Gate(saved.moves)
    for client_id in given_up:
        left = place_of(saved.clients[client_id].cursor)
        gate.jump(client_id, Move(Reason.UNSUBSCRIBE, left, "", by.who, by.ms, detail=GIVEN_UP))
        await store.store(version, Changes({}, {client_id: gate.moves[client_id]}), None)
    return given_up


def _compared(saved: Saved, present: Sequence[StoredClient]) -> list[Candidate]:
    found = {it.client_id: it for it in present}
    return [Candidate(saved.clients.get(it), found.get(it)) for it in sorted(saved.clients.keys() | found.keys())]


def _is_ahead(cursor: Cursor, other: Cursor) -> bool:
    """Whether a place is the other one or after it."""
    if cursor.position is not None and other.position is not None:
        return cursor.position.same_history(other.position) and other.position.precedes(cursor.position)
    return same_history(cursor, other) and cursor.order >= other.order
