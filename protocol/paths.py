"""Paths of Canal's nodes in ZooKeeper, with ours beside them: what servers and clients look for in the same place."""

from typing import Final

SERVERS: Final = "/otter/canal/cluster"
"""Has a node for each live server."""
GROUP: Final = "/otter/canal/sluice"
"""Holds the name that all servers of this ZooKeeper have in common: ours."""
DESTINATIONS: Final = "/otter/canal/destinations"
"""Has a node for each destination."""


def destination_node(destination: str) -> str:
    """Return the node below which everything about a destination is."""
    return f"{DESTINATIONS}/{destination}"


def running_node(destination: str) -> str:
    """Return the ephemeral node of the server that has the destination."""
    return f"{DESTINATIONS}/{destination}/running"


def servers_node(destination: str) -> str:
    """Return the node that has one for each live server that takes part in the destination."""
    return f"{DESTINATIONS}/{destination}/cluster"


def epoch_node(destination: str) -> str:
    """Return the node that holds the epoch of a destination: ours."""
    return f"{DESTINATIONS}/{destination}/sluice"


def client_node(destination: str, client_id: int) -> str:
    """Return the node below which everything about a client is."""
    return f"{DESTINATIONS}/{destination}/{client_id}"


def turn_node(destination: str, client_id: int) -> str:
    """Return the ephemeral node of the consumer whose turn it is."""
    return f"{DESTINATIONS}/{destination}/{client_id}/running"
