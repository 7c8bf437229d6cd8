"""Canal's calls - subscribe, get, ack, rollback - on the destinations of this process, without a network."""

import asyncio
import functools
import logging
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from sluice.instance.columns import Column
from sluice.instance.config import BatchMode, InstanceConfig
from sluice.instance.instance import Instance
from sluice.instance.meta.base import MetaStore
from sluice.instance.meta.memory import MemoryMetaStore
from sluice.instance.source import ParserFactory
from sluice.instance.status import ParserStatus
from sluice.instance.zones import local_time_zone
from sluice.protocol.errors import (
    BadParameterError,
    BadPositionError,
    GoneError,
    SourceChangedError,
    SourceError,
    UnknownDestinationError,
)
from sluice.protocol.position import Position
from sluice.store.batch import UNMARKED, Batch, Part, Range, RangeLimits, join_parts
from sluice.store.status import ClientStatus

if TYPE_CHECKING:
    from sluice.server.ha.cluster import Cluster

T = TypeVar("T")

logger = logging.getLogger(__name__)

DEFAULT_BATCH_SIZE = 1000
LONGEST_QUESTION = 5.0
"""Seconds that the source may take to say its end."""
FIRST_DATA = 5.0
"""Seconds that a get waits at least for a reader of its client and for what that finds first; see `Turns`."""
LONGEST_REREAD = 30.0
"""Seconds that a range may wait for the stream to come to it again."""
EMPTY = Batch(batch_id=-1, slices=[], from_="", to="", entries=0, rows=0, bytes=0, timestamp=0)
"""What a get returns when nothing is there."""


@dataclass(frozen=True, slots=True)
class RangeStatus:
    """A range, and where the stream is."""

    range: Range
    latest: str
    """The source's end when the call came; empty when the source did not say."""
    acked: str


@dataclass(frozen=True, slots=True)
class DestinationStatus:
    """Where a destination stands."""

    destination: str
    state: str
    """``starting``, ``running``, ``error`` (it tries again), ``stopped``, or ``standby`` for another server."""
    error: str
    clients: list[ClientStatus]
    first: str
    """The oldest position that is stored; empty when the stream has not begun."""
    last: str
    """The position up to which the source was read."""
    entries: int
    bytes: int
    full: bool
    """The parser waits for room."""
    fill: float
    """The part of the ring that is in use, of its entries or its bytes, whichever is more; pinned bytes count."""
    capacity: int
    """Bytes that the ring holds at most."""
    pinned: int
    """Bytes that only slow readers still hold."""
    blocked: float
    """Seconds for which the parser has waited for room since the start."""
    parser: ParserStatus
    time_zone: str
    """The zone that TIMESTAMP values are written in; empty where that of the process has no name."""
    active: str
    """Among several servers the address of the one that has it; empty when none has, or there are no others."""


