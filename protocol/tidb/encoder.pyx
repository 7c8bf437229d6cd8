"""Canal's entries of what TiDB's tools write: what is alike whatever the form of the records.

A record is a transaction or DDL, with a commit_ts. A transaction becomes its begin, an entry for each run of changes of
one kind of a table, and its end; a DDL one entry.
"""

from typing import NamedTuple

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free

from ..buffer cimport Buffer, reserve
from ..canal.tags cimport (
    CHANGE_EVENT_TYPE,
    DDL_SCHEMA_NAME,
    ENTRY_TYPE,
    EVENT_LENGTH,
    EVENT_TYPE,
    EXECUTE_TIME,
    HEADER,
    HEADER_PROPS,
    INDEX,
    IS_DDL,
    IS_KEY,
    IS_NULL,
    KEY,
    LOGFILE_NAME,
    LOGFILE_OFFSET,
    MESSAGES,
    MYSQL_TYPE,
    NAME,
    PAIR_VALUE,
    ROW_DATAS,
    ROWDATA,
    SCHEMA_NAME,
    SERVEREN_CODE,
    SOURCE_TYPE,
    SOURCE_TYPE_MYSQL,
    SQL,
    SQL_TYPE,
    STORE_VALUE,
    TABLE_NAME,
    TRANSACTION_ID,
    UPDATED,
    VALUE,
    VERSION,
)
from ..utf8 cimport is_utf8, latin1_size, put_latin1, put_utf8, utf8_size
from ..wire cimport (
    LENGTH_MAX,
    VARINT_MAX,
    Span,
    decimal_size,
    put_bytes,
    put_decimal,
    put_padded_varint,
    put_raw,
    put_uint,
    put_varint,
    span_at,
    text_field,
    uint_field,
    varint_size,
)
from .tags cimport LOGICAL_BITS

from ..canal.ddl import event_type_of
from ..errors import DecodeError


cdef enum:
    KEPT = 4 << 20                                 # bytes of memory that a record leaves to the next one
    KNOWN_BYTES = 8 << 20                          # of plans kept (some 4,000); then all are forgotten


cdef Span NOTHING = span_at(b"", 0)
cdef const char *ROWS_COUNT = "rowsCount"
cdef size_t ROWS_COUNT_SIZE = 9
cdef const char *UTF_8 = "UTF-8"


cdef class Plan:
    """What is the same for all rows of a table, as its columns are in a record."""

    def __init__(self, str schema, str table):
        self.owned = []
        self.described = []
        self.schema, self.table = schema, table
        self.names = text_field(SCHEMA_NAME, schema) + text_field(TABLE_NAME, table)
        self.names_span = span_at(self.names, len(self.names))

    cdef Span add_head(self, size_t index, int sql_type, str name, bint is_key, str mysql_type, bint is_null) except *:
        """What a column begins with, up to `updated` and its value."""
        cdef bytes head = (
            uint_field(INDEX, index)
            + uint_field(SQL_TYPE, sql_type)
            + text_field(NAME, name)
            + uint_field(IS_KEY, is_key)
            + text_field(MYSQL_TYPE, mysql_type)
        )
        if is_null:
            head += uint_field(IS_NULL, True)
        self.owned.append(head)
        return span_at(head, len(head))


cdef void empty(Buffer *buffer) noexcept nogil:
    buffer.size = 0
    if buffer.capacity > KEPT:
        free(buffer.data)
        buffer.data = NULL
        buffer.capacity = 0


class Entry(NamedTuple):
    """An entry of a record."""

    entry_type: int
    event_type: int                                # 0 for the ends of a transaction
    schema: str
    table: str
    rows: int
    data: bytes                                    # framed as in `Messages`


class Transaction(NamedTuple):
    """What a record holds."""

    commit_ts: int
    entries: list[Entry]


