"""Character sets of MySQL and MariaDB: the bytes of a text to UTF-8."""

from .binary cimport Decode


cdef class Charset:
    """How texts of one character set are read; kept for the life of the process."""
    cdef readonly str name
    cdef Decode decode         # what Field.decode of a text column is
    cdef const void *table     # ... and its Field.context
    cdef object owner          # keeps the table


cdef Charset get_charset(str name)
cpdef bytes encode(str text, str charset)
