"""What may hold back what in a destination, and for how long. No other module decides that. No I/O, and no clock.

* The parser waits for the ring, and the ring for the slowest of the subscribers that need it: those `InRing`, and those
  `Meeting` it (`sluice.store.states`). `Pace` says how long the others wait for that one: a subscriber that does not
  confirm a full ring within ``detachAfter`` leaves it.
* A subscriber that has left the ring is `Behind`. It uses a catch-up reader, of which there are few. `Turns` says which
  subscribers have one, and for how long. A client that makes a call at least every ``detachAfter`` seconds moves on in
  each of its turns, however rarely it calls. No reader is kept for longer for a client that makes no calls.
* A subscriber that is `Ahead`, or `CatchingUp` and past the end of the ring, holds nothing back, and counts as held
  back. One that is `Gone` counts for nothing.
* With a log on disk, that is one more subscriber, which is never too slow: it holds back what it has not written. The
  others need the ring less. One that holds nothing that is to be confirmed leaves a full ring at once
  (`replaceable`), the others after `LOGGED`.
* Without a log, with a single subscriber, or while no subscriber has confirmed the whole of a full ring, none is held
  back, and all stay.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

TURN = 5.0
"""Seconds for which a reader moves its holder on at least, while others wait."""
IDLE = 30.0
"""Seconds for which a reader, or a place in the queue for one, is kept at least for a silent holder."""
LOGGED = 1.0
"""Seconds for which a subscriber may hold a full ring back if it can read the log instead."""
PATIENCE = 300.0
"""Seconds to wait for the next call of a holder, or its confirmation, if ``detachAfter`` is 0."""


@dataclass(slots=True)
class _Round:
    """What a subscriber has to confirm while it holds others back."""

    goal: int
    """Where the full ring ended."""
    held: float = 0.0
    """Seconds for which it has held others back since then."""


class Pace:
    """How fast a ring's attached subscribers have to be while others wait for them.

    When one has confirmed the whole of a full ring, each of the others has to confirm the same before it has held that
    one back for ``patience`` seconds. Only seconds in which the ring is full count. Confirming a little now and then is
    not enough, however often.
    """

    def __init__(self, patience: float) -> None:
        """With a ``patience`` of 0 no subscriber is ever too slow."""
        self._patience = patience
        self._rounds: dict[int, _Round] = {}
        self._since: float | None = None  # when a subscriber was held back, at the last look

    @property
    def running(self) -> bool:
        """Whether any subscriber has something to confirm in time."""
        return bool(self._rounds)

    def too_slow(self, needs: Mapping[int, int], end: int, now: float, *, full: bool) -> list[int]:
        """Look at a ring, and return the subscribers that have to leave it.

        Args:
            needs: by subscriber, the first slot that it needs; the end of the ring for one that needs none of it.
            end: the slot after the last one of the ring.
            now: seconds of a clock that is never set; if it goes back between two looks, no time counts for them.
            full: the parser waits for room.
        """
        if not self._patience:
            return []
        elapsed = 0.0 if self._since is None else max(0.0, now - self._since)
        foremost = max(needs.values(), default=0)
        rounds = {}
        for subscriber, need in needs.items():
            running = self._rounds.get(subscriber)
            if running is not None and need < running.goal:
                running.held += elapsed if running.goal <= foremost else 0.0
                rounds[subscriber] = running
            elif full and need < end:
                rounds[subscriber] = _Round(end)
        self._rounds = rounds
        holding = {subscriber: it for subscriber, it in rounds.items() if it.goal <= foremost}
        self._since = now if full and holding else None
        return [subscriber for subscriber, it in holding.items() if it.held > self._patience]


def replaceable(needs: Mapping[int, int], first: int, end: int, logged: int) -> list[int]:
    """Return which subscribers leave a full ring at once, for they can read the log, and lose nothing by it.

    ``needs`` is as for `Pace.too_slow`, of those only that were given nothing that is not confirmed. The ring has the
    slots from ``first`` to ``end``, the log those before ``logged``. Who keeps up within half of the ring stays.
    """
    return [it for it, need in needs.items() if need < min(logged, (first + end) // 2 + 1)]


@dataclass(slots=True)
class _Turn:
    since: float
    heard: float
    moved: float | None = None
    """Since when the reader moves its holder on."""
    busy: bool = False


Holder = tuple[Literal["client", "ranges"], int]
"""What uses a reader, or asks for one: a client that is behind the ring, or the ranges that a client has asked for."""


class Turns:
    """The holders of a few readers.

    A client or range that wants one asks, and asks again for as long as it does. All get one in the order in which they
    began to ask. The first of the clients, or of the ranges, comes before others while none of its kind has one.

    A turn counts from when the reader has moved its holder on: has given it something, or passed over what it does not
    want. While others wait, the turn is over after `TURN`. Then the holder is given nothing more. It loses the reader
    as soon as it has confirmed what it was given, or after ``patience`` seconds. A reader has as long to move it on.

    A reader, or a place in the queue, is kept for a silent client for the same patience, at least `IDLE`: the time that
    may pass between two of its calls. Ranges count as heard while they are read, and are kept for `IDLE`.
    """

    def __init__(self, places: int, patience: float) -> None:
        """``places`` is the number of readers; ``patience`` in seconds, 0 for `PATIENCE`."""
        self.places = places
        self._patience = patience or PATIENCE
        self._kept = max(self._patience, IDLE)
        self._turns: dict[Holder, _Turn] = {}
        self._queue: dict[Holder, float] = {}  # in order: when it was last heard
        self._last: str = ""

    def has(self, who: Holder) -> bool:
        """Return whether it has its turn."""
        return who in self._turns

    @property
    def has_room(self) -> bool:
        """Whether a reader is free."""
        return len(self._turns) < self.places

    def ask(self, who: Holder, now: float) -> None:
        """Hear that it wants a reader, or has one and uses it."""
        if who in self._turns:
            self._turns[who].heard = now
        else:
            self._queue[who] = now

    def leave(self, who: Holder) -> None:
        """Hear that it does not want one, or no longer has one."""
        self._turns.pop(who, None)
        self._queue.pop(who, None)

    def set_busy(self, who: Holder, *, busy: bool) -> None:
        """Say whether a holder has something to confirm."""
        self._turns[who].busy = busy

    def move(self, who: Holder, now: float) -> None:
        """Say that a reader has moved its holder on in this turn."""
        turn = self._turns[who]
        turn.moved = now if turn.moved is None else turn.moved

    def begin(self, now: float) -> Holder | None:
        """Give the next one its turn, if a reader is free and wanted."""
        heard_at = {who: min(heard, now) for who, heard in self._queue.items()}  # the clock may have gone back
        self._queue = {who: heard for who, heard in heard_at.items() if not self._is_gone(who, heard, now)}
        if not self._queue or not self.has_room:
            return None
        served: set[str] = {kind for kind, _ in self._turns} or {self._last}
        who = next((it for it in self._queue if it[0] not in served), next(iter(self._queue)))
        self._turns[who] = _Turn(now, self._queue.pop(who))
        self._last = who[0]
        return who

    def is_over(self, who: Holder, now: float) -> bool:
        """Whether nothing more is to be given to a holder, because others wait."""
        return self._in_vain > 0 and now > self._end(self._turns[who])

    def finished(self, now: float) -> list[Holder]:
        """Return those that have to give their readers back now, the longest holder first."""
        finished: list[Holder] = []
        in_vain = self._in_vain
        for who, turn in sorted(self._turns.items(), key=lambda item: item[1].since):
            turn.since, turn.heard = min(turn.since, now), min(turn.heard, now)  # the clock may have gone back
            turn.moved = None if turn.moved is None else min(turn.moved, now)
            over = in_vain > 0 and now > self._end(turn) + (self._patience if turn.busy else 0.0)
            if over or self._is_gone(who, turn.heard, now):
                finished.append(who)
                in_vain -= 1
        return finished

    def _end(self, turn: _Turn) -> float:
        """When a turn is over, if others wait."""
        return turn.since + self._kept if turn.moved is None else turn.moved + TURN

    def _is_gone(self, who: Holder, heard: float, now: float) -> bool:
        """Whether it has been silent for too long."""
        return now - heard > (self._kept if who[0] == "client" else IDLE)

    @property
    def _in_vain(self) -> int:
        """How many wait while all readers are taken."""
        return len(self._queue) - (self.places - len(self._turns))
