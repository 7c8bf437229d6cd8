from typing import final

from .....store.verdicts import Pinned
from ....sink.where import Conditions

@final
class Judge:
    def __init__(self, conditions: Conditions) -> None: ...
    def judge(self, pinned: Pinned) -> None: ...
