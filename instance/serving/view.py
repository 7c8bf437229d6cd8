"""A view of a destination: its own clients and tables on the same source, ring and log."""

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType

from ...protocol.errors import SluiceError
from ...store.admission import Defaults
from ...store.clients import Clients
from ...store.commits import Commits
from ...store.cursor import OLDEST, Cursor
from ...store.cursors import Cursors
from ...store.moves import Gate
from ...store.ring import Ring
from ..config import InstanceConfig
from ..meta.base import HeldError, MetaStore
from ..sink.filters import TableFilter
from ..source import Parser, ParserFactory
from ..status import SourceStatus
from .catchup import CatchUp
from .serving import Serving, compile_where

logger = logging.getLogger(__name__)


class Main(Serving):
    """A destination that can have views."""

    def __init__(
        self,
        config: InstanceConfig,
        make_parser: ParserFactory,
        meta: MetaStore | None = None,
        check_active: Callable[[], None] | None = None,
    ) -> None:
        """For the arguments see `Serving`."""
        super().__init__(config, make_parser, meta, check_active)
        self.views: list[View] = []
        """Those that begin and end with it; to be added before it starts, or by `admit`."""

    def forget(self, view: "View") -> None:
        """Have that view no longer."""
        self.views = [it for it in self.views if it is not view]

    @abstractmethod
    def keep_for(self, view: "View") -> None:
        """Let the log keep what protected clients of a view that is not served still need (`View.needed`)."""

    @abstractmethod
    def keep_no_more_for(self, view: "View") -> None:
        """Keep it no more: the view is served."""

    @abstractmethod
    async def admit(self, view: "View") -> None:
        """Serve a view as well: at once if it runs, else as soon as it does."""


class View(Serving):
    """A destination that shares source, ring and log of another one, its main. All methods belong to the event loop.

    It has clients, cursors, a filter of tables and a state of its own, and begins and ends with its main.
    """

    main: Main | None = None
    """The destination that it is a view of, if that is there. Nothing is served before that is, and has admitted it."""
    is_wanted = True
    """It is served whenever its main is: nobody has stopped it."""
    is_open = False
    """Its clients are loaded, and nobody else can change what is stored of them."""
    needed: Mapping[int, Cursor] = MappingProxyType({0: OLDEST})
    """Where its protected clients are while it is not served: the log keeps what they need. It keeps everything as
    long as they could not be read."""
    _epoch = 0
    _earlier: Clients | None = None
    """The clients that it serves again within a run of its main."""

    def __init__(
        self,
        config: InstanceConfig,
        make_parser: ParserFactory,
        meta: MetaStore | None = None,
        check_active: Callable[[], None] | None = None,
    ) -> None:
        """Nothing is served before its main is. For the arguments see `Serving`."""
        super().__init__(config, make_parser, meta, check_active)
        self._detach()

    def _detach(self) -> None:
        """Be without a stream, in which the clients would have places."""
        self.ring = Ring(2, 1)
        self.cursors = Cursors(self.ring, epoch=0, compile_filter=self.compile_filter, gate=self.gate)
        self._commits = Commits(self.cursors.clients)
        self.catch_up = CatchUp(self.config, self._make_feed, self.wake)

    def use_main(self, main: Main | None) -> None:
        """Be a view of that destination: said before each start, and when another takes its place while it waits."""
        self.main = main

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
        self._earlier = None
        try:
            self.needed = View.needed
            self._epoch, clients = await self._meta.open()
            self.needed = {it.client_id: it.cursor for it in clients if it.protected and it.cursor is not None}
            self.gate = Gate(self._meta.moves)
            await self._load(clients)
        except Exception as error:
            if not isinstance(error, SluiceError):
                logger.exception("it cannot start", extra={"destination": self.config.destination})
            await self._meta.close()
            self._refuse(str(error) or type(error).__name__)
            if self.main is not None:
                self.main.keep_for(self)
            self.held = error if isinstance(error, HeldError) else None
            return False
        self.is_open = self.is_wanted
        if not self.is_open:  # it was stopped meanwhile
            await self._meta.close()
        return self.is_open

    @property
    def stuck(self) -> float:
        """See `Serving.stuck`: it is that of its main."""
        return self.main.stuck if self.main is not None and self.is_open else 0.0

    @property
    def source_status(self) -> SourceStatus | None:
        """See `Serving.source_status`: it is that of its main."""
        return self.main.source_status if self.main is not None else None

    @property
    def member_sources(self) -> Mapping[str, SourceStatus]:
        """See `Serving.member_sources`: they are those of its main."""
        return self.main.member_sources if self.main is not None else {}

    async def load_again(self) -> None:
        """Get ready to begin again with the clients as they are."""
        self._earlier = self.cursors.clients
        await self._load(self._earlier.stored())

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
            main=main.cursors,
            gate=self.gate,
            defaults=Defaults(
                passes=None if self._filter.passes_all else self._filter,
                texts=self.config.main.passes_texts(self._filter),
                limits=self.config.client_limits,
                expire_after=self.config.client_expiry,
            ),
        )
        self._commits = Commits(self.cursors.clients)
        self._restore()
        main.keep_no_more_for(self)  # its own cursors do that again
        if self._earlier is not None:
            self.cursors.clients.continue_after(self._earlier)
            self._earlier = None

    def serve(self, parser: Parser) -> None:
        """See `Serving.serve`."""
        super().serve(parser)
        assert self.main is not None
        self._set_state(self.main.state, self.main.error)

    async def stop(self) -> None:
        """Leave the stream of its main, which goes on: hold nothing of it, and store the cursors."""
        serves = self._parser is not None
        self.is_wanted, self.held = False, None
        self.leave("stopped")
        if self.main is not None:
            self.main.forget(self)
        try:
            if serves:
                if self.main is not None:
                    self.needed = self.cursors.clients.protected
                    self.main.keep_for(self)
                self.cursors.leave()
                await self.settle()
        finally:
            self._stored = self.cursors.clients.stored()
            self._detach()
            self._restore()
            await self.close()

    async def close(self) -> None:
        """Let another process use what is stored of the clients."""
        if self.is_open:
            self.is_open, self.needed = False, self.cursors.clients.protected
            await self._meta.close()

    def refuse_to_start(self, error: SluiceError) -> None:
        """Say that it cannot be served as it is configured now."""
        self._refuse(str(error))

    def _refuse(self, problem: str) -> None:
        """Be stopped, and say why, and what that means for the log."""
        if self.config.main.has_log and self.needed is View.needed:
            problem += f". Until its clients can be read, the log of {self.config.route} keeps all"
        self._set_state("stopped", problem)

    def wait_for_main(self) -> None:
        """Say that it is not served because its main is not."""
        if self.main is not None and self.main.state == "standby":
            self.stand_by()
            return
        self._set_state("stopped", "")  # nothing is wrong with it: in the log that would be an error
        self.error = f"destination {self.config.route}, of which it is a view, does not run"

    def seek_start(self) -> None:
        """See `Serving.seek_start`."""
        if self.main is not None:
            self.main.seek_start()

    def _narrow(self, text: str, most: int | None = None) -> TableFilter:
        return self._filter.narrow(text, most, is_whole=True)  # what the view does not have passes no filter

    def tend_readers(self) -> None:
        """See `Serving.tend_readers`."""
        if self.main is not None:
            self.main.tend_readers()

    def judge(self) -> None:
        """See `Serving.judge`."""
        if self.main is not None:
            self.main.judge()

    def fail(self, error: Exception) -> None:
        """Stop serving with its main: whatever has failed, they share it."""
        if self.main is not None:
            self.main.fail(error)
