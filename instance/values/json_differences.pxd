"""What a PARTIAL_UPDATE_ROWS event has in place of JSON documents."""

from libc.stdint cimport uint8_t

from .binary cimport Field, Value


# The text of the document after the differences in `data`, from the document before them; -1 with an error in `value`.
cdef int changed_document(
    Field *field, const uint8_t *before, size_t before_size, const uint8_t *data, size_t size, Value *value
) noexcept nogil

# The expression of SQL that Canal writes for the differences, over the column `name`; -1 with an error in `value`.
cdef int differences_expression(
    Field *field, const uint8_t *name, size_t name_size, const uint8_t *data, size_t size, Value *value
) noexcept nogil
