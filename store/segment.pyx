"""Memory that entries are written to once and read from until it is recycled.

A segment is recycled when it holds no slot, no writer appends to it and its buffer is not exported. The last matters
because a transport may still be sending from a buffer long after the batch was acked.

Memory comes straight from mmap. Pages that were never written cost nothing, so neither an idle ring nor the tail of an
oversized segment costs memory. An oversized segment goes back to the system at once.

Threads: `slots` is counted atomically, because the decoder counts without the GIL; all else happens under the GIL.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.exc cimport PyErr_Fetch, PyErr_Restore
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

from ..protocol.canal.tags cimport MESSAGES
from ..protocol.wire cimport VARINT_MAX, put_varint


cdef extern from "<sys/mman.h>" nogil:
    void *mmap(void *address, size_t length, int protection, int flags, int fd, long offset)
    void *mremap(void *address, size_t old_length, size_t new_length, int flags)
    int munmap(void *address, size_t length)
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS, MREMAP_MAYMOVE
    void *MAP_FAILED

cdef extern from * nogil:
    """
    static inline Py_ssize_t sluice_atomic_add(Py_ssize_t *number, Py_ssize_t change) {
        return __atomic_add_fetch(number, change, __ATOMIC_ACQ_REL);
    }
    """
    Py_ssize_t sluice_atomic_add(Py_ssize_t *number, Py_ssize_t change)

cdef enum:
    PAGE = 4096
    SPARE_SEGMENTS = 4     # kept for the next writer while nothing happens


cdef inline size_t pages(size_t size) noexcept nogil:
    """The size rounded up to whole pages."""
    return (size + PAGE - 1) & ~<size_t>(PAGE - 1)


@cython.no_gc_clear                     # buffers of segments are released whenever their holders go: see Ring
cdef class SegmentPool:
    """The segments of one ring, and the account of their memory."""

    def __init__(self, Py_ssize_t segment_size=1 << 20, Py_ssize_t budget=1 << 24):
        """Segments are of `segment_size` bytes, rounded up to whole pages; nothing is allocated yet.

        The pool keeps segments that are no longer needed for reuse, up to `budget` bytes in all.
        """
        if segment_size <= 0:
            raise ValueError("segment_size must be positive")
        self.segment_size = pages(segment_size)
        self.budget = budget
        self.alive = set()
        self.spare = []

    cdef Segment acquire(self, size_t least):
        """A segment of at least that capacity for a writer: a spare one, a new one, or a larger one of its own."""
        cdef Segment segment
        if least <= <size_t>self.segment_size and self.spare:
            segment = self.spare.pop()
            self.unused = min(self.unused, <Py_ssize_t>len(self.spare))
        else:
            segment = Segment(self)
            segment.resize(max(least, <size_t>self.segment_size))
        segment.written = True
        self.alive.add(segment)
        return segment

    cdef Py_ssize_t used(self) noexcept:
        return self.allocated - <Py_ssize_t>len(self.spare) * self.segment_size

    cdef void settle(self, Segment segment):
        """Recycles the segment if nothing needs it any more, and keeps count of what only its readers pin."""
        if segment.written or segment.slots != 0 or segment not in self.alive:
            return
        if segment.exports != 0:
            if not segment.pinned:
                segment.pinned = True
                self.pinned += segment.capacity
            return
        self.alive.discard(segment)
        if segment.pinned:
            segment.pinned = False
            self.pinned -= segment.capacity
            if self.changed is not None:
                with self.changed:
                    self.changed.notify_all()
        if segment.capacity == <size_t>self.segment_size and self.allocated <= self.budget:
            self.spare.append(segment)
        else:
            segment.resize(0)

    def trim(self):
        """Gives back the memory of spare segments that were not needed since the last call, except for a few.

        While the stream flows they are kept: mapping the memory of a segment again costs more than filling it.
        """
        cdef Segment segment
        while self.unused > SPARE_SEGMENTS:
            self.unused -= 1
            segment = self.spare.pop(0)
            segment.resize(0)
        self.unused = len(self.spare)

    def close(self):
        """Gives all spare memory back, and keeps none from now on."""
        cdef Segment segment
        self.budget = self.unused = 0
        while self.spare:
            segment = self.spare.pop()
            segment.resize(0)


@cython.no_gc_clear
cdef class Segment:
    """A piece of memory. It supports the buffer protocol, read-only; an exported buffer keeps it from being reused."""

    def __cinit__(self, SegmentPool pool not None):
        self.pool = pool

    def __dealloc__(self):
        if self.data != NULL:
            munmap(self.data, self.capacity)

    cdef void resize(self, size_t capacity) except *:
        """Maps, moves or (for 0) unmaps the memory. No pointer may remain into what this moves or gives back."""
        cdef void *data
        capacity = pages(capacity)
        if capacity == self.capacity:
            return
        if capacity == 0:
            munmap(self.data, self.capacity)
            data = NULL
        else:
            if self.data == NULL:
                data = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
            else:
                data = mremap(self.data, self.capacity, capacity, MREMAP_MAYMOVE)
            if data == MAP_FAILED:
                raise MemoryError(f"no memory for a segment of {capacity} bytes")
        self.data = <unsigned char *>data
        self.pool.allocated += <Py_ssize_t>capacity - <Py_ssize_t>self.capacity
        self.capacity = capacity
        self.pool.largest = max(self.pool.largest, <Py_ssize_t>capacity)

    cdef Py_ssize_t count(self, Py_ssize_t change) noexcept nogil:
        return sluice_atomic_add(&self.slots, change)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, self.capacity, 1, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        # A view may be dropped while an exception is on its way (a frame unwinds, a coroutine returns): put that aside.
        cdef PyObject *kind
        cdef PyObject *value
        cdef PyObject *traceback
        self.exports -= 1
        if self.exports == 0:
            PyErr_Fetch(&kind, &value, &traceback)
            try:
                self.pool.settle(self)
            finally:
                PyErr_Restore(kind, value, traceback)


cdef class SegmentWriter:
    """Appends entries to the current segment of a pool; an entry never spans two segments."""

    def __init__(self, SegmentPool pool not None):
        """Nothing is allocated before the first byte is written."""
        self.pool = pool

    cdef int grow(self, size_t n) except -1 nogil:
        with gil:
            self.grow_with_gil(n)
        return 0

    cdef int grow_with_gil(self, size_t n) except -1:
        cdef size_t used = self.cursor - self.entry
        cdef size_t need = used + n
        cdef Segment left = self.segment
        cdef Segment segment
        if left is not None and self.entry == left.data:
            # The entry has the segment to itself: nothing else points into it.
            left.resize(max(need, 2 * left.capacity))
            segment = left
        else:
            segment = self.pool.acquire(need)
            if used:  # before the first entry there is nothing to copy from, not even an address
                memcpy(segment.data, self.entry, used)
        self.segment = segment
        self.entry = segment.data
        self.cursor = segment.data + used
        self.limit = segment.data + segment.capacity
        if left is not None and left is not segment:
            left.written = False
            self.pool.settle(left)
        return 0

    cdef int next_entry(self) except -1 nogil:
        self.entry = self.cursor
        if self.segment.capacity > <size_t>self.pool.segment_size:
            with gil:
                self.close()
        return 0

    cpdef int close(self) except -1:
        """Throws the unfinished entry away and gives the segment up, so that it can be recycled.

        A writer that is dropped without this keeps its last segment for as long as the pool lives.
        """
        cdef Segment left = self.segment
        if left is None:
            return 0
        if left.capacity > <size_t>self.pool.segment_size and self.entry != left.data:
            left.resize(self.entry - left.data)  # gives unused pages back; memory that shrinks does not move
        self.segment = None
        self.entry = self.cursor = self.limit = NULL
        left.written = False
        self.pool.settle(left)
        return 0

    cpdef int write(self, const unsigned char[::1] data) except -1:
        """Appends bytes to the unfinished entry."""
        return self.append(&data[0], data.shape[0]) if data.shape[0] else 0

    cpdef int write_framed(self, const unsigned char[::1] entry) except -1:
        """Appends an encoded Entry framed as `Messages.messages`: tag 0x12, length, entry."""
        cdef size_t size = entry.shape[0]
        self.reserve(1 + VARINT_MAX + size)
        self.cursor = put_varint(put_varint(<uint8_t *>self.cursor, MESSAGES), size)
        return self.write(entry)
