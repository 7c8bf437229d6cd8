"""What is decided once per version of a table, so that nothing remains to be decided per row.

A row event carries, after its header, its rows, each (of an update: first the image before, then the image after):

    null bits         1 bit per column that the image has, the first in the lowest bit
    values            of the columns that the image has and that are not NULL; only its type, the column's metadata in
                      TABLE_MAP and, for strings, a length before the value say how long a value is

and the image after of a PARTIAL_UPDATE_ROWS event before that:

    options           length-encoded integer; bit 0: some JSON columns are differences
    partial bits      only then: 1 bit per JSON column of the table, set: the value is a list of differences

Each row becomes a `rowDatas` field of Canal's RowChange. Its columns are written as: what is the same for every row
(index, sqlType, name, isKey, mysqlType, isNull; prepared three times, for a value, an integer that needs the next wider
sqlType, and NULL), `updated`, and the value. A reader of protobuf takes fields in any order.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as data_field

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memmove

from .....protocol.canal.entry cimport ABSENT_KEY
from .....protocol.canal.tags cimport (
    AFTER_COLUMNS,
    BEFORE_COLUMNS,
    DELETE,
    HEADER_PROPS,
    INDEX,
    INSERT,
    IS_KEY,
    IS_NULL,
    KEY,
    MYSQL_TYPE,
    NAME,
    PAIR_VALUE,
    ROW_CHANGE_PROPS,
    ROW_DATAS,
    SCHEMA_NAME,
    SQL_TYPE,
    TABLE_NAME,
    UPDATE,
    UPDATED,
    VALUE,
)
from .....protocol.littleendian cimport le16, le24, le32
from .....protocol.mask cimport FIRST_MASK, NO_MASK, NULL_MASK, Masker
from .....protocol.wire cimport (
    LENGTH_MAX,
    message_field,
    put_bytes,
    put_padded_varint,
    put_raw,
    put_varint,
    text_field,
    uint_field,
    varint_size,
)
from .....store.ring cimport Flag
from .....store.segment cimport SegmentPool, SegmentWriter
from ....conditions.program cimport IS_FALSE, IS_TRUE, Condition
from ....values cimport charset as charsets
from ....values cimport binary as values
from ....values.binary cimport Field, Value
from ....values.json cimport json_document
from ....values.json_differences cimport changed_document, differences_expression

from .....protocol import props
from .....protocol.canal.types import SqlType
from .....protocol.errors import ConfigError, DecodeError
from .....protocol.mask import KINDS
from ....conditions.condition import Test
from ....conditions.masks import Mask
from ....values.types import Type, type_name

cdef enum:
    # The place of the text of the image before, if it has none
    ABSENT = -1                        # the image has no such column
    NULL_VALUE = -2

    SCRATCH = 256                      # more than any text of a bounded size needs
    MAX_PRECISION = 65
    OBJECTS_SIZE = 512                 # bytes of a plan and of what finds it, about, beside its columns


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How an instance wants its values.

    ``strict_canal``: exactly as Canal, even where Sluice does better. ``time_zone``: the zone of TIMESTAMP texts (an
    IANA name, or ``+08:00``), None for the zone of the process. ``connection_charset``: of all texts, if
    ``strict_canal`` is set. ``excluded``: the table is not wanted. ``fields`` and ``black_fields``: names, in upper
    case, of the only columns wanted, or of columns not wanted; the former wins. ``where``: the condition on rows.
    ``splits``: an update whose row comes to match it is given as INSERT, one whose row ceases to as DELETE.
    ``whole_doubles``: in JSON, `1.0` is `1`, as MySQL 5.7 shows it.
    ``masks``: by the names of columns, in upper case. ``mask_secret``: of `hmac`. ``delivered``: the schema and table
    that entries name, if they are not the table's own.
    """

    strict_canal: bool = False
    time_zone: str | None = None
    connection_charset: str = "utf8mb4"
    excluded: bool = False
    fields: frozenset[str] | None = None
    black_fields: frozenset[str] = frozenset()
    where: Test | None = None
    splits: bool = False
    whole_doubles: bool = False
    masks: Mapping[str, Mask] = data_field(default_factory=dict)
    mask_secret: bytes = data_field(default=b"", repr=False)
    delivered: tuple[str, str] | None = None


# --- what is prepared ------------------------------------------------------------------------------------------------

