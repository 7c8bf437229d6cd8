from typing import final

KINDS: dict[str, int]

@final
class Masker:
    def __init__(self, secret: bytes) -> None: ...
