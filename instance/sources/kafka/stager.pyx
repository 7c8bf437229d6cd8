"""Records of transactions of TiDB to framed entries in segments, with a slot each. The loop runs without the GIL.

A position is ``tidb/topic.0@0:commit_ts:n``: the place before the n-th entry of the transaction with this commit_ts; if
there is none, before the next one. The offset of its record is the offset of its entries.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from libcpp.vector cimport vector

from ....protocol.canal.tags cimport DELETE, INSERT, TRANSACTIONBEGIN, TRANSACTIONEND, UPDATE
from ....protocol.tidb.encoder cimport Encoder, Plan, RecordEntry
from ....protocol.tidb.tags cimport LOGICAL_BITS
from ....protocol.wire cimport Span, span_at
from ....store.ring cimport (
    ADVANCE,
    BOUNDARY,
    DDL,
    GAP,
    QUARANTINE,
    QUERY,
    ROW_DATA,
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
from ...columns import SourceColumn

cdef enum:
    STAGED_SLOTS = 1024            # slots that are staged at most before they are put
    STAGED_BYTES = 1 << 20         # bytes, likewise; or, if that is less, an eighth of what the ring may hold
    LEAST_STAGED_BYTES = 64 << 10


cdef struct Record:
    int64_t offset
    Span value


cdef class Stager:
    """Stages records, one after the other. The thread that puts calls `begin`, then in a loop `receive` and `run`."""
    cdef readonly Staging staging
    cdef readonly dict tables                      # columns of those of which a row was staged, by schema and name
    cdef readonly int64_t commit_ts                # of the last transaction that was staged, ...
    cdef readonly int64_t offset                   # ... and its record; -1 before there is one
    cdef readonly int64_t skipped                  # entries of the next transaction that are before the start
    cdef readonly long long transactions
    cdef readonly long long received_bytes         # of their records
    cdef Ring ring
    cdef SegmentWriter writer
    cdef Encoder encoder
    cdef str file_name
    cdef uint32_t source
    cdef uint32_t file
    cdef Py_ssize_t most_bytes                     # that are put at once

    # What is delivered
    cdef object wanted                             # the filter of tables ...
    cdef int64_t filter                            # ... and its number: the plans of which another one judged are old
    cdef bint drops[4]                             # by event type
    cdef bint drops_statements
    cdef bint drops_transactions
    cdef int64_t stop_begin
    cdef int64_t stop_n

    # What was received
    cdef object received                           # keeps it
    cdef vector[Record] records
    cdef size_t next                               # of them, to be staged
    cdef bint is_open                              # it is encoded, and its entries are staged ...
    cdef size_t part                               # ... from this one on

    # Markers that come before the next transaction, and before the next rows
    cdef str gap
    cdef str shape
    cdef bint has_gap
    cdef bint has_shape

    def __init__(
        self, Ring ring not None, options, Encoder encoder not None, str source, str file, wanted, stop=None
    ):
        """See stager.pyi."""
        self.ring = ring
        self.staging = Staging()
        self.writer = SegmentWriter(ring.pool)
        self.encoder = encoder
        self.file_name = file
        self.source = ring.sources.intern(("", source))
        self.file = ring.files.intern((file, 0))
        self.most_bytes = min(STAGED_BYTES, max(LEAST_STAGED_BYTES, ring.memory // 8))
        self.tables = {}
        self.offset = -1
        self.wanted = wanted
        self.filter = 1
        self.drops[<int>INSERT] = options.filter_rows or options.filter_dml_insert
        self.drops[<int>UPDATE] = options.filter_rows or options.filter_dml_update
        self.drops[<int>DELETE] = options.filter_rows or options.filter_dml_delete
        self.drops_statements = options.filter_query_ddl
        self.drops_transactions = options.filter_transaction_entry
        self.stop_begin, self.stop_n = (INT64_MAX, 0) if stop is None else (stop.begin, stop.n)

    def begin(self, commit_ts, skipped=0, gap=""):
        """Begin after a transaction; what was received or staged before is dropped."""
        self.staging.clear()
        self.writer.cursor = self.writer.entry
        self.receive([])
        self.is_open = False
        self.commit_ts, self.skipped = commit_ts, skipped
        self.gap, self.has_gap = gap, bool(gap)

    def announce(self, str shape):
        """Put a marker with this text before the next rows."""
        self.shape, self.has_shape = shape, bool(shape)

    def refilter(self, wanted):
        """Use another filter of tables, from the next entry on. Any thread may call it."""
        self.wanted = wanted
        self.filter += 1

    def advance(self, int64_t commit_ts):
        """Move on without a transaction: no other one with a lesser commit_ts comes. What was received is staged."""
        cdef Slot *slot
        commit_ts = min(commit_ts, self.stop_begin)
        if commit_ts <= self.commit_ts + 1:
            return
        slot = self.staging.advance()
        slot.flags = BOUNDARY
        slot.source = self.source
        slot.file = slot.next_file = self.file
        slot.begin, slot.next_begin = self.commit_ts + 1, commit_ts
        slot.execute_ms = commit_ts >> LOGICAL_BITS
        self.commit_ts = commit_ts - 1
        self.skipped = 0

    @property
    def is_done(self):
        """Whether the stop position is reached."""
        return self.is_past(self.commit_ts + 1, 0)

    def receive(self, list records):
        """Take records, with their offsets; those before are staged."""
        cdef Record record
        cdef bytes value
        self.received = records
        self.records.clear()
        self.next = 0
        for offset, value in records:
            record.offset = offset
            record.value = span_at(value, len(value))
            self.records.push_back(record)

    def run(self):
        """Stage what was received; False when all of it is. Else put what is staged, and go on.

        Raises:
            DecodeError: a record is not what it should be; those before it are staged. It names the offset.
        """
        cdef bint is_left
        try:
            with nogil:
                is_left = self.stage()
        except DecodeError as error:
            raise type(error)(f"offset {self.records[self.next].offset}: {error}") from None
        return is_left

    def close(self):
        """Give back the memory of the staging and of the unfinished segment."""
        self.staging.clear()
        self.writer.close()

    cdef bint is_past(self, int64_t commit_ts, int64_t n) noexcept nogil:
        """Whether the n-th entry of a transaction, and what follows it, is not before the stop position."""
        return commit_ts > self.stop_begin or (commit_ts == self.stop_begin and n >= self.stop_n)

    cdef int stage(self) except -1 nogil:
        while self.next < self.records.size():
            if not self.is_open:
                self.encoder.encode_record(self.records[self.next].value, self.records[self.next].offset)
                self.is_open = self.open_transaction()
                self.part = 0
                if not self.is_open:
                    self.next += 1
                    continue
            while self.part < self.encoder.parts.size():
                self.stage_part(self.part)
                self.part += 1
                if self.staging.count >= STAGED_SLOTS or self.staging.bytes >= self.most_bytes:
                    return True
            self.commit_ts = self.encoder.commit_ts
            self.offset = self.records[self.next].offset
            self.skipped = 0
            self.transactions += 1
            self.received_bytes += self.records[self.next].value.size
            self.encoder.forget()
            self.is_open = False
            self.next += 1
        return False

    cdef bint open_transaction(self) except -1 nogil:
        """Look at the transaction that was encoded, and put what comes before it; False if nothing of it is wanted."""
        cdef int64_t commit_ts = self.encoder.commit_ts
        if commit_ts <= self.commit_ts or self.is_past(self.commit_ts + 1, 0):  # a repetition, or after the stop
            return False
        if commit_ts != self.commit_ts + 1:        # the start was inside another transaction
            self.skipped = 0
        if self.is_past(commit_ts, 0):
            self.commit_ts = commit_ts - 1
            return False
        if self.has_gap:
            with gil:
                self.put_marker(GAP, props.GAP, self.gap, 0)
            self.has_gap = False
        if self.has_shape and self.encoder.parts.size() > 1:  # rows
            with gil:
                self.put_marker(QUERY, props.SHAPE, self.shape, 1)
            self.has_shape = False
        return True

    cdef int put_marker(self, int kind, str key, str text, uint32_t n) except -1:
        cdef int64_t commit_ts = self.encoder.commit_ts
        cdef int64_t offset = self.records[self.next].offset
        cdef Slot *slot
        change = pb.RowChange(eventType=pb.QUERY, isDdl=False, sql=f"-- {key}: {text}")
        header = pb.Header(
            version=1,
            logfileName=self.file_name,
            logfileOffset=offset,
            serverenCode="UTF-8",
            executeTime=commit_ts >> LOGICAL_BITS,
            sourceType=pb.MYSQL,
            eventType=pb.QUERY,
            props=[pb.Pair(key=key, value=text)],
        )
        entry = pb.Entry(header=header, entryType=pb.ROWDATA, storeValue=change.SerializeToString())
        self.writer.write_framed(entry.SerializeToString())
        slot = self.add_slot(self.staging.finish(self.writer), kind, pb.QUERY)
        slot.flags = BOUNDARY
        slot.begin = self.commit_ts + 1
        slot.n = n
        slot.next_begin = commit_ts
        return 0

    cdef int stage_part(self, size_t n) except -1 nogil:
        cdef const RecordEntry *part = &self.encoder.parts[n]
        cdef bint is_last = n == self.encoder.parts.size() - 1
        cdef Slot *slot
        cdef int kind = ROW_DATA if part.plan != NULL else DDL
        if <int64_t>n < self.skipped or self.is_past(self.encoder.commit_ts, n):
            return 0
        if part.entry_type == TRANSACTIONBEGIN:
            kind = TRANSACTION_BEGIN
        elif part.entry_type == TRANSACTIONEND:    # it passes, for the places after transactions
            kind = TRANSACTION_END
        if part.is_marker:
            kind = QUARANTINE
        if kind == TRANSACTION_END or self.passes(part):
            self.writer.append(self.encoder.data.data + part.offset, part.size)
            slot = self.add_slot(self.staging.finish(self.writer), kind, part.event_type)
        elif is_last:                              # a statement
            slot = self.add_slot(self.staging.advance(), ADVANCE, 0)
        else:
            return 0
        if part.plan != NULL:
            slot.table = (<Plan>part.plan).number
        slot.rows = <uint32_t>part.rows
        slot.commit_us = slot.execute_ms * 1000
        slot.begin = self.encoder.commit_ts
        slot.n = <uint32_t>n
        slot.next_begin = slot.begin
        if is_last:
            slot.flags = BOUNDARY
            slot.next_begin += 1
        else:
            slot.next_n = <uint32_t>n + 1
        return 0

    cdef Slot *add_slot(self, Slot *slot, int kind, int event_type) noexcept nogil:
        """Fill in what is the same for all slots of a record."""
        slot.kind = kind
        slot.event_type = event_type
        slot.source = self.source
        slot.file = slot.next_file = self.file
        slot.event_offset = self.records[self.next].offset
        slot.execute_ms = self.encoder.commit_ts >> LOGICAL_BITS
        return slot

    cdef bint passes(self, const RecordEntry *part) except -1 nogil:
        """Whether the filters let an entry through."""
        if part.plan != NULL:
            if not part.is_marker and self.drops[part.event_type]:
                return False
            if (<Plan>part.plan).judged != self.filter:
                with gil:
                    self.judge(<Plan>part.plan)
            return (<Plan>part.plan).passes
        if part.is_marker:                         # of a table that is not known
            return True
        if part.event_type == 0:
            return not self.drops_transactions
        with gil:
            return self.passes_statement()

    cdef int judge(self, Plan plan) except -1:
        """Ask the filter for a table."""
        name = plan.schema, plan.table
        plan.judged = self.filter
        plan.passes = self.wanted.accepts(*name)
        if plan.passes:
            plan.number = self.ring.tables.intern(name)
            self.tables[name] = [SourceColumn(it, kind, is_key=is_key) for it, kind, is_key in plan.described]
        return 0

    cdef bint passes_statement(self) except -1:
        schema, table = self.encoder.schema, self.encoder.table
        self.tables.pop((schema, table), None)
        self.filter += 1                           # whose columns are learned again
        return not self.drops_statements and self.wanted.accepts(schema, table)
