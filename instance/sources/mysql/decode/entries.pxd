"""Writing Canal's Entry around a value that is encoded in place."""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libcpp.string cimport string

from .....store.segment cimport SegmentWriter


cdef enum:
    NO_EVENT_TYPE = -1

    PROPS_MAX = 2048               # bytes of the props of a transaction: those of its GTID, and the xid of an XA one
    ANY_SIZE = 0x7FFFFFFF          # of a value without a known smaller bound; protobuf does not allow a larger message


cdef struct EventPlace:            # what the Header of an entry is made from
    uint32_t timestamp
    uint32_t server_id
    int64_t offset                 # of the event in its file ...
    uint32_t length                # ... and its length


cdef class EntryWriter:
    cdef SegmentWriter writer
    cdef bytes file_name           # Header.logfileName ...
    cdef const char *file_name_data
    cdef size_t file_name_size
    cdef uint8_t props[PROPS_MAX]  # Header.props of the current transaction, encoded
    cdef size_t props_size
    # The unfinished entry. Offsets from where it begins, because it moves when its segment is full:
    cdef size_t header_at          # of the header's content
    cdef size_t header_size
    cdef size_t count_at           # of the rowsCount prop, 0 for none
    cdef size_t value_at           # of storeValue's content
    cdef int header_width          # bytes of the padded lengths of header, storeValue and entry
    cdef int value_width
    cdef int entry_width
    cdef int count_digits

    cdef size_t count_size(self, int digits) noexcept nogil
    cdef int set_file_name(self, bytes name) except -1
    cdef void clear_props(self) noexcept nogil
    cdef void add_prop(self, const char *key, const uint8_t *value, size_t size) noexcept nogil

    # Begins an entry: everything up to the content of storeValue, which is then written at writer.cursor.
    # names: the encoded Header fields schemaName and tableName. gtid: Header.gtid, or NULL. value_bound: storeValue's
    # content will not be longer. count_bound: the entry will not hold more rows; 0: it does not count them.
    cdef int start(
        self,
        const EventPlace *event,
        int entry_type,
        int event_type,
        const uint8_t *names,
        size_t names_size,
        const string *gtid,
        size_t value_bound,
        size_t count_bound,
    ) except -1 nogil

    # Fills in the lengths and the number of rows.
    cdef int end(self, int64_t rows) except -1 nogil
