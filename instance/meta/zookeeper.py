"""Subscriptions and cursors in ZooKeeper, in the nodes and the JSON of Canal.

Layout, below ``/otter/canal/destinations/<destination>``::

    1001            a client; nothing
    1001/filter     its filter, as text, unless it is blank
    1001/cursor     {"@type":"...LogPosition","identity":{...},"postion":{...},"sluice":{"position":...}}
    1001/where      its condition on rows, as text, if it has one
    1001/output     {"output":"mq"}, if an output owns it
    1001/owner      the name of the token that owns it, as text, if one does
    1001/mark       Canal's own: batches that it has given
    parse           {"identity":{...},"postion":{...},"sluice":{...}}, if it is kept: where to begin without clients
    source          {"accepted":"","address":"db2:3306"}, if it was chosen: which of several sources is read
    sluice          {"epoch":7}; its version fences off servers that had the destination before

Canal lists the children whose names are numbers as clients, and reads nothing else.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...protocol.errors import ConfigError
from ...protocol.paths import client_node, destination_node, epoch_node
from ...store.cursor import Changes, Cursor, StoredClient, earliest
from ...store.moves import Move
from .base import InUse
from .canal import (
    LOG_POSITION,
    MALFORMED,
    Address,
    client_keys,
    dumps,
    log_position,
    owner_keys,
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
    source_keys,
)
from .nodes import Check, Create, Delete, NodeError, NodeSession, NoNodeError, Operation, Put


def epoch_data(epoch: int) -> bytes:
    """Return what the epoch's node holds."""
    return dumps({"epoch": epoch})


def read_epoch(data: bytes, destination: str) -> int:
    """Read what the epoch's node holds. Raises ConfigError."""
    try:
        return int(json.loads(data)["epoch"])
    except MALFORMED as error:
        raise ConfigError(f"{epoch_node(destination)} in ZooKeeper does not hold an epoch: delete the node") from error


OWN_NODES = ("where", "output", "owner", "settings")
"""Nodes of a client that Canal does not know: a cursor that it writes takes none of them away."""


def _own_nodes(client: StoredClient) -> dict[str, bytes]:
    """Return what each of these holds; nothing for one that is not to be there."""
    owner, more = owner_keys(client), {}
    if client.cursor is None:  # else they are beside it
        more = client_keys(replace(client, where="", output="", owner=""))
    return {
        "where": client.where.encode(),
        "output": dumps(owner) if owner else b"",
        "owner": client.owner.encode(),
        "settings": dumps(more) if more else b"",
    }


