"""The fronts of a process while they serve."""

import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Mapping

from .front import FrontConfig
from .fronts import doubts, module_of, require_safe, served
from .resources import Resources, Serve

logger = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def serving(
    fronts: Iterable[FrontConfig], resources: Resources
) -> AsyncIterator[Mapping[type[FrontConfig], str]]:
    """Serve all fronts that are to be served while the block runs; gives their addresses once all sockets are open.

    Raises ConfigError when one may not listen where it is told to, OSError when it cannot.
    """
    fronts = served(fronts)[::-1]  # HTTP is the last to open, since it says that the server is ready
    require_safe(fronts)
    addresses = {}
    async with contextlib.AsyncExitStack() as stack:
        for front in fronts:
            serve: Serve = module_of(front, "serve")
            addresses[type(front)] = await stack.enter_async_context(serve.serving(front, resources))
        stack.callback(resources.stopping.announce)
        for front in fronts:
            logger.info("%s", front.announcement(addresses[type(front)]))
        for doubt in doubts(fronts):
            logger.warning("%s", doubt)
        yield addresses
