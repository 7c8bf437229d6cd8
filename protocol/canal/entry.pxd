"""The one reader of Canal's entries. Whatever is made of them (rows, FlatMessage, Arrow) uses it and knows no tags.

The input is what a batch is made of, Canal's `Messages`, or any run of its framed entries (protobuf, fields of
entry.proto and packet.proto; a varint may be padded)::

    08 <batch id>                                    once or not at all
    ba 06 <length> (<begin> <n>)…                    positions of the entries that follow: two varints per entry
    12 <length> Entry                                any number of times
        0a <length> Header
        10 <entry type>
        1a <length> RowChange                        of ROWDATA; else TransactionBegin or TransactionEnd
            ...
            62 <length> RowData                      one per row
                0a <length> Column                   of the image before
                12 <length> Column                   of the image after

`Fields` are the fields of a message that were not read yet. `next_…` takes the next field of a sort: it returns more
than 0 if there was one, 0 at the end, and `MALFORMED` if a field does not fit into its message. `get_…` reads a whole
message and returns whether its fields fit. Nothing is copied or allocated, and everything is inline. What was read
points into the bytes, which the caller keeps.

All columns of one name repeat the same bytes except for `updated` and `value`, which Sluice writes last. So the bytes
before these two (`Cell.prefix`) can be compared whole with those of a column read before: if they are equal, only
`get_changing` is needed. Any other order of fields is read field by field.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from ..wire cimport Span, WireField, get_field, get_varint, is_same, span_at, span_of
from .tags cimport (
    AFTER_COLUMNS,
    BATCH_ID,
    BEFORE_COLUMNS,
    CHANGE_EVENT_TYPE,
    DDL_SCHEMA_NAME,
    ENTRY_TYPE,
    EVENT_LENGTH,
    EVENT_TYPE,
    EXECUTE_TIME,
    FROM_POSITION,
    HEADER,
    HEADER_GTID,
    HEADER_PROPS,
    INDEX,
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
    POSITIONS,
    ROW_CHANGE_PROPS,
    ROW_DATAS,
    ROWDATA,
    SCHEMA_NAME,
    SERVER_ID,
    SQL,
    SQL_TYPE,
    STORE_VALUE,
    TABLE_NAME,
    THREAD_ID,
    TO_POSITION,
    TRANSACTION_ID,
    TRANSACTION_PROPS,
    UPDATED,
    VALUE,
)


cdef enum:
    MALFORMED = -1

    ENTRY_PIECE = 1                                # what next_piece() finds
    POSITIONS_PIECE = 2

    IMAGE_BEFORE = 1                               # what next_column() finds a column of
    IMAGE_AFTER = 2


cdef int malformed() except -1 nogil               # raises DecodeError
cdef str text_of(Span span)                        # raises DecodeError for bytes that are not UTF-8

cdef Span XA_KEY                                   # keys of properties, from props.py
cdef Span GTID_KEY
cdef Span LATE_KEY
cdef Span SNAPSHOT_KEY
cdef Span MEMBER_KEY
cdef Span QUARANTINE_KEY
cdef Span GAP_KEY
cdef Span ABSENT_KEY


cdef struct Fields:
    const uint8_t *p
    const uint8_t *end


cdef inline Fields fields_of(Span message) noexcept nogil:
    cdef Fields fields
    fields.p = message.data
    fields.end = message.data + message.size
    return fields


cdef inline int checked(int found) except -1 nogil:
    """What a `next_…` or `get_…` has found, for visitors that raise."""
    if found == MALFORMED:
        malformed()
    return found


cdef inline int next_of(Fields *fields, uint64_t tag, Span *found) noexcept nogil:
    cdef WireField field
    cdef const uint8_t *p = fields.p
    while p < fields.end:
        p = get_field(p, fields.end, &field)
        if p == NULL:
            return MALFORMED
        if field.tag == tag:
            found[0] = span_of(&field)
            fields.p = p
            return 1
    return 0


cdef inline int next_field(Fields *fields, WireField *field, Span *whole) noexcept nogil:
    """The next field of any sort, and its bytes with the tag: for what copies fields without knowing them."""
    cdef const uint8_t *p = fields.p
    if p >= fields.end:
        return 0
    fields.p = get_field(p, fields.end, field)
    if fields.p == NULL:
        return MALFORMED
    whole[0] = span_at(<const char *>p, fields.p - p)
    return 1


# --- a batch ---------------------------------------------------------------------------------------------------------

cdef inline int next_entry(Fields *batch, Span *entry) noexcept nogil:
    return next_of(batch, MESSAGES, entry)


cdef inline int next_piece(Fields *batch, Span *piece) noexcept nogil:
    """An entry (ENTRY_PIECE), or the positions of those that follow (POSITIONS_PIECE)."""
    cdef WireField field
    while batch.p < batch.end:
        batch.p = get_field(batch.p, batch.end, &field)
        if batch.p == NULL:
            return MALFORMED
        if field.tag == MESSAGES or field.tag == POSITIONS:
            piece[0] = span_of(&field)
            return ENTRY_PIECE if field.tag == MESSAGES else POSITIONS_PIECE
    return 0


cdef struct Envelope:
    int64_t batch_id
    Span first                                     # position of the first entry
    Span last                                      # ... and after the last


cdef inline bint get_envelope(Fields batch, Envelope *envelope) noexcept nogil:
    cdef WireField field
    memset(envelope, 0, sizeof(Envelope))
    while batch.p < batch.end:
        batch.p = get_field(batch.p, batch.end, &field)
        if batch.p == NULL:
            return False
        if field.tag == BATCH_ID:
            envelope.batch_id = <int64_t>field.value
        elif field.tag == FROM_POSITION:
            envelope.first = span_of(&field)
        elif field.tag == TO_POSITION:
            envelope.last = span_of(&field)
    return True


# --- an entry --------------------------------------------------------------------------------------------------------

cdef struct Entry:
    int32_t type
    Span header
    Span body                                      # RowChange, TransactionBegin or TransactionEnd


cdef inline bint get_entry(Span message, Entry *entry) noexcept nogil:
    cdef WireField field
    cdef const uint8_t *p = message.data
    cdef const uint8_t *end = p + message.size
    memset(entry, 0, sizeof(Entry))
    while p < end:
        p = get_field(p, end, &field)
        if p == NULL:
            return False
        if field.tag == HEADER:
            entry.header = span_of(&field)
        elif field.tag == ENTRY_TYPE:
            entry.type = <int32_t>field.value
        elif field.tag == STORE_VALUE:
            entry.body = span_of(&field)
    return True


cdef struct Prop:
    Span key
    Span value


cdef inline bint get_prop(Span pair, Prop *prop) noexcept nogil:
    cdef WireField field
    cdef const uint8_t *p = pair.data
    cdef const uint8_t *end = p + pair.size
    memset(prop, 0, sizeof(Prop))
    while p < end:
        p = get_field(p, end, &field)
        if p == NULL:
            return False
        if field.tag == KEY:
            prop.key = span_of(&field)
        elif field.tag == PAIR_VALUE:
            prop.value = span_of(&field)
    return True


cdef inline int next_prop(Fields *fields, uint64_t tag, Prop *prop) noexcept nogil:
    cdef Span pair
    cdef int found = next_of(fields, tag, &pair)
    return MALFORMED if found > 0 and not get_prop(pair, prop) else found


cdef inline int next_header_prop(Fields *header, Prop *prop) noexcept nogil:
    return next_prop(header, HEADER_PROPS, prop)


cdef inline int next_body_prop(const Entry *entry, Fields *body, Prop *prop) noexcept nogil:
    return next_prop(body, ROW_CHANGE_PROPS if entry.type == ROWDATA else TRANSACTION_PROPS, prop)


cdef struct Header:
    Span file
    Span schema
    Span table
    Span executed                                  # the GTID set
    int64_t offset
    int64_t server_id
    int64_t execute_time
    int64_t event_length
    uint64_t event_type


cdef struct Marks:
    # What the properties of a header say.
    Span gtid                                      # of the transaction
    Span xa                                        # the text of an Xa; empty for any other transaction
    Span late                                      # where rows belong that come out of their order; empty for others
    Span snapshot                                  # id of the snapshot that rows were read for; empty for changes
    Span member                                    # of the merged stream; empty where the source is a single one
    bint is_marker                                 # rows are missing where the entry stands


cdef inline bint get_mark(Span pair, Marks *marks) noexcept nogil:
    cdef Prop prop
    if not get_prop(pair, &prop):
        return False
    if is_same(prop.key, GTID_KEY):
        marks.gtid = prop.value
    elif is_same(prop.key, XA_KEY):
        marks.xa = prop.value
    elif is_same(prop.key, LATE_KEY):
        marks.late = prop.value
    elif is_same(prop.key, SNAPSHOT_KEY):
        marks.snapshot = prop.value
    elif is_same(prop.key, MEMBER_KEY):
        marks.member = prop.value
    elif is_same(prop.key, QUARANTINE_KEY) or is_same(prop.key, GAP_KEY):
        marks.is_marker = True
    return True


cdef inline bint get_header(const Entry *entry, Header *header, Marks *marks) noexcept nogil:
    """Reads the header, and what its properties say unless `marks` is NULL."""
    cdef WireField field
    cdef const uint8_t *p = entry.header.data
    cdef const uint8_t *end = p + entry.header.size
    memset(header, 0, sizeof(Header))
    if marks != NULL:
        memset(marks, 0, sizeof(Marks))
    while p < end:
        p = get_field(p, end, &field)
        if p == NULL:
            return False
        if field.tag == LOGFILE_NAME:
            header.file = span_of(&field)
        elif field.tag == LOGFILE_OFFSET:
            header.offset = <int64_t>field.value
        elif field.tag == SERVER_ID:
            header.server_id = <int64_t>field.value
        elif field.tag == EXECUTE_TIME:
            header.execute_time = <int64_t>field.value
        elif field.tag == SCHEMA_NAME:
            header.schema = span_of(&field)
        elif field.tag == TABLE_NAME:
            header.table = span_of(&field)
        elif field.tag == EVENT_LENGTH:
            header.event_length = <int64_t>field.value
        elif field.tag == EVENT_TYPE:
            header.event_type = field.value
        elif field.tag == HEADER_GTID:
            header.executed = span_of(&field)
        elif field.tag == HEADER_PROPS and marks != NULL and not get_mark(span_of(&field), marks):
            return False
    return True


# --- what is in it ---------------------------------------------------------------------------------------------------

cdef struct RowChange:
    bint has_event_type                            # else it is the header's
    uint64_t event_type
    bint is_ddl
    Span sql
    Span ddl_schema
    Span absent                                    # JSON: names of the columns that no image has


cdef inline bint get_row_change(const Entry *entry, RowChange *change) noexcept nogil:
    """Reads everything but the rows."""
    cdef WireField field
    cdef Prop prop
    cdef const uint8_t *p = entry.body.data
    cdef const uint8_t *end = p + entry.body.size
    memset(change, 0, sizeof(RowChange))
    while p < end:
        p = get_field(p, end, &field)
        if p == NULL:
            return False
        if field.tag == CHANGE_EVENT_TYPE:
            change.has_event_type = True
            change.event_type = field.value
        elif field.tag == IS_DDL:
            change.is_ddl = field.value != 0
        elif field.tag == SQL:
            change.sql = span_of(&field)
        elif field.tag == DDL_SCHEMA_NAME:
            change.ddl_schema = span_of(&field)
        elif field.tag == ROW_CHANGE_PROPS:
            if not get_prop(span_of(&field), &prop):
                return False
            if is_same(prop.key, ABSENT_KEY):
                change.absent = prop.value
    return True


cdef struct Transaction:
    Span id                                        # at its end: the XID
    int64_t thread_id                              # at its begin: the connection that ran it


cdef inline bint get_transaction(const Entry *entry, Transaction *transaction) noexcept nogil:
    cdef WireField field
    cdef const uint8_t *p = entry.body.data
    cdef const uint8_t *end = p + entry.body.size
    memset(transaction, 0, sizeof(Transaction))
    while p < end:
        p = get_field(p, end, &field)
        if p == NULL:
            return False
        if field.tag == TRANSACTION_ID:
            transaction.id = span_of(&field)
        elif field.tag == THREAD_ID:
            transaction.thread_id = <int64_t>field.value
    return True


cdef inline int next_row(Fields *body, Span *row) noexcept nogil:
    return next_of(body, ROW_DATAS, row)


cdef inline int next_column(Fields *row, Span *column) noexcept nogil:
    """A column, of the image before (IMAGE_BEFORE) or after (IMAGE_AFTER)."""
    cdef WireField field
    cdef const uint8_t *p = row.p
    while p < row.end:
        p = get_field(p, row.end, &field)
        if p == NULL:
            return MALFORMED
        if field.tag == BEFORE_COLUMNS or field.tag == AFTER_COLUMNS:
            column[0] = span_of(&field)
            row.p = p
            return IMAGE_BEFORE if field.tag == BEFORE_COLUMNS else IMAGE_AFTER
    return 0


cdef inline int next_column_of(Fields *row, int image, Span *column) noexcept nogil:
    """A column of one image."""
    return next_of(row, BEFORE_COLUMNS if image == IMAGE_BEFORE else AFTER_COLUMNS, column)


cdef struct Cell:
    const uint8_t *start
    Span name
    Span mysql_type
    Span value
    int64_t index
    int32_t sql_type
    bint is_key
    bint is_null
    bint updated
    size_t prefix          # bytes before `updated` and `value`, the same in many rows; 0 when something follows these


cdef inline bint get_cell(Span column, Cell *cell) noexcept nogil:
    """Reads all fields; whether each fits before `end`."""
    cdef const uint8_t *p = column.data
    cdef const uint8_t *end = p + column.size
    cdef const uint8_t *at
    cdef const uint8_t *changing = NULL        # the first of `updated` and `value`
    cdef bint is_last = True                   # nothing else follows it
    cdef WireField field
    memset(cell, 0, sizeof(Cell))
    cell.start = p
    while p < end:
        at = p
        p = get_field(p, end, &field)
        if p == NULL:
            return False
        if field.tag == UPDATED or field.tag == VALUE:
            if field.tag == UPDATED:
                cell.updated = field.value != 0
            else:
                cell.value = span_of(&field)
            if changing == NULL:
                changing = at
            continue
        is_last = is_last and changing == NULL
        if field.tag == INDEX:
            cell.index = <int64_t>field.value
        elif field.tag == SQL_TYPE:
            cell.sql_type = <int32_t>field.value
        elif field.tag == NAME:
            cell.name = span_of(&field)
        elif field.tag == IS_KEY:
            cell.is_key = field.value != 0
        elif field.tag == IS_NULL:
            cell.is_null = field.value != 0
        elif field.tag == MYSQL_TYPE:
            cell.mysql_type = span_of(&field)
    if is_last:
        cell.prefix = (end if changing == NULL else changing) - cell.start
    return True


cdef inline bint get_changing(const uint8_t *p, const uint8_t *end, bint *updated, Span *value) noexcept nogil:
    """Reads `updated` and `value` after a known prefix; whether nothing else is there."""
    cdef uint64_t length
    updated[0] = False
    value.data = p
    value.size = 0
    if end - p >= 2 and p[0] == UPDATED and p[1] <= 1:
        updated[0] = p[1]
        p += 2
    if p < end and p[0] == VALUE:
        p = get_varint(p + 1, end, &length)
        if p == NULL or length != <uint64_t>(end - p):
            return False
        value.data = p
        value.size = length
        return True
    return p == end
