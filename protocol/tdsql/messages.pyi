from ..canal.records import Encoder

class TdsqlEncoder(Encoder):
    source: tuple[str, int]
    def __init__(self, *, limit: int) -> None: ...
