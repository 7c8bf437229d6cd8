"""Entries to FlatMessage, the JSON that Canal writes to message queues: one object per entry, with all its rows.

Keys are in alphabetical order and are never left out; every value of a row is a string or null::

    {"data":[{"id":"7","name":"bob"}],"database":"shop","es":1700000000000,"gtid":"","id":12,"isDdl":false,
     "mysqlType":{"id":"bigint","name":"varchar(32)"},"old":[{"name":"alice"}],"pkNames":["id"],"sql":"",
     "sqlType":{"id":-5,"name":12},"table":"goods","ts":1700000000123,"type":"UPDATE"}

Entries other than ROWDATA (a transaction's begin and end) are left out. Three things differ from Canal; `strict` gives
its form:

* In an UPDATE of several rows, `old` of a row has the columns that changed in this row, not those that changed in this
  or any earlier row of the entry.
* If the images do not have all columns (binlog_row_image is not FULL), `data` of an UPDATE combines both images: what
  the image after leaves out comes from the image before. One more key, `absent`, names the columns that neither has.
  Without a primary key `pkNames` has the columns of an image before that is not whole: a UNIQUE key is among them.
* A message that belongs to an XA transaction has one more key, `xa`, one whose rows come out of their order `late`,
  one whose rows were read from a table `snapshot`, and one of several sources that are merged the `member`.

entry.pxd says what the input is. Its strings are UTF-8 already and are copied, except for what JSON escapes.
"""

import time

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset, strlen

from ..escapes cimport skip_plain
from ..wire cimport Span, is_same
from .entry cimport (
    IMAGE_AFTER,
    IMAGE_BEFORE,
    MALFORMED,
    Cell,
    Fields,
    Header,
    fields_of,
    get_cell,
    get_changing,
    get_entry,
    get_header,
    get_row_change,
    next_column_of,
    next_entry,
    next_row,
)
from .tags cimport DELETE, INSERT, ROWDATA, UPDATE

from ..errors import DecodeError
from .tags import EventType

cdef enum:
    MYSQL_TYPES
    SQL_TYPES
    KEY_NAMES
cdef enum:
    NOTHING_ABSENT = 2                             # bytes of []

cdef const char *TYPE_NAMES[EVENT_TYPES]
# Absent it is UPDATE, which Canal's classes read so.
cdef list _type_names = [b"UPDATE", *(it.name.encode() for it in EventType)]
for _number in range(EVENT_TYPES):
    TYPE_NAMES[_number] = <bytes>_type_names[_number]
cdef const char *HEXADECIMAL = b"0123456789abcdef"

cdef dict REASONS = {
    MALFORMED: "a field does not fit into its message",
    UNKNOWN_TYPE: "its event type is unknown",
    NO_COLUMN: "a column has an index that no table has",
}


cdef int open_writer(Writer *out, int64_t batch_id, int64_t ts, bint strict) except -1:
    memset(out, 0, sizeof(Writer))
    out.columns = <Cell *>calloc(COLUMNS_MAX, sizeof(Cell))
    out.marked = <uint8_t *>calloc(COLUMNS_MAX, 1)
    out.batch_id = batch_id
    out.ts = ts
    out.strict = strict
    if out.columns == NULL or out.marked == NULL:
        raise MemoryError
    return 0


cdef void close_writer(Writer *out) noexcept:
    cdef int i
    cdef int k
    for i in range(TABLES):
        if out.tables[i] != NULL:
            for k in range(TEXTS):
                free(out.tables[i].texts[k].data)
            free(out.tables[i].name)
            free(out.tables[i])
    free(out.columns)
    free(out.marked)
    free(out.data)


cdef int find_known(Writer *out, const Header *header) noexcept nogil:
    """What is known of the table of an entry; another table of the same hash takes its place."""
    cdef Known *known = out.known
    cdef uint32_t hash = 0
    cdef uint8_t *name
    if known == NULL or not is_known(known, header):
        hash = hash_on(hash_on(hash, header.schema), header.table)
        known = out.tables[hash % TABLES]
        if known == NULL:
            known = <Known *>calloc(1, sizeof(Known))
            if known == NULL:
                return NO_MEMORY
            known.version = 1
            out.tables[hash % TABLES] = known
    if not is_known(known, header):
        name = <uint8_t *>realloc(known.name, max(<size_t>1, header.schema.size + header.table.size))
        if name == NULL:
            return NO_MEMORY
        memcpy(name, header.schema.data, header.schema.size)
        memcpy(name + header.schema.size, header.table.data, header.table.size)
        known.name = name
        known.schema_size = header.schema.size
        known.table_size = header.table.size
        known.version += 1
    out.known = known
    out.version = known.version
    return 0


