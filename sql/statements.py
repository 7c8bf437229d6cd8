"""Changes of a table as SQL statements for its copy on the target.

A change brings Canal's texts (docs/arrow-types.md). What literal a text becomes is decided by the target's own column;
the text of a statement is put together by compiled code, so that no Python runs for a row.

The statements are for the session that `sluice.sql.target` sets up: a backslash in a string is nothing
special, a zero does not ask for a new number, and a date may be one that the calendar does not have.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..protocol.errors import TargetError
from ..protocol.identifiers import quote_name, quote_table
from .changes import UnfitError, kinds, statements

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

STATEMENT = 1 << 20
"""Bytes of a statement, about; less where the target takes less."""
KEYS, TERMS = 1000, 100
"""Rows of a DELETE: where their keys can stand in one list, and where they cannot."""

RESUMES: Final = "A job that is started again resumes where it stopped; an output tries again by itself"
"""What comes after the mistake."""

_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "bit", "enum", "set"})
_UNSIGNED = frozenset({"bit", "enum", "set"})
_STRINGS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_BYTES = frozenset(
    {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector"}
    | {"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"}
    | {"geometrycollection", "geomcollection"}
)


class Way(IntEnum):
    """How a text is written as a literal."""

    INTEGER = 0
    UNSIGNED = 1
    BYTES = 2
    QUOTED = 3
    NUMBER = 4
    """As it is."""


class Conflict(Enum):
    """What is done where a row has the primary key, or values of another unique key, that a new one has."""

    REPLACE = "replace"
    """It is deleted."""
    UPDATE = "update"
    """It becomes the new one, without being deleted: rows of other tables may refer to it."""
    FAIL = "fail"
    """The statement fails."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal: what stands around a text, and how that is written."""

    way: Way
    before: str = ""
    after: str = ""
    width: int = 0
    """Bytes that it is filled up to with zeros."""


