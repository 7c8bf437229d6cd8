"""What shaped the entries of a log, and where: so that nothing else is read from the source instead."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...protocol.cut import ONE, Cut, parse_place, places_in
from ...protocol.errors import ReshapedError
from ...protocol.member import KEYS
from ...protocol.position import Position

Shape = Mapping[str, Any]
"""What was configured that shapes entries, by key, as JSON can hold it."""

KEPT: Final = 32
"""Parts that are remembered when their files are gone."""


@dataclass(frozen=True, slots=True)
class ShapedPart:
    """A part of the stream that was written with one shape."""

    start: Position
    end: Position
    shape: Shape

    def encode(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {"from": str(self.start), "to": str(self.end), "shape": dict(self.shape)}

    @classmethod
    def decode(cls, data: Mapping[str, Any]) -> "ShapedPart":
        """Read what `encode` gave. Raises what malformed data raise."""
        return cls(parse_place(data["from"]), parse_place(data["to"]), dict(data["shape"]))


def join(parts: Sequence[ShapedPart], part: ShapedPart) -> tuple[ShapedPart, ...]:
    """Return the last parts when another one has ended; one without anything in it leaves no trace."""
    if part.start == part.end:
        return tuple(parts)
    if parts and parts[-1].end == part.start and parts[-1].shape == part.shape:
        return (*parts[:-1], ShapedPart(parts[-1].start, part.end, part.shape))
    return (*parts, part)[-KEPT:]


def of_member(shape: Shape, name: str) -> Shape:
    """Return what shapes the entries of a member: what is configured for others does not."""
    return {key: value for key, value in shape.items() if _member(key) in ("", name)}


def of_both(before: Shape, now: Shape) -> tuple[Shape, Shape]:
    """Return two shapes without what is configured for members that only one of them has."""
    names = {_member(key) for key in before} & {_member(key) for key in now}
    one, other = ({key: it for key, it in shape.items() if _member(key) in names} for shape in (before, now))
    return one, other


def _member(key: str) -> str:
    """Return the member whose setting a key is; empty for one of the whole stream."""
    name, dot, _ = key.removeprefix(KEYS).partition(".") if key.startswith(KEYS) else ("", "", "")
    return name if dot else ""


def difference(before: Shape, now: Shape) -> str:
    """Say what is configured now, and what was before, for each key that differs."""
    keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    return "; ".join(f"{key} is {_shown(now.get(key))}, was {_shown(before.get(key))}" for key in keys)


def source_end(
    parts: Sequence[ShapedPart], place: Position, now: Shape, until: Position | None = None
) -> Position | None:
    """Return up to where the source, read from a place on, gives what was delivered; None: without an end.

    It is read up to ``until`` at most, which is not before the place. Of a merged stream each member is read by itself.
    Raises ReshapedError if the source gives others at once.
    """
    ends: dict[str, Position] = {}
    for name, at in places_in(place).items():
        limit = None if until is None else places_in(until)[name]
        if limit is None or at < limit:
            end = _end_of_member(parts, name, at, of_member(now, name))
            if end is not None and (limit is None or end < limit):
                ends[name] = end
    if not ends:
        return until
    return Cut({**places_in(until or place), **ends}) if place.is_merged else ends[ONE]


def _end_of_member(parts: Sequence[ShapedPart], name: str, at: Position, now: Shape) -> Position | None:
    """Return up to where a member gives what was delivered; None: without an end. Raises ReshapedError."""
    for part in parts:
        start, end = places_in(part.start).get(name), places_in(part.end).get(name)
        before = of_member(part.shape, name)
        if end is None or start == end or before == now or not end.is_comparable(at) or end <= at:
            continue
        if start is None or start <= at:
            raise ReshapedError(
                f"the log has lost what was delivered after {at}, and the source would give something else up to"
                f" {end}, because the configuration has changed since: {difference(before, now)}"
            )
        if part is parts[0] and len(parts) == KEPT:
            raise ReshapedError(
                f"the log has lost what was delivered after {at}, and no longer knows what was configured then"
            )
        return start
    return None


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "not set" if value is None or value == "" else f"'{value}'"
