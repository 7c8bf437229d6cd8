"""The outputs of the destinations that this server has: they start after a destination, and end before it."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

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
        self._running: dict[Delivery, asyncio.Task[None]] = {}

    async def start(self, destination: str) -> None:
        """Bring the outputs of a destination that runs in line with their configuration as it is now.

        Those that are configured as before go on, and make their next attempt now. If one cannot be used as configured,
        that is logged, and nothing changes: what does not run leaves the changes at its cursor.
        """
        running = {it.output.name: it for it in self._deliveries.get(destination, ()) if it in self._running}
        deliveries: list[Delivery] = []
        try:
            for output in await asyncio.to_thread(self._load, destination):
                known = running.get(output.name)
                if known is None or not known.output.is_same(output):
                    known = Delivery(self._embedded, output, self._make(output))
                deliveries.append(known)
        except SluiceError as error:
            what = "do not change" if running else "do not start"
            logger.error("its outputs %s: %s", what, error, extra={"destination": destination})  # noqa: TRY400
            return
        await self._end([it for it in running.values() if it not in deliveries])
        self._deliveries[destination] = deliveries
        for delivery in deliveries:
            if delivery in self._running:
                delivery.retry()
            else:
                self._running[delivery] = asyncio.create_task(delivery.run(), name=str(delivery.output))

    async def stop(self, destination: str) -> None:
        """Stop the outputs of a destination: when it returns, they send nothing more."""
        await self._end(self._deliveries.get(destination, ()))

    async def _end(self, deliveries: Iterable[Delivery]) -> None:
        tasks = [task for it in deliveries if (task := self._running.pop(it, None)) is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def status(self, destination: str) -> list[OutputStatus]:
        """Return where the outputs of a destination stand."""
        return [it.status for it in self._deliveries.get(destination, ())]
