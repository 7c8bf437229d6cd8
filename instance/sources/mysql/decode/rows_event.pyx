"""The body of a rows event up to its rows."""

from libc.stdint cimport uint8_t, uint64_t

from .....protocol.canal.tags cimport UPDATE
from .....protocol.littleendian cimport le16, length_encoded
from .events cimport RowsType, too_short
from .inflate cimport Inflater

from .....protocol.errors import DecodeError


# length of extra data 2, itself included, and the data, where the post-header has 10 bytes
# | number of columns (length-encoded) | bitmap of the columns that are present, for an update another one for the
# image after | rows, in MariaDB's compressed events compressed
# (`Rows_event`, libs/mysql/binlog/event/rows_event.h; `Rows_log_event::uncompress_buf`, MariaDB sql/log_event.cc)
cdef int read_rows_body(
    RowsBody *rows, const RowsType *type, const uint8_t *p, const uint8_t *end, bint has_extra, uint64_t width,
    Inflater inflater,
) except -1 nogil:
    cdef size_t bitmap_size, inflated
    rows.width = 0
    if has_extra:
        if end - p < 2 or le16(p) < 2 or end - p < le16(p):
            too_short()
        p += le16(p)
    p = length_encoded(p, end, &rows.width)
    if p == NULL:
        too_short()
    if rows.width != width:
        with gil:
            raise DecodeError(f"rows of {rows.width} columns where the TABLE_MAP event has {width}")
    bitmap_size = (width + 7) // 8
    rows.before = rows.after = p
    if type.kind == UPDATE:
        rows.after += bitmap_size
    if <size_t>(end - p) < rows.after - p + bitmap_size:
        too_short()
    rows.first = rows.after + bitmap_size
    rows.end = end
    if type.is_compressed:
        inflated = inflater.inflate(rows.first, end)
        rows.first = inflater.data
        rows.end = inflater.data + inflated
    return 0
