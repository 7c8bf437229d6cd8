"""Entries to Arrow record batches: of any tables as maps of texts, or of one table in its columns' own types.

The input is what entry.pxd describes, `Messages` of packet.proto, several joined, or any run of framed entries. The
position of an entry is not in the entry: its header has only the name of the file and the offset of its own event.
`Messages.positions` precedes the entries and has begin and n of each. So the bytes of a batch, or of a part of a
range, can be decoded far from the server::

    ba 06 <length> (<begin> <n>)…                    positions: two varints per entry
    12 <length> Entry                                as many

Without positions `_pos` is null. The file of `_pos` is the number at the end of its name, which is its order. Its
member is in the header of the entry.

Memory is written here without the GIL and handed over without a copy. pyarrow (`sluice-cdc[arrow]`) is needed only
to decode. docs/arrow-types.md says how each column type arrives.
"""

import re
import threading
from datetime import datetime, timedelta
from functools import lru_cache
from importlib import import_module
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset
from cython.operator cimport dereference
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from ..numbers cimport parse_number
from ..wire cimport Span, get_varint, is_same, span_at
from .entry cimport (
    ENTRY_PIECE,
    IMAGE_AFTER,
    IMAGE_BEFORE,
    Cell,
    Entry,
    Fields,
    Header,
    Marks,
    checked,
    fields_of,
    get_cell,
    get_changing,
    get_entry,
    get_header,
    malformed,
    next_column,
    next_column_of,
    next_piece,
    next_row,
    text_of,
)
from .tags cimport (
    BYTES,
    DATE,
    DATETIME,
    DECIMAL,
    DELETE,
    ENUM,
    FLOAT,
    INSERT,
    INTEGER,
    JSON,
    ROWDATA,
    TEXT,
    TIME,
    UPDATE,
)

from ..errors import BadParameterError, DecodeError, SchemaMismatchError
from .rows import decode_changes
from .tags import ValueKind
from .types import SqlType, kind_of, labels_of, width_of


cdef extern from *:
    """
    typedef __int128 sluice_int128;
    """
    ctypedef long long int128 "sluice_int128"


cdef enum:
    WAYS = 3                                       # forms of a column that are kept: value, wider integer, NULL
    PLACES_MAX = 4096                              # columns of a table

    SLOT = 900                                     # seconds within which no zone changes its offset


cdef enum Output:
    """What is written."""
    INT8
    INT16
    INT32
    INT64
    FLOAT32
    FLOAT64
    DECIMAL128
    DATE32
    MICROSECONDS                                   # of the day, without zone or UTC: told apart by INSTANT
    INSTANT
    DURATION
    BINARY
    STRING
    LIST                                           # of strings
    TEXTS                                          # list; its strings, some of them null, are the next column
    MAP                                            # its names and texts are the next two columns

cdef size_t *WIDTHS = [1, 2, 4, 8, 4, 8, 16, 4, 8, 8, 8, 4, 4, 4, 4, 4]       # of a value, or of its offset

# The columns of a batch by their place in Decoder.columns
cdef enum:
    MEMBER                                         # null to the end where it has fewer rows than the others, as XA
    FILE
    BEGIN
    N
    ROW
    GTID
    TS
    OP
    XA
    FIRST                                          # of the table's own, in a TableDecoder
    SCHEMA = FIRST
    TABLE
    ROW_KEY
    BEFORE = ROW_KEY + 2
    AFTER = BEFORE + 3

cdef const char **OPERATIONS = [b"", b"INSERT", b"UPDATE", b"DELETE"]

# Reasons why a value cannot be written; functions without the GIL return one, or NULL.
cdef const char *NO_MEMORY = b"out of memory"
cdef const char *TOO_LARGE = b"more than 2 GiB in one column: decode less at once"
cdef const char *NO_INTEGER = b"an integer is expected"
cdef const char *OUT_OF_RANGE = b"the number does not fit the type of the column"
cdef const char *NO_DECIMAL = b"a decimal number is expected"
cdef const char *NO_FLOAT = b"a floating-point number is expected"
cdef const char *NO_DATE = b"YYYY-MM-DD is expected"
cdef const char *NO_DATETIME = b"YYYY-MM-DD HH:MM:SS is expected"
cdef const char *NO_TIME = b"[-]HH:MM:SS is expected"
cdef const char *INVALID_DATE = b"not a date of the calendar"
cdef const char *NO_BYTES = b"a byte string must be characters up to U+00FF"
cdef const char *NO_LABEL = b"no label has that number"
cdef const char *PARTIAL_JSON = b"only the difference of a JSON value was sent (binlog_row_value_options)"


cdef struct Bytes:
    uint8_t *data
    size_t size
    size_t capacity


cdef struct ColumnBuffers:
    int output
    int precision
    int scale
    int64_t length
    int64_t nulls
    Bytes valid                                    # bitmap
    Bytes values                                   # or offsets, of text, of items, or of the columns of a map
    Bytes text
    Bytes items                                    # of a LIST: offsets of its strings


cdef struct Form:
    # A column's bytes up to `updated` and `value`, and what they say. Its memory holds the prefix, then the labels.
    uint8_t *memory
    size_t prefix_size
    int target                                     # column of the batch, -1 for none
    int way
    bint is_null
    bint is_key
    Span *labels
    size_t label_count


cdef str excerpt(Span span):
    return (<const char *>span.data)[:min(span.size, <size_t>300)].decode(errors="replace") if span.size else ""


# --- writing ---------------------------------------------------------------------------------------------------------

cdef inline const char *reserve(Bytes *out, size_t n) noexcept nogil:
    cdef size_t capacity
    cdef uint8_t *data
    if out.capacity - out.size >= n:
        return NULL
    capacity = max(out.capacity * 2, out.size + n, <size_t>64)
    data = <uint8_t *>realloc(out.data, capacity)
    if data == NULL:
        return NO_MEMORY
    out.data = data
    out.capacity = capacity
    return NULL


cdef inline const char *put(Bytes *out, const void *data, size_t size) noexcept nogil:
    if reserve(out, size) != NULL:
        return NO_MEMORY
    memcpy(out.data + out.size, data, size)
    out.size += size
    return NULL


cdef inline const char *put_offset(Bytes *out, size_t offset) noexcept nogil:
    cdef int32_t number = <int32_t>offset
    if offset > INT32_MAX:
        return TOO_LARGE
    return put(out, &number, 4)


cdef inline const char *mark(ColumnBuffers *out, bint is_valid) noexcept nogil:
    """Ends a value."""
    if out.length & 7 == 0:
        if reserve(&out.valid, 1) != NULL:
            return NO_MEMORY
        out.valid.data[out.valid.size] = 0
        out.valid.size += 1
    out.valid.data[out.length >> 3] |= <uint8_t>(is_valid << (out.length & 7))
    out.nulls += not is_valid
    out.length += 1
    return NULL


