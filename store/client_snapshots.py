"""The rows that the clients of a destination are given beside its changes: of snapshots, and late ones."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from ..protocol.content import Content
from ..protocol.cut import places_in
from ..protocol.errors import UnknownSnapshotError
from ..protocol.position import Position
from .batch import Batch, LateRows
from .clients import Clients
from .reading import Mark, Reading
from .retention import Retention
from .side import rows_batch
from .snapshot import Chunk, Given, Snapshot, TableProgress, Window, Wish
from .states import InRing, Served
from .subscriber import Subscriber


class ClientSnapshots:
    """The snapshots of the clients of a destination, or of a view, and what of them is read and given."""

    def __init__(self, clients: Clients, retention: Retention) -> None:
        """Those of these clients; ``retention`` knows those of all views, too."""
        self.late: dict[str, LateRows] = {}
        """Rows for the clients that have passed their place, by its text."""
        self._clients = clients
        self._retention = retention

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def of(self, client_id: int) -> Sequence[Snapshot]:
        """Return the snapshots of a client. Raises NotSubscribedError."""
        return self._clients.find(client_id).snapshots.all

    def get(self, client_id: int, snapshot_id: int) -> Snapshot:
        """Return a snapshot of a client. Raises NotSubscribedError, and UnknownSnapshotError if it has none such."""
        found = self._clients.find(client_id).snapshots.get(snapshot_id)
        if found is None:
            raise UnknownSnapshotError(f"client {client_id} has no snapshot {snapshot_id}")
        return found

    def add(self, client_id: int, tables: list[TableProgress], rate: int) -> Snapshot:
        """Begin another snapshot of a client; those that are complete are forgotten. Raises NotSubscribedError."""
        subscriber = self._clients.find(client_id)
        found = Snapshot(self._clients.counters.take_id(), tables, rate)
        subscriber.snapshots.all = [*(it for it in subscriber.snapshots.all if not it.is_done), found]
        self._clients.unstored.add(client_id)
        return found

    def pause(self, client_id: int, snapshot_id: int, *, is_paused: bool) -> Snapshot:
        """Read and give no more rows of a snapshot, or go on. Raises as `get`."""
        found = self.get(client_id, snapshot_id)
        found.is_paused, found.error, found.chunk = is_paused, "", None
        self._end_windows(client_id)
        self._clients.unstored.add(client_id)
        return found

    def remove(self, client_id: int, snapshot_id: int) -> None:
        """Forget a snapshot; what was given of it can still be acked. Raises as `get`."""
        found = self.get(client_id, snapshot_id)
        self._clients.find(client_id).snapshots.all.remove(found)
        self._end_windows(client_id)
        self._clients.unstored.add(client_id)

    @property
    def active(self) -> list[int]:
        """The clients with a snapshot that is neither complete nor paused."""
        return [client_id for client_id, it in self._clients.subscribers.items() if it.snapshots.is_active]

    # --- what is read ------------------------------------------------------------------------------------------------

    def wish(self, client_id: int) -> Wish | None:
        """Return what is to be read now for the snapshots of a client; None if nothing is.

        Nothing is before its place in the destination's ring is known, and while much is read that it was not given.
        """
        subscriber = self._clients.subscribers.get(client_id)
        if subscriber is None or not isinstance(subscriber.state, InRing):
            return None
        windows = subscriber.state.reading.windows
        return subscriber.snapshots.next(windows) if windows.has_room else None

    def open_window(self, client_id: int, window: Window) -> None:
        """Note from here on which changes a client is given: what `wish` has said is read after this."""
        subscriber = self._clients.subscribers.get(client_id)
        if subscriber is not None and isinstance(subscriber.state, InRing):
            subscriber.state.reading.windows.open(window)

    def place_window(self, client_id: int, window: Window, place: Position) -> None:
        """Let a client come to the place of a whole table, where it waits for the rows."""
        state = self._clients.subscribers[client_id].state if client_id in self._clients.subscribers else None
        if isinstance(state, Served) and state.reading.windows.has(window):
            window.high = place

    def close_window(self, client_id: int, window: Window) -> None:
        """End a window whose rows could not be read, and those after it."""
        state = self._clients.subscribers[client_id].state if client_id in self._clients.subscribers else None
        if isinstance(state, Served) and state.reading.windows.has(window):
            state.reading.windows.clear()

    def fill_window(self, client_id: int, window: Window, chunk: Chunk) -> bool:
        """Give what was read to a client; return False if the window has ended meanwhile."""
        state = self._clients.subscribers[client_id].state if client_id in self._clients.subscribers else None
        if not (isinstance(state, InRing) and state.reading.windows.has(window)):
            return False
        window.fill(chunk)
        return True

    def end_windows(self, members: Collection[str] | None = None) -> None:
        """End all windows, because changes may be missing between: what was not given is read again.

        With ``members`` only those of clients that wait for rows of one of these members of a group.
        """
        for subscriber in self._retention.subscribers.values():
            if isinstance(subscriber.state, Served):
                windows = subscriber.state.reading.windows
                if members is None or not windows.members.isdisjoint(members):
                    windows.clear()

    def _end_windows(self, client_id: int) -> None:
        state = self._clients.find(client_id).state
        if isinstance(state, Served):
            state.reading.windows.clear()

    # --- what is given -----------------------------------------------------------------------------------------------

    def mark_rows(self, subscriber: Subscriber, reading: Reading, content: Content) -> Batch | None:
        """Give rows of a snapshot; None if there are none now, or changes have brought all that were read."""
        while (window := reading.ready_rows()) is not None:
            blocks, given = window.take()
            reading.windows.give(given)
            if not ((window.is_whole and content is not Content.ROWS) or any(map(len, blocks))):
                self._follow_rows(subscriber, reading, given)
                continue
            at = reading.got()
            assert at is not None
            batch_id = self._clients.counters.take_id()
            subscriber.given = True
            reading.windows.yields = True
            reading.marks[batch_id] = Mark(batch_id, reading.get, reading.get, -1, rows=(given,))
            return rows_batch(batch_id, window, blocks, at)
        return None

    def _follow_rows(self, subscriber: Subscriber, reading: Reading, given: Given) -> None:
        """Count rows that came by changes as arrived with the rows before them."""
        before = next((mark for mark in reversed(reading.marks.values()) if mark.rows), None)
        if before is None:
            self.settle_rows(subscriber, given)
        else:
            reading.marks[before.batch_id] = replace(before, rows=(*before.rows, given))

    def settle_rows(self, subscriber: Subscriber, given: Given) -> None:
        """Bring a snapshot forward. If something between is missing, it goes on after what is confirmed."""
        is_next = subscriber.snapshots.confirm(given)
        if is_next:
            self._clients.unstored.add(subscriber.client_id)
        if isinstance(subscriber.state, Served):
            windows = subscriber.state.reading.windows
            windows.confirm(given)
            if not is_next:
                windows.roll_back()

    def give_late(self, client_id: int, rows: LateRows) -> bool:
        """Give rows to a client if it has passed their place and wants their table; return whether it will get them."""
        subscriber = self._clients.find(client_id)
        cursor = subscriber.cursor
        place = cursor.position if cursor is not None else None
        if place is None or not place.same_history(rows.position):
            return False
        reached = places_in(place)  # of a group the place of the rows has their member alone
        if any(name not in reached or reached[name].precedes(it) for name, it in places_in(rows.position).items()):
            return False
        if not subscriber.wanted.has(rows.schema, rows.table):
            return False
        if str(rows.position) not in subscriber.late:
            subscriber.late.append(str(rows.position))
            self._clients.resting.rouse(client_id)
            self._clients.unstored.add(client_id)
        return True

    def mark_late(self, subscriber: Subscriber, reading: Reading, late: LateRows) -> Batch:
        """Give late rows."""
        batch_id = self._clients.counters.take_id()
        subscriber.given = True
        reading.marks[batch_id] = Mark(batch_id, reading.get, reading.get, -1, late=str(late.position))
        return late.batch(batch_id, str(reading.got()))
