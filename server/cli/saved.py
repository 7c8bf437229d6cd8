"""What is stored of the clients of a destination, read without starting anything."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...instance.config import InstanceConfig
from ...instance.meta.base import InUse
from ...instance.meta.nodes import NodeSession, NoNodeError
from ...instance.meta.zookeeper import ZooKeeperClients
from ...instance.serving.serving import compile_where
from ...instance.sink.filters import TableFilter
from ...protocol.errors import ZooKeeperError
from ...protocol.paths import running_node
from ...store.cursor import Cursor, StoredClient
from ..config import ServerConfig
from .cluster import in_session


@dataclass(frozen=True, slots=True)
class Saved:
    """The clients of a destination, as they are stored."""

    where: str
    clients: Sequence[StoredClient] = ()
    place: Cursor | None = None
    """Where to begin without a client's cursor, if that is kept."""
    running: str = ""
    """What ZooKeeper says of the server that serves the destination now."""
    source: InUse | None = None
    """Which of several sources is read, if that was chosen."""


def read_saved(server: ServerConfig, config: InstanceConfig) -> Saved:
    """Read them where they are kept. Raises ConfigError for what cannot be read, ZooKeeperError."""
    if config.meta.make is not None:
        local = config.meta.make(config)
        clients = local.read()
        return Saved(local.where, clients, local.place, source=local.source)
    where = f"ZooKeeper ({server.zk_servers}, {config.meta})"

    parse = config.log_position == "parse"

    async def read(session: NodeSession) -> Saved:
        node = await session.find(running_node(config.destination))
        running = "" if node is None else node.data.decode(errors="replace")
        store = ZooKeeperClients(session, config.destination, config.address, parse=parse)
        try:
            clients = await store.read()
        except NoNodeError:
            return Saved(where, running=running)
        return Saved(where, clients, store.place, running, store.source)

    return in_session(server, read)


def as_read(server: ServerConfig, config: InstanceConfig) -> InstanceConfig:
    """Return the configuration with the source that is read now, where several have the same data.

    Raises what `read_saved` raises.
    """
    has_others = any(it.others for it in config.sources().values())
    return config.using(read_saved(server, config.main).source) if has_others else config


def require_zookeeper(config: InstanceConfig, silence: str) -> None:
    """Raise ZooKeeperError for a destination whose cursors are there, if ``silence`` says why it cannot be used."""
    if silence and config.main.meta.is_shared:
        raise ZooKeeperError("not examined: its cursors are in ZooKeeper, which does not answer")


def try_filter(config: InstanceConfig, client: StoredClient) -> None:
    """Compile the filter and the conditions of a client as the destination would. Raises FilterError."""
    if config.shared_filter:
        TableFilter(client.filter)
    else:
        config.table_filter().narrow(client.filter)
    if client.where:
        compile_where(client.where)
