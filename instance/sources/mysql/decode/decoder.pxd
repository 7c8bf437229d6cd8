"""The decoder: raw replication packets to framed entries in segments, with a slot each."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libcpp.string cimport string

from .....store.ring cimport Ring, Slot, Staging
from .....store.segment cimport SegmentWriter
from .entries cimport EntryWriter, EventPlace
from .events cimport Event
from .executed cimport ExecutedSet
from .file_reader cimport FileReader
from .gtid_event cimport Gtid
from .gtid_sources cimport GtidSources
from .inflate cimport Inflater, PayloadReader
from .limits cimport Limits
from .packets cimport PacketBuffer
from .plan cimport Scratch
from .tables cimport KnownTables
from .transaction_filter cimport TransactionFilter
from .xa cimport XA_TEXT_MAX, RecalledPart, XaTransaction


cpdef enum Status:
    NEED_DATA = 0          # put what is staged, then receive
    CONTROL = 1            # put what is staged, then handle `event`
    STAGED = 2             # put what is staged, then go on
    STOPPED = 3            # everything before the stop position is decoded
    NEED_PART = 4          # put what is staged, then receive more of the prepared part that was asked for


cdef enum Group:
    NO_GROUP = 0
    PREFIX = 1             # a GTID or statement variables: the next statement is the transaction, unless it is a BEGIN
    OPEN = 2               # until XID, COMMIT, ROLLBACK or XA_PREPARE


cdef struct Begin:         # a BEGIN that is put when the first entry of its transaction is
    bint pending
    EventPlace place
    int64_t begin
    uint32_t n
    uint64_t thread_id
    bint is_xa             # an XA START
    uint32_t xa_size
    uint8_t xa[XA_TEXT_MAX]


@cython.final
cdef class Decoder:
    cdef readonly Staging staging
    cdef Ring ring
    cdef Py_ssize_t staged_bytes           # that are put at once
    cdef Py_ssize_t most_staged_bytes
    cdef readonly Event event
    cdef readonly PacketBuffer packets
    cdef object sources, files, member
    cdef GtidSources gtid_sources
    cdef SegmentWriter writer
    cdef EntryWriter entries
    cdef Scratch scratch
    cdef Inflater inflater
    cdef PayloadReader payload
    cdef ExecutedSet executed_set

    # Options
    cdef bint gtid_on, strict_canal
    cdef readonly bint moves_xa        # rows of an XA transaction come where it is committed
    cdef bint drops[4]                 # by event type
    cdef bint drops_rows
    cdef public bint drops_statements

    # The stream
    cdef bint walking      # each event of the file is handed to Python, and nothing is decoded
    cdef bint only_xa      # ... but only those from which XA transactions are known
    cdef bint is_placed    # what is before the dump's place was executed, and nothing after it
    cdef FileReader reader
    cdef str source_name
    cdef uint32_t source, file

    # The event being decoded
    cdef int64_t event_begin           # its position: event_begin:event_n
    cdef uint32_t event_n
    cdef bint ends                     # the transaction ends with it
    cdef bint is_put                   # it gave an entry
    cdef bint unfinished               # Python handles it
    cdef bint in_rows
    cdef Py_ssize_t first_staged           # in `in_rows`: what was staged before the event's entries ...
    cdef uint32_t more_entries             # ... and how many of them follow the first one

    # The transaction it belongs to
    cdef Group group
    cdef int64_t begin_offset
    cdef uint32_t n                    # of the next event
    cdef bint has_entries              # something of it has been put
    cdef Begin begun
    cdef XaTransaction xa
    cdef Gtid gtid
    cdef uint32_t gtid_number          # in Ring.gtid_sources; 0: none

    # The place after the last slot
    cdef uint32_t reached_file
    cdef int64_t reached_begin
    cdef uint32_t reached_n

    cdef Limits limits

    # Tables
    cdef KnownTables tables
    cdef uint64_t unknown_id           # of the TABLE_MAP event that Python handles
    cdef void *of_rows                 # the KnownTable of the rows event that is decoded; valid while `in_rows`

    cdef TransactionFilter transaction_filter

    # Statistics
    cdef readonly long long event_count
    cdef readonly long long heartbeats     # whole ones: the source had nothing more to send then
    cdef readonly long long transaction_count
    cdef readonly long long future_rows
    cdef readonly int64_t execute_ms   # of the newest event that has a time

    cdef RecalledPart asked_part(self)
    cdef Status loop(self) except? NEED_DATA nogil
    cdef int start_event(self, const uint8_t *data, size_t size) except -1 nogil
    cdef int start_inner_event(self, const uint8_t *data, size_t size) except -1 nogil
    cdef bint has_event(self, const uint8_t *data, size_t size) except -1 nogil
    cdef bint start_part_event(self, const uint8_t *data, size_t size) except -1 nogil
    cdef int read_header(self, const uint8_t *data, size_t size) except -1 nogil
    cdef bint dispatch(self, const uint8_t *body, const uint8_t *end) except -1 nogil
    cdef int finish_event(self) except -1 nogil
    cdef bint control(self, int type, const uint8_t *body, const uint8_t *end) except -1 nogil
    cdef int open_group(self, Group group) noexcept nogil
    cdef bint delivers(self, int64_t begin, uint32_t n) noexcept nogil
    cdef bint has_stopped(self) noexcept nogil
    cdef int heartbeat(self, const uint8_t *body, const uint8_t *end) except -1 nogil
    cdef int rotate(self, const uint8_t *body, const uint8_t *end) except -1
    cdef int describe(self, const uint8_t *body, const uint8_t *end) except -1
    cdef int gtid_event(self, const uint8_t *body, const uint8_t *end) except -1 nogil
    cdef bint query(self, const uint8_t *body, const uint8_t *end, bint is_compressed) except -1 nogil
    cdef Status decide(self) except? NEED_DATA nogil
    cdef int decided(self, bint one_phase) except -1 nogil
    cdef bint prepared_event(self, const uint8_t *body, const uint8_t *end) except -1 nogil
    cdef bint prepared_in_payload(self, const uint8_t *body, const uint8_t *end) except -1 nogil
    cdef int begin_transaction(self, uint64_t thread_id, const uint8_t *xa, size_t xa_size) except -1 nogil
    cdef int end_transaction(self, const uint8_t *id, size_t id_size, const uint8_t *xa, size_t xa_size) except -1 nogil
    cdef int put_begin(self) except -1 nogil
    cdef int put_end(self, const uint8_t *id, size_t id_size, const uint8_t *xa, size_t xa_size) except -1 nogil
    cdef bint table_map(self, const uint8_t *body, const uint8_t *end) except -1 nogil
    cdef int rows(self, const uint8_t *body, const uint8_t *end) except -1 nogil
    cdef bint next_entry(self, Py_ssize_t size) except -1 nogil
    cdef int statement(self, const uint8_t *text, size_t size) except -1 nogil
    cdef int variables(self, int type, const uint8_t *body, const uint8_t *end) except -1
    cdef int refuse(self) except -1
    cdef int table_id_size(self) noexcept nogil
    cdef int check_gtid(self) except -1 nogil
    cdef int add_gtid_props(self) noexcept nogil
    cdef object make_position(self, int64_t begin, uint32_t n)
    cdef Event make_event(self, int type, const uint8_t *body, const uint8_t *end)
    cdef int start_entry(
        self, const EventPlace *place, int entry_type, int event_type, const uint8_t *names, size_t names_size,
        size_t value_bound, size_t count_bound,
    ) except -1 nogil
    cdef int set_boundary(self, Slot *slot) noexcept nogil
    cdef int describe_slot(self, Slot *slot, const EventPlace *place) noexcept nogil
    cdef int put_slot(
        self, const EventPlace *place, int64_t begin, uint32_t n, int kind, int event_type
    ) except -1 nogil
    cdef int advance(self, bint here=*) except -1 nogil
