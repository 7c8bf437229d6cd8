"""Reading the tables of the members of a group for snapshots."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from ....protocol.canal.resultset import RowBlock
from ....protocol.cut import Cut
from ....protocol.errors import BadParameterError
from ....protocol.position import Position
from ....store.snapshot import Chunk, Wish
from ...source import MemberParser, ReadableTable, TableReader


class GroupTableReader:
    """Reads tables of each member by its own reader: see `sluice.instance.source.TableReader`.

    A place is a cut of the one member whose table is read.
    """

    def __init__(self, parsers: Callable[[], Mapping[str, MemberParser]]) -> None:
        """Nothing is asked yet; ``parsers`` says which members there are now, and may raise SourceError."""
        self._parsers = parsers
        self._readers: dict[str, TableReader] = {}
        self._of: dict[str, MemberParser] = {}  # whose readers they are
        self._tables: dict[str, set[tuple[str, str]]] = {}

    def describe(
        self, schema: str, table: str, where: str, member: str = "", *, is_scanned: bool = False
    ) -> Sequence[ReadableTable]:
        """See `sluice.instance.source.TableReader.describe`. Raises ConfigError for a member without tables to read."""
        names = [member] if member else list(self._parsers())
        return [
            replace(it, member=name)
            for name in names
            if (schema, table) in self._tables_of(name)
            for it in self._reader(name).describe(schema, table, where, is_scanned=is_scanned)
        ]

    def begin(self, wish: Wish) -> Position:
        """See `sluice.instance.source.TableReader.begin`."""
        return Cut({wish.member: self._reader(wish.member).begin(wish)})

    def read(self, wish: Wish) -> Chunk:
        """See `sluice.instance.source.TableReader.read`."""
        chunk = self._reader(wish.member).read(wish)
        return replace(chunk, high=Cut({wish.member: chunk.high}))

    def scan(self, wish: Wish) -> Iterator[RowBlock]:
        """See `sluice.instance.source.TableReader.scan`."""
        return self._reader(wish.member).scan(wish)

    def end(self) -> Position:
        """See `sluice.instance.source.TableReader.end`: a cut of the members that were read."""
        return Cut({name: it.end() for name, it in self._readers.items()})

    def interrupt(self) -> None:
        """See `sluice.instance.source.TableReader.interrupt`."""
        for it in tuple(self._readers.values()):
            it.interrupt()

    def close(self) -> None:
        """See `sluice.instance.source.TableReader.close`."""
        for it in self._readers.values():
            it.close()

    def _tables_of(self, member: str) -> set[tuple[str, str]]:
        if member not in self._tables:
            self._tables[member] = set(self._parser(member).tables())
        return self._tables[member]

    def _reader(self, member: str) -> TableReader:
        parser = self._parser(member)
        if self._of.get(member) is not parser:  # it was removed, or is read with other settings
            if (former := self._readers.pop(member, None)) is not None:
                former.close()
            self._readers[member], self._of[member] = parser.table_reader(), parser
        return self._readers[member]

    def _parser(self, member: str) -> MemberParser:
        parsers = self._parsers()
        if member not in parsers:
            raise BadParameterError(f"the group has no member {member}: {', '.join(parsers)}", "member")
        return parsers[member]
