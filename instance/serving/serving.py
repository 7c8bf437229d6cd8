"""What serves the clients of a stream: their cursors, where these are stored, and what they ask of the source."""

import asyncio
import contextlib
import functools
import logging
import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar
from weakref import WeakValueDictionary

from ...protocol.cut import Before, Cut
from ...protocol.errors import (
    BadParameterError,
    BadPositionError,
    ConfigError,
    DestinationStoppedError,
    FilterError,
    GoneError,
    LimitError,
    NotStoredError,
    OwnedError,
    PurgedError,
    SluiceError,
    SourceChangedError,
)
from ...protocol.position import Position
from ...store.commits import Commits
from ...store.cursor import Changes, Cursor, StoredClient, is_later
from ...store.cursors import Cursors
from ...store.log.log import Extent
from ...store.moves import SERVER, By, Gate
from ...store.ring import Ring
from ...store.snapshot import Selection, TableProgress
from ...store.track import EVERYTHING, Wanted, unknown_start
from ..columns import SourceColumn
from ..conditions.condition import leaves
from ..config import InstanceConfig
from ..meta.base import HeldError, MetaStore
from ..quarantine import path_of, read_late
from ..sink.filters import TableFilter
from ..sink.patterns import TooLargeError
from ..source import LOST, Feed, Parser, ParserFactory
from ..status import ParserStatus, SourceStatus
from ..zones import is_utc
from .backlog import Backlog, BacklogWatch
from .catchup import CatchUp
from .log import LogReader
from .purges import PurgeWatch, Threat
from .snapshots import SnapshotTasks

if TYPE_CHECKING:
    from ...store.batch import LateRows
    from ..conditions.rows import RowConditions

T = TypeVar("T")
logger = logging.getLogger(__name__)

COMPILING: Final = ThreadPoolExecutor(1, "filters")
"""Compiles what clients send. It takes the interpreter's lock from the event loop: one does so at a time."""
MOST_TABLES = 1000
"""Tables of a snapshot at most."""
OLDEST_START = "oldest"
"""Where a client may begin: the oldest place that ring, log or source have."""
TOKEN_SHARE = 4
"""Of what the others leave of that which all clients share: those of the tokens of one name may have this part."""
REFUSED_AGAIN = 60.0
"""Seconds after which it is kept again that a call on an output's client was refused."""
PATIENCE = 3.0
"""Seconds in which the source has to say whether it still has what a cursor is moved over."""
BEGINNING = 5.0
"""Seconds that a subscription waits for the source to say where the stream begins."""


