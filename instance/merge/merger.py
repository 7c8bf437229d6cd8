"""The merger: several members, which are sources, become one stream. It does no I/O, and is told the time.

Its caller reads the members, stages what they bring, and puts into the ring what the merger releases. What a
transaction has is never seen here: a run of transactions is their stamps and sizes, and a release is slices, "of that
member up to that transaction". `sluice.instance.merge.order` looks at each transaction; all that is here happens once
for a run, a heartbeat or a connection.

**Order.** Transactions go out by their keys, each as a whole, and those of a member always in the member's order. A key
is the time in a transaction's first event, corrected by the offset of the member's clock from ours, never after our
clock, and never below the member's key before. A stamp in whole seconds stands for the end of its second. A transaction
goes out when every other member has shown a later key, or is caught up: a heartbeat came after its last event. So each
member has to send one in half of the window when it has nothing else. Equal keys go by the order of the members.

**Waiting.** A member that brings nothing at all, not even a heartbeat, is waited for: for ever, or for `max_wait`. Then
it is passed. Nobody waits for a member that was passed, or that joins, until it is within the window of the others or
caught up. A transaction whose key is below the last released one is released at once and marked late.

**Memory.** What is staged of a member is in a pool of its own. A full pool stops the reading of this member and of no
other. A transaction that exceeds its pool is released in parts when its turn comes, and until its end is read nothing
else is: it cannot be interleaved. `Merger.remove` ends it.

Times, keys, offsets and the window are µs. ``now`` is since 1970, on a clock that is never set after it was read first.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from ...protocol.errors import ConfigError
from ...protocol.member import MAX_MEMBERS, NAME, name_again
from .order import By, Order, State

if TYPE_CHECKING:
    from array import array

    from typing_extensions import Buffer


@dataclass(frozen=True, slots=True)
class Ordering:
    """By what transactions of several members are ordered."""

    by: By
    column: str = ""
    """Whose value in a transaction's first row is its key, for `By.COLUMN`."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``time``, ``arrival`` or ``column:<name>``. Raises `ConfigError`."""
        kind, colon, column = text.partition(":")
        if kind == "column" and column:
            return cls(By.COLUMN, column)
        if colon or kind not in ("time", "arrival"):
            raise ConfigError(f"not an order of a merged stream (time, arrival or column:<name>): {text[:200]!r}")
        return cls(By.TIME if kind == "time" else By.ARRIVAL)


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """What the merger has to know of a member."""

    pool: int
    """Bytes that may be staged; a run that was read is staged as a whole."""
    whole_seconds: bool = False
    """Its stamps are whole seconds."""
    exact: bool = False
    """Its stamps, and the times of its heartbeats, are of one order with those of other such members, as TiDB's
    commit_ts: they are taken as they are, and one that comes too late is an error."""


class MemberState(StrEnum):
    """What a member does."""

    MERGED = "merged"
    """The others wait for it."""
    JOINING = "joining"
    """It was added, and nobody waits for it yet."""
    PASSED = "passed"
    """It brought nothing for longer than `max_wait`."""
    LEFT = "left"
    """Nothing more comes of it; it may join again."""
    REMOVED = "removed"
    """Nothing more of it is released, ever."""


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """What is shown of a member."""

    state: MemberState
    transactions: int
    """Staged."""
    bytes: int
    """In its pool."""
    is_full: bool
    """Whether its reading has to pause."""
    late: int
    """Transactions released below the key of another one."""
    silent: int
    """Since it last brought anything."""


@dataclass(slots=True)
class _Member:
    number: int
    state: MemberState
    heard: int
    """On the clock of silences."""
    is_exact: bool
    offset: int = 0


_BEHIND = (MemberState.JOINING, MemberState.PASSED)
_GONE = (MemberState.LEFT, MemberState.REMOVED)


