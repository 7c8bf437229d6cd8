# Used by compiled code only.

class ExecutedSet:
    def __init__(self, text: str = "") -> None: ...
