"""One destination: the life cycle of its ring, its log, and the parser that fills them."""

import asyncio
import functools
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import NoReturn

from ...protocol.cut import ONE, Before, parse_place, places_in
from ...protocol.errors import BadParameterError, DestinationStoppedError, NotStoredError, PurgedError, SluiceError
from ...protocol.gtid import GtidSet
from ...protocol.member import name_again
from ...protocol.position import Position
from ...store.admission import Defaults
from ...store.batch import LateRows
from ...store.commits import Commits
from ...store.cursor import OLDEST, Cursor, place_of, starts
from ...store.cursors import Cursors
from ...store.log.log import Log
from ...store.log.shapes import difference, of_both
from ...store.moves import Gate
from ...store.ring import Ring
from ..conditions.judging import Judging
from ..config import InstanceConfig
from ..meta.base import HeldError, InUse, MetaStore
from ..quarantine import keep_late, path_of, remove
from ..source import Grouped, Parser, ParserFactory
from ..status import SourceStatus
from .catchup import CatchUp
from .given import Given
from .log import LogWriter, open_log
from .member import MemberSource
from .serving import compile_where
from .switch import SourceSwitch
from .view import Main, View

logger = logging.getLogger(__name__)

CLOSING = 3.0
"""Seconds that the parser has to end when the destination stops."""
STOPPED = 1 << 40
"""The first of the numbers that stand, among the keys of clients, for those of views that are stopped."""
DRAINING = 5.0
"""Seconds that outputs have, before another source is read without GTIDs, to apply what was read of the former one."""
GLANCE = 1.0
"""Seconds between two looks at which clients hold others back, whose turns are over, and which have expired."""


