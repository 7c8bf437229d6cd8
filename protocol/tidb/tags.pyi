from typing import Final

LOGICAL_BITS: Final[int]
