"""Entries to Python objects with typed values.

The input is what a batch is made of, Canal's `Messages`, or any run of its framed entries (protobuf, fields of
entry.proto and packet.proto; a varint may be padded)::

    08 <batch id>                                    once or not at all
    12 <length> Entry                                any number of times
        0a <length> Header
        10 <entry type>
        1a <length> RowChange                        of ROWDATA; else TransactionBegin or TransactionEnd
            ...
            62 <length> RowData                      one per row
                0a <length> Column                   of the image before
                12 <length> Column                   of the image after

All columns of one name repeat the same bytes except for `updated` and `value`, which Sluice writes last. So the bytes
before these two are looked up whole: a column that equals, up to there, one of the last three seen at its place needs
no parsing except for its value. Any other order of fields is read field by field.
"""

import json
from decimal import Decimal

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.datetime cimport date_new, datetime_new, import_datetime, timedelta_new
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from ..wire cimport Span, WireField, get_field, span_of
from .entry cimport Cell, get_cell, get_changing
from .tags cimport (
    AFTER_COLUMNS,
    BATCH_ID,
    BEFORE_COLUMNS,
    DDL_SCHEMA_NAME,
    ENTRY_TYPE,
    EVENT_LENGTH,
    EVENT_TYPE,
    EXECUTE_TIME,
    FROM_POSITION,
    GTID,
    HEADER,
    HEADER_PROPS,
    IS_DDL,
    KEY,
    LOGFILE_NAME,
    LOGFILE_OFFSET,
    MESSAGES,
    PAIR_VALUE,
    ROW_CHANGE_PROPS,
    ROW_DATAS,
    SCHEMA_NAME,
    SERVER_ID,
    SQL,
    STORE_VALUE,
    TABLE_NAME,
    THREAD_ID,
    TO_POSITION,
    TRANSACTION_ID,
    TRANSACTION_PROPS,
)

from ..errors import DecodeError
from ..types import JSON_NULL, JsonExpression, kind_of, labels_of, width_of
from ..xa import XA_PROP, Xa

import_datetime()

cdef extern from "string.h" nogil:
    void *memmem(const void *haystack, size_t size, const void *needle, size_t needle_size)


cdef enum:
    ROWDATA = 2                                    # EntryType

    TEXT = 0                                       # types.Kind
    INTEGER = 1
    DECIMAL = 2
    FLOAT = 3
    DATE = 4
    DATETIME = 5
    TIME = 6
    BYTES = 7
    JSON = 8
    ENUM = 9
    SET = 10

    WAYS = 3                                       # forms of a column that are kept: value, wider integer, NULL
    TABLES = 64                                    # tables whose columns are kept
    COLUMNS_MAX = 100_000                          # distinct columns kept before the memory of them is cleared

cdef tuple ENTRY_TYPES = ("", "TRANSACTIONBEGIN", "ROWDATA", "TRANSACTIONEND", "HEARTBEAT", "GTIDLOG")
cdef tuple EVENT_TYPES = (
    "", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "ERASE", "QUERY", "TRUNCATE", "RENAME", "CINDEX", "DINDEX",
    "GTID", "XACOMMIT", "XAROLLBACK", "MHEARTBEAT",
)

cdef str ABSENT_PROP = "sluice.absent"
cdef object loads = json.loads


cdef inline str text(Span span):
    return PyUnicode_DecodeUTF8(<const char *>span.data, span.size, NULL) if span.size else ""


cdef inline const uint8_t *field_at(const uint8_t *p, const uint8_t *end, WireField *field) except NULL:
    p = get_field(p, end, field)
    if p == NULL:
        raise malformed()
    return p


cdef object malformed():
    return DecodeError("not an entry: a field does not fit into its message")


@cython.final
cdef class Buffer:
    """Keeps the bytes that objects below point into."""
    cdef Py_buffer view

    def __cinit__(self, data):
        PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


@cython.final
cdef class Column:
    """What is the same in every row: index, name, is_key, sql_type, mysql_type."""
    cdef readonly int index
    cdef readonly int sql_type
    cdef readonly str name
    cdef readonly str mysql_type
    cdef readonly bint is_key
    cdef int kind
    cdef tuple labels
    cdef int width                                 # of a binary(n): bytes of every value

    def __repr__(self):
        return f"Column({self.index}, {self.name!r}, {self.mysql_type!r})"


@cython.final
cdef class Form:
    """The bytes of a column up to `updated` and `value`, and what they say."""
    cdef bytes prefix
    cdef Column column
    cdef bint is_null


