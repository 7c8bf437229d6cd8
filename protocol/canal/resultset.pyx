"""Rows of a SELECT as Canal's entries, so that everything that reads changes can read them.

The input is what the server sends after the descriptions of a result's columns in its text protocol (not the binary
one of prepared statements), cut anywhere::

    <length, 3 bytes little-endian> <number, 1 byte> payload
    payload of FFFFFF bytes                          goes on in the next packet
    payload that begins with FE, of less than 9      the end
    payload that begins with FF                      an error: number and text
    other payloads                                   a row: each value FB for NULL, else its length and its bytes

A length is one byte, or FC, FD, FE and 2, 3, 8 bytes little-endian. The output is one entry of an INSERT with all rows
since the last one was taken, framed as in `Messages`; or a `RowBlock`, of which rows can still be left out.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memmove
from libcpp.string cimport string
from libcpp.vector cimport vector

from ..buffer cimport Buffer, reserve
from ..civil cimport Civil, civil_of, days_of
from ..floats cimport FLOAT_MAX, put_java_double, put_java_float
from ..littleendian cimport length_encoded
from ..mask cimport NO_MASK, NULL_MASK, Masker
from ..utf8 cimport is_utf8, latin1_size, put_latin1, put_utf8, utf8_size
from ..wire cimport (
    LENGTH_MAX,
    message_field,
    put_padded_varint,
    put_raw,
    put_varint,
    text_field,
    uint_field,
    varint_size,
)
from .tags cimport (
    AFTER_COLUMNS,
    CHANGE_EVENT_TYPE,
    ENTRY_TYPE,
    EVENT_TYPE,
    EXECUTE_TIME,
    HEADER,
    HEADER_PROPS,
    INDEX,
    INSERT,
    IS_KEY,
    IS_NULL,
    KEY,
    MESSAGES,
    MYSQL_TYPE,
    NAME,
    PAIR_VALUE,
    ROW_DATAS,
    ROWDATA,
    SCHEMA_NAME,
    SQL_TYPE,
    STORE_VALUE,
    TABLE_NAME,
    UPDATED,
    VALUE,
)
from .touched cimport TouchedKeys, add_to_key

from ..errors import DecodeError
from .tags import ValueKind
from .types import kind_of, sql_types


cdef extern from *:
    """
    #include <charconv>

    static inline bool parse_double(const char *p, const char *end, double *out) {
        auto result = std::from_chars(p, end, *out);
        return result.ec == std::errc() && result.ptr == end;
    }
    """
    bint parse_double(const char *p, const char *end, double *out) noexcept nogil


cdef enum:
    HEAD = 4                                       # bytes before the payload of a packet
    PACKET_MAX = 0xFFFFFF                          # bytes of a payload that goes on in the next packet
    NULL_VALUE = 0xFB
    END = 0xFE
    ERROR = 0xFF

    # How the text of a value is made of the server's.
    TEXT = 0                                       # unchanged
    BYTES = 1                                      # each byte the character of its number
    FLOAT = 2                                      # as Java writes it
    DOUBLE = 3
    INTEGER = 4                                    # unsigned: unchanged, but its type depends on it
    TIMESTAMP = 5                                  # in a time zone

    DATE_SIZE = 10                                 # of 2026-01-31
    SECONDS_SIZE = 19                              # of 2026-01-31 12:34:56


cdef struct Planned:
    int way
    int mask
    uint32_t mask_characters
    bint is_key                                    # of the key by which rows are known
    size_t value_size                              # of the bytes before a value, and before none
    size_t promoted_size
    size_t null_size
    const uint8_t *value
    const uint8_t *promoted                        # before an unsigned integer above `limit`
    const uint8_t *null
    const uint8_t *limit
    size_t limit_size


cdef dict LIMITS = {"tinyint": b"127", "smallint": b"32767", "mediumint": b"8388607", "int": b"2147483647",
                    "bigint": b"9223372036854775807"}


cdef const uint8_t *read_value(
    const uint8_t *p, const uint8_t *end, const uint8_t **value, size_t *size
) noexcept nogil:
    """The place after the value at p, or NULL when it does not fit. `value` is set to NULL for SQL's NULL."""
    cdef uint64_t length
    cdef const uint8_t *found = length_encoded(p, end, &length)
    if found == NULL and p < end and p[0] == NULL_VALUE:
        value[0] = NULL
        size[0] = 0
        return p + 1
    if found == NULL or length > <uint64_t>(end - found):
        return NULL
    value[0] = found
    size[0] = length
    return found + length


