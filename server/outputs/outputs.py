"""The outputs of the destinations that this server has: they start after a destination, and end before it."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from ...protocol.errors import SluiceError
from ..embedded import EmbeddedServer
from ..embedded.companions import OutputStatus
from .delivery import Delivery
from .settings import Output
from .target import Target

logger = logging.getLogger(__name__)


class Outputs:
    """The deliveries of this process. All methods belong to the event loop."""

    def __init__(
        self, embedded: EmbeddedServer, load: Callable[[str], Sequence[Output]], make: Callable[[Output], Target]
    ) -> None:
        """``load`` reads what is configured for a destination, ``make`` makes the other side of an output."""
        self._embedded = embedded
        self._load = load
        self._make = make
        self._deliveries: dict[str, list[Delivery]] = {}
        self._running: dict[str, list[asyncio.Task[None]]] = {}

    async def start(self, destination: str) -> None:
        """Start the outputs of a destination that runs; those that run already make their next attempt now.

        If one cannot be used as configured, that is logged, and none starts: the changes wait at their cursors.
        """
        if destination in self._running:
            for delivery in self._deliveries[destination]:
                delivery.retry()
            return
        try:
            outputs = await asyncio.to_thread(self._load, destination)
            deliveries = [Delivery(self._embedded, it, self._make(it)) for it in outputs]
        except SluiceError as error:
            logger.error("its outputs do not start: %s", error, extra={"destination": destination})  # noqa: TRY400
            return
        self._deliveries[destination] = deliveries
        self._running[destination] = [asyncio.create_task(it.run(), name=str(it.output)) for it in deliveries]

    async def stop(self, destination: str) -> None:
        """Stop the outputs of a destination: when it returns, they send nothing more."""
        tasks = self._running.pop(destination, [])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def status(self, destination: str) -> list[OutputStatus]:
        """Return where the outputs of a destination stand."""
        return [it.status for it in self._deliveries.get(destination, ())]
