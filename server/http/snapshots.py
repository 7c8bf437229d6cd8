"""The calls of a consumer that wants tables as they are: begin a snapshot, look at it, pause it, cancel it."""

from typing import Annotated

from fastapi import APIRouter, Path

from .auth import Destination
from .context import Ctx
from .data import ClientId, SnapshotWish
from .rights import checked
from .views import SnapshotView

router = APIRouter(
    prefix="/v1/destinations/{destination}/clients/{client_id}/snapshots", tags=["snapshots"], dependencies=[checked]
)

SnapshotId = Annotated[int, Path(description="Id of the snapshot, as its begin has answered.", examples=[3000000001])]


@router.post("", operation_id="startSnapshot", summary="Begin a snapshot", status_code=201)
async def start(context: Ctx, destination: Destination, client_id: ClientId, body: SnapshotWish) -> SnapshotView:
    """Give the client the rows that tables have now, among their changes, by get, ack and rollback.

    They come as INSERTs with the header property `sluice.snapshot`, in batches of their own, whose `from` and `to` are
    equal. No row is older than one that came before. A table without a key comes as a whole, after a TRUNCATE of it.
    """
    return SnapshotView.of(await context.embedded.start_snapshot(destination, client_id, body.selection()))


@router.get("", operation_id="listSnapshots", summary="Snapshots of the client")
async def list_snapshots(context: Ctx, destination: Destination, client_id: ClientId) -> list[SnapshotView]:
    """List those that are not complete, and those that were when the last one was begun or since."""
    return [SnapshotView.of(it) for it in context.embedded.snapshots(destination, client_id)]


@router.get("/{snapshot_id}", operation_id="getSnapshot", summary="Progress of a snapshot")
async def status(context: Ctx, destination: Destination, client_id: ClientId, snapshot_id: SnapshotId) -> SnapshotView:
    """Tell how many rows of which table are acked, how many are expected, and how long the rest will take."""
    return SnapshotView.of(context.embedded.snapshot(destination, client_id, snapshot_id))


@router.post("/{snapshot_id}/pause", operation_id="pauseSnapshot", summary="Pause a snapshot")
async def pause(context: Ctx, destination: Destination, client_id: ClientId, snapshot_id: SnapshotId) -> SnapshotView:
    """Read and give no more of its rows; changes flow on. It stays paused over a restart."""
    found = await context.embedded.pause_snapshot(destination, client_id, snapshot_id, is_paused=True)
    return SnapshotView.of(found)


@router.post("/{snapshot_id}/resume", operation_id="resumeSnapshot", summary="Go on with a snapshot")
async def resume(context: Ctx, destination: Destination, client_id: ClientId, snapshot_id: SnapshotId) -> SnapshotView:
    """Go on after the last row that is acked."""
    found = await context.embedded.pause_snapshot(destination, client_id, snapshot_id, is_paused=False)
    return SnapshotView.of(found)


@router.delete("/{snapshot_id}", operation_id="cancelSnapshot", summary="Cancel a snapshot", status_code=204)
async def cancel(context: Ctx, destination: Destination, client_id: ClientId, snapshot_id: SnapshotId) -> None:
    """Forget it. Batches of it that are outstanding can still be acked."""
    await context.embedded.cancel_snapshot(destination, client_id, snapshot_id)