cdef inline const char *put_fixed(ColumnBuffers *out, const void *value) noexcept nogil:
    cdef const char *reason = put(&out.values, value, WIDTHS[out.output])
    return mark(out, True) if reason == NULL else reason


cdef inline const char *put_int64(ColumnBuffers *out, int64_t value) noexcept nogil:
    return put_fixed(out, &value)


cdef inline const char *end_text(ColumnBuffers *out) noexcept nogil:
    cdef const char *reason = put_offset(&out.values, out.text.size)
    return mark(out, True) if reason == NULL else reason


cdef inline const char *put_text(ColumnBuffers *out, Span text) noexcept nogil:
    cdef const char *reason = put(&out.text, text.data, text.size) if text.size else NULL
    return end_text(out) if reason == NULL else reason


cdef const char *put_null(ColumnBuffers *out) noexcept nogil:
    cdef uint64_t *zeros = [0, 0]
    cdef const char *reason
    if out.output == BINARY or out.output == STRING:
        reason = put_offset(&out.values, out.text.size)
    elif out.output == LIST:
        reason = put_offset(&out.values, out.items.size // 4 - 1)
    else:
        reason = put(&out.values, zeros, WIDTHS[out.output])
    return mark(out, False) if reason == NULL else reason


# --- values: each function writes one, or says why not ---------------------------------------------------------------

cdef const char *read_integer(Span text, int64_t *value) noexcept nogil:
    cdef const uint8_t *p = text.data
    cdef const uint8_t *end = p + text.size
    cdef bint negative = text.size > 1 and p[0] == 45
    cdef uint64_t number = 0
    p += negative
    if not 1 <= end - p <= 19:
        return NO_INTEGER if p == end else OUT_OF_RANGE
    while p < end:
        if not 48 <= p[0] <= 57:
            return NO_INTEGER
        number = number * 10 + (p[0] - 48)
        p += 1
    if number > <uint64_t>INT64_MAX + negative:
        return OUT_OF_RANGE
    value[0] = <int64_t>(0 - number) if negative else <int64_t>number
    return NULL


cdef const char *put_integer(ColumnBuffers *out, Span text) noexcept nogil:
    cdef int64_t value
    cdef int8_t tiny
    cdef int16_t small
    cdef int32_t medium
    cdef const char *reason = read_integer(text, &value)
    if reason != NULL:
        return reason
    if out.output == INT64:
        return put_fixed(out, &value)
    if out.output == INT32:
        medium = <int32_t>value
        return put_fixed(out, &medium) if medium == value else OUT_OF_RANGE
    if out.output == INT16:
        small = <int16_t>value
        return put_fixed(out, &small) if small == value else OUT_OF_RANGE
    tiny = <int8_t>value
    return put_fixed(out, &tiny) if tiny == value else OUT_OF_RANGE


cdef const char *put_decimal128(ColumnBuffers *out, Span text) noexcept nogil:
    cdef const uint8_t *p = text.data
    cdef const uint8_t *end = p + text.size
    cdef bint negative = text.size > 0 and p[0] == 45
    cdef bint is_fraction = False
    cdef int missing = out.scale                   # digits of the fraction that are still to come
    cdef int digits = 0
    cdef int significant = 0
    cdef int128 number = 0
    p += negative
    while p < end:
        if p[0] == 46 and not is_fraction:
            is_fraction = True
        elif not 48 <= p[0] <= 57:
            return NO_DECIMAL
        else:
            digits += 1
            if is_fraction and missing == 0:
                if p[0] != 48:
                    return OUT_OF_RANGE
            else:
                missing -= is_fraction
                significant += significant > 0 or p[0] != 48
                if significant > out.precision:
                    return OUT_OF_RANGE
                number = number * 10 + (p[0] - 48)
        p += 1
    if digits == 0:
        return NO_DECIMAL
    while missing > 0:
        significant += significant > 0
        if significant > out.precision:
            return OUT_OF_RANGE
        number = number * 10
        missing -= 1
    if negative:
        number = -number
    return put_fixed(out, &number)


cdef const char *put_float(ColumnBuffers *out, Span text) noexcept nogil:
    cdef const char *p = <const char *>text.data
    cdef float single
    cdef double number
    if out.output == FLOAT32:
        return put_fixed(out, &single) if parse_number(p, p + text.size, &single) else NO_FLOAT
    return put_fixed(out, &number) if parse_number(p, p + text.size, &number) else NO_FLOAT


cdef int number_at(const uint8_t *p, int digits) noexcept nogil:
    """The number, or -1."""
    cdef int number = 0
    cdef int i
    for i in range(digits):
        if not 48 <= p[i] <= 57:
            return -1
        number = number * 10 + (p[i] - 48)
    return number


cdef int micros_at(const uint8_t *p, size_t size) noexcept nogil:
    """The fraction of a second, with its point; 0 for no text at all; or -1."""
    cdef int micros
    cdef size_t _i
    if size == 0:
        return 0
    if not 2 <= size <= 7 or p[0] != 46:
        return -1
    micros = number_at(p + 1, <int>size - 1)
    if micros > 0:
        for _i in range(7 - size):
            micros *= 10
    return micros


cdef inline bint is_leap(int year) noexcept nogil:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


cdef int *LENGTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
cdef int *DAYS_BEFORE = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334]


cdef const char *read_date(const uint8_t *p, int32_t *days) noexcept nogil:
    """Days since 1970 of YYYY-MM-DD, in the calendar of today for all times, as MySQL, Python and Arrow have it."""
    cdef int year = number_at(p, 4)
    cdef int month = number_at(p + 5, 2)
    cdef int day = number_at(p + 8, 2)
    cdef int before = year - 1
    if year < 0 or month < 0 or day < 0 or p[4] != 45 or p[7] != 45:
        return NO_DATE
    if year == 0 or not 1 <= month <= 12 or day == 0:
        return INVALID_DATE
    if day > LENGTHS[month - 1] + (month == 2 and is_leap(year)):
        return INVALID_DATE
    days[0] = (
        before * 365 + before // 4 - before // 100 + before // 400 - 719162
        + DAYS_BEFORE[month - 1] + (month > 2 and is_leap(year)) + day - 1
    )
    return NULL


cdef const char *put_date(ColumnBuffers *out, Span text) noexcept nogil:
    cdef int32_t days = 0
    cdef const char *reason = read_date(text.data, &days) if text.size == 10 else NO_DATE
    return put_fixed(out, &days) if reason == NULL else reason


