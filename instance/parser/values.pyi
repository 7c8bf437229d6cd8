from typing import final

@final
class Zone:
    def __init__(self, name: str | None) -> None: ...
    @property
    def has_daylight_saving(self) -> bool: ...
