"""Canal's calls: subscribe, get, ack, rollback."""

import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence

from ...instance.config import BatchMode, InstanceConfig
from ...instance.serving.serving import Serving, compile_where
from ...protocol.content import Content
from ...protocol.cut import parse_place
from ...protocol.errors import (
    BadParameterError,
    BadPositionError,
    DestinationStoppedError,
    ForbiddenError,
    LimitError,
    SourceChangedError,
)
from ...protocol.position import Position
from ...store.allowance import Limits
from ...store.batch import Batch
from ...store.cursor import SKIP, Cursor, StoredClient
from ...store.moves import By, Move
from ...store.snapshot import Selection, TableProgress
from ...store.status import ClientStatus
from ...store.track import Wanted
from ..caller import Caller, by_caller, caller
from ..client_ids import FIRST, LAST, RESERVED
from .destinations import Destinations

DEFAULT_BATCH_SIZE = 1000
FIRST_DATA = 5.0
"""Seconds that a get waits at least for a reader of its client and for what that finds first; see `Turns`."""
LONGEST_REREAD = 30.0
"""Seconds that an ack by position, or a range, may wait for the stream to come to it again."""
EMPTY = Batch(batch_id=-1, slices=[], from_="", to="", entries=0, rows=0, bytes=0, timestamp=0)
"""What a get returns when nothing is there."""


