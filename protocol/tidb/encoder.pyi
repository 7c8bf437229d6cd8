from typing import NamedTuple

from typing_extensions import Buffer

class Entry(NamedTuple):
    entry_type: int
    event_type: int
    schema: str
    table: str
    rows: int
    data: bytes

class Transaction(NamedTuple):
    commit_ts: int
    entries: list[Entry]

class Encoder:
    def __init__(self, file: str) -> None: ...
    def encode(self, value: Buffer, offset: int) -> Transaction: ...
