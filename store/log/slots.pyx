"""Slots as a block of the log holds them, and back.

Numbers of registries are local to a process. A block numbers what its slots refer to by itself, from 1 in the order of
first sight; 0 means nothing, as in the ring.

A slot is a varint whose bits say which of its FIELDS differ from those of the slot before (before the first one all are
0), then for each of them, from the lowest bit up, the difference as a zigzag varint.
"""

from collections import namedtuple

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from ...protocol.canal cimport tags
from ...protocol.wire cimport VARINT_MAX, WireField, get_field, get_varint, put_varint
from ..chain cimport Had
from ..ring cimport ADVANCE, BOUNDARY, GAP, QUERY, TEXT, TRANSACTION_BEGIN, Ring, Slot, Staging
from ..segment cimport SegmentWriter

from ...protocol import props
from .errors import LogError

cdef extern from "string.h" nogil:
    const void *memmem(const void *haystack, size_t size, const void *needle, size_t needle_size)

cdef extern from "libdeflate.h" nogil:
    uint32_t libdeflate_crc32(uint32_t crc, const void *buffer, size_t length)

cdef enum:
    FIELDS = 20
    SLOTS = 16384                          # in a block at most
    SLOT_MAX = 3 + FIELDS * VARINT_MAX     # bytes of the longest slot
    # Places of fields whose numbers a block gives.
    LENGTH = 0
    KIND = 1
    TABLE = 4
    SOURCE = 6
    FILE = 11
    NEXT_FILE = 14
    GTID = 17

Packed = namedtuple(
    "Packed", "stop slot_count slots slices size rows execute_ms sources files tables gtid_sources boundary"
)


cdef inline void get_values(const Slot *slot, int64_t *values) noexcept nogil:
    values[LENGTH] = slot.length
    values[KIND] = slot.kind
    values[2] = slot.event_type
    values[3] = slot.flags
    values[TABLE] = slot.table
    values[5] = slot.rows
    values[SOURCE] = slot.source
    values[7] = slot.server_id
    values[8] = slot.execute_ms
    values[9] = slot.commit_us
    values[10] = slot.event_offset
    values[FILE] = slot.file
    values[12] = slot.n
    values[13] = slot.begin
    values[NEXT_FILE] = slot.next_file
    values[15] = slot.next_n
    values[16] = slot.next_begin
    values[GTID] = slot.gtid
    values[18] = slot.gtid_first
    values[19] = slot.gtid_last


cdef inline void set_values(Slot *slot, const int64_t *values) noexcept nogil:
    """All but the length, which an entry has given it."""
    slot.kind = <uint8_t>values[KIND]
    slot.event_type = <uint8_t>values[2]
    slot.flags = <uint16_t>values[3]
    slot.table = <uint32_t>values[TABLE]
    slot.rows = <uint32_t>values[5]
    slot.source = <uint32_t>values[SOURCE]
    slot.server_id = <uint32_t>values[7]
    slot.execute_ms = values[8]
    slot.commit_us = values[9]
    slot.event_offset = values[10]
    slot.file = <uint32_t>values[FILE]
    slot.n = <uint32_t>values[12]
    slot.begin = values[13]
    slot.next_file = <uint32_t>values[NEXT_FILE]
    slot.next_n = <uint32_t>values[15]
    slot.next_begin = values[16]
    slot.gtid = <uint32_t>values[GTID]
    slot.gtid_first = values[18]
    slot.gtid_last = values[19]


cdef bytes SHAPE = props.SHAPE.encode()


cdef bint is_text(const Slot *slot, const uint8_t *entry) except -1:
    """Whether an entry of kind QUERY is the text of a statement: the slots of earlier versions do not say it."""
    cdef WireField framed, header
    cdef const uint8_t *end = entry + slot.length
    if slot.event_type in (tags.INSERT, tags.UPDATE, tags.DELETE):
        return True
    if slot.event_type != tags.QUERY or slot.flags & BOUNDARY:
        return False
    # A marker of what has changed the shape of entries stands within a transaction, too.
    if get_field(entry, end, &framed) == NULL or get_field(framed.data, framed.data + framed.size, &header) == NULL:
        return True
    return memmem(header.data, header.size, PyBytes_AS_STRING(SHAPE), len(SHAPE)) == NULL


