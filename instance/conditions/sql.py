"""Conditions on rows, as clients write them, for a statement that runs with the destination's account.

So they are taken apart, by `where`, and written anew: what is not a test of a column of the table does not get into
the statement.
"""

from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Final

from ...login.tables import SnapshotTable
from ...protocol.errors import BadParameterError, FilterError
from ...protocol.identifiers import quote_name
from .condition import And, Compare, Constant, In, IsNull, Like, Not, Or, Test, leaves

LONGEST: Final = 4096
"""Characters of a condition."""


def translate(text: str, table: SnapshotTable, delivered: Collection[str]) -> str:
    """Return a condition on rows of a table as SQL, empty for an empty one.

    ``delivered`` are the columns that are delivered as they are: it would show what others hold. Raises
    BadParameterError that says what is not allowed.
    """
    if not text.strip():
        return ""
    if len(text) > LONGEST:
        raise BadParameterError(f"the condition of {table} has more than {LONGEST} characters", "where")
    from .where import parse_condition  # noqa: PLC0415  its parser takes time and memory, and few need it

    try:
        test = parse_condition(text)
        names = {column.name.lower(): column.name for column in table.columns}
        _check(test, names, delivered)
        return _sql(test, names)
    except FilterError as error:
        raise BadParameterError(f"the condition of {table}: {error}", "where") from None


def _check(test: Test, names: Mapping[str, str], delivered: Collection[str]) -> None:
    for leaf in leaves(test):
        if leaf.column.lower() not in names:
            raise FilterError(f"{leaf.column} is not a column of the table")
        if names[leaf.column.lower()] not in delivered:
            raise FilterError(f"{leaf.column} is masked or not delivered, and a condition would show what it holds")


def _sql(test: Test, columns: Mapping[str, str]) -> str:
    match test:
        case And(parts):
            return f"({' AND '.join(_sql(part, columns) for part in parts)})"
        case Or(parts):
            return f"({' OR '.join(_sql(part, columns) for part in parts)})"
        case Not(part):
            return f"(NOT {_sql(part, columns)})"
    name = quote_name(columns[test.column.lower()])
    if isinstance(test, IsNull):
        return f"({name} IS NULL)"
    if test.collation:
        name += f" COLLATE {test.collation}"
    match test:
        case Compare(_, operator, constant):
            return f"({name} {operator} {_literal(constant)})"
        case In(_, constants):
            return f"({name} IN ({', '.join(map(_literal, constants))}))"
        case Like(_, pattern):
            return f"({name} LIKE {_literal(pattern)})"


def _literal(constant: Constant) -> str:
    if isinstance(constant, str):
        return f"_utf8mb4 X'{constant.encode().hex()}'"
    if isinstance(constant, bytes):
        return f"X'{constant.hex()}'"
    return f"{constant:f}" if isinstance(constant, Decimal) else repr(constant)
