"""The simulation of merging can fail: each of these has one bug, and some schedule shows it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from sluice.instance.merge import merger
from sluice.instance.merge.merger import MemberOptions, MemberState, Merger, _Member
from sluice.instance.merge.order import By
from sluice.protocol.cut import Cut
from sluice.store import chain, cursor, track
from sluice.store.cursor import Cursor
from sluice.store.floor import Floor
from sluice.store.reading import Reading
from sluice.store.states import CatchingUp, InRing, Meeting
from sluice.store.stream import Stream
from sluice.store.track import Track
from tests.merge_model import Lane, ModelOrder
from tests.simulation.checks import Violation
from tests.simulation.merge import Schedule

SEEDS = 300
"""By which each bug has to be found."""
LIKELY: Mapping[str, int] = {
    "SecondsBegin": 1,
    "BelievesInTheFuture": 1,
    "KnowsNoLate": 1,
    "RemovalEndsNothing": 17,
    "WaitsForWhoeverJoins": 1,
    "TakesAPauseForSilence": 1,
    "WaitsForEver": 18,
    "TakesItsOwnPauseForSilence": 96,
    "PassesForEver": 1,
    "starts_after_its_floor": 10,
    "is_at_the_place_of_the_chain": 4,
    "forgets_the_floor_that_it_has_passed": 57,
    "goes_back_without_its_floor": 10,
    "joins_without_a_floor": 47,
    "joins_at_the_end": 18,
    "confirms_all_for_a_place_of_another_order": 22,
    "counts_again_what_is_executed": 4,
    "leaves_the_ring_at_its_place": 75,
}
"""Seeds that show bugs, where it is not 0."""


def with_order(order: type[ModelOrder]) -> type[Merger]:
    """Return a merger that decides by the model, changed."""

    class Changed(Merger):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(merger, "Order", order)
                super().__init__(*arguments, **options)

    return Changed


class KeysGoBack(ModelOrder):
    """A member's key may be below the one before."""

    def key(self, lane: Lane, stamp: int, now: int) -> int:
        return now if self.by == By.ARRIVAL else self.corrected(lane, stamp, now)


class TrustsClocks(ModelOrder):
    """The offset of a member's clock is not taken off."""

    def set_offset(self, number: int, offset: int) -> None:
        super().set_offset(number, 0)


class BelievesInTheFuture(ModelOrder):
    """A stamp may be after our clock."""

    def corrected(self, lane: Lane, stamp: int, now: int) -> int:
        return super().corrected(lane, stamp, now + 10**12)


class SecondsBegin(ModelOrder):
    """A stamp in whole seconds stands for the begin of its second."""

    def corrected(self, lane: Lane, stamp: int, now: int) -> int:
        return super().corrected(lane, stamp - lane.rest, now)


class CaughtUpForEver(ModelOrder):
    """A heartbeat counts although events came after it."""

    def show(self, lane: Lane) -> None:
        before = lane.bound
        super().show(lane)
        lane.bound = max(before, lane.last)


class WaitsForNobody(ModelOrder):
    """What has come goes out."""

    def before(self, head: Lane) -> list[int]:
        return []


class KnowsNoLate(ModelOrder):
    """What comes below the last released key is as any other."""

    def is_late(self, key: int) -> bool:
        return False


class DoesNotWaitForTheEnd(ModelOrder):
    """A transaction goes out before its end was read, whatever room its pool has."""

    def is_ready(self, lane: Lane) -> bool:
        return bool(lane.staged)


class PutsBetweenParts(ModelOrder):
    """Others go out while the rest of a transaction is awaited."""

    def step(self, is_first: bool) -> Any:
        if (
            self.streaming >= 0
            and self.lanes[self.streaming].awaits_end
            and not self.lanes[self.streaming].staged[0].size
        ):
            other = next((it for it in self.lanes if it.number != self.streaming and self.is_ready(it)), None)
            return self.pop(other, self.is_late(other.shown)) if other is not None else None
        return super().step(is_first)


class KeepsWhatIsReadAgain(ModelOrder):
    """What was staged of a connection that was lost stays."""

    def reset(self, number: int) -> None:
        pass


class WaitsForWhoeverLeft(ModelOrder):
    """A member that has left is waited for."""

    def leave(self, number: int) -> None:
        super().leave(number)
        self.lanes[number].waited = True


