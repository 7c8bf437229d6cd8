"""Records of TiDB's secondary binlog as Canal's entries, so that everything that reads changes can read them.

A record is a `Binlog` of secondary.proto::

    Binlog          08 <0 DML, 1 DDL>  10 <commit_ts>  1a <DMLData>  or  22 <DDLData>
    DMLData         0a <Table> …
    Table           0a <schema> 12 <name> 1a <ColumnInfo> … 22 <TableMutation> … 2a <Key> …
    ColumnInfo      0a <name> 12 <type> 18 <is in the primary key> 20 <length> 28 <digits after the point>
    TableMutation   08 <0 insert, 1 update, 2 delete> 12 <Row> 1a <Row, of an update the old one>
    Row             0a <Column> …
    Column          08 1 for NULL, or one of 10 <int64> 18 <uint64> 21 <double> 2a <bytes> 32 <string>
    DDLData         0a <schema> 12 <table> 1a <statement>

A transaction becomes its begin, an entry for each run of changes of one kind of a table, and its end; a DDL one entry.
What a type lacks is found out: the column is unsigned if a cell of it is uint64, or if all are NULL and its length is
that of an unsigned column. A BIGINT of which a transaction has only NULL is written as signed. ENUM and SET come
without their labels: their values are numbers.
"""

from typing import NamedTuple

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cython.operator cimport dereference
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map

from ..buffer cimport Buffer, reserve
from ..canal.entry cimport Fields, fields_of
from ..canal.tags cimport (
    AFTER_COLUMNS,
    BEFORE_COLUMNS,
    CHANGE_EVENT_TYPE,
    DDL_SCHEMA_NAME,
    DELETE,
    ENTRY_TYPE,
    EVENT_LENGTH,
    EVENT_TYPE,
    EXECUTE_TIME,
    HEADER,
    HEADER_PROPS,
    INDEX,
    INSERT,
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
    TRANSACTIONBEGIN,
    TRANSACTIONEND,
    UPDATE,
    UPDATED,
    VALUE,
    VERSION,
)
from ..floats cimport FLOAT_MAX, put_java_double, put_java_float
from ..utf8 cimport is_utf8, latin1_size, put_latin1, put_utf8, utf8_size
from ..wire cimport (
    LENGTH_MAX,
    VARINT_MAX,
    Span,
    WireField,
    decimal_size,
    get_field,
    is_same,
    put_bytes,
    put_decimal,
    put_padded_varint,
    put_raw,
    put_signed_decimal,
    put_uint,
    put_varint,
    span_at,
    span_of,
    text_field,
    uint_field,
    varint_size,
)
from .tags cimport (
    BINLOG_TYPE,
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
)

from ..canal.ddl import event_type_of
from ..canal.types import SqlType
from ..errors import DecodeError


cdef enum:
    PIECE = 256 << 10                              # bytes of rows after which another entry begins
    KEPT = 4 << 20                                 # bytes of memory that a record leaves to the next one
    KNOWN_BYTES = 8 << 20                          # of plans kept (some 4,000); then all are forgotten

    # What is known of a column's sign.
    UNKNOWN = 0
    SIGNED = 1                                     # or it has none
    UNSIGNED = 2

    # How the text of a value is made, where its field does not say.
    PLAIN = 0
    NUMBER = 1
    SINGLE = 2                                     # FLOAT: a double that was widened from it
    RAW = 3                                        # each byte the character of its number
    FIXED = 4                                      # RAW, without the zeros at the end
    BITS = 5                                       # a number of big-endian bytes


cdef int[3] EVENT_TYPES = [<int>INSERT, <int>UPDATE, <int>DELETE]   # by the type of a mutation
cdef Span NOTHING = span_at(b"", 0)
cdef const char *ROWS_COUNT = "rowsCount"
cdef size_t ROWS_COUNT_SIZE = 9
cdef const char *UTF_8 = "UTF-8"


cdef int malformed() except -1 nogil:
    with gil:
        raise DecodeError("not a record of TiDB's secondary binlog: it is not protobuf of its form")


