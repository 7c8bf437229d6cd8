"""Which of several servers with the same data a destination reads: its health check, and the switch to another one."""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Final, Protocol

from ...protocol.errors import (
    BadParameterError,
    DestinationStoppedError,
    LostTransactionsError,
    NotConfiguredError,
    NotStoredError,
    PurgedError,
    SluiceError,
    SourceChangedError,
    SourceMovedError,
    SwitchRefusedError,
)
from ...protocol.gtid import Transactions
from ...store.cursor import Cursor
from ..config import InstanceConfig
from ..meta.base import InUse
from ..source import Parser, Proof
from ..status import SourceStatus
from .detection import Detection
from .given import Given

logger = logging.getLogger(__name__)

MOST_LISTED: Final = 100
"""Runs of transactions that are listed at most; an error has fewer."""
CLOSING: Final = 3.0
"""Seconds that a switch has to end when it is not wanted any more."""


class Destination(Protocol):
    """A destination as far as it reads one source: its only one, or a member of a group, which is read beside others.

    All methods belong to the event loop.
    """

    name: str
    """Of the destination."""
    member: str
    """The name of the source; empty for the only one."""
    turns: asyncio.Lock
    """Of the destination: one of its sources is switched at a time."""

    @property
    def config(self) -> InstanceConfig:
        """How the source is read now."""

    @property
    def epoch(self) -> int:
        """As of which it is stored which server is read."""

    @property
    def given(self) -> Given:
        """What was read of the source and given to clients."""

    @property
    def chosen(self) -> InUse | None:
        """Which server was chosen last; None if none ever was."""

    async def choose(self, chosen: InUse) -> None:
        """Store which server is read, durably. Raises as `sluice.instance.meta.base.MetaStore.keep_source`."""

    def running_parser(self) -> Parser:
        """Return what fills the ring. Raises DestinationStoppedError, FencedError."""

    def reads(self, parser: Parser) -> bool:
        """Whether a parser is the one that fills the ring."""

    def make_prover(self, config: InstanceConfig) -> Parser:
        """Make a parser that proves where it could go on, and never reads."""

    def probe(self, parser: Parser) -> None:
        """Run the health check of the source; by one thread. Raises SourceError."""

    async def stop_reading(self, parser: Parser) -> None:
        """Read the source no longer, and ask it for nothing, until `read_on`."""

    def goes_on_in_ring(self, *, is_another: bool) -> bool:
        """Whether the ring can be filled on, by the same source or by another one."""

    def bound_clients(self) -> Sequence[str]:
        """Name the clients, also those of views, that are bound to the source that is read (`Places.bound`)."""

    async def drain(self) -> None:
        """Wait a while until outputs have applied what was read, where no GTIDs name that at another source."""

    def log_end(self) -> Cursor | None:
        """Return where the stream goes on so that the log has no gap; None without a log, or if that is too old."""

    async def read_on(self, parser: Parser, config: InstanceConfig, place: Cursor | None, *, is_another: bool) -> None:
        """Read the same source, or another one, on from a place; ``parser`` has read before.

        At another one, clients that are bound to the former one pass over what they wait for (`Places.pass_switch`).
        """

    def tell(self, state: str, error: str) -> None:
        """Be in a state from here on."""

    def fail(self, error: Exception) -> None:
        """Stop serving, after an error in Sluice itself."""

    @property
    def is_needed(self) -> bool:
        """Whether a client has not taken yet what the ring has for it."""

    @property
    def is_stranded(self) -> bool:
        """Whether the source no longer has what comes next, and all have taken what the ring has for them."""

    async def begin_anew(self, parser: Parser) -> None:
        """Begin the stream where the clients are, as after a restart; ``parser`` has read before."""


_Prove = Callable[[Cursor], Awaitable[tuple[Cursor, Proof]]]


