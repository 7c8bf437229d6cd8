"""The clients that wait for tables of their filters, and whom of them concerns what is put.

A client rests when the ring has nothing to give it, and nothing is to come in another way than by a put. What is put is
scanned once for all of them, by the tables of its entries; whom it may concern is named once, and rests no more.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .masks import Mask

if TYPE_CHECKING:
    from .stream import Stream


class Resting:
    """Those of one destination, or of one view."""

    def __init__(self, track: "Stream") -> None:
        """``track`` is what they read."""
        self._track = track
        self._masks: dict[int, Mask] = {}
        self._clients: dict[Mask, set[int]] = {}
        self._roused: set[int] = set()
        self._looked = 0  # the slots before this one concern none of them
        self._held = -1  # the BEGIN of the transaction that is open there, -1 for none

    def __iter__(self) -> Iterator[int]:
        """Give those that rest."""
        return iter(tuple(self._masks))

    def add(self, client_id: int, mask: Mask, shown: int, held: int) -> bool:
        """Let a client rest for which nothing comes before a slot, where the BEGIN ``held`` waits, -1 for none.

        Return False if it may be concerned already.
        """
        if client_id in self._masks:
            return True
        self.look()
        if not self._masks:
            self._looked, self._held = shown, held
        elif (self._looked, self._held) != (shown, held):
            return False
        self._masks[client_id] = mask
        self._clients.setdefault(mask, set()).add(client_id)
        return True

    def leave(self, client_id: int) -> None:
        """Let a client rest no more, because nobody waits for it."""
        mask = self._masks.pop(client_id, None)
        if mask is not None:
            self._clients[mask].discard(client_id)
            if not self._clients[mask]:
                del self._clients[mask]

    def rouse(self, client_id: int) -> None:
        """Let a client look, if it rests: something about it has changed."""
        if client_id in self._masks:
            self.leave(client_id)
            self._roused.add(client_id)

    def rouse_all(self) -> None:
        """Let all look."""
        self._roused.update(self._masks)
        self._masks.clear()
        self._clients.clear()

    def look(self) -> None:
        """Look at what was put: those that it may concern rest no more."""
        if not self._masks:
            return
        ring, shown = self._track.ring, self._track.shown
        # In a full ring a BEGIN waits no longer; and what was freed cannot be looked at any more.
        if ring.closed or ring.waiting or not ring.first <= self._looked <= shown:
            self.rouse_all()
            return
        masks, self._held = ring.wanted_by(self._looked, shown, self._held, self._clients)
        self._looked = shown
        for mask in masks:
            clients = self._clients.pop(mask)
            self._roused |= clients
            for client_id in clients:
                del self._masks[client_id]

    def take_roused(self) -> set[int]:
        """Return those that rest no more, since the last call."""
        roused, self._roused = self._roused, set()
        return roused
