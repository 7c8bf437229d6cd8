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

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.operator cimport dereference
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map

from ..canal.entry cimport Fields, fields_of
from ..canal.tags cimport (
    AFTER_COLUMNS,
    BEFORE_COLUMNS,
    DELETE,
    INSERT,
    TRANSACTIONBEGIN,
    TRANSACTIONEND,
    UPDATE,
)
from ..floats cimport FLOAT_MAX, put_java_double, put_java_float
from ..wire cimport (
    Span,
    WireField,
    get_field,
    is_same,
    put_decimal,
    put_signed_decimal,
    span_at,
    span_of,
)
from .encoder cimport LATIN1, PIECE, UTF8, Encoder, Plan
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
    MUTATIONS,
    MUTATION_TYPE,
    SECOND,
    THIRD,
)

from ..canal.types import SqlType
from ..errors import DecodeError


cdef enum:
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
cdef class TablePlan(Plan):
    """What is the same for all rows of a table, as its columns and their signs are in a record."""

    cdef int add(self, str name, str type_name, bint is_key, int64_t length, int64_t digits, bint unsigned) except -1:
        cdef Column column
        sql_type = _SQL_TYPES.get(type_name, SqlType.OTHER)
        column.way = _WAYS.get(type_name, PLAIN)
        mysql_type = _mysql_type(type_name, length, digits, unsigned)
        column.value = self.add_head(self.columns.size(), sql_type, name, is_key, mysql_type, False)
        column.null = self.add_head(self.columns.size(), sql_type, name, is_key, mysql_type, True)
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
        cdef TablePlan plan = self.plans.get(key)
        if plan is None:
            plan = TablePlan(self.schema, self.name)
            for sign, (name, type_name, is_key, length, digits) in zip(key, self.infos):
                unsigned = length == _UNSIGNED_LENGTHS.get(type_name, 0) if sign == UNKNOWN else sign == UNSIGNED
                plan.add(name, type_name, is_key, length, digits, unsigned and _WAYS.get(type_name) == NUMBER)
            self.plans[key] = plan
        self.plan = <void *>plan
        self.signs = signs
        return 0


# --- entries ---------------------------------------------------------------------------------------------------------

@cython.final
cdef class EntryEncoder(Encoder):
    """Encodes records. One call at a time."""

    cdef int encode_record(self, Span record, int64_t offset) except -1 nogil:
        cdef Fields fields = fields_of(record)
        cdef WireField field
        cdef int64_t kind = -1
        cdef bint has_dml = False
        cdef bint has_ddl = False
        cdef Span dml = span_at(NULL, 0)
        cdef Span ddl = span_at(NULL, 0)
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
        self.add_end(TRANSACTIONBEGIN)
        fields = fields_of(dml)
        while next_of(&fields, &field):
            if field.tag == FIRST:
                self.add_table(span_of(&field))
        self.add_end(TRANSACTIONEND)
        return 0

    cdef int forget_plans(self) except -1:
        self.known.clear()
        return 0

    cdef int add_ddl(self, Span data) except -1:
        cdef Fields fields = fields_of(data)
        cdef WireField field
        cdef str schema = ""
        cdef str table = ""
        cdef str sql = ""
        while next_of(&fields, &field):
            if field.tag == FIRST:
                schema = text_of(span_of(&field))
            elif field.tag == SECOND:
                table = text_of(span_of(&field))
            elif field.tag == THIRD:
                sql = text_of(span_of(&field))
        return self.add_statement(schema, table, sql)

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
                self.take(plan, EVENT_TYPES[run], count)
                count = 0
            run = kind
            self.add_row(plan, span_of(&field))
            count += 1
        if count:
            self.take(plan, EVENT_TYPES[run], count)
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
        cdef size_t start
        while next_of(&fields, &field):
            if field.tag == MUTATION_TYPE:
                kind = <int64_t>field.value
            elif field.tag == SECOND:
                row, has_row = span_of(&field), True
            elif field.tag == THIRD:
                old, has_old = span_of(&field), True
        if not has_row or (kind == 1 and not has_old):
            malformed()
        start = self.begin_row()
        if kind == 0:
            self.add_image(plan, row, AFTER_COLUMNS, False)
        elif kind == 1:
            self.add_image(plan, old, BEFORE_COLUMNS, False)
            self.add_image(plan, row, AFTER_COLUMNS, True)
        else:
            self.add_image(plan, row, BEFORE_COLUMNS, False)
        return self.end_row(plan, start)

    cdef int add_image(self, void *plan, Span row, int tag, bint has_before) except -1 nogil:
        cdef Fields fields = fields_of(row)
        cdef WireField field
        cdef Cell cell
        cdef const Column *columns = (<TablePlan>plan).columns.data()
        cdef size_t column_count = (<TablePlan>plan).columns.size()
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
            plan = <TablePlan>found
            raise DecodeError(
                f"{plan.schema}.{plan.table}: a row has {count} values or more, and the table"
                f" {plan.columns.size()} columns"
            )

    cdef int add_column(self, const Column *column, int tag, const Cell *cell, bint updated) except -1 nogil:
        cdef uint8_t[FLOAT_MAX] digits          # more than any other number needs, too
        cdef Span text = cell.data
        cdef uint8_t *p = digits
        cdef double number = 0
        cdef uint64_t bits = 0
        cdef size_t i
        cdef int form = UTF8
        if cell.tag == CELL_NULL:
            return self.add_null(column.null, tag, updated)
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
            form = LATIN1
            while column.way == FIXED and text.size and text.data[text.size - 1] == 0:
                text.size -= 1
        return self.add_text(column.value, tag, updated, text, form)


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
