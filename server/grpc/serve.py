"""The life of a pump in a process: its log, its port, its registration, and what it says of itself."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import grpc

from ...instance.pump.cluster import Cluster
from ...instance.pump.log import PumpLog
from ...login.etcd import Etcd, tls_of
from ...login.nodes import Node, Nodes, State
from ..metrics import PumpCollector
from ..pumps import PumpStanding
from ..resources import Resources
from ..waiting import STOP_SECONDS
from .checks import databases_of
from .config import PumpConfig
from .listen import listening
from .pump import Pump
from .registration import Registration
from .upkeep import Upkeep

logger = logging.getLogger("sluice.pump")


@contextlib.asynccontextmanager
async def serving(config: PumpConfig, resources: Resources) -> AsyncIterator[str]:
    """Serve a pump while the block runs; gives its addresses. See `sluice.server.resources.Serve`.

    Raises also LogError when its log cannot be used.
    """
    async with contextlib.AsyncExitStack() as stack:
        await asyncio.to_thread(config.folder.mkdir, parents=True, exist_ok=True)
        log = await asyncio.to_thread(PumpLog, config.folder, config.cluster_id, stop_at=config.stop_write_at)
        stack.push_async_callback(log.close)
        pump = Pump(log, config.cluster_id, frozenset(config.allowed))
        addresses = await stack.enter_async_context(listening(config, pump, resources.stopping))
        tls = tls_of(config.tls_ca, config.tls_cert, config.tls_key)
        cluster = Cluster(databases_of(config), config.tidb_status, tls)
        stack.callback(cluster.close)
        nodes = None
        if config.pd:
            etcd = Etcd(config.pd, tls)
            stack.callback(etcd.close)
            nodes = Nodes(etcd)
        upkeep = Upkeep(config, log, cluster, nodes)
        await stack.enter_async_context(_running(upkeep.run(), resources))
        registration = None
        if nodes is not None:
            labels = dict(it.split("=", 1) for it in config.labels)
            node = Node(config.name, config.advertise or addresses[0], State.PAUSED, labels=labels)
            registration = Registration(nodes, node, log, lambda: upkeep.time, _credentials(config))
            stack.push_async_callback(_leave, registration)
            await stack.enter_async_context(_running(registration.keep(), resources))

        def standing() -> PumpStanding:
            return PumpStanding(
                node_id=config.name,
                address=" and ".join(addresses),
                cluster_id=config.cluster_id,
                state=State.ONLINE if registration is None else registration.state,
                wanted=State.ONLINE if registration is None else registration.wanted,
                problem="" if registration is None else registration.problem,
                clock_problem=upkeep.clock_problem,
                unresolved=upkeep.unresolved,
                log=log.status,
                served=pump.served,
            )

        collector = PumpCollector(standing)
        resources.metrics.registry.register(collector)
        stack.callback(resources.metrics.registry.unregister, collector)
        resources.pumps.append(standing)
        stack.callback(resources.pumps.remove, standing)
        yield " and ".join(addresses)


@contextlib.asynccontextmanager
async def _running(work: Coroutine[Any, Any, None], resources: Resources) -> AsyncIterator[None]:
    """Have some work done while the block runs; if it fails, the process ends."""
    task = asyncio.create_task(work, name="pump")
    task.add_done_callback(lambda _: resources.stopping.announce())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _leave(registration: Registration) -> None:
    """Say that a pump does not serve any more, unless that would wait for what does not answer."""
    if registration.problem:
        return
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await registration.leave()
    except TimeoutError:
        logger.warning("the pump stays registered as %s: PD does not answer", registration.state)


def _credentials(config: PumpConfig) -> Any:
    """Return whom to trust and what to show in calls of drainers; None: they are without TLS. Raises OSError."""
    if config.tls_cert is None or config.tls_key is None:
        return None
    authorities = None if config.tls_ca is None else config.tls_ca.read_bytes()
    return grpc.ssl_channel_credentials(authorities, config.tls_key.read_bytes(), config.tls_cert.read_bytes())
