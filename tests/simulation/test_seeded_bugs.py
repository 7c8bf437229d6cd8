"""The simulation can fail: each of these servers has one bug, and some schedule shows it."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sluice.instance.config import InstanceConfig
from sluice.instance.meta.base import InUse
from sluice.instance.source import Parser
from sluice.protocol.errors import SluiceError, StaleSessionError
from sluice.server.ha.operations import Action, Ask, Beat, Claim, Done, Operation, Outcome, Seen, Store
from sluice.server.ha.participant import Participant
from sluice.store.batch import Batch
from sluice.store.clients import IDS_PER_EPOCH
from sluice.store.cursor import Changes, Cursor
from sluice.store.cursors import Cursors
from sluice.store.ring import Ring
from sluice.store.subscriber import Subscriber
from tests.simulation.checks import Violation
from tests.simulation.ensemble import Session
from tests.simulation.output import Output, Place
from tests.simulation.schedule import Schedule
from tests.simulation.server import Instance, Meta, Server, Switching, Write

SEEDS = 5000
"""By which each bug has to be found."""


class NoEpochCheck(Server):
    """Cursors are written whatever the version of the epoch node."""

    def _do(self, action: Action) -> None:
        if isinstance(action, Ask) and isinstance(action.operation, Store):
            action = replace(action, operation=replace(action.operation, version=-1))
        super()._do(action)


class TakeOverBeforeExpiry(Server):
    """A server takes the destination over though the owner's session lives."""

    def hear(self, call: Callable[..., None], *arguments: Any, run: bool = True) -> None:
        """See no owner at times."""
        if len(arguments) == 2 and isinstance(seen := arguments[1], Seen) and self.world.random.random() < 0.1:
            arguments = (arguments[0], replace(seen, running=None))
        super().hear(call, *arguments, run=run)

    def _do(self, action: Action) -> None:
        if isinstance(action, Ask) and isinstance(action.operation, Claim):
            self.ensemble.write(replace(self.ensemble.nodes, running=None))
        super()._do(action)


class WriteRetriedInNewSession(Server):
    """What was not answered in a session is asked again in the next one."""

    pending: Store | None = None

    def expired(self) -> None:
        self.pending = next((it for it in self.participant._asked.values() if isinstance(it, Store)), None)
        super().expired()

    def _connected(self, session: Session | None) -> None:
        super()._connected(session)
        if session is None and self.link is not None and self.pending is not None:
            self.link.ask(0, self.pending)


class PingsOfFollowersCount(Server):
    """What a follower answers, which the leader may have lost, is taken for a proof that the session lives."""

    def _do(self, action: Action) -> None:
        if isinstance(action, Ask) and isinstance(action.operation, Beat) and self.link is not None:
            self.world.tell(self.world.latency(), self, self.hear, self.participant.answered, action.number, Done())
        super()._do(action)


class WritesPastItsLease(Server):
    """A server that has stood still writes before it looks at the clock."""

    class make_participant(Participant):  # noqa: N801  as it is called
        def store(
            self,
            destination: str,
            changes: Changes,
            epoch: int,
            _now: float,
            view: str = "",
            source: InUse | None = None,
        ) -> None:
            super().store(destination, changes, epoch, -math.inf, view, source)


class PersistsMoreThanAcked(Server):
    """The cursor is moved to what was given."""

    class make_cursors(Cursors):  # noqa: N801  as it is called
        def ack(
            self, client_id: int, batch_id: int, *, now: float, session: str | None = None, memory: str | None = None
        ) -> None:
            super().ack(client_id, batch_id, now=now, session=session, memory=memory)
            subscriber = self.clients.find(client_id)
            if subscriber.served is not None:
                self._progress.confirm(subscriber, subscriber.served.reading, subscriber.served.reading.get)


