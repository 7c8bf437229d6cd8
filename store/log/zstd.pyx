"""Zstandard, for the entries of a block."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

cdef extern from "<zstd.h>" nogil:
    size_t ZSTD_compressBound(size_t size)
    size_t ZSTD_compress(void *to, size_t capacity, const void *data, size_t size, int level)
    size_t ZSTD_findFrameCompressedSize(const void *data, size_t size)
    unsigned long long ZSTD_getFrameContentSize(const void *data, size_t size)
    size_t ZSTD_decompress(void *to, size_t capacity, const void *data, size_t size)
    unsigned int ZSTD_isError(size_t code)
    const char *ZSTD_getErrorName(size_t code)

cdef enum:
    LEVEL = 3


def compress(const unsigned char[::1] data not None):
    """Return bytes as one frame."""
    cdef size_t size = data.shape[0], found
    cdef bytes frame = PyBytes_FromStringAndSize(NULL, ZSTD_compressBound(size))
    cdef char *to = PyBytes_AS_STRING(frame)
    cdef size_t capacity = len(frame)
    with nogil:
        found = ZSTD_compress(to, capacity, &data[0] if size else NULL, size, LEVEL)
    if ZSTD_isError(found):
        raise MemoryError(ZSTD_getErrorName(found).decode())
    return frame[:found]


def decompress(const unsigned char[::1] data not None, unsigned char[::1] into not None):
    """Fill memory with the bytes of a frame, which has to have exactly as many. Raises ValueError."""
    cdef size_t size = data.shape[0], capacity = into.shape[0], found
    with nogil:
        found = ZSTD_decompress(&into[0] if capacity else NULL, capacity, &data[0] if size else NULL, size)
    if ZSTD_isError(found):
        raise ValueError(f"it cannot be decompressed: {ZSTD_getErrorName(found).decode()}")
    if found != capacity:
        raise ValueError(f"{capacity} bytes were compressed, and {found} come back")


def frame_size(const unsigned char[::1] data not None):
    """Return how many bytes the frame has that begins here, and how many were compressed. Raises ValueError."""
    cdef size_t size = data.shape[0], found
    cdef unsigned long long content
    found = ZSTD_findFrameCompressedSize(&data[0] if size else NULL, size)
    if ZSTD_isError(found):
        raise ValueError(f"no whole frame of zstd begins here: {ZSTD_getErrorName(found).decode()}")
    content = ZSTD_getFrameContentSize(&data[0], size)
    if content >= <unsigned long long>-2:          # unknown, or an error
        raise ValueError("a frame of zstd lacks the number of its bytes")
    return found, content