cdef bint is_known(const Known *known, const Header *header) noexcept nogil:
    return (
        known.name != NULL
        and known.schema_size == header.schema.size
        and known.table_size == header.table.size
        and memcmp(known.name, header.schema.data, header.schema.size) == 0
        and memcmp(known.name + header.schema.size, header.table.data, header.table.size) == 0
    )


cdef uint32_t hash_on(uint32_t hash, Span text) noexcept nogil:
    cdef size_t i
    for i in range(text.size):
        hash = hash * 31 + text.data[i]
    return hash ^ (hash >> 15)


cdef void unmark(Writer *out) noexcept nogil:
    memset(out.marked, 0, out.marked_end)
    out.marked_end = 0


cdef void mark(Writer *out, int64_t index) noexcept nogil:
    out.marked[index] = 1
    out.marked_end = max(out.marked_end, index + 1)


cdef int refuse(int status) except -1:
    if status == NO_MEMORY:
        raise MemoryError
    if status < 0:
        raise DecodeError(f"not an entry: {REASONS[status]}")
    return 0


cdef int put_string(Writer *out, Span text) noexcept nogil:
    cdef const uint8_t *p = text.data
    cdef const uint8_t *end = p + text.size
    cdef const uint8_t *run
    cdef uint8_t c
    cdef uint8_t *o
    if reserve(out, text.size + 2) < 0:
        return NO_MEMORY
    out.data[out.size] = 34
    out.size += 1
    while True:
        run = p
        p = skip_plain(p, end)
        if reserve(out, p - run + 7) < 0:
            return NO_MEMORY
        memcpy(out.data + out.size, run, p - run)
        out.size += p - run
        o = out.data + out.size
        if p == end:
            o[0] = 34
            out.size += 1
            return 0
        c = p[0]
        p += 1
        o[0] = 92
        out.size += 2
        if c == 34 or c == 92:
            o[1] = c
        elif c == 8:
            o[1] = 98                              # b
        elif c == 9:
            o[1] = 116                             # t
        elif c == 10:
            o[1] = 110                             # n
        elif c == 12:
            o[1] = 102                             # f
        elif c == 13:
            o[1] = 114                             # r
        else:
            memcpy(o + 1, b"u00", 3)
            o[4] = HEXADECIMAL[c >> 4]
            o[5] = HEXADECIMAL[c & 15]
            out.size += 4


cdef const Hint *find_hint(Writer *out, Span message, size_t place, bint *updated, Span *value) noexcept nogil:
    """The hint by which a column begins, and what follows that; NULL for none."""
    cdef Known *known = out.known
    cdef Hint *hints = &known.hints[place % PLACES * HINTS]
    cdef Hint *hint = &hints[known.latest[place % PLACES]]
    if not has_begun_so(message, hint):
        hint = &hints[known.latest[place % PLACES] ^ 1]
        if not has_begun_so(message, hint):
            return NULL
        known.latest[place % PLACES] ^= 1
    if not get_changing(message.data + hint.cell.prefix, message.data + message.size, updated, value):
        return NULL
    return hint


cdef inline bint has_begun_so(Span message, const Hint *hint) noexcept nogil:
    cdef size_t size = hint.cell.prefix
    return size and message.size >= size and memcmp(message.data, hint.prefix, size) == 0


