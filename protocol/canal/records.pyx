"""Batches to the records of a message queue, as Canal's own producer makes them: which topic, partition, key and value.

The value is a FlatMessage (`flat.pyx`) or a `Packet` with entries (packet.proto)::

    10 01                      version; not where whole batches are sent
    18 07                      type: MESSAGES
    2a <length>                body: Messages
        08 <batch id>          only where whole batches are sent
        12 <length> <Entry>    any number of times

Where the rows of a table are hashed, each goes to `abs(abs(h) % n)` of n partitions, h being the hash of the database's
name (or 0) XOR those of the values it is hashed by. The hash of a text is Java's: 31 * hash + unit for each unit of
UTF-16, in 32 bits. The absolute value of the least number is that number, and a remainder has its dividend's sign.

What an entry becomes is written to `parts`: rows, and what stands around them. Records are put together of that in
`out`, and become objects at the end. All but that runs without the GIL.
"""

import time
from array import array as _array

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MIN, UINT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from cython.operator cimport dereference
from libc.string cimport memmove, memset
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from ..utf8 cimport utf8_sequence
from ..wire cimport VARINT_MAX, Span, WireField, get_varint, is_same, put_varint, span_at, varint_size
from .entry cimport (
    IMAGE_AFTER,
    IMAGE_BEFORE,
    Cell,
    Fields,
    checked,
    fields_of,
    get_cell,
    malformed,
    next_column_of,
    next_entry,
    next_field,
    next_row,
    text_of,
)
from .flat cimport (
    COLUMNS_MAX,
    NO_COLUMN,
    NO_IMAGE,
    Change,
    Writer,
    close_writer,
    open_writer,
    put,
    put_head,
    put_middle,
    put_old,
    put_row,
    put_string,
    put_tail,
    read_change,
    refuse,
    reserve,
)
from .tags cimport (
    AFTER_COLUMNS,
    BATCH_ID,
    BEFORE_COLUMNS,
    CHANGE_EVENT_TYPE,
    DELETE,
    EVENT_TYPE,
    HEADER,
    INSERT,
    MESSAGES,
    QUERY,
    ROW_DATAS,
    STORE_VALUE,
    UPDATE,
)

from typing import NamedTuple

from ..errors import MarkerError, PartialRowsError, RecordTooLargeError

cdef enum:
    NONE = -1                                      # instead of a number

    PLANS_MAX = 1 << 16                            # tables whose routes are kept
    KEPT = 16 << 20                                # bytes of buffers that are kept for the next batch
    KEY_TEXT = 100                                 # characters of a key in the text of an error

    BODY = 5 << 3 | 2                              # Packet

cdef Span NOTHING = span_at(b"", 0)
cdef array.array INTEGERS = _array("i")


class Route(NamedTuple):
    """Where the changes of a table go.

    `topic` is a number, which the records carry. `partition` is that of entries with rows where these are not hashed,
    `bare` that of entries without: DDL and statements. `hash_partitions` are those that rows are hashed to, 0 if they
    are not: by the values of the `columns`, or of the primary key's if these are None, and from `seed`, which is the
    hash of the database's name or 0.
    """

    topic: int
    partition: int
    bare: int
    hash_partitions: int = 0
    columns: tuple[str, ...] | None = None
    seed: int = 0


cdef class Records:
    pass


cdef struct Plan:
    # A Route.
    int32_t topic
    int32_t partition
    int32_t bare
    int32_t hash_partitions
    int32_t columns                                # index of their names; NONE for the key
    int32_t seed


cdef struct Row:
    Span message
    uint64_t type                                  # UPDATE, INSERT or DELETE, which it is sent as
    int image                                      # that is sent; NO_IMAGE for both
    int32_t partition
    int32_t next                                   # row of the same partition, or NONE
    Text data                                      # flat: its object ...
    Text old                                       # ... and what it was before
    Text key


cdef struct Piece:
    # canal: an entry, or a part of one.
    const uint8_t *data                            # its bytes; NULL if they are in `parts` ...
    Text part                                      # ... here
    Text key
    int32_t topic
    int32_t partition
    int32_t rows
    int32_t entry
    int32_t next                                   # piece of the same partition, or NONE


cdef struct Frame:
    # What stands around the rows of a flat message.
    Text head
    Text middle
    Text tail
    uint64_t tail_of                               # the type that the tail says; 0 for none yet


