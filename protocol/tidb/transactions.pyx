"""Entries to records of TiDB's secondary binlog, as its Drainer writes them: see entries.pyx for their fields.

A record is a transaction or a DDL. A transaction has each of its tables once, in the order of their first changes, each
with its changes in their order. So it is gathered until its end comes, over as many batches as that takes, and within
the limit of a record.

The commit_ts of a record is the one that its entries say; where they say none, the time of its commit in ms, shifted
by 18 bits. It is at least that of the record before and 1. So it depends on nothing but the stream and the last
commit_ts, which is the state. The unique keys of a table are those that its entries say, else the primary key.

An update that changes the primary key is a delete and an insert, as in TiDB. Types that TiDB does not have are sent as
the text or the bytes that they are.
"""

import json
import re

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memmove, memset
from cython.operator cimport dereference
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from ..buffer cimport Buffer, reserve
from ..canal.columns cimport Columns, Meaning
from ..canal.entry cimport (
    IMAGE_AFTER,
    IMAGE_BEFORE,
    Cell,
    Fields,
    Prop,
    checked,
    fields_of,
    get_header,
    malformed,
    next_column_of,
    next_header_prop,
    next_row,
    text_of,
)
from ..canal.flat cimport Change, put, read_change
from ..canal.records cimport MARKER, PARTIAL, TOO_LARGE, Encoder, Record, Text, done
from ..canal.tags cimport DELETE, INSERT, QUERY, TRANSACTIONBEGIN, TRANSACTIONEND
from ..numbers cimport parse_number
from ..utf8 cimport get_latin1
from ..wire cimport (
    VARINT_MAX,
    Span,
    is_same,
    message_field,
    put_raw,
    put_varint,
    span_at,
    text_field,
    uint_field,
    varint_size,
)
from .tags cimport (
    BINLOG_TYPE,
    CELL_BYTES,
    CELL_DOUBLE,
    CELL_INT,
    CELL_NULL,
    CELL_STRING,
    CELL_UINT,
    COMMIT_TS,
    DDL,
    DDL_DATA,
    DECIMALS,
    DML,
    DML_DATA,
    FIRST,
    FLEN,
    IS_PRIMARY_KEY,
    LOGICAL_BITS,
    MUTATIONS,
    MUTATION_TYPE,
    SECOND,
    THIRD,
    UNIQUE_KEYS,
)

from typing import NamedTuple

from .. import props
from ..canal.tags import ValueKind
from ..canal.types import kind_of, labels_of
from ..errors import TransactionTooLargeError, UnfitChangeError


cdef enum:
    # Types of a mutation.
    INSERTED = 0
    UPDATED = 1
    DELETED = 2

    # How a value is written.
    SIGNED = 0
    UNSIGNED = 1
    DOUBLE = 2
    SINGLE = 3                                     # FLOAT: widened to a double
    STRING = 4
    DOCUMENT = 5                                   # JSON: its text, as bytes
    RAW = 6                                        # bytes, which the entry has as the characters of their numbers
    BITS = 7                                       # bytes of a number, the highest first

    # Why an entry cannot be sent, beside what records.pxd has.
    STATEMENT = 16
    SNAPSHOT = 17
    TRANSACTION_TOO_LARGE = 18

    NONE = -1                                      # instead of a number
    GUESS = 2                                      # bytes that the length of a row mostly takes
    AROUND = 2 * (1 + VARINT_MAX) + 8              # bytes of a cell that are not its text, at most
    RECORD = 4 + 2 * VARINT_MAX                    # ... of a record that are not its tables
    TABLE = 1 + VARINT_MAX                         # ... of a table that are neither its head, rows nor keys
    KNOWN_MAX = 1 << 16                            # tables, and columns, that are known again
    KEPT = 16 << 20                                # bytes of a transaction whose room is kept for the next one


cdef bytes _COMMIT_TS = props.COMMIT_TS.encode()
cdef bytes _KEYS = props.KEYS.encode()
cdef Span COMMIT_TS_KEY = span_at(_COMMIT_TS, len(_COMMIT_TS))
cdef Span KEYS_KEY = span_at(_KEYS, len(_KEYS))


