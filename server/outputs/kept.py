"""What the other side of an output keeps with the changes, as one: how far the output has come."""

import json
from typing import NamedTuple, Self

from ...protocol.errors import BadPositionError
from ...protocol.position import Position
from ...store.cursor import read_moved
from .target import Place


class Kept(NamedTuple):
    """What the other side has of an output."""

    place: Place | None
    """None: it only says that the epoch has begun."""
    epoch: int
    """Of the destination's life in which it was written."""
    moved: str
    """How the cursor of the client was last moved by hand before that (`StoredClient.moved`); empty if it never was."""
    state: str = ""
    """What has to be known to prepare what follows the place, see `Prepared`."""

    def __str__(self) -> str:
        position, gtids, number = self.place or ("", "", 0)
        record = {"position": position, "gtids": gtids, "epoch": self.epoch, "moved": self.moved, "number": number}
        return json.dumps(record | ({"state": self.state} if self.state else {}))

    @classmethod
    def parse(cls, text: bytes | str) -> Self:
        """Read the text form. Raises ValueError for anything else."""
        try:
            found = json.loads(text)
            position = found["position"]
            number = int(found.get("number", 0))
            place = Place(str(Position.parse(position)), str(found["gtids"]), number) if position != "" else None
            return cls(place, int(found["epoch"]), read_moved(str(found["moved"])), str(found.get("state", "")))
        except (ValueError, KeyError, TypeError, RecursionError, BadPositionError) as error:
            raise ValueError(f"not one of Sluice: {text[:200]!r}") from error


def counts(found: Kept | None, moved: str | None, *, is_written: bool) -> bool:
    """Whether it counts, and not the cursor: not where that was moved by hand since the output was open last.

    ``moved`` says how the cursor of the client was last moved by hand, empty if it never was, None if the client has
    lost its memory; ``is_written``: this server has heard of what the other side has. A server that has not heard
    of a later move is a former owner.
    """
    return found is not None and not (moved and not is_written and found.moved != moved)