class Calls(Destinations):
    """What Canal's clients call, and a consumer over HTTP."""

    # --- subscriptions -----------------------------------------------------------------------------------------------

    async def subscribe(
        self,
        destination: str,
        client_id: int,
        *,
        filter: str = "",  # noqa: A002  Canal's name
        where: str | None = "",
        start: str | dict[str, int] | Selection = "earliest",
        expire_after: int | None = None,
        protected: bool | None = None,
        output: str = "",
    ) -> dict[str, object]:
        """Register a client, durably, or change the filter of a registered one, whose cursor wins over ``start``.

        While the destination starts, it answers when the source has said where the stream begins (see
        `Serving.name_place`): the client then gets every change from here on, whatever happens.

        Args:
            destination: name of the destination.
            client_id: a 16-bit integer. A new client cannot have -1.
            filter: tables, as in `TableFilter`; it narrows the destination's, or takes its place where filters are
                shared. Empty wants all.
            where: conditions on rows, as in `sluice.instance.conditions.where`; empty wants all, None leaves them
                unchanged.
            start: ``earliest`` in ring or log, ``oldest`` that these or the source have, ``latest``, the text of a
                position, ``{"timestamp": ms}``, or which rows of tables it is given as they are now, among the changes
                since: it takes a snapshot.
            expire_after: seconds without a call after which the client is removed; 0 for never, None as the destination
                is configured.
            protected: whether the log on disk keeps what the client still needs, beyond its limits; None leaves that
                as it is.
            output: name of the output that calls, and owns the client from here on.

        Raises:
            OwnedError: an output owns the client, and somebody else calls.
            ForbiddenError: the caller may not use the client, or not change the filter that clients share.
            BadParameterError: the client id is out of range or reserved, or there is no log that could keep anything;
                or the tables of a snapshot cannot be read, or the client has begun without one.
            FilterError: the filter or the condition is not valid, or cannot match anything.
            LimitError: there are too many clients, or their filters are too large.
            BadPositionError: ``start`` is not a position; or it is ``earliest``, the client has left after it had lost
                its place, and the source has older changes than that.
            GoneError: it is older than what is stored.
            PurgedError: the source may have purged changes of that time.
            SourceChangedError: it belongs to another source or history.
            SourceError: the source cannot be asked, for the place of a time, the oldest one, or a new condition.
        """
        # Long: half of it says what the arguments mean.
        who = caller.get()
        instance = self._admit_new(destination, client_id, output)
        if not FIRST <= client_id <= LAST:
            raise BadParameterError(f"client id {client_id} is not a 16-bit integer")
        if client_id == RESERVED and client_id not in instance.cursors.clients.ids:
            raise BadParameterError(f"client id {RESERVED} is reserved, because earlier versions use it for the log")
        _check_shared_filter(instance, filter, who)
        _check_protection(instance, protected=protected)
        if where and where != _where(instance, client_id):
            await instance.check_where(where)
        _check_room(instance, client_id, who, output)
        compiled = await instance.admit_filter(client_id, filter, who.token)  # is kept until the client has it
        rate, tables = 0, list[TableProgress]()
        if isinstance(start, Selection):
            rate = start.rate
            start, tables = await _select(instance, client_id, filter, where or "", start)
        place = start["timestamp"] if isinstance(start, dict) else start
        is_known = client_id in instance.cursors.clients.ids
        if not is_known and place == "earliest":
            await instance.check_return(client_id)
        begin = place if is_known else await instance.find_start(place)
        # It may have been stopped, or have begun again, meanwhile; and somebody else may have been faster.
        instance = self._admit_new(destination, client_id, output)
        is_new = instance.cursors.admission.owners(client_id) is None
        _check_room(instance, client_id, who, output)
        if compiled is not None:
            instance.check_filters(filter, compiled, who.token)
        instance.cursors.subscribe(
            client_id,
            filter_text=filter,
            where=where,
            start=begin,
            expire_after=expire_after,
            protected=protected,
            output=output,
            owner=who.token if is_new or who.names(client_id) else None,
            limits=who.limits,
            now=time.monotonic(),
            by=by_caller(),
        )
        if is_new and tables:  # in the same write, so that it never begins without them
            instance.cursors.snapshots.add(client_id, tables, rate)
            instance.tend_snapshots()
        instance.share_filter(filter)
        del compiled
        if is_new:
            instance.seek_start()
        instance.wake_concerned()
        await instance.name_place(client_id)
        await instance.flush()
        status = instance.cursors.status(client_id)
        return {
            "destination": destination,
            "clientId": client_id,
            "filter": status.filter,
            "where": status.where,
            "state": status.state,
            "position": status.position,
        }

    def _admit_new(self, destination: str, client_id: int, output: str) -> Serving:
        """Return a destination that runs, for a client that may be new. Raises as `_admit`."""
        if output:
            return self._running(destination)
        if self._running(destination).cursors.admission.owners(client_id) is None and (who := caller.get()).clients:
            who.require(client_id, "")
        return self._admit(destination, client_id, "subscribe")

    async def protect(self, destination: str, client_id: int, *, protected: bool) -> None:
        """Let the log on disk keep what a client still needs, beyond its limits, or no longer; durably.

        Raises NotSubscribedError, ForbiddenError, and BadParameterError when there is no log.
        """
        instance = self._admit_by_hand(destination, client_id)
        _check_protection(instance, protected=protected)
        instance.cursors.protect(client_id, protected=protected, now=time.monotonic())
        await instance.flush()
        await self.audit(destination, "protection" if protected else "end of protection", client_id)

    async def limit(self, destination: str, client_id: int, limits: Mapping[str, int | None]) -> None:
        """Limit the bytes that a client is given a second, or a day; durably.

        ``limits`` has fields of `Limits`; what it lacks stays. Raises NotSubscribedError and ForbiddenError.
        """
        instance = self._admit_by_hand(destination, client_id)
        before = instance.cursors.clients.limits_of(client_id)
        after = before._replace(**limits)
        instance.cursors.clients.limit(client_id, after)
        instance.wake()
        await instance.flush()
        await self.audit(destination, "limit", client_id, before=_limit_text(before), after=_limit_text(after))

    async def seek(
        self,
        destination: str,
        client_id: int,
        start: str | dict[str, int] | Cursor,
        *,
        is_confirmed: bool = False,
    ) -> Move | None:
        """Move the cursor of a client to a place, forward or back, durably; its outstanding batches are forgotten.

        A client that has left when it was lost is subscribed there: one of Canal cannot say where it comes back.

        ``start`` is as for `subscribe`, or a place with its GTIDs, of any source. ``is_confirmed``: it is not moved by
        hand, but to where the other side has all before. Returns what is passed over by that; None if there is nothing.

        Raises:
            NotSubscribedError: the client has not subscribed.
            ForbiddenError: the caller may not use it.
            BadPositionError: ``start`` is not a position; or it is ``earliest``, the client has lost its place, and the
                source has older changes than that.
            GoneError: it is older than what is stored.
            PurgedError: the source may have purged changes of that time.
            SourceChangedError: it belongs to another source or history.
            SourceError: the source cannot be asked.
        """
        instance = self._admit_by_hand(destination, client_id)
        is_known = client_id in instance.cursors.clients.ids
        if not (is_known or isinstance(start, Cursor)) and instance.gate.is_unsettled(client_id):
            await self.subscribe(destination, client_id, start=start)
            await self.audit(
                destination, "seek", client_id, after=instance.cursors.status(client_id).position, detail="it had left"
            )
            return None
        if start == "earliest":
            await instance.check_earliest(client_id)
        place = start["timestamp"] if isinstance(start, dict) else start
        begin = place if isinstance(place, Cursor) else await instance.find_start(place, client_id)
        held = not is_confirmed and await instance.holds(client_id)
        instance = self._admit_by_hand(destination, client_id)  # see `subscribe`
        before, left = instance.gate.last(client_id), instance.cursors.status(client_id).position
        instance.cursors.places.seek(
            client_id,
            begin,
            now=time.monotonic(),
            moved="" if is_confirmed else _moved(),
            by=by_caller(),
            held=held,
            is_confirmed=is_confirmed,
        )
        move = instance.gate.last(client_id)  # before anything else can change what is written down
        instance.seek_start()
        instance.wake()
        await instance.name_place(client_id)
        await instance.flush()
        await self.audit(destination, "seek", client_id, before=left, after=instance.cursors.status(client_id).position)
        return None if move is before else move

    async def skip(self, destination: str, client_id: int, position: str) -> Move | None:
        """Confirm the one transaction that a client gets next, durably; ``position`` has to lie in it.

        Returns the record of the jump; None if it was a marker alone. Raises what `Places.skip` raises, and
        ForbiddenError.
        """
        instance = self._admit_by_hand(destination, client_id)
        place = parse_place(position)
        end = instance.cursors.places.skip(client_id, place, now=time.monotonic(), by=by_caller())
        is_marker = end == place
        if not is_marker:
            unseen = instance.cursors.clients.moved(client_id)
            is_skip = not unseen or unseen.endswith(SKIP)  # an output that has not seen another move learns of that
            instance.cursors.clients.tell_owner(client_id, _moved() + SKIP * is_skip)
        instance.wake()
        await instance.flush()
        await self.audit(destination, "skip", client_id, before=position, after=str(end))
        return None if is_marker else instance.gate.last(client_id)

    async def unsubscribe(self, destination: str, client_id: int) -> Move:
        """Remove a client and its cursor, durably; return the record of what it is not given any more.

        Raises NotSubscribedError, and OwnedError for that of an output.
        """
        instance = self._admit(destination, client_id, "unsubscribe")
        held, position = not instance.has_lost_place(client_id), instance.cursors.status(client_id).position
        move = instance.cursors.unsubscribe(client_id, by=by_caller(), held=held)
        instance.seek_start()
        instance.wake_concerned()
        await instance.flush()
        await self.audit(destination, "unsubscribe", client_id, before=position)
        return move

    def moves(self, destination: str) -> dict[int, tuple[Move, ...]]:
        """Return the jumps of each client's place, oldest first, also of clients that have left."""
        return dict(self._running(destination).gate.moves)

    async def confirm_gaps(self, destination: str, client_id: int) -> int:
        """Confirm, durably, what a client does not get; return how many jumps nobody had confirmed before.

        An output that such a marker stops goes on. The client may have left. Raises ForbiddenError.
        """
        instance = self._admit_by_hand(destination, client_id)
        confirmed = instance.gate.confirm(client_id)
        instance.wake()
        await instance.flush()
        if confirmed:
            await self.audit(destination, "confirmation of gaps", client_id, detail=f"{confirmed} jumps")
            await self.companions.start(destination)
        return confirmed

    async def release(self, destination: str, client_id: int) -> None:
        """Let a client be no longer that of an output, durably; its cursor stays. Raises NotSubscribedError."""
        instance = self._running(destination)
        output = instance.cursors.admission.release(client_id)
        await self.audit(destination, "release", client_id, detail=f"it was that of the output {output}")
        await instance.flush()

    async def inherit(self, destination: str, client_id: int, former: StoredClient) -> None:
        """Register a client, durably, that goes on at the place of another one, of an output that changes its id."""
        instance = self._running(destination)
        instance.cursors.inherit(client_id, former, time.monotonic())
        instance.wake()
        await instance.flush()
        place = instance.cursors.status(client_id).position
        detail = f"from client {former.client_id}, of the output {former.output}"
        await self.audit(destination, "take-over of a place", client_id, after=place, detail=detail)

    def clients(self, destination: str) -> list[StoredClient]:
        """Return the clients as they are to be stored. Raises DestinationStoppedError before they are loaded."""
        instance = self._known(destination)
        if not instance.is_loaded:
            raise DestinationStoppedError(f"destination:{destination} is not loaded")
        return instance.cursors.clients.stored()

    def open_session(self, destination: str, client_id: int, *, output: str = "") -> str:
        """Open a session, which fences all earlier ones of the client; return its token.

        ``output`` is the name of the output that calls. Raises NotSubscribedError, and OwnedError when another one owns
        the client.
        """
        instance = self._running(destination) if output else self._admit(destination, client_id, "session")
        token = instance.cursors.clients.open_session(client_id, time.monotonic(), output)
        if output:
            instance.owner_sessions[client_id] = token
        instance.wake_concerned()
        return token

    def status(self, destination: str, client_id: int) -> ClientStatus:
        """Return where a client stands; `NotSubscribedError` when it has not subscribed."""
        return self._running(destination).cursors.status(client_id)

    def memory(self, destination: str, client_id: int) -> str:
        """Return the text that a client keeps with its cursor, see `ack`; raises as `status`."""
        return self._running(destination).cursors.clients.memory(client_id)

    def moved(self, destination: str, client_id: int) -> str:
        """Return how a client's cursor was moved by hand since its `memory`, empty if not; raises as `status`."""
        return self._running(destination).cursors.clients.moved(client_id)

    def epoch(self, destination: str) -> int:
        """Return the epoch of this life of a destination: greater than in every earlier one, on any server."""
        return self._running(destination).cursors.life

    def cursor(self, destination: str, client_id: int) -> Cursor | None:
        """Return the durable cursor of a client, None while its place has no name; raises as `status`."""
        return self._running(destination).cursors.clients.cursor(client_id)

    def place_after(self, destination: str, client_id: int, batch_id: int) -> Cursor | None:
        """Return the place after an outstanding batch; `UnknownBatchError` when it is not outstanding."""
        return self._running(destination).cursors.places.place_after(client_id, batch_id)

    def gtids_in(self, destination: str, client_id: int, batch_id: int) -> Mapping[str, str]:
        """Return the GTIDs of the transactions of an outstanding batch, see `sluice.store.reading.Reading.named`."""
        return self._running(destination).cursors.places.gtids_in(client_id, batch_id)

    def attend_drain(self, destination: str, client_id: int, is_drained: Callable[[], bool]) -> None:
        """Say how to know whether an output has applied all that it was due, and nothing more; raises as `status`.

        Before it has said so, that is unknown: without GTIDs no other source is read then.
        """
        self._running(destination).cursors.clients.find(client_id).is_drained = is_drained

    def check_next(self, destination: str, client_id: int, batch_ids: Sequence[int]) -> None:
        """Raise UnknownBatchError unless a client has these batches to ack next, in this order."""
        self._running(destination).cursors.clients.check_next(client_id, batch_ids)

    async def remember(self, destination: str, client_id: int, memory: str, *, before: Sequence[int]) -> None:
        """Store the text that a client keeps with its cursor, see `ack`, before it processes batches.

        Raises UnknownBatchError as `check_next`, and NotStoredError: then it has to be stored again.
        """
        instance = self._running(destination)
        instance.cursors.clients.remember(client_id, memory, before)
        await instance.flush()

    def check(self, destination: str, client_id: int, session: str | None = None) -> None:
        """Raise what a get would raise, but for a quota: what the client was given before still counts."""
        self._admit(destination, client_id, "getWithoutAck", session).cursors.clients.check(client_id, session)

    def check_quota(self, destination: str, client_id: int) -> None:
        """Raise QuotaExceededError when nothing is left of the quota of the day; raises as `status`."""
        self._running(destination).cursors.clients.allowance(client_id).require_quota(client_id, unix_time())

    def outstanding(self, destination: str, client_id: int) -> int:
        """Return how many batches a client was given and has not acked; raises as `status`."""
        return self._running(destination).cursors.clients.outstanding(client_id)

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
        content: Content = Content.ENTRIES,
        session: str | None = None,
    ) -> Batch:
        """Return the next batch, to be acked or rolled back; `EMPTY` when nothing is there in time.

        A call that is cancelled while it waits takes no batch.

        Args:
            destination: name of the destination.
            client_id: the client.
            batch_size: entries (ITEMSIZE) or units of memory (MEMSIZE), as configured; 1000 if no limit is given.
            timeout: seconds to wait for the first entry; None or 0 answers at once, unless the client waits for a
                catch-up reader, or its condition on rows is to be judged of what is there (`FIRST_DATA`); `math.inf`
                waits for ever.
            max_entries: entries at most.
            max_bytes: bytes at most; a larger entry comes alone.
            min_bytes: bytes that it waits for.
            linger: seconds that it waits for them after the first entry, not beyond the timeout.
            wait_full: Canal's rule: wait until ``batch_size`` is reached, or for the timeout.
            content: what the format shows that is asked for; a batch has at least one entry of it.
            session: token of the session, for clients that have opened one.

        Raises:
            NotSubscribedError: the client has not subscribed.
            OwnedError: an output owns it, and somebody else calls.
            StaleSessionError: a newer session took over.
            QuotaExceededError: it was given as much as its quota of the day allows.
            GoneError: its cursor is older than what is stored.
            PurgedError: the source no longer has what comes next.
            ReshapedError: nor has the log, and the source would give something else than was delivered.
            SourceChangedError: its cursor belongs to another source or history.
        """
        # Long: half of it says what the arguments mean.
        instance = self._admit(destination, client_id, "getWithoutAck", session)
        config, cursors = instance.config, instance.cursors
        if batch_size is None and max_entries is None and max_bytes is None:
            batch_size = DEFAULT_BATCH_SIZE
        entries, memory_limit = _limits(config, batch_size or 0, max_entries or 0)
        full_entries = entries if wait_full and not memory_limit else 0
        full_bytes = max(min_bytes or 0, memory_limit if wait_full else 0)
        begun, there = time.monotonic(), instance.ring.next
        deadline = begun + (timeout or 0)
        patience = deadline
        while True:
            instance.check_running()
            allowance = cursors.clients.check(client_id, session).allowance
            if allowance.is_limited:
                allowance.require_quota(client_id, unix_time())
            now = time.monotonic()
            ready = True
            if full_entries or full_bytes:
                found, size = cursors.available(client_id)
                if not found:
                    instance.check_stream(client_id)
                ready = cursors.is_held(client_id) or (found >= full_entries and size >= full_bytes)
                if found and linger is not None and patience == deadline:
                    patience = min(deadline, now + linger)
            if ready or now >= patience:
                allowed, batch = allowance.allowed(now) if allowance.is_limited else None, None
                if allowed != 0:
                    batch = cursors.get(
                        client_id,
                        now=time.monotonic(),
                        max_entries=entries,
                        max_bytes=min(max_bytes or allowed, allowed) if allowed else max_bytes or 0,
                        memory_limit=memory_limit,
                        ddl_isolation=config.get_ddl_isolation,
                        content=content,
                        session=session,
                    )
                if batch is not None:
                    if allowance.is_limited:
                        cursors.clients.charge(client_id, batch.bytes, unix_time())
                    if batch.snapshot:
                        instance.tend_snapshots()
                    return batch
                instance.check_stream(client_id)
                patience = deadline  # what was found was passed over: it is not wanted
                waits = cursors.readers.is_awaited(client_id) or cursors.awaits_verdicts(client_id, there)
                until = max(deadline, begun + FIRST_DATA) if waits else deadline
                if now >= until:
                    return EMPTY
                pause = allowance.wait(now) if allowance.is_limited else 0.0
                await instance.wait(min(until - now, pause or math.inf), client_id)
            else:
                await instance.wait(patience - now, client_id)

    async def ack(
        self,
        destination: str,
        client_id: int,
        *,
        batch_id: int | None = None,
        position: str | None = None,
        durable: bool = False,
        session: str | None = None,
        memory: str | None = None,
        by_operator: bool = False,
    ) -> None:
        """Confirm the oldest outstanding batch, or everything before a position.

        With both: the batch, which ends at the position, and all before it; if it is not outstanding any more,
        everything before the position. That may be repeated. Rows of a snapshot have no place of their own: a position
        alone confirms them only with what follows.

        ``memory`` is a text of the client's own, a few KiB, that is stored with its cursor; it comes with a batch id.
        With ``durable``, and always where cursors are kept in ``zookeeper``, the call returns when the cursor is
        stored; otherwise that happens within the flush period. An operator's ack by position is written down: the
        client may not have processed what it confirms.

        Raises:
            BadParameterError: neither batch id nor position is given, or an operator gives both.
            NotSubscribedError: the client has not subscribed.
            OwnedError: an output owns it, and neither that nor an operator calls.
            StaleSessionError: a newer session took over.
            UnknownBatchError: no such batch is outstanding.
            AckOutOfOrderError: an older one is.
            BadPositionError: the text is not a position, or it is beyond what the client was given.
            SourceChangedError: the position belongs to another source or history.
            PurgedError: the source no longer has what the client waits for.
        """
        by_operator = by_operator and position is not None  # who may do that for an output, too
        if by_operator:
            instance = self._admit_by_hand(destination, client_id)
        else:
            instance = self._admit(destination, client_id, "ack", session)
        if batch_id is not None and position is None:
            instance.cursors.ack(client_id, batch_id, now=time.monotonic(), session=session, memory=memory)
        elif position is not None and not (by_operator and batch_id is not None):
            by = by_caller() if by_operator else None
            await self._ack_to(instance, client_id, parse_place(position), batch_id, session, by)
            if by is not None:
                instance.cursors.clients.tell_owner(client_id, _moved())
            durable = durable or by_operator
        else:
            raise BadParameterError("an ack names a batch, a position, or both; an operator's a batch or a position")
        await instance.confirm(durable=durable)
        if by_operator:
            await self.audit(destination, "ack", client_id, after=position or "", detail=_batch(batch_id))

    async def _ack_to(
        self,
        instance: Serving,
        client_id: int,
        position: Position,
        batch_id: int | None,
        session: str | None,
        by: By | None,
    ) -> None:
        """Confirm up to a position; after a restart, or while catching up, wait until the stream reaches it again."""
        deadline = time.monotonic() + LONGEST_REREAD
        exists = False
        while not instance.cursors.ack_to(
            client_id, position, batch_id=batch_id, now=time.monotonic(), session=session, exists=exists, by=by
        ):
            instance.check_stream(client_id)
            # While the stream has not come to the client's cursor, it may also be that of another source.
            if not exists and instance.cursors.places.awaited(client_id) is None:
                end = await instance.source_end()
                instance.check_running()
                if not position.is_comparable(end):
                    raise SourceChangedError(
                        f"{position} cannot be acked: it belongs to another source or history than the stream, which"
                        f" ends at {end}. Roll back: the changes after the client's cursor are delivered again, with"
                        " new positions"
                    )
                if not position.precedes(end):
                    raise BadPositionError(f"{position} is beyond the end of the source's binlog, {end}")
                exists = True
                continue
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise BadPositionError(
                    f"{position} cannot be acked yet: the stream has not reached it again within {LONGEST_REREAD:g} s."
                    " Try again, or roll back and process again what follows the client's cursor"
                )
            await instance.wait(min(remaining, 1.0))
            instance.check_running()

    async def go_back(self, destination: str, client_id: int, *, session: str | None = None) -> bool:
        """Give again what follows the durable cursor of a client, which is between two transactions.

        Where the ring does not have that any more, and there are no catch-up readers, the stream begins again where the
        clients are, and False is returned: sessions are over. Raises NotSubscribedError, StaleSessionError, and as
        `begin_again`.
        """
        instance = self._running(destination)
        is_served = instance.cursors.go_back(client_id, now=time.monotonic(), session=session)
        if not is_served:
            await self.begin_again(destination)
        instance.wake_concerned()
        return is_served

    async def rollback(
        self, destination: str, client_id: int, *, batch_id: int | None = None, session: str | None = None
    ) -> None:
        """Forget the outstanding batches, so that their entries are given again; or, as in Canal, only the oldest one.

        Raises:
            NotSubscribedError: the client has not subscribed.
            OwnedError: an output owns it, and somebody else calls.
            StaleSessionError: a newer session took over.
            UnknownBatchError: no such batch is outstanding.
            AckOutOfOrderError: an older one is.
        """
        instance = self._admit(destination, client_id, "rollback", session)
        before = instance.cursors.clients.outstanding(client_id)
        instance.cursors.rollback(client_id, batch_id, now=time.monotonic(), session=session)
        instance.wake_concerned()
        if forgotten := before - instance.cursors.clients.outstanding(client_id):
            await self.audit(destination, "rollback", client_id, detail=f"{forgotten} outstanding batches")


