"""What a server that stands by does of a destination: it reads the source into a log of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ...store.cursor import OLDEST, Cursor, StoredClient, starts
from ...store.log.log import SEEN
from ..config import InstanceConfig
from ..meta.base import InUse
from ..meta.memory import MemoryMetaStore
from ..source import ParserFactory
from .instance import Instance


@dataclass(frozen=True, slots=True)
class Followed:
    """What is stored of a destination that another server serves."""

    source: InUse | None
    """Which of several sources is read, if that was chosen."""
    clients: Mapping[int, StoredClient]
    """Those of the destination and of its views, each by a number of its own."""


class Tail(Instance):
    """Reads the source into the log of a destination that another server serves.

    It serves no clients and stores no cursors, but it begins where a take-over would, and the log keeps what the
    protected clients need.
    """

    title: ClassVar[str] = "its log: "

    def __init__(self, config: InstanceConfig, make_parser: ParserFactory, followed: Followed) -> None:
        """Nothing runs before `start`."""
        self._followed = followed
        super().__init__(config.for_reader(), make_parser, MemoryMetaStore(followed.source))

    def keep_up(self, followed: Followed) -> bool:
        """Keep what the clients need from here on; False if another source is read by now: it has to begin again."""
        if followed.source != self._followed.source:
            return False
        self._followed = followed
        self._protect()
        return True

    def _note_epoch(self, epoch: int) -> None:
        """See `Instance._note_epoch`: without cursors, it has no epoch that anybody could know."""

    def _make_ring(self, epoch: int) -> None:
        super()._make_ring(epoch)
        self._protect()

    def _protect(self) -> None:
        log, clients = self.cursors.track.log, self._followed.clients.items()
        held = {it: client.cursor for it, client in clients if client.protected and client.cursor}
        end = None if log is None else log.end
        held[SEEN] = OLDEST if log is None or end is None else Cursor.at(end, log.executed)
        self.cursors.protect_elsewhere(held)

    def _client_places(self) -> list[Cursor | None]:
        return starts([*(it.cursor for it in self._followed.clients.values()), None], None)
