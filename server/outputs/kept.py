"""What the other side of an output keeps with the changes, as one: how far the output has come."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

from ...protocol.cut import parse_place
from ...protocol.errors import BadPositionError
from ...store.cursor import read_moved
from .target import Place, RejectedError


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
            place = Place(str(parse_place(position)), str(found["gtids"]), number) if position != "" else None
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


def resume(
    found: Kept | None, known: Mapping[str, Any], epoch: int, *, where: str, advice: Callable[[], str]
) -> tuple[Place | None, str]:
    """Return the place where an output goes on, None when its cursor counts, and how that was moved by hand last.

    ``found`` is what the other side has, ``known`` what is kept with the cursor (`memory_of`, or only ``moved``).
    Raises RejectedError when the place is gone, or belongs to a later epoch: the text names ``where`` that is, and
    ends with what ``advice`` returns.
    """
    was_written = known.get("written", False)
    if found is None and was_written:
        raise RejectedError(f"its place is gone at {where}; {advice()}")
    if found is None or not counts(found, known.get("moved"), is_written=was_written):
        return None, known.get("moved") or ""
    if found.epoch > epoch:
        raise RejectedError(
            f"{where} has the place of this output from epoch {found.epoch}, and this server is in epoch"
            f" {epoch}: another server has the destination. Or its cursors were lost: then {advice()}"
        )
    return found.place, found.moved


def memory_of(moved: str) -> str:
    """Return what is kept with the cursor, see `Target.open`, of an output whose place the other side has."""
    return json.dumps({"moved": moved, "written": True})


def read_memory(memory: str, moved: str) -> dict[str, Any]:
    """Read it back; ``moved`` says how the cursor was moved by hand since, empty if it was not."""
    known: dict[str, Any] = {"moved": moved} if moved else json.loads(memory or "{}")
    return known


def seek_advice(destination: str, client_id: int) -> str:
    """Say how an operator decides where an output goes on."""
    return f"say where it goes on with `sluice seek {destination} {client_id} POSITION`"
