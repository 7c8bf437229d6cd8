"""Entries to FlatMessage, the JSON that Canal writes to message queues: one object per entry, with all its rows.

Keys are in alphabetical order and are never left out; every value of a row is a string or null::

    {"data":[{"id":"7","name":"bob"}],"database":"shop","es":1700000000000,"gtid":"","id":12,"isDdl":false,
     "mysqlType":{"id":"bigint","name":"varchar(32)"},"old":[{"name":"alice"}],"pkNames":["id"],"sql":"",
     "sqlType":{"id":-5,"name":12},"table":"goods","ts":1700000000123,"type":"UPDATE"}

Entries other than ROWDATA (a transaction's begin and end) are left out. Three things differ from Canal; `strict` gives
its form:

* In an UPDATE of several rows, `old` of a row has the columns that changed in this row, not those that changed in this
  or any earlier row of the entry.
* If the images do not have all columns (binlog_row_image is not FULL), `data` of an UPDATE combines both images: what
  the image after leaves out comes from the image before. One more key, `absent`, names the columns that neither has.
* A message that belongs to an XA transaction has one more key, `xa`.

rows.pyx describes the layout of an entry. Its strings are UTF-8 already and are copied, except for what JSON escapes.
"""

import time

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset, strlen

from ..escapes cimport skip_plain
from ..wire cimport Span, WireField, get_field, is_same, put_signed_decimal, span_of
from .entry cimport Cell, get_cell
from .tags cimport (
    AFTER_COLUMNS,
    BEFORE_COLUMNS,
    CHANGE_EVENT_TYPE,
    ENTRY_TYPE,
    EVENT_TYPE,
    EXECUTE_TIME,
    GTID,
    HEADER,
    HEADER_PROPS,
    IS_DDL,
    KEY,
    MESSAGES,
    PAIR_VALUE,
    ROW_CHANGE_PROPS,
    ROW_DATAS,
    SCHEMA_NAME,
    SQL,
    STORE_VALUE,
    TABLE_NAME,
)

from ..errors import DecodeError

cdef enum:
    ROWDATA = 2                                    # EntryType

    INSERT = 1                                     # EventType
    UPDATE = 2
    DELETE = 3
    EVENT_TYPES = 16

    COLUMNS_MAX = 4096                             # of a MySQL table

    MALFORMED = -1                                 # what functions without the GIL return instead of raising
    NO_MEMORY = -2
    UNKNOWN_TYPE = -3
    NO_COLUMN = -4

cdef const char **TYPE_NAMES = [
    b"UPDATE",                                     # absent, which Canal's classes read so
    b"INSERT", b"UPDATE", b"DELETE", b"CREATE", b"ALTER", b"ERASE", b"QUERY", b"TRUNCATE", b"RENAME", b"CINDEX",
    b"DINDEX", b"GTID", b"XACOMMIT", b"XAROLLBACK", b"MHEARTBEAT",
]
cdef const char *XA_PROP = b"sluice.xa"
cdef const char *ABSENT_PROP = b"sluice.absent"
cdef const char *HEXADECIMAL = b"0123456789abcdef"

cdef dict REASONS = {
    MALFORMED: "a field does not fit into its message",
    UNKNOWN_TYPE: "its event type is unknown",
    NO_COLUMN: "a column has an index that no table has",
}


cdef struct Writer:
    uint8_t *data
    size_t size
    size_t capacity
    Cell *columns                                # of the entry: names and types, in order; COLUMNS_MAX
    Py_ssize_t column_count
    uint8_t *marked                                # by column index: COLUMNS_MAX
    int64_t batch_id
    int64_t ts
    bint strict
    bint lines
    bint partial                                   # an image of the entry does not have all columns


cdef inline int reserve(Writer *out, size_t n) noexcept nogil:
    cdef size_t capacity
    cdef uint8_t *data
    if out.capacity - out.size >= n:
        return 0
    capacity = max(out.capacity * 2, out.size + n)
    data = <uint8_t *>realloc(out.data, capacity)
    if data == NULL:
        return NO_MEMORY
    out.data = data
    out.capacity = capacity
    return 0


