"""Changes of a table as SQL statements for its copy on the target.

A change brings Canal's texts (docs/arrow-types.md). What literal a text becomes is decided by the target's own column;
the text of a statement is put together by Arrow, column by column, so that no Python runs for a row.

The statements are for the session that `sluice.client_sdk.spark.target` sets up: a backslash in a string is nothing
special, a zero is no request for a new number, and a date may be one that the calendar does not have.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sluice.protocol.errors import TargetError

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

STATEMENT = 1 << 20
"""Bytes of a statement, about; less where the target takes less."""
KEYS, TERMS = 1000, 100
"""Rows of a DELETE: where their keys can stand in one list, and where they cannot."""

_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "bit", "enum", "set"})
_UNSIGNED = frozenset({"bit", "enum", "set"})
_STRINGS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_BYTES = frozenset(
    {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector"}
    | {"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"}
    | {"geometrycollection", "geomcollection"}
)


class Way(Enum):
    """How a text is written as a literal."""

    INTEGER = "a number"
    BYTES = "bytes"
    QUOTED = "text"


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement; ``is_lenient`` asks for a session that is not strict: MySQL's error value of an ENUM needs it."""

    sql: bytes
    rows: int
    is_lenient: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table on the target."""

    name: str
    data_type: str
    """In lower case, without length and attributes."""
    full_type: str
    """As ``information_schema`` writes it."""
    is_generated: bool = False

    @property
    def way(self) -> Way:
        """How its texts are written."""
        if self.data_type in _INTEGERS:
            return Way.INTEGER
        return Way.BYTES if self.data_type in _BYTES else Way.QUOTED

    def literals(self, texts: pa.StringArray) -> pa.StringArray:
        """Return its values as SQL."""
        if self.way is Way.INTEGER:
            found = self._integers(texts)
        elif self.way is Way.BYTES:
            found = pc.binary_join_element_wise("X'", self._hexadecimal(texts), "'", "")
        elif self.data_type == "float":  # the shortest text of the largest one is beyond it when read as a DOUBLE
            found = quote_texts(self._floats(texts))
        else:
            found = quote_texts(texts)
        return found.fill_null("NULL") if found.null_count else found

    def key_literals(self, texts: pa.StringArray) -> pa.StringArray:
        """Return its values as SQL that is equal to the column where it has that value."""
        if self.data_type in ("float", "double"):  # a FLOAT is compared as the DOUBLE that it is
            return self._floats(texts)
        if self.data_type == "decimal":
            return pc.binary_join_element_wise("CAST(", quote_texts(texts), f" AS {self._plain_type})", "")
        if self.data_type == "year":
            return pc.binary_join_element_wise("CAST(", quote_texts(texts), " AS UNSIGNED)", "")
        if self.data_type == "binary":  # the zeros at its end are not sent
            width = 2 * int("".join(filter(str.isdigit, self._plain_type)) or 1)
            texts = pc.utf8_rpad(self._hexadecimal(texts), width, "0")
            return pc.binary_join_element_wise("X'", texts, "'", "")
        return self.literals(texts)

    def equalities(self, texts: pa.StringArray) -> pa.StringArray:
        """Return conditions that hold for exactly these values, although the collation may take others for equal."""
        name, literals = quote_name(self.name), self.key_literals(texts)
        if self.data_type not in _STRINGS:
            return pc.binary_join_element_wise(f"{name} = ", literals, "")
        exact = f" AND CAST(CONVERT({name} USING utf8mb4) AS BINARY) = "
        return pc.binary_join_element_wise(f"{name} = ", literals, exact, literals, "")

    @property
    def _plain_type(self) -> str:
        return self.full_type.split(" ")[0]

    def _integers(self, texts: pa.StringArray) -> pa.StringArray:
        unsigned = self.data_type in _UNSIGNED or "unsigned" in self.full_type
        try:
            pc.cast(texts, pa.uint64() if unsigned else pa.int64())
        except pa.ArrowInvalid as error:
            raise self._unfit(error) from None
        return texts

    def _floats(self, texts: pa.StringArray) -> pa.StringArray:
        """Return the exact numbers: those of a FLOAT have more digits as a DOUBLE."""
        try:
            numbers = pc.cast(texts, pa.float32() if self.data_type == "float" else pa.float64())
        except pa.ArrowInvalid as error:
            raise self._unfit(error) from None
        return pc.cast(pc.cast(numbers, pa.float64()), pa.string())

    def _hexadecimal(self, texts: pa.StringArray) -> pa.StringArray:
        """Return the bytes in hexadecimal digits; each is a character of the text."""
        present = texts.fill_null("") if texts.null_count else texts
        lengths = pc.multiply(pc.utf8_length(present), 2)
        ends = pc.cumulative_sum(lengths)
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
        joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(present)], pa.int32()), present), "")[0]
        try:
            digits = joined.as_py().encode("latin-1").hex().encode()
        except UnicodeEncodeError:
            raise self._unfit("a character above U+00FF, so the source's column is one of text") from None
        found = pa.StringArray.from_buffers(len(texts), offsets.buffers()[1], pa.py_buffer(digits))
        return pc.if_else(texts.is_valid(), found, None) if texts.null_count else found

    def _unfit(self, error: object) -> TargetError:
        return TargetError(
            f"the target's column {self.name} is {self.full_type}, which takes {self.way.value}, and the change has"
            f" {error}: give both tables the same types"
        )


class Table:
    """A table on the target: what its rows are written with."""

    def __init__(self, name: tuple[str, str], source: str, columns: Sequence[Column], key: Sequence[str]) -> None:
        """``source`` is what it is a copy of, for errors; ``key``: the columns of the primary key."""
        self.name = name
        self.source = source
        self.columns = {column.name.lower(): column for column in columns}
        self.key = [column for column in columns if column.name in key]

    @classmethod
    def load(cls, cursor: "Cursor", name: tuple[str, str], source: str) -> "Table":
        """Read what the target says of it.

        Raises:
            TargetError: it does not exist there, has no primary key, or knows no transactions.
        """
        cursor.execute(_COLUMNS, name)
        columns = [
            Column(_text(column), _text(data_type).lower(), _text(full_type).lower(), _is_generated(_text(extra)))
            for column, data_type, full_type, extra in cursor.fetchall()
        ]
        shown = ".".join(name)
        if not columns:
            raise TargetError(
                f"the target has no table {shown} for the changes of {source}: create it there with the same columns,"
                " then start the mirror again: it goes on where it was"
            )
        cursor.execute(_KEY, name)
        key = [_text(column) for (column,) in cursor.fetchall()]
        if not key:
            raise TargetError(
                f"{shown} on the target has no primary key, so that the rows of {source} cannot be found in it: give it"
                " the key of the source, then start the mirror again"
            )
        cursor.execute(_ENGINE, name)
        for (engine,) in cursor.fetchall():
            raise TargetError(
                f"{shown} on the target has no transactions (engine {_text(engine)}): ALTER TABLE {shown} ENGINE=InnoDB"
            )
        return cls(name, source, columns, key)

    def replace(self, images: pa.MapArray, keys: pa.ListArray, limit: int) -> Iterator[Statement]:
        """Give statements that make the rows as the images are, whatever was in their place.

        ``keys``: the texts of the source's key; ``limit``: bytes that the target takes in a statement.
        """
        for texts, rows in _by_columns(images):
            self._check_columns(texts)
            self._check_keys(texts, keys.take(rows))
            written = {name: it for name, it in texts.items() if not self.columns[name].is_generated}
            lenient = self._with_error_values(written)
            for is_lenient in (False, True):
                chosen = written
                if is_lenient or lenient is not None:
                    if lenient is None:
                        break
                    mask = lenient if is_lenient else pc.invert(lenient)
                    chosen = {name: it.filter(mask) for name, it in written.items()}
                yield from self._replace(chosen, limit, is_lenient=is_lenient)

    def delete(self, images: pa.MapArray, keys: pa.ListArray) -> Iterator[Statement]:
        """Give statements that delete the rows with the keys of these images, if they are there."""
        for texts, rows in _by_columns(images):
            self._check_keys(texts, keys.take(rows))
            parts = [texts[column.name.lower()] for column in self.key]
            (column, *others) = self.key
            if others or column.data_type in _STRINGS:
                conditions = [it.equalities(part) for it, part in zip(self.key, parts, strict=True)]
                terms = pc.binary_join_element_wise("(", pc.binary_join_element_wise(*conditions, " AND "), ")", "")
                yield from self._delete(terms, TERMS, " OR ", "")
            else:
                yield from self._delete(column.key_literals(parts[0]), KEYS, ",", f"{quote_name(column.name)} IN (")

    def _replace(self, texts: dict[str, pa.StringArray], limit: int, *, is_lenient: bool) -> Iterator[Statement]:
        literals = [self.columns[name].literals(it) for name, it in texts.items()]
        rows = pc.binary_join_element_wise("(", pc.binary_join_element_wise(*literals, ","), ")", "")
        if not len(rows):
            return
        names = ",".join(quote_name(self.columns[name].name) for name in texts)
        head = f"REPLACE INTO {quote_table(self.name)} ({names}) VALUES ".encode()  # noqa: S608
        lengths = pc.add(pc.binary_length(rows), 1).cast(pa.int64())
        longest = pc.max(lengths).as_py() + len(head)
        if longest > limit:
            raise TargetError(
                f"a row of {self.source} needs a statement of {longest} bytes, and the target takes {limit}:"
                f" SET GLOBAL max_allowed_packet there to {_power_above(longest)} or more, then start the mirror again"
            )
        size = max(min(STATEMENT, limit - len(head) - longest), 1)
        statement = pc.divide(pc.cumulative_sum(lengths), size)  # the number of the one that a row belongs to
        ends = pc.run_end_encode(statement).run_ends
        for body, count in _joined(rows, ends, ","):
            yield Statement(head + body, count, is_lenient)

    def _delete(self, terms: pa.StringArray, count: int, separator: str, opening: str) -> Iterator[Statement]:
        head = f"DELETE FROM {quote_table(self.name)} WHERE {opening}".encode()  # noqa: S608
        ends = pa.array([*range(count, len(terms), count), len(terms)], pa.int32())
        for body, rows in _joined(terms, ends, separator):
            yield Statement(head + body + (b")" if opening else b""), rows)

    def _with_error_values(self, texts: dict[str, pa.StringArray]) -> pa.BooleanArray | None:
        """Tell the rows with an ENUM that has MySQL's error value, the number 0; None when there are none."""
        found = None
        for name, it in texts.items():
            if self.columns[name].data_type == "enum":
                zero = pc.equal(it, "0").fill_null(False)
                found = zero if found is None else pc.or_(found, zero)
        return found if found is not None and pc.any(found).as_py() else None

    def _check_columns(self, texts: dict[str, pa.StringArray]) -> None:
        """Raise TargetError unless the change has all that has to be written, and nothing else."""
        wanted = {name for name, column in self.columns.items() if not column.is_generated}
        unknown, missing = texts.keys() - self.columns.keys(), wanted - texts.keys()
        if not unknown and not missing:
            return
        problems = []
        if unknown:
            problems.append(f"the target lacks {', '.join(sorted(unknown))}")
        if missing:
            problems.append(f"the change lacks {', '.join(sorted(missing))}")
        advice = "alter the target to have the same columns, then start the mirror again: it goes on where it was"
        if missing:
            advice += ". A source whose binlog_row_image is not FULL leaves columns out, too: set it to FULL there"
        raise TargetError(
            f"{' and '.join(problems)}. A change of {self.source} has the columns {', '.join(texts)};"
            f" {'.'.join(self.name)} on the target has {', '.join(self._written)}: {advice}"
        )

    @cached_property
    def _written(self) -> list[str]:
        return [column.name for column in self.columns.values() if not column.is_generated]

    def _check_keys(self, texts: dict[str, pa.StringArray], keys: pa.ListArray) -> None:
        """Raise TargetError unless the target's primary key has the values of the source's."""
        parts = [texts.get(column.name.lower()) for column in self.key]
        if keys.null_count:
            raise TargetError(
                f"{self.source} has no primary key on the source: give it one, or leave it out by the filter"
            )
        count = len(self.key)
        same = pc.all(pc.equal(pc.list_value_length(keys), count)).as_py()
        for place, part in enumerate(parts):
            same = same and part is not None and part.equals(keys.values.take(pc.add(_starts(keys), place)))
        if not same:
            raise TargetError(
                f"the primary key of {'.'.join(self.name)} on the target is"
                f" ({', '.join(column.name for column in self.key)}), which is not that of {self.source} on the source:"
                " give both tables the same primary key, then start the mirror again"
            )


