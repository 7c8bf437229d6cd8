"""The life of a pump in a process: its log, its port, its registration, and what it says of itself."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc

from ...instance.pump.etcd import Etcd
from ...instance.pump.log import PumpLog
from ...instance.pump.nodes import Node, Nodes, State
from ..metrics import PumpCollector
from ..pumps import PumpStanding
from ..resources import Resources
from .config import PumpConfig
from .listen import listening
from .pump import Pump
from .registration import Registration


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
        registration = None
        if config.pd:
            host = config.advertise or addresses[0]
            registration = await stack.enter_async_context(_registered(config, host, log, resources))

        def standing() -> PumpStanding:
            return PumpStanding(
                node_id=config.name,
                address=" and ".join(addresses),
                cluster_id=config.cluster_id,
                state=State.ONLINE if registration is None else registration.state,
                wanted=State.ONLINE if registration is None else registration.wanted,
                problem="" if registration is None else registration.problem,
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
async def _registered(config: PumpConfig, host: str, log: PumpLog, resources: Resources) -> AsyncIterator[Registration]:
    """Keep a pump registered while the block runs, and say after it that it does not serve any more."""
    etcd = Etcd.over_tls(config.pd, config.tls_ca, config.tls_cert, config.tls_key)
    labels = dict(it.split("=", 1) for it in config.labels)
    node = Node(config.name, host, State.PAUSED, labels=labels)
    registration = Registration(Nodes(etcd), node, log, lambda: log.status.released, _credentials(config))
    keeping = asyncio.create_task(registration.keep(), name="pump's registration")
    keeping.add_done_callback(lambda _: resources.stopping.announce())  # if it fails, the process ends
    try:
        yield registration
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
        if not registration.problem:  # else it would wait for what does not answer
            await registration.leave()
        etcd.close()


def _credentials(config: PumpConfig) -> Any:
    """Return whom to trust and what to show in calls of drainers; None: they are without TLS. Raises OSError."""
    if config.tls_cert is None or config.tls_key is None:
        return None
    authorities = None if config.tls_ca is None else config.tls_ca.read_bytes()
    return grpc.ssl_channel_credentials(authorities, config.tls_key.read_bytes(), config.tls_cert.read_bytes())
