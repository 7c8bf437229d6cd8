from typing import Final, final

from ..canal.records import Encoder

LOGICAL_BITS: Final[int]

@final
class TidbEncoder(Encoder):
    def __init__(self, *, limit: int) -> None: ...
