"""What is stored of a subscriber: its identity, and how far it has confirmed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from ..protocol.position import Position, file_number
from .allowance import UNLIMITED, Limits
from .moves import Move


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a subscriber has confirmed, as it is stored: Canal's fields, and ours if we wrote it.

    Canal's fields name the last event confirmed, a transaction end or DDL; ``position`` names the place after it. It is
    the cursor of one member of a source. The GTID sets of two members are never joined, because one may have what the
    other lacks.
    """

    journal: str
    """Name of the binlog file of the event."""
    offset: int
    """Where the event starts in the file."""
    timestamp: int
    """Of the event, ms since 1970."""
    server_id: int
    gtid: str = ""
    """The full set of executed GTIDs at the place, empty if unknown."""
    position: Position | None = None
    delivered: Position | None = None
    """The place after the last entry that the subscriber was given and has confirmed."""
    restart: Position | None = None
    """Where the oldest XA transaction was prepared that is open at the place: the source has to be read from there to
    give its rows when it is committed. None if there is none, or if it is unknown."""

    @classmethod
    def at(cls, position: Position, gtid: str = "", delivered: Position | None = None) -> Self:
        """Return the cursor of a place without an event."""
        return cls(*position.canal_place, 0, 0, gtid, position, delivered)

    @property
    def order(self) -> tuple[int, int, int]:
        """The rank of its place in its history."""
        if self.position is not None:
            return self.position.order
        return file_number(self.journal), self.offset, 0

    @property
    def is_portable(self) -> bool:
        """Whether its GTIDs say where it is at another source, too. One that Canal wrote is found by its event only."""
        return bool(self.gtid) and self.position is not None


OLDEST = Cursor("", 0, 0, 0)
"""Stands for the oldest place that the source has, where it has purged the place before it in a list of places."""
SKIP = "-skip"
"""Ends the word for a move over nothing but transactions that came next, see `StoredClient.moved`."""
_EARLIER = "moved "
"""An earlier version wrote this, how a cursor was moved, a space and then what the client had remembered before, all
into the text of the client."""


@dataclass(frozen=True, slots=True)
class StoredClient:
    """A subscription as it is stored."""

    client_id: int
    filter: str = ""
    cursor: Cursor | None = None
    expire_after: int | None = None
    """Seconds without a call after which the client is removed, 0 for never; None: the destination's default."""
    late: tuple[str, ...] = ()
    """The positions of the `sluice.store.batch.LateRows` that it is still to be given."""
    memory: str = ""
    """A text of the client's own, a few KiB."""
    snapshots: str = ""
    """Its snapshots, as `sluice.store.snapshot` writes them."""
    protected: bool = False
    """Whether the log on disk keeps what the client still needs, beyond its limits."""
    where: str = ""
    """Its condition on rows."""
    output: str = ""
    """The name of the output that owns it: nobody else takes its batches. Empty for any other client."""
    refused: str = ""
    """When a call of somebody else was refused last, and which one; empty for none since the output owns it."""
    owner: str = ""
    """Name of the token that has created it; empty if that was an administrator's, or no token, or of an output's."""
    moved: str = ""
    """How its cursor was moved by hand since its ``memory``: another word each time, which begins with the time, ms
    since 1970, and a dash. It ends with `SKIP` if only transactions that came next were passed over. Empty if it was
    not."""
    limits: Limits = UNLIMITED
    """How much it may be given."""
    used: str = ""
    """What it has used of its quota, as `sluice.store.allowance` writes it."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What is to be stored in one write."""

    clients: Mapping[int, StoredClient | None]
    """The clients that have changed; None for one that is removed."""
    moves: Mapping[int, Sequence[Move]] = field(default_factory=dict)
    """All jumps of the clients, also of removed ones, where these have changed."""


def place_of(cursor: Cursor | None) -> str:
    """Return the place of a cursor as a record names it; empty without one."""
    if cursor is None:
        return ""
    return str(cursor.position or f"{cursor.journal}:{cursor.offset}")


def split_memory(text: str) -> tuple[str, str]:
    """Return what a client remembers, and how its cursor was moved, of a text in which an earlier version kept both."""
    if not text.startswith(_EARLIER):
        return text, ""
    moved, _, memory = text.removeprefix(_EARLIER).partition(" ")
    return memory, moved


def read_moved(text: str) -> str:
    """Return how a cursor was moved by hand (`StoredClient.moved`), as an earlier version may have written it."""
    return text.removeprefix(_EARLIER)


def moved_at(moved: str) -> int:
    """Return when a cursor was moved by hand, ms since 1970, by `StoredClient.moved`; 0 if that does not say."""
    time, dash, _ = moved.partition("-")
    return int(time) if dash and time.isdecimal() else 0


