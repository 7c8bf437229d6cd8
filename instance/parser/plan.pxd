"""What is decided once for a table version, so that nothing is left to decide for a row."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from sluice.store.segment cimport SegmentWriter


cpdef enum RowsKind:
    INSERT = 1             # the numbers of Canal's EventType
    UPDATE = 2
    DELETE = 3


cdef class TablePlan:
    cdef readonly str schema
    cdef readonly str table
    cdef readonly uint32_t number              # in Ring.tables
    cdef readonly bint excluded                # by the instance's filters: its row events cost a header read
    cdef readonly Py_ssize_t column_count      # columns on the wire
    cdef readonly uint16_t slot_flags          # Flag bits that every slot of this table carries
    cdef bytes header_names                    # encoded Header fields schemaName and tableName, ready to copy

    # Appends one `rowDatas` field (RowChange field 12) a row for all rows between data and end.
    # present_before / present_after: the event's bitmaps of columns, ceil(column_count / 8) bytes each (the same
    # pointer for INSERT and DELETE). partial_json: the event is a PARTIAL_UPDATE_ROWS event.
    # Returns the number of rows; raises DecodeError (with the GIL) naming the column when bytes do not fit.
    cdef int64_t encode_rows(
        self,
        SegmentWriter writer,
        const uint8_t *data,
        const uint8_t *end,
        RowsKind kind,
        const uint8_t *present_before,
        const uint8_t *present_after,
        bint partial_json,
    ) except -1 nogil