cdef dict known_columns = {}                       # (index, sqlType, name, isKey, mysqlType) -> Column
cdef list known_forms = [[] for _ in range(TABLES)]    # by table: WAYS forms for each place in a row, or None


@cython.final
cdef class Row:
    """A row's change: `before` and `after` map names to typed values; None for an image that the row lacks."""
    cdef readonly Change change
    cdef readonly dict before
    cdef readonly dict after
    cdef readonly tuple changed
    cdef tuple keys

    @property
    def schema(self):
        """Name of the database."""
        return self.change.schema

    @property
    def table(self):
        """Name of the table."""
        return self.change.table

    @property
    def type(self):
        """INSERT, UPDATE or DELETE."""
        return self.change.type

    @property
    def xa(self):
        """The XA transaction that the row belongs to, or None. `xa.state` says whether it is only prepared, so that
        the row may still be rolled back."""
        return self.change.xa

    @property
    def absent(self):
        """Names of the columns that neither image has, because the source's binlog_row_image is not FULL. In an INSERT
        they have their defaults; an UPDATE has not changed them."""
        return self.change.absent

    @property
    def key(self):
        """The primary key before the change, or after it for an INSERT: names to values; empty without one."""
        cdef dict image = self.after if self.before is None else self.before
        return {name: image[name] for name in self.keys if name in image}

    def __repr__(self):
        return f"Row({self.type} {self.schema}.{self.table} before={self.before!r} after={self.after!r})"


