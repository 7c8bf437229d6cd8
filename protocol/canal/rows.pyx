"""Entries to Python objects with typed values; entry.pxd says what the input is.

The bytes of a column before `updated` and `value` are looked up whole: a column that equals, up to there, one of the
last three seen at its place needs no parsing except for its value.
"""

import json
from decimal import Decimal

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.datetime cimport date_new, datetime_new, import_datetime, timedelta_new
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memset

from ..utf8 cimport get_latin1
from ..wire cimport Span
from .entry cimport (
    IMAGE_BEFORE,
    Cell,
    Entry,
    Envelope,
    Fields,
    Header,
    Marks,
    Prop,
    RowChange,
    Transaction,
    checked,
    fields_of,
    get_cell,
    get_changing,
    get_entry,
    get_envelope,
    get_header,
    get_row_change,
    get_transaction,
    malformed,
    next_body_prop,
    next_column,
    next_entry,
    next_header_prop,
    next_row,
    text_of,
)
from .tags cimport (
    BYTES,
    DATE,
    DATETIME,
    DECIMAL,
    ENUM,
    FLOAT,
    INSERT,
    INTEGER,
    JSON,
    ROWDATA,
    SET,
    TEXT,
    TIME,
)

from .. import props
from ..errors import DecodeError
from ..xa import Xa
from .tags import EntryType, EventType
from .types import JSON_NULL, JsonExpression, kind_of, labels_of, width_of

import_datetime()

cdef extern from "string.h" nogil:
    void *memmem(const void *haystack, size_t size, const void *needle, size_t needle_size)


cdef enum:
    WAYS = 3                                       # forms of a column that are kept: value, wider integer, NULL
    TABLES = 64                                    # tables whose columns are kept
    COLUMNS_MAX = 100_000                          # distinct columns kept before the memory of them is cleared

cdef tuple ENTRY_TYPES = ("", *(it.name for it in EntryType))
cdef tuple EVENT_TYPES = ("", *(it.name for it in EventType))

cdef object loads = json.loads


cdef inline str text(Span span):
    return PyUnicode_DecodeUTF8(<const char *>span.data, span.size, NULL) if span.size else ""


@cython.final
cdef class Buffer:
    """Keeps the bytes that objects below point into."""
    cdef Py_buffer view

    def __cinit__(self, data):
        PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)

    def __dealloc__(self):
        PyBuffer_Release(&self.view)

    cdef Fields fields(self):
        cdef Fields fields
        fields.p = <const uint8_t *>self.view.buf
        fields.end = fields.p + self.view.len
        return fields


# --- columns and rows ------------------------------------------------------------------------------------------------

@cython.final
cdef class RowColumn:
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
        return f"RowColumn({self.index}, {self.name!r}, {self.mysql_type!r})"


@cython.final
cdef class Form:
    """The bytes of a column up to `updated` and `value`, and what they say."""
    cdef bytes prefix
    cdef RowColumn column
    cdef bint is_null


cdef dict known_columns = {}                       # (index, sqlType, name, isKey, mysqlType) -> RowColumn
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
        """INSERT, UPDATE, DELETE, or READ of a snapshot."""
        return self.change.type

    @property
    def xa(self):
        """The XA transaction that the row belongs to, or None."""
        return self.change.xa

    @property
    def late(self):
        """The position where the row belongs, which comes out of its order, because it could not be decoded there; None
        for others. A key may have changed since: apply it only where the target does not have the key."""
        return self.change.late

    @property
    def snapshot(self):
        """Id of the snapshot that the row was read for; None for a change."""
        return self.change.snapshot

    @property
    def member(self):
        """Name of the member of a group that the row comes from; None where the source is a single one."""
        return self.change.member

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


# --- changes ---------------------------------------------------------------------------------------------------------

