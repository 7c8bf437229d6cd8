"""Snapshots: the tables themselves, given to a client between the changes."""

from collections.abc import Sequence

from ...store.snapshot import Selection, Snapshot
from .destinations import Destinations


class Snapshots(Destinations):
    """What a consumer calls that wants rows as they are, before or beside their changes."""

    async def start_snapshot(self, destination: str, client_id: int, selection: Selection) -> Snapshot:
        """Begin to give a client the rows of tables, durably, by get, ack and rollback, among the changes.

        Raises:
            NotSubscribedError: the client has not subscribed.
            ForbiddenError: the caller may not use it.
            FilterError: the filter of the selection is wrong, or the client is refused for its own.
            BadParameterError: there is no such table, or one cannot be read, or a condition cannot be used.
            SourceError: the source cannot be asked.
        """
        instance = self._admit_by_hand(destination, client_id)
        tables = await instance.select(selection, instance.cursors.clients.wanted(client_id))
        await instance.name_place(client_id)
        instance = self._admit_by_hand(
            destination, client_id
        )  # it may have been stopped, or have begun again, meanwhile
        snapshot = instance.cursors.snapshots.add(client_id, tables, selection.rate)
        await instance.flush()
        instance.tend_snapshots()
        detail = f"{snapshot.snapshot_id}, of {len(tables)} tables"
        await self.audit(destination, "start of a snapshot", client_id, detail=detail)
        return snapshot

    def snapshots(self, destination: str, client_id: int) -> Sequence[Snapshot]:
        """Return the snapshots of a client, also the last that are complete; raises `NotSubscribedError`."""
        return self._running(destination).cursors.snapshots.of(client_id)

    def snapshot(self, destination: str, client_id: int, snapshot_id: int) -> Snapshot:
        """Return a snapshot; raises `NotSubscribedError`, and `UnknownSnapshotError` if the client has none such."""
        return self._running(destination).cursors.snapshots.get(client_id, snapshot_id)

    async def pause_snapshot(self, destination: str, client_id: int, snapshot_id: int, *, is_paused: bool) -> Snapshot:
        """Read and give no more rows of a snapshot, or go on after what is acked, durably.

        Raises ForbiddenError, and as `snapshot`.
        """
        instance = self._admit_by_hand(destination, client_id)
        found = instance.cursors.snapshots.pause(client_id, snapshot_id, is_paused=is_paused)
        await instance.flush()
        instance.tend_snapshots()
        action = f"{'pause' if is_paused else 'resumption'} of a snapshot"
        await self.audit(destination, action, client_id, detail=str(snapshot_id))
        return found

    async def cancel_snapshot(self, destination: str, client_id: int, snapshot_id: int) -> None:
        """Forget a snapshot, durably. Rows that were given can still be acked. Raises as `pause_snapshot`."""
        instance = self._admit_by_hand(destination, client_id)
        instance.cursors.snapshots.remove(client_id, snapshot_id)
        await instance.flush()
        await self.audit(destination, "cancelling of a snapshot", client_id, detail=str(snapshot_id))