cdef const char *read_datetime(Span text, int64_t *seconds, int *micros) noexcept nogil:
    """Seconds since 1970, as if the time were in UTC, and the fraction."""
    cdef const uint8_t *p = text.data
    cdef int32_t days = 0
    cdef int hour
    cdef int minute
    cdef int second
    cdef const char *reason
    if text.size < 19 or p[10] != 32 or p[13] != 58 or p[16] != 58:
        return NO_DATETIME
    hour = number_at(p + 11, 2)
    minute = number_at(p + 14, 2)
    second = number_at(p + 17, 2)
    micros[0] = micros_at(p + 19, text.size - 19)
    reason = read_date(p, &days)
    if not 0 <= hour < 24 or not 0 <= minute < 60 or not 0 <= second < 60 or micros[0] < 0 or reason == NO_DATE:
        return NO_DATETIME
    seconds[0] = days * <int64_t>86400 + hour * 3600 + minute * 60 + second
    return reason


cdef const char *put_time(ColumnBuffers *out, Span text) noexcept nogil:
    cdef const uint8_t *p = text.data
    cdef size_t size = text.size
    cdef bint negative = size > 0 and p[0] == 45
    cdef size_t digits
    cdef int hours
    cdef int minutes
    cdef int seconds
    cdef int micros
    cdef int64_t value
    p += negative
    size -= negative
    digits = 3 if size > 3 and p[3] == 58 else 2
    if size < digits + 6 or p[digits] != 58 or p[digits + 3] != 58:
        return NO_TIME
    hours = number_at(p, <int>digits)
    minutes = number_at(p + digits + 1, 2)
    seconds = number_at(p + digits + 4, 2)
    micros = micros_at(p + digits + 6, size - digits - 6)
    if hours < 0 or not 0 <= minutes < 60 or not 0 <= seconds < 60 or micros < 0:
        return NO_TIME
    value = (hours * 3600 + minutes * 60 + seconds) * <int64_t>1_000_000 + micros
    return put_int64(out, -value if negative else value)


cdef const char *put_bytes(ColumnBuffers *out, Span text) noexcept nogil:
    """Each byte is the character of its number, so one or two bytes in UTF-8; zeros at the end are added."""
    cdef const uint8_t *p = text.data
    cdef const uint8_t *end = p + text.size
    cdef uint8_t *o
    cdef uint8_t *padded
    if reserve(&out.text, text.size + out.precision) != NULL:
        return NO_MEMORY
    o = out.text.data + out.text.size
    padded = o + out.precision
    while p < end:
        if p[0] < 0x80:
            o[0] = p[0]
            p += 1
        elif p[0] & 0xFE == 0xC2 and p + 1 < end and p[1] & 0xC0 == 0x80:
            o[0] = <uint8_t>(p[0] << 6 | p[1] & 0x3F)
            p += 2
        else:
            return NO_BYTES
        o += 1
    if o < padded:
        memset(o, 0, padded - o)
        o = padded
    out.text.size = o - out.text.data
    return end_text(out)


cdef const char *put_json(ColumnBuffers *out, Span text) noexcept nogil:
    if text.size == 0:                             # a JSON column of no bytes, which MySQL reads as null
        text = span_at(b"null", 4)
    if text.data[0] == 74:                         # J: no JSON text begins so
        return PARTIAL_JSON
    return put_text(out, text)


cdef const char *put_label(ColumnBuffers *out, Span text, const Form *form) noexcept nogil:
    cdef int64_t number = 0
    cdef const char *reason = read_integer(text, &number)
    if reason != NULL:
        return reason
    if not 0 <= number <= <int64_t>form.label_count:
        return NO_LABEL
    return put_text(out, form.labels[number - 1]) if number else end_text(out)


