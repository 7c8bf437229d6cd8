"""One destination: the life cycle of its ring, its cursors, their store, and the parser that fills the ring."""

import asyncio
import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from ..protocol.errors import (
    BadParameterError,
    ConfigError,
    DestinationStoppedError,
    FilterError,
    NotStoredError,
    PurgedError,
    SluiceError,
    SourceChangedError,
    SourceError,
)
from ..protocol.gtid import GtidSet
from ..protocol.position import Position
from ..store.batch import LateRows
from ..store.commits import Commits
from ..store.cursor import OLDEST, Cursor, StoredClient, starts
from ..store.cursors import Cursors
from ..store.log.log import Extent, Log
from ..store.log.shapes import difference
from ..store.ring import Ring
from ..store.snapshot import Selection, TableProgress
from ..store.track import EVERYTHING, Wanted
from .catchup import CatchUp
from .columns import SourceColumn
from .config import InstanceConfig
from .judging import Judging
from .log import LogReader, LogWriter, open_log
from .meta.base import MetaStore
from .purges import PurgeWatch, Threat
from .quarantine import keep_late, path_of, read_late, remove
from .sink.condition import leaves
from .sink.filters import TableFilter
from .snapshots import SnapshotTasks
from .source import Feed, Parser, ParserFactory
from .status import ParserStatus, SourceStatus
from .switch import SourceSwitch
from .zones import is_utc

if TYPE_CHECKING:
    from .sources.judging import RowConditions

logger = logging.getLogger(__name__)

CLOSING = 3.0
"""Seconds that the parser has to end when the destination stops."""
GLANCE = 1.0
"""Seconds between two looks at which clients hold others back, whose turns are over, and which have expired."""
MOST_TABLES = 1000
"""Tables of a snapshot at most."""
BEGINNING = 5.0
"""Seconds that a subscription waits for the source to say where the stream begins."""


