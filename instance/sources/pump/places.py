"""Where in the log of a pump the stream begins."""

from collections.abc import Iterator
from contextlib import contextmanager

from ....protocol.errors import PurgedError, SourceError
from ....protocol.tidb.tags import LOGICAL_BITS
from ....store.log.errors import LogError
from ...pump.view import LogView
from ..kafka.places import Finder, Start
from .config import PumpLogConfig


class LogFinder(Finder):
    """Finds places in the log of a pump."""

    def __init__(self, view: LogView, config: PumpLogConfig) -> None:
        """Find places in the log of a configuration."""
        super().__init__(config)
        self._view = view

    def end(self) -> Start:
        """See `Finder.end`."""
        with reading():
            return Start(0, self._view.released)

    def oldest(self) -> Start:
        """See `Finder.oldest`."""
        with reading():
            return Start(0, self._view.collected)

    def search(self, commit_ts: int, offset: int = -1) -> Start:
        """See `Finder.search`."""
        del offset
        oldest = self.oldest().commit_ts
        if commit_ts >= oldest:
            return Start(0, commit_ts)
        return self._begin(Start(0, oldest, gap=self._gap(commit_ts, oldest)))

    def find_place(self, milliseconds: int | None) -> int:
        """See `Finder.find_place`."""
        oldest = self.oldest().commit_ts
        if milliseconds is None:
            return oldest + 1
        commit_ts = max(min(milliseconds << LOGICAL_BITS, self.end().commit_ts + 1), 1)
        if commit_ts <= oldest:
            raise PurgedError(self._gap(commit_ts - 1, oldest))
        return commit_ts

    def _gap(self, commit_ts: int, oldest: int) -> str:
        return (
            f"{self._config.place} has all that committed after {oldest}, and not all that committed after {commit_ts}:"
            " the changes in between were removed (sluice.pump.gc)"
        )


@contextmanager
def reading() -> Iterator[None]:
    """Raise SourceError for what is wrong with the log."""
    try:
        yield
    except (LogError, OSError) as error:
        raise SourceError(str(error)) from error
