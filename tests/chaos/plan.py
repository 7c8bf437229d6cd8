"""What a seed stands for: how many of what there is, and which faults come when."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

SHARED = ("shop", "depot")
"""The destinations of the servers that share them over ZooKeeper. Each reads its schema from either of two sources."""
MAIN = "shop"
"""One of them, ..."""
VIEW = "part"
"""... and a view of it, of some tables."""
LONE = "till"
"""The destination of the server that keeps its cursors in a file: it reads the same schema as the first one."""
CONSUMERS: Mapping[int, tuple[str, ...]] = {1001: (*SHARED, LONE), 1002: (*SHARED, LONE, VIEW), 1004: (VIEW,)}
"""Who reads what: 1001 is protected, 1004 has a condition on rows."""
SOURCES = ("first", "second")
"""The second one replicates from the first, which is written to."""
TABLES = ("t0", "t1", "t2")
"""Of each schema."""
TIMEOUT = 2.0
"""Of the servers' sessions with ZooKeeper, seconds."""
PAUSE = 2.5
"""Seconds between two faults, on average."""
LOSSES = 20.0
"""Seconds between two of those that let a destination switch its source by itself, on average."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong, and ends."""

    at: float
    """Seconds after the begin."""
    kind: str
    target: str
    seconds: float
    """How long it lasts."""

    def __str__(self) -> str:
        return f"{self.at:7.2f} s  {self.kind} {self.target}" + (f" for {self.seconds:.2f} s" if self.seconds else "")


@dataclass(frozen=True, slots=True)
class Plan:
    """A run."""

    seed: int
    seconds: float
    kind: str
    """Of the sources."""
    servers: int
    zookeepers: int
    period: str
    """The shared destination whose cursors are stored each period; those of the other one at each ack."""
    file: str
    """The shared destination whose changes are given only when the log has them (``file``); else it is ``mixed``."""
    gtids: bool
    """Places are kept with the GTIDs of what was executed before them (``gtidon``)."""
    automatic: str
    """The shared destination that reads the other source by itself when the one in use does not answer."""
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.kind}, {self.servers} servers, {self.zookeepers} ZooKeeper, cursors of"
            f" {self.period} each period, the log of {self.file} before all clients,"
            f" {'with' if self.gtids else 'without'} GTIDs, {self.automatic} switches by itself,"
            f" {len(self.faults)} faults in {self.seconds:g} s"
        )


def names() -> list[str]:
    """Return the consumers, each by its destination and client."""
    return [f"{destination}-{client}" for client, destinations in CONSUMERS.items() for destination in destinations]


def make_plan(seed: int, seconds: float, kind: str = "mariadb118") -> Plan:
    """Return what happens under a seed; a longer run begins as a shorter one."""
    chance = random.Random(seed)
    servers = [f"server{number}" for number in range(chance.choice((2, 3)))]
    zookeepers = chance.choice((1, 3))
    period, file = chance.choice(SHARED), chance.choice(SHARED)
    gtids = chance.random() < 0.5
    tables = [f"{schema}.{table}" for schema in SHARED for table in TABLES]
    kinds: list[tuple[int, str, list[str], float]] = [
        (4, "kill", servers, 6),
        (4, "freeze", servers, 3 * TIMEOUT),
        (2, "stop", servers, 3),
        (3, "cut from zookeeper", servers, 3 * TIMEOUT),
        (1, "lose connection to zookeeper", servers, 0),
        (2, "cut from sources", servers, 5),
        (3, "cut from clients", servers, 5),
        (2, "fill disk of", servers, 4),
        (3, "kill leader of", ["zookeeper"], 3),
        (1, "restart all of", ["zookeeper"], 1),
        (1, "freeze", ["zookeeper"], 2 * TIMEOUT),
        (2, "kill", ["first"], 1),
        (1, "stop", list(SOURCES), 1),
        (1, "freeze", list(SOURCES), 4),
        (3, "purge", list(SOURCES), 0),
        (4, "switch", list(SHARED), 0),
        (3, "alter", tables, 0),
        (4, "copy", names(), 0),
        (2, "kill", ["kafka"], 3),
        (1, "stop", ["kafka"], 1),
        (2, "freeze", ["kafka"], 5),
        (3, "yield", list(SHARED), 0),
        (1, "rebalance", ["all"], 0),
        (2, "fill disk of", ["lone"], 4),
        (2, "kill", ["lone"], 2),
        (1, "cut from sources", ["lone"], 4),
        (1, "cut from clients", ["lone"], 4),
        (2, "kill", names(), 1),
        (1, "freeze", names(), 20),
    ]
    weights = [weight for weight, *_ in kinds]
    faults = []
    at = chance.uniform(1, 3)
    while at < seconds:
        _, name, targets, longest = chance.choices(kinds, weights)[0]
        faults.append(Fault(at, name, chance.choice(targets), longest * chance.random()))
        at += chance.expovariate(1 / PAUSE)
    losses = random.Random(f"{seed} losses")
    automatic = losses.choice(SHARED)
    at = losses.uniform(3, 15)
    while at < seconds:
        faults.append(Fault(at, "switch by itself", automatic, losses.uniform(8, 12)))
        at += losses.expovariate(1 / LOSSES)
    faults.sort(key=lambda it: it.at)
    return Plan(seed, seconds, kind, len(servers), zookeepers, period, file, gtids, automatic, tuple(faults))
