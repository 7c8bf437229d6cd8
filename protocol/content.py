"""What of the entries of a stream a format of batches holds."""

from enum import IntEnum


class Content(IntEnum):
    """Each holds less than the one before."""

    ENTRIES = 0
    """All entries."""
    CHANGES = 1
    """Those with rows, statements and markers, without the begins and ends of transactions."""
    ROWS = 2
    """Those with rows."""
