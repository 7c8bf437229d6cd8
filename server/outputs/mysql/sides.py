"""The two sides of a comparison: which columns a table and its copy have, and what values of them are equal."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any, Final, NamedTuple

import pyarrow as pa

from ....instance.source import ReadableTable
from ....login.columns import SnapshotColumn
from ....login.tables import SnapshotTable
from ....protocol.canal.arrow import EnvelopeDecoder
from ....sql.changes import kinds

EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Rounds nothing: a DECIMAL has up to 65 digits, a number in JSON any."""
LONGEST: Final = 400
"""Digits of a number that is written without an exponent, about."""
SHOWN: Final = 100
"""Characters of a value of a key that are shown."""

Row = tuple[str | None, ...]
"""The texts of a row, or of its key."""

_INTEGERS: Final = {"tinyint", "smallint", "mediumint", "int", "bigint", "bit", "year"}
_NUMBERS: Final = _INTEGERS | {"decimal", "float", "double"}
_TIMES: Final = {"time", "datetime", "timestamp"}


class Sides(NamedTuple):
    """A table of the source, and its copy on the target, as they are compared."""

    name: str
    copy: SnapshotTable
    names: Sequence[str]
    """The columns of both, in lower case, as the target has them."""
    renamed: Mapping[str, str]
    """Columns of the source with another name there; empty for one that the target does not have."""
    key: Sequence[int]
    """Those of the key, by their places among the names; none without a key."""
    key_places: tuple[int, ...]
    """The same, by their places in the table of the source."""
    expected: int
    """Rows at the source, about."""
    is_ordered_alike: bool
    """Whether both have the key, and order it in the same way."""
    readings: Mapping[int, Callable[[str], str]]
    """How texts of columns are read that equal values may have several of, by their places."""

    def of_source(self, data: bytes) -> Iterator[tuple[Row, Row]]:
        """Give the rows of entries of the source, as `of_target`."""
        return self._rows(data, self.renamed)

    def of_target(self, data: bytes) -> Iterator[tuple[Row, Row]]:
        """Give the key and the texts of each row of encoded entries; the key of a table without one is all of it."""
        return self._rows(data, {})

    def _rows(self, data: bytes, renamed: Mapping[str, str]) -> Iterator[tuple[Row, Row]]:
        images = EnvelopeDecoder().decode(data)["after"]
        for found, chosen in kinds(images, pa.array(range(len(images)), pa.int32())):
            places = {renamed.get(name, name).lower(): place for place, name in enumerate(found)}
            starts = images.offsets.take(chosen).to_pylist()
            columns = []
            for number, name in enumerate(self.names):
                texts = images.items.take(pa.array([it + places[name] for it in starts], pa.int32())).to_pylist()
                read = self.readings.get(number)
                columns.append(texts if read is None else [None if it is None else read(it) for it in texts])
            for row in zip(*columns, strict=True):
                yield tuple(row[it] for it in self.key) or row, row

    def show(self, key: Row, ours: Row | None, theirs: Row | None) -> str:
        """Describe a row that differs; without a key, ``ours`` and ``theirs`` are how many such rows there are."""
        names = [self.names[it] for it in self.key] or self.names
        shown = ", ".join(
            f"{name} = {'NULL' if it is None else it[:SHOWN]}" for name, it in zip(names, key, strict=True)
        )
        if ours is None or theirs is None:
            what = f"only {'at the source' if theirs is None else 'on the target'}"
        elif self.key:
            columns = [name for name, one, other in zip(self.names, ours, theirs, strict=True) if one != other]
            what = f"differs in {', '.join(columns)}"
        else:
            what = f"{ours[0]} times at the source, {theirs[0]} times on the target"
        return f"{self.name}: {shown}: {what}"


def match(name: str, table: ReadableTable, copy: SnapshotTable, names: Mapping[str, str]) -> Sides | str:
    """Match the columns of a table and its copy; return what they differ in if these cannot be compared.

    ``names`` are those of the copy that are not those of the source; empty for what it does not have.
    """
    ours = {written.lower(): it for it in table.columns if (written := names.get(it.name, it.name))}
    theirs = {it.name.lower(): it for it in copy.columns}
    lacking = {"the target": ours.keys() - theirs.keys(), "the source": theirs.keys() - ours.keys()}
    problems = [f"{side} lacks {', '.join(sorted(some))}" for side, some in lacking.items() if some]
    problems += [
        f"{column} is {it.mysql_type} at the source, and {theirs[column].mysql_type} on the target"
        for column, it in ours.items()
        if column in theirs and _labels(it) != _labels(theirs[column])
    ]
    by_key = [names.get(it.column.name, it.column.name).lower() for it in table.parts]
    if not all(by_key):
        problems.append("a column of the key is left out")
    if problems:
        return "; ".join(problems)
    columns = list(ours)
    key = [columns.index(it) for it in by_key]
    orders = [(name, it.column.collation, it.is_descending) for name, it in zip(by_key, table.parts, strict=True)]
    their_orders = [(it.column.name.lower(), it.column.collation, it.is_descending) for it in copy.key]
    readings = {
        number: read
        for number, (column, it) in enumerate(ours.items())
        if (read := _reading(it, theirs[column])) is not None
    }
    is_ordered_alike = bool(key) and orders == their_orders and not readings.keys() & set(key)
    return Sides(name, copy, columns, names, key, table.key, table.expected, is_ordered_alike, readings)


def _labels(column: SnapshotColumn) -> str:
    """Return the labels of an ENUM or SET, whose numbers are compared; empty for any other column."""
    return column.mysql_type if column.word in ("enum", "set") else ""


def _reading(column: SnapshotColumn, copy: SnapshotColumn) -> Callable[[str], str] | None:
    """Return what makes one text of all that equal values have; None if they have one."""
    words = {column.word, copy.word}
    if "json" in words:
        return _read_json
    if column.mysql_type == copy.mysql_type or words <= _INTEGERS:
        return None
    if words <= _NUMBERS:
        return _read_number
    return _read_time if words <= _TIMES else None


def _read_number(text: str) -> str:
    number = Decimal(text)
    if not number:
        return "0"
    number = number.normalize(EXACT)
    return f"{number:f}" if abs(number.adjusted()) < LONGEST else str(number)


def _read_time(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _read_json(text: str) -> str:
    """Return a text of the value, in which the order of names and the way of writing numbers do not count."""
    try:
        return repr(_plain(json.loads(text, parse_float=Decimal, parse_int=Decimal)))
    except (ValueError, RecursionError, ArithmeticError):
        return text


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((name, _plain(it)) for name, it in value.items())
    if isinstance(value, list):
        return tuple(_plain(it) for it in value)
    return _read_number(str(value)) if isinstance(value, Decimal) else (type(value).__name__, value)
