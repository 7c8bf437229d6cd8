"""Whether sources allow the connections that the destinations take of them."""

import asyncio
import contextlib
import logging
import threading
from collections import defaultdict
from collections.abc import Iterable

from ..instance.sources.mysql.config import Address, MysqlConfig
from ..instance.sources.mysql.connection import CONNECTIONS, Connection, text
from ..protocol.errors import SluiceError
from .config import Configuration
from .network import is_loopback

logger = logging.getLogger(__name__)

SPARE = 50
"""How many connections are left to others when a source is told to allow more."""

ASKING = 3.0
"""Seconds that the server waits for sources to say how many connections they allow."""


async def warn_of_shortages(configuration: Configuration, names: Iterable[str]) -> None:
    """Say which sources allow too few connections, before they run out; slow sources are reported later."""

    def warn() -> None:
        configs = []
        for name in names:
            with contextlib.suppress(SluiceError, OSError):  # it is said when the destination starts
                configs.append(configuration.instance(name))
        for address, shortage in find_shortages(configs):
            logger.warning("source %s: %s", address, shortage)

    asking = threading.Thread(target=warn, name="shortages", daemon=True)
    asking.start()
    await asyncio.to_thread(asking.join, ASKING)


def find_shortages(configs: Iterable[MysqlConfig]) -> list[tuple[Address, str]]:
    """Ask each source of several destinations what it allows; return those that allow too little, and what helps.

    A source that cannot be asked is left out: its destinations say why.
    """
    sources: dict[Address, list[MysqlConfig]] = defaultdict(list)
    for config in configs:
        sources[_one_name(config.master_address)].append(config)
    found = []
    for sharing in sources.values():
        if len(sharing) > 1:
            try:
                shortage = _shortage(sharing)
            except SluiceError:
                continue
            if shortage:
                found.append((sharing[0].master_address, shortage))
    return found


def _one_name(address: Address) -> Address:
    """Return the same for all ways to write an address of this host, and for a name in capitals."""
    host = address.host.lower()
    return Address("localhost" if is_loopback(host) else host, address.port)


def _shortage(sharing: list[MysqlConfig]) -> str:
    """Return what a source has too little of for all of its destinations; empty when it has enough."""
    accounts: dict[str, list[MysqlConfig]] = defaultdict(list)
    for config in sharing:
        accounts[config.db_username].append(config)
    own = 0
    for user, configs in accounts.items():
        with Connection(configs[0]) as connection:
            allowed, of_account = connection.ask(
                "SELECT @@max_connections, @@session.max_user_connections", row=(int, int)
            )
            _, connected = connection.ask("SHOW GLOBAL STATUS LIKE 'Threads_connected'", row=(text, int))
            own += _count(connection, user)
        if of_account and len(configs) * CONNECTIONS > of_account:
            cure = f"ALTER USER {user!r} WITH MAX_USER_CONNECTIONS {len(configs) * _most(configs)};"
            return _text(configs, f"{of_account} for {user!r} (max_user_connections)", cure)
    others = max(0, connected - own)
    if len(sharing) * CONNECTIONS <= allowed - others:
        return ""
    used = f", of which others use {others} now" if others else ""
    cure = f"SET GLOBAL max_connections = {len(sharing) * _most(sharing) + others + SPARE};"
    return _text(sharing, f"{allowed} (max_connections){used}", cure)


def _text(configs: list[MysqlConfig], allowed: str, cure: str) -> str:
    least, most = len(configs) * CONNECTIONS, len(configs) * _most(configs)
    return (
        f"{len(configs)} destinations take {least} connections of it, {most} with all their catch-up readers, and it"
        f" allows {allowed}: {cure} -- or let several clients share a destination, each with a filter of its own"
    )


def _most(configs: list[MysqlConfig]) -> int:
    """Return how many connections a destination takes when all its readers read."""
    return CONNECTIONS * (1 + max(config.catch_up_readers for config in configs))


def _count(connection: Connection, user: str) -> int:
    """Return how many connections an account has, which it may see without a privilege."""
    return sum(owner == user for _, owner in connection.query("SHOW PROCESSLIST", row=(text, text)))