cdef int read_column(Writer *out, Span message, size_t place, Cell *column) noexcept nogil:
    """The column at a place of an image."""
    cdef Known *known = out.known
    cdef Hint *hints = &known.hints[place % PLACES * HINTS]
    cdef bint updated
    cdef Span value
    cdef const Hint *found = find_hint(out, message, place, &updated, &value)
    cdef uint8_t latest
    cdef Hint *hint
    cdef Cell before
    cdef size_t size
    out.hint = found
    if found != NULL:
        column[0] = found.cell
        column.start = message.data
        column.name.data = message.data + (found.cell.name.data - found.prefix)
        column.mysql_type.data = message.data + (found.cell.mysql_type.data - found.prefix)
        column.updated = updated
        column.value = value
        return 0
    if not get_cell(message, column):
        return MALFORMED
    if not 0 <= column.index < COLUMNS_MAX:
        return NO_COLUMN
    latest = known.latest[place % PLACES]
    before = hints[latest].cell
    latest ^= 1
    hint = &hints[latest]
    known.latest[place % PLACES] = latest
    size = column.prefix
    if not before.prefix or not is_same_column(&before, column) or place >= PLACES or not size or size > HINT_SIZE:
        known.version += 1
        hints[latest ^ 1].cell.prefix = 0          # so that all hints of a place are of one column
    hint.cell.prefix = 0
    if size and size <= HINT_SIZE and column.name.size and column.mysql_type.size:
        memcpy(hint.prefix, message.data, size)
        hint.cell = column[0]
        hint.cell.name.data = hint.prefix + (column.name.data - message.data)
        hint.cell.mysql_type.data = hint.prefix + (column.mysql_type.data - message.data)
        hint.quoted_size = 0
        size = column.name.size
        if size + 3 <= QUOTED_SIZE and skip_plain(column.name.data, column.name.data + size) == column.name.data + size:
            hint.quoted[0] = 34
            memcpy(hint.quoted + 1, column.name.data, size)
            memcpy(hint.quoted + 1 + size, b'":', 2)
            hint.quoted_size = size + 3
    return 0


cdef bint is_same_column(const Cell *one, const Cell *other) noexcept nogil:
    """Whether both have the same name and mysqlType, and are both in the key or not."""
    return (
        one.is_key == other.is_key
        and is_same(one.name, other.name)
        and is_same(one.mysql_type, other.mysql_type)
    )


cdef int put_again(Writer *out, const Hint *hint, Span value) noexcept nogil:
    """As `put_value`, for a column after the first of an object."""
    if reserve(out, hint.quoted_size + 1) < 0:
        return NO_MEMORY
    out.data[out.size] = 44
    memcpy(out.data + out.size + 1, hint.quoted, hint.quoted_size)
    out.size += hint.quoted_size + 1
    return put(out, b"null", 4) if hint.cell.is_null else put_string(out, value)


cdef int put_value(Writer *out, Cell *column, bint first) noexcept nogil:
    """`"name":"value"`, after a comma unless it is the first."""
    if not first and put(out, b",", 1) < 0:
        return NO_MEMORY
    if out.hint != NULL and out.hint.quoted_size:
        if put(out, <const char *>out.hint.quoted, out.hint.quoted_size) < 0:
            return NO_MEMORY
    elif put_string(out, column.name) < 0 or put(out, b":", 1) < 0:
        return NO_MEMORY
    return put(out, b"null", 4) if column.is_null else put_string(out, column.value)


cdef int remember(Writer *out, Cell *column, Py_ssize_t place) noexcept nogil:
    """Keep the types of a column: those of the last row, in the order of the first."""
    cdef Py_ssize_t i
    cdef Cell *known
    if place < out.column_count and out.version == out.known.version and not out.partial:
        out.columns[place].sql_type = column.sql_type
        return 0                                   # a row before has had the same column there
    if place >= out.column_count or not is_same(out.columns[place].name, column.name):
        place = out.column_count
        for i in range(out.column_count):
            if is_same(out.columns[i].name, column.name):
                place = i
                break
    if place == out.column_count:
        if place == COLUMNS_MAX:
            return NO_COLUMN
        out.column_count += 1
        out.columns[place] = column[0]
        return 0
    known = &out.columns[place]
    known.sql_type = column.sql_type
    known.mysql_type = column.mysql_type
    return 0


cdef int put_row(Writer *out, Span row, int image) noexcept nogil:
    """An image of a row as an object; its columns are remembered.

    What the image after an update leaves out has not changed, and is taken from the image before, which has at least
    the key.
    """
    cdef Py_ssize_t place = 0
    cdef int status
    cdef bint merged = out.partial and image == IMAGE_AFTER
    if put(out, b"{", 1) < 0:
        return NO_MEMORY
    if out.partial:
        unmark(out)
    status = put_columns(out, row, image, &place)
    if status == 0 and merged:
        status = put_columns(out, row, IMAGE_BEFORE, &place)
    return put(out, b"}", 1) if status == 0 else status


