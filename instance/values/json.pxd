"""MySQL's binary JSON to text."""

from libc.stdint cimport uint8_t

from .binary cimport Field, Value

cdef enum:
    MAX_DEPTH = 100        # as the server


cdef struct Output:
    Value *value
    size_t size
    size_t limit           # parts of a document do not overlap, so its text cannot be longer
    bint is_strict
    uint8_t digits


cdef struct Json:          # a value of a document
    int kind
    const uint8_t *data
    const uint8_t *end     # of what it is in: it may end before


cdef struct Container:     # an object or an array
    const uint8_t *data
    size_t size
    size_t count
    size_t values          # where the entries of its values begin
    int width              # of its counts and offsets
    bint is_object


# A whole column: a text in `value`; -1 with an error in `value` where the bytes are not a document.
cdef int json_document(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil

# For texts of several parts: `size` are the bytes they come from. All return -1 with an error in `out.value`.
cdef void begin(Output *out, const Field *field, size_t size, Value *value) noexcept nogil
cdef int put(Output *out, const void *text, size_t size) noexcept nogil
cdef int put_text(Output *out, const uint8_t *text, size_t size) noexcept nogil
cdef int put_string(Output *out, const uint8_t *text, size_t size) noexcept nogil
cdef int put_value(Output *out, const Json *json, int depth) noexcept nogil
cdef int finish(Output *out) noexcept nogil

# The text of a value that these returned `status` for; its memory is freed. Raises DecodeError.
cdef str take_text(int status, Value *value)

# Parts of a container: -1 or NULL where they go beyond it.
cdef int open_container(const Json *json, Container *container) noexcept nogil
cdef const uint8_t *get_key(const Container *container, size_t i, size_t *size) noexcept nogil
cdef int get_child(const Container *container, size_t i, Json *child) noexcept nogil
