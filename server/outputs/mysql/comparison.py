"""Tables of the source beside their copies on the target, while both change.

Rows are read from the source, then from the target. What is not equal may not have arrived yet, or have changed since.
So it is read again, several times, and from the target only when the output has passed the place of the read before. A
row differs if the source has the same row before and after a read of the target that has another one: what the target
has is at least as new as the earlier read, and not newer than the later one.

A table is compared in ranges of its key. Where it has none, or where the two sides order it differently, all its rows
are read in turn. They are put into groups by hashes, whose counts and sums are compared; then the rows of those groups
that differ.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple, Self, TypeVar

import pymysql

from ....instance.source import Findings, ReadableTable, TableReader
from ....login import tables
from ....login.tables import SETTINGS, UTC, KeyRange, Zone
from ....protocol.errors import BadParameterError, SourceError
from ....protocol.position import Position
from ....sql.database import Database, reason
from ....store.snapshot import Key, Wish
from .sides import Row, Sides, match

K = TypeVar("K")
V = TypeVar("V")
Keyed = Iterable[tuple[Row, Row]]
"""Rows with their keys."""

PIECE: Final = 1 << 20
"""Bytes of rows of the target that are looked at once."""
CHUNK: Final = 20_000
"""Rows of the source that are read at once, at most."""
MOST: Final = 100_000
"""Rows that differ, of a range, or of all groups, that are kept; others are only counted."""
GROUPS: Final = 1024
ROUNDS: Final = 10
"""How often rows are read again that differ ..."""
PAUSE: Final = 0.1
"""... and the seconds before that, times the number of the round."""
CERTAIN: Final = 2
"""Rounds in a row in which the source has the same row, and the target another one between."""


class Pair(NamedTuple):
    """A table of the source, and its copy."""

    source: tuple[str, str]
    target: tuple[str, str]
    where: str = ""
    """Which rows the copy is to have; empty for all."""
    names: Mapping[str, str] = {}
    """Columns with another name on the target; empty for one that it does not have."""
    is_whole: bool = True
    """The copy has no other rows than these."""

    def __str__(self) -> str:
        return ".".join(self.source)


@dataclass(slots=True)
class CopyReport(Findings):
    """What a comparison found."""

    tables: int = 0
    rows: int = 0
    """Of the source."""
    partial: list[str] = field(default_factory=list)
    """Tables whose copies may have rows that the source does not have: those were not looked for."""


class Comparison:
    """Compares pairs of tables, one after the other."""

    def __init__(
        self,
        reader: TableReader,
        target: Database,
        zone: Zone,
        reach: Callable[[Position], None],
        advance: Callable[[str, int, int], None],
    ) -> None:
        """``reach`` returns when the output has passed a place; ``zone`` is that of the texts of TIMESTAMP.

        ``advance`` is told of which table how many rows of about how many are compared. Raises SourceError.
        """
        self.report = CopyReport("", "")
        self.reader = reader
        self._zone = zone
        self._pass = reach
        self._advance = advance
        self._target = target
        self._session = target.connect(init_command=SETTINGS)
        self._session.decoders = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def begin(self) -> None:
        """Wait until the output has passed the present end of the source: so far it is compared at least."""
        self.reach(self.reader.end())

    def compare(self, pair: Pair) -> None:
        """Compare a table with its copy. Raises SourceError when one side does not answer, or is altered meanwhile."""
        try:
            self._compare(pair)
        except (pymysql.MySQLError, OSError) as error:
            raise SourceError(
                f"{self._target} does not give rows of {'.'.join(pair.target)}: {reason(error)}"
            ) from error

    def _compare(self, pair: Pair) -> None:
        try:
            (described,) = self.reader.describe(*pair.source, pair.where, is_scanned=True)
        except BadParameterError as error:
            self._leave_out(pair, error)
            return
        if local := _local_condition(pair, described, self._zone):
            self._leave_out(pair, f"where compares {local}, a TIMESTAMP, in another zone than UTC")
            return
        sides = self._match(pair, described)
        if isinstance(sides, str):  # the target may still have to be altered as the source was
            (described,) = self.reader.describe(*pair.source, pair.where, is_scanned=True)
            self.reach(self.reader.end())
            sides = self._match(pair, described)
        if isinstance(sides, str):
            self.report.differs(f"{pair}: {sides}")
        elif sides.is_ordered_alike:
            _Ranges(self, pair, sides).compare()
        elif pair.is_whole:
            _Groups(self, pair, sides).compare()
        else:
            self._leave_out(pair, "only some rows of its copy are meant, and the two sides have no key that they order")

    def _match(self, pair: Pair, described: ReadableTable) -> Sides | str:
        """Match a table with its copy as that is now; return why they cannot be compared if that is so."""
        try:
            copy = tables.describe(self._session, *pair.target)
        except SourceError as error:
            return str(error)
        return match(str(pair), described, copy, pair.names)

    def _leave_out(self, pair: Pair, why: object) -> None:
        self.report.unread[f"table, {pair}: {why}"] += 1

    # --- what both ways have in common

    def reach(self, place: Position) -> None:
        """Wait until the output has passed a place."""
        self._pass(place)
        self.report.start = self.report.start or str(place)
        self.report.stop = str(place)

    def advance(self, pair: Pair, rows: int, done: int, expected: int) -> None:
        """Count rows of the source; ``done``: of this table until now."""
        self.report.rows += rows
        self._advance(str(pair), done, max(done, expected))

    def read(self, sides: Sides, part: KeyRange) -> Iterator[tuple[Row, Row]]:
        """Read rows of the target."""
        for piece in tables.select(self._session, sides.copy, part, size=PIECE, zone=self._zone):
            yield from sides.of_target(piece.data)

    def find_certain(
        self,
        sides: Sides,
        ours: Mapping[K, V],
        read: Callable[[], Mapping[K, V]],
        differences: Callable[[Mapping[K, V]], Mapping[K, V | None]],
    ) -> dict[K, tuple[V | None, V | None]]:
        """Return what differs for certain, as both sides have it.

        ``ours`` is what the source had, ``read`` reads that again and lets the output come there, and ``differences``
        returns what the target has otherwise.
        """
        found = differences(ours)
        seen: dict[K, int] = {}
        for number in range(1, ROUNDS + 1):
            if not found:
                return {}
            time.sleep(PAUSE * number)
            before, ours = ours, read()
            if number > 1:  # what is found first may not have arrived
                seen = {it: seen.get(it, 0) + 1 if ours.get(it) == before.get(it) else 0 for it in found}
                if min(seen.values()) >= CERTAIN:
                    break
            now = differences(ours)
            found = {it: now[it] for it in found if it in now}
        certain = {it: (ours.get(it), found[it]) for it in found if seen.get(it, 0) >= CERTAIN}
        if restless := len(found) - len(certain):
            self.report.unread[f"of {sides.name}, which changed all the time"] += restless
        return certain


class _Ranges:
    """Compares a table range by range."""

    def __init__(self, comparison: Comparison, pair: Pair, sides: Sides) -> None:
        self._all = comparison
        self._pair = pair
        self._sides = sides
        self._excess = 0
        """Rows that only the target has, and that are not kept."""

    def compare(self) -> None:
        report, pair = self._all.report, self._pair
        report.tables += 1
        if not pair.is_whole:
            report.partial.append(str(pair))
        after: Key | None = None
        is_last = False
        done = excess = 0
        while not is_last:
            ours, last, is_last, _ = self._read_chunk(after, None)
            part = KeyRange(after, None if is_last else last)  # what has come meanwhile is in the last one
            certain = self._all.find_certain(
                self._sides,
                ours,
                lambda part=part: self._read_range(part),  # type: ignore[misc]
                lambda ours, part=part: self._differences(ours, part),  # type: ignore[misc]
            )
            for key, (mine, theirs) in certain.items():
                report.differs(self._sides.show(key, mine, theirs))
            excess += self._excess
            done += len(ours)
            self._all.advance(pair, len(ours), done, self._sides.expected)
            after = last
        if excess:
            report.unread[f"rows that only the copy of {pair} has, besides {MOST} of a range"] += excess

    def _read_chunk(self, after: Key | None, to: Key | None) -> tuple[dict[Row, Row], Key | None, bool, Position]:
        """Read the next rows of the source: these, the last key, whether there are no more, and the place after."""
        chunk = self._all.reader.read(Wish(0, 0, *self._pair.source, self._pair.where, after, to, CHUNK))
        if tuple(chunk.key) != self._sides.key_places:
            raise SourceError(f"{self._pair} was altered at the source meanwhile: compare again")
        found = {key: row for piece in chunk.pieces for key, row in self._sides.of_source(piece.block.entry(0.0))}
        return found, chunk.last, chunk.is_last, chunk.high

    def _read_range(self, part: KeyRange) -> dict[Row, Row]:
        found: dict[Row, Row] = {}
        after, is_last = part.after, False
        while not is_last:
            rows, last, is_last, place = self._read_chunk(after, part.to)
            after = last or after
            found |= rows
        self._all.reach(place)
        return found

    def _differences(self, ours: Mapping[Row, Row], part: KeyRange) -> dict[Row, Row | None]:
        left = dict(ours)
        found: dict[Row, Row | None] = {}
        self._excess = 0
        for key, row in self._all.read(self._sides, part):
            mine = left.pop(key, None)
            if row == mine or (mine is None and not self._pair.is_whole):
                continue
            if mine is None and len(found) >= MOST:
                self._excess += 1
            else:
                found[key] = row
        return found | dict.fromkeys(left)


class _Groups:
    """Compares all rows of a table by groups."""

    def __init__(self, comparison: Comparison, pair: Pair, sides: Sides) -> None:
        self._all = comparison
        self._pair = pair
        self._sides = sides

    def compare(self) -> None:
        report, sides = self._all.report, self._sides
        report.tables += 1
        ours = _sums(self._scan())
        rows = sum(count for count, _ in ours.values())
        self._all.advance(self._pair, rows, rows, sides.expected)
        groups = self._all.find_certain(
            sides, ours, lambda: self._passed(_sums(self._scan())), lambda ours: _unlike(ours, _sums(self._copied()))
        )
        if not groups:
            return
        named = self._name(groups.keys()) if _size(groups.values()) <= MOST else 0
        if not named:
            report.differs(
                f"{self._pair}: {len(groups)} of {GROUPS} groups of its rows differ by their counts or hashes"
            )

    def _name(self, groups: Collection[int]) -> int:
        """Name the rows that differ in some groups; return how many do."""
        has_key = bool(self._sides.key)
        certain = self._all.find_certain(
            self._sides,
            _collected(self._scan(), groups, has_key=has_key),
            lambda: self._passed(_collected(self._scan(), groups, has_key=has_key)),
            lambda ours: _unlike(ours, _collected(self._copied(), groups, has_key=has_key)),
        )
        for key, (mine, theirs) in certain.items():
            self._all.report.differs(self._sides.show(key, mine, theirs))
        return len(certain)

    def _scan(self) -> Iterator[tuple[Row, Row]]:
        for block in self._all.reader.scan(Wish(0, 0, *self._pair.source, self._pair.where, None, None, 0)):
            if len(block):
                yield from self._sides.of_source(block.entry(0.0))

    def _passed(self, rows: dict[K, V]) -> dict[K, V]:
        """Return what was read of the source when the output has come there."""
        self._all.reach(self._all.reader.end())
        return rows

    def _copied(self) -> Iterator[tuple[Row, Row]]:
        return self._all.read(self._sides, KeyRange())


def _local_condition(pair: Pair, described: ReadableTable, zone: Zone) -> str:
    """Return a column whose condition the source would judge in another zone than the destination; empty if none."""
    if not pair.where or tuple(zone) == tuple(UTC):
        return ""
    named = pair.where.upper()
    return next((it.name for it in described.columns if it.word == "timestamp" and it.name.upper() in named), "")


def _unlike(ours: Mapping[K, V], theirs: Mapping[K, V]) -> dict[K, V | None]:
    return {it: theirs.get(it) for it in ours.keys() | theirs.keys() if ours.get(it) != theirs.get(it)}


def _hash(row: Row) -> int:
    return int.from_bytes(blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=8).digest())


def _sums(rows: Keyed) -> dict[int, tuple[int, int]]:
    """Return how many rows each group has, and the sum of their hashes."""
    found: dict[int, tuple[int, int]] = {}
    for key, row in rows:
        group = _hash(key) % GROUPS
        count, total = found.get(group, (0, 0))
        found[group] = count + 1, (total + _hash(row)) & 0xFFFFFFFFFFFFFFFF
    return found


def _size(groups: Collection[tuple[tuple[int, int] | None, tuple[int, int] | None]]) -> int:
    """Return how many rows groups have, of both sides."""
    return sum(it[0] for both in groups for it in both if it is not None)


def _collected(rows: Keyed, groups: Collection[int], *, has_key: bool) -> dict[Row, Row]:
    """Return the rows of some groups by their keys; of a table without a key, how often there is each."""
    found: dict[Row, Row] = {}
    for key, row in rows:
        if _hash(key) % GROUPS in groups:
            found[key] = row if has_key else (str(int(found.get(key, ("0",))[0] or 0) + 1),)
    return found