cdef uint8_t *put_json_text(uint8_t *p, const uint8_t *text, size_t size) noexcept nogil:
    """The text as a string of JSON: at most six bytes for each of its bytes, and two for the quotes."""
    cdef size_t i
    p[0] = b'"'
    p += 1
    for i in range(size):
        if text[i] < 0x20:
            p = put_raw(p, b"\\u00", 4)
            p[0] = b"0123456789abcdef"[text[i] >> 4]
            p[1] = b"0123456789abcdef"[text[i] & 15]
            p += 2
            continue
        if text[i] == b'"' or text[i] == b"\\":
            p[0] = b"\\"
            p += 1
        p[0] = text[i]
        p += 1
    p[0] = b'"'
    return p + 1


cdef bytes remark(value):
    return message_field(ROW_CHANGE_PROPS, text_field(KEY, props.WHERE) + text_field(PAIR_VALUE, value))


cdef bytes UNJUDGED = remark(props.UNJUDGED)
cdef bytes UNSPLIT = remark(props.UNSPLIT)
cdef const uint8_t *UNJUDGED_DATA = <const uint8_t *>PyBytes_AS_STRING(UNJUDGED)
cdef size_t UNJUDGED_SIZE = PyBytes_GET_SIZE(UNJUDGED)
cdef const uint8_t *UNSPLIT_DATA = <const uint8_t *>PyBytes_AS_STRING(UNSPLIT)
cdef size_t UNSPLIT_SIZE = PyBytes_GET_SIZE(UNSPLIT)


cdef Head add_head(bytearray encoded, Py_ssize_t index, column, int sql_type, bint is_null):
    """Writes a head after the others; `data` is its place among them."""
    cdef Head head
    cdef Py_ssize_t start = len(encoded)
    encoded += uint_field(INDEX, index)
    encoded += uint_field(SQL_TYPE, sql_type)
    encoded += text_field(NAME, column.name)
    encoded += uint_field(IS_KEY, column.is_key)
    encoded += text_field(MYSQL_TYPE, column.mysql_type)
    encoded += uint_field(IS_NULL, is_null)
    encoded += uint_field(UPDATED, False)
    head.data = <const uint8_t *><size_t>start
    head.size = <uint32_t>(len(encoded) - start)
    return head


cdef class Scratch:
    """Memory for the text of one value, which grows with the largest."""

    def __cinit__(self):
        if values.reserve(&self.value, SCRATCH) == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.value.scratch)
        free(self.value.inflated)


cdef inline int put_null(SegmentWriter writer, Planned *column, bint after, bint compare) except -1 nogil:
    """Appends a column that is NULL."""
    cdef Head *head = &column.null
    cdef uint8_t *out
    writer.reserve(1 + LENGTH_MAX + head.size)
    out = writer.cursor
    out[0] = AFTER_COLUMNS if after else BEFORE_COLUMNS
    out = put_varint(out + 1, head.size)
    memcpy(out, head.data, head.size)
    out += head.size
    (out - 1)[0] = after and not (compare and column.before == NULL_VALUE)
    writer.cursor = out
    if not after:
        column.before = NULL_VALUE
    return 0


cdef inline bint has_bit(const uint8_t *bits, Py_ssize_t i) noexcept nogil:
    return bits[i >> 3] >> (i & 7) & 1


# --- the plan of a table ---------------------------------------------------------------------------------------------