cdef inline bint next_of(Fields *fields, WireField *field) except -1 nogil:
    """Reads the next field; false at the end. Raises DecodeError."""
    if fields.p >= fields.end:
        return False
    fields.p = get_field(fields.p, fields.end, field)
    if fields.p == NULL:
        malformed()
    return True


cdef str text_of(Span span):
    return (<const char *>span.data)[:span.size].decode("utf-8", "replace") if span.size else ""


cdef int read_cell(Span message, Cell *cell) except -1 nogil:
    """Reads a Column. Raises DecodeError when it has no value."""
    cdef Fields fields = fields_of(message)
    cdef WireField field
    cell.message = message
    cell.tag = 0
    while next_of(&fields, &field):
        if field.tag == CELL_NULL and not field.value:
            continue
        if CELL_NULL <= field.tag <= CELL_STRING:
            cell.tag = field.tag
            cell.number = field.value
            cell.data = span_of(&field)
    if not cell.tag:
        with gil:
            raise DecodeError("not a record of TiDB's secondary binlog: a column has no value")
    return 0


# --- tables ----------------------------------------------------------------------------------------------------------

_SQL_TYPES = {
    "tinyint": SqlType.TINYINT, "smallint": SqlType.SMALLINT, "mediumint": SqlType.INTEGER, "int": SqlType.INTEGER,
    "bigint": SqlType.BIGINT, "float": SqlType.REAL, "double": SqlType.DOUBLE, "decimal": SqlType.DECIMAL,
    "bit": SqlType.BIT, "year": SqlType.VARCHAR, "date": SqlType.DATE, "time": SqlType.TIME,
    "datetime": SqlType.TIMESTAMP, "timestamp": SqlType.TIMESTAMP, "char": SqlType.CHAR, "varchar": SqlType.VARCHAR,
    "tinytext": SqlType.CLOB, "text": SqlType.CLOB, "mediumtext": SqlType.CLOB, "longtext": SqlType.CLOB,
    "binary": SqlType.BINARY, "varbinary": SqlType.VARBINARY, "tinyblob": SqlType.BLOB, "blob": SqlType.BLOB,
    "mediumblob": SqlType.BLOB, "longblob": SqlType.BLOB, "enum": SqlType.INTEGER, "set": SqlType.BIT,
    "json": SqlType.VARCHAR,
}
_WAYS = {
    "float": SINGLE, "binary": FIXED, "varbinary": RAW, "tinyblob": RAW, "blob": RAW, "mediumblob": RAW,
    "longblob": RAW, "bit": BITS, "tinyint": NUMBER, "smallint": NUMBER, "mediumint": NUMBER, "int": NUMBER,
    "bigint": NUMBER,
}
_UNSIGNED_LENGTHS = {"tinyint": 3, "smallint": 5, "mediumint": 8, "int": 10}


def _mysql_type(str name, int64_t length, int64_t digits, bint unsigned):
    """The type as MySQL writes it, as far as the record says it."""
    if name in ("char", "varchar", "binary", "varbinary", "bit") and length > 0:
        return f"{name}({length})"
    if name == "decimal" and length > 0:
        return f"decimal({length},{max(digits, 0)})"
    if name in ("time", "datetime", "timestamp") and digits > 0:
        return f"{name}({digits})"
    if name == "tinyint" and length == 1:
        return "tinyint(1)"
    return f"{name} unsigned" if unsigned else name


@cython.final
cdef class Plan:
    """What is the same for all rows of a table, as its columns and their signs are in a record."""

    cdef int add(self, str name, str type_name, bint is_key, int64_t length, int64_t digits, bint unsigned) except -1:
        cdef Column column
        cdef bytes head
        cdef bytes value
        cdef bytes null
        column.way = _WAYS.get(type_name, PLAIN)
        mysql_type = _mysql_type(type_name, length, digits, unsigned)
        head = (
            uint_field(INDEX, self.columns.size())
            + uint_field(SQL_TYPE, _SQL_TYPES.get(type_name, SqlType.OTHER))
            + text_field(NAME, name)
            + uint_field(IS_KEY, is_key)
            + text_field(MYSQL_TYPE, mysql_type)
        )
        value = head
        null = head + uint_field(IS_NULL, True)
        self.owned += [value, null]
        column.value, column.value_size = value, len(value)
        column.null, column.null_size = null, len(null)
        self.columns.push_back(column)
        self.described.append((name, mysql_type, is_key))
        return 0


