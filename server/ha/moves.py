"""Destinations moved from one server to another, as told from outside by the nodes of their owners."""

import asyncio
import json
from dataclasses import dataclass

from ...instance.meta.canal import dumps
from ...instance.meta.nodes import BadVersionError, NoNodeError
from ...protocol.errors import ConfigError, UnknownDestinationError
from ...protocol.paths import DESTINATIONS, SERVERS, running_node
from .spread import misplaced
from .zookeeper import ZooKeeperSession


@dataclass(frozen=True, slots=True)
class Move:
    """What a destination's owner was told: to give it up."""

    destination: str
    owner: str
    """Address of the server that has it."""
    wanted: str = ""
    """Address of the server that should have it; empty for any other."""


async def give_up(session: ZooKeeperSession, destination: str, wanted: str = "") -> Move:
    """Tell the owner of a destination to give it up: cursors are stored, clients told, and another takes it over.

    Raises:
        UnknownDestinationError: no server has it.
        ConfigError: it is a view, which moves with another destination.
        ZooKeeperError: it cannot be said.
    """
    path = running_node(destination)
    await session.sync()
    node = await session.find(path)
    if node is None:
        raise UnknownDestinationError(f"no server has the destination {destination!r} now")
    data = json.loads(node.data)
    if route := data.get("route"):
        raise ConfigError(f"{destination} is a view of {route}, and moves with it: move {route}")
    await session.set(path, dumps({**data, "active": False}), node.version)
    return Move(destination, str(data["address"]), wanted)


async def rebalance(session: ZooKeeperSession) -> list[Move]:
    """Spread the destinations evenly over the live servers, by telling those that have too many to give some up.

    Raises:
        ZooKeeperError: it cannot be said.
    """
    await session.sync()
    destinations = await session.children(DESTINATIONS)
    nodes = await asyncio.gather(*(session.find(running_node(it)) for it in destinations))
    running = {it: node for it, node in zip(destinations, nodes, strict=True) if node is not None}
    found = {it: json.loads(node.data) for it, node in running.items()}
    owners = {it: str(data["address"]) for it, data in found.items() if "route" not in data}  # views move with others
    moves = []
    for destination, wanted in misplaced(owners, await session.children(SERVERS)).items():
        try:
            moves.append(await give_up(session, destination, wanted))
        except (UnknownDestinationError, BadVersionError, NoNodeError):
            continue  # it is moving already
    return moves
