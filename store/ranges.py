"""Ranges: parts of the stream that a client is told of, reads by their positions, and confirms."""

from ..protocol.cut import parse_place
from ..protocol.errors import GapError, SnapshotRunningError
from ..protocol.position import Position
from .batch import UNMARKED, Batch, Part, Range, RangeLimits, join_parts
from .clients import Clients
from .reading import Mark
from .ring import Flag


class Ranges:
    """The ranges of the clients of a destination, or of a view."""

    def __init__(self, clients: Clients) -> None:
        """Those of these clients, which keep their marks."""
        self._clients = clients

    def mark(
        self,
        client_id: int,
        after: Position,
        limits: RangeLimits,
        *,
        now: float,
        final: bool = False,
        transactions: bool = True,
        session: str | None = None,
    ) -> Range | None:
        """Mark what follows a position, as far as the limits and what is stored allow; `Ring.cut` says where it ends.

        The same position and limits give the same range until it is confirmed. Other limits give a new range, and
        every mark that ends after the position is forgotten: a client that asks from there will process from there.
        What is confirmed already is given without a mark.

        None when nothing wanted is there yet; with ``final`` an empty range over what was passed.

        Raises:
            NotSubscribedError, StaleSessionError: as `Clients.check`.
            SnapshotRunningError: the client takes a snapshot.
            GapError: the client is to be told of a gap, and nobody has confirmed that.
            GoneError: the position is before what is stored, with more than unwanted entries between.
            SourceChangedError: it belongs to another source or history.
        """
        # Long: each step needs what the ones before have found of the range.
        subscriber = self._clients.check(client_id, session)
        subscriber.last_active = now
        if subscriber.snapshots.is_running:
            raise SnapshotRunningError(
                f"a snapshot of client {client_id} is not complete: no range holds its rows, get and ack them"
            )
        if untold := self._clients.gate.untold(client_id):
            raise GapError(f"client {client_id} does not get {untold[0]}")
        if not self._clients.gate.is_stored(client_id):
            return None
        for mark in subscriber.marks.values():
            if mark.range is not None and mark.range.from_ == str(after) and mark.limits == limits:
                return mark.range
        served = subscriber.served
        start = subscriber.locate(after) if served is not None else None
        if served is None or start is None:
            return Range(-1, str(after), str(after), 0, 0, 0, partial=False, reached=False) if final else None
        reading, ring = served.reading, served.track.ring
        stop = None if limits.until is None else subscriber.locate(limits.until, ends=True)
        inside = ring.waiting or stop is not None
        stop = max(start, served.end if stop is None else min(stop, served.end))
        stop = served.track.left_at(start, stop)  # places of two sources have no order: no range has both
        if start < reading.ack < stop:
            stop, inside = reading.ack, True
        judged = reading.slots.reach(start, stop)
        if reading.slots.refusal(judged) is not None:
            stop, inside = judged, True
        elif judged < stop:
            stop, inside = judged, False
        # In a merged stream a range has no slot that its client has, and leaves out none of the others: it ends at the
        # first cut that has all before ``until``.
        first, last = next(served.track.spans(start, stop, after), (stop, stop))
        start, stop, inside = first, last, inside or last < stop
        chosen = reading.chosen()
        end, entries = ring.cut(start, stop, max_rows=limits.rows, max_bytes=limits.bytes, inside=inside, **chosen)
        to = after.join(served.track.position_before(end) or after)
        reached = limits.until is not None and limits.until.same_history(to) and limits.until.precedes(to)
        if not entries:
            if not (final or reached):
                return None
            return Range(-1, str(after), str(to), 0, 0, 0, partial=False, reached=reached)
        collected = ring.read(start, end, transactions=transactions, **chosen)
        is_new = start >= reading.ack
        found = Range(
            batch_id=self._clients.counters.take_id() if is_new else -1,
            from_=str(after),
            to=str(to),
            entries=collected.entries,
            rows=collected.rows,
            bytes=collected.bytes,
            partial=not ring.slot(end - 1).flags & Flag.BOUNDARY,
            reached=reached,
        )
        if is_new:
            reading.marks = {mark.batch_id: mark for mark in reading.marks.values() if mark.stop <= start}
            reading.marks[found.batch_id] = Mark(found.batch_id, start, end, collected.last, to, found, limits)
            reading.get = end
            subscriber.given = True
            self._clients.resting.rouse(client_id)
        return found

    def is_marked(self, client_id: int, from_: Position, to: Position) -> bool:
        """Return whether a range is in those that a client was given and has not confirmed, without a gap.

        Raises NotSubscribedError.
        """
        place = None  # up to which it is, if it begins in one of them
        for mark in self._clients.find(client_id).marks.values():  # in the order of the stream
            if (it := mark.range) is None:
                continue
            begin, end, here = parse_place(it.from_), parse_place(it.to), place or from_
            if begin.same_history(here) and begin.precedes(here) and here.precedes(end):
                place = end
        return place is not None and to.same_history(place) and to.precedes(place)

    def read(self, client_id: int, from_: Position, to: Position, *, transactions: bool = True) -> Batch | None:
        """Read a range without a mark, for the subscriber's filter; None when the stream has not reached its end.

        Raises:
            NotSubscribedError: the client has not subscribed.
            BadPositionError: the range ends before it begins.
            GoneError: it begins before what is stored, with more than unwanted entries between.
            SourceChangedError: it belongs to another source or history.
            FilterError: the client's condition cannot be judged in it.
        """
        subscriber = self._clients.find(client_id)
        spans = subscriber.spans(from_, to)
        if spans is None:
            return None
        ring, chosen = subscriber.state.track.ring, subscriber.slots.chosen()
        found = [ring.read(*span, transactions=transactions, **chosen) for span in spans]
        return Batch(
            batch_id=UNMARKED if any(it.entries for it in found) else -1,
            slices=[part for it in found for part in it.slices],
            from_=str(from_),
            to=str(to),
            entries=sum(it.entries for it in found),
            rows=sum(it.rows for it in found),
            bytes=sum(it.bytes for it in found),
            timestamp=next((it.execute_ms for it in reversed(found) if it.entries), 0),
            positions=b"".join(it.positions for it in found),
        )

    def split(
        self, client_id: int, from_: Position, to: Position, parts: int, *, transactions: bool = True
    ) -> list[Part] | None:
        """Cut a range into at most ``parts`` parts of about equal bytes; else as `read`."""
        subscriber = self._clients.find(client_id)
        spans = subscriber.spans(from_, to)
        if spans is None:
            return None
        track, chosen = subscriber.state.track, subscriber.slots.chosen()
        found, begin = list[Part](), str(from_)
        for start, stop in spans:
            for end, *sizes in track.ring.split(start, stop, parts, transactions=transactions, **chosen):
                is_last = (start, stop) == spans[-1] and end == stop
                until = str(to if is_last else from_.join(track.position_of(end)).meet(to))
                found.append(Part(begin, until, *sizes))
                begin = until
        return found if len(spans) == 1 else join_parts(found, str(from_), str(to), parts)
