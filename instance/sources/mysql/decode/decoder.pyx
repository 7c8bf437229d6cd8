"""The decoder: raw replication packets to framed entries in segments, with a slot each.

The loop runs without the GIL and comes back when it needs bytes, when enough is staged, or with a control event: an
event that comes once per file, table or schema change, which Python handles.

A packet of a binlog dump is 0x00 and an event, 0xFF and an error, or 0xFE (the end). An event is a header
(`EventHeader`), a body, and, where the FORMAT_DESCRIPTION event says so, its CRC32.
(https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_replication_binlog_event.html)

Positions are those of `sluice.protocol.position`. A transaction begins with its GTID event, else its BEGIN, else the
lone statement (with the INTVAR, RAND or USER_VAR events before it), and `n` counts its events on the wire, those inside
a compressed payload too; an UPDATE that is split (`PlanOptions.splits`) counts as often as it gives entries. An event
outside any transaction (ROTATE, STOP, PREVIOUS_GTIDS ...) is one of its own.

An XA transaction comes in two parts, each with a GTID of its own: what ends by XA PREPARE has the rows, and XA COMMIT
or XA ROLLBACK, maybe much later, says what becomes of them. The rows belong to the XA COMMIT: its transaction has the
events of the prepared part, from XA START to XA PREPARE, after its own, and all have its place. As Canal does, a strict
decoder leaves them where they were prepared.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, strlen
from libcpp.string cimport string

from .....protocol.canal.entry cimport GTID_KEY
from .....protocol.canal.tags cimport (
    CHANGE_EVENT_TYPE,
    DELETE,
    INSERT,
    IS_DDL,
    KEY,
    PAIR_VALUE,
    ROWDATA,
    SCHEMA_NAME,
    SQL,
    TABLE_ID,
    TABLE_NAME,
    THREAD_ID,
    TRANSACTION_ID,
    TRANSACTION_PROPS,
    TRANSACTIONBEGIN,
    TRANSACTIONEND,
    UPDATE,
)
from .....protocol.canal.tags cimport QUERY as QUERY_TYPE
from .....protocol.gtid_text cimport SOURCE_TEXT_MAX, put_mariadb, put_source
from .....protocol.littleendian cimport le16, le32, le48, le64
from .....protocol.utf8 cimport is_utf8, put_utf8, utf8_size
from .....protocol.wire cimport (
    put_bytes,
    put_decimal,
    put_raw,
    put_uint,
    put_varint,
)
from .....store.ring cimport (
    ADVANCE,
    BOUNDARY,
    FUTURE_SCHEMA,
    QUERY,
    ROW_DATA,
    TEXT,
    TRANSACTION_BEGIN,
    TRANSACTION_END,
    Ring,
    Slot,
    Staging,
)
from .....store.segment cimport SegmentWriter
from .entries cimport (
    ANY_SIZE,
    NO_EVENT_TYPE,
    EntryWriter,
    EventPlace,
)
from .events cimport *
from .executed cimport ExecutedSet
from .file_reader cimport FIRST_OFFSET, FileReader
from .gtid_event cimport (
    FL_COMPLETED_XA,
    FL_PREPARED_XA,
    FL_ROLLBACK_ALTER,
    FL_STANDALONE,
    FL_START_ALTER,
    read_gtid,
    read_mariadb_gtid,
    read_tagged_gtid,
)
from .gtid_sources cimport GtidSources
from .inflate cimport Inflater, PayloadReader
from .limits cimport Limits
from .packets cimport PacketBuffer
from .plan cimport Scratch, TablePlan
from .rows_event cimport RowsBody, read_rows_body
from .tables cimport KnownTable, KnownTables
from .transaction_filter cimport TransactionFilter
from .words cimport is_words, starts_with
from .xa cimport (
    ASKED,
    NO_XA,
    PREPARED,
    RECALLED,
    UNDECIDED,
    RecalledPart,
    XaTransaction,
    check_xid,
    mark_entries,
)

from .....protocol.errors import DecodeError
from .....protocol.position import Position
from .variables import statement_text

cdef enum:
    STAGED_SLOTS = 1024            # slots that are staged at most before they are put
    STAGED_BYTES = 2 << 20         # bytes, likewise; or, if that is less, an eighth of what the ring may hold
    LEAST_STAGED_BYTES = 64 << 10
    RECEIVED_BYTES = 1 << 20       # at once of a busy stream, or a 16th of what the ring may hold
    LEAST_RECEIVED_BYTES = 64 << 10

    PACKET_EVENT = 0x00            # first byte of a packet
    PACKET_EOF = 0xFE
    PACKET_ERROR = 0xFF

    ROWS_HEADER_V2 = 10            # post-header length of rows events with extra data
    DUMMY_TABLE_ID = 0xFFFFFF      # of a rows event without rows that only ends a statement


cdef int64_t GTID_MAX = INT64_MAX - 1          # the greatest number that MySQL gives
cdef uint8_t[4] NO_NAMES = [SCHEMA_NAME, 0, TABLE_NAME, 0]   # of Header, both empty
cdef size_t NO_NAMES_SIZE = 4


# --- bytes -----------------------------------------------------------------------------------------------------------

cdef inline uint8_t *put_pair(
    uint8_t *p, unsigned int tag, const char *key, const uint8_t *value, size_t size
) noexcept nogil:
    """A Pair with a text of at most XA_TEXT_MAX bytes, which takes at most three times as many."""
    cdef size_t key_size = strlen(key)
    cdef size_t value_size = utf8_size(value, size)
    p = put_varint(put_varint(p, tag), 2 + key_size + 1 + (1 if value_size < 128 else 2) + value_size)
    p = put_bytes(p, KEY, key, key_size)
    p = put_varint(put_varint(p, PAIR_VALUE), value_size)
    return put_utf8(p, value, size)


cdef inline bint has_all(const uint8_t *bits, uint64_t count) noexcept nogil:
    """Whether the first ``count`` bits are all set."""
    while count >= 8:
        if bits[0] != 0xFF:
            return False
        bits += 1
        count -= 8
    return count == 0 or bits[0] & (1 << count) - 1 == (1 << count) - 1


# --- the decoder -----------------------------------------------------------------------------------------------------

@cython.final  # so the loop calls its methods directly, not through a table
cdef class Decoder:
    """Decodes one binlog dump after the other into a staging.

    The thread that puts calls `begin`, then in a loop `run` and what `run` asks for. Not to be shared between threads.
    """

    def __init__(self, Ring ring not None, options, member="", *, bint moves_xa=True):
        """`moves_xa`: rows of an XA transaction come where it is committed; never with `strict_canal`."""
        self.member = member
        self.sources = ring.sources
        self.files = ring.files
        self.gtid_sources = GtidSources(ring.gtid_sources, member)
        self.staging = Staging()
        self.ring = ring
        self.most_staged_bytes = min(STAGED_BYTES, max(LEAST_STAGED_BYTES, self.ring.memory // 8))
        self.writer = SegmentWriter(ring.pool)
        self.entries = EntryWriter(self.writer)
        self.scratch = Scratch()
        ordinary = min(RECEIVED_BYTES, max(LEAST_RECEIVED_BYTES, ring.memory // 16))
        self.packets = PacketBuffer(ordinary, options.event_bytes)
        self.inflater = Inflater(options.event_bytes)
        self.payload = PayloadReader(options.event_bytes)
        self.reader = FileReader()
        self.limits = Limits()
        self.xa = XaTransaction(options.event_bytes, ring.memory)
        self.tables = KnownTables()
        self.gtid_on = options.gtid_on
        self.strict_canal = options.strict_canal
        self.moves_xa = moves_xa and not options.strict_canal
        self.drops[<int>INSERT] = options.filter_dml_insert
        self.drops[<int>UPDATE] = options.filter_dml_update
        self.drops[<int>DELETE] = options.filter_dml_delete
        self.drops_rows = options.filter_rows
        self.drops_statements = options.filter_query_dml
        self.transaction_filter = TransactionFilter(options.filter_transaction_entry)

    # --- what Python calls -------------------------------------------------------------------------------------------

    def begin(self, *, source, gtid=False, position=None, stop=None, executed="", walking=False, only_xa=False):
        """Begins a new dump; what was received or staged of an earlier one is dropped, plans are kept.

        Args:
            source: server_uuid, or for MariaDB the server_id.
            gtid: the dump was requested by GTID: transactions may be missing from the file.
            position: entries before it are not delivered; the dump begins at `position.begin` or earlier in its file.
            stop: `run` answers STOPPED there.
            executed: the GTID set before the dump, in the form of the headers; only used with `gtid_on`.
            walking: each event of the file is a control event that asks for no answer, with its position; no entry is
                made of any. A compressed transaction is one event, and only GTID events and statements have a body.
            only_xa: while walking, only statements and XA_PREPARE events are, these also of compressed transactions.
        """
        self.packets.clear()
        self.payload.close()
        self.staging.clear()
        self.writer.cursor = self.writer.entry
        self.entries.clear_props()
        self.executed_set = ExecutedSet(executed)
        self.source_name = source
        self.source = self.sources.intern((self.member, source))
        self.reader.begin(gtid)
        self.walking = walking
        self.only_xa = only_xa
        self.is_placed = not gtid
        self.file = 0
        self.group = NO_GROUP
        self.begun.pending = self.has_entries = self.unfinished = self.in_rows = False
        self.xa.state = NO_XA
        self.xa.part = None
        self.gtid_number = 0
        self.event = None
        self.reached_file = 0
        self.tables.by_id.clear()
        self.limits.start(position, stop)

    def close(self):
        """Gives back the memory of the staging and of the unfinished segment."""
        self.staging.clear()
        self.writer.close()

    def receive_space(self):
        """Writable space for what the source sends next; only after NEED_DATA. Release it before `received`."""
        return self.packets.receive_space()

    def received(self, size_t size):
        """Take ``size`` bytes that were written to the space."""
        self.packets.received(size)

    def part_space(self):
        """As `receive_space`, for the prepared part that `recall` asked for; only after NEED_PART."""
        return self.asked_part().packets.receive_space()

    def part_received(self, size_t size):
        """Take ``size`` bytes that were written to the space of the prepared part."""
        self.asked_part().packets.received(size)

    cdef RecalledPart asked_part(self):
        if self.xa.part is None:
            raise RuntimeError("no prepared part was asked for")
        return self.xa.part

    def run(self):
        """Decodes what was received, without the GIL.

        Raises:
            DecodeError: bytes do not fit; it names file and offset; the dump cannot go on. A rows event that does not
                fit its table is not raised: it is a control event with `Event.error` set.
            SourceChangedError: the file of `position` is another one now.
        """
        cdef Status status
        if self.executed_set is None:
            raise RuntimeError("begin() says where a dump begins")
        # What waits for a full ring takes memory beside the ring's.
        self.staged_bytes = min(self.most_staged_bytes, max(LEAST_STAGED_BYTES, self.ring.room()))
        try:
            with nogil:
                status = self.loop()
        except DecodeError as error:
            self.writer.cursor = self.writer.entry
            located = DecodeError(
                f"{error} (event of type {self.reader.header.type} at {self.reader.name}:{self.reader.place.offset})"
            )
            if not self.in_rows:
                self.payload.close()
                raise located from None
            self.staging.cut(self.first_staged)  # nothing of the event was put: it is decoded as a whole, or not
            self.event_n -= self.more_entries
            self.n -= self.more_entries
            self.event = self.make_event(self.reader.header.type, self.reader.body, self.reader.body_end)
            self.event.error = located
            self.event.plan, self.event.table_map = (<KnownTable>self.of_rows).plan, (<KnownTable>self.of_rows).body
            self.in_rows = False
            self.unfinished = True
            return CONTROL
        return status

    # What Python answers to a control event

    def add_plan(self, TablePlan plan not None):
        """Takes the plan of the table whose TABLE_MAP event `event` is."""
        if not self.unfinished or self.event.type != TABLE_MAP_EVENT:
            raise RuntimeError("the event is not a TABLE_MAP")
        self.tables.add(self.unknown_id, plan, self.event.body[self.table_id_size() + 2:])

    def forget_plans(self, schema=None, table=None):
        """Asks again at the next TABLE_MAP event of the table, of all tables of the schema, or of all tables.

        Until then the earlier answer counts, so this may be called in the middle of a transaction.
        """
        self.tables.forget(schema, table)

    def put_entry(self, const unsigned char[::1] entry, kind, event_type, table=0, flags=0):
        """Stages an encoded Entry for the control event, at its position; its transaction's BEGIN goes before it."""
        if not self.unfinished or not self.reader.counts:
            raise RuntimeError("no event waits for an entry")
        if not self.delivers(self.event_begin, self.event_n):
            return
        self.put_begin()
        self.writer.write_framed(entry)
        self.put_slot(&self.reader.place, self.event_begin, self.event_n, kind, event_type)
        cdef Slot *slot = self.staging.last()
        slot.table = table
        slot.flags |= flags
        self.has_entries = self.is_put = True

    def skip_event(self):
        """The control event does not give an entry."""

    def decide_xa(self, *, bint one_phase):
        """How the current XA transaction ends: the answer to a control event of type XA_PREPARE without a body.

        Without an answer it counts as prepared.
        """
        if not self.xa.is_open():
            raise RuntimeError("no XA transaction is to be decided on")
        self.decided(one_phase)

    @property
    def kept(self):
        """The events of the prepared part whose XA_PREPARE event is `event`, as packets; None if they are too many."""
        return None if self.xa.kept_events.empty() else <bytes>self.xa.kept_events

    def recall(self, xid, position):
        """The prepared part of the XA transaction belongs to the control event, an XA COMMIT, and follows.

        `run` answers NEED_PART until it has come: `kept`, or a dump that begins at or before `position`, where the part
        begins. Its XA_PREPARE event is a control event then.
        """
        cdef bytes text = xid.encode()
        if not self.unfinished or not self.reader.counts:
            raise RuntimeError("no event waits for an answer")
        check_xid(len(text))
        if self.group == NO_GROUP:
            self.open_group(OPEN)
        self.ends = False
        self.group = OPEN
        self.xa.part = RecalledPart(self.xa.event_bytes, position)
        self.xa.state = RECALLED
        mark_entries(self.entries, "committed", <const uint8_t *>PyBytes_AS_STRING(text), len(text))
        self.begin_transaction(le32(self.reader.body), NULL, 0)

    @property
    def is_past(self):
        """Whether nothing of the transaction of the control event is wanted any more."""
        return self.limits.is_past(self.event_begin)

    @property
    def is_partial(self):
        """Whether the control event is in a transaction of which only the rest is wanted."""
        return self.limits.is_partial(self.event_begin, self.event_n)

    # What Python may want to know

    @property
    def position(self):
        """The place to go on from after a break: everything before it is staged, nothing after it.

        It is the place before the next event, or before the BEGIN of a transaction of which nothing is put yet. None
        before the first FORMAT_DESCRIPTION event.
        """
        if self.group == NO_GROUP:
            return self.make_position(self.reader.offset, 0)
        if self.begun.pending:
            return self.make_position(self.begun.begin, self.begun.n)
        return self.make_position(self.begin_offset, self.n)

    @property
    def server_version(self):
        """Which server wrote the file; None before the first FORMAT_DESCRIPTION event."""
        return self.reader.format.server_version

    @property
    def gtid_in_part(self):
        """The GTID of the transaction of which a part was put last: the number of its source in the ring, and its own.

        None if it has none, or if this dump has not come to it.
        """
        cdef Slot *slot
        cdef Py_ssize_t i
        for i in range(self.staging.taken, self.staging.count):
            slot = &self.staging.slots[i]
            if slot.flags & BOUNDARY:
                return (slot.gtid, slot.gtid_first) if slot.gtid else None
        if self.limits.is_past(self.begin_offset):
            return None
        return (self.gtid_number, self.gtid.number) if self.gtid_number else None

    @property
    def executed(self):
        """The text of Header.gtid: the executed set with the current transaction; empty unless `gtid_on`."""
        return str(self.executed_set) if self.gtid_on else ""

    @property
    def header_props(self):
        """Header.props of the current transaction (encoded `Pair` fields 12); empty unless `gtid_on`."""
        return PyBytes_FromStringAndSize(<char *>self.entries.props, self.entries.props_size)

    cdef object make_position(self, int64_t begin, uint32_t n):
        if self.file == 0 or begin < 0:
            return None
        return Position(self.source_name, self.reader.name, self.reader.created, begin, n)

    cdef Event make_event(self, int type, const uint8_t *body, const uint8_t *end):
        cdef Event event = Event()
        event.type = type
        event.timestamp = self.reader.place.timestamp
        event.server_id = self.reader.place.server_id
        event.log_pos = self.reader.header.log_pos
        event.flags = self.reader.header.flags
        event.offset = self.reader.place.offset
        event.length = self.reader.place.length
        event.body = PyBytes_FromStringAndSize(<const char *>body, end - body)
        event.position = self.make_position(self.event_begin, self.event_n)
        return event

    cdef bint control(self, int type, const uint8_t *body, const uint8_t *end) except -1 nogil:
        """Hands the event to Python; the next run() calls finish_event()."""
        with gil:
            self.event = self.make_event(type, body, end)
        self.unfinished = True
        return True

    # --- from bytes to events ----------------------------------------------------------------------------------------

    cdef Status loop(self) except? NEED_DATA nogil:
        cdef const uint8_t *data
        cdef size_t size
        cdef Status status
        if self.unfinished:
            self.unfinished = False
            self.finish_event()
        while True:
            if self.xa.is_open():
                status = self.decide()
                if self.xa.is_open():
                    return status
            if self.has_stopped():
                self.put_begin()  # a position within a transaction means that something follows it
                return STOPPED
            if self.staging.count - self.staging.taken >= STAGED_SLOTS or self.staging.bytes >= self.staged_bytes:
                return STAGED
            if self.payload.active:
                data = self.payload.next(&size)
                if data == NULL:
                    continue
                self.start_inner_event(data, size)
            elif self.xa.state == RECALLED:
                data = self.xa.part.packets.next(&size)
                if data == NULL:
                    return NEED_PART
                if not self.has_event(data, size):
                    return CONTROL
                if not self.start_part_event(data + 1, size - 1):
                    continue
            else:
                data = self.packets.next(&size)
                if data == NULL:
                    return NEED_DATA
                if not self.has_event(data, size):
                    return CONTROL
                self.start_event(data + 1, size - 1)
            if self.dispatch(self.reader.body, self.reader.body_end):
                return CONTROL
            if self.walking and not self.only_xa and self.reader.counts:
                self.control(
                    self.reader.header.type, self.reader.body,
                    self.reader.body_end if is_gtid(self.reader.header.type) else self.reader.body,
                )
                return CONTROL
            self.finish_event()

    cdef bint has_event(self, const uint8_t *data, size_t size) except -1 nogil:
        """Whether a packet has an event; an error or the end is a control event."""
        if size and data[0] == PACKET_EVENT:
            return True
        if size == 0 or (data[0] != PACKET_EOF and data[0] != PACKET_ERROR):
            with gil:
                raise DecodeError("a packet that is neither an event nor an error nor the end")
        self.reader.counts = self.ends = self.is_put = False
        self.control(EOF_PACKET if data[0] == PACKET_EOF else ERROR_PACKET, data + 1, data + size)
        return False

    cdef int read_header(self, const uint8_t *data, size_t size) except -1 nogil:
        """The header of an event of that many bytes."""
        cdef EventHeader *header = &self.reader.header
        self.reader.read_header(data, size)
        self.ends = self.is_put = self.in_rows = False
        self.event_count += 1
        if self.xa.state == RECALLED:  # it has the place of the XA COMMIT
            return 0
        self.reader.place.timestamp = header.timestamp
        self.reader.place.server_id = header.server_id
        if header.timestamp and not header.flags & LOG_EVENT_ARTIFICIAL_F:
            self.execute_ms = <int64_t>header.timestamp * 1000
        return 0

    cdef int start_event(self, const uint8_t *data, size_t size) except -1 nogil:
        """Reads the header of an event of the file, and finds out its place."""
        self.reader.counts = False
        self.reader.place.offset = max(self.reader.offset, 0)  # for errors, until it is known
        self.read_header(data, size)
        self.reader.locate(data, size, self.group != NO_GROUP)
        if self.reader.counts:
            self.event_begin = self.reader.place.offset if self.group == NO_GROUP else self.begin_offset
            self.event_n = 0 if self.group == NO_GROUP else self.n
        return 0

    cdef int start_inner_event(self, const uint8_t *data, size_t size) except -1 nogil:
        """An event in a compressed payload: it has the payload's place, and no checksum."""
        self.read_header(data, size)
        self.reader.counts = True
        self.event_begin = self.begin_offset
        self.event_n = self.n
        if self.group == NO_GROUP:
            with gil:
                raise DecodeError("an event in a transaction payload after the end of the transaction")
        if self.reader.header.type == GTID_EVENT or self.reader.header.type == ANONYMOUS_GTID_EVENT or (
            self.reader.header.type == GTID_TAGGED_EVENT or self.reader.header.type == TRANSACTION_PAYLOAD_EVENT
            or self.reader.header.type == FORMAT_DESCRIPTION_EVENT or self.reader.header.type == ROTATE_EVENT
        ):
            with gil:
                raise DecodeError("an event of this type cannot be in a transaction payload")
        return 0

    cdef bint start_part_event(self, const uint8_t *data, size_t size) except -1 nogil:
        """Reads the header of an event that is sent for a prepared part; False if it is not one of its events."""
        self.read_header(data, size)
        if not self.xa.part.takes(&self.reader.header, data, size, &self.reader.body_end):
            return False
        self.reader.counts = True
        self.event_begin = self.begin_offset
        self.event_n = self.n
        return True

    cdef bint dispatch(self, const uint8_t *body, const uint8_t *end) except -1 nogil:
        """Decodes the event; True when Python has to."""
        cdef int type = self.reader.header.type
        cdef uint8_t text[20]
        cdef RowsType rows
        if self.xa.state == PREPARED and self.reader.counts:
            return self.prepared_event(body, end)
        if rows_type(type, &rows):
            self.rows(body, end)
        elif type == TABLE_MAP_EVENT:
            return self.table_map(body, end)
        elif type == XID_EVENT:
            if end - body < 8:
                too_short()
            self.ends = True
            self.end_transaction(text, put_decimal(text, le64(body)) - text, NULL, 0)
        elif type == QUERY_EVENT:
            return self.query(body, end, False)
        elif type == MARIADB_QUERY_COMPRESSED_EVENT:
            return self.query(body, end, True)
        elif is_gtid(type):
            self.gtid_event(body, end)
        elif type == TRANSACTION_PAYLOAD_EVENT:
            if self.group == NO_GROUP:
                self.open_group(OPEN)
            if self.walking:
                self.ends = True
                return self.only_xa and self.prepared_in_payload(body, end)
            else:
                self.payload.open(body, end)
        elif type == ROWS_QUERY_EVENT:
            # length 1, not to be relied on | text
            if end == body:
                too_short()
            self.statement(body + 1, end - body - 1)
        elif type == MARIADB_ANNOTATE_ROWS_EVENT:
            self.statement(body, end - body)
        elif type == INTVAR_EVENT or type == RAND_EVENT or type == USER_VAR_EVENT:
            with gil:
                self.variables(type, body, end)
        elif type == XA_PREPARE_EVENT:
            self.ends = True  # its TRANSACTIONEND was the XA END before it, except of a part that is recalled
            return (self.xa.state == RECALLED or self.only_xa) and self.control(type, body, end)
        elif type == HEARTBEAT_EVENT or type == HEARTBEAT_EVENT_V2:
            self.heartbeat(body, end)
            self.heartbeats += 1
        elif type == FORMAT_DESCRIPTION_EVENT:
            with gil:
                self.describe(body, end)
            return self.control(type, body, self.reader.body_end)
        elif type == ROTATE_EVENT:
            with gil:
                self.rotate(body, end)
            return self.control(type, body, end)
        elif type == INCIDENT_EVENT:
            self.ends = True
            return self.control(type, body, end)
        elif type == PREVIOUS_GTIDS_EVENT or type == MARIADB_GTID_LIST_EVENT:
            return self.control(type, body, end)
        elif (
            type == STOP_EVENT or type == IGNORABLE_EVENT or type == MARIADB_BINLOG_CHECKPOINT_EVENT
            or type == MARIADB_START_ENCRYPTION_EVENT or type == VIEW_CHANGE_EVENT or type == TRANSACTION_CONTEXT_EVENT
            or self.reader.header.flags & LOG_EVENT_IGNORABLE_F or self.walking
        ):
            pass
        else:
            with gil:
                self.refuse()
        return False

    cdef int finish_event(self) except -1 nogil:
        """Moves the position after the event."""
        if not self.reader.counts:
            return 0
        if self.group != NO_GROUP and not self.ends:
            self.n += 1
            return 0
        if self.xa.state == RECALLED:
            if self.reader.header.type != XA_PREPARE_EVENT:
                with gil:
                    raise DecodeError("a prepared XA transaction that ends otherwise than by XA PREPARE")
            self.xa.state = NO_XA
            self.end_transaction(<const uint8_t *>b"0", 1, NULL, 0)
        if self.group != NO_GROUP:
            self.transaction_count += 1
        if self.limits.is_partial(self.event_begin, self.event_n + 1):
            with gil:
                raise DecodeError(
                    f"a transaction of {self.event_n + 1} events where event {self.limits.skip_n} was asked for"
                )
        if not self.is_put or not self.staging.last().flags & BOUNDARY:
            self.group = NO_GROUP
            # A dump by GTID begins with the head of a file, and leaves out the transactions in between.
            if self.is_placed:
                self.advance()
        self.group = NO_GROUP
        self.gtid_number = 0
        self.gtid.commit_us = 0
        self.entries.clear_props()
        self.has_entries = self.begun.pending = False
        if self.xa.part is not None and not self.payload.active:
            with gil:
                self.xa.part = None
        self.tables.shrink()
        return 0

    cdef int refuse(self) except -1:
        if self.reader.header.type in (
            LOAD_EVENT, CREATE_FILE_EVENT, APPEND_BLOCK_EVENT, EXEC_LOAD_EVENT, DELETE_FILE_EVENT, NEW_LOAD_EVENT,
            BEGIN_LOAD_QUERY_EVENT, EXECUTE_LOAD_QUERY_EVENT,
        ):
            raise DecodeError("a LOAD DATA statement that was not logged as rows: binlog_format is not ROW")
        raise DecodeError("an event of unknown type that may not be ignored")

    # --- groups: transactions and lone events, and which of them are delivered ---------------------------------------

    cdef int open_group(self, Group group) noexcept nogil:
        """The event begins a transaction."""
        self.group = group
        self.begin_offset = self.event_begin
        self.n = self.event_n
        # What is not delivered was put before: the transaction is not an empty one.
        self.has_entries = not self.delivers(self.event_begin, self.event_n)
        self.begun.pending = False
        return 0

    cdef bint delivers(self, int64_t begin, uint32_t n) noexcept nogil:
        """Whether an event at this position is wanted."""
        return not self.walking and self.limits.wants(begin, n)

    cdef bint has_stopped(self) noexcept nogil:
        """Whether the place before the next event is the stop position or after it."""
        if self.group == NO_GROUP:
            return self.limits.stops_between(self.reader.offset)
        return self.limits.stops_within(self.begin_offset, self.n)

    # --- files -------------------------------------------------------------------------------------------------------

    cdef int heartbeat(self, const uint8_t *body, const uint8_t *end) except -1 nogil:
        cdef uint64_t place = self.reader.heartbeat_place(body, end)
        cdef int64_t ahead
        cdef bint is_first = self.group == NO_GROUP and not self.is_placed
        if place == 0:
            return 0
        ahead = <int64_t>place - self.reader.offset
        if self.reader.header.type == HEARTBEAT_EVENT:
            ahead = <uint32_t>ahead
        if is_first:  # everything before this place has been sent
            self.is_placed = True
            if ahead == 0:
                return self.advance(here=True)
        if ahead == 0:
            return 0
        if not self.reader.by_gtid or self.group != NO_GROUP or ahead <= 0 or ahead > INT32_MAX:
            with gil:
                raise DecodeError(f"a heartbeat at {place}, but the events before it end at {self.reader.offset}")
        self.reader.offset += ahead
        # Before the first place there may be transactions that were executed already: they are not in the stream.
        return self.advance(here=is_first)

    cdef int rotate(self, const uint8_t *body, const uint8_t *end) except -1:
        if self.group != NO_GROUP:
            raise DecodeError("the file ends in the middle of a transaction")
        return self.reader.rotate(body, end)

    cdef int describe(self, const uint8_t *body, const uint8_t *end) except -1:
        """The FORMAT_DESCRIPTION event of the file that a ROTATE event named."""
        self.reader.format.read(body, &end)
        self.reader.body_end = end
        name = self.reader.described_name()
        if self.group != NO_GROUP:
            raise DecodeError("the file ends in the middle of a transaction")
        self.limits.start_file(name, self.reader.header.timestamp, self.reader.name)
        self.reader.start(name)
        self.file = self.files.intern((name, self.reader.created))
        self.entries.set_file_name(name.encode())
        if self.reached_file == 0:
            self.reached_file = self.file
            self.reached_begin = self.limits.skip_begin if self.limits.skipping else self.reader.offset
            self.reached_n = self.limits.skip_n if self.limits.skipping else 0
        self.reader.pass_description()
        if self.reader.counts:
            self.event_begin = FIRST_OFFSET
            self.event_n = 0
        return 0

    # --- GTIDs -------------------------------------------------------------------------------------------------------

    cdef int gtid_event(self, const uint8_t *body, const uint8_t *end) except -1 nogil:
        cdef int type = self.reader.header.type
        cdef bint standalone
        if self.group != NO_GROUP:
            with gil:
                raise DecodeError("a transaction that begins in the middle of another")
        if not self.is_placed:  # what is before was executed already: the stream begins here, not at the file's head
            self.is_placed = True
            self.reached_file, self.reached_begin, self.reached_n = self.file, self.event_begin, self.event_n
        if type == MARIADB_GTID_EVENT:
            read_mariadb_gtid(&self.gtid, self.reader.header.server_id, body, end)
        elif type == GTID_TAGGED_EVENT:
            read_tagged_gtid(&self.gtid, body, end)
        else:
            read_gtid(&self.gtid, body, end)
            self.gtid.is_anonymous = type == ANONYMOUS_GTID_EVENT
        self.check_gtid()
        standalone = not self.gtid.is_mariadb or self.gtid.flags & (FL_STANDALONE | FL_COMPLETED_XA)
        self.open_group(PREFIX if standalone else OPEN)
        self.entries.clear_props()
        if not self.gtid.is_anonymous:
            self.gtid_number = self.gtid_sources.number(&self.gtid)
            if self.gtid_on:
                self.executed_set.add(&self.gtid)
                self.add_gtid_props()
        if self.gtid.is_mariadb and self.gtid.flags & FL_PREPARED_XA and self.moves_xa and not self.walking:
            self.xa.clear_kept()
            self.xa.state = PREPARED
        elif not standalone and not self.strict_canal:
            self.begin_transaction(self.gtid.thread_id, NULL, 0)
        return 0

    cdef int check_gtid(self) except -1 nogil:
        """Checks that GTID sets can hold it: the event loop adds it to those of cursors, and must not fail on it."""
        if self.gtid.is_mariadb != self.reader.format.is_mariadb:
            with gil:
                raise DecodeError(f"a GTID event of another product in a binlog of {self.reader.format.server_version}")
        if not self.gtid.is_anonymous and not 1 <= self.gtid.number <= GTID_MAX:
            with gil:
                raise DecodeError(f"a GTID event with the number {self.gtid.number}")
        return 0

    cdef int add_gtid_props(self) noexcept nogil:
        """Header.props of the transaction. Canal has them of MySQL only: it cannot read MariaDB by GTID."""
        cdef uint8_t text[SOURCE_TEXT_MAX + 1 + 20]
        cdef uint8_t *p
        if self.gtid.is_mariadb:
            if not self.strict_canal:
                p = put_mariadb(text, self.gtid.domain, self.gtid.server_id, self.gtid.number)
                self.entries.add_prop(<const char *>GTID_KEY.data, text, p - text)
            return 0
        p = put_source(text, self.gtid.uuid, self.gtid.tag, self.gtid.tag_size)
        p[0] = b":"
        p += 1
        p = put_decimal(p, self.gtid.number)
        self.entries.add_prop(<const char *>GTID_KEY.data, text, p - text)
        self.entries.add_prop("curtGtidSn", text, put_decimal(text, self.gtid.sequence_number) - text)
        self.entries.add_prop("curtGtidLct", text, put_decimal(text, self.gtid.last_committed) - text)
        return 0

    # --- transactions ------------------------------------------------------------------------------------------------

    # thread id 4 | execution time 4 | length of the schema 1 | error code 2 | length of the status variables 2
    # | status variables | schema | 0x00 | text, in MariaDB's QUERY_COMPRESSED event compressed
    # (`Query_event`, libs/mysql/binlog/event/statement_events.h)
    cdef bint query(self, const uint8_t *body, const uint8_t *end, bint is_compressed) except -1 nogil:
        cdef const uint8_t *text
        cdef const uint8_t *text_end
        cdef size_t size
        if end - body < QUERY_POST_HEADER:
            too_short()
        text = body + QUERY_POST_HEADER + le16(body + 11) + body[8] + 1
        if text > end:
            too_short()
        text_end = end
        if is_compressed:
            size = self.inflater.inflate(text, end)
            if not self.strict_canal:
                with gil:
                    statement = (<const char *>body)[:text - body] + (<const char *>self.inflater.data)[:size]
                    self.event = self.make_event(
                        QUERY_EVENT, <const uint8_t *>PyBytes_AS_STRING(statement),
                        <const uint8_t *>PyBytes_AS_STRING(statement) + len(statement),
                    )
            text = self.inflater.data
            text_end = text + size
        while text < text_end and text[0] <= b" ":
            text += 1
        while text < text_end and ((text_end - 1)[0] <= b" " or (text_end - 1)[0] == b";"):
            text_end -= 1
        if self.xa.state == RECALLED and (
            starts_with(text, text_end, "XA START") or starts_with(text, text_end, "XA BEGIN")
            or starts_with(text, text_end, "XA END")
        ):
            return False  # begin and end of the transaction are those of the XA COMMIT
        if is_words(text, text_end, "BEGIN"):
            if self.group == OPEN:
                with gil:
                    raise DecodeError("a BEGIN in the middle of a transaction")
            if self.group == NO_GROUP:
                self.open_group(OPEN)
            self.group = OPEN
            self.begin_transaction(le32(body), NULL, 0)
            return False
        if is_words(text, text_end, "COMMIT") or is_words(text, text_end, "ROLLBACK"):
            self.ends = True
            self.end_transaction(<const uint8_t *>b"0", 1, NULL, 0)
            return False
        if starts_with(text, text_end, "XA START") or starts_with(text, text_end, "XA BEGIN"):
            if self.group == NO_GROUP:
                self.open_group(OPEN)
            self.group = OPEN
            self.begin_transaction(le32(body), text + 8, text_end - text - 8)
            if self.moves_xa and not self.walking:
                self.xa.state = UNDECIDED
            self.xa.clear_kept()
            if not self.payload.active:
                self.xa.keep(body - HEADER_SIZE, end)
            return False
        if starts_with(text, text_end, "XA END"):
            if self.group == NO_GROUP:
                self.open_group(OPEN)
            self.end_transaction(<const uint8_t *>b"0", 1, text + 6, text_end - text - 6)
            return False
        self.ends = self.group != OPEN
        if (
            starts_with(text, text_end, "SAVEPOINT") or starts_with(text, text_end, "ROLLBACK TO")
            or starts_with(text, text_end, "RELEASE SAVEPOINT")
            or (self.gtid.is_mariadb and self.ends and self.gtid.flags_extra & (FL_START_ALTER | FL_ROLLBACK_ALTER))
        ):
            return False
        if is_compressed:
            self.unfinished = not self.strict_canal
            return self.unfinished
        return self.control(QUERY_EVENT, body, end)

    cdef Status decide(self) except? NEED_DATA nogil:
        """Finds out how the XA transaction whose XA START has come ends."""
        cdef bint one_phase = False
        cdef int found
        if self.xa.state == ASKED:  # without an answer
            self.decided(False)
            return NEED_DATA
        found = self.xa.find_end(self.packets, self.payload, &one_phase)
        if found == 0:
            self.packets.release()
            return NEED_DATA
        self.packets.stop_search()
        if found < 0:
            self.xa.state = ASKED
            with gil:
                self.event = self.make_event(XA_PREPARE_EVENT, NULL, NULL)
            return CONTROL
        self.decided(one_phase)
        return NEED_DATA

    cdef int decided(self, bint one_phase) except -1 nogil:
        """The XA transaction whose XA START has come is committed where it ends, or only prepared."""
        if one_phase:
            self.xa.state = NO_XA
            mark_entries(self.entries, "one-phase", self.begun.xa, self.begun.xa_size)
            return 0
        self.begun.pending = False
        self.xa.state = PREPARED
        if self.payload.active:
            self.xa.keep(self.payload.body - HEADER_SIZE, self.payload.body_end)
        return 0

    cdef bint prepared_event(self, const uint8_t *body, const uint8_t *end) except -1 nogil:
        """Keeps an event of a prepared part, up to a limit; its end is handed to Python."""
        if not self.payload.active:
            self.xa.keep(body - HEADER_SIZE, end)
        if self.reader.header.type != XA_PREPARE_EVENT:
            if is_gtid(self.reader.header.type) or self.reader.header.type == ROTATE_EVENT or (
                self.reader.header.type == FORMAT_DESCRIPTION_EVENT
            ):
                with gil:
                    raise DecodeError("a prepared XA transaction without XA PREPARE")
            return False
        self.xa.state = NO_XA
        self.ends = True
        return self.control(XA_PREPARE_EVENT, body, end)

    cdef bint prepared_in_payload(self, const uint8_t *body, const uint8_t *end) except -1 nogil:
        """Hands the XA_PREPARE event of a compressed transaction to Python, if it is an XA transaction."""
        cdef size_t size = 0
        cdef const uint8_t *event = self.xa.find_prepare(body, end, &size)
        if event != NULL:
            self.control(XA_PREPARE_EVENT, event + HEADER_SIZE, event + size)
        self.xa.ahead.close()
        return self.unfinished

    cdef int begin_transaction(self, uint64_t thread_id, const uint8_t *xa, size_t xa_size) except -1 nogil:
        """Keeps the BEGIN until something of the transaction is put."""
        check_xid(xa_size)
        self.begun.pending = self.delivers(self.event_begin, self.event_n)
        if self.begun.pending:
            self.has_entries = False
        self.begun.place = self.reader.place
        self.begun.begin = self.event_begin
        self.begun.n = self.event_n
        self.begun.thread_id = thread_id
        self.begun.is_xa = xa != NULL
        self.begun.xa_size = <uint32_t>xa_size
        if xa_size:
            memcpy(self.begun.xa, xa, xa_size)
        return 0

    cdef int end_transaction(
        self, const uint8_t *id, size_t id_size, const uint8_t *xa, size_t xa_size
    ) except -1 nogil:
        """Puts the end, and the BEGIN too for an empty transaction that Canal would let through."""
        cdef const EventPlace *place
        cdef int64_t time_ms
        check_xid(xa_size)
        if not self.has_entries:
            place = &self.begun.place if self.begun.pending else &self.reader.place
            time_ms = <int64_t>place.timestamp * 1000
            if not self.transaction_filter.passes_empty(time_ms):
                self.begun.pending = False
                return 0
            self.put_begin()
        if not self.delivers(self.event_begin, self.event_n):
            return 0
        if not self.transaction_filter.passes(<int64_t>self.reader.place.timestamp * 1000, True):
            return 0
        return self.put_end(id, id_size, xa, xa_size)

    cdef int put_begin(self) except -1 nogil:
        """Puts the BEGIN that was kept, if any."""
        cdef uint8_t *p
        cdef size_t bound
        cdef EventPlace *place = &self.begun.place
        if not self.begun.pending:
            return 0
        self.begun.pending = False
        if not self.transaction_filter.passes(<int64_t>place.timestamp * 1000, False):
            return 0
        bound = 64 + 3 * self.begun.xa_size
        self.start_entry(place, TRANSACTIONBEGIN, NO_EVENT_TYPE, NO_NAMES, NO_NAMES_SIZE, bound, 0)
        self.writer.reserve(bound)
        p = self.writer.cursor
        if self.begun.is_xa:
            p = put_pair(p, TRANSACTION_PROPS, "XA_TYPE", <const uint8_t *>b"XA START", 8)
            p = put_pair(p, TRANSACTION_PROPS, "XA_XID", self.begun.xa, self.begun.xa_size)
        self.writer.cursor = put_uint(p, THREAD_ID, self.begun.thread_id)
        self.entries.end(0)
        return self.put_slot(place, self.begun.begin, self.begun.n, TRANSACTION_BEGIN, 0)

    cdef int put_end(self, const uint8_t *id, size_t id_size, const uint8_t *xa, size_t xa_size) except -1 nogil:
        cdef uint8_t *p
        cdef size_t bound = 80 + 3 * xa_size
        self.start_entry(&self.reader.place, TRANSACTIONEND, NO_EVENT_TYPE, NO_NAMES, NO_NAMES_SIZE, bound, 0)
        self.writer.reserve(bound)
        p = put_bytes(self.writer.cursor, TRANSACTION_ID, id, id_size)
        if xa != NULL:
            p = put_pair(p, TRANSACTION_PROPS, "XA_TYPE", <const uint8_t *>b"XA END", 6)
            p = put_pair(p, TRANSACTION_PROPS, "XA_XID", xa, xa_size)
        self.writer.cursor = p
        self.entries.end(0)
        self.is_put = True
        return self.put_slot(&self.reader.place, self.event_begin, self.event_n, TRANSACTION_END, 0)

    # --- tables, rows and statements ---------------------------------------------------------------------------------

    cdef int table_id_size(self) noexcept nogil:
        return 4 if self.reader.format.post_header[<int>TABLE_MAP_EVENT] == 6 else 6

    # table id 6 (4 where the post-header has 6 bytes) | flags 2 | what
    # `sluice.instance.sources.mysql.decode.table_map` reads (`Table_map_event`, libs/mysql/binlog/event/rows_event.h)
    cdef bint table_map(self, const uint8_t *body, const uint8_t *end) except -1 nogil:
        cdef int id_size = self.table_id_size()
        cdef uint64_t id
        cdef size_t size = end - body - id_size - 2
        if end - body < id_size + 2:
            too_short()
        if self.group == NO_GROUP:
            self.open_group(OPEN)
        if self.walking:
            return False
        id = le48(body) if id_size == 6 else le32(body)
        if self.tables.knows(id, body + id_size + 2, size):
            return False
        self.unknown_id = id
        return self.control(TABLE_MAP_EVENT, self.reader.body, end)

    # table id 6 (4 where the post-header has 6 bytes) | flags 2 | what `read_rows_body` reads
    cdef int rows(self, const uint8_t *body, const uint8_t *end) except -1 nogil:
        # Long: an event is read once from front to end, and each step needs what the earlier ones have found.
        cdef RowsType rows
        cdef uint8_t post_header = self.reader.format.post_header[self.reader.header.type]
        cdef int id_size = 4 if post_header == 6 else 6
        cdef uint64_t id
        cdef RowsBody read
        cdef const uint8_t *p
        cdef const uint8_t *before
        cdef const uint8_t *after
        cdef const uint8_t *first
        cdef const uint8_t *shown      # the columns of an entry's image after, or of its only one
        cdef Py_ssize_t staged
        cdef void *found
        cdef int64_t count
        cdef int kind
        cdef bint splits, is_whole
        cdef Slot *slot
        rows_type(self.reader.header.type, &rows)
        if end - body < id_size + 2:
            too_short()
        if self.group == NO_GROUP:
            self.open_group(OPEN)
        id = le48(body) if id_size == 6 else le32(body)
        if id == DUMMY_TABLE_ID or self.walking:
            return 0
        found = self.tables.find(id)
        if found == NULL:
            with gil:
                raise DecodeError(f"rows of table id {id}, for which no TABLE_MAP event has come")
        splits = rows.kind == UPDATE and (<KnownTable>found).plan.splits
        if (<KnownTable>found).plan.excluded or self.drops_rows or (self.drops[<int>rows.kind] and not splits):
            return 0
        if not self.delivers(self.event_begin, self.event_n) and not splits:
            return 0
        self.in_rows = True
        self.of_rows = found
        self.first_staged = self.staging.count
        self.more_entries = 0
        staged = self.staging.bytes
        read_rows_body(
            &read, &rows, body + id_size + 2, end, post_header == ROWS_HEADER_V2,
            (<KnownTable>found).plan.column_count, self.inflater,
        )
        before, after, p, end = read.before, read.after, read.first, read.end
        if p == end:
            self.in_rows = False
            return 0
        first = p
        kind = rows.kind
        if (<KnownTable>found).plan.condition is not None:
            first = (<KnownTable>found).plan.find_row(
                self.scratch, p, p, end, rows.kind, before, after, rows.is_partial
            )
        while first < end:
            if splits:
                kind = (<KnownTable>found).plan.row_kind
            if splits and (self.drops[kind] or not self.delivers(self.event_begin, self.event_n)):
                first = (<KnownTable>found).plan.pass_rows(
                    self.scratch, p, first, end, rows.kind, before, after, rows.is_partial
                )
            else:
                if self.begun.pending:
                    self.put_begin()
                    self.first_staged = self.staging.count
                self.start_entry(
                    &self.reader.place, ROWDATA, kind, (<KnownTable>found).names, (<KnownTable>found).names_size,
                    ANY_SIZE, end - p,
                )
                self.writer.reserve(32)
                self.writer.cursor = put_uint(self.writer.cursor, TABLE_ID, id)
                self.writer.cursor = put_uint(self.writer.cursor, CHANGE_EVENT_TYPE, kind)
                self.writer.cursor = put_uint(self.writer.cursor, IS_DDL, 0)
                shown = before if kind == DELETE else after
                is_whole = (splits and kind == INSERT) or (
                    has_all(before, read.width) and has_all(shown, read.width)
                )
                if not self.strict_canal and not is_whole:
                    (<KnownTable>found).plan.put_absent(self.writer, before, shown)
                (<KnownTable>found).plan.put_remark(self.writer, kind, before, after)
                count = (<KnownTable>found).plan.encode_rows(
                    self.writer, self.scratch, p, &first, end, rows.kind, before, after, rows.is_partial
                )
                self.entries.end(count)
                self.put_slot(&self.reader.place, self.event_begin, self.event_n, ROW_DATA, kind)
                slot = self.staging.last()
                slot.table = (<KnownTable>found).plan.number
                slot.rows = <uint32_t>count
                slot.flags |= (<KnownTable>found).plan.slot_flags
                if (<KnownTable>found).plan.slot_flags & FUTURE_SCHEMA:
                    self.future_rows += count
                self.has_entries = self.is_put = True
            if first < end and not self.next_entry(staged):
                break
        self.in_rows = False
        return 0

    cdef bint next_entry(self, Py_ssize_t size) except -1 nogil:
        """Takes the next place for another entry of the event; False where that is the stop position.

        size: what was staged before the event.
        """
        if self.limits.stops_within(self.begin_offset, self.n + 1):
            return False
        if self.staging.bytes - size > ANY_SIZE:
            with gil:
                raise DecodeError(f"an event that gives entries of more than {ANY_SIZE} bytes")
        self.more_entries += 1
        self.event_n += 1
        self.n += 1
        return True

    # Statements

    cdef int statement(self, const uint8_t *text, size_t size) except -1 nogil:
        """The text of a statement whose rows follow: an entry of type QUERY, as in Canal."""
        cdef bint is_valid
        cdef size_t valid_size
        cdef uint8_t *p
        if self.group == NO_GROUP:
            self.open_group(PREFIX)
        if self.drops_statements or not self.delivers(self.event_begin, self.event_n):
            return 0
        self.put_begin()
        is_valid = is_utf8(text, size)
        valid_size = size if is_valid else utf8_size(text, size)
        self.start_entry(
            &self.reader.place, ROWDATA, QUERY_TYPE, NO_NAMES, NO_NAMES_SIZE, valid_size + 16, 0
        )
        self.writer.reserve(valid_size + 16)
        p = put_uint(self.writer.cursor, CHANGE_EVENT_TYPE, QUERY_TYPE)
        p = put_varint(put_varint(p, SQL), valid_size)
        self.writer.cursor = put_raw(p, text, size) if is_valid else put_utf8(p, text, size)
        self.entries.end(0)
        self.put_slot(&self.reader.place, self.event_begin, self.event_n, QUERY, QUERY_TYPE)
        self.staging.last().flags |= TEXT
        self.has_entries = self.is_put = True
        return 0

    cdef int variables(self, int type, const uint8_t *body, const uint8_t *end) except -1:
        """INTVAR, RAND and USER_VAR come only with statements: too rarely to be compiled."""
        text = statement_text(type, (<const char *>body)[:end - body]).encode()
        return self.statement(<const uint8_t *>PyBytes_AS_STRING(text), len(text))

    # --- entries and slots -------------------------------------------------------------------------------------------

    cdef int start_entry(
        self, const EventPlace *place, int entry_type, int event_type, const uint8_t *names, size_t names_size,
        size_t value_bound, size_t count_bound,
    ) except -1 nogil:
        cdef const string *gtid = self.executed_set.as_text() if self.gtid_on else NULL
        return self.entries.start(place, entry_type, event_type, names, names_size, gtid, value_bound, count_bound)

    cdef int put_slot(
        self, const EventPlace *place, int64_t begin, uint32_t n, int kind, int event_type
    ) except -1 nogil:
        """Ends the entry with the slot of the event at that position."""
        cdef Slot *slot = self.staging.finish(self.writer)
        slot.kind = <uint8_t>kind
        slot.event_type = <uint8_t>event_type
        slot.n = n
        slot.begin = begin
        slot.file = self.file
        slot.next_file = self.file
        if kind != TRANSACTION_BEGIN and (self.group == NO_GROUP or self.ends):
            self.set_boundary(slot)
        else:
            slot.next_begin = begin
            slot.next_n = n + 1
        return self.describe_slot(slot, place)

    cdef int set_boundary(self, Slot *slot) noexcept nogil:
        """Marks that what follows the slot is outside any transaction."""
        slot.flags |= BOUNDARY
        slot.next_begin = self.reader.offset
        slot.next_n = 0
        slot.gtid = self.gtid_number
        slot.gtid_last = self.gtid.number if self.gtid_number else 0
        if slot.gtid_first == 0:
            slot.gtid_first = slot.gtid_last
        return 0

    cdef int describe_slot(self, Slot *slot, const EventPlace *place) noexcept nogil:
        slot.source = self.source
        slot.server_id = place.server_id
        slot.execute_ms = <int64_t>place.timestamp * 1000
        slot.commit_us = self.gtid.commit_us
        slot.event_offset = place.offset
        self.reached_file = slot.next_file
        self.reached_begin = slot.next_begin
        self.reached_n = slot.next_n
        return 0

    cdef int advance(self, bint here=False) except -1 nogil:
        """Says that the stream has moved on to the next boundary, since no entry says so; ``here``: it begins there."""
        cdef Slot *slot = self.staging.last()
        if self.file == 0 or not self.delivers(self.reader.offset, 0):
            return 0
        if here:
            self.reached_file, self.reached_begin, self.reached_n = self.file, self.reader.offset, 0
        elif self.reached_file == self.file and self.reached_begin == self.reader.offset and self.reached_n == 0:
            return 0
        if slot == NULL or slot.kind != ADVANCE or (
            self.gtid_number and slot.gtid and (slot.gtid != self.gtid_number or slot.gtid_last + 1 != self.gtid.number)
        ):
            slot = self.staging.advance()
            slot.file = self.reached_file
            slot.begin = self.reached_begin
            slot.n = self.reached_n
        slot.next_file = self.file
        if self.gtid_number or slot.gtid == 0:
            self.set_boundary(slot)
        else:
            slot.flags |= BOUNDARY
            slot.next_begin = self.reader.offset
            slot.next_n = 0
        return self.describe_slot(slot, &self.reader.place)