cdef inline uint8_t *put_two(uint8_t *out, unsigned int number) noexcept nogil:
    out[0] = <uint8_t>(48 + number // 10)
    out[1] = <uint8_t>(48 + number % 10)
    return out + 2


cdef inline unsigned int two_digits(const uint8_t *text) noexcept nogil:
    return (text[0] - 48) * 10 + (text[1] - 48)


@cython.final
cdef class RowBlock:
    """Rows of a table that were read, of which some can still be left out."""

    cdef bytes names
    cdef Buffer body
    cdef vector[size_t] ends                       # of each row in the body
    cdef vector[string] keys

    def __cinit__(self):
        self.body.data = NULL

    def __dealloc__(self):
        free(self.body.data)

    def __len__(self):
        """How many rows there are."""
        return self.ends.size()

    @property
    def size(self):
        """Bytes of the rows."""
        return self.body.size

    def leave_out(self, TouchedKeys touched not None):
        """Leave the rows out whose keys were touched; return how many those were."""
        cdef size_t i, start, size
        cdef size_t begin = 0
        cdef size_t kept = 0
        cdef size_t to = 0
        cdef size_t count = self.ends.size()
        with nogil:
            for i in range(count):
                start, begin = begin, self.ends[i]
                if touched.has(self.keys[i]):
                    continue
                size = begin - start
                if kept != i:
                    memmove(self.body.data + to, self.body.data + start, size)
                    self.keys[kept].swap(self.keys[i])
                to += size
                self.ends[kept] = to
                kept += 1
            self.ends.resize(kept)
            self.keys.resize(kept)
            self.body.size = to
        return count - kept

    def entry(self, seconds, bytes header=b""):
        """The rows as an INSERT, framed as in `Messages`.

        `seconds`: when they were read, Unix time; `header`: more fields of the Header.
        """
        return entry_of(self.names, self.ends.size(), self.body.data, self.body.size, seconds, header)


cdef bytes entry_of(bytes names, size_t rows, uint8_t *data, size_t size, seconds, bytes more):
    cdef bytes header = uint_field(EXECUTE_TIME, int(seconds * 1000)) + names + uint_field(EVENT_TYPE, INSERT)
    cdef bytes change = uint_field(CHANGE_EVENT_TYPE, INSERT)
    cdef bytes entry
    header += more + message_field(HEADER_PROPS, text_field(KEY, "rowsCount") + text_field(PAIR_VALUE, str(rows)))
    entry = message_field(HEADER, header) + uint_field(ENTRY_TYPE, ROWDATA)
    entry += message_field(STORE_VALUE, change, size)
    return message_field(MESSAGES, entry, size) + (<char *>data)[:size]


@cython.final
cdef class RowEncoder:
    """Encodes the rows of one result of a table's columns."""

    cdef Planned *columns
    cdef int count
    cdef int extra
    cdef bint has_keys
    cdef list owned
    cdef str name
    cdef bytes names
    cdef Buffer pending                            # packets that are not complete
    cdef Buffer body                               # of the RowChange, without what precedes the rows
    cdef vector[size_t] ends                       # of each row in it
    cdef vector[string] keys                       # ... and its key
    cdef vector[int64_t] since                     # the offsets of the time zone, and from when on they count
    cdef vector[int32_t] offset
    cdef Masker masker                             # None: no column has a mask
    cdef Buffer plain                              # the text of a value that is masked
    cdef list last
    cdef readonly object rows
    cdef readonly bint is_finished
    cdef readonly bytes error

    def __cinit__(self, *_args, **_kwargs):
        self.columns = NULL

    def __init__(
        self, str schema, str table, columns, int extra=0, *,
        indexes=None, keys=(), zone=((0, 0),), masks=None, Masker masker=None,
    ):
        """For the columns of a result: name, mysqlType and whether it is part of the primary key.

        After them the result has `extra` more values, which are not columns of the table: see `take`. The values have
        to be selected so that their texts are those of Canal: ENUM, SET and BIT as numbers, floating-point numbers with
        all digits, TIMESTAMP in UTC.

        `indexes` are the places of the columns in the table, if it has more. `keys` are the places of those by which
        `RowBlock.leave_out` knows a row. `zone` is that of the texts of TIMESTAMP: since when, in seconds since 1970,
        and how many seconds east of UTC. `masks`, for `masker`, has kind, characters and mysqlType of what is given, by
        the names of columns.
        """
        cdef Planned *column
        cdef bytes limit
        columns = list(columns)
        self.masker = masker
        self.count = len(columns)
        self.extra = extra
        self.has_keys = len(keys) > 0
        self.owned = []
        self.last = []
        self.rows = 0
        self.name = f"{schema}.{table}"
        self.names = text_field(SCHEMA_NAME, schema) + text_field(TABLE_NAME, table)
        for since, offset in zone:
            self.since.push_back(since)
            self.offset.push_back(offset)
        is_utc = len(zone) == 1 and zone[0][1] == 0
        self.columns = <Planned *>calloc(max(self.count, 1), sizeof(Planned))
        if self.columns == NULL:
            raise MemoryError
        for i, (column_name, mysql_type, is_key) in enumerate(columns):
            column = &self.columns[i]
            index = i if indexes is None else indexes[i]
            column.is_key = index in keys
            kind = kind_of(mysql_type)
            word = mysql_type.lower().partition("(")[0].partition(" ")[0]
            if masks and column_name in masks:
                column.mask, column.mask_characters, mysql_type = masks[column_name]
            sql_type, promoted_type, null_type = sql_types(mysql_type)
            if kind == ValueKind.BYTES:
                column.way = BYTES
            elif kind == ValueKind.FLOAT:
                column.way = FLOAT if word == "float" else DOUBLE
            elif word in LIMITS:
                column.way = INTEGER
                limit = LIMITS[word]
                column.limit, column.limit_size = limit, len(limit)
            elif word == "timestamp" and not is_utc:
                column.way = TIMESTAMP
            rest = text_field(NAME, column_name) + uint_field(IS_KEY, is_key) + text_field(MYSQL_TYPE, mysql_type)
            end = uint_field(IS_NULL, False) + uint_field(UPDATED, True)
            value = uint_field(INDEX, index) + uint_field(SQL_TYPE, sql_type) + rest + end
            promoted = uint_field(INDEX, index) + uint_field(SQL_TYPE, promoted_type) + rest + end
            null = uint_field(INDEX, index) + uint_field(SQL_TYPE, null_type) + rest
            null += uint_field(IS_NULL, True) + uint_field(UPDATED, True)
            self.owned += [value, promoted, null]
            column.value, column.value_size = value, len(value)
            column.promoted, column.promoted_size = promoted, len(promoted)
            column.null, column.null_size = null, len(null)

    def __dealloc__(self):
        free(self.columns)
        free(self.pending.data)
        free(self.body.data)
        free(self.plain.data)

    @property
    def size(self):
        """Bytes of the rows that were not taken yet."""
        return self.body.size

    def feed(self, data):
        """Read what the server sent next. Rows that end in it count; anything after the result is an error.

        At the end `is_finished` becomes true; `error` is the server's error packet if that was the end. Raises
        DecodeError when the bytes are not a result with the expected columns.
        """
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            with nogil:
                reserve(&self.pending, view.len)
                memcpy(self.pending.data + self.pending.size, view.buf, view.len)
                self.pending.size += view.len
                self.read_packets()
        finally:
            PyBuffer_Release(&view)

    def take(self, seconds):
        """Return the rows as `Messages`, and the values of the last row that are not columns, as bytes or None.

        `seconds`: when they were read, Unix time. Without rows the bytes are empty, and the values those of the last
        time.
        """
        cdef bytes rows
        if not self.rows:
            return b"", self.last
        rows = entry_of(self.names, self.ends.size(), self.body.data, self.body.size, seconds, b"")
        self.clear()
        return rows, self.last

    def take_block(self):
        """Return the rows so that some can be left out later, and the values of the last row that are not columns."""
        cdef RowBlock block = RowBlock()
        block.names = self.names
        block.body = self.body
        self.body.data = NULL
        self.body.size = self.body.capacity = 0
        block.ends.swap(self.ends)
        block.keys.swap(self.keys)
        self.clear()
        return block, self.last

    cdef void clear(self):
        self.rows = 0
        self.body.size = 0
        self.ends.clear()
        self.keys.clear()

    cdef int read_packets(self) except -1 nogil:
        cdef uint8_t *start = self.pending.data
        cdef uint8_t *p = start
        cdef uint8_t *end = start + self.pending.size
        cdef uint8_t *payload
        cdef size_t size
        cdef int64_t rows = 0
        cdef const uint8_t *extra = NULL           # of the last row, and its end
        cdef const uint8_t *extra_end = NULL
        while True:
            payload = p
            p = end_of_payload(p, end)
            if p == NULL:
                break
            size = join(payload, p)
            if self.is_finished or size == 0:
                with gil:
                    raise DecodeError(f"{self.name}: no result was sent")
            if payload[0] == ERROR or (payload[0] == END and size < 9):
                self.is_finished = True
                if payload[0] == ERROR:
                    with gil:
                        self.error = (<char *>payload)[:size]
                continue
            extra_end = payload + size
            extra = self.add_row(payload, extra_end)
            rows += 1
        with gil:
            self.rows += rows
            if extra != NULL:
                self.last = self.read_extra(extra, extra_end)
        self.pending.size = end - payload
        memmove(start, payload, self.pending.size)
        return 0

    cdef const uint8_t *add_row(self, const uint8_t *p, const uint8_t *end) except NULL nogil:
        """The place after the values of columns."""
        cdef int i
        cdef Planned *column
        cdef const uint8_t *value = NULL
        cdef size_t size = 0
        cdef size_t row = self.body.size
        cdef uint8_t *out
        cdef string key
        reserve(&self.body, 1 + LENGTH_MAX)
        self.body.size += 1 + LENGTH_MAX
        for i in range(self.count):
            column = &self.columns[i]
            p = read_value(p, end, &value, &size)
            if p == NULL:
                self.fail_size()
            if value == NULL or column.mask == NULL_MASK:
                reserve(&self.body, 1 + LENGTH_MAX + column.null_size)
                out = self.body.data + self.body.size
                out[0] = AFTER_COLUMNS
                out = put_varint(out + 1, column.null_size)
                memcpy(out, column.null, column.null_size)
                self.body.size = out + column.null_size - self.body.data
            else:
                self.add_value(column, value, size, key)
        size = self.body.size - row - 1 - LENGTH_MAX
        if size > INT32_MAX:
            with gil:
                raise DecodeError(f"{self.name}: a row has more than 2 GiB")
        out = self.body.data + row
        put_varint(out, ROW_DATAS)
        put_padded_varint(out + 1, size, LENGTH_MAX)
        self.ends.push_back(self.body.size)
        if self.has_keys:
            self.keys.push_back(key)
        return p

    cdef int add_value(self, Planned *column, const uint8_t *value, size_t size, string &key) except -1 nogil:
        cdef uint8_t[FLOAT_MAX] text
        cdef const uint8_t *head = column.value
        cdef size_t head_size = column.value_size
        cdef size_t text_size = size
        cdef size_t column_size
        cdef bint is_plain = True
        cdef uint8_t *out
        cdef double number = 0
        if column.way == TEXT:
            is_plain = is_utf8(value, size)
            if not is_plain:
                text_size = utf8_size(value, size)
        elif column.way == BYTES:
            text_size = latin1_size(value, size)
        elif column.way == INTEGER:
            if size and value[0] != b"-" and (
                size > column.limit_size or (size == column.limit_size and memcmp(value, column.limit, size) > 0)
            ):
                head, head_size = column.promoted, column.promoted_size
        elif column.way == TIMESTAMP:
            if size >= SECONDS_SIZE and size <= FLOAT_MAX and memcmp(value, b"0000-00-00", DATE_SIZE) != 0:
                self.put_local(text, value, size)
                value = text
        else:
            if not parse_double(<const char *>value, <const char *>value + size, &number):
                with gil:
                    raise DecodeError(f"{self.name}: {(<const char *>value)[:size]!r} is not a floating-point number")
            out = put_java_float(text, <float>number) if column.way == FLOAT else put_java_double(text, number)
            value = text
            text_size = size = out - text
        if column.mask != NO_MASK:
            head, head_size = column.value, column.value_size  # of another type, or of texts
            if column.way == BYTES or not is_plain:
                self.plain.size = 0
                reserve(&self.plain, text_size + 1)  # as below
                if column.way == BYTES:
                    put_latin1(self.plain.data, value, size)
                else:
                    put_utf8(self.plain.data, value, size)
                value, size, is_plain = self.plain.data, text_size, True
            if not self.masker.apply(column.mask, column.mask_characters, &value, &size):
                with gil:
                    raise DecodeError(f"{self.name}: a value cannot be masked")
            text_size = size
        column_size = head_size + 1 + varint_size(text_size) + text_size
        reserve(&self.body, 1 + LENGTH_MAX + column_size + 1)  # the last byte is for put_latin1()
        out = self.body.data + self.body.size
        out[0] = AFTER_COLUMNS
        out = put_varint(out + 1, column_size)
        memcpy(out, head, head_size)
        out += head_size
        out[0] = VALUE
        out = put_varint(out + 1, text_size)
        if column.way == BYTES and column.mask == NO_MASK:
            out = put_latin1(out, value, size)
        elif is_plain:
            out = put_raw(out, value, size)
        else:
            out = put_utf8(out, value, size)
        if column.is_key:
            add_to_key(key, out - text_size, <uint32_t>text_size)
        self.body.size = out - self.body.data
        return 0

    cdef void put_local(self, uint8_t *out, const uint8_t *text, size_t size) noexcept nogil:
        """The time in UTC as the time in the zone."""
        cdef Civil date
        cdef int64_t seconds
        cdef unsigned int clock
        cdef size_t low = 0
        cdef size_t high = self.since.size()
        cdef size_t middle
        date.year = two_digits(text) * 100 + two_digits(text + 2)
        date.month, date.day = two_digits(text + 5), two_digits(text + 8)
        seconds = days_of(date) * 86400 + two_digits(text + 11) * 3600 + two_digits(text + 14) * 60
        seconds += two_digits(text + 17)
        while high - low > 1:
            middle = (low + high) // 2
            if self.since[middle] <= seconds:
                low = middle
            else:
                high = middle
        seconds += self.offset[low] + 86400  # never below 0
        date = civil_of(seconds // 86400 - 1)
        clock = <unsigned int>(seconds % 86400)
        memcpy(out, text, size)
        put_two(put_two(out, date.year // 100), date.year % 100)
        put_two(out + 5, date.month)
        put_two(out + 8, date.day)
        put_two(out + 11, clock // 3600)
        put_two(out + 14, clock // 60 % 60)
        put_two(out + 17, clock % 60)

    cdef int fail_size(self) except -1 nogil:
        with gil:
            raise DecodeError(f"{self.name}: a row of the result does not have {self.count + self.extra} values")

    cdef list read_extra(self, const uint8_t *p, const uint8_t *end):
        cdef const uint8_t *value = NULL
        cdef size_t size = 0
        values = []
        for _ in range(self.extra):
            p = read_value(p, end, &value, &size)
            if p == NULL:
                self.fail_size()
            values.append(None if value == NULL else (<const char *>value)[:size])
        if p != end:
            self.fail_size()
        return values


cdef uint8_t *end_of_payload(uint8_t *p, uint8_t *end) noexcept nogil:
    """The place after the packets of one payload; NULL when they are not complete."""
    cdef size_t length = PACKET_MAX
    while length == PACKET_MAX:
        if end - p < HEAD:
            return NULL
        length = p[0] | <size_t>p[1] << 8 | <size_t>p[2] << 16
        if <size_t>(end - p) < HEAD + length:
            return NULL
        p += HEAD + length
    return p


cdef size_t join(uint8_t *start, uint8_t *end) noexcept nogil:
    """Joins the payload of packets where the first one begins; its size."""
    cdef uint8_t *p = start
    cdef size_t size = 0
    cdef size_t length
    while p < end:
        length = p[0] | <size_t>p[1] << 8 | <size_t>p[2] << 16
        memmove(start + size, p + HEAD, length)
        size += length
        p += HEAD + length
    return size
