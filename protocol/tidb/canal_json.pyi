from typing import final

from typing_extensions import Buffer

from .encoder import Encoder

@final
class MessageEncoder(Encoder): ...

def watermark_of(value: Buffer) -> int: ...
