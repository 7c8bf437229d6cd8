"""Entries to the messages of TDSQL's data subscription, each an object of JSON with these keys in this order::

    {"logtype":"mysqlbinlog","eventtype":23,"eventtypestr":"insert","db":"shop","table":"goods",
     "localip":"10.0.0.7","localport":3306,"begintime":1511350073,"gtid":"0-2670193178-726233561","event_index":"4",
     "where":[],"field":["1","'bob'"]}

========================  =============  ===================  =================================================
eventtypestr              eventtype      further keys         is
========================  =============  ===================  =================================================
insert, update, delete    23, 24, 25     where, field         a row: its values before and after
gtid                      33                                  sent before the first message of a transaction
xid                       16             xid                  the commit; the text is empty for one without XID
query                     2              sql                  a statement: DDL, or one step of an XA transaction
========================  =============  ===================  =================================================

`begintime` is the time of the transaction's first event in s, `gtid` its GTID as the source writes it, `event_index`
the number of the event in the transaction, all events counted. Values are in the order of the columns, written as in
SQL: numbers bare, also the number of an ENUM's label, the mask of a SET, and a BIT; texts, dates and JSON in single
quotes, with a backslash before quotes and backslashes; bytes as `x'6162'`; `NULL`.

https://www.tencentcloud.com/document/product/237/35916 shows each sort of message but update and delete; their numbers
go on from that of insert, as those of MariaDB's events do.
"""

import json

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcpy, memset
from libcpp.string cimport string

from ..canal.columns cimport Columns, Meaning
from ..canal.entry cimport (
    IMAGE_AFTER,
    IMAGE_BEFORE,
    Cell,
    Fields,
    RowChange,
    Transaction,
    checked,
    fields_of,
    get_header,
    get_transaction,
    malformed,
    next_column_of,
    next_row,
)
from ..canal.flat cimport Change, put, put_number, put_string, read_change, reserve
from ..canal.records cimport MARKER, PARTIAL, TOO_LARGE, Encoder, Record, done, put_inside
from ..canal.tags cimport (
    BYTES,
    DATE,
    DATETIME,
    DELETE,
    INSERT,
    JSON,
    QUERY,
    TEXT,
    TIME,
    TRANSACTIONBEGIN,
    TRANSACTIONEND,
)
from ..escapes cimport skip_plain
from ..wire cimport Span, is_same, put_decimal, span_at

cdef const char *HEXADECIMAL = b"0123456789abcdef"
cdef const char *XA_PREPARED = b"prepared "
cdef enum:
    XA_PREPARED_SIZE = 9

cdef Span NOTHING = span_at(b"", 0)
cdef Span NO_XID = span_at(b"0", 1)                # of a COMMIT, in Canal's entries


cdef struct Sort:
    # Of messages: the keys that are the same in each.
    const char *head
    size_t size

cdef Sort GTID_SORT, XID_SORT, QUERY_SORT, INSERT_SORT, UPDATE_SORT, DELETE_SORT


cdef bytes _head(int number, str name):
    return f'{{"logtype":"mysqlbinlog","eventtype":{number},"eventtypestr":"{name}","db":'.encode()

cdef bytes _gtid = _head(33, "gtid")
cdef bytes _xid = _head(16, "xid")
cdef bytes _query = _head(2, "query")
cdef bytes _insert = _head(23, "insert")
cdef bytes _update = _head(24, "update")
cdef bytes _delete = _head(25, "delete")
GTID_SORT.head, GTID_SORT.size = _gtid, len(_gtid)
XID_SORT.head, XID_SORT.size = _xid, len(_xid)
QUERY_SORT.head, QUERY_SORT.size = _query, len(_query)
INSERT_SORT.head, INSERT_SORT.size = _insert, len(_insert)
UPDATE_SORT.head, UPDATE_SORT.size = _update, len(_update)
DELETE_SORT.head, DELETE_SORT.size = _delete, len(_delete)


cdef Span span_of_string(const string *text) noexcept nogil:
    return span_at(text.data(), text.size())


