"""What is decided once for a table version, so that nothing is left to decide for a row.

A row event carries, after its header, its rows, each (of an update: first the image before, then the image after):

    null bits         1 bit a column that the image has, the first in the lowest bit
    values            of the columns that the image has and that are not NULL; nothing says how long one is but its
                      type, a column's metadata in TABLE_MAP and, for strings, a length before the value

and the image after of a PARTIAL_UPDATE_ROWS event before that:

    options           length-encoded integer; bit 0: some JSON columns are differences
    partial bits      only then: 1 bit a JSON column of the table, set: the value is a list of differences

Each row becomes a `rowDatas` field of Canal's RowChange. Its columns are written as: what is the same for every row
(index, sqlType, name, isKey, mysqlType, isNull; prepared three times, for a value, an integer that needs the next wider
sqlType, and NULL), `updated`, and the value. A reader of protobuf takes fields in any order.
"""

from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memmove

from sluice.instance.parser cimport charset as charsets
from sluice.instance.parser cimport values
from sluice.instance.parser.values cimport Decode, Field, Value
from sluice.protocol.wire cimport LENGTH_MAX, put_varint, varint_size
from sluice.store.segment cimport SegmentPool, SegmentWriter

from sluice.instance.parser.table_map import Type
from sluice.protocol.errors import DecodeError

