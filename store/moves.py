"""The gate through which a client's place moves, except by what it acks: what passes over changes is written down.

A move is *confirmed* when the client acked what lies between, or wants nothing of it; it leaves no record. Any other
move is a *jump*, and has one. A jump that a person asked for is history. Any other is a *gap*: the client is told by a
marker, and it stays open until somebody confirms it. Whoever moves a place says whether what lies between can still be
had: nothing here asks a source.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final, Self

from ..protocol.member import MAX_MEMBERS

MOST_MOVES = 100
"""Records of a client at most: what is older is joined."""
MOST_LEFT = 1000
"""Clients that have left and whose history is kept, at most; open gaps are always kept."""
LONGEST_DETAIL = 500
"""Characters of a text in a record ..."""
LONGEST_PLACE = 1 << 17
"""... and of a place: a cut names up to 64 of them."""

REMOVED: Final = re.compile(r"\bmember (\S+) was removed\b")
"""What the text of a record says of each member that was removed."""


class Reason(StrEnum):
    """Why a place jumped."""

    SEEK = "seek"
    """A cursor was moved by hand."""
    SKIP = "skip"
    """A transaction was skipped by hand."""
    ACK = "ack"
    """A position was acked that this life of the destination had not given."""
    UNSUBSCRIBE = "unsubscribe"
    """The client was removed, with its cursor."""
    EXPIRE = "expire"
    """The client made no call for too long, and was removed."""
    PURGE = "purge"
    """The source has purged what came next, and ``canal.auto.reset.latest.pos.mode`` goes on without it."""
    SWITCH = "switch"
    """Another source is read, and what came next is known by its place at the former one only."""
    REMOVE = "remove"
    """A member of a group was removed, so that what came next of it is not read any more."""


class MoveState(StrEnum):
    """What became of a jump."""

    ASKED = "asked"
    """A person asked for it."""
    OPEN = "open"
    """Nobody did, and the client has not acked the marker that says so."""
    TOLD = "told"
    """The client has."""
    CONFIRMED = "confirmed"
    """Somebody has seen the gap, and goes on without what was passed over."""


SERVER = "the server"
"""Who moves a place that nobody has asked to be moved."""


@dataclass(frozen=True, slots=True)
class By:
    """Who moves a place, and when."""

    who: str = SERVER
    time: float = 0.0
    """Seconds since 1970."""

    @property
    def ms(self) -> int:
        """When, ms since 1970."""
        return int(self.time * 1000)


@dataclass(frozen=True, slots=True)
class Move:
    """A jump of a client's place."""

    reason: Reason
    before: str
    """The place that it left, as a position; empty if that had no name."""
    after: str
    """Where it went on; empty as long as that has no name, or the client is not subscribed."""
    who: str
    time: int
    """When, ms since 1970."""
    state: MoveState = MoveState.ASKED
    held: bool = False
    """Whether what lies between could still be had then: from ring, log or source."""
    rows: int | None = None
    """Rows for the client that were passed over; None if they were not counted."""
    detail: str = ""
    """More about the reason."""
    members: tuple[str, ...] = ()
    """The members of a group whose removal it stands for."""
    joined: int = 1
    """How many jumps it stands for."""

    @property
    def is_gap(self) -> bool:
        """Whether it is a gap that nobody has confirmed."""
        return self.state in (MoveState.OPEN, MoveState.TOLD)

    @property
    def has_left(self) -> bool:
        """Whether its client is not subscribed since."""
        return self.reason in (Reason.UNSUBSCRIBE, Reason.EXPIRE) and not self.after

    @property
    def is_unsettled(self) -> bool:
        """Whether its client, coming back, has to say what becomes of the changes that it has not had."""
        return self.is_gap or (self.has_left and not self.held and self.state is MoveState.ASKED)

    def __str__(self) -> str:
        """Say what was passed over, and why."""
        detail = f" ({self.detail})" if self.detail else ""
        counted = "changes" if self.rows is None else f"{self.rows} row{'s' * (self.rows != 1)}"
        is_one = self.after and self.before == self.after  # only something of a removed member comes after it
        where = f"from {self.before or 'an unknown place'} to {self.after or 'here'}"
        return f"{counted} {f'after {self.after}' if is_one else where}: {self.reason}{detail}"

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {key: value for key, value in asdict(self).items() if value not in ("", None, ())}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """Read what `stored` returned. Raises ValueError, KeyError or TypeError if it is something else."""
        texts = {key: str(data.get(key, ""))[:LONGEST_DETAIL] for key in ("who", "detail")}
        places = {key: str(data.get(key, ""))[:LONGEST_PLACE] for key in ("before", "after")}
        rows, reason, members = data.get("rows"), Reason(data["reason"]), data.get("members", ())
        if reason is Reason.REMOVE and not members:  # as earlier versions wrote it
            members = REMOVED.findall(texts["detail"])
        return cls(
            reason=reason,
            time=int(data["time"]),
            state=MoveState(data["state"]),
            held=data["held"] is True,
            rows=None if rows is None else int(rows),
            members=tuple(map(str, members))[:MAX_MEMBERS],
            joined=int(data.get("joined", 1)),
            **places,
            **texts,
        )


