"""By which keys the changes of a batch are ordered."""

import unicodedata
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from ..protocol import props
from ..protocol.canal.rows import Change, Row
from ..protocol.errors import BadParameterError, SluiceError
from .batch import Batch

Key: TypeAlias = Callable[[str, dict[str, Any]], Hashable] | Mapping[str, Sequence[str]]
"""How a row's key is found: a function of the table, ``schema.table``, and the values of a row; or names of columns by
table."""

_ROWS = ("INSERT", "UPDATE", "DELETE", "READ")
_MARKERS = (*props.MARKERS, props.SHAPE)
_ALIKE: Final = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "ħ": "h", "ı": "i", "æ": "ae", "œ": "oe", "ґ": "г"}  # noqa: RUF001
)
"""Letters that Unicode does not decompose, though the usual collations hold them equal to others."""


class ProcessingError(SluiceError):
    """The function of `Client.process`, its ``key`` or its ``on_error`` has failed; ``__cause__`` says how.

    ``change`` is the row, or the change without rows, that it failed for. It is not acked, and comes again.
    """

    type = "processing"

    def __init__(self, what: str, change: Row | Change, cause: BaseException) -> None:
        super().__init__(
            f"{what} failed for {place_of(change)}: {type(cause).__name__}: {cause}. Neither this change nor any after"
            " it is acked: correct the cause, or let `on_error` take such changes, then start again"
        )
        self.change = change
        self.__cause__ = cause


class Keys:
    """Gives the changes of batches, each with its keys."""

    def __init__(self, key: Key | None) -> None:
        """``key``: how a row's key is found; by its primary key when not given, and for tables that a mapping lacks."""
        if isinstance(key, Mapping):
            for table, columns in key.items():
                if not all(table.partition(".")) or isinstance(columns, str) or not columns:
                    raise BadParameterError(
                        f"key: {table!r}: {columns!r}: write `schema.table` and a list of its columns", "key"
                    )
        self._key = key
        self._columns: dict[str, tuple[str, ...]] = {}  # of the primary key, by table

    def of(self, batch: Batch) -> Iterator[tuple[Row | Change, frozenset[Hashable] | None]]:
        """Each row with its keys, before and after the change; a change without rows with None: it is a barrier.

        So is the first row after the primary key has got other columns.
        """
        for change in batch.changes():
            if change.entry_type != "ROWDATA":
                continue
            rows = change.rows()
            if rows:
                table = f"{change.schema}.{change.table}"
                for row in rows:
                    yield row, self._of_row(table, row)
            elif not _says_nothing(change):
                yield change, None

    def _of_row(self, table: str, row: Row) -> frozenset[Hashable] | None:
        before, after = row.before, row.after
        if before is not None and after is not None:
            images = [before, {**before, **after}]  # an image may have only the columns that changed
        else:
            images = [it for it in (before, after) if it is not None]
        if callable(self._key):
            try:
                return frozenset([self._key(table, image) for image in images])
            except Exception as error:
                raise ProcessingError("`key`", row, error) from error
        named = None if self._key is None else self._key.get(table)
        if named is None:
            columns = tuple(row.key)
            if self._columns.setdefault(table, columns) != columns:  # by a DDL that is not delivered
                self._columns[table] = columns
                return None
            return frozenset([(table, *(_plain(image[column]) for column in columns)) for image in images])
        try:
            return frozenset([tuple(_plain(image[column]) for column in named) for image in images])
        except KeyError as error:
            raise BadParameterError(
                f"key: {place_of(row)}: the row has no column {error}: name columns that the destination delivers, and"
                " that every row has (binlog_row_image = FULL)",
                "key",
            ) from None


def place_of(change: Row | Change) -> str:
    """Say which change it is: table, key, position."""
    entry = change.change if isinstance(change, Row) else change
    table = f"{entry.schema}.{entry.table}" if entry.table else entry.schema
    key = f" {change.key}" if isinstance(change, Row) and change.key else ""
    return f"{change.type} {table}{key} at {entry.logfile_name}:{entry.logfile_offset}"


def _says_nothing(change: Change) -> bool:
    """Whether it is the text of a statement whose rows follow, or has lost its rows to a condition."""
    if change.is_ddl:
        return False
    if change.type == "QUERY":
        return change.header_props.keys().isdisjoint(_MARKERS)
    return change.type in _ROWS and not change.sql


def _plain(value: Any) -> Hashable:
    """Make values equal that a source may hold equal, and more: that costs some parallelism, the other way the order.

    The collation of a column is not known, so case, accents and spaces at the end do not count.
    """
    if isinstance(value, str):
        text = value.lower() if value.isascii() and value.isprintable() else _letters(value)
        while "ss" in text:  # a collation may hold the German sharp s equal to one or to two
            text = text.replace("ss", "s")
        return text.rstrip()
    return repr(value) if isinstance(value, dict | list) else value  # a JSON document


def _letters(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text)
    kept = "".join(it for it in decomposed if unicodedata.category(it) not in ("Mn", "Mc", "Me", "Cc", "Cf"))
    return "".join("\ufffd" if it > "\uffff" else it for it in kept.casefold().translate(_ALIKE))