cdef class Numbers:
    """The numbers that a block gives to those of a registry."""
    cdef unordered_map[uint32_t, uint32_t] given
    cdef list known                # numbers of the registry, in the order of first sight

    def __cinit__(self):
        self.known = []

    cdef int64_t give(self, uint32_t number) except -1:
        if number == 0:
            return 0
        cdef uint32_t found = self.given[number]
        if found == 0:
            self.known.append(number)
            found = self.given[number] = <uint32_t>len(self.known)
        return found


def crc32(const unsigned char[::1] data not None, uint32_t before=0):
    """The CRC-32 of bytes, as zlib's, several times as fast; `before` is that of what comes before them."""
    cdef size_t size = data.shape[0]
    if size == 0:
        return before
    with nogil:
        before = libdeflate_crc32(before, &data[0], size)
    return before


def pack(Ring ring not None, int64_t start, int64_t stop, Py_ssize_t most):
    """The slots from `start` on that make the next block, as `Packed`; at least one.

    It has at most `most` bytes of entries, unless the first entry alone has more, and SLOTS slots. It ends with
    the last transaction that ends within these limits, or inside of one that does not.

    Attributes of what is returned:
        stop: the sequence after the last slot.
        slot_count, slots: how many slots there are, and their bytes.
        slices: memoryviews of the entries, which pin the memory of the ring; `size` is their length.
        rows, execute_ms: of its entries; the time is that of the last.
        sources, files, tables, gtid_sources: the numbers in the registries of the ring, in the order of the block's.
        boundary: the place after the last slot is outside any transaction.
    """
    cdef vector[int64_t] chosen
    cdef Numbers sources = Numbers(), files = Numbers(), tables = Numbers(), gtid_sources = Numbers()
    cdef int64_t values[FIELDS]
    cdef int64_t before[FIELDS]
    cdef int64_t sequence, end = start, boundary = -1, rows = 0, execute_ms = 0
    cdef Py_ssize_t size = 0
    cdef uint64_t mask, difference
    cdef int i
    cdef uint8_t *p
    cdef Slot *slot
    ring.check(start, stop - 1)
    ring.check(stop, ring.next)
    while end < stop and end - start < SLOTS:
        slot = ring.at(end)
        if size and size + <Py_ssize_t>slot.length > most:
            break
        size += slot.length
        end += 1
        if slot.flags & BOUNDARY:
            boundary = end
    if boundary > 0:
        end = boundary
    size = 0
    for i in range(FIELDS):
        before[i] = 0
    buffer = PyBytes_FromStringAndSize(NULL, (end - start) * SLOT_MAX)
    p = <uint8_t *>PyBytes_AS_STRING(buffer)
    for sequence in range(start, end):
        get_values(ring.at(sequence), values)  # giving numbers runs Python: the slot may not be used after that
        values[TABLE] = tables.give(<uint32_t>values[TABLE])
        values[SOURCE] = sources.give(<uint32_t>values[SOURCE])
        values[FILE] = files.give(<uint32_t>values[FILE])
        values[NEXT_FILE] = files.give(<uint32_t>values[NEXT_FILE])
        values[GTID] = gtid_sources.give(<uint32_t>values[GTID])
        if values[LENGTH]:
            chosen.push_back(sequence)
            size += values[LENGTH]
            rows += values[5]
            execute_ms = values[8]
        mask = 0
        for i in range(FIELDS):
            if values[i] != before[i]:
                mask |= <uint64_t>1 << i
        p = put_varint(p, mask)
        for i in range(FIELDS):
            if mask >> i & 1:
                difference = <uint64_t>values[i] - <uint64_t>before[i]
                p = put_varint(p, (difference << 1) ^ (0 - (difference >> 63)))
                before[i] = values[i]
    slots = buffer[:p - <uint8_t *>PyBytes_AS_STRING(buffer)]
    return Packed(
        end, end - start, slots, ring.slices(chosen.data(), chosen.size()), size, rows, execute_ms,
        sources.known, files.known, tables.known, gtid_sources.known, boundary == end,
    )