class Serving(ABC):
    """A destination, or a view of one. All methods belong to the event loop.

    Its subclasses make a ring, or are without one, and cursors in it.
    """

    ring: Ring
    cursors: Cursors
    catch_up: CatchUp
    title: ClassVar[str] = ""
    """What Sluice's log has before its state."""
    _commits: Commits[asyncio.Future[None]]

    def __init__(
        self,
        config: InstanceConfig,
        make_parser: ParserFactory,
        meta: MetaStore | None = None,
        check_active: Callable[[], None] | None = None,
    ) -> None:
        """Nothing is served yet.

        Args:
            config: what is configured.
            make_parser: makes the parser.
            meta: where subscriptions and cursors are kept; made as configured if it is not given.
            check_active: raises FencedError unless this server may serve the destination now; None without other
                servers.
        """
        self.configured = config
        """What is configured, and ..."""
        self.config = config
        """... how it is read now: from another server, or by another filter."""
        self.state = "stopped"
        self.error = ""
        self.held: HeldError | None = None
        """Why it could not start, if that is because another process has it."""
        self._failure = ""
        """The error that has stopped the destination; empty while all is well."""
        self._check_active = check_active
        self._make_parser = make_parser
        self._filter = config.table_filter()
        self._filters: WeakValueDictionary[str, TableFilter] = WeakValueDictionary()
        """Those of clients, by their texts."""
        self._compiled: list[TableFilter] = []
        """Those of stored clients, until they are restored."""
        self._meta = meta or make_meta(config)
        self._quarantine = path_of(config.main.file_data_dir, config.main.destination)
        self._parser: Parser | None = None
        self._periodic: list[asyncio.Task[None]] = []
        self._purges: PurgeWatch | None = None
        self._backlogs: BacklogWatch | None = None
        self.gate = Gate()
        """The jumps of its clients."""
        self.snapshot_turns = asyncio.Semaphore(config.snapshot_readers)
        """Views share them."""
        self._snapshots: SnapshotTasks | None = None
        self._writing: set[asyncio.Task[None]] = set()
        self._watching: list[asyncio.Task[None]] = []
        self._stored: Sequence[StoredClient] = ()
        self._adopted: set[int] = set()
        """The clients with which it begins next, and the rows that they are to be given late."""
        self._late: Sequence[LateRows] = ()
        self.owner_sessions: dict[int, str] = {}
        """Those that outputs have opened, by their clients: they outlive a stream that begins again."""
        self._refused: dict[int, float] = {}
        """When that was kept last, of the clients of outputs, on the clock of the calls."""
        self._unstored = asyncio.Event()
        self._changed = asyncio.Event()
        self._resting: dict[int, set[asyncio.Future[None]]] = {}
        """What waits for the clients that rest."""

    @abstractmethod
    async def stop(self) -> None:
        """Serve no longer, and store the cursors; a stopped one stays so."""

    @abstractmethod
    def seek_start(self) -> None:
        """If the stream could not begin, look again where it may begin, now that other clients are subscribed."""

    @abstractmethod
    def tend_readers(self) -> None:
        """Give readers to the clients that are behind the ring, and take them from those that have joined or failed."""

    @abstractmethod
    def judge(self) -> None:
        """Have the conditions on rows of clients judged of what has come."""

    @abstractmethod
    def fail(self, error: Exception) -> None:
        """Stop serving, and say so, after an error in Sluice itself."""

    @property
    @abstractmethod
    def stuck(self) -> float:
        """Seconds for which the parser has waited for room while nobody made any."""

    @property
    @abstractmethod
    def source_status(self) -> SourceStatus | None:
        """Which of several servers is read; None if there is only one, and no health check."""

    @property
    @abstractmethod
    def member_sources(self) -> Mapping[str, SourceStatus]:
        """The same of the members of a group, by their names: of those that have several, or a health check."""

    # --- serving ------------------------------------------------------------------------------------------------------

    def serve(self, parser: Parser) -> None:
        """Serve the clients with what a parser reads."""
        self.follow(parser)
        self._periodic = [
            asyncio.create_task(self._flush_each_period(), name=f"flush {self.config.destination}"),
        ]

    def follow(self, parser: Parser) -> None:
        """Serve the clients with what another parser reads into the same ring."""
        for task in self._watching:
            task.cancel()
        self._parser = parser
        name, clients = self.config.destination, self.cursors.clients
        self._purges, self._backlogs = PurgeWatch(name, clients, parser), BacklogWatch(name, clients, parser)
        self._watching = [
            asyncio.create_task(self._purges.run(), name=f"watch purges of {name}"),
            asyncio.create_task(self._backlogs.run(), name=f"measure what waits for clients of {name}"),
        ]
        taken, reader = self.cursors.snapshots, parser.table_reader
        self._snapshots = SnapshotTasks(self.config, taken, reader, self.wake, self.snapshot_turns)
        self._snapshots.tend()

    @property
    def rests(self) -> bool:
        """Whether nothing is asked of the source for the clients."""
        return self._snapshots is None

    async def rest(self) -> None:
        """Ask nothing of the source any more for the clients, until `follow`."""
        for task in self._watching:
            task.cancel()
        snapshots, self._snapshots = self._snapshots, None
        if snapshots is not None:
            await snapshots.close()
        self.cursors.snapshots.end_windows()

    def leave(self, state: str) -> None:
        """Serve no longer, from here on."""
        self._parser = None
        self._set_state(state, "")
        for task in (*self._periodic, *self._watching):
            task.cancel()

    async def settle(self) -> None:
        """Store the cursors as they are when nothing is served any more. Raises as `flush`; then no write goes on."""
        if self._snapshots is not None:
            await self._snapshots.close()
        self.cursors.readers.leave()
        try:
            await self.flush()
        finally:
            while self._writing:  # of others that have waited; a later one must not come before it
                await asyncio.wait(self._writing)

    def stand_by(self) -> None:
        """Say that another server has, or can have, the destination: this one is ready to start it."""
        self._set_state("standby", "")

    def tell(self, state: str, error: str) -> None:
        """Say how the stream is."""
        self._set_state(state, error)

    def _set_state(self, state: str, error: str) -> None:
        if (state, error) != (self.state, self.error):
            log = logger.error if error else logger.info
            text = f"{self.title}{state}{f': {error}' if error else ''}"
            log("%s", text, extra={"destination": self.config.destination})
        self.state, self.error = state, error
        self.wake()

    def end_in(self, failure: str) -> None:
        """Serve no longer because of a failure of the stream."""
        self._failure = failure
        self._set_state("error", failure)

    def _attempt(self, call: Callable[..., object], *arguments: object) -> None:
        """Do on the event loop what the stream asks for. If that raises, which is not foreseen, the destination fails.

        Otherwise the destination would say that it runs, and its clients would wait for ever.
        """
        try:
            call(*arguments)
        except Exception as error:  # noqa: BLE001  whatever it is, the destination fails
            self.fail(error)

    # --- clients ------------------------------------------------------------------------------------------------------

    async def _load(self, clients: Sequence[StoredClient]) -> None:
        """Get ready to begin with clients as they are stored. Raises ConfigError for places of another kind of source.

        Places that the source adopts are stored again.
        """
        adopt = self.config.main.adopt
        cursors = {it.client_id: adopt(it.cursor) for it in clients if it.cursor is not None}
        self._adopted = {it.client_id for it in clients if cursors.get(it.client_id) != it.cursor}
        clients = [replace(it, cursor=cursors[it.client_id]) if it.client_id in self._adopted else it for it in clients]
        for client in clients:
            if client.where:
                with contextlib.suppress(FilterError):  # said when the client is restored
                    await _compiling(compile_where, client.where)
        for text in {client.filter for client in clients if client.filter}:
            with contextlib.suppress(FilterError):
                compiled = self._filters.get(text)
                if compiled is None:
                    compiled = self._filters[text] = await self._compile_stored(text)
                self._compiled.append(compiled)
        needed = {position for client in clients for position in client.late}
        self._stored, self._late = clients, await asyncio.to_thread(read_late, self._quarantine, needed)

    def _restore(self) -> None:
        """Take stored clients over."""
        clients = self._stored
        self.cursors.expect(self._late, self._adopted)
        for client in clients:
            try:
                self.share_filter(client.filter)
            except FilterError as error:
                logger.error("%s", error, extra={"destination": self.config.destination})  # noqa: TRY400  says all
        now = time.monotonic()
        for client in clients:
            self.cursors.restore(client, now, self.owner_sessions.get(client.client_id) if client.output else None)
            status = self.cursors.status(client.client_id)
            if status.error:
                help_ = "Move its cursor (sluice seek), or bring the source back that it belongs to"
                if status.problem == FilterError.type:
                    help_ = "Let it subscribe with another filter, or other conditions on rows"
                logger.error(
                    "client %d is not served: %s. %s; its cursor is kept",
                    client.client_id,
                    status.error,
                    help_,
                    extra={"destination": self.config.destination},
                )
        self._compiled.clear()

    def pass_gap(self, why: str, read: Position | None, begin: Position | None) -> None:
        """Let the clients that wait for what is lost go on after it, and store that at once; see `Places.pass_gap`."""
        self._tell_gaps(self.cursors.places.pass_gap(why, read, begin, moved_now()))

    def pass_removed(self, names: Collection[str]) -> Sequence[int]:
        """Let the clients go on that lack something of members that were removed; see `Places.pass_removed`."""
        if passed := self.cursors.places.pass_removed(names, moved_now()):
            self._tell_gaps(passed)
        return passed

    def note_removed(self, names: Collection[str]) -> None:
        """Write down where members end that are read no longer, and store that; see `Places.note_removed`."""
        self.cursors.places.note_removed(names, moved_now())
        self._write(self._commits)

    def pass_removed_before(self, names: Collection[str]) -> None:
        """Tell the clients of members that were removed while nothing was served; see `Places.pass_removed_before`."""
        if passed := self.cursors.places.pass_removed_before(names, moved_now()):
            self._tell_gaps(passed)

    def pass_switch(self) -> None:
        """Let the clients go on with what is read next that are bound to the source that was read so far.

        That is stored at once; see `Places.pass_switch`.
        """
        why = "another source is read, and only the former one knows the place"
        self._tell_gaps(self.cursors.places.pass_switch(why, moved_now()))

    def _tell_gaps(self, client_ids: Sequence[int]) -> None:
        """Say which clients have passed over something, and store that."""
        for client_id in client_ids:
            logger.error(
                "client %d does not get %s. It gets a marker instead; `sluice gaps confirm %s %d` confirms that",
                client_id,
                self.gate.gaps(client_id)[-1],
                self.config.destination,
                client_id,
                extra={"destination": self.config.destination},
            )
        self._write(self._commits)
        self.wake()

    def refuse(self, refused: Mapping[Cursor, SluiceError]) -> None:
        """Tell the clients that have lost their places; the stream has begun without them."""
        for client_id in self.cursors.clients.ids:
            cursor = self.cursors.places.awaited(client_id)
            if cursor is not None and cursor in refused and not self.cursors.track.is_logged(cursor):
                self._fall_out(client_id, refused[cursor])

    def _fall_out(self, client_id: int, error: SluiceError) -> None:
        error = self._with_advice(error, client_id)
        self.cursors.fall_out(client_id, error)
        logger.error(
            "client %d is not served any more: %s. Its cursor stays at %s. To continue without the lost changes,"
            " move its cursor (sluice seek), or unsubscribe it and let it subscribe again",
            client_id,
            error,
            self.cursors.status(client_id).position,
            extra={"destination": self.config.destination},
        )

    def _with_advice(self, error: SluiceError, client_id: int) -> SluiceError:
        """Say in an error for a client how it goes on without what is purged."""
        if not isinstance(error, PurgedError):
            return error
        return PurgedError(
            f"{error}. `sluice seek {self.config.destination} {client_id} oldest` goes on without that, with all that"
            " log and source still have"
        )

    def drop_lost(self, removed: Collection[str]) -> None:
        """Tell the clients whose readers cannot go on, when they have confirmed what these have read.

        They go on if all that keeps them from it are members that were removed: see `Places.pass_removed`.
        """
        for client_id in self.cursors.readers.catching_up:
            reader = self.catch_up.clients.get(self.cursors.clients.key(client_id))
            error = reader.error if reader is not None else None
            if isinstance(error, LOST) and not self.cursors.readers.has_more(client_id):
                self.cursors.readers.stop(client_id)
                if client_id not in self.pass_removed(removed):
                    self._fall_out(client_id, error)

    def note_refused(self) -> None:
        """Say which clients are served no longer because of their conditions on rows."""
        for client_id in self.cursors.take_refused():
            logger.error(
                "client %d is not served any more: %s. Let it subscribe with other conditions; its cursor is kept",
                client_id,
                self.cursors.status(client_id).error,
                extra={"destination": self.config.destination},
            )

    def note_refused_call(self, client_id: int, call: str, error: OwnedError) -> None:
        """Keep, and say, that a call was refused because the client is that of an output: once a minute at most."""
        now = time.monotonic()
        if now < self._refused.get(client_id, -math.inf) + REFUSED_AGAIN:
            return
        self._refused[client_id] = now
        text = "%s on client %d is refused: %s"
        logger.warning(text, call, client_id, error, extra={"destination": self.config.destination})
        when = datetime.now(UTC).isoformat(timespec="seconds")  # noqa: TID251  outlives the process
        self.cursors.admission.note_refused_call(client_id, f"{when} {call}")

    def expire(self) -> None:
        """Remove the clients that have made no call for too long."""
        for client_id in self.cursors.expire(time.monotonic(), moved_now()):
            text = "client %d made no call for too long: it is removed, together with its cursor"
            logger.warning(text, client_id, extra={"destination": self.config.destination})

    def share_filter(self, text: str) -> None:
        """Make the filter of a client that of the destination, if that is the rule. Raises FilterError."""
        if not (self.config.shared_filter and text):
            return
        self._filter = self._compiled_filter(text)
        self._use(self.config.model_copy(update={"filter_regex": text}))
        if self._parser is not None:
            self._parser.refilter(self._filter)

    def _use(self, config: InstanceConfig) -> None:
        """Read as is configured there from now on."""
        self.config = config
        self.catch_up.reconfigure(config)

    def compile_filter(self, text: str) -> TableFilter | None:
        """Return what says of a table whether it passes a client's filter; None for all. Raises FilterError.

        Clients with the same filter have it in common.
        """
        found = self._compiled_filter(text)
        return None if self.config.shared_filter or found.passes_all else found

    def _compiled_filter(self, text: str) -> TableFilter:
        found = self._filters.get(text)
        if found is None:
            found = self._filters[text] = self._narrow(text)
        return found

    def _narrow(self, text: str, most: int | None = None) -> TableFilter:
        if self.config.shared_filter:
            return TableFilter(text, self.config.filter_black_regex, most=most)
        return self._filter.narrow(text, most)

    async def _compile_stored(self, text: str) -> TableFilter:
        """Compile in a thread a filter that a client has, whatever its size. Raises FilterError."""
        try:
            return await _compiling(self._narrow, text, sys.maxsize)
        except TooLargeError:  # for its parts there is less room than for the whole
            return await _compiling(self._narrow, text)

    async def narrow(self, text: str) -> TableFilter:
        """Compile a filter of somebody else in a thread, unless it is in use. Raises FilterError, also if it is large.

        It is in use as long as somebody refers to it.
        """
        if (found := self._filters.get(text)) is not None:
            return found
        most = self.config.max_filter_size
        try:
            found = await _compiling(self._narrow, text, most)
        except TooLargeError as error:
            raise FilterError(
                f"{error}. Here {most} instructions are allowed (sluice.instance.maxFilterSize): use fewer items, or"
                " raise that"
            ) from None
        return self._filters.setdefault(text, found)

    async def admit_filter(self, client_id: int, text: str, token: str) -> TableFilter | None:
        """Compile the filter that a client wants; it is in use as long as somebody refers to what this returns.

        Raises FilterError if it is not valid, or large, unless the client has it; and as `check_filters`.
        """
        if not text:
            return None
        is_known = self.cursors.admission.owners(client_id) is not None
        if is_known and text not in self._filters and self.cursors.status(client_id).filter == text:
            found = self._filters.setdefault(text, await self._compile_stored(text))
        else:
            found = await self.narrow(text)
        self.check_filters(text, found, token)
        return found

    def check_filters(self, text: str, found: TableFilter, token: str) -> None:
        """Make sure that there is room for a filter among those of the clients; what one has, another may have.

        ``token`` is the name of the token that wants it, empty for an administrator's. Raises LimitError. It has to be
        asked when the client gets the filter: others may have got theirs since this one was compiled.
        """
        filters = self.cursors.admission.filters()
        if text in filters:
            return
        most, size = self.config.max_filter_sizes, found.size + _size(filters)
        whose = f"the filters of the clients of {self.config.destination}"
        if token and size <= most:
            own = found.size + _size(self.cursors.admission.filters(token))
            most, size = (most - (size - own)) // TOKEN_SHARE, own
            whose = f"{whose} that the token {token!r} has created"
        if size > most:
            raise LimitError(
                f"{whose} would have {size} instructions of {most} (sluice.instance.maxFilterSizes): use a filter that"
                " another client has, or a shorter one"
            )

    async def check_where(self, text: str) -> None:
        """Make sure that rows can be judged by the conditions of a client, as far as the source can be asked.

        Raises FilterError, and SourceError when the source does not answer.
        """
        parser = self.running_parser()
        conditions = (await _compiling(compile_where, text)).conditions
        for schema, table in conditions.tables:
            if not self._filter.accepts(schema, table):
                raise FilterError(f"{schema}.{table}: the destination does not deliver this table")
        await asyncio.to_thread(parser.check_conditions, conditions)

    # --- what is known ------------------------------------------------------------------------------------------------

    def running_parser(self) -> Parser:
        """Return what fills the ring. Raises as `check_running`."""
        self.check_running()
        assert self._parser is not None
        return self._parser

    @property
    def is_loaded(self) -> bool:
        """Whether its clients are known, and are served."""
        return self._parser is not None

    @property
    def is_elected(self) -> bool:
        """Whether servers elect which of them serves it; on this one, until its operator has stopped it."""
        return self._check_active is not None

    def leave_election(self) -> None:
        """Be stopped by the operator: the election of the servers is over for this one, and nothing checks it."""
        self._check_active = None

    def check_active(self) -> None:
        """Raise FencedError unless this server may serve it now."""
        if self._check_active is not None:
            self._check_active()

    def check_running(self) -> None:
        """Raise `DestinationStoppedError` unless it runs, FencedError if another server may serve its clients.

        A destination that was taken over runs when its clients are loaded: until then no subscription is known.
        """
        self.check_active()
        if self._parser is None:
            reason = f": {self.error}" if self.error else ""
            what = "should start first" if self.state == "stopped" else "is starting"
            raise DestinationStoppedError(f"destination:{self.config.destination} {what}{reason}")
        if self._failure:
            raise DestinationStoppedError(f"destination:{self.config.destination} has failed: {self._failure}")

    def start_of_range(self, from_: Position, to: Position) -> Position:
        """Return where a range begins in each member in which it ends: one that has joined since begins at its start.

        Raises GoneError if nobody has a part of it any more, because that is of a member that was removed, or if nobody
        knows where a member began that is not in ``from_``.
        """
        if not (isinstance(from_, Cut) and isinstance(to, Cut)):
            return from_
        track = self.cursors.track
        starts = {name: it for name, it in track.starts.items() if name in to.places}
        begin = Cut({**starts, **from_.places})
        if track.is_logged(Cursor.at(begin)):
            return begin
        names = self.catch_up.config.sources()
        lost = [it for it in to.places if it not in names and not Cut({it: to.places[it]}).precedes(begin)]
        if lost:
            raise GoneError(f"member {lost[0]} was removed, and nothing has what came of it from {from_} to {to}")
        if unknown := to.places.keys() - begin.places.keys():
            raise GoneError(unknown_start(from_, min(unknown)))
        return begin

    def check_stream(self, client_id: int) -> None:
        """Raise the reason if the stream will never reach what a client waits for; trying again does not help then.

        Raises:
            PurgedError: the source no longer has it.
            SourceChangedError: it belongs to another source or history.
        """
        parser, failure = self._parser, self._lost_place()
        if parser is None or failure is None or client_id in self.cursors.readers.catching_up:
            return
        awaited = self.cursors.places.awaited(client_id)
        if awaited is not None and self.cursors.track.is_logged(awaited):
            return
        # A client that waits for a later place has lost nothing, unless the stream could not begin: it would have begun
        # there.
        if awaited is None or self.cursors.position_before(self.ring.next) is None:
            error = parser.refused.get(awaited, failure) if awaited is not None else failure
            raise self._with_advice(type(error)(str(error)), client_id)

    def _lost_place(self) -> SluiceError | None:
        """Return why the parser cannot go on; None if it can, or goes on after a gap, as configured."""
        failure = self._parser.failure if self._parser is not None else None
        if isinstance(failure, PurgedError) and self.config.auto_reset_latest_pos_mode:
            return None
        return failure if isinstance(failure, PurgedError | SourceChangedError) else None

    @property
    def parser_status(self) -> ParserStatus:
        """How far the parser is; nothing is known without a parser."""
        return self._parser.status if self._parser is not None else ParserStatus()

    @property
    def threats(self) -> Mapping[int, Threat]:
        """The clients that source or log are about to leave behind."""
        return self._purges.threats if self._purges is not None else {}

    @property
    def backlogs(self) -> Mapping[int, Backlog]:
        """What waits in the log or at the source for clients that are behind the ring, as far as it was measured."""
        return self._backlogs.found if self._backlogs is not None else {}

    @property
    def log_start(self) -> Cursor | None:
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
        keys = {self.cursors.clients.key(it): it for it in self.cursors.clients.ids}
        return replace(extent, holds={keys[it]: hold for it, hold in extent.holds.items() if it in keys})

    # --- the source ---------------------------------------------------------------------------------------------------

    async def source_end(self) -> Position:
        """Return the source's current end, or the end of what was read if that is further.

        Raises:
            SourceError: it cannot be asked.
            SourceChangedError: it ends before what was read of it: its binlog was reset or restored.
        """
        before = self.cursors.position_before(self.ring.next)
        end = await asyncio.to_thread(self.running_parser().end)
        # For two places in different files, nothing else shows that they belong to two histories.
        if (
            before is not None
            and before.same_source(end)
            and not (before.same_history(end) and before.transaction.precedes(end))
        ):
            raise SourceChangedError(
                f"the source's binlog ends at {end}, and it was read up to {before}: it was reset, restored, or is"
                " another server"
            )
        read = self.cursors.position_before(self.ring.next)
        return read.join(end) if read is not None and read.same_history(end) else end

    async def find_start(self, start: str | int, client_id: int | None = None) -> str | int | Cursor:
        """Return where a client begins, as `Cursors.subscribe` takes it.

        The source is asked for a time, for ``oldest``, and for a place as it names it itself: ``FILE:OFFSET``, or a
        GTID set. For a client that is known, and has lost what comes next, ``oldest`` is after that.

        Raises:
            PurgedError: the source may have purged changes of that time, or has purged the place.
            BadPositionError: it is no place, or one inside a transaction.
            SourceError: it cannot be asked.
        """
        if isinstance(start, str):
            if start == OLDEST_START:
                return await self._oldest(client_id)
            if "/" in start or not any(sign in start for sign in ":-"):  # a position, or a word
                return start
            return await asyncio.to_thread(self.running_parser().find_place, start)
        if self.cursors.track.has_time(start, time.time()):  # noqa: TID251  beside that of events
            return start
        return await asyncio.to_thread(self.running_parser().find_place, start)

    async def _oldest(self, client_id: int | None = None) -> Cursor:
        """Return the oldest place that ring, log or source have; see `find_start`. Raises SourceError."""
        of_source = await asyncio.to_thread(self.running_parser().find_place, None)
        cursors, lost = self.cursors, None
        if client_id is not None and client_id in cursors.clients.ids:
            place = cursors.clients.cursor(client_id)
            if place is not None and place.position is not None and is_later(of_source, place):
                is_there = cursors.track.is_logged(place) and not cursors.places.has_lost_place(client_id)
                lost = None if is_there else place
                if lost is not None and isinstance(place.position, Cut) and isinstance(of_source.position, Cut):
                    of_source = Cursor.at(of_source.position.join(place.position))  # what other members have stays
        return cursors.track.oldest(of_source, lost)

    def has_lost_place(self, client_id: int) -> bool:
        """Whether the source no longer has what a client gets next, as far as that is known."""
        return self.cursors.places.has_lost_place(client_id) or (
            isinstance(self._lost_place(), PurgedError) and self.cursors.places.awaited(client_id) is not None
        )

    async def holds(self, client_id: int) -> bool:
        """Whether log or source still have what comes after a cursor; what is not known in time counts as lost."""
        cursor = self.cursors.clients.cursor(client_id)
        if cursor is None or cursor.position is None:
            return False
        if self.cursors.track.is_logged(cursor):
            return True
        try:
            async with asyncio.timeout(PATIENCE):
                if isinstance(cursor.position, Cut):  # the ring need not have what is lost of one member
                    found = await asyncio.to_thread(self.running_parser().find_place, None)
                else:
                    found = await self._oldest()
        except (SluiceError, TimeoutError):
            return False
        oldest = found.position
        return oldest is not None and oldest.is_comparable(cursor.position) and oldest.precedes(cursor.position)

    async def check_earliest(self, client_id: int) -> None:
        """Make sure that a client that has lost its place goes on at the earliest change that is there to have.

        It may have left since. Raises BadPositionError when ring and log do not have that, but the source has, and
        SourceError.
        """
        cursors = self.cursors
        is_lost = client_id in cursors.clients.ids and self.has_lost_place(client_id)
        if not (is_lost or self.gate.is_unsettled(client_id) or isinstance(self._lost_place(), PurgedError)):
            return
        logged = cursors.track.oldest_logged()
        earliest = cursors.track.floor if logged is None else logged.position
        oldest = (await self._oldest(client_id)).position
        assert oldest is not None, "a place of the stream"
        if earliest is not None and oldest.is_comparable(earliest) and earliest.precedes(oldest):
            return
        choices = "Seek `oldest` to get all that is left, or that position or `latest` to pass over it"
        if client_id not in cursors.clients.ids:
            choices = (
                "Subscribe with start `oldest` to get all that is left, or with `latest`. A client of Canal cannot say"
                f" that: `sluice seek {self.config.destination} {client_id} oldest` does it. Or say that nothing of it"
                f" is wanted: `sluice gaps confirm {self.config.destination} {client_id}`"
            )
        raise BadPositionError(
            f"client {client_id} has lost its position, and `earliest` would skip changes that the source still has: it"
            f" means {earliest or 'the end'}, and the oldest change left is at {oldest}. {choices}"
        )

    async def check_return(self, client_id: int) -> None:
        """Make sure that a client that comes back at the earliest change passes over nothing that the source has.

        Where the stream could not begin, that is the oldest change of the source. Raises as `check_earliest`.
        """
        if not self.gate.is_unsettled(client_id) or isinstance(self._lost_place(), PurgedError):
            return
        await self._begun()
        await self.check_earliest(client_id)

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
        if not (await self.narrow(wanted)).accepts(schema, table):
            raise FilterError(f"the filter '{wanted}' leaves {schema}.{table} out")
        return await asyncio.to_thread(parser.columns, schema, table, at)

    async def tables(self, wanted: str = "") -> list[str]:
        """Return the tables that the source has now and that pass, as ``schema.table``; ``wanted`` is another filter.

        Raises:
            FilterError: that filter is wrong.
            SourceError: the source cannot be asked.
        """
        parser = self.running_parser()
        narrower = await self.narrow(wanted)

        def find() -> list[str]:
            found = parser.tables()
            return [".".join(it) for it in found if self._filter.accepts(*it) and narrower.accepts(*it)]

        return await asyncio.to_thread(find)

    async def select(self, selection: Selection, wanted: Wanted = EVERYTHING) -> list[TableProgress]:
        """Return the tables of the source that a client wants in a snapshot, of those that its filter delivers.

        The conditions of its subscription hold for their rows, too.

        Raises:
            FilterError: the filter of the selection is wrong.
            BadParameterError: there is no such table, or one or its condition cannot be used.
            SourceError: the source cannot be asked.
        """
        reader, where = self.running_parser().table_reader(), selection.where
        given = [name.split(".", 1) for name in await self.tables(selection.tables)]
        names = [(schema, table) for schema, table in given if wanted.has(schema, table)]
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
                found = await asyncio.to_thread(reader.describe, schema, table, condition, selection.member)
                if len(found) > 1 and not all(it.key for it in found):
                    having = ", ".join(it.member for it in found)
                    raise BadParameterError(
                        f"{schema}.{table} has no key and is in several members, {having},"
                        " so the rows of each would take the place of the others'. Take a snapshot of one member",
                        "member",
                    )
                progress += [TableProgress(schema, table, condition, it.expected, member=it.member) for it in found]
        finally:
            await asyncio.to_thread(reader.close)
        if not progress:
            raise BadParameterError(f"member {selection.member} has none of the tables", "member")
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
                f"{schema}.{table}.{masked} is masked. The client's condition is judged on masked values, but the"
                " source would judge the real ones: leave the table out, or subscribe without that condition",
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

    def _make_feed(
        self,
        config: InstanceConfig,
        ring: Ring,
        *,
        start: Cursor,
        on_begin: Callable[[Position | None, Before], None],
        on_state: Callable[[str, str], None],
        stop: Position | None = None,
    ) -> Feed:
        """Make what fills the ring of a catch-up reader: from the log, and from the source what that lacks."""
        log, place = self.cursors.track.log, start.position
        if log is not None and place is not None:
            return LogReader(log, self._make_parser, config, ring, start=start, on_begin=on_begin, on_state=on_state)
        return self._make_parser(config, ring, start=start, on_begin=on_begin, on_state=on_state, stop=stop)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Make all waiters look again."""
        self.cursors.resting.rouse_all()
        self.wake_concerned()

    def wake_concerned(self) -> None:
        """Make those look again that wait for anything, and of the clients that rest those that were roused."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        self._wake_roused()

    def _wake_roused(self) -> None:
        for client_id in self.cursors.resting.take_roused():
            for waiter in self._resting.pop(client_id, ()):
                if not waiter.done():
                    waiter.set_result(None)

    async def wait(self, seconds: float, client_id: int | None = None) -> None:
        """Wait until something may have changed, at most ``seconds``; for a client only what may concern that."""
        # Without a free reader the next look is soon enough: where many clients wait, each would look at all of them.
        if self.cursors.readers.is_wanted and self.catch_up.turns.has_room:
            self._attempt(self.tend_readers)
        self.judge()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if seconds == float("inf") else seconds):
                if client_id is not None and self.cursors.rest(client_id):
                    await self._rest(client_id)
                else:
                    await self._changed.wait()

    async def _rest(self, client_id: int) -> None:
        """Wait until a client is roused."""
        self._wake_roused()  # others, that something concerns which came just now
        waiter = asyncio.get_running_loop().create_future()
        waiters = self._resting.setdefault(client_id, set())
        waiters.add(waiter)
        try:
            await waiter
        finally:
            waiters.discard(waiter)
            if not waiters and self._resting.get(client_id) is waiters:
                del self._resting[client_id]
                self.cursors.resting.leave(client_id)

    async def name_place(self, client_id: int) -> None:
        """Wait until the place where a new client begins has a name, which can be stored.

        It has none before the source has said where the stream begins. If that takes more than a few seconds, or the
        source cannot be reached, the client begins with the stream, whenever that is.
        """
        await self._wait_while_starting(lambda: bool(self.cursors.status(client_id).position))

    async def _begun(self) -> None:
        """Wait until the source has said where the stream begins, at most as `name_place`."""
        await self._wait_while_starting(lambda: self.cursors.position_before(self.ring.next) is not None)

    async def _wait_while_starting(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + BEGINNING
        while self.state == "starting" and not is_done():
            if (left := deadline - time.monotonic()) <= 0:
                return
            await self.wait(left)

    # --- storing ------------------------------------------------------------------------------------------------------

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

    async def _store(self, commits: Commits["asyncio.Future[None]"], changes: Changes) -> None:
        """Write changes, tell the waiters, and go on with the next write if any wait for that."""
        failure: Exception | None = None
        try:
            await self._meta.write(changes, self.cursors.counters.epoch)
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
        if changes.moves:  # what comes after them may be given from here on
            self.wake()
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


def moved_now(who: str = SERVER) -> By:
    """Return on whose behalf a place is moved, now."""
    return By(who, time.time())  # noqa: TID251  outlives the process


@functools.lru_cache(64)
def compile_where(text: str) -> "RowConditions":
    """Read the conditions on rows of a client, in a thread when they are new. Raises FilterError."""
    from ..conditions.rows import RowConditions  # noqa: PLC0415  its parser takes time and memory, and few need it

    return RowConditions(text)


def _size(filters: Mapping[str, object]) -> int:
    """How many instructions filters of clients have."""
    return sum(it.size for it in filters.values() if isinstance(it, TableFilter))


async def _compiling(make: Callable[..., T], *arguments: object) -> T:
    """Compile what a client has sent, in the thread for that."""
    return await asyncio.get_running_loop().run_in_executor(COMPILING, make, *arguments)


def make_meta(config: InstanceConfig) -> MetaStore:
    """Make the configured store of clients. Raises ConfigError for a store that several servers share."""
    if config.meta.make is None:
        raise ConfigError(f"cursors are kept in ZooKeeper ({config.meta}), which only a group of servers uses")
    return config.meta.make(config)
