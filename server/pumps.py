"""Where the pump for TiDB of a process stands, for status, metrics and conditions. A front knows it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ..instance.pump.log import PumpStatus
from ..login.nodes import State


@dataclass(frozen=True, slots=True)
class Served:
    """What a pump has answered since the start."""

    messages: int = 0
    """Messages that were stored."""
    bytes: int = 0
    """Of them."""
    refused: int = 0
    """Messages that were answered with an error."""
    streams: int = 0
    """Streams of transactions that are open."""


@dataclass(frozen=True, slots=True)
class PumpStanding:
    """Where a pump stands."""

    node_id: str
    """Its name in the cluster."""
    address: str
    cluster_id: int
    state: State
    wanted: State
    """Where operators want it to go."""
    problem: str
    """Why the cluster does not know how it stands; empty: it does, or the pump is reached by a socket only."""
    clock_problem: str
    """Why drainers are not told the time while TiDB writes nothing; empty: they are, or it is not configured."""
    unresolved: str
    """Why transactions are without an end for too long; empty: none is."""
    log: PumpStatus
    served: Served


Pumps: TypeAlias = list[Callable[[], PumpStanding]]
"""The pumps of a process: one, or none."""