cdef int32_t hash_of(Span text) noexcept nogil:
    cdef const uint8_t *p = text.data
    cdef const uint8_t *end = p + text.size
    cdef uint32_t result = 0
    cdef uint32_t char
    cdef bint valid
    cdef int length
    while p < end:
        if p[0] < 0x80:
            result = 31 * result + p[0]
            p += 1
            continue
        length = utf8_sequence(p, end, &valid)
        if not valid:
            char = 0xFFFD
        elif length == 2:
            char = (p[0] & 0x1F) << 6 | p[1] & 0x3F
        elif length == 3:
            char = (p[0] & 0x0F) << 12 | (p[1] & 0x3F) << 6 | p[2] & 0x3F
        else:
            char = ((p[0] & 0x07) << 18 | (p[1] & 0x3F) << 12 | (p[2] & 0x3F) << 6 | p[3] & 0x3F) - 0x10000
            result = 31 * result + (0xD800 | char >> 10)
            char = 0xDC00 | char & 0x3FF
        result = 31 * result + char
        p += length
    return <int32_t>result


cdef int32_t partition_of(int32_t hash, int32_t partitions) noexcept nogil:
    cdef int32_t rest = (hash if hash >= 0 or hash == INT32_MIN else -hash) % partitions
    return rest if rest >= 0 else -rest


def java_hash(str text not None):
    """Java's `String.hashCode` of a text."""
    cdef bytes encoded = text.encode()
    return hash_of(span_at(encoded, len(encoded)))


def hash_partition(int32_t hash_, int32_t partitions):
    """The partition, one of ``partitions``, for what has this hash."""
    return partition_of(hash_, partitions)


cdef bint is_same_name(Span name, const string *other) noexcept nogil:
    """Whether two names are equal but for the case of ASCII letters."""
    cdef size_t i
    cdef uint8_t one
    cdef uint8_t two
    if name.size != other.size():
        return False
    for i in range(name.size):
        one = name.data[i]
        two = <uint8_t>other.data()[i]
        if one != two and (one ^ two != 0x20 or not 97 <= (one | 0x20) <= 122):
            return False
    return True


cdef int done(int status) except -1 nogil:
    """Raise what a status below 0 of a function of flat.pyx says."""
    if status < 0:
        with gil:
            refuse(status)
    return 0


cdef int put_fields(
    Writer *out, Span message, uint64_t first, uint64_t last, uint64_t changed=0, uint64_t value=0
) except -1 nogil:
    """Copy the fields with tags from `first` to `last`; the field `changed` becomes the value, below 128."""
    cdef Fields fields = fields_of(message)
    cdef WireField field
    cdef Span whole
    cdef uint8_t[2] number
    while checked(next_field(&fields, &field, &whole)):
        if not first <= field.tag <= last:
            continue
        if field.tag == changed:
            number[0], number[1] = <uint8_t>changed, <uint8_t>value
            whole = span_at(<const char *>number, 2)
        done(put(out, <const char *>whole.data, whole.size))
    return 0


cdef int put_length(Writer *out, uint8_t tag, size_t size) except -1 nogil:
    """The beginning of a field of ``size`` bytes."""
    done(reserve(out, 1 + VARINT_MAX))
    out.data[out.size] = tag
    out.size = put_varint(out.data + out.size + 1, size) - out.data
    return 0


cdef inline size_t framed(size_t size) noexcept nogil:
    """Bytes of a field whose content has ``size``, with its tag of one byte and its length."""
    return 1 + varint_size(size) + size


cdef int put_inside(Writer *out, Span text) except -1 nogil:
    cdef size_t start = out.size
    done(put_string(out, text))
    out.size -= 2
    memmove(out.data + start, out.data + start + 1, out.size - start)
    return 0


cdef int close_length(Writer *out, size_t start, uint8_t tag) except -1 nogil:
    """Put tag and length before what was written since `start`."""
    cdef size_t size = out.size - start
    cdef size_t head = 1 + varint_size(size)
    done(reserve(out, head))
    memmove(out.data + start + head, out.data + start, size)
    out.data[start] = tag
    put_varint(out.data + start + 1, size)
    out.size += head
    return 0


cdef int32_t count_rows(const Change *change) except -1 nogil:
    cdef Fields rows = fields_of(change.entry.body)
    cdef Span row
    cdef int32_t count = 0
    if change.image:
        while checked(next_row(&rows, &row)):
            count += 1
    return count


cdef void shrink(Writer *writer) noexcept:
    """Give the memory back that only few batches need."""
    if writer.capacity > KEPT:
        free(writer.data)
        writer.data = NULL
        writer.size = writer.capacity = 0


