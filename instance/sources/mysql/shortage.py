"""Whether a source allows the connections that destinations take of it."""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext

from .config import MysqlConfig
from .connection import CONNECTIONS, Connection, text

SPARE = 50
"""How many connections are left to others when a source is told to allow more."""


def shortage(connection: Connection, sharing: Sequence[MysqlConfig]) -> str:
    """Return how many connections a source lacks for all of its destinations; empty when it has enough.

    ``connection`` is of the first of them.
    """
    accounts: dict[str, list[MysqlConfig]] = defaultdict(list)
    for config in sharing:
        accounts[config.db_username].append(config)
    own = 0
    for user, configs in accounts.items():
        with nullcontext(connection) if configs[0] is sharing[0] else Connection(configs[0]) as asked:
            allowed, of_account = asked.ask("SELECT @@max_connections, @@session.max_user_connections", row=(int, int))
            _, connected = asked.ask("SHOW GLOBAL STATUS LIKE 'Threads_connected'", row=(text, int))
            own += _count(asked, user)
        if of_account and len(configs) * CONNECTIONS > of_account:
            cure = f"ALTER USER {user!r} WITH MAX_USER_CONNECTIONS {len(configs) * _most(configs)};"
            return _text(configs, f"{of_account} for {user!r} (max_user_connections)", cure)
    others = max(0, connected - own)
    if len(sharing) * CONNECTIONS <= allowed - others:
        return ""
    used = f", of which others use {others} now" if others else ""
    cure = f"SET GLOBAL max_connections = {len(sharing) * _most(sharing) + others + SPARE};"
    return _text(sharing, f"{allowed} (max_connections){used}", cure)


def _text(configs: Sequence[MysqlConfig], allowed: str, cure: str) -> str:
    least, most = len(configs) * CONNECTIONS, len(configs) * _most(configs)
    return (
        f"{len(configs)} destinations take {least} connections of it, {most} with all their catch-up readers, and it"
        f" allows {allowed}: {cure} -- or let several clients share a destination, each with a filter of its own"
    )


def _most(configs: Sequence[MysqlConfig]) -> int:
    """Return how many connections a destination takes when all its readers read."""
    return CONNECTIONS * (1 + max(config.catch_up_readers for config in configs))


def _count(connection: Connection, user: str) -> int:
    """Return how many connections an account has, which it may see without a privilege."""
    return sum(owner == user for _, owner in connection.query("SHOW PROCESSLIST", row=(text, text)))
