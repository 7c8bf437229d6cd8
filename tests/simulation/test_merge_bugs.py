"""The simulation of merging can fail: each of these has one bug, and some schedule shows it."""

from typing import Any

import pytest

from sluice.instance.merge import merger
from sluice.instance.merge.merger import MemberOptions, MemberState, Merger, _Member
from sluice.instance.merge.order import By
from sluice.protocol.cut import Cut
from sluice.protocol.position import Position
from sluice.store.floor import Floor
from tests.merge_model import Lane, ModelOrder
from tests.simulation.checks import Violation
from tests.simulation.merge import Plan, Schedule

SEEDS = 300
"""By which each bug has to be found."""


def with_order(order: type[ModelOrder]) -> Plan:
    """Return a plan whose mergers decide by the model, changed."""

    class Changed(Merger):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(merger, "Order", order)
                super().__init__(*arguments, **options)

    return Plan(merger=Changed)


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


class SkipsNothing(Floor):
    """A consumer takes all that comes after its start."""

    def skips(self, member: str, after: Position) -> bool:
        return False


class SkipsUpToTheFloor(Floor):
    """A consumer skips everything until nothing is below its floor."""

    def start(self, chain: Any) -> int:
        first = next((i for i, cut in enumerate(chain) if self.is_passed(cut)), len(chain) - 1)
        return max(super().start(chain), first)


class ForgetsItsFloor(Floor):
    """A consumer's place is that of the chain."""

    def place(self, reached: Cut) -> Cut:
        return reached


def is_shown(seed: int, plan: Plan) -> bool:
    """Whether a schedule shows a bug."""
    try:
        Schedule(seed, plan).run()
    except Violation:
        return True
    return False


@pytest.mark.parametrize(
    ("plan", "likely"),
    [
        pytest.param(plan, likely, id=name)
        for name, plan, likely in [
            *(
                (order.__name__, with_order(order), likely)
                for order, likely in (
                    (KeysGoBack, 0),
                    (TrustsClocks, 0),
                    (BelievesInTheFuture, 2),
                    (SecondsBegin, 0),
                    (CaughtUpForEver, 39),
                    (WaitsForNobody, 0),
                    (KnowsNoLate, 0),
                    (DoesNotWaitForTheEnd, 0),
                    (PutsBetweenParts, 0),
                    (KeepsWhatIsReadAgain, 0),
                    (WaitsForWhoeverLeft, 0),
                    (RemovalEndsNothing, 6),
                    (HeartbeatsProveTooMuch, 0),
                )
            ),
            *(
                (changed.__name__, Plan(merger=changed), likely)
                for changed, likely in (
                    (WaitsForWhoeverJoins, 1),
                    (ReadsOnThoughFull, 0),
                    (TakesAPauseForSilence, 7),
                    (TakesItsOwnPauseForSilence, 13),
                    (WaitsForEver, 18),
                    (PassesForEver, 0),
                )
            ),
            *(
                (floor.__name__, Plan(floor=floor), likely)
                for floor, likely in ((SkipsNothing, 2), (SkipsUpToTheFloor, 6), (ForgetsItsFloor, 2))
            ),
            ("ReadsFromTheFurthestPlaces", Plan(start=Cut.join), 1),
        ]
    ],
)
def test_a_bug_is_found(plan: Plan, likely: int) -> None:
    """The seed that has shown it is tried first; after a change of the model it may be another one."""
    assert any(is_shown(seed, plan) for seed in (likely, *range(SEEDS))), f"{SEEDS} schedules do not show it"
