"""Conditions on rows, judged on entries: what clients subscribe with.

An entry has texts. They are turned back into the bytes of the binlog, so that the same condition is compiled and judged
as for a destination (`program`). Of a table, one program is made for each form of the columns that a condition names:
the first row of an entry shows which one counts.
"""

import re
from types import SimpleNamespace

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cython.operator cimport dereference
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memset
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from ...protocol.canal.cutting cimport cut_entry
from ...protocol.canal.entry cimport (
    Cell,
    Entry,
    Fields,
    Prop,
    checked,
    fields_of,
    get_cell,
    get_entry,
    malformed,
    next_body_prop,
    next_column,
    next_entry,
    next_row,
    text_of,
)
from ...protocol.canal.tags cimport INDEX, KEY, PAIR_VALUE, ROW_CHANGE_PROPS
from ...protocol.numbers cimport parse_number
from ...protocol.utf8 cimport is_utf8, next_point
from ...protocol.wire cimport Span, get_varint, is_same, message_field, span_at, text_field
from ...store.verdicts cimport Pinned, PinnedEntry, Verdict
from ..values.binary cimport Value
from .collation cimport AS_BYTES, Collation
from .program cimport IN_SET, IS_TRUE, Condition, Step

from ...protocol import props
from ...protocol.errors import ConfigError, DecodeError, FilterError
from ..columns import SourceColumn
from ..values.charset import encode
from ..values.types import Type
from .condition import leaves

cdef enum Conversion:
    AS_IS                  # UTF-8
    ENCODED                # the bytes of the column's character set
    OCTETS                 # bytes, which entries have as characters of ISO-8859-1
    SIGNED_INTEGER
    UNSIGNED_INTEGER
    DECIMAL_NUMBER
    FLOAT_NUMBER
    DOUBLE_NUMBER
    YEAR_NUMBER
    DATE_TEXT
    DATETIME_TEXT
    TIME_TEXT

cdef enum:
    DIGITS = 65                # of the longest DECIMAL
    FIRST_SUPPLEMENTARY = 189000   # see charset.pyx
    FORMS = 1024               # of tables, whose programs are kept
    MOST_COLUMNS = 4096        # of a table

cdef uint8_t[10] GROUP_BYTES = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4]
cdef uint32_t[7] POWERS = [1, 10, 100, 1000, 10000, 100000, 1000000]
UTF8 = ("utf8mb4", "utf8mb3", "binary", "ascii")
NUMBERS = re.compile(r"\(\s*([0-9]+)\s*(?:,\s*([0-9]+)\s*)?\)")
INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")

cdef bytes UNJUDGED = message_field(
    ROW_CHANGE_PROPS, text_field(KEY, props.WHERE) + text_field(PAIR_VALUE, props.UNJUDGED)
)
cdef bytes WHERE_NAME = props.WHERE.encode()
cdef bytes UNJUDGED_TEXT = props.UNJUDGED.encode()
cdef Span WHERE_KEY = span_at(PyBytes_AS_STRING(WHERE_NAME), PyBytes_GET_SIZE(WHERE_NAME))
cdef Span UNJUDGED_VALUE = span_at(PyBytes_AS_STRING(UNJUDGED_TEXT), PyBytes_GET_SIZE(UNJUDGED_TEXT))
cdef Span UNJUDGED_FIELD = span_at(PyBytes_AS_STRING(UNJUDGED), PyBytes_GET_SIZE(UNJUDGED))
cdef Span NOTHING = span_at(NULL, 0)


cdef struct Used:              # a column that a condition names
    int64_t index
    string name
    string mysql_type
    int conversion
    int precision              # of a DECIMAL
    int digits                 # after the point
    const unordered_map[uint32_t, uint32_t] *encoder


# --- texts to bytes --------------------------------------------------------------------------------------------------

cdef class Encoder:
    """The bytes of the characters of a character set, by their code points; kept for the life of the process."""
    cdef unordered_map[uint32_t, uint32_t] characters


cdef dict ENCODERS = {}


cdef Encoder get_encoder(str charset):
    cdef Encoder made
    if charset not in ENCODERS:
        made = Encoder.__new__(Encoder)
        for point in range(0x10000):
            if 0xD800 <= point < 0xE000:
                continue
            try:
                made.characters[point] = <uint32_t>int.from_bytes(encode(chr(point), charset), "big")
            except DecodeError:
                continue
        ENCODERS.setdefault(charset, made)  # another thread may have been faster, and its one is used already
    return ENCODERS[charset]