@cython.final
cdef class Change:
    """An entry. Its bytes are read when asked for; they keep those of the whole batch in memory."""
    cdef Buffer buffer
    cdef bint null_dates
    cdef Span body
    cdef Span logfile_name_
    cdef Span schema_
    cdef Span table_
    cdef Span gtid_
    cdef Span header
    cdef int entry_type_
    cdef int event_type_
    cdef readonly int64_t logfile_offset
    cdef readonly int64_t server_id
    cdef readonly int64_t execute_time
    cdef readonly int64_t event_length

    cdef int read_entry(self, const uint8_t *p, const uint8_t *end) except -1:
        cdef WireField field
        while p < end:
            p = field_at(p, end, &field)
            if field.tag == HEADER:
                self.header = span_of(&field)
            elif field.tag == ENTRY_TYPE:
                self.entry_type_ = <int32_t>field.value
            elif field.tag == STORE_VALUE:
                self.body = span_of(&field)
        p = self.header.data
        end = p + self.header.size
        while p < end:
            p = field_at(p, end, &field)
            if field.tag == LOGFILE_NAME:
                self.logfile_name_ = span_of(&field)
            elif field.tag == LOGFILE_OFFSET:
                self.logfile_offset = <int64_t>field.value
            elif field.tag == SERVER_ID:
                self.server_id = <int64_t>field.value
            elif field.tag == EXECUTE_TIME:
                self.execute_time = <int64_t>field.value
            elif field.tag == SCHEMA_NAME:
                self.schema_ = span_of(&field)
            elif field.tag == TABLE_NAME:
                self.table_ = span_of(&field)
            elif field.tag == EVENT_LENGTH:
                self.event_length = <int64_t>field.value
            elif field.tag == EVENT_TYPE:
                self.event_type_ = <int32_t>field.value
            elif field.tag == GTID:
                self.gtid_ = span_of(&field)
        return 0

    cdef WireField find(self, Span message, uint64_t tag) except *:
        """The last field of that tag in a message; zeros if it has none."""
        cdef WireField field
        cdef WireField found
        cdef const uint8_t *p = message.data
        cdef const uint8_t *end = p + message.size
        found.tag = found.value = 0
        found.data = NULL
        found.size = 0
        while p < end:
            p = field_at(p, end, &field)
            if field.tag == tag:
                found = field
        return found

    cdef str text(self, Span span):
        try:
            return text(span)
        except UnicodeDecodeError as error:
            raise DecodeError(f"not an entry: a string is not UTF-8: {error}") from None

    cdef dict pairs(self, Span message, uint64_t tag):
        cdef WireField field
        cdef const uint8_t *p = message.data
        cdef const uint8_t *end = p + message.size
        cdef dict result = {}
        cdef WireField key
        cdef WireField value
        while p < end:
            p = field_at(p, end, &field)
            if field.tag == tag:
                key = self.find(span_of(&field), KEY)
                value = self.find(span_of(&field), PAIR_VALUE)
                result[self.text(span_of(&key))] = self.text(span_of(&value))
        return result

    cdef str body_text(self, uint64_t tag, bint of_rows):
        cdef WireField field
        if (self.entry_type_ == ROWDATA) != of_rows:
            return ""
        field = self.find(self.body, tag)
        return self.text(span_of(&field))

    @property
    def entry_type(self):
        """TRANSACTIONBEGIN, ROWDATA or TRANSACTIONEND; the number as text when Canal has no name for it."""
        if 0 <= self.entry_type_ < <int>len(ENTRY_TYPES):
            return ENTRY_TYPES[self.entry_type_]
        return str(self.entry_type_)

    @property
    def type(self):
        """The event type (INSERT, UPDATE, DELETE, ALTER, QUERY …); empty for the ends of a transaction."""
        if 0 <= self.event_type_ < <int>len(EVENT_TYPES):
            return EVENT_TYPES[self.event_type_]
        return str(self.event_type_)

    @property
    def schema(self):
        """Name of the database."""
        return self.text(self.schema_)

    @property
    def table(self):
        """Name of the table."""
        return self.text(self.table_)

    @property
    def logfile_name(self):
        """Name of the binlog file."""
        return self.text(self.logfile_name_)

    @property
    def gtid(self):
        """The GTID set executed up to here; empty if the instance does not use GTIDs."""
        return self.text(self.gtid_)

    @property
    def header_props(self):
        """Properties of the header: rowsCount, curtGtid …"""
        return self.pairs(self.header, HEADER_PROPS)

    @property
    def xa(self):
        """The XA transaction that the entry belongs to, or whose end it says; None for other entries."""
        found = self.header_props.get(XA_PROP)
        return None if found is None else Xa.parse(found)

    @property
    def absent(self):
        """Names of the columns that no row of the entry has in either image; empty for an entry without rows."""
        return tuple(loads(self.props.get(ABSENT_PROP, "[]"))) if self.entry_type_ == ROWDATA else ()

    @property
    def props(self):
        """Properties of the row change or of the transaction's begin or end."""
        return self.pairs(self.body, ROW_CHANGE_PROPS if self.entry_type_ == ROWDATA else TRANSACTION_PROPS)

    @property
    def is_ddl(self):
        """Whether the entry is a statement that is not DML."""
        return self.entry_type_ == ROWDATA and self.find(self.body, IS_DDL).value != 0

    @property
    def sql(self):
        """The statement; empty for rows."""
        return self.body_text(SQL, True)

    @property
    def ddl_schema(self):
        """The default database of the statement."""
        return self.body_text(DDL_SCHEMA_NAME, True)

    @property
    def transaction_id(self):
        """At the end of a transaction: its XID as text."""
        return self.body_text(TRANSACTION_ID, False)

    @property
    def thread_id(self):
        """At the beginning of a transaction: the connection that ran it."""
        return 0 if self.entry_type_ == ROWDATA else <int64_t>self.find(self.body, THREAD_ID).value

    @property
    def raw(self):
        """The bytes of RowChange, TransactionBegin or TransactionEnd, as in Entry.storeValue."""
        return PyBytes_FromStringAndSize(<const char *>self.body.data, self.body.size)

    def rows(self):
        """The rows, decoded again at each call; empty for an entry without rows. Raises DecodeError."""
        cdef list rows = []
        self.add_rows(rows)
        return rows

    cdef int add_rows(self, list rows) except -1:
        cdef WireField field
        cdef const uint8_t *p = self.body.data
        cdef const uint8_t *end = p + self.body.size
        cdef list forms
        if self.entry_type_ != ROWDATA:
            return 0
        forms = <list>known_forms[self.table_number()]
        while p < end:
            p = field_at(p, end, &field)
            if field.tag == ROW_DATAS:
                rows.append(self.read_row(field.data, field.data + field.size, forms))
        return 0

    cdef uint32_t table_number(self) noexcept:
        """Only a hint about where to look for known columns: a collision costs time, not correctness."""
        cdef uint32_t number = 2166136261
        cdef size_t i
        for i in range(self.schema_.size):
            number = (number ^ self.schema_.data[i]) * 16777619
        for i in range(self.table_.size):
            number = (number ^ self.table_.data[i]) * 16777619
        return (number ^ number >> 16) % TABLES

    cdef Row read_row(self, const uint8_t *p, const uint8_t *end, list forms):
        cdef Row row = Row.__new__(Row)
        cdef WireField field
        cdef Py_ssize_t before = 0
        cdef Py_ssize_t after = 0
        cdef Cell cell
        cdef Form form
        cdef list changed = []
        cdef list keys = []
        cdef object converted
        row.change = self
        while p < end:
            p = field_at(p, end, &field)
            if field.tag == BEFORE_COLUMNS:
                form = self.read_column(field.data, field.data + field.size, forms, before, &cell)
                before += 1
                if row.before is None:
                    row.before = {}
                converted = None if form.is_null else self.convert(form.column, cell.value)
                row.before[form.column.name] = converted
                if form.column.is_key:
                    keys.append(form.column.name)
            elif field.tag == AFTER_COLUMNS:
                form = self.read_column(field.data, field.data + field.size, forms, after, &cell)
                after += 1
                if row.after is None:
                    row.after = {}
                converted = None if form.is_null else self.convert(form.column, cell.value)
                row.after[form.column.name] = converted
                if cell.updated:
                    changed.append(form.column.name)
                if form.column.is_key and not before:
                    keys.append(form.column.name)
        row.changed = tuple(changed)
        row.keys = tuple(keys)
        return row

    cdef Form read_column(self, const uint8_t *p, const uint8_t *end, list forms, Py_ssize_t place, Cell *cell):
        """The form of a column, by the bytes it begins with if they are known; of the cell only what changes."""
        cdef Form form
        cdef Py_ssize_t i
        cdef Py_ssize_t size
        place *= WAYS
        if place < len(forms):
            for i in range(place, place + WAYS):
                form = <Form>forms[i]
                if form is None:
                    break
                size = PyBytes_GET_SIZE(form.prefix)
                if end - p < size or memcmp(p, PyBytes_AS_STRING(form.prefix), size) != 0:
                    continue
                if get_changing(p + size, end, cell):
                    return form
                break
        if not get_cell(p, end, cell):
            raise malformed()
        form = Form.__new__(Form)
        form.column = self.column(
            <int32_t>cell.index, cell.sql_type, self.text(cell.name), cell.is_key, self.text(cell.mysql_type)
        )
        form.is_null = cell.is_null
        if cell.prefix and place < WAYS * 4096:
            form.prefix = PyBytes_FromStringAndSize(<const char *>p, cell.prefix)
            while len(forms) < place + WAYS:
                forms.append(None)
            if forms[place] is not None and (<Form>forms[place]).prefix != form.prefix:
                if forms[place + 1] is not None and (<Form>forms[place + 1]).prefix != form.prefix:
                    forms[place + 2] = forms[place + 1]
                forms[place + 1] = forms[place]
            forms[place] = form
        return form

    cdef Column column(self, int index, int sql_type, str name, bint is_key, str mysql_type):
        cdef Column column
        key = (index, sql_type, name, is_key, mysql_type)
        found = known_columns.get(key)
        if found is not None:
            return <Column>found
        column = Column.__new__(Column)
        column.index = index
        column.sql_type = sql_type
        column.name = name
        column.is_key = is_key
        column.mysql_type = mysql_type
        column.kind = kind_of(mysql_type, sql_type)
        column.width = width_of(mysql_type) if column.kind == BYTES else 0
        column.labels = labels_of(mysql_type) if column.kind in (ENUM, SET) else ()
        if len(known_columns) >= COLUMNS_MAX:
            known_columns.clear()
        known_columns[key] = column
        return column

    cdef object convert(self, Column column, Span value):
        try:
            if column.kind == INTEGER:
                return integer(value)
            if column.kind == TEXT:
                return text(value)
            if column.kind == BYTES:
                return latin1(value).ljust(column.width, b"\0")
            if column.kind == DATETIME or column.kind == DATE:
                return moment(value, column.kind == DATE, self.null_dates)
            if column.kind == DECIMAL:
                return decimal(value)
            if column.kind == FLOAT:
                return float(text(value))
            if column.kind == TIME:
                return duration(value)
            if column.kind == JSON:
                return document(value)
            if column.kind == ENUM:
                return label(column, value)
            return label_set(column, value)
        except (ValueError, ArithmeticError, RecursionError) as error:
            raise DecodeError(
                f"{self.schema}.{self.table}.{column.name}: not a value of the type {column.mysql_type}: {error}"
            ) from None

    def __repr__(self):
        place = f"{self.logfile_name}:{self.logfile_offset}"
        return f"Change({self.entry_type} {self.type} {self.schema}.{self.table} {place})"


