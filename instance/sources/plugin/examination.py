"""What the commands ask a source of another package without starting anything."""

from collections.abc import Mapping, Sequence
from typing import Self

from ....protocol.errors import SluiceError
from ....store.cursor import Cursor
from ..examination import ServerlessExamination
from .config import PluginConfig
from .parser import Asking, find_first


class PluginExamination(ServerlessExamination):
    """A source that is asked: see `sluice.instance.source.Examination`."""

    exposure = ""
    protection = "left to the package of the source"
    unchecked_tls = "whether that protects a password is not known here: ask its author"

    def __init__(self, config: PluginConfig) -> None:
        """Make the source. Raises SourceError."""
        self._config: PluginConfig = config
        self._source = Asking(config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()

    def check(self, *, is_replaced: bool) -> None:
        """See `sluice.instance.source.Examination.check`."""
        del is_replaced
        self._source.bounds()

    def summary(self) -> str:
        """See `sluice.instance.source.Examination.summary`."""
        bounds = self._source.bounds()
        return f"{self._config.source_title}, history {bounds.history}, offsets from {bounds.oldest} to {bounds.end}"

    def tables(self, column: str = "") -> list[tuple[str, str]]:
        """A source does not say which tables it will have."""
        del column
        return []

    def find(self, place: Cursor | None) -> str:
        """See `sluice.instance.source.Examination.find`."""
        start, refused = find_first(self._config, self._source.bounds(), [place])
        if start is None:
            raise next(iter(refused.values()))
        return f"{self._config.source_title}, offset {start.begin}"

    def refused(self, places: Sequence[Cursor | None]) -> Mapping[Cursor | None, SluiceError]:
        """See `sluice.instance.source.Examination.refused`."""
        start, refused = find_first(self._config, self._source.bounds(), places)
        if start is None:
            raise next(iter(refused.values()))
        return refused
