"""Lists of client ids, as ``1000-1099,2001``."""

import re
from collections.abc import Iterable

FIRST, LAST = -(1 << 15), (1 << 15) - 1
"""The ids that a client may have: 16 bits, as in Canal."""

RESERVED = -1
"""No new client gets this id: to earlier versions, which may share the cursors, it is the log on disk, and they never
detach such a client."""

IdRanges = tuple[tuple[int, int], ...]
"""First and last ids of ranges."""


def parse_ranges(text: str) -> IdRanges:
    """Read a list of client ids and ranges of them. Raises ValueError."""
    found = []
    for item in text.split(","):
        match = re.fullmatch(r"\s*(-?[0-9]{1,5})(?:-(-?[0-9]{1,5}))?\s*", item)
        first = int(match[1]) if match else LAST + 1
        last = int(match[2] or match[1]) if match else LAST
        if not FIRST <= first <= last <= LAST:
            raise ValueError(f"{item.strip()!r} is neither a client id nor a range of them, as in 1000-1099,2001")
        found.append((first, last))
    return tuple(found)


def show_ranges(ranges: Iterable[tuple[int, int]]) -> str:
    """Write a list of client ids as `parse_ranges` reads it."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
