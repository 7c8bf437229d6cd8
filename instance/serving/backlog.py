"""How much waits in the log or at the source for the clients that are behind the ring."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ...protocol.errors import SluiceError
from ...protocol.position import Position
from ...store.clients import Clients
from ..source import Parser

logger = logging.getLogger(__name__)

PERIOD = 10.0
"""Seconds between two looks. A status tells what the last one found, so that it costs nothing to ask for."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a client has not come to, and the ring does not hold: of all tables, since nobody has filtered it yet."""

    bytes: int
    """At most."""
    where: Literal["log", "source"]
    """Whose bytes they are: those of the log on disk, or of the source's binlog."""


class BacklogWatch:
    """Measures how far the clients of a destination are behind its ring."""

    def __init__(self, destination: str, clients: Clients, parser: Parser) -> None:
        self.found: Mapping[int, Backlog] = {}
        """By client; one that is behind and missing here was not measured yet, or cannot be."""
        self._clients = clients
        self._parser = parser
        self._where = {"destination": destination}

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(PERIOD)
            try:
                await self.look()
            except (SluiceError, OSError) as error:
                self.found = {}
                logger.debug("what waits for clients cannot be measured: %s", error, extra=self._where)
            except Exception:
                logger.exception("the measurement of what waits for clients failed", extra=self._where)

    async def look(self) -> None:
        """Measure once. Raises what `Parser.distances` and `Log.distances` raise."""
        track = self._clients.track
        unread = {it.client_id: it.unread for it in self._clients.subscribers.values()}
        places = {client_id: place for client_id, place in unread.items() if place is not None}
        found, ring = dict[int, Backlog](), track.floor
        if places and ring is not None:
            if track.log is not None:
                logged = await asyncio.to_thread(track.log.distances, places, ring)
                found |= {client_id: Backlog(size, "log") for client_id, size in logged.items()}
            others = [it for it in places if it not in found]
            if others and self._parser.failure is None:
                found |= await asyncio.to_thread(self._at_source, {it: places[it] for it in others}, ring)
        self.found = found

    def _at_source(self, places: Mapping[int, Position], ring: Position) -> dict[int, Backlog]:
        sizes = self._parser.distances(list(places.values()), ring)
        return {it: Backlog(size, "source") for it, size in zip(places, sizes, strict=True) if size is not None}
