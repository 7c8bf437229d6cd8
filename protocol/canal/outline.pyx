"""What a batch is made of, without its rows: where its transactions end, and which of its entries are statements."""

from collections import namedtuple

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t
from libcpp.vector cimport vector

from ..wire cimport Span, span_at
from .entry cimport (
    Entry,
    Fields,
    Header,
    Marks,
    RowChange,
    checked,
    fields_of,
    get_entry,
    get_header,
    get_row_change,
    malformed,
    next_entry,
)
from .tags cimport DELETE, INSERT, QUERY, ROWDATA, TRANSACTIONEND

Outline = namedtuple("Outline", ("statements", "boundary", "is_open"))
Outline.__doc__ = """See `outline`."""


def outline(data):
    """Return what framed entries, as of `Messages`, are made of.

    ``statements``: the entries that are statements, by their number, and whether each is a DDL; any other is a change
    that was logged as its text. ``boundary``: bytes up to behind the last end of a transaction. ``is_open``: another
    one goes on after the last entry.

    Raises DecodeError.
    """
    cdef Py_buffer view
    cdef Fields batch
    cdef Span message
    cdef Entry entry
    cdef Header header
    cdef Marks marks
    cdef RowChange change
    cdef vector[int32_t] statements
    cdef int32_t number = -1
    cdef Py_ssize_t boundary = 0
    cdef bint is_open = False
    cdef bint is_ddl
    cdef size_t i
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            batch = fields_of(span_at(<const char *>view.buf, view.len))
            while checked(next_entry(&batch, &message)):
                number += 1
                if not get_entry(message, &entry):
                    malformed()
                if entry.type == TRANSACTIONEND:
                    boundary = batch.p - <const unsigned char *>view.buf
                    is_open = False
                    continue
                if entry.type != ROWDATA:
                    is_open = True
                    continue
                if not get_header(&entry, &header, &marks) or not get_row_change(&entry, &change):
                    malformed()
                if INSERT <= header.event_type <= DELETE:
                    is_open = True
                    is_ddl = False
                    if not change.sql.size:
                        continue
                elif change.is_ddl or header.event_type != QUERY:
                    is_ddl = True
                else:
                    continue                       # the text of the statement that the rows after it are of
                statements.push_back(number * 2 + is_ddl)
        found = [(statements[i] >> 1, bool(statements[i] & 1)) for i in range(statements.size())]
        return Outline(found, boundary, is_open)
    finally:
        PyBuffer_Release(&view)
