"""Ranges of the stream by position, the same for ever, for consumers that keep their own place."""

import asyncio
import functools
import logging
import math
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import TypeVar

from ...instance.serving.catchup import SharedRange
from ...instance.serving.serving import Serving
from ...protocol.cut import parse_place
from ...protocol.errors import BadPositionError, BusyError, GoneError, SourceChangedError, SourceError
from ...protocol.position import Position
from ...store.batch import UNMARKED, Batch, Part, Range, RangeLimits, join_parts
from .calls import LONGEST_REREAD, unix_time
from .destinations import Destinations

T = TypeVar("T")

logger = logging.getLogger(__name__)

LONGEST_QUESTION = 5.0
"""Seconds that the source may take to say its end."""


@dataclass(frozen=True, slots=True)
class RangeStatus:
    """A range, and where the stream is."""

    range: Range
    latest: str
    """End position of the source at the time of the call; empty if it could not be read."""
    acked: str


class Ranges(Destinations):
    """What a consumer calls that keeps its own place."""

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

        It ends after a transaction, or before a DDL, which comes alone. When no transaction ends within the limits, it
        ends within one. The same position and limits give the same range until it is acked.

        Args:
            destination: name of the destination.
            client_id: the client.
            after: where the range begins: everything before it is processed.
            until: where it ends at the latest.
            timeout: seconds to wait for something to read; then the range is empty.
            max_rows: rows at most, unless the first entry has more.
            max_bytes: bytes at most, unless the first entry has more.
            session: token of the session, for clients that have opened one.

        Raises:
            BadPositionError: a text is not a position.
            NotSubscribedError: the client has not subscribed.
            OwnedError: an output owns it, and somebody else calls.
            GapError: the client is to be told of a gap, which a range cannot.
            StaleSessionError: a newer session took over.
            QuotaExceededError: the client was given as much as its quota of the day allows.
            GoneError: the position is older than what is stored.
            PurgedError: the source no longer has what follows it.
            ReshapedError: nor has the log, and the source would give something else than was delivered.
            SourceChangedError: it belongs to another source or history.
        """
        # Long: half of it says what the arguments mean.
        instance = self._admit(destination, client_id, "position", session)
        begin = parse_place(after)
        limits = RangeLimits(parse_place(until) if until else None, max_rows or 0, max_bytes or 0)
        instance.cursors.clients.check(client_id, session)
        latest, changed = "", None
        try:
            latest = await self._source_end(instance)
        except SourceChangedError as error:  # what was read of it is still given
            changed = error
        deadline = time.monotonic() + (timeout or 0)
        while True:
            instance.check_running()
            allowance = instance.cursors.clients.allowance(client_id)
            allowance.require_quota(client_id, unix_time())
            now = time.monotonic()
            remaining = deadline - now
            found = None
            if allowance.allowed(now) != 0:
                found = await self._mark(instance, client_id, begin, limits, session, final=remaining <= 0)
            elif remaining <= 0:
                found = Range(-1, str(begin), str(begin), 0, 0, 0, partial=False, reached=False)
            if found is None or not (found.entries or found.reached):
                instance.check_stream(client_id)
                if changed is not None:
                    raise changed
            if found is not None:
                if not limits.until and latest:
                    end, to = parse_place(latest), parse_place(found.to)  # that of a former source is given, too
                    found = replace(found, reached=end.same_history(to) and end.precedes(to))
                return RangeStatus(found, latest, instance.cursors.status(client_id).acked)
            await instance.wait(min(remaining, allowance.wait(now) or math.inf))

    async def _mark(
        self,
        instance: Serving,
        client_id: int,
        begin: Position,
        limits: RangeLimits,
        session: str | None,
        *,
        final: bool,
    ) -> Range | None:
        """Mark a range, which counts as given from then on; the same range counts once."""
        cursors = instance.cursors
        next_id = cursors.counters.next_id
        try:
            found = cursors.ranges.mark(
                client_id,
                begin,
                limits,
                now=time.monotonic(),
                final=final,
                transactions=not instance.config.filter_transaction_entry,
                session=session,
            )
        except GoneError as error:
            return await self._old_range(instance, client_id, begin, limits, error)
        if found is not None and found.batch_id >= next_id:
            cursors.clients.charge(client_id, found.bytes, unix_time())
        return found

    async def rows(self, destination: str, client_id: int, from_: str, to: str) -> AsyncGenerator[Batch]:
        """Yield what is between two positions, as often as asked; no cursor moves.

        What the ring has comes as one batch. The rest is read from the source again, by a catch-up reader, and comes in
        pieces, as does what the ring has only in part. A marked range counts as given already; any other counts when it
        is read, and waits for the rate of the client.

        Raises:
            QuotaExceededError: the client was given as much as its quota of the day allows.
            BusyError: its rate lets nothing through for now.
            BadPositionError: a text is not a position, or the range ends before it begins, or beyond the stream's end.
            NotSubscribedError: the client has not subscribed.
            OwnedError: an output owns it, and somebody else calls.
            PurgedError: the source no longer has the range.
            ReshapedError: nor has the log, and the source would give something else than was delivered.
            SourceChangedError: it belongs to another source or history.
            SourceError: the source cannot be read, or too many read it already.
        """
        instance = self._admit(destination, client_id, "rows")
        begin, end = parse_place(from_), parse_place(to)
        transactions = not instance.config.filter_transaction_entry
        clients = instance.cursors.clients
        is_charged = instance.cursors.ranges.is_marked(client_id, begin, end)
        if not is_charged:
            await self._wait_for_rate(instance, client_id)
        read = functools.partial(instance.cursors.ranges.read, client_id, begin, end, transactions=transactions)
        batch = await self._when_read(instance, client_id, end, read)
        if batch is not None:
            if not is_charged:
                clients.charge(client_id, batch.bytes, unix_time())
            yield batch
            return
        async with _open_range(instance, client_id, begin, end) as opened:
            async for chunk in opened.chunks(transactions=transactions):
                clients.hear(client_id, time.monotonic())
                if not is_charged:
                    clients.charge(client_id, chunk.bytes, unix_time())
                piece_end = to if end.precedes(opened.place) else str(opened.place)
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

    async def _wait_for_rate(self, instance: Serving, client_id: int) -> None:
        """Wait until a client may be given something. Raises QuotaExceededError and BusyError."""
        deadline = time.monotonic() + LONGEST_REREAD
        while True:
            allowance = instance.cursors.clients.allowance(client_id)
            allowance.require_quota(client_id, unix_time())
            now = time.monotonic()
            if allowance.allowed(now) != 0:
                return
            wait = allowance.wait(now)
            if now + wait > deadline:
                raise BusyError(
                    f"client {client_id} is limited to {allowance.max_rate} bytes/s, and was given so much that nothing"
                    f" follows for {wait:.0f} s"
                )
            await asyncio.sleep(wait)
            instance.check_running()

    async def splits(self, destination: str, client_id: int, from_: str, to: str, parts: int) -> list[Part]:
        """Cut a range into at most ``parts`` parts of about equal bytes, one after the other; raises as `rows`."""
        instance = self._admit(destination, client_id, "splits")
        begin, end = parse_place(from_), parse_place(to)
        transactions = not instance.config.filter_transaction_entry
        ranges = instance.cursors.ranges
        split = functools.partial(ranges.split, client_id, begin, end, parts, transactions=transactions)
        found = await self._when_read(instance, client_id, end, split)
        if found is not None:
            return found
        pieces = []
        async with _open_range(instance, client_id, begin, end) as opened:
            async for chunk in opened.chunks(transactions=transactions):
                instance.cursors.clients.hear(client_id, time.monotonic())
                pieces.append(Part("", str(opened.place), chunk.entries, chunk.rows, chunk.bytes))
        return join_parts(pieces, from_, to, parts)

    async def _old_range(
        self, instance: Serving, client_id: int, after: Position, limits: RangeLimits, error: GoneError
    ) -> Range:
        """Return what follows a position that is no longer in the ring, without a mark; `error` says that it is not."""
        status = instance.cursors.status(client_id)
        if not status.acked:
            raise error
        end = parse_place(status.acked)
        if limits.until is not None:
            end = end.meet(limits.until)
        async with _open_range(instance, client_id, after, end) as opened:
            return replace(await opened.range(limits), from_=str(after))

    async def _source_end(self, instance: Serving) -> str:
        try:
            async with asyncio.timeout(LONGEST_QUESTION):
                return str(await instance.source_end())
        except (SourceError, TimeoutError) as error:
            logger.warning("cannot read the end position of the source: %s", error)
            return ""

    async def _when_read(
        self, instance: Serving, client_id: int, end: Position, attempt: Callable[[], T | None]
    ) -> T | None:
        """Make an attempt when the stream has come to the end of a range; None when the ring no longer holds the range.

        A range that a destination gave in an earlier life may be ahead of the stream, which soon reaches it again.
        """
        deadline = time.monotonic() + LONGEST_REREAD
        while True:
            instance.cursors.clients.hear(client_id, time.monotonic())
            try:
                result = attempt()
            except GoneError:
                if not instance.catch_up.turns.places:
                    raise
                return None
            if result is not None:
                return result
            remaining = deadline - time.monotonic()
            is_full = instance.ring.waiting and not instance.cursors.awaits_verdicts(client_id, instance.ring.next)
            if is_full or remaining <= 0:
                source_end = await instance.source_end()
                instance.check_running()
                if not end.precedes(source_end):
                    raise BadPositionError(f"{end} is beyond the end of the source's binlog")
                return None
            await instance.wait(min(remaining, 1.0))
            instance.check_running()


def _open_range(
    instance: Serving, client_id: int, from_: Position, to: Position
) -> AbstractAsyncContextManager[SharedRange]:
    """Read again what a client wants of a range. Raises GoneError as `Serving.start_of_range`."""
    begin = instance.start_of_range(from_, to)
    return instance.catch_up.open_range(begin, to, instance.cursors.clients.wanted(client_id))