# Values. Each function raises ValueError for text that is not of its form.

cdef object integer(Span value):
    cdef const uint8_t *p = value.data
    cdef const uint8_t *end = p + value.size
    cdef bint negative = value.size > 1 and p[0] == 45
    cdef uint64_t number = 0
    if negative:
        p += 1
    if not 1 <= end - p <= 20:
        raise ValueError("an integer of 1 to 20 digits is expected")
    if end - p == 20:                              # only 64-bit numbers without sign are that long
        if negative or not text(value).isdecimal():
            raise ValueError("an integer is expected")
        return int(text(value))
    while p < end:
        if not 48 <= p[0] <= 57:
            raise ValueError("an integer is expected")
        number = number * 10 + (p[0] - 48)
        p += 1
    if negative:
        return -<object>number
    return number


cdef object decimal(Span value):
    cdef size_t i
    cdef int points = 0
    cdef int digits = 0
    for i in range(value.size):
        if value.data[i] == 46:
            points += 1
        elif 48 <= value.data[i] <= 57:
            digits += 1
        elif value.data[i] != 45 or i:
            digits = -1000
    if digits < 1 or points > 1:
        raise ValueError("a decimal number is expected")
    return Decimal(text(value))


cdef bytes latin1(Span value):
    """Each byte is the character of its number, so one or two bytes in UTF-8."""
    cdef size_t i
    cdef size_t n = 0
    cdef bytes result
    cdef uint8_t *out
    cdef const uint8_t *p = value.data
    for i in range(value.size):
        n += (p[i] & 0xC0) != 0x80                 # a byte that begins a character
    result = PyBytes_FromStringAndSize(NULL, n)
    out = <uint8_t *>PyBytes_AS_STRING(result)
    i = 0
    n = 0
    while i < value.size:
        if p[i] < 0x80:
            out[n] = p[i]
            i += 1
        elif p[i] & 0xFE == 0xC2 and i + 1 < value.size and p[i + 1] & 0xC0 == 0x80:
            out[n] = <uint8_t>(p[i] << 6 | p[i + 1] & 0x3F)
            i += 2
        else:
            raise ValueError("a byte string must be characters up to U+00FF")
        n += 1
    return result