cdef int put_columns(Writer *out, Span row, int image, Py_ssize_t *place) noexcept nogil:
    """Add the columns of an image after ``place`` others; of a partial entry those not marked yet, and mark them."""
    cdef Fields columns = fields_of(row)
    cdef Span message
    cdef Cell column
    cdef Span value
    cdef bint updated
    cdef const Hint *hint
    cdef size_t seen = 0
    cdef int status
    cdef int found
    while True:
        found = next_column_of(&columns, image, &message)
        if found <= 0:
            return found
        if 0 < place[0] < out.column_count and out.version == out.known.version and not out.partial:
            hint = find_hint(out, message, seen, &updated, &value)
            if hint != NULL and hint.quoted_size:
                out.columns[place[0]].sql_type = hint.cell.sql_type
                if put_again(out, hint, value) < 0:
                    return NO_MEMORY
                seen += 1
                place[0] += 1
                continue
        status = read_column(out, message, seen, &column)
        seen += 1
        if status == 0 and out.partial:
            if out.marked[column.index]:
                continue
            mark(out, column.index)
        if status == 0:
            status = remember(out, &column, place[0])
        if status == 0:
            status = put_value(out, &column, place[0] == 0)
        if status < 0:
            return status
        place[0] += 1


cdef int put_old(Writer *out, Span row) noexcept nogil:
    """Of the image before the columns that are marked `updated` in the image after."""
    cdef Fields columns = fields_of(row)
    cdef Span message
    cdef Cell column
    cdef bint first = True
    cdef size_t seen = 0
    cdef int status
    cdef int found
    if not out.strict:
        unmark(out)
    while True:
        found = next_column_of(&columns, IMAGE_AFTER, &message)
        if found < 0:
            return found
        if found == 0:
            break
        status = read_column(out, message, seen, &column)
        seen += 1
        if status < 0:
            return status
        if column.updated:
            mark(out, column.index)
    if put(out, b"{", 1) < 0:
        return NO_MEMORY
    columns = fields_of(row)
    seen = 0
    while next_column_of(&columns, IMAGE_BEFORE, &message) > 0:
        status = read_column(out, message, seen, &column)
        seen += 1
        if status == 0 and out.marked[column.index]:
            status = put_value(out, &column, first)
            first = False
        if status < 0:
            return status
    return put(out, b"}", 1)


cdef int put_rows(Writer *out, Span body, int image) noexcept nogil:
    """A list of all rows: of one image of them, or of `old` for NO_IMAGE; null without rows."""
    cdef Fields rows = fields_of(body)
    cdef Span row
    cdef bint first = True
    cdef int status
    cdef int found
    while True:
        found = next_row(&rows, &row)
        if found < 0:
            return found
        if found == 0:
            return put(out, b"null", 4) if first else put(out, b"]", 1)
        if put(out, b"[" if first else b",", 1) < 0:
            return NO_MEMORY
        first = False
        status = put_row(out, row, image) if image else put_old(out, row)
        if status < 0:
            return status


cdef int put_keys(Writer *out, const Change *change) noexcept nogil:
    """The names of the key columns, from the first row; null without any."""
    cdef int image = IMAGE_BEFORE if out.partial and change.event_type == UPDATE else change.image
    cdef Fields rows = fields_of(change.entry.body)
    cdef Fields columns
    cdef Span message
    cdef Cell column
    cdef bint first = True
    cdef bint every
    cdef size_t seen = 0
    cdef size_t start = out.size
    if put_kept(out, KEY_NAMES):
        return 0
    if next_row(&rows, &message) > 0:
        every = out.partial and image == IMAGE_BEFORE and is_key(out, change, message)
        columns = fields_of(message)
        while next_column_of(&columns, image, &message) > 0:
            read_column(out, message, seen, &column)
            seen += 1
            if column.is_key or every:
                if put(out, b"[" if first else b",", 1) < 0 or put_string(out, column.name) < 0:
                    return NO_MEMORY
                first = False
    if (put(out, b"null", 4) if first else put(out, b"]", 1)) < 0:
        return NO_MEMORY
    return keep(out, KEY_NAMES, start)


cdef bint is_key(Writer *out, const Change *change, Span row) noexcept nogil:
    """Whether the image before of a partial entry stands for the key of a table without a primary key.

    Servers leave columns out of it only where a UNIQUE key without NULL is in it.
    """
    cdef Fields columns = fields_of(row)
    cdef Span message
    cdef Cell column
    cdef Py_ssize_t count = 0
    while next_column_of(&columns, IMAGE_BEFORE, &message) > 0:
        read_column(out, message, count, &column)
        if column.is_key:
            return False
        count += 1
    return change.row.absent.size > NOTHING_ABSENT or count < out.column_count


