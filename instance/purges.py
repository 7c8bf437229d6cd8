"""Which clients the source is about to leave behind: it purges its binlog, whoever still needs it."""

import asyncio
import logging
import time
from dataclasses import dataclass

from ..protocol.errors import SluiceError
from ..protocol.position import Position
from ..store.cursor import Cursor
from ..store.cursors import Cursors
from .source import Parser

logger = logging.getLogger(__name__)

PERIOD = 60.0
"""Seconds between two looks."""
SOON = 0.25
"""The part of the time for which a source keeps its binlog that may be left before it is said."""


@dataclass(frozen=True, slots=True)
class Threat:
    """A client that will lose changes unless it acks them in time."""

    at: float
    """Unix time after which the source may purge the binlog at its cursor; 0: at any time."""
    text: str


class PurgeWatch:
    """Looks where the cursors of a destination are in what the source still has."""

    def __init__(self, destination: str, cursors: Cursors, parser: Parser) -> None:
        self.threats: dict[int, Threat] = {}
        """By client."""
        self._cursors = cursors
        self._parser = parser
        self._where = {"destination": destination}

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(PERIOD)
            if self._parser.failure is not None:
                continue
            try:
                await self.look()
            except SluiceError as error:
                logger.debug("the source does not say what it is about to purge: %s", error, extra=self._where)
            except Exception:
                logger.exception("it is not known what the source is about to purge", extra=self._where)

    async def look(self) -> None:
        """Ask the source once. Raises what `Parser.expiries` raises."""
        cursors = {it: self._cursors.cursor(it) for it in self._cursors.client_ids}
        needed = {it: self._needed(cursor) for it, cursor in cursors.items() if cursor is not None}
        places = {it: place for it, place in needed.items() if place is not None}
        found = await asyncio.to_thread(self._parser.expiries, list(places.values()))
        now, threats = time.time(), dict[int, Threat]()  # noqa: TID251  beside the source's clock
        for (client, place), expiry in zip(places.items(), found, strict=True):
            if expiry is None or (expiry.at and expiry.at - now > SOON * expiry.kept):
                continue
            when = f"in {max(0.0, expiry.at - now) / 3600:.1f} h" if expiry.at else "any time: no older file is left"
            cursor = cursors[client]
            where = (
                f"its cursor, {place}"
                if cursor is not None and place == cursor.position
                else f"{place}, where an XA transaction was prepared that is still open"
            )
            threats[client] = Threat(expiry.at, f"the source may purge the binlog at {where}, {when}")
            if client not in self.threats:
                logger.warning("client %d: %s", client, threats[client].text, extra=self._where)
        self.threats = threats

    def _needed(self, cursor: Cursor) -> Position | None:
        """Return from where the source is needed for a cursor; None if it is not, or if that is unknown."""
        log = self._cursors.track.log
        if log is None or cursor.position is None or not log.covers(cursor.position):
            return cursor.restart or cursor.position
        return self._cursors.track.ring.restarts.last  # the log has all but what is still to be committed
