from collections.abc import Sequence
from typing import final

from ...store.verdicts import Pinned
from ..columns import SourceColumn
from .condition import Test
from .where import Conditions

def check_condition(
    test: Test, schema: str, table: str, columns: Sequence[SourceColumn], collations: Sequence[str | None]
) -> None: ...

@final
class Judge:
    def __init__(self, conditions: Conditions) -> None: ...
    def judge(self, pinned: Pinned) -> None: ...
