"""Transactions of a pump as Canal's entries, so that everything that reads changes can read them.

A transaction is a `Binlog` as a pump gives it: a Commit with what its Prewrite had::

    Binlog          08 <1: Commit>  10 <start_ts>  18 <commit_ts>  22 <key>
                    2a <PrewriteValue>  or  32 <statement> 38 <job> 40 <state of the schema>
    PrewriteValue   08 <version of the schema> 12 <TableMutation> …
    TableMutation   08 <table id> 12 <inserted row> … 1a <updated row> … 32 <deleted row> … 38 <kind of a row> …
                    20 <deleted id> and 2a <deleted key> are obsolete

The rows are in lists by kind. The kinds (0 insert, 1 update, 4 delete) give the order: each takes the next row of its
list. Values are those of datums.pyx::

    inserted        <handle> (<column id> <value>) …       without NULLs, and without an integer key that is the handle;
                                                           a single 00 if nothing is left
    updated         (<column id> <value>) … twice          the old row, then the new one
    deleted         (<column id> <value>) …

Ids are of columns that may be unknown to statements, and then their values are left out. A column that an image lacks
is NULL: a virtual generated one always is. A Rollback in the stream is a heartbeat and has no entries.

The changes of a table that cannot be decoded become a marker in their place.
"""

cimport cython
from cython.operator cimport dereference
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset
from libcpp.map cimport map as cppmap
from libcpp.pair cimport pair
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from ....protocol.buffer cimport reserve
from ....protocol.canal.entry cimport Fields, fields_of
from ....protocol.canal.tags cimport (
    AFTER_COLUMNS,
    BEFORE_COLUMNS,
    CHANGE_EVENT_TYPE,
    DELETE,
    EVENT_TYPE,
    HEADER_PROPS,
    INSERT,
    IS_DDL,
    KEY,
    PAIR_VALUE,
    QUERY,
    ROWDATA,
    SCHEMA_NAME,
    SQL,
    TABLE_NAME,
    TRANSACTIONBEGIN,
    TRANSACTIONEND,
    UPDATE,
)
from ....protocol.tidb.encoder cimport LATIN1, PIECE, UTF8, Encoder, Plan
from ....protocol.wire cimport (
    Span,
    WireField,
    decimal_size,
    get_field,
    is_same,
    message_field,
    put_bytes,
    put_decimal,
    put_varint,
    span_at,
    span_of,
    text_field,
    uint_field,
)
from ...values.binary cimport get_zone
from .datums cimport (
    DATE,
    DATETIME,
    DECIMAL,
    DOCUMENT,
    DOUBLE,
    FIXED,
    INT_FLAG,
    NULL_FLAG,
    NUMBER,
    RAW,
    SINGLE,
    TEXT,
    TIME,
    TIMESTAMP,
    UNKNOWN,
    UNSIGNED,
    YEAR,
    Datum,
    next_datum,
    put_datum,
)

import json
from typing import NamedTuple

from ....protocol import props
from ....protocol.canal.types import sql_types
from ....protocol.errors import DecodeError, UnknownJobError
from ...values.types import Type


cdef enum:
    ABSENT = -1                                    # the flag of a value that an image lacks

    COMMIT = 1                                     # the type of a message
    ROLLBACK = 2

    INSERTED = 0                                   # the kinds of rows
    UPDATED = 1
    DELETED = 4

    DELETE_ONLY = 1                                # the state of a column that is being dropped

    MESSAGE_TYPE = 1 << 3                          # of a Binlog
    MESSAGE_COMMIT_TS = 3 << 3
    PREWRITE_VALUE = 5 << 3 | 2
    DDL_QUERY = 6 << 3 | 2
    DDL_JOB = 7 << 3
    DDL_STATE = 8 << 3
    SCHEMA_VERSION = 1 << 3                        # of a PrewriteValue
    MUTATION = 2 << 3 | 2
    TABLE_ID = 1 << 3                              # of a TableMutation
    INSERTED_ROWS = 2 << 3 | 2
    UPDATED_ROWS = 3 << 3 | 2
    DELETED_IDS = 4 << 3
    DELETED_KEYS = 5 << 3 | 2
    DELETED_ROWS = 6 << 3 | 2
    SEQUENCE = 7 << 3

    KNOWN_SIZE = 96                                # bytes that a known version of a table takes, about