class Instance(Main):
    """A destination that reads a source. All methods belong to the event loop."""

    def __init__(
        self,
        config: InstanceConfig,
        make_parser: ParserFactory,
        meta: MetaStore | None = None,
        check_active: Callable[[], None] | None = None,
    ) -> None:
        """Nothing runs before `start`. For the arguments see `Serving`."""
        super().__init__(config, make_parser, meta, check_active)
        self._log_writer: LogWriter | None = None
        self._log_writing: asyncio.Task[None] | None = None
        self._moved = (-1, 0.0)
        """Where the ring began when last looked at, and since when (monotonic) it is full and begins there."""
        self._notified = threading.Event()
        self._removed: set[str] = set()
        """The members that were removed before the stream began, or whose ends are written down."""
        self._stopped_views: dict[str, Mapping[int, Cursor]] = {}
        """Where the protected clients of each view are that is not served."""
        self.name, self.member = config.destination, ONE
        self.turns = asyncio.Lock()
        """Of its sources: one is switched at a time."""
        self._make_ring(0)
        self._switches: dict[str, SourceSwitch] = {}
        """Of its single source, or of the members of a group, by their names."""

    def _make_ring(self, epoch: int) -> None:
        """Make an empty ring, and cursors in it."""
        config = self.config
        self.ring = Ring(config.memory_buffer_size, config.memory_buffer_size * config.memory_buffer_memunit)
        self.cursors = Cursors(
            self.ring,
            epoch=epoch,
            compile_filter=self.compile_filter,
            compile_where=compile_where,
            detach_after=config.patience,
            catches_up=config.catch_up_readers > 0,
            keeps=bool(config.others),
            gate=self.gate,
            defaults=Defaults(
                texts=config.shared_filter or config.passes_texts(self._filter),
                limits=config.client_limits,
                expire_after=config.client_expiry,
            ),
        )
        self._commits = Commits(self.cursors.clients)
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
            self.gate = Gate(self._meta.moves)
            self._use(self.configured.using(self._meta.source))
            self._note_epoch(epoch)
            await self._load(clients)
            views = self.views
            for view in views:
                await view.open()
            await self._begin(epoch)
            await self._admit_late(views)
        except Exception as error:  # noqa: BLE001  others can start, whatever it is
            await self._give_up(error)

    def _note_epoch(self, epoch: int) -> None:
        """Write the epoch of this life to Sluice's log."""
        logger.info("epoch %d", epoch, extra={"destination": self.config.destination})

    async def _give_up(self, error: Exception) -> NoReturn:
        """Stay stopped, because of an error."""
        await self._meta.close()
        if self.state == "starting":  # else it was given up meanwhile
            self._set_state("stopped", str(error))
            self.held = error if isinstance(error, HeldError) else None
        for view in self.views:
            await view.close()
            view.wait_for_main()
        if isinstance(error, SluiceError):
            raise error
        logger.error("it cannot start", exc_info=error, extra={"destination": self.config.destination})
        raise SluiceError(f"it cannot start: {type(error).__name__}: {error}") from error  # others can

    async def _begin(self, epoch: int, earlier: Cursors | None = None) -> None:
        """Serve clients; ``earlier`` have served them before in the same epoch."""
        log = await asyncio.to_thread(open_log, self.config, self._meta.source) if self.config.has_log else None
        try:
            if earlier is not None:  # it may have been given up meanwhile
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
            one.pass_removed_before(self._removed)
        self._periodic.append(asyncio.create_task(self._look_each_second(), name=f"look {self.config.destination}"))
        parser.start()
        for name in self.config.sources():
            self.switch_of(name).attend(parser)

    def _prepare(self, epoch: int, log: Log | None) -> Parser:
        """Make a new ring and new cursors, and the parser that will fill the ring."""
        self._failure = ""
        self._make_ring(epoch)
        self._log_writer = None
        if log is not None:
            self._log_writer = LogWriter(log, self.cursors, self.config, self._note_log, self._tend)
            if self._stopped_views:
                self._keep_for_views()
        self._restore()
        for view in self._open_views:
            view.attach()
        removed = {name for one in (self, *self._open_views) for name in one.gate.removed_members}
        if again := sorted(removed & self.config.sources().keys()):
            raise name_again(again[0])
        places = self._places()
        self._removed = self._without_sources(it.position for it in places if it is not None)
        parser = self.make_feeder(self.config, places, epoch)
        self._announce_shape(parser)
        return parser

    def _announce_shape(self, parser: Parser) -> None:
        """Let a parser say in the stream that the log was written with another configuration."""
        log = None if self._log_writer is None else self._log_writer.log
        if log is not None and (before := log.shape_before(shape := self.config.shape())) is not None:
            change = difference(*of_both(before, shape))
            logger.warning(
                "a marker in the stream will say: %s", change, extra={"destination": self.config.destination}
            )
            parser.announce(change)

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

        def on_begin(position: Position | None, gtids: Before) -> None:
            read = cursors.position_before(ring.next) if ring.next else None
            cursors.begin(position, gtids)
            if parser.refused:
                loop.call_soon_threadsafe(in_loop, self.refuse, parser.refused)
            if isinstance(parser.failure, PurgedError) and self.config.auto_reset_latest_pos_mode:
                loop.call_soon_threadsafe(in_loop, self._pass_gap, _cause(parser.failure), read, position)
            on_put()

        def on_state(state: str, error: str) -> None:
            if state == "error":
                refused = [f"; the switch to another source was refused: {it}" for it in self._refusals]
                error = "".join([error, *refused])
                loop.call_soon_threadsafe(in_loop, cursors.snapshots.end_windows)
            loop.call_soon_threadsafe(in_loop, self._tell_reading, state, error)

        def keep_start(member: str, place: Position, gtids: GtidSet | None) -> Future[None]:
            return asyncio.run_coroutine_threadsafe(self._keep_start(cursors, member, place, gtids), loop)

        self.ring.on_put = on_put
        start, *later = places
        parser = self._make_parser(
            config, ring, start=start, later=later, on_begin=on_begin, on_state=on_state, epoch=epoch
        )
        if isinstance(parser, Grouped):
            parser.use_keep_start(keep_start)
        return parser

    async def _keep_start(self, cursors: Cursors, member: str, place: Position, gtids: GtidSet | None) -> None:
        """Store with all cursors where a member begins that joins the stream. Raises as `flush`."""
        if cursors is not self.cursors:
            raise DestinationStoppedError("the stream has begun again meanwhile")
        cursors.join_member(member, place, gtids)
        for one in (self, *self._open_views):
            await one.flush()

    def reconfigure(self, config: InstanceConfig) -> bool:
        """Go on with another configuration, if that needs no new beginning; else return False. Raises ConfigError."""
        parser = self._parser
        if parser is None or self.config != self.configured or not self.config.goes_on_with(config):
            return False
        if self.turns.locked():  # a member is switched, and could be removed meanwhile
            return False
        assert isinstance(parser, Grouped)
        parser.reconfigure(config)
        for name in self.config.sources():
            self.switch_of(name).leave()
        self.configured = config
        self._use(config)
        if self._log_writer is not None:
            self._log_writer.reconfigure(config)
        for name in config.sources():
            self.switch_of(name).attend(parser)
        return True

    def _tell_reading(self, state: str, error: str) -> None:
        """Say how the source is read, and what to do for the clients when it has purged what comes next."""
        lost = [
            f"`sluice seek {one.config.destination} {client_id} oldest`"
            for one in (self, *self._open_views)
            for client_id in one.cursors.clients.ids
            if isinstance(self._lost_place(), PurgedError) and one.has_lost_place(client_id)
        ]
        if state == "error" and lost:
            more = f" (so for each client that is lost, {len(lost)} in all)" if len(lost) > 1 else ""
            error = f"{error}. {lost[0]} goes on without that, with all that log and source still have{more}"
        self.tell(state, error)

    def _pass_gap(self, why: str, read: Position | None, begin: Position | None) -> None:
        """Let the clients go on after a gap, and store at once that they do."""
        for one in (self, *self._open_views):
            one.pass_gap(why, read, begin)

    def _places(self) -> list[Cursor | None]:
        """Return where the stream may begin, best first; None means where the configuration says."""
        places = self._client_places()
        if (end := self.log_end()) is not None:
            places[:0] = [end, OLDEST]
        if self.config.auto_reset_latest_pos_mode:  # clients that have lost their places go on, at the current end
            return [place for place in places if place not in (None, OLDEST)] or places
        return places

    def _client_places(self) -> list[Cursor | None]:
        clients = [
            (cursors.clients, client_id) for cursors in self.cursors.with_views for client_id in cursors.clients.ids
        ]
        cursors = [known.cursor(client_id) for known, client_id in clients]
        place = self._meta.place
        return starts(cursors, None if place is None else self.config.adopt(place))

    def log_end(self) -> Cursor | None:
        """Return where the stream goes on so that the log has no gap; None without a log, or if that is too old."""
        return None if self._log_writer is None else self._log_writer.start_after(self._client_places()[0])

    def seek_start(self) -> None:
        """If the stream could not begin, look again where it may begin, now that other clients are subscribed."""
        parser = self._parser
        if parser is not None and self._has_begun and isinstance(parser, Grouped):
            parser.begin_at(self._places())  # a member may have lost its place while the others go on
        if parser is not None and not self._has_begun and self._lost_place() is not None:
            self._set_state("starting", "")
            places = self._places()
            lost = [place for place, error in parser.refused.items() if isinstance(error, PurgedError)]
            if lost and None in places and not self.config.auto_reset_latest_pos_mode:
                # Where the configuration says is the end, mostly: what the source still has would be passed over.
                places = [*dict.fromkeys(it for it in (*places, *lost) if it not in (None, OLDEST)), OLDEST]
            parser.begin_at(places)

    @property
    def _has_begun(self) -> bool:
        return self.cursors.position_before(self.ring.next) is not None

    @property
    def is_stranded(self) -> bool:
        """Whether the source no longer has what comes next, and all have taken what the ring has for them.

        Then the stream may begin at another place, now or as soon as clients are moved or subscribe.
        """
        return self._lost_place() is not None and self._has_begun and not self.is_needed

    @property
    def is_needed(self) -> bool:
        """Whether a client has not taken yet what the ring has for it."""
        known = (cursors.status(it) for cursors in self.cursors.with_views for it in cursors.clients.ids)
        return any(it.state == "attached" and it.lag.entries for it in known)

    async def stop(self) -> None:
        """Store the cursors, end the parser, wake all waiters."""
        self.held = None
        await self._end_switches()
        parser = self._parser
        if parser is None:
            if self.state == "standby":
                self._set_state("stopped", "")
            return
        try:
            await self._end(parser, goes_on=False)
        finally:
            await self._meta.close()
            for view in self.views:
                await view.close()

    def keep_for(self, view: View) -> None:
        """See `Main.keep_for`."""
        self._stopped_views[view.config.destination] = view.needed
        self._keep_for_views()

    def keep_no_more_for(self, view: View) -> None:
        """See `Main.keep_no_more_for`."""
        self._stopped_views.pop(view.config.destination, None)
        self._keep_for_views()

    def _keep_for_views(self) -> None:
        held = (cursor for view in self._stopped_views.values() for cursor in view.values())
        self.cursors.protect_elsewhere(dict(enumerate(held, STOPPED)))

    @property
    def _serving(self) -> Parser | None:
        """The parser, at this moment."""
        return self._parser

    async def admit(self, view: View) -> None:
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

    async def _admit_late(self, known: Sequence[View]) -> None:
        """Serve the views that have come while nothing was served; those that are known have begun with the rest."""
        for view in self.views:
            if view not in known:
                await self.admit(view)

    async def _end(self, parser: Parser, *, goes_on: bool) -> None:
        """Serve no longer, or not until it begins again: store the cursors, end the parser, wake all waiters."""
        serving = (self, *self._open_views)
        for one in serving:
            one.leave("starting" if goes_on else "stopped")
        for switch in self._switches.values():
            switch.leave()
        parser.stop()
        if self._log_writer is not None:
            self._log_writer.stop()
        self.ring.close()
        try:
            # First: a source that does not answer may delay the rest until others have taken over.
            for result in await asyncio.gather(*(one.settle() for one in serving), return_exceptions=True):
                # What begins again keeps what could not be stored: on a full disk nothing would start it later.
                if isinstance(result, BaseException) and not (goes_on and isinstance(result, NotStoredError)):
                    raise result
        finally:
            await self.catch_up.close()
            await asyncio.to_thread(parser.join, CLOSING)
            if self._log_writing is not None:
                await asyncio.wait({self._log_writing}, timeout=CLOSING)

    @property
    def _open_views(self) -> list[View]:
        return [view for view in self.views if view.is_open]

    async def redeliver(self, rows: Sequence[LateRows]) -> dict[str, list[int]]:
        """Give rows that were in quarantine to the clients that have passed their places; return which, by place.

        The others get them in their places: the stream begins again where the clients are, as after a restart. Raises
        SluiceError and OSError; when it cannot begin, it is stopped. After a NotStoredError it goes on, and the rows
        that were given come again with the next try.
        """
        await asyncio.to_thread(keep_late, self._quarantine, rows)
        await self._end_switches()  # last: from here on no other one can begin before nothing is read
        parser, earlier = self.running_parser(), self.cursors
        # No client can pass a place from here on: none is served before its cursor is loaded again.
        clients, give = earlier.clients, earlier.snapshots.give_late
        given = {str(it.position): [one for one in clients.ids if give(one, it)] for it in rows}
        for cursors in earlier.with_views[1:]:
            for it in rows:
                for client_id in cursors.clients.ids:
                    cursors.snapshots.give_late(client_id, it)
        await self.begin_anew(parser, lambda: self._take_off(given))
        return given

    def _take_off(self, positions: Collection[str]) -> None:
        """Take items off the lists of the sources that they are of."""
        for name, source in self.config.main.sources().items():
            places = (places_in(parse_place(it)) for it in positions)
            own = {str(it[name]) for it in places if name in it}
            if own:
                remove(path_of(source.file_data_dir, source.destination), own)

    async def begin_again(self) -> None:
        """Begin the stream again where the clients are, as after a restart: with what the ring has no more.

        Raises SluiceError; when it cannot begin, it is stopped.
        """
        await self._end_switches()
        await self.begin_anew(self.running_parser())

    async def begin_anew(self, parser: Parser, prepare: Callable[[], None] = lambda: None) -> None:
        """End the stream, and begin it where the clients are; ``prepare`` is called between, in another thread.

        Raises NotStoredError while cursors cannot be stored, and then changes nothing: what has ended could not begin.
        """
        for one in (self, *self._open_views):
            await one.flush()
        await self._begin_anew(parser, prepare)

    async def _begin_anew(self, parser: Parser, prepare: Callable[[], None] = lambda: None) -> None:
        earlier, views, served = self.cursors, self.views, self._open_views
        try:
            await self._end(parser, goes_on=True)
            await asyncio.to_thread(prepare)
            await self._load(earlier.clients.stored())
            for view in served:
                await view.load_again()
            await self._begin(earlier.counters.epoch, earlier)
            await self._admit_late(views)
        except Exception as error:  # noqa: BLE001  others can start, whatever it is
            await self._give_up(error)

    @property
    def stuck(self) -> float:
        """See `Serving.stuck`."""
        first, since = self._moved
        return time.monotonic() - since if self.ring.waiting and self.ring.first == first else 0.0

    # --- one source of several ---------------------------------------------------------------------------------------

    @property
    def source_status(self) -> SourceStatus | None:
        """Which of several servers is read; None if there is only one, and no health check, and of a group."""
        return self.switch_of(ONE).status

    @property
    def member_sources(self) -> dict[str, SourceStatus]:
        """See `Serving.member_sources`."""
        found = {name: self.switch_of(name).status for name in self.config.sources() if name != ONE}
        return {name: status for name, status in found.items() if status is not None}

    def switch_of(self, member: str) -> SourceSwitch:
        """Return what switches a member between its servers, or the single source."""
        if member not in self._switches:
            self._switches[member] = SourceSwitch(self if member == ONE else MemberSource(self, member))
        return self._switches[member]

    @property
    def _refusals(self) -> list[str]:
        """Why the last switches of its sources were refused."""
        return [it.refusal for it in self._switches.values() if it.refusal]

    async def _end_switches(self) -> None:
        """Wait until no switch is under way; see `SourceSwitch.end`."""
        await asyncio.gather(*(it.end() for it in self._switches.values()))

    async def switch_source(self, address: str = "", *, member: str = ONE, accept: bool = False) -> None:
        """Read another server with the same data, if it is proven that it goes on where the stream is.

        In a group that is a server of a member. Without an address it is the other one of two. With ``accept``
        also if it lacks transactions that were delivered. Otherwise what was read before is read on, unless that was
        over. Raises:
            ConfigError: there is no other server.
            BadParameterError: the address is none of them, or the member is none of the group.
            LostTransactionsError: it lacks transactions that were delivered.
            SwitchRefusedError: it cannot be known where the stream goes on, or it has purged what comes next.
            SourceError: it does not answer.
            NotStoredError, FencedError: it cannot be stored which one is read.
        """
        self.check_running()
        names = self.config.sources()
        if member not in names:
            choice = ", ".join(names)
            what = (
                f"name one of the members, {choice}" if self.config.is_merged else "it has one source, and no members"
            )
            raise BadParameterError(f"destination {self.name}: {what}", "member")
        await self.switch_of(member).make(address, accept=accept)

    @property
    def epoch(self) -> int:
        """See `sluice.instance.serving.switch.Destination.epoch`."""
        return self.cursors.counters.epoch

    @property
    def given(self) -> Given:
        """See `sluice.instance.serving.switch.Destination.given`."""
        return Given(self.cursors)

    @property
    def chosen(self) -> InUse | None:
        """Which of several servers were chosen; None if none ever was."""
        return self._meta.source

    async def choose(self, chosen: InUse) -> None:
        """Store which of several servers are read, durably. Raises as `MetaStore.keep_source`."""
        await self._meta.keep_source(chosen, self.epoch)

    def make_prover(self, config: InstanceConfig) -> Parser:
        """See `sluice.instance.serving.switch.Destination.make_prover`."""
        return self._make_parser(
            config, self.ring, start=None, on_begin=_ignore, on_state=_ignore, epoch=self.cursors.life
        )

    def probe(self, parser: Parser) -> None:
        """See `sluice.instance.serving.switch.Destination.probe`."""
        parser.probe()

    def reads(self, parser: Parser) -> bool:
        """Whether a parser is the one that fills the ring."""
        return parser is self._parser

    async def stop_reading(self, parser: Parser) -> None:
        """Let a parser end, and ask its source for nothing, until `read_on`."""
        self.switch_of(ONE).leave()
        parser.stop()
        await self._let_rest()
        await asyncio.to_thread(parser.join, CLOSING)

    async def _let_rest(self) -> None:
        while busy := [it for it in (self, *self._open_views) if not it.rests]:
            for one in busy:
                await one.rest()

    def goes_on_in_ring(self, *, is_another: bool) -> bool:
        """Whether the ring can be filled on: between two transactions. A log holds one source after the other."""
        place = self.cursors.track.last_boundary()
        is_between = place is not None and place.position == self.cursors.position_before(self.ring.next)
        return is_between and not (self.config.has_log and is_another)

    def bound_clients(self) -> list[str]:
        """See `sluice.instance.serving.switch.Destination.bound_clients`."""
        found = []
        for one in (self, *self._open_views):
            cursors = {**one.cursors.places.undrained(), **one.cursors.places.bound()}
            for client_id, cursor in sorted(cursors.items()):
                output, _ = one.cursors.admission.owners(client_id) or ("", "")
                whose = f" (output {output})" if output else ""
                found.append(f"{client_id} of {one.config.destination}{whose}, at {place_of(cursor)}")
        return found

    async def drain(self) -> None:
        """See `sluice.instance.serving.switch.Destination.drain`."""
        end = time.monotonic() + DRAINING
        # Tasks of outputs do it; who waits here is told of nothing.
        while time.monotonic() < end and any(it.places.undrained() for it in self.cursors.with_views):  # noqa: ASYNC110
            await asyncio.sleep(GLANCE / 20)

    async def read_on(self, parser: Parser, config: InstanceConfig, place: Cursor | None, *, is_another: bool) -> None:
        """Read the same source, or another one, on from a place, into the same ring if possible.

        ``parser`` has read before.
        """
        goes_on = self.goes_on_in_ring(is_another=is_another)
        self.config = config
        if not goes_on:
            await self._begin_anew(parser)
            return
        for cursors in self.cursors.with_views:
            cursors.readers.leave()
        await self.catch_up.close()
        await self._let_rest()  # a view may have been admitted meanwhile
        self.catch_up = CatchUp(config, self._make_feed, self._tend)
        if is_another:
            for one in (self, *self._open_views):
                one.pass_switch()
            self.cursors.track.switch()
        following = self.make_feeder(config, [place], self.cursors.life)
        self._announce_shape(following)
        for one in (self, *self._open_views):
            one.catch_up = self.catch_up
            one.follow(following)
        following.start()
        self.switch_of(ONE).attend(following)
        self._tend()

    async def read_member_on(self, parser: Parser, member: str, config: InstanceConfig) -> None:
        """Read another server of a member: the stream begins again where the clients are, as after a restart.

        ``parser`` has read before.
        """
        self.config = self.config.with_sources({**self.config.sources(), member: config})
        await self._begin_anew(parser)

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        self._notified.clear()
        if self._log_writer is not None:
            self._log_writer.wake()
        self._tend()

    def _tend(self, *, every: bool = False) -> None:
        """Do what is due after something has come; with ``every`` also what was left for later."""
        self._attempt(functools.partial(self.cursors.advance, time.monotonic(), every=every))
        for one in (self, *self._open_views):
            one.note_refused()
        self._attempt(self.tend_readers)
        self.judge()
        self.wake_concerned()

    def _note_verdicts(self) -> None:
        """Go on with what the conditions on rows of clients have been judged of."""
        self._tend()
        self.catch_up.wake()

    def judge(self) -> None:
        """Have the conditions on rows of clients judged of what has come, those of views' clients too."""
        self._attempt(self._judging.tend, [self.ring, *self.catch_up.rings])

    def fail(self, error: Exception) -> None:
        """Stop serving, and say so, after an error in Sluice itself."""
        logger.error("the destination has failed", exc_info=error, extra={"destination": self.config.destination})
        failure = f"{type(error).__name__}: {error}; stop and start it, and report what the log says"
        if self._parser is not None:
            self._parser.stop()
        self.end_in(failure)

    def tell(self, state: str, error: str) -> None:
        """See `Serving.tell`: so are its views."""
        for view in self._open_views:
            view.tell(state, error)
        super().tell(state, error)

    def refuse(self, refused: Mapping[Cursor, SluiceError]) -> None:
        """See `Serving.refuse`, of all views, too."""
        for view in self._open_views:
            view.refuse(refused)
        super().refuse(refused)

    def end_in(self, failure: str) -> None:
        """See `Serving.end_in`: so do its views."""
        for view in self._open_views:
            view.end_in(failure)
        super().end_in(failure)

    def wake(self) -> None:
        """See `Serving.wake`: those of views, too."""
        for view in self.views:
            view.cursors.resting.rouse_all()
        super().wake()

    def wake_concerned(self) -> None:
        """See `Serving.wake_concerned`: those of views, too."""
        super().wake_concerned()
        for view in self.views:
            view.wake_concerned()

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
        removed = self._without_sources([self.cursors.track.floor])
        if removed and any(it.name in removed for it in self.parser_status.members):
            return  # more of them may come until the parser goes on without them: then it is known what is missing
        if removed:
            self.cursors.snapshots.end_windows(removed)
        if ended := removed - self._removed:
            self._removed |= ended
            for one in (self, *self._open_views):
                one.note_removed(ended)
        for one in (self, *self._open_views):
            one.drop_lost(removed)
            one.pass_removed(removed)
        self.catch_up.tend(self.cursors, time.monotonic())

    def _without_sources(self, places: Iterable[Position | None]) -> set[str]:
        """Return the members of a group that places have, and that are not configured any more."""
        if not self.config.is_merged:
            return set()
        return {name for it in places if it is not None for name in places_in(it)} - self.config.sources().keys()

    async def _look_each_second(self) -> None:
        """Run whatever is due, however rarely something is put, called or stored."""
        while not self._failure:
            await asyncio.sleep(GLANCE)
            self._attempt(self.ring.pool.trim)
            if not self.ring.waiting or self.ring.first != self._moved[0]:
                self._moved = (self.ring.first, time.monotonic())
            if self._parser is not None:
                self._attempt(self.switch_of(ONE).follow, self._parser)
            if any(it.clients.ids for it in self.cursors.with_views) or self.catch_up.count:
                for one in (self, *self._open_views):
                    self._attempt(one.expire)
                self._tend(every=True)


def _ignore(*_: object) -> None:
    """Be told of a parser that never reads."""


def _cause(failure: SluiceError) -> str:
    """Return what an error says first: what is lost. What follows says where else one could go on."""
    return str(failure).partition(". ")[0]
