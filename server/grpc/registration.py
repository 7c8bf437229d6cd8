"""Keeps a pump registered while it serves, so that TiDB and drainers find it."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, Final

import grpc
import grpc.aio

from ...instance.pump.etcd import EtcdError
from ...instance.pump.nodes import Node, NodeError, Nodes, State

PERIOD: Final = 2.0
"""Seconds between two writes of the status."""
NOTICE: Final = 10.0
"""Seconds that a drainer may take to notice a pump."""

Clock = Callable[[], tuple[int, int]]
"""Gives the commit_ts up to which the pump has all, and the time of the cluster."""

logger = logging.getLogger("sluice.pump")


class Registration:
    """What a pump says of itself to its cluster. All methods belong to one event loop."""

    def __init__(self, nodes: Nodes, node: Node, clock: Clock) -> None:
        self._nodes = nodes
        self._node = node
        self._clock = clock
        self._writing = asyncio.Lock()
        self.problem = ""
        """Why the status could not be written the last time; empty: it could."""

    @property
    def state(self) -> State:
        """What the pump does."""
        return self._node.state

    async def turn(self, state: State) -> None:
        """Go into another state, and write it. Raises NodeError if that may not follow, and EtcdError."""
        async with self._writing:
            node = self._now(self._node.turned(state))
            await asyncio.to_thread(self._nodes.write, node)
            self._node = node

    async def keep(self) -> None:
        """Write the status every `PERIOD`, for ever. What goes wrong is said once, and tried again."""
        while True:
            await asyncio.sleep(PERIOD)
            try:
                async with self._writing:
                    await asyncio.to_thread(self._nodes.write, self._now(self._node))
            except EtcdError as error:
                if not self.problem:
                    logger.warning("the status of the pump is not written: %s", error)
                self.problem = str(error)
            else:
                self.problem = ""

    def _now(self, node: Node) -> Node:
        max_commit_ts, update_ts = self._clock()
        return replace(node, max_commit_ts=max_commit_ts, update_ts=update_ts)


@contextlib.asynccontextmanager
async def registered(nodes: Nodes, node: Node, clock: Clock, credentials: Any = None) -> AsyncIterator[Registration]:
    """Have a pump online while the block runs, and paused after it. It has to answer calls already.

    Before it is online, every drainer that is has noticed it: none can pass what the pump will have. ``credentials``
    are those for calls of drainers; None: without TLS. Raises NodeError and EtcdError.
    """
    registration = Registration(nodes, await asyncio.to_thread(nodes.claim, node), clock)
    drainers = await asyncio.to_thread(nodes.drainers)
    await asyncio.gather(*(_notify(it, credentials) for it in drainers if it.state == State.ONLINE))
    await registration.turn(State.ONLINE)
    keeping = asyncio.create_task(registration.keep())
    try:
        yield registration
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
        await _leave(registration)


async def _leave(registration: Registration) -> None:
    """Say that the pump does not serve any more, unless it has left the cluster."""
    try:
        if registration.state == State.ONLINE:
            await registration.turn(State.PAUSING)
        if registration.state == State.PAUSING:
            await registration.turn(State.PAUSED)
    except EtcdError as error:
        logger.warning("the pump stays registered as %s: %s", registration.state, error)


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
