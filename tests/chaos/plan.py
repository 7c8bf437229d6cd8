"""What a seed stands for: how many of what there is, and which faults come when."""

import random
from dataclasses import dataclass

SHARED = ("shop", "depot")
"""The destinations of the servers that share them over ZooKeeper; their sources are MariaDB and MySQL."""
LONE = "till"
"""That of the server that keeps its cursors in a file; it shares shop's source."""
LOGGED = ("shop", LONE)
"""Those with a log on disk."""
TIMEOUT = 2.0
"""Of the servers' sessions with ZooKeeper, seconds."""
PAUSE = 2.5
"""Seconds between two faults, on average."""


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
    servers: int
    zookeepers: int
    period: str
    """The shared destination whose cursors are stored each period; those of the other one at each ack."""
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.servers} servers, {self.zookeepers} ZooKeeper, cursors of {self.period} each"
            f" period, {len(self.faults)} faults in {self.seconds:g} s"
        )


def make_plan(seed: int, seconds: float) -> Plan:
    """Return what happens under a seed; a longer run begins as a shorter one."""
    chance = random.Random(seed)
    servers = [f"server{number}" for number in range(chance.choice((2, 3)))]
    zookeepers = chance.choice((1, 3))
    period = chance.choice(SHARED)
    consumers = [f"{destination}-{client}" for destination in (*SHARED, LONE) for client in (1001, 1002)]
    kinds: list[tuple[int, str, list[str], float]] = [
        (4, "kill", servers, 6),
        (4, "freeze", servers, 3 * TIMEOUT),
        (2, "stop", servers, 3),
        (3, "cut from zookeeper", servers, 3 * TIMEOUT),
        (1, "lose connection to zookeeper", servers, 0),
        (2, "cut from sources", servers, 5),
        (3, "cut from clients", servers, 5),
        (3, "kill leader of", ["zookeeper"], 3),
        (1, "restart all of", ["zookeeper"], 1),
        (1, "freeze", ["zookeeper"], 2 * TIMEOUT),
        (1, "kill", ["mariadb", "mysql"], 1),
        (1, "stop", ["mariadb", "mysql"], 1),
        (2, "kill", ["kafka"], 3),
        (1, "stop", ["kafka"], 1),
        (2, "freeze", ["kafka"], 5),
        (3, "yield", list(SHARED), 0),
        (1, "rebalance", ["all"], 0),
        (2, "fill disk of", ["lone"], 4),
        (2, "kill", ["lone"], 2),
        (1, "cut from sources", ["lone"], 4),
        (1, "cut from clients", ["lone"], 4),
        (2, "kill", consumers, 1),
        (1, "freeze", consumers, 5),
    ]
    weights = [weight for weight, *_ in kinds]
    faults = []
    at = chance.uniform(1, 3)
    while at < seconds:
        _, kind, targets, longest = chance.choices(kinds, weights)[0]
        faults.append(Fault(at, kind, chance.choice(targets), longest * chance.random()))
        at += chance.expovariate(1 / PAUSE)
    return Plan(seed, seconds, len(servers), zookeepers, period, tuple(faults))