class ZooKeeperClients:
    """The clients of one destination, read and written in one session."""

    def __init__(
        self, session: NodeSession, destination: str, address: Address, *, parse: bool = False, fence: str = ""
    ) -> None:
        """``address`` is that of the source. Canal needs it in each cursor; an address already there is kept.

        With ``parse`` the place is kept, too, in the node of that name. ``fence`` is the destination whose epoch fences
        what is written, if that is another one: this one is a view of it.
        """
        self.place: Cursor | None = None
        """Where the stream was last read from for its clients, if that is kept."""
        self.source: InUse | None = None
        """Which of several sources is read, if that was chosen."""
        self.moves: Mapping[int, Sequence[Move]] = {}
        """The jumps of clients, also of those that have left."""
        self._has_moves = False
        self._moved: set[int] = set()
        """The clients that have a node for their jumps."""
        self._has_source = False
        self._parse = parse
        self._has_parse = False
        self._stored: dict[int, Cursor] = {}
        self._session = session
        self._destination = destination
        self._root = destination_node(destination)
        self._fence = epoch_node(fence or destination)
        self._address = address
        self._addresses: dict[int, Address] = {}
        self._filters: dict[int, str | None] = {}
        """The clients that have a node, and the content of their filter's node; None without that node."""
        self._own: dict[str, dict[int, bytes]] = {name: {} for name in OWN_NODES}
        """The content of the nodes that Canal does not know, by their names, of the clients that have one."""
        self._cursors: set[int] = set()
        """The clients that have a node for a cursor."""
        self._marked: list[int] = []
        """The clients for which Canal has noted batches."""

    async def read(self) -> tuple[StoredClient, ...]:
        """Return the clients.

        Raises:
            ConfigError: a node holds something else.
            NoNodeError: the destination has no node.
            ZooKeeperError: the nodes cannot be read now.
        """
        await self._survey()
        await self._read_source()
        await self._read_moves()
        clients = await asyncio.gather(*map(self._read_client, self._filters))
        self._stored = {client.client_id: client.cursor for client in clients if client.cursor is not None}
        node = await self._session.find(f"{self._root}/parse") if self._parse else None
        self.place = read_place(node.data, f"{self._root}/parse in ZooKeeper") if node is not None else None
        return tuple(clients)

    async def load(self) -> tuple[StoredClient, ...]:
        """Return the clients, and delete the batches that Canal has noted: they are not outstanding here.

        Raises as `read`.
        """
        clients = await self.read()
        found = await asyncio.gather(*(self._below(f"{self._node(it)}/mark") for it in self._marked))
        marks = [path for paths in found for path in paths]
        if marks:
            await self._session.commit([Delete(path) for path in marks])
        return clients

    async def store(
        self,
        version: int,
        changes: Changes,
        epoch: int | None,
        source: InUse | None = None,
    ) -> int:
        """Write what has changed, and epoch and source if given, in one transaction.

        Returns the version of the epoch's node, which has to be ``version`` before.

        Raises:
            NodeError: if its ``path`` is that node, it is not: another server has taken the destination over.
            UnknownOutcomeError: it is unknown whether it was done.
            ZooKeeperError: ZooKeeper refuses.
        """
        fence = self._fence
        first: Operation = Check(fence, version) if epoch is None else Put(fence, epoch_data(epoch), version)
        for last in (False, False, True):
            operations = [first]
            for client_id, client in changes.clients.items():
                operations += await self._removal(client_id) if client is None else self._changes(client)
            operations += self._moves_changes(changes.moves)
            stored = self._with(changes.clients)
            place = earliest(list(stored.values())) if self._parse else None
            if place is not None and place != self.place:
                data = place_data(place, self._address)
                operations.append((Put if self._has_parse else Create)(f"{self._root}/parse", data))
            if source is not None:
                data = dumps(source_keys(source)["source"])
                operations.append((Put if self._has_source else Create)(f"{self._root}/source", data))
            try:
                results = await self._session.commit(operations)
                break
            except NodeError as error:
                if error.path == fence or last:
                    raise
                await self._survey()  # only clients of Canal can have made or removed a node meanwhile
            except BaseException:
                self._filters.clear()  # what exists is unknown: the next write finds out when it is refused
                raise
        for client_id, client in changes.clients.items():
            self._remember(client_id, client)
        self._has_moves = self._has_moves or bool(changes.moves)
        self._moved = {it for it in self._moved | changes.moves.keys() if changes.moves.get(it, True)}
        self.moves = {it: moves for it, moves in {**self.moves, **changes.moves}.items() if moves}
        self._stored = stored
        if source is not None:
            self._use(source)
        if place is not None:
            self.place, self._has_parse = place, True
        return version if results[0] is None else results[0]

    # --- inside ------------------------------------------------------------------------------------------------------

    def _use(self, source: InUse) -> None:
        self.source, self._has_source = source, True
        self._address, self._addresses = source.host_and_port, {}

    async def _read_source(self) -> None:
        node = await self._session.find(f"{self._root}/source") if self._has_source else None
        if node is None:
            return
        try:
            found = read_source({"source": json.loads(node.data)})
        except MALFORMED as error:
            raise ConfigError(
                f"{self._root}/source in ZooKeeper does not name a source ({type(error).__name__}: {error}): delete the"
                " node to read canal.instance.master.address"
            ) from error
        if found is not None:
            self._use(found)

    async def _read_moves(self) -> None:
        node = f"{self._root}/moves"
        nodes = await asyncio.gather(*(self._session.get(f"{node}/{it}") for it in self._moved))
        found = dict[int, Sequence[Move]]()
        for name, it in zip(self._moved, nodes, strict=True):
            try:
                found |= read_moves({str(name): json.loads(it.data)})
            except MALFORMED as error:
                raise ConfigError(
                    f"{node}/{name} in ZooKeeper is not a record of how the position of a client moved"
                    f" ({type(error).__name__}: {error}): delete the node to forget that"
                ) from error
        self.moves = found

    def _moves_changes(self, moves: Mapping[int, Sequence[Move]]) -> list[Operation]:
        """Return what writes the jumps of clients, each in a node of its own, which outlives that of the client."""
        node = f"{self._root}/moves"
        operations: list[Operation] = [Create(node)] if moves and not self._has_moves else []
        for client_id, all_ in moves.items():
            path, is_there = f"{node}/{client_id}", client_id in self._moved
            if all_:
                data = json.dumps([it.stored() for it in all_], ensure_ascii=False).encode()
                operations.append((Put if is_there else Create)(path, data))
            elif is_there:
                operations.append(Delete(path))
        return operations

    def _node(self, client_id: int) -> str:
        return client_node(self._destination, client_id)

    def _changes(self, client: StoredClient) -> list[Operation]:
        node, client_id = self._node(client.client_id), client.client_id
        operations: list[Operation] = []
        if client_id not in self._filters:
            operations.append(Create(node))
        known, wanted = self._filters.get(client_id), client.filter if client.filter.strip() else None
        if wanted is None and known is not None:
            operations.append(Delete(f"{node}/filter"))
        elif wanted is not None and wanted != known:
            operations.append((Create if known is None else Put)(f"{node}/filter", wanted.encode()))
        for name, content in _own_nodes(client).items():
            there, path = self._own[name].get(client_id), f"{node}/{name}"
            if content and content != there:
                operations.append((Create if there is None else Put)(path, content))
            elif there is not None and not content:
                operations.append(Delete(path))
        if client.cursor is not None:
            data = self._cursor_data(client, client.cursor)
            operations.append((Put if client_id in self._cursors else Create)(f"{node}/cursor", data))
        return operations

    async def _removal(self, client_id: int) -> list[Operation]:
        node = self._node(client_id)
        return [Delete(path) for path in [*await self._below(node), *([node] if client_id in self._filters else [])]]

    def _cursor_data(self, client: StoredClient, cursor: Cursor) -> bytes:
        address = self._addresses.get(client.client_id, self._address)
        data = {"@type": LOG_POSITION, **log_position(cursor, address)}
        if ours := client_keys(replace(client, where="", output="", owner="")):  # these have nodes of their own
            data["sluice"] = ours
        return dumps(data)

    def _with(self, changes: Mapping[int, StoredClient | None]) -> dict[int, Cursor]:
        """Return the cursors as they will be stored."""
        cursors = dict(self._stored)
        for client_id, client in changes.items():
            if client is None:
                cursors.pop(client_id, None)
            elif client.cursor is not None:
                cursors[client_id] = client.cursor
        return cursors

    def _remember(self, client_id: int, client: StoredClient | None) -> None:
        if client is None:
            self._filters.pop(client_id, None)
            self._addresses.pop(client_id, None)
            self._cursors.discard(client_id)
            for contents in self._own.values():
                contents.pop(client_id, None)
            return
        self._filters[client_id] = client.filter if client.filter.strip() else None
        for name, content in _own_nodes(client).items():
            self._own[name].pop(client_id, None)
            if content:
                self._own[name][client_id] = content
        if client.cursor is not None:
            self._cursors.add(client_id)

    async def _survey(self) -> None:
        """Find out which nodes exist."""
        names = await self._session.children(self._root)
        self._has_parse = "parse" in names
        self._has_source = "source" in names
        self._has_moves = "moves" in names
        moved = await self._session.children(f"{self._root}/moves") if self._has_moves else []
        self._moved = {int(name) for name in moved if name.removeprefix("-").isdecimal()}
        client_ids = [int(name) for name in names if name.removeprefix("-").isdecimal()]
        children = await asyncio.gather(*(self._session.children(self._node(it)) for it in client_ids))
        below = dict(zip(client_ids, children, strict=True))
        filtered = [client_id for client_id, names in below.items() if "filter" in names]
        nodes = await asyncio.gather(*(self._session.get(f"{self._node(it)}/filter") for it in filtered))
        texts = {client_id: node.data.decode(errors="replace") for client_id, node in zip(filtered, nodes, strict=True)}
        self._filters = {client_id: texts.get(client_id) for client_id in client_ids}
        for own in OWN_NODES:
            having = [client_id for client_id, names in below.items() if own in names]
            nodes = await asyncio.gather(*(self._session.get(f"{self._node(it)}/{own}") for it in having))
            self._own[own] = {it: node.data for it, node in zip(having, nodes, strict=True)}
        self._cursors = {client_id for client_id, names in below.items() if "cursor" in names}
        self._marked = [client_id for client_id, names in below.items() if "mark" in names]

    async def _read_client(self, client_id: int) -> StoredClient:
        wanted, condition = self._filters[client_id] or "", self._own["where"].get(client_id, b"")
        token = self._own["owner"].get(client_id, b"")
        owned = condition.decode(errors="replace"), *self._read_owner(client_id), token.decode(errors="replace")
        path = f"{self._node(client_id)}/cursor"
        node = await self._session.get(path) if client_id in self._cursors else None
        has_cursor = node is not None and bool(node.data)
        if not has_cursor:
            path = f"{self._node(client_id)}/settings"
        try:
            if node is not None and has_cursor:
                data = json.loads(node.data)
                ours = data.get("sluice", {})
                cursor, address = read_cursor(data, ours), read_address(data)
            else:
                ours, cursor, address = json.loads(self._own["settings"].get(client_id) or b"{}"), None, None
            memory, moved = read_memory(ours)
            more = read_expiry(ours), read_late(ours), memory, read_snapshots(ours), read_protection(ours)
            client = StoredClient(client_id, wanted, cursor, *more, *owned, moved, *read_limits(ours))
        except MALFORMED as error:
            what = "is not a cursor" if has_cursor else "does not hold what a client is subscribed with"
            raise ConfigError(
                f"{path} in ZooKeeper {what} ({type(error).__name__}: {error}): correct it, or delete the node"
                " of the client to begin without it"
            ) from error
        if address is not None:
            self._addresses[client_id] = address
        return client

    def _read_owner(self, client_id: int) -> tuple[str, str]:
        """Read which output owns a client, and what was refused last to others. Raises ConfigError."""
        try:
            return read_owner(json.loads(self._own["output"].get(client_id) or b"{}"))
        except MALFORMED as error:
            raise ConfigError(
                f"{self._node(client_id)}/output in ZooKeeper does not name an output ({type(error).__name__}:"
                f" {error}): delete the node"
            ) from error

    async def _below(self, path: str) -> list[str]:
        """Return the paths of all nodes below one, the deepest first."""
        try:
            names = await self._session.children(path)
        except NoNodeError:
            return []
        paths = [f"{path}/{name}" for name in names]
        found = await asyncio.gather(*map(self._below, paths))
        return [it for own, below in zip(paths, found, strict=True) for it in (*below, own)]
