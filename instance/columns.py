"""A column as the source describes it, whether in the event itself or in information_schema."""

import json
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column as a row event does not describe it.

    ``mysql_type`` is the type as ``information_schema.COLUMNS.COLUMN_TYPE`` writes it (``bigint(20) unsigned``,
    ``varchar(32)``, ``enum('a','b')``). ``charset`` is the MySQL name of the character set (``utf8mb4``, ``latin1``) of
    a text column, None for all others. ``is_key`` says that the column is part of the primary key. ``name`` is empty
    for a column that the server keeps for an index of its own and does not show: it is not delivered.
    """

    name: str
    mysql_type: str
    charset: str | None = None
    is_key: bool = False

    @property
    def data_type(self) -> str:
        """The first word of the type, in lower case: ``bigint``, ``varchar``, ``enum``."""
        return self.mysql_type.lower().split("(", 1)[0].split(" ", 1)[0]

    @property
    def is_unsigned(self) -> bool:
        """Whether the type is unsigned; ZEROFILL implies it."""
        attributes = self.mysql_type.lower().rsplit(")", 1)[-1].split()
        return "unsigned" in attributes or "zerofill" in attributes


def describe(columns: Iterable[tuple[SourceColumn, bool]]) -> str:
    """Return a text for columns, each with whether it can be NULL, by which the versions of a table are told apart.

    That is a list in JSON: for each column its name, its type, whether it can be NULL, and whether it is of the key.
    """
    found = [(it.name, it.mysql_type, is_nullable, it.is_key) for it, is_nullable in columns]
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))