cdef int put_types(Writer *out, int text) noexcept nogil:
    """Names to sqlType or mysqlType; null without columns."""
    cdef Py_ssize_t i
    cdef size_t start = out.size
    if out.column_count == 0:
        return put(out, b"null", 4)
    if put_kept(out, text):
        return 0
    for i in range(out.column_count):
        if put(out, b"," if i else b"{", 1) < 0 or put_string(out, out.columns[i].name) < 0 or put(out, b":", 1) < 0:
            return NO_MEMORY
        if text == SQL_TYPES:
            if put_number(out, out.columns[i].sql_type) < 0:
                return NO_MEMORY
        elif put_string(out, out.columns[i].mysql_type) < 0:
            return NO_MEMORY
    return NO_MEMORY if put(out, b"}", 1) < 0 else keep(out, text, start)


cdef bint put_kept(Writer *out, int text) noexcept nogil:
    """Whether what was kept is right for the entry; it is put then."""
    cdef const Kept *kept = &out.known.texts[text]
    cdef Py_ssize_t i
    if out.partial or kept.count != out.column_count:
        return False
    if kept.version != out.version or kept.version != out.known.version:
        return False
    if text == SQL_TYPES:
        for i in range(out.column_count):
            if out.known.sql_types[i] != out.columns[i].sql_type:
                return False
    return put(out, <const char *>kept.data, kept.size) == 0


cdef int keep(Writer *out, int text, size_t start) noexcept nogil:
    """Keep what was put since a place, if the next entries can have the same."""
    cdef Kept *kept = &out.known.texts[text]
    cdef size_t size = out.size - start
    cdef uint8_t *data
    cdef Py_ssize_t i
    if out.version != out.known.version or out.partial:
        return 0
    if text == SQL_TYPES:
        for i in range(out.column_count):
            out.known.sql_types[i] = out.columns[i].sql_type
    if kept.capacity < size:
        data = <uint8_t *>realloc(kept.data, size)
        if data == NULL:
            return NO_MEMORY
        kept.data = data
        kept.capacity = size
    memcpy(kept.data, out.data + start, size)
    kept.size = size
    kept.version = out.version
    kept.count = out.column_count
    return 0


cdef int read_change(Span message, Change *change) noexcept nogil:
    change.message = message
    if not get_entry(message, &change.entry):
        return MALFORMED
    if change.entry.type != ROWDATA:
        return 0
    if not get_header(&change.entry, &change.header, &change.marks) or not get_row_change(&change.entry, &change.row):
        return MALFORMED
    change.event_type = change.row.event_type if change.row.has_event_type else change.header.event_type
    if change.event_type >= EVENT_TYPES:
        return UNKNOWN_TYPE
    change.event_type = change.event_type or UPDATE
    change.image = NO_IMAGE
    if INSERT <= change.event_type <= DELETE and not change.row.is_ddl:
        change.image = IMAGE_BEFORE if change.event_type == DELETE else IMAGE_AFTER
    return 1


cdef int put_head(Writer *out, const Change *change) noexcept nogil:
    cdef int status = find_known(out, &change.header)
    if status < 0:
        return status
    out.column_count = 0
    unmark(out)
    out.partial = change.row.absent.size and change.image and not out.strict
    status |= put(out, b"{", 1)
    if out.partial:
        status |= put(out, b'"absent":', 9)
        status |= put(out, <const char *>change.row.absent.data, change.row.absent.size)
        status |= put(out, b",", 1)
    status |= put(out, b'"data":', 7)
    return NO_MEMORY if status < 0 else 0


cdef int put_middle(Writer *out, const Change *change) noexcept nogil:
    cdef int status = 0
    status |= put(out, b',"database":', 12)
    status |= put_string(out, change.header.schema)
    status |= put(out, b',"es":', 6)
    status |= put_number(out, change.header.execute_time)
    status |= put(out, b',"gtid":', 8)
    status |= put_string(out, change.header.executed)
    status |= put(out, b',"id":', 6)
    status |= put_number(out, out.batch_id)
    status |= put(out, b',"isDdl":true', 13) if change.row.is_ddl else put(out, b',"isDdl":false', 14)
    if change.marks.late.size and not out.strict:
        status |= put(out, b',"late":', 8)
        status |= put_string(out, change.marks.late)
    if change.marks.member.size and not out.strict:
        status |= put(out, b',"member":', 10)
        status |= put_string(out, change.marks.member)
    status |= put(out, b',"mysqlType":', 13)
    status |= put_types(out, MYSQL_TYPES)
    status |= put(out, b',"old":', 7)
    return NO_MEMORY if status < 0 else 0