@dataclass(frozen=True, slots=True)
class Values:
    """The values that some rows have in a column: of each its place among the texts."""

    texts: pa.StringArray
    places: pa.Int32Array

    def take(self) -> pa.StringArray:
        """Return the texts, one per row."""
        return self.texts.take(self.places)

    def filter(self, mask: pa.BooleanArray) -> "Values":
        """Return those of some of the rows."""
        return Values(self.texts, self.places.filter(mask))

    @classmethod
    def of(cls, texts: pa.StringArray) -> "Values":
        """Make them of the texts of the rows."""
        return cls(texts, _numbers(len(texts)))


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement; ``is_lenient`` asks for a session that is not strict: MySQL's error value of an ENUM needs it."""

    sql: bytes
    rows: int
    is_lenient: bool = False


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column of a table on the target."""

    name: str
    data_type: str
    """In lower case, without length and attributes."""
    full_type: str
    """As ``information_schema`` writes it."""
    is_generated: bool = False

    @property
    def has_text(self) -> bool:
        """Whether its values are texts, which a collation compares."""
        return self.data_type in _STRINGS

    @property
    def literal(self) -> Literal:
        """What its values are as SQL."""
        if self.data_type in _INTEGERS:
            is_unsigned = self.data_type in _UNSIGNED or "unsigned" in self.full_type
            return Literal(Way.UNSIGNED if is_unsigned else Way.INTEGER)
        return Literal(Way.BYTES if self.data_type in _BYTES else Way.QUOTED)

    @property
    def key_literal(self) -> Literal:
        """What is equal to the column where it has a value."""
        if self.data_type in ("float", "double"):
            return Literal(Way.NUMBER)
        if self.data_type == "decimal":
            return Literal(Way.QUOTED, "CAST(", f" AS {self._plain_type})")
        if self.data_type == "year":
            return Literal(Way.QUOTED, "CAST(", " AS UNSIGNED)")
        if self.data_type == "json":
            return Literal(Way.QUOTED, "CAST(", " AS JSON)")
        if self.data_type == "binary":  # the zeros at its end are not sent
            return Literal(Way.BYTES, width=int("".join(filter(str.isdigit, self._plain_type)) or 1))
        return self.literal

    def values(self, values: Values) -> Values:
        """Return the texts to write: the shortest one of the largest FLOAT is beyond it when read as a DOUBLE."""
        return self._floats(values) if self.data_type == "float" else values

    def key_values(self, values: Values) -> Values:
        """Return the texts to compare with: a FLOAT is compared as the DOUBLE that it is."""
        return self._floats(values) if self.data_type in ("float", "double") else values

    def equality(self, values: Values, operator: str = "=") -> "list[Term]":
        """Return what holds for exactly these values, although the collation may take others for equal.

        With the operator ``<=>`` a value may be NULL.
        """
        name, literal, values = quote_name(self.name), self.key_literal, self.key_values(values)
        terms = [Term(f"{name} {operator} {literal.before}", values, literal, self), Term(literal.after)]
        if self.data_type in _STRINGS:
            terms.append(Term(f" AND CAST(CONVERT({name} USING utf8mb4) AS BINARY) {operator} ", values, literal, self))
        return terms

    def unfit(self, error: object) -> TargetError:
        """Make the error for a value that it does not take."""
        takes = {Way.BYTES: "bytes", Way.QUOTED: "text"}.get(self.literal.way, "a number")
        return TargetError(
            f"the target's column {self.name} is {self.full_type}, which takes {takes}, and the change has {error}:"
            " give both tables the same types"
        )

    @property
    def _plain_type(self) -> str:
        return self.full_type.split(" ")[0]

    def _floats(self, values: Values) -> Values:
        """Return the exact numbers: those of a FLOAT have more digits as a DOUBLE."""
        try:
            numbers = pc.cast(values.take(), pa.float32() if self.data_type == "float" else pa.float64())
        except pa.ArrowInvalid as error:
            raise self.unfit(error) from None
        return Values.of(pc.cast(pc.cast(numbers, pa.float64()), pa.string()))


@dataclass(frozen=True, slots=True)
class Term:
    """A part of the text of each row: what is the same in all, and the value after it, if there is one."""

    constant: str
    values: Values | None = None
    literal: Literal | None = None
    column: TargetColumn | None = None


class TargetTable:
    """A table on the target: what its rows are written with."""

    def __init__(self, name: tuple[str, str], source: str, columns: Sequence[TargetColumn], key: Sequence[str]) -> None:
        """``source`` is what it is a copy of, for errors; ``key``: the columns of the primary key."""
        self.name = name
        self.source = source
        self.columns = {column.name.lower(): column for column in columns}
        self.key = [column for column in columns if column.name in key]

    @classmethod
    def load(cls, cursor: "Cursor", name: tuple[str, str], source: str, *, needs_key: bool = True) -> "TargetTable":
        """Read what the target says of it.

        Raises:
            TargetError: it does not exist there, has no primary key though it needs one, or knows no transactions.
        """
        cursor.execute(_COLUMNS, name)
        columns = [
            TargetColumn(
                decode_text(column),
                decode_text(data_type).lower(),
                decode_text(full_type).lower(),
                _is_generated(decode_text(extra)),
            )
            for column, data_type, full_type, extra in cursor.fetchall()
        ]
        shown = ".".join(name)
        if not columns:
            raise TargetError(
                f"the target has no table {shown} for the changes of {source}: create it there with the same columns."
                f" {RESUMES}"
            )
        cursor.execute(_KEY, name)
        key = [decode_text(column) for (column,) in cursor.fetchall()]
        if needs_key and not key:
            raise TargetError(
                f"{shown} on the target has no primary key, so that the rows of {source} cannot be found in it: give it"
                f" the key of the source. {RESUMES}"
            )
        cursor.execute(_ENGINE, name)
        for (engine,) in cursor.fetchall():
            raise TargetError(
                f"{shown} on the target has no transactions (engine {decode_text(engine)}):"
                f" ALTER TABLE {shown} ENGINE=InnoDB"
            )
        return cls(name, source, columns, key)

    def insert(
        self,
        images: pa.MapArray,
        keys: pa.ListArray,
        limit: int,
        rows: pa.Int32Array | None = None,
        *,
        conflict: Conflict = Conflict.REPLACE,
    ) -> Iterator[Statement]:
        """Give statements that make the rows as the images are.

        ``keys``: the texts of the source's key; ``limit``: bytes that the target takes in a statement; ``rows``: the
        numbers of those wanted, all when not given.
        """
        for values, chosen in by_columns(images, rows):
            self._check_columns(values)
            self._check_keys(values, keys, chosen)
            written = {name: it for name, it in values.items() if not self.columns[name].is_generated}
            error_values = self._with_error_values(written)
            if error_values is None:
                yield from self._insert(written, limit, len(chosen), conflict)
                continue
            for is_lenient, mask in ((False, pc.invert(error_values)), (True, error_values)):
                some = {name: it.filter(mask) for name, it in written.items()}
                yield from self._insert(some, limit, pc.sum(mask).as_py(), conflict, is_lenient=is_lenient)

    def delete(self, images: pa.MapArray, keys: pa.ListArray, rows: pa.Int32Array | None = None) -> Iterator[Statement]:
        """Give statements that delete the rows with the keys of these images, if they are there."""
        for values, chosen in by_columns(images, rows):
            self._check_keys(values, keys, chosen)
            parts = [values[column.name.lower()] for column in self.key]
            (column, *others) = self.key
            head = f"DELETE FROM {quote_table(*self.name)} WHERE "  # noqa: S608
            if others or column.data_type in _STRINGS:
                terms = [Term("(")]
                for number, (it, part) in enumerate(zip(self.key, parts, strict=True)):
                    terms += [Term(" AND " if number else ""), *it.equality(part)]
                yield from _statements(head, [*terms, Term(")")], " OR ", "", (len(chosen), TERMS, STATEMENT))
            else:
                literal = column.key_literal
                terms = [Term(literal.before, column.key_values(parts[0]), literal, column), Term(literal.after)]
                head += f"{quote_name(column.name)} IN ("
                yield from _statements(head, terms, ",", ")", (len(chosen), KEYS, STATEMENT))

    def insert_each(self, images: pa.MapArray, limit: int, rows: pa.Int32Array) -> Iterator[Statement]:
        """Give statements that add the rows of a table without a key; ``limit`` as in `insert`."""
        for values, chosen in by_columns(images, rows):
            self._check_columns(values)
            written = {name: it for name, it in values.items() if not self.columns[name].is_generated}
            yield from self._insert(written, limit, len(chosen), Conflict.FAIL)

    def update_each(self, before: pa.MapArray, after: pa.MapArray, rows: pa.Int32Array) -> Iterator[Statement]:
        """Give a statement for each row, which makes one row that is as before as it is after, by all columns."""
        for (old, chosen), (new, _) in zip(by_columns(before, rows), by_columns(after, rows), strict=True):
            written = {name: it for name, it in new.items() if not self.columns[name].is_generated}
            terms = [*self._assignments(written), Term(" WHERE "), *self._equalities(old)]
            head = f"UPDATE {quote_table(*self.name)} SET "  # noqa: S608
            yield from _statements(head, terms, "", " LIMIT 1", _each(chosen))

    def delete_each(self, images: pa.MapArray, rows: pa.Int32Array) -> Iterator[Statement]:
        """Give a statement for each row, which deletes one row that equals it in all columns."""
        for values, chosen in by_columns(images, rows):
            self._check_columns(values)
            head = f"DELETE FROM {quote_table(*self.name)} WHERE "  # noqa: S608
            yield from _statements(head, self._equalities(values), "", " LIMIT 1", _each(chosen))

    def upserts(self, images: pa.MapArray, limit: int, rows: pa.Int32Array) -> Iterator[tuple[int, Statement]]:
        """Give for each row, by its number, a statement that makes the row with its key as the image is.

        Unlike a REPLACE it deletes nothing, which would delete or change rows of other tables that refer to it.
        """
        for values, chosen in by_columns(images, rows):
            self._check_columns(values)
            written = {name: it for name, it in values.items() if not self.columns[name].is_generated}
            names = [quote_name(self.columns[name].name) for name in written]
            head = f"INSERT INTO {quote_table(*self.name)} ({','.join(names)}) VALUES "  # noqa: S608
            found = _statements(head, [*self._row(written), Term(")")], "", _on_duplicate(names), _each(chosen))
            error_values = self._with_error_values(written)
            for number, statement in enumerate(found):
                self._check_size(statement, limit)
                is_lenient = error_values is not None and error_values[number].as_py()
                yield chosen[number].as_py(), replace(statement, is_lenient=is_lenient)

    def updates(self, before: pa.MapArray, after: pa.MapArray, rows: pa.Int32Array) -> Iterator[tuple[int, Statement]]:
        """Give for each row, by its number, a statement that makes the row with the key before as it is after."""
        for (old, chosen), (new, _) in zip(by_columns(before, rows), by_columns(after, rows), strict=True):
            self._check_columns(new)
            written = {name: it for name, it in new.items() if not self.columns[name].is_generated}
            terms = [*self._assignments(written), Term(" WHERE "), *self._key_equalities(old)]
            error_values = self._with_error_values(written)
            head = f"UPDATE {quote_table(*self.name)} SET "  # noqa: S608
            for number, statement in enumerate(_statements(head, terms, "", "", _each(chosen))):
                is_lenient = error_values is not None and error_values[number].as_py()
                yield chosen[number].as_py(), replace(statement, is_lenient=is_lenient)

    def deletes(self, images: pa.MapArray, rows: pa.Int32Array) -> Iterator[tuple[int, Statement]]:
        """Give for each row, by its number, a statement that deletes the row with its key."""
        for values, chosen in by_columns(images, rows):
            head = f"DELETE FROM {quote_table(*self.name)} WHERE "  # noqa: S608
            found = _statements(head, self._key_equalities(values), "", "", _each(chosen))
            yield from zip(chosen.to_pylist(), found, strict=True)

    def _key_equalities(self, values: dict[str, Values]) -> list[Term]:
        terms: list[Term] = []
        for column in self.key:
            part = values.get(column.name.lower())
            if part is None:
                self._check_columns(values)
                continue
            terms += [Term(" AND " if terms else ""), *column.equality(part)]
        return terms

    def _assignments(self, values: dict[str, Values]) -> Iterator[Term]:
        for number, (name, it) in enumerate(values.items()):
            column = self.columns[name]
            yield Term(
                f"{', ' if number else ''}{quote_name(column.name)} = ", column.values(it), column.literal, column
            )

    def _row(self, values: dict[str, Values]) -> Iterator[Term]:
        for number, (name, it) in enumerate(values.items()):
            column = self.columns[name]
            yield Term("," if number else "(", column.values(it), column.literal, column)

    def _equalities(self, values: dict[str, Values]) -> list[Term]:
        self._check_columns(values)
        terms: list[Term] = []
        for name, it in values.items():
            column = self.columns[name]
            if not column.is_generated:
                terms += [Term(" AND " if terms else ""), *column.equality(it, "<=>")]
        return terms

    def _insert(
        self, values: dict[str, Values], limit: int, count: int, conflict: Conflict, *, is_lenient: bool = False
    ) -> Iterator[Statement]:
        names = [quote_name(self.columns[name].name) for name in values]
        verb = "REPLACE" if conflict is Conflict.REPLACE else "INSERT"
        head = f"{verb} INTO {quote_table(*self.name)} ({','.join(names)}) VALUES "
        tail = _on_duplicate(names) if conflict is Conflict.UPDATE else ""
        limits = count, count, min(STATEMENT, limit)
        for statement in _statements(head, [*self._row(values), Term(")")], ",", tail, limits):
            self._check_size(statement, limit)
            yield replace(statement, is_lenient=is_lenient)

    def _check_size(self, statement: Statement, limit: int) -> None:
        size = len(statement.sql)
        if size > limit:
            raise TargetError(
                f"a row of {self.source} needs a statement of {size} bytes, and the target takes {limit}:"
                f" SET GLOBAL max_allowed_packet there to {_power_above(size)} or more. {RESUMES}"
            )

    def _with_error_values(self, values: dict[str, Values]) -> pa.BooleanArray | None:
        """Tell the rows with an ENUM that has MySQL's error value, the number 0; None when there are none."""
        found = None
        for name, it in values.items():
            if self.columns[name].data_type == "enum":
                zero = pc.equal(it.take(), "0").fill_null(False)
                found = zero if found is None else pc.or_(found, zero)
        return found if found is not None and pc.any(found).as_py() else None

    def _check_columns(self, values: dict[str, Values]) -> None:
        """Raise TargetError unless the change has all that has to be written, and nothing else."""
        wanted = {name for name, column in self.columns.items() if not column.is_generated}
        unknown, missing = values.keys() - self.columns.keys(), wanted - values.keys()
        if not unknown and not missing:
            return
        problems = []
        if unknown:
            problems.append(f"the target lacks {', '.join(sorted(unknown))}")
        if missing:
            problems.append(f"the change lacks {', '.join(sorted(missing))}")
        advice = f"alter the target to have the same columns. {RESUMES}"
        if missing:
            advice += " A source whose binlog_row_image is not FULL leaves columns out, too: set it to FULL there"
        raise TargetError(
            f"{' and '.join(problems)}. A change of {self.source} has the columns {', '.join(values)};"
            f" {'.'.join(self.name)} on the target has {', '.join(self._written)}: {advice}"
        )

    @cached_property
    def _written(self) -> list[str]:
        return [column.name for column in self.columns.values() if not column.is_generated]

    def _check_keys(self, values: dict[str, Values], keys: pa.ListArray, rows: pa.Int32Array) -> None:
        """Raise TargetError unless the target's primary key has the values of the source's."""
        keys = keys.take(rows)
        if keys.null_count:
            raise TargetError(
                f"{self.source} has no primary key on the source: give it one, or leave it out by the filter"
            )
        count = len(self.key)
        same = pc.all(pc.equal(pc.list_value_length(keys), count)).as_py()
        starts = keys.offsets.slice(0, len(keys))
        for number, column in enumerate(self.key):
            part = values.get(column.name.lower())
            same = same and part is not None and part.take().equals(Values(keys.values, _added(starts, number)).take())
        if not same:
            raise TargetError(
                f"the primary key of {'.'.join(self.name)} on the target is"
                f" ({', '.join(column.name for column in self.key)}), which is not that of {self.source} on the source:"
                f" give both tables the same primary key. {RESUMES}"
            )


