"""The ring of slots: what is stored of the stream, in order, from the oldest entry that a subscriber needs."""

import threading
from collections import namedtuple
from time import monotonic
from weakref import WeakValueDictionary

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport UINT32_MAX, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset
from libcpp.unordered_map cimport unordered_map
from libcpp.unordered_set cimport unordered_set
from libcpp.vector cimport vector

from ..protocol.wire cimport put_varint, varint_size

from ..protocol.errors import ConfigError, DecodeError
from .segment cimport Segment, SegmentPool, SegmentWriter
from .verdicts cimport Pinned, PinnedEntry, Verdict, Verdicts, verdict_at

cdef enum:
    FIRST_CAPACITY = 64            # slots of an idle ring
    FEWEST_SEGMENTS = 16           # that a ring may use, however small its memory
    SMALLEST_SEGMENT = 64 * 1024   # bytes
    LARGEST_SEGMENT = 256 * 1024
    LONG_RUN = 16 * 1024           # bytes; a shorter run is cheaper to copy than to send by itself


Place = tuple[int, int, int, int]      # (source, file, begin, n) by their numbers in the registries

SlotView = namedtuple(
    "SlotView",
    "kind event_type flags table rows length source server_id execute_ms commit_us event_offset "
    "file begin n next_file next_begin next_n gtid gtid_first gtid_last",
)


cdef struct GtidRun:
    uint32_t source
    int64_t first
    int64_t last
    int64_t sequence       # of the slot that holds the last


cdef class Staging:
    """Slots that are finished but not yet in the ring, in order.

    Only the thread that puts uses it, sometimes without the GIL.
    """

    def __dealloc__(self):
        free(self.slots)

    def __len__(self):
        return self.count - self.taken

    cdef Slot *extend(self) except NULL nogil:
        cdef Py_ssize_t capacity
        cdef Slot *slots
        if self.count == self.capacity:
            capacity = 2 * self.capacity if self.capacity else 64
            slots = <Slot *>realloc(self.slots, capacity * sizeof(Slot))
            if slots == NULL:
                with gil:
                    raise MemoryError
            self.slots = slots
            self.capacity = capacity
        cdef Slot *slot = &self.slots[self.count]
        memset(slot, 0, sizeof(Slot))
        self.count += 1
        return slot

    cdef Slot *finish(self, SegmentWriter writer) except NULL nogil:
        cdef size_t length = writer.cursor - writer.entry
        if length > UINT32_MAX:
            with gil:
                raise DecodeError(f"an entry of {length} bytes: one of 4 GiB or more cannot be stored")
        cdef Slot *slot = self.extend()
        slot.segment = <void *>writer.segment
        slot.offset = writer.entry - writer.segment.data
        slot.length = <uint32_t>length
        self.bytes += slot.length
        writer.segment.count(1)
        writer.next_entry()
        return slot

    cdef Slot *advance(self) except NULL nogil:
        cdef Slot *slot = self.extend()
        slot.kind = ADVANCE
        return slot

    cdef Slot *last(self) noexcept nogil:
        return &self.slots[self.count - 1] if self.count > self.taken else NULL

    cpdef clear(self):
        """Drops what is not yet put: at the end of the staging's life, or before the stream is read again."""
        self.cut(self.taken)
        self.count = self.taken = self.bytes = 0

    def put_places(self):
        """Of what is put in part: the places after the last slot of each source that is put, as `Ring.after`."""
        cdef Py_ssize_t i
        cdef Slot *slot
        found = {}
        for i in range(self.taken):
            slot = &self.slots[i]
            found.pop(slot.source, None)     # in the order of these slots
            found[slot.source] = (slot.source, slot.next_file, slot.next_begin, slot.next_n)
        return list(found.values())

    def gtid_in_part(self):
        """The GTID of the transaction that ends next in what is not yet put: (its source, its number), or None."""
        cdef Py_ssize_t i
        cdef Slot *slot
        for i in range(self.taken, self.count):
            slot = &self.slots[i]
            if slot.flags & BOUNDARY:
                return (slot.gtid, slot.gtid_last) if slot.gtid else None
        return None

    cdef int cut(self, Py_ssize_t count) except -1:
        cdef Segment segment
        while self.count > count:
            self.count -= 1
            self.bytes -= self.slots[self.count].length
            if self.slots[self.count].segment != NULL:
                segment = <Segment>self.slots[self.count].segment
                if segment.count(-1) == 0:
                    segment.pool.settle(segment)
        return 0

    def add_entry(
        self, SegmentWriter writer not None, Kind kind, *, event_type=0, flags=0, table=0, rows=0, source=0,
        server_id=0, execute_ms=0, commit_us=0, event_offset=0, file=0, begin=0, n=0,
        next_file=0, next_begin=0, next_n=0, gtid=0, gtid_first=0, gtid_last=0,
    ):
        """Ends the writer's unfinished entry with a slot of these values; `ADVANCE` has no entry to end."""
        if kind != ADVANCE and writer.cursor == writer.entry:
            raise ValueError("no entry was written")
        cdef Slot *slot = self.advance() if kind == ADVANCE else self.finish(writer)
        slot.kind = kind
        slot.event_type = event_type
        slot.flags = flags
        slot.table = table
        slot.rows = rows
        slot.source = source
        slot.server_id = server_id
        slot.execute_ms = execute_ms
        slot.commit_us = commit_us
        slot.event_offset = event_offset
        slot.file = file
        slot.begin = begin
        slot.n = n
        slot.next_file = next_file
        slot.next_begin = next_begin
        slot.next_n = next_n
        slot.gtid = gtid
        slot.gtid_first = gtid_first
        slot.gtid_last = gtid_last