cdef class Encoder:
    """Encodes records. One call at a time. Its subclasses know a form of records: `encode_record`."""

    def __init__(self, str file):
        """`file`: what the headers of entries name as the file: topic and partition. A record's offset is the place."""
        self.head = uint_field(VERSION, 1) + text_field(LOGFILE_NAME, file)
        self.head_span = span_at(self.head, len(self.head))
        self.owned = []

    def __dealloc__(self):
        free(self.common.data)
        free(self.header.data)
        free(self.rows.data)
        free(self.data.data)

    def encode(self, value, int64_t offset):
        """The `Transaction` that a record at an offset holds. Raises DecodeError when it is not one."""
        cdef Py_buffer view
        cdef size_t i
        PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
        try:
            with nogil:
                self.encode_record(span_at(<const char *>view.buf, view.len), offset)
        finally:
            PyBuffer_Release(&view)
        found = Transaction(self.commit_ts, [self.entry_of(&self.parts[i]) for i in range(self.parts.size())])
        self.forget()
        return found

    cdef object entry_of(self, const RecordEntry *part):
        cdef str schema = ""
        cdef str table = ""
        if part.plan != NULL:
            schema, table = (<Plan>part.plan).schema, (<Plan>part.plan).table
        elif part.event_type and not part.is_marker:
            schema, table = self.schema, self.table
        framed = PyBytes_FromStringAndSize(<char *>self.data.data + part.offset, part.size)
        return Entry(part.entry_type, part.event_type, schema, table, part.rows, framed)

    cdef int encode_record(self, Span record, int64_t offset) except -1 nogil:
        with gil:
            raise NotImplementedError

    cdef int forget(self) except -1 nogil:
        """Give up what the last record has become, and the plans if they are many."""
        self.parts.clear()
        if self.known_bytes > KNOWN_BYTES:
            with gil:
                self.forget_plans()
                self.owned.clear()
                self.known_bytes = 0
        empty(&self.data)
        empty(&self.rows)
        return 0

    cdef int forget_plans(self) except -1:
        raise NotImplementedError

    cdef int begin_headers(self, size_t size, int64_t offset) except -1 nogil:
        """Write what is the same in all headers of a record."""
        cdef uint8_t *p
        self.common.size = 0
        reserve(&self.common, self.head_span.size + 6 * (2 + VARINT_MAX))
        p = put_raw(self.common.data, self.head_span.data, self.head_span.size)
        p = put_uint(p, LOGFILE_OFFSET, <uint64_t>offset)
        p = put_bytes(p, SERVEREN_CODE, UTF_8, 5)
        p = put_uint(p, EXECUTE_TIME, <uint64_t>self.commit_ts >> LOGICAL_BITS)
        p = put_uint(p, SOURCE_TYPE, SOURCE_TYPE_MYSQL)
        p = put_uint(p, EVENT_LENGTH, size)
        self.common.size = p - self.common.data
        return 0

    cdef int add(
        self, int entry_type, int event_type, Span header, Span body, Span more, int64_t rows, void *plan
    ) except -1 nogil:
        """Add an entry; `header`: what only its own has; `body` and `more`: what it holds."""
        cdef RecordEntry part
        cdef size_t header_size = self.common.size + header.size
        cdef size_t body_size = body.size + more.size
        cdef size_t size = 4 + varint_size(header_size) + header_size + varint_size(body_size) + body_size
        cdef uint8_t *p
        reserve(&self.data, 1 + VARINT_MAX + size)
        p = put_varint(put_varint(self.data.data + self.data.size, MESSAGES), size)
        p = put_raw(put_varint(put_varint(p, HEADER), header_size), self.common.data, self.common.size)
        p = put_raw(p, header.data, header.size)
        p = put_uint(p, ENTRY_TYPE, entry_type)
        p = put_raw(put_varint(put_varint(p, STORE_VALUE), body_size), body.data, body.size)
        p = put_raw(p, more.data, more.size)
        part.offset = self.data.size
        part.size = p - self.data.data - self.data.size
        part.entry_type = entry_type
        part.event_type = event_type
        part.rows = rows
        part.plan = plan
        part.is_marker = False
        self.data.size += part.size
        self.parts.push_back(part)
        return 0

    cdef int add_end(self, int entry_type) except -1 nogil:
        """Add the begin or the end of a transaction."""
        cdef uint8_t[2 + VARINT_MAX + 20] name
        cdef uint8_t *p = put_varint(put_varint(name, TRANSACTION_ID), decimal_size(self.commit_ts))
        p = put_decimal(p, self.commit_ts)
        self.add(entry_type, 0, NOTHING, span_at(<const char *>name, p - name), NOTHING, 0, NULL)
        return 0

    cdef int add_statement(self, str schema, str table, str sql) except -1:
        """Add a DDL, whose text may end with a semicolon."""
        self.schema, self.table = schema, table
        sql = sql.removesuffix(";")
        event_type = int(event_type_of(sql, schema))
        header = text_field(SCHEMA_NAME, schema) + text_field(TABLE_NAME, table)
        header += uint_field(EVENT_TYPE, event_type)
        change = (
            uint_field(CHANGE_EVENT_TYPE, event_type)
            + uint_field(IS_DDL, True)
            + text_field(SQL, sql)
            + text_field(DDL_SCHEMA_NAME, schema)
        )
        return self.add(
            ROWDATA, event_type, span_at(header, len(header)), span_at(change, len(change)), NOTHING, 0, NULL
        )

    cdef int take(self, void *plan, int event_type, int64_t count) except -1 nogil:
        """Make an entry of the rows."""
        cdef int digits = decimal_size(count)
        cdef Span names = (<Plan>plan).names_span
        cdef uint8_t[4 * VARINT_MAX] change
        cdef uint8_t *p
        self.header.size = 0
        reserve(&self.header, names.size + 64)
        p = put_raw(self.header.data, names.data, names.size)
        p = put_uint(p, EVENT_TYPE, event_type)
        p = put_varint(put_varint(p, HEADER_PROPS), 2 + ROWS_COUNT_SIZE + 2 + digits)
        p = put_bytes(p, KEY, ROWS_COUNT, ROWS_COUNT_SIZE)
        p = put_varint(put_varint(p, PAIR_VALUE), digits)
        p = put_decimal(p, count)
        self.header.size = p - self.header.data
        p = put_uint(put_uint(change, CHANGE_EVENT_TYPE, event_type), IS_DDL, False)
        self.add(
            ROWDATA, event_type, span_at(<char *>self.header.data, self.header.size),
            span_at(<char *>change, p - change), span_at(<char *>self.rows.data, self.rows.size), count, plan,
        )
        self.rows.size = 0
        return 0

    cdef size_t begin_row(self) except? 0 nogil:
        """Begin a row; its place among `rows`."""
        cdef size_t start = self.rows.size
        reserve(&self.rows, 1 + LENGTH_MAX)
        self.rows.size += 1 + LENGTH_MAX
        return start

    cdef int end_row(self, void *plan, size_t start) except -1 nogil:
        cdef size_t size = self.rows.size - start - 1 - LENGTH_MAX
        cdef uint8_t *p
        if size > 0x7FFF_FFFF:
            with gil:
                raise DecodeError(f"{(<Plan>plan).schema}.{(<Plan>plan).table}: a row has more than 2 GiB")
        p = self.rows.data + start
        p[0] = ROW_DATAS
        put_padded_varint(p + 1, size, LENGTH_MAX)
        return 0

    cdef int add_null(self, Span head, int tag, bint updated) except -1 nogil:
        cdef size_t size = head.size + 2
        cdef uint8_t *p
        reserve(&self.rows, 1 + LENGTH_MAX + size)
        p = self.rows.data + self.rows.size
        p[0] = <uint8_t>tag
        p = put_raw(put_varint(p + 1, size), head.data, head.size)
        p[0] = UPDATED
        p[1] = updated
        self.rows.size = p + 2 - self.rows.data
        return 0

    cdef int add_text(self, Span head, int tag, bint updated, Span text, int form) except -1 nogil:
        """Add a column that has a value to the row; `tag`: of which image."""
        cdef bint is_plain = form == UTF8 and is_utf8(text.data, text.size)
        cdef size_t text_size = text.size
        cdef size_t size
        cdef uint8_t *p
        if form == LATIN1:
            text_size = latin1_size(text.data, text.size)
        elif not is_plain:
            text_size = utf8_size(text.data, text.size)
        size = head.size + 2 + 1 + varint_size(text_size) + text_size
        reserve(&self.rows, 1 + LENGTH_MAX + size + 1)         # the last byte is for put_latin1()
        p = self.rows.data + self.rows.size
        p[0] = <uint8_t>tag
        p = put_raw(put_varint(p + 1, size), head.data, head.size)
        p[0] = UPDATED
        p[1] = updated
        p[2] = VALUE
        p = put_varint(p + 3, text_size)
        if form == LATIN1:
            p = put_latin1(p, text.data, text.size)
        elif is_plain:
            p = put_raw(p, text.data, text.size)
        else:
            p = put_utf8(p, text.data, text.size)
        self.rows.size = p - self.rows.data
        return 0