class SourceSwitch:
    """Between the servers that a destination can read. All methods belong to the event loop."""

    def __init__(self, destination: Destination, make_detection: Callable[..., Detection] = Detection) -> None:
        """``make_detection`` makes what asks the server that is read, as `Detection` is called."""
        self._make_detection = make_detection
        self._destination = destination
        member = destination.member
        self._about = f"member {member}: " if member else ""
        self._command = f"sluice source switch {destination.name}{f' --member {member}' if member else ''}"
        self._where = {"destination": destination.name}
        self._status = SourceStatus("")  # of it: what has become of switches
        self._task: asyncio.Task[None] | None = None
        self._prover: Parser | None = None
        self._detection: Detection | None = None
        self._torn: Cursor | None = None  # after the transaction of which clients were given a part
        self._is_leaving = False  # what reads the source is asked to end
        self._is_halted = False  # nothing is read: a switch waits for somebody to accept what it loses
        self._moved: SluiceError | None = None  # the failure of a parser that was followed last

    @property
    def status(self) -> SourceStatus | None:
        """Which server is read; None if there is only one, and no health check."""
        config, detection = self._destination.config, self._detection
        if not config.others and config.probing is None:
            return None
        found = replace(self._status, address=config.in_use or config.place, others=tuple(config.others))
        in_use = self._destination.chosen
        if in_use is not None:
            unlisted = in_use.address if in_use.address not in (found.address, *found.others) else ""
            accepted = tuple(it for it in in_use.accepted.split(",") if it)
            found = replace(found, unlisted=unlisted, accepted=accepted)
        if detection is not None:
            found = replace(found, failures=detection.failures, failure=detection.failure)
        return found

    @property
    def refusal(self) -> str:
        """Why the last switch was refused; empty when none was since the last one that was done."""
        return self._status.refusal

    def attend(self, parser: Parser) -> None:
        """Begin the health check of the source that a parser reads from here on."""
        self._is_halted = False
        if (probing := self._destination.config.probing) is not None:
            probe = functools.partial(self._destination.probe, parser)
            self._detection = self._make_detection(self._where["destination"], probing, probe, self._down_from(parser))

    def leave(self) -> None:
        """End the health check of the source, which is read no longer."""
        if self._detection is not None:
            self._detection.stop()
            self._detection = None

    async def make(self, address: str, *, accept: bool) -> None:
        """See `sluice.instance.serving.instance.Instance.switch_source`."""
        config = self._destination.config
        if not config.others:
            raise NotConfiguredError(
                f"{self._about}destination {self._destination.name} has no other source: set"
                " canal.instance.standby.address"
            )
        wanted = address or config.others[0]
        if wanted not in (config.in_use, *config.others):
            choice = ", ".join((config.in_use, *config.others))
            what = f"{self._about}{wanted} is not a source of destination {self._destination.name}"
            raise BadParameterError(f"{what}: {choice}", "to")
        while self._task is not None and not self._task.done():
            await asyncio.wait({self._task})
        if wanted != self._destination.config.in_use or self._is_halted:
            task = self._begin(wanted, accept=accept, by_itself=False)
            await asyncio.wait({task})  # the switch goes on if the caller does not
            if task.cancelled():
                raise DestinationStoppedError(f"{self._about}the destination was stopped before the switch to {wanted}")
            task.result()

    async def end(self) -> None:
        """Wait until no switch is under way; one that has not been proven yet is given up.

        Then the one or the other is read, or nothing if the proof could not be ended.
        """
        while self._task is not None and not self._task.done():
            if self._prover is not None:
                self._prover.stop()
            _, pending = await asyncio.wait({self._task}, timeout=CLOSING)
            is_over = self._prover is None and not self._is_leaving
            if pending and not is_over:  # else the stream begins again, which comes to an end
                self._task.cancel()
                await asyncio.wait({self._task})

    def follow(self, parser: Parser) -> None:
        """Do by itself what a restart would do where a parser cannot go on; to be called again and again.

        Where another server answers at the address, it is read on if that is proven; else the parser tries again.
        """
        if self._destination.turns.locked() or (self._task is not None and not self._task.done()):
            return
        failure = parser.failure
        if isinstance(failure, SourceMovedError) and failure is not self._moved:
            self._moved = failure
            self._start(self._follow(parser))
        elif self._destination.is_stranded:
            self._start(self._destination.begin_anew(parser))

    async def _follow(self, parser: Parser) -> None:
        destination, config = self._destination, self._destination.config
        if config.is_merged:  # a ring holds one source of each member: each client goes on by its own GTIDs
            await destination.begin_anew(parser)
            return
        try:
            place, lost, is_same = await self._ask(config, parser)
            if lost:
                raise SourceChangedError(
                    f"it does not have {len(lost)} transactions that were delivered: {shorten(lost.runs)}. Let it get"
                    " them, or let the former server answer again. To go on without them, stop and start the"
                    " destination, and move its clients (sluice seek)"
                )
            if not (is_same or destination.goes_on_in_ring(is_another=True)):
                raise SourceChangedError(
                    "without GTIDs the stream cannot resume on it: the ring or the log ends before"
                )
        except PurgedError as error:
            if not config.auto_reset_latest_pos_mode:
                self._cannot_follow(parser, error)
                if not destination.is_needed:
                    await destination.begin_anew(parser)
                return
            place = destination.given.boundary()  # what is purged is found there once more, and passed
        except SluiceError as error:
            self._cannot_follow(parser, error)
            return
        if not isinstance(parser.failure, SourceMovedError):  # the former server has answered meanwhile
            return
        logger.warning("%s", f"another server is read from here on at {config.place}", extra=self._where)
        await self._leave(parser)
        await destination.read_on(parser, config, place, is_another=True)

    async def _leave(self, parser: Parser) -> None:
        """Read the source no longer; that may be given up."""
        self._is_leaving = True
        try:
            await self._destination.stop_reading(parser)
        finally:
            self._is_leaving = False

    def _cannot_follow(self, parser: Parser, error: SluiceError) -> None:
        failure = parser.failure
        if isinstance(failure, SourceMovedError) and self._destination.reads(parser):
            self._destination.tell("error", f"another server answers at the address of the source: {error}")

    def _begin(self, wanted: str, *, accept: bool, by_itself: bool) -> "asyncio.Task[None]":
        return self._start(self._run(wanted, accept=accept, by_itself=by_itself))

    def _start(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        self._task = asyncio.create_task(work, name=f"switch the source of {self._where['destination']}")
        self._task.add_done_callback(self._ended)
        return self._task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, SluiceError):
            self._destination.fail(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    def _down_from(self, parser: Parser) -> Callable[[], None]:
        """Return what a thread calls when the source of a parser does not answer any more."""
        loop = asyncio.get_running_loop()

        def act() -> None:
            config, is_idle = self._destination.config, self._task is None or self._task.done()
            if config.probing is not None and config.probing.switches and is_idle and self._destination.reads(parser):
                self._begin(config.others[0], accept=False, by_itself=True)

        def tell() -> None:
            loop.call_soon_threadsafe(act)

        return tell

    async def _run(self, wanted: str, *, accept: bool, by_itself: bool) -> None:
        """See `make`; ``by_itself``: nothing is read any more when somebody has to accept what is lost."""
        async with self._destination.turns:
            await self._run_alone(wanted, accept=accept, by_itself=by_itself)

    async def _run_alone(self, wanted: str, *, accept: bool, by_itself: bool) -> None:
        destination = self._destination
        parser, before = destination.running_parser(), destination.config.in_use
        stays_halted = by_itself or self._is_halted
        logger.info("%sswitching from %s to %s", self._about, before, wanted, extra=self._where)
        self._status = replace(self._status, switching=wanted)
        try:
            await self._leave(parser)
            config, place, lost = await self._prove(wanted, parser, accept=accept, by_itself=by_itself)
        except asyncio.CancelledError:
            self._status = replace(self._status, switching="")
            raise
        except SluiceError as error:
            if str(error) != self._status.refusal:
                text = "the switch to %s is refused: %s"
                logger.error(text, wanted, error, extra=self._where)  # noqa: TRY400  says all
            runs = error.lost if isinstance(error, LostTransactionsError) else ()
            self._status = replace(self._status, switching="", refusal=str(error), lost=runs)
            if runs and stays_halted:
                self._is_halted = True
                destination.tell("error", str(error))
            else:
                place = None if destination.member else destination.given.boundary()
                await destination.read_on(parser, destination.config, place, is_another=False)
            raise
        self._status, self._torn = SourceStatus(""), None
        text = f", without {lost}, as accepted" if lost else ""
        say = "%sreads %s from here on, no longer %s%s"
        logger.warning(say, self._about, wanted, before, text, extra=self._where)
        await destination.read_on(parser, config, place, is_another=wanted != before)

    async def _ask(self, config: InstanceConfig, parser: Parser) -> tuple[Cursor | None, Transactions, bool]:
        """Ask the server of a configuration where it goes on, what it lacks, and whether all places stay as they are.

        ``parser`` has read before. Raises as `Parser.prove`.
        """
        destination = self._destination
        lost, place, is_same = Transactions(), None, True
        prover = self._prover = destination.make_prover(config)
        try:
            for end, proof in await self._proofs(prover, parser):
                lost = lost.with_(proof.lost)
                place = place or proof.place
                is_same = is_same and proof.place == end
        except SluiceError as error:
            if self._about:
                raise type(error)(f"{self._about}{error}") from error
            raise
        finally:
            self._prover = None
            prover.stop()
        return place, lost, is_same

    async def _prove(
        self, wanted: str, parser: Parser, *, accept: bool, by_itself: bool
    ) -> tuple[InstanceConfig, Cursor | None, str]:
        """Return the configuration that reads a server on, where, and what that lacks, as accepted; it is stored.

        ``parser`` has read before. With ``accept``, or ``by_itself``, clients may have to pass over changes.
        """
        destination, before = self._destination, self._destination.chosen
        accepted = before.accepted if before is not None else ""
        config = destination.config.using(InUse(wanted, accepted))
        try:
            place, lost, is_same = await self._ask(config, parser)
        except (SourceChangedError, PurgedError) as error:  # no position of a client is meant
            raise SwitchRefusedError(str(error)) from error
        if lost and not accept:
            raise LostTransactionsError(
                f"{self._about}{wanted} does not have {len(lost)} transactions that were delivered:"
                f" {shorten(lost.runs)}. To go on without them: {self._command} --to {wanted} --accept",
                tuple(lost.runs[:MOST_LISTED]),
            )
        is_another = wanted != destination.config.in_use
        if not (is_same or destination.goes_on_in_ring(is_another=is_another)):
            raise SwitchRefusedError(
                f"without GTIDs a destination with a log on disk cannot resume on {wanted}: set gtid_mode = ON at both"
                " servers, or sluice.instance.store = memory"
                if config.has_log
                else f"a transaction was read in part, and without GTIDs the stream cannot resume inside it on"
                f" {wanted}: switch again when the rest has come, or set gtid_mode = ON at both servers"
            )
        if is_another and not (accept or by_itself):
            await self._destination.drain()
            self._check_bound(wanted)
        since = before.since if before is not None else ""
        if is_another:
            end = destination.given.boundary() or destination.log_end()
            since = str(end.position) if config.has_log and end is not None and end.position is not None else ""
        chosen = InUse(wanted, str(Transactions.parse(accepted).with_(lost)), since)
        try:
            await destination.choose(chosen)
        except OSError as error:
            raise NotStoredError(f"which source is read cannot be stored: {error}") from error
        return destination.config.using(chosen), place, str(lost)

    def _check_bound(self, wanted: str) -> None:
        """Raise SwitchRefusedError if there are clients that could not go on where they are."""
        found = self._destination.bound_clients()
        if found:
            config = self._destination.config
            raise SwitchRefusedError(
                f"{self._about}{len(found)} clients wait for places that only {config.in_use} knows:"
                f" {shorten(found, 'clients')}. Switch again when `sluice status` shows them as attached, those of"
                " outputs without rows that wait; or move them (sluice seek). To switch at once, so that they miss"
                " changes or get some again, and a marker:"
                f" {self._command} --to {wanted} --accept"
            )

    async def _proofs(self, prover: Parser, parser: Parser) -> list[tuple[Cursor, Proof]]:
        """Prove the places that another server has to have: the end of the ring, else that of the log and the clients'.

        ``parser`` has read before. Of a transaction that clients were given in part, the rest is wanted, too.
        """
        given = self._destination.given
        sample, boundary = given.sample(), given.boundary()

        async def prove(place: Cursor) -> tuple[Cursor, Proof]:
            return place, await asyncio.to_thread(prover.prove, place, sample)

        self._note_torn(given, boundary, parser)
        if boundary is not None:
            found = [await prove(boundary), *await self._proofs_ahead(prove)]
        else:
            found = await self._proofs_of_clients(prove)
        if self._torn is not None:
            found.append(await prove(self._torn))
        return found

    async def _proofs_ahead(self, prove: _Prove) -> list[tuple[Cursor, Proof]]:
        """Prove the places with GTIDs of the clients that got more, in an earlier life, than the ring has."""
        found = list[tuple[Cursor, Proof]]()
        for place, client_id in self._destination.given.ahead().items():
            try:
                found.append(await prove(place))
            except PurgedError:
                continue  # it is told so by itself
            except SourceChangedError as error:
                raise SwitchRefusedError(f"client {client_id}: {error}") from error
        return found

    async def _proofs_of_clients(self, prove: _Prove) -> list[tuple[Cursor, Proof]]:
        """Prove the end of the log, which the clients before it need, and the places of the others.

        A client of which the server has purged what comes next does not count beside others: it is told so by itself.
        """
        end = self._destination.log_end()
        found = [await prove(end)] if end is not None and end.gtid else []
        is_log_proven, purged = bool(found), None
        for client_id, place, is_logged in self._destination.given.places():
            if is_log_proven and is_logged:
                continue
            try:
                found.append(await prove(place))
            except PurgedError as error:
                purged = SwitchRefusedError(f"client {client_id}: {error}")
            except SourceChangedError as error:
                raise SwitchRefusedError(f"client {client_id}: {error}") from error
        if purged is not None and not found:
            raise purged
        return found

    def _note_torn(self, given: Given, boundary: Cursor | None, parser: Parser) -> None:
        """Remember the transaction of which clients were given a part; ``boundary`` is before it.

        It is remembered while the stream begins again, until that has passed its place: with the whole, or without it.
        """
        if boundary is None or boundary.position is None:
            return
        place = boundary.position
        torn = self._torn.position if self._torn is not None else None
        if torn is not None and not (place.is_comparable(torn) and place <= torn):
            self._torn = torn = None
        if torn is not None and place < torn:  # of that one, all before it is wanted, too
            return
        self._torn = given.in_part(boundary, parser) or self._torn


def shorten(runs: Sequence[str], what: str = "runs") -> str:
    """Return some of the runs, or of something else, as text, and how many more there are."""
    more = f" and {len(runs) - 5} more {what}" if len(runs) > 5 else ""
    return ", ".join(runs[:5]) + more
