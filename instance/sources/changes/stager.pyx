"""Frames of files of changes to framed entries in segments, with a slot each. The loop runs without the GIL.

A frame has the `Messages` of a batch. An entry keeps its bytes and its place. Places after entries are those of the
entries that follow; where another transaction follows, it is the place before that one.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from ....protocol.canal.entry cimport (
    ENTRY_PIECE,
    GAP_KEY,
    POSITIONS_PIECE,
    QUARANTINE_KEY,
    Entry,
    Fields,
    Header,
    Prop,
    RowChange,
    checked,
    fields_of,
    get_entry,
    get_header,
    get_row_change,
    next_header_prop,
    next_piece,
    next_row,
    text_of,
)
from ....protocol.canal.tags cimport DELETE, INSERT, MESSAGES, ROWDATA, TRANSACTIONBEGIN, TRANSACTIONEND, UPDATE
from ....protocol.wire cimport VARINT_MAX, Span, get_varint, is_same, put_bytes, span_at
from ....store.ring cimport (
    BOUNDARY,
    DDL,
    GAP,
    QUARANTINE,
    QUERY,
    ROW_DATA,
    TEXT,
    TRANSACTION_BEGIN,
    TRANSACTION_END,
    Ring,
    Slot,
    Staging,
)
from ....store.segment cimport SegmentWriter

from ....protocol import props
from ....protocol.canal import entry_pb2 as pb
from ....protocol.errors import DecodeError

cdef enum:
    STAGED_SLOTS = 1024            # slots that are staged at most before they are put
    STAGED_BYTES = 1 << 20         # bytes, likewise; or, if that is less, an eighth of what the ring may hold
    LEAST_STAGED_BYTES = 64 << 10

cdef bytes _SHAPE = props.SHAPE.encode()
cdef Span SHAPE_KEY = span_at(<const char *>_SHAPE, len(_SHAPE))


cdef struct Item:                  # an entry of a frame
    Span entry
    int64_t begin
    uint32_t n
    uint32_t file                  # its place among `files`


cdef struct File:                  # a binlog file that entries are of
    uint32_t source                # numbers in the ring
    uint32_t number
    int start                      # its changes are before the start (-1) or after it (1), or some are (0)
    int stop                       # likewise


cdef struct Table:
    uint32_t number
    bint passes
    int64_t judged                 # by which filter


cdef class Stager:
    """Stages frames. The thread that puts calls in a loop `begin`, then `run` until it returns False."""
    cdef readonly Staging staging
    cdef readonly set tables                       # schema and name of those of which an entry was staged
    cdef readonly long long entries
    cdef readonly bint is_done                     # the stop position is reached
    cdef Ring ring
    cdef SegmentWriter writer
    cdef Py_ssize_t most_bytes                     # that are put at once
    cdef object wanted
    cdef int64_t filter
    cdef unordered_map[string, Table] judgements

    # The frame
    cdef object frame                              # keeps its bytes
    cdef vector[Item] items
    cdef size_t next
    cdef vector[File] files
    cdef dict names                                # of `files`: their places in it
    cdef File last_file                            # of the place after the frame
    cdef int64_t last_begin
    cdef uint32_t last_n
    cdef int64_t start_begin, stop_begin
    cdef uint32_t start_n, stop_n

    def __init__(self, Ring ring not None, wanted):
        """See stager.pyi."""
        self.ring = ring
        self.staging = Staging()
        self.writer = SegmentWriter(ring.pool)
        self.most_bytes = min(STAGED_BYTES, max(LEAST_STAGED_BYTES, ring.memory // 8))
        self.tables = set()
        self.wanted = wanted
        self.filter = 1

    def refilter(self, wanted):
        """Use another filter of tables, from the next entry on. Any thread may call it."""
        self.wanted = wanted
        self.filter += 1

    def begin(self, bytes frame not None, dict files not None, last, start=(0, 0), stop=(0, 0)):
        """Take a frame; see stager.pyi."""
        cdef File file
        self.frame = None
        self.items.clear()
        self.next = 0
        self.files.clear()
        self.names = {}
        for name, parts in files.items():
            file.source, file.number, file.start, file.stop = parts
            self.names[name.encode()] = self.files.size()
            self.files.push_back(file)
        name, self.last_begin, self.last_n = last
        self.last_file = self.files[<size_t>self.names[name.encode()]]
        self.start_begin, self.start_n = start
        self.stop_begin, self.stop_n = stop
        self.frame = frame
        self.take_apart(span_at(frame, len(frame)))

    def run(self):
        """Stage what is left of the frame; False when all of it is. Else put what is staged, and go on.

        Raises DecodeError for an entry that is none; those before it are staged.
        """
        cdef bint is_left
        with nogil:
            is_left = self.stage()
        return is_left

    def mark(self, str text, str file, int64_t begin, uint32_t n, str key=props.GAP):
        """Stage a marker at a place: what was before it is missing, or what its key says."""
        cdef Slot *slot
        cdef File at = self.files[<size_t>self.names[file.encode()]]
        change = pb.RowChange(eventType=pb.QUERY, isDdl=False, sql=f"-- {key}: {text}")
        header = pb.Header(
            version=1,
            logfileName=file,
            logfileOffset=begin,
            serverenCode="UTF-8",
            sourceType=pb.MYSQL,
            eventType=pb.QUERY,
            props=[pb.Pair(key=key, value=text)],
        )
        entry = pb.Entry(header=header, entryType=pb.ROWDATA, storeValue=change.SerializeToString())
        self.writer.write_framed(entry.SerializeToString())
        slot = self.staging.finish(self.writer)
        slot.kind, slot.event_type = GAP if key == props.GAP else QUERY, <uint8_t>pb.QUERY
        self.place(slot, at, begin, n, at, begin, n)

    def advance(self, str file, int64_t begin, uint32_t n):
        """Stage a place without a change: clients may go on there."""
        cdef File at = self.files[<size_t>self.names[file.encode()]]
        self.place(self.staging.advance(), at, begin, n, at, begin, n)

    def execute(self, str file, int64_t begin, uint32_t n, list runs):
        """Stage that transactions have ended before a place: number of the GTID's source, first, last."""
        cdef Slot *slot
        cdef File at = self.files[<size_t>self.names[file.encode()]]
        for source, first, last in runs:
            slot = self.staging.advance()
            slot.gtid, slot.gtid_first, slot.gtid_last = source, first, last
            self.place(slot, at, begin, n, at, begin, n)

    def close(self):
        """Give back the memory of the staging and of the unfinished segment."""
        self.staging.clear()
        self.writer.close()

    cdef int take_apart(self, Span frame) except -1:
        """Find the entries of a frame, with their places."""
        cdef Fields pieces = fields_of(frame)
        cdef Fields numbers = fields_of(span_at(NULL, 0))
        cdef Item item
        cdef Entry entry
        cdef Header header
        cdef Span piece, known
        cdef const uint8_t *p
        cdef uint64_t n = 0, begin = 0
        cdef int kind
        known = span_at(NULL, 0)
        item.file = 0
        while True:
            kind = checked(next_piece(&pieces, &piece))
            if kind == 0:
                return 0
            if kind == POSITIONS_PIECE:
                numbers = fields_of(piece)
            elif kind == ENTRY_PIECE:
                p = get_varint(numbers.p, numbers.end, &begin)
                if p != NULL:
                    p = get_varint(p, numbers.end, &n)
                numbers.p = p
                if p == NULL or begin >> 63 or n >> 32:
                    raise DecodeError("an entry has no place")
                if not get_entry(piece, &entry) or not get_header(&entry, &header, NULL):
                    raise DecodeError("an entry is cut off")
                if known.data == NULL or not is_same(header.file, known):
                    item.file = self.number_of(header.file)
                    known = header.file
                item.entry, item.begin, item.n = piece, <int64_t>begin, <uint32_t>n
                self.items.push_back(item)

    cdef uint32_t number_of(self, Span name) except? 0xFFFFFFFF:
        """Return the place of a file among those of the frame."""
        cdef bytes key = PyBytes_FromStringAndSize(<const char *>name.data, name.size)
        if key not in self.names:
            text_of(name)
            # It lies between the files where the frame begins and ends: only those say when they were created.
            self.names[key] = self.files.size()
            self.files.push_back(self.files[0])
            file = self.ring.files[self.files[0].number]
            self.files[self.files.size() - 1].number = self.ring.files.intern((key.decode(), file[1]))
        return self.names[key]

    cdef bint stage(self) except -1 nogil:
        cdef const Item *item
        cdef const Item *after
        cdef const File *file
        cdef const File *next_file
        cdef int64_t next_begin
        cdef uint32_t next_n
        while self.next < self.items.size() and not self.is_done:
            item = &self.items[self.next]
            file = &self.files[item.file]
            self.next += 1
            if file.stop > 0 or (file.stop == 0 and is_at(item.begin, item.n, self.stop_begin, self.stop_n)):
                self.is_done = True
                break
            if file.start < 0 or (file.start == 0 and not is_at(item.begin, item.n, self.start_begin, self.start_n)):
                continue
            next_file, next_begin, next_n = &self.last_file, self.last_begin, self.last_n
            if self.next < self.items.size():
                after = &self.items[self.next]
                next_file, next_begin, next_n = &self.files[after.file], after.begin, after.n
                if next_begin != item.begin or after.file != item.file:
                    next_n = 0
            self.stage_entry(item, file[0], next_file[0], next_begin, next_n)
            self.entries += 1
            if self.staging.count >= STAGED_SLOTS or self.staging.bytes >= self.most_bytes:
                return True
        return False

    cdef int stage_entry(self, const Item *item, File file, File next_file, int64_t next_begin, uint32_t next_n) \
            except -1 nogil:
        cdef Entry entry
        cdef Header header
        cdef RowChange change
        cdef Fields body
        cdef Span row
        cdef Slot *slot
        cdef int kind = 0
        cdef uint32_t rows = 0, table = 0
        cdef bint passes = True
        get_entry(item.entry, &entry)
        get_header(&entry, &header, NULL)
        if entry.type == TRANSACTIONBEGIN:
            kind = TRANSACTION_BEGIN
        elif entry.type == TRANSACTIONEND:
            kind = TRANSACTION_END
        elif entry.type == ROWDATA and get_row_change(&entry, &change):
            kind = self.kind_of(&entry, &header, &change)
            if kind == ROW_DATA:
                body = fields_of(entry.body)
                while checked(next_row(&body, &row)):
                    rows += 1
            if header.table.size or header.schema.size:
                passes = self.judge(header.schema, header.table, &table)
        else:
            with gil:
                raise DecodeError(f"an entry at {item.begin}:{item.n} is none: type {entry.type}")
        if passes:
            self.writer.reserve(2 * VARINT_MAX + item.entry.size)
            self.writer.cursor = put_bytes(<uint8_t *>self.writer.cursor, MESSAGES, item.entry.data, item.entry.size)
            slot = self.staging.finish(self.writer)
            slot.kind = kind
            slot.event_type = <uint8_t>header.event_type if entry.type == ROWDATA else 0
            slot.table, slot.rows = table, rows
        elif next_n == 0:
            slot = self.staging.advance()
        else:
            return 0
        if slot.kind == QUERY and not self.has_prop(&entry, SHAPE_KEY):
            slot.flags |= TEXT
        slot.server_id = <uint32_t>header.server_id
        slot.execute_ms = header.execute_time
        slot.event_offset = header.offset
        self.place(slot, file, item.begin, item.n, next_file, next_begin, next_n)
        return 0

    cdef void place(
        self, Slot *slot, File file, int64_t begin, uint32_t n, File next_file, int64_t next_begin, uint32_t next_n
    ) noexcept nogil:
        slot.source, slot.file, slot.begin, slot.n = file.source, file.number, begin, n
        slot.next_file, slot.next_begin, slot.next_n = next_file.number, next_begin, next_n
        if next_n == 0:
            slot.flags |= BOUNDARY

    cdef int kind_of(self, const Entry *entry, const Header *header, const RowChange *change) except -1 nogil:
        if change.is_ddl:
            return DDL
        if change.sql.size == 0 and header.event_type in (INSERT, UPDATE, DELETE):
            return ROW_DATA
        if self.has_prop(entry, QUARANTINE_KEY):
            return QUARANTINE
        return GAP if self.has_prop(entry, GAP_KEY) else QUERY

    cdef bint has_prop(self, const Entry *entry, Span key) except -1 nogil:
        cdef Fields header = fields_of(entry.header)
        cdef Prop prop
        while checked(next_header_prop(&header, &prop)):
            if is_same(prop.key, key):
                return True
        return False

    cdef bint judge(self, Span schema, Span table, uint32_t *number) except -1 nogil:
        """Whether the filter lets a table through, and its number in the ring."""
        cdef string key = string(<const char *>schema.data, schema.size)
        key.push_back(0)
        key.append(<const char *>table.data, table.size)
        cdef Table *found = &self.judgements[key]
        if found.judged != self.filter:
            with gil:
                name = text_of(schema), text_of(table)
                found.judged = self.filter
                found.passes = self.wanted.accepts(*name)
                if found.passes:
                    found.number = self.ring.tables.intern(name)
                    self.tables.add(name)
        number[0] = found.number
        return found.passes


cdef inline bint is_at(int64_t begin, uint32_t n, int64_t other_begin, uint32_t other_n) noexcept nogil:
    """Whether a place is another one of the same file, or after it."""
    return begin > other_begin or (begin == other_begin and n >= other_n)