cdef int number_at(const uint8_t *p, int digits) except -1:
    cdef int number = 0
    cdef int i
    for i in range(digits):
        if not 48 <= p[i] <= 57:
            raise ValueError("a digit is expected")
        number = number * 10 + (p[i] - 48)
    return number


cdef int micros_at(const uint8_t *p, Py_ssize_t size) except -1:
    """The fraction of a second, with its point; 0 for no text at all."""
    cdef int micros
    cdef Py_ssize_t _i
    if size == 0:
        return 0
    if not 2 <= size <= 7 or p[0] != 46:
        raise ValueError("a fraction of 1 to 6 digits is expected")
    micros = number_at(p + 1, size - 1)
    for _i in range(7 - size):
        micros *= 10
    return micros


cdef object moment(Span value, bint is_date, bint null_dates):
    cdef const uint8_t *p = value.data
    cdef int year
    cdef int month
    cdef int day
    cdef int hour = 0
    cdef int minute = 0
    cdef int second = 0
    cdef int micros = 0
    if value.size < (10 if is_date else 19) or is_date and value.size > 10 or p[4] != 45 or p[7] != 45:
        raise ValueError("YYYY-MM-DD is expected" if is_date else "YYYY-MM-DD HH:MM:SS is expected")
    year = number_at(p, 4)
    month = number_at(p + 5, 2)
    day = number_at(p + 8, 2)
    if not is_date:
        if p[10] != 32 or p[13] != 58 or p[16] != 58:
            raise ValueError("YYYY-MM-DD HH:MM:SS is expected")
        hour = number_at(p + 11, 2)
        minute = number_at(p + 14, 2)
        second = number_at(p + 17, 2)
        micros = micros_at(p + 19, value.size - 19)
    try:
        return date_new(year, month, day) if is_date else datetime_new(
            year, month, day, hour, minute, second, micros, None
        )
    except ValueError:
        return None if null_dates else text(value)


