"""The outputs of the destinations that this server has: they start after a destination, and end before it."""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence

from ...protocol.errors import DestinationStoppedError, NotStoredError, SluiceError
from ...store.cursor import StoredClient
from ...store.moves import SERVER
from ..caller import Caller, caller
from ..embedded import EmbeddedServer
from ..embedded.companions import OutputStatus
from .configured import CANALS_CLIENT, with_same_client
from .delivery import Delivery
from .settings import Output
from .target import Target
from .threads import LeftExecutor

logger = logging.getLogger(__name__)

IDS = range(32001, 1 << 15)
"""Of the clients that outputs get which are configured without one: many more than a destination has outputs."""

MAKING = 10.0
"""Seconds that an output may take to be made: the code of a package may hang, and other outputs wait for it."""


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
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def start(self, destination: str) -> None:
        """Bring the outputs of a destination that runs in line with their configuration as it is now.

        Those that are configured as before go on, and make their next attempt now. One that runs and cannot be used as
        it is configured now goes on as before, and says so; any other has its client, and holds what it is due. As long
        as there is a mistake, none is ended.
        """
        async with self._locks[destination]:
            try:
                outputs = await asyncio.to_thread(self._load, destination)
            except SluiceError as error:
                logger.error("its outputs do not change: %s", error, extra={"destination": destination})  # noqa: TRY400
                for delivery in self._deliveries.get(destination, ()):
                    delivery.mistake = str(error)
                return
            # It may be on its way to run or to stop: then the next start comes here again.
            with contextlib.suppress(DestinationStoppedError):
                await self._follow(destination, assign(outputs, self._known(destination)))

    async def _follow(self, destination: str, outputs: Sequence[Output]) -> None:
        running = {it.output.name: it for it in self._deliveries.get(destination, ()) if it in self._running}
        names = {it.client_id: it.name for it in outputs}
        deliveries: list[Delivery] = []
        for output in outputs:
            known = running.get(output.name)
            if known is not None and known.output.is_same(output):
                known.mistake = ""
            elif (
                known is not None
                and not known.output.mistake
                and names.get(known.output.client_id, output.name) == output.name
                and (mistake := await self._mistake(output))
            ):
                known.mistake = mistake
                logger.error("%s keeps its previous settings: %s", output, mistake, extra={"destination": destination})
            else:
                known = Delivery(self._embedded, output, self._make)
            deliveries.append(known)
        is_valid = not (any(it.mistake for it in outputs) or any(it.mistake for it in deliveries))
        if not is_valid:
            gone = [it for name, it in running.items() if name not in names.values()]
            deliveries += [it for it in gone if it.output.client_id not in names]
        await self._end([it for it in running.values() if it not in deliveries])
        self._deliveries[destination] = deliveries
        for delivery in deliveries:
            if delivery not in self._running:
                await self._keep_place(delivery.output)
        for delivery in deliveries:
            if delivery in self._running:
                delivery.retry()
            else:
                self._running[delivery] = asyncio.create_task(delivery.run(), name=str(delivery.output))
        if is_valid:
            by = caller.set(Caller("the configuration")) if caller.get().name == SERVER else None
            await self._release(destination, {it.output.client_id for it in deliveries})
            if by is not None:
                caller.reset(by)

    async def _keep_place(self, output: Output) -> None:
        """Let an output that is another client from now on go on where it is: the new client is made at its place."""
        clients = {it.client_id: it for it in self._embedded.clients(output.destination)}
        former = next((it for it in clients.values() if it.output == output.name), None)
        if former is None or output.client_id in clients:
            return
        try:
            await self._embedded.inherit(output.destination, output.client_id, former)
        except NotStoredError as error:  # it counts, and is stored later
            logger.warning("%s: %s", output, error, extra={"destination": output.destination})
        logger.warning(
            "%s is client %d from here on, and resumes at the cursor of client %d",
            output,
            output.client_id,
            former.client_id,
            extra={"destination": output.destination},
        )

    def _known(self, destination: str) -> list[StoredClient]:
        """Return the clients that there are, and those that outputs which run are to have.

        Raises DestinationStoppedError.
        """
        found = {it.client_id: it for it in self._embedded.clients(destination)}
        for it in self._deliveries.get(destination, ()):
            if it in self._running:
                found.setdefault(it.output.client_id, StoredClient(it.output.client_id, output=it.output.name))
        return list(found.values())

    async def _mistake(self, output: Output) -> str:
        """Return why an output cannot be used as configured; empty if it can."""
        if output.mistake:
            return output.mistake
        trying = LeftExecutor(f"try {output}")
        try:
            async with asyncio.timeout(MAKING):
                await asyncio.get_running_loop().run_in_executor(trying, self._make, output)
        except TimeoutError:
            return f"type {output.settings.type} takes more than {MAKING:g} s to be made: ask the author of its package"
        except SluiceError as error:
            return str(error)
        finally:
            trying.shutdown()
        return ""

    async def _release(self, destination: str, wanted: Container[int]) -> None:
        """Let the clients be free that were those of outputs which are configured no more."""
        where = {"destination": destination}
        text = (
            "client %d is no longer that of the output %s, as it is configured now: its cursor stays, and any consumer"
            " may use it; `sluice unsubscribe %s %d` removes it"
        )
        for client in self._embedded.clients(destination):
            if client.output and client.client_id not in wanted:
                logger.warning(text, client.client_id, client.output, destination, client.client_id, extra=where)
                try:
                    await self._embedded.release(destination, client.client_id)
                except SluiceError as error:  # it is stored later, or who has the destination then releases it
                    logger.warning("%s", error, extra=where)

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


def assign(outputs: Sequence[Output], clients: Sequence[StoredClient]) -> list[Output]:
    """Return the outputs as the clients that they are; one that is to be that of another output has a mistake by that.

    One that is configured without an id is the client that it has owned before, else a free one. That of an output
    which is older than the ownership of clients has Canal's id, and never expires.
    """
    owned = {it.output: it.client_id for it in clients if it.output}
    others: dict[int | None, str] = {
        owned[it.name]: it.name for it in outputs if it.settings.client_id is None and it.name in owned
    }
    found = [
        it if (other := others.get(it.settings.client_id)) is None else with_same_client(it, other) for it in outputs
    ]
    configured = {it.settings.client_id for it in found}
    known = {it.client_id: it for it in clients}
    older = known.get(CANALS_CLIENT)
    is_older = older is not None and not older.output and older.expire_after == 0
    ids = [*([CANALS_CLIENT] if is_older else []), *(it for it in IDS if it not in known)]
    free = (it for it in ids if it not in configured)
    return [
        it if it.settings.client_id is not None else it.of_client(owned[it.name] if it.name in owned else next(free))
        for it in found
    ]
