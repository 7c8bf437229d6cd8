from collections.abc import Callable
from typing import NamedTuple

from ....protocol.tidb.encoder import Encoder
from .definitions import Definitions

class Undecodable(NamedTuple):
    commit_ts: int
    n: int
    """Of the entry in their place."""
    schema: str
    """Empty, as the table, if that is not known."""
    table: str
    reason: str
    value: bytes
    """A PrewriteValue with nothing else."""

class TransactionEncoder(Encoder):
    definitions: Definitions
    version: int
    """Of the schema, that the definitions did not reach when UnknownJobError was raised last; 0: a job was missing."""

    def __init__(
        self,
        file: str,
        definitions: Definitions,
        *,
        time_zone: str | None,
        limit: int = ...,
        on_trouble: Callable[[Undecodable], bool] | None = None,
    ) -> None: ...