def quote_name(name: str) -> str:
    """Quote the name of a column, table or schema."""
    return "`" + name.replace("`", "``") + "`"


def quote_table(name: tuple[str, str]) -> str:
    """Quote the name of a schema and of a table in it."""
    return ".".join(map(quote_name, name))


def quote_texts(texts: pa.StringArray) -> pa.StringArray:
    """Return string literals."""
    return pc.binary_join_element_wise("'", pc.replace_substring(texts, "'", "''"), "'", "")


def _by_columns(images: pa.MapArray) -> Iterator[tuple[dict[str, pa.StringArray], pa.Int32Array]]:
    """Turn images into columns, by name in lower case; give those apart that have other columns or another order.

    With each the numbers of its rows. The images of a table have the same names in the same order, unless a DDL came
    between them, or the source leaves out what is unchanged.
    """
    names = pc.binary_join(pa.ListArray.from_arrays(_starts(images, end=True), images.keys), "\0")
    kinds = names.dictionary_encode()
    for number in range(len(kinds.dictionary)):
        rows = pc.indices_nonzero(pc.equal(kinds.indices, number)).cast(pa.int32())
        some = images if len(kinds.dictionary) == 1 else images.take(rows)
        starts = _starts(some)
        columns = kinds.dictionary[number].as_py().lower().split("\0")
        yield {name: some.items.take(pc.add(starts, place)) for place, name in enumerate(columns)}, rows


def _starts(lists: pa.Array, *, end: bool = False) -> pa.Int32Array:
    """Return where each list begins in its values; ``end``: and where the last one ends."""
    offsets = lists.offsets
    return offsets if end else offsets.slice(0, len(lists))


def _joined(texts: pa.StringArray, ends: pa.Int32Array, separator: str) -> Iterator[tuple[bytes, int]]:
    """Join texts up to each of the ends; with the number of each."""
    begin = pa.array([0], pa.int32())
    bounds = pa.concat_arrays([begin, ends])
    bodies = pc.binary_join(pa.ListArray.from_arrays(bounds, texts), separator)
    counts = pc.subtract(ends, bounds.slice(0, len(ends)))
    for body, count in zip(bodies.cast(pa.binary()), counts, strict=True):
        yield body.as_py(), count.as_py()


def _power_above(number: int) -> int:
    return 1 << number.bit_length()


def _text(value: Any) -> str:
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