cdef const char *put_labels(ColumnBuffers *out, Span text, const Form *form) noexcept nogil:
    cdef uint64_t mask = 0
    cdef size_t i
    cdef Span label
    cdef const char *reason
    if not 1 <= text.size <= 20:
        return NO_INTEGER
    for i in range(text.size):
        if not 48 <= text.data[i] <= 57:
            return NO_INTEGER
        mask = mask * 10 + (text.data[i] - 48)
    if form.label_count < 64 and mask >> form.label_count:
        return NO_LABEL
    for i in range(form.label_count):
        if not mask >> i & 1:
            continue
        label = form.labels[i]
        reason = put(&out.text, label.data, label.size) if label.size else NULL
        if reason == NULL:
            reason = put_offset(&out.items, out.text.size)
        if reason != NULL:
            return reason
    reason = put_offset(&out.values, out.items.size // 4 - 1)
    return mark(out, True) if reason == NULL else reason


# --- types -----------------------------------------------------------------------------------------------------------

_BITS = {
    "tinyint": 8, "bool": 8, "boolean": 8, "smallint": 16, "mediumint": 24, "int": 32, "integer": 32, "bigint": 64,
    "year": 12,
}
_TYPE = re.compile(r"\s*([A-Za-z0-9_]*)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")


@lru_cache(4096)
def _read_type(str mysql_type, int sql_type):
    """How to read a value and what to write: (ValueKind, Output, precision, scale)."""
    kind = kind_of(mysql_type, sql_type)
    word, first, second = _TYPE.match(mysql_type).groups()
    word = word.lower()
    if kind == ValueKind.INTEGER:
        bits = int(first or 1) if word == "bit" else _BITS.get(word, 64)
        lower = mysql_type.lower()
        bits += word == "bit" or "unsigned" in lower or "zerofill" in lower
        for output, width in ((INT8, 8), (INT16, 16), (INT32, 32), (INT64, 64)):
            if bits <= width:
                return kind, output, 0, 0
        return kind, DECIMAL128, 20, 0
    if kind == ValueKind.DECIMAL:
        precision = int(first or 10)
        if precision > 38 or word not in ("decimal", "numeric", "dec", "fixed"):
            return ValueKind.TEXT, STRING, 0, 0
        return kind, DECIMAL128, precision, int(second or 0)
    if kind == ValueKind.FLOAT:
        return kind, FLOAT32 if word == "float" or sql_type == SqlType.REAL else FLOAT64, 0, 0
    if kind == ValueKind.BYTES:
        return kind, BINARY, width_of(mysql_type), 0
    if kind == ValueKind.DATETIME:
        return kind, INSTANT if word == "timestamp" else MICROSECONDS, 0, 0
    outputs = {ValueKind.DATE: DATE32, ValueKind.TIME: DURATION, ValueKind.SET: LIST}
    return kind, outputs.get(kind, STRING), 0, 0


def _fits(int output, Column_ declared):
    """Whether values of that kind can be written unchanged into a column of the declared one."""
    if output <= INT64:
        return declared.output <= INT64 or declared.output == DECIMAL128
    if output == FLOAT32:
        return declared.output in (FLOAT32, FLOAT64)
    if output == DECIMAL128:
        return declared.output == DECIMAL128
    return output == declared.output


@cython.final
cdef class Column_:
    """A column of a table, as declared."""
    cdef str name
    cdef str mysql_type
    cdef int output
    cdef int precision
    cdef int scale


def _pyarrow():
    try:
        return import_module("pyarrow")
    except ImportError as error:
        text = f"Arrow needs pyarrow, which is missing ({error}): pip install 'sluice-cdc[arrow]'"
        raise ImportError(text) from error


def _data_type(int output, int precision, int scale):
    pa = _pyarrow()
    if output == DECIMAL128:
        return pa.decimal128(precision, scale)
    return {
        INT8: pa.int8(), INT16: pa.int16(), INT32: pa.int32(), INT64: pa.int64(),
        FLOAT32: pa.float32(), FLOAT64: pa.float64(), DATE32: pa.date32(),
        MICROSECONDS: pa.timestamp("us"), INSTANT: pa.timestamp("us", tz="UTC"), DURATION: pa.int64(),
        BINARY: pa.binary(), STRING: pa.string(), LIST: pa.list_(pa.field("element", pa.string())),
        TEXTS: pa.list_(pa.field("element", pa.string())), MAP: pa.map_(pa.string(), pa.string()),
    }[output]


def arrow_type(str mysql_type, int sql_type=SqlType.OTHER):
    """The Arrow type of a column of that mysqlType; its sqlType helps with types that are not known by name."""
    _, output, precision, scale = _read_type(mysql_type, sql_type)
    return _data_type(output, precision, scale)


def columns_of(data, str schema, str table):
    """Name and mysqlType of the columns of a table, in their order, from the first row of each of its entries.

    Empty when none of them is in the data. Raises DecodeError.
    """
    columns = {}
    for change in decode_changes(data):
        if change.entry_type == "ROWDATA" and change.table == table and change.schema == schema:
            _add_columns(columns, change.raw)
    return [column for _, column in sorted(columns.values(), key=lambda it: it[0])]


cdef int _add_columns(dict columns, bytes change) except -1:
    """The columns in the first row of a RowChange that are not known yet: name -> (index, (name, mysqlType))."""
    cdef Fields fields = fields_of(span_at(<const char *>change, len(change)))
    cdef Span message
    cdef Cell cell
    if not checked(next_row(&fields, &message)):
        return 0
    fields = fields_of(message)
    while checked(next_column(&fields, &message)):
        if not get_cell(message, &cell):
            malformed()
        text = text_of(cell.name)
        if text not in columns:
            columns[text] = cell.index, (text, text_of(cell.mysql_type))
    return 0


# --- time zones ------------------------------------------------------------------------------------------------------

_OFFSET = re.compile(r"(?:UTC|GMT|Z)?(?:([+-])(\d{1,2})(?::?(\d{2}))?)?")


@cython.final
cdef class Zone:
    """The zone that the texts of TIMESTAMP values are in.

    When a zone passes through an hour twice, the first one is taken, as `datetime` does.
    """
    cdef bint is_fixed
    cdef int64_t fixed
    cdef object zone
    cdef unordered_map[int64_t, int64_t] offsets   # by local time / SLOT

    def __init__(self, str name):
        if match := _OFFSET.fullmatch(name):
            sign, hours, minutes = match.groups()
            self.is_fixed = True
            self.fixed = (int(hours or 0) * 3600 + int(minutes or 0) * 60) * (-1 if sign == "-" else 1)
            if abs(self.fixed) > 18 * 3600 or not name:
                raise BadParameterError(f"the offset from UTC is out of range: {name!r}", "time_zone")
            return
        try:
            self.zone = ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise BadParameterError(
                f"{name!r} is not a time zone: use an IANA name such as Asia/Shanghai, or +08:00", "time_zone"
            ) from error

    cdef inline int64_t offset_at(self, int64_t seconds) noexcept nogil:
        """Seconds to subtract from a local time since 1970 to have it in UTC."""
        cdef int64_t slot
        cdef unordered_map[int64_t, int64_t].iterator found
        if self.is_fixed:
            return self.fixed
        slot = (seconds - (seconds % SLOT + SLOT) % SLOT) // SLOT
        found = self.offsets.find(slot)
        if found == self.offsets.end():
            with gil:
                self.learn(slot)
            found = self.offsets.find(slot)
        return dereference(found).second

    cdef int learn(self, int64_t slot) noexcept:
        self.offsets[slot] = 0
        moment = datetime(1970, 1, 1) + timedelta(seconds=slot * SLOT)
        self.offsets[slot] = round(self.zone.utcoffset(moment).total_seconds())
        return 0


# --- memory ----------------------------------------------------------------------------------------------------------

@cython.final
cdef class Memory:
    """Owns the bytes of a column for as long as Arrow refers to them."""
    cdef Bytes bytes

    def __dealloc__(self):
        free(self.bytes.data)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.bytes.data, self.bytes.size, 1, flags)


cdef Memory take(Bytes *source):
    """Takes the bytes from the source."""
    cdef Memory memory = Memory.__new__(Memory)
    cdef uint8_t *data = <uint8_t *>realloc(source.data, max(source.size, <size_t>64))    # gives back what is too much
    if data == NULL:
        raise MemoryError
    memory.bytes = source[0]
    memory.bytes.data = data
    memset(source, 0, sizeof(Bytes))
    return memory


# --- decoding --------------------------------------------------------------------------------------------------------

