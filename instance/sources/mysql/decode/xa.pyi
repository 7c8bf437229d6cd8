# Used by compiled code only.

from .....protocol.position import Position

class RecalledPart:
    def __init__(self, event_bytes: int, position: Position) -> None: ...

class XaTransaction:
    def __init__(self, event_bytes: int, memory: int) -> None: ...
