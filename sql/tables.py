"""What is known of a target's tables: how their rows are written, and which of their changes depend on each other."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from ..protocol.errors import TargetError
from .changes import key_digests, kinds
from .statements import RESUMES, TargetTable, by_columns, decode_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymysql.cursors import Cursor

Name = tuple[str, str]
"""Schema and name of a table."""


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    """A unique index of a table: no two rows have the same values in its columns."""

    columns: tuple[str, ...]
    """In lower case."""
    texts: tuple[bool, ...]
    """Whether a column has texts, which are compared by a collation."""
    seed: int
    """Stands for it in digests of its values."""


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A table of the target."""

    table: TargetTable
    indexes: Sequence[UniqueIndex] | None
    """All unique ones; None when there is one whose values cannot be told from images."""
    related: Name | None
    """The first of the tables that foreign keys connect with it, if one of these keys changes rows; else None."""

    def digest(self) -> bytes:
        """Return the digest that all changes have in common of a table whose changes are applied in their order."""
        return _seed(self.related or self.table.name, ()).to_bytes(8, "little")

    def key_digests(self, changes: pa.RecordBatch, rows: pa.Int32Array, *, is_safe: bool) -> bytes | None:
        """Return digests, 64 bits each, by which it is known which of its changes depend on each other.

        Those do that have one in common. ``rows``: the numbers of the changes of this table. None: all of them may.
        ``is_safe`` as of `Writer.write`: a REPLACE locks neighbours of its row in other unique indexes.
        """
        if self.related is not None or self.indexes is None or changes["_key"].take(rows[:1]).null_count:
            return None
        if is_safe and len(self.indexes) > 1:
            return None
        found = []
        for images in (changes["before"], changes["after"]):
            for names, chosen in kinds(images, rows):
                places = {name.lower(): place for place, name in enumerate(names)}
                for index in self.indexes if names else ():
                    if not places.keys() >= set(index.columns):
                        return None
                    columns = [(places[it], is_text) for it, is_text in zip(index.columns, index.texts, strict=True)]
                    digests = key_digests(images, chosen, index.seed, columns)
                    if digests is None:
                        return None
                    found.append(digests)
        return b"".join(found)

    def keeps_unique(self, before: pa.MapArray, after: pa.MapArray) -> pa.BooleanArray:
        """Tell the rows whose values stay in all unique indexes but the primary key, by their images."""
        key = {it.name.lower() for it in self.table.key}
        columns = {column for index in self.indexes or () for column in index.columns} - key
        old, new = (list(by_columns(images, None)) for images in (before, after))
        is_known = self.indexes is not None and len(old) == len(new) == 1
        # A column that the target generates need not be sent.
        is_known = is_known and columns <= old[0][0].keys() & new[0][0].keys()
        stays = pa.array([is_known] * len(before), pa.bool_())
        for column in columns if is_known else ():
            texts, others = old[0][0][column].take(), new[0][0][column].take()
            same = pc.or_(pc.equal(texts, others).fill_null(False), pc.and_(texts.is_null(), others.is_null()))
            stays = pc.and_(stays, same)
        return stays


class Tables:
    """The tables of a target that changes were written to. Each is asked for once.

    Threads may `get` tables at the same time that one of them has got before.
    """

    def __init__(
        self, source: str = "", *, is_checked: bool = False, admit: "Callable[[Cursor, Name], None] | None" = None
    ) -> None:
        """``source``: what the tables are of, for errors.

        ``is_checked``: triggers of the target are refused, and its foreign keys act. ``admit`` is called when a table
        is first got.
        """
        self._source = source
        self._is_checked = is_checked
        self._admit = admit
        self._known: dict[Name, KnownTable] = {}
        self._acting: dict[str, _Acting] = {}  # of each schema with a known table
        self._next_look = 0.0

    def __len__(self) -> int:
        return len(self._known)

    def forget(self) -> None:
        """Forget them: they may have been altered."""
        self._known.clear()
        self._acting.clear()

    def look(self, cursor: "Cursor") -> None:
        """Forget them if a trigger or a foreign key was added or dropped since; looks only now and then."""
        begin = time.monotonic()
        if begin < self._next_look:
            return
        if any(_Acting.of(cursor, schema) != before for schema, before in self._acting.items()):
            self.forget()
        end = time.monotonic()
        self._next_look = end + max(LOOK, (end - begin) / SHARE)

    def get(self, cursor: "Cursor", name: Name, *, needs_key: bool) -> KnownTable:
        """Return a table, which is asked for if it is new. Raises TargetError, and what a later try may not meet."""
        if name not in self._known:
            shown = ".".join(name)
            table = TargetTable.load(
                cursor, name, f"{shown} of {self._source}" if self._source else shown, needs_key=needs_key
            )
            related = self._check_relations(cursor, name) if self._is_checked else None
            indexes = _unique_indexes(cursor, table)
            if self._admit is not None:
                self._admit(cursor, name)
            self._known[name] = KnownTable(table, indexes, related)
        return self._known[name]

    def _check_relations(self, cursor: "Cursor", name: Name) -> Name | None:
        """Return the first of the tables that foreign keys connect with it, if one of these keys changes rows.

        Raises TargetError when it has triggers.
        """
        connected, seen, acts = [name], {_lower(name)}, False
        for table in connected:
            acting = self._acting.get(table[0]) or self._acting.setdefault(table[0], _Acting.of(cursor, table[0]))
            for other, changes_rows in acting.keys.get(_lower(table), ()):
                acts = acts or changes_rows
                if _lower(other) not in seen:
                    seen.add(_lower(other))
                    connected.append(other)
        if (trigger := self._acting[name[0]].triggers.get(name[1].lower())) is not None:
            raise TargetError(
                f"{'.'.join(name)} on the target has the trigger {trigger}, which would repeat what the source's"
                f" triggers have done already: drop it there. {RESUMES}"
            )
        return min(seen) if acts else None


