# Used by compiled code only.

class TransactionFilter:
    def __init__(self, drops_entries: bool) -> None: ...