cdef class Decoder:
    """What both decoders have in common. One call of `decode` at a time; others wait for it."""
    cdef ColumnBuffers *columns
    cdef int count
    cdef int64_t rows                              # that are complete
    cdef Header header                             # of the entry
    cdef Marks marks
    cdef bint has_positions
    cdef Fields positions                          # of the entries that follow
    cdef int64_t file                              # the position of the entry ...
    cdef int64_t begin
    cdef int64_t n
    cdef int32_t row                               # ... and the row in it
    cdef object lock
    cdef readonly object schema
    cdef readonly int64_t markers                  # that the last `decode` passed over: rows are missing in their place

    def __cinit__(self, *_args, **_kwargs):
        self.lock = threading.Lock()

    def __dealloc__(self):
        cdef int i
        if self.columns != NULL:
            for i in range(self.count):
                self.release(&self.columns[i])
            free(self.columns)

    cdef void release(self, ColumnBuffers *column) noexcept:
        free(column.valid.data)
        free(column.values.data)
        free(column.text.data)
        free(column.items.data)

    cdef int make_columns(self, list outputs) except -1:
        cdef int i
        self.columns = <ColumnBuffers *>calloc(len(outputs), sizeof(ColumnBuffers))
        if self.columns == NULL:
            raise MemoryError
        self.count = len(outputs)
        for i in range(self.count):
            self.columns[i].output, self.columns[i].precision, self.columns[i].scale = outputs[i]
        return 0

    cdef int reset(self) except -1:
        """Start a new batch."""
        cdef int i
        cdef ColumnBuffers *column
        cdef const char *reason = NULL
        self.rows = self.markers = 0
        self.has_positions = False
        self.positions.p = self.positions.end = NULL
        for i in range(self.count):
            column = &self.columns[i]
            column.length = column.nulls = 0
            column.valid.size = column.values.size = column.text.size = column.items.size = 0
            if column.output in (STRING, BINARY, LIST, TEXTS, MAP):
                reason = put_offset(&column.values, 0)
            if column.output == LIST and reason == NULL:
                reason = put_offset(&column.items, 0)
            if reason != NULL:
                raise MemoryError
        return 0

    def decode(self, data):
        """The rows in `data`, in order, as one record batch of this decoder's schema.

        Entries that are not row changes (the ends of transactions, DDL, markers of missing rows) are passed over.
        `markers` then says how many markers there were. Raises DecodeError.
        """
        cdef Py_buffer view
        cdef Fields batch
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            with self.lock:
                self.reset()
                batch.p = <const uint8_t *>view.buf
                batch.end = batch.p + view.len
                with nogil:
                    self.read_batch(batch)
                return self.finish()
        finally:
            PyBuffer_Release(&view)

    cdef int fail(self, str name, Span value, const char *reason) except -1:
        if reason == NO_MEMORY:
            raise MemoryError
        raise DecodeError(
            f"{excerpt(self.header.schema)}.{excerpt(self.header.table)}.{name}: {reason.decode()}: {excerpt(value)!r}"
        )

    cdef int check(self, const char *reason) except -1 nogil:
        """As `fail`, for a fault that no column's value has caused."""
        cdef Span none
        if reason == NULL:
            return 0
        none.size = 0
        with gil:
            return self.fail("*", none, reason)

    cdef int read_batch(self, Fields batch) except -1 nogil:
        cdef Span piece
        cdef int found
        while True:
            found = checked(next_piece(&batch, &piece))
            if not found:
                return self.end_positions()
            if found == ENTRY_PIECE:
                self.read_entry(piece)
            else:
                self.end_positions()
                self.has_positions = True
                self.positions = fields_of(piece)

    cdef int end_positions(self) except -1 nogil:
        if self.positions.p != self.positions.end:
            with gil:
                raise DecodeError("not a batch: it has more positions than entries")
        return 0

    cdef int next_position(self) except -1 nogil:
        """Reads the position of the next entry."""
        cdef uint64_t begin = 0
        cdef uint64_t n = 0
        cdef const uint8_t *p = get_varint(self.positions.p, self.positions.end, &begin)
        if p != NULL:
            p = get_varint(p, self.positions.end, &n)
        if p == NULL or begin > <uint64_t>INT64_MAX or n > <uint64_t>INT64_MAX:
            with gil:
                raise DecodeError("not a batch: the position of an entry is missing")
        self.positions.p = p
        self.begin = <int64_t>begin
        self.n = <int64_t>n
        return 0

    cdef int read_entry(self, Span message) except -1 nogil:
        cdef Entry entry
        cdef Fields rows
        cdef Span row
        if self.has_positions:
            self.next_position()
        if not get_entry(message, &entry):
            malformed()
        if entry.type != ROWDATA:
            return 0
        if not get_header(&entry, &self.header, &self.marks):
            malformed()
        self.markers += self.marks.is_marker
        if not INSERT <= self.header.event_type <= DELETE or not self.is_wanted():
            return 0
        if self.has_positions:
            self.read_file(self.header.file)
        self.row = 0
        rows = fields_of(entry.body)
        while checked(next_row(&rows, &row)):
            self.add_row(row)
            self.row += 1
        return 0

    cdef int read_file(self, Span name) except -1 nogil:
        """The number at the end of a file's name."""
        cdef size_t digits = 0
        cdef Span number
        while digits < name.size and digits < 18 and 48 <= name.data[name.size - 1 - digits] <= 57:
            digits += 1
        number.data = name.data + name.size - digits
        number.size = digits
        if read_integer(number, &self.file) != NULL:
            with gil:
                raise DecodeError("not an entry: the name of its binlog file does not end in a number")
        return 0

    cdef bint is_wanted(self) noexcept nogil:
        """Whether the rows of the entry belong in the batch."""
        return True

    cdef int add_row(self, Span row) except -1 nogil:
        return 0

    cdef int end_row(self, int operation) except -1 nogil:
        """What every row has, whatever its columns."""
        cdef ColumnBuffers *columns = self.columns
        cdef int i
        if self.has_positions:
            if self.marks.member.size:
                self.fill(MEMBER)
                self.check(put_text(&columns[MEMBER], self.marks.member))
            self.check(put_int64(&columns[FILE], self.file))
            self.check(put_int64(&columns[BEGIN], self.begin))
            self.check(put_int64(&columns[N], self.n))
            self.check(put_fixed(&columns[ROW], &self.row))
        else:
            for i in range(FILE, ROW + 1):
                self.check(put_null(&columns[i]))
        self.check(put_text(&columns[GTID], self.marks.gtid) if self.marks.gtid.size else put_null(&columns[GTID]))
        self.check(put_int64(&columns[TS], <int64_t>(<uint64_t>self.header.execute_time * 1000)))
        if self.marks.snapshot.size:
            self.check(put_text(&columns[OP], span_at(b"READ", 4)))
        else:
            self.check(put_text(&columns[OP], span_at(OPERATIONS[operation], 6)))
        if self.marks.xa.size:
            self.fill(XA)
            self.check(put_text(&columns[XA], self.marks.xa))
        self.rows += 1
        return 0

    cdef int fill(self, int i) except -1 nogil:
        """Null for the rows so far without a value in MEMBER or XA. A batch without such values costs nothing."""
        while self.columns[i].length < self.rows:
            self.check(put_null(&self.columns[i]))
        return 0

    cdef object filled(self, int i, str name):
        """MEMBER or XA as an Arrow array."""
        if self.columns[i].length == 0:
            return _pyarrow().nulls(self.rows, _pyarrow().string())
        self.fill(i)
        return self.array(i, name)

    def finish(self):
        """The batch, of the rows written."""
        raise NotImplementedError

    cdef list meta_fields(self):
        pa = _pyarrow()
        position = pa.struct([
            ("member", pa.string()), ("file", pa.int64()), ("begin", pa.int64()), ("n", pa.int64()),
            ("row", pa.int32()),
        ])
        return [
            pa.field("_pos", position), pa.field("_gtid", pa.string()), pa.field("_ts", pa.timestamp("us", tz="UTC")),
            pa.field("_op", pa.string()), pa.field("_xa", pa.string()),
        ]

    cdef list meta_arrays(self):
        """The arrays of the fields of `meta_fields`."""
        cdef int64_t nulls = self.columns[FILE].nulls
        pa = _pyarrow()
        children = [self.filled(MEMBER, "_pos"), *(self.array(i, "_pos") for i in range(FILE, ROW + 1))]
        valid = children[1].buffers()[0]
        position = pa.Array.from_buffers(
            self.meta_fields()[0].type, self.rows, [valid], null_count=nulls, children=children
        )
        xa = self.filled(XA, "_xa")
        return [position, self.array(GTID, "_gtid"), self.array(TS, "_ts"), self.array(OP, "_op"), xa]

    def array(self, int i, str name):
        """A column as an Arrow array, which takes its memory away."""
        cdef ColumnBuffers *column = &self.columns[i]
        cdef int64_t length = column.length
        pa = _pyarrow()
        data_type = _data_type(column.output, column.precision, column.scale)
        valid = pa.py_buffer(take(&column.valid)) if column.nulls else None
        items = column.items.size // 4 - 1
        buffers = [valid, pa.py_buffer(take(&column.values))]
        if column.output in (STRING, BINARY):
            buffers.append(pa.py_buffer(take(&column.text)))
        children = None
        if column.output == LIST:
            offsets, text = pa.py_buffer(take(&column.items)), pa.py_buffer(take(&column.text))
            children = [pa.Array.from_buffers(pa.string(), items, [None, offsets, text], null_count=0)]
        elif column.output == TEXTS:
            children = [self.array(i + 1, name)]
        elif column.output == MAP:
            names, texts = self.array(i + 1, name), self.array(i + 2, name)
            pair = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())])
            children = [pa.Array.from_buffers(pair, len(names), [None], null_count=0, children=[names, texts])]
        array = pa.Array.from_buffers(data_type, length, buffers, null_count=column.nulls, children=children)
        if column.output == STRING:
            try:
                array.validate(full=True)
            except pa.ArrowInvalid as error:
                raise DecodeError(f"not an entry: {name}: a string is not UTF-8: {error}") from None
        return array


