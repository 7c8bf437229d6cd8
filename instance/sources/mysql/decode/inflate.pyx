"""Inflating what the servers have compressed: MariaDB's events with zlib, MySQL's transactions with zstd."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from .....protocol.littleendian cimport le32, length_encoded
from .events cimport HEADER_SIZE

from .....protocol.errors import DecodeError


cdef extern from "<zlib.h>" nogil:
    int uncompress(unsigned char *to, unsigned long *size, const unsigned char *data, unsigned long length)
    int Z_OK

cdef extern from "<zstd.h>" nogil:
    ctypedef struct ZSTD_DStream:
        pass
    ctypedef struct ZSTD_inBuffer:
        const void *src
        size_t size
        size_t pos
    ctypedef struct ZSTD_outBuffer:
        void *dst
        size_t size
        size_t pos
    ZSTD_DStream *ZSTD_createDStream()
    size_t ZSTD_freeDStream(ZSTD_DStream *stream)
    size_t ZSTD_initDStream(ZSTD_DStream *stream)
    size_t ZSTD_decompressStream(ZSTD_DStream *stream, ZSTD_outBuffer *output, ZSTD_inBuffer *input)
    unsigned int ZSTD_isError(size_t code)
    const char *ZSTD_getErrorName(size_t code)

cdef enum:
    ORDINARY = 256 << 10           # bytes a buffer may keep after a larger event
    ZLIB_BEST_RATIO = 1032         # deflate streams do not inflate further: a larger claim is not worth the allocation

    PAYLOAD_END = 0                # field types of a TRANSACTION_PAYLOAD event
    PAYLOAD_SIZE = 1
    PAYLOAD_COMPRESSION = 2
    PAYLOAD_UNCOMPRESSED_SIZE = 3
    COMPRESSION_ZSTD = 0
    COMPRESSION_NONE = 255


cdef int grow(uint8_t **data, size_t *capacity, size_t size) except -1 nogil:
    """Makes the buffer at least that large, or gives back what an earlier, larger event needed."""
    cdef uint8_t *moved
    if size <= capacity[0] and (capacity[0] <= ORDINARY or size > ORDINARY):
        return 0
    moved = <uint8_t *>realloc(data[0], size)
    if moved == NULL:
        with gil:
            raise MemoryError(f"no memory to inflate {size} bytes")
    data[0] = moved
    capacity[0] = size
    return 0


cdef class Inflater:
    """Inflates MariaDB's compressed events, up to ``largest`` bytes, into a buffer of its own."""

    def __cinit__(self, size_t largest=1 << 30):
        self.largest = largest

    def __dealloc__(self):
        free(self.data)

    cdef int reserve(self, size_t size) except -1 nogil:
        return grow(&self.data, &self.capacity, size)

    # head 1 (bits 0-2: bytes of the size, 4-6: algorithm, 0 is zlib; bit 7 is always set) | inflated size 1-4,
    # big-endian | zlib stream
    # (`binlog_buf_uncompress`, MariaDB sql/log_event.cc)
    cdef size_t inflate(self, const uint8_t *part, const uint8_t *end) except? 0 nogil:
        cdef int width, i
        cdef uint64_t size = 0
        cdef unsigned long inflated
        width = part[0] & 0x07 if part < end else 0
        if width < 1 or width > 4 or end - part < 1 + width or part[0] & 0xF8 != 0x80:
            with gil:
                raise DecodeError("the head of compressed data is not one that MariaDB writes")
        for i in range(width):
            size = size << 8 | part[1 + i]
        part += 1 + width
        if size > self.largest:
            with gil:
                raise DecodeError(
                    f"an event holds {size} bytes when inflated, more than {self.largest}"
                    " (sluice.instance.event.maxBytes)"
                )
        if size > <uint64_t>(end - part) * ZLIB_BEST_RATIO:
            with gil:
                raise DecodeError(f"{end - part} bytes of compressed data claim to be {size} bytes inflated")
        self.reserve(size + 1)
        inflated = size
        if uncompress(self.data, &inflated, part, end - part) != Z_OK or inflated != size:
            with gil:
                raise DecodeError("compressed data cannot be inflated")
        return inflated


