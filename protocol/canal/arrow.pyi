from collections.abc import Iterable
from typing import Literal, final

import pyarrow as pa
from typing_extensions import Buffer

def arrow_type(mysql_type: str, sql_type: int = 1111) -> pa.DataType: ...
def columns_of(data: Buffer, schema: str, table: str) -> list[tuple[str, str]]: ...

class Decoder:
    schema: pa.Schema
    @property
    def markers(self) -> int: ...
    def decode(self, data: Buffer) -> pa.RecordBatch: ...

@final
class EnvelopeDecoder(Decoder):
    def __init__(self, *, split_keys: bool = True) -> None: ...

@final
class TableDecoder(Decoder):
    def __init__(
        self,
        schema: str,
        table: str,
        columns: Iterable[tuple[str, str]],
        *,
        time_zone: str = "UTC",
        invalid_dates: Literal["null", "error"] = "null",
        missing_columns: Literal["null", "error"] = "error",
        split_keys: bool = True,
    ) -> None: ...
