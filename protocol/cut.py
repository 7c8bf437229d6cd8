"""The cut: a place in the merged stream of several sources, and the GTIDs that are executed there."""

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NoReturn, Self

from .errors import BadPositionError, SourceChangedError
from .gtid import GtidSet, contains, parse_gtids
from .member import MAX_MEMBERS, NAME
from .position import Position

ONE: Final = ""
"""The member of a source that is a single server."""
NOWHERE: Final = "-"
"""The text of the cut before the start of every member: nobody writes it by accident, as one could an empty text."""

_NAME = re.compile(NAME)
_MEMBER = re.compile(rf"({NAME})/([^/\s]+/[^/\s]+@[0-9:]+)(?:,|\Z)")
_MAX_TEXT = MAX_MEMBERS * 2048  # a file's name has up to 512 bytes, and each may be percent-encoded
_MAX_GTIDS = 1 << 24

Executed = dict[str, GtidSet]
"""The GTIDs that are executed at a place, by member; a member of which that is unknown is not in it."""
Before = GtidSet | Executed | None
"""The GTIDs that are executed where a stream begins, of a merged one by member; None if that is unknown."""


class Cut(Position):
    """A place in a stream: the place of each member, by its name. A member that is absent is before its start.

    The stream of a single source has one member, `ONE`, and the text of a cut is then that of its position. With names
    the text is ``name/position,name/position``, in the order of the names. Equal cuts have equal texts, and nothing
    outside of this class takes a text apart: a name has neither ``/`` nor ``,`` and a position has exactly one ``/``
    and no comma after its last ``@``.

    Cuts are a lattice, and their order is partial: of two cuts each may be further in one member. So there is no ``<``,
    and neither `min` nor `max` of them: ask `precedes`, or take `join` and `meet`. Within a member positions are
    ordered as `Position` says; all three raise `SourceChangedError` where two of a member have no order.
    """

    __slots__ = ("places",)
    places: Mapping[str, Position]
    """By member, in the order of the names. The fields of a single source's position are empty."""

    def __init__(self, places: Mapping[str, Position] = MappingProxyType({})) -> None:
        """Raise `BadPositionError` for too many members, and for names that are not `NAME`."""
        if len(places) > MAX_MEMBERS:
            raise BadPositionError(f"a cut of {len(places)} members: at most {MAX_MEMBERS} are possible")
        for name in places if set(places) != {ONE} else ():
            if not _NAME.fullmatch(name):
                raise BadPositionError(f"not the name of a member ({NAME}): {name[:200]!r}")
        super().__init__("", "", 0, 0, 0)
        object.__setattr__(self, "places", MappingProxyType(dict(sorted(places.items()))))

    def __reduce__(self) -> tuple[type[Self], tuple[dict[str, Position]]]:
        return type(self), (dict(self.places),)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form. Raises `BadPositionError` for any other text, also for one that is not canonical."""
        if len(text) > _MAX_TEXT:
            raise BadPositionError(f"not a position: it has {len(text)} characters, more than {_MAX_TEXT}")
        if text == NOWHERE:
            return cls()
        if text.count("/") == 1:
            return cls({ONE: _parse_position(text)})
        places: dict[str, Position] = {}
        at = 0
        while at < len(text) or not places:
            match = _MEMBER.match(text, at)
            if match is None:
                raise BadPositionError(f"not a position (member/position, with commas between members): {text[:200]!r}")
            places[match[1]] = _parse_position(match[2])
            at = match.end()
        found = cls(places)
        if str(found) != text:
            raise BadPositionError(f"each member stands once, in the order of the names: {text[:200]!r}")
        return found

    def __str__(self) -> str:
        return ",".join(f"{name}/{it}" if name else str(it) for name, it in self.places.items()) or NOWHERE

    def __repr__(self) -> str:
        return f"{type(self).__name__}.parse({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return self.places == other.places if isinstance(other, Cut) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.places.items()))

    def advance(self, member: str, place: Position) -> Self:
        """Return the cut where a member is at that place, and all others are where they are here."""
        return type(self)({**self.places, member: place})

    @property
    def transaction(self) -> Self:
        """The place before the transactions that its members are in."""
        return type(self)({name: it.transaction for name, it in self.places.items()})

    @property
    def earliest_ms(self) -> int:
        """A time in ms since 1970 that is not after what comes next."""
        return min((it.earliest_ms for it in self.places.values()), default=0)

    def is_of(self, source: str) -> bool:
        """It is a place in the stream of no single source."""
        del source
        return False

    def same_source(self, other: Position) -> bool:
        """Whether each member is of one source in both."""
        return self._all(other, Position.same_source)

    def same_history(self, other: Position) -> bool:
        """Whether nothing shows that a member's places belong to different sources or histories."""
        return self._all(other, Position.same_history)

    def is_comparable(self, other: Position) -> bool:
        """Whether each member's places have an order: the cuts themselves need not have one."""
        return self._all(other, Position.is_comparable)

    def _all(self, other: Position, holds: Callable[[Position, Position], bool]) -> bool:
        if not isinstance(other, Cut):
            return False
        return all(holds(it, other.places[name]) for name, it in self.places.items() if name in other.places)

    def _order(self, other: Position) -> NoReturn:
        if not isinstance(other, Cut):
            raise SourceChangedError(f"{self} and {other} have no order: one is of several sources")
        raise TypeError(f"places of a merged stream have a partial order: {self} and {other}")

    def precedes(self, other: Position) -> bool:
        """Whether each member's place is at or before its place in another cut."""
        if not isinstance(other, Cut):
            raise SourceChangedError(f"{self} and {other} have no order: one is of several sources")
        theirs = other.places
        before = [name in theirs and _is_before(name, place, theirs[name]) for name, place in self.places.items()]
        return all(before)  # each was compared: whether two histories are found does not depend on the others

    def join(self, other: Position) -> Self:
        """Return the least cut that both precede: each member is where it is further."""
        if not isinstance(other, Cut):
            raise SourceChangedError(f"{self} and {other} have no order: one is of several sources")
        places = dict(self.places)
        for name, place in other.places.items():
            if name not in places or _is_before(name, places[name], place):
                places[name] = place
        return type(self)(places)

    @property
    def is_merged(self) -> bool:
        """It is."""
        return True

    def meet(self, other: Position) -> Self:
        """Return the greatest cut that precedes both: each member is where it is less far."""
        if not isinstance(other, Cut):
            raise SourceChangedError(f"{self} and {other} have no order: one is of several sources")
        mine, theirs = self.places, other.places
        return type(self)(
            {
                name: place if _is_before(name, place, theirs[name]) else theirs[name]
                for name, place in mine.items()
                if name in theirs
            }
        )