cdef struct Info:              # a ColumnInfo
    Span name
    Span type_name
    bint is_key
    int64_t length
    int64_t digits


cdef int read_info(Span message, Info *info) except -1:
    cdef Fields fields = fields_of(message)
    cdef WireField field
    info.name = info.type_name = span_at(NULL, 0)
    info.is_key = False
    info.length = info.digits = -1
    while next_of(&fields, &field):
        if field.tag == FIRST:
            info.name = span_of(&field)
        elif field.tag == SECOND:
            info.type_name = span_of(&field)
        elif field.tag == IS_PRIMARY_KEY:
            info.is_key = field.value != 0
        elif field.tag == FLEN:
            info.length = <int64_t>field.value
        elif field.tag == DECIMALS:
            info.digits = <int64_t>field.value
    return 0


@cython.final
cdef class Table:
    """A table as a record describes it, and its plans."""

    def __init__(self, bytes head):
        """`head`: the fields of the table that come before its rows. Raises DecodeError."""
        cdef Fields fields = fields_of(span_at(head, len(head)))
        cdef WireField field
        cdef Info info
        self.plans = {}
        self.infos = []
        self.schema = self.name = ""
        while next_of(&fields, &field):
            if field.tag == FIRST:
                self.schema = text_of(span_of(&field))
            elif field.tag == SECOND:
                self.name = text_of(span_of(&field))
            else:
                read_info(span_of(&field), &info)
                type_name = text_of(info.type_name).lower()
                self.infos.append((text_of(info.name), type_name, info.is_key, info.length, info.digits))
                # All types of integers end so, and only they have a sign.
                self.unknown.push_back(UNKNOWN if text_of(info.type_name).endswith("int") else SIGNED)

    cdef int select(self, const string &signs) except -1:
        """Let the plan for these signs be the current one."""
        cdef bytes key = signs
        cdef Plan plan = self.plans.get(key)
        if plan is None:
            plan = Plan.__new__(Plan)
            plan.owned = []
            plan.described = []
            plan.schema, plan.table = self.schema, self.name
            plan.names = text_field(SCHEMA_NAME, self.schema) + text_field(TABLE_NAME, self.name)
            plan.names_span = span_at(plan.names, len(plan.names))
            for sign, (name, type_name, is_key, length, digits) in zip(key, self.infos):
                unsigned = length == _UNSIGNED_LENGTHS.get(type_name, 0) if sign == UNKNOWN else sign == UNSIGNED
                plan.add(name, type_name, is_key, length, digits, unsigned and _WAYS.get(type_name) == NUMBER)
            self.plans[key] = plan
        self.plan = <void *>plan
        self.signs = signs
        return 0


# --- entries ---------------------------------------------------------------------------------------------------------

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


