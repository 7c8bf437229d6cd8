"""One schedule: servers, a consumer, a source and ZooKeeper, and what goes wrong with them; all from one seed."""

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from sluice.server.ha.operations import Running
from tests.simulation.checks import Checks, Violation
from tests.simulation.consumer import Consumer
from tests.simulation.ensemble import FOLLOWERS, OF_VIEW, TIMEOUT, Ensemble
from tests.simulation.server import Server
from tests.simulation.source import Source
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 250
"""Of a schedule, before its faults stop."""
WIPED = 9
WIPED_REST = 2
"""ZooKeeper loses its data in schedules whose seed leaves this when divided by `WIPED`."""
PAIRED = 4
"""In one schedule of this number the source has two servers, and the destination a view."""
EPOCHS = 1000
"""By how much the clock raises the epoch where data are written back."""
RECOVERY = 240.0
"""Seconds after the last fault in which everything has to be delivered and acked."""


class Schedule:
    """A run.

    Args:
        seed: what it is made from.
        make_server: what the servers are.
        trace: keep in ``world.trace`` what happens.
    """

    def __init__(self, seed: int, make_server: type[Server] = Server, *, trace: bool = False) -> None:
        world = self.world = World(seed, trace=trace)
        self.is_paired = seed % PAIRED == 0 and seed % WIPED != WIPED_REST
        self.source = Source(world, 2 if self.is_paired else 1)
        self.checks = Checks(world, self.source)
        self.ensemble = self.checks.ensemble = Ensemble(world, self.checks.stores)
        count = 1 + int(3 * world.random.random())
        self.servers = self.checks.servers = [
            make_server(f"server{i}", world, self.ensemble, self.source, self.checks) for i in range(count)
        ]
        urls = {server.url: server for server in self.servers}
        self.consumers = [Consumer(world, urls, self.checks)]
        self._faulty = True
        server_faults: list[tuple[int, Callable[[Server], None]]] = [
            (3, self._crash),
            (4, self._pause),
            (3, self._lose_link),
            (1, self._jump),
            (1, self._stop),
            (1, self._seek),
        ]
        other_faults: list[tuple[int, Callable[[], None]]] = [
            (3, self._cut_follower),
            (2, self._delete_running),
            (2, self._yield),
            (1, self._crash_consumer),
            (3, self._pause_consumer),
            (1, self._lose_messages),
            (1, self._lose_broker),
        ]
        if self.is_paired:
            self.consumers.append(Consumer(world, urls, self.checks, OF_VIEW))
        self._server_faults = [fault for weight, fault in server_faults for _ in range(weight)]
        self._other_faults = [fault for weight, fault in other_faults for _ in range(weight)]

    @property
    def seconds(self) -> float:
        """The time."""
        return self.world.now

    @property
    def counted(self) -> dict[str, int]:
        """How often what happened."""
        return {
            "steps": self.world.steps,
            "take-overs": self.ensemble.nodes.epoch,
            "switches": self.checks.switches,
        }

    @property
    def lines(self) -> list[str]:
        """Its trace."""
        return [str(it) for it in self.world.trace or ()]

    def run(self) -> None:
        """Run; raises Violation."""
        world, checks = self.world, self.checks
        for server in self.servers:
            server.start()
        for consumer in self.consumers:
            consumer.start()
        if self.is_paired:
            self._replicate()
            self._break_source()
        self._grow()
        self._break()
        if world.seed % WIPED == WIPED_REST:
            world.after(random.Random(world.seed).uniform(2, 20), self._wipe)
        while world.steps < (2 * STEPS if self.is_paired else STEPS):
            world.step()
            checks.step()
        self._heal()
        end = world.now + RECOVERY
        while not checks.finished:
            world.step()
            checks.step()
            if world.now > end:
                raise Violation(f"seed {world.seed}: no progress {RECOVERY:g} s after the last fault")

    def _grow(self) -> None:
        if self._faulty:
            self.source.grow()
            self.world.after(self.world.random.random() * 1.5, self._grow)

    def _replicate(self) -> None:
        """Let the servers of the source have what was written, and an operator go on where a switch was refused."""
        self.source.replicate()
        for server in self.servers:
            if server.is_up and server.awaits_operator:
                self.world.tell(0, server, server.switch)
        self.world.after(self.world.random.random() * 1.5, self._replicate)

    def _break_source(self) -> None:
        if not self._faulty:
            return
        if self.world.random.random() < 0.5:
            self._switch()
        else:
            self._lose_host()
        self.world.after(self.world.random.expovariate(0.4), self._break_source)

    # --- faults ------------------------------------------------------------------------------------------------------

    def _break(self) -> None:
        if not self._faulty:
            return
        random = self.world.random
        if random.random() < 0.6:
            random.choice(self._server_faults)(random.choice(self.servers))
        else:
            random.choice(self._other_faults)()
        self.world.after(random.expovariate(0.8), self._break)

    def _seconds(self, most: float) -> float:
        """Return a time, mostly short."""
        return most * self.world.random.random() ** 2

    def _log(self, who: str, what: str) -> None:
        self.world.log(who, f"** {what}")

    def _crash(self, server: Server) -> None:
        if server.is_up:
            self._log(server.name, "crashes")
            server.crash()
            self.world.after(self._seconds(2 * TIMEOUT), self._restart, server)

    def _restart(self, server: Server) -> None:
        if not server.is_up:
            self._log(server.name, "starts")
            server.start()

    def _pause(self, server: Server) -> None:
        server.awake_at = max(server.awake_at, self.world.now + self._seconds(2 * TIMEOUT))
        self._log(server.name, f"stands still until {server.awake_at:.4f}")

    def _lose_link(self, server: Server) -> None:
        if server.is_up:
            self._log(server.name, "loses its connection")
            self.world.tell(0, server, server.lose_link, self._seconds(2 * TIMEOUT))

    def _stop(self, server: Server) -> None:
        if server.is_up:
            self._log(server.name, "is told to stop the destination")
            self.world.tell(0, server, server.take_part, False)
            self.world.tell(self._seconds(TIMEOUT), server, server.take_part, True)

    def _seek(self, server: Server) -> None:
        if server.is_up:
            self.world.tell(0, server, server.seek)

    def _switch(self) -> None:
        for server in self.servers:
            if server.is_up:
                self.world.tell(0, server, server.switch)

    def _lose_host(self) -> None:
        host = self.world.random.choice(self.source.hosts)
        host.down_until = max(host.down_until, self.world.now + self._seconds(2 * TIMEOUT))
        self._log(host.address, f"is away until {host.down_until:.4f}")

    def _jump(self, server: Server) -> None:
        server.wall = self.world.random.uniform(-1e6, 1e6)

    def _cut_follower(self) -> None:
        follower = self.world.random.randrange(FOLLOWERS)
        if any(self.ensemble.cut):
            return
        self._log("zookeeper", f"loses follower {follower}")
        self.ensemble.cut[follower] = True
        self.world.after(self._seconds(2 * TIMEOUT), self._join_follower, follower)

    def _join_follower(self, follower: int) -> None:
        self.ensemble.cut[follower] = False
        for server in self.servers:
            if server.is_up and server.link is not None and server.link.follower == follower:
                self.world.tell(0, server, server.lose_link)

    def _delete_running(self) -> None:
        nodes = self.ensemble.nodes
        if nodes.running is not None:
            self._log("operator", "deletes running")
            self.checks.deposed.add(nodes.epoch)
            self.ensemble.write(replace(nodes, running=None))

    def _wipe(self) -> None:
        """Let ZooKeeper lose its data, once each server knows of them: one that does not cannot notice it."""
        if not self._faulty:
            return
        if any(server.disk.epoch <= 0 for server in self.servers):
            self.world.after(1.0, self._wipe)
            return
        self._log("zookeeper", "loses its data")
        self.checks.deposed.add(self.ensemble.nodes.epoch)
        self.ensemble.wipe()
        self.world.after(TIMEOUT + self._seconds(2 * TIMEOUT), self._restore)

    def _restore(self) -> None:
        """Write back what the servers have saved, as `sluice cluster restore` does."""
        nodes = self.ensemble.nodes
        saved = [it for server in self.servers for it in server.disk.saved.values()]
        newest = max(saved, key=lambda it: (it.epoch, it.at), default=None)
        epoch = EPOCHS + max(server.disk.epoch for server in self.servers)
        self._log("operator", f"writes back what was stored in epoch {newest.epoch if newest else 0}")
        clients = nodes.clients if newest is None else newest.clients
        self.ensemble.write(replace(nodes, running=Running(0, "sluice cluster restore")))
        self.ensemble.write(replace(nodes, epoch=epoch, version=nodes.version + 1, clients=clients))
        self.ensemble.lost = False

    def _yield(self) -> None:
        nodes = self.ensemble.nodes
        if nodes.running is not None:
            self._log("operator", "lets the owner yield")
            self.ensemble.write(replace(nodes, running=replace(nodes.running, active=False)))

    def _crash_consumer(self) -> None:
        self._log("consumer", "starts again")
        consumer = self._one_consumer()
        consumer.crash()
        consumer.start()

    def _one_consumer(self) -> Consumer:
        return self.world.random.choice(self.consumers) if self.is_paired else self.consumers[0]

    def _pause_consumer(self) -> None:
        consumer = self._one_consumer()
        consumer.awake_at = max(consumer.awake_at, self.world.now + self._seconds(2 * TIMEOUT))

    def _lose_messages(self) -> None:
        self._one_consumer().lossy_until = self.world.now + self._seconds(2 * TIMEOUT)

    def _lose_broker(self) -> None:
        self.checks.broker.away_until = self.world.now + self._seconds(2 * TIMEOUT)

    def _heal(self) -> None:
        self._log("world", "heals")
        self._faulty = False
        for follower in range(FOLLOWERS):
            if self.ensemble.cut[follower]:
                self._join_follower(follower)
        for server in self.servers:
            self._restart(server)
            server.cut_until = 0.0
            server.failing = False
        for host in self.source.hosts:
            host.down_until = 0.0
        for consumer in self.consumers:
            consumer.lossy_until = consumer.pace = 0.0
        self.checks.broker.away_until = 0.0
