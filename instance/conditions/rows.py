"""Conditions on rows of clients, for the entries of any source: all have the types of MySQL."""

from .judge import Judge
from .where import client_conditions


class RowConditions:
    """What a client subscribes with."""

    def __init__(self, text: str) -> None:
        """Read conditions, one for each of some tables. Raises FilterError."""
        self.text = text
        self.conditions = client_conditions(text)

    def make_judge(self) -> Judge:
        """Return what judges the entries of a ring by them."""
        return Judge(self.conditions)
