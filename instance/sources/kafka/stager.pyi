from typing import Protocol

from ....protocol.position import Position
from ....protocol.tidb.encoder import Encoder
from ....store.ring import Ring, Staging
from ...columns import SourceColumn
from ...sink.filters import TableFilter

class StagerOptions(Protocol):
    @property
    def filter_dml_insert(self) -> bool: ...
    @property
    def filter_dml_update(self) -> bool: ...
    @property
    def filter_dml_delete(self) -> bool: ...
    @property
    def filter_rows(self) -> bool: ...
    @property
    def filter_query_ddl(self) -> bool: ...
    @property
    def filter_transaction_entry(self) -> bool: ...

class Stager:
    staging: Staging
    tables: dict[tuple[str, str], list[SourceColumn]]
    """Columns of the tables of which a row was staged."""
    commit_ts: int
    """Of the last transaction that was staged."""
    offset: int
    """Of its record; -1 before there is one."""
    skipped: int
    """Entries of the next transaction that are before the start."""
    transactions: int
    received_bytes: int
    """Of their records."""

    def __init__(
        self,
        ring: Ring,
        options: StagerOptions,
        encoder: Encoder,
        source: str,
        file: str,
        wanted: TableFilter,
        stop: Position | None = None,
    ) -> None: ...
    def begin(self, commit_ts: int, skipped: int = 0, gap: str = "") -> None: ...
    def announce(self, shape: str) -> None: ...
    def refilter(self, wanted: TableFilter) -> None: ...
    def advance(self, commit_ts: int) -> None: ...
    @property
    def is_done(self) -> bool: ...
    def receive(self, records: list[tuple[int, bytes]]) -> None: ...
    def run(self) -> bool: ...
    def close(self) -> None: ...