class _Acting(NamedTuple):
    """What acts in a schema when rows are written, by names in lower case: a server may have them so."""

    triggers: dict[str, str]
    """One of each table that has some."""
    keys: dict[Name, set[tuple[Name, bool]]]
    """Of each table with foreign keys, in either direction, the other one, and whether the key changes rows."""

    @classmethod
    def of(cls, cursor: "Cursor", schema: str) -> Self:
        """Ask the target."""
        cursor.execute(_TRIGGERS, (schema,))
        triggers = {table.lower(): trigger for table, trigger in cursor.fetchall()}
        cursor.execute(_FOREIGN_KEYS, (schema, schema))
        keys: dict[Name, set[tuple[Name, bool]]] = {}
        for own_schema, own, referenced_schema, referenced, changes_rows in cursor.fetchall():
            ends = (own_schema, own), (referenced_schema, referenced)
            for one, other in (ends, reversed(ends)):
                keys.setdefault(_lower(one), set()).add((other, bool(changes_rows)))
        return cls(triggers, keys)


def _lower(name: Name) -> Name:
    schema, table = name
    return schema.lower(), table.lower()


def _unique_indexes(cursor: "Cursor", table: TargetTable) -> Sequence[UniqueIndex] | None:
    """Return the unique indexes of a table; None if an image does not say which of their values are equal."""
    cursor.execute(_INDEXES, table.name)
    found: dict[str, list[str]] = {}
    for index, column, prefix in cursor.fetchall():
        name = "" if column is None else decode_text(column).lower()
        if not name or prefix is not None or table.columns[name].data_type in _INEXACT:
            return None
        found.setdefault(decode_text(index), []).append(name)
    return [
        UniqueIndex(tuple(names), tuple(table.columns[it].has_text for it in names), _seed(table.name, names))
        for names in found.values()
    ]


def _seed(name: Name, columns: Sequence[str]) -> int:
    """Return 64 bits that stand for a unique index, or without columns for a table."""
    text = "\0".join((*name, *columns))
    return int.from_bytes(hashlib.sha256(text.encode(errors="surrogateescape")).digest()[:8], "little")


LOOK: Final = 10.0
"""Seconds between two looks at triggers and foreign keys, at least ..."""
SHARE: Final = 0.01
"""... and the share of the time that they may take."""
_INEXACT: Final = frozenset({"float", "double"})
"""Types with different texts of equal values."""
_INDEXES = (
    "SELECT index_name, column_name, sub_part FROM information_schema.statistics"
    " WHERE table_schema = %s AND table_name = %s AND non_unique = 0 ORDER BY index_name, seq_in_index"
)
_TRIGGERS = (
    "SELECT event_object_table, trigger_name FROM information_schema.triggers WHERE event_object_schema = %s"
    " ORDER BY event_object_table, trigger_name"
)
_ACTIONS = "('CASCADE', 'SET NULL', 'SET DEFAULT')"
_FOREIGN_KEYS = (
    "SELECT constraint_schema, table_name, unique_constraint_schema, referenced_table_name,"  # noqa: S608
    f" delete_rule IN {_ACTIONS} OR update_rule IN {_ACTIONS} FROM information_schema.referential_constraints"
    " WHERE constraint_schema = %s OR unique_constraint_schema = %s"
)
