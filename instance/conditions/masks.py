"""Values that consumers do not get as they are: `shop.users.email: sha256; shop.users.phone: first 3`."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from ...protocol.errors import FilterError
from ..columns import SourceColumn
from .names import read_names

MAX_CHARACTERS: Final = 10_000
"""That `first` may leave."""
_FORM: Final = re.compile(r"null|sha256|hmac|first\s+([0-9]{1,5})", re.IGNORECASE)
_TEXTS: Final = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_BINARIES: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")


@dataclass(frozen=True, slots=True)
class Mask:
    """What becomes of the values of a column; NULL stays NULL."""

    kind: Literal["null", "sha256", "hmac", "first"]
    characters: int = 0
    """That `first` leaves."""

    def shown(self, column: SourceColumn) -> SourceColumn:
        """Return the column with the type that its values have afterwards."""
        if self.kind == "null" or (self.kind == "first" and column.data_type in (*_TEXTS, *_BINARIES)):
            return column
        mysql_type = f"varchar({self.characters})" if self.kind == "first" else "char(64)"
        return replace(column, mysql_type=mysql_type, charset="utf8mb4")


class Masks:
    """The masks of all columns that have one."""

    def __init__(self, text: str = "") -> None:
        """Read them; raises FilterError."""
        self._tables: dict[str, dict[str, Mask]] = defaultdict(dict)
        for item in filter(None, (item.strip() for item in text.split(";"))):
            column, colon, form = item.rpartition(":")
            schema, *names = read_names(column)
            found = _FORM.fullmatch(form.strip())
            if not colon or not schema or len(names) != 2 or not all(names):
                raise FilterError(f"'{item[:100]}' is not a mask: write schema.table.column: sha256")
            if found is None or int(found[1] or 1) not in range(1, MAX_CHARACTERS + 1):
                raise FilterError(
                    f"'{item[:100]}': the masks are null, sha256, hmac and first 3, of 1 to {MAX_CHARACTERS} characters"
                )
            masks = self._tables[f"{schema}.{names[0]}".upper()]
            if names[1].upper() in masks:
                raise FilterError(f"{column.strip()} has two masks")
            masks[names[1].upper()] = Mask(form.split()[0].lower(), int(found[1] or 0))  # type: ignore[arg-type]

    @property
    def need_secret(self) -> bool:
        """Whether one of them is `hmac`."""
        return any(mask.kind == "hmac" for masks in self._tables.values() for mask in masks.values())

    def of(self, schema: str, table: str) -> Mapping[str, Mask]:
        """Return the masks of a table by the names of its columns, in upper case."""
        return self._tables.get(f"{schema}.{table}".upper(), {})

    def shown(self, schema: str, table: str, column: SourceColumn) -> SourceColumn:
        """Return a column as consumers see it."""
        mask = self.of(schema, table).get(column.name.upper())
        return column if mask is None else mask.shown(column)