class AcceptsAcksOfEarlierEpochs(Server):
    """Batch ids are compared without their epoch."""

    class make_cursors(Cursors):  # noqa: N801
        def ack(
            self, client_id: int, batch_id: int, *, now: float, session: str | None = None, memory: str | None = None
        ) -> None:
            batch_id = self.counters.next_id // IDS_PER_EPOCH * IDS_PER_EPOCH + batch_id % IDS_PER_EPOCH
            super().ack(client_id, batch_id, now=now, session=session, memory=memory)


class KeepsTheFirstSessionThatComes(Server):
    """In a new epoch a late call of a consumer that is gone fences the one that lives."""

    class make_cursors(Cursors):  # noqa: N801
        def __init__(self, ring: Ring, **options: Any) -> None:
            super().__init__(ring, **options)
            find = self.clients.find

            def find_first(client_id: int, session: str | None = None) -> Subscriber:
                if session is not None and find(client_id).session not in (None, session.partition(".")[0]):
                    raise StaleSessionError("there is another session")
                return find(client_id, session)

            self.clients.find = find_first  # type: ignore[method-assign]


class LateGetsTakeBatches(Server):
    """A get that its consumer has given up takes what the next one should get."""

    class make_cursors(Cursors):  # noqa: N801
        def get(self, client_id: int, *, session: str | None = None, **limits: Any) -> Batch | None:
            token = session.partition(".")[0] if session else None
            return super().get(client_id, session=f"{token}.1000000", **limits)


class GivesWhatComesAfterAJumpBeforeThatIsStored(Server):
    """What follows a cursor that was moved is given before the move is durable."""

    class make_cursors(Cursors):  # noqa: N801
        def get(self, client_id: int, **options: Any) -> Batch | None:
            self.gate.is_stored = lambda client_id: True  # type: ignore[method-assign]
            return super().get(client_id, **options)


class StoresACursorWithoutItsJump(Server):
    """That a cursor was moved is not written with it."""

    class make_cursors(Cursors):  # noqa: N801
        def __init__(self, ring: Ring, **options: Any) -> None:
            super().__init__(ring, **options)
            take_changes = self.clients.take_changes
            self.clients.take_changes = lambda: Changes(take_changes().clients)  # type: ignore[method-assign]


class AcksWhatTheBrokerMayHave(Server):
    """An output acks what it has sent, whatever the broker says."""

    class make_output(Output):  # noqa: N801
        def _ask(self, answered: Callable[[Any], None], call: Callable[..., Any], *arguments: Any) -> None:
            super()._ask(answered, call, *arguments)
            if call == self._broker.commit:
                answered(True)


class OvertakesALaterEpoch(Server):
    """A server that has not noticed that it lost the destination goes on where the later owner was."""

    class make_output(Output):  # noqa: N801
        def _opened(self, answer: tuple[int, Place | None]) -> None:
            producer, place = answer
            super()._opened((producer, place and place._replace(epoch=0)))


class ClaimsNoEpoch(Server):
    """The broker knows of an epoch only when something is written in it."""

    class make_output(Output):  # noqa: N801
        def claim(self, answered: Callable[[bool], None]) -> None:
            self._broker._checks.claims(self._instance.epoch)
            answered(True)


class ForgetsWhatTheBrokerHas(Server):
    """An output goes on at its cursor, wherever the broker says it is."""

    class make_output(Output):  # noqa: N801
        def take_over(self, _place: Place | None) -> None:
            super().take_over(None)


class KnowsNothingOfALoss(Server):
    """A server does not compare what ZooKeeper has with what it had."""

    def remember(self, operation: Operation, outcome: Outcome, zxid: int) -> Outcome:
        """Take all that ZooKeeper says."""
        super().remember(operation, outcome, zxid)
        return outcome


class WritesOfAViewAreNotFenced(Server):
    """Cursors of a view are written whatever the version of the epoch node of its destination."""

    def _do(self, action: Action) -> None:
        if isinstance(action, Ask) and isinstance(action.operation, Store) and action.operation.view:
            action = replace(action, operation=replace(action.operation, version=-1))
        super()._do(action)