def by_columns(images: pa.MapArray, rows: pa.Int32Array | None) -> Iterator[tuple[dict[str, Values], pa.Int32Array]]:
    """Turn images into columns, by name in lower case; give those apart that have other columns or another order.

    With each the numbers of its rows. The images of a table have the same names in the same order, unless a DDL came
    between them, or the source leaves out what is unchanged.
    """
    for names, chosen in kinds(images, _numbers(len(images)) if rows is None else rows):
        starts = images.offsets.take(chosen)
        yield {name.lower(): Values(images.items, _added(starts, place)) for place, name in enumerate(names)}, chosen


def _statements(
    head: str, terms: Sequence[Term], separator: str, tail: str, limits: tuple[int, int, int]
) -> Iterator[Statement]:
    """Put statements together; ``limits``: rows in all, and of a statement rows and bytes."""
    parts = []
    for term in terms:
        values, literal = term.values, term.literal or Literal(Way.NUMBER)
        texts, places = (None, None) if values is None else (values.texts, values.places)
        parts.append((term.constant.encode(), texts, places, int(literal.way), literal.width))
    try:
        found = statements(head.encode(), parts, separator.encode(), tail.encode(), *limits)
    except UnfitError as error:
        number, text = error.args
        column, shown = terms[number].column, f"the text {text[:100]!r}"
        if column is None:
            raise
        if column.literal.way is Way.BYTES:
            shown = "a character above U+00FF, so the source's column is one of text"
        raise column.unfit(shown) from None
    for sql, rows in found:
        yield Statement(sql, rows)