@cython.final
cdef class Change:
    """An entry. Its bytes are read when asked for; they keep those of the whole batch in memory."""
    cdef Buffer buffer
    cdef bint null_dates
    cdef Entry entry
    cdef Header header
    cdef Marks marks

    cdef int read_entry(self, Span message) except -1:
        if not get_entry(message, &self.entry) or not get_header(&self.entry, &self.header, &self.marks):
            malformed()
        return 0

    cdef RowChange row_change(self) except *:
        """All zero for an entry that is not one."""
        cdef RowChange change
        memset(&change, 0, sizeof(RowChange))
        if self.entry.type == ROWDATA and not get_row_change(&self.entry, &change):
            malformed()
        return change

    cdef Transaction transaction(self) except *:
        """All zero for an entry that neither begins nor ends one."""
        cdef Transaction transaction
        memset(&transaction, 0, sizeof(Transaction))
        if self.entry.type != ROWDATA and not get_transaction(&self.entry, &transaction):
            malformed()
        return transaction

    @property
    def entry_type(self):
        """TRANSACTIONBEGIN, ROWDATA or TRANSACTIONEND; the number as text when Canal has no name for it."""
        if 0 <= self.entry.type < <int>len(ENTRY_TYPES):
            return ENTRY_TYPES[self.entry.type]
        return str(self.entry.type)

    @property
    def type(self):
        """The event type (INSERT, UPDATE, DELETE, ALTER, QUERY …), or READ for rows of a snapshot; empty for the ends
        of a transaction."""
        if self.marks.snapshot.size and self.header.event_type == INSERT:
            return "READ"
        cdef int number = <int32_t>self.header.event_type
        if 0 <= number < <int>len(EVENT_TYPES):
            return EVENT_TYPES[number]
        return str(number)

    @property
    def schema(self):
        """Name of the database."""
        return text_of(self.header.schema)

    @property
    def table(self):
        """Name of the table."""
        return text_of(self.header.table)

    @property
    def logfile_name(self):
        """Name of the binlog file."""
        return text_of(self.header.file)

    @property
    def logfile_offset(self):
        """Offset of the event in that file."""
        return self.header.offset

    @property
    def server_id(self):
        """The server that first logged it."""
        return self.header.server_id

    @property
    def execute_time(self):
        """When it was executed: ms since 1970."""
        return self.header.execute_time

    @property
    def event_length(self):
        """Bytes of the event."""
        return self.header.event_length

    @property
    def gtid(self):
        """The GTID set executed up to here; empty if the instance does not use GTIDs."""
        return text_of(self.header.executed)

    @property
    def header_props(self):
        """Properties of the header: rowsCount, curtGtid …"""
        cdef Fields fields = fields_of(self.entry.header)
        cdef Prop prop
        cdef dict result = {}
        while checked(next_header_prop(&fields, &prop)):
            result[text_of(prop.key)] = text_of(prop.value)
        return result

    @property
    def xa(self):
        """The XA transaction that the entry belongs to, or None."""
        found = self.header_props.get(props.XA)
        return None if found is None else Xa.parse(found)

    @property
    def late(self):
        """The position where the entry belongs, if it comes out of its order; None for others."""
        return self.header_props.get(props.LATE)

    @property
    def snapshot(self):
        """Id of the snapshot that the rows were read for; None for other entries."""
        return text_of(self.marks.snapshot) if self.marks.snapshot.size else None

    @property
    def member(self):
        """Name of the member of a group that the entry comes from; None where the source is a single one."""
        return text_of(self.marks.member) if self.marks.member.size else None

    @property
    def absent(self):
        """Names of the columns that no row of the entry has in either image; empty for an entry without rows."""
        cdef Span names = self.row_change().absent
        return tuple(loads(text_of(names))) if names.size else ()

    @property
    def props(self):
        """Properties of the row change or of the transaction's begin or end."""
        cdef Fields fields = fields_of(self.entry.body)
        cdef Prop prop
        cdef dict result = {}
        while checked(next_body_prop(&self.entry, &fields, &prop)):
            result[text_of(prop.key)] = text_of(prop.value)
        return result

    @property
    def is_ddl(self):
        """Whether the entry is a statement that is not DML."""
        return self.row_change().is_ddl

    @property
    def sql(self):
        """The statement; empty for rows."""
        return text_of(self.row_change().sql)

    @property
    def ddl_schema(self):
        """The default database of the statement."""
        return text_of(self.row_change().ddl_schema)

    @property
    def transaction_id(self):
        """At the end of a transaction: its XID as text."""
        return text_of(self.transaction().id)

    @property
    def thread_id(self):
        """At the beginning of a transaction: the connection that ran it."""
        return self.transaction().thread_id

    @property
    def raw(self):
        """The bytes of RowChange, TransactionBegin or TransactionEnd, as in Entry.storeValue."""
        return PyBytes_FromStringAndSize(<const char *>self.entry.body.data, self.entry.body.size)

    def rows(self):
        """The rows, decoded again at each call; empty for an entry without rows. Raises DecodeError."""
        cdef list rows = []
        self.add_rows(rows)
        return rows

    cdef int add_rows(self, list rows) except -1:
        cdef Fields body = fields_of(self.entry.body)
        cdef Span row
        cdef list forms
        if self.entry.type != ROWDATA:
            return 0
        forms = <list>known_forms[self.table_number()]
        while checked(next_row(&body, &row)):
            rows.append(self.read_row(fields_of(row), forms))
        return 0

    cdef uint32_t table_number(self) noexcept:
        """Only a hint about where to look for known columns: a collision costs time, not correctness."""
        cdef uint32_t number = 2166136261
        cdef size_t i
        for i in range(self.header.schema.size):
            number = (number ^ self.header.schema.data[i]) * 16777619
        for i in range(self.header.table.size):
            number = (number ^ self.header.table.data[i]) * 16777619
        return (number ^ number >> 16) % TABLES

    cdef Row read_row(self, Fields columns, list forms):
        cdef Row row = Row.__new__(Row)
        cdef Span column
        cdef Py_ssize_t before = 0
        cdef Py_ssize_t after = 0
        cdef int image
        cdef Cell cell
        cdef Form form
        cdef list changed = []
        cdef list keys = []
        cdef object converted
        row.change = self
        while True:
            image = checked(next_column(&columns, &column))
            if not image:
                break
            if image == IMAGE_BEFORE:
                form = self.read_column(column, forms, before, &cell)
                before += 1
                if row.before is None:
                    row.before = {}
                converted = None if form.is_null else self.convert(form.column, cell.value)
                row.before[form.column.name] = converted
                if form.column.is_key:
                    keys.append(form.column.name)
            else:
                form = self.read_column(column, forms, after, &cell)
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

    cdef Form read_column(self, Span column, list forms, Py_ssize_t place, Cell *cell):
        """The form of a column, by the bytes it begins with if they are known; of the cell only what changes."""
        cdef const uint8_t *p = column.data
        cdef const uint8_t *end = p + column.size
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
                if get_changing(p + size, end, &cell.updated, &cell.value):
                    return form
                break
        if not get_cell(column, cell):
            malformed()
        form = Form.__new__(Form)
        form.column = self.column(
            <int32_t>cell.index, cell.sql_type, text_of(cell.name), cell.is_key, text_of(cell.mysql_type)
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

    cdef RowColumn column(self, int index, int sql_type, str name, bint is_key, str mysql_type):
        cdef RowColumn column
        key = (index, sql_type, name, is_key, mysql_type)
        found = known_columns.get(key)
        if found is not None:
            return <RowColumn>found
        column = RowColumn.__new__(RowColumn)
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

    cdef object convert(self, RowColumn column, Span value):
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


# --- values ----------------------------------------------------------------------------------------------------------

# Each function raises ValueError for text that is not of its form.

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
    for i in range(value.size):
        n += (value.data[i] & 0xC0) != 0x80        # a byte that begins a character
    result = PyBytes_FromStringAndSize(NULL, n)
    if get_latin1(<uint8_t *>PyBytes_AS_STRING(result), value.data, value.size) == NULL:
        raise ValueError("a byte string must be characters up to U+00FF")
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


cdef object label(RowColumn column, Span value):
    cdef object number = integer(value)
    if number == 0:
        return ""
    if not 0 < number <= len(column.labels):
        raise ValueError(f"it has no label {number}")
    return column.labels[number - 1]


cdef object label_set(RowColumn column, Span value):
    cdef object mask = integer(value)
    if mask < 0 or mask >> len(column.labels):
        raise ValueError(f"it has no labels {mask}")
    return frozenset([name for i, name in enumerate(column.labels) if mask >> i & 1])


# The functions of the module.

cdef bint is_null_for(str invalid_dates) except -1:
    if invalid_dates not in ("text", "null"):
        raise ValueError(f"invalid_dates is 'text' or 'null', not {invalid_dates!r}")
    return invalid_dates == "null"


# --- decoding --------------------------------------------------------------------------------------------------------

def decode_changes(data, *, str invalid_dates="text"):
    """The entries in a `Messages` or in any run of its framed entries, in order.

    `invalid_dates` says what a date that Python cannot hold becomes: its text, or None ("null"). Raises DecodeError;
    for the rows of an entry only when they are asked for.
    """
    cdef Buffer buffer = Buffer(data)
    cdef Fields batch = buffer.fields()
    cdef bint null_dates = is_null_for(invalid_dates)
    cdef Span message
    cdef Change change
    cdef list changes = []
    while checked(next_entry(&batch, &message)):
        change = Change.__new__(Change)
        change.buffer = buffer
        change.null_dates = null_dates
        change.read_entry(message)
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
    cdef Fields batch = buffer.fields()
    cdef Span message
    cdef Entry entry
    while checked(next_entry(&batch, &message)):
        if not get_entry(message, &entry):
            malformed()
        if memmem(entry.header.data, entry.header.size, PyBytes_AS_STRING(text), len(text)) != NULL:
            return True
    return False


def envelope(data):
    """Batch id, first and last position of a `Messages`: (0, "", "") if it does not have them. Raises DecodeError."""
    cdef Buffer buffer = Buffer(data)
    cdef Envelope found
    if not get_envelope(buffer.fields(), &found):
        malformed()
    try:
        return found.batch_id, text(found.first), text(found.last)
    except UnicodeDecodeError as error:
        raise DecodeError(f"not a batch: a position is not UTF-8: {error}") from None
