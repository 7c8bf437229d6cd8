"""The commands that move destinations between servers: ``sluice yield`` and ``sluice rebalance``."""

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any, TypeVar

from ...protocol.errors import ConfigError, SluiceError, ZooKeeperError
from ..config import Configuration, ServerConfig
from .common import add_command, add_conf, add_destination, out

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..ha.moves import Move
    from ..ha.zookeeper import ZooKeeperSession

T = TypeVar("T")

LONGEST = 15.0
"""Seconds that ZooKeeper has to answer."""


def add_commands(commands: Any) -> None:
    """Add the commands to those of the command line."""
    give_up = add_command(
        commands,
        "yield",
        yield_command,
        "hand a destination over to another server",
        "Tell the server that owns the destination to release it. It stores the cursors, and another server takes\n"
        "over at once. If there is no other server, the same one takes over again after 5 s.",
        "sluice yield example --conf conf",
    )
    add_destination(give_up)
    add_conf(give_up)
    rebalance = add_command(
        commands,
        "rebalance",
        rebalance_command,
        "distribute the destinations evenly over the servers",
        "Tell servers that own more than their share of the destinations to release some, as sluice yield does.",
        "sluice rebalance --conf conf",
    )
    add_conf(rebalance)


def yield_command(options: Any) -> int:
    """Let another server take a destination over."""
    from ..ha.moves import give_up

    async def move(session: "ZooKeeperSession") -> "list[Move]":
        return [await give_up(session, options.destination)]

    return _report(in_session(shared(options), move))


def rebalance_command(options: Any) -> int:
    """Spread the destinations evenly."""
    from ..ha.moves import rebalance

    return _report(in_session(shared(options), rebalance))


def _report(moves: "list[Move]") -> int:
    for move in moves:
        out.print(f"{move.destination}: {move.owner} gives it up" + (f" for {move.wanted}" if move.wanted else ""))
    if not moves:
        out.print("every destination is where it should be")
    return 0


def shared(options: Any) -> ServerConfig:
    """Return the configuration of a server that is one of several. Raises ConfigError if it is alone."""
    config = Configuration(options.conf, os.environ).server
    if not config.zk_servers:
        raise ConfigError("canal.zkServers is empty: this server is alone, so nothing can be moved")
    return config


def in_session(config: ServerConfig, work: "Callable[[ZooKeeperSession], Awaitable[T]]") -> "T":
    """Do the work in a session of its own. Raises ZooKeeperError if ZooKeeper is silent."""
    from ..ha.zookeeper import ZooKeeperSession

    logging.getLogger("kazoo").addHandler(logging.NullHandler())  # the error says it once

    async def run() -> "T":
        session = ZooKeeperSession(config.zk_servers, config.session_timeout)
        try:
            async with asyncio.timeout(LONGEST):
                await session.connect()
                return await work(session)
        except TimeoutError:
            raise ZooKeeperError(f"ZooKeeper ({session.hosts}) has not answered for {LONGEST:g} s") from None
        finally:
            await session.close()

    return asyncio.run(run())


def try_zookeeper(config: ServerConfig) -> str:
    """Return why ZooKeeper cannot be used: it need not be asked again for each destination. Empty when it can."""

    async def do_nothing(_session: object) -> None:
        return

    try:
        if config.zk_servers:
            in_session(config, do_nothing)
    except SluiceError as error:
        return str(error)
    return ""