cdef inline int put(Writer *out, const char *text, size_t size) noexcept nogil:
    if reserve(out, size) < 0:
        return NO_MEMORY
    memcpy(out.data + out.size, text, size)
    out.size += size
    return 0


cdef inline int put_number(Writer *out, int64_t number) noexcept nogil:
    if reserve(out, 20) < 0:
        return NO_MEMORY
    out.size = put_signed_decimal(out.data + out.size, number) - out.data
    return 0


cdef int put_string(Writer *out, Span text) noexcept nogil:
    cdef const uint8_t *p = text.data
    cdef const uint8_t *end = p + text.size
    cdef const uint8_t *run
    cdef uint8_t c
    cdef uint8_t *o
    if reserve(out, text.size + 2) < 0:
        return NO_MEMORY
    out.data[out.size] = 34
    out.size += 1
    while True:
        run = p
        p = skip_plain(p, end)
        if reserve(out, p - run + 7) < 0:
            return NO_MEMORY
        memcpy(out.data + out.size, run, p - run)
        out.size += p - run
        o = out.data + out.size
        if p == end:
            o[0] = 34
            out.size += 1
            return 0
        c = p[0]
        p += 1
        o[0] = 92
        out.size += 2
        if c == 34 or c == 92:
            o[1] = c
        elif c == 8:
            o[1] = 98                              # b
        elif c == 9:
            o[1] = 116                             # t
        elif c == 10:
            o[1] = 110                             # n
        elif c == 12:
            o[1] = 102                             # f
        elif c == 13:
            o[1] = 114                             # r
        else:
            memcpy(o + 1, b"u00", 3)
            o[4] = HEXADECIMAL[c >> 4]
            o[5] = HEXADECIMAL[c & 15]
            out.size += 4


cdef int read_column(WireField *message, Cell *column) noexcept nogil:
    if not get_cell(message.data, message.data + message.size, column):
        return MALFORMED
    return 0 if 0 <= column.index < COLUMNS_MAX else NO_COLUMN


cdef int put_value(Writer *out, Cell *column, bint first) noexcept nogil:
    """`"name":"value"`, after a comma unless it is the first."""
    if not first and put(out, b",", 1) < 0 or put_string(out, column.name) < 0 or put(out, b":", 1) < 0:
        return NO_MEMORY
    return put(out, b"null", 4) if column.is_null else put_string(out, column.value)


cdef int remember(Writer *out, Cell *column, Py_ssize_t place) noexcept nogil:
    """Keep the types of a column: those of the last row, in the order of the first."""
    cdef Py_ssize_t i
    cdef Cell *known
    if place >= out.column_count or not is_same(out.columns[place].name, column.name):
        place = out.column_count
        for i in range(out.column_count):
            if is_same(out.columns[i].name, column.name):
                place = i
                break
    if place == out.column_count:
        if place == COLUMNS_MAX:
            return NO_COLUMN
        out.column_count += 1
        out.columns[place] = column[0]
        return 0
    known = &out.columns[place]
    known.sql_type = column.sql_type
    known.mysql_type = column.mysql_type
    return 0


cdef int put_row(Writer *out, WireField *row, uint64_t image) noexcept nogil:
    """An image of a row as an object; its columns are remembered.

    What the image after an update leaves out has not changed, and is taken from the image before, which has at least
    the key.
    """
    cdef Py_ssize_t place = 0
    cdef int status
    cdef bint merged = out.partial and image == AFTER_COLUMNS
    if put(out, b"{", 1) < 0:
        return NO_MEMORY
    if out.partial:
        memset(out.marked, 0, COLUMNS_MAX)
    status = put_columns(out, row, image, &place)
    if status == 0 and merged:
        status = put_columns(out, row, BEFORE_COLUMNS, &place)
    return put(out, b"}", 1) if status == 0 else status