cdef class Registry:
    """Numbers for things that slots refer to: from 1, in the order in which they are first seen, never taken back."""

    def __cinit__(self):
        self.numbers = {}
        self.keys = [None]

    cpdef uint32_t intern(self, object key) except 0:
        """The number of the key, given to it now if it is new."""
        number = self.numbers.get(key)
        if number is None:
            number = len(self.keys)
            self.keys.append(key)
            self.numbers[key] = number
        return number

    def __getitem__(self, uint32_t number):
        """The key of a number; None for 0, which means nothing."""
        if number >= len(self.keys):
            raise IndexError(number)
        return self.keys[number]

    def __len__(self):
        """The highest number given out."""
        return len(self.keys) - 1

    def __contains__(self, object key):
        """Whether the key has a number."""
        return key in self.numbers


cdef class Collected:
    """What `Ring.collect` found.

    Attributes:
        start, stop: the sequences that were passed over; the next collect begins at `stop`.
        slices: framed entries in order, as memoryviews that pin the memory of the ring.
        positions: `begin` and `n` of each entry's position, as varints, two an entry (Messages.positions of
            packet.proto); its file is in its header.
        entries, rows, bytes: what the slices contain.
        last: the sequence of the last entry, -1 without one.
        execute_ms: the event timestamp of the last entry.
        complete: a limit ended the batch, not the end of what is stored.
    """


cdef inline bint is_wanted(const Slot *slot, const unsigned char[::1] allowed, bint texts):
    """Whether the slot has an entry, and its table is allowed; see `Ring.collect`."""
    return (
        slot.length != 0
        and (allowed is None or slot.table >= allowed.shape[0] or allowed[slot.table])
        and (texts or not slot.flags & TEXT)
    )


cdef bint passes_any(bytearray allowed, unordered_set[uint32_t]& tables):
    """Whether a mask lets any of these tables pass, or does not know them yet."""
    cdef const char *passes = PyByteArray_AS_STRING(allowed)
    cdef size_t known = PyByteArray_GET_SIZE(allowed)
    cdef uint32_t table
    for table in tables:
        if table >= known or passes[table]:
            return True
    return False


cdef enum:                 # the values of `sluice.protocol.content.Content`
    ALL_ENTRIES = 0
    CHANGES = 1
    ROWS = 2


cdef inline bint holds(const Slot *slot, uint32_t rows, int content) noexcept:
    """Whether a format of that content shows anything of an entry."""
    if content == ROWS:
        return slot.kind == ROW_DATA and rows != 0
    return content == ALL_ENTRIES or slot.kind != TRANSACTION_BEGIN and slot.kind != TRANSACTION_END


