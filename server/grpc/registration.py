"""Keeps a pump registered while it serves, so that TiDB and drainers find it, and takes it where operators want it."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import grpc
import grpc.aio

from ...instance.pump.log import PumpLog
from ...login.etcd import EtcdError
from ...login.nodes import Node, NodeError, Nodes, State

PERIOD: Final = 2.0
"""Seconds between two writes of the status."""
NOTICE: Final = 10.0
"""Seconds that a drainer may take to notice a pump."""

logger = logging.getLogger("sluice.pump")


class Registration:
    """What a pump says of itself to its cluster. All methods belong to one event loop.

    The pump takes Prewrites while it is online. What has begun can end in any state, and drainers can read in any.
    """

    def __init__(
        self, nodes: Nodes, node: Node, log: PumpLog, clock: Callable[[], int], credentials: Any = None
    ) -> None:
        """``clock`` gives the time of the cluster. ``credentials``: those for calls of drainers; None: without TLS."""
        self._nodes = nodes
        self._node = replace(node, state=State.PAUSED)
        self._log = log
        self._clock = clock
        self._credentials = credentials
        self._is_claimed = False
        self.wanted = State.ONLINE
        """Where the pump is to go."""
        self.problem = ""
        """Why the cluster does not know of the pump how it stands; empty: it does."""
        log.not_online = _refusal(State.PAUSED)

    @property
    def state(self) -> State:
        """What the pump does."""
        return self._node.state

    async def keep(self) -> None:
        """Register the pump, take it where it is wanted, and write its status every `PERIOD`, for ever.

        What goes wrong is said once, and tried again.
        """
        while True:
            try:
                await self._go_on()
            except (EtcdError, NodeError) as error:
                if str(error) != self.problem:
                    logger.warning("the pump is %s: %s", self.state, error)
                self.problem = str(error)
            else:
                self.problem = ""
            await asyncio.sleep(PERIOD)

    async def leave(self) -> None:
        """Say that the pump does not serve any more, unless it has left the cluster. It takes no Prewrite after it."""
        try:
            if self.state == State.ONLINE:
                await self._turn(State.PAUSING)
            if self.state == State.PAUSING:
                await self._turn(State.PAUSED)
        except EtcdError as error:
            logger.warning("the pump stays registered as %s: %s", self.state, error)

    async def _go_on(self) -> None:
        if not self._is_claimed:
            self._node = await asyncio.to_thread(self._nodes.claim, self._node)
            self._is_claimed = True
        wanted = await asyncio.to_thread(self._nodes.wanted, self._node.node_id)
        self.wanted = wanted or State.ONLINE
        while (state := await self._next()) != self.state:
            await self._turn(state)
            await self._log.settle()  # a Prewrite that came before may be on its way to the disk
            logger.info("the pump %s is %s", self._node.node_id, state)
        await self._turn(self.state)

    async def _next(self) -> State:
        """Return the next state on the way to the one that is wanted, as far as it may be gone to now."""
        is_ended = not self._log.status.open
        match self.state:
            case State.ONLINE if self.wanted != State.ONLINE:
                return State.PAUSING if self.wanted == State.PAUSED else State.CLOSING
            case State.PAUSING if is_ended:
                return State.PAUSED
            case State.PAUSED if self.wanted == State.ONLINE:
                await self._have_noticed()
                return State.ONLINE
            case State.PAUSED if self.wanted == State.OFFLINE:
                return State.CLOSING
            case State.CLOSING if is_ended and await asyncio.to_thread(
                self._nodes.have_read, self._log.status.released
            ):
                return State.OFFLINE
            case State.OFFLINE if self.wanted != State.OFFLINE:
                return State.PAUSED
        return self.state

    async def _turn(self, state: State) -> None:
        """Go into a state, and write it. Raises NodeError if that may not follow, and EtcdError.

        Prewrites are refused before the cluster is told, and taken before it is told.
        """
        self._log.not_online = _refusal(state)
        try:
            turned = replace(self._node.turned(state), max_commit_ts=self._log.status.released, update_ts=self._clock())
            await asyncio.to_thread(self._nodes.write, turned)
        except (EtcdError, NodeError):
            self._log.not_online = _refusal(self.state)
            raise
        self._node = turned

    async def _have_noticed(self) -> None:
        """Have every drainer that is online notice the pump, so that none can pass what it will have.

        Raises NodeError and EtcdError.
        """
        drainers = await asyncio.to_thread(self._nodes.drainers)
        await asyncio.gather(*(_notify(it, self._credentials) for it in drainers if it.state == State.ONLINE))


def _refusal(state: State) -> str:
    """Return what TiDB gets for a Prewrite, in the words of its own pump; empty: it is taken."""
    return "" if state == State.ONLINE else f"no online: {state}"


async def _notify(drainer: Node, credentials: Any) -> None:
    """Wait until a drainer has noticed the pump. Raises NodeError."""
    if credentials is None:
        channel = grpc.aio.insecure_channel(drainer.host)
    else:
        channel = grpc.aio.secure_channel(drainer.host, credentials)
    async with channel:
        try:
            await channel.unary_unary("/binlog.Cistern/Notify")(b"", timeout=NOTICE)  # both messages are empty
        except grpc.aio.AioRpcError as error:
            raise NodeError(
                f"the drainer {drainer.node_id!r} at {drainer.host} is online, and has not noticed the pump"
                f" ({error.code().name}: {error.details()}): start it, or pause it"
            ) from None