def unix_time() -> float:
    """Return the time that quotas are for: its days are those of people."""
    return time.time()  # noqa: TID251  a quota is for a day


def _limit_text(limits: Limits) -> str:
    """Name the limits of a client for the list of changes."""
    rate, quota = ("default" if it is None else str(it) for it in limits)
    return f"{rate} bytes/s and {quota} bytes a day"


def _limits(config: InstanceConfig, units: int, max_entries: int) -> tuple[int, int]:
    """Return how many entries, and bytes of memory, a batch has at most; 0: any number. `units` are as configured."""
    if config.memory_batch_mode is BatchMode.MEMSIZE:
        return max_entries, units * config.memory_buffer_memunit
    return min(units, max_entries or units) if units else max_entries, 0


async def _select(
    instance: Serving, client_id: int, filter_text: str, where: str, selection: Selection
) -> tuple[str, list[TableProgress]]:
    """Return where a new client begins that takes a snapshot, and the tables of that; for a known one, no tables."""
    begin, tables = "latest", list[TableProgress]()
    if client_id not in instance.cursors.clients.ids:
        if instance.config.shared_filter and filter_text:
            raise BadParameterError(
                "the filter of the destination is that of its clients (sluice.instance.sharedFilter), and changes with"
                " this one: subscribe with start 'latest', then begin a snapshot",
                "start",
            )
        begin = str(await instance.source_end())  # of a table that appears after this, all rows come by changes
        wanted = Wanted(instance.compile_filter(filter_text), compile_where(where) if where else None)
        tables = await instance.select(selection, wanted)
    if client_id in instance.cursors.clients.ids and not instance.cursors.snapshots.of(client_id):
        raise BadParameterError(
            f"client {client_id} has subscribed before, without a snapshot, and resumes at its cursor: begin a"
            " snapshot of it (POST …/snapshots), or unsubscribe first",
            "start",
        )
    return begin, tables