cdef struct Image:
    # Of a row; not all of these cells need be in use
    Cell *cells
    size_t count


cdef Cell *add_cell(vector[Cell] *cells, Image *image) except NULL nogil:
    if image.count == cells.size():
        cells.resize(image.count + 1)
        image.cells = cells.data()
    image.count += 1
    return &image.cells[image.count - 1]


cdef Cell *read_cell(vector[Cell] *cells, Image *image, Span column) except NULL nogil:
    """Adds a column. If it begins as the one of the previous row does, only what changes is read."""
    cdef Cell *cell = add_cell(cells, image)
    if (
        cell.prefix and column.size >= cell.prefix and memcmp(column.data, cell.start, cell.prefix) == 0
        and get_changing(column.data + cell.prefix, column.data + column.size, &cell.updated, &cell.value)
    ):
        return cell
    if not get_cell(column, cell):
        malformed()
    return cell


@cython.final
cdef class EnvelopeDecoder(Decoder):
    """Decodes the rows of all tables, their images as maps of names to Canal's texts; see `schema`."""
    cdef bint split_keys
    cdef vector[Cell] before_cells
    cdef vector[Cell] after_cells
    cdef vector[Cell] merged_cells
    cdef Image before
    cdef Image after
    cdef Image merged                              # the whole row after the change, where it was asked for

    def __init__(self, *, bint split_keys=True):
        """`split_keys`: whether an UPDATE of a primary key becomes a DELETE and an INSERT, both of the same `_pos`."""
        pa = _pyarrow()
        string = (STRING, 0, 0)
        image = [(MAP, 0, 0), string, string]
        self.make_columns([*META_COLUMNS, string, string, (TEXTS, 0, 0), string, *image, *image])
        position, gtid, ts, op, xa = self.meta_fields()
        texts = _data_type(MAP, 0, 0)
        self.schema = pa.schema([
            position, gtid, ts, pa.field("_schema", pa.string()), pa.field("_table", pa.string()), op, xa,
            pa.field("_key", _data_type(TEXTS, 0, 0)), pa.field("before", texts), pa.field("after", texts),
        ])
        self.split_keys = split_keys

    cdef int reset(self) except -1:
        """Start a new batch; the bytes of the last one may be gone."""
        Decoder.reset(self)
        self.before_cells.clear()
        self.after_cells.clear()
        self.merged_cells.clear()
        return 0

    cdef int add_row(self, Span row) except -1 nogil:
        cdef Fields columns = fields_of(row)
        cdef Span column
        cdef int image
        cdef Cell *cell
        cdef Image none
        cdef int before_keys = 0                   # columns of the key in the image before
        cdef int after_keys = 0
        cdef bint is_new = False                   # the key
        none.cells = NULL
        self.before.count = self.after.count = none.count = 0
        while True:
            image = checked(next_column(&columns, &column))
            if not image:
                break
            if image == IMAGE_BEFORE:
                before_keys += read_cell(&self.before_cells, &self.before, column).is_key
            else:
                cell = read_cell(&self.after_cells, &self.after, column)
                after_keys += cell.is_key
                is_new = is_new or cell.is_key and cell.updated
        if self.header.event_type == DELETE:
            return self.put_row(DELETE, self.before, self.before, self.after)
        if self.header.event_type == UPDATE:
            if self.split_keys and is_new and before_keys > 0:
                self.merge()
                self.put_row(DELETE, self.before, self.before, none)
                return self.put_row(INSERT, self.merged, none, self.merged)
            if after_keys < before_keys:
                self.merge()
                return self.put_row(UPDATE, self.merged, self.before, self.after)
        return self.put_row(<int>self.header.event_type, self.after, self.before, self.after)

    cdef int merge(self) except -1 nogil:
        """The whole row after the change: what a minimal image leaves out has not changed."""
        cdef Image before = self.before
        cdef Image after = self.after
        cdef size_t i = 0
        cdef size_t j = 0
        self.merged.count = 0
        while i < before.count or j < after.count:
            if j == after.count or i < before.count and before.cells[i].index < after.cells[j].index:
                add_cell(&self.merged_cells, &self.merged)[0] = before.cells[i]
                i += 1
                continue
            i += i < before.count and before.cells[i].index == after.cells[j].index
            add_cell(&self.merged_cells, &self.merged)[0] = after.cells[j]
            j += 1
        return 0

    cdef int put_row(self, int operation, Image key, Image before, Image after) except -1 nogil:
        """Writes a row; its key is that of the image `key`."""
        self.put_key(key)
        self.put_image(BEFORE, before)
        self.put_image(AFTER, after)
        self.check(put_text(&self.columns[SCHEMA], self.header.schema))
        self.check(put_text(&self.columns[TABLE], self.header.table))
        return self.end_row(operation)

    cdef int put_key(self, Image image) except -1 nogil:
        cdef ColumnBuffers *texts = &self.columns[ROW_KEY + 1]
        cdef int64_t start = texts.length
        cdef size_t i
        for i in range(image.count):
            if image.cells[i].is_key:
                self.put_cell(texts, &image.cells[i])
        self.check(put_offset(&self.columns[ROW_KEY].values, texts.length))
        return self.check(mark(&self.columns[ROW_KEY], texts.length > start))

    cdef int put_image(self, int place, Image image) except -1 nogil:
        cdef ColumnBuffers *names = &self.columns[place + 1]
        cdef ColumnBuffers *texts = &self.columns[place + 2]
        cdef size_t i
        for i in range(image.count):
            self.check(put_text(names, image.cells[i].name))
            self.put_cell(texts, &image.cells[i])
        self.check(put_offset(&self.columns[place].values, names.length))
        return self.check(mark(&self.columns[place], image.count > 0))

    cdef int put_cell(self, ColumnBuffers *texts, const Cell *cell) except -1 nogil:
        return self.check(put_null(texts) if cell.is_null else put_text(texts, cell.value))

    def finish(self):
        """The batch, of the rows written."""
        position, gtid, ts, op, xa = self.meta_arrays()
        arrays = [
            position, gtid, ts, self.array(SCHEMA, "_schema"), self.array(TABLE, "_table"), op, xa,
            self.array(ROW_KEY, "_key"), self.array(BEFORE, "before"), self.array(AFTER, "after"),
        ]
        return _pyarrow().RecordBatch.from_arrays(arrays, schema=self.schema)


