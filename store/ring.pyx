"""The ring of slots: what is stored of the stream, in order, from the oldest entry that somebody needs."""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from sluice.store.segment cimport Segment, SegmentWriter


cdef class Staging:
    """Slots that are finished but not yet in the ring, in order.

    Only the thread that puts uses it, without the GIL where it likes.
    """

    def __dealloc__(self):
        free(self.slots)

    def __len__(self):
        return self.count - self.taken

    cdef Slot *extend(self) except NULL nogil:
        cdef Py_ssize_t capacity
        cdef Slot *slots
        if self.count == self.capacity:
            capacity = 2 * self.capacity if self.capacity else 64
            slots = <Slot *>realloc(self.slots, capacity * sizeof(Slot))
            if slots == NULL:
                with gil:
                    raise MemoryError
            self.slots = slots
            self.capacity = capacity
        cdef Slot *slot = &self.slots[self.count]
        memset(slot, 0, sizeof(Slot))
        self.count += 1
        return slot

    cdef Slot *finish(self, SegmentWriter writer) except NULL nogil:
        cdef Slot *slot = self.extend()
        slot.segment = <void *>writer.segment
        slot.offset = writer.entry - writer.segment.data
        slot.length = <uint32_t>(writer.cursor - writer.entry)
        self.bytes += slot.length
        writer.segment.count(1)
        writer.next_entry()
        return slot

    cdef Slot *advance(self) except NULL nogil:
        cdef Slot *slot = self.extend()
        slot.kind = ADVANCE
        return slot

    cdef Slot *last(self) noexcept nogil:
        return &self.slots[self.count - 1] if self.count > self.taken else NULL

    cdef void drop_last(self) noexcept nogil:
        if self.count == self.taken:
            return
        self.count -= 1
        cdef Slot *slot = &self.slots[self.count]
        self.bytes -= slot.length
        if slot.segment != NULL and (<Segment>slot.segment).count(-1) == 0:
            with gil:
                (<Segment>slot.segment).pool.settle(<Segment>slot.segment)

    cpdef clear(self):
        """Drops what is not yet put: at the end of the staging's life, or before the stream is read again."""
        while self.count > self.taken:
            self.drop_last()
        self.count = self.taken = 0

    def add_entry(
        self, SegmentWriter writer not None, Kind kind, *, event_type=0, flags=0, table=0, rows=0, source=0, server_id=0,
        execute_ms=0, commit_us=0, event_offset=0, file=0, begin=0, n=0, next_file=0, next_begin=0, next_n=0,
        gtid=0, gtid_first=0, gtid_last=0,
    ):
        """Ends the writer's unfinished entry with a slot of these values; `ADVANCE` has no entry to end."""
        if kind != ADVANCE and writer.cursor == writer.entry:
            raise ValueError("no entry was written")
        cdef Slot *slot = self.advance() if kind == ADVANCE else self.finish(writer)
        slot.kind = kind
        slot.event_type = event_type
        slot.flags = flags
        slot.table = table
        slot.rows = rows
        slot.source = source
        slot.server_id = server_id
        slot.execute_ms = execute_ms
        slot.commit_us = commit_us
        slot.event_offset = event_offset
        slot.file = file
        slot.begin = begin
        slot.n = n
        slot.next_file = next_file
        slot.next_begin = next_begin
        slot.next_n = next_n
        slot.gtid = gtid
        slot.gtid_first = gtid_first
        slot.gtid_last = gtid_last


cdef class Registry:
    """Numbers for things that slots refer to: from 1, in the order of their first sight, never taken back."""

    def __cinit__(self):
        self.numbers = {}
        self.keys = [None]

    cpdef uint32_t intern(self, object key) except 0:
        """The number of the key, given to it now if it is new."""
        number = self.numbers.get(key)
        if number is None:
            number = len(self.keys)
            self.keys.append(key)
            self.numbers[key] = number
        return number

    def __getitem__(self, uint32_t number):
        """The key of a number; None for 0, which stands for nothing."""
        if number >= len(self.keys):
            raise IndexError(number)
        return self.keys[number]

    def __len__(self):
        """The highest number given."""
        return len(self.keys) - 1
