"""What is decided once per version of a table, so that nothing remains to be decided per row."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from .....protocol.mask cimport Masker
from .....store.segment cimport SegmentWriter
from ....conditions.program cimport Condition
from ....values.binary cimport Field, Value, Zone


cdef struct Head:          # what precedes `value` in every Column, except its tag and length
    const uint8_t *data    # ends with the value of `updated`
    uint32_t size


cdef struct Planned:       # a column on the wire
    Field field
    Head value
    Head promoted
    Head null
    uint8_t is_delivered   # not removed by the field filter
    uint8_t is_json
    uint8_t mask           # MaskKind
    uint32_t mask_characters
    uint32_t name_size
    const uint8_t *name    # in UTF-8
    int64_t before         # offset of the text of the image before from the start of the entry, or ABSENT, NULL_VALUE
    size_t before_size
    const uint8_t *document    # the value before on the wire, while its row is read: what differences of JSON change
    size_t document_size


cdef class Scratch:        # where values become texts, one after the other: one for all plans of a decoder
    cdef Value value


cdef class TablePlan:
    cdef readonly str schema
    cdef readonly str table
    cdef readonly str delivered_schema         # what entries name
    cdef readonly str delivered_table
    cdef readonly uint32_t number              # in Ring.tables
    cdef readonly bint excluded                # by the instance's filters: its row events cost a header read
    cdef readonly Py_ssize_t column_count      # columns on the wire
    cdef readonly uint16_t slot_flags          # Flag bits that every slot of this table carries
    cdef readonly str error                    # why no row of the table can be read; None: they can
    cdef bytes encoded                         # Header fields schemaName and tableName, then the heads of the columns
    cdef size_t names_size                     # of those fields of Header
    cdef readonly Py_ssize_t size              # bytes that the plan takes, about

    # The place of the first row from p on that the condition on rows lets pass, with `row_kind` set; end if there is
    # none. data: all rows. Raises DecodeError. Only for a plan that has a condition.
    cdef const uint8_t *find_row(
        self,
        Scratch scratch,
        const uint8_t *data,
        const uint8_t *p,
        const uint8_t *end,
        int kind,
        const uint8_t *present_before,
        const uint8_t *present_after,
        bint partial_json,
    ) except NULL nogil

    # The place of the first row after `first` that passes and is given as another kind; otherwise as `find_row`.
    cdef const uint8_t *pass_rows(
        self,
        Scratch scratch,
        const uint8_t *data,
        const uint8_t *first,
        const uint8_t *end,
        int kind,
        const uint8_t *present_before,
        const uint8_t *present_after,
        bint partial_json,
    ) except NULL nogil

    # Appends one `rowDatas` field (RowChange field 12) for the row at `first`, which `find_row` has found if the plan
    # has a condition, and each row after it that passes, up to one that is given as another kind: `first` is then the
    # place of that one, else `end`.
    # data and end: all rows. present_before / present_after: the event's bitmaps of columns, ceil(column_count / 8)
    # bytes each (the same pointer for INSERT and DELETE). partial_json: the event is a PARTIAL_UPDATE_ROWS event.
    # Returns the number of rows; raises DecodeError (with the GIL) naming the column when bytes do not fit.
    cdef int64_t encode_rows(
        self,
        SegmentWriter writer,
        Scratch scratch,
        const uint8_t *data,
        const uint8_t **first,
        const uint8_t *end,
        int kind,                              # INSERT, UPDATE or DELETE of Canal's EventType
        const uint8_t *present_before,
        const uint8_t *present_after,
        bint partial_json,
    ) except -1 nogil

    # Appends the property (RowChange field 13) that images of the event lack columns: the names of the wanted ones that
    # neither has. Nothing if both have all that are wanted.
    cdef int put_absent(
        self, SegmentWriter writer, const uint8_t *present_before, const uint8_t *present_after
    ) except -1 nogil

    # Appends the property of what the event's images lack: the condition on rows could not be judged by them, or rows
    # that came to match could not be given as INSERT. kind: of the entry.
    cdef int put_remark(
        self, SegmentWriter writer, int kind, const uint8_t *present_before, const uint8_t *present_after
    ) except -1 nogil

    cdef readonly Condition condition          # on rows; None
    cdef bint splits                           # updates that cross it are given as INSERT and DELETE
    cdef int row_kind                          # as which the row that `find_row` has found is given
    cdef const uint8_t *row_end                # the place after it, where it is a row of an update that may be split
    cdef bint is_judged(self, const uint8_t *present_before, const uint8_t *present_after) noexcept nogil
    cdef bint is_complete(self, const uint8_t *present_before, const uint8_t *present_after) noexcept nogil
    cdef Masker masker                         # None: no column has a mask
    cdef Planned *columns
    cdef size_t row_width                      # bytes of the length of the last row
    cdef Zone zone                             # that TIMESTAMP columns point into
    cdef int plan_column(
        self, Planned *planned, bytearray encoded, Py_ssize_t index, column, int code, int meta, options
    ) except -1
    cdef int plan_temporal(self, Field *field, column, int code, int meta, options) except? 0
    cdef int plan_string(self, Field *field, column, int code, int meta, options) except? 0
    cdef const uint8_t *encode_image(
        self,
        SegmentWriter writer,
        Value *value,
        const uint8_t *start,
        const uint8_t *p,
        const uint8_t *end,
        const uint8_t *present,
        bint after,
        bint compare,
        bint fill,
        bint partial_json,
    ) except NULL nogil
    cdef int fail(self, Py_ssize_t column, Py_ssize_t offset, const char *reason) except -1 nogil
