"""A consumer: the real machine of the SDK that chooses servers and repeats calls, on a simulated network."""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from sluice.client_sdk import Batch, calls
from sluice.client_sdk.attempts import Attempts
from sluice.client_sdk.calls import Call, Limits, Reply
from sluice.client_sdk.endpoint import GRACE, Endpoint, Interrupted
from sluice.protocol.errors import (
    ConnectionLostError,
    SluiceError,
    SourceChangedError,
    StaleSessionError,
    UnknownBatchError,
)
from tests.simulation.checks import Checks
from tests.simulation.ensemble import CLIENT
from tests.simulation.server import DESTINATION, Request, Server
from tests.simulation.source import index_of
from tests.simulation.world import World

PATIENCE = 2.0
"""Seconds after which an answer is waited for no more ..."""
LONGEST_WAY = 12.0
"""... though messages may take so long."""

_GETS = [calls.get_without_ack(0, Limits(max_entries=entries), "text") for entries in range(8)]

Then = Callable[[Any], None]


class Consumer:
    """A process that gets, processes, acks; what it has processed outlives it."""

    def __init__(self, world: World, servers: Mapping[str, Server], checks: Checks, client_id: int = CLIENT) -> None:
        """``servers`` are those of the cluster, by URL."""
        self.client_id = client_id
        self.world = world
        self.life = 0
        self.awake_at = 0.0
        self.lossy_until = 0.0
        """Of its messages some are lost until then."""
        self.pace = 0.0
        """Seconds that it may take to process a batch."""
        self._servers = servers
        self._checks = checks
        self._number = 0
        self._session = ""
        """The one of the last call."""

    def start(self) -> None:
        """Begin a life, with a session that fences the one before."""
        random = self.world.random.random
        urls = list(self._servers)[: 1 + int(2 * random())]
        if random() < 0.5:
            self._endpoint = Endpoint(urls, DESTINATION, self.client_id, None, insecure=True)
        else:
            self._endpoint = Endpoint((), DESTINATION, self.client_id, None, insecure=True, is_told=True)
            self._turn = 1
            self._hear(urls[-1])
            self.world.tell(self.world.latency(), self, self._look)
        self._window = 1 + int(4 * random())
        self.pace = 4 * random() ** 3
        self._pending: deque[tuple[int, Batch]] = deque()
        self._since = self.world.now
        self._answered: Callable[[Reply | Interrupted], None] | None = None
        self.world.tell(PATIENCE, self, self._watch)
        self._open()

    def crash(self) -> None:
        """Die; what it has sent stays on its way."""
        self.life += 1
        self.awake_at = 0.0

    def _open(self, _: object = None) -> None:
        self._perform(calls.open_session(), lambda _: self._perform(calls.rollback(), self._go_on))

    def _go_on(self, _: object = None) -> None:
        """Get, until there are enough batches; then work on the oldest."""
        if len(self._pending) < self._window:
            entries = 1 + int(6 * self.world.random.random())
            self._perform(_GETS[entries], self._got)
        else:
            self.world.tell(self.pace * self.world.random.random(), self, self._work)

    def _got(self, batch: Batch) -> None:
        if batch:
            self._pending.append((self._endpoint.generation, batch))
            self._go_on()
        else:
            self.world.tell(0.3, self, self._work if self._pending else self._go_on)

    def _work(self) -> None:
        generation, batch = self._pending.popleft()
        if generation != self._endpoint.generation:  # it comes again
            self._go_on()
            return
        self.world.log("consumer", "processes", batch.batch_id, index_of(batch.from_), "to", index_of(batch.to))
        self._checks.processes(self.client_id, batch)
        self._checks.acks(self.client_id, batch)
        durable = self.world.random.random() < 0.5

        def failed(error: SluiceError) -> None:
            if not isinstance(error, UnknownBatchError | SourceChangedError):
                raise error
            if generation == self._endpoint.generation:
                self._perform(calls.rollback(), self._go_on)
            else:
                self._go_on()

        self._perform(calls.ack(batch, durable=durable), self._go_on, failed)

    # --- ZooKeeper ---------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """See which server is active; what is seen comes late. At times the turn is lost, and comes back."""
        self.world.tell(0.5 + 2 * self.world.random.random(), self, self._look)
        if self.world.random.random() < 0.05:
            self._turn += 1
        running = self._checks.ensemble.nodes.running
        active = None if running is None else f"http://{running.address}:8080"
        self.world.tell(self.world.latency(), self, self._hear, active)

    def _hear(self, active: str | None) -> None:
        self._endpoint.hear(list(self._servers), active, self._turn)
        if self._endpoint.deposed is not None:
            self.world.tell(GRACE, self, self._leave, self._endpoint.deposed, self._number)

    def _leave(self, server: str, number: int) -> None:
        """Wait no longer for a server, as another one is active."""
        if server == self._endpoint.deposed:
            self._receive(number, Interrupted(ConnectionLostError("another server is active"), may_be_done=True))

    # --- calls -------------------------------------------------------------------------------------------------------

    def _perform(self, call: Call[Any], then: Then, failed: Callable[[SluiceError], None] | None = None) -> None:
        attempts = Attempts(self._endpoint, call, float("inf"), self.world.random.uniform)

        def attempt() -> None:
            server = attempts.begin()
            go_on(server, [*attempts.before, attempts.call])

        def go_on(server: str, calls: list[Call[Any]], _: object = None) -> None:
            call, *rest = calls
            exchange(server, call, partial(go_on, server, rest) if rest else then)

        def exchange(server: str, call: Call[Any], then: Then) -> None:
            def answered(reply: Reply | Interrupted) -> None:
                try:
                    if isinstance(reply, Interrupted):
                        raise reply
                    result = self._endpoint.read(server, call, reply)
                except Interrupted as failure:
                    self.world.log("consumer", "fails with", call.path, "at", server, failure)
                    self.world.tell(attempts.delay(failure) + 0.01, self, attempt)
                except StaleSessionError:
                    self._checks.fences(self.client_id, self._session)
                    self._open()
                except SluiceError as error:
                    if failed is None:
                        raise
                    failed(error)
                else:
                    then(result)

            self._send(server, call, answered)

        attempt()

    def _send(self, url: str, call: Call[Any], answered: Callable[[Reply | Interrupted], None]) -> None:
        world, server = self.world, self._servers[url]
        self._number += 1
        self._since = world.now
        self._answered = answered
        number = self._number
        if not server.is_up:
            refused = Interrupted(ConnectionLostError("refused"), may_be_done=False)
            world.tell(world.latency(), self, self._receive, number, refused)
            return

        def answer(reply: Reply) -> None:
            if not self._is_lost():
                world.tell(world.latency(), self, self._receive, number, reply)

        if not self._is_lost():
            headers = self._endpoint.headers(url, call)
            self._session = headers.get("Sluice-Session", "")
            entries = call.query.get("maxEntries", 0)
            request = Request(
                self.client_id,
                call.path,
                call.body,
                int(entries),
                "durable" in call.query,
                headers.get("Sluice-Session"),
                answer,
            )
            world.tell(world.latency(LONGEST_WAY), server, server.request, request)

    def _is_lost(self) -> bool:
        return self.lossy_until > self.world.now and self.world.random.random() < 0.3

    def _receive(self, number: int, reply: Reply | Interrupted) -> None:
        if number == self._number and self._answered is not None:
            answered, self._answered = self._answered, None
            answered(reply)

    def _watch(self) -> None:
        """Wait no longer for what takes too long."""
        self.world.tell(PATIENCE, self, self._watch)
        if self.world.now - self._since > PATIENCE:
            self._receive(self._number, Interrupted(ConnectionLostError("timed out"), may_be_done=True))