cdef class PayloadReader:
    """The events in a TRANSACTION_PAYLOAD event, inflated one after the other.

    Memory is bounded by one event and zstd's window, whatever the size of the transaction. It is also bounded by twice
    what has come out of the stream, whatever sizes the payload and its events claim. An event has at most `largest`
    bytes.
    """

    def __cinit__(self, size_t largest=1 << 30):
        self.largest = largest

    def __dealloc__(self):
        free(self.data)
        if self.stream != NULL:
            ZSTD_freeDStream(<ZSTD_DStream *>self.stream)

    cdef void close(self) noexcept nogil:
        self.active = False

    # fields, each: type (length-encoded) | length (length-encoded) | value (a length-encoded integer)
    # until the type is 0, which has neither length nor value | payload
    # (`Transaction_payload_event`, libs/mysql/binlog/event/control_events.h and codecs/binary.cpp)
    cdef int open(self, const uint8_t *body, const uint8_t *end) except -1 nogil:
        cdef uint64_t field, length, value
        cdef uint64_t size = 0
        cdef uint64_t compression = COMPRESSION_NONE
        cdef uint64_t inflated = 0
        cdef bint sized = False
        cdef const uint8_t *p = body
        cdef const uint8_t *after
        while True:
            p = length_encoded(p, end, &field)
            if p == NULL:
                break
            if field == PAYLOAD_END:
                break
            p = length_encoded(p, end, &length)
            if p == NULL or length > <uint64_t>(end - p):
                p = NULL
                break
            after = p + length
            if PAYLOAD_SIZE <= field <= PAYLOAD_UNCOMPRESSED_SIZE:
                if length_encoded(p, after, &value) != after:
                    p = NULL
                    break
                if field == PAYLOAD_SIZE:
                    size = value
                elif field == PAYLOAD_COMPRESSION:
                    compression = value
                else:
                    inflated = value
                    sized = True
            p = after
        if p == NULL or size != <uint64_t>(end - p):
            with gil:
                raise DecodeError("the fields of a transaction payload do not fit its event")
        self.compressed = compression == COMPRESSION_ZSTD
        if not self.compressed and compression != COMPRESSION_NONE:
            with gil:
                raise DecodeError(f"a transaction payload of compression type {compression}, which is unknown")
        self.body = body
        self.body_end = end
        self.source = p
        self.source_end = end
        self.rest = inflated if sized or self.compressed else size
        self.start = self.end = 0
        if self.compressed:
            if self.stream == NULL:
                self.stream = ZSTD_createDStream()
                if self.stream == NULL:
                    with gil:
                        raise MemoryError("no memory for a zstd stream")
            ZSTD_initDStream(<ZSTD_DStream *>self.stream)
        elif self.rest != size:
            with gil:
                raise DecodeError("an uncompressed transaction payload has two different sizes")
        self.active = True
        return 0

    cdef int fill(self, size_t least) except -1 nogil:
        """Inflates until that many bytes are there from `start` on."""
        cdef ZSTD_inBuffer source
        cdef ZSTD_outBuffer target
        cdef size_t code, before
        if self.end - self.start >= least:
            return 0
        if self.start:
            memmove(self.data, self.data + self.start, self.end - self.start)
            self.end -= self.start
            self.start = 0
        source.src = self.source
        source.size = self.source_end - self.source
        source.pos = 0
        target.pos = self.end
        while target.pos < least:
            grow(&self.data, &self.capacity, max(<size_t>ORDINARY, min(least, max(2 * target.pos, self.capacity))))
            target.dst = self.data
            target.size = self.capacity
            before = source.pos + target.pos
            code = ZSTD_decompressStream(<ZSTD_DStream *>self.stream, &target, &source)
            if ZSTD_isError(code):
                with gil:
                    raise DecodeError(f"a transaction payload cannot be inflated: {ZSTD_getErrorName(code).decode()}")
            if source.pos + target.pos == before:
                with gil:
                    raise DecodeError("a transaction payload ends in the middle of an event")
        self.source += source.pos
        self.end = target.pos
        return 0

    cdef int expect_end(self) except -1 nogil:
        """Checks that the stream has nothing more and ends with its event."""
        cdef ZSTD_inBuffer source
        cdef ZSTD_outBuffer target
        cdef uint8_t excess
        cdef size_t code = 0
        source.src = self.source
        source.size = self.source_end - self.source
        source.pos = 0
        target.dst = &excess
        target.size = 1
        target.pos = 0
        if source.size:
            code = ZSTD_decompressStream(<ZSTD_DStream *>self.stream, &target, &source)
        if code != 0 or target.pos or source.pos != source.size or self.start != self.end:
            with gil:
                raise DecodeError("a transaction payload is longer than it says")
        return 0

    cdef const uint8_t *next(self, size_t *size) except? NULL nogil:
        cdef const uint8_t *event
        cdef uint32_t length
        if self.rest == 0:
            if self.compressed:
                self.expect_end()
            self.active = False
            return NULL
        if self.rest < HEADER_SIZE:
            with gil:
                raise DecodeError("a transaction payload ends in the middle of an event")
        if self.compressed:
            self.fill(HEADER_SIZE)
            length = le32(self.data + self.start + 9)
        else:
            length = le32(self.source + 9)
        if length > self.largest:
            with gil:
                raise DecodeError(
                    f"an event of {length} bytes in a transaction payload, more than {self.largest}"
                    " (sluice.instance.event.maxBytes)"
                )
        if length < HEADER_SIZE or length > self.rest:
            with gil:
                raise DecodeError(f"an event of {length} bytes where a transaction payload has {self.rest} bytes left")
        if self.compressed:
            self.fill(length)
            event = self.data + self.start
            self.start += length
        else:
            event = self.source
            self.source += length
        self.rest -= length
        size[0] = length
        return event