cdef inline void put_big_endian(string *out, uint64_t number, int size) noexcept nogil:
    while size > 0:
        size -= 1
        out.push_back(<char>(number >> (8 * size) & 0xFF))


cdef int encode_text(string *out, Span text, const unordered_map[uint32_t, uint32_t] *encoder) noexcept nogil:
    """`encoder` NULL: ISO-8859-1. What the character set lacks becomes the byte 0xFF."""
    cdef const uint8_t *p = text.data
    cdef const uint8_t *end = p + text.size
    cdef uint32_t point, number
    while p < end:
        point = next_point(&p)
        if encoder == NULL:
            out.push_back(<char>point)
            continue
        if point >= 0x10000:                       # only gb18030 has these
            number = point - 0x10000 + FIRST_SUPPLEMENTARY
            put_big_endian(out, 0x81 + number // 12600, 1)
            put_big_endian(out, 0x30 + number // 1260 % 10, 1)
            put_big_endian(out, 0x81 + number // 10 % 126, 1)
            put_big_endian(out, 0x30 + number % 10, 1)
            continue
        number = 0xFF
        if encoder.count(point):
            number = dereference(encoder.find(point)).second
        put_big_endian(out, number, 1 if number < 1 << 8 else 2 if number < 1 << 16 else 3 if number < 1 << 24 else 4)
    return 0


cdef int read_digits(const uint8_t **p, const uint8_t *end, int least, int most, uint32_t *number) noexcept nogil:
    """How many digits there were; -1 for another number of them."""
    cdef int count = 0
    number[0] = 0
    while p[0] < end and count < most and 48 <= p[0][0] <= 57:
        number[0] = 10 * number[0] + (p[0][0] - 48)
        p[0] += 1
        count += 1
    return count if count >= least else -1


cdef int read_mark(const uint8_t **p, const uint8_t *end, uint8_t mark) noexcept nogil:
    if p[0] == end or p[0][0] != mark:
        return -1
    p[0] += 1
    return 0


cdef int read_fraction(const uint8_t **p, const uint8_t *end, uint32_t *microseconds) noexcept nogil:
    """The rest of a time."""
    cdef int count
    microseconds[0] = 0
    if p[0] == end:
        return 0
    if read_mark(p, end, b"."):
        return -1
    count = read_digits(p, end, 1, 6, microseconds)
    if count < 0 or p[0] != end:
        return -1
    microseconds[0] *= POWERS[6 - count]
    return 0


cdef int read_clock(const uint8_t **p, const uint8_t *end, uint32_t *seconds, uint32_t *microseconds) noexcept nogil:
    """Hours << 12 | minutes << 6 | seconds."""
    cdef uint32_t hour, minute, second
    if (
        read_digits(p, end, 2, 3, &hour) < 0 or read_mark(p, end, b":")
        or read_digits(p, end, 2, 2, &minute) < 0 or read_mark(p, end, b":")
        or read_digits(p, end, 2, 2, &second) < 0
    ):
        return -1
    seconds[0] = hour << 12 | minute << 6 | second
    return read_fraction(p, end, microseconds)


cdef int put_temporal(string *out, const Used *used, Span text) noexcept nogil:
    cdef const uint8_t *p = text.data
    cdef const uint8_t *end = p + text.size
    cdef int width = (used.digits + 1) // 2
    cdef uint32_t year, month, day
    cdef uint32_t seconds = 0
    cdef uint32_t microseconds = 0
    cdef uint64_t number
    cdef bint is_negative
    if used.conversion == TIME_TEXT:
        is_negative = p < end and p[0] == b"-"
        p += is_negative
        if read_clock(&p, end, &seconds, &microseconds):
            return -1
        number = <uint64_t>seconds << 8 * width | microseconds // POWERS[6 - 2 * width]
        put_big_endian(
            out, (<uint64_t>0x800000 << 8 * width) + (0 - number if is_negative else number), 3 + width
        )
        return 0
    if (
        read_digits(&p, end, 4, 4, &year) < 0 or read_mark(&p, end, b"-")
        or read_digits(&p, end, 2, 2, &month) < 0 or read_mark(&p, end, b"-")
        or read_digits(&p, end, 2, 2, &day) < 0
    ):
        return -1
    if used.conversion == DATE_TEXT:
        number = year << 9 | month << 5 | day
        for width in range(3):
            out.push_back(<char>(number >> (8 * width) & 0xFF))
        return 0 if p == end else -1
    if read_mark(&p, end, b" ") or read_clock(&p, end, &seconds, &microseconds):
        return -1
    put_big_endian(out, <uint64_t>1 << 39 | <uint64_t>(year * 13 + month) << 22 | day << 17 | seconds, 5)
    put_big_endian(out, microseconds // POWERS[6 - 2 * width], width)
    return 0


cdef int put_decimal(string *out, const Used *used, Span text) noexcept nogil:
    """Packs it as `values.put_packed_decimal` describes."""
    cdef uint8_t[2 * DIGITS] digits
    cdef const uint8_t *p = text.data
    cdef const uint8_t *end = p + text.size
    cdef const uint8_t *point
    cdef int whole = used.precision - used.digits
    cdef int place = 0
    cdef int count, i
    cdef uint8_t mask = 0
    cdef size_t first = out.size()
    cdef uint32_t group
    memset(digits, 0, sizeof(digits))
    if p < end and p[0] == b"-":
        mask = 0xFF
        p += 1
    while p < end and p[0] == b"0":
        p += 1
    point = p
    while point < end and point[0] != b".":
        point += 1
    if point - p > whole:
        return -1
    place = whole - <int>(point - p)
    while p < end:
        if p != point:
            if not 48 <= p[0] <= 57 or place == used.precision:
                return -1
            digits[place] = p[0] - 48
            place += 1
        p += 1
    place = 0
    while place < used.precision:
        if place < whole:
            count = (whole - place) % 9 or 9
        else:
            count = min(used.precision - place, 9)
        group = 0
        for i in range(count):
            group = 10 * group + digits[place + i]
        put_big_endian(out, group, GROUP_BYTES[count])
        place += count
    for i in range(<int>first, <int>out.size()):
        out[0][i] = <char>(<uint8_t>out[0][i] ^ mask)
    out[0][first] = <char>(<uint8_t>out[0][first] ^ 0x80)
    return 0


cdef int convert(string *out, const Used *used, Span text) noexcept nogil:
    """Writes the bytes that the binlog has for a text; -1 if it is not one of that type."""
    cdef const char *p = <const char *>text.data
    cdef const char *end = p + text.size
    cdef int64_t signed_number = 0
    cdef uint64_t number = 0
    cdef float single = 0
    cdef double double_number = 0
    out.clear()
    if used.conversion == ENCODED or used.conversion == OCTETS:
        return encode_text(out, text, used.encoder)
    if used.conversion == DECIMAL_NUMBER:
        return put_decimal(out, used, text)
    if used.conversion == SIGNED_INTEGER:
        out.append(<const char *>&signed_number, 8)
        return 0 if parse_number[int64_t](p, end, <int64_t *>out.data()) else -1
    if used.conversion == UNSIGNED_INTEGER:
        out.append(<const char *>&number, 8)
        return 0 if parse_number[uint64_t](p, end, <uint64_t *>out.data()) else -1
    if used.conversion == YEAR_NUMBER:
        if not parse_number[uint64_t](p, end, &number) or number and not 1900 < number < 2156:
            return -1
        out.push_back(<char>(number - 1900 if number else 0))
        return 0
    if used.conversion == FLOAT_NUMBER:
        out.append(<const char *>&single, 4)
        return 0 if parse_number[float](p, end, <float *>out.data()) else -1
    if used.conversion == DOUBLE_NUMBER:
        out.append(<const char *>&double_number, 8)
        return 0 if parse_number[double](p, end, <double *>out.data()) else -1
    return put_temporal(out, used, text)


def layout_of(column):
    """(conversion, type in the binlog, its number there, digits after the point, its column) of one in an entry."""
    word = column.data_type
    found = NUMBERS.search(column.mysql_type)
    first, second = (int(it or 0) for it in found.groups()) if found else (0, 0)
    if word in INTEGERS:
        conversion = UNSIGNED_INTEGER if column.is_unsigned else SIGNED_INTEGER
        return conversion, Type.LONGLONG, 0, 0, column
    if word == "bit":
        return UNSIGNED_INTEGER, Type.LONGLONG, 0, 0, SourceColumn(column.name, "bigint unsigned")
    if word == "enum":
        return UNSIGNED_INTEGER, Type.ENUM, 8, 0, column
    if word == "decimal":
        precision, scale = (first, second) if 0 < first <= DIGITS and second <= first else (DIGITS, 30)
        return DECIMAL_NUMBER, Type.NEWDECIMAL, precision << 8 | scale, scale, column
    if word == "float":
        return FLOAT_NUMBER, Type.FLOAT, 4, 0, column
    if word == "double":
        return DOUBLE_NUMBER, Type.DOUBLE, 8, 0, column
    if word == "year":
        return YEAR_NUMBER, Type.YEAR, 0, 0, column
    if word == "date":
        return DATE_TEXT, Type.DATE, 0, 0, column
    if word == "time":
        return TIME_TEXT, Type.TIME2, min(first, 6), min(first, 6), column
    if word in ("datetime", "timestamp"):  # the texts of both are local times
        return DATETIME_TEXT, Type.DATETIME2, min(first, 6), min(first, 6), column
    if word in ("binary", "varbinary") or word.endswith("blob"):
        return OCTETS, Type.VARCHAR, first, 0, column
    if word in ("char", "varchar") or word.endswith("text"):
        return AS_IS, Type.VARCHAR, 0, 0, column
    return AS_IS, Type.JSON, 4, 0, column


def check_condition(test, str schema, str table, columns, collations):
    """Compile a condition for the columns that a table has. Raises FilterError.

    `columns`: SourceColumn as they are delivered. `collations`: for each of them the name, None for none; empty if the
    binlog does not say them.
    """
    known = {column.name.upper(): (index, column) for index, column in enumerate(columns)}
    names = dict.fromkeys(leaf.column.upper() for leaf in leaves(test))
    for leaf in leaves(test):
        if leaf.column.upper() not in known:
            raise FilterError(f"{schema}.{table}.{leaf.column}: the table has no such column that is delivered")
    try:
        (<Program>Program.__new__(Program)).fill(test, schema, table, [known[it] for it in names], collations)
    except (ConfigError, DecodeError) as error:
        raise FilterError(str(error)) from None


# --- judging ---------------------------------------------------------------------------------------------------------

@cython.no_gc
cdef class Program:
    """A condition for one form of a table."""
    cdef Condition condition       # None: the table has none
    cdef vector[Used] used         # by the places of the condition
    cdef vector[int] place_of      # by the index of a column; -1
    cdef vector[string] values
    cdef list owned
    cdef str name                  # of the table

    cdef int fill(self, test, str schema, str table, columns, collations) except -1:
        """`columns`: (index, SourceColumn) of those that the condition names, as far as the rows have them."""
        cdef Used used
        cdef Py_ssize_t i
        cdef Step *step
        self.owned = []
        self.name = f"{schema}.{table}"
        self.values.resize(len(columns))
        layouts = [layout_of(column) for _, column in columns]
        numbers = tuple(collations[index] if index < len(collations) else None for index, _ in columns)
        described = SimpleNamespace(
            schema=schema,
            table=table,
            types=[it[1] for it in layouts],
            metas=[it[2] for it in layouts],
            collations=numbers,
            label_collations=numbers,
        )
        self.condition = Condition(test, described, [it[4] for it in layouts], None, True)
        for (index, column), (conversion, _, meta, digits, _) in zip(columns, layouts):
            used.index = index
            used.name = column.name.encode()
            used.mysql_type = column.mysql_type.encode()
            used.conversion = conversion
            used.precision = meta >> 8
            used.digits = digits
            used.encoder = NULL
            if <Py_ssize_t>self.place_of.size() <= index:
                self.place_of.resize(index + 1, -1)
            self.place_of[index] = <int>self.used.size()
            self.used.push_back(used)
        if self.condition.missing is None:  # so the places of the condition are those of the columns
            for i in range(self.condition.step_count):
                step = &self.condition.steps[i]
                if step.collation != NULL and step.operation != IN_SET:
                    self.set_encoder(&self.used[step.place], <Collation>step.collation)
        return 0

    cdef int set_encoder(self, Used *used, Collation collation) except -1:
        """Makes texts of a column what the collation compares."""
        cdef Encoder encoder
        if used.conversion == OCTETS or collation.manner != AS_BYTES or collation.charset in UTF8:
            if used.conversion == ENCODED:
                raise ConfigError("COLLATE names two character sets")
            return 0
        encoder = get_encoder(collation.charset)
        if used.conversion == ENCODED and used.encoder != &encoder.characters:
            raise ConfigError("COLLATE names two character sets")
        self.owned.append(encoder)
        used.conversion = ENCODED
        used.encoder = &encoder.characters
        return 0

    cdef bint fits(self, Span row) noexcept nogil:
        """Whether the first image of a row has the columns in this form."""
        cdef Fields fields = fields_of(row)
        cdef Span column
        cdef Cell cell
        cdef size_t found = 0
        cdef int place, image
        cdef int first = 0
        while True:
            image = next_column(&fields, &column)
            if image <= 0 or first and image != first:
                return image >= 0 and found == self.used.size() and self.condition.missing is None
            first = image
            place = self.find(column)
            if place < 0:
                continue
            if (
                not get_cell(column, &cell)
                or not is_text(cell.name, &self.used[place].name)
                or not is_text(cell.mysql_type, &self.used[place].mysql_type)
            ):
                return False
            found += 1

    cdef int find(self, Span column) noexcept nogil:
        """The place of a column; -1 if the condition does not name it."""
        cdef uint64_t index = 0
        cdef Cell cell
        if column.size and column.data[0] == INDEX:
            if get_varint(column.data + 1, column.data + column.size, &index) == NULL:
                return -1
        elif get_cell(column, &cell):
            index = <uint64_t>cell.index
        return self.place_of[index] if index < self.place_of.size() else -1

    cdef bint judge(self, Span row, Value *value) except -1 nogil:
        """Whether one of the images of a row matches."""
        cdef Fields fields = fields_of(row)
        cdef Span column
        cdef Cell cell
        cdef int place, image
        cdef int before = 0
        while True:
            image = checked(next_column(&fields, &column))
            if image != before and before:
                if self.is_true(value):
                    return True
            if image == 0:
                return False
            before = image
            place = self.find(column)
            if place < 0:
                continue
            if not get_cell(column, &cell):
                malformed()
            if cell.is_null:
                self.condition.places[place].data = NULL
                continue
            if self.used[place].conversion <= OCTETS and not is_utf8(cell.value.data, cell.value.size):
                self.fail(place, cell.value)
            if self.used[place].conversion == AS_IS:
                self.condition.places[place].data = cell.value.data if cell.value.data != NULL else EMPTY
                self.condition.places[place].size = cell.value.size
                continue
            if convert(&self.values[place], &self.used[place], cell.value):
                self.fail(place, cell.value)
            self.condition.places[place].data = <const uint8_t *>self.values[place].data()
            self.condition.places[place].size = self.values[place].size()

    cdef bint is_true(self, Value *value) except -1 nogil:
        cdef int truth = self.condition.judge(value)
        if truth < 0:
            with gil:
                raise FilterError(f"{self.name}: {self.condition.error.decode()}")
        return truth == IS_TRUE

    cdef int fail(self, int place, Span text) except -1 nogil:
        with gil:
            column = self.used[place].name.decode()
            kind = self.used[place].mysql_type.decode()
            raise FilterError(f"{self.name}.{column}: {text_of(text)[:100]!r} is not a value of the type {kind}")


cdef const uint8_t *EMPTY = <const uint8_t *>b""


cdef inline bint is_text(Span one, const string *other) noexcept nogil:
    return one.size == other.size() and memcmp(one.data, other.data(), one.size) == 0


@cython.no_gc
cdef class Judge:
    """Judges the entries of a ring. Not to be shared between threads."""
    cdef object conditions
    cdef dict programs                             # by table and form; FilterError where there can be none
    cdef list newest                               # Program, by the number of the table
    cdef vector[void *] known                      # the same; NULL: the table has not come yet
    cdef Value value
    cdef vector[uint8_t] kept                      # for each row of an entry whether it is
    cdef string cuts

    def __init__(self, conditions):
        """`conditions`: `sluice.instance.conditions.where.Conditions`."""
        self.conditions = conditions
        self.programs = {}
        self.newest = []
        memset(&self.value, 0, sizeof(Value))

    def __dealloc__(self):
        free(self.value.scratch)
        free(self.value.inflated)

    def judge(self, Pinned pinned not None):
        """Judges pinned slots, without the interpreter's lock."""
        self.cuts.clear()
        while pinned.verdicts.size() < pinned.entries.size():
            try:
                with nogil:
                    self.judge_entries(pinned)
            except (DecodeError, FilterError) as error:
                pinned.errors.append((pinned.start + <int64_t>pinned.verdicts.size(), FilterError(str(error))))
                pinned.verdicts.push_back(whole(&pinned.entries[pinned.verdicts.size()]))
        pinned.cuts = PyBytes_FromStringAndSize(self.cuts.data(), self.cuts.size())

    cdef int judge_entries(self, Pinned pinned) except -1 nogil:
        cdef size_t i
        cdef Verdict verdict
        for i in range(pinned.verdicts.size(), pinned.entries.size()):
            verdict = whole(&pinned.entries[i])
            if pinned.entries[i].length:
                self.judge_entry(pinned, &pinned.entries[i], &verdict)
            pinned.verdicts.push_back(verdict)
        return 0

    cdef int judge_entry(self, Pinned pinned, const PinnedEntry *entry, Verdict *verdict) except -1 nogil:
        cdef Span framed = span_at(<const char *>entry.data, entry.length)
        cdef void *program = self.known[entry.table] if entry.table < self.known.size() else NULL
        cdef Fields fields = fields_of(framed)
        cdef Span message, row
        cdef Entry found
        cdef size_t count = 0
        cdef bint is_judged, matches
        if program != NULL and (<Program>program).condition is None:
            return 0
        if not checked(next_entry(&fields, &message)) or not get_entry(message, &found):
            malformed()
        fields = fields_of(found.body)
        if not checked(next_row(&fields, &row)):
            return 0
        if program == NULL or not (<Program>program).fits(row):
            with gil:
                program = self.choose(pinned.tables[entry.table], entry.table, row)
            if (<Program>program).condition is None:
                return 0
        is_judged = (<Program>program).condition.missing is None
        self.kept.clear()
        while True:
            matches = not is_judged or (<Program>program).judge(row, &self.value)
            self.kept.push_back(matches)
            count += matches
            if not checked(next_row(&fields, &row)):
                break
        if count == 0:
            verdict.length = verdict.rows = 0
        elif not is_judged:
            if not has_remark(&found):
                self.cut(framed, count, UNJUDGED_FIELD, verdict)
        elif count < self.kept.size():
            self.cut(framed, count, NOTHING, verdict)
        return 0

    cdef int cut(self, Span framed, size_t count, Span more, Verdict *verdict) except -1 nogil:
        cdef size_t before = self.cuts.size()
        cut_entry(&self.cuts, framed, self.kept, count, more)
        verdict.data = <const uint8_t *>before + 1     # until `Verdicts.take` knows where they are
        verdict.length = <uint32_t>(self.cuts.size() - before)
        verdict.rows = <uint32_t>count
        return 0

    cdef void *choose(self, tuple table, uint32_t number, Span row) except NULL:
        """The program for a table in the form that the first image of a row has. Raises FilterError."""
        cdef Program program
        cdef Fields fields = fields_of(row)
        cdef Span column
        cdef Cell cell
        cdef int image
        cdef int first = 0
        schema, name, *more = table
        test = self.conditions.of(schema, name)
        columns = {}
        names = [] if test is None else list(dict.fromkeys(leaf.column.upper() for leaf in leaves(test)))
        while names:
            image = checked(next_column(&fields, &column))
            if image == 0 or first and image != first:
                break
            first = image
            if not get_cell(column, &cell):
                malformed()
            text = text_of(cell.name)
            if text.upper() in names and 0 <= cell.index < MOST_COLUMNS:
                columns[text.upper()] = cell.index, SourceColumn(text, text_of(cell.mysql_type))
        form = table, tuple(columns[it] for it in names if it in columns)
        known = self.programs.get(form)
        if known is None:
            program = known = Program.__new__(Program)
            try:
                if test is not None:
                    program.fill(test, schema, name, form[1], more[0] if more else ())
            except (ConfigError, DecodeError) as error:
                known = FilterError(str(error))
            if len(self.programs) == FORMS:
                self.programs.clear()
            self.programs[form] = known
        if isinstance(known, FilterError):
            raise FilterError(str(known))
        program = known
        while number >= self.known.size():
            self.newest.append(None)
            self.known.push_back(NULL)
        self.newest[number] = program
        self.known[number] = <void *>program
        return <void *>program


cdef inline Verdict whole(const PinnedEntry *entry) noexcept nogil:
    cdef Verdict verdict
    verdict.data = NULL
    verdict.length = entry.slot_length
    verdict.rows = entry.rows
    return verdict


cdef bint has_remark(const Entry *entry) except -1 nogil:
    """Whether the destination has said of the entry that it was not judged."""
    cdef Fields body = fields_of(entry.body)
    cdef Prop prop
    while checked(next_body_prop(entry, &body, &prop)):
        if is_same(prop.key, WHERE_KEY) and is_same(prop.value, UNJUDGED_VALUE):
            return True
    return False