# The collector must not take apart a ring, its pool or its segments that are part of a cycle (by `on_put`): views that
# it finds later still release their segments. So the cycle has to be broken elsewhere. That is why the pool holds no
# method of its ring: the collector does not take methods apart either.
@cython.no_gc_clear
cdef class Ring:
    """The slots of a destination and the memory of their entries, between the oldest needed and the newest put.

    A sequence counts slots from 0. One thread puts, that of a parser or of what merges several; each of these has a
    staging of its own. All other methods belong to one other thread (the event loop).
    Scans hold the GIL: they are short (a ring of 16,384 slots takes microseconds), and this makes a slot that is
    visible by `next` a complete one.
    """

    def __init__(self, Py_ssize_t size=16384, Py_ssize_t memory=16384 * 1024, Py_ssize_t segment_size=0):
        """`size` in slots, a power of two; `memory` in bytes of entries. Nothing of it is allocated yet.

        `segment_size` 0 takes a 64th of the memory, within sensible bounds: a segment is freed as a whole.

        Raises:
            ConfigError: the size is not a power of two, or something is not positive.
        """
        from .masks import Masks  # here, or `make mutants` could not exchange them
        from .restarts import Restarts

        if size <= 0 or size & (size - 1):
            raise ConfigError(f"bufferSize must be a power of 2, not {size}")
        if memory <= 0:
            raise ConfigError(f"the memory of the buffer must be positive, not {memory}")
        self.size = size
        self.memory = memory
        self.pool = SegmentPool(segment_size or min(max(memory // 64, SMALLEST_SEGMENT), LARGEST_SEGMENT), memory)
        # The segment that is filled while a put waits is the last one that fits.
        self.used_at_most = max(memory - self.pool.segment_size, FEWEST_SEGMENTS * self.pool.segment_size)
        self.sources = Registry()
        self.files = Registry()
        self.tables = Registry()
        self.gtid_sources = Registry()
        self.restarts = Restarts()
        self.verdicts = WeakValueDictionary()
        self.masks = Masks()
        self.changed = self.pool.changed = threading.Condition()

    def __dealloc__(self):
        free(self.slots)

    def __len__(self):
        return self.next - self.first

    # --- putting -----------------------------------------------------------------------------------------------------

    def put(self, Staging staging not None, stop=None):
        """Moves the staged slots into the ring; blocks while it is full. False when the ring was closed or `stop` set.

        `stop` is asked as a `threading.Event` is; who sets it calls `wake()`. As many slots as fit are published at
        once. An entry larger than the memory bound is admitted when nothing else is stored and readers pin no more than
        one batch can be. `on_put` is called after slots were published and once before a wait.
        """
        while True:
            with self.changed:
                if self.closed or (stop is not None and stop.is_set()):
                    self.waiting = False
                    return False
                if staging.count and self.take(staging) == 0:
                    if self.waiting:
                        self.blocked_since = monotonic()
                        self.changed.wait()
                        self.blocked += monotonic() - self.blocked_since
                        self.blocked_since = 0
                        continue
                    self.waiting = True
                else:
                    self.waiting = False
                if staging.taken == staging.count:
                    staging.count = staging.taken = 0
                done = staging.count == 0
            if self.on_put is not None:
                self.on_put()
            if done:
                return True

    cdef Py_ssize_t room(self) noexcept:
        """Bytes of segments that may still be filled before a put waits; less than 0 when it would wait now."""
        return self.used_at_most - self.pool.used()

    @property
    def fill(self):
        """The part of the ring that is in use: of its slots, bytes or segments, whichever is largest."""
        return max(
            <double>(self.next - self.first) / self.size,
            <double>(self.bytes + self.pool.pinned) / self.memory,
            <double>self.pool.used() / self.used_at_most if self.bytes else 0.0,
        )

    @property
    def blocked_seconds(self):
        """Seconds that puts have waited for room, the present wait included."""
        return self.blocked + (monotonic() - self.blocked_since if self.blocked_since else 0.0)

    cdef bint fits(self, const Slot *slot) noexcept:
        if self.next - self.first >= self.size:
            return False
        if slot.length == 0 or self.bytes + self.pool.pinned + <Py_ssize_t>slot.length <= self.memory:
            return True
        # A consumer may hold on to one batch until it has the next: that must not keep the next one away.
        return self.bytes == 0 and self.pool.pinned <= self.memory + 2 * self.pool.largest

    cdef Py_ssize_t take(self, Staging staging) except -1:
        """Publishes staged slots while they fit: how many."""
        cdef Py_ssize_t taken = 0
        # Segments are not filled to the end, least of all by large entries: the lost room counts too.
        cdef Py_ssize_t room = self.room() + staging.bytes
        cdef Slot *slot
        while staging.taken < staging.count:
            slot = &staging.slots[staging.taken]
            if not self.fits(slot):
                break
            if <Py_ssize_t>slot.length > room and self.bytes:
                break
            room -= slot.length
            if self.next - self.first == self.capacity:
                self.enlarge()
            if self.floor is None:
                self.floor = (slot.source, slot.file, slot.begin, slot.n)
            self.at(self.next)[0] = slot[0]
            self.bytes += slot.length
            self.put_bytes += slot.length
            self.put_rows += slot.rows
            if slot.length:
                self.put_execute_ms = slot.execute_ms
            staging.bytes -= slot.length
            staging.taken += 1
            self.next += 1
            taken += 1
        if taken:
            staging.released = self.after(self.next - 1)
        return taken

    cdef int enlarge(self) except -1:
        cdef int64_t capacity = 2 * self.capacity if self.capacity else min(<int64_t>FIRST_CAPACITY, self.size)
        cdef Slot *slots = <Slot *>malloc(capacity * sizeof(Slot))
        cdef int64_t sequence
        if slots == NULL:
            raise MemoryError
        for sequence in range(self.first, self.next):
            slots[sequence & (capacity - 1)] = self.at(sequence)[0]
        free(self.slots)
        self.slots = slots
        self.capacity = capacity
        return 0

    def wake(self):
        """Makes a waiting put look again: for room, and whether it is to stop."""
        with self.changed:
            self.changed.notify_all()

    def close(self):
        """Drops everything and ends every put, now and later. Memory that readers still export stays valid."""
        with self.changed:
            self.closed = True
            self.release(self.next)
            self.verdicts.clear()
            self.pool.close()
            self.changed.notify_all()

    def free_to(self, int64_t sequence):
        """Frees the slots before the sequence."""
        self.check(sequence, self.next)
        if sequence == self.first:
            return
        with self.changed:
            self.release(sequence)
            self.changed.notify_all()

    cdef int release(self, int64_t stop) except -1:
        cdef Slot *slot
        cdef Segment segment
        for verdicts in self.verdicts.values():
            (<Verdicts>verdicts).release(stop)
        if stop > self.first:
            self.floor = self.after(stop - 1)
        while self.first < stop:
            slot = self.at(self.first)
            self.first += 1
            self.bytes -= slot.length
            if not self.closed:
                self.freed_bytes += slot.length
                self.freed_rows += slot.rows
                if slot.length:
                    self.freed_execute_ms = slot.execute_ms
            if slot.segment != NULL:
                segment = <Segment>slot.segment
                slot.segment = NULL
                if segment.count(-1) == 0:
                    self.pool.settle(segment)
        return 0

    # --- places ------------------------------------------------------------------------------------------------------

    cdef int check(self, int64_t sequence, int64_t end) except -1:
        if not self.first <= sequence <= end:
            raise IndexError(f"sequence {sequence} is not in the ring, which holds {self.first} to {self.next}")
        return 0

    def begin_at(self, uint32_t source, uint32_t file, int64_t begin, uint32_t n):
        """Tells an empty ring where the stream begins; else that is the place of the first slot."""
        if self.next == 0:
            self.floor = (source, file, begin, n)

    def slot(self, int64_t sequence):
        """What the ring knows of one entry."""
        self.check(sequence, self.next - 1)
        cdef Slot *slot = self.at(sequence)
        return SlotView(
            slot.kind, slot.event_type, slot.flags, slot.table, slot.rows, slot.length, slot.source, slot.server_id,
            slot.execute_ms, slot.commit_us, slot.event_offset, slot.file, slot.begin, slot.n,
            slot.next_file, slot.next_begin, slot.next_n, slot.gtid, slot.gtid_first, slot.gtid_last,
        )

    def place(self, int64_t sequence):
        """The place of a slot: (source, file, begin, n) by their numbers in the registries."""
        self.check(sequence, self.next - 1)
        cdef Slot *slot = self.at(sequence)
        return slot.source, slot.file, slot.begin, slot.n

    def after(self, int64_t sequence):
        """The place after a slot, or after the one before the oldest: None when the stream has not begun."""
        self.check(sequence + 1, self.next)
        if sequence < self.first:
            return self.floor
        cdef Slot *slot = self.at(sequence)
        return slot.source, slot.next_file, slot.next_begin, slot.next_n

    def last_boundary(self, int64_t start, int64_t stop):
        """The last slot in [start, stop) after which the stream is outside any transaction, or -1."""
        self.check(start, stop)
        self.check(stop, self.next)
        while stop > start:
            stop -= 1
            if self.at(stop).flags & BOUNDARY:
                return stop
        return -1

    def last_data(self, int64_t start, int64_t stop):
        """The last slot in [start, stop) that has an entry, or -1."""
        self.check(start, stop)
        self.check(stop, self.next)
        while stop > start:
            stop -= 1
            if self.at(stop).length:
                return stop
        return -1

    def at_event(self, uint32_t file, int64_t offset):
        """The first slot whose event starts at that offset of that file or later in the stream, or `next`."""
        cdef int64_t sequence
        cdef Slot *slot
        for sequence in range(self.first, self.next):
            slot = self.at(sequence)
            if slot.file > file or slot.file == file and slot.event_offset >= offset:
                return sequence
        return self.next

    def at_time(self, int64_t milliseconds):
        """The beginning of the first transaction with an event of that time or later, or `next`."""
        cdef int64_t sequence
        cdef int64_t begin = self.first
        cdef Slot *slot
        for sequence in range(self.first, self.next):
            slot = self.at(sequence)
            if slot.length and slot.execute_ms >= milliseconds:
                return begin
            if slot.flags & BOUNDARY:
                begin = sequence + 1
        return self.next

    def gtid_runs(self, int64_t start, int64_t stop):
        """The transactions that end in [start, stop): (number of the GTID source, first, last).

        Consecutive ones of a source are merged into runs; the runs are in the order of their last transactions.
        """
        cdef unordered_map[uint32_t, size_t] newest
        cdef vector[GtidRun] runs
        cdef GtidRun run
        cdef Slot *slot
        cdef int64_t sequence
        self.check(start, stop)
        self.check(stop, self.next)
        for sequence in range(start, stop):
            slot = self.at(sequence)
            if slot.gtid == 0:
                continue
            if newest.count(slot.gtid) and runs[newest[slot.gtid]].last + 1 == slot.gtid_first:
                runs[newest[slot.gtid]].last = slot.gtid_last
                runs[newest[slot.gtid]].sequence = sequence
                continue
            run.source = slot.gtid
            run.first = slot.gtid_first
            run.last = slot.gtid_last
            run.sequence = sequence
            newest[slot.gtid] = runs.size()
            runs.push_back(run)
        found = sorted([(run.sequence, run.source, run.first, run.last) for run in runs])
        return [(source, first, last) for _, source, first, last in found]

    def named_transactions(self, int64_t start, int64_t stop):
        """The transactions with GTIDs that begin and end in [start, stop): (file, begin, GTID source, number).

        File and GTID source are given by their numbers.
        """
        cdef unordered_map[uint32_t, int64_t] begins           # by source: those of a group may take turns
        cdef vector[int64_t] found
        cdef Slot *slot
        cdef int64_t sequence
        self.check(start, stop)
        self.check(stop, self.next)
        for sequence in range(start, stop):
            slot = self.at(sequence)
            if slot.kind == TRANSACTION_BEGIN:
                begins[slot.source] = sequence
            elif slot.kind == TRANSACTION_END and begins.count(slot.source):
                if slot.gtid and slot.gtid_first == slot.gtid_last:
                    found.push_back(begins[slot.source])
                    found.push_back(sequence)
                begins.erase(slot.source)
        cdef list named = []
        cdef size_t i
        cdef int64_t begin, number
        cdef uint32_t file, gtid
        for i in range(0, found.size(), 2):
            file, begin = self.at(found[i]).file, self.at(found[i]).begin
            gtid, number = self.at(found[i + 1]).gtid, self.at(found[i + 1]).gtid_last
            named.append((file, begin, gtid, number))
        return named

    def measure(
        self, int64_t start, int64_t stop, const unsigned char[::1] allowed=None, Verdicts verdicts=None,
        bint texts=True,
    ):
        """How much [start, stop) holds of what is wanted (see `collect`): (transactions, entries, rows, bytes)."""
        cdef int64_t transactions = 0, rows = 0, total = 0, entries = 0, sequence
        cdef Slot *slot
        cdef Extent extent
        self.check(start, stop)
        self.check(stop, self.next)
        for sequence in range(start, stop):
            slot = self.at(sequence)
            if slot.flags & BOUNDARY:
                transactions += slot.gtid_last - slot.gtid_first + 1 if slot.gtid else 1
            if self.wants(sequence, allowed, verdicts, texts):
                extent = self.extent(sequence, verdicts)
                entries += 1
                rows += extent.rows
                total += extent.length
        return transactions, entries, rows, total

    def wanted_by(self, int64_t start, int64_t stop, int64_t held, masks):
        """For which masks [start, stop) may hold something that `collect` gives: (masks, the BEGIN that waits then).

        Conditions on rows are left out, and the texts of statements. ``held`` is the BEGIN that waits for what follows
        it at ``start``, with nothing else that is wanted before, -1 for none; so is the one that is returned, for the
        other masks.
        """
        cdef unordered_set[uint32_t] tables
        cdef uint32_t last = 0
        cdef int64_t sequence
        cdef Slot *slot
        self.check(start, stop)
        self.check(stop, self.next)
        for sequence in range(start, stop):
            slot = self.at(sequence)
            if slot.length == 0 or slot.flags & TEXT:
                continue
            if slot.kind == TRANSACTION_BEGIN and held < 0:
                held = sequence
            elif slot.kind == TRANSACTION_END and held >= 0 and sequence > held + 1:
                held = -1
            elif slot.table == 0 or slot.kind == TRANSACTION_BEGIN or slot.kind == TRANSACTION_END:
                return list(masks), -1
            elif slot.table != last:
                last = slot.table
                tables.insert(last)
        return ([mask for mask in masks if passes_any(mask.allowed, tables)] if tables.size() else []), held

    # --- reading -----------------------------------------------------------------------------------------------------

    cdef bint wants(self, int64_t sequence, const unsigned char[::1] allowed, Verdicts verdicts, bint texts) noexcept:
        """Whether the slot has an entry that is wanted; see `collect`."""
        cdef const Verdict *verdict
        if not is_wanted(self.at(sequence), allowed, texts):
            return False
        verdict = verdict_at(verdicts, sequence)
        return verdict == NULL or verdict.length != 0

    cdef Extent extent(self, int64_t sequence, Verdicts verdicts) noexcept:
        """What is given of a wanted slot."""
        cdef Extent extent
        cdef Slot *slot = self.at(sequence)
        cdef const Verdict *verdict = verdict_at(verdicts, sequence)
        extent.is_cut = verdict != NULL and verdict.data != NULL
        if extent.is_cut:
            extent.data, extent.length, extent.rows = verdict.data, verdict.length, verdict.rows
        else:
            extent.data = (<Segment>slot.segment).data + slot.offset
            extent.length, extent.rows = slot.length, slot.rows
        return extent

    def pin(self, int64_t start, Py_ssize_t max_slots, Py_ssize_t max_bytes):
        """Pins slots from `start` on, to be judged in a thread: at least one, if there is any; else None."""
        cdef Pinned pinned
        cdef PinnedEntry entry
        cdef int64_t sequence = start
        cdef Py_ssize_t size = 0
        cdef Slot *slot
        cdef void *segment = NULL
        self.check(start, self.next)
        if start == self.next:
            return None
        pinned = Pinned.__new__(Pinned)
        pinned.start = start
        pinned.tables = self.tables
        pinned.views = []
        pinned.errors = []
        while sequence < self.next and sequence < start + max_slots and size < max_bytes:
            slot = self.at(sequence)
            entry.slot_length = slot.length
            entry.length = slot.length if slot.kind == ROW_DATA and slot.table else 0
            entry.rows = slot.rows
            entry.table = slot.table
            entry.data = NULL
            if entry.length:
                entry.data = (<Segment>slot.segment).data + slot.offset
                size += entry.length
            pinned.entries.push_back(entry)
            if entry.length and slot.segment != segment:
                segment = slot.segment
                pinned.views.append(memoryview(<Segment>segment))
            sequence += 1
        return pinned

    def collect(
        self, int64_t start, *, int64_t stop=-1, Py_ssize_t max_entries=0, Py_ssize_t max_bytes=0,
        Py_ssize_t memory_limit=0, bint ddl_isolation=False, int content=0, const unsigned char[::1] allowed=None,
        Verdicts verdicts=None, bint texts=True,
    ):
        """The next batch from `start` on. Limits of 0 do not limit. It has at least one entry if there are any.

        Args:
            start: the sequence to begin with.
            stop: the sequence to end before; -1 for the end of what is stored.
            max_entries: entries at most.
            max_bytes: bytes of framed entries at most, unless the first entry alone is larger.
            memory_limit: Canal's MEMSIZE rule: entries are taken while those taken have at most that many bytes.
            ddl_isolation: a DDL entry is returned alone.
            content: a `sluice.protocol.content.Content`. A batch without any of that is passed over, except a BEGIN at
                its end, which waits as below.
            allowed: by table number, 1 for the tables that the subscriber wants; others are passed over. Tables beyond
                its end are wanted. A transaction without other wanted entries is passed over too, once its end is
                stored; before that, its BEGIN waits, unless a put is blocked.
            verdicts: of a condition on rows: an entry without a row that matches is passed over in the same way, of
                others the rows that match are given. What is not judged yet is wanted as it is.
            texts: the texts of statements are wanted, too, as far as `allowed` has their tables.
        """
        # Long: a third of it says what the arguments mean.
        cdef vector[int64_t] chosen
        cdef Collected batch = Collected.__new__(Collected)
        cdef int64_t sequence = start
        cdef int64_t held = -1         # the BEGIN of a transaction without wanted entries so far
        cdef bint is_filtered = allowed is not None or verdicts is not None
        cdef int64_t begun = -1        # the chosen BEGIN of a transaction whose END is not chosen
        cdef bint has_content = False
        cdef bint has_room
        cdef Py_ssize_t length
        cdef Slot *slot
        if stop < 0:
            stop = self.next
        self.check(start, stop)
        self.check(stop, self.next)
        batch.start = start
        batch.last = -1
        while sequence < stop:
            slot = self.at(sequence)
            if not self.wants(sequence, allowed, verdicts, texts):
                sequence += 1
                continue
            if is_filtered and held < 0 and slot.kind == TRANSACTION_BEGIN:
                held = sequence
                sequence += 1
                continue
            if held >= 0 and slot.kind == TRANSACTION_END and sequence > held + 1:
                held = -1
                sequence += 1
                continue
            if held >= 0:
                sequence = held
                slot = self.at(sequence)
                held = -1
            length = self.extent(sequence, verdicts).length
            if chosen.size() and (
                max_entries and <Py_ssize_t>chosen.size() >= max_entries
                or max_bytes and batch.bytes + length > max_bytes
                or memory_limit and batch.bytes > memory_limit
                or ddl_isolation and (slot.kind == DDL or self.at(batch.last).kind == DDL)
            ):
                if has_content:
                    batch.complete = True
                    break
                self.drop(batch, &chosen)
                begun = -1
            self.choose(batch, &chosen, sequence, verdicts)
            has_content = has_content or holds(slot, self.extent(sequence, verdicts).rows, content)
            if slot.kind == TRANSACTION_BEGIN:
                begun = sequence
            elif slot.kind == TRANSACTION_END:
                begun = -1
            sequence += 1
        # What is stored and not yet shown, or judged, needs no room.
        has_room = not (self.waiting and stop == self.next)
        if held >= 0:
            if has_room or chosen.size():
                sequence = held
            else:
                self.choose(batch, &chosen, held, verdicts)
                has_content = content == ALL_ENTRIES
        if not has_content:
            if begun >= 0 and has_room:
                sequence = begun
            self.drop(batch, &chosen)
        batch.stop = sequence
        batch.entries = chosen.size()
        batch.slices = self.slices(chosen.data(), chosen.size(), verdicts)
        batch.positions = self.positions(chosen.data(), chosen.size())
        return batch

    def cut(
        self, int64_t start, int64_t stop, *, int64_t max_rows=0, Py_ssize_t max_bytes=0, bint inside=False,
        const unsigned char[::1] allowed=None, Verdicts verdicts=None, bint texts=True,
    ):
        """Where a range from `start` ends, and how many entries it has: (sequence, entries); limits of 0 do not limit.

        A BEGIN or END counts for nothing.

        It ends after the last transaction that ends before `stop` and within the limits, or before a DDL; a DDL comes
        alone. When the limits do not allow a whole transaction, it ends inside one. When `stop` comes before the first
        transaction has ended, there is no range, unless `inside` allows it to end at `stop`.
        """
        cdef int64_t sequence, rows = 0, entries = 0
        cdef int64_t held = -1         # the BEGIN of a transaction without wanted entries so far
        cdef int64_t boundary = start  # the place after the last whole transaction ...
        cdef int64_t within = 0        # ... and the entries before it
        cdef Py_ssize_t size = 0
        cdef Extent extent
        cdef Slot *slot
        self.check(start, stop)
        self.check(stop, self.next)
        for sequence in range(start, stop):
            slot = self.at(sequence)
            if self.wants(sequence, allowed, verdicts, texts):
                extent = self.extent(sequence, verdicts)
                if slot.kind == TRANSACTION_BEGIN:
                    held = sequence
                elif slot.kind == TRANSACTION_END:
                    held = -1
                elif entries and (
                    slot.kind == DDL
                    or max_rows and rows + extent.rows > max_rows
                    or max_bytes and size + <Py_ssize_t>extent.length > max_bytes
                ):
                    if within:
                        return boundary, within
                    return (sequence if held < 0 else held), entries
                else:
                    held = -1
                    entries += 1
                    rows += extent.rows
                    size += extent.length
                    if slot.kind == DDL:
                        return sequence + 1, entries
            if slot.flags & BOUNDARY:
                boundary = sequence + 1
                within = entries
        if inside:
            return stop, entries
        return boundary, within

    def read(
        self, int64_t start, int64_t stop, *, Py_ssize_t max_bytes=0, bint transactions=True, bint whole=True,
        const unsigned char[::1] allowed=None, Verdicts verdicts=None, bint texts=True,
    ):
        """The entries of [start, stop), which are the same however and whenever the stream was read.

        Canal lets an empty transaction, or a filtered BEGIN or END, through now and then, depending on what was read
        before. These do not come here.

        Args:
            start, stop: sequences.
            max_bytes: end before the entry that would exceed this; the first one always comes. 0: no limit.
            transactions: BEGIN and END of transactions that have other entries are wanted.
            whole: the range ends at `stop`; otherwise a BEGIN before `stop` waits for what follows.
            allowed, verdicts, texts: as for `collect`.
        """
        cdef vector[int64_t] chosen
        cdef Collected batch = Collected.__new__(Collected)
        batch.start = start
        batch.stop = self.select(batch, &chosen, start, stop, max_bytes, transactions, whole, allowed, verdicts, texts)
        batch.entries = chosen.size()
        batch.slices = self.slices(chosen.data(), chosen.size(), verdicts)
        batch.positions = self.positions(chosen.data(), chosen.size())
        return batch

    def split(
        self, int64_t start, int64_t stop, int parts, *, bint transactions=True,
        const unsigned char[::1] allowed=None, Verdicts verdicts=None, bint texts=True,
    ):
        """Cuts [start, stop) into at most `parts` of about equal bytes: their ends, each with (entries, rows, bytes).

        `read` gives the same for the whole as for the parts together.
        """
        cdef vector[int64_t] chosen
        cdef Collected batch = Collected.__new__(Collected)
        cdef list ends = []
        cdef size_t i
        cdef int64_t entries = 0, rows = 0, size = 0, before = 0
        cdef Extent extent
        self.select(batch, &chosen, start, stop, 0, transactions, True, allowed, verdicts, texts)
        for i in range(chosen.size()):
            # Do not cut after a BEGIN: the part that begins there would not know of it.
            if (
                entries and before + size >= batch.bytes * (<int64_t>len(ends) + 1) // parts
                and self.at(chosen[i - 1]).kind != TRANSACTION_BEGIN
            ):
                ends.append((chosen[i], entries, rows, size))
                before += size
                entries = rows = size = 0
            extent = self.extent(chosen[i], verdicts)
            entries += 1
            rows += extent.rows
            size += extent.length
        ends.append((stop, entries, rows, size))
        return ends

    cdef int64_t select(
        self, Collected batch, vector[int64_t] *chosen, int64_t start, int64_t stop, Py_ssize_t max_bytes,
        bint transactions, bint whole, const unsigned char[::1] allowed, Verdicts verdicts, bint texts,
    ) except -1:
        """Chooses what `read` gives; returns the sequence that it reached."""
        cdef int64_t sequence
        cdef int64_t held = -1
        cdef Py_ssize_t length
        cdef Slot *slot
        self.check(start, stop)
        self.check(stop, self.next)
        batch.last = -1
        for sequence in range(start, stop):
            slot = self.at(sequence)
            if not self.wants(sequence, allowed, verdicts, texts):
                continue
            if slot.kind == TRANSACTION_BEGIN:
                held = sequence
                continue
            if slot.kind == TRANSACTION_END and (held >= 0 or not transactions):
                held = -1
                continue
            length = self.extent(sequence, verdicts).length
            if max_bytes and chosen.size() and batch.bytes + length > max_bytes:
                batch.complete = True
                return sequence if held < 0 else held
            if held >= 0 and transactions:
                self.choose(batch, chosen, held, verdicts)
            held = -1
            self.choose(batch, chosen, sequence, verdicts)
        if held < 0:
            return stop
        if not whole:
            return held
        if transactions:               # the range ends here, so what follows would never know
            self.choose(batch, chosen, held, verdicts)
        return stop

    cdef void drop(self, Collected batch, vector[int64_t] *chosen) noexcept:
        chosen.clear()
        batch.bytes = batch.rows = batch.execute_ms = 0
        batch.last = -1

    cdef void choose(self, Collected batch, vector[int64_t] *chosen, int64_t sequence, Verdicts verdicts) noexcept:
        cdef Slot *slot = self.at(sequence)
        cdef Extent extent = self.extent(sequence, verdicts)
        chosen.push_back(sequence)
        batch.bytes += extent.length
        batch.rows += extent.rows
        batch.last = sequence
        batch.execute_ms = slot.execute_ms

    cdef bytes positions(self, const int64_t *sequences, size_t count):
        cdef size_t size = 0
        cdef size_t i
        cdef Slot *slot
        cdef bytes result
        cdef uint8_t *p
        for i in range(count):
            slot = self.at(sequences[i])
            size += varint_size(slot.begin) + varint_size(slot.n)
        result = PyBytes_FromStringAndSize(NULL, size)
        p = <uint8_t *>PyBytes_AS_STRING(result)
        for i in range(count):
            slot = self.at(sequences[i])
            p = put_varint(put_varint(p, slot.begin), slot.n)
        return result

    cdef list slices(self, const int64_t *sequences, size_t count, Verdicts verdicts=None):
        """The entries in order: runs of adjacent entries are not copied, short ones are gathered."""
        cdef list slices = []
        cdef size_t gathered = 0       # the first of the entries that are not yet in a slice
        cdef size_t run = 0            # the first entry of the current run
        cdef size_t i
        cdef int64_t length = 0        # of the current run
        cdef void *segment = NULL      # of the entry before; NULL: it is cut
        cdef Extent before
        cdef Extent extent
        for i in range(count):
            extent = self.extent(sequences[i], verdicts)
            if i > run and (
                extent.is_cut or self.at(sequences[i]).segment != segment or extent.data != before.data + before.length
            ):
                if length >= LONG_RUN:
                    self.gather(slices, sequences, gathered, run, verdicts)
                    slices.append(self.run(sequences[run], length, verdicts))
                    gathered = i
                run = i
                length = 0
            length += extent.length
            segment = NULL if extent.is_cut else self.at(sequences[i]).segment
            before = extent
        if length and (run == gathered or length >= LONG_RUN):
            self.gather(slices, sequences, gathered, run, verdicts)
            slices.append(self.run(sequences[run], length, verdicts))
        else:
            self.gather(slices, sequences, gathered, count, verdicts)
        return slices

    cdef run(self, int64_t sequence, int64_t length, Verdicts verdicts):
        """The bytes from an entry on, where they are; a cut entry is a run of its own."""
        cdef const Verdict *verdict = verdict_at(verdicts, sequence)
        return verdicts.view(sequence) if verdict != NULL and verdict.data != NULL else self.view(sequence, length)

    cdef view(self, int64_t sequence, int64_t length):
        """The bytes from an entry on, where they are: the view pins their segment."""
        cdef Slot *slot = self.at(sequence)
        cdef int64_t offset = slot.offset
        return memoryview(<Segment>slot.segment)[offset:offset + length]

    cdef int gather(
        self, list slices, const int64_t *sequences, size_t start, size_t stop, Verdicts verdicts
    ) except -1:
        """Appends the entries start to stop as one copy."""
        cdef Py_ssize_t length = 0
        cdef size_t i
        cdef Extent extent
        cdef char *target
        if start == stop:
            return 0
        for i in range(start, stop):
            length += self.extent(sequences[i], verdicts).length
        copy = PyBytes_FromStringAndSize(NULL, length)
        target = PyBytes_AS_STRING(copy)
        for i in range(start, stop):
            extent = self.extent(sequences[i], verdicts)
            memcpy(target, extent.data, extent.length)
            target += extent.length
        slices.append(memoryview(copy))
        return 0