cdef enum:
    # Tags, field << 3 | wire type, of entry.proto
    ROW_DATAS = 12 << 3 | 2            # RowChange.rowDatas
    BEFORE_COLUMNS = 1 << 3 | 2        # RowData
    AFTER_COLUMNS = 2 << 3 | 2
    VALUE = 8 << 3 | 2                 # Column.value

    # java.sql.Types
    BIT = -7
    TINYINT = -6
    BIGINT = -5
    CHAR = 1
    DECIMAL = 3
    INTEGER = 4
    SMALLINT = 5
    REAL = 7
    DOUBLE = 8
    VARCHAR = 12
    DATE = 91
    TIME = 92
    TIMESTAMP = 93
    OTHER = 1111
    BLOB = 2004
    CLOB = 2005

    # Where the text of the image before stands, if it is nowhere
    ABSENT = -1                        # the image has no such column
    NULL_VALUE = -2

    SCRATCH = 256                      # more than any text of a bounded size needs


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How an instance wants its values.

    ``strict_canal``: exactly as Canal where Sluice does better. ``time_zone``: name of the zone that TIMESTAMP texts are
    in (IANA, or ``+08:00``), None for the zone of the process. ``connection_charset``: of all texts, where
    ``strict_canal`` is set. ``excluded``: the table is not wanted. ``fields`` and ``black_fields``: names, in upper case,
    of the only columns wanted, or of columns not wanted; the former wins. ``mariadb``: the source is MariaDB.
    """

    strict_canal: bool = False
    time_zone: str | None = None
    connection_charset: str = "utf8mb4"
    excluded: bool = False
    fields: frozenset[str] | None = None
    black_fields: frozenset[str] = field(default_factory=frozenset)
    mariadb: bool = False


cdef bytes varint(uint64_t value):
    cdef uint8_t[10] data
    return data[:put_varint(data, value) - data]


cdef bytes integer_field(int number, int64_t value):
    return varint(number << 3) + varint(<uint64_t>value)


cdef bytes text_field(int number, str text):
    cdef bytes data = text.encode("utf-8", "replace")
    return varint(number << 3 | 2) + varint(len(data)) + data


cdef class TablePlan:
    """How the rows of one version of a table become Canal's RowData."""

    def __cinit__(self):
        self.columns = NULL
        self.value.scratch = NULL
        self.value.capacity = 0

    def __init__(self, table_map, columns, uint32_t number, options=None, uint16_t slot_flags=0):
        """Plan for a TableMap and its columns in the table's order.

        Of an excluded table `columns` may be empty. Raises DecodeError naming table and column when the columns are not
        those of the event, or of a type or character set that cannot be read.
        """
        cdef Py_ssize_t i
        options = options or PlanOptions()
        self.schema = table_map.schema
        self.table = table_map.table
        self.number = number
        self.excluded = options.excluded
        self.column_count = len(table_map.types)
        self.slot_flags = slot_flags
        self.header_names = text_field(8, self.schema) + text_field(9, self.table)
        self.owned = []
        self.names = [column.name for column in columns]
        self.row_width = 1
        if self.excluded:
            return
        if len(columns) != self.column_count:
            raise DecodeError(
                f"{self.schema}.{self.table}: the event has {self.column_count} columns, but the schema at hand has "
                f"{len(columns)}"
            )
        if values.reserve(&self.value, SCRATCH) == NULL:
            raise MemoryError
        self.columns = <Planned *>calloc(max(self.column_count, 1), sizeof(Planned))
        if self.columns == NULL:
            raise MemoryError
        for i in range(self.column_count):
            column = columns[i]
            try:
                self.plan_column(&self.columns[i], i, column, table_map.types[i], table_map.metas[i], options)
            except DecodeError as error:
                raise DecodeError(f"{self.schema}.{self.table}.{column.name}: {error}") from None

    def __dealloc__(self):
        free(self.columns)
        free(self.value.scratch)

    cdef Head head(self, Py_ssize_t index, column, int sql_type, bint is_null) except *:
        cdef Head head
        cdef bytes data = (
            integer_field(1, index)
            + integer_field(2, sql_type)
            + text_field(3, column.name)
            + integer_field(4, column.is_key)
            + text_field(10, column.mysql_type)
            + integer_field(6, is_null)
            + integer_field(5, False)
        )
        self.owned.append(data)
        head.data = <const uint8_t *>PyBytes_AS_STRING(data)
        head.size = PyBytes_GET_SIZE(data)
        return head

    cdef int plan_column(self, Planned *planned, Py_ssize_t index, column, int code, int meta, options) except -1:
        cdef Field *field = &planned.field
        cdef int sql_type
        cdef int promoted
        cdef int null
        cdef charsets.Charset charset
        field.is_strict = options.strict_canal
        unsigned = column.is_unsigned
        if code in INTEGERS:
            field.size, sql_type, promoted = INTEGERS[code]
            field.decode = values.unsigned_integer if unsigned else values.signed_integer
            null = sql_type
        elif code == Type.VARCHAR:
            field.length_bytes = 1 if meta < 256 else 2
            charset = charsets.get_charset(column.charset)
            field.decode = charset.decode
            field.context = charset.table
            sql_type = promoted = null = VARCHAR
        else:
            raise DecodeError(f"the type {code} is unknown")
        name = column.name.upper()
        planned.is_delivered = name in options.fields if options.fields is not None else name not in options.black_fields
        planned.value = self.head(index, column, sql_type, False)
        planned.promoted = self.head(index, column, promoted, False)
        planned.null = self.head(index, column, null, True)
        return 0

    cdef int64_t encode_rows(
        self,
        SegmentWriter writer,
        const uint8_t *data,
        const uint8_t *end,
        RowsKind kind,
        const uint8_t *present_before,
        const uint8_t *present_after,
        bint partial_json,
    ) except -1 nogil:
        cdef int64_t rows = 0
        cdef size_t row
        cdef size_t size
        cdef size_t width
        cdef const uint8_t *start = data
        cdef const uint8_t *p = data
        cdef uint8_t *at
        while p < end or rows == 0:
            writer.reserve(1 + LENGTH_MAX)
            row = writer.cursor - writer.entry
            writer.cursor += 1 + self.row_width
            data = p
            if kind != INSERT:
                p = self.encode_image(writer, start, p, end, present_before, False, kind == UPDATE, False)
            if kind != DELETE:
                p = self.encode_image(writer, start, p, end, present_after, True, kind == UPDATE, partial_json)
            if p == data and p < end:
                self.fail(-1, p - start, b"a row of no columns is followed by more bytes")
            # The length of most rows takes as many bytes as that of the row before; else the row is moved.
            size = writer.cursor - writer.entry - row - 1 - self.row_width
            width = varint_size(size)
            if width != self.row_width:
                writer.reserve(LENGTH_MAX)
                at = writer.entry + row + 1
                memmove(at + width, at + self.row_width, size)
                writer.cursor = at + width + size
                self.row_width = width
            at = writer.entry + row
            at[0] = ROW_DATAS
            put_varint(at + 1, size)
            rows += 1
        return rows

    # One image of a row; the place after it. `compare`: of an update, so the texts of the image before are remembered,
    # and those of the image after compared with them.
    cdef const uint8_t *encode_image(
        self,
        SegmentWriter writer,
        const uint8_t *start,
        const uint8_t *p,
        const uint8_t *end,
        const uint8_t *present,
        bint after,
        bint compare,
        bint partial_json,
    ) except NULL nogil:
        cdef Planned *columns = self.columns
        cdef Planned *column
        cdef Value *value = &self.value
        cdef Head *head
        cdef const uint8_t *nulls = p
        cdef uint8_t *out
        cdef Py_ssize_t i
        cdef Py_ssize_t bit = 0
        cdef size_t size
        cdef size_t body
        cdef bint updated
        for i in range(self.column_count):
            bit += present[i >> 3] >> (i & 7) & 1
        if end - p < (bit + 7) >> 3:
            self.fail(-1, p - start, b"the event ends within a row's null bits")
        p += (bit + 7) >> 3
        bit = 0
        for i in range(self.column_count):
            column = &columns[i]
            if not present[i >> 3] >> (i & 7) & 1:
                column.before = ABSENT if not after else column.before
                continue
            if nulls[bit >> 3] >> (bit & 7) & 1:
                bit += 1
                if not column.is_delivered:
                    continue
                updated = after and not (compare and column.before == NULL_VALUE)
                head = &column.null
                writer.reserve(1 + LENGTH_MAX + head.size)
                out = writer.cursor
                out[0] = AFTER_COLUMNS if after else BEFORE_COLUMNS
                out = put_varint(out + 1, head.size)
                memcpy(out, head.data, head.size)
                out += head.size
                out[-1] = updated
                writer.cursor = out
                if not after:
                    column.before = NULL_VALUE
                continue
            bit += 1
            if column.field.length_bytes:
                if end - p < column.field.length_bytes:
                    self.fail(i, p - start, b"the event ends within the length of a value")
                size = p[0]
                if column.field.length_bytes > 1:
                    size |= <size_t>p[1] << 8
                if column.field.length_bytes > 2:
                    size |= <size_t>p[2] << 16
                if column.field.length_bytes > 3:
                    size |= <size_t>p[3] << 24
                p += column.field.length_bytes
            else:
                size = column.field.size
            if <size_t>(end - p) < size:
                self.fail(i, p - start, b"the event ends within a value")
            value.promoted = False
            if column.field.decode(&column.field, p, size, value) < 0:
                self.fail(i, p - start, value.error)
            p += size
            if not column.is_delivered:
                continue
            head = &column.promoted if value.promoted else &column.value
            body = head.size + 1 + varint_size(value.size) + value.size
            writer.reserve(1 + LENGTH_MAX + body)
            out = writer.cursor
            out[0] = AFTER_COLUMNS if after else BEFORE_COLUMNS
            out = put_varint(out + 1, body)
            memcpy(out, head.data, head.size)
            out += head.size
            out[-1] = after
            if compare and after and column.before >= 0 and column.before_size == value.size:
                out[-1] = memcmp(writer.entry + column.before, value.text, value.size) != 0
            out[0] = VALUE
            out = put_varint(out + 1, value.size)
            memcpy(out, value.text, value.size)
            if not after:
                column.before = out - writer.entry
                column.before_size = value.size
            writer.cursor = out + value.size
        return p

    cdef int fail(self, Py_ssize_t column, Py_ssize_t offset, const char *reason) except -1 nogil:
        """Raises DecodeError."""
        with gil:
            name = f"{self.schema}.{self.table}" + (f".{self.names[column]}" if column >= 0 else "")
            raise DecodeError(f"{name}: {reason.decode()}, at byte {offset} of the event's rows")

    def encode(self, bytes data not None, RowsKind kind, bytes present_before=None, bytes present_after=None, *,
               bint partial_json=False):
        """The `rowDatas` fields of a RowChange for the rows of one event, for tests and comparisons.

        `data` are the rows alone; a bitmap of columns that is not given stands for all columns. Raises DecodeError.
        """
        cdef SegmentWriter writer = SegmentWriter(SegmentPool())
        cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef bytes everything = b"\xff" * ((self.column_count + 7) // 8)
        cdef bytes before = everything if present_before is None else present_before
        cdef bytes after = everything if present_after is None else present_after
        if min(len(before), len(after)) < len(everything):
            raise ValueError("a bitmap of columns is too short")
        try:
            self.encode_rows(writer, p, p + len(data), kind, <const uint8_t *>PyBytes_AS_STRING(before),
                             <const uint8_t *>PyBytes_AS_STRING(after), partial_json)
            return PyBytes_FromStringAndSize(<const char *>writer.entry, writer.cursor - writer.entry)
        finally:
            writer.close()


# Width on the wire, sqlType, sqlType of an unsigned value that does not fit the signed type
cdef dict INTEGERS = {
    Type.TINY: (1, TINYINT, SMALLINT),
    Type.SHORT: (2, SMALLINT, INTEGER),
    Type.INT24: (3, INTEGER, INTEGER),
    Type.LONG: (4, INTEGER, BIGINT),
    Type.LONGLONG: (8, BIGINT, DECIMAL),
}
