"""Names of tables and columns where a setting has them in full, not as a pattern."""

from ...protocol.errors import FilterError

_QUOTES = frozenset("`\"'")


def read_names(text: str) -> list[str]:
    """Split `schema.table` into its names; each may be in backticks. Raises FilterError.

    All other quotes are refused: as a part of the name they would match nothing, and nobody would notice.
    """
    return [_name(part.strip(), text) for part in text.split(".")]


def _name(part: str, text: str) -> str:
    inside = part[1:-1]
    if len(part) > 1 and part[0] == part[-1] == "`" and "`" not in inside.replace("``", ""):
        return inside.replace("``", "`")
    if _QUOTES.intersection(part):
        raise FilterError(
            f"'{text.strip()[:100]}': write each name without quotes, or in backticks of its own, `schema`.`table`,"
            " with a backtick in it doubled; a name with a point in it is not supported"
        )
    return part