def is_cut(text: str) -> bool:
    """Whether the text of a place is one of a merged stream."""
    return text.count("/") > 1 or text == NOWHERE


def parse_place(text: str) -> Position:
    """Read the text of a place: a `Cut` if it is one of a merged stream. Raises `BadPositionError`."""
    return Cut.parse(text) if is_cut(text) else Position.parse(text)


def places_in(place: Position) -> Mapping[str, Position]:
    """Return the place of each member; that of a single source is the place itself, by `ONE`."""
    return place.places if isinstance(place, Cut) else {ONE: place}


def executed_at(cut: Cut, sides: Iterable[tuple[Cut, Executed]]) -> Executed:
    """Return the GTIDs that are executed at the `Cut.join` or `Cut.meet` of cuts with those executed there.

    A member's set is that of a cut where it is at the same place: sets of two places are never put together. A member
    of which no cut knows it is not in the result.
    """
    found: Executed = {}
    for side, executed in sides:
        for name, gtids in executed.items():
            if name in cut.places and side.places.get(name) == cut.places[name]:
                found.setdefault(name, gtids)
    return found


def executed_text(executed: Executed) -> str:
    """Return the text of the GTIDs that are executed at a place: of a single source that of its set, else by member.

    That is ``name=set;name=set``, in the order of the names. An empty set, which nothing was executed in or which is
    unknown, is not in it.
    """
    texts = {name: str(gtids) for name, gtids in sorted(executed.items())}
    return ";".join(f"{name}={text}" if name else text for name, text in texts.items() if text)


def parse_executed(text: str) -> Executed:
    """Read what `executed_text` writes, or any text of the set of a single source, as servers and Canal write it.

    Raises `BadPositionError` for any other text.
    """
    if len(text) > _MAX_GTIDS:
        raise BadPositionError(f"not a GTID set: it has {len(text)} characters, more than {_MAX_GTIDS}")
    if "=" not in text:
        return {ONE: parse_gtids(text)} if text else {}
    pairs = [part.rpartition("=") for part in text.split(";")]
    found = {name: parse_gtids(gtids) for name, _, gtids in pairs}
    Cut(dict.fromkeys(found, _ANYWHERE))  # which checks the names and their number
    if executed_text(found) != text:
        raise BadPositionError(f"not the text of GTID sets, which is {executed_text(found)[:200]!r}: {text[:200]!r}")
    return found


def has_executed(one: str, other: str) -> bool:
    """Whether sets, as text, have all of others, by member; not if one of them is empty: that stands for unknown ones.

    Raises `BadPositionError` for what `parse_executed` refuses.
    """
    if not (one and other):
        return False
    mine, others = parse_executed(one), parse_executed(other)
    return all(name in mine and contains(mine[name], gtids) for name, gtids in others.items())


_ANYWHERE = Position("", "", 0, 0, 0)


def _parse_position(text: str) -> Position:
    position = Position.parse(text)
    if str(position) != text:  # the name of its file may be encoded in several ways
        raise BadPositionError(f"not the text of a position, which is {str(position)[:200]!r}: {text[:200]!r}")
    return position


def _is_before(member: str, one: Position, other: Position) -> bool:
    try:
        return one <= other
    except SourceChangedError as error:
        raise SourceChangedError(f"member {member}: {error}" if member else str(error)) from None
