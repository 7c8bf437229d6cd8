"""An output that sends to a broker with transactions: a subscriber, as `server/outputs/delivery.py` is one.

The broker keeps the place of the output with what it takes, as the topic of the positions does.
"""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from sluice.protocol.errors import FencedError, SourceChangedError
from sluice.protocol.position import Position
from tests.simulation.ensemble import OUTPUT
from tests.simulation.source import index_of, place
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.checks import Checks
    from tests.simulation.server import Instance, Server

ENTRIES = 12
"""Of a transaction."""
PATIENCE = 2.0
"""Seconds after which an answer of the broker is waited for no more."""
PAUSE = 0.2
"""Seconds before another attempt."""


class Place(NamedTuple):
    """How far the output has come, and in which epoch that was written."""

    position: Position
    epoch: int


class Broker:
    """A model of a broker of Kafka: of all producers with the output's transactional id the newest one may write."""

    def __init__(self, world: World, checks: "Checks") -> None:
        self.away_until = 0.0
        """What comes until then gets lost; at times it is done, and the answer gets lost."""
        self._world = world
        self._checks = checks
        self._newest = 0
        self._place: Place | None = None

    def open(self, epoch: int) -> "tuple[int, Place | None]":
        """Open a producer, which fences those before it (`init_transactions`); return it, and the place."""
        self._newest += 1
        self._world.log("broker", "opens producer", self._newest, "of epoch", epoch, "at", self._place)
        return self._newest, self._place

    def claim(self, producer: int, epoch: int) -> bool:
        """Take a transaction that only says which epoch it is from now on, unless the producer is fenced."""
        if producer == self._newest:
            self._checks.claims(epoch)
            self._place = Place(self._place.position if self._place is not None else place(0), epoch)
        return producer == self._newest

    def commit(self, producer: int, epoch: int, from_: str, to: str) -> bool:
        """Take the changes of a transaction, and the place after it, unless the producer is fenced."""
        if producer != self._newest:
            return False
        start, stop = index_of(from_), index_of(to)
        self._world.log("broker", "takes", start, "to", stop, "of producer", producer)
        self._checks.writes(epoch, start, stop)
        self._place = Place(Position.parse(to), epoch)
        return True

    @property
    def loses(self) -> bool:
        """Whether what comes or goes just now gets lost."""
        return self.away_until > self._world.now and self._world.random.random() < 0.5


class Output:
    """The output of a destination while a server has it."""

    def __init__(self, server: "Server", instance: "Instance", broker: Broker) -> None:
        self._server = server
        self._world = server.world
        self._instance = instance
        self._broker = broker
        self._session = ""
        self._producer = 0
        self._asked = 0

    def open(self) -> None:
        """Begin an attempt."""
        if self._server.instance is not self._instance or self._instance.closing:
            return
        self._session = self._instance.cursors.clients.open_session(OUTPUT, self._now)
        self._ask(self._opened, self._broker.open, self._instance.epoch)

    def _is_lost(self) -> bool:
        """Whether the destination is lost; then another attempt is made, unless this instance is closed."""
        with contextlib.suppress(FencedError):
            if self._server.check() is self._instance:
                return False
        self._again()
        return True

    @property
    def _now(self) -> float:
        return self._world.now

    def _opened(self, answer: tuple[int, Place | None]) -> None:
        self._producer, place = answer
        if place is not None and place.epoch > self._instance.epoch:
            self._again()
            return

        def claimed(taken: bool) -> None:
            if taken:
                self.take_over(place)
            else:
                self._again()

        self.claim(claimed)

    def claim(self, answered: Callable[[bool], None]) -> None:
        """Keep servers out that have had the destination in an earlier epoch."""
        self._ask(answered, self._broker.claim, self._producer, self._instance.epoch)

    def take_over(self, place: Place | None) -> None:
        """Confirm what the broker has, when the stream has come there, then begin to send."""
        if self._is_lost():
            return
        cursors = self._instance.cursors
        if place is not None and not self._acks_to(self._instance.position(place.position)):
            self._world.tell(PAUSE, self._server, self.take_over, place)
            return
        cursors.rollback(OUTPUT, now=self._now, session=self._session)
        self._send()

    def _acks_to(self, position: Position) -> bool:
        try:
            return self._instance.cursors.ack_to(OUTPUT, position, now=self._now, session=self._session)
        except SourceChangedError:  # nothing has come of the source that was switched to
            return False

    def _send(self) -> None:
        if self._is_lost():
            return
        cursors = self._instance.cursors
        batch = cursors.get(OUTPUT, now=self._now, max_entries=ENTRIES, session=self._session)
        if batch is None:
            self._world.tell(0.5, self._server, self._send)
            return

        def answered(taken: bool) -> None:
            if not taken:
                self._again()
                return
            cursors.ack(OUTPUT, batch.batch_id, now=self._now, session=self._session)
            self._send()

        self._ask(answered, self._broker.commit, self._producer, self._instance.epoch, batch.from_, batch.to)

    def _again(self) -> None:
        self._world.tell(PAUSE, self._server, self.open)

    def _ask(self, answered: Callable[[Any], None], call: Callable[..., Any], *arguments: Any) -> None:
        """Ask the broker; what was sent arrives, whatever becomes of the server."""
        self._asked += 1
        number = self._asked

        def arrive() -> None:
            if not self._broker.loses:
                result = call(*arguments)
                if not self._broker.loses:
                    self._world.tell(self._world.latency(), self._server, hear, result)

        def hear(result: Any) -> None:
            if number == self._asked:
                self._asked += 1
                answered(result)

        def give_up() -> None:
            if number == self._asked:
                self._asked += 1
                self._again()

        self._world.after(self._world.latency(), arrive)
        self._world.tell(PATIENCE, self._server, give_up)
