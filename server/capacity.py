"""Whether sources have enough of everything for all destinations that read them."""

import asyncio
import contextlib
import logging
import threading
from collections import defaultdict
from collections.abc import Iterable

from ..instance.config import InstanceConfig
from ..instance.sources.registry import examine
from ..protocol.errors import SluiceError
from .config import Configuration
from .network import is_loopback

logger = logging.getLogger(__name__)

ASKING = 3.0
"""Seconds that the server waits for sources to say what they allow."""


async def warn_of_shortages(configuration: Configuration, names: Iterable[str]) -> None:
    """Say which sources have too little of something, before it runs out; slow sources are reported later."""

    def warn() -> None:
        configs = []
        for name in names:
            with contextlib.suppress(SluiceError, OSError):  # it is said when the destination starts
                configs.append(configuration.instance(name))
        for address, shortage in find_shortages(configs):
            logger.warning("source %s: %s", address, shortage)

    asking = threading.Thread(target=warn, name="shortages", daemon=True)
    asking.start()
    await asyncio.to_thread(asking.join, ASKING)


def find_shortages(configs: Iterable[InstanceConfig]) -> list[tuple[str, str]]:
    """Ask each source of several destinations what it allows; return those that allow too little, and what helps.

    A source that cannot be asked is left out: its destinations say why.
    """
    sources: dict[tuple[str, str, int], list[InstanceConfig]] = defaultdict(list)
    for config in configs:
        if config.route:  # it is not read for a view
            continue
        sources[config.source, *_one_name(*config.address)].append(config)
    found = []
    for sharing in sources.values():
        if len(sharing) > 1:
            try:
                with examine(sharing[0]) as source:
                    shortage = source.shortage(sharing)
            except SluiceError:
                continue
            if shortage:
                found.append((str(sharing[0].address), shortage))
    return found


def _one_name(host: str, port: int) -> tuple[str, int]:
    """Return the same for all ways to write an address of this host, and for a name in capitals."""
    return "localhost" if is_loopback(host.lower()) else host.lower(), port
