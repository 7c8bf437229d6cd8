"""Tables on a target that keep how far a job or an output came, with the rows that it has written."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pymysql

from ..protocol.errors import TargetError
from ..protocol.identifiers import quote_name, quote_table
from .database import Database, reason
from .target import is_passing

if TYPE_CHECKING:
    from pymysql.cursors import Cursor


def create_tables(cursor: "Cursor", database: Database, schema: str, tables: Mapping[str, str]) -> None:
    """Make tables for progress, names with definitions, and their schema, unless they are there.

    Raises TargetError, and what a later try may not meet.
    """
    names = ",".join(["%s"] * len(tables))
    cursor.execute(
        "SELECT COUNT(*) FROM information_schema.tables"  # noqa: S608
        f" WHERE table_schema = %s AND table_name IN ({names})",
        (schema, *tables),
    )
    if cursor.fetchall()[0][0] == len(tables):
        return
    try:
        cursor.execute("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = %s", (schema,))
        if not cursor.fetchall()[0][0]:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {quote_name(schema)}")
        for name, definition in tables.items():
            statement = f"CREATE TABLE IF NOT EXISTS {quote_table(schema, name)} ({definition}) ENGINE = InnoDB"
            cursor.execute(statement)
    except pymysql.MySQLError as error:
        if is_passing(error):
            raise
        raise TargetError(
            f"{database} cannot keep the progress: {reason(error)}. Let the account create and write tables in the"
            f" schema {schema}, or name another schema for the progress"
        ) from error
