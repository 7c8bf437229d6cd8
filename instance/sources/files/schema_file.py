"""A file of SQL with the tables as they were where binlog files begin."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from ....protocol.canal.ddl import classify
from ....protocol.errors import SourceError
from ....protocol.lexer import Dialect
from ..mysql.history.statements import Context, apply
from ..mysql.history.tables import Catalog, Database, Table, as_shown

_MOST: Final = 1 << 28
"""Bytes of a file that is read."""
_PIECES: Final = re.compile(
    r"""
      (?P<comment> --(?=\s)[^\n]*+ | \#[^\n]*+ | /\*.*?\*/ )
    | (?P<end> ; )
    | '(?:[^'\\]|\\.)*+' | "(?:[^"\\]|\\.)*+" | `[^`]*+` | [^-\#/;'"`]++ | .
    """,
    re.VERBOSE | re.DOTALL,
)
_USE: Final = re.compile(r"USE\s+(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<word>[\w$]+))", re.IGNORECASE)
_MADE: Final = re.compile(r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:TABLE|DATABASE|SCHEMA)\b", re.IGNORECASE)


def read_tables(path: Path, dialect: Dialect) -> Mapping[str, Database]:
    """Return the tables that a file makes, by their databases, as ``mysqldump --no-data --databases`` writes it.

    Its other statements are passed over. Raises SourceError.
    """
    try:
        if path.stat().st_size > _MOST:
            raise _error(path, f"it is larger than {_MOST >> 20} MiB: leave out the rows (mysqldump --no-data)")
        sql = path.read_text("utf-8", "replace")
    except OSError as error:
        raise _error(path, error.strerror or str(error)) from error
    catalog, schema = Catalog(), ""
    for statement in _statements(sql):
        if use := _USE.fullmatch(statement):
            schema = use["word"] or use["quoted"].replace("``", "`")
        elif _MADE.match(statement):
            apply(catalog, dialect, statement, Context(schema))
            for name in classify(statement, schema).tables:
                if not name[0]:
                    raise _error(path, f"no database is named before {name[1]}: dump it with --databases")
                if not isinstance(catalog.get(*name), Table):
                    raise _error(path, f"the CREATE TABLE of {'.'.join(name)} is not understood: take it out")
    found: dict[str, Database] = {}
    for (schema, table), state in catalog.tables():
        assert isinstance(state, Table)
        shown = replace(state, columns=tuple(as_shown(it, mariadb=dialect.mariadb) for it in state.columns))
        found.setdefault(schema, Database(None)).tables[table] = shown
    if not found:
        raise _error(path, "it has no CREATE TABLE: dump it with --no-data --databases")
    return found


def _statements(sql: str) -> Iterator[str]:
    """Give the statements without their comments."""
    pieces: list[str] = []
    for piece in _PIECES.finditer(sql):
        if piece["end"]:
            yield "".join(pieces).strip()
            pieces.clear()
        else:
            pieces.append(" " if piece["comment"] else piece[0])
    yield "".join(pieces).strip()


def _error(path: Path, text: str) -> SourceError:
    return SourceError(f"{path} (sluice.instance.files.schema): {text}")