# --- types -----------------------------------------------------------------------------------------------------------

class _Type(NamedTuple):
    """What a record says of the type of a column, and how its values are written."""

    name: str
    way: int
    length: int
    digits: int
    width: int                                     # bytes of each value that has a fixed number of them, else 0


_TYPE = re.compile(r"\s*([A-Za-z0-9_]+)(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_INTEGERS = {"tinyint": (4, 3), "smallint": (6, 5), "mediumint": (9, 8), "int": (11, 10), "bigint": (20, 20)}
_TEMPORALS = {"time": 10, "datetime": 19, "timestamp": 19}
_TEXTS = {"tinytext": 255, "text": 65535, "mediumtext": 16777215, "longtext": -1}
_BLOBS = {"tinyblob": 255, "blob": 65535, "mediumblob": 16777215, "longblob": -1}
_BINARIES = {"char": "binary", "varchar": "varbinary", **dict(zip(_TEXTS, _BLOBS, strict=True))}
_FOREIGN = {"uuid": 36, "inet4": 15, "inet6": 39}


def _type_of(str mysql_type, int sql_type):
    """The type of a column, with the length and digits that TiDB gives where none are written."""
    match = _TYPE.match(mysql_type)
    if match is None:
        return _Type("longtext", STRING, -1, 0, 0)
    name = match[1].lower()
    first, second = (None if it is None else int(it) for it in match.group(2, 3))
    kind = kind_of(mysql_type, sql_type)
    if kind == ValueKind.BYTES:
        name = _BINARIES.get(name, name)
        if name in ("binary", "varbinary"):
            length = 1 if first is None else first
            return _Type(name, RAW, length, 0, length if name == "binary" else 0)
        return _Type(name if name in _BLOBS else "longblob", RAW, _BLOBS.get(name, -1), 0, 0)
    if name in _INTEGERS:
        unsigned = "unsigned" in mysql_type.lower() or "zerofill" in mysql_type.lower()
        length = _INTEGERS[name][unsigned] if first is None else first
        return _Type(name, UNSIGNED if unsigned else SIGNED, length, 0, 0)
    if name in ("float", "double"):
        length = (12 if name == "float" else 22) if first is None else first
        return _Type(name, SINGLE if name == "float" else DOUBLE, length, -1 if second is None else second, 0)
    if name in _TEMPORALS:
        digits = first or 0
        return _Type(name, STRING, _TEMPORALS[name] + (digits + 1 if digits else 0), digits, 0)
    if name in ("enum", "set"):
        labels = [len(it) for it in labels_of(mysql_type)] if "(" in mysql_type else []
        length = max(labels, default=-1) if name == "enum" or not labels else sum(labels) + len(labels) - 1
        return _Type(name, UNSIGNED, length, 0, 0)
    if name == "bit":
        length = first or 1
        return _Type(name, BITS, length, 0, (length + 7) // 8)
    if name == "decimal":
        return _Type(name, STRING, 10 if first is None else first, second or 0, 0)
    if name in ("char", "varchar"):
        return _Type(name, STRING, 1 if first is None else first, 0, 0)
    if name in _FOREIGN:
        return _Type("char", STRING, _FOREIGN[name], 0, 0)
    fixed = {"date": 10, "year": 4}.get(name)
    if fixed is not None:
        return _Type(name, STRING, fixed, 0, 0)
    if name == "json":
        return _Type(name, DOCUMENT, -1, 0, 0)
    return _Type(name if name in _TEXTS else "longtext", STRING, _TEXTS.get(name, -1), 0, 0)


cdef struct Column:
    int way
    size_t width
    bint is_key


@cython.final
cdef class _Columns(Columns):
    """Columns by their numbers: a column of the same name and type, in the key or not, has the same number."""
    cdef vector[Column] all
    cdef dict numbers
    cdef list descriptions                         # of each its name, its _Type, and whether it is in the key

    def __cinit__(self):
        self.numbers = {}
        self.descriptions = []

    cdef int learn(self, Meaning *meaning) except -1:
        cdef Column column
        cdef bint is_key = meaning.cell.is_key
        type_ = _type_of(text_of(meaning.cell.mysql_type), meaning.cell.sql_type)
        description = text_of(meaning.cell.name), type_, is_key
        number = self.numbers.get(description)
        if number is None:
            number = self.numbers[description] = len(self.descriptions)
            self.descriptions.append(description)
            column.way, column.width, column.is_key = type_.way, type_.width, is_key
            self.all.push_back(column)
        meaning.kind = number
        return 0


# --- what is gathered ------------------------------------------------------------------------------------------------

cdef struct Table:
    Text head                                      # in `heads`: its fields before the rows ...
    Text keys                                      # ... and those after
    int32_t part                                   # of the transaction, where that has the table


cdef struct TableChanges:
    # The changes of a table in a transaction.
    int32_t table
    int32_t first                                  # piece
    int32_t last
    size_t size


cdef struct Piece:
    # The changes of an entry.
    Text text                                      # in `changes`
    int32_t next                                   # of the same part, or NONE


cdef struct Gathered:
    # A transaction, as far as it has come.
    bint is_open
    bint is_dropped                                # it is too large, and left out
    uint64_t begin                                 # where it begins in the stream
    int64_t last                                   # the commit_ts before it
    int32_t entry                                  # its first one in the batch
    int32_t rows
    size_t size                                    # of its record, or a few bytes more
    size_t changes                                 # where its own begin, of `changes`, `pieces` and `parts`
    size_t pieces
    size_t parts


cdef size_t open_field(Buffer *out, uint8_t tag) except 0 nogil:
    """Begin a field whose length is not known; where that is to be said to `close_field`."""
    reserve(out, 1 + GUESS)
    out.data[out.size] = tag
    out.size += 1 + GUESS
    return out.size


cdef int close_field(Buffer *out, size_t start) except -1 nogil:
    cdef size_t size = out.size - start
    cdef size_t width = varint_size(size)
    if width != GUESS:
        reserve(out, VARINT_MAX)
        memmove(out.data + start - GUESS + width, out.data + start, size)
        out.size = start - GUESS + width + size
    put_varint(out.data + start - GUESS, size)
    return 0


def _read_keys(str text):
    """The unique keys that an entry says. Raises DecodeError."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(
        isinstance(key, list) and key and all(isinstance(it, str) for it in key) for key in found
    ):
        malformed()
    return found


cdef inline size_t framed(size_t size) noexcept nogil:
    """Bytes of a field whose content has ``size``, with its tag of one byte and its length."""
    return 1 + varint_size(size) + size


cdef int find_prop(Span header, Span key, Span *value) except -1 nogil:
    """The value of a property of a header; empty if it has none."""
    cdef Fields fields = fields_of(header)
    cdef Prop prop
    value[0] = span_at(NULL, 0)
    while checked(next_header_prop(&fields, &prop)):
        if is_same(prop.key, key):
            value[0] = prop.value
    return 0


cdef int64_t read_commit_ts(const Change *change) except -1 nogil:
    """The commit_ts that an entry says; else the first of its time."""
    cdef Span text
    cdef int64_t found = 0
    find_prop(change.entry.header, COMMIT_TS_KEY, &text)
    if text.size == 0:
        return change.header.execute_time << LOGICAL_BITS
    if not parse_number(<const char *>text.data, <const char *>text.data + text.size, &found) or found <= 0:
        malformed()
    return found


cdef int read_signed(Span text, uint64_t *number) except -1 nogil:
    cdef int64_t found = 0
    if not parse_number(<const char *>text.data, <const char *>text.data + text.size, &found):
        malformed()
    number[0] = <uint64_t>found
    return 0


cdef int read_unsigned(Span text, uint64_t *number) except -1 nogil:
    number[0] = 0
    if not parse_number(<const char *>text.data, <const char *>text.data + text.size, number):
        malformed()
    return 0


cdef int read_double(Span text, bint is_single, double *number) except -1 nogil:
    cdef const char *p = <const char *>text.data
    cdef float single = 0
    if not (parse_number(p, p + text.size, &single) if is_single else parse_number(p, p + text.size, number)):
        malformed()
    if is_single:
        number[0] = single
    return 0


@cython.final
cdef class TidbEncoder(Encoder):
    """Makes records of batches that follow one another. All have topic 0 and partition 0, and no key."""
    cdef _Columns columns
    cdef int64_t last                              # the commit_ts of the last record; 0 for none
    cdef Gathered open
    cdef Buffer changes
    cdef vector[Piece] pieces
    cdef vector[TableChanges] parts_of             # the parts of the transaction

    cdef vector[Table] tables
    cdef unordered_map[string, int32_t] table_numbers      # by the names, and the numbers of the columns
    cdef string heads
    cdef list names                                # of the tables: schema.table
    cdef vector[int32_t] row                       # the numbers of the columns of the entry's first row
    cdef string key                                # the cells of the key, of an update's row after ...
    cdef string old_key                            # ... and before
    cdef vector[int32_t] too_large                 # the tables of the transaction that is

    cdef int64_t last_before                       # how it was when the batch began
    cdef Gathered open_before
    cdef size_t changes_before
    cdef size_t pieces_before
    cdef vector[TableChanges] parts_before

    def __cinit__(self):
        memset(&self.changes, 0, sizeof(Buffer))
        memset(&self.open, 0, sizeof(Gathered))

    def __dealloc__(self):
        free(self.changes.data)

    def __init__(self, *, size_t limit):
        """`limit`: bytes of a record."""
        self.limit = limit
        self.forget_tables()

    @property
    def state(self):
        """The commit_ts of the last record, as text; empty before the first one.

        What is gathered, or was sent, of a transaction that goes on is not part of it: another encoder begins before
        that.
        """
        cdef int64_t last = self.open.last if self.open.is_open else self.last
        return str(last) if last else ""

    @state.setter
    def state(self, str text not None):
        self.last = int(text) if text else 0
        memset(&self.open, 0, sizeof(Gathered))

    def undo(self):
        """See `Encoder.undo`."""
        cdef size_t i
        self.last = self.last_before
        self.open = self.open_before
        self.changes.size = self.changes_before
        self.pieces.resize(self.pieces_before)
        self.parts_of = self.parts_before
        for i in range(self.parts_of.size()):
            self.pieces[self.parts_of[i].last].next = NONE

    cdef int open_batch(self) except -1:
        """Keep of what was gathered only the transaction that goes on."""
        cdef size_t i
        if not self.open.is_open:
            self.open.changes, self.open.pieces, self.open.parts = (
                self.changes.size, self.pieces.size(), self.parts_of.size()
            )
        self.changes.size -= self.open.changes
        if self.open.changes and self.changes.size:
            memmove(self.changes.data, self.changes.data + self.open.changes, self.changes.size)
        self.pieces.erase(self.pieces.begin(), self.pieces.begin() + self.open.pieces)
        self.parts_of.erase(self.parts_of.begin(), self.parts_of.begin() + self.open.parts)
        for i in range(self.pieces.size()):
            self.pieces[i].text.at -= self.open.changes
            if self.pieces[i].next != NONE:
                self.pieces[i].next -= <int32_t>self.open.pieces
        for i in range(self.parts_of.size()):
            self.parts_of[i].first -= <int32_t>self.open.pieces
            self.parts_of[i].last -= <int32_t>self.open.pieces
            self.tables[self.parts_of[i].table].part = <int32_t>i
        self.open.changes = self.open.pieces = self.open.parts = 0
        self.open.entry = 0
        if not self.open.is_open:
            self.forget()
        self.last_before, self.open_before = self.last, self.open
        self.changes_before, self.pieces_before = self.changes.size, self.pieces.size()
        self.parts_before = self.parts_of
        return 0

    cdef int forget(self) except -1:
        """Give back what only few batches need."""
        if self.changes.capacity > KEPT:
            free(self.changes.data)
            memset(&self.changes, 0, sizeof(Buffer))
        if self.tables.size() > KNOWN_MAX or self.columns.all.size() > KNOWN_MAX:
            self.forget_tables()
        return 0

    cdef int forget_tables(self) except -1:
        self.columns = _Columns()
        self.tables.clear()
        self.table_numbers.clear()
        self.heads.clear()
        self.names = []
        return 0

    cdef bint add(self, Span message) except -1 nogil:
        cdef Change change
        cdef int is_change = read_change(message, &change)
        done(is_change)
        if not is_change:
            if not get_header(&change.entry, &change.header, &change.marks):
                malformed()
            if change.entry.type == TRANSACTIONBEGIN:
                self.start()
            elif change.entry.type == TRANSACTIONEND:
                if self.is_inside():
                    self.put_transaction(read_commit_ts(&change))
                self.open.is_open = False
            return True
        if change.marks.is_marker:
            return self.stop_at(MARKER, &change, span_at(NULL, 0), 0)
        if change.row.is_ddl:
            return self.add_ddl(&change)
        if change.event_type == QUERY:             # the text of what the rows say
            return True
        if not self.is_inside():
            self.start()
        return self.open.is_dropped or self.add_rows(&change)

    cdef bint is_inside(self) noexcept nogil:
        """Whether the entry belongs to the transaction that is gathered."""
        return self.open.is_open and self.open.begin == self.transaction

    cdef int start(self) except -1 nogil:
        """Gather a transaction. One before it that has no end was never committed."""
        self.open.is_open, self.open.is_dropped = True, False
        self.open.begin, self.open.entry, self.open.last = self.transaction, self.entry, self.last
        self.open.changes, self.open.pieces = self.changes.size, self.pieces.size()
        self.open.parts = self.parts_of.size()
        self.open.rows, self.open.size = 0, RECORD
        return 0

    # --- rows

    cdef bint add_rows(self, const Change *change) except -1 nogil:
        cdef Fields rows = fields_of(change.entry.body)
        cdef Span row
        cdef size_t start = self.changes.size
        cdef int32_t table = NONE
        cdef int32_t count = 0
        if change.marks.snapshot.size:
            return self.stop_at(SNAPSHOT, change, span_at(NULL, 0), 0)
        if change.row.absent.size:
            return self.stop_at(PARTIAL, change, span_at(NULL, 0), 0)
        self.row.clear()
        while change.image and checked(next_row(&rows, &row)):
            self.put_row(change.event_type, row)
            if table == NONE:
                table = self.find_table(change)
            count += 1
            if self.open.size + self.changes.size - start > self.limit:
                return self.drop(change, table, start)
        if not count:
            return self.stop_at(STATEMENT, change, span_at(NULL, 0), 0)
        self.link(table, start)
        self.open.rows += count
        return self.open.size <= self.limit or self.drop(change, table, self.changes.size)

    cdef int put_row(self, uint64_t event_type, Span row) except -1 nogil:
        cdef size_t start = self.changes.size
        if event_type == INSERT:
            return self.put_mutation(INSERTED, row, IMAGE_AFTER)
        if event_type == DELETE:
            return self.put_mutation(DELETED, row, IMAGE_BEFORE)
        self.put_mutation(UPDATED, row, IMAGE_AFTER)
        if self.key.compare(self.old_key) == 0:
            return 0
        self.changes.size = start
        self.put_mutation(DELETED, row, IMAGE_BEFORE)
        return self.put_mutation(INSERTED, row, IMAGE_AFTER)

    cdef int put_mutation(self, int type, Span row, int image) except -1 nogil:
        cdef Buffer *out = &self.changes
        cdef size_t start = open_field(out, MUTATIONS)
        reserve(out, 2)
        out.data[out.size] = MUTATION_TYPE
        out.data[out.size + 1] = <uint8_t>type
        out.size += 2
        self.put_image(row, image, SECOND, &self.key)
        if type == UPDATED:
            self.put_image(row, IMAGE_BEFORE, THIRD, &self.old_key)
        return close_field(out, start)

    cdef int put_image(self, Span row, int image, uint8_t tag, string *key) except -1 nogil:
        cdef Fields columns = fields_of(row)
        cdef Span message
        cdef Cell cell
        cdef int32_t number
        cdef size_t place = 0
        cdef size_t at
        cdef bint is_first = self.row.empty()
        cdef size_t start = open_field(&self.changes, tag)
        key.clear()
        while checked(next_column_of(&columns, image, &message)):
            number = self.columns.read(message, place, &cell).kind
            if is_first:
                self.row.push_back(number)
            elif place >= self.row.size() or self.row[place] != number:
                malformed()
            place += 1
            at = self.changes.size
            self.put_cell(&self.columns.all[number], &cell)
            if self.columns.all[number].is_key:
                key.append(<const char *>self.changes.data + at, self.changes.size - at)
        if place != self.row.size():
            malformed()
        return close_field(&self.changes, start)

    cdef int put_cell(self, const Column *column, const Cell *cell) except -1 nogil:
        cdef Buffer *out = &self.changes
        cdef Span text = cell.value
        cdef uint8_t *p
        cdef uint64_t number = 0
        cdef double real = 0
        cdef size_t size
        reserve(out, AROUND + text.size + column.width)
        p = out.data + out.size
        p[0] = FIRST
        if cell.is_null:
            p[1], p[2], p[3] = 2, CELL_NULL, 1
            p += 4
        elif column.way == STRING or column.way == DOCUMENT:
            if column.way == DOCUMENT and text.size == 0:  # a column of no bytes, which MySQL reads as null
                text = span_at(b"null", 4)
            p = put_varint(p + 1, framed(text.size))
            p[0] = CELL_STRING if column.way == STRING else CELL_BYTES
            p = put_raw(put_varint(p + 1, text.size), text.data, text.size)
        elif column.way == SIGNED or column.way == UNSIGNED:
            if column.way == SIGNED:
                read_signed(text, &number)
            else:
                read_unsigned(text, &number)
            p[1] = <uint8_t>(1 + varint_size(number))
            p[2] = CELL_INT if column.way == SIGNED else CELL_UINT
            p = put_varint(p + 3, number)
        elif column.way == BITS:
            read_unsigned(text, &number)
            p[1], p[2], p[3] = <uint8_t>(2 + column.width), CELL_BYTES, <uint8_t>column.width
            p += 4
            size = column.width
            while size:
                size -= 1
                p[0] = <uint8_t>(number >> 8 * size)
                p += 1
        elif column.way == RAW:
            p = self.put_bytes(p, text, column.width)
        else:
            read_double(text, column.way == SINGLE, &real)
            p[1], p[2] = 1 + sizeof(double), CELL_DOUBLE
            memcpy(p + 3, &real, sizeof(double))
            p += 3 + sizeof(double)
        out.size = p - out.data
        return 0

    cdef uint8_t *put_bytes(self, uint8_t *p, Span text, size_t width) except NULL nogil:
        """A cell of bytes, with zeros at the end up to the width."""
        cdef size_t size = 0
        cdef size_t i
        cdef uint8_t *end
        for i in range(text.size):
            size += (text.data[i] & 0xC0) != 0x80  # a byte that begins a character
        width = max(width, size)
        p = put_varint(p + 1, framed(width))
        p[0] = CELL_BYTES
        p = put_varint(p + 1, width)
        end = get_latin1(p, text.data, text.size)
        if end == NULL:
            malformed()
        memset(end, 0, p + width - end)
        return p + width

    cdef int32_t find_table(self, const Change *change) except -1 nogil:
        """The table of an entry, with the columns of the row that was put first."""
        cdef unordered_map[string, int32_t].iterator found
        cdef string key
        cdef Span keys
        cdef int32_t number
        find_prop(change.entry.header, KEYS_KEY, &keys)
        key.append(<const char *>keys.data, keys.size)
        key.push_back(0)
        key.append(<const char *>change.header.schema.data, change.header.schema.size)
        key.push_back(0)
        key.append(<const char *>change.header.table.data, change.header.table.size)
        key.push_back(0)
        key.append(<const char *>self.row.data(), self.row.size() * sizeof(int32_t))
        found = self.table_numbers.find(key)
        if found != self.table_numbers.end():
            return dereference(found).second
        with gil:
            number = self.add_table(
                text_of(change.header.schema), text_of(change.header.table), text_of(keys)
            )
        self.table_numbers[key] = number
        return number

    cdef int32_t add_table(self, str schema, str table, str unique_keys) except -1:
        cdef Table made
        cdef bytes text
        columns = [self.columns.descriptions[number] for number in self.row]
        head = text_field(FIRST, schema) + text_field(SECOND, table)
        for name, type_, is_key in columns:
            head += message_field(
                THIRD,
                text_field(FIRST, name)
                + text_field(SECOND, type_.name)
                + uint_field(IS_PRIMARY_KEY, is_key)
                + uint_field(FLEN, type_.length)
                + uint_field(DECIMALS, type_.digits),
            )
        primary_key = ["PRIMARY", *(name for name, _, is_key in columns if is_key)]
        found = _read_keys(unique_keys) if unique_keys else [primary_key] if len(primary_key) > 1 else []
        keys = b"".join(
            message_field(UNIQUE_KEYS, text_field(FIRST, name) + b"".join(text_field(SECOND, it) for it in members))
            for name, *members in found
        )
        made.head.at, made.head.size = self.heads.size(), len(head)
        made.keys.at, made.keys.size = made.head.at + made.head.size, len(keys)
        made.part = 0
        text = head + keys
        self.heads.append(<const char *>text, len(text))
        self.tables.push_back(made)
        self.names.append(f"{schema}.{table}")
        return <int32_t>self.tables.size() - 1

    cdef int link(self, int32_t table, size_t start) except -1 nogil:
        """Count what was put since `start` as changes of a table."""
        cdef Piece piece
        cdef TableChanges made
        cdef TableChanges *part
        cdef int32_t number = self.tables[table].part
        cdef int32_t last = <int32_t>self.pieces.size()
        if not (
            self.open.parts <= <size_t>number < self.parts_of.size() and self.parts_of[number].table == table
        ):
            number = self.tables[table].part = <int32_t>self.parts_of.size()
            made.table, made.first, made.last, made.size = table, last, NONE, 0
            self.parts_of.push_back(made)
            self.open.size += TABLE + self.tables[table].head.size + self.tables[table].keys.size
        piece.text.at, piece.text.size = start, self.changes.size - start
        piece.next = NONE
        self.pieces.push_back(piece)
        part = &self.parts_of[number]
        if part.last != NONE:
            self.pieces[part.last].next = last
        part.last = last
        part.size += piece.text.size
        self.open.size += piece.text.size
        return 0

    cdef bint drop(self, const Change *change, int32_t table, size_t start) except -1 nogil:
        """Leave the transaction out, because it is too large for a record."""
        cdef size_t size = self.open.size + self.changes.size - start
        cdef size_t i
        self.too_large.clear()
        for i in range(self.open.parts, self.parts_of.size()):
            self.too_large.push_back(self.parts_of[i].table)
        self.too_large.push_back(table)
        self.open.is_dropped = True
        self.empty()
        return self.stop_at(TRANSACTION_TOO_LARGE, change, span_at(NULL, 0), size)

    cdef int empty(self) except -1 nogil:
        """Forget what was gathered of the transaction."""
        self.changes.size = self.open.changes
        self.pieces.resize(self.open.pieces)
        self.parts_of.resize(self.open.parts)
        self.open.rows, self.open.size = 0, RECORD
        return 0

    # --- records

    cdef int put_transaction(self, int64_t commit_ts) except -1 nogil:
        """A record of what was gathered, if that is anything."""
        cdef const TableChanges *part
        cdef size_t size = 0
        cdef size_t i
        cdef size_t start = self.out.size
        cdef int32_t piece
        if self.open.parts == self.parts_of.size():
            return 0
        for i in range(self.open.parts, self.parts_of.size()):
            size += framed(self.size_of(&self.parts_of[i]))
        self.put_head(DML, commit_ts)
        self.put_length(DML_DATA, size)
        for i in range(self.open.parts, self.parts_of.size()):
            part = &self.parts_of[i]
            self.put_length(FIRST, self.size_of(part))
            self.put_text(self.heads.data(), self.tables[part.table].head)
            piece = part.first
            while piece != NONE:
                self.put_text(<const char *>self.changes.data, self.pieces[piece].text)
                piece = self.pieces[piece].next
            self.put_text(self.heads.data(), self.tables[part.table].keys)
        self.add_record(start, self.open.entry, self.open.rows)
        # What follows in a transaction with a DDL in it is another record.
        self.open.changes, self.open.pieces = self.changes.size, self.pieces.size()
        self.open.parts = self.parts_of.size()
        self.open.rows, self.open.size = 0, RECORD
        return 0

    cdef size_t size_of(self, const TableChanges *part) noexcept nogil:
        return self.tables[part.table].head.size + part.size + self.tables[part.table].keys.size

    cdef bint add_ddl(self, const Change *change) except -1 nogil:
        """A record of a statement, after one of what was changed before it in its transaction."""
        cdef Span schema = change.header.schema
        cdef Span table = change.header.table
        cdef Span sql = change.row.sql
        cdef size_t size
        cdef size_t start
        if schema.size == 0:
            schema = change.row.ddl_schema
        size = framed(schema.size) + framed(table.size) + framed(sql.size)
        if size + RECORD > self.limit:
            return self.stop_at(TOO_LARGE, change, span_at(NULL, 0), size + RECORD)
        if self.is_inside():
            self.put_transaction(read_commit_ts(change))
        start = self.out.size
        self.put_head(DDL, read_commit_ts(change))
        self.put_length(DDL_DATA, size)
        self.put_field(FIRST, schema)
        self.put_field(SECOND, table)
        self.put_field(THIRD, sql)
        self.add_record(start, self.entry, 0)
        return True

    cdef int put_head(self, int type, int64_t commit_ts) except -1 nogil:
        """Type of a record, and its commit_ts, which is greater than the last one."""
        cdef uint8_t[2 * (1 + VARINT_MAX)] head
        cdef uint8_t *p
        self.last = max(self.last + 1, commit_ts)
        head[0], head[1], head[2] = BINLOG_TYPE, <uint8_t>type, COMMIT_TS
        p = put_varint(&head[3], <uint64_t>self.last)
        return done(put(&self.out, <const char *>head, p - head))

    cdef int put_length(self, uint8_t tag, size_t size) except -1 nogil:
        cdef uint8_t[1 + VARINT_MAX] head
        cdef uint8_t *p
        head[0] = tag
        p = put_varint(&head[1], size)
        return done(put(&self.out, <const char *>head, p - head))

    cdef int put_field(self, uint8_t tag, Span text) except -1 nogil:
        self.put_length(tag, text.size)
        return done(put(&self.out, <const char *>text.data, text.size))

    cdef int put_text(self, const char *data, Text text) except -1 nogil:
        return done(put(&self.out, data + text.at, text.size))

    cdef int add_record(self, size_t start, int32_t entry, int32_t rows) except -1 nogil:
        cdef Record record
        memset(&record, 0, sizeof(Record))
        record.value.at, record.value.size = start, self.out.size - start
        record.entry, record.rows = entry, rows
        self.records.push_back(record)
        return 0

    cdef object reason(self):
        cdef const Change *change = &self.refusal.change
        schema, table = text_of(change.header.schema), text_of(change.header.table)
        if self.refusal.why == STATEMENT:
            return UnfitChangeError(
                self.entry, schema, table,
                "was logged as a statement, not as rows: set binlog_format = ROW at the source, and in every session"
                " that changes its own",
            )
        if self.refusal.why == SNAPSHOT:
            return UnfitChangeError(
                self.entry, schema, table, "belongs to a snapshot, which has no place among the commits: cancel that",
            )
        if self.refusal.why == TRANSACTION_TOO_LARGE:
            names = list(dict.fromkeys(self.names[number] for number in self.too_large))
            return TransactionTooLargeError(self.open.entry, schema, table, names, self.refusal.size, self.limit)
        return Encoder.reason(self)
