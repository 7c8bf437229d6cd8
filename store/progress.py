"""How the clients of a destination move on: by what they confirm, and over what they do not want."""

from ..protocol.cut import Cut
from ..protocol.errors import BadPositionError
from ..protocol.position import Position
from .client_snapshots import ClientSnapshots
from .clients import Clients
from .reading import Mark, Reading
from .retention import Retention
from .subscriber import Subscriber


class Progress:
    """What the clients of a destination, or of a view, have confirmed, and what becomes of that."""

    def __init__(self, clients: Clients, retention: Retention, snapshots: ClientSnapshots) -> None:
        """What they confirm is freed in ``retention``, and brings ``snapshots`` forward."""
        self._clients = clients
        self._retention = retention
        self._snapshots = snapshots

    def deliver(self, subscriber: Subscriber, reading: Reading, mark: Mark) -> None:
        """Confirm a batch and all before it."""
        delivered = reading.deliver_through(mark)
        self.confirm(subscriber, reading, mark.stop)
        self._confirm_passed(subscriber, reading)
        self._settle(subscriber, delivered)

    def confirm_to(self, subscriber: Subscriber, reading: Reading, sequence: int) -> None:
        """Confirm the slots before a sequence, and the marks that end there or before."""
        if sequence > reading.get:  # in an earlier life it was given changes that are not seen here
            reading.windows.clear()
        delivered = reading.deliver_to(sequence)
        self.confirm(subscriber, reading, sequence)
        self._confirm_passed(subscriber, reading)
        self._settle(subscriber, delivered)

    def confirm_cut(
        self, subscriber: Subscriber, reading: Reading, place: Position, sequence: int, *, by_hand: bool
    ) -> bool:
        """Confirm up to a place in another order of a merged stream; a sequence is the first slot after it.

        Return False if it is one in this order. Raises BadPositionError while batches of this order are outstanding,
        and for somebody else than the client.
        """
        if not isinstance(place, Cut) or reading.place(sequence) == reading.track.filled(place):
            return False
        if reading.marks or by_hand:
            raise BadPositionError(
                f"{place} is no place in the order in which this server gives the changes: while batches of that are"
                " outstanding, or by hand, no other one can be acked"
            )
        reading.raise_floor(place, sequence)
        self._clients.resting.rouse(subscriber.client_id)
        self._clients.unstored.add(subscriber.client_id)
        self._retention.free()
        return True

    def confirm(self, subscriber: Subscriber, reading: Reading, sequence: int) -> None:
        """Confirm the slots before a sequence, and free what can be freed."""
        if sequence <= reading.ack:
            return
        before = reading.get
        self._note(subscriber, reading, sequence)
        if reading.get != before:
            self._clients.resting.rouse(subscriber.client_id)
        if self._retention.freed.is_due(self._retention.track.ring, len(self._retention.subscribers)):
            self._retention.free()
        else:
            self._retention.free_reader(subscriber)

    def pass_over(self, subscriber: Subscriber) -> None:
        """Move a subscriber on over what it does not want, if it has confirmed everything."""
        served = subscriber.served
        if served is not None:
            if served.reading.floor is not None:
                served.reading.pass_floor(served.track.shown)
            self._note(subscriber, served.reading, served.reading.unwanted_up_to(served.end))

    def moved_on(self, client_id: int) -> Subscriber:
        """Return a subscriber that is where it would be if all were looked at now."""
        subscriber = self._clients.find(client_id)
        if self._retention.has_many:
            self.pass_over(subscriber)
        return subscriber

    def _settle(self, subscriber: Subscriber, delivered: list[Mark]) -> None:
        """Note which late rows have arrived, and which of a snapshot."""
        for mark in delivered:
            for given in mark.rows:
                self._snapshots.settle_rows(subscriber, given)
            if mark.gaps:
                self._clients.gate.tell(subscriber.client_id, mark.gaps)
            if mark.late in subscriber.late:
                subscriber.late.remove(mark.late)
                self._clients.unstored.add(subscriber.client_id)

    def _confirm_passed(self, subscriber: Subscriber, reading: Reading) -> None:
        """Confirm what was passed over after the last mark, once that is confirmed."""
        if not reading.marks:
            self.confirm(subscriber, reading, reading.get)

    def _note(self, subscriber: Subscriber, reading: Reading, sequence: int) -> None:
        """Confirm the slots before a sequence."""
        if sequence > reading.ack and reading.confirm(sequence):
            self._clients.unstored.add(subscriber.client_id)