cdef bytes _COMMIT_TS = props.COMMIT_TS.encode()
cdef Span NOTHING = span_at(b"", 0)
cdef Span COMMIT_TS_KEY = span_at(_COMMIT_TS, len(_COMMIT_TS))
_KINDS = {INSERTED: "inserted", UPDATED: "updated", DELETED: "deleted"}
_WAYS = {
    **dict.fromkeys((Type.TINY, Type.SHORT, Type.INT24, Type.LONG, Type.LONGLONG), NUMBER),
    **dict.fromkeys((Type.BIT, Type.ENUM, Type.SET), UNSIGNED),
    **dict.fromkeys((Type.TINY_BLOB, Type.BLOB, Type.MEDIUM_BLOB, Type.LONG_BLOB), TEXT),
    **dict.fromkeys((Type.VARCHAR, Type.VAR_STRING, Type.STRING), TEXT),
    Type.FLOAT: SINGLE, Type.DOUBLE: DOUBLE, Type.NEWDECIMAL: DECIMAL, Type.DATE: DATE, Type.DATETIME: DATETIME,
    Type.TIMESTAMP: TIMESTAMP, Type.TIME: TIME, Type.YEAR: YEAR, Type.JSON: DOCUMENT,
}
_BITS = {Type.TINY: 7, Type.SHORT: 15, Type.INT24: 31, Type.LONG: 31, Type.LONGLONG: 63}


cdef int malformed() except -1 nogil:
    with gil:
        raise DecodeError("not a transaction of TiDB: it is not protobuf of its form")


cdef inline bint next_of(Fields *fields, WireField *field) except -1 nogil:
    """Reads the next field; false at the end. Raises DecodeError."""
    if fields.p >= fields.end:
        return False
    fields.p = get_field(fields.p, fields.end, field)
    if fields.p == NULL:
        malformed()
    return True


cdef inline bint next_with(Fields *fields, uint64_t tag, WireField *field) except -1 nogil:
    """Reads the next field with a tag; false if there is none. Raises DecodeError."""
    while next_of(fields, field):
        if field.tag == tag:
            return True
    return False


class Undecodable(NamedTuple):
    """Changes of a table in a transaction that cannot be decoded."""

    commit_ts: int
    n: int                                         # of the entry in their place
    schema: str                                    # empty, as the table, if that is not known
    table: str
    reason: str
    value: bytes                                   # a PrewriteValue with nothing else


@cython.final
cdef class RowPlan(Plan):
    """What is the same for all rows of a table, as a version of the schema has it."""

    def __init__(self, definition):
        super().__init__(definition.schema, definition.name)
        for column in definition.columns:
            self.add(column)
        self.handle = definition.handle
        self.keys = b""
        if definition.unique_keys:
            text = json.dumps(definition.unique_keys, ensure_ascii=False, separators=(",", ":"))
            self.keys = message_field(HEADER_PROPS, text_field(KEY, props.KEYS) + text_field(PAIR_VALUE, text))
        self.names += self.keys
        self.names_span = span_at(self.names, len(self.names))

    cdef int add(self, object definition) except -1:
        cdef Column column
        cdef size_t index = self.columns.size()
        column.id = definition.id
        column.form.way = _WAYS.get(definition.code, UNKNOWN)
        column.form.digits = definition.digits
        if column.form.way == TEXT and definition.is_binary:
            column.form.way = FIXED if definition.code == Type.STRING else RAW
        column.has_limit = column.form.way == NUMBER and definition.is_unsigned
        column.limit = 0
        if column.has_limit:
            column.form.way = UNSIGNED
            column.limit = (<uint64_t>1 << <int>_BITS[definition.code]) - 1
        value, promoted, null = sql_types(definition.mysql_type)
        name, is_key, mysql_type = definition.name, definition.is_key, definition.mysql_type
        column.value = self.add_head(index, value, name, is_key, mysql_type, False)
        column.promoted = self.add_head(index, promoted, name, is_key, mysql_type, False)
        column.null = self.add_head(index, null, name, is_key, mysql_type, True)
        self.numbers[column.id] = <int32_t>index
        self.columns.push_back(column)
        self.described.append((name, mysql_type, is_key))
        return 0


