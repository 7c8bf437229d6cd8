"""What an account may do on a target, as far as it says so itself."""

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from ....protocol.identifiers import quote_name

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

_GRANT: Final = re.compile(r"GRANT (.+?) ON (?:TABLE )?(\*|`(?:[^`]|``)+`)\.(\*|`(?:[^`]|``)+`) TO ", re.IGNORECASE)
_ROLE: Final = re.compile(r"GRANT (?!.* ON )", re.IGNORECASE)


class Grant(NamedTuple):
    """Rights on some schemas or tables."""

    rights: frozenset[str]
    """In upper case; ``ALL PRIVILEGES`` are all of them."""
    schemas: re.Pattern[str]
    tables: re.Pattern[str]


class Rights:
    """The rights of an account."""

    def __init__(self, account: str, lines: Iterable[str]) -> None:
        """``account`` is its name in SQL, ``lines`` what SHOW GRANTS returns."""
        lines = list(lines)
        self.account = account
        self.is_known = not any(map(_ROLE.match, lines))
        """Whether these are all; not if it has roles."""
        self._grants = [
            Grant(frozenset(re.split(r", ?", found[1].upper())), _pattern(found[2]), _pattern(found[3]))
            for found in map(_GRANT.match, lines)
            if found is not None
        ]

    @classmethod
    def ask(cls, cursor: "Cursor") -> Self:
        """Ask for those of the session. Raises MySQLError."""
        cursor.execute("SELECT CURRENT_USER()")
        ((name,),) = cursor.fetchall()
        user, _, host = str(name).rpartition("@")
        cursor.execute("SHOW GRANTS")
        return cls(f"'{user}'@'{host}'", [str(line) for (line,) in cursor.fetchall()])

    def lacking(self, rights: Collection[str], schema: str, table: str) -> list[str]:
        """Return which rights it lacks on a table; ``*``: on all of the schema."""
        has: set[str] = set()
        for it in self._grants:
            if it.schemas.fullmatch(schema) and (it.tables.fullmatch(table) if table != "*" else it.tables is _ALL):
                has |= it.rights
        return [] if "ALL PRIVILEGES" in has else [it for it in rights if it not in has]

    def advice(self, rights: Collection[str], schema: str, table: str) -> str:
        """Return the statement that gives rights."""
        where = f"{quote_name(schema)}.{table if table == '*' else quote_name(table)}"
        return f"GRANT {', '.join(rights)} ON {where} TO {self.account}"


_ALL: Final = re.compile(r".*", re.DOTALL)


def _pattern(name: str) -> re.Pattern[str]:
    r"""Return what the names match that a grant is for: `%` and `_` stand for others, unless `\` is before them."""
    if name == "*":
        return _ALL
    parts = re.findall(r"\\.|.", name[1:-1].replace("``", "`"), re.DOTALL)
    wild = {"%": ".*", "_": "."}
    return re.compile("".join(wild.get(it) or re.escape(it[-1]) for it in parts), re.DOTALL)
