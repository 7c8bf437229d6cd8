# Used by compiled code only.

from .....store.segment import SegmentWriter

class EntryWriter:
    def __init__(self, writer: SegmentWriter) -> None: ...