cdef class TdsqlEncoder(Encoder):
    """Makes messages of batches that follow one another. All have topic 0 and partition 0, and no key.

    A transaction may go on in the next batch; so what is known of it is kept.
    """
    cdef Columns columns
    cdef bint is_known                             # there is a transaction, begun at `first`
    cdef bint has_begin                            # ... by a BEGIN, so that an end will come
    cdef bint is_announced                         # something of it was sent
    cdef uint64_t first
    cdef int64_t time                              # of its first event, in s
    cdef string gtid
    cdef string schema                             # of its last row
    cdef string table
    cdef string host                               # of the source: its address, as JSON
    cdef int64_t port

    def __init__(self, *, size_t limit):
        """`limit`: bytes of a message."""
        self.limit = limit
        self.columns = Columns()

    @property
    def source(self):
        """The address of the source, and its port."""
        return self.host.decode(), self.port

    @source.setter
    def source(self, tuple address):
        host, self.port = address
        self.host = host.encode()

    @property
    def state(self):
        """What is known of the transaction that goes on in the next batch, as text; empty between transactions."""
        if not self.is_known:
            return ""
        return json.dumps([
            self.first, self.has_begin, self.is_announced, self.time,
            self.gtid.decode(), self.schema.decode(), self.table.decode(),
        ])

    @state.setter
    def state(self, str text not None):
        self.is_known = text != ""
        if text:
            self.first, self.has_begin, self.is_announced, self.time, gtid, schema, table = json.loads(text)
            self.gtid, self.schema, self.table = gtid.encode(), schema.encode(), table.encode()

    cdef int begin(self) except -1:
        Encoder.begin(self)
        self.columns.shrink()
        return 0

    cdef bint add(self, Span message) except -1 nogil:
        cdef Change change
        cdef size_t records = self.records.size()
        cdef size_t size = self.out.size
        cdef bint was_announced
        cdef int is_change = read_change(message, &change)
        done(is_change)
        if not is_change:
            memset(&change.row, 0, sizeof(RowChange))
            if not get_header(&change.entry, &change.header, &change.marks):
                malformed()
            if change.entry.type == TRANSACTIONBEGIN:
                self.start(&change, True)
            elif change.entry.type == TRANSACTIONEND and self.is_known:
                self.finish_transaction(&change)
            return True
        if change.marks.is_marker:
            return self.stop_at(MARKER, &change, NOTHING, 0)
        if change.event_type == QUERY and not change.row.is_ddl:  # the text of what the rows say
            return True
        if not self.is_known or self.first != self.transaction:
            self.start(&change, False)
        was_announced = self.is_announced
        if self.add_change(&change):
            return True
        self.is_announced = was_announced
        self.records.resize(records)
        self.out.size = size
        return False

    cdef bint add_change(self, const Change *change) except -1 nogil:
        cdef Span schema = change.header.schema
        cdef Fields rows = fields_of(change.entry.body)
        cdef Span row
        if change.image and checked(next_row(&rows, &row)):
            return self.add_rows(change)
        self.is_known = self.has_begin             # a DDL is a transaction of its own
        if schema.size == 0:
            schema = change.row.ddl_schema
        return self.add_query(change, schema, change.header.table, change.row.sql)

    cdef int start(self, const Change *change, bint has_begin) except -1 nogil:
        self.is_known = True
        self.has_begin = has_begin
        self.is_announced = False
        self.first = self.transaction
        self.time = change.header.execute_time // 1000
        self.gtid.assign(<const char *>change.marks.gtid.data, change.marks.gtid.size)
        self.schema.clear()
        self.table.clear()
        return 0

    cdef int finish_transaction(self, const Change *change) except -1 nogil:
        cdef Transaction transaction
        cdef Span xa = change.marks.xa
        if not get_transaction(&change.entry, &transaction):
            malformed()
        if self.is_announced and xa.size >= XA_PREPARED_SIZE and xa.data[0] == XA_PREPARED[0]:
            self.add_prepare(change, span_at(<const char *>xa.data + XA_PREPARED_SIZE, xa.size - XA_PREPARED_SIZE))
        elif self.is_announced:
            self.put_head(&XID_SORT, span_of_string(&self.schema), span_of_string(&self.table), self.n + 1)
            done(put(&self.parts, b',"xid":', 7))
            done(put_string(&self.parts, NOTHING if is_same(transaction.id, NO_XID) else transaction.id))
            self.add_message(change, 0, NOTHING)
        self.is_known = False
        return 0

    cdef int add_prepare(self, const Change *change, Span xid) except -1 nogil:
        """XA PREPARE, which is not the commit."""
        cdef string sql
        sql.assign(b"XA PREPARE ", 11)
        sql.append(<const char *>xid.data, xid.size)
        return self.add_query(change, span_of_string(&self.schema), span_of_string(&self.table), span_of_string(&sql))

    cdef bint add_query(self, const Change *change, Span schema, Span table, Span sql) except -1 nogil:
        self.announce(change)
        self.put_head(&QUERY_SORT, schema, table, self.n + 1)
        done(put(&self.parts, b',"sql":', 7))
        done(put_string(&self.parts, sql))
        return self.add_message(change, 0, NOTHING)

    cdef int announce(self, const Change *change) except -1 nogil:
        """The GTID, before the first message of its transaction."""
        if self.is_announced:
            return 0
        self.is_announced = True
        self.put_head(&GTID_SORT, NOTHING, NOTHING, 1)
        return self.add_message(change, 0, NOTHING)

    cdef bint add_rows(self, const Change *change) except -1 nogil:
        cdef const Sort *sort = &UPDATE_SORT
        cdef Fields rows = fields_of(change.entry.body)
        cdef Span row
        cdef size_t head
        if change.row.absent.size:
            return self.stop_at(PARTIAL, change, NOTHING, 0)
        if change.event_type == INSERT:
            sort = &INSERT_SORT
        elif change.event_type == DELETE:
            sort = &DELETE_SORT
        self.announce(change)
        self.put_head(sort, change.header.schema, change.header.table, self.n + 1)
        done(put(&self.parts, b',"where":[', 10))
        head = self.parts.size
        while checked(next_row(&rows, &row)):
            self.parts.size = head
            self.put_image(row, IMAGE_BEFORE)
            done(put(&self.parts, b'],"field":[', 11))
            self.put_image(row, IMAGE_AFTER)
            done(put(&self.parts, b"]", 1))
            if not self.add_message(change, 1, row):
                return False
        self.schema.assign(<const char *>change.header.schema.data, change.header.schema.size)
        self.table.assign(<const char *>change.header.table.data, change.header.table.size)
        return True

    cdef int put_head(self, const Sort *sort, Span schema, Span table, uint64_t event) except -1 nogil:
        """What all messages have, up to the number of the event."""
        cdef uint8_t[20] digits
        self.parts.size = 0
        done(put(&self.parts, sort.head, sort.size))
        done(put_string(&self.parts, schema))
        done(put(&self.parts, b',"table":', 9))
        done(put_string(&self.parts, table))
        done(put(&self.parts, b',"localip":', 11))
        done(put_string(&self.parts, span_of_string(&self.host)))
        done(put(&self.parts, b',"localport":', 13))
        done(put_number(&self.parts, self.port))
        done(put(&self.parts, b',"begintime":', 13))
        done(put_number(&self.parts, self.time))
        done(put(&self.parts, b',"gtid":', 8))
        done(put_string(&self.parts, span_of_string(&self.gtid)))
        done(put(&self.parts, b',"event_index":"', 16))
        done(put(&self.parts, <const char *>digits, put_decimal(digits, event) - digits))
        done(put(&self.parts, b'"', 1))
        return 0

    cdef bint add_message(self, const Change *change, int32_t rows, Span row) except -1 nogil:
        """The message in `parts`, but for its last bracket."""
        cdef Record record
        memset(&record, 0, sizeof(Record))
        record.value.at = self.out.size
        done(put(&self.out, <const char *>self.parts.data, self.parts.size))
        done(put(&self.out, b"}", 1))
        record.value.size = self.out.size - record.value.at
        record.rows, record.entry = rows, self.entry
        if record.value.size > self.limit:
            return self.stop_at(TOO_LARGE, change, row, record.value.size)
        self.records.push_back(record)
        return True

    cdef int put_image(self, Span row, int image) except -1 nogil:
        cdef Fields columns = fields_of(row)
        cdef Span message
        cdef Cell cell
        cdef const Meaning *meaning
        cdef size_t place = 0
        while checked(next_column_of(&columns, image, &message)):
            meaning = self.columns.read(message, place, &cell)
            if place:
                done(put(&self.parts, b",", 1))
            place += 1
            if cell.is_null:
                done(put(&self.parts, b'"NULL"', 6))
            elif meaning.kind == BYTES:
                self.put_bytes(cell.value, meaning.width)
            elif meaning.kind in (TEXT, DATE, DATETIME, TIME, JSON):
                self.put_quoted(cell.value)
            else:
                done(put_string(&self.parts, cell.value))
        return 0

    cdef int put_quoted(self, Span text) except -1 nogil:
        """A text in quotes of SQL, and these in those of JSON."""
        cdef const uint8_t *p = text.data
        cdef const uint8_t *end = p + text.size
        cdef const uint8_t *run
        cdef const uint8_t *quote
        cdef uint8_t c
        done(put(&self.parts, b"\"'", 2))
        while p < end:
            run = p
            p = skip_plain(p, end)
            quote = <const uint8_t *>memchr(run, b"'", p - run)
            if quote != NULL:
                p = quote
            done(put(&self.parts, <const char *>run, p - run))
            if p == end:
                break
            c = p[0]
            p += 1
            if c == 39:                            # '
                done(put(&self.parts, b"\\\\'", 3))
            elif c == 92:                          # a backslash
                done(put(&self.parts, b"\\\\\\\\", 4))
            else:                                  # for JSON only
                put_inside(&self.parts, span_at(<const char *>p - 1, 1))
        done(put(&self.parts, b"'\"", 2))
        return 0

    cdef int put_bytes(self, Span text, size_t width) except -1 nogil:
        """Bytes, each of which is the character of its number; with zeros at the end up to the width."""
        cdef const uint8_t *p = text.data
        cdef const uint8_t *end = p + text.size
        cdef uint8_t byte
        cdef size_t count = 0
        cdef uint8_t *o
        done(reserve(&self.parts, 2 * max(text.size, width) + 5))
        o = self.parts.data + self.parts.size
        memcpy(o, b"\"x'", 3)
        o += 3
        while p < end or count < width:
            if p == end:
                byte = 0
            elif p[0] < 0x80:
                byte = p[0]
                p += 1
            elif p[0] in (0xC2, 0xC3) and end - p >= 2:
                byte = <uint8_t>(p[0] << 6 | p[1] & 0x3F)
                p += 2
            else:
                malformed()
            o[0] = HEXADECIMAL[byte >> 4]
            o[1] = HEXADECIMAL[byte & 15]
            o += 2
            count += 1
        memcpy(o, b"'\"", 2)
        self.parts.size = o + 2 - self.parts.data
        return 0
