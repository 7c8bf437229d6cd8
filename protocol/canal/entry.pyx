"""The one reader of Canal's entries: see entry.pxd for what it reads and how.

This half has what is compiled once: the keys of properties, errors and texts.
"""

from cpython.bytes cimport PyBytes_AS_STRING

from ..wire cimport Span, span_at

from .. import props
from ..errors import DecodeError

cdef bytes _XA = props.XA.encode()
cdef bytes _GTID = props.GTID.encode()
cdef bytes _LATE = props.LATE.encode()
cdef bytes _SNAPSHOT = props.SNAPSHOT.encode()
cdef bytes _MEMBER = props.MEMBER.encode()
cdef bytes _QUARANTINE = props.QUARANTINE.encode()
cdef bytes _GAP = props.GAP.encode()
cdef bytes _ABSENT = props.ABSENT.encode()
XA_KEY = span_at(PyBytes_AS_STRING(_XA), len(_XA))
GTID_KEY = span_at(PyBytes_AS_STRING(_GTID), len(_GTID))
LATE_KEY = span_at(PyBytes_AS_STRING(_LATE), len(_LATE))
SNAPSHOT_KEY = span_at(PyBytes_AS_STRING(_SNAPSHOT), len(_SNAPSHOT))
MEMBER_KEY = span_at(PyBytes_AS_STRING(_MEMBER), len(_MEMBER))
QUARANTINE_KEY = span_at(PyBytes_AS_STRING(_QUARANTINE), len(_QUARANTINE))
GAP_KEY = span_at(PyBytes_AS_STRING(_GAP), len(_GAP))
ABSENT_KEY = span_at(PyBytes_AS_STRING(_ABSENT), len(_ABSENT))


cdef int malformed() except -1 nogil:
    with gil:
        raise DecodeError("not an entry: a field does not fit into its message")


cdef str text_of(Span span):
    try:
        return (<const char *>span.data)[:span.size].decode() if span.size else ""
    except UnicodeDecodeError as error:
        raise DecodeError(f"not an entry: a string is not UTF-8: {error}") from None