cdef int put_columns(Writer *out, WireField *row, uint64_t image, Py_ssize_t *place) noexcept nogil:
    """The columns of an image, after so many; of a partial entry only those not marked yet, which are marked then."""
    cdef const uint8_t *p = row.data
    cdef const uint8_t *end = p + row.size
    cdef WireField field
    cdef Cell column
    cdef int status
    while p < end:
        p = get_field(p, end, &field)
        if p == NULL:
            return MALFORMED
        if field.tag == image:
            status = read_column(&field, &column)
            if status == 0 and out.partial:
                if out.marked[column.index]:
                    continue
                out.marked[column.index] = 1
            if status == 0:
                status = remember(out, &column, place[0])
            if status == 0:
                status = put_value(out, &column, place[0] == 0)
            if status < 0:
                return status
            place[0] += 1
    return 0


cdef int put_old(Writer *out, WireField *row) noexcept nogil:
    """Of the image before the columns that are marked `updated` in the image after."""
    cdef const uint8_t *p = row.data
    cdef const uint8_t *end = p + row.size
    cdef WireField field
    cdef Cell column
    cdef bint first = True
    cdef int status
    if not out.strict:
        memset(out.marked, 0, COLUMNS_MAX)
    while p < end:
        p = get_field(p, end, &field)
        if p == NULL:
            return MALFORMED
        if field.tag == AFTER_COLUMNS:
            status = read_column(&field, &column)
            if status < 0:
                return status
            if column.updated:
                out.marked[column.index] = 1
    if put(out, b"{", 1) < 0:
        return NO_MEMORY
    p = row.data
    while p < end:
        p = get_field(p, end, &field)
        if field.tag == BEFORE_COLUMNS:
            status = read_column(&field, &column)
            if status == 0 and out.marked[column.index]:
                status = put_value(out, &column, first)
                first = False
            if status < 0:
                return status
    return put(out, b"}", 1)


cdef int put_rows(Writer *out, Span body, uint64_t image) noexcept nogil:
    """A list of all rows: of one image of them, or of `old` if the image is 0; null without rows."""
    cdef const uint8_t *p = body.data
    cdef const uint8_t *end = p + body.size
    cdef WireField field
    cdef bint first = True
    cdef int status
    while p < end:
        p = get_field(p, end, &field)
        if p == NULL:
            return MALFORMED
        if field.tag != ROW_DATAS:
            continue
        if put(out, b"[" if first else b",", 1) < 0:
            return NO_MEMORY
        first = False
        status = put_row(out, &field, image) if image else put_old(out, &field)
        if status < 0:
            return status
    return put(out, b"null", 4) if first else put(out, b"]", 1)


cdef int put_keys(Writer *out, Span body, uint64_t image) noexcept nogil:
    """The names of the key columns, from the first row; null without any."""
    cdef const uint8_t *p = body.data
    cdef const uint8_t *end = p + body.size
    cdef const uint8_t *row_end
    cdef WireField field
    cdef Cell column
    cdef bint first = True
    while p < end:
        p = get_field(p, end, &field)
        if field.tag == ROW_DATAS:
            p = field.data
            row_end = p + field.size
            while p < row_end:
                p = get_field(p, row_end, &field)
                if field.tag == image:
                    read_column(&field, &column)
                    if column.is_key:
                        if put(out, b"[" if first else b",", 1) < 0 or put_string(out, column.name) < 0:
                            return NO_MEMORY
                        first = False
            break
    return put(out, b"null", 4) if first else put(out, b"]", 1)


cdef int put_types(Writer *out, bint sql) noexcept nogil:
    """Names to sqlType or mysqlType; null without columns."""
    cdef Py_ssize_t i
    if out.column_count == 0:
        return put(out, b"null", 4)
    for i in range(out.column_count):
        if put(out, b"," if i else b"{", 1) < 0 or put_string(out, out.columns[i].name) < 0 or put(out, b":", 1) < 0:
            return NO_MEMORY
        if (put_number(out, out.columns[i].sql_type) if sql else put_string(out, out.columns[i].mysql_type)) < 0:
            return NO_MEMORY
    return put(out, b"}", 1)


cdef int read_prop(const uint8_t *p, const uint8_t *end, const char *key, Span *value) noexcept nogil:
    """The value of a property, if it has that key."""
    cdef WireField field
    cdef Span name
    cdef Span text
    cdef Span wanted
    name.data = text.data = NULL
    name.size = text.size = 0
    wanted.data = <const uint8_t *>key
    wanted.size = strlen(key)
    while p < end:
        p = get_field(p, end, &field)
        if p == NULL:
            return MALFORMED
        if field.tag == KEY:
            name = span_of(&field)
        elif field.tag == PAIR_VALUE:
            text = span_of(&field)
    if is_same(name, wanted):
        value[0] = text
    return 0