class Merger:
    """The machine. Not locked: it is called from one thread at a time.

    Args:
        ordering: what goes first.
        members: those that the stream begins with, each of which is waited for.
        removed: names of former members, whose places are still in cuts.
        streams: the member of which a part of a transaction was put before: what follows of it comes first.
        window: within which transactions of different members are put in order; twice the period of heartbeats.
        max_wait: how long a silent member is waited for; 0 for ever.
        now: the time.
    """

    def __init__(
        self,
        ordering: Ordering,
        members: Mapping[str, MemberOptions],
        *,
        removed: Iterable[str] = (),
        streams: str | None = None,
        window: int = 100_000,
        max_wait: int = 0,
        now: int,
    ) -> None:
        self.names: list[str] = []
        """Of the members, by their numbers in slices."""
        self._order = Order(ordering.by, window=window)
        self._removed = frozenset(removed)
        self._members: dict[str, _Member] = {}
        self._window, self._max_wait = window, max_wait
        self._now, self._silence = now, 0
        for name, options in members.items():
            self._add(name, options, MemberState.MERGED)
        if streams is not None:
            self._order.resume(self._members[streams].number)

    # --- members -----------------------------------------------------------------------------------------------------

    def join(self, name: str, options: MemberOptions) -> None:
        """Add a member, or one that has left, whose options stay. What is older than what was released is late.

        Raises `ConfigError` for a name that cannot be that of a new member.
        """
        member = self._members.get(name)
        if member is None:
            self._add(name, options, MemberState.JOINING)
        elif member.state is MemberState.LEFT:
            member.state, member.heard = MemberState.JOINING, self._silence
        else:
            self._check_removed(name)
            raise ConfigError(f"member {name} is there already")

    def _add(self, name: str, options: MemberOptions, state: MemberState) -> None:
        self._check_removed(name)
        if not re.fullmatch(NAME, name):
            raise ConfigError(f"not the name of a member ({NAME}): {name[:200]!r}")
        if len(self.names) + len(self._removed) >= MAX_MEMBERS:
            raise ConfigError(
                f"member {name}: a merged stream has at most {MAX_MEMBERS} members, and those that were removed count,"
                " because clients have their places; begin a new destination"
            )
        number = self._order.add_member(
            name,
            pool=options.pool,
            exact=options.exact,
            whole_seconds=options.whole_seconds,
            waited=state is MemberState.MERGED,
        )
        self.names.append(name)
        self._members[name] = _Member(number, state, self._silence, options.exact)

    def _check_removed(self, name: str) -> None:
        member = self._members.get(name)
        if name in self._removed or (member is not None and member.state is MemberState.REMOVED):
            raise name_again(name)

    def leave(self, name: str) -> None:
        """Say that nothing more comes of a member: what is whole goes out in its turn, and nobody waits for more.

        What is staged of a transaction whose end was not read is dropped. If some of it is out, that ends with a
        marker.
        """
        member = self._member(name)
        self._order.leave(member.number)
        member.state = MemberState.LEFT

    def remove(self, name: str) -> None:
        """Release nothing more of a member, and end a transaction of it that is released in parts with a marker.

        Its last place stays in all cuts, so its name is not used again.
        """
        member = self._members[name]
        self._order.remove(member.number)
        member.state = MemberState.REMOVED

    def _member(self, name: str) -> _Member:
        member = self._members[name]
        if member.state in _GONE:
            raise ValueError(f"member {name} has {member.state}: nothing more comes of it")
        return member

    # --- what members bring ------------------------------------------------------------------------------------------

    def add(self, name: str, stamps: "Buffer", sizes: "Buffer", *, is_open: bool, now: int) -> None:
        """Stage a run of a member's transactions, as `Order.add` says."""
        member = self._hear(name, now)
        self._order.add(member.number, stamps, sizes, is_open=is_open, now=self._now)
        self._settle(member)

    def heartbeat(self, name: str, *, now: int, time: int | None = None) -> None:
        """Hear that a member has nothing more; ``time``, by its clock, if it says before what nothing more comes.

        Without a time, as MySQL and MariaDB send it, it counts as of its arrival.
        """
        member = self._hear(name, now)
        if time is None:
            time = self._now
        elif not member.is_exact:
            time = max(0, min(time - member.offset, self._now))
        self._order.heartbeat(member.number, time)
        self._settle(member)

    def measured(self, name: str, offset: int) -> None:
        """Hear by how much a member's clock is ahead of ours."""
        member = self._member(name)
        member.offset = offset
        self._order.set_offset(member.number, offset)

    def set_full(self, name: str, *, is_full: bool) -> None:
        """Hear whether the pool of a member has no room, although less than its bytes is staged."""
        self._order.set_full(self._member(name).number, is_full)

    def reset(self, name: str) -> None:
        """Drop what is staged of a member: it is read again from what was released last. See `Order.reset`."""
        self._order.reset(self._member(name).number)

    def _hear(self, name: str, now: int) -> _Member:
        member = self._member(name)
        self._go_on(now)
        member.heard = self._silence
        return member

    def _settle(self, member: _Member) -> None:
        if member.state in _BEHIND and self._order.state(member.number).is_waited:
            member.state = MemberState.MERGED

    # --- what goes out -----------------------------------------------------------------------------------------------

    def release(self, most: int, *, now: int) -> "array[int]":
        """Return the slices that are next, as `Order.release`; none if nothing may go out now.

        A full output asks when it has room again. Until then nothing is decided, so nothing is out of order.
        """
        self._go_on(now)
        for member in self._members.values():
            if self._order.state(member.number).is_full:
                member.heard = self._silence  # it was not read
        return self._order.release(most)

    def tick(self, *, now: int) -> list[str]:
        """Pass the members that were silent for too long, and return their names; to be called as often as `period`."""
        self._go_on(now)
        passed = []
        for name, member in self._members.items():
            state = self._order.state(member.number)
            if state.is_full:
                member.heard = self._silence
            elif self._max_wait and state.is_waited and self._silence - member.heard >= self._max_wait:
                self._order.set_waited(member.number, False)
                member.state = MemberState.PASSED
                passed.append(name)
        return passed

    @property
    def period(self) -> int:
        """Of heartbeats."""
        return self._window // 2

    def _go_on(self, now: int) -> None:
        """Take the time. When this process stood still, that was nobody's silence."""
        passed = max(now - self._now, 0)
        self._now += passed
        self._silence += min(passed, self._window)

    # --- what is shown -----------------------------------------------------------------------------------------------

    @property
    def waits_for(self) -> list[str]:
        """The members that hold back what is next: by silence, or `streams` by a transaction without an end."""
        return [self.names[number] for number in self._order.holders()]

    @property
    def streams(self) -> str | None:
        """The member of which a transaction is released in parts, so that nothing else is."""
        return self.names[self._order.streaming] if self._order.streaming >= 0 else None

    def state(self, name: str) -> MemberState:
        """What a member does."""
        return self._members[name].state

    def next(self, name: str) -> int:
        """Return the number of the first transaction of a member that is not released."""
        return self._order.state(self._members[name].number).next

    def is_full(self, name: str) -> bool:
        """Whether the reading of a member has to pause."""
        return self._order.state(self._members[name].number).is_full

    def status(self) -> dict[str, MemberStatus]:
        """Return what is shown of each member."""
        shown = {}
        for name, member in self._members.items():
            state: State = self._order.state(member.number)
            shown[name] = MemberStatus(
                state=member.state,
                transactions=state.transactions,
                bytes=state.bytes,
                is_full=state.is_full,
                late=state.late,
                silent=self._silence - member.heard,
            )
        return shown
