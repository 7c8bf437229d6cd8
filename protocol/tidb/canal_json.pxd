"""Messages of TiCDC's protocol canal-json; see `canal_json.pyx`."""

from libc.stdint cimport int64_t, uint8_t
from libcpp.string cimport string
from libcpp.string_view cimport string_view
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from ..buffer cimport Buffer
from ..wire cimport Span
from .encoder cimport Encoder, Plan


cdef enum MessageKind:
    WATERMARK
    ROW
    STATEMENT


cdef struct Message:                               # the values are texts of JSON; those that it lacks are empty
    MessageKind kind
    int event_type                                 # of a row: INSERT, UPDATE or DELETE
    int64_t ts                                     # its commit_ts; that of a watermark
    Span schema, table, keys, sql, sql_types, mysql_types
    Span row, old                                  # objects of one row


# Reads the message that a text begins with; the place after it. Raises DecodeError.
cdef const uint8_t *read_message(Span text, Message *message) except NULL nogil

# What tells a change from others of its commit_ts, however often it is sent; empty if nothing does.
cdef int put_identity(const Message *message, string *identity) except -1 nogil


cdef struct Column:
    Span name                                      # as in the messages, with its quotes
    Span value                                     # the bytes before a value, ...
    Span promoted                                  # ... before one above the limit, ...
    Span null                                      # ... and before none
    const char *limit                              # the greatest value of the signed type; NULL if that is no question
    bint is_integer


cdef class MessagePlan(Plan):
    cdef vector[Column] columns                    # in the order of the row that it was made for

    cdef int add(self, bytes quoted, str mysql_type, int sql_type, bint is_key) except -1


cdef class MessageEncoder(Encoder):
    cdef unordered_map[string, void *] known       # the plans, by names, keys and types
    cdef string key
    cdef string last                               # names, keys and types of the last row as they came ...
    cdef void *last_plan                           # ... and its plan
    cdef vector[string_view] members
    cdef vector[Span] after, before                # values by columns; empty where an image has none
    cdef Buffer text                               # of a value with escapes

    cdef void *plan_of(self, const Message *message) except NULL nogil
    cdef void *learn(self, const Message *message) except NULL
    cdef int read_image(self, MessagePlan plan, Span row, vector[Span]& values) except -1 nogil
    cdef int add_row(self, MessagePlan plan, const Message *message) except -1 nogil
    cdef int add_column(self, const Column *column, int tag, Span value, bint updated) except -1 nogil
