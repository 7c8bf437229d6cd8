# Used by compiled code only.

from .plan import TablePlan

class KnownTable:
    def __init__(self, plan: TablePlan, body: bytes) -> None: ...

class KnownTables: ...
