"""The calls of a consumer, whatever sends them. Made from `aio_consumer`; do not edit it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from ..protocol.errors import QuotaExceededError, UnknownBatchError
from ..protocol.position import Position
from . import calls
from .acks import Done
from .batch import Batch, Column, InvalidDates, Part, Range
from .calls import Call, Limits, Snapshot, Start
from .endpoint import Endpoint, Interrupted

T = TypeVar("T")


class Consumer(ABC):
    """A client id of one destination: what it asks the server, and which batches it has to settle."""

    _endpoint: Endpoint
    _done: Done
    _invalid_dates: InvalidDates

    @property
    def servers(self) -> tuple[str, ...]:
        """URLs of the servers that are known, the one in use first."""
        return self._endpoint.servers

    @abstractmethod
    def _perform(self, call: Call[T]) -> T:
        """Make a call, again after errors of the connection, and return its result."""

    def subscribe(
        self,
        filter: str = "",  # noqa: A002  the API's name
        start: Start = "earliest",
        *,
        where: str = "",
        expire_after: int | None = None,
        protect: bool | None = None,
    ) -> dict[str, Any]:
        """Register the client, or replace its filter: regular expressions over ``schema.table``, comma separated.

        ``where`` has conditions on rows by table, ``shop.orders: status = 'paid' AND total > 10; …``: of these tables
        the client gets the rows that match. Without it, it has none from now on.
        ``start`` says where a new client starts (``earliest``, ``oldest``, ``latest``, a position, a time); a saved
        cursor wins.
        With ``snapshot``, or a `Snapshot`, it gets the rows that tables have now, among the changes since.
        ``expire_after``: seconds without a call after which the server removes the client and its cursor; 0 for never,
        None as the server is configured. ``protect``: whether the server's log on disk keeps what the client needs
        beyond its limits; None leaves that as it is.
        """
        return self._perform(calls.subscribe(filter, start, where, expire_after, protect))

    def unsubscribe(self) -> dict[str, Any]:
        """Remove the client; its cursor goes too. Returns what it is not given by that, as one of `moves`."""
        return self._perform(calls.unsubscribe())

    def moves(self) -> list[dict[str, Any]]:
        """Return where the client jumped over changes, oldest first, as ``GET …/moves`` describes it."""
        return self._perform(calls.moves(self._endpoint.client_id))

    def confirm_gaps(self) -> int:
        """Confirm that the client goes on without the changes that it does not get (``sluice.gap`` markers say which).

        Returns how many such jumps nobody had confirmed before. The server shows them until they are.
        """
        return self._perform(calls.confirm_gaps())

    def open_session(self) -> str:
        """Take the client id over: calls of every older session of it are refused from now on. Returns the token."""
        return self._perform(calls.open_session())

    def get_without_ack(
        self,
        timeout: float = 0.0,
        limits: Limits = Limits(),  # noqa: B008  immutable
        *,
        ack: Batch | None = None,
        durable: bool = False,
    ) -> Batch:
        """Take the next batch, to be acked or rolled back; an empty one after ``timeout`` seconds without a change.

        ``ack``: ack this batch first, by the same call, which costs half of two; for an empty one, or none, there is
        nothing to do. It raises what `ack` raises, and then takes no batch. ``durable``: take the batch when the cursor
        is on disk.
        """
        get = calls.get_without_ack(timeout, limits, self._invalid_dates)
        if not ack:
            return self._perform(get)
        self._settle(self._done.take(), self._done.generation)
        is_lost = False
        try:
            if self._endpoint.is_settled:
                both = calls.get_without_ack(timeout, limits, self._invalid_dates, ack, durable=durable)
                batch = self._perform(both)
                ack.acked = True
                return batch
        except QuotaExceededError:  # which says nothing of the ack, that came first
            ack.acked = True
            raise
        except Interrupted as failure:
            is_lost = failure.may_be_done
        try:
            self._perform(calls.ack_again(ack, durable=durable))
        finally:
            if is_lost:
                self._endpoint.lose_get()
        ack.acked = True
        return self._perform(get)

    def ack(self, what: Batch | int | str | Position, *, durable: bool = False) -> None:
        """Ack the oldest outstanding batch, or everything before a position; an empty batch needs none.

        ``durable``: return when the cursor is on disk.
        """
        if calls.is_nothing(what):
            return
        self._settle(self._done.take(), self._done.generation)
        self._perform(calls.ack(what, durable=durable))
        if isinstance(what, Batch):
            what.acked = True

    def rollback(self, batch_id: int | None = None) -> None:
        """Give all outstanding batches back, so that they come again; or one, as in Canal."""
        self._settle(self._done.take(), self._done.generation)
        self._perform(calls.rollback(batch_id))

    def get(
        self,
        timeout: float = 0.0,
        limits: Limits = Limits(),  # noqa: B008  immutable
    ) -> Batch:
        """Take the next batch and ack it at once: what is not processed then is lost."""
        batch = self.get_without_ack(timeout, limits)
        if batch:
            try:
                self.ack(batch)
            except BaseException:  # no caller has the batch: it comes again with the next get
                self._endpoint.has_marks = True
                raise
        return batch

    def position(
        self,
        after: str | Position,
        *,
        until: str | Position | None = None,
        timeout: float = 0.0,
        max_rows: int | None = None,
        max_bytes: int | None = None,
    ) -> Range:
        """Mark what follows a position, up to a transaction's end or before a DDL; wait ``timeout`` seconds for it.

        Asking again with the same arguments gives the same range, until it is acked by its end. ``until`` is where it
        ends at the latest.
        """
        return self._perform(calls.position(after, until, timeout, max_rows, max_bytes))

    def splits(self, from_: str | Position, to: str | Position, n: int) -> list[Part]:
        """Cut a range into at most ``n`` parts of about equal bytes, one after the other."""
        return self._perform(calls.splits(from_, to, n))

    def rows(self, from_: str | Position, to: str | Position) -> Batch:
        """Read what is between two positions; it may be repeated, and needs no ack."""
        return self._perform(calls.rows(from_, to, self._invalid_dates))

    def status(self) -> dict[str, Any]:
        """Cursors, outstanding batches and lag."""
        return self._perform(calls.status())

    def snapshot(
        self,
        tables: str | Sequence[str],
        where: Mapping[str, str] | None = None,
        *,
        max_rows_per_second: int = 0,
        member: str = "",
    ) -> int:
        """Begin to get the rows that tables have now, among the changes; return the id of the snapshot.

        ``tables`` is a filter, or names ``schema.table``. ``where`` has conditions on the rows of some by their names.
        ``member``: of a group, the one whose tables are wanted; else those of all come. The rows come in batches like
        changes; their type is READ.
        """
        return self._perform(calls.start_snapshot(Snapshot(tables, where or {}, max_rows_per_second, member)))

    def snapshot_status(self, snapshot_id: int) -> dict[str, Any]:
        """Return how far a snapshot is."""
        return self._perform(calls.snapshot_status(snapshot_id))

    def pause_snapshot(self, snapshot_id: int) -> None:
        """Get no more rows of a snapshot until `resume_snapshot`."""
        self._perform(calls.pause_snapshot(snapshot_id, is_paused=True))

    def resume_snapshot(self, snapshot_id: int) -> None:
        """Go on with a snapshot."""
        self._perform(calls.pause_snapshot(snapshot_id, is_paused=False))

    def cancel_snapshot(self, snapshot_id: int) -> None:
        """Forget a snapshot; batches of it that are outstanding can still be acked."""
        self._perform(calls.cancel_snapshot(snapshot_id))

    def destination(self) -> dict[str, Any]:
        """State, ring, clients and lag of the destination."""
        return self._perform(calls.destination())

    def latest(self) -> str:
        """Return the source's current end: the position after its last change."""
        return self._perform(calls.latest())

    def tables(self, filter: str = "") -> list[str]:  # noqa: A002  the API's name
        """Return the tables that the source has now and that the destination delivers, as ``schema.table``.

        ``filter`` chooses among them.
        """
        return self._perform(calls.tables(filter))

    def columns(self, table: str, filter: str = "") -> list[Column]:  # noqa: A002  the API's name
        """Return the columns of ``schema.table`` as the source has them now; `UnknownTableError` if it has none.

        `FilterError` when the destination does not deliver the table, or ``filter`` leaves it out.
        """
        return self._perform(calls.columns(table, filter))

    def _settle(self, batches: Sequence[Batch], generation: int) -> None:
        if not batches or generation != self._endpoint.generation:
            return
        try:
            self._perform(calls.ack_all(batches))
        except UnknownBatchError:
            if generation == self._endpoint.generation:  # the server has forgotten its marks: it was restarted
                self.rollback()
        else:
            for batch in batches:
                batch.acked = True
