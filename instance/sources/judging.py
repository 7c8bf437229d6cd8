"""Conditions on rows of clients, for the entries of any source: all have the types of MySQL."""

from typing import Final

from ...protocol.errors import FilterError
from ..sink.condition import Like, leaves
from ..sink.where import MAX_CLIENT_TEXT, Conditions
from .mysql.decode.judge import Judge

MAX_PATTERNS: Final = 256
"""Characters of all patterns of LIKE: in the worst case each is compared at each place of a text."""


class RowConditions:
    """What a client subscribes with."""

    def __init__(self, text: str) -> None:
        """Read conditions, one for each of some tables. Raises FilterError."""
        self.text = text
        self.conditions = Conditions(text, MAX_CLIENT_TEXT)
        tests = [leaf for test in self.conditions.tables.values() for leaf in leaves(test)]
        if (size := sum(len(it.pattern) for it in tests if isinstance(it, Like))) > MAX_PATTERNS:
            raise FilterError(f"the patterns of LIKE have {size} characters in all, more than {MAX_PATTERNS}")

    def make_judge(self) -> Judge:
        """Return what judges the entries of a ring by them."""
        return Judge(self.conditions)
