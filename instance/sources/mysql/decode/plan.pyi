from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from ....columns import SourceColumn
from ....conditions.condition import Test
from ....conditions.masks import Mask
from .table_map import TableMap

@dataclass(frozen=True, slots=True)
class PlanOptions:
    strict_canal: bool = False
    time_zone: str | None = None
    connection_charset: str = "utf8mb4"
    excluded: bool = False
    fields: frozenset[str] | None = None
    black_fields: frozenset[str] = ...
    where: Test | None = None
    splits: bool = False
    whole_doubles: bool = False
    masks: Mapping[str, Mask] = ...
    mask_secret: bytes = b""
    delivered: tuple[str, str] | None = None

@final
class TablePlan:
    schema: str
    table: str
    delivered_schema: str
    delivered_table: str
    number: int
    excluded: bool
    column_count: int
    slot_flags: int
    error: str | None
    def __init__(
        self,
        table_map: TableMap,
        columns: Sequence[SourceColumn],
        number: int,
        options: PlanOptions | None = None,
        slot_flags: int = 0,
        error: str | None = None,
    ) -> None: ...
    def encode(
        self,
        data: bytes,
        kind: int,
        present_before: bytes | None = None,
        present_after: bytes | None = None,
        *,
        partial_json: bool = False,
    ) -> bytes: ...
