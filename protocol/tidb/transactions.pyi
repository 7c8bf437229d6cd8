from typing import final

from ..canal.records import Encoder

@final
class TidbEncoder(Encoder):
    def __init__(self, *, limit: int) -> None: ...
