from typing import final

@final
class Masker:
    def __init__(self, secret: bytes) -> None: ...
