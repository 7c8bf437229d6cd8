"""What the commands ask a MySQL or MariaDB without starting anything."""

from collections.abc import Sequence
from contextlib import closing
from functools import cached_property
from typing import Final, Self

import pymysql

from ....protocol.errors import SluiceError, SourceError
from ....protocol.identifiers import quote_table
from ....store.cursor import Cursor
from ...quarantine import Item
from ...source import Definition, Reread
from .config import MysqlConfig
from .connection import Connection
from .dump import FileStart
from .history.versions import open_history
from .reread import reread
from .schema import InformationSchema
from .shortage import shortage
from .snapshot import TableReader
from .start import StartFinder

_COLLATIONS: Final = (
    "SELECT t.table_collation, s.default_character_set_name, s.default_collation_name FROM information_schema.tables t"
    " JOIN information_schema.schemata s ON s.schema_name = t.table_schema"
    " WHERE t.table_schema = %s AND t.table_name = %s"
)


class Examination:
    """A connection to a source: see `sluice.instance.source.Examination`."""

    def __init__(self, config: MysqlConfig) -> None:
        """Connect. Raises SourceError."""
        self._config = config
        self._connection = Connection(config)
        self.exposure = self._connection.exposure
        self.protection = self._connection.protection
        self.unchecked_tls = self._connection.unchecked_tls

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def check(self, *, is_replaced: bool) -> None:
        """See `sluice.instance.source.Examination.check`."""
        self._connection.check(self._config, 0 if is_replaced else self._config.slave_id)
        if self._config.tsdb_url is not None and self._connection.facts.asks_schemas:
            with closing(open_history(self._config, writes=False)) as history:
                history.stretches()

    def summary(self) -> str:
        """Return what it is, and where its binlog ends."""
        facts = self._connection.facts
        file, offset, _gtids = self._connection.end_of_binlog()
        return f"{facts.flavour} {facts.version_text} at {self._config.master_address}, binlog at {file}:{offset}"

    def advice(self) -> list[str]:
        """Return statements that would make its events say more."""
        facts = self._connection.facts
        found = []
        if facts.row_metadata not in ("", "FULL"):
            found.append(
                "SET GLOBAL binlog_row_metadata = 'FULL'; -- events then name their columns, and no later ALTER can"
                " confuse them"
            )
        if facts.row_image not in ("FULL", "FULL_NODUP"):
            found.append(
                f"SET GLOBAL binlog_row_image = 'FULL'; -- with {facts.row_image} rows lack columns: consumers must do"
                " without"
            )
        return found

    def tables(self, column: str = "") -> list[tuple[str, str]]:
        """See `sluice.instance.source.Examination.tables`."""
        return InformationSchema(lambda: self._connection).tables(column)

    def find(self, place: Cursor | None) -> str:
        """Return where a stream would begin."""
        dump = self._finder.find(place).dump
        return f"at {dump.file}:{dump.offset}" if isinstance(dump, FileStart) else f"after the GTID set {dump.gtids}"

    def refused(self, places: Sequence[Cursor | None]) -> dict[Cursor | None, SluiceError]:
        """Return the places that it does not have, and why; raise the first reason when it has none."""
        start, refused = self._finder.find_first(places)
        if start is None:
            raise next(iter(refused.values()))
        return refused

    def shortage(self, configs: Sequence[MysqlConfig]) -> str:
        """Return how many connections it lacks."""
        return shortage(self._connection, configs)

    def table_reader(self) -> TableReader:
        """See `sluice.instance.source.Examination.table_reader`."""
        return TableReader(self._config, lambda: ())

    def definition(self, schema: str, table: str) -> Definition:
        """See `sluice.instance.source.Examination.definition`."""
        name = quote_table(schema, table)
        try:
            session = self._connection.session
            ((_, sql, *_),) = session.rows(f"SHOW CREATE TABLE {name}")
            ((collation, *of_schema),) = session.rows(_COLLATIONS, (schema, table))
        except pymysql.MySQLError as error:
            raise SourceError(f"{self._config.master_address} does not define {name}: {error}") from error
        return Definition(sql, collation, *of_schema)

    def reread(self, item: Item) -> Reread:
        """Decode a row event in quarantine again."""
        return reread(self._config, self._connection, item)

    @cached_property
    def _finder(self) -> StartFinder:
        return StartFinder(self._connection, self._config, lambda: Connection(self._config))
