"""The destinations of this process: which there are, and where each stands."""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from ...instance import audit
from ...instance.audit import Change
from ...instance.columns import SourceColumn
from ...instance.config import InstanceConfig
from ...instance.meta.base import MetaStore
from ...instance.meta.memory import MemoryMetaStore
from ...instance.quarantine import late_rows
from ...instance.serving.backlog import Backlog
from ...instance.serving.instance import Instance
from ...instance.serving.purges import Threat
from ...instance.serving.tail import Followed, Tail
from ...instance.serving.view import View
from ...instance.skipped import Skipped, keep, path_of
from ...instance.source import ParserFactory
from ...instance.status import ParserStatus, SourceStatus
from ...instance.zones import local_time_zone
from ...protocol.cut import parse_place
from ...protocol.errors import (
    BadParameterError,
    ConfigError,
    FencedError,
    ForbiddenError,
    NotConfiguredError,
    OwnedError,
    SluiceError,
    UnknownDestinationError,
)
from ...protocol.position import Position
from ...store.cursor import Cursor, place_of
from ...store.log.log import Extent, FileStatus
from ...store.moves import SERVER, Move
from ...store.status import ClientStatus
from ..caller import by_caller, caller
from .companions import Companions, NoCompanions, OutputStatus
from .quarantine import Retried, decode_again

if TYPE_CHECKING:
    from ..ha.cluster import Cluster

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DestinationStatus:
    """Where a destination stands."""

    destination: str
    state: str
    """``starting``, ``running``, ``error`` (it tries again), ``stopped``, or ``standby`` for another server."""
    error: str = ""
    clients: list[ClientStatus] = field(default_factory=list)
    first: str = ""
    """The oldest position that is stored; empty when the stream has not begun."""
    last: str = ""
    """The position up to which the source was read."""
    entries: int = 0
    bytes: int = 0
    full: bool = False
    """The parser waits for room."""
    fill: float = 0.0
    """The part of the ring that is in use, of its entries or its bytes, whichever is more; pinned bytes count."""
    capacity: int = 0
    """Bytes that the ring holds at most."""
    pinned: int = 0
    """Bytes that only slow readers still hold."""
    blocked: float = 0.0
    """Seconds for which the parser has waited for room since the start."""
    parser: ParserStatus = field(default_factory=ParserStatus)
    time_zone: str = ""
    """The zone that TIMESTAMP values are written in; empty where that of the process has no name."""
    active: str = ""
    """Among several servers the address of the one that has it; empty when none has it, or there are no others."""
    threats: Mapping[int, Threat] = field(default_factory=dict)
    """The clients that source or log are about to leave behind."""
    backlogs: Mapping[int, Backlog] = field(default_factory=dict)
    """What waits in the log or at the source for clients that are behind the ring, as far as it was measured."""
    log: Extent | None = None
    """What the log on disk holds; None without one."""
    held: str = ""
    """The oldest position that the logs of all servers hold: a take-over loses nothing from there on. Empty if one of
    them writes none."""
    outputs: Sequence[OutputStatus] = ()
    """Those that run here."""
    source: SourceStatus | None = None
    """Which of several servers is read; None if there is only one, and no health check."""
    member_sources: Mapping[str, SourceStatus] = field(default_factory=dict)
    """The same of the members of a group, by their names."""
    lost_cursors: bool = False
    """ZooKeeper has lost cursors of it: no server has it until they are restored."""
    stuck: float = 0.0
    """Seconds for which the parser has waited for room while nobody made any."""
    route: str = ""
    """The destination that it is a view of; empty for one with a source of its own."""
    gaps: Mapping[int, Sequence[Move]] = field(default_factory=dict)
    """What clients do not get, and nobody has confirmed; also of clients that have left."""
    refused_settings: str = ""
    """Why its files, as they are now, cannot be used; it goes on as it was configured before."""
    refused_certificate: str = ""
    """Why the certificate of the server's API, as its files are now, cannot be used; the one before is served on."""


def _address(instance: Instance, member: str) -> str:
    status = instance.member_sources.get(member) if member else instance.source_status
    return "" if status is None else status.address