@cython.final
cdef class EntryEncoder:
    """Encodes records. One call at a time."""

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
        elif part.event_type:
            schema, table = self.schema, self.table
        framed = PyBytes_FromStringAndSize(<char *>self.data.data + part.offset, part.size)
        return Entry(part.entry_type, part.event_type, schema, table, part.rows, framed)

    cdef int encode_record(self, Span record, int64_t offset) except -1 nogil:
        cdef Fields fields = fields_of(record)
        cdef WireField field
        cdef int64_t kind = -1
        cdef bint has_dml = False
        cdef bint has_ddl = False
        cdef Span dml = span_at(NULL, 0)
        cdef Span ddl = span_at(NULL, 0)
        cdef uint8_t[2 + VARINT_MAX + 20] name
        cdef uint8_t *p
        self.forget()
        self.commit_ts = 0
        while next_of(&fields, &field):
            if field.tag == BINLOG_TYPE:
                kind = <int64_t>field.value
            elif field.tag == COMMIT_TS:
                self.commit_ts = <int64_t>field.value
            elif field.tag == DML_DATA:
                dml, has_dml = span_of(&field), True
            elif field.tag == DDL_DATA:
                ddl, has_ddl = span_of(&field), True
        if self.commit_ts <= 0 or not (kind == DML and has_dml or kind == DDL and has_ddl):
            with gil:
                raise DecodeError(
                    "not a record of TiDB's secondary binlog: it lacks its type, its commit_ts or its changes"
                )
        self.begin_headers(record.size, offset)
        if kind == DDL:
            with gil:
                self.add_ddl(ddl)
            return 0
        p = put_varint(put_varint(name, TRANSACTION_ID), decimal_size(self.commit_ts))
        p = put_decimal(p, self.commit_ts)
        self.add(TRANSACTIONBEGIN, 0, NOTHING, span_at(<const char *>name, p - name), NOTHING, 0, NULL)
        fields = fields_of(dml)
        while next_of(&fields, &field):
            if field.tag == FIRST:
                self.add_table(span_of(&field))
        self.add(TRANSACTIONEND, 0, NOTHING, span_at(<const char *>name, p - name), NOTHING, 0, NULL)
        return 0

    cdef int forget(self) except -1 nogil:
        """Give up what the last record has become, and the plans if they are many."""
        self.parts.clear()
        if self.known_bytes > KNOWN_BYTES:
            with gil:
                self.known.clear()
                self.owned.clear()
                self.known_bytes = 0
        empty(&self.data)
        empty(&self.rows)
        return 0

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
        self.data.size += part.size
        self.parts.push_back(part)
        return 0

    cdef int add_ddl(self, Span data) except -1:
        cdef Fields fields = fields_of(data)
        cdef WireField field
        cdef str sql = ""
        self.schema = self.table = ""
        while next_of(&fields, &field):
            if field.tag == FIRST:
                self.schema = text_of(span_of(&field))
            elif field.tag == SECOND:
                self.table = text_of(span_of(&field))
            elif field.tag == THIRD:
                sql = text_of(span_of(&field)).removesuffix(";")
        event_type = int(event_type_of(sql, self.schema))
        header = text_field(SCHEMA_NAME, self.schema) + text_field(TABLE_NAME, self.table)
        header += uint_field(EVENT_TYPE, event_type)
        change = (
            uint_field(CHANGE_EVENT_TYPE, event_type)
            + uint_field(IS_DDL, True)
            + text_field(SQL, sql)
            + text_field(DDL_SCHEMA_NAME, self.schema)
        )
        return self.add(
            ROWDATA, event_type, span_at(header, len(header)), span_at(change, len(change)), NOTHING, 0, NULL
        )

    cdef int add_table(self, Span message) except -1 nogil:
        cdef Fields fields = fields_of(message)
        cdef WireField field
        cdef void *plan = self.plan_of(message)
        cdef int64_t kind = -1
        cdef int64_t run = -1                      # the kind of the rows that are not taken yet
        cdef int64_t count = 0
        self.rows.size = 0
        while next_of(&fields, &field):
            if field.tag != MUTATIONS:
                continue
            kind = kind_of_mutation(span_of(&field))
            if count and (kind != run or self.rows.size >= PIECE):
                self.take(plan, run, count)
                count = 0
            run = kind
            self.add_row(plan, span_of(&field))
            count += 1
        if count:
            self.take(plan, run, count)
        return 0

    cdef int take(self, void *plan, int64_t run, int64_t count) except -1 nogil:
        """Make an entry of the rows."""
        cdef int event_type = EVENT_TYPES[run]
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

    cdef void *plan_of(self, Span message) except NULL nogil:
        """The plan of a table, made when the table is seen first, or in another form."""
        cdef Fields fields = fields_of(message)
        cdef WireField field
        cdef const uint8_t *p = message.data
        cdef unordered_map[string, void *].iterator found
        cdef void *table
        self.key.clear()
        while next_of(&fields, &field):
            if field.tag in (FIRST, SECOND, THIRD):
                self.key.append(<const char *>p, fields.p - p)
            p = fields.p
        found = self.known.find(self.key)
        if found == self.known.end():
            with gil:
                table = self.learn()
        else:
            table = dereference(found).second
        self.find_signs(message, (<Table>table).unknown)
        if (<Table>table).plan == NULL or (<Table>table).signs != self.signs:
            with gil:
                (<Table>table).select(self.signs)
            self.known_bytes += 1024 + 4 * self.key.size()
        return (<Table>table).plan

    cdef void *learn(self) except NULL:
        """The table that was seen first."""
        table = Table(self.key)
        self.owned.append(table)
        self.known[self.key] = <void *>table
        return <void *>table

    cdef int find_signs(self, Span message, const string &unknown) except -1 nogil:
        """Look at cells until one of each column has told its sign: mostly those of the first row."""
        cdef Fields fields = fields_of(message)
        cdef Fields rows
        cdef Fields cells
        cdef WireField field
        cdef Cell cell
        cdef size_t left = 0
        cdef size_t i
        self.signs = unknown
        for i in range(unknown.size()):
            left += unknown[i] == UNKNOWN
        while left and next_of(&fields, &field):
            if field.tag != MUTATIONS:
                continue
            rows = fields_of(span_of(&field))
            while next_of(&rows, &field):
                if field.tag != SECOND and field.tag != THIRD:
                    continue
                cells = fields_of(span_of(&field))
                i = 0
                while i < self.signs.size() and next_of(&cells, &field):
                    if field.tag != FIRST:
                        continue
                    if self.signs[i] == UNKNOWN:
                        read_cell(span_of(&field), &cell)
                        if cell.tag != CELL_NULL:
                            self.signs[i] = <char>UNSIGNED if cell.tag == CELL_UINT else <char>SIGNED
                            left -= 1
                    i += 1
        return 0

    cdef int add_row(self, void *plan, Span mutation) except -1 nogil:
        cdef Fields fields = fields_of(mutation)
        cdef WireField field
        cdef int64_t kind = -1
        cdef Span row = span_at(NULL, 0)
        cdef Span old = span_at(NULL, 0)
        cdef bint has_row = False
        cdef bint has_old = False
        cdef size_t start = self.rows.size
        cdef size_t size
        cdef uint8_t *p
        while next_of(&fields, &field):
            if field.tag == MUTATION_TYPE:
                kind = <int64_t>field.value
            elif field.tag == SECOND:
                row, has_row = span_of(&field), True
            elif field.tag == THIRD:
                old, has_old = span_of(&field), True
        if not has_row or (kind == 1 and not has_old):
            malformed()
        reserve(&self.rows, 1 + LENGTH_MAX)
        self.rows.size += 1 + LENGTH_MAX
        if kind == 0:
            self.add_image(plan, row, AFTER_COLUMNS, False)
        elif kind == 1:
            self.add_image(plan, old, BEFORE_COLUMNS, False)
            self.add_image(plan, row, AFTER_COLUMNS, True)
        else:
            self.add_image(plan, row, BEFORE_COLUMNS, False)
        size = self.rows.size - start - 1 - LENGTH_MAX
        if size > 0x7FFF_FFFF:
            with gil:
                raise DecodeError(f"{(<Plan>plan).schema}.{(<Plan>plan).table}: a row has more than 2 GiB")
        p = self.rows.data + start
        p[0] = ROW_DATAS
        put_padded_varint(p + 1, size, LENGTH_MAX)
        return 0

    cdef int add_image(self, void *plan, Span row, int tag, bint has_before) except -1 nogil:
        cdef Fields fields = fields_of(row)
        cdef WireField field
        cdef Cell cell
        cdef const Column *columns = (<Plan>plan).columns.data()
        cdef size_t column_count = (<Plan>plan).columns.size()
        cdef size_t count = 0
        cdef bint updated
        if tag == BEFORE_COLUMNS:
            self.before.resize(column_count)
        while next_of(&fields, &field):
            if field.tag != FIRST:
                continue
            if count >= column_count:
                self.fail(plan, count + 1)
            read_cell(span_of(&field), &cell)
            if tag == BEFORE_COLUMNS:
                self.before[count] = cell
                updated = False
            else:
                updated = not has_before or not is_same(cell.message, self.before[count].message)
            self.add_column(&columns[count], tag, &cell, updated)
            count += 1
        if count != column_count:
            self.fail(plan, count)
        return 0

    cdef int fail(self, void *found, size_t count) except -1 nogil:
        with gil:
            plan = <Plan>found
            raise DecodeError(
                f"{plan.schema}.{plan.table}: a row has {count} values or more, and the table"
                f" {plan.columns.size()} columns"
            )

    cdef int add_column(self, const Column *column, int tag, const Cell *cell, bint updated) except -1 nogil:
        cdef uint8_t[FLOAT_MAX] digits          # more than any other number needs, too
        cdef Span text = cell.data
        cdef size_t text_size
        cdef size_t size
        cdef uint8_t *p = digits
        cdef double number = 0
        cdef uint64_t bits = 0
        cdef size_t i
        cdef bint is_latin1 = False
        cdef bint is_plain = True
        if cell.tag == CELL_NULL:
            size = column.null_size + 2
            reserve(&self.rows, 1 + LENGTH_MAX + size)
            p = self.rows.data + self.rows.size
            p[0] = <uint8_t>tag
            p = put_raw(put_varint(p + 1, size), column.null, column.null_size)
            p[0] = UPDATED
            p[1] = updated
            self.rows.size = p + 2 - self.rows.data
            return 0
        if cell.tag == CELL_INT:
            text = span_at(<char *>digits, put_signed_decimal(p, <int64_t>cell.number) - digits)
        elif cell.tag == CELL_UINT:
            text = span_at(<char *>digits, put_decimal(p, cell.number) - digits)
        elif cell.tag == CELL_DOUBLE:
            memcpy(&number, cell.data.data, sizeof(double))
            p = put_java_float(p, <float>number) if column.way == SINGLE else put_java_double(p, number)
            text = span_at(<char *>digits, p - digits)
        elif column.way == BITS:
            if text.size > 8:
                malformed()
            for i in range(text.size):
                bits = bits << 8 | text.data[i]
            text = span_at(<char *>digits, put_decimal(p, bits) - digits)
        elif column.way == RAW or column.way == FIXED:
            is_latin1 = True
            while column.way == FIXED and text.size and text.data[text.size - 1] == 0:
                text.size -= 1
        else:
            is_plain = is_utf8(text.data, text.size)
        text_size = text.size
        if is_latin1:
            text_size = latin1_size(text.data, text.size)
        elif not is_plain:
            text_size = utf8_size(text.data, text.size)
        size = column.value_size + 2 + 1 + varint_size(text_size) + text_size
        reserve(&self.rows, 1 + LENGTH_MAX + size + 1)         # the last byte is for put_latin1()
        p = self.rows.data + self.rows.size
        p[0] = <uint8_t>tag
        p = put_raw(put_varint(p + 1, size), column.value, column.value_size)
        p[0] = UPDATED
        p[1] = updated
        p[2] = VALUE
        p = put_varint(p + 3, text_size)
        if is_latin1:
            p = put_latin1(p, text.data, text.size)
        elif is_plain:
            p = put_raw(p, text.data, text.size)
        else:
            p = put_utf8(p, text.data, text.size)
        self.rows.size = p - self.rows.data
        return 0


cdef int64_t kind_of_mutation(Span mutation) except -1 nogil:
    cdef Fields fields = fields_of(mutation)
    cdef WireField field
    cdef int64_t kind = -1
    while next_of(&fields, &field):
        if field.tag == MUTATION_TYPE:
            kind = <int64_t>field.value
            break
    if not 0 <= kind <= 2:
        malformed()
    return kind


def commit_ts_of(value):
    """The commit_ts of a record, without a look at its changes. Raises DecodeError."""
    cdef Py_buffer view
    cdef Fields fields
    cdef WireField field
    cdef int64_t commit_ts = 0
    PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
    try:
        fields = fields_of(span_at(<const char *>view.buf, view.len))
        while next_of(&fields, &field):
            if field.tag == COMMIT_TS:
                commit_ts = <int64_t>field.value
        if commit_ts <= 0:
            raise DecodeError("not a record of TiDB's secondary binlog: it has no commit_ts")
        return commit_ts
    finally:
        PyBuffer_Release(&view)