cdef class Encoder:

    def __cinit__(self):
        memset(&self.parts, 0, sizeof(Writer))
        memset(&self.out, 0, sizeof(Writer))

    def __dealloc__(self):
        close_writer(&self.parts)
        close_writer(&self.out)

    @property
    def state(self):
        """What has to be known before the next batch, as text; this is what an encoder made for that batch is given."""
        return ""

    @state.setter
    def state(self, str text not None):
        if text:
            raise ValueError("each batch stands for itself")

    def undo(self):
        """Forget the last batch: the next one begins where it began."""
        self.state = self.before

    def encode(self, slices, int64_t batch_id, *, Py_ssize_t begin=0, ts=None, bytes positions=b""):
        """The Records of a batch, from the entry of that index on. The slices are framed entries, as in `Messages`.

        `ts` is the time of building that flat messages carry, in ms since 1970; now by default. `positions` has the
        place of each entry, as in `Messages`, for the forms that say it. What cannot be sent ends the records before
        it, and stands in `Records.refused`. Raises DecodeError.
        """
        cdef list inputs = list(slices)
        cdef Py_ssize_t count = len(inputs)
        cdef Py_ssize_t held = 0
        cdef Py_ssize_t i
        cdef Py_buffer *views = <Py_buffer *>calloc(max(count, 1), sizeof(Py_buffer))
        cdef Fields batch
        if self.is_busy:
            free(views)
            raise RuntimeError("the encoder is in use")
        self.is_busy = True
        try:
            if views == NULL:
                raise MemoryError
            self.parts.batch_id = batch_id
            self.parts.ts = time.time_ns() // 1_000_000 if ts is None else ts
            self.places = fields_of(span_at(positions, len(positions)))
            if begin == 0:
                self.open_batch()
            self.begin()
            for i in range(count):
                PyObject_GetBuffer(inputs[i], &views[i], PyBUF_SIMPLE)
                held += 1
            with nogil:
                for i in range(count):
                    batch.p = <const uint8_t *>views[i].buf
                    batch.end = batch.p + views[i].len
                    if not self.add_all(batch, begin):
                        break
                self.end()
            return self.finish()
        finally:
            for i in range(held):
                PyBuffer_Release(&views[i])
            free(views)
            self.is_busy = False

    cdef int open_batch(self) except -1:
        """Take what there was before as done."""
        self.before = self.state
        return 0

    cdef int begin(self) except -1:
        self.parts.size = self.out.size = 0
        self.records.clear()
        self.entry = 0
        self.refusal.why = NOT_REFUSED
        return 0

    cdef bint add_all(self, Fields batch, Py_ssize_t begin) except -1 nogil:
        """Add the entries of a slice; False if one is refused."""
        cdef Span message
        while checked(next_entry(&batch, &message)):
            self.read_place()
            if self.entry >= begin and not self.add(message):
                return False
            self.entry += 1
        return True

    cdef int read_place(self) except -1 nogil:
        """Read where the entry stands; 0 where that is not said."""
        cdef const uint8_t *p = self.places.p
        self.transaction = self.n = 0
        if p == self.places.end:
            return 0
        p = get_varint(p, self.places.end, &self.transaction)
        if p != NULL:
            p = get_varint(p, self.places.end, &self.n)
        if p == NULL:
            malformed()
        self.places.p = p
        return 0

    cdef bint add(self, Span message) except -1 nogil:
        return True

    cdef int end(self) except -1 nogil:
        return 0

    cdef bint stop_at(self, int why, const Change *change, Span row, size_t size) except -1 nogil:
        self.refusal.why = why
        self.refusal.change = change[0]
        self.refusal.row = row
        self.refusal.size = size
        return False

    cdef Text taken(self, size_t at) noexcept nogil:
        cdef Text text
        text.at = at
        text.size = self.parts.size - at
        return text

    cdef int copy(self, Text part) except -1 nogil:
        return done(put(&self.out, <const char *>self.parts.data + part.at, part.size))

    cdef Records finish(self):
        cdef Records found = Records.__new__(Records)
        cdef Py_ssize_t count = <Py_ssize_t>self.records.size()
        cdef Py_ssize_t i
        cdef Record *record
        found.values = []
        found.keys = [] if self.is_keyed else None
        found.topics = array.clone(INTEGERS, count, zero=False)
        found.partitions = array.clone(INTEGERS, count, zero=False)
        found.rows = array.clone(INTEGERS, count, zero=False)
        found.entries = array.clone(INTEGERS, count, zero=False)
        found.end = self.entry
        for i in range(count):
            record = &self.records[i]
            found.topics.data.as_ints[i] = record.topic
            found.partitions.data.as_ints[i] = record.partition
            found.rows.data.as_ints[i] = record.rows
            found.entries.data.as_ints[i] = record.entry
            found.values.append(self.bytes_of(record.value))
            if self.is_keyed:
                found.keys.append(self.bytes_of(record.key) if record.key.size else None)
        found.refused = self.reason() if self.refusal.why else None
        shrink(&self.parts)
        shrink(&self.out)
        return found

    cdef bytes bytes_of(self, Text text):
        return PyBytes_FromStringAndSize(<const char *>self.out.data + text.at, text.size)

    cdef object reason(self):
        """Why an entry cannot be sent."""
        cdef const Change *change = &self.refusal.change
        cdef str schema = text_of(change.header.schema)
        cdef str table = text_of(change.header.table)
        if self.refusal.why == MARKER:
            return MarkerError(self.entry, schema, table, text_of(change.row.sql))
        if self.refusal.why == PARTIAL:
            return PartialRowsError(self.entry, schema, table)
        return RecordTooLargeError(self.entry, schema, table, self.key_text(), self.refusal.size, self.limit)

    cdef str key_text(self):
        """The key of the row that is too large; empty without one."""
        cdef Fields columns = fields_of(self.refusal.row)
        cdef Span message
        cdef Cell cell
        cdef set seen = set()
        cdef list parts = []
        cdef int image = IMAGE_BEFORE if self.refusal.change.event_type == DELETE else IMAGE_AFTER
        for image in (image, IMAGE_BEFORE):
            columns = fields_of(self.refusal.row)
            while checked(next_column_of(&columns, image, &message)):
                if get_cell(message, &cell) and cell.is_key and cell.index not in seen:
                    seen.add(cell.index)
                    parts.append(f"{text_of(cell.name)}={text_of(cell.value)}")
        return ", ".join(parts)[:KEY_TEXT]