cdef int put_entry(Writer *out, const uint8_t *p, const uint8_t *end) noexcept nogil:
    """1 when the entry has become a message, 0 when it does not become one."""
    # Long: two loops collect the parts of a message from the fields, and the message is then written in order.
    cdef WireField field
    cdef Span header
    cdef Span body
    cdef Span schema
    cdef Span table
    cdef Span gtid
    cdef Span sql
    cdef Span xa
    cdef Span absent
    cdef int64_t execute_time = 0
    cdef uint64_t entry_type = 0
    cdef uint64_t event_type = 0
    cdef bint is_ddl = False
    cdef uint64_t image
    cdef int status = 0
    memset(&header, 0, sizeof(Span))
    body = schema = table = gtid = sql = xa = absent = header
    while p < end:
        p = get_field(p, end, &field)
        if p == NULL:
            return MALFORMED
        if field.tag == HEADER:
            header = span_of(&field)
        elif field.tag == ENTRY_TYPE:
            entry_type = field.value
        elif field.tag == STORE_VALUE:
            body = span_of(&field)
    if entry_type != ROWDATA:
        return 0
    p = header.data
    end = p + header.size
    while p < end:
        p = get_field(p, end, &field)
        if p == NULL:
            return MALFORMED
        if field.tag == EXECUTE_TIME:
            execute_time = <int64_t>field.value
        elif field.tag == SCHEMA_NAME:
            schema = span_of(&field)
        elif field.tag == TABLE_NAME:
            table = span_of(&field)
        elif field.tag == EVENT_TYPE:
            event_type = field.value
        elif field.tag == GTID:
            gtid = span_of(&field)
        elif field.tag == HEADER_PROPS and read_prop(field.data, field.data + field.size, XA_PROP, &xa) < 0:
            return MALFORMED
    p = body.data
    end = p + body.size
    while p < end:
        p = get_field(p, end, &field)
        if p == NULL:
            return MALFORMED
        if field.tag == CHANGE_EVENT_TYPE:
            event_type = field.value
        elif field.tag == IS_DDL:
            is_ddl = field.value != 0
        elif field.tag == SQL:
            sql = span_of(&field)
        elif field.tag == ROW_CHANGE_PROPS:
            if read_prop(field.data, field.data + field.size, ABSENT_PROP, &absent) < 0:
                return MALFORMED
    if event_type >= EVENT_TYPES:
        return UNKNOWN_TYPE
    event_type = event_type or UPDATE
    image = 0
    if INSERT <= event_type <= DELETE and not is_ddl:
        image = BEFORE_COLUMNS if event_type == DELETE else AFTER_COLUMNS

    out.column_count = 0
    memset(out.marked, 0, COLUMNS_MAX)
    out.partial = absent.size and image and not out.strict
    status |= put(out, b"{", 1)
    if out.partial:
        status |= put(out, b'"absent":', 9)
        status |= put(out, <const char *>absent.data, absent.size)
        status |= put(out, b",", 1)
    status |= put(out, b'"data":', 7)
    if image and status == 0:
        status = put_rows(out, body, image)
        if status < 0:
            return status
    else:
        status |= put(out, b"null", 4)
    status |= put(out, b',"database":', 12)
    status |= put_string(out, schema)
    status |= put(out, b',"es":', 6)
    status |= put_number(out, execute_time)
    status |= put(out, b',"gtid":', 8)
    status |= put_string(out, gtid)
    status |= put(out, b',"id":', 6)
    status |= put_number(out, out.batch_id)
    status |= put(out, b',"isDdl":true', 13) if is_ddl else put(out, b',"isDdl":false', 14)
    status |= put(out, b',"mysqlType":', 13)
    status |= put_types(out, False)
    status |= put(out, b',"old":', 7)
    if status < 0:
        return NO_MEMORY
    status = put_rows(out, body, 0) if image and event_type == UPDATE else put(out, b"null", 4)
    if status < 0:
        return status
    status |= put(out, b',"pkNames":', 11)
    if image and out.partial and event_type == UPDATE:
        status |= put_keys(out, body, BEFORE_COLUMNS)
    else:
        status |= put_keys(out, body, image) if image else put(out, b"null", 4)
    status |= put(out, b',"sql":', 7)
    status |= put_string(out, sql)
    status |= put(out, b',"sqlType":', 11)
    status |= put_types(out, True)
    status |= put(out, b',"table":', 9)
    status |= put_string(out, table)
    status |= put(out, b',"ts":', 6)
    status |= put_number(out, out.ts)
    status |= put(out, b',"type":"', 9)
    status |= put_name(out, TYPE_NAMES[event_type])
    status |= put(out, b'"', 1)
    if xa.size and not out.strict:
        status |= put(out, b',"xa":', 6)
        status |= put_string(out, xa)
    status |= put(out, b"}", 1)
    return NO_MEMORY if status < 0 else 1


