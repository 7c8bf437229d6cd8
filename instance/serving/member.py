"""A member of a group, as far as it can be exchanged for another server with the same data."""

import asyncio
from typing import Final, Protocol

from ...protocol.cut import Cut
from ...protocol.errors import ConfigError
from ...store.cursor import Cursor, member_of
from ...store.cursors import Cursors
from ..config import InstanceConfig
from ..meta.base import InUse
from ..source import Grouped, Parser
from .given import Given, GivenOfMember
from .switch import Destination, SourceSwitch

GLANCE: Final = 0.01
"""Seconds between two looks whether a member is read no longer."""


class Group(Destination, Protocol):
    """A destination that reads several sources."""

    cursors: Cursors

    def switch_of(self, member: str) -> SourceSwitch:
        """Return what switches a member."""

    async def read_member_on(self, parser: Parser, member: str, config: InstanceConfig) -> None:
        """Read another server of a member; ``parser`` has read before."""


class MemberSource:
    """See `sluice.instance.serving.switch.Destination`.

    The other members are read on while the proof is looked for. When it is found, the stream of the group begins again
    where its clients are: a ring, and a floor in it, know one server of a member.
    """

    is_needed = True
    is_stranded = False

    def __init__(self, group: Group, member: str) -> None:
        """``group`` is the destination that reads it."""
        self._group = group
        self.name = group.config.destination
        self.member = member
        self.turns = group.turns

    @property
    def config(self) -> InstanceConfig:
        """See `Destination.config`."""
        return self._group.config.sources()[self.member]

    @property
    def epoch(self) -> int:
        """See `Destination.epoch`."""
        return self._group.epoch

    @property
    def given(self) -> Given:
        """See `Destination.given`."""
        return GivenOfMember(self._group.cursors, self.member)

    @property
    def chosen(self) -> InUse | None:
        """See `Destination.chosen`."""
        chosen, was = self._group.chosen, self._group.config.was
        return None if chosen is None or (chosen.address and self.member != was) else chosen.of(self.member)

    async def choose(self, chosen: InUse) -> None:
        """See `Destination.choose`."""
        before = self._group.chosen or InUse()
        await self._group.choose(before.with_member(self.member, chosen, self._group.config.was))

    def running_parser(self) -> Parser:
        """See `Destination.running_parser`."""
        return self._group.running_parser()

    def reads(self, parser: Parser) -> bool:
        """See `Destination.reads`."""
        return self._group.reads(parser)

    def make_prover(self, config: InstanceConfig) -> Parser:
        """See `Destination.make_prover`."""
        return self._group.make_prover(config)

    def probe(self, parser: Parser) -> None:
        """See `Destination.probe`."""
        _grouped(parser).probe_member(self.member)

    async def stop_reading(self, parser: Parser) -> None:
        """See `Destination.stop_reading`."""
        self._group.switch_of(self.member).leave()
        group = _grouped(parser)
        group.halt(self.member)
        while self.reads(parser) and not group.is_halted(self.member):  # noqa: ASYNC110  a thread does that
            await asyncio.sleep(GLANCE)

    def goes_on_in_ring(self, *, is_another: bool) -> bool:
        """See `Destination.goes_on_in_ring`: only with the same server."""
        return not is_another

    def bound_clients(self) -> list[str]:
        """See `Destination.bound_clients`: without GTIDs nothing is switched."""
        return []

    async def drain(self) -> None:
        """See `Destination.drain`: all have GTIDs."""

    def log_end(self) -> Cursor | None:
        """See `Destination.log_end`."""
        end = self._group.log_end()
        return None if end is None or not isinstance(end.position, Cut) else member_of(end, self.member)

    async def read_on(self, parser: Parser, config: InstanceConfig, place: Cursor | None, *, is_another: bool) -> None:
        """See `Destination.read_on`; the same server is read on where it was left."""
        del place
        if is_another:
            await self._group.read_member_on(parser, self.member, config)
        else:
            _grouped(parser).go_on(self.member)
            self._group.switch_of(self.member).attend(parser)

    def tell(self, state: str, error: str) -> None:
        """See `Destination.tell`."""
        self._group.tell(state, error)

    def fail(self, error: Exception) -> None:
        """See `Destination.fail`."""
        self._group.fail(error)

    async def begin_anew(self, parser: Parser) -> None:
        """See `Destination.begin_anew`."""
        await self._group.begin_anew(parser)


def _grouped(parser: Parser) -> Grouped:
    if not isinstance(parser, Grouped):
        raise ConfigError("a single source is read, which has no members")
    return parser
