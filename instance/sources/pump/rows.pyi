from ....protocol.tidb.encoder import Encoder
from .definitions import Definitions

class TransactionEncoder(Encoder):
    definitions: Definitions

    def __init__(self, file: str, definitions: Definitions, *, time_zone: str | None, limit: int = ...) -> None: ...