class RemovalEndsNothing(ModelOrder):
    """A transaction of a removed member stays without an end."""

    def remove(self, number: int) -> None:
        super().remove(number)
        if self.broken:
            self.broken, self.streaming = False, -1


class HeartbeatsProveTooMuch(ModelOrder):
    """A heartbeat counts as of a time after its arrival."""

    def heartbeat(self, number: int, time: int) -> None:
        super().heartbeat(number, time + 10**6)


class WaitsForWhoeverJoins(Merger):
    """A member that joins holds the others at once."""

    def _add(self, name: str, options: MemberOptions, state: MemberState) -> None:
        super()._add(name, options, MemberState.MERGED)
        self._members[name].state = state


class ReadsOnThoughFull(Merger):
    """A full pool stops nobody."""

    def is_full(self, name: str) -> bool:
        return False


class TakesAPauseForSilence(Merger):
    """A member that was not read, because its pool was full, is passed."""

    def release(self, most: int, *, now: int) -> Any:
        self._go_on(now)
        return self._order.release(most)

    def tick(self, *, now: int) -> list[str]:
        before = {name: it.heard for name, it in self._members.items()}
        full = {name for name in self._members if self.is_full(name)}
        passed = super().tick(now=now)
        for name in full:
            self._members[name].heard = before[name]
        return passed


class TakesItsOwnPauseForSilence(Merger):
    """All members are passed when this server has stood still."""

    def _go_on(self, now: int) -> None:
        self._silence += max(now - self._now, 0)
        self._now = max(now, self._now)


class WaitsForEver(Merger):
    """A member that does not answer is never passed."""

    def tick(self, *, now: int) -> list[str]:
        self._go_on(now)
        return []


class PassesForEver(Merger):
    """A member that was passed stays so."""

    def _settle(self, member: _Member) -> None:
        pass


# --- cuts, floors and cursors: what replaces a part of them ----------------------------------------------------------


def starts_at_the_furthest_places(patch: pytest.MonkeyPatch) -> None:
    """A stream begins where some client is in each member, not all."""
    patch.setattr(Cut, "meet", Cut.join)


def starts_at_the_place_of_one_client(patch: pytest.MonkeyPatch) -> None:
    """A stream begins at the cursor of a client: those that are less far in a member are not looked at."""
    patch.setattr(cursor, "_meets", lambda _: [])


def has_no_floor(patch: pytest.MonkeyPatch) -> None:
    """A client is given all that comes after its start."""
    patch.setattr(Track, "floor_at", lambda *_: None)


def starts_after_its_floor(patch: pytest.MonkeyPatch) -> None:
    """A client starts where nothing is below its floor any more."""

    def start(self: Floor, chain: Sequence[Cut]) -> int:
        return next((i for i, cut in enumerate(chain) if self.is_passed(cut)), len(chain) - 1)

    patch.setattr(Floor, "start", start)


def is_at_the_place_of_the_chain(patch: pytest.MonkeyPatch) -> None:
    """The place of a client is that of the ring, whatever it has beyond that."""
    patch.setattr(Floor, "place", lambda _, reached: reached)


def forgets_the_floor_that_it_has_passed(patch: pytest.MonkeyPatch) -> None:
    """A client that goes back before the slots that it has is given them again."""
    pass_floor = Reading.pass_floor

    def changed(self: Reading, stop: int) -> None:
        pass_floor(self, stop)
        if self.floor is not None and self.floor.is_passed(self._cut(self.get)):
            self.floor = None

    patch.setattr(Reading, "pass_floor", changed)


def goes_back_without_its_floor(patch: pytest.MonkeyPatch) -> None:
    """After a rollback a client is given what an earlier life has confirmed."""
    go_back = Reading.go_back

    def changed(self: Reading) -> None:
        go_back(self)
        self.floor = None

    patch.setattr(Reading, "go_back", changed)


def joins_without_a_floor(patch: pytest.MonkeyPatch) -> None:
    """A client that has caught up is given what its reader had in another order."""
    patch.setattr(Meeting, "join", lambda self, stream, wanted: InRing(Reading(stream, wanted, self.meet)))


