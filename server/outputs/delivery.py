"""The delivery loop, the same for every kind of output: get, prepare, send, and ack what was confirmed."""

import asyncio
import contextlib
import contextvars
import functools
import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from ...instance.context import current_destination
from ...instance.skipped import Skipped
from ...protocol.cut import Cut, executed_at, executed_text, has_executed, parse_executed, parse_place
from ...protocol.errors import (
    ConfigError,
    FilterError,
    GoneError,
    NotStoredError,
    PurgedError,
    QuotaExceededError,
    RefusedError,
    ReshapedError,
    SluiceError,
    SourceChangedError,
    StaleSessionError,
)
from ...protocol.position import Position
from ...store.batch import Batch
from ...store.cursor import Cursor
from ..caller import Caller, caller
from ..embedded import EmbeddedServer
from ..embedded.companions import OutputStatus
from ..wording import duration
from .places import ends_of, is_transaction
from .settings import OnRefused, Output
from .target import DeliveryError, Place, Prepared, RejectedError, SplitError, Target
from .threads import LeftExecutor

logger = logging.getLogger(__name__)
T = TypeVar("T")

SHORTEST, LONGEST = 0.2, 30.0
"""Seconds before another attempt: the first pause, which doubles, and the longest one."""
IDLE = 5.0
"""Seconds without anything to send after which a target may see to what else is due."""
SLOW = 60.0
"""Seconds after which a call of a form or a target that has not returned is an error."""
ENDING = 2.0
"""Seconds that a target has to end what it does when it is abandoned."""
NUMBER = "number"
"""Of the place, see `Place.number`, in what is kept with the cursor."""
PERMANENT = (
    ConfigError,
    RefusedError,
    RejectedError,
    PurgedError,
    GoneError,
    ReshapedError,
    SourceChangedError,
    FilterError,
    StaleSessionError,
)
"""What does not pass by itself: it is tried again each 30 s."""


