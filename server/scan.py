"""Watching the conf folder: destinations come, change and go with their ``instance.properties``."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Collection
from typing import Protocol

from ..protocol.errors import SluiceError, UnknownDestinationError
from .caller import Caller, caller
from .capacity import warn_of_shortages
from .config import Configuration
from .stamp import Stamp

logger = logging.getLogger(__name__)


class DestinationControl(Protocol):
    """Starts and stops destinations."""

    @property
    def released(self) -> Collection[str]:
        """Those that could not start because another process had them, which has them no longer."""

    async def start(self, destination: str) -> None:
        """Start a destination from its files as they are now."""

    async def reload(self, destination: str) -> None:
        """Start a destination, or bring it in line with its files; a file with a mistake stops nothing."""

    async def stop(self, destination: str) -> None:
        """Stop a destination."""


class Scanner:
    """Starts destinations whose file appears, reloads those whose file changed, stops those whose file is gone.

    As in Canal ``instance.properties`` is looked at; beside it, the files with secrets that it names. Other than in
    Canal, a destination restarts only if what it reads is configured otherwise now; it goes on as it is when its
    changed file cannot be used; and all go on when the folder itself cannot be read. A destination that another process
    had is started when that has ended.
    """

    def __init__(self, configuration: Configuration, destinations: DestinationControl) -> None:
        self._configuration = configuration
        self._destinations = destinations
        self._known: dict[str, tuple[Stamp | None, ...]] = {}

    async def run(self) -> None:
        """Scan again and again, until cancelled. What is there at the first scan counts as started already."""
        caller.set(Caller("canal.auto.scan"))
        while True:
            await asyncio.sleep(self._configuration.server.auto_scan_interval)
            await self.scan()

    def remember(self) -> None:
        """Take the files that are there now for those of destinations that are started already."""
        self._known = self._stamps()

    async def scan(self) -> None:
        """Look once, and bring the destinations in line with the files."""
        try:
            found = await asyncio.to_thread(self._stamps)
        except OSError as error:
            logger.warning("cannot scan the conf folder: %s", error)
            return
        before, self._known = self._known, found
        for name in sorted(before.keys() - found.keys()):
            logger.info("its file was removed, or another process owns it now: it stops", extra={"destination": name})
            await self._attempt(self._stop(name), name)
        for name in sorted(before.keys() & found.keys() & set(self._destinations.released)):
            await self._attempt(self._destinations.start(name), name)
        if found.keys() - before.keys():
            await warn_of_shortages(self._configuration, found)
        for name in self._configuration.views_first(sorted(found.keys() - before.keys())):
            logger.info("its file appeared, it starts", extra={"destination": name})
            await self._attempt(self._destinations.start(name), name)
        for name in sorted(found.keys() & before.keys()):
            if found[name] != before[name]:
                logger.info("its file changed", extra={"destination": name})
                await self._attempt(self._destinations.reload(name), name)

    async def _stop(self, name: str) -> None:
        with contextlib.suppress(UnknownDestinationError):  # it never started
            await self._destinations.stop(name)

    @staticmethod
    async def _attempt(change: Awaitable[None], name: str) -> None:
        try:
            await change
        except SluiceError as error:
            logger.error("%s", error, extra={"destination": name})  # noqa: TRY400  the text says all
        except Exception as error:  # the others are looked after all the same
            logger.exception("%s", error, extra={"destination": name})  # noqa: TRY401  as above

    def _stamps(self) -> dict[str, tuple[Stamp | None, ...]]:
        folder = self._configuration.server.conf_dir
        names = (path.name for path in folder.iterdir() if self._configuration.has(path.name))
        return {name: stamp for name in names if (stamp := self._configuration.stamp(name))}