cdef int put_name(Writer *out, const char *name) noexcept nogil:
    return put(out, name, strlen(name))


cdef int put_messages(Writer *out, const uint8_t *p, const uint8_t *end) noexcept nogil:
    cdef WireField field
    cdef size_t before
    cdef int status
    while p < end:
        p = get_field(p, end, &field)
        if p == NULL:
            return MALFORMED
        if field.tag != MESSAGES:
            continue
        before = out.size
        if not out.lines and before > 1 and put(out, b",", 1) < 0:
            return NO_MEMORY
        status = put_entry(out, field.data, field.data + field.size)
        if status < 0:
            return status
        if status == 0:
            out.size = before
        elif out.lines and put(out, b"\n", 1) < 0:
            return NO_MEMORY
    return 0


cdef bytes flat(slices, int64_t batch_id, ts, bint strict, bint lines):
    cdef list inputs = list(slices)
    cdef Py_ssize_t count = len(inputs)
    cdef Py_ssize_t held = 0
    cdef Py_ssize_t i
    cdef Py_buffer *views = <Py_buffer *>calloc(max(count, 1), sizeof(Py_buffer))
    cdef int status = 0
    cdef const uint8_t *data
    cdef Writer out
    memset(&out, 0, sizeof(Writer))
    out.columns = <Cell *>calloc(COLUMNS_MAX, sizeof(Cell))
    out.marked = <uint8_t *>calloc(COLUMNS_MAX, 1)
    out.batch_id = batch_id
    out.ts = time.time_ns() // 1_000_000 if ts is None else ts
    out.strict = strict
    out.lines = lines
    try:
        if views == NULL or out.columns == NULL or out.marked == NULL:
            raise MemoryError
        for i in range(count):
            PyObject_GetBuffer(inputs[i], &views[i], PyBUF_SIMPLE)
            held += 1
        with nogil:
            if not lines:
                status = put(&out, b"[", 1)
            for i in range(count):
                if status == 0:
                    data = <const uint8_t *>views[i].buf
                    status = put_messages(&out, data, data + views[i].len)
            if not lines and status == 0:
                status = put(&out, b"]", 1)
        if status == NO_MEMORY:
            raise MemoryError
        if status < 0:
            raise DecodeError(f"not an entry: {REASONS[status]}")
        return PyBytes_FromStringAndSize(<const char *>out.data, out.size)
    finally:
        for i in range(held):
            PyBuffer_Release(&views[i])
        free(views)
        free(out.columns)
        free(out.marked)
        free(out.data)


def flat_json(slices, int64_t batch_id, *, ts=None, bint strict=False):
    """The FlatMessages of all entries in the slices (framed entries, as in `Messages`), as a JSON array.

    `ts` is the time of building that each message carries, in ms since 1970; now by default. Raises DecodeError.
    """
    return flat(slices, batch_id, ts, strict, False)


def flat_ndjson(slices, int64_t batch_id, *, ts=None, bint strict=False):
    """As flat_json, but one message per line, each line ended."""
    return flat(slices, batch_id, ts, strict, True)