@cython.final
cdef class TransactionEncoder(Encoder):
    """Encodes transactions. One call at a time."""

    def __cinit__(self):
        memset(&self.scratch, 0, sizeof(Value))
        memset(&self.zone, 0, sizeof(self.zone))

    def __init__(self, str file, definitions, *, time_zone, size_t limit=1 << 30, on_trouble=None):
        """`time_zone`: the one of the texts of TIMESTAMP columns. Raises ConfigError if it does not exist.

        `limit`: bytes of a transaction's entries, which can be many times those of its rows: NULLs are not in these.
        `on_trouble`: called with an `Undecodable` before a marker is put for it; false: none is.
        """
        super().__init__(file)
        self.limit = limit
        self.on_trouble = on_trouble
        self.zone.context = &get_zone(time_zone).transitions
        self.tables = definitions
        self.plans = {}

    def __dealloc__(self):
        free(self.scratch.scratch)

    @property
    def definitions(self):
        """What the tables are: the ones that are known to who reads transactions, replaced when it knows more."""
        return self.tables

    @definitions.setter
    def definitions(self, definitions):
        self.tables = definitions
        self.known.clear()

    cdef int forget_plans(self) except -1:
        self.known.clear()
        self.plans.clear()
        return 0

    cdef int encode_record(self, Span record, int64_t offset) except -1 nogil:
        """Raises UnknownJobError, too, when the definitions do not reach a record: the same again with more.

        They lack the job of a DDL, or the version of the schema of a change, which is then `version`.
        """
        cdef Fields fields = fields_of(record)
        cdef WireField field
        cdef Span value = span_at(NULL, 0)
        cdef Span sql = span_at(NULL, 0)
        cdef bint has_value = False
        cdef int64_t kind = -1
        cdef int64_t job = 0
        cdef int64_t state = 0
        self.forget()
        self.commit_ts = 0
        while next_of(&fields, &field):
            if field.tag == MESSAGE_TYPE:
                kind = <int64_t>field.value
            elif field.tag == MESSAGE_COMMIT_TS:
                self.commit_ts = <int64_t>field.value
            elif field.tag == PREWRITE_VALUE:
                value, has_value = span_of(&field), True
            elif field.tag == DDL_QUERY:
                sql = span_of(&field)
            elif field.tag == DDL_JOB:
                job = <int64_t>field.value
            elif field.tag == DDL_STATE:
                state = <int64_t>field.value
        if self.commit_ts <= 0 or not (kind == ROLLBACK or kind == COMMIT and (job > 0 or has_value)):
            with gil:
                raise DecodeError("not a transaction of TiDB: it lacks its type, its commit_ts or its changes")
        if kind == ROLLBACK:
            return 0
        self.begin_headers(record.size, offset)
        self.add_commit_ts()
        if job > 0:
            with gil:
                return self.add_ddl(job, state, sql)
        return self.add_transaction(value)

    cdef int add_commit_ts(self) except -1 nogil:
        """Have all headers say the commit_ts."""
        cdef int digits = decimal_size(self.commit_ts)
        cdef uint8_t *p
        reserve(&self.common, COMMIT_TS_KEY.size + 32)
        p = self.common.data + self.common.size
        p = put_varint(put_varint(p, HEADER_PROPS), 2 + COMMIT_TS_KEY.size + 2 + digits)
        p = put_bytes(p, KEY, COMMIT_TS_KEY.data, COMMIT_TS_KEY.size)
        p = put_decimal(put_varint(put_varint(p, PAIR_VALUE), digits), self.commit_ts)
        self.common.size = p - self.common.data
        return 0

    cdef int add_ddl(self, int64_t job, int64_t state, Span sql) except -1:
        """Add a statement, unless it has changed nothing, or will be there again when a column is gone."""
        text = (<const char *>sql.data)[:sql.size].decode("utf-8", "replace") if sql.size else ""
        if text[:13].lower() == "select setval":
            return 0
        try:
            statement = self.tables.statement(job)
        except KeyError:
            self.version = 0
            raise UnknownJobError(f"the history of TiDB's DDL jobs has no job {job}: {text[:200]}") from None
        if statement is None or (statement.drops_column and state == DELETE_ONLY):
            return 0
        return self.add_statement(statement.schema, statement.table, text)

    cdef int add_transaction(self, Span value) except -1 nogil:
        cdef Fields fields = fields_of(value)
        cdef Fields inner
        cdef WireField field
        cdef int64_t version = -1
        cdef int64_t table_id
        self.add_end(TRANSACTIONBEGIN)
        while next_of(&fields, &field):
            if field.tag == SCHEMA_VERSION:
                version = <int64_t>field.value
            elif field.tag == MUTATION:
                inner = fields_of(span_of(&field))
                value = span_of(&field)
                table_id = <int64_t>field.value if next_with(&inner, TABLE_ID, &field) else -1
                if version < 0 or table_id < 0:
                    malformed()
                self.add_table(value, table_id, version)
        self.add_end(TRANSACTIONEND)
        return 0

    cdef int add_table(self, Span mutation, int64_t table_id, int64_t version) except -1 nogil:
        """Add the entries of a table; a marker if they cannot be decoded."""
        cdef size_t parts = self.parts.size()
        cdef size_t size = self.data.size
        cdef void *plan
        self.trouble.reason = NULL
        self.trouble.row = self.trouble.column = -1
        self.rows.size = 0
        plan = self.plan_of(table_id, version)
        if plan == NULL:
            self.trouble.reason = b"the history of TiDB's DDL jobs has no such table"
        elif not self.add_rows(plan, mutation):
            return 0
        self.parts.resize(parts)
        self.data.size = size
        self.rows.size = 0
        with gil:
            return self.put_marker(plan, table_id, version, mutation)

    cdef int add_rows(self, void *plan, Span mutation) except -1 nogil:
        """Add entries of rows in their order; 1, and what the trouble is, if they cannot be decoded."""
        cdef Fields kinds = fields_of(mutation)
        cdef Fields[3] rows
        cdef uint64_t[3] tags
        cdef int[3] types
        cdef int64_t[3] numbers
        cdef WireField field
        cdef int64_t kind
        cdef int64_t run = -1                      # the kind of the rows that are not taken yet
        cdef int64_t count = 0
        cdef size_t i
        tags[0], tags[1], tags[2] = INSERTED_ROWS, UPDATED_ROWS, DELETED_ROWS
        types[0], types[1], types[2] = INSERT, UPDATE, DELETE
        for i in range(3):
            rows[i] = fields_of(mutation)
            numbers[i] = 0
        while next_of(&kinds, &field):
            if field.tag == DELETED_IDS or field.tag == DELETED_KEYS or field.tag == DELETED_IDS + 2:
                return self.fail(b"deleted_ids and deleted_pks are obsolete, and not read", -1, 0)
            if field.tag != SEQUENCE:
                continue
            i = 2 if field.value == DELETED else field.value
            if i > 2 or (i == 2 and field.value != DELETED):
                return self.fail(b"its order has a kind of row that is not read", -1, 0)
            kind = field.value
            if count and (<int64_t>i != run or self.rows.size >= PIECE):
                self.take(plan, types[run], count)
                count = 0
            if self.data.size + self.rows.size > self.limit:
                return self.fail(b"the entries of its transaction are larger than is allowed", -1, 0)
            run = i
            if not next_with(&rows[i], tags[i], &field):
                return self.fail(b"its order has more rows than there are", -1, 0)
            self.trouble.kind, self.trouble.row = kind, numbers[i]
            numbers[i] += 1
            if self.add_row(plan, kind, span_of(&field)):
                return 1
            self.trouble.row = -1
            count += 1
        for i in range(3):
            if next_with(&rows[i], tags[i], &field):
                return self.fail(b"its order lacks rows that are there", -1, 0)
        if count:
            self.take(plan, types[run], count)
        return 0

    cdef void *plan_of(self, int64_t table_id, int64_t version) except? NULL nogil:
        """The plan of a table, made when the table is seen first, or in another version; NULL for an unknown one."""
        cdef pair[int64_t, int64_t] key = pair[int64_t, int64_t](table_id, version)
        cdef cppmap[pair[int64_t, int64_t], void *].iterator found = self.known.find(key)
        cdef void *plan
        if found != self.known.end():
            return dereference(found).second
        with gil:
            plan = self.learn(table_id, version)
        if plan != NULL:
            self.known[key] = plan
            self.known_bytes += KNOWN_SIZE
        return plan

    cdef void *learn(self, int64_t table_id, int64_t version) except? NULL:
        cdef RowPlan plan
        if version > self.tables.version:
            self.version = version
            raise UnknownJobError(
                f"the history of TiDB's DDL jobs ends at version {self.tables.version} of the schema, and a change is"
                f" of version {version}"
            )
        definition = self.tables.table(table_id, version)
        if definition is None:
            return NULL
        plan = self.plans.get(definition)
        if plan is None:
            plan = self.plans[definition] = RowPlan(definition)
            self.owned.append(plan)
            self.known_bytes += 1024 + 512 * plan.columns.size()
        return <void *>plan

    cdef int put_marker(self, void *found, int64_t table_id, int64_t version, Span mutation) except -1:
        """Put a marker in the place of the changes of a table, which says why they are not there."""
        cdef RowPlan plan = None
        cdef str schema = ""
        cdef str table = ""
        where = f"table {table_id} at version {version} of the schema"
        if found != NULL:
            plan = <RowPlan>found
            schema, table = plan.schema, plan.table
            where = f"{schema}.{table} ({where})"
        if self.trouble.row >= 0:
            where += f", {_KINDS[self.trouble.kind]} row {self.trouble.row}"
        if self.trouble.column >= 0:
            where += f", column {plan.described[self.trouble.column][0]}"
        if self.trouble.row >= 0:
            where += f", byte {self.trouble.offset}"
        reason = f"{where}: {self.trouble.reason.decode()}"
        if self.on_trouble is not None:
            changes = (<const char *>mutation.data)[:mutation.size]
            value = uint_field(SCHEMA_VERSION, version) + message_field(MUTATION, changes)
            it = Undecodable(self.commit_ts, self.parts.size(), schema, table, reason, value)
            if not self.on_trouble(it):
                return 0
        header = (
            text_field(SCHEMA_NAME, schema)
            + text_field(TABLE_NAME, table)
            + uint_field(EVENT_TYPE, QUERY)
            + message_field(HEADER_PROPS, text_field(KEY, props.QUARANTINE) + text_field(PAIR_VALUE, reason))
        )
        body = (
            uint_field(CHANGE_EVENT_TYPE, QUERY)
            + uint_field(IS_DDL, False)
            + text_field(SQL, f"-- {props.QUARANTINE}: {reason}")
        )
        self.add(ROWDATA, QUERY, span_at(header, len(header)), span_at(body, len(body)), NOTHING, 0, found)
        self.parts.back().is_marker = True
        return 0

    cdef int fail(self, const char *reason, int32_t column, size_t offset) noexcept nogil:
        self.trouble.reason, self.trouble.column, self.trouble.offset = reason, column, offset
        return 1

    # --- rows: 1, and what the trouble is, for one that cannot be decoded

    cdef int add_row(self, void *plan, int kind, Span row) except -1 nogil:
        cdef size_t start
        if self.read_row(plan, kind, row):
            return 1
        start = self.begin_row()
        if kind == INSERTED:
            if self.add_image(plan, AFTER_COLUMNS, &self.after, NULL):
                return 1
        elif self.add_image(plan, BEFORE_COLUMNS, &self.before, NULL):
            return 1
        elif kind == UPDATED and self.add_image(plan, AFTER_COLUMNS, &self.after, &self.before):
            return 1
        return self.end_row(plan, start)

    cdef int read_row(self, void *plan, int kind, Span row) except -1 nogil:
        """Put the values of a row at their columns."""
        cdef const Column *columns = (<RowPlan>plan).columns.data()
        cdef size_t size = (<RowPlan>plan).columns.size()
        cdef const uint8_t *p = row.data
        cdef const uint8_t *end = row.data + row.size
        cdef const uint8_t *at
        cdef vector[Datum] *values = &self.after if kind == INSERTED else &self.before
        cdef unordered_map[int64_t, int32_t].iterator known
        cdef size_t expected = 0                   # the column that mostly comes next
        cdef size_t i
        cdef Datum id
        cdef Datum datum
        self.row = row.data
        datum.flag = ABSENT
        datum.whole = NOTHING
        self.before.assign(size, datum)
        self.after.assign(size, datum)
        if kind == INSERTED:
            p = next_datum(p, end, &datum)
            if p == NULL or datum.flag == NULL_FLAG:
                return self.fail(b"it has no handle", -1, 0)
            if (<RowPlan>plan).handle:
                self.after[(<RowPlan>plan).numbers[(<RowPlan>plan).handle]] = datum
            if p == end:
                return self.fail(b"it ends after its handle", -1, p - row.data)
            if p[0] == NULL_FLAG and end - p == 1:
                return 0
        while p < end:
            at = p
            p = next_datum(p, end, &id)
            if p == NULL or id.flag != INT_FLAG:
                return self.fail(b"not the id of a column", -1, at - row.data)
            i = expected
            if i >= size or columns[i].id != <int64_t>id.number:
                known = (<RowPlan>plan).numbers.find(<int64_t>id.number)
                i = size if known == (<RowPlan>plan).numbers.end() else dereference(known).second
            at = p
            p = next_datum(p, end, &datum)
            if p == NULL:
                return self.fail(b"not a value that the row holds", <int32_t>i if i < size else -1, at - row.data)
            if i == size:                          # a column that statements do not see
                continue
            if kind == UPDATED and flag_at(&self.before, i) != ABSENT:
                values = &self.after
            if flag_at(values, i) != ABSENT:
                return self.fail(b"it is there once more", <int32_t>i, at - row.data)
            values[0][i] = datum
            expected = i + 1 if i + 1 < size else 0
        if kind == UPDATED:
            for i in range(size):
                if (self.before[i].flag == ABSENT) != (self.after[i].flag == ABSENT):
                    return self.fail(b"only one of the old and the new row has it", <int32_t>i, row.size)
        return 0

    cdef int add_image(self, void *plan, int tag, vector[Datum] *values, vector[Datum] *others) except -1 nogil:
        """Add the columns of an image; those that differ from the other image, if there is one, are updated."""
        cdef const Column *columns = (<RowPlan>plan).columns.data()
        cdef const Column *column
        cdef const Datum *datum
        cdef bint updated
        cdef Span text
        cdef size_t i
        for i in range((<RowPlan>plan).columns.size()):
            column = &columns[i]
            datum = &values[0][i]
            updated = tag == AFTER_COLUMNS and (others == NULL or not is_same(datum.whole, others[0][i].whole))
            if datum.flag == ABSENT or datum.flag == NULL_FLAG:
                self.add_null(column.null, tag, updated)
                continue
            if put_datum(&column.form, &self.zone, datum, &self.scratch, &text):
                return self.fail(self.scratch.error, <int32_t>i, datum.whole.data - self.row)
            self.add_text(
                column.promoted if column.has_limit and datum.number > column.limit else column.value, tag, updated,
                text, LATIN1 if column.form.way == RAW or column.form.way == FIXED else UTF8,
            )
        return 0


cdef inline int flag_at(vector[Datum] *values, size_t i) noexcept nogil:
    return values[0][i].flag
