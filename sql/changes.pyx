"""Changes in Arrow arrays, row by row where Arrow would need many passes: their keys, their columns, their SQL.

Everything runs without the GIL but what makes Python objects. The offsets of an array are checked once, before its
bytes are looked at, for arrays come from other processes.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, UINT64_MAX, int32_t, int64_t, uint8_t, uint64_t, uintptr_t
from libc.string cimport memcmp, memset
from libcpp.string cimport string
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

import pyarrow as pa


cdef extern from *:
    """
    #include <cstdint>
    #include <cstring>

    static inline const uint8_t *find_byte(const uint8_t *data, int byte, size_t size) {
        return static_cast<const uint8_t *>(memchr(data, byte, size));
    }
    """
    const uint8_t *find_byte(const uint8_t *data, int byte, size_t size) noexcept nogil


class UnfitError(Exception):
    """A value is not what its column takes."""


cdef enum Way:                                     # as statements.Way
    INTEGER
    UNSIGNED
    BYTES
    QUOTED
    NUMBER


cdef struct Lists:
    # Where each value of a list, a map or a string begins in what it is made of.
    const int32_t *offsets
    const uint8_t *valid
    int64_t first                                  # bit of `valid` that is the first value's
    int64_t count


cdef struct Texts:
    Lists places
    const uint8_t *data


cdef struct Term:
    # A part of each row's text: what is the same in all, and then perhaps a value.
    const char *constant
    size_t size
    Texts texts
    const int32_t *indices                         # of the values of each row in `texts`; NULL: there is no value
    int way
    size_t width                                   # bytes that a value is filled up to with zeros


cdef struct Failure:
    size_t term
    int64_t index


cdef const uint8_t *numbers_of(array, int width) except? NULL:
    """Return the numbers of an array of integers of ``width`` bytes."""
    data = array.buffers()[1]
    cdef int64_t first = array.offset
    if data is None or data.size < (first + len(array)) * width:
        raise ValueError("an array is shorter than it says")
    return <const uint8_t *><uintptr_t>data.address + first * width


cdef int read_lists(array, int64_t size, Lists *out) except -1:
    """Look at lists that have ``size`` values in all; checks the offsets."""
    valid, offsets = array.buffers()[:2]
    cdef int64_t i
    out.first = array.offset
    out.count = len(array)
    out.valid = NULL
    out.offsets = NULL
    if not out.count:
        return 0
    if offsets is None or offsets.size < (out.first + out.count + 1) * 4:
        raise ValueError("the offsets of an array are fewer than its values")
    if valid is not None and array.null_count:
        if valid.size * 8 < out.first + out.count:
            raise ValueError("the marks of an array are fewer than its values")
        out.valid = <const uint8_t *><uintptr_t>valid.address
    out.offsets = <const int32_t *><uintptr_t>offsets.address + out.first
    cdef bint in_order = out.offsets[0] >= 0 and out.offsets[out.count] <= size
    with nogil:
        for i in range(out.count):
            in_order = in_order and out.offsets[i] <= out.offsets[i + 1]
    if not in_order:
        raise ValueError("the offsets of an array point beyond its data")
    return 0


cdef int read_texts(array, Texts *out) except -1:
    data = array.buffers()[2]
    read_lists(array, 0 if data is None else data.size, &out.places)
    out.data = NULL
    if data is not None:
        out.data = <const uint8_t *><uintptr_t>data.address
    return 0


cdef inline bint is_null(const Lists *lists, int64_t i) noexcept nogil:
    cdef int64_t bit = lists.first + i
    return lists.valid != NULL and not lists.valid[bit >> 3] >> (bit & 7) & 1


cdef inline const uint8_t *text_at(const Texts *texts, int64_t i, size_t *size) noexcept nogil:
    cdef int32_t begin = texts.places.offsets[i]
    size[0] = texts.places.offsets[i + 1] - begin
    return texts.data + begin


cdef inline bint is_same_text(const Texts *texts, int64_t i, int64_t j) noexcept nogil:
    cdef size_t size, other
    cdef const uint8_t *one = text_at(texts, i, &size)
    cdef const uint8_t *two = text_at(texts, j, &other)
    return size == other and memcmp(one, two, size) == 0


cdef integers(data, type_, int width):
    return pa.Array.from_buffers(type_, len(data) // width, [None, pa.py_buffer(data)])


def is_ascending(*columns):
    """Whether rows are in the order of their columns, of integers of 64 bits, where the first one counts most."""
    cdef vector[const int64_t *] numbers
    cdef int64_t i
    cdef size_t j
    cdef int64_t count = len(columns[0])
    cdef bint found = True
    for column in columns:
        if len(column) != count or column.null_count:
            raise ValueError("a place is missing")
        numbers.push_back(<const int64_t *>numbers_of(column, 8))
    with nogil:
        for i in range(1, count):
            for j in range(numbers.size()):
                if numbers[j][i - 1] != numbers[j][i]:
                    found = numbers[j][i - 1] < numbers[j][i]
                    break
            if not found:
                break
    return found


# --- keys ------------------------------------------------------------------------------------------------------------

cdef struct Keys:
    Texts schemas
    Texts tables
    Lists lists
    Texts parts


cdef int read_keys(schemas, tables, keys, Keys *out) except -1:
    values = keys.values
    read_texts(schemas, &out.schemas)
    read_texts(tables, &out.tables)
    read_texts(values, &out.parts)
    read_lists(keys, len(values), &out.lists)
    if not out.schemas.places.count == out.tables.places.count == out.lists.count:
        raise ValueError("the columns have different lengths")
    return 0


cdef inline uint64_t mixed(uint64_t number, const Texts *texts, int64_t i) noexcept nogil:
    """FNV-1a over a text and a byte that no text has."""
    cdef size_t size, j
    cdef const uint8_t *data = text_at(texts, i, &size)
    for j in range(size):
        number = (number ^ data[j]) * <uint64_t>0x100000001B3
    return (number ^ 0xFF) * <uint64_t>0x100000001B3


cdef inline uint64_t spread(uint64_t number) noexcept nogil:
    number ^= number >> 32                         # the low bits are the better for it
    return number * <uint64_t>0xD6E8FEB86659FD93 >> 8


cdef inline uint64_t hash_of(const Keys *keys, int64_t i) noexcept nogil:
    cdef uint64_t number = <uint64_t>0xCBF29CE484222325
    cdef int64_t j
    number = mixed(mixed(number, &keys.schemas, i), &keys.tables, i)
    if not is_null(&keys.lists, i):
        for j in range(keys.lists.offsets[i], keys.lists.offsets[i + 1]):
            number = mixed(number, &keys.parts, j)
    return spread(number)


cdef bint is_same_key(const Keys *keys, int64_t i, int64_t j) noexcept nogil:
    cdef int64_t begin, other, count, k
    if not (is_same_text(&keys.schemas, i, j) and is_same_text(&keys.tables, i, j)):
        return False
    if is_null(&keys.lists, i) or is_null(&keys.lists, j):
        return is_null(&keys.lists, i) and is_null(&keys.lists, j)
    begin = keys.lists.offsets[i]
    other = keys.lists.offsets[j]
    count = keys.lists.offsets[i + 1] - begin
    if keys.lists.offsets[j + 1] - other != count:
        return False
    for k in range(count):
        if not is_same_text(&keys.parts, begin + k, other + k):
            return False
    return True


def buckets(schemas, tables, keys, int count):
    """Return the bucket of each key, below ``count``: always the same, in every process and version."""
    cdef Keys read
    cdef int64_t i
    read_keys(schemas, tables, keys, &read)
    found = PyBytes_FromStringAndSize(NULL, read.lists.count * 4)
    cdef int32_t *out = <int32_t *>PyBytes_AS_STRING(found)
    with nogil:
        for i in range(read.lists.count):
            out[i] = <int32_t>(hash_of(&read, i) % <uint64_t>count)
    return integers(found, pa.int32(), 4)


def ends_of_keys(schemas, tables, keys):
    """Return the numbers of the first and the last row of each key, where the last ones ascend.

    None when no key comes twice.
    """
    cdef Keys read
    cdef int64_t i, kept
    cdef uint64_t number, place, mask = 1024
    read_keys(schemas, tables, keys, &read)
    cdef int64_t count = read.lists.count
    while mask < <uint64_t>count * 2:
        mask *= 2
    mask -= 1
    cdef vector[int64_t] slots                     # of keys
    cdef vector[uint64_t] hashes
    cdef vector[int64_t] first, last               # of a key
    with nogil:
        slots.resize(mask + 1, -1)
        hashes.resize(mask + 1)
        for i in range(count - 1, -1, -1):
            number = hash_of(&read, i)
            place = number & mask
            while slots[place] >= 0 and not (hashes[place] == number and is_same_key(&read, last[slots[place]], i)):
                place = (place + 1) & mask
            if slots[place] < 0:
                slots[place] = last.size()
                hashes[place] = number
                last.push_back(i)
                first.push_back(i)
            else:
                first[slots[place]] = i
    kept = last.size()
    if kept == count:
        return None
    return reversed_(first), reversed_(last)


cdef reversed_(const vector[int64_t]& numbers):
    """Return numbers in the opposite order."""
    cdef size_t i
    found = PyBytes_FromStringAndSize(NULL, numbers.size() * 8)
    cdef int64_t *out = <int64_t *>PyBytes_AS_STRING(found)
    for i in range(numbers.size()):
        out[i] = numbers[numbers.size() - 1 - i]
    return integers(found, pa.int64(), 8)


cdef inline bint put_folded(uint64_t *number, const Texts *texts, int64_t at) noexcept nogil:
    """Add a text so that texts which a collation takes for equal are equal; say whether that is known of it.

    Letters that some language does not tell apart are one: i, j and y; u, v and w. Blanks at the end may not count. Of
    other characters than those of ASCII that are printed nothing is known.
    """
    cdef size_t size, i
    cdef const uint8_t *data = text_at(texts, at, &size)
    cdef uint8_t letter
    while size and data[size - 1] == 32:
        size -= 1
    for i in range(size):
        letter = data[i]
        if not 32 <= letter < 127:
            return False
        if 65 <= letter <= 90:
            letter += 32
        if letter == 106 or letter == 121:
            letter = 105
        elif letter == 118 or letter == 119:
            letter = 117
        number[0] = (number[0] ^ letter) * <uint64_t>0x100000001B3
    number[0] = (number[0] ^ 0xFF) * <uint64_t>0x100000001B3
    return True


def key_digests(images, rows, uint64_t seed, columns):
    """Return digests, 64 bits each, of the values that images have in the columns of a unique index.

    Args:
        images: of which those of some rows have the same columns in the same order.
        rows: the numbers of these rows, 32 bits each.
        seed: stands for the index.
        columns: of the index: the place of each in the images, and whether its texts are compared by a collation.

    A row with a NULL in a column has none: nothing equals it. Returns None when it is not known of a text which others
    are equal to it.
    """
    values = images.items
    cdef Lists lists
    cdef Texts texts
    cdef const int32_t *chosen = <const int32_t *>numbers_of(rows, 4)
    cdef int64_t count = len(rows)
    cdef int64_t i, place
    cdef size_t j
    cdef uint64_t number
    cdef bint is_known = True
    cdef bint has_null
    cdef bint fits = True
    cdef vector[int64_t] places
    cdef vector[uint64_t] found
    cdef vector[char] folded
    for where, is_folded in columns:
        places.push_back(where)
        folded.push_back(is_folded)
    read_texts(values, &texts)
    read_lists(images, len(values), &lists)
    with nogil:
        for i in range(count):
            if not 0 <= chosen[i] < lists.count:
                fits = False
                break
            number = seed
            has_null = False
            for j in range(places.size()):
                place = lists.offsets[chosen[i]] + places[j]
                if not lists.offsets[chosen[i]] <= place < lists.offsets[chosen[i] + 1]:
                    fits = False
                    break
                if is_null(&texts.places, place):
                    has_null = True
                elif folded[j]:
                    is_known = put_folded(&number, &texts, place) and is_known
                else:
                    number = mixed(number, &texts, place)
            if not fits:
                break
            if not has_null:
                found.push_back(spread(number))
    if not fits:
        raise ValueError("a column is not in the images")
    if not is_known:
        return None
    return PyBytes_FromStringAndSize(<const char *>found.data(), found.size() * 8)


# --- columns ---------------------------------------------------------------------------------------------------------

def kinds(images, rows):
    """Tell apart the images of some rows that have other columns, or another order of them.

    ``rows``: numbers of rows, 32 bits each. For each kind the names of its columns and its rows.
    """
    names = images.keys
    cdef Lists lists
    cdef Texts texts
    cdef const int32_t *chosen = <const int32_t *>numbers_of(rows, 4)
    cdef int64_t count = len(rows)
    cdef int64_t i, j, begin, end
    cdef size_t size
    cdef int32_t kind, place
    cdef const uint8_t *data
    cdef string key
    cdef unordered_map[string, int32_t] known
    cdef vector[string] keys
    cdef vector[vector[int32_t]] places
    cdef int64_t like = -1                         # a row of the kind of the row before
    cdef bint is_like
    read_texts(names, &texts)
    read_lists(images, len(names), &lists)
    kind = 0
    with nogil:
        for i in range(count):
            place = chosen[i]
            if not 0 <= place < lists.count:
                with gil:
                    raise ValueError("a row is not of the array")
            begin = lists.offsets[place]
            end = lists.offsets[place + 1]
            is_like = like >= 0 and end - begin == lists.offsets[like + 1] - lists.offsets[like]
            if is_like:
                for j in range(begin, end):
                    if not is_same_text(&texts, j, lists.offsets[like] + j - begin):
                        is_like = False
                        break
            if not is_like:
                key.clear()
                for j in range(begin, end):
                    data = text_at(&texts, j, &size)
                    key.append(<const char *>data, size)
                    key.push_back(0)
                if known.find(key) == known.end():
                    known[key] = <int32_t>keys.size()
                    keys.push_back(key)
                    places.resize(keys.size())
                kind = known[key]
                like = place
            places[kind].push_back(place)
    found = []
    for kind in range(<int32_t>keys.size()):
        listed = PyBytes_FromStringAndSize(<const char *>places[kind].data(), places[kind].size() * 4)
        columns = keys[kind].c_str()[:keys[kind].size()].decode().split("\0")
        columns.pop()                              # what stands after the last one
        found.append((columns, integers(listed, pa.int32(), 4)))
    return found


# --- statements ------------------------------------------------------------------------------------------------------

cdef const char *DIGITS = b"0123456789ABCDEF"


cdef bint put_integer(string *out, const uint8_t *data, size_t size, bint is_signed) noexcept nogil:
    """Put the text of a number of 64 bits; say whether it is one."""
    cdef size_t begin = is_signed and size > 0 and data[0] == 45
    cdef size_t i
    cdef uint64_t number = 0
    cdef uint64_t digit
    cdef uint64_t most = UINT64_MAX if not is_signed else <uint64_t>INT64_MAX + begin
    if begin == size:
        return False
    for i in range(begin, size):
        digit = <uint64_t>data[i] - 48
        if digit > 9 or number > (most - digit) // 10:
            return False
        number = number * 10 + digit
    out.append(<const char *>data, size)
    return True


cdef void put_quoted(string *out, const uint8_t *data, size_t size) noexcept nogil:
    cdef const uint8_t *end = data + size
    cdef const uint8_t *quote
    out.push_back(39)
    while data != end:
        quote = find_byte(data, 39, end - data)
        if quote == NULL:
            out.append(<const char *>data, end - data)
            break
        out.append(<const char *>data, quote + 1 - data)
        out.push_back(39)
        data = quote + 1
    out.push_back(39)


cdef bint put_bytes(string *out, const uint8_t *data, size_t size, size_t width) noexcept nogil:
    """Put bytes, each of which is a character of the text; say whether all are."""
    cdef size_t i = 0
    cdef size_t written = 0
    cdef uint8_t byte
    out.append(b"X'", 2)
    while i < size:
        byte = data[i]
        i += 1
        if byte >= 0x80:
            if byte & 0xFC != 0xC0 or i == size:
                return False
            byte = <uint8_t>(byte << 6) | data[i] & 0x3F
            i += 1
        out.push_back(DIGITS[byte >> 4])
        out.push_back(DIGITS[byte & 15])
        written += 1
    while written < width:
        out.append(b"00", 2)
        written += 1
    out.push_back(39)
    return True


cdef bint put_row(string *out, const vector[Term] *terms, int64_t row, Failure *failure) noexcept nogil:
    """Put the text of a row; say whether its values are what their columns take."""
    cdef size_t i, size
    cdef int64_t index
    cdef const Term *term
    cdef const uint8_t *data
    cdef bint fits
    for i in range(terms.size()):
        term = &terms[0][i]
        out.append(term.constant, term.size)
        if term.indices == NULL:
            continue
        index = term.indices[row]
        if is_null(&term.texts.places, index):
            out.append(b"NULL", 4)
            continue
        data = text_at(&term.texts, index, &size)
        fits = True
        if term.way == INTEGER or term.way == UNSIGNED:
            fits = put_integer(out, data, size, term.way == INTEGER)
        elif term.way == BYTES:
            fits = put_bytes(out, data, size, term.width)
        elif term.way == QUOTED:
            put_quoted(out, data, size)
        else:
            out.append(<const char *>data, size)
        if not fits:
            failure.term = i
            failure.index = index
            return False
    return True


def statements(bytes head, terms, bytes separator, bytes tail, int64_t count, int64_t most_rows, int64_t most_bytes):
    """Return statements, each with the number of its rows: head, rows with a separator between, tail.

    Args:
        head: where every statement begins.
        terms: of the text of a row, one after the other: constant bytes, and the values after them: texts, the number
            of each row's in them, its `Way`, and the bytes that a value of bytes is filled up to; or None of all.
        separator: stands between two rows.
        tail: where every statement ends.
        count: rows in all.
        most_rows: of a statement.
        most_bytes: of a statement, unless a row alone has more.

    Raises:
        UnfitError: a value is not what its column takes: number of the term, and the text.
    """
    cdef vector[Term] read
    cdef Term one
    cdef Failure failure
    cdef int64_t row, i, values, last
    cdef string body
    cdef int64_t rows = 0
    cdef size_t size
    cdef int64_t room = most_bytes - len(head) - len(tail)
    cdef const uint8_t *data
    cdef bint fits, in_order
    cdef const char *between = PyBytes_AS_STRING(separator)
    cdef size_t between_size = len(separator)
    for constant, texts, indices, way, width in terms:
        memset(&one, 0, sizeof(one))
        one.constant = PyBytes_AS_STRING(constant)
        one.size = len(constant)
        one.way = way
        one.width = width
        if texts is not None:
            read_texts(texts, &one.texts)
            one.indices = <const int32_t *>numbers_of(indices, 4)
            values = len(texts)
            in_order = len(indices) == count
            with nogil:
                for i in range(count if in_order else 0):
                    in_order = in_order and 0 <= one.indices[i] < values
            if not in_order:
                raise ValueError("a row's value is not of the array")
        read.push_back(one)
    found = []
    row = 0
    while row < count:
        body.clear()
        rows = 0
        with nogil:
            fits = True
            last = 0
            while row < count and rows < most_rows:
                last = body.size()
                if rows:
                    body.append(between, between_size)
                fits = put_row(&body, &read, row, &failure)
                if not fits:
                    break
                if rows and <int64_t>body.size() > room:
                    body.resize(last)
                    break
                rows += 1
                row += 1
        if not fits:
            data = text_at(&read[failure.term].texts, failure.index, &size)
            raise UnfitError(failure.term, (<const char *>data)[:size].decode(errors="replace"))
        found.append((head + body.c_str()[:body.size()] + tail, rows))
    return found