class EmbeddedServer:
    """The destinations of this process. All methods belong to one event loop.

    Every method that takes a destination raises `UnknownDestinationError`, or `DestinationStoppedError` when it is
    known but not started.
    """

    def __init__(self, load: Callable[[str], InstanceConfig], make_parser: ParserFactory) -> None:
        """``load`` reads the configuration of a destination; it raises `UnknownDestinationError` and `ConfigError`."""
        self.instances: dict[str, Instance] = {}
        self.cluster: Cluster | None = None
        """The servers with which the destinations are shared; to be set before any is started."""
        self._load = load
        self._make_parser = make_parser
        self._locks: dict[str, asyncio.Lock] = {}

    # --- destinations ------------------------------------------------------------------------------------------------

    async def start(self, destination: str) -> None:
        """Start a destination with its configuration as it is now; a running one goes on as it is.

        Among several servers it stands by until it is this server's turn.

        Raises:
            SluiceError: its configuration, or what is stored of it, cannot be used.
        """
        async with self._locks.setdefault(destination, asyncio.Lock()):
            known = self.instances.get(destination)
            if known is not None and known.state != "stopped":
                if self.cluster is not None:
                    self.cluster.start(destination)  # it may have been left to Canal's own server
                return
            config = await asyncio.to_thread(self._load, destination)
            if self.cluster is None:
                instance = self.instances[destination] = Instance(config, self._make_parser)
                await instance.start()
            else:
                self._stand_by(destination, config)
                self.cluster.start(destination)

    async def stop(self, destination: str) -> None:
        """Stop a destination and store its cursors; a stopped one stays so."""
        async with self._locks.setdefault(destination, asyncio.Lock()):
            instance = self._known(destination)
            if self.cluster is not None and instance.check_active is not None:  # also while it is given up
                await self.cluster.stop(destination)
                instance = self._known(destination)
                instance.check_active = None
            await instance.stop()

    async def activate(self, destination: str, meta: MetaStore) -> None:
        """Start a destination that this server has taken over. Raises SluiceError when it cannot start."""
        config = await asyncio.to_thread(self._load, destination)
        instance = self._stand_by(destination, config, meta)
        try:
            await instance.start()
        except Exception:
            instance.stand_by()  # the election goes on, and knows what is wrong
            raise

    async def deactivate(self, destination: str) -> None:
        """Stop a destination that this server gives up. Raises SluiceError when its cursors cannot be stored."""
        instance = self._known(destination)
        try:
            await instance.stop()
        finally:
            if self.cluster is None or instance.check_active is not None:  # else its operator has stopped it meanwhile
                instance.stand_by()

    async def close(self) -> None:
        """Stop all destinations."""
        results = await asyncio.gather(*map(self.stop, list(self.instances)), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def destination_status(self, destination: str) -> DestinationStatus:
        """Return where a destination stands, stopped or not."""
        instance = self._known(destination)
        ring, cursors = instance.ring, instance.cursors
        cluster = self.cluster if instance.state != "stopped" else None
        return DestinationStatus(
            destination=destination,
            state=instance.state,
            error=instance.error or (cluster.problem_of(destination) if cluster is not None else ""),
            clients=[cursors.status(client_id) for client_id in cursors.client_ids],
            first=str(cursors.position_before(ring.first) or ""),
            last=str(cursors.position_before(ring.next) or ""),
            entries=len(ring),
            bytes=ring.bytes,
            full=ring.waiting,
            fill=ring.fill,
            capacity=ring.memory,
            pinned=ring.pool.pinned,
            blocked=ring.blocked_seconds,
            parser=instance.parser_status,
            time_zone=instance.config.time_zone or local_time_zone(),
            active=cluster.active(destination) if cluster is not None else "",
        )

    async def latest(self, destination: str) -> Position:
        """Return the source's current end: the place after its last change. Raises as `Instance.source_end`."""
        return await self._running(destination).source_end()

    async def columns(self, destination: str, schema: str, table: str, wanted: str = "") -> list[Column]:
        """Return the columns of a table as the source has them now, without those that are filtered out.

        ``wanted`` is a filter that has to pass the table, too. Raises:
            FilterError: the destination does not deliver the table, or that filter leaves it out.
            UnknownTableError: the source has no such table.
            SourceError: it cannot be asked.
        """
        return await self._running(destination).columns(schema, table, wanted)

    async def tables(self, destination: str, wanted: str = "") -> list[str]:
        """Return the tables that the source has now and that pass, as ``schema.table``; ``wanted`` is a filter more.

        Raises:
            FilterError: that filter is wrong.
            SourceError: the source cannot be asked.
        """
        return await self._running(destination).tables(wanted)

    # --- subscriptions -----------------------------------------------------------------------------------------------

    async def subscribe(
        self,
        destination: str,
        client_id: int,
        *,
        filter: str = "",  # noqa: A002  Canal's name
        start: str | dict[str, int] = "earliest",
        expire_after: int | None = None,
    ) -> dict[str, object]:
        """Register a client, durably, or change the filter of a registered one, whose cursor wins over ``start``.

        While the destination starts, it answers when the source has said where the stream begins (see
        `Instance.name_place`): the client then gets every change from here on, whatever happens.

        Args:
            destination: name of the destination.
            client_id: a 16-bit integer.
            filter: tables, as in `TableFilter`; it narrows the destination's, or takes its place where filters are
                shared. Empty wants all.
            start: ``earliest`` in the ring, ``latest``, the text of a position, or ``{"timestamp": ms}``.
            expire_after: seconds without a call after which the client is removed; 0 for never, None as the destination
                is configured.

        Raises:
            BadParameterError: the client id is out of range.
            FilterError: the filter is none, or cannot match anything.
            BadPositionError: ``start`` is none.
            GoneError: it lies before what is stored.
            SourceChangedError: it belongs to another source or history.
        """
        instance = self._running(destination)
        if not -(1 << 15) <= client_id < 1 << 15:
            raise BadParameterError(f"client id {client_id} is not a 16-bit integer")
        is_new = client_id not in instance.cursors.client_ids
        instance.cursors.subscribe(
            client_id,
            filter_text=filter,
            start=start["timestamp"] if isinstance(start, dict) else start,
            expire_after=expire_after,
            now=time.monotonic(),
            unix_time=time.time(),  # noqa: TID251  beside that of events
        )
        instance.share_filter(filter)
        if is_new:
            instance.seek_start()
        instance.wake()
        await instance.name_place(client_id)
        await instance.flush()
        status = instance.cursors.status(client_id)
        return {
            "destination": destination,
            "clientId": client_id,
            "filter": status.filter,
            "state": status.state,
            "position": status.position,
        }

    async def unsubscribe(self, destination: str, client_id: int) -> None:
        """Remove a client and its cursor, durably; `NotSubscribedError` when it has not subscribed."""
        instance = self._running(destination)
        instance.cursors.unsubscribe(client_id)
        instance.seek_start()
        instance.wake()
        await instance.flush()

    def open_session(self, destination: str, client_id: int) -> str:
        """Open a session, which fences all earlier ones of the client; return its token."""
        instance = self._running(destination)
        token = instance.cursors.open_session(client_id, time.monotonic())
        instance.wake()
        return token

    def status(self, destination: str, client_id: int) -> ClientStatus:
        """Return where a client stands; `NotSubscribedError` when it has not subscribed."""
        return self._running(destination).cursors.status(client_id)

    def check(self, destination: str, client_id: int, session: str | None = None) -> None:
        """Raise what a get would raise."""
        self._running(destination).cursors.check(client_id, session)

    def outstanding(self, destination: str, client_id: int) -> int:
        """Return how many batches a client was given and has not acked; raises as `status`."""
        return self._running(destination).cursors.outstanding(client_id)

    # --- get, ack, rollback ------------------------------------------------------------------------------------------

    async def get_without_ack(
        self,
        destination: str,
        client_id: int,
        *,
        batch_size: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  part of the call's meaning
        max_entries: int | None = None,
        max_bytes: int | None = None,
        min_bytes: int | None = None,
        linger: float | None = None,
        wait_full: bool = False,
        session: str | None = None,
    ) -> Batch:
        """Return the next batch, to be acked or rolled back; `EMPTY` when nothing is there in time.

        A call that is cancelled while it waits takes no batch.

        Args:
            destination: name of the destination.
            client_id: the client.
            batch_size: entries (ITEMSIZE) or units of memory (MEMSIZE), as configured; 1000 if no limit is given.
            timeout: seconds to wait for the first entry; None or 0 answers at once, unless the client waits for a
                catch-up reader (`FIRST_DATA`); `math.inf` waits for ever.
            max_entries: entries at most.
            max_bytes: bytes at most; a larger entry comes alone.
            min_bytes: wait until so many bytes are there, ...
            linger: ... at most so many seconds after the first entry was, and not beyond the timeout.
            wait_full: Canal's rule: wait until ``batch_size`` is reached, or for the timeout.
            session: token of the session, for clients that have opened one.

        Raises:
            NotSubscribedError: the client has not subscribed.
            StaleSessionError: a newer session took over.
            GoneError: its cursor lies before what is stored.
            PurgedError: the source no longer has what comes next.
            SourceChangedError: its cursor belongs to another source or history.
        """
        # Long: half of it says what the arguments mean.
        instance = self._running(destination)
        config, cursors = instance.config, instance.cursors
        if batch_size is None and max_entries is None and max_bytes is None:
            batch_size = DEFAULT_BATCH_SIZE
        units = batch_size or 0
        memory_limit = 0
        entries = max_entries or 0
        if config.memory_batch_mode is BatchMode.MEMSIZE:
            memory_limit = units * config.memory_buffer_memunit
        elif units:
            entries = min(units, entries or units)
        full_entries = entries if wait_full and not memory_limit else 0
        full_bytes = max(min_bytes or 0, memory_limit if wait_full else 0)
        begun = time.monotonic()
        deadline = begun + (timeout or 0)
        patience = deadline
        while True:
            instance.check_running()
            cursors.check(client_id, session)
            now = time.monotonic()
            ready = True
            if full_entries or full_bytes:
                found, size = cursors.available(client_id)
                ready = instance.ring.waiting or (found >= full_entries and size >= full_bytes)
                if found and linger is not None and patience == deadline:
                    patience = min(deadline, now + linger)
            if ready or now >= patience:
                batch = cursors.get(
                    client_id,
                    now=time.monotonic(),
                    max_entries=entries,
                    max_bytes=max_bytes or 0,
                    memory_limit=memory_limit,
                    ddl_isolation=config.get_ddl_isolation,
                    session=session,
                )
                if batch is not None:
                    return batch
                instance.check_stream(client_id)
                patience = deadline  # what was found was passed over: it is not wanted
                until = max(deadline, begun + FIRST_DATA) if cursors.awaits_reader(client_id) else deadline
                if now >= until:
                    return EMPTY
                await instance.wait(until - now)
            else:
                await instance.wait(patience - now)

    async def ack(
        self,
        destination: str,
        client_id: int,
        *,
        batch_id: int | None = None,
        position: str | None = None,
        durable: bool = False,
        session: str | None = None,
    ) -> None:
        """Confirm the oldest outstanding batch, or everything before a position.

        With ``durable``, and always where cursors are kept in ``zookeeper``, the call returns when the cursor is
        stored; otherwise that happens within the flush period.

        Raises:
            BadParameterError: not exactly one of batch id and position is given.
            NotSubscribedError: the client has not subscribed.
            StaleSessionError: a newer session took over.
            UnknownBatchError: no such batch is outstanding.
            AckOutOfOrderError: an older one is.
            BadPositionError: the position is none, or lies beyond what the client was given.
            SourceChangedError: the position belongs to another source or history.
            PurgedError: the source no longer has what the client waits for.
        """
        instance = self._running(destination)
        if batch_id is not None and position is None:
            instance.cursors.ack(client_id, batch_id, now=time.monotonic(), session=session)
        elif position is not None and batch_id is None:
            await self._ack_to(instance, client_id, Position.parse(position), session)
        else:
            raise BadParameterError("an ack names either a batch or a position")
        await instance.confirm(durable=durable)

    async def _ack_to(self, instance: Instance, client_id: int, position: Position, session: str | None) -> None:
        """Confirm up to a position; after a restart, or behind the ring, wait until the stream has come to it again."""
        deadline = time.monotonic() + LONGEST_REREAD
        exists = False
        while not instance.cursors.ack_to(client_id, position, now=time.monotonic(), session=session, exists=exists):
            instance.check_stream(client_id)
            # While the stream has not come to the client's cursor, it may also be that of another source.
            if not exists and instance.cursors.awaited(client_id) is None:
                end = await instance.source_end()
                instance.check_running()
                if position > end:
                    raise BadPositionError(f"{position} lies beyond the end of the source's binlog, {end}")
                exists = True
                continue
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise BadPositionError(
                    f"{position} cannot be acked yet: the stream has not come to it again within {LONGEST_REREAD:g} s."
                    " Try again, or roll back and process again what follows the client's cursor"
                )
            await instance.wait(min(remaining, 1.0))
            instance.check_running()

    async def rollback(
        self, destination: str, client_id: int, *, batch_id: int | None = None, session: str | None = None
    ) -> None:
        """Forget the outstanding batches, so that their entries are given again; or, as in Canal, only the oldest one.

        Raises:
            NotSubscribedError: the client has not subscribed.
            StaleSessionError: a newer session took over.
            UnknownBatchError: no such batch is outstanding.
            AckOutOfOrderError: an older one is.
        """
        instance = self._running(destination)
        instance.cursors.rollback(client_id, batch_id, now=time.monotonic(), session=session)
        instance.wake()

    # --- ranges ------------------------------------------------------------------------------------------------------

    async def position(
        self,
        destination: str,
        client_id: int,
        *,
        after: str,
        until: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  part of the call's meaning
        max_rows: int | None = None,
        max_bytes: int | None = None,
        session: str | None = None,
    ) -> RangeStatus:
        """Mark the range that follows a position, to be read by `rows` and acked by its end.

        It ends behind a transaction, or before a DDL, which comes alone; when no transaction ends within the limits, it
        ends inside of one. The same position and limits give the same range until it is acked.

        Args:
            destination: name of the destination.
            client_id: the client.
            after: where the range begins: what lies before it is processed.
            until: where it ends at the latest.
            timeout: seconds to wait for something to read; then the range is empty.
            max_rows: rows at most, unless the first entry has more.
            max_bytes: bytes at most, unless the first entry has more.
            session: token of the session, for clients that have opened one.

        Raises:
            BadPositionError: a position is none.
            NotSubscribedError: the client has not subscribed.
            StaleSessionError: a newer session took over.
            GoneError: the position lies before what is stored.
            PurgedError: the source no longer has what follows it.
            SourceChangedError: it belongs to another source or history.
        """
        instance = self._running(destination)
        begin = Position.parse(after)
        limits = RangeLimits(Position.parse(until) if until else None, max_rows or 0, max_bytes or 0)
        instance.cursors.check(client_id, session)
        latest, changed = "", None
        try:
            latest = await self._source_end(instance)
        except SourceChangedError as error:  # what was read of it is still given
            changed = error
        deadline = time.monotonic() + (timeout or 0)
        while True:
            instance.check_running()
            remaining = deadline - time.monotonic()
            try:
                found = instance.cursors.mark_range(
                    client_id,
                    begin,
                    limits,
                    now=time.monotonic(),
                    final=remaining <= 0,
                    transactions=not instance.config.filter_transaction_entry,
                    session=session,
                )
            except GoneError as error:
                found = await self._old_range(instance, client_id, begin, limits, error)
            if found is None or not (found.entries or found.reached):
                instance.check_stream(client_id)
                if changed is not None:
                    raise changed
            if found is not None:
                if not limits.until and latest:
                    found = replace(found, reached=Position.parse(found.to) >= Position.parse(latest))
                return RangeStatus(found, latest, instance.cursors.status(client_id).acked)
            await instance.wait(remaining)

    async def rows(self, destination: str, client_id: int, from_: str, to: str) -> AsyncGenerator[Batch]:
        """Yield what lies between two positions, as often as asked; no cursor moves.

        What the ring has comes as one batch. The rest is read from the source again, by a catch-up reader, and comes in
        pieces, as does what the ring has only in part.

        Raises:
            BadPositionError: a position is none, or the range ends before it begins, or lies beyond the stream's end.
            NotSubscribedError: the client has not subscribed.
            PurgedError: the source no longer has the range.
            SourceChangedError: it belongs to another source or history.
            SourceError: the source cannot be read, or too many read it already.
        """
        instance = self._running(destination)
        begin, end = Position.parse(from_), Position.parse(to)
        transactions = not instance.config.filter_transaction_entry
        read = functools.partial(instance.cursors.read_range, client_id, begin, end, transactions=transactions)
        batch = await self._when_read(instance, client_id, end, read)
        if batch is not None:
            yield batch
            return
        async with instance.catch_up.window(begin, end, instance.cursors.wanted(client_id)) as window:
            async for chunk in window.chunks(transactions=transactions):
                instance.cursors.hear(client_id, time.monotonic())
                piece_end = to if window.place >= end else str(window.place)
                yield Batch(
                    batch_id=UNMARKED,
                    slices=chunk.slices,
                    from_=from_,
                    to=piece_end,
                    entries=chunk.entries,
                    rows=chunk.rows,
                    bytes=chunk.bytes,
                    timestamp=chunk.execute_ms,
                    positions=chunk.positions,
                )
                from_ = piece_end

    async def splits(self, destination: str, client_id: int, from_: str, to: str, parts: int) -> list[Part]:
        """Cut a range into at most so many parts of about equal bytes, one behind the other; raises as `rows`."""
        instance = self._running(destination)
        begin, end = Position.parse(from_), Position.parse(to)
        transactions = not instance.config.filter_transaction_entry
        split = functools.partial(instance.cursors.split_range, client_id, begin, end, parts, transactions=transactions)
        found = await self._when_read(instance, client_id, end, split)
        if found is not None:
            return found
        pieces = []
        async with instance.catch_up.window(begin, end, instance.cursors.wanted(client_id)) as window:
            async for chunk in window.chunks(transactions=transactions):
                instance.cursors.hear(client_id, time.monotonic())
                pieces.append(Part("", str(window.place), chunk.entries, chunk.rows, chunk.bytes))
        return join_parts(pieces, from_, to, parts)

    async def _old_range(
        self, instance: Instance, client_id: int, after: Position, limits: RangeLimits, error: GoneError
    ) -> Range:
        """Return what follows a position that is no longer in the ring, without a mark; `error` says that it is not."""
        status = instance.cursors.status(client_id)
        if not status.acked:
            raise error
        end = Position.parse(status.acked)
        if limits.until is not None:
            end = min(end, limits.until)
        async with instance.catch_up.window(after, end, instance.cursors.wanted(client_id)) as window:
            return await window.range(limits)

    async def _source_end(self, instance: Instance) -> str:
        try:
            async with asyncio.timeout(LONGEST_QUESTION):
                return str(await instance.source_end())
        except (SourceError, TimeoutError) as error:
            logger.warning("the source does not say its end: %s", error)
            return ""

    async def _when_read(
        self, instance: Instance, client_id: int, end: Position, attempt: Callable[[], T | None]
    ) -> T | None:
        """Make an attempt when the stream has come to the end of a range; None when it has left the range behind.

        A range that a destination gave in an earlier life may lie ahead of it: soon it comes there again.
        """
        deadline = time.monotonic() + LONGEST_REREAD
        while True:
            instance.cursors.hear(client_id, time.monotonic())
            try:
                result = attempt()
            except GoneError:
                if not instance.catch_up.turns.places:
                    raise
                return None
            if result is not None:
                return result
            remaining = deadline - time.monotonic()
            if instance.ring.waiting or remaining <= 0:
                source_end = await instance.source_end()
                instance.check_running()
                if end > source_end:
                    raise BadPositionError(f"{end} lies beyond the end of the source's binlog")
                return None
            await instance.wait(min(remaining, 1.0))
            instance.check_running()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _stand_by(self, destination: str, config: InstanceConfig, meta: MetaStore | None = None) -> Instance:
        """Make a destination that is served when, and as long as, it is this server's."""
        check = functools.partial(self.cluster.check, destination) if self.cluster is not None else None
        instance = Instance(config, self._make_parser, meta or MemoryMetaStore(), check)
        self.instances[destination] = instance
        instance.stand_by()
        return instance

    def _known(self, destination: str) -> Instance:
        instance = self.instances.get(destination)
        if instance is None:
            raise UnknownDestinationError(f"no destination {destination!r} is configured here")
        return instance

    def _running(self, destination: str) -> Instance:
        instance = self._known(destination)
        instance.check_running()
        return instance