cdef int put_tail(Writer *out, const Change *change, uint64_t event_type) noexcept nogil:
    cdef int status = 0
    status |= put(out, b',"pkNames":', 11)
    status |= put_keys(out, change) if change.image else put(out, b"null", 4)
    if change.marks.snapshot.size and not out.strict:
        status |= put(out, b',"snapshot":', 12)
        status |= put_string(out, change.marks.snapshot)
    status |= put(out, b',"sql":', 7)
    status |= put_string(out, change.row.sql)
    status |= put(out, b',"sqlType":', 11)
    status |= put_types(out, SQL_TYPES)
    status |= put(out, b',"table":', 9)
    status |= put_string(out, change.header.table)
    status |= put(out, b',"ts":', 6)
    status |= put_number(out, out.ts)
    status |= put(out, b',"type":"', 9)
    status |= put_name(out, TYPE_NAMES[event_type])
    status |= put(out, b'"', 1)
    if change.marks.xa.size and not out.strict:
        status |= put(out, b',"xa":', 6)
        status |= put_string(out, change.marks.xa)
    status |= put(out, b"}", 1)
    return NO_MEMORY if status < 0 else 0


cdef int put_entry(Writer *out, Span message) noexcept nogil:
    """1 when the entry has become a message, 0 when it does not become one."""
    cdef Change change
    cdef int status = read_change(message, &change)
    if status <= 0:
        return status
    status = put_head(out, &change)
    if status == 0:
        status = put_rows(out, change.entry.body, change.image) if change.image else put(out, b"null", 4)
    if status == 0:
        status = put_middle(out, &change)
    if status == 0 and change.image and change.event_type == UPDATE:
        status = put_rows(out, change.entry.body, NO_IMAGE)
    elif status == 0:
        status = put(out, b"null", 4)
    if status == 0:
        status = put_tail(out, &change, change.event_type)
    return status if status < 0 else 1


cdef int put_name(Writer *out, const char *name) noexcept nogil:
    return put(out, name, strlen(name))


cdef int put_messages(Writer *out, Fields batch, bint lines) noexcept nogil:
    cdef Span entry
    cdef size_t before
    cdef int status
    cdef int found
    while True:
        found = next_entry(&batch, &entry)
        if found <= 0:
            return found
        before = out.size
        if not lines and before > 1 and put(out, b",", 1) < 0:
            return NO_MEMORY
        status = put_entry(out, entry)
        if status < 0:
            return status
        if status == 0:
            out.size = before
        elif lines and put(out, b"\n", 1) < 0:
            return NO_MEMORY


cdef bytes flat(slices, int64_t batch_id, ts, bint strict, bint lines):
    cdef list inputs = list(slices)
    cdef Py_ssize_t count = len(inputs)
    cdef Py_ssize_t held = 0
    cdef Py_ssize_t i
    cdef Py_buffer *views = <Py_buffer *>calloc(max(count, 1), sizeof(Py_buffer))
    cdef int status = 0
    cdef Fields batch
    cdef Writer out
    memset(&out, 0, sizeof(Writer))
    try:
        if views == NULL:
            raise MemoryError
        open_writer(&out, batch_id, time.time_ns() // 1_000_000 if ts is None else ts, strict)
        for i in range(count):
            PyObject_GetBuffer(inputs[i], &views[i], PyBUF_SIMPLE)
            held += 1
        with nogil:
            if not lines:
                status = put(&out, b"[", 1)
            for i in range(count):
                if status == 0:
                    batch.p = <const uint8_t *>views[i].buf
                    batch.end = batch.p + views[i].len
                    status = put_messages(&out, batch, lines)
            if not lines and status == 0:
                status = put(&out, b"]", 1)
        refuse(status)
        return PyBytes_FromStringAndSize(<const char *>out.data, out.size)
    finally:
        for i in range(held):
            PyBuffer_Release(&views[i])
        free(views)
        close_writer(&out)


def flat_json(slices, int64_t batch_id, *, ts=None, bint strict=False):
    """The FlatMessages of all entries in the slices (framed entries, as in `Messages`), as a JSON array.

    `ts` is the time of building that each message carries, in ms since 1970; now by default. Raises DecodeError.
    """
    return flat(slices, batch_id, ts, strict, False)


def flat_ndjson(slices, int64_t batch_id, *, ts=None, bint strict=False):
    """As flat_json, but one message per line, each line ended."""
    return flat(slices, batch_id, ts, strict, True)
