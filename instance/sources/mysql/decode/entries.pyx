"""Writing Canal's Entry around a value that is encoded in place.

The bytes of an entry in a segment:

    0x12 length | Entry                                      Messages.messages
        0x0A length | Header
            version, logfileName, logfileOffset, serverId, serverenCode, executeTime, sourceType,
            schemaName, tableName, eventLength, eventType, props..., gtid
        0x10 entryType
        0x1A length | storeValue: a RowChange, TransactionBegin or TransactionEnd

The lengths and the number of rows (the prop rowsCount) are known at the end. Their room is predicted at the beginning
and filled exactly, by varints that are longer than necessary. The prediction depends on the event alone, so the same
event always gives the same bytes.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memmove, strlen
from libcpp.string cimport string

from .....protocol.canal.tags cimport (
    ENTRY_TYPE,
    EVENT_LENGTH,
    EVENT_TYPE,
    EXECUTE_TIME,
    HEADER,
    HEADER_GTID,
    HEADER_PROPS,
    KEY,
    LOGFILE_NAME,
    LOGFILE_OFFSET,
    MESSAGES,
    PAIR_VALUE,
    SERVER_ID,
    SERVEREN_CODE,
    SOURCE_TYPE,
    SOURCE_TYPE_MYSQL,
    STORE_VALUE,
    VERSION,
)
from .....protocol.wire cimport (
    LENGTH_MAX,
    decimal_size,
    put_bytes,
    put_decimal,
    put_padded_varint,
    put_raw,
    put_uint,
    put_varint,
    varint_size,
)
from .....store.segment cimport SegmentWriter

from .....protocol.errors import DecodeError

cdef enum:
    FIXED_HEADER_BOUND = 80        # bytes of all Header fields except names, props and gtid
    FRAME_BOUND = 24               # bytes of an entry around its header and storeValue
    COUNT_BOUND = 32               # bytes of the prop rowsCount
    COUNT_DIGITS_MAX = LENGTH_MAX  # predicted; its length can be padded with those that are not needed

cdef const char *ROWS_COUNT = "rowsCount"
cdef size_t ROWS_COUNT_SIZE = 9
cdef const char *UTF_8 = "UTF-8"


cdef class EntryWriter:
    """Writes entries into a segment. It keeps what all entries of a transaction have in common."""

    def __init__(self, SegmentWriter writer not None):
        self.writer = writer
        self.set_file_name(b"")

    cdef int set_file_name(self, bytes name) except -1:
        self.file_name = name
        self.file_name_data = PyBytes_AS_STRING(name)
        self.file_name_size = len(name)
        return 0

    cdef void clear_props(self) noexcept nogil:
        self.props_size = 0

    cdef void add_prop(self, const char *key, const uint8_t *value, size_t size) noexcept nogil:
        cdef size_t key_size = strlen(key)
        cdef size_t pair_size = 3 + key_size + varint_size(size) + size
        cdef uint8_t *p = self.props + self.props_size
        if self.props_size + 1 + varint_size(pair_size) + pair_size > PROPS_MAX:
            return
        p = put_varint(put_varint(p, HEADER_PROPS), pair_size)
        p = put_bytes(p, KEY, key, key_size)
        p = put_bytes(p, PAIR_VALUE, value, size)
        self.props_size = p - self.props

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
    ) except -1 nogil:
        cdef size_t gtid_size = gtid.size() if gtid != NULL else 0
        cdef size_t bound
        cdef uint8_t *p
        bound = FIXED_HEADER_BOUND + COUNT_BOUND + self.file_name_size + names_size + self.props_size + gtid_size
        self.header_width = <int>varint_size(bound)
        self.value_width = <int>varint_size(value_bound)
        self.entry_width = <int>varint_size(bound + value_bound + FRAME_BOUND)
        self.writer.reserve(bound + FRAME_BOUND)
        p = self.writer.entry
        p = put_varint(p, MESSAGES) + self.entry_width
        p = put_varint(p, HEADER) + self.header_width
        self.header_at = p - self.writer.entry
        p = put_uint(p, VERSION, 1)
        p = put_bytes(p, LOGFILE_NAME, self.file_name_data, self.file_name_size)
        p = put_uint(p, LOGFILE_OFFSET, <uint64_t>event.offset)
        p = put_uint(p, SERVER_ID, event.server_id)
        p = put_bytes(p, SERVEREN_CODE, UTF_8, 5)
        p = put_uint(p, EXECUTE_TIME, <uint64_t>event.timestamp * 1000)
        p = put_uint(p, SOURCE_TYPE, SOURCE_TYPE_MYSQL)
        p = put_raw(p, names, names_size)
        p = put_uint(p, EVENT_LENGTH, event.length)
        if event_type != NO_EVENT_TYPE:
            p = put_uint(p, EVENT_TYPE, event_type)
        p = put_raw(p, self.props, self.props_size)
        self.count_at = 0
        if count_bound:
            self.count_at = p - self.writer.entry
            self.count_digits = min(decimal_size(count_bound), <int>COUNT_DIGITS_MAX)
            p += self.count_size(self.count_digits)
        if gtid_size:
            p = put_bytes(p, HEADER_GTID, gtid.data(), gtid_size)
        self.header_size = p - self.writer.entry - self.header_at
        put_padded_varint(self.writer.entry + self.header_at - self.header_width, self.header_size, self.header_width)
        p = put_uint(p, ENTRY_TYPE, entry_type)
        p = put_varint(p, STORE_VALUE) + self.value_width
        self.value_at = p - self.writer.entry
        self.writer.cursor = p
        return 0

    cdef size_t count_size(self, int digits) noexcept nogil:
        """Of the prop rowsCount: tag and length, the key's tag, length and text, the value's tag, length and digits."""
        return 2 + 2 + ROWS_COUNT_SIZE + 2 + digits

    cdef int end(self, int64_t rows) except -1 nogil:
        cdef int digits, excess
        cdef size_t size, at
        cdef uint8_t *p
        if self.count_at:
            digits = decimal_size(rows)
            excess = digits - self.count_digits
            if excess > 0:
                # More rows than predicted: move what follows; the header is longer by as much.
                self.writer.reserve(excess)
                at = self.count_at + self.count_size(self.count_digits)
                p = self.writer.entry + at
                memmove(p + excess, p, self.writer.cursor - p)
                self.writer.cursor += excess
                self.value_at += excess
                excess = 0
                size = self.header_size + (digits - self.count_digits)
                put_padded_varint(self.writer.entry + self.header_at - self.header_width, size, self.header_width)
            p = self.writer.entry + self.count_at
            p = put_varint(p, HEADER_PROPS)
            p = put_padded_varint(p, self.count_size(digits) - 2, 1 - excess)
            p = put_bytes(p, KEY, ROWS_COUNT, ROWS_COUNT_SIZE)
            p = put_varint(p, PAIR_VALUE)
            p[0] = <uint8_t>digits
            put_decimal(p + 1, rows)
        size = self.writer.cursor - self.writer.entry
        if size > ANY_SIZE:
            with gil:
                raise DecodeError(f"an entry of {size} bytes, which is more than a protobuf message can hold")
        put_padded_varint(
            self.writer.entry + self.value_at - self.value_width, size - self.value_at, self.value_width
        )
        put_padded_varint(self.writer.entry + 1, size - 1 - self.entry_width, self.entry_width)
        return 0
