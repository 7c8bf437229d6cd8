"""What the commands ask a folder with binlog files without starting anything."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Self

from ....protocol.errors import SluiceError
from ....store.cursor import Cursor
from ..examination import ServerlessExamination
from ..mysql.dump import FileStart
from ..mysql.history.archive import Archive
from ..mysql.history.versions import open_history
from .config import FilesConfig
from .folder import Folder
from .places import FolderFinder


class FilesExamination(ServerlessExamination):
    """A look into a folder: see `sluice.instance.source.Examination`."""

    exposure = ""
    protection = "there is none to log in with: files are read"

    def __init__(self, config: FilesConfig) -> None:
        """Look for the files. Raises SourceError."""
        self._config: FilesConfig = config
        self._folder = Folder(config)
        self._finder = FolderFinder(self._folder, config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def check(self, *, is_replaced: bool) -> None:
        """See `sluice.instance.source.Examination.check`: whether each file begins as one of this server."""
        del is_replaced
        for name, _ in self._folder.binlog_files():
            self._folder.head(name)
        with closing(open_history(self._config, writes=False)) as history:
            history.stretches()

    def summary(self) -> str:
        """See `sluice.instance.source.Examination.summary`."""
        files, facts = self._folder.binlog_files(), self._folder.facts
        extent = f"{files[0][0]} to {files[-1][0]}:{files[-1][1]}"
        return f"{self._config.place}, of {facts.flavour} {facts.version_text}: {extent}"

    def tables(self, column: str = "") -> list[tuple[str, str]]:
        """Return the tables that the history knows at its end."""
        found = Archive(self._config).tables(None) if self._config.history_folder.exists() else {}
        begin = f"{column} ".lower()
        names = [it for it, lines in found.items() if not column or any(x.lower().startswith(begin) for x in lines)]
        return [(schema, table) for schema, _, table in (name.partition(".") for name in names)]

    def find(self, place: Cursor | None) -> str:
        """See `sluice.instance.source.Examination.find`."""
        dump = self._finder.find(place).dump
        assert isinstance(dump, FileStart)
        return f"at {dump.file}:{dump.offset}"

    def refused(self, places: Sequence[Cursor | None]) -> Mapping[Cursor | None, SluiceError]:
        """See `sluice.instance.source.Examination.refused`."""
        start, refused = self._finder.find_first(places)
        if start is None:
            raise next(iter(refused.values()))
        return refused
