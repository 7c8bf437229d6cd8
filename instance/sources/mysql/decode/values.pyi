from typing import final

@final
class Zone:
    def __init__(self, name: str | None) -> None: ...
