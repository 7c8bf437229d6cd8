from typing import final

def packed_decimal(data: bytes, precision: int, scale: int) -> str: ...

@final
class Zone:
    def __init__(self, name: str | None) -> None: ...