cdef int fill(list numbers, vector[uint32_t] *found) except -1:
    """The numbers of a registry by those of the block."""
    found.push_back(0)
    for number in numbers:
        found.push_back(number)
    return 0


cdef uint32_t find(const vector[uint32_t] &numbers, int64_t number) except? 0:
    if not 0 <= number < <int64_t>numbers.size():
        raise LogError(f"a slot refers to number {number} of {<int64_t>numbers.size() - 1}")
    return numbers[number]


def unpack(
    const unsigned char[::1] slots not None, Py_ssize_t count, const unsigned char[::1] entries not None,
    list sources, list files, list tables, list gtid_sources, Staging staging not None, SegmentWriter writer not None,
    Had had=None,
):
    """Stages the slots of a block, with copies of their entries, but for those that are had.

    The lists have the numbers of the registries of the ring, in the order of the block's.

    Raises:
        LogError: the bytes are not what `pack` makes; some slots may be staged.
    """
    cdef vector[uint32_t] source_numbers, file_numbers, table_numbers, gtid_numbers
    cdef int64_t values[FIELDS]
    cdef int64_t own[FIELDS]               # the same with the numbers of the ring
    cdef uint64_t mask = 0, difference = 0
    cdef const uint8_t *p = &slots[0] if slots.shape[0] else NULL
    cdef const uint8_t *end = p + slots.shape[0]
    cdef size_t used = 0, size = entries.shape[0]
    cdef Py_ssize_t number
    cdef int i
    cdef Slot *slot
    cdef Slot found
    fill(sources, &source_numbers)
    fill(files, &file_numbers)
    fill(tables, &table_numbers)
    fill(gtid_sources, &gtid_numbers)
    for i in range(FIELDS):
        values[i] = 0
    for number in range(count):
        p = get_varint(p, end, &mask)
        if p == NULL or mask >> FIELDS:
            raise LogError(f"slot {number} of {count} is cut off, or of another version")
        for i in range(FIELDS):
            if mask >> i & 1:
                p = get_varint(p, end, &difference)
                if p == NULL:
                    raise LogError(f"slot {number} of {count} is cut off")
                values[i] = <int64_t>(<uint64_t>values[i] + ((difference >> 1) ^ (0 - (difference & 1))))
        if not 0 <= values[LENGTH] <= <int64_t>(size - used):
            raise LogError(f"the entry of slot {number} has {values[LENGTH]} bytes; {size - used} are left")
        if not TRANSACTION_BEGIN <= values[KIND] <= GAP or (values[KIND] == ADVANCE) != (values[LENGTH] == 0):
            raise LogError(f"slot {number} is of kind {values[KIND]}, with {values[LENGTH]} bytes")
        memcpy(own, values, sizeof(own))
        own[TABLE] = find(table_numbers, values[TABLE])
        own[SOURCE] = find(source_numbers, values[SOURCE])
        own[FILE] = find(file_numbers, values[FILE])
        own[NEXT_FILE] = find(file_numbers, values[NEXT_FILE])
        own[GTID] = find(gtid_numbers, values[GTID])
        if had is not None:
            set_values(&found, own)
            if had.has(&found):
                used += values[LENGTH]
                continue
        if values[LENGTH]:
            writer.reserve(values[LENGTH])
            memcpy(writer.cursor, &entries[used], values[LENGTH])
            writer.cursor += values[LENGTH]
            used += values[LENGTH]
            slot = staging.finish(writer)
        else:
            slot = staging.advance()
        set_values(slot, own)
        if slot.kind == QUERY and is_text(slot, &entries[used - values[LENGTH]]):
            slot.flags |= TEXT
    if p != end or used != size:
        raise LogError(f"{end - p} bytes are left after the slots, and {size - used} after their entries")
