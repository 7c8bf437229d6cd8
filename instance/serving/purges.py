"""Which clients are about to be left behind: source and log on disk let go of what is old, whoever still needs it."""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass

from ...protocol.cut import Cut
from ...protocol.errors import SluiceError
from ...protocol.position import Position
from ...store.clients import Clients
from ...store.cursor import Cursor
from ..source import Expiry, Parser

logger = logging.getLogger(__name__)

PERIOD = 60.0
"""Seconds between two looks."""
SOON = 0.25
"""The part of the time for which the source, or the log, keeps what it has that may be left before it is said."""


@dataclass(frozen=True, slots=True)
class Threat:
    """A client that will lose changes unless it acks them in time."""

    at: float
    """Unix time after which source or log may let go of what is at its cursor; 0: at any time."""
    text: str


class PurgeWatch:
    """Looks where the cursors of a destination are in what the source, or the log on disk, still has."""

    def __init__(self, destination: str, clients: Clients, parser: Parser) -> None:
        self._purged: dict[int, Threat] = {}
        """What the source is about to let go of, by client ..."""
        self._pruned: dict[int, Threat] = {}
        """... and the log."""
        self._clients = clients
        self._parser = parser
        self._where = {"destination": destination}

    @property
    def threats(self) -> dict[int, Threat]:
        """By client; what the source lets go of is lost, so that goes before what only the log does."""
        return self._pruned | self._purged

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(PERIOD)
            try:
                await self.look()
            except SluiceError as error:
                logger.debug("the source does not report what it is about to purge: %s", error, extra=self._where)
            except Exception:
                logger.exception("the check for what is about to be purged failed", extra=self._where)

    async def look(self) -> None:
        """Ask log and source once. Raises what `Parser.expiries` raises, and OSError."""
        found = {it: self._clients.cursor(it) for it in self._clients.ids}
        cursors = {it: cursor for it, cursor in found.items() if cursor is not None}
        log = self._clients.track.log
        places = {it: cursor.position for it, cursor in cursors.items() if cursor.position is not None}
        logged = {} if log is None else await asyncio.to_thread(log.expiries, places)
        pruned, purged = dict[int, Threat](), dict[int, Threat]()
        for client, kept in logged.items():
            expiry = None if kept is None else Expiry(*kept)
            what = f"the log on disk may delete what follows its cursor, {places[client]}"
            pruned |= self._judge(client, self._pruned, expiry, what, "; from then on it reads the source")
        self._pruned = pruned
        if self._parser.failure is not None:
            return
        wanted = {it: self._needed(cursor, is_logged=it in logged) for it, cursor in cursors.items()}
        needed = {it: place for it, place in wanted.items() if place is not None}
        expiries = await asyncio.to_thread(self._parser.expiries, list(needed.values())) if needed else []
        for (client, place), expiry in zip(needed.items(), expiries, strict=True):
            where = (
                f"its cursor, {place}"
                if place == cursors[client].position
                else f"{place}, where an XA transaction was prepared that is still open"
            )
            purged |= self._judge(client, self._purged, expiry, f"the source may purge the binlog at {where}")
        self._purged = purged

    def _needed(self, cursor: Cursor, *, is_logged: bool) -> Position | None:
        """Return from where the source is needed for a cursor; None if it is not, or if that is unknown."""
        if is_logged:
            return self._clients.track.ring.restarts.last  # the log has all but what is still to be committed
        if isinstance(cursor.position, Cut) and isinstance(cursor.restart, Cut):
            return Cut({**cursor.position.places, **cursor.restart.places})
        return cursor.restart or cursor.position

    def _judge(
        self, client: int, known: Mapping[int, Threat], expiry: Expiry | None, what: str, then: str = ""
    ) -> dict[int, Threat]:
        """Return the threat to a client, if there is one; log one that is not known."""
        now = time.time()  # noqa: TID251  beside the clock of source and files
        if expiry is None or (expiry.at and expiry.at - now > SOON * expiry.kept):
            return {}
        when = f"in {max(0.0, expiry.at - now) / 3600:.1f} h" if expiry.at else "any time: no older file is left"
        threat = Threat(expiry.at, f"{what}, {when}{then}")
        if client not in known:
            logger.warning("client %d: %s", client, threat.text, extra=self._where)
        return {client: threat}
