"""TiDB's binary JSON to text; see `documents.pyx`."""

from libc.stdint cimport uint8_t

from ....protocol.wire cimport Span
from ...values.binary cimport Value


# Where a document ends that begins at `p`; NULL if that is not before `end`.
cdef const uint8_t *document_end(const uint8_t *p, const uint8_t *end) noexcept nogil

# The text of a document in `text` of the scratch; -1 with an error in it where the bytes are not one.
cdef int put_document(Span document, Value *scratch) noexcept nogil
