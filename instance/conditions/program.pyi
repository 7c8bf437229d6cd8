from collections.abc import Sequence
from typing import final

from ..columns import SourceColumn
from ..sources.mysql.decode.table_map import TableMap
from .condition import Test

@final
class Condition:
    missing: str | None
    def __init__(
        self,
        test: Test,
        table_map: TableMap,
        columns: Sequence[SourceColumn],
        time_zone: str | None,
        is_text: bool = False,
    ) -> None: ...
