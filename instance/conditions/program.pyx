"""Conditions on rows: compiled for one version of a table, judged on the bytes of an image.

What is compared as numbers or times becomes ranges of keys (`domains`), texts are compared by their collation, and the
labels of an ENUM are compared when the condition is compiled. What the server would judge otherwise is refused then.
The steps of a condition are in postfix order, on a stack of truths.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from ...protocol.littleendian cimport le, le16, le24, le32
from ..values cimport charset as charsets
from ..values cimport binary as values
from ..values.binary cimport Field, Value, reserve
from .collation cimport AS_BYTES, Collation, compare, get_collation, matches
from .collation import number_of

from ...protocol.canal.types import labels_of
from ...protocol.errors import ConfigError, DecodeError
from ..values.types import Type
from .condition import And, Compare, In, IsNull, Like, Not, Or, leaves
from .domains import DAY, Encoding, domain_of

cdef enum:                 # `domains.Encoding`
    SIGNED = 0
    UNSIGNED = 1
    BIG_ENDIAN = 2
    YEAR = 3
    FLOAT = 4
    DOUBLE = 5
    TIMESTAMP = 6

cdef enum:
    BINARY_COLLATION = 63

cdef uint64_t SIGN = <uint64_t>1 << 63
cdef int64_t RAISED = DAY
cdef dict WANTED = {"=": 2, "<": 1, "<=": 3, ">": 4, ">=": 6}
TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
BINARIES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
COMPRESSED = (Type.VARCHAR_COMPRESSED, Type.BLOB_COMPRESSED)


cdef inline bint has_bit(const uint8_t *bits, Py_ssize_t i) noexcept nogil:
    return bits[i >> 3] >> (i & 7) & 1


# --- compiling -------------------------------------------------------------------------------------------------------

@cython.no_gc
cdef class Condition:
    """A condition on the rows of one version of a table. Not to be shared between threads."""

    def __init__(self, test, table_map, columns, time_zone, bint is_text=False):
        """Compile it for a table. Raises ConfigError, which names the column, for what cannot be judged.

        `is_text`: texts are in UTF-8 already, or, where bytes are compared, in the character set of their collation.
        """
        cdef Py_ssize_t i
        self.is_text = is_text
        self.owned = []
        self.error_column = -1
        self.column_count = len(columns)
        numbers = {columns[i].name.upper(): i for i in range(self.column_count)}
        names = list(dict.fromkeys(leaf.column.upper() for leaf in leaves(test)))
        self.missing = next((name for name in names if name not in numbers), None)
        self.widths = <Width *>calloc(max(self.column_count, 1), sizeof(Width))
        self.places = <Place *>calloc(len(names), sizeof(Place))
        self.steps = <Step *>calloc(count_steps(test), sizeof(Step))
        if self.widths == NULL or self.places == NULL or self.steps == NULL:
            raise MemoryError
        for i in range(self.column_count):
            self.widths[i].place = names.index(columns[i].name.upper()) if columns[i].name.upper() in names else -1
        if self.missing is None:
            self.add(test, table_map, columns, numbers, time_zone)

    def __dealloc__(self):
        free(self.steps)
        free(self.widths)
        free(self.places)

    cdef int add(self, test, table_map, columns, dict numbers, time_zone) except -1:
        """Adds the steps of a test."""
        cdef Py_ssize_t number
        cdef Step *step
        if isinstance(test, Not):
            self.add(test.part, table_map, columns, numbers, time_zone)
            self.step().operation = NEGATE
            return 0
        if isinstance(test, (And, Or)):
            for number, part in enumerate(test.parts):
                self.add(part, table_map, columns, numbers, time_zone)
                if number:
                    self.step().operation = ALL if isinstance(test, And) else ANY
            return 0
        number = numbers[test.column.upper()]
        step = self.step()
        step.place = self.widths[number].place
        try:
            if isinstance(test, IsNull):
                step.operation = NULLITY
            else:
                self.add_leaf(step, test, table_map, number, columns[number], time_zone)
        except (ConfigError, DecodeError) as error:
            raise ConfigError(f"{table_map.schema}.{table_map.table}.{columns[number].name}: {error}") from None
        return 0

    cdef Step *step(self) noexcept:
        """The next step."""
        self.step_count += 1
        return &self.steps[self.step_count - 1]

    cdef int add_leaf(self, Step *step, test, table_map, Py_ssize_t number, column, time_zone) except -1:
        """Completes the step of a test of one column."""
        cdef int code = table_map.types[number]
        cdef int meta = table_map.metas[number]
        word = column.data_type
        if code in COMPRESSED:
            raise ConfigError("its values are compressed: only IS NULL is supported")
        if word in TEXTS or word in BINARIES:
            collation = BINARY_COLLATION
            if word in TEXTS:
                collation = table_map.collations[number] if table_map.collations is not None else None
            self.add_text(step, test, collation_of(collation, test, column if word in TEXTS else None))
            step.width = meta if word == "binary" else 0
            if self.is_text:
                step.field.decode = NULL
            return 0
        if code == Type.ENUM:
            collation = table_map.label_collations[number] if table_map.label_collations is not None else None
            self.add_labels(step, test, column, collation_of(collation, test, column))
            return 0
        if test.collation:
            raise ConfigError("COLLATE is for texts; the column has none")
        if code in (Type.FLOAT, Type.DOUBLE) and "," in column.mysql_type:
            raise ConfigError(f"servers compare a {column.mysql_type} with a tolerance: only IS NULL is supported")
        domain = domain_of(column, code, meta) if word not in ("inet4", "inet6", "uuid") else None
        if domain is None:
            raise ConfigError(f"of the type {word} only IS NULL is supported")
        if isinstance(test, Like):
            raise ConfigError("LIKE is for texts; the column has none")
        self.add_ranges(step, test, domain)
        if domain.encoding == Encoding.TIMESTAMP:
            step.field.context = &values.get_zone(time_zone).transitions
            step.field.digits = <uint8_t>meta
        return 0

    cdef int add_ranges(self, Step *step, test, domain) except -1:
        tests = [Compare(test.column, "=", it) for it in test.constants] if isinstance(test, In) else [test]
        ranges = sorted({domain.range(it) for it in tests} - {None})
        step.encoding = domain.encoding
        step.operation = IN_WIDE_RANGES if domain.size > 8 else IN_RANGES
        step.width = domain.size if domain.size > 8 else 8
        step.count = <uint32_t>len(ranges)
        order = "big" if domain.size > 8 else "little"
        self.keep(step, b"".join(key.to_bytes(step.width, order) for it in ranges for key in it))
        return 0

    cdef int add_text(self, Step *step, test, Collation collation) except -1:
        cdef charsets.Charset charset
        self.owned.append(collation)
        step.collation = <void *>collation
        if isinstance(test, Like):
            pattern = collation.prepare_pattern(test.pattern)
            step.operation = PATTERN
            step.count = <uint32_t>(len(pattern) // 4)
            self.keep(step, pattern)
        else:
            constants = test.constants if isinstance(test, In) else [test.constant]
            prepared = [prepare(collation, it) for it in constants]
            step.operation = COMPARISON
            step.wanted = 2 if isinstance(test, In) else WANTED[test.operator]
            step.count = <uint32_t>len(prepared)
            self.keep(step, b"".join(len(it).to_bytes(4, "little") + it for it in prepared))
        if collation.manner != AS_BYTES or (step.operation == PATTERN and not collation.is_single_byte):
            charset = charsets.get_charset(collation.charset)
            step.field.decode = charset.decode
            step.field.context = charset.table
        return 0

    cdef int add_labels(self, Step *step, test, column, Collation collation) except -1:
        """Tries each label as if it were the text of a column."""
        cdef Step text
        cdef Value value
        cdef Place place
        cdef int truth
        cdef bytes encoded
        memset(&text, 0, sizeof(text))
        memset(&value, 0, sizeof(value))
        self.add_text(&text, test, collation)
        labels = ("", *labels_of(column.mysql_type))  # 0 stands for a value that was not valid
        passing = bytearray((len(labels) + 7) // 8)
        try:
            for number, label in enumerate(labels):
                encoded = charsets.encode(label, collation.charset)
                place.data, place.size = <const uint8_t *>PyBytes_AS_STRING(encoded), len(encoded)
                truth = judge_text(&text, &place, &value)
                if truth < 0:
                    raise DecodeError(value.error.decode())
                if truth == IS_TRUE:
                    passing[number >> 3] |= 1 << (number & 7)
        finally:
            free(value.scratch)
        step.operation = IN_SET
        step.count = <uint32_t>len(labels)
        self.keep(step, bytes(passing))
        return 0

    cdef int keep(self, Step *step, bytes data) except -1:
        self.owned.append(data)
        step.data = <const uint8_t *>PyBytes_AS_STRING(data)
        return 0

    cdef int set_width(self, Py_ssize_t column, const Field *field, bint is_json) except -1:
        """Says how long the values of a column are."""
        self.widths[column].size = field.size
        self.widths[column].length_bytes = field.length_bytes
        self.widths[column].is_json = is_json
        self.json_count += is_json
        return 0

    # --- judging -----------------------------------------------------------------------------------------------------

    cdef bint is_judged(self, const uint8_t *present, const uint8_t *present_before) noexcept nogil:
        cdef Py_ssize_t i
        if self.missing is not None:
            return False
        for i in range(self.column_count):
            if self.widths[i].place >= 0 and not has_bit(present, i) and not has_bit(present_before, i):
                return False
        return True

    cdef const uint8_t *scan(
        self, const uint8_t *p, const uint8_t *end, const uint8_t *present, bint partial_json
    ) noexcept nogil:
        """The layout is that of `plan.pyx`. A column that the image lacks keeps its value of the image before."""
        cdef const uint8_t *nulls
        cdef Py_ssize_t bit = 0
        cdef Py_ssize_t i
        cdef Width *width
        cdef size_t size
        self.error_column = -1
        if partial_json:
            if p == end or p[0] > 1:
                return self.fail(-1, b"the options of a partial update are unknown")
            size = (self.json_count + 7) >> 3 if p[0] else 0
            p += 1
            if <size_t>(end - p) < size:
                return self.fail(-1, b"the event ends within the bits of partial columns")
            p += size
        for i in range(self.column_count):
            bit += has_bit(present, i)
        if end - p < (bit + 7) >> 3:
            return self.fail(-1, b"the event ends within a row's null bits")
        nulls = p
        p += (bit + 7) >> 3
        bit = 0
        for i in range(self.column_count):
            if not has_bit(present, i):
                continue
            width = &self.widths[i]
            bit += 1
            if has_bit(nulls, bit - 1):
                if width.place >= 0:
                    self.places[width.place].data = NULL
                continue
            size = width.size
            if width.length_bytes:
                if end - p < width.length_bytes:
                    return self.fail(i, b"the event ends within the length of a value")
                if width.length_bytes == 1:
                    size = p[0]
                elif width.length_bytes == 2:
                    size = le16(p)
                elif width.length_bytes == 3:
                    size = le24(p)
                else:
                    size = le32(p)
                p += width.length_bytes
            if <size_t>(end - p) < size:
                return self.fail(i, b"the event ends within a value")
            if width.place >= 0:
                self.places[width.place].data = p
                self.places[width.place].size = size
            p += size
        return p

    cdef const uint8_t *fail(self, Py_ssize_t column, const char *error) noexcept nogil:
        self.error_column = column
        self.error = error
        return NULL

    cdef int judge(self, Value *value) noexcept nogil:
        cdef uint8_t[STACK] stack
        cdef int top = -1
        cdef Py_ssize_t i
        cdef Step *step
        cdef Place *place
        cdef int truth
        for i in range(self.step_count):
            step = &self.steps[i]
            if step.operation == ALL:
                top -= 1
                stack[top] = min(stack[top], stack[top + 1])
                continue
            if step.operation == ANY:
                top -= 1
                stack[top] = max(stack[top], stack[top + 1])
                continue
            if step.operation == NEGATE:
                stack[top] = IS_TRUE - stack[top]
                continue
            place = &self.places[step.place]
            if step.operation == NULLITY:
                truth = IS_TRUE if place.data == NULL else IS_FALSE
            elif place.data == NULL:
                truth = IS_UNKNOWN
            elif step.operation == IN_RANGES:
                truth = in_ranges(step, read_key(step, place))
            elif step.operation == IN_WIDE_RANGES:
                truth = in_wide_ranges(step, place.data)
            elif step.operation == IN_SET:
                truth = in_set(step, le(place.data, place.size))
            else:
                truth = judge_text(step, place, value)
                if truth < 0:
                    self.fail(-1, value.error)
                    return -1
            top += 1
            stack[top] = <uint8_t>truth
        return stack[0]


cdef Py_ssize_t count_steps(test) except -1:
    if isinstance(test, Not):
        return 1 + count_steps(test.part)
    if isinstance(test, (And, Or)):
        return len(test.parts) + sum(count_steps(part) for part in test.parts)
    return 1


cdef Collation collation_of(number, test, column):
    """The collation of a column, by id or name, or of a test that names one. column: None for one of bytes."""
    cdef Collation found
    if test.collation:
        if column is None:
            raise ConfigError("COLLATE is for texts; the column has bytes")
        found = get_collation(number_of(test.collation))
        charset = "utf8mb3" if column.charset == "utf8" else column.charset
        if charset is not None and charset != found.charset:
            raise ConfigError(f"the collation {test.collation} is not one of its character set, {charset}")
        return found
    if number is None:
        raise ConfigError(
            "the binlog does not name its collation; SET GLOBAL binlog_row_metadata = FULL makes MySQL from 8.0 on and"
            " MariaDB from 10.5 on do so; or write one after the column: name COLLATE utf8mb4_bin = 'x'"
        )
    return get_collation(number_of(number) if isinstance(number, str) else number)


cdef bytes prepare(Collation collation, constant):
    if isinstance(constant, bytes) and collation.charset == "binary":
        return constant
    if not isinstance(constant, str):
        what = "bytes" if isinstance(constant, bytes) else "a number"
        raise ConfigError(f"{what} beside texts; write a text in quotes")
    return collation.prepare(constant)


# --- values ----------------------------------------------------------------------------------------------------------

cdef inline uint64_t big_endian(const uint8_t *data, size_t size) noexcept nogil:
    cdef uint64_t number = 0
    cdef size_t i
    for i in range(size):
        number = number << 8 | data[i]
    return number


cdef inline uint64_t double_key(double number) noexcept nogil:
    """See `domains.float_key`."""
    cdef uint64_t bits
    number += 0.0  # of -0
    memcpy(&bits, &number, 8)
    return ~bits if bits >> 63 else bits | SIGN


cdef uint64_t read_key(Step *step, const Place *place) noexcept nogil:
    cdef int shift
    cdef float single
    cdef double number
    cdef uint32_t seconds
    if step.encoding == SIGNED:
        shift = 64 - 8 * <int>place.size
        return (<uint64_t>(<int64_t>(le(place.data, place.size) << shift) >> shift)) ^ SIGN
    if step.encoding == UNSIGNED:
        return le(place.data, place.size)
    if step.encoding == BIG_ENDIAN:
        return big_endian(place.data, place.size)
    if step.encoding == YEAR:
        return 1900 + place.data[0] if place.data[0] else 0
    if step.encoding == FLOAT:
        memcpy(&single, place.data, 4)
        return double_key(single)
    if step.encoding == DOUBLE:
        memcpy(&number, place.data, 8)
        return double_key(number)
    seconds = <uint32_t>big_endian(place.data, 4)
    if seconds == 0:
        return values.fraction(place.data + 4, step.field.digits)
    return <uint64_t>(values.local_seconds(&step.field, seconds) + RAISED) << 20 | values.fraction(
        place.data + 4, step.field.digits
    )


cdef int in_ranges(const Step *step, uint64_t key) noexcept nogil:
    """Pairs of the first and the last key, ascending, which do not overlap."""
    cdef uint32_t low = 0
    cdef uint32_t high = step.count
    cdef uint32_t middle
    cdef uint64_t first, last
    while low < high:
        middle = (low + high) // 2
        memcpy(&first, step.data + 16 * middle, 8)
        memcpy(&last, step.data + 16 * middle + 8, 8)
        if key < first:
            high = middle
        elif key > last:
            low = middle + 1
        else:
            return IS_TRUE
    return IS_FALSE


cdef int in_wide_ranges(const Step *step, const uint8_t *key) noexcept nogil:
    cdef uint32_t _i
    cdef const uint8_t *first = step.data
    for _i in range(step.count):
        if memcmp(key, first, step.width) >= 0 and memcmp(key, first + step.width, step.width) <= 0:
            return IS_TRUE
        first += 2 * step.width
    return IS_FALSE


cdef inline int in_set(const Step *step, uint64_t number) noexcept nogil:
    return IS_TRUE if number < step.count and has_bit(step.data, number) else IS_FALSE


cdef int judge_text(Step *step, const Place *place, Value *value) noexcept nogil:
    cdef const uint8_t *text = place.data
    cdef size_t size = place.size
    cdef const uint8_t *constant = step.data
    cdef uint32_t _i, constant_size
    cdef uint8_t *filled
    cdef int found
    if step.field.decode != NULL:
        if step.field.decode(&step.field, text, size, value):
            return -1
        text, size = value.text, value.size
    elif size < step.width:
        filled = reserve(value, step.width)
        if filled == NULL:
            return -1
        memcpy(filled, text, size)
        memset(filled + size, 0, step.width - size)
        text, size = filled, step.width
    if step.operation == PATTERN:
        return IS_TRUE if matches(
            <Collation>step.collation, text, size, <const uint32_t *>step.data, step.count
        ) else IS_FALSE
    for _i in range(step.count):
        constant_size = le32(constant)
        found = compare(<Collation>step.collation, text, size, constant + 4, constant_size)
        if step.wanted & (1 if found < 0 else 4 if found else 2):
            return IS_TRUE
        constant += 4 + constant_size
    return IS_FALSE