cdef object duration(Span value):
    cdef const uint8_t *p = value.data
    cdef Py_ssize_t size = value.size
    cdef bint negative = size > 0 and p[0] == 45
    cdef Py_ssize_t hours
    cdef int seconds
    cdef int micros
    if negative:
        p += 1
        size -= 1
    hours = 3 if size > 3 and p[3] == 58 else 2
    if size < hours + 6 or p[hours] != 58 or p[hours + 3] != 58:
        raise ValueError("[-]HH:MM:SS is expected")
    seconds = number_at(p, hours) * 3600 + number_at(p + hours + 1, 2) * 60 + number_at(p + hours + 4, 2)
    micros = micros_at(p + hours + 6, size - hours - 6)
    if negative:
        seconds = -seconds
        micros = -micros
    return timedelta_new(0, seconds, micros)


cdef object document(Span value):
    cdef object found
    if value.size == 0:                            # a JSON column of no bytes, which MySQL reads as null
        return JSON_NULL
    if value.data[0] == 74:                        # J: no JSON text begins so
        return JsonExpression(text(value))
    found = loads(text(value))
    return JSON_NULL if found is None else found


cdef object label(Column column, Span value):
    cdef object number = integer(value)
    if number == 0:
        return ""
    if not 0 < number <= len(column.labels):
        raise ValueError(f"it has no member {number}")
    return column.labels[number - 1]


cdef object label_set(Column column, Span value):
    cdef object mask = integer(value)
    if mask < 0 or mask >> len(column.labels):
        raise ValueError(f"it has no members {mask}")
    return frozenset([name for i, name in enumerate(column.labels) if mask >> i & 1])


# The functions of the module.

cdef bint is_null_for(str invalid_dates) except -1:
    if invalid_dates not in ("text", "null"):
        raise ValueError(f"invalid_dates is 'text' or 'null', not {invalid_dates!r}")
    return invalid_dates == "null"


def decode_changes(data, *, str invalid_dates="text"):
    """The entries in a `Messages` or in any run of its framed entries, in order.

    `invalid_dates` says what a date that Python cannot hold becomes: its text, or None ("null"). Raises DecodeError;
    for the rows of an entry only when they are asked for.
    """
    cdef Buffer buffer = Buffer(data)
    cdef const uint8_t *p = <const uint8_t *>buffer.view.buf
    cdef const uint8_t *end = p + buffer.view.len
    cdef bint null_dates = is_null_for(invalid_dates)
    cdef WireField field
    cdef Change change
    cdef list changes = []
    while p < end:
        p = field_at(p, end, &field)
        if field.tag == MESSAGES:
            change = Change.__new__(Change)
            change.buffer = buffer
            change.null_dates = null_dates
            change.read_entry(field.data, field.data + field.size)
            changes.append(change)
    return changes


def decode_rows(data, *, str invalid_dates="text"):
    """The rows of all entries, in order; as decode_changes."""
    cdef list rows = []
    for change in decode_changes(data, invalid_dates=invalid_dates):
        (<Change>change).add_rows(rows)
    return rows


def occurs_in_header(data, bytes text):
    """Whether the header of an entry contains these bytes; quick, because rows are passed over. Raises DecodeError."""
    cdef Buffer buffer = Buffer(data)
    cdef const uint8_t *p = <const uint8_t *>buffer.view.buf
    cdef const uint8_t *end = p + buffer.view.len
    cdef const uint8_t *at
    cdef WireField entry
    cdef WireField field
    while p < end:
        p = field_at(p, end, &entry)
        if entry.tag != MESSAGES:
            continue
        at = entry.data
        while at < entry.data + entry.size:
            at = field_at(at, entry.data + entry.size, &field)
            if field.tag == HEADER and memmem(field.data, field.size, PyBytes_AS_STRING(text), len(text)) != NULL:
                return True
    return False


def envelope(data):
    """Batch id, first and last position of a `Messages`: (0, "", "") if it does not have them. Raises DecodeError."""
    cdef Buffer buffer = Buffer(data)
    cdef const uint8_t *p = <const uint8_t *>buffer.view.buf
    cdef const uint8_t *end = p + buffer.view.len
    cdef WireField field
    cdef int64_t batch_id = 0
    cdef str from_position = ""
    cdef str to_position = ""
    try:
        while p < end:
            p = field_at(p, end, &field)
            if field.tag == BATCH_ID:
                batch_id = <int64_t>field.value
            elif field.tag == FROM_POSITION:
                from_position = text(span_of(&field))
            elif field.tag == TO_POSITION:
                to_position = text(span_of(&field))
    except UnicodeDecodeError as error:
        raise DecodeError(f"not a batch: a position is not UTF-8: {error}") from None
    return batch_id, from_position, to_position