def _where(instance: Serving, client_id: int) -> str:
    """Return the condition on rows that a client has."""
    return instance.cursors.status(client_id).where if client_id in instance.cursors.clients.ids else ""


def _batch(batch_id: int | None) -> str:
    return "" if batch_id is None else f"batch {batch_id}"


def _moved() -> str:
    """Return how a cursor is moved by hand now, see `StoredClient.moved`."""
    return f"{time.time_ns() // 1_000_000}-{secrets.token_hex(8)}"


def _check_room(instance: Serving, client_id: int, who: Caller, output: str) -> None:
    """Raise LimitError if there is no room for a client that is new."""
    cursors, config = instance.cursors, instance.config
    if output or cursors.admission.owners(client_id) is not None:
        return
    if cursors.admission.count() >= config.max_clients:
        raise LimitError(f"{config.destination} has {cursors.admission.count()} clients (sluice.instance.maxClients)")
    if who.token and (count := cursors.admission.count(who.token)) >= config.max_clients_of_token:
        raise LimitError(
            f"{config.destination} has {count} clients that the token {who.token!r} has created"
            " (sluice.instance.maxClientsOfToken)"
        )


def _check_shared_filter(instance: Serving, text: str, who: Caller) -> None:
    """Raise ForbiddenError if a token would change what others get, where the filter of a client is everybody's."""
    if not (instance.config.shared_filter and text and who.token) or text == instance.config.filter_regex:
        return
    if who.clients is not None or instance.cursors.admission.has_output:
        raise ForbiddenError(
            "the clients of the destination have one filter (sluice.instance.sharedFilter), and this one would change"
            " it for all: subscribe without one, or use a token of scope 'admin'"
        )


def _check_protection(instance: Serving, *, protected: bool | None) -> None:
    if protected and instance.cursors.track.log is None:
        raise BadParameterError(
            f"destination {instance.config.destination} has no log on disk (sluice.instance.store) that could keep"
            " what the client needs"
        )
