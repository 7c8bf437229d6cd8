"""The thread of a destination: it reads binlog files from a folder, decodes them, and fills the ring."""

import time
from collections.abc import Mapping
from contextlib import closing
from functools import cached_property, partial

from ....protocol.errors import NotConfiguredError, SourceError, UnknownTableError
from ....protocol.lexer import Dialect
from ....protocol.position import Position
from ....store.cursor import Cursor
from ...columns import SourceColumn
from ...source import TableReader
from ..mysql.connection import ServerFacts
from ..mysql.dump import FileStart, GtidStart
from ..mysql.history.tables import Catalog, Table
from ..mysql.history.versions import open_history
from ..mysql.parser import BinlogParser
from ..mysql.schema import Schemas
from ..mysql.start import Packets
from .charsets import CHARSETS
from .config import FilesConfig
from .dump import FileDump
from .folder import Folder
from .places import Ends, FolderFinder
from .schema_file import read_tables


class FilesParser(BinlogParser[FilesConfig, Folder]):
    """Reads the binlog files of a folder."""

    @cached_property
    def _ends(self) -> Ends:
        """See `FolderFinder`."""
        return Ends()

    def end(self) -> Position:
        """See `BinlogParser.end`: it is looked for from where the stream is."""
        place = self._ring.after(self._ring.next - 1)
        if place is not None and self.failure is None:
            _, number, begin, _ = place
            name = self._ring.files[number][0]
            self._ends.found[name] = max(begin, self._ends.found.get(name, begin))
        return super().end()

    def tables(self) -> list[tuple[str, str]]:
        """Return the tables that the history knows at its end."""
        return sorted(name for name, state in self._catalog_now().tables() if isinstance(state, Table))

    def table_reader(self) -> TableReader:
        """See `sluice.instance.source.Parser.table_reader`: files have changes only."""
        raise NotConfiguredError("binlog files are the source: they have no tables, which a snapshot would read")

    def _columns_now(self, schema: str, table: str) -> list[SourceColumn]:
        state = self._catalog_now().get(schema, table)
        if not isinstance(state, Table):
            raise UnknownTableError(f"{schema}.{table}: the history of tables does not have it, and no server is asked")
        return state.source_columns()

    def _catalog_now(self) -> Catalog:
        catalog = Catalog()
        with closing(open_history(self._config, writes=False)) as history:
            if stretches := history.stretches():
                history.begin_at(catalog, Cursor.at(stretches[-1].until))
        return catalog

    def _binlog(self) -> Folder:
        return Folder(self._config)

    def _check(self, binlog: Folder) -> None:
        """Its files were looked at when it was opened."""

    def _charsets(self, binlog: Folder) -> Mapping[int, str]:
        del binlog
        return CHARSETS

    def _finder(self, binlog: Folder) -> FolderFinder:
        return FolderFinder(binlog, self._config, self._stopping, self._ends)

    def _dump(self, binlog: Folder, start: FileStart | GtidStart) -> FileDump:
        assert isinstance(start, FileStart)  # the finder gives no other
        return FileDump(
            binlog,
            start.file,
            start.offset,
            most=self._config.event_bytes,
            waits=self._config.at_end == "wait",
            check_follower=self._finder(binlog).check_follower,
            on_end=self.on_caught_up,
        )

    def _dump_part(self, binlog: Folder, start: FileStart) -> FileDump:
        return FileDump(binlog, start.file, start.offset, most=self._config.event_bytes)

    def _commits_in_one_phase(self, file: str, begin: int) -> bool:
        with self._binlog() as binlog:
            return self._finder(binlog).commits_in_one_phase(file, begin)

    def _schemas(self, facts: ServerFacts, start: Cursor | None) -> Schemas:
        dialect = Dialect(facts.version, facts.mariadb, frozenset(CHARSETS.values()))
        path = self._config.schema_file
        return Schemas(
            None,
            dialect,
            given=None if path is None else partial(read_tables, path, dialect),
            history=self._history,
            start=start,
            executed=lambda: self._decoder.executed,
        )

    def _is_over(self, dump: Packets) -> bool:
        assert isinstance(dump, FileDump)
        position, (file, offset) = self._decoder.position, dump.place
        if self._control.part is not None or position is None:
            return False
        if (position.file, position.begin, position.n) != (file, offset, 0):
            raise SourceError(
                f"{self._config.folder / file}, offset {offset}: the last file ends inside the transaction that begins"
                f" at {position.begin}: it is not copied as a whole"
            )
        self._quiet_since = time.monotonic()  # for good: all is read
        return True
