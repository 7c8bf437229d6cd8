"""DDL on a target: what its catalogue says of what a statement is about, and the running of it."""

import hashlib
from typing import TYPE_CHECKING, Final

import pymysql

from ..protocol.canal.ddl import classify, is_of_database
from ..protocol.errors import TargetError
from ..protocol.identifiers import quote_name
from .database import reason
from .statements import RESUMES
from .target import is_passing, set_modes

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

LONGEST_SHOWN: Final = 1000
"""Characters of a statement in an error."""


def digest(cursor: "Cursor", sql: str, schema: str) -> str:
    """Return a digest of what the catalogue says of what a statement is about.

    These are its tables, or the database that it creates or drops; where neither is known, all of the default
    ``schema``.
    """
    statement = classify(sql, schema)
    named: set[tuple[str, str]] = set(statement.tables)
    named = named or {(it.schema, "") for it in statement.changes if it.schema is not None} or {(schema, "")}
    found = hashlib.sha256()
    for owner, table in sorted(named):
        for catalogue, columns in _CATALOGUE.items():
            if catalogue == "schemata":
                where = "schema_name = %s AND %s = ''"
            else:
                where = "table_schema = %s AND table_name = %s" if table else "table_schema = %s AND %s = ''"
            cursor.execute(
                f"SELECT {columns} FROM information_schema.{catalogue} WHERE {where} ORDER BY {columns}",  # noqa: S608
                (owner, table),
            )
            found.update(repr(cursor.fetchall()).encode())
    return found.hexdigest()


def define(cursor: "Cursor", schema: str, sql: str, source: str) -> None:
    """Run a DDL in the default schema that it had; ``source`` is where it comes from, for errors.

    Raises TargetError, and what a later try may not meet.
    """
    try:
        if schema and not is_of_database(sql):
            cursor.execute(f"USE {quote_name(schema)}")
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES'")  # backslashes in its texts are MySQL's
        cursor.execute(sql)
        set_modes(cursor, is_strict=True)
    except pymysql.MySQLError as error:
        if is_passing(error):
            raise
        raise TargetError(
            f"the target refuses a statement of {source}: {reason(error)}: {sql[:LONGEST_SHOWN]}. Change the schema"
            f" {schema} there as the statement means it: what has changed counts as done. {RESUMES}"
        ) from error


_CATALOGUE: Final = {
    "schemata": "schema_name, default_character_set_name, default_collation_name",
    "tables": "table_name, table_type, engine, table_collation, create_options, table_comment",
    "columns": "table_name, column_name, ordinal_position, column_default, is_nullable, column_type,"
    " character_set_name, collation_name, extra, column_comment",
    "statistics": "table_name, index_name, seq_in_index, non_unique, column_name, collation, sub_part, index_type,"
    " index_comment",
    "partitions": "table_name, partition_name, subpartition_name, partition_method, partition_expression,"
    " partition_description",
    "views": "table_name, view_definition, check_option, security_type",
    "table_constraints": "table_name, constraint_name, constraint_type",
}
"""What is compared, by the table of ``information_schema``."""
