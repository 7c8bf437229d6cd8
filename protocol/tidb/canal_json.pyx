"""Messages of TiCDC's protocol canal-json as Canal's entries. https://docs.pingcap.com/tidb/stable/ticdc-canal-json

A message is an object of JSON, one for each row, statement or watermark::

    {"id":0, "database":"shop", "table":"orders", "pkNames":["id"], "isDdl":false, "type":"INSERT", "es":<ms>,
     "ts":<ms>, "sql":"", "sqlType":{"id":4, "v":12}, "mysqlType":{"id":"int", "v":"varchar"}, "old":null,
     "data":[{"id":"2", "v":null}], "_tidb":{"commitTs":429918007904436226}}

``type`` is INSERT, UPDATE, DELETE (whose ``data`` is the row before), with ``isDdl`` the kind of a statement, or
TIDB_WATERMARK, which has ``_tidb.watermarkTs``: what has a lesser commit_ts was sent before it, and may be sent again.
``_tidb`` is there only with ``enable-tidb-extension=true``. ``old`` has all columns, or those that changed. The order
of ``mysqlType`` is any.

Each value is a string, or null: numbers in decimal, ENUM its number, SET and BIT their mask, binary types a character
of ISO 8859-1 for each byte. ``mysqlType`` says ``unsigned``, and has lengths only with ``content-compatible=true``. The
sqlType of an unsigned integer is that of the next wider type where the value needs it, as in Canal.

What a commit_ts has is encoded together: its messages, one after the other.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cython.operator cimport dereference
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcmp, strlen
from libcpp.algorithm cimport sort
from libcpp.string cimport string
from libcpp.string_view cimport string_view
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from ..canal.tags cimport (
    AFTER_COLUMNS,
    BEFORE_COLUMNS,
    DELETE,
    INSERT,
    TRANSACTIONBEGIN,
    TRANSACTIONEND,
    UPDATE,
)
from ..json_text cimport (
    Walk,
    has_escapes,
    is_string,
    items_of,
    members_of,
    next_item,
    next_member,
    number_of,
    skip_space,
    unescape,
)
from ..wire cimport Span, is_same, span_at
from .encoder cimport PIECE, UTF8, Encoder, Plan

import json

from ..canal.types import SqlType, ValueKind, kind_of
from ..errors import DecodeError


cdef enum:
    MAX_COLUMNS = 4096                             # of a table in MySQL; TiDB's limit is 4096, too


cdef Span NOTHING = span_at(b"", 0)


cdef int refuse(str reason) except -1:
    raise DecodeError(f"not a message of TiCDC's canal-json: {reason}")


cdef int malformed(const char *reason) except -1 nogil:
    with gil:
        refuse(reason.decode())


cdef inline bint equals(Span text, const char *wanted) noexcept nogil:
    return text.size == strlen(wanted) and memcmp(text.data, wanted, text.size) == 0


cdef inline bint is_null(Span value) noexcept nogil:
    return value.size == 0 or equals(value, b"null")


cdef str text_of(Span value):
    """What a string of JSON stands for; of anything else its text."""
    text = (<const char *>value.data)[:value.size].decode("utf-8", "replace")
    if not is_string(value):
        return "" if is_null(value) else text
    return json.loads(text).encode("utf-8", "replace").decode()


# --- messages --------------------------------------------------------------------------------------------------------

cdef int read_extension(Span text, Message *message) except -1 nogil:
    cdef Walk walk = members_of(text)
    cdef Span name, value
    cdef int found
    while True:
        found = next_member(&walk, &name, &value)
        if found < 0:
            malformed(b"_tidb is not an object")
        if not found:
            return 0
        if equals(name, b'"commitTs"') if message.kind != WATERMARK else equals(name, b'"watermarkTs"'):
            message.ts = number_of(value)
        elif equals(name, b'"onlyHandleKey"') and equals(value, b"true"):
            with gil:
                raise DecodeError(
                    "a message has only the key of a row, which was too large for TiCDC: raise max-message-bytes in the"
                    " sink-uri of the changefeed, and do not set its large-message-handle-option"
                )
        elif equals(name, b'"claimCheckLocation"') and value.size > 2:
            with gil:
                raise DecodeError(
                    "a message says where a row is stored, which was too large for TiCDC: raise max-message-bytes in"
                    " the sink-uri of the changefeed, and do not set its large-message-handle-option"
                )


cdef int read_row(Span text, Span *row) except -1 nogil:
    """Reads the only row of a list; none if there is no list."""
    cdef Walk walk = items_of(text)
    cdef Span more
    row[0] = NOTHING
    if is_null(text):
        return 0
    if next_item(&walk, row) != 1 or next_item(&walk, &more) != 0 or row.data[0] != b"{":
        malformed(b"it has not one row")
    return 0


cdef const uint8_t *read_message(Span text, Message *message) except NULL nogil:
    # Long: two lines for each member of a message.
    cdef Walk walk = members_of(text)
    cdef Span name, value
    cdef Span kind = NOTHING
    cdef Span extension = NOTHING
    cdef Span data = NOTHING
    cdef Span old = NOTHING
    cdef bint is_ddl = False
    cdef int found
    message.ts = -1
    message.event_type = 0
    message.schema = message.table = message.keys = message.sql = NOTHING
    message.sql_types = message.mysql_types = message.row = message.old = NOTHING
    while True:
        found = next_member(&walk, &name, &value)
        if found < 0:
            malformed(b"it is not an object of JSON; large-message-handle-compression has to be none")
        if not found:
            break
        if equals(name, b'"database"'):
            message.schema = value
        elif equals(name, b'"table"'):
            message.table = value
        elif equals(name, b'"pkNames"'):
            message.keys = value
        elif equals(name, b'"isDdl"'):
            is_ddl = equals(value, b"true")
        elif equals(name, b'"type"'):
            kind = value
        elif equals(name, b'"sql"'):
            message.sql = value
        elif equals(name, b'"sqlType"'):
            message.sql_types = value
        elif equals(name, b'"mysqlType"'):
            message.mysql_types = value
        elif equals(name, b'"data"'):
            data = value
        elif equals(name, b'"old"'):
            old = value
        elif equals(name, b'"_tidb"'):
            extension = value
    if is_ddl:
        message.kind = STATEMENT
    elif equals(kind, b'"TIDB_WATERMARK"'):
        message.kind = WATERMARK
    else:
        message.kind = ROW
        if equals(kind, b'"INSERT"'):
            message.event_type = INSERT
        elif equals(kind, b'"UPDATE"'):
            message.event_type = UPDATE
        elif equals(kind, b'"DELETE"'):
            message.event_type = DELETE
    if not is_null(extension):
        read_extension(extension, message)
    elif kind.size:
        with gil:
            raise DecodeError(
                "a message has no _tidb.commitTs: set enable-tidb-extension=true in the sink-uri of the changefeed"
            )
    if message.ts <= 0:
        malformed(b"_tidb has no commitTs or watermarkTs")
    if message.kind == WATERMARK:
        return walk.p
    if not is_string(message.schema) or not is_string(message.table):
        malformed(b"it has no database or table")
    if message.kind == STATEMENT:
        if not is_string(message.sql):
            malformed(b"a statement has no text")
        return walk.p
    if not message.event_type:
        malformed(b"its type is not one that TiCDC writes")
    read_row(data, &message.row)
    read_row(old, &message.old)
    if not message.row.size or (message.old.size != 0) != (message.event_type == UPDATE):
        malformed(b"it lacks a row")
    return walk.p


cdef int put_identity(const Message *message, string *identity) except -1 nogil:
    cdef Walk keys = items_of(message.keys)
    cdef Walk columns
    cdef Span key, name, value
    cdef int found
    identity.clear()
    if message.kind == STATEMENT:
        identity.append(<const char *>message.sql.data, message.sql.size)
        return 0
    if is_null(message.keys):
        return 0
    identity.push_back(<char>message.event_type)
    identity.append(<const char *>message.schema.data, message.schema.size)
    identity.append(<const char *>message.table.data, message.table.size)
    while True:
        found = next_item(&keys, &key)
        if found < 0:
            malformed(b"pkNames is not a list")
        if not found:
            return 0
        columns = members_of(message.row)
        while True:
            found = next_member(&columns, &name, &value)
            if found <= 0:
                malformed(b"a row lacks a column of its key")
            if is_same(name, key):
                identity.append(<const char *>value.data, value.size)
                break


def watermark_of(value):
    """The watermark that a message is; 0 if it is another one. Raises DecodeError."""
    cdef Py_buffer view
    cdef Message message
    PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
    try:
        read_message(span_at(<const char *>view.buf, view.len), &message)
        return message.ts if message.kind == WATERMARK else 0
    finally:
        PyBuffer_Release(&view)


# --- tables ----------------------------------------------------------------------------------------------------------

_PROMOTED = {
    "tinyint": (SqlType.TINYINT, SqlType.SMALLINT, b"127"),
    "smallint": (SqlType.SMALLINT, SqlType.INTEGER, b"32767"),
    "int": (SqlType.INTEGER, SqlType.BIGINT, b"2147483647"),
    "bigint": (SqlType.BIGINT, SqlType.DECIMAL, b"9223372036854775807"),
}


@cython.final
cdef class MessagePlan(Plan):
    """What is the same for all rows of a table, as its columns are in a message."""

    cdef int add(self, bytes quoted, str mysql_type, int sql_type, bint is_key) except -1:
        cdef Column column
        cdef bytes limit
        cdef str name = text_of(span_at(quoted, len(quoted)))
        cdef size_t index = self.columns.size()
        cdef int promoted = sql_type
        column.limit = NULL
        column.is_integer = kind_of(mysql_type, sql_type) == ValueKind.INTEGER
        word = mysql_type.partition(" ")[0].partition("(")[0]
        if mysql_type.endswith(" unsigned") and word in _PROMOTED:
            sql_type, promoted, limit = _PROMOTED[word]
            column.limit = limit
        column.name = span_at(quoted, len(quoted))
        column.value = self.add_head(index, sql_type, name, is_key, mysql_type, False)
        column.promoted = self.add_head(index, promoted, name, is_key, mysql_type, False)
        column.null = self.add_head(index, sql_type, name, is_key, mysql_type, True)
        self.owned.append(quoted)
        self.columns.push_back(column)
        self.described.append((name, mysql_type, is_key))
        return 0


cdef dict members_by_name(Span text):
    """The members of an object by their names with quotes. Raises DecodeError."""
    cdef Walk walk = members_of(text)
    cdef Span name, value
    cdef int found
    members = {}
    while (found := next_member(&walk, &name, &value)) == 1:
        members[(<const char *>name.data)[:name.size]] = (<const char *>value.data)[:value.size]
    if found < 0:
        malformed(b"the types of columns are not an object")
    return members


# --- entries ---------------------------------------------------------------------------------------------------------

@cython.final
cdef class MessageEncoder(Encoder):
    """Encodes what a commit_ts has: messages of rows and statements, one after the other. One call at a time."""

    def __dealloc__(self):
        free(self.text.data)

    cdef int encode_record(self, Span record, int64_t offset) except -1 nogil:
        cdef const uint8_t *end = record.data + record.size
        cdef size_t size = record.size
        cdef Message message
        cdef void *plan = NULL
        cdef void *run = NULL                      # the plan and the kind of the rows that are not taken yet
        cdef int run_type = 0
        cdef int64_t count = 0
        cdef bint is_open = False                  # a transaction is
        self.forget()
        self.commit_ts = 0
        while True:
            record.data = read_message(record, &message)
            record.size = end - record.data
            if self.commit_ts == 0:
                self.commit_ts = message.ts
                self.begin_headers(size, offset)
            if message.kind == WATERMARK or message.ts != self.commit_ts:
                malformed(b"it belongs to no transaction")
            if message.kind == ROW:
                plan = self.plan_of(&message)
                if not is_open:
                    self.add_end(TRANSACTIONBEGIN)
                    is_open = True
            if count and (
                message.kind != ROW or plan != run or message.event_type != run_type or self.rows.size >= PIECE
            ):
                self.take(run, run_type, count)
                count = 0
            if message.kind == ROW:
                run, run_type = plan, message.event_type
                self.add_row(<MessagePlan>plan, &message)
                count += 1
            else:
                if is_open:
                    self.add_end(TRANSACTIONEND)
                    is_open = False
                with gil:
                    self.add_statement(text_of(message.schema), text_of(message.table), text_of(message.sql))
            record.data = skip_space(record.data, end)
            record.size = end - record.data
            if not record.size:
                break
        if count:
            self.take(run, run_type, count)
        if is_open:
            self.add_end(TRANSACTIONEND)
        return 0

    cdef int forget_plans(self) except -1:
        self.known.clear()
        self.last.clear()
        return 0

    cdef void *plan_of(self, const Message *message) except NULL nogil:
        """The plan of a table, made when the table is seen first, or in another form."""
        cdef Walk walk = members_of(message.mysql_types)
        cdef unordered_map[string, void *].iterator found
        cdef Span name, value
        cdef size_t i
        cdef int more
        self.key.assign(<const char *>message.schema.data, message.schema.size)
        self.key.append(<const char *>message.table.data, message.table.size)
        self.key.append(<const char *>message.keys.data, message.keys.size)
        i = self.key.size()
        self.key.append(<const char *>message.mysql_types.data, message.mysql_types.size)
        if self.key == self.last:
            return self.last_plan
        self.last = self.key
        self.key.resize(i)
        self.members.clear()
        while True:
            more = next_member(&walk, &name, &value)
            if more < 0 or self.members.size() > MAX_COLUMNS:
                malformed(b"mysqlType is not an object of types")
            if not more:
                break
            self.members.push_back(string_view(<const char *>name.data, value.data + value.size - name.data))
        sort(self.members.begin(), self.members.end())
        for i in range(self.members.size()):
            self.key.append(self.members[i].data(), self.members[i].size())
        found = self.known.find(self.key)
        if found == self.known.end():
            self.last.clear()                      # which stays so if there is no plan
            with gil:
                self.last_plan = self.learn(message)
        else:
            self.last_plan = dereference(found).second
        return self.last_plan

    cdef void *learn(self, const Message *message) except NULL:
        """The plan of a table that was seen first."""
        cdef Walk walk = members_of(message.row)
        cdef Walk keys = items_of(message.keys)
        cdef Span name, value
        cdef MessagePlan plan = MessagePlan(text_of(message.schema), text_of(message.table))
        cdef str where = f"{plan.schema}.{plan.table}"
        cdef set key = set()
        cdef int found
        while not is_null(message.keys) and next_item(&keys, &name) == 1:
            key.add((<const char *>name.data)[:name.size])
        mysql_types = members_by_name(message.mysql_types)
        sql_types = members_by_name(message.sql_types)
        while (found := next_member(&walk, &name, &value)) == 1:
            quoted = (<const char *>name.data)[:name.size]
            try:
                mysql_type, sql_type = json.loads(mysql_types.pop(quoted)), int(sql_types[quoted])
            except (KeyError, ValueError):
                refuse(f"{where} has no type for its column {text_of(name)}")
            if not isinstance(mysql_type, str) or not -(1 << 31) <= sql_type < 1 << 31:
                refuse(f"{where} has no type for its column {text_of(name)}")
            plan.add(quoted, mysql_type, sql_type, quoted in key)
        if found < 0 or mysql_types or not plan.columns.size():
            refuse(f"a row of {where} has other columns than its types")
        self.owned.append(plan)
        self.known[self.key] = <void *>plan
        self.known_bytes += 1024 + 16 * self.key.size()
        return <void *>plan

    cdef int read_image(self, MessagePlan plan, Span row, vector[Span]& values) except -1 nogil:
        """Put the values of an image at their columns; empty for those that it lacks."""
        cdef Walk walk = members_of(row)
        cdef const Column *columns = plan.columns.data()
        cdef size_t size = plan.columns.size()
        cdef size_t next_one = 0                   # where the column mostly is
        cdef size_t i
        cdef Span name, value
        cdef int found
        values.assign(size, NOTHING)
        while True:
            found = next_member(&walk, &name, &value)
            if found < 0:
                malformed(b"a row is not an object")
            if not found:
                return 0
            i = next_one
            while i < size and not is_same(name, columns[i].name):
                i += 1
            if i == size:
                i = 0
                while i < next_one and not is_same(name, columns[i].name):
                    i += 1
                if i == next_one:
                    with gil:
                        refuse(f"a row of {plan.schema}.{plan.table} has the column {text_of(name)} without its type")
            values[i] = value
            next_one = i + 1

    cdef int add_row(self, MessagePlan plan, const Message *message) except -1 nogil:
        cdef const Column *columns = plan.columns.data()
        cdef size_t start = self.begin_row()
        cdef size_t i
        cdef bint is_update = message.event_type == UPDATE
        self.read_image(plan, message.row, self.after)
        for i in range(self.after.size()):
            if not self.after[i].size:
                with gil:
                    refuse(f"a row of {plan.schema}.{plan.table} lacks a column that it has a type for")
        if is_update:
            self.read_image(plan, message.old, self.before)
            for i in range(self.before.size()):
                if not self.before[i].size:        # only-output-updated-columns, content-compatible: it is the same
                    self.before[i] = self.after[i]
                self.add_column(&columns[i], BEFORE_COLUMNS, self.before[i], False)
        for i in range(self.after.size()):
            if message.event_type == DELETE:
                self.add_column(&columns[i], BEFORE_COLUMNS, self.after[i], False)
            else:
                self.add_column(
                    &columns[i], AFTER_COLUMNS, self.after[i],
                    not is_update or not is_same(self.after[i], self.before[i]),
                )
        return self.end_row(<void *>plan, start)

    cdef int add_column(self, const Column *column, int tag, Span value, bint updated) except -1 nogil:
        cdef Span head = column.value
        if is_null(value):
            return self.add_null(column.null, tag, updated)
        if not is_string(value):
            malformed(b"a value is not a string")
        if not has_escapes(value):
            value = span_at(<const char *>value.data + 1, value.size - 2)
        elif unescape(value, &self.text):
            value = span_at(<const char *>self.text.data, self.text.size)
        else:
            malformed(b"a string has an escape that JSON does not have")
        if column.is_integer and not has_digits(value):
            malformed(b"a value of an integer column is not an integer")
        if column.limit != NULL and is_above(value, column.limit):
            head = column.promoted
        return self.add_text(head, tag, updated, value, UTF8)


cdef inline bint has_digits(Span value) noexcept nogil:
    """Whether the text is an integer of at most 64 bits and a sign, by its size."""
    cdef size_t i = value.size > 0 and value.data[0] == b"-"
    if i == value.size or value.size > 20:
        return False
    while i < value.size:
        if not b"0" <= value.data[i] <= b"9":
            return False
        i += 1
    return True


cdef inline bint is_above(Span digits, const char *limit) noexcept nogil:
    cdef size_t size = strlen(limit)
    return digits.size > size or (digits.size == size and memcmp(digits.data, limit, size) > 0)