cdef class RecordEncoder(Encoder):
    """Makes records in Canal's forms, by the routes of their tables."""
    cdef object route
    cdef bint is_flat
    cdef bint is_whole
    cdef bint splits
    cdef bint has_statements
    cdef bint strict
    cdef uint8_t *seen                             # by column index: COLUMNS_MAX
    cdef unordered_map[string, int32_t] numbers    # of plans, by schema, a zero, and table
    cdef vector[Plan] plans
    cdef vector[vector[string]] columns
    cdef string name                               # of the plan that was used last
    cdef int32_t number
    cdef vector[Row] rows                          # of the entry
    cdef vector[int32_t] first                     # row of each partition, or piece of each group; NONE
    cdef vector[int32_t] last
    cdef vector[Piece] pieces

    def __cinit__(self):
        self.seen = <uint8_t *>calloc(COLUMNS_MAX, 1)
        if self.seen == NULL:
            raise MemoryError
        self.number = NONE

    def __init__(
        self, str form, route, *, bint whole, size_t limit, bint keyed=False, bint split_key_updates=False,
        bint statements=False, bint markers=False, bint strict=False,
    ):
        """Encode in the form "flat" or "canal".

        `route` gives the Route of a schema and table; it is asked once, and again only after many other tables.
        `whole`: form canal keeps batches together, with begins and ends, as Canal does without rules; all goes where
        the route of nothing says. `limit`: bytes of a record's key and value. `keyed`: a record a row, with its key.
        `split_key_updates`: an UPDATE that changes the key, or by what it is hashed, is sent as DELETE and INSERT.
        `statements`: those that stand before their rows are sent. `markers`: so are these. `strict`: flat is as Canal
        writes it.
        """
        if form not in ("flat", "canal"):
            raise ValueError(f"the form is flat or canal, not {form}")
        self.is_flat = form == "flat"
        self.is_whole = whole and not keyed and not self.is_flat
        self.route = route
        self.limit = limit
        self.is_keyed = keyed
        self.splits = split_key_updates
        self.has_statements = statements
        self.has_markers = markers
        self.strict = strict
        open_writer(&self.parts, 0, 0, strict)

    def __dealloc__(self):
        free(self.seen)

    cdef int begin(self) except -1:
        Encoder.begin(self)
        self.pieces.clear()
        if self.plans.size() > PLANS_MAX:
            self.plans.clear()
            self.columns.clear()
            self.numbers.clear()
            self.number = NONE
        return 0

    cdef bint add(self, Span message) except -1 nogil:
        cdef Change change
        cdef int is_change = read_change(message, &change)
        done(is_change)
        if not is_change:
            memset(&change, 0, sizeof(Change))
            return not self.is_whole or self.add_whole(&change, message, 0, NULL)
        if change.marks.is_marker:
            if not self.has_markers:
                return self.stop_at(MARKER, &change, NOTHING, 0)
        elif change.event_type == QUERY and not change.row.is_ddl and not self.has_statements:
            return True
        return self.add_flat(&change) if self.is_flat else self.add_canal(&change, message)

    # --- the rows of an entry

    cdef const Plan *plan_of(self, Span schema, Span table) except NULL nogil:
        cdef unordered_map[string, int32_t].iterator found
        cdef string name
        if self.number != NONE and self.name.size() == schema.size + 1 + table.size and (
            is_same(schema, span_at(self.name.data(), schema.size))
            and is_same(table, span_at(self.name.data() + schema.size + 1, table.size))
            and self.name.data()[schema.size] == 0
        ):
            return &self.plans[self.number]
        name.assign(<const char *>schema.data, schema.size)
        name.push_back(0)
        name.append(<const char *>table.data, table.size)
        found = self.numbers.find(name)
        if found != self.numbers.end():
            self.number = dereference(found).second
        else:
            with gil:
                self.number = self.new_plan(text_of(schema), text_of(table))
            self.numbers[name] = self.number
        self.name = name
        return &self.plans[self.number]

    cdef int32_t new_plan(self, str schema, str table) except -1:
        cdef Plan plan
        cdef vector[string] names
        route = self.route(schema, table)
        plan.topic, plan.partition, plan.bare = route.topic, route.partition, route.bare
        plan.hash_partitions, plan.seed = route.hash_partitions, route.seed
        plan.columns = NONE
        if route.columns is not None:
            for column in route.columns:
                names.push_back(<string>column.encode())
            plan.columns = <int32_t>self.columns.size()
            self.columns.push_back(names)
        self.plans.push_back(plan)
        return <int32_t>self.plans.size() - 1

    cdef int read_rows(self, const Change *change, const Plan *plan) except -1 nogil:
        cdef Fields rows = fields_of(change.entry.body)
        cdef Row row
        memset(&row, 0, sizeof(Row))
        self.rows.clear()
        if not change.image:
            return 0
        while checked(next_row(&rows, &row.message)):
            row.type, row.image = change.event_type, NO_IMAGE
            if self.splits and row.type == UPDATE and self.is_moved(&row, plan):
                row.type, row.image = DELETE, IMAGE_BEFORE
                self.locate(&row, change, plan)
                self.rows.push_back(row)
                row.type, row.image = INSERT, IMAGE_AFTER
            self.locate(&row, change, plan)
            self.rows.push_back(row)
        return 0

    cdef bint is_hashed_by(self, const Cell *cell, const Plan *plan) noexcept nogil:
        cdef size_t i
        cdef const vector[string] *names
        if not plan.hash_partitions:
            return False
        if plan.columns == NONE:
            return cell.is_key
        names = &self.columns[plan.columns]
        for i in range(names.size()):
            if self.is_flat:
                if is_same(cell.name, span_at(names[0][i].data(), names[0][i].size())):
                    return True
            elif is_same_name(cell.name, &names[0][i]):
                return True
        return False

    cdef bint is_moved(self, const Row *row, const Plan *plan) except -1 nogil:
        """Whether an UPDATE changes the key, or by what the row is hashed."""
        cdef Fields columns = fields_of(row.message)
        cdef Span message
        cdef Cell cell
        while checked(next_column_of(&columns, IMAGE_AFTER, &message)):
            if not get_cell(message, &cell):
                malformed()
            if cell.updated and (cell.is_key or self.is_hashed_by(&cell, plan)):
                return True
        return False

    cdef int locate(self, Row *row, const Change *change, const Plan *plan) except -1 nogil:
        """Find the row's partition and key.

        What the image after an update leaves out has not changed, and is taken from the image before.
        """
        cdef int image = IMAGE_BEFORE if row.type == DELETE else IMAGE_AFTER
        cdef int32_t hash = plan.seed
        cdef bint merged = image == IMAGE_AFTER and change.event_type == UPDATE and change.row.absent.size
        row.partition = plan.partition
        row.key.size = 0
        if not plan.hash_partitions and not self.is_keyed:
            return 0
        row.key.at = self.parts.size
        merged = merged and not self.strict
        if merged:
            memset(self.seen, 0, COLUMNS_MAX)
        self.read_key(row, change, plan, image, merged, &hash)
        if merged:
            self.read_key(row, change, plan, IMAGE_BEFORE, merged, &hash)
        if plan.hash_partitions:
            row.partition = partition_of(hash, plan.hash_partitions)
        if self.parts.size > row.key.at:
            done(put(&self.parts, b"}", 1))
            row.key.size = self.parts.size - row.key.at
        return 0

    cdef int read_key(
        self, Row *row, const Change *change, const Plan *plan, int image, bint once, int32_t *hash
    ) except -1 nogil:
        """Take the cells of an image; with `once` those that were not seen yet."""
        cdef Fields columns = fields_of(row.message)
        cdef Span message
        cdef Cell cell
        while checked(next_column_of(&columns, image, &message)):
            if not get_cell(message, &cell):
                malformed()
            if once:
                if not 0 <= cell.index < COLUMNS_MAX:
                    done(NO_COLUMN)
                if self.seen[cell.index]:
                    continue
                self.seen[cell.index] = 1
            if self.is_hashed_by(&cell, plan):
                hash[0] ^= hash_of(cell.value)
            if self.is_keyed and cell.is_key:
                self.put_key(row, change, &cell)
        return 0

    cdef int put_key(self, const Row *row, const Change *change, const Cell *cell) except -1 nogil:
        cdef Writer *parts = &self.parts
        if parts.size == row.key.at:
            done(put(parts, b'{"database":', 12))
            done(put_string(parts, change.header.schema))
            done(put(parts, b',"table":', 9))
            done(put_string(parts, change.header.table))
        done(put(parts, b',"pk.', 5))
        done(put_inside(parts, cell.name))
        done(put(parts, b'":', 2))
        done(put(parts, b"null", 4) if cell.is_null else put_string(parts, cell.value))
        return 0

    cdef bint chain_rows(self, const Plan *plan) except -1 nogil:
        """Chain the rows of each partition; False if all are of one."""
        cdef int32_t i
        cdef int32_t partition
        cdef int32_t count = <int32_t>self.rows.size()
        cdef bint is_one = True
        for i in range(count):
            self.rows[i].next = i + 1 if i + 1 < count else NONE
            is_one = is_one and self.rows[i].partition == self.rows[0].partition
        if is_one:
            return False
        self.first.assign(plan.hash_partitions, NONE)
        for i in range(count - 1, -1, -1):
            partition = self.rows[i].partition
            self.rows[i].next = self.first[partition]
            self.first[partition] = i
        return True

    # --- flat

    cdef bint add_flat(self, const Change *change) except -1 nogil:
        cdef Plan plan = self.plan_of(change.header.schema, change.header.table)[0]
        cdef size_t records = self.records.size()
        cdef size_t size = self.out.size
        cdef Frame frame
        cdef int32_t partition
        cdef bint fits = True
        self.parts.size = 0
        done(put_head(&self.parts, change))
        frame.head = self.taken(0)
        self.read_rows(change, &plan)
        self.put_rows(change)
        frame.middle.at = self.parts.size
        done(put_middle(&self.parts, change))
        frame.middle = self.taken(frame.middle.at)
        frame.tail_of = 0
        if self.rows.empty():
            fits = self.put_message(change, &plan, &frame, NONE, NONE, plan.bare)
        elif not self.chain_rows(&plan):
            fits = self.put_messages(change, &plan, &frame, 0)
        else:
            for partition in range(plan.hash_partitions):
                if fits and self.first[partition] != NONE:
                    fits = self.put_messages(change, &plan, &frame, self.first[partition])
        if not fits:
            self.records.resize(records)
            self.out.size = size
        return fits

    cdef int put_rows(self, const Change *change) except -1 nogil:
        cdef size_t i
        cdef size_t at
        cdef Row *row
        for i in range(self.rows.size()):
            row = &self.rows[i]
            at = self.parts.size
            done(put_row(&self.parts, row.message, IMAGE_BEFORE if row.type == DELETE else IMAGE_AFTER))
            row.data = self.taken(at)
            at = self.parts.size
            if row.type == UPDATE:
                done(put_old(&self.parts, row.message))
            row.old = self.taken(at)
        return 0

    cdef bint put_messages(self, const Change *change, const Plan *plan, Frame *frame, int32_t first) except -1 nogil:
        """A message, or several, of the chain of rows."""
        cdef int32_t last
        while first != NONE:
            self.use_tail(change, frame, self.rows[first].type)
            last = self.last_that_fits(frame, first)
            if not self.put_message(change, plan, frame, first, last, self.rows[first].partition):
                return False
            first = self.rows[last].next
        return True

    cdef int use_tail(self, const Change *change, Frame *frame, uint64_t type) except -1 nogil:
        if frame.tail_of != type:
            frame.tail.at = self.parts.size
            done(put_tail(&self.parts, change, type))
            frame.tail = self.taken(frame.tail.at)
            frame.tail_of = type
        return 0

    cdef int32_t last_that_fits(self, const Frame *frame, int32_t first) noexcept nogil:
        """The last row, after one in its chain, of the same type with which they fit into a message."""
        cdef const Row *row = &self.rows[first]
        cdef bint has_old = row.type == UPDATE
        # Brackets around both lists, or one and null; a comma in each.
        cdef size_t size = frame.head.size + frame.middle.size + frame.tail.size + (4 if has_old else 6)
        cdef int32_t last = first
        size += row.data.size + row.old.size
        while row.next != NONE and not self.is_keyed:
            row = &self.rows[row.next]
            size += row.data.size + row.old.size + (2 if has_old else 1)
            if row.type != self.rows[first].type or size > self.limit:
                break
            last = self.rows[last].next
        return last

    cdef bint put_message(
        self, const Change *change, const Plan *plan, Frame *frame, int32_t first, int32_t last, int32_t partition
    ) except -1 nogil:
        """A message with the rows of a part of a chain, or without rows."""
        cdef Record record
        cdef const Row *row = &self.rows[first] if first != NONE else NULL
        cdef size_t start = self.out.size
        if row == NULL:
            self.use_tail(change, frame, change.event_type)
        self.copy(frame.head)
        record.rows = self.put_list(first, last, False)
        self.copy(frame.middle)
        self.put_list(first if row != NULL and row.type == UPDATE else NONE, last, True)
        self.copy(frame.tail)
        record.value.at = start
        record.value.size = self.out.size - start
        record.key.at = self.out.size
        record.key.size = row.key.size if row != NULL else 0
        if record.key.size:
            self.copy(row.key)
        record.topic, record.partition, record.entry = plan.topic, partition, self.entry
        if record.value.size + record.key.size > self.limit:
            return self.stop_at(
                TOO_LARGE, change, row.message if row != NULL else NOTHING, record.value.size + record.key.size
            )
        self.records.push_back(record)
        return True

    cdef int32_t put_list(self, int32_t first, int32_t last, bint old) except -1 nogil:
        """How many rows it has; null without any."""
        cdef int32_t count = 0
        cdef int32_t i = first
        if first == NONE:
            done(put(&self.out, b"null", 4))
            return 0
        while True:
            done(put(&self.out, b"," if count else b"[", 1))
            self.copy(self.rows[i].old if old else self.rows[i].data)
            count += 1
            if i == last:
                break
            i = self.rows[i].next
        done(put(&self.out, b"]", 1))
        return count

    # --- canal

    cdef bint add_canal(self, const Change *change, Span message) except -1 nogil:
        """Add an entry as it is, or in parts: a row each if these are hashed or have keys, else as many as fit."""
        cdef Plan plan = self.plan_of(change.header.schema, change.header.table)[0]
        cdef size_t pieces = self.pieces.size()
        cdef size_t size = self.parts.size
        cdef bint is_each = plan.hash_partitions > 0 or self.is_keyed
        cdef bint is_split = False
        cdef size_t around
        cdef int32_t i
        cdef int32_t last
        cdef int32_t count
        cdef bint fits = self.packet_size(framed(message.size)) <= self.limit
        if fits and not is_each and not self.splits:
            return self.add_whole(change, message, count_rows(change), NULL)
        self.read_rows(change, &plan)
        count = <int32_t>self.rows.size()
        for i in range(count):
            is_split = is_split or self.rows[i].type != change.event_type
        if count <= 1 or fits and not is_each and not is_split:
            return self.add_whole(change, message, count, &self.rows[0] if count else NULL)
        around = self.around_rows(change)
        i = 0
        while i < count:
            last = i if is_each else self.last_in_packet(i, around)
            if not self.add_part(change, &plan, i, last):
                self.pieces.resize(pieces)
                self.parts.size = size
                return False
            i = last + 1
        return True

    cdef bint add_whole(self, const Change *change, Span message, int32_t rows, const Row *row) except -1 nogil:
        """Add an entry of one partition as it is; the row says which, and its key, if rows are looked at."""
        cdef Plan plan
        cdef Piece piece
        memset(&piece, 0, sizeof(Piece))
        if self.is_whole:
            plan = self.plan_of(NOTHING, NOTHING)[0]
            piece.partition = plan.partition
        else:
            plan = self.plan_of(change.header.schema, change.header.table)[0]
            piece.partition = plan.partition if rows else plan.bare
        if row != NULL:
            piece.partition, piece.key = row.partition, row.key
        piece.data = message.data
        piece.part.size = message.size
        piece.topic, piece.rows = plan.topic, rows
        return self.add_piece(change, &piece, row)

    cdef bint add_part(self, const Change *change, const Plan *plan, int32_t first, int32_t last) except -1 nogil:
        """Add some rows as an entry of their own."""
        cdef Piece piece
        cdef const Row *row = &self.rows[first]
        cdef uint64_t type = row.type if row.image else 0
        cdef uint64_t changed = CHANGE_EVENT_TYPE if type else 0
        cdef size_t start = self.parts.size
        cdef size_t inside
        cdef size_t i
        if type:
            put_fields(&self.parts, change.entry.header, 0, UINT64_MAX, EVENT_TYPE, type)
            close_length(&self.parts, start, HEADER)
            put_fields(&self.parts, change.message, HEADER + 1, STORE_VALUE - 1)
        else:
            put_fields(&self.parts, change.message, 0, STORE_VALUE - 1)
        inside = self.parts.size
        put_fields(&self.parts, change.entry.body, 0, ROW_DATAS - 1, changed, type)
        for i in range(first, last + <size_t> 1):
            self.put_row_data(&self.rows[i])
        put_fields(&self.parts, change.entry.body, ROW_DATAS + 1, UINT64_MAX)
        close_length(&self.parts, inside, STORE_VALUE)
        put_fields(&self.parts, change.message, STORE_VALUE + 1, UINT64_MAX)
        memset(&piece, 0, sizeof(Piece))
        piece.part = self.taken(start)
        piece.key = row.key
        piece.topic, piece.partition, piece.rows = plan.topic, row.partition, last + 1 - first
        return self.add_piece(change, &piece, row)

    cdef int put_row_data(self, const Row *row) except -1 nogil:
        cdef size_t start = self.parts.size
        cdef uint64_t columns = BEFORE_COLUMNS if row.image == IMAGE_BEFORE else AFTER_COLUMNS
        if row.image == NO_IMAGE:
            put_fields(&self.parts, row.message, 0, UINT64_MAX)
        else:
            put_fields(&self.parts, row.message, columns, columns)
        return close_length(&self.parts, start, ROW_DATAS)

    cdef bint add_piece(self, const Change *change, Piece *piece, const Row *row) except -1 nogil:
        cdef size_t size = self.packet_size(framed(piece.part.size)) + piece.key.size
        if size > self.limit:
            return self.stop_at(TOO_LARGE, change, row.message if row != NULL else NOTHING, size)
        piece.entry = self.entry
        self.pieces.push_back(piece[0])
        return True

    cdef size_t around_rows(self, const Change *change) noexcept nogil:
        """How many bytes of an entry are not its rows, or a few more."""
        cdef size_t size = change.message.size
        cdef size_t i
        for i in range(self.rows.size()):
            if self.rows[i].image != IMAGE_AFTER:  # else it stands there twice
                size -= framed(self.rows[i].message.size)
        return size

    cdef int32_t last_in_packet(self, int32_t first, size_t around) noexcept nogil:
        """The last row, after one, of the same type with which they fit into a packet as an entry."""
        cdef size_t size = around + framed(self.rows[first].message.size)
        cdef int32_t last = first
        while last + 1 < <int32_t>self.rows.size() and self.rows[last + 1].type == self.rows[first].type:
            size += framed(self.rows[last + 1].message.size)
            if self.packet_size(framed(size)) > self.limit:
                break
            last += 1
        return last

    cdef size_t packet_size(self, size_t messages) noexcept nogil:
        """Bytes of a packet whose framed entries have ``messages`` bytes."""
        cdef size_t body = messages
        if self.is_whole:
            body += 1 + varint_size(<uint64_t>self.parts.batch_id)
        return (2 if self.is_whole else 4) + framed(body)

    cdef int end(self) except -1 nogil:
        """Make packets of the pieces: each of one partition, and as large as it may be."""
        cdef unordered_map[uint64_t, int32_t] groups
        cdef unordered_map[uint64_t, int32_t].iterator found
        cdef uint64_t place
        cdef int32_t i
        cdef int32_t group
        self.first.clear()
        self.last.clear()
        for i in range(<int32_t>self.pieces.size()):
            self.pieces[i].next = NONE
            place = <uint64_t>self.pieces[i].topic << 32 | <uint32_t>self.pieces[i].partition
            found = groups.find(place)
            if found == groups.end():
                groups[place] = <int32_t>self.first.size()
                self.first.push_back(i)
                self.last.push_back(i)
                continue
            group = dereference(found).second
            self.pieces[self.last[group]].next = i
            self.last[group] = i
        for group in range(<int32_t>self.first.size()):
            i = self.first[group]
            while i != NONE:
                i = self.put_packet(i)
        return 0

    cdef int32_t put_packet(self, int32_t first) except -2 nogil:
        """Write a packet; the piece after those that are in it, or NONE."""
        cdef Record record
        cdef Piece *piece = &self.pieces[first]
        cdef size_t messages = framed(piece.part.size)
        cdef int32_t stop = piece.next
        cdef int32_t i = first
        while stop != NONE and not self.is_keyed:
            if self.packet_size(messages + framed(self.pieces[stop].part.size)) > self.limit:
                break
            messages += framed(self.pieces[stop].part.size)
            stop = self.pieces[stop].next
        record.value.at = self.out.size
        record.topic, record.partition, record.entry = piece.topic, piece.partition, piece.entry
        record.rows = 0
        self.put_packet_head(messages)
        while i != stop:
            piece = &self.pieces[i]
            put_length(&self.out, MESSAGES, piece.part.size)
            if piece.data != NULL:
                done(put(&self.out, <const char *>piece.data, piece.part.size))
            else:
                self.copy(piece.part)
            record.rows += piece.rows
            i = piece.next
        record.value.size = self.out.size - record.value.at
        record.key.at, record.key.size = self.out.size, self.pieces[first].key.size
        if record.key.size:
            self.copy(self.pieces[first].key)
        self.records.push_back(record)
        return stop

    cdef int put_packet_head(self, size_t messages) except -1 nogil:
        cdef size_t body = messages
        if self.is_whole:
            body += 1 + varint_size(<uint64_t>self.parts.batch_id)
        else:
            done(put(&self.out, b"\x10\x01", 2))
        done(put(&self.out, b"\x18\x07", 2))
        put_length(&self.out, BODY, body)
        if self.is_whole:
            put_length(&self.out, BATCH_ID, <uint64_t>self.parts.batch_id)
        return 0