def in_order(cursors: list[Cursor]) -> list[Cursor]:
    """Sort cursors in the order of the stream; the oldest history comes first."""
    ordered: list[Cursor] = []
    while cursors:
        oldest = min(cursors, key=lambda cursor: cursor.timestamp)
        same = [cursor for cursor in cursors if same_history(cursor, oldest)]
        ordered += sorted(same, key=lambda cursor: cursor.order)
        cursors = [cursor for cursor in cursors if not same_history(cursor, oldest)]
    return ordered


def starts(cursors: Sequence[Cursor | None], place: Cursor | None) -> list[Cursor | None]:
    """Return where the stream may begin to serve clients with these cursors, best first.

    None, for a client without a place yet, means where the configuration says: that client can begin although others
    have lost their places. When no client has a place, ``place`` counts, which the destination may keep.
    """
    known = in_order([cursor for cursor in cursors if cursor is not None])
    known = [*_meets(known), *known]  # of a merged stream each member begins at its oldest place
    return [*known, *([None] if None in cursors else [])] if known else [place]


def _meets(cursors: Sequence[Cursor]) -> list[Cursor]:
    """Return where cursors of a merged stream meet, one place for those whose members have the same histories.

    A cursor has what was executed there, and from where the members are to be read.
    """
    from ..protocol.cut import Cut, executed_at, executed_text, parse_executed  # noqa: PLC0415  as in `is_later`

    known = [(it.position, it) for it in cursors if isinstance(it.position, Cut)]
    places: list[Cut] = []
    for cut, _ in known:
        of_history = next((i for i, it in enumerate(places) if it.same_history(cut)), None)
        if of_history is None:
            places.append(cut)
        else:
            places[of_history] = places[of_history].meet(cut)
    sides = [(cut, parse_executed(it.gtid)) for cut, it in known]
    restarts = [(cut, it.restart.places) for cut, it in known if isinstance(it.restart, Cut)]
    found = []
    for place in places:
        restart = {
            name: further_back
            for cut, of_members in restarts
            for name, further_back in of_members.items()
            if name in place.places and place.places[name] == cut.places.get(name)
        }
        cursor = Cursor.at(place, executed_text(executed_at(place, sides)))
        found.append(replace(cursor, restart=Cut(restart) if restart else None))
    return found


def as_member(cursor: Cursor, member: str) -> Cursor:
    """Return the cursor of a single source, whose position is known, in a merged stream: that source is a member."""
    from ..protocol.cut import ONE, Cut, executed_text, parse_executed  # noqa: PLC0415  as in `is_later`

    assert cursor.position is not None
    gtids = parse_executed(cursor.gtid).get(ONE)
    restart = None if cursor.restart is None else Cut({member: cursor.restart})
    executed = "" if gtids is None else executed_text({member: gtids})
    return replace(Cursor.at(Cut({member: cursor.position}), executed), restart=restart)


def member_of(cursor: Cursor, member: str) -> Cursor | None:
    """Return the cursor of a merged stream as one of a single source, which a member is; None if it is before that."""
    from ..protocol.cut import parse_executed, places_in  # noqa: PLC0415  as in `is_later`

    assert cursor.position is not None
    place = places_in(cursor.position).get(member)
    if place is None:
        return None
    restart = None if cursor.restart is None else places_in(cursor.restart).get(member)
    return replace(Cursor.at(place, str(parse_executed(cursor.gtid).get(member, ""))), restart=restart)


def further(place: Cursor, start: Cursor) -> Cursor:
    """Return where one that is at a place goes on at a later start: of a merged stream each member where it is further.

    With what was executed there, as far as the two know it.
    """
    from ..protocol.cut import Cut, executed_at, executed_text, parse_executed  # noqa: PLC0415  as in `is_later`

    mine, theirs = place.position, start.position
    if not (isinstance(mine, Cut) and isinstance(theirs, Cut) and mine.is_comparable(theirs)):
        return start
    cut = mine.join(theirs)
    executed = executed_at(cut, [(mine, parse_executed(place.gtid)), (theirs, parse_executed(start.gtid))])
    return Cursor.at(cut, executed_text(executed))


def earliest(cursors: list[Cursor]) -> Cursor | None:
    """Return the cursor from which the stream has to be read to serve them all; None without any."""
    return starts(cursors, None)[0]


def same_history(one: Cursor, other: Cursor) -> bool:
    """Whether two places have an order."""
    if one.position is not None and other.position is not None:
        return one.position.same_history(other.position)
    return one.journal.rpartition(".")[0] == other.journal.rpartition(".")[0]


def is_later(one: Cursor, other: Cursor) -> bool:
    """Whether a place comes after another one: of another source or history if GTIDs do not say that it does not."""
    if one.position is not None and other.position is not None and one.position.is_comparable(other.position):
        return not one.position.precedes(other.position)
    from ..protocol.cut import has_executed  # noqa: PLC0415  is compiled in part; configuration loads this module

    return not has_executed(other.gtid, one.gtid)