class ReadsTheConfiguredSource(Server):
    """A server that takes over reads the first source, whichever is in use."""

    def remember(self, operation: Operation, outcome: Outcome, zxid: int) -> Outcome:
        """Forget which source is read."""
        outcome = super().remember(operation, outcome, zxid)
        self.chosen = None
        return outcome


class ReadsOnDuringASwitch(Server):
    """The former source is read until the other one is."""

    class make_switching(Switching):  # noqa: N801
        async def stop_reading(self, parser: Parser) -> None:
            pass


class SwitchesBeforeThatIsStored(Server):
    """The other source is read before it is stored that it is in use."""

    class make_switching(Switching):  # noqa: N801
        def __init__(self, server: Server, instance: Instance) -> None:
            instance.meta = StoresLater(server, instance, instance.meta.source)
            super().__init__(server, instance)


class StoresLater(Meta):
    """Does not wait for ZooKeeper."""

    async def keep_source(self, source: InUse, epoch: int) -> None:
        """Store it, and return at once."""
        self._server.write(self._instance, Write(Changes({}), epoch, lambda _: None, source=source))
        self.source = source


class GivesUpToStoreASwitch(Server):
    """A switch whose answer comes late counts as not stored: the former source is read on."""

    class make_switching(Switching):  # noqa: N801
        def __init__(self, server: Server, instance: Instance) -> None:
            instance.meta = WaitsForAMoment(server, instance, instance.meta.source)
            super().__init__(server, instance)


class WaitsForAMoment(Meta):
    """Waits for ZooKeeper no longer than it usually takes."""

    async def keep_source(self, source: InUse, epoch: int) -> None:
        """Store it, or raise TimeoutError."""
        await asyncio.wait_for(super().keep_source(source, epoch), 0.1)


class GoesOnAtTheEndOfTheOtherSource(Server):
    """After a switch the other source is read from its end on."""

    class make_switching(Switching):  # noqa: N801
        async def read_on(
            self, parser: Parser, config: InstanceConfig, place: Cursor | None, *, is_another: bool
        ) -> None:
            host = self.instance.host_of(config)
            await super().read_on(parser, config, Cursor.at(host.place(host.has)), is_another=is_another)


def is_shown(seed: int, server: type[Server]) -> bool:
    """Whether a schedule shows that a server has a bug."""
    try:
        Schedule(seed, server).run()
    except (Violation, SluiceError) as error:  # an answer that the consumer cannot explain is a sign, but no proof
        return isinstance(error, Violation)
    return False


@pytest.mark.parametrize(
    ("server", "likely"),
    [
        (NoEpochCheck, 58),
        (TakeOverBeforeExpiry, 6),
        (WriteRetriedInNewSession, 85),
        (PingsOfFollowersCount, 350),
        (WritesPastItsLease, 71),
        (PersistsMoreThanAcked, 1),
        (AcceptsAcksOfEarlierEpochs, 107),
        (KeepsTheFirstSessionThatComes, 1165),
        (LateGetsTakeBatches, 3),
        (GivesWhatComesAfterAJumpBeforeThatIsStored, 61),
        (StoresACursorWithoutItsJump, 18),
        (AcksWhatTheBrokerMayHave, 12),
        (OvertakesALaterEpoch, 195),
        (ClaimsNoEpoch, 158),
        (ForgetsWhatTheBrokerHas, 1),
        (KnowsNothingOfALoss, 29),
        (WritesOfAViewAreNotFenced, 1004),
        (ReadsTheConfiguredSource, 16),
        (ReadsOnDuringASwitch, 156),
        (SwitchesBeforeThatIsStored, 40),
        (GivesUpToStoreASwitch, 44),
        (GoesOnAtTheEndOfTheOtherSource, 36),
    ],
)
def test_a_bug_is_found(server: type[Server], likely: int) -> None:
    """The seed that has shown it is tried first; after a change of the model it may be another one."""
    shown = any(is_shown(seed, server) for seed in (likely, *range(SEEDS)))
    assert shown, f"{server.__name__} is not found by {SEEDS} schedules"
