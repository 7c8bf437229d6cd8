"""The running server: destinations, the watch over their folder, and the fronts that serve clients."""

import asyncio
import contextlib
import ctypes
import gc
import logging
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from ..instance.sources.registry import make_parser
from ..protocol.errors import ConfigError, SluiceError
from .capacity import warn_of_shortages
from .config import Configuration
from .embedded import EmbeddedServer
from .front import FrontConfig
from .fronts import require_safe
from .ha.cluster import Cluster, Identity
from .logins import LoginLimiter
from .metrics import Metrics
from .outputs.outputs import Outputs
from .outputs.registry import make
from .processes import ALL, supervise
from .resources import Resources
from .scan import Scanner
from .serving import serving
from .waiting import Stopping

logger = logging.getLogger(__name__)

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Numbers of settings for mallopt(3)."""
KEPT = 64 << 20
"""Bytes of freed memory that each arena of the allocator keeps."""
LARGEST = 8 << 20
"""Bytes of one allocation that is made of such memory."""
GROUP_SECONDS = 5.0
"""That ZooKeeper may take to say the name of the servers that share it."""


async def run(configuration: Configuration, logins: LoginLimiter) -> None:
    """Run until SIGINT or SIGTERM; ``logins`` counts failed logins.

    A source that cannot be reached is not an error here: its destination tries again and says so in its state. Raises
    ConfigError, before anything is started, when files have mistakes, or when no destination can start; OSError when a
    port is taken; CancelledError when a signal comes while it starts.
    """
    stopping = _stopped_by_signals()
    names = configuration.destinations()
    if configuration.share == ALL:  # else it is checked before the processes are started
        await asyncio.to_thread(require_startable, configuration)

    embedded = EmbeddedServer(
        configuration.instance,
        make_parser,
        make_cluster=partial(make_cluster, configuration) if configuration.server.zk_servers else None,
        make_companions=partial(make_outputs, configuration),
        require=configuration.require,
    )
    scanner = Scanner(configuration, embedded)
    scanner.remember()
    async with contextlib.AsyncExitStack() as stack:
        if embedded.cluster is not None:
            await stack.enter_async_context(_taking_part(embedded.cluster))
        stack.push_async_callback(embedded.close)
        if configuration.share == ALL:
            await warn_of_shortages(configuration, names)
        await _start(embedded, configuration.views_first(names), some=configuration.share == ALL)
        if configuration.server.auto_scan:
            scanning = asyncio.create_task(scanner.run(), name="scan")
            stack.callback(scanning.cancel)
        resources = Resources(embedded, Metrics(embedded), stopping, logins, secrets=configuration)
        await serve(configuration.fronts, resources, _keep_loaded)


def _keep_loaded(_addresses: object) -> None:
    """Let no collection of garbage look through what is loaded by now: that was a sixth of a busy server's time."""
    gc.collect()
    gc.freeze()


def _stopped_by_signals() -> Stopping:
    """Let SIGINT and SIGTERM end this task while it starts; `_announced_by_signals` handles them once it serves.

    Python would raise KeyboardInterrupt wherever it is: in a callback of the loop, or of a library, it would be lost.
    """
    stopping, starting, loop = Stopping(), asyncio.current_task(), asyncio.get_running_loop()
    assert starting is not None

    def stop() -> None:
        stopping.announce()
        starting.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    return stopping


@contextlib.contextmanager
def _announced_by_signals(stopping: Stopping) -> Iterator[None]:
    """Announce the stop at SIGINT and SIGTERM while the block runs.

    Another SIGTERM after it changes nothing: a supervisor and what has started that may both send one.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
        yield
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.announce)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def run_processes(configuration: Configuration, commands: Sequence[Sequence[str]], files: Sequence[int]) -> None:
    """Run the processes of a server, which inherit some files, until SIGINT or SIGTERM. Raises ConfigError as `run`."""
    await asyncio.to_thread(require_startable, configuration)
    await warn_of_shortages(configuration, configuration.destinations())
    await supervise(commands, files)


def require_startable(configuration: Configuration) -> None:
    """Raise ConfigError when files have mistakes, or there is nothing to serve, or nobody may be served so."""
    if not (configuration.destinations() or configuration.server.auto_scan or configuration.has_pump):
        raise ConfigError(f"{configuration.main_file}: canal.destinations is empty, so there is nothing to serve")
    configuration.check()
    require_safe(configuration.fronts)


def keep_freed_memory() -> None:
    """Let the allocator keep what a batch frees for the next one, where it is that of glibc.

    Otherwise the kernel takes and clears the pages of each batch: a third of the time of an output.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGEST)
        mallopt(_M_TRIM_THRESHOLD, KEPT)


def make_cluster(configuration: Configuration, embedded: EmbeddedServer) -> Cluster:
    """Make this server one of those that share their destinations over ZooKeeper."""
    config = configuration.server
    host, port = configuration.addresses.address
    return Cluster(
        config.zk_servers,
        config.session_timeout,
        Identity(f"{host}:{port}", configuration.addresses.url),
        embedded,
        configuration.instance,
    )


def make_outputs(configuration: Configuration, embedded: EmbeddedServer) -> Outputs:
    """Make what sends the changes of this server's destinations to other systems."""
    loop = asyncio.get_running_loop()

    def group() -> str:
        """Return what the servers that share destinations have in common; called in other threads."""
        assert embedded.cluster is not None
        return asyncio.run_coroutine_threadsafe(embedded.cluster.group(), loop).result(GROUP_SECONDS)

    return Outputs(embedded, configuration.outputs_as_found, lambda output: make(output, group))


@contextlib.asynccontextmanager
async def _taking_part(cluster: Cluster) -> AsyncIterator[None]:
    running = asyncio.create_task(cluster.run(), name="cluster")
    try:
        yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def serve(
    fronts: Iterable[FrontConfig],
    resources: Resources,
    listening: Callable[[Mapping[type[FrontConfig], str]], None],
) -> None:
    """Serve clients until SIGINT or SIGTERM, then stop within 5 s: calls answered, cursors saved.

    ``listening`` is called with the addresses once all sockets are open. The destinations are stopped in any case.
    Raises as `serving`.
    """
    try:
        with _announced_by_signals(resources.stopping):
            async with serving(fronts, resources) as addresses:
                listening(addresses)
                await resources.stopping.wait()
    finally:
        await resources.embedded.close()


async def _start(embedded: EmbeddedServer, names: list[str], *, some: bool) -> None:
    """Start the destinations. One that cannot start does not block others; with ``some`` at least one has to."""
    failed = []
    for name in names:
        try:
            await embedded.start(name)
        except SluiceError as error:
            failed.append(f"{name}: {error}")
            logger.error("%s", error, extra={"destination": name})  # noqa: TRY400  the text says all
    if some and failed and len(failed) == len(names):
        raise ConfigError("\n".join(failed))
