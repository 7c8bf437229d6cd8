"""What the commands ask a folder with files of changes without starting anything."""

from collections.abc import Mapping, Sequence
from typing import Self

from ....protocol.errors import SluiceError
from ....store.cursor import Cursor
from ..examination import ServerlessExamination
from .config import ChangesConfig
from .places import end_of, find_files, find_first


class ChangesExamination(ServerlessExamination):
    """A look into a folder: see `sluice.instance.source.Examination`."""

    exposure = ""
    protection = "there is none to log in with: files are read"

    def __init__(self, config: ChangesConfig) -> None:
        """Look for the files. Raises SourceError."""
        self._config: ChangesConfig = config
        self._files = find_files(config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def check(self, *, is_replaced: bool) -> None:
        """See `sluice.instance.source.Examination.check`: the indexes were read."""
        del is_replaced

    def summary(self) -> str:
        """See `sluice.instance.source.Examination.summary`."""
        return f"{self._config.place}: from {self._files[0].from_position} to {end_of(self._files)}"

    def tables(self, column: str = "") -> list[tuple[str, str]]:
        """Files do not say which tables they have."""
        del column
        return []

    def find(self, place: Cursor | None) -> str:
        """See `sluice.instance.source.Examination.find`."""
        start, refused = find_first(self._config, self._files, [place])
        if start is None:
            raise next(iter(refused.values()))
        return f"{self._files[start.number].file}, at {start.position}"

    def refused(self, places: Sequence[Cursor | None]) -> Mapping[Cursor | None, SluiceError]:
        """See `sluice.instance.source.Examination.refused`."""
        start, refused = find_first(self._config, self._files, places)
        if start is None:
            raise next(iter(refused.values()))
        return refused
