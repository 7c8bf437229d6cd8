from typing import final

from typing_extensions import Buffer

from .encoder import Encoder

@final
class EntryEncoder(Encoder): ...

def commit_ts_of(value: Buffer) -> int: ...