class Destinations:
    """The destinations of this process.

    Every method that takes a destination raises `UnknownDestinationError`; those that need it running raise
    `DestinationStoppedError`, too.
    """

    def __init__(
        self,
        load: Callable[[str], InstanceConfig],
        make_parser: ParserFactory,
        *,
        make_cluster: "Callable[[Self], Cluster] | None" = None,
        make_companions: Callable[[Self], Companions] | None = None,
        require: Callable[[str], None] = lambda _destination: None,
    ) -> None:
        """Nothing runs yet.

        Args:
            load: reads the configuration of a destination; it raises `UnknownDestinationError` and `ConfigError`.
            make_parser: makes the parser of a destination.
            make_cluster: makes this one of several servers; None without others.
            make_companions: makes what lives with the destinations; None without.
            require: raises FencedError when another process of this server has the destination.
        """
        self.instances: dict[str, Instance | View] = {}
        self.cluster = make_cluster(self) if make_cluster is not None else None
        """The servers with which the destinations are shared."""
        self.companions: Companions = make_companions(self) if make_companions is not None else NoCompanions()
        self.require = require
        self._load = load
        self._unusable: dict[str, str] = {}
        """Why the files of destinations, as they are now, cannot be used."""
        self.refused_certificate = ""
        """See `DestinationStatus.refused_certificate`."""
        self._make_parser = make_parser
        self._locks: dict[str, asyncio.Lock] = {}
        self._tails: dict[str, Tail] = {}
        """What reads the source into the logs of destinations that stand by."""
        self._followed: dict[str, Followed] = {}
        """What is stored of destinations whose logs are written while they stand by, as last seen."""
        self._tail_locks: dict[str, asyncio.Lock] = {}
        self._tailing: set[asyncio.Task[None]] = set()
        self._ending: set[str] = set()
        """Destinations that their operator stops."""

    async def start(self, destination: str) -> None:
        """Start a destination with its configuration as it is now; a running one goes on unchanged.

        One in an error begins again if it is configured otherwise now: that may be what was wrong. Among several
        servers it stands by until it is this server's turn.

        Raises:
            SluiceError: its configuration, or what is stored of it, cannot be used.
        """
        failing = self.instances.get(destination)
        if failing is not None and failing.state == "error":
            config = await self._read(destination)
            if failing.configured != config:
                await self.stop(destination)
        async with self._locks.setdefault(destination, asyncio.Lock()):
            known = self.instances.get(destination)
            if known is not None:
                known.held = None
            if known is not None and known.state != "stopped":
                if self.cluster is not None and not isinstance(known, View):
                    self.cluster.start(destination)  # it may have been left to Canal's own server
                if known.state != "standby":
                    await self.companions.start(destination)
                return
            config = await self._read(destination)
            if config.route:
                await self._start_view(config)
            elif self.cluster is None:
                instance = self.instances[destination] = Instance(config, self._make_parser)
                await self._begin(instance)
            else:
                self._stand_by(destination, config)
                self.cluster.start(destination)
                self._tail_later(destination)

    async def _read(self, destination: str) -> InstanceConfig:
        """Read a configuration as it is now; what is wrong with it is shown until it is right. Raises as `_load`."""
        try:
            config = await asyncio.to_thread(self._load, destination)
        except SluiceError as error:
            self._unusable.pop(destination, None)
            if isinstance(error, ConfigError):
                self._unusable[destination] = str(error)
            raise
        self._unusable.pop(destination, None)
        return config

    async def _begin(self, instance: Instance) -> None:
        """Start an instance with its views, and what lives with them."""
        destination = instance.config.destination
        for view in self._views(destination):
            await self._renew(view, instance)
        for name, it in tuple(self.instances.items()):
            is_own = isinstance(it, View) and it.config.route == destination and it not in instance.views
            if isinstance(it, View) and is_own and await self._is_configured(name):
                instance.keep_for(it)
        await instance.start()
        views = [it for it in self._views(destination) if it.is_open]
        await asyncio.gather(*(self.companions.start(it.config.destination) for it in (instance, *views)))

    async def _is_configured(self, destination: str) -> bool:
        """Whether a destination is configured, rightly or not."""
        try:
            await asyncio.to_thread(self._load, destination)
        except UnknownDestinationError:
            return False
        except SluiceError:
            return True
        return True

    async def _start_view(self, config: InstanceConfig) -> None:
        """Start a view: at once if its main destination runs, else as soon as it does."""
        async with self._locks.setdefault(config.route, asyncio.Lock()):
            known = self.instances.get(config.destination)
            if known is not None and known.state != "stopped":  # it has begun with its main destination meanwhile
                return
            view = self._make_view(config)
            main = self.instances.get(config.route)
            view.use_main(None if isinstance(main, View) else main)
            if self.cluster is not None:
                self.cluster.add_view(config.destination)
            await view.start()
            if view.is_open:
                await self.companions.start(config.destination)

    @property
    def released(self) -> list[str]:
        """The destinations that could not start because another process had them, which has them no longer."""
        return [name for name, it in self.instances.items() if it.held is not None and it.held.is_over()]

    def _views(self, destination: str) -> list[View]:
        """Return the views of a destination that nobody has stopped."""
        views = (it for it in self.instances.values() if isinstance(it, View))
        return [it for it in views if it.config.route == destination and it.is_wanted]

    async def _renew(self, view: View, main: Instance) -> None:
        """Let a view begin with a destination, as it is configured now if that is configured otherwise than before."""
        if view.config.main != main.config:
            try:
                config = await self._read(view.config.destination)
            except SluiceError as error:
                view.refuse_to_start(error)
                return
            view = self._make_view(config)
        if view.config.route == main.config.destination:
            view.use_main(main)
            main.views.append(view)

    def _make_view(self, config: InstanceConfig) -> View:
        check, meta = None, None
        if self.cluster is not None:
            check = functools.partial(self.cluster.check, config.route)
            meta = self.cluster.view_store(config)
        view = self.instances[config.destination] = View(config, self._make_parser, meta, check)
        return view

    async def reload(self, destination: str) -> None:
        """Bring a destination in line with its configuration as it is now, and start it if it is stopped.

        It restarts if what it reads has changed, unless only members of a group have; else only its outputs follow.
        Raises as `start`; a configuration that cannot be used stops nothing.
        """
        config = await self._read(destination)
        known = self.instances.get(destination)
        is_other = known is not None and known.configured != config
        if is_other and not (isinstance(known, Instance) and known.reconfigure(config)):
            await self.stop(destination)
        await self.start(destination)
        await self.audit(destination, "reload")

    async def stop(self, destination: str) -> None:
        """Stop a destination and store its cursors; a stopped one stays so."""
        self._unusable.pop(destination, None)
        async with self._locks.setdefault(destination, asyncio.Lock()):
            instance = self._known(destination)
            if isinstance(instance, View):
                await self._stop_view(destination, instance.config.route)
                self._forget_moved(destination)
                return
            self._ending.add(destination)
            try:
                await self._tail(destination, wanted=False)
                if self.cluster is not None and instance.is_elected:  # also while it is given up
                    await self.cluster.stop(destination)
                    instance = self._known_main(destination)
                    instance.leave_election()
                await self._end(instance)
            finally:
                self._ending.discard(destination)
                for view in self._views(destination):
                    view.wait_for_main()
            self._forget_moved(destination)

    def _forget_moved(self, destination: str) -> None:
        """Forget a destination that another process has now."""
        try:
            self.require(destination)
        except FencedError:
            del self.instances[destination]

    async def _end(self, instance: Instance) -> None:
        """Stop what lives with an instance and its views, then these."""
        await asyncio.gather(*(self.companions.stop(it.config.destination) for it in (instance, *instance.views)))
        await instance.stop()

    async def _stop_view(self, destination: str, main: str) -> None:
        async with self._locks.setdefault(main, asyncio.Lock()):
            await self.companions.stop(destination)
            if self.cluster is not None:
                self.cluster.remove_view(destination)
            await self._known(destination).stop()  # its main destination may have made it anew meanwhile

    async def activate(self, destination: str, meta: MetaStore) -> None:
        """Start a destination that this server has taken over. Raises SluiceError when it cannot start."""
        config = await self._read(destination)
        instance = self._stand_by(destination, config, meta)
        await self._tail(destination, wanted=False)
        try:
            await self._begin(instance)
        except Exception:
            self._stand_by_again(instance)  # the election goes on, and knows what is wrong
            raise

    async def deactivate(self, destination: str) -> None:
        """Stop a destination that this server gives up. Raises SluiceError when its cursors cannot be stored."""
        instance = self._known_main(destination)
        try:
            await self._end(instance)
        finally:
            if self.cluster is None or instance.is_elected:  # else its operator has stopped it meanwhile
                self._stand_by_again(instance)

    async def retry_quarantine(self, destination: str, position: str | None = None) -> list[Retried]:
        """Decode what is in quarantine, or one event of it, again; give clients that have passed it the missing rows.

        A client that has not passed it gets them in their place: what is stored is read again. Raises BadParameterError
        if nothing is there at the position, and as `Instance.redeliver`.
        """
        self._known_main(destination)
        async with self._locks.setdefault(destination, asyncio.Lock()):
            instance = self._running_main(destination)
            found = await asyncio.to_thread(lambda: list(decode_again(instance.config, position)))
            rows = [late_rows(item, again.data, again.positions) for item, again in found if not again.reason]
            given = await instance.redeliver(rows) if rows else {}
            await self.audit(destination, "quarantine retry", detail=f"{len(rows)} of {len(found)} could be decoded")
        return [Retried(item, again.reason, given.get(item.position, [])) for item, again in found]

    async def begin_again(self, destination: str) -> None:
        """Begin the stream of a destination again where its clients are, as after a restart.

        A view begins with its main destination. Raises SluiceError; when it cannot begin, it is stopped.
        """
        destination = self._known(destination).config.main.destination
        async with self._locks.setdefault(destination, asyncio.Lock()):
            beginning = asyncio.ensure_future(self._running_main(destination).begin_again())
            try:
                await asyncio.shield(beginning)
            finally:  # who has called may be stopped; what is begun is finished, and its state has the error
                await asyncio.wait([beginning])
                beginning.exception()

    async def switch_source(
        self, destination: str, address: str = "", *, member: str = "", accept: bool = False
    ) -> None:
        """Read another server with the same data. See `Instance.switch_source`."""
        instance = self._running_main(destination)
        before = _address(instance, member)
        await instance.switch_source(address, member=member, accept=accept)
        details = [f"member {member}"] if member else []
        details += ["accepting what it lacks"] if accept else []
        after = _address(instance, member)
        await self.audit(destination, "switch", before=before, after=after, detail=", ".join(details))

    async def audit(
        self,
        destination: str,
        action: str,
        client: int | None = None,
        *,
        before: str = "",
        after: str = "",
        detail: str = "",
    ) -> None:
        """Write down that something was changed for the caller, in the log and in the destination's list.

        What the server does by itself, as when it starts, is no change. A list that cannot be written keeps nothing
        from being done.
        """
        by = by_caller()
        if by.who == SERVER:
            return
        change = Change(action, by.who, by.ms, client, before, after, detail)
        where = {"destination": destination}
        logger.info("%s", change, extra=where)
        path = audit.path_of(self.config(destination).file_data_dir, destination)
        try:
            await asyncio.to_thread(audit.keep, path, change)
        except OSError as error:
            logger.warning("%s cannot be written: %s", path, error.strerror, extra=where)

    async def audited(self, destination: str, most: int) -> list[Change]:
        """Return the last changes that this server has made at a destination, oldest first. Raises ConfigError."""
        path = audit.path_of(self.config(destination).file_data_dir, destination)
        return await asyncio.to_thread(audit.read, path, most)

    async def list_skipped(self, destination: str, items: Sequence[Skipped]) -> None:
        """Add to the list of what outputs have left out, durably. Raises OSError."""
        folder = self.config(destination).file_data_dir
        await asyncio.to_thread(keep, path_of(folder, destination), items)

    def config(self, destination: str) -> InstanceConfig:
        """Return the configuration that a destination was last started with."""
        return self._known(destination).config

    async def close(self) -> None:
        """Stop all destinations, views first: they hold nothing back then."""
        views = [name for name, it in self.instances.items() if isinstance(it, View)]
        results: list[BaseException | None] = []
        for names in (views, self.instances.keys() - set(views)):
            results += await asyncio.gather(*map(self.stop, names), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    @property
    def names(self) -> list[str]:
        """The destinations of this process, those included whose files cannot be used."""
        return sorted({*self.instances, *self._unusable})

    def state(self, destination: str) -> str:
        """Return the state of a destination."""
        return "error" if self._is_unusable(destination) else self._known(destination).state

    def _is_unusable(self, destination: str) -> bool:
        """Whether a destination has never been started here because its files cannot be used."""
        return destination in self._unusable and destination not in self.instances

    def destination_status(self, destination: str) -> DestinationStatus:
        """Return where a destination stands, stopped or not."""
        if self._is_unusable(destination):
            return DestinationStatus(destination, "error", self._unusable[destination])
        instance, tail = self._known(destination), self._tails.get(destination)
        main = instance.config.main.destination
        ring, cursors = instance.ring, instance.cursors
        cluster = self.cluster if instance.state != "stopped" else None
        error = tail.error if tail is not None and not instance.error else instance.error
        return DestinationStatus(
            destination=destination,
            state=instance.state,
            error=error or (cluster.problem_of(main) if cluster is not None else ""),
            clients=[cursors.status(client_id) for client_id in cursors.clients.ids],
            first=str(cursors.position_before(ring.first) or ""),
            last=str(cursors.position_before(ring.next) or ""),
            entries=len(ring),
            bytes=ring.bytes,
            full=ring.waiting,
            fill=ring.fill,
            capacity=ring.memory,
            pinned=ring.pool.pinned,
            blocked=ring.blocked_seconds,
            stuck=instance.stuck,
            lost_cursors=cluster is not None and bool(cluster.participant.election(main).loss),
            parser=instance.parser_status,
            time_zone=instance.config.time_zone or local_time_zone(),
            active=cluster.active(main) if cluster is not None else "",
            threats=instance.threats,
            backlogs=instance.backlogs,
            log=instance.log_extent if tail is None else tail.log_extent,
            held=self._held(main),
            outputs=self.companions.status(destination),
            source=instance.source_status,
            member_sources=instance.member_sources,
            route=instance.config.route,
            gaps=instance.gate.open_gaps,
            refused_settings=self._unusable.get(destination, ""),
            refused_certificate=self.refused_certificate,
        )

    def _held(self, destination: str) -> str:
        if self.cluster is not None and self.instances[destination].state != "stopped":
            return self.cluster.held(destination)
        start = self.log_start(destination)
        return "" if start is None else str(start.position)

    async def prune_log(self, destination: str, most: int, *, dry_run: bool = False) -> list[FileStatus]:
        """Take the oldest files of the log away until it has that many bytes at most; return them.

        With ``dry_run`` nothing changes. The last file stays, and what protected clients need. Raises
        NotConfiguredError without a log, and OSError.
        """
        log = self._running_main(destination).cursors.track.log
        if log is None:
            raise NotConfiguredError(f"destination {destination} has no log on disk (sluice.instance.store)")
        before = log.start
        taken = await asyncio.to_thread(log.surplus if dry_run else log.prune, most)
        if taken and not dry_run:
            text = f"{len(taken)} files, {sum(it.bytes for it in taken)} bytes"
            after = place_of(log.start)
            await self.audit(destination, "prune of the log", before=place_of(before), after=after, detail=text)
        return taken

    def log_start(self, destination: str) -> Cursor | None:
        """Return where the log begins that this server writes for a destination; None if it writes none."""
        instance = self._tails.get(destination) or self.instances.get(destination)
        return None if instance is None else instance.log_start

    async def latest(self, destination: str) -> Position:
        """Return the source's current end: the place after its last change. Raises as `Serving.source_end`."""
        return await self._running(destination).source_end()

    async def columns(
        self, destination: str, schema: str, table: str, wanted: str = "", at: str = ""
    ) -> list[SourceColumn]:
        """Return the columns of a table as the source has them now, without those that are filtered out.

        ``wanted`` is a filter that has to pass the table, too; ``at`` a position: then as they were there. Raises:
            FilterError: the destination does not deliver the table, or that filter leaves it out.
            UnknownTableError: there is no such table, or the history does not go so far.
            SourceError: the source cannot be asked.
            BadPositionError: ``at`` is not a position.
        """
        return await self._running(destination).columns(schema, table, wanted, parse_place(at) if at else None)

    async def tables(self, destination: str, wanted: str = "") -> list[str]:
        """Return the tables that the source has now and that pass, as ``schema.table``; ``wanted`` is a filter more.

        Raises:
            FilterError: that filter is not valid.
            SourceError: the source cannot be asked.
        """
        return await self._running(destination).tables(wanted)

    def _stand_by(self, destination: str, config: InstanceConfig, meta: MetaStore | None = None) -> Instance:
        """Make a destination that is served when, and as long as, it is this server's."""
        check = functools.partial(self.cluster.check, destination) if self.cluster is not None else None
        instance = Instance(config, self._make_parser, meta or MemoryMetaStore(), check)
        self.instances[destination] = instance
        instance.stand_by()
        for view in self._views(destination):
            view.use_main(instance)
            view.wait_for_main()
        return instance

    def _stand_by_again(self, instance: Instance) -> None:
        """Be ready to start a destination that others may have now."""
        instance.stand_by()
        for view in self._views(instance.config.destination):
            view.wait_for_main()
        self._tail_later(instance.config.destination)

    def _tail_later(self, destination: str) -> None:
        """See `_tail`; the caller does not wait."""
        task = asyncio.create_task(self._tail(destination), name=f"tail {destination}")
        self._tailing.add(task)
        task.add_done_callback(self._tailing.discard)

    async def tend_log(self, destination: str) -> None:
        """Let the log of a destination that stands by follow its clients, and the source that is read."""
        await self._tail(destination)

    async def _tail(self, destination: str, *, wanted: bool = True) -> None:
        """Read the source into the log of a destination while it stands by, if that is configured and wanted.

        What protected clients need stays in it: it begins when these are known.
        """
        followed = await self._follow(destination) if wanted else None
        async with self._tail_locks.setdefault(destination, asyncio.Lock()):
            instance, tail = self.instances.get(destination), self._tails.get(destination)
            is_ours = isinstance(instance, Instance) and instance.state == "standby" and destination not in self._ending
            is_wanted = wanted and is_ours and instance is not None and instance.config.store_standby
            if tail is not None and not (is_wanted and (followed is None or tail.keep_up(followed))):
                await tail.stop()
                del self._tails[destination]
                tail = None
            if not is_wanted or instance is None or followed is None or tail is not None:
                return
            self._tails[destination] = tail = Tail(instance.configured, self._make_parser, followed)
            with contextlib.suppress(SluiceError):  # its status says so
                await tail.start()

    async def _follow(self, destination: str) -> Followed | None:
        """Return what is stored of a destination with a log on each server; None before that could be read once.

        While it cannot be read, what was known last stays: a client goes back by hand only.
        """
        instance = self.instances.get(destination)
        if self.cluster is None or instance is None or not instance.config.store_standby:
            return None
        views = [name for name, it in self.instances.items() if isinstance(it, View) and it.config.route == destination]
        with contextlib.suppress(SluiceError):  # the cluster says why
            self._followed[destination] = await self.cluster.follow(destination, views)
        return self._followed.get(destination)

    def _known(self, destination: str) -> Instance | View:
        instance = self.instances.get(destination)
        if instance is None:
            self.require(destination)
            raise UnknownDestinationError(f"no destination {destination!r} is configured here")
        return instance

    def _running(self, destination: str) -> Instance | View:
        instance = self._known(destination)
        instance.check_running()
        return instance

    def _known_main(self, destination: str) -> Instance:
        """Return what has source and log; BadParameterError for a view, whose are another destination's."""
        instance = self._known(destination)
        if isinstance(instance, View):
            main = instance.config.route
            raise BadParameterError(
                f"destination {destination} is a view of {main}, which has its source, its log and its quarantine: ask"
                f" {main}"
            )
        return instance

    def _admit(self, destination: str, client_id: int, call: str, session: str | None = None) -> Instance | View:
        """Return a destination that runs.

        Raises OwnedError, and keeps that, when an output owns the client and it is not the output that calls;
        ForbiddenError when it is not one of the caller's clients.
        """
        instance = self._running(destination)
        try:
            instance.cursors.admission.admit(client_id, session)
        except OwnedError as error:
            instance.note_refused_call(client_id, f"{call} by {by_caller().who}", error)
            raise
        owners = instance.cursors.admission.owners(client_id)
        if owners is not None:
            caller.get().require(client_id, owners[1])
        return instance

    def _admit_by_hand(self, destination: str, client_id: int) -> Instance | View:
        """Return a destination that runs, for a call that an administrator may make on an output's client, too.

        Raises ForbiddenError unless it is one of the caller's clients.
        """
        instance = self._running(destination)
        output, owner = instance.cursors.admission.owners(client_id) or ("", "")
        if output and caller.get().token:
            raise ForbiddenError(
                f"client {client_id} is that of the output {output}, on which only a token of scope 'admin' may act"
            )
        caller.get().require(client_id, owner)
        return instance

    def _running_main(self, destination: str) -> Instance:
        instance = self._known_main(destination)
        instance.check_running()
        return instance
