"""Conditions on rows, as clients write them: a part of SQL that can compare columns with values, and nothing else.

Of a condition a statement is made that runs with the destination's account. So it is taken apart: what is not listed
here is refused, and a name has to be a column of the table. There are no functions, subqueries or comments.
"""

import re
from collections.abc import Iterable
from typing import Final

from ....login.tables import quoted
from ....protocol.errors import BadParameterError

LONGEST: Final = 4096
"""Characters of a condition."""
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>-?\d+(?:\.\d+)?(?![\w.]))
      | (?P<text>'(?:[^'\\]|'')*')
      | (?P<name>`(?:[^`]|``)+`|[^\W\d][\w$]*)
      | (?P<operator><=>|<=|>=|<>|!=|[=<>(),])
    )""",
    re.VERBOSE,
)
_WORDS = frozenset({"AND", "OR", "NOT", "IS", "NULL", "IN", "BETWEEN", "LIKE", "TRUE", "FALSE"})


def parse(text: str, columns: Iterable[str]) -> str:
    """Return a condition as SQL, empty for an empty one. Raises BadParameterError that says what is not allowed."""
    if not text.strip():
        return ""
    if len(text) > LONGEST:
        raise BadParameterError(f"a condition has at most {LONGEST} characters", "where")
    names = {name.lower(): name for name in columns}
    parts, at, depth = [], 0, 0
    while text[at:].strip():
        token = _TOKEN.match(text, at)
        if token is None:
            raise BadParameterError(f"a condition cannot have {text[at:].strip()[:50]!r}", "where")
        at = token.end()
        part = token[token.lastgroup or 0]
        if token.lastgroup == "name":
            part = _word(part, names)
        depth += (part == "(") - (part == ")")
        if depth < 0:
            break
        parts.append(part)
    if depth:
        raise BadParameterError(f"the brackets of the condition {text!r} do not match", "where")
    return " ".join(parts)


def _word(name: str, columns: dict[str, str]) -> str:
    if name.upper() in _WORDS:
        return name.upper()
    plain = name[1:-1].replace("``", "`") if name.startswith("`") else name
    if plain.lower() not in columns:
        raise BadParameterError(
            f"{plain!r} is not a column of the table, and a condition has no other words than AND, OR, NOT, IS NULL,"
            " IN, BETWEEN, LIKE, TRUE and FALSE",
            "where",
        )
    return quoted(columns[plain.lower()])
