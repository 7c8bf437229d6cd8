"""The slots: what the ring knows of an entry without reading it."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libcpp.vector cimport vector

from .segment cimport SegmentPool, SegmentWriter
from .verdicts cimport Verdicts


cpdef enum Kind:
    TRANSACTION_BEGIN = 1
    ROW_DATA = 2
    TRANSACTION_END = 3
    DDL = 4                # a QUERY entry that Canal calls DDL (ALTER, CREATE, ERASE, RENAME, TRUNCATE, CINDEX, DINDEX)
    QUERY = 5              # any other entry without rows: ROWS_QUERY, XA COMMIT, plain QUERY
    ADVANCE = 6            # no bytes: the stream moved on, but nothing of it is delivered
    QUARANTINE = 7         # the marker of a row event that could not be decoded
    GAP = 8                # the marker of a recorded gap (an INCIDENT event, a purge that was accepted)


cpdef enum Flag:
    BOUNDARY = 1           # the place after this slot is outside any transaction
    FUTURE_SCHEMA = 2      # decoded with a schema that is younger than the event and was changed in between
    TEXT = 4               # the text of a statement that changes rows, of whatever tables


cdef struct Slot:
    void *segment          # the Segment (borrowed; its slot count keeps it alive); NULL for ADVANCE
    int64_t offset         # of the framed entry within the segment
    uint32_t length        # of the framed entry: tag, length, entry; 0 for ADVANCE
    uint8_t kind
    uint8_t event_type     # Canal's EventType number, 0 if it has none
    uint16_t flags
    uint32_t table         # number in Ring.tables, 0 for none
    uint32_t rows
    uint32_t source        # number in Ring.sources
    uint32_t server_id     # of the event header: the origin server
    int64_t execute_ms     # event header timestamp, ms
    int64_t commit_us      # immediate/original commit timestamp, µs; 0 where the source does not say
    int64_t event_offset   # where the event starts in its file (Canal's logfileOffset)
    uint32_t file          # number in Ring.files: the position of the entry is file:begin:n ...
    uint32_t n
    int64_t begin
    uint32_t next_file     # ... and the place after it is next_file:next_begin:next_n
    uint32_t next_n
    int64_t next_begin
    uint32_t gtid          # number in Ring.gtid_sources, 0 for none; set on the slot that ends the transaction
    int64_t gtid_first     # first and last transaction number that end here (an ADVANCE may stand for several)
    int64_t gtid_last


cdef class Staging:
    """Slots that are finished but not yet in the ring, in order."""
    cdef Slot *slots
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t taken             # of them already put
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t bytes             # of framed entries not yet put
    cdef readonly object released              # the place after the last slot that was put, None before there is one

    # Ends the writer's unfinished entry: its slot, zeroed except segment, offset, length. Valid until the next call.
    cdef Slot *finish(self, SegmentWriter writer) except NULL nogil
    cdef Slot *advance(self) except NULL nogil          # an ADVANCE slot, zeroed except for its kind
    cdef Slot *last(self) noexcept nogil                # the newest slot that is not yet put, or NULL
    cdef int cut(self, Py_ssize_t count) except -1      # drops what was finished after the first `count`
    cpdef clear(self)                                   # drops what is not yet put
    cdef Slot *extend(self) except NULL nogil


cdef class Registry:
    """Numbers for things that slots refer to: from 1, in the order of their first sight, never taken back."""
    cdef dict numbers
    cdef list keys
    cpdef uint32_t intern(self, object key) except 0


cdef struct Extent:        # of an entry, as it is given
    const uint8_t *data
    uint32_t length
    uint32_t rows
    bint is_cut            # by a condition on rows


cdef class Ring:
    """The slots of a destination and the memory of their entries, between the oldest needed and the newest put."""
    cdef readonly SegmentPool pool
    cdef readonly Registry sources             # keys: (member, server_uuid or MariaDB's server_id); "" for the only one
    cdef readonly Registry files               # keys: (name, created)
    cdef readonly Registry tables              # keys: (schema, table), and the collations of its columns if known
    cdef readonly Registry gtid_sources        # keys: (member, (sid, tag) or MariaDB's (domain, server_id))
    cdef readonly object restarts              # the Restarts of what the slots came from
    cdef readonly object masks                 # `Masks`: which tables pass the filters of its readers
    cdef readonly object verdicts              # Verdicts by the texts of their conditions, as long as any are used
    cdef readonly Py_ssize_t size              # slots at most: a power of two
    cdef readonly Py_ssize_t memory            # bytes at most: of entries, of segments in use, of pinned ones
    cdef Py_ssize_t used_at_most               # bytes of segments in use with which a put does not wait
    cdef readonly Py_ssize_t bytes             # of the entries stored
    cdef readonly int64_t first                # sequence of the oldest slot kept
    cdef readonly int64_t next                 # sequence of the next slot to be put
    cdef readonly int64_t put_rows             # counts since the ring was made: rows and bytes of entries put ...
    cdef readonly int64_t put_bytes
    cdef readonly int64_t put_execute_ms       # ... and the event timestamp of the last one, 0 for none
    cdef readonly int64_t freed_rows           # the same of entries freed
    cdef readonly int64_t freed_bytes
    cdef readonly int64_t freed_execute_ms
    cdef double blocked                        # seconds that puts have waited for room, without the present wait ...
    cdef double blocked_since                  # ... which began at this time of the monotonic clock; 0 for none
    cdef readonly bint closed
    cdef readonly bint waiting                 # a put waits for room
    cdef public object on_put                  # called in the putting thread after a put and before a wait
    cdef Slot *slots                           # slot of a sequence: slots[sequence & (capacity - 1)]
    cdef int64_t capacity                      # a power of two that grows up to `size`
    cdef object changed                        # Condition: room was made, or waiting is over
    cdef object floor                          # (source, file, begin, n) of the place before `first`; None: unknown

    # Not to be kept while a Python object is made: the collector may run then, and let a put enlarge the ring.
    cdef inline Slot *at(self, int64_t sequence) noexcept nogil:
        return &self.slots[sequence & (self.capacity - 1)]

    cdef bint fits(self, const Slot *slot) noexcept
    cdef Py_ssize_t room(self) noexcept
    cdef Py_ssize_t take(self, Staging staging) except -1
    cdef int enlarge(self) except -1
    cdef int release(self, int64_t stop) except -1
    cdef int check(self, int64_t sequence, int64_t end) except -1
    cdef Extent extent(self, int64_t sequence, Verdicts verdicts) noexcept
    cdef run(self, int64_t sequence, int64_t length, Verdicts verdicts)
    cdef bint wants(self, int64_t sequence, const unsigned char[::1] allowed, Verdicts verdicts, bint texts) noexcept
    cdef int64_t select(
        self, Collected batch, vector[int64_t] *chosen, int64_t start, int64_t stop, Py_ssize_t max_bytes,
        bint transactions, bint whole, const unsigned char[::1] allowed, Verdicts verdicts, bint texts,
    ) except -1
    cdef void choose(self, Collected batch, vector[int64_t] *chosen, int64_t sequence, Verdicts verdicts) noexcept
    cdef void drop(self, Collected batch, vector[int64_t] *chosen) noexcept
    cdef bytes positions(self, const int64_t *sequences, size_t count)
    cdef list slices(self, const int64_t *sequences, size_t count, Verdicts verdicts=*)
    cdef view(self, int64_t sequence, int64_t length)
    cdef int gather(
        self, list slices, const int64_t *sequences, size_t start, size_t stop, Verdicts verdicts
    ) except -1


cdef class Collected:
    """What Ring.collect() found."""
    cdef readonly int64_t start
    cdef readonly int64_t stop
    cdef readonly list slices
    cdef readonly bytes positions
    cdef readonly Py_ssize_t entries
    cdef readonly Py_ssize_t bytes
    cdef readonly int64_t rows
    cdef readonly int64_t last
    cdef readonly int64_t execute_ms
    cdef readonly bint complete