class Delivery:
    """Delivers to one target, until it is stopped. All methods belong to the event loop."""

    def __init__(self, embedded: EmbeddedServer, output: Output, make: Callable[[Output], Target]) -> None:
        """``make`` makes the other side, when the client is there."""
        self.output = output
        self.mistake = ""
        """Why it goes on as it was, and not as it is configured now; empty if it does."""
        self.state = "starting"
        self.error = ""
        self._embedded = embedded
        self._make = make
        self._made: Target | None = None
        self._session = ""
        self._moved = ""
        self._lost = ""
        self._last_error = ""
        self._failed = 0.0
        self._again = asyncio.Event()
        self._most = 0  # entries of the next batch, when what follows them cannot be sent
        self._apart: Position | None = None  # up to which each transaction is sent by itself: one of them is rejected
        self._number = 0  # that of the place that the other side keeps
        self._batches = self._records = self._rows = self._bytes = self._retries = self._skipped = 0
        name = f"{output.destination} {output.name}"
        self._sender = LeftExecutor(f"send {name}")
        self._encoder = LeftExecutor(f"encode {name}")
        self._where = {"destination": output.destination}

    @property
    def status(self) -> OutputStatus:
        """Where it stands now."""
        state, error = self.state, self.error
        if state == "running" and self._made is not None and self._made.trouble:
            state, error = "retrying", self._made.trouble
        if state != "stopped" and not error and (hanging := self._hanging()):
            state, error = "retrying", hanging
        if self.mistake and not error:
            error = f"keeps its previous settings, because the new ones cannot be used: {self.mistake}"
        return OutputStatus(
            self.output.name,
            self.output.settings.type,
            self.output.client_id,
            state,
            error,
            self._batches,
            self._records,
            self._rows,
            self._bytes,
            self._retries,
            self._skipped,
            self._last_error,
            self._failed,
            self._lost,
            {} if self._made is None else self._made.statistics,
        )

    @property
    def _target(self) -> Target:
        """The other side; there when something is delivered."""
        assert self._made is not None
        return self._made

    def _is_drained(self) -> bool:
        """Whether the other side has taken all that was due, and need not know anything when it comes again."""
        if not (self._target.keeps_place and self._target.takes_transactions):
            return True
        status = self._embedded.status(self.output.destination, self.output.client_id)
        return not self._target.is_ahead and not status.lag.entries

    def _hanging(self) -> str:
        """Say which call does not return; empty if each does."""
        for executor, what in (self._encoder, "the call that prepares a batch"), (self._sender, "a call of its target"):
            began = executor.began
            if began is not None and (seconds := time.monotonic() - began) > SLOW:
                return (
                    f"{what} has not returned for {duration(seconds)}. If code of a package hangs there, correct the"
                    " package, and restart the server"
                )
        return ""

    def retry(self) -> None:
        """Try again now what waits for its next attempt."""
        self._again.set()

    async def run(self) -> None:
        """Deliver for ever; cancelled, it sends nothing more before it returns."""
        caller.set(Caller(f"output {self.output.name}"))
        pause = SHORTEST
        try:
            while True:
                confirmed = self._batches
                state = "retrying"
                try:
                    await self._deliver()
                except SluiceError as error:
                    state = "error" if isinstance(error, PERMANENT) else state
                    problem = str(error)
                except Exception as error:  # whatever it is, changes go on waiting at the cursor, and it is said
                    logger.exception("output %s has failed", self.output.name, extra=self._where)
                    problem = f"{type(error).__name__}: {error}"
                pause = SHORTEST if self._batches > confirmed else pause
                await self._pause(LONGEST if state == "error" else pause, state, problem)
                pause = min(2 * pause, LONGEST)
        finally:
            self._set("stopped", "")
            self._sender.shutdown()
            self._encoder.shutdown()

    async def _pause(self, seconds: float, state: str, problem: str) -> None:
        self._set(state, problem)
        self._again.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._again.wait()
        self._retries += 1

    async def _deliver(self) -> None:
        """Deliver until something fails."""
        output, settings = self.output, self.output.settings
        await self._subscribe()
        if self._made is None:
            if output.mistake:
                raise ConfigError(output.mistake)
            self._made = await self._run(self._sender, self._make, output)
        self._embedded.attend_drain(output.destination, output.client_id, self._is_drained)
        ready: asyncio.Queue[Prepared] = asyncio.Queue(settings.window)
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._open()
            self._set("running", "")
            tasks = [
                asyncio.create_task(self._collect(ready), name=f"collect for {output}"),
                asyncio.create_task(self._send(ready), name=f"send for {output}"),
            ]
            # Not a group of tasks: that forgets that it was cancelled when one of its tasks has failed meanwhile.
            failed, _others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await next(iter(failed))
        finally:
            ending = asyncio.create_task(self._end(tasks), name=f"end of {output}")
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError:  # stopped while it ends after an error
                await ending
                raise

    async def _end(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Send nothing more, and close the target."""
        for task in tasks:
            task.cancel()
        self._target.abandon()
        await asyncio.gather(*tasks, return_exceptions=True)
        closing = asyncio.create_task(self._close(), name=f"close {self.output}")
        _done, late = await asyncio.wait([closing], timeout=ENDING)
        if late:
            text = "output %s: its target did not close in time"
            logger.warning(text, self.output.name, extra=self._where)

    async def _close(self) -> None:
        """Close the target. Nobody may wait for that any more when it fails."""
        try:
            await self._run(self._sender, self._target.close)
        except Exception as error:  # noqa: BLE001  whatever it is, the next attempt opens the target again
            text = "output %s: its target could not be closed: %s"
            logger.warning(text, self.output.name, error, extra=self._where)

    async def _subscribe(self) -> None:
        """Be the client, first of all: it holds what the output is due until that can be delivered."""
        embedded, output, settings = self._embedded, self.output, self.output.settings
        client = output.destination, output.client_id
        subscribe = functools.partial(embedded.subscribe, *client, expire_after=0, output=output.name)
        is_known = output.client_id in {it.client_id for it in embedded.clients(output.destination)}
        has_begun = is_known and bool(embedded.memory(*client) or embedded.moved(*client))
        begin = settings.start if has_begun else settings.begin
        try:
            await subscribe(filter=settings.filter, where=settings.where, start=begin)
        except FilterError:
            if not is_known and isinstance(begin, str):  # a snapshot would be of all tables
                await subscribe(start=begin)
            raise
        self._session = embedded.open_session(*client, output=output.name)

    async def _open(self) -> None:
        """Open the target, and go on where it says."""
        embedded, client = self._embedded, (self.output.destination, self.output.client_id)
        memory, epoch = embedded.memory(*client), embedded.epoch(self.output.destination)
        self._moved = embedded.moved(*client)
        place = await self._run(self._sender, self._target.open, memory, self._moved, epoch)
        number = int(json.loads(memory or "{}").get(NUMBER, 0)) if self._target.keeps_place else 0
        if place is not None and not self._moved and 0 < place.number < number:
            raise self._lost_there(place)
        self._number = max(number, 0 if place is None else place.number)
        self._report_losses()
        self._check()  # opening fences others: one that has lost the destination meanwhile must notice
        if place is not None:
            await self._take_over(place, is_new=not (memory or self._moved))
        if not self._target.takes_transactions:
            await embedded.rollback(*client, session=self._session)
        elif not await embedded.go_back(*client, session=self._session):
            raise DeliveryError("the source is read again from the begin of the transaction that it was in")

    async def _take_over(self, place: Place, *, is_new: bool) -> None:
        """Confirm what the other side has: the server may have ended before it could."""
        embedded, client = self._embedded, (self.output.destination, self.output.client_id)
        position = parse_place(place.position)
        cursor = embedded.cursor(*client)
        if is_new:  # its cursor is lost, or was never stored
            if cursor is None or cursor.position != position:
                text = "output %s resumes at %s, which the target already has"
                logger.warning(text, self.output.name, position, extra=self._where)
                try:
                    await embedded.seek(*client, _cursor_at(place) or place.position, is_confirmed=True)
                except SourceChangedError as error:
                    raise self._elsewhere(position, cursor) from error
        elif cursor is None or cursor.position is None or cursor.position.same_history(position):
            here = None if cursor is None else cursor.position
            is_behind = cursor is None or cursor.order < position.order if here is None else not position.precedes(here)
            if is_behind:
                await self._ack_to(place)
        elif not _has_executed(cursor, place):
            if not has_executed(place.gtids, cursor.gtid):
                raise self._elsewhere(position, cursor)
            await self._ack_to(place)

    def _lost_there(self, place: Place) -> RejectedError:
        """Say that the other side was restored from a backup, or has lost data: the cursor would pass over that.

        Places of two sources have no order, and a cursor is after the place where nothing had to be sent. So the
        number of the place says it.
        """
        cursor = self._embedded.cursor(self.output.destination, self.output.client_id)
        seek = f"sluice seek {self.output.destination} {self.output.client_id}"
        without = "" if cursor is None else f"; `{seek} {cursor.position}` goes on without it"
        return RejectedError(
            f"the other side has lost changes that it had confirmed: it has those up to {place.position}."
            f" `{seek} {place.position}` sends again what follows{without}"
        )

    def _elsewhere(self, position: Position, cursor: Cursor | None) -> RejectedError:
        here = "what is read" if cursor is None else f"the cursor, {cursor.position}"
        return RejectedError(
            f"the other side has the changes up to {position}, which belongs to another source or history than {here}."
            " Find the position that follows them, and move the client there with `sluice seek"
            f" {self.output.destination} {self.output.client_id} POSITION`"
        )

    async def _ack_to(self, place: Place) -> None:
        """Confirm what the other side has, although the source may have been switched since."""
        embedded, client = self._embedded, (self.output.destination, self.output.client_id)
        if (there := _joined(place, embedded.cursor(*client))) is not None:
            await embedded.seek(*client, there, is_confirmed=True)
            return
        try:
            await embedded.ack(*client, position=place.position, session=self._session)
        except SourceChangedError as error:
            position, cursor, there = parse_place(place.position), embedded.cursor(*client), _cursor_at(place)
            if there is not None:
                await embedded.seek(*client, there, is_confirmed=True)
            elif cursor is None or position == position.transaction:
                raise self._elsewhere(position, None) from error
            else:
                raise RejectedError(
                    f"the other side has a part of a transaction, up to {position}, which was read from another source"
                    " than the present one. Switch back to that one; or let the whole transaction be sent again, so"
                    f" that this part is there twice: `sluice seek {self.output.destination} {self.output.client_id}"
                    f" {cursor.position}`"
                ) from error

    async def _collect(self, ready: asyncio.Queue[Prepared]) -> None:
        """Get batches and prepare them, in order."""
        output = self.output
        last: Batch | None = None
        while True:
            try:
                batch = await self._embedded.get_without_ack(
                    output.destination,
                    output.client_id,
                    timeout=math.inf,
                    max_bytes=output.settings.max_bytes,
                    max_entries=self._most or None,
                    session=self._session,
                )
            except QuotaExceededError:
                await ready.join()  # what it was given counts, and would be charged again
                raise
            self._most = 0
            if last is not None and not _follows(batch, last):
                raise DeliveryError(
                    f"{batch.from_} comes again, because its client was moved; the output resumes there"
                )
            if batch.is_late and not output.settings.late:
                await ready.join()
                await self._ack(batch)
                self._skip(f"{batch.rows} rows that were in quarantine, see sluice.output.{output.name}.late")
                continue
            if self._apart is not None and (first := ends_of(batch)[:1]) and first[0] < batch.entries:
                self._most = first[0]
                await self._embedded.rollback(output.destination, output.client_id, session=self._session)
                continue
            if self._target.takes_transactions and self._target.keeps_place:
                found = self._embedded.gtids_in(output.destination, output.client_id, batch.batch_id)
                batch = replace(batch, gtids=found)
            try:
                prepared = await self._run(self._encoder, self._target.prepare, batch)
            except (RefusedError, SplitError) as error:
                await ready.join()
                self._most = error.entries if isinstance(error, SplitError) else error.entry
                if self._most:  # what is before it can be sent
                    await self._embedded.rollback(output.destination, output.client_id, session=self._session)
                    continue
                raise RejectedError(f"{error}, at {batch.from_}") from error
            is_alone = prepared.is_alone or self._apart is not None
            if is_alone:
                await ready.join()
            await ready.put(prepared)
            if is_alone:
                await ready.join()
            last = batch

    async def _send(self, ready: asyncio.Queue[Prepared]) -> None:
        """Send what is ready, and ack it once it is confirmed."""
        output = self.output
        while True:
            batches = [await self._next(ready)]
            while not ready.empty():
                batches.append(ready.get_nowait())
            self._check()
            await self._list([item for it in batches for item in it.skipped])
            ids = [it.batch.batch_id for it in batches]
            memory = self._target.memory_before(batches)
            if memory is not None:
                memory = self._with_number(memory)
                await self._embedded.remember(output.destination, output.client_id, memory, before=ids)
            # Nothing is awaited from here on to the send: what was forgotten, or taken by somebody else, is not sent.
            self._embedded.check_next(output.destination, output.client_id, ids)
            place = self._place_after(batches) if self._target.keeps_place else None
            try:
                await self._run(self._sender, self._target.send, batches, place)
            except RejectedError as error:
                if self._target.takes_transactions and sum(len(ends_of(it.batch)) for it in batches) > 1:
                    self._apart = parse_place(batches[-1].batch.to)
                    raise DeliveryError(f"{error}; each transaction is sent by itself now, to find it") from error
                begin, end = batches[0].batch.from_, batches[-1].batch.to
                is_one = len(batches) == 1 and is_transaction(batches[0].batch)
                if is_one and error.is_change and output.settings.on_refused is OnRefused.SKIP:
                    await self._list([Skipped(begin, str(error))])
                    await self._ack(batches[0].batch)
                    self._skip(f"the transaction at {begin}: {error}")
                    raise DeliveryError(f"the transaction at {begin} is left out: {error}") from error
                among = f"; it is among the changes from {begin} to {end}"
                where = f", at {error.position}" if error.position else among
                if is_one:
                    skip = f"sluice skip {output.destination} {output.client_id} {begin}"
                    where = f", in the transaction at {begin}. `{skip}` passes over all of that transaction"
                raise RejectedError(f"{error}{where}") from error
            self._number = self._number if place is None else place.number
            if self._apart is not None and not _is_before(batches[-1].batch, self._apart):
                self._apart = None
            for it in batches:
                self._count(it)
            self._report_losses()
            # Each call confirms before it waits for the store, and they begin in this order.
            memories = [self._with_number(self._target.memory_after(it)) for it in batches]
            await asyncio.gather(*(self._ack(it.batch, text) for it, text in zip(batches, memories, strict=True)))
            for _ in batches:
                ready.task_done()

    async def _ack(self, batch: Batch, memory: str | None = None) -> None:
        """Confirm a batch; ``memory`` is what the target remembers from here on, None if nothing new."""
        output = self.output
        try:
            await self._embedded.ack(
                output.destination,
                output.client_id,
                batch_id=batch.batch_id,
                session=self._session,
                memory=memory,
            )
        except NotStoredError as error:  # it counts, and is stored later; the destination says so, too
            logger.warning("output %s: %s", output.name, error, extra=self._where)

    async def _next(self, ready: asyncio.Queue[Prepared]) -> Prepared:
        """Return what is ready first."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(IDLE):
                    return await ready.get()
            await self._run(self._sender, self._target.idle)

    def _with_number(self, memory: str) -> str:
        """Return what is kept with the cursor, with the number of the place that the other side has."""
        if not self._target.keeps_place:
            return memory
        return json.dumps(json.loads(memory or "{}") | {NUMBER: self._number})

    def _place_after(self, batches: Sequence[Prepared]) -> Place | None:
        """Return the place after batches. One inside a transaction is not counted that the other side has to have."""
        found = self._embedded.place_after(self.output.destination, self.output.client_id, batches[-1].batch.batch_id)
        if found is None or found.position is None:
            return None
        is_whole = not self._target.takes_transactions or found.position == found.position.transaction
        number = self._number + (is_whole and any(it.records for it in batches))
        return Place(str(found.position), found.gtid, number)

    def _report_losses(self) -> None:
        status = self._embedded.status(self.output.destination, self.output.client_id)
        for text in self._target.losses():
            self._lost = f"{text}: changes before {status.acked}"
            logger.error("output %s: %s", self.output.name, self._lost, extra=self._where)

    def _check(self) -> None:
        """Raise FencedError when this server has lost the destination, StaleSessionError when another the client.

        Raises DeliveryError when its cursor was moved: the target has to note that before it hears of what follows.
        """
        client = self.output.destination, self.output.client_id
        self._embedded.check(*client, self._session)
        moved = self._embedded.moved(*client)
        if moved and moved != self._moved:
            raise DeliveryError("its cursor was moved; it resumes there")

    def _count(self, prepared: Prepared) -> None:
        self._batches += 1
        self._records += prepared.records
        self._bytes += prepared.bytes
        self._rows += prepared.batch.rows
        for item in prepared.skipped:
            self._skip(f"{item.reason}, at {item.position}")

    async def _list(self, skipped: Sequence[Skipped]) -> None:
        """Add what is left out to the list of the destination, before the cursor can pass it."""
        if not skipped:
            return
        now = time.time()  # noqa: TID251  to be shown
        try:
            await self._embedded.list_skipped(
                self.output.destination, [replace(it, output=self.output.name, time=now) for it in skipped]
            )
        except OSError as error:
            raise DeliveryError(f"what was left out cannot be listed: {error}") from error

    def _skip(self, text: str) -> None:
        self._skipped += 1
        logger.warning("output %s has left out %s", self.output.name, text, extra=self._where)

    def _set(self, state: str, error: str) -> None:
        if error:
            self._last_error, self._failed = error, time.time()  # noqa: TID251  to be shown
        if (state, error) != (self.state, self.error):
            log = logger.error if state == "error" else logger.warning if error else logger.info
            log("output %s: %s%s", self.output.name, state, f": {error}" if error else "", extra=self._where)
        self.state, self.error = state, error

    async def _run(self, executor: LeftExecutor, work: Callable[..., T], *arguments: object) -> T:
        context = contextvars.copy_context()
        context.run(current_destination.set, self.output.destination)  # what it logs
        return await asyncio.get_running_loop().run_in_executor(executor, context.run, work, *arguments)


def _cursor_at(place: Place) -> Cursor | None:
    """Return the cursor of a place that its GTIDs say at any source; None of one inside a transaction, or without."""
    position = parse_place(place.position)
    return Cursor.at(position, place.gtids) if place.gtids and position == position.transaction else None


def _joined(place: Place, cursor: Cursor | None) -> Cursor | None:
    """Return where a cursor of a group goes on when the other side has a place; None if that is of a single source.

    This server may merge the members in another order than the one that has confirmed the place, so that it need not
    come by. In each member the other side has what is before the place, and wants nothing of what the cursor passed.
    """
    position = parse_place(place.position)
    if not isinstance(position, Cut):
        return None
    sides = [(position, parse_executed(place.gtids))]
    if cursor is not None and isinstance(cursor.position, Cut) and cursor.position.same_history(position):
        sides.append((cursor.position, parse_executed(cursor.gtid)))
    there = sides[0][0].join(sides[-1][0])
    return Cursor.at(there, executed_text(executed_at(there, sides)), there)


def _has_executed(cursor: Cursor, place: Place) -> bool:
    """Whether the sets of GTIDs say that a cursor, in another history, is at a place or after it.

    Inside a transaction the place has what was executed before that: a cursor that has no more is before the place.
    """
    position = parse_place(place.position)
    is_more = position == position.transaction or not has_executed(place.gtids, cursor.gtid)
    return is_more and has_executed(cursor.gtid, place.gtids)


def _is_before(batch: Batch, place: Position) -> bool:
    """Whether a batch ends before a place; not where they have no order."""
    end = parse_place(batch.to)
    return end.same_history(place) and not place.precedes(end)


def _follows(batch: Batch, last: Batch) -> bool:
    """Whether a batch goes on where the one before has ended: nothing comes twice, also at another source."""
    begin, end = parse_place(batch.from_), parse_place(last.to)
    return end.precedes(begin) if begin.same_history(end) else end == end.transaction
