"""One server among several: its session with ZooKeeper and its destinations, without any I/O.

Every method is called from one thread, with the time of CLOCK_BOOTTIME in seconds. What has to be done is fetched by
`Participant.take_actions` after each call; `Participant.tick` is to be called at `Participant.deadline`, or earlier.
"""

import math
from collections.abc import Mapping

from ...instance.meta.base import InUse
from ...protocol.errors import FencedError, UnknownDestinationError
from ...store.cursor import Changes
from .election import Election
from .lease import Lease
from .operations import Action, Ask, Beat, Done, Operation, Outcome
from .spread import spread

BEATS = 6
"""Beats in a session's timeout."""


class Participant:
    """A server.

    A host opens sessions, each by a connection of its own, which may be restored but is never used for another session.
    It does what is asked for (`Ask`) in that order, and answers in that order, each with the number of the question:
    also when the connection broke (`UNKNOWN`), unless the session is lost. What is asked while there is no connection
    waits for one. A lost connection, as any change of ``running`` or of the registered servers, is told by
    `changed`.
    """

    def __init__(self, address: str) -> None:
        """``address`` is under which the server registers itself."""
        self.address = address
        self.lease = Lease()
        self.servers: Mapping[str, str] = {}
        """URLs of the live servers by their addresses."""
        self._elections: dict[str, Election] = {}
        self._session: int | None = None
        self._timeout = 0.0
        self._asked: dict[int, Operation] = {}
        self._number = 0
        self._beat: int | None = None
        self._beat_sent = -math.inf
        self._actions: list[Action] = []

    # --- what the host does ------------------------------------------------------------------------------------------

    def take_actions(self) -> list[Action]:
        """Return what has to be done, in this order."""
        actions, self._actions = self._actions, []
        return actions

    @property
    def deadline(self) -> float:
        """When `tick` has something to do."""
        deadlines = [election.deadline for election in self._elections.values()]
        if self._session is not None and self._beat is None:
            deadlines.append(self._beat_sent + self._timeout / BEATS)
        return min(deadlines, default=math.inf)

    def tick(self, now: float) -> None:
        """Run whatever is due: beats, claims, and standing down when the lease is over."""
        if self._session is not None and self._beat is None and now >= self._beat_sent + self._timeout / BEATS:
            self._send_beat(now)
        for election in self._elections.values():
            election.tick(now)

    # --- destinations ------------------------------------------------------------------------------------------------

    @property
    def destinations(self) -> list[str]:
        """Those that it has ever taken part in the election of."""
        return list(self._elections)

    def start(self, destination: str) -> None:
        """Take part in the election of a destination."""
        if destination not in self._elections:
            election = self._elections[destination] = Election(destination, self.lease, self._ask, self._tell)
            if self._session is not None:
                election.opened(self._session)
            self._prefer()
        self._elections[destination].start()

    def stop(self, destination: str, now: float) -> None:
        """Give a destination up for good."""
        self.election(destination).stop(now)

    def deactivated(self, destination: str, now: float, problem: str = "") -> None:
        """Hear that a destination is stopped, after `Deactivate`, or because it could not start."""
        self.election(destination).deactivated(now, problem)

    def check(self, destination: str, now: float) -> None:
        """Raise FencedError, with the active server's URL where it is known, unless this server may serve now."""
        election = self.election(destination)
        try:
            election.check(now)
        except FencedError as error:
            active = election.active if election.active != self.address else ""
            raise FencedError(str(error), self.servers.get(active)) from None

    def store(
        self,
        destination: str,
        changes: Changes,
        epoch: int,
        now: float,
        view: str = "",
        source: InUse | None = None,
    ) -> None:
        """Store changed clients. See `Election.store`."""
        self.election(destination).store(changes, epoch, now, view, source)

    def election(self, destination: str) -> Election:
        """Return where a destination is in its life here; raises UnknownDestinationError."""
        election = self._elections.get(destination)
        if election is None:
            raise UnknownDestinationError(f"no destination {destination!r} is configured here")
        return election

    # --- what happens in ZooKeeper -----------------------------------------------------------------------------------

    def opened(self, session: int, timeout: float, now: float) -> None:
        """A session was opened, with the timeout that was agreed on, in seconds."""
        self._session, self._timeout = session, timeout
        self.lease.begin(timeout)
        self._send_beat(now)
        for election in self._elections.values():
            election.opened(session)

    def expired(self, now: float) -> None:
        """The session is lost; what was asked in it is not answered."""
        self._session = self._beat = None
        self._asked.clear()
        self.lease.end()
        for election in self._elections.values():
            election.expired(now)

    def answered(self, number: int, outcome: Outcome, now: float) -> None:
        """Hear the answer to a question; one to a lost session's is ignored."""
        operation = self._asked.pop(number, None)
        if isinstance(operation, Beat):
            self._beat = None
            if isinstance(outcome, Done):
                self.lease.renew(self._beat_sent)
            else:
                self._send_beat(now)
        elif operation is not None:
            self.election(operation.destination).answered(operation, outcome, now)

    def changed(self, destination: str) -> None:
        """``running`` of a destination may have changed, or the servers that are registered for it."""
        self.election(destination).changed()

    def registered(self, servers: Mapping[str, str]) -> None:
        """Hear which servers live: their URLs by address."""
        self.servers = dict(servers)
        self._prefer()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _prefer(self) -> None:
        owners = spread(self._elections, self.servers)
        for destination, election in self._elections.items():
            election.preferred = owners.get(destination, self.address) == self.address

    def _ask(self, operation: Operation) -> None:
        if self._session is None:
            return
        self._number += 1
        self._asked[self._number] = operation
        self._actions.append(Ask(self._session, self._number, operation))

    def _send_beat(self, now: float) -> None:
        self._beat_sent = now
        self._ask(Beat())
        self._beat = self._number

    def _tell(self, action: Action) -> None:
        self._actions.append(action)
