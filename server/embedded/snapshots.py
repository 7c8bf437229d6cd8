"""Snapshots: the tables themselves, given to a client between the changes."""

from collections.abc import Mapping, Sequence

from ...protocol.errors import BadParameterError
from ...store.snapshot import Snapshot, TableProgress
from .destinations import Destinations


class Snapshots(Destinations):
    """What a consumer calls that wants rows as they are, before or beside their changes."""

    async def start_snapshot(
        self,
        destination: str,
        client_id: int,
        tables: str,
        *,
        where: Mapping[str, str] | None = None,
        max_rows_per_second: int = 0,
    ) -> Snapshot:
        """Begin to give a client the rows of tables, durably, by get, ack and rollback, among the changes.

        Args:
            destination: name of the destination.
            client_id: the client.
            tables: which of those that the client gets changes of, as a filter: Canal's regular expressions.
            where: conditions on the rows, by ``schema.table``; rows of other tables come all.
            max_rows_per_second: rows that are read at most; 0 for any number.

        Raises:
            NotSubscribedError: the client has not subscribed.
            FilterError: ``tables`` is wrong.
            BadParameterError: there is no such table, or one cannot be read, or a condition cannot be used.
            SourceError: the source cannot be asked.
        """
        instance = self._running(destination)
        if not tables.strip():
            raise BadParameterError("name the tables, such as shop\\.orders, or .*\\..* for all", "tables")
        conditions = where or {}
        found = await instance.readable_tables(client_id, tables, conditions)
        await instance.name_place(client_id)
        progress = [
            TableProgress(it.schema, it.name, conditions.get(f"{it.schema}.{it.name}", ""), it.expected) for it in found
        ]
        snapshot = instance.cursors.add_snapshot(client_id, progress, max_rows_per_second)
        await instance.flush()
        instance.tend_snapshots()
        return snapshot

    def snapshots(self, destination: str, client_id: int) -> Sequence[Snapshot]:
        """Return the snapshots of a client, also the last that are complete; raises `NotSubscribedError`."""
        return self._running(destination).cursors.snapshots(client_id)

    def snapshot(self, destination: str, client_id: int, snapshot_id: int) -> Snapshot:
        """Return a snapshot; raises `NotSubscribedError`, and `UnknownSnapshotError` if the client has none such."""
        return self._running(destination).cursors.snapshot(client_id, snapshot_id)

    async def pause_snapshot(self, destination: str, client_id: int, snapshot_id: int, *, is_paused: bool) -> Snapshot:
        """Read and give no more rows of a snapshot, or go on after what is acked, durably; raises as `snapshot`."""
        instance = self._running(destination)
        found = instance.cursors.pause_snapshot(client_id, snapshot_id, is_paused=is_paused)
        await instance.flush()
        instance.tend_snapshots()
        return found

    async def cancel_snapshot(self, destination: str, client_id: int, snapshot_id: int) -> None:
        """Forget a snapshot, durably. Rows that were given can still be acked; raises as `snapshot`."""
        instance = self._running(destination)
        instance.cursors.remove_snapshot(client_id, snapshot_id)
        await instance.flush()
