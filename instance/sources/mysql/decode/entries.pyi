# Used by compiled code only.

from sluice.store.segment import SegmentWriter

class EntryWriter:
    def __init__(self, writer: SegmentWriter) -> None: ...