META_COLUMNS = [
    (STRING, 0, 0), (INT64, 0, 0), (INT64, 0, 0), (INT64, 0, 0), (INT32, 0, 0), (STRING, 0, 0), (INSTANT, 0, 0),
    (STRING, 0, 0), (STRING, 0, 0),
]


@cython.final
cdef class TableDecoder(Decoder):
    """Decodes the rows of one table, each column in its own type; see `schema`.

    A row is one image: the one after the change, or the one before for a DELETE.
    """
    cdef bytes schema_name
    cdef bytes table_name
    cdef Span schema_span
    cdef Span table_span
    cdef list declared                             # Column_
    cdef dict targets                              # name -> place in columns
    cdef Zone zone
    cdef bint null_dates
    cdef bint null_missing
    cdef bint split_keys
    cdef Form *forms                               # WAYS for each place in a row
    cdef size_t form_count
    cdef Form scratch                              # of a column that no form is kept of

    def __init__(
        self, str schema, str table, columns, *, str time_zone="UTC", str invalid_dates="null",
        str missing_columns="error", bint split_keys=True,
    ):
        """`columns`: name and mysqlType of each column that is wanted, in the order of the schema.

        Args:
            schema: name of the database.
            table: name of the table.
            columns: other columns are ignored; a column with another type in the data is an error.
            time_zone: the zone that the destination writes TIMESTAMP values in: IANA name or offset.
            invalid_dates: what a date that does not exist, such as `0000-00-00`, becomes: "null", or an "error".
            missing_columns: what a column becomes when a row has no value of it, not even in its image before (the
                source's binlog_row_image is not FULL): "null", or an "error". In a DELETE it is null.
            split_keys: whether an UPDATE of a primary key becomes a DELETE and an INSERT, both of the same `_pos`.

        Raises:
            BadParameterError: a column is named twice or as one of `_pos`, `_gtid`, `_ts`, `_op`, `_xa`, or an option
                is not one of these.
        """
        cdef Column_ column
        pa = _pyarrow()
        for name, value, values in (
            ("invalid_dates", invalid_dates, ("null", "error")), ("missing_columns", missing_columns, ("null", "error"))
        ):
            if value not in values:
                raise BadParameterError(f"{name} is 'null' or 'error', not {value!r}", name)
        fields = self.meta_fields()
        outputs = list(META_COLUMNS)
        self.schema_name = schema.encode()
        self.table_name = table.encode()
        self.schema_span = span_at(self.schema_name, len(self.schema_name))
        self.table_span = span_at(self.table_name, len(self.table_name))
        self.declared = []
        self.targets = {}
        names = {field.name for field in fields}
        for name, mysql_type in columns:
            if name in names:
                raise BadParameterError(f"two columns are called {name!r}", "columns")
            names.add(name)
            column = Column_.__new__(Column_)
            column.name = name
            column.mysql_type = mysql_type
            _, column.output, column.precision, column.scale = _read_type(mysql_type, SqlType.OTHER)
            self.targets[name] = len(outputs)
            self.declared.append(column)
            outputs.append((column.output, column.precision, column.scale))
            fields.append(pa.field(name, _data_type(column.output, column.precision, column.scale)))
        self.make_columns(outputs)
        self.schema = pa.schema(fields)
        self.zone = Zone(time_zone)
        self.null_dates = invalid_dates == "null"
        self.null_missing = missing_columns == "null"
        self.split_keys = split_keys

    def __dealloc__(self):
        cdef size_t i
        for i in range(self.form_count):
            free(self.forms[i].memory)
        free(self.forms)
        free(self.scratch.memory)

    cdef bint is_wanted(self) noexcept nogil:
        return is_same(self.header.table, self.table_span) and is_same(self.header.schema, self.schema_span)

    cdef int add_row(self, Span row) except -1 nogil:
        if self.header.event_type == UPDATE:
            if self.split_keys and self.has_new_key(row):
                self.add_image(row, IMAGE_BEFORE)
                self.end_image(DELETE)
                self.add_image(row, IMAGE_AFTER)
                self.add_image(row, IMAGE_BEFORE)
                return self.end_image(INSERT)
            if self.add_image(row, IMAGE_AFTER) < self.count - FIRST:
                self.add_image(row, IMAGE_BEFORE)          # what a minimal image leaves out has not changed
        else:
            self.add_image(row, IMAGE_BEFORE if self.header.event_type == DELETE else IMAGE_AFTER)
        return self.end_image(<int>self.header.event_type)

    cdef bint has_new_key(self, Span row) except -1 nogil:
        """Whether the image before has a key, and the image after has another one."""
        cdef Fields columns = fields_of(row)
        cdef Span column
        cdef int image
        cdef Form *form
        cdef Cell cell
        cdef bint has_key = False
        cdef bint is_new = False
        cdef size_t before = 0
        cdef size_t after = 0
        while not (has_key and is_new):
            image = checked(next_column(&columns, &column))
            if not image:
                break
            if image == IMAGE_BEFORE:
                has_key = has_key or self.read_column(column, before, &cell).is_key
                before += 1
            else:
                form = self.read_column(column, after, &cell)
                is_new = is_new or form.is_key and cell.updated
                after += 1
        return has_key and is_new

    cdef int add_image(self, Span row, int image) except -1 nogil:
        """Writes the columns of an image that the row does not have yet: how many."""
        cdef Fields columns = fields_of(row)
        cdef Span message
        cdef Form *form
        cdef Cell cell
        cdef size_t place = 0
        cdef ColumnBuffers *column
        cdef const char *reason
        cdef int written = 0
        while checked(next_column_of(&columns, image, &message)):
            form = self.read_column(message, place, &cell)
            place += 1
            if form.target < 0:
                continue
            column = &self.columns[form.target]
            if column.length > self.rows:
                continue
            reason = self.add_value(column, form, cell.value)
            if reason != NULL:
                with gil:
                    self.fail((<Column_>self.declared[form.target - FIRST]).name, cell.value, reason)
            written += 1
        return written

    cdef int end_image(self, int operation) except -1 nogil:
        cdef int i
        for i in range(FIRST, self.count):
            if self.columns[i].length == self.rows:
                if operation != DELETE and not self.null_missing:
                    with gil:
                        self.fail_missing(i)
                self.check(put_null(&self.columns[i]))
        return self.end_row(operation)

    cdef int fail_missing(self, int i) except -1:
        raise SchemaMismatchError(
            f"{self.schema_name.decode()}.{self.table_name.decode()}: a row has no value of the column"
            f" {(<Column_>self.declared[i - FIRST]).name!r}: it was dropped or is filtered out, or the source's"
            " binlog_row_image is not FULL"
        )

    cdef const char *add_value(self, ColumnBuffers *column, const Form *form, Span value) noexcept nogil:
        cdef const char *reason
        if form.is_null:
            return put_null(column)
        if form.way == TEXT:
            return put_text(column, value)
        if form.way == INTEGER:
            return put_decimal128(column, value) if column.output == DECIMAL128 else put_integer(column, value)
        if form.way == DATETIME or form.way == DATE:
            if form.way == DATE:
                reason = put_date(column, value)
            else:
                reason = self.put_datetime(column, value)
            return put_null(column) if reason == INVALID_DATE and self.null_dates else reason
        if form.way == DECIMAL:
            return put_decimal128(column, value)
        if form.way == FLOAT:
            return put_float(column, value)
        if form.way == TIME:
            return put_time(column, value)
        if form.way == BYTES:
            return put_bytes(column, value)
        if form.way == JSON:
            return put_json(column, value)
        if form.way == ENUM:
            return put_label(column, value, form)
        return put_labels(column, value, form)

    cdef const char *put_datetime(self, ColumnBuffers *column, Span text) noexcept nogil:
        cdef int64_t seconds = 0
        cdef int micros = 0
        cdef const char *reason = read_datetime(text, &seconds, &micros)
        if reason != NULL:
            return reason
        if column.output == INSTANT:
            seconds -= self.zone.offset_at(seconds)
        return put_int64(column, seconds * 1_000_000 + micros)

    cdef Form *read_column(self, Span column, size_t place, Cell *cell) except NULL nogil:
        """The form of a column, by the bytes it begins with if they are known; of the cell only what changes."""
        cdef const uint8_t *p = column.data
        cdef const uint8_t *end = p + column.size
        cdef Form *form
        cdef size_t i
        place *= WAYS
        if place < self.form_count:
            for i in range(place, place + WAYS):
                form = &self.forms[i]
                if form.memory == NULL:
                    break
                if <size_t>(end - p) < form.prefix_size or memcmp(p, form.memory, form.prefix_size) != 0:
                    continue
                if get_changing(p + form.prefix_size, end, &cell.updated, &cell.value):
                    return form
                break
        return self.parse_column(column, place, cell)

    cdef Form *parse_column(self, Span column, size_t place, Cell *cell) except NULL nogil:
        """As read_column, field by field."""
        cdef Form *form
        if not get_cell(column, cell):
            malformed()
        with gil:
            form = self.new_form(place, cell.start, cell.prefix)
            self.fill_form(form, cell.name, cell.mysql_type, cell.sql_type)
        form.is_key = cell.is_key
        form.is_null = cell.is_null
        return form

    cdef Form *new_form(self, size_t place, const uint8_t *prefix, size_t size) except NULL:
        """Room for a form, in place of the one not seen for longest; scratch room without a prefix."""
        cdef Form *form = &self.scratch
        cdef Form *forms
        cdef size_t count
        if size and place < WAYS * PLACES_MAX:
            if place >= self.form_count:
                count = place + WAYS
                forms = <Form *>realloc(self.forms, count * sizeof(Form))
                if forms == NULL:
                    raise MemoryError
                memset(forms + self.form_count, 0, (count - self.form_count) * sizeof(Form))
                self.forms = forms
                self.form_count = count
            form = &self.forms[place]
            free(form[WAYS - 1].memory)
            form[2] = form[1]
            form[1] = form[0]
        else:
            free(form.memory)
            size = 0
        memset(form, 0, sizeof(Form))
        form.memory = <uint8_t *>malloc(size + 1)
        if form.memory == NULL:
            raise MemoryError
        memcpy(form.memory, prefix, size)
        form.prefix_size = size
        form.target = -1
        return form

    cdef int fill_form(self, Form *form, Span name, Span mysql_type, int sql_type) except -1:
        """What the types of a column say. A form that fails stays without a prefix, so that it is never found."""
        cdef Column_ declared
        cdef size_t i
        cdef size_t size = form.prefix_size
        cdef size_t labels_at
        cdef size_t text_at
        cdef uint8_t *memory
        cdef bytes label
        try:
            column_name = text_of(name)
            type_text = text_of(mysql_type)
            form.target = self.targets.get(column_name, -1)
            if form.target < 0:
                return 0
            declared = self.declared[form.target - FIRST]
            if type_text:
                kind, output, _, _ = _read_type(type_text, sql_type)
            else:
                kind, output, _, _ = _read_type(declared.mysql_type, sql_type)
            if not _fits(output, declared):
                raise SchemaMismatchError(
                    f"{self.schema_name.decode()}.{self.table_name.decode()}.{column_name} is {type_text} in the data"
                    f" and {declared.mysql_type} in the schema"
                )
            form.way = kind
            if kind in (ValueKind.ENUM, ValueKind.SET):
                labels = [text.encode() for text in labels_of(type_text or declared.mysql_type)]
                labels_at = (size + 7) // 8 * 8
                text_at = labels_at + len(labels) * sizeof(Span)
                memory = <uint8_t *>realloc(form.memory, text_at + sum(map(len, labels)) + 1)
                if memory == NULL:
                    raise MemoryError
                form.memory = memory
                form.labels = <Span *>(memory + labels_at)
                form.label_count = len(labels)
                for i, label in enumerate(labels):
                    form.labels[i].data = memory + text_at
                    form.labels[i].size = len(label)
                    memcpy(memory + text_at, <const char *>label, len(label))
                    text_at += len(label)
        except BaseException:
            self.forget(form)
            raise
        return 0

    cdef void forget(self, Form *form) noexcept:
        """Makes sure that a kept form is never found again."""
        cdef int i
        free(form.memory)
        if form == &self.scratch:
            memset(form, 0, sizeof(Form))
            return
        for i in range(WAYS - 1):
            form[i] = form[i + 1]
        memset(&form[WAYS - 1], 0, sizeof(Form))

    def finish(self):
        """The batch, of the rows written."""
        cdef Column_ column
        arrays = self.meta_arrays()
        for i, column in enumerate(self.declared, FIRST):
            arrays.append(self.array(i, column.name))
        return _pyarrow().RecordBatch.from_arrays(arrays, schema=self.schema)
