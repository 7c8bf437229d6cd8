from typing import NamedTuple

from typing_extensions import Buffer

class Outline(NamedTuple):
    statements: list[tuple[int, bool]]
    boundary: int
    is_open: bool

def outline(data: Buffer) -> Outline: ...
