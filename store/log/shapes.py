"""What shaped the entries of a log, and where: so that nothing else is read from the source instead."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...protocol.errors import ReshapedError
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
        return cls(Position.parse(data["from"]), Position.parse(data["to"]), dict(data["shape"]))


def join(parts: Sequence[ShapedPart], part: ShapedPart) -> tuple[ShapedPart, ...]:
    """Return the last parts when another one has ended; one without anything in it leaves no trace."""
    if part.start == part.end:
        return tuple(parts)
    if parts and parts[-1].end == part.start and parts[-1].shape == part.shape:
        return (*parts[:-1], ShapedPart(parts[-1].start, part.end, part.shape))
    return (*parts, part)[-KEPT:]


def difference(before: Shape, now: Shape) -> str:
    """Say what is configured now, and what was before, for each key that differs."""
    keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    return "; ".join(f"{key} is {_shown(now.get(key))}, was {_shown(before.get(key))}" for key in keys)


def source_end(parts: Sequence[ShapedPart], place: Position, now: Shape) -> Position | None:
    """Return up to where the source, read from a place on, gives what was delivered; None: without an end.

    Raises ReshapedError if it gives others at once.
    """
    for part in parts:
        if part.shape == now or not part.end.is_comparable(place) or part.end <= place:
            continue
        if place >= part.start:
            raise ReshapedError(
                f"the log has lost what was delivered after {place}, and the source would give something else up to"
                f" {part.end}, because the configuration has changed since: {difference(part.shape, now)}"
            )
        if part is parts[0] and len(parts) == KEPT:
            raise ReshapedError(
                f"the log has lost what was delivered after {place}, and no longer knows what was configured then"
            )
        return part.start
    return None


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "not set" if value is None or value == "" else f"'{value}'"