# There may be many thousands: each has all its texts in one piece, and the garbage collector need not look at them.
@cython.no_gc
cdef class TablePlan:
    """How the rows of one version of a table become Canal's RowData."""

    def __init__(self, table_map, columns, uint32_t number, options=None, uint16_t slot_flags=0, error=None):
        """Plan for a TableMap and its columns in the table's order.

        `columns` may be empty for an excluded table, and for one that cannot be read: that has `error`, the text of the
        DecodeError for each of its row events. Raises DecodeError naming table and column if the columns are not those
        of the event, or have a type or character set that cannot be read.
        """
        cdef Py_ssize_t i
        cdef size_t base
        cdef Planned *planned
        cdef bytearray encoded
        options = options or PlanOptions()
        self.schema = table_map.schema
        self.table = table_map.table
        self.number = number
        self.excluded = options.excluded
        self.column_count = len(table_map.types)
        self.slot_flags = slot_flags
        self.error = error
        self.delivered_schema, self.delivered_table = options.delivered or (self.schema, self.table)
        encoded = bytearray(text_field(SCHEMA_NAME, self.delivered_schema))
        encoded += text_field(TABLE_NAME, self.delivered_table)
        if options.delivered is not None:
            pair = text_field(KEY, props.TABLE) + text_field(PAIR_VALUE, f"{self.schema}.{self.table}")
            encoded += message_field(HEADER_PROPS, pair)
        if slot_flags & Flag.FUTURE_SCHEMA and not options.strict_canal:
            pair = text_field(KEY, props.SCHEMA) + text_field(PAIR_VALUE, props.FROM_THE_FUTURE)
            encoded += message_field(HEADER_PROPS, pair)
        self.names_size = len(encoded)
        self.encoded = bytes(encoded)
        self.size = OBJECTS_SIZE + len(encoded)
        self.row_width = 1
        if self.excluded or error is not None:
            return
        if len(columns) != self.column_count:
            raise DecodeError(
                f"{self.schema}.{self.table}: the event has {self.column_count} columns, but the known schema has "
                f"{len(columns)}"
            )
        if options.masks:
            self.masker = Masker(options.mask_secret)
        self.columns = <Planned *>calloc(max(self.column_count, 1), sizeof(Planned))
        if self.columns == NULL:
            raise MemoryError
        for i in range(self.column_count):
            column = columns[i]
            try:
                self.plan_column(&self.columns[i], encoded, i, column, table_map.types[i], table_map.metas[i], options)
            except DecodeError as reason:
                raise DecodeError(f"{self.schema}.{self.table}.{column.name}: {reason}") from None
        self.encoded = bytes(encoded)
        self.size += self.column_count * sizeof(Planned) + len(encoded)
        base = <size_t>PyBytes_AS_STRING(self.encoded)
        for i in range(self.column_count):  # places become pointers, now that nothing moves any more
            planned = &self.columns[i]
            planned.value.data = <const uint8_t *>(base + <size_t>planned.value.data)
            planned.promoted.data = <const uint8_t *>(base + <size_t>planned.promoted.data)
            planned.null.data = <const uint8_t *>(base + <size_t>planned.null.data)
            planned.name = <const uint8_t *>(base + <size_t>planned.name)
        if options.where is not None:
            try:
                self.condition = Condition(options.where, table_map, columns, options.time_zone)
            except ConfigError as reason:
                raise ConfigError(f"sluice.instance.filter.where: {reason}") from None
            self.splits = options.splits
            for i in range(self.column_count):
                self.condition.set_width(i, &self.columns[i].field, self.columns[i].is_json)

    def __dealloc__(self):
        free(self.columns)

    cdef int plan_column(
        self, Planned *planned, bytearray encoded, Py_ssize_t index, column, int code, int meta, options
    ) except -1:
        # Long: what a column becomes is decided in one place, step after step, by what the steps before have found.
        cdef Field *field = &planned.field
        cdef int sql_type
        cdef int promoted
        cdef int null
        word = column.data_type
        if word not in WIRE_TYPES:
            raise DecodeError(f"the type {column.mysql_type} is unknown")
        if code not in WIRE_TYPES[word]:
            raise DecodeError(f"the event has the type {type_name(code)}, but the known schema has {column.mysql_type}")
        field.is_strict = options.strict_canal
        null = promoted = 0
        if code in INTEGERS:
            field.size, sql_type, promoted = INTEGERS[code]
            field.decode = values.unsigned_integer if column.is_unsigned else values.signed_integer
        elif code in TEMPORALS:
            sql_type = self.plan_temporal(field, column, code, meta, options)
        elif code == Type.FLOAT:
            field.size, sql_type, field.decode = 4, SqlType.REAL, values.float_number
        elif code == Type.DOUBLE:
            field.size, sql_type, field.decode = 8, SqlType.DOUBLE, values.double_number
        elif code == Type.NEWDECIMAL:
            field.precision, field.scale = meta >> 8, meta & 0xFF
            if not (0 < field.precision <= MAX_PRECISION and field.scale <= field.precision):
                raise DecodeError(f"DECIMAL({field.precision},{field.scale}) is not a type of MySQL")
            field.size = values.decimal_bytes(field.precision, field.scale)
            sql_type, field.decode = SqlType.DECIMAL, values.decimal_number
        elif code == Type.BIT:
            if not 0 < meta <= 64:
                raise DecodeError(f"BIT({meta}) is not a type of MySQL")
            field.size, sql_type, field.decode = (meta + 7) // 8, SqlType.BIT, values.bits
        elif code == Type.ENUM or code == Type.SET:
            if not 0 < meta <= 8:
                raise DecodeError(f"an ENUM or SET of {meta} bytes is not a type of MySQL")
            field.size, field.decode = meta, values.mask
            sql_type, null = SqlType.INTEGER, SqlType.INTEGER
            if code == Type.SET:
                sql_type, null = SqlType.BIT, SqlType.BLOB
        else:
            sql_type = self.plan_string(field, column, code, meta, options)
            if code == Type.JSON:
                null = SqlType.OTHER
                planned.is_json = True
        name = column.name.upper()
        if not name:
            planned.is_delivered = False
        elif options.fields is not None:
            planned.is_delivered = name in options.fields
        else:
            planned.is_delivered = name not in options.black_fields
        if name in options.masks:
            mask = options.masks[name]
            if column.is_key and planned.is_delivered:
                raise ConfigError(
                    f"sluice.instance.filter.mask: {self.schema}.{self.table}.{column.name} belongs to the primary key,"
                    " which consumers need as it is: remove this mask, or leave the column out"
                    " (canal.instance.filter.black.field)"
                )
            planned.mask = KINDS[mask.kind]
            planned.mask_characters = mask.characters
            shown = mask.shown(column)
            if shown.mysql_type != column.mysql_type:
                sql_type = SqlType.VARCHAR if planned.mask == FIRST_MASK else SqlType.CHAR
                null = promoted = 0
                column = shown
        planned.value = planned.promoted = add_head(encoded, index, column, sql_type, False)
        if promoted:
            planned.promoted = add_head(encoded, index, column, promoted, False)
        planned.null = add_head(encoded, index, column, null or sql_type, True)
        data = column.name.encode("utf-8", "replace")
        planned.name_size = <uint32_t>len(data)
        before_name = uint_field(INDEX, index) + uint_field(SQL_TYPE, sql_type) + uint_field(NAME, len(data))
        planned.name = planned.value.data + len(before_name)
        return 0

    cdef int plan_temporal(self, Field *field, column, int code, int meta, options) except? 0:
        """The sqlType."""
        if code in (Type.TIME2, Type.DATETIME2, Type.TIMESTAMP2):
            if meta > 6:
                raise DecodeError(f"a time with {meta} digits of a second's fraction is not a type of MySQL")
            field.digits = meta
        elif code in (Type.TIME, Type.DATETIME, Type.TIMESTAMP) and FRACTION.search(column.mysql_type):
            raise DecodeError(
                f"its values are in MariaDB's own layout of {column.mysql_type}, written while mysql56_temporal_format "
                "was OFF; ALTER TABLE ... FORCE with it ON converts them"
            )
        field.size = TEMPORALS[code] + (field.digits + 1) // 2
        if code in (Type.TIMESTAMP, Type.TIMESTAMP2):
            self.zone = values.get_zone(options.time_zone)
            field.context = &self.zone.transitions
            field.decode = values.old_timestamp if code == Type.TIMESTAMP else values.timestamp
            return SqlType.TIMESTAMP
        if code in (Type.DATETIME, Type.DATETIME2):
            field.decode = values.old_datetime if code == Type.DATETIME else values.datetime
            return SqlType.TIMESTAMP
        if code in (Type.TIME, Type.TIME2):
            field.decode = values.old_time if code == Type.TIME else values.time
            return SqlType.TIME
        if code == Type.YEAR:
            field.decode = values.year
            return SqlType.VARCHAR
        field.decode = values.date
        return SqlType.DATE

    cdef int plan_string(self, Field *field, column, int code, int meta, options) except? 0:
        """What has a length before it; the sqlType."""
        cdef charsets.Charset charset
        cdef int sql_type
        word = column.data_type
        strict = options.strict_canal
        if code in (Type.STRING, Type.VARCHAR, Type.VAR_STRING, Type.VARCHAR_COMPRESSED):
            field.length_bytes = 1 if meta < 256 else 2
            sql_type = SqlType.CHAR if code == Type.STRING else SqlType.VARCHAR
            is_text = "binary" not in column.mysql_type.lower() if strict else word in ("char", "varchar")
        else:
            if not 0 < meta <= 4:
                raise DecodeError(f"a length of {meta} bytes is not one that MySQL writes")
            field.length_bytes = meta
            sql_type = SqlType.CLOB
            is_text = (column.mysql_type.lower() if strict else word) in TEXTS
        if code == Type.JSON:
            field.decode = json_document
            field.digits = 0 if options.whole_doubles else 1
            return SqlType.VARCHAR
        if word in ("inet4", "inet6", "uuid"):
            if meta != (4 if word == "inet4" else 16):
                raise DecodeError(f"the event has {meta} bytes for the type {word}")
            field.decode = values.inet4 if word == "inet4" else values.inet6 if word == "inet6" else values.uuid
            return SqlType.CHAR
        if is_text:
            name = options.connection_charset if strict else column.charset
            if name is None:
                raise DecodeError("its character set is not known")
            charset = charsets.get_charset(name)
            field.decode = charset.decode
            field.context = charset.table
        else:
            field.decode = values.binary
            sql_type = SqlType.BLOB
        if code in (Type.VARCHAR_COMPRESSED, Type.BLOB_COMPRESSED):
            field.inner = field.decode
            field.decode = values.compressed
        return sql_type

    # --- rows --------------------------------------------------------------------------------------------------------

    cdef int64_t encode_rows(
        self,
        SegmentWriter writer,
        Scratch scratch,
        const uint8_t *data,
        const uint8_t **first,
        const uint8_t *end,
        int kind,
        const uint8_t *present_before,
        const uint8_t *present_after,
        bint partial_json,
    ) except -1 nogil:
        cdef int64_t rows = 0
        cdef int given = kind if self.condition is None else self.row_kind
        cdef size_t row
        cdef size_t size
        cdef size_t width
        cdef size_t image
        cdef const uint8_t *start = data
        cdef const uint8_t *p = first[0]
        cdef uint8_t *at
        if self.columns == NULL:
            with gil:
                raise DecodeError(self.error or f"{self.schema}.{self.table}: the table is excluded")
        while p < end:
            writer.reserve(1 + LENGTH_MAX)
            row = writer.cursor - writer.entry
            writer.cursor += 1 + self.row_width
            data = p
            image = writer.cursor - writer.entry
            if kind != INSERT:
                p = self.encode_image(
                    writer, &scratch.value, start, p, end, present_before, False, kind == UPDATE, False, False
                )
            if given != kind and given == INSERT:  # the image before was read for what the one after lacks
                writer.cursor = writer.entry + image
            if given != kind and given == DELETE:
                p = self.row_end
            elif kind != DELETE:
                p = self.encode_image(
                    writer, &scratch.value, start, p, end, present_after, True, given == UPDATE, given != kind,
                    partial_json,
                )
            if p == data:
                self.fail(-1, p - start, b"a row of no columns has no end")
            # The length of most rows takes as many bytes as that of the previous row; else the row is moved.
            size = writer.cursor - writer.entry - row - 1 - self.row_width
            width = varint_size(size)
            if width != self.row_width:
                writer.reserve(LENGTH_MAX)
                at = writer.entry + row + 1
                memmove(at + width, at + self.row_width, size)
                writer.cursor = at + width + size
                self.row_width = width
            at = writer.entry + row
            at[0] = ROW_DATAS
            put_varint(at + 1, size)
            rows += 1
            if self.condition is not None and p < end:
                p = self.find_row(
                    scratch, start, p, end, kind, present_before, present_after, partial_json
                )
                if self.row_kind != given:
                    break
        first[0] = p
        return rows

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
    ) except NULL nogil:
        cdef int given = self.row_kind
        cdef const uint8_t *p = first
        if not self.is_judged(present_before, present_after):
            return end
        while p < end and self.row_kind == given:
            p = self.find_row(
                scratch, data, self.row_end, end, kind, present_before, present_after, partial_json
            )
        return p

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
    ) except NULL nogil:
        cdef const uint8_t *present = present_after if kind == INSERT else present_before
        cdef const uint8_t *row
        cdef int truth
        cdef bint matched
        self.row_kind = kind
        if not self.is_judged(present_before, present_after):
            return p
        while p < end:
            row = p
            p = self.condition.scan(p, end, present, False)
            truth = IS_FALSE if p == NULL else self.condition.judge(&scratch.value)
            matched = truth == IS_TRUE
            if kind == UPDATE and (self.splits or not matched) and p != NULL and truth >= 0:
                p = self.condition.scan(p, end, present_after, partial_json)
                truth = IS_FALSE if p == NULL else self.condition.judge(&scratch.value)
                if self.splits:
                    self.row_kind = UPDATE
                    self.row_end = p
                    if matched and truth != IS_TRUE:
                        self.row_kind = DELETE
                    elif truth == IS_TRUE and not matched and self.is_complete(present_before, present_after):
                        self.row_kind = INSERT
            if p == NULL or truth < 0:
                self.fail(self.condition.error_column, row - data, self.condition.error)
            if p == row:
                self.fail(-1, p - data, b"a row of no columns has no end")
            if matched or truth == IS_TRUE:
                return row
        return end

    cdef bint is_judged(self, const uint8_t *present_before, const uint8_t *present_after) noexcept nogil:
        """Whether the images have the columns of the condition."""
        return (
            self.condition.is_judged(present_before, present_before)
            and self.condition.is_judged(present_after, present_before)
        )

    cdef bint is_complete(self, const uint8_t *present_before, const uint8_t *present_after) noexcept nogil:
        """Whether each column that is delivered is in one of the two images."""
        cdef Py_ssize_t i
        for i in range(self.column_count):
            if self.columns[i].is_delivered and not has_bit(present_after, i) and not has_bit(present_before, i):
                return False
        return True

    cdef int put_remark(
        self, SegmentWriter writer, int kind, const uint8_t *present_before, const uint8_t *present_after
    ) except -1 nogil:
        if self.condition is None:
            return 0
        if not self.is_judged(present_before, present_after):
            writer.reserve(UNJUDGED_SIZE)
            writer.cursor = put_raw(writer.cursor, UNJUDGED_DATA, UNJUDGED_SIZE)
        elif self.splits and kind == UPDATE and not self.is_complete(present_before, present_after):
            writer.reserve(UNSPLIT_SIZE)
            writer.cursor = put_raw(writer.cursor, UNSPLIT_DATA, UNSPLIT_SIZE)
        return 0

    cdef int put_absent(
        self, SegmentWriter writer, const uint8_t *present_before, const uint8_t *present_after
    ) except -1 nogil:
        cdef Planned *column
        cdef uint8_t *p
        cdef uint8_t *pair
        cdef uint8_t *names
        cdef size_t bound = 64
        cdef Py_ssize_t i
        cdef bint before, after
        cdef bint is_partial = False
        if self.columns == NULL:
            return 0
        for i in range(self.column_count):
            before = has_bit(present_before, i)
            after = has_bit(present_after, i)
            if self.columns[i].is_delivered:
                is_partial = is_partial or not (before and after)
                if not before and not after:
                    bound += 6 * self.columns[i].name_size + 3
        if not is_partial:
            return 0
        writer.reserve(bound)
        p = writer.cursor
        p[0] = ROW_CHANGE_PROPS
        pair = p + 1
        p = put_bytes(pair + LENGTH_MAX, KEY, ABSENT_KEY.data, ABSENT_KEY.size)
        p[0] = PAIR_VALUE
        names = p + 1
        p = names + LENGTH_MAX
        p[0] = b"["
        p += 1
        for i in range(self.column_count):
            column = &self.columns[i]
            before = has_bit(present_before, i)
            after = has_bit(present_after, i)
            if column.is_delivered and not before and not after:
                if (p - 1)[0] != b"[":
                    p[0] = b","
                    p += 1
                p = put_json_text(p, column.name, column.name_size)
        p[0] = b"]"
        p += 1
        put_padded_varint(names, p - names - LENGTH_MAX, LENGTH_MAX)
        put_padded_varint(pair, p - pair - LENGTH_MAX, LENGTH_MAX)
        writer.cursor = p
        return 0

    # One image of a row; the place after it. `compare`: the row is an update, so the texts of the image before are
    # remembered, and those of the image after are compared with them. `fill`: what it lacks is taken from the image
    # before, which was encoded last.
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
    ) except NULL nogil:
        # Long: the loop over columns is the hottest of all; parts of it as functions would pass its dozen variables.
        cdef Planned *columns = self.columns
        cdef Planned *column
        cdef Head *head
        cdef const uint8_t *nulls = p
        cdef const uint8_t *data
        cdef uint8_t *out
        cdef Py_ssize_t i
        cdef Py_ssize_t bit = 0
        cdef size_t size
        cdef size_t body
        cdef const uint8_t *partial_bits = NULL
        cdef Py_ssize_t json_bit = 0
        cdef bint is_partial
        cdef int status
        cdef bint updated
        if partial_json:
            if end == p or p[0] > 1:
                self.fail(-1, p - start, b"the options of a partial update are unknown")
            p += 1
            if (p - 1)[0]:
                for i in range(self.column_count):
                    json_bit += columns[i].is_json
                if end - p < (json_bit + 7) >> 3:
                    self.fail(-1, p - start, b"the event ends within the bits of partial columns")
                partial_bits = p
                p += (json_bit + 7) >> 3
                json_bit = 0
            nulls = p
        for i in range(self.column_count):
            bit += has_bit(present, i)
        if end - p < (bit + 7) >> 3:
            self.fail(-1, p - start, b"the event ends within a row's null bits")
        p += (bit + 7) >> 3
        bit = 0
        for i in range(self.column_count):
            column = &columns[i]
            is_partial = False
            if partial_bits != NULL and column.is_json:
                is_partial = has_bit(partial_bits, json_bit)
                json_bit += 1
            if not has_bit(present, i):
                if not after:
                    column.before = ABSENT
                if not fill or column.before == ABSENT or not column.is_delivered:
                    continue
                if column.before == NULL_VALUE:
                    put_null(writer, column, after, compare)
                    continue
                data = column.document
                size = column.document_size
            else:
                bit += 1
                if has_bit(nulls, bit - 1):
                    if column.is_delivered:
                        put_null(writer, column, after, compare)
                    continue
                if column.field.length_bytes:
                    if end - p < column.field.length_bytes:
                        self.fail(i, p - start, b"the event ends within the length of a value")
                    if column.field.length_bytes == 1:
                        size = p[0]
                    elif column.field.length_bytes == 2:
                        size = le16(p)
                    elif column.field.length_bytes == 3:
                        size = le24(p)
                    else:
                        size = le32(p)
                    p += column.field.length_bytes
                else:
                    size = column.field.size
                if <size_t>(end - p) < size:
                    self.fail(i, p - start, b"the event ends within a value")
                data = p
                p += size
                if not column.is_delivered:
                    continue
            if column.mask == NULL_MASK:
                put_null(writer, column, after, compare)
                continue
            value.promoted = False
            if is_partial and column.before >= 0 and (fill or not column.field.is_strict):
                status = changed_document(&column.field, column.document, column.document_size, data, size, value)
            elif is_partial:
                if column.mask != NO_MASK:
                    self.fail(i, data - start, b"differences of a document cannot be masked")
                status = differences_expression(&column.field, column.name, column.name_size, data, size, value)
            else:
                status = column.field.decode(&column.field, data, size, value)
            if status < 0:
                self.fail(i, data - start, value.error)
            if column.mask != NO_MASK and not self.masker.apply(
                column.mask, column.mask_characters, &value.text, &value.size
            ):
                self.fail(i, data - start, b"SHA-256 failed")
            head = &column.promoted if value.promoted else &column.value
            body = head.size + 1 + varint_size(value.size) + value.size
            writer.reserve(1 + LENGTH_MAX + body)
            out = writer.cursor
            out[0] = AFTER_COLUMNS if after else BEFORE_COLUMNS
            out = put_varint(out + 1, body)
            memcpy(out, head.data, head.size)
            out += head.size
            updated = after
            if compare and after and column.before >= 0 and column.before_size == value.size:
                updated = memcmp(writer.entry + column.before, value.text, value.size) != 0
            (out - 1)[0] = updated
            out[0] = VALUE
            out = put_varint(out + 1, value.size)
            memcpy(out, value.text, value.size)
            if not after:
                column.before = out - writer.entry
                column.before_size = value.size
                column.document = data
                column.document_size = size
            writer.cursor = out + value.size
        return p

    cdef int fail(self, Py_ssize_t column, Py_ssize_t offset, const char *reason) except -1 nogil:
        """Raises DecodeError."""
        cdef Planned *planned
        with gil:
            name = f"{self.schema}.{self.table}"
            if column >= 0:
                planned = &self.columns[column]
                name += "." + (<const char *>planned.name)[:planned.name_size].decode("utf-8")
            raise DecodeError(f"{name}: {reason.decode()}, at byte {offset} of the event's rows")

    def encode(self, bytes data not None, int kind, bytes present_before=None, bytes present_after=None, *,
               bint partial_json=False):
        """The `rowDatas` fields of a RowChange for the rows of one event, for tests and comparisons.

        `data` are the rows alone; a bitmap of columns that is not given stands for all columns. Of an update that is
        split: those up to the first that is given as another kind. Raises DecodeError.
        """
        cdef SegmentWriter writer = SegmentWriter(SegmentPool())
        cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef const uint8_t *first = p
        cdef bytes everything = b"\xff" * ((self.column_count + 7) // 8)
        cdef bytes before = everything if present_before is None else present_before
        cdef bytes after = everything if present_after is None else present_after
        if min(len(before), len(after)) < len(everything):
            raise ValueError("a bitmap of columns is too short")
        cdef const uint8_t *bits_before = <const uint8_t *>PyBytes_AS_STRING(before)
        cdef const uint8_t *bits_after = <const uint8_t *>PyBytes_AS_STRING(after)
        try:
            if self.condition is not None:
                first = self.find_row(Scratch(), p, p, p + len(data), kind, bits_before, bits_after, partial_json)
                self.put_remark(writer, self.row_kind, bits_before, bits_after)
            self.encode_rows(
                writer, Scratch(), p, &first, p + len(data), kind, bits_before, bits_after, partial_json
            )
            return PyBytes_FromStringAndSize(<const char *>writer.entry, writer.cursor - writer.entry)
        finally:
            writer.close()


# Width on the wire, sqlType, sqlType of an unsigned value that does not fit the signed type
cdef dict INTEGERS = {
    Type.TINY: (1, SqlType.TINYINT, SqlType.SMALLINT),
    Type.SHORT: (2, SqlType.SMALLINT, SqlType.INTEGER),
    Type.INT24: (3, SqlType.INTEGER, SqlType.INTEGER),
    Type.LONG: (4, SqlType.INTEGER, SqlType.BIGINT),
    Type.LONGLONG: (8, SqlType.BIGINT, SqlType.DECIMAL),
}
# Width on the wire without a fraction
cdef dict TEMPORALS = {
    Type.DATE: 3,
    Type.NEWDATE: 3,
    Type.TIME: 3,
    Type.TIME2: 3,
    Type.DATETIME: 8,
    Type.DATETIME2: 5,
    Type.TIMESTAMP: 4,
    Type.TIMESTAMP2: 4,
    Type.YEAR: 1,
}
cdef tuple TEXTS = ("tinytext", "text", "mediumtext", "longtext")
cdef tuple STRINGS = (Type.VARCHAR, Type.VAR_STRING, Type.VARCHAR_COMPRESSED)
cdef tuple BLOBS = (Type.BLOB, Type.BLOB_COMPRESSED)
FRACTION = re.compile(r"\([1-6]\)")

# The types that the event may have for a column that the schema describes by a word
cdef dict WIRE_TYPES = {
    "tinyint": (Type.TINY,),
    "smallint": (Type.SHORT,),
    "mediumint": (Type.INT24,),
    "int": (Type.LONG,),
    "bigint": (Type.LONGLONG,),
    "float": (Type.FLOAT,),
    "double": (Type.DOUBLE,),
    "decimal": (Type.NEWDECIMAL,),
    "bit": (Type.BIT,),
    "year": (Type.YEAR,),
    "date": (Type.DATE, Type.NEWDATE),
    "time": (Type.TIME, Type.TIME2),
    "datetime": (Type.DATETIME, Type.DATETIME2),
    "timestamp": (Type.TIMESTAMP, Type.TIMESTAMP2),
    "char": (Type.STRING,),
    "binary": (Type.STRING,),
    "varchar": STRINGS,
    "varbinary": STRINGS,
    "enum": (Type.ENUM,),
    "set": (Type.SET,),
    "json": (Type.JSON,),
    "vector": (Type.VECTOR, Type.VARCHAR),
    "inet4": (Type.STRING,),
    "inet6": (Type.STRING,),
    "uuid": (Type.STRING,),
    **dict.fromkeys((*TEXTS, "tinyblob", "blob", "mediumblob", "longblob"), BLOBS),
    **dict.fromkeys(
        ("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
         "geometrycollection", "geomcollection"),
        (Type.GEOMETRY,),
    ),
}