class Instance:
    """A destination. All methods belong to the event loop."""

    def __init__(
        self,
        config: InstanceConfig,
        make_parser: ParserFactory,
        meta: MetaStore | None = None,
        check_active: Callable[[], None] | None = None,
        title: str = "",
    ) -> None:
        """Nothing runs before `start`.

        Args:
            config: what is configured.
            make_parser: makes the parser.
            meta: where subscriptions and cursors are kept; made as configured if it is not given.
            check_active: raises FencedError unless this server may serve the destination now; None without other
                servers.
            title: what is put before its state in Sluice's log.
        """
        self.configured = config
        """What is configured, and ..."""
        self.config = config
        """... how it is read now: from another server, or by another filter."""
        self.state = "stopped"
        self.error = ""
        self._failure = ""
        """The error that has stopped the destination; empty while all is well."""
        self.check_active = check_active
        self._title = title
        self._make_parser = make_parser
        self._filter = config.table_filter()
        self._meta = meta or make_meta(config)
        self._quarantine = path_of(config.main.file_data_dir, config.main.destination)
        self._parser: Parser | None = None
        self._periodic: list[asyncio.Task[None]] = []
        self._purges: PurgeWatch | None = None
        self.snapshot_turns = asyncio.Semaphore(config.snapshot_readers)
        """Views share them."""
        self._snapshots: SnapshotTasks | None = None
        self._log_writer: LogWriter | None = None
        self._log_writing: asyncio.Task[None] | None = None
        self._writing: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._switch = SourceSwitch(self, self._meta)
        self._stored: Sequence[StoredClient] = ()
        """The clients with which it begins next, and the rows that they are to be given late."""
        self._late: Sequence[LateRows] = ()
        self.views: list[View] = []
        """Those that begin and end with it; to be added before it starts, or by `admit`."""
        self._unstored = asyncio.Event()
        self._changed = asyncio.Event()
        self._notified = threading.Event()
        self._make_ring(0)

    def _make_ring(self, epoch: int) -> None:
        config = self.config
        self.ring = Ring(config.memory_buffer_size, config.memory_buffer_size * config.memory_buffer_memunit)
        self.cursors = Cursors(
            self.ring,
            epoch=epoch,
            compile_filter=self.compile_filter,
            compile_where=compile_where,
            detach_after=config.patience,
            expire_after=config.client_expiry,
            catches_up=config.catch_up_readers > 0,
            keeps=bool(config.others),
        )
        self._commits: Commits[asyncio.Future[None]] = Commits(self.cursors)
        self.catch_up = CatchUp(config, self._make_feed, self._tend)
        self._judging = Judging(self._note_verdicts, self.fail)

    # --- life cycle --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the clients and start the parser. ``state`` and ``error`` say if it cannot start.

        Raises:
            SluiceError: it cannot start; for instance, its stored state cannot be used.
        """
        if self.state not in ("stopped", "standby"):
            return
        self._set_state("starting", "")
        try:
            epoch, clients = await self._meta.open()
            self.config = self.catch_up.config = self.configured.using(self._meta.source)
            if not self._title:
                logger.info("epoch %d", epoch, extra={"destination": self.config.destination})
            await self._load(clients)
            views = self.views
            for view in views:
                await view.open()
            await self._begin(epoch)
            await self._admit_late(views)
        except Exception as error:  # noqa: BLE001  others can start, whatever it is
            await self._give_up(error)

    async def _give_up(self, error: Exception) -> NoReturn:
        """Stay stopped, because of an error."""
        await self._meta.close()
        if self.state == "starting":  # else it was given up meanwhile
            self._set_state("stopped", str(error))
        for view in self.views:
            await view.close()
            view.wait_for_main()
        if isinstance(error, SluiceError):
            raise error
        logger.error("it cannot start", exc_info=error, extra={"destination": self.config.destination})
        raise SluiceError(f"it cannot start: {type(error).__name__}: {error}") from error  # others can

    async def _begin(self, epoch: int, earlier: Cursors | None = None) -> None:
        """Serve clients; ``earlier`` have served them before in the same epoch."""
        log = await asyncio.to_thread(open_log, self.config) if self.config.has_log else None
        try:
            if self.check_active is not None and earlier is not None:  # it may have been given up meanwhile
                self.check_active()
            parser = self._prepare(epoch, log)
        except BaseException:
            if log is not None:
                log.close()
            raise
        if earlier is not None:
            self.cursors.continue_after(earlier)
        if self._log_writer is not None:
            writing = self._log_writer.run()
            self._log_writing = asyncio.create_task(writing, name=f"log of {self.config.destination}")
            self._log_writing.add_done_callback(self._log_ended)
        for one in (self, *self._open_views):
            one.serve(parser)
        self._periodic.append(asyncio.create_task(self._look_each_second(), name=f"look {self.config.destination}"))
        self._switch.attend(parser)

    def serve(self, parser: Parser) -> None:
        """Serve the clients with what a parser reads."""
        self.follow(parser)
        self._periodic = [
            asyncio.create_task(self._flush_each_period(), name=f"flush {self.config.destination}"),
        ]

    def follow(self, parser: Parser) -> None:
        """Serve the clients with what another parser reads into the same ring."""
        if self._watching is not None:
            self._watching.cancel()
        self._parser = parser
        self._purges = PurgeWatch(self.config.destination, self.cursors, parser)
        self._watching = asyncio.create_task(self._purges.run(), name=f"watch purges of {self.config.destination}")
        self._snapshots = SnapshotTasks(self.config, self.cursors, parser.table_reader, self.wake, self.snapshot_turns)
        self._snapshots.tend()

    def _prepare(self, epoch: int, log: Log | None) -> Parser:
        """Make a new ring and new cursors, and the parser that will fill the ring."""
        self._failure = ""
        self._make_ring(epoch)
        self._log_writer = None
        if log is not None:
            self._log_writer = LogWriter(log, self.cursors, self.config, self._note_log, self._tend)
        self._restore()
        for view in self._open_views:
            view.attach()
        parser = self.make_feeder(self.config, self._places(), epoch)
        if log is not None and (before := log.shape_before(shape := self.config.shape())) is not None:
            change = difference(before, shape)
            logger.warning(
                "a marker in the stream will say: %s", change, extra={"destination": self.config.destination}
            )
            parser.announce(change)
        return parser

    def make_feeder(self, config: InstanceConfig, places: Sequence[Cursor | None], epoch: int) -> Parser:
        """Make a parser that fills the ring from the first of these places on that the source has."""
        loop = asyncio.get_running_loop()
        self._notified.clear()
        ring, cursors = self.ring, self.cursors

        def in_loop(call: Callable[..., None], *arguments: object) -> None:
            if ring is self.ring and not ring.closed and not self._failure:
                self._attempt(call, *arguments)

        def on_put() -> None:
            # At most one call is pending, however many puts there are.
            if not self._notified.is_set():
                self._notified.set()
                loop.call_soon_threadsafe(in_loop, self._advance)

        def on_begin(position: Position | None, gtids: GtidSet | None) -> None:
            cursors.begin(position, gtids)
            if parser.refused:
                loop.call_soon_threadsafe(in_loop, self.refuse, parser.refused)
            if isinstance(parser.failure, PurgedError) and self.config.auto_reset_latest_pos_mode:
                loop.call_soon_threadsafe(in_loop, cursors.pass_gap)
            on_put()

        def on_state(state: str, error: str) -> None:
            if state == "error":
                if self._switch.refusal:
                    error = f"{error}; the switch to another source was refused: {self._switch.refusal}"
                loop.call_soon_threadsafe(in_loop, cursors.end_windows)
            loop.call_soon_threadsafe(in_loop, self.tell, state, error)

        self.ring.on_put = on_put
        start, *later = places
        parser = self._make_parser(
            config, ring, start=start, later=later, on_begin=on_begin, on_state=on_state, epoch=epoch
        )
        return parser

    async def _load(self, clients: Sequence[StoredClient]) -> None:
        """Get ready to begin with clients as they are stored."""
        for client in clients:
            if client.where:
                with contextlib.suppress(FilterError):  # said when the client is restored
                    await asyncio.to_thread(compile_where, client.where)
        needed = {position for client in clients for position in client.late}
        self._stored, self._late = clients, await asyncio.to_thread(read_late, self._quarantine, needed)

    def _restore(self) -> None:
        """Take stored clients over."""
        clients = self._stored
        self.cursors.late = {str(it.position): it for it in self._late}
        for client in clients:
            try:
                self.share_filter(client.filter)
            except FilterError as error:
                logger.error("%s", error, extra={"destination": self.config.destination})  # noqa: TRY400  says all
        now = time.monotonic()
        for client in clients:
            self.cursors.restore(client, now)
            refusal = self.cursors.status(client.client_id).error
            if refusal:
                logger.error(
                    "client %d is not served: %s. Let it subscribe with another filter; its cursor is kept",
                    client.client_id,
                    refusal,
                    extra={"destination": self.config.destination},
                )

    def _places(self) -> list[Cursor | None]:
        """Return where the stream may begin, best first; None means where the configuration says."""
        cursors = [member.cursor(client_id) for member in self.cursors.members for client_id in member.client_ids]
        places = starts(cursors, self._meta.place)
        if self._log_writer is not None and (end := self._log_writer.start_after(places[0])) is not None:
            places[:0] = [end, OLDEST]
        if self.config.auto_reset_latest_pos_mode:  # clients that have lost their places go on, at the current end
            return [place for place in places if place not in (None, OLDEST)] or places
        return places

    def seek_start(self) -> None:
        """If the stream could not begin, look again where it may begin, now that other clients are subscribed."""
        parser = self._parser
        begun = self.cursors.position_before(self.ring.next) is not None
        if parser is not None and not begun and self._lost_place() is not None:
            self._set_state("starting", "")
            parser.begin_at(self._places())

    def _lost_place(self) -> SluiceError | None:
        """Return why the parser cannot go on; None if it can, or goes on after a gap, as configured."""
        failure = self._parser.failure if self._parser is not None else None
        if isinstance(failure, PurgedError) and self.config.auto_reset_latest_pos_mode:
            return None
        return failure if isinstance(failure, PurgedError | SourceChangedError) else None

    def refuse(self, refused: Mapping[Cursor, SluiceError]) -> None:
        """Tell the clients that have lost their places; the stream has begun without them."""
        for view in self._open_views:
            view.refuse(refused)
        for client_id in self.cursors.client_ids:
            cursor = self.cursors.awaited(client_id)
            if cursor is not None and cursor in refused and not self.cursors.track.is_logged(cursor):
                self._fall_out(client_id, refused[cursor])

    def _fall_out(self, client_id: int, error: SluiceError) -> None:
        cursor, log = self.cursors.cursor(client_id), self.cursors.track.log
        place = cursor.position if cursor is not None else None
        begin = log.begin_after(place) if log is not None and place is not None else None
        if isinstance(error, PurgedError) and begin is not None:
            error = PurgedError(
                f"{error}. The log on disk has what follows {begin}, so what is lost ends there at the latest:"
                f" `sluice seek {self.config.destination} {client_id} {begin}` goes on there"
            )
        self.cursors.fall_out(client_id, error)
        logger.error(
            "client %d is not served any more: %s. Its cursor stays at %s. To serve it without what is lost to it,"
            " move its cursor (sluice seek), or unsubscribe it and let it subscribe again",
            client_id,
            error,
            self.cursors.status(client_id).position,
            extra={"destination": self.config.destination},
        )

    async def stop(self) -> None:
        """Store the cursors, end the parser, wake all waiters."""
        await self._switch.end()
        parser = self._parser
        if parser is None:
            if self.state == "standby":
                self._set_state("stopped", "")
            return
        try:
            await self._end(parser, "stopped")
        finally:
            await self._meta.close()
            for view in self.views:
                await view.close()

    @property
    def _serving(self) -> Parser | None:
        """The parser, at this moment."""
        return self._parser

    async def admit(self, view: "View") -> None:
        """Serve a view as well: at once if it runs, else as soon as it does."""
        self.views = [*(it for it in self.views if it.config.destination != view.config.destination), view]
        if self._parser is None or not await view.open():
            return
        parser = self._serving
        if parser is not None:
            view.attach()
            view.serve(parser)
            self.seek_start()
            self._tend()
        elif self.state != "starting":  # it was stopped meanwhile
            await view.close()
            view.wait_for_main()

    async def _admit_late(self, known: "Sequence[View]") -> None:
        """Serve the views that have come while nothing was served; those that are known have begun with the rest."""
        for view in self.views:
            if view not in known:
                await self.admit(view)

    async def _end(self, parser: Parser, state: str) -> None:
        """Serve no longer: store the cursors, end the parser, wake all waiters."""
        serving = (self, *self._open_views)
        for one in serving:
            one.leave(state)
        self._switch.leave(parser)
        if self._log_writer is not None:
            self._log_writer.stop()
        self.ring.close()
        try:
            # First: a source that does not answer may delay the rest until others have taken over.
            for result in await asyncio.gather(*(one.settle() for one in serving), return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result
        finally:
            await self.catch_up.close()
            await asyncio.to_thread(parser.join, CLOSING)
            if self._log_writing is not None:
                await asyncio.wait({self._log_writing}, timeout=CLOSING)

    @property
    def _open_views(self) -> "list[View]":
        return [view for view in self.views if view.is_open]

    def leave(self, state: str) -> None:
        """Serve no longer, from here on."""
        self._parser = None
        self._set_state(state, "")
        for task in (*self._periodic, self._watching):
            if task is not None:
                task.cancel()

    async def settle(self) -> None:
        """Store the cursors as they are when nothing is served any more. Raises as `flush`."""
        if self._snapshots is not None:
            await self._snapshots.close()
        for client_id in self.cursors.catching_up:
            self.cursors.fall_out(client_id, DestinationStoppedError("the destination was stopped"))
        await self.flush()

    async def redeliver(self, rows: Sequence[LateRows]) -> dict[str, list[int]]:
        """Give rows that were in quarantine to the clients that have passed their places; return which, by place.

        The others get them in their places: the stream begins again where the clients are, as after a restart. Raises
        SluiceError and OSError; when it cannot begin, it is stopped.
        """
        await asyncio.to_thread(keep_late, self._quarantine, rows)
        await self._switch.end()  # last: from here on no other one can begin before nothing is read
        parser, earlier = self.running_parser(), self.cursors
        # No client can pass a place from here on: none is served before its cursor is loaded again.
        given = {str(it.position): [one for one in earlier.client_ids if earlier.give_late(one, it)] for it in rows}
        for cursors in earlier.members[1:]:
            for it in rows:
                for client_id in cursors.client_ids:
                    cursors.give_late(client_id, it)
        await self._begin_again(parser, lambda: remove(self._quarantine, given))
        return given

    async def begin_again(self) -> None:
        """Begin the stream again where the clients are, as after a restart: with what the ring has no more.

        Raises SluiceError; when it cannot begin, it is stopped.
        """
        await self._switch.end()
        await self._begin_again(self.running_parser(), lambda: None)

    async def _begin_again(self, parser: Parser, prepare: Callable[[], None]) -> None:
        """End the stream, and begin it where the clients are; ``prepare`` is called between, in another thread."""
        earlier, views, served = self.cursors, self.views, self._open_views
        try:
            await self._end(parser, "starting")
            await asyncio.to_thread(prepare)
            await self._load(earlier.stored())
            for view in served:
                await view.load_again()
            await self._begin(earlier.epoch, earlier)
            await self._admit_late(views)
        except Exception as error:  # noqa: BLE001  others can start, whatever it is
            await self._give_up(error)

    # --- one source of several ---------------------------------------------------------------------------------------

    @property
    def source_status(self) -> SourceStatus | None:
        """Which of several servers is read; None if there is one only, and nobody asks whether it lives."""
        return self._switch.status

    async def switch_source(self, address: str = "", *, accept: bool = False) -> None:
        """Read another server with the same data, if it is proven that it goes on where the stream is.

        Without an address the other one of two. With ``accept`` also if it lacks transactions that were delivered.
        Otherwise what was read before is read on, unless that was over. Raises:
            ConfigError: there is no other server.
            BadParameterError: the address is none of them.
            SourceChangedError: it lacks transactions, or it cannot be known.
            SourceError, PurgedError: it cannot be read.
            NotStoredError, FencedError: it cannot be stored which one is read.
        """
        self.check_running()
        await self._switch.make(address, accept=accept)

    def reads(self, parser: Parser) -> bool:
        """Whether a parser is the one that fills the ring."""
        return parser is self._parser

    async def stop_reading(self, parser: Parser) -> None:
        """Let a parser end, and ask its source for nothing, until `read_on`."""
        self._switch.leave(parser)
        await self._let_rest()
        await asyncio.to_thread(parser.join, CLOSING)

    async def _let_rest(self) -> None:
        while busy := [it for it in (self, *self._open_views) if not it.rests]:
            for one in busy:
                await one.rest()

    @property
    def rests(self) -> bool:
        """Whether nothing is asked of the source for the clients."""
        return self._snapshots is None

    async def rest(self) -> None:
        """Ask nothing of the source any more for the clients, until `follow`."""
        if self._watching is not None:
            self._watching.cancel()
        snapshots, self._snapshots = self._snapshots, None
        if snapshots is not None:
            await snapshots.close()
        self.cursors.end_windows()

    def goes_on_in_ring(self, config: InstanceConfig) -> bool:
        """Whether another source can fill the ring on: between two transactions. A log holds one after the other."""
        place = self.cursors.track.last_boundary()
        is_between = place is not None and place.position == self.cursors.position_before(self.ring.next)
        return is_between and not config.has_log

    async def read_on(self, parser: Parser, config: InstanceConfig, place: Cursor | None) -> None:
        """Read a server on from a place, into the same ring if possible; ``parser`` has read before."""
        self.config = config
        if not self.goes_on_in_ring(config):
            await self._begin_again(parser, lambda: None)
            return
        for cursors in self.cursors.members:
            cursors.leave_readers()
        await self.catch_up.close()
        await self._let_rest()  # a view may have been admitted meanwhile
        self.catch_up = CatchUp(config, self._make_feed, self._tend)
        following = self.make_feeder(config, [place], self.cursors.life)
        for one in (self, *self._open_views):
            one.catch_up = self.catch_up
            one.follow(following)
        self._switch.attend(following)
        self._tend()

    def stand_by(self) -> None:
        """Say that another server has, or can have, the destination: this one is ready to start it."""
        self._set_state("standby", "")

    @property
    def parser_status(self) -> ParserStatus:
        """How far the parser is; nothing is known without a parser."""
        return self._parser.status if self._parser is not None else ParserStatus()

    @property
    def threats(self) -> Mapping[int, Threat]:
        """The clients that source or log are about to leave behind."""
        return self._purges.threats if self._purges is not None else {}

    @property
    def log_start(self) -> Position | None:
        """Where the part of the log begins that is written; None while none is."""
        log = self.cursors.track.log
        return None if log is None or self._parser is None else log.start

    @property
    def log_extent(self) -> Extent | None:
        """What the log on disk holds; None without one."""
        log = self.cursors.track.log
        if log is None:
            return None
        extent = log.extent
        keys = {self.cursors.key(it): it for it in self.cursors.client_ids}
        return replace(extent, holds={keys[it]: hold for it, hold in extent.holds.items() if it in keys})

    def check_running(self) -> None:
        """Raise `DestinationStoppedError` unless it runs, FencedError if another server may serve its clients.

        A destination that was taken over runs when its clients are loaded: until then no subscription is known.
        """
        if self.check_active is not None:
            self.check_active()
        if self._parser is None:
            reason = f": {self.error}" if self.error else ""
            what = "should start first" if self.state == "stopped" else "is starting"
            raise DestinationStoppedError(f"destination:{self.config.destination} {what}{reason}")
        if self._failure:
            raise DestinationStoppedError(f"destination:{self.config.destination} has failed: {self._failure}")

    def check_stream(self, client_id: int) -> None:
        """Raise the reason if the stream will never reach what a client waits for; trying again does not help then.

        Raises:
            PurgedError: the source no longer has it.
            SourceChangedError: it belongs to another source or history.
        """
        parser, failure = self._parser, self._lost_place()
        if parser is None or failure is None or client_id in self.cursors.catching_up:
            return
        awaited = self.cursors.awaited(client_id)
        if awaited is not None and self.cursors.track.is_logged(awaited):
            return
        # A client that waits for a later place has lost nothing, unless the stream could not begin: it would have begun
        # there.
        if awaited is None or self.cursors.position_before(self.ring.next) is None:
            error = parser.refused.get(awaited, failure) if awaited is not None else failure
            raise type(error)(str(error))

    async def source_end(self) -> Position:
        """Return the source's current end, or the end of what was read if that is further.

        Raises:
            SourceError: it cannot be asked.
            SourceChangedError: it ends before what was read of it: its binlog was reset or restored.
        """
        before = self.cursors.position_before(self.ring.next)
        end = await asyncio.to_thread(self.running_parser().end)
        # For two places in different files, nothing else shows that they belong to two histories.
        if before is not None and before.same_source(end) and not (before.same_history(end) and before <= end):
            raise SourceChangedError(
                f"the source's binlog ends at {end}, and it was read up to {before}: it was reset, restored, or is"
                " another server"
            )
        read = self.cursors.position_before(self.ring.next)
        return read if read is not None and read.same_history(end) and read > end else end

    async def columns(
        self, schema: str, table: str, wanted: str = "", at: Position | None = None
    ) -> list[SourceColumn]:
        """Return the columns that a table has now at the source, or had at a place, without those filtered out.

        ``wanted`` is another filter that has to let the table pass. Raises:
            FilterError: the table is filtered out.
            UnknownTableError: there is no such table, or the history does not go so far.
            SourceError: it cannot be asked.
        """
        parser = self.running_parser()
        if not self._filter.accepts(schema, table):
            reason = self._filter.explain(schema, table).reason
            raise FilterError(f"destination {self.config.destination} does not deliver {schema}.{table}: {reason}")
        if not self._filter.narrow(wanted).accepts(schema, table):
            raise FilterError(f"the filter '{wanted}' leaves {schema}.{table} out")
        return await asyncio.to_thread(parser.columns, schema, table, at)

    async def tables(self, wanted: str = "") -> list[str]:
        """Return the tables that the source has now and that pass, as ``schema.table``; ``wanted`` is another filter.

        Raises:
            FilterError: that filter is wrong.
            SourceError: the source cannot be asked.
        """
        parser = self.running_parser()
        narrower = self._filter.narrow(wanted)
        found = await asyncio.to_thread(parser.tables)
        return [".".join(it) for it in found if self._filter.accepts(*it) and narrower.accepts(*it)]

    async def select(self, selection: Selection, wanted: Wanted = EVERYTHING) -> list[TableProgress]:
        """Return the tables of the source that a client wants in a snapshot, of those that its filter delivers.

        The conditions of its subscription hold for their rows, too.

        Raises:
            FilterError: the filter of the selection is wrong.
            BadParameterError: there is no such table, or one or its condition cannot be used.
            SourceError: the source cannot be asked.
        """
        reader, where = self.running_parser().table_reader(), selection.where
        found = [name.split(".", 1) for name in await self.tables(selection.tables)]
        names = [(schema, table) for schema, table in found if wanted.has(schema, table)]
        if not names:
            which = f" that matches {selection.tables!r}" if selection.tables else ""
            raise BadParameterError(f"the client gets no table{which} that is at the source now", "tables")
        if len(names) > MOST_TABLES:
            raise BadParameterError(f"a snapshot has at most {MOST_TABLES} tables, and {len(names)} match", "tables")
        if unknown := set(where).difference(".".join(name) for name in names):
            raise BadParameterError(f"{min(unknown)} has a condition, but is not among the tables", "where")
        progress = []
        try:
            for schema, table in names:
                condition = await self._condition(wanted, schema, table, where.get(f"{schema}.{table}", ""))
                readable = await asyncio.to_thread(reader.describe, schema, table, condition)
                progress.append(TableProgress(schema, table, condition, readable.expected))
        finally:
            await asyncio.to_thread(reader.close)
        return progress

    async def _condition(self, wanted: Wanted, schema: str, table: str, more: str) -> str:
        """Return the condition of a client on rows of a table, joined with another one. Raises BadParameterError."""
        conditions = None if wanted.rows is None else compile_where(wanted.rows.text).conditions
        test = None if conditions is None else conditions.of(schema, table)
        if conditions is None or test is None:
            return more
        masks = self.config.masks().of(schema, table)
        if masked := next((leaf.column for leaf in leaves(test) if leaf.column.upper() in masks), ""):
            raise BadParameterError(
                f"{schema}.{table}.{masked} is masked, and the client has a condition on it: a snapshot, which the"
                " source's own values are compared for, would have other rows",
                "tables",
            )
        columns = await self.columns(schema, table)
        stamps = {it.name.upper() for it in columns if it.data_type == "timestamp"}
        local = next((leaf.column for leaf in leaves(test) if leaf.column.upper() in stamps), "")
        if local and not is_utc(self.config.time_zone):
            raise BadParameterError(
                f"{schema}.{table}.{local} is a TIMESTAMP, and the client has a condition on it, in the zone of"
                " sluice.instance.timeZone: the source compares in UTC. Set that to UTC, or take the snapshot without"
                " the condition",
                "tables",
            )
        own = conditions.text_of(schema, table)
        return f"({own}) AND ({more})" if more.strip() else own

    def tend_snapshots(self) -> None:
        """Read for the clients that take snapshots, after one of these was begun, paused or taken from."""
        if self._snapshots is not None:
            self._snapshots.tend()

    def share_filter(self, text: str) -> None:
        """Make the filter of a client that of the destination, if that is the rule. Raises FilterError."""
        if not (self.config.shared_filter and text):
            return
        config = self.config.model_copy(update={"filter_regex": text})
        self._filter = config.table_filter()
        self.config = self.catch_up.config = config
        if self._parser is not None:
            self._parser.refilter(self._filter)

    def compile_filter(self, text: str) -> Callable[[str, str], bool] | None:
        """Return what says of a table whether it passes a client's filter; None for all. Raises FilterError."""
        if self.config.shared_filter:
            TableFilter(text)
            return None
        return self._filter.narrow(text).accepts

    async def check_where(self, text: str) -> None:
        """Make sure that rows can be judged by the conditions of a client, as far as the source can be asked.

        Raises FilterError, and SourceError when the source does not answer.
        """
        parser = self.running_parser()
        conditions = (await asyncio.to_thread(compile_where, text)).conditions
        for schema, table in conditions.tables:
            if not self._filter.accepts(schema, table):
                raise FilterError(f"{schema}.{table}: the destination does not deliver this table")
        await asyncio.to_thread(parser.check_conditions, conditions)

    def running_parser(self) -> Parser:
        """Return what fills the ring. Raises as `check_running`."""
        self.check_running()
        assert self._parser is not None
        return self._parser

    def tell(self, state: str, error: str) -> None:
        """Say how the stream is."""
        for view in self._open_views:
            view.tell(state, error)
        self._set_state(state, error)

    def _set_state(self, state: str, error: str) -> None:
        if (state, error) != (self.state, self.error):
            log = logger.error if error else logger.info
            text = f"{self._title}{state}{f': {error}' if error else ''}"
            log("%s", text, extra={"destination": self.config.destination})
        self.state, self.error = state, error
        self.wake()

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        self._notified.clear()
        if self._log_writer is not None:
            self._log_writer.wake()
        self._tend()

    def _tend(self) -> None:
        self._attempt(self.cursors.advance, time.monotonic())
        for one in (self, *self._open_views):
            one.note_refused()
        self._attempt(self.tend_readers)
        self.judge()
        self.wake()

    def note_refused(self) -> None:
        """Say which clients are served no longer because of their conditions on rows."""
        for client_id in self.cursors.take_refused():
            logger.error(
                "client %d is not served any more: %s. Let it subscribe with other conditions; its cursor is kept",
                client_id,
                self.cursors.status(client_id).error,
                extra={"destination": self.config.destination},
            )

    def _note_verdicts(self) -> None:
        """Go on with what the conditions on rows of clients have been judged of."""
        self._tend()
        self.catch_up.wake()

    def judge(self) -> None:
        """Have the conditions on rows of clients judged of what has come, those of views' clients too."""
        self._attempt(self._judging.tend, [self.ring, *self.catch_up.rings])

    def expire(self) -> None:
        """Remove the clients that have made no call for too long."""
        for client_id in self.cursors.expire(time.monotonic()):
            text = "client %d made no call for too long: it is removed, together with its cursor"
            logger.warning(text, client_id, extra={"destination": self.config.destination})

    def _attempt(self, call: Callable[..., object], *arguments: object) -> None:
        """Do on the event loop what the stream asks for. If that raises, which is not foreseen, the destination fails.

        Otherwise the destination would say that it runs, and its clients would wait for ever.
        """
        try:
            call(*arguments)
        except Exception as error:  # noqa: BLE001  whatever it is, the destination fails
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Stop serving, and say so, after an error in Sluice itself."""
        logger.error("the destination has failed", exc_info=error, extra={"destination": self.config.destination})
        failure = f"{type(error).__name__}: {error}; stop and start it, and report what the log says"
        if self._parser is not None:
            self._parser.stop()
        self.end_in(failure)

    def end_in(self, failure: str) -> None:
        """Serve no longer because of a failure of the stream."""
        for view in self._open_views:
            view.end_in(failure)
        self._failure = failure
        self._set_state("error", failure)

    def _make_feed(
        self,
        config: InstanceConfig,
        ring: Ring,
        *,
        start: Cursor,
        on_begin: Callable[[Position | None, GtidSet | None], None],
        on_state: Callable[[str, str], None],
        stop: Position | None = None,
    ) -> Feed:
        """Make what fills the ring of a catch-up reader: from the log, and from the source what that lacks."""
        log, place = self.cursors.track.log, start.position
        if log is not None and place is not None:
            return LogReader(log, self._make_parser, config, ring, start=start, on_begin=on_begin, on_state=on_state)
        return self._make_parser(config, ring, start=start, on_begin=on_begin, on_state=on_state, stop=stop)

    def _note_log(self, problem: str) -> None:
        """Say why the log cannot be written; an empty text when it can be again."""
        self._set_state(self.state, self._failure or problem)

    def _log_ended(self, writing: asyncio.Task[None]) -> None:
        error = None if writing.cancelled() else writing.exception()
        if isinstance(error, Exception) and self._parser is not None:
            self.fail(error)
        elif error is not None:
            logger.error("the log was not closed", exc_info=error, extra={"destination": self.config.destination})

    def tend_readers(self) -> None:
        """Give readers to the clients that are behind the ring, and take them from those that have joined or failed."""
        for one in (self, *self._open_views):
            one.drop_lost()
        self.catch_up.tend(self.cursors, time.monotonic())

    def drop_lost(self) -> None:
        """Tell the clients whose readers cannot go on."""
        for client_id in self.cursors.catching_up:
            reader = self.catch_up.clients.get(self.cursors.key(client_id))
            error = reader.error if reader is not None else None
            if isinstance(error, PurgedError) or not isinstance(error, SourceError | None):
                self._fall_out(client_id, error)

    def wake(self) -> None:
        """Make all waiters look again, those of views too."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        for view in self.views:
            view.wake()

    async def wait(self, seconds: float) -> None:
        """Wait until something may have changed, at most ``seconds``."""
        # Without a free reader the next look is soon enough: where many clients wait, each would look at all of them.
        if self.cursors.wants_reader and self.catch_up.turns.has_room:
            self._attempt(self.tend_readers)
        self.judge()
        changed = self._changed
        try:
            async with asyncio.timeout(None if seconds == float("inf") else seconds):
                await changed.wait()
        except TimeoutError:
            return

    async def name_place(self, client_id: int) -> None:
        """Wait until the place where a new client begins has a name, which can be stored.

        It has none before the source has said where the stream begins. If that takes more than a few seconds, or the
        source cannot be reached, the client begins with the stream, whenever that is.
        """
        deadline = time.monotonic() + BEGINNING
        while self.state == "starting" and not self.cursors.status(client_id).position:
            if (left := deadline - time.monotonic()) <= 0:
                return
            await self.wait(left)

    async def _look_each_second(self) -> None:
        """Run whatever is due, however rarely something is put, called or stored."""
        while not self._failure:
            await asyncio.sleep(GLANCE)
            self._attempt(self.ring.pool.trim)
            if any(it.client_ids for it in self.cursors.members) or self.catch_up.count:
                for one in (self, *self._open_views):
                    self._attempt(one.expire)
                self._tend()

    # --- storing -----------------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Return when every change until now is durable. Calls that come together share one write.

        Raises NotStoredError when they cannot be stored now, and FencedError; they are then kept for the next attempt.
        """
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._commits.wait(stored):
            self._write(self._commits)
            await stored

    async def confirm(self, *, durable: bool) -> None:
        """Make an ack durable if the caller or the store wants that; else it is stored later. Raises as `flush`."""
        if durable or self.config.meta.ack_waits:
            await self.flush()
        elif self.config.meta.writes_at_once:
            self._unstored.set()

    def _write(self, commits: Commits["asyncio.Future[None]"]) -> None:
        """Begin the next write, unless one is under way; a caller that goes away does not interrupt it."""
        changes = commits.begin()
        if changes is not None:
            writing = asyncio.create_task(self._store(commits, changes), name=f"store {self.config.destination}")
            self._writing.add(writing)
            writing.add_done_callback(self._writing.discard)

    async def _store(
        self, commits: Commits["asyncio.Future[None]"], changes: Mapping[int, StoredClient | None]
    ) -> None:
        """Write changes, tell the waiters, and go on with the next write if any wait for that."""
        failure: Exception | None = None
        try:
            await self._meta.write(changes, self.cursors.epoch)
        except SluiceError as error:
            failure = error
        except OSError as error:
            failure = NotStoredError(f"cursors cannot be stored: {error}")
        except Exception as error:  # they are kept, and the next attempt may succeed
            logger.exception("cursors cannot be stored", extra={"destination": self.config.destination})
            failure = NotStoredError(f"cursors cannot be stored: {type(error).__name__}: {error}")
        for stored in commits.end(durable=failure is None):
            if stored.done():
                continue
            if failure is None:
                stored.set_result(None)
            else:
                stored.set_exception(failure)
        if commits.wanted:
            self._write(commits)

    async def _flush_each_period(self) -> None:
        failed = False
        while not self._failure:
            if self.config.meta.writes_at_once:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.config.flush_period):
                        await self._unstored.wait()
                self._unstored.clear()
            else:  # costs half of that, and a server may have a thousand destinations
                await asyncio.sleep(self.config.flush_period)
            try:
                await self.flush()
            except SluiceError as error:
                failed = True
                self._set_state(self.state, self._failure or str(error))
            except Exception as error:  # noqa: BLE001  as `_attempt`
                self.fail(error)
            else:
                if failed and not self._failure:
                    failed = False
                    self._set_state(self.state, "")


class View(Instance):
    """A destination that shares source, ring and log of another one, its main. All methods belong to the event loop.

    It has clients, cursors, a filter of tables and a state of its own, and begins and ends with its main.
    """

    main: Instance | None = None
    """The destination that it is a view of, if that is there. Nothing is served before that is, and has admitted it."""
    is_wanted = True
    """It is served whenever its main is: nobody has stopped it."""
    is_open = False
    """Its clients are loaded, and nobody else can change what is stored of them."""
    _epoch = 0

    def _make_ring(self, epoch: int) -> None:
        """Be without a stream, in which the clients would have places."""
        self.ring = Ring(2, 1)
        self.cursors = Cursors(self.ring, epoch=epoch, compile_filter=self.compile_filter)
        self._commits = Commits(self.cursors)
        self.catch_up = CatchUp(self.config, self._make_feed, self.wake)

    async def start(self) -> None:
        """Serve at once if its main is served, else as soon as it is; ``state`` and ``error`` say why it waits."""
        if self.main is not None and self.main.state not in ("stopped", "standby"):
            await self.main.admit(self)
        else:
            self.wait_for_main()

    async def open(self) -> bool:
        """Load the clients, and return whether this call has. What goes wrong keeps neither its main nor others."""
        if self.is_open or self.state == "starting":
            return False
        self._set_state("starting", "")
        try:
            self._epoch, clients = await self._meta.open()
            await self._load(clients)
        except Exception as error:
            if not isinstance(error, SluiceError):
                logger.exception("it cannot start", extra={"destination": self.config.destination})
            await self._meta.close()
            self._set_state("stopped", str(error) or type(error).__name__)
            return False
        self.is_open = self.is_wanted
        if not self.is_open:  # it was stopped meanwhile
            await self._meta.close()
        return self.is_open

    @property
    def source_status(self) -> SourceStatus | None:
        """See `Instance.source_status`: it is that of its main."""
        return self.main.source_status if self.main is not None else None

    async def switch_source(self, address: str = "", *, accept: bool = False) -> None:
        """Refuse: it has the source of its main. Raises BadParameterError."""
        del address, accept
        raise BadParameterError(
            f"{self.config.destination} is a view: sluice source switch {self.config.route} switches the source of both"
        )

    async def load_again(self) -> None:
        """Get ready to begin again with the clients as they are."""
        await self._load(self.cursors.stored())

    def attach(self) -> None:
        """Give the clients their places in the stream of its main."""
        main = self.main
        assert main is not None
        self._failure = ""
        self.ring, self.catch_up, self.snapshot_turns = main.ring, main.catch_up, main.snapshot_turns
        self.cursors = Cursors(
            main.ring,
            epoch=self._epoch,
            compile_filter=self.compile_filter,
            compile_where=compile_where,
            detach_after=main.config.patience,
            expire_after=self.config.client_expiry,
            main=main.cursors,
            passes=self._filter.accepts,
        )
        self._commits = Commits(self.cursors)
        self._restore()

    def serve(self, parser: Parser) -> None:
        """See `Instance.serve`."""
        super().serve(parser)
        assert self.main is not None
        self._set_state(self.main.state, self.main.error)

    async def stop(self) -> None:
        """Leave the stream of its main, which goes on: hold nothing of it, and store the cursors."""
        serves = self._parser is not None
        self.is_wanted = False
        self.leave("stopped")
        if self.main is not None:
            self.main.views = [it for it in self.main.views if it is not self]
        try:
            if serves:
                self.cursors.leave()
                await self.settle()
        finally:
            self._stored = self.cursors.stored()
            self._make_ring(0)
            self._restore()
            await self.close()

    async def close(self) -> None:
        """Let another process use what is stored of the clients."""
        if self.is_open:
            self.is_open = False
            await self._meta.close()

    def refuse_to_start(self, error: SluiceError) -> None:
        """Say that it cannot be served as it is configured now."""
        self._set_state("stopped", str(error))

    def wait_for_main(self) -> None:
        """Say that it is not served because its main is not."""
        if self.main is not None and self.main.state == "standby":
            self.stand_by()
            return
        self._set_state("stopped", "")  # nothing is wrong with it: in the log that would be an error
        self.error = f"destination {self.config.route}, of which it is a view, does not run"

    def seek_start(self) -> None:
        """See `Instance.seek_start`."""
        if self.main is not None:
            self.main.seek_start()

    def compile_filter(self, text: str) -> Callable[[str, str], bool] | None:
        """See `Instance.compile_filter`; what the view does not have passes no filter."""
        passes, wanted = self._filter.accepts, self._filter.narrow(text).accepts
        return lambda schema, table: passes(schema, table) and wanted(schema, table)

    def tend_readers(self) -> None:
        """See `Instance.tend_readers`."""
        if self.main is not None:
            self.main.tend_readers()

    def judge(self) -> None:
        """See `Instance.judge`."""
        if self.main is not None:
            self.main.judge()

    def fail(self, error: Exception) -> None:
        """Stop serving with its main: whatever has failed, they share it."""
        if self.main is not None:
            self.main.fail(error)


@functools.lru_cache(64)
def compile_where(text: str) -> "RowConditions":
    """Read the conditions on rows of a client, in a thread when they are new. Raises FilterError."""
    from .sources.judging import RowConditions  # noqa: PLC0415  its parser takes time and memory, and few need it

    return RowConditions(text)


def make_meta(config: InstanceConfig) -> MetaStore:
    """Make the configured store of clients. Raises ConfigError for a store that several servers share."""
    if config.meta.make is None:
        raise ConfigError(f"cursors are kept in ZooKeeper ({config.meta}), which only a group of servers uses")
    return config.meta.make(config)