def _on_duplicate(names: Sequence[str]) -> str:
    """Return what makes the row that is in the place of a new one like it; ``names``: of the columns, quoted."""
    return f" ON DUPLICATE KEY UPDATE {','.join(f'{name} = VALUES({name})' for name in names)}"


def _each(rows: pa.Int32Array) -> tuple[int, int, int]:
    """Return the limits of statements for one row each."""
    return len(rows), 1, STATEMENT


def _numbers(count: int) -> pa.Int32Array:
    """Return 0, 1, 2 and so on."""
    return pa.array(range(count), pa.int32())


def _added(numbers: pa.Int32Array, number: int) -> pa.Int32Array:
    return pc.add(numbers, pa.scalar(number, pa.int32()))


def _power_above(number: int) -> int:
    return 1 << number.bit_length()


def decode_text(value: Any) -> str:
    """Return a text of the catalogue: MySQL 8 and later give some as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _is_generated(extra: str) -> bool:
    return re.search(r"\b(VIRTUAL|STORED|PERSISTENT)\b", extra, re.IGNORECASE) is not None


_COLUMNS = (
    "SELECT column_name, data_type, column_type, extra FROM information_schema.columns"
    " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"
)
_KEY = (
    "SELECT column_name FROM information_schema.statistics"
    " WHERE table_schema = %s AND table_name = %s AND index_name = 'PRIMARY'"
)
_ENGINE = (
    "SELECT engines.engine FROM information_schema.tables JOIN information_schema.engines USING (engine)"
    " WHERE table_schema = %s AND table_name = %s AND engines.transactions <> 'YES'"
)