def joins_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """A client that has caught up goes on at the end of the ring."""
    meet = CatchingUp.meet

    def changed(self: CatchingUp, stream: Stream) -> CatchingUp | Meeting:
        state = meet(self, stream)
        if isinstance(state, Meeting):
            state.meet = stream.ring.next
        return state

    patch.setattr(CatchingUp, "meet", changed)


def confirms_all_for_a_place_of_another_order(patch: pytest.MonkeyPatch) -> None:
    """An ack of a place that the full ring has not reached confirms all that the ring has."""
    patch.setattr(Reading, "before", lambda _self, _position, stop: stop)


def counts_again_what_is_executed(patch: pytest.MonkeyPatch) -> None:
    """The GTIDs of a client go back when the ring repeats what it has."""
    patch.setattr(Reading, "_not_ahead", lambda _self, gtids, _sequence: gtids)


def forgets_the_cut_before_what_it_frees(patch: pytest.MonkeyPatch) -> None:
    """What is freed does not move the begin of the chain."""
    free_to = Track.free_to

    def changed(self: Track, sequence: int) -> None:
        before = self.position_before(self.ring.first)
        free_to(self, sequence)
        if isinstance(before, Cut):
            self._cuts[self.ring.first] = before

    patch.setattr(Track, "free_to", changed)


def knows_the_last_member(patch: pytest.MonkeyPatch) -> None:
    """The cut before a slot has one member's place of those that were put since the last known cut."""
    patch.setattr(track, "last_places", lambda *given: chain.last_places(*given)[-1:])


def leaves_the_ring_at_its_place(patch: pytest.MonkeyPatch) -> None:
    """A client that leaves the ring goes on at a place of the chain."""

    def resume(self: Reading, before: Cursor | None) -> Cursor | None:
        place = self.track.position_before(self.ack)
        return before if before is None or place is None else replace(before, position=place)

    patch.setattr(Reading, "resume", resume)


ORDERS = (
    KeysGoBack,
    TrustsClocks,
    BelievesInTheFuture,
    SecondsBegin,
    CaughtUpForEver,
    WaitsForNobody,
    KnowsNoLate,
    DoesNotWaitForTheEnd,
    PutsBetweenParts,
    KeepsWhatIsReadAgain,
    WaitsForWhoeverLeft,
    RemovalEndsNothing,
    HeartbeatsProveTooMuch,
)
MERGERS = (
    WaitsForWhoeverJoins,
    ReadsOnThoughFull,
    TakesAPauseForSilence,
    TakesItsOwnPauseForSilence,
    WaitsForEver,
    PassesForEver,
)
CUTS = (
    starts_at_the_furthest_places,
    starts_at_the_place_of_one_client,
    has_no_floor,
    starts_after_its_floor,
    is_at_the_place_of_the_chain,
    forgets_the_floor_that_it_has_passed,
    goes_back_without_its_floor,
    joins_without_a_floor,
    joins_at_the_end,
    confirms_all_for_a_place_of_another_order,
    counts_again_what_is_executed,
    forgets_the_cut_before_what_it_frees,
    knows_the_last_member,
    leaves_the_ring_at_its_place,
)


def is_shown(seed: int, merger: type[Merger] = Merger) -> bool:
    """Whether a schedule shows a bug."""
    try:
        Schedule(seed, merger).run()
    except Violation:
        return True
    return False


def likely_first(name: str) -> Iterator[int]:
    """Return the seeds: the one that has shown a bug first; after a change of the model it may be another one."""
    yield LIKELY.get(name, 0)
    yield from range(SEEDS)


@pytest.mark.parametrize("order", ORDERS)
def test_a_bug_of_the_order_is_found(order: type[ModelOrder]) -> None:
    changed = with_order(order)
    assert any(is_shown(seed, changed) for seed in likely_first(order.__name__)), f"{SEEDS} schedules do not show it"


@pytest.mark.parametrize("changed", MERGERS)
def test_a_bug_of_the_merger_is_found(changed: type[Merger]) -> None:
    assert any(is_shown(seed, changed) for seed in likely_first(changed.__name__)), f"{SEEDS} schedules do not show it"


@pytest.mark.parametrize("bug", CUTS)
def test_a_bug_of_cuts_is_found(bug: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        bug(patch)
        assert any(map(is_shown, likely_first(bug.__name__))), f"{SEEDS} schedules do not show it"
