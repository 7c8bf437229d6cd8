"""What the ring and the log have to keep for the subscribers of a destination and its views, and when that is freed."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..protocol.errors import GoneError
from .patience import Pace, replaceable
from .ring import Ring
from .states import CatchingUp, Meeting
from .stream import Stream
from .subscriber import Subscriber

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .cursor import Cursor

FEW = 32
"""Subscribers that are all looked at after each put. More are looked at together, once for as many slots: what they do
not want is passed over, and freed, a little later ..."""
SHARE = 8
"""... and at the latest when this part of the ring was put."""
REVIEW = 0.005
"""Seconds for each subscriber until all are looked at again, whatever was put. A look takes some 40 us, so that is less
than a hundredth of a core. With 200 or fewer it is once a second, as often as somebody asks ..."""
LONGEST_REVIEW = 10.0
"""... and with 2,000 or more it is after these seconds."""
LOG = -(1 << 16)
"""What stands for the log among the keys of clients, which are from -32768 up: see `Clients.key`."""


@dataclass(slots=True)
class Look:
    """When all subscribers of a destination were looked at last."""

    next: int = 0
    """The slot that was the next one to be put."""
    bytes: int = 0
    """That were put until then."""
    reviewed: float = -math.inf
    """When all were looked at because time had passed."""

    def is_due(self, ring: Ring, subscribers: int) -> bool:
        """Return whether it is time to look at all ``subscribers``."""
        return (
            not self.next
            or ring.waiting
            or ring.next - self.next >= min(subscribers - FEW, ring.size // SHARE)
            or ring.put_bytes - self.bytes >= ring.memory // SHARE
        )

    def take(self, ring: Ring) -> None:
        """Look at all of them now."""
        self.next, self.bytes = ring.next, ring.put_bytes

    def take_review(self, now: float, subscribers: int) -> bool:
        """Return whether to look at all ``subscribers``, whatever was put, because the last time was long ago."""
        if now < self.reviewed + min(subscribers * REVIEW, LONGEST_REVIEW):
            return False
        self.reviewed = now
        return True


class Retention:
    """What ring and log keep for all subscribers of a destination and its views.

    Args:
        track: the ring, and the log that it passes to.
        detach_after: seconds for which one of several subscribers may hold a full ring back; 0 for ever. See
            `sluice.store.patience`.
        keeps: the last transactions stay in the ring, unless they have GTIDs.
    """

    def __init__(self, track: Stream, detach_after: float, *, keeps: bool) -> None:
        self.track = track
        self.pace = Pace(detach_after)
        self.subscribers: dict[int, Subscriber] = {}
        """Of the destination and its views, by `Clients.key`."""
        self.freed = Look()
        """When what nobody needs was freed."""
        self.elsewhere: Mapping[int, Cursor] = {}
        """The protected clients that are not served here: another server serves them, or their view is stopped."""
        self._detach_after = detach_after
        self._keeps = keeps

    @property
    def has_many(self) -> bool:
        """Whether there are too many subscribers to look at all of them after each put."""
        return len(self.subscribers) > FEW

    def hold(self) -> None:
        """Tell the log where the clients are that it has to keep files for."""
        log = self.track.log
        if log is None:
            return
        protected = {key: it.cursor for key, it in self.subscribers.items() if it.protected}
        held = {it: cursor for it, cursor in protected.items() if cursor is not None}
        log.held = {**self.elsewhere, **held}

    def free(self) -> None:
        """Free what neither a subscriber nor the log needs; without either everything is kept for the first subscriber.

        The ring of a reader, which no other subscriber reads, is freed up to what its subscriber has confirmed. A ring
        that is closed holds nothing any more; what was to be done for it may still come.
        """
        track, ring = self.track, self.track.ring
        if ring.closed:
            return
        self.freed.take(ring)
        for subscriber in self.subscribers.values():
            subscriber.resolve(track)
            self.free_reader(subscriber)
        needs = list(self._needs().values())
        if track.unlogged is not None:
            needs.append(track.unlogged)
        if needs and self._keeps and not track.gtids and not ring.waiting:
            needs.append(track.kept_from(ring.next))
        if needs:
            track.free_to(max(ring.first, min(needs)))

    @staticmethod
    def free_reader(subscriber: Subscriber) -> None:
        """Free the ring of a subscriber's reader up to what it has confirmed."""
        state = subscriber.state
        if isinstance(state, CatchingUp | Meeting) and state.reading.ack > state.track.ring.first:
            state.track.free_to(state.reading.ack)

    def detach_slow(self, now: float) -> bool:
        """Detach the subscribers that do not keep the pace; their cursors stay. Return whether there were any."""
        ring, subscribers = self.track.ring, self.subscribers
        if not (ring.waiting or self.pace.running):
            return False
        needs = self._needs()
        if self.track.unlogged is not None:
            idle = {it: need for it, need in needs.items() if not subscribers[it].marks}
            for key in replaceable(idle, ring.first, ring.next, self.track.unlogged) if ring.waiting else ():
                subscribers[key].detach(self.track, GoneError("it reads the log"))  # a full ring has roused all
                del needs[key]
            needs[LOG] = self.track.unlogged
        slow = self.pace.too_slow(needs, ring.next, now, full=ring.waiting)
        slow = [key for key in slow if key != LOG]  # nothing else holds what it has not written
        for key in slow:
            error = GoneError(
                f"client {subscribers[key].client_id} held the others back for more than {self._detach_after:g} s "
                "and left the buffer; its cursor is kept"
            )
            subscribers[key].detach(self.track, error)
        return bool(slow)

    def _needs(self) -> dict[int, int]:
        """Return the first slot that each subscriber needs, by `Clients.key`, of those that are not before the ring."""
        needs = {key: it.need(self.track) for key, it in self.subscribers.items()}
        return {key: need for key, need in needs.items() if need is not None}
