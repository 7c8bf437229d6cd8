"""Which tables are other ones, or have other columns, after statements that the stream has not come to yet."""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace

from ....protocol.errors import SluiceError
from ....protocol.position import Position
from ....store.ring import Ring
from .config import BinlogConfig
from .decode.decoder import Decoder
from .decode.events import Event
from .history.tables import CatalogChange, Kind
from .start import MOST_FOLLOWED, PlaceFinder

logger = logging.getLogger(__name__)

Place = tuple[int, int]
"""The number of a file, and an offset."""
_Key = tuple[Kind, str, str]


class Ahead:
    """The statements between the stream and the place up to which they were asked for; each is read once."""

    def __init__(
        self,
        config: BinlogConfig,
        finder: Callable[[], AbstractContextManager[PlaceFinder]],
        changes: Callable[[Event], Sequence[CatalogChange]],
    ) -> None:
        """`changes` says what an event may change, in a catalogue that knows nothing."""
        self._config = config
        self._finder = finder
        self._changes = changes
        self._since: Position | None = None  # all is read from here ...
        self._last: Position | None = None  # (this is the last that was there)
        self._until: Place = (0, 0)  # ... to here
        self._altered: dict[_Key, Place] = {}  # the last place of each
        self._moved: dict[_Key, Place] = {}

    def alters(self, table: tuple[str, str], at: Position, until: Place) -> bool | None:
        """Whether a table may be altered between two places; None if that is not known."""
        return self._is_in(self._altered, table, at) if self._read(at.transaction, until) else None

    def moves(self, table: tuple[str, str], at: Position, until: Place) -> bool | None:
        """Whether another table may get the name of a table between two places; None if that is not known."""
        return self._is_in(self._moved, table, at) if self._read(at.transaction, until) else None

    def _is_in(self, found: dict[_Key, Place], table: tuple[str, str], at: Position) -> bool:
        here = at.file_number, at.begin
        keys: Iterable[_Key] = (("table", *table), ("database", table[0], ""), ("all", "", ""))
        return any(found.get(key, here) > here for key in keys)

    def _read(self, at: Position, until: Place) -> bool:
        """Read what is not read yet; returns whether all is known up to the place."""
        since, begin = self._since, self._last
        here = at.file_number, at.begin
        if since is None or begin is None or not since.same_history(at) or since > at or here > self._until:
            self._altered.clear()
            self._moved.clear()
            self._since = self._last = begin = at
            self._until = here
        if until <= self._until:
            return True
        self._since = at
        self._altered = {key: place for key, place in self._altered.items() if place > here}
        self._moved = {key: place for key, place in self._moved.items() if place > here}
        end = replace(begin, file=f"{begin.file.rpartition('.')[0]}.{until[0]:06d}", begin=until[1], n=0)
        decoder = Decoder(Ring(), self._config)
        try:
            with self._finder() as finder:
                distance = finder.distance(begin, end)
                if distance is None or distance > MOST_FOLLOWED:
                    logger.warning(
                        "too much binlog to find the statements that changed tables from %s to %s", begin, end
                    )
                    return False
                logger.info("looking for statements that changed tables from %s to %s", begin, end)
                with closing(finder.between(decoder, begin, end)) as events:
                    for event in events:
                        self._note(event)
        except SluiceError as error:
            logger.warning("the statements that follow %s are unknown: %s", begin, error)
            return False
        finally:
            decoder.close()
        self._until = until
        return True

    def _note(self, event: Event) -> None:
        if event.position is None:
            return
        self._last = event.position.transaction
        place = event.position.file_number, event.position.begin
        changes = self._changes(event)
        # A name that is free afterwards, and one that is taken: the statement renames.
        renames = any(it.kind == "table" and it.body is None for it in changes)
        for it in changes:
            key = it.kind, it.schema, it.table
            self._altered[key] = place
            if it.kind == "all" or (renames and it.kind == "table" and it.body is not None):
                self._moved[key] = place