class Gate:
    """The jumps of a destination's clients, those that have left among them."""

    def __init__(self, stored: Mapping[int, Sequence[Move]] | None = None) -> None:
        self._moves = {client_id: tuple(moves) for client_id, moves in (stored or {}).items() if moves}
        # Of clients whose jumps are to be stored, or are being stored: whether a new one is among them.
        self._changed: dict[int, bool] = {}
        self._under_way: dict[int, bool] = {}

    @property
    def moves(self) -> Mapping[int, tuple[Move, ...]]:
        """The jumps of each client, oldest first."""
        return self._moves

    def last(self, client_id: int) -> Move | None:
        """Return the last jump of a client, if there was one."""
        moves = self._moves.get(client_id, ())
        return moves[-1] if moves else None

    def gaps(self, client_id: int) -> tuple[Move, ...]:
        """Return the gaps of a client that nobody has confirmed, oldest first."""
        return tuple(it for it in self._moves.get(client_id, ()) if it.is_gap)

    @property
    def removed_members(self) -> frozenset[str]:
        """The members of a group that were removed, as far as a record says so."""
        return frozenset(name for moves in self._moves.values() for it in moves for name in it.members)

    @property
    def open_gaps(self) -> dict[int, tuple[Move, ...]]:
        """The gaps of each client that nobody has confirmed."""
        return {client_id: gaps for client_id in sorted(self._moves) if (gaps := self.gaps(client_id))}

    def untold(self, client_id: int) -> tuple[Move, ...]:
        """Return the gaps that a client is to be told of."""
        return tuple(it for it in self._moves.get(client_id, ()) if it.state is MoveState.OPEN)

    def is_unsettled(self, client_id: int) -> bool:
        """Whether a client, coming back, has to say what becomes of the changes that it has not had."""
        return any(it.is_unsettled for it in self._moves.get(client_id, ()))

    def jump(self, client_id: int, move: Move) -> None:
        """Write a jump down. Nothing after it may be given before that is stored (`is_stored`)."""
        moves = self._moves.get(client_id, ())
        short = replace(move, who=move.who[:LONGEST_DETAIL], detail=move.detail[:LONGEST_DETAIL])
        self._set(client_id, _shortened((*moves, short)), is_new=True)
        if move.has_left:
            self._forget_left()

    def arrive(self, client_id: int, place: str) -> None:
        """Say where a client goes on that was subscribed again, or moved to a place without a name.

        One that had expired did not ask to pass over what lies between: unless it goes on where it was, that is a gap.
        """
        moves = self._moves.get(client_id, ())
        if not moves or moves[-1].after or not place:
            return
        last = moves[-1]
        is_gap = last.reason is Reason.EXPIRE and place != last.before
        self._set(client_id, (*moves[:-1], replace(last, after=place, state=MoveState.OPEN if is_gap else last.state)))

    def tell(self, client_id: int, told: Sequence[Move]) -> None:
        """Note that a client has acked the marker of these gaps."""
        self._replace(client_id, lambda it: it in told and it.state is MoveState.OPEN, MoveState.TOLD)

    def confirm(self, client_id: int) -> int:
        """Confirm what was passed over; return how many jumps were not confirmed before."""
        return self._replace(client_id, lambda it: it.is_unsettled, MoveState.CONFIRMED)

    # --- what is stored ----------------------------------------------------------------------------------------------

    @property
    def changed(self) -> bool:
        """Whether `take_changes` would return anything."""
        return bool(self._changed)

    def is_stored(self, client_id: int) -> bool:
        """Whether all jumps of a client are stored."""
        return not (self._changed.get(client_id) or self._under_way.get(client_id))

    def take_changes(self) -> dict[int, tuple[Move, ...]]:
        """Return the jumps of the clients where these have changed since the last call, to be stored: all of each."""
        self._under_way, self._changed = self._changed, {}
        return {client_id: self._moves.get(client_id, ()) for client_id in self._under_way}

    def end_store(self, *, durable: bool) -> None:
        """Say that what was taken is stored; or that it could not be, so that it counts as changed again."""
        under_way, self._under_way = self._under_way, {}
        for client_id, is_new in () if durable else under_way.items():
            self._change(client_id, is_new=is_new)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _set(self, client_id: int, moves: tuple[Move, ...], *, is_new: bool = False) -> None:
        self._moves[client_id] = moves
        self._change(client_id, is_new=is_new)

    def _change(self, client_id: int, *, is_new: bool = False) -> None:
        self._changed[client_id] = is_new or self._changed.get(client_id, False)

    def _replace(self, client_id: int, chosen: Callable[[Move], bool], state: MoveState) -> int:
        moves = self._moves.get(client_id, ())
        found = sum(map(chosen, moves))
        if found:
            self._set(client_id, tuple(replace(it, state=state) if chosen(it) else it for it in moves))
        return found

    def _forget_left(self) -> None:
        """Forget the clients that left first, if there are too many."""
        left = [it for it, moves in self._moves.items() if moves[-1].has_left and not any(one.is_gap for one in moves)]
        for client_id in sorted(left, key=lambda it: self._moves[it][-1].time)[: max(0, len(left) - MOST_LEFT)]:
            del self._moves[client_id]
            self._change(client_id)


def _shortened(moves: tuple[Move, ...]) -> tuple[Move, ...]:
    """Join the two oldest jumps of the same kind while there are too many: history with history, gaps with gaps."""
    while len(moves) > MOST_MOVES:
        history, gaps = [it for it in moves if not it.is_gap], [it for it in moves if it.is_gap]
        first, second = (history if len(history) > 1 else gaps)[:2]
        joined = replace(
            second,
            before=first.before,
            members=tuple(sorted({*first.members, *second.members})),
            joined=first.joined + second.joined,
            held=first.held and second.held,
            rows=None if first.rows is None or second.rows is None else first.rows + second.rows,
            state=MoveState.OPEN if MoveState.OPEN in (first.state, second.state) else second.state,
        )
        moves = tuple(joined if it is second else it for it in moves if it is not first)
    return moves
