"""Collations of MySQL and MariaDB: how texts compare.

Binary, every `_bin`, `general_ci` of UTF-8, and `utf8mb4_0900_ai_ci`. The weights of the last two are those of the
servers: `weights.xz` is written by `scripts/generate_weights.py` from what WEIGHT_STRING says of each character.
None of them contracts several characters into one weight, so a text has the weights of its characters.

weights.xz, all integers little-endian:

    general_ci    2 bytes for each code point of the first plane: its weight - the code point; the others have 0xFFFD
    count         4 bytes: code points that have weights of their own in utf8mb4_0900_ai_ci
    gaps          4 bytes each: code points that are passed over before it
    lengths       1 byte each: how many weights it has, 0 to 8; an ignorable character has none
    weights       2 bytes each
"""

import lzma
import threading
from pathlib import Path

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc
from libc.string cimport memcmp, memcpy

from ...protocol.littleendian cimport le16, le32
from ...protocol.utf8 cimport next_point

from ...protocol.errors import DecodeError
from ..values.charset import encode

cdef enum:
    ANY = 0x110000             # of a pattern: any characters
    ONE = 0x110001             # one character
    REPLACEMENT = 0xFFFD
    HANGUL = 0xAC00            # syllables, which have the weights of their letters
    HANGUL_END = 0xD7A4
    SPACE = 0x20
    LONGEST_WEIGHTS = 15       # that a page can count

FILE = Path(__file__).with_name("weights.xz")

# By the ids that all servers share (information_schema.COLLATIONS), each with the character set of its texts. MariaDB's
# NO PAD twins have 1024 more.
BINARY = 63
UCA = 255
UTF8MB4_0900_BIN = 309
GENERAL = {33: "utf8mb3", 45: "utf8mb4"}
BIN = {
    43: "macce", 46: "utf8mb4", 47: "latin1", 50: "cp1251", 53: "macroman", 55: "utf16", 58: "cp1257", 61: "utf32",
    62: "utf16le", 64: "armscii8", 65: "ascii", 66: "cp1250", 67: "cp1256", 68: "cp866", 69: "dec8", 70: "greek",
    71: "hebrew", 72: "hp8", 73: "keybcs2", 74: "koi8r", 75: "koi8u", 77: "latin2", 78: "latin5", 79: "latin7",
    80: "cp850", 81: "cp852", 82: "swe7", 83: "utf8mb3", 84: "big5", 85: "euckr", 86: "gb2312", 87: "gbk", 88: "sjis",
    89: "tis620", 90: "ucs2", 91: "ujis", 93: "geostd8", 96: "cp932", 98: "eucjpms", 249: "gb18030",
}
CHARSETS = {**GENERAL, **BIN, BINARY: "binary", UCA: "utf8mb4", UTF8MB4_0900_BIN: "utf8mb4"}
NO_PAD = 1024
KNOWN = (
    "only those of utf8mb4_general_ci, utf8mb3_general_ci, utf8mb4_0900_ai_ci, and of collations that end in _bin;"
    " write one after the column: name COLLATE utf8mb4_bin = 'x'"
)
UTF8 = ("utf8mb4", "utf8mb3")
WIDE = ("ucs2", "utf16", "utf16le", "utf32")
MULTI_BYTE = ("big5", "cp932", "eucjpms", "euckr", "gb18030", "gb2312", "gbk", "sjis", "ujis")

NAMES = {f"{charset}_bin": number for number, charset in BIN.items()}
NAMES |= {f"{charset}_general_ci": number for number, charset in GENERAL.items()}
NAMES |= {"_nopad_".join(name.rsplit("_", 1)): number + NO_PAD for name, number in NAMES.items()}
NAMES |= {"utf8mb4_0900_ai_ci": UCA, "utf8mb4_0900_bin": UTF8MB4_0900_BIN}

cdef dict COLLATIONS = {}          # programs point into them: they are never replaced or removed
cdef dict WEIGHTS = {}             # ... and into these: bool (is_uca) -> address
cdef object MAKING = threading.Lock()


cdef class Collation:
    """How texts of a column compare; kept for the life of the process."""

    def __init__(self, int number):
        """The collation of that id. Raises DecodeError for one that is not known here."""
        padded = number - NO_PAD if number - NO_PAD in BIN or number - NO_PAD in GENERAL else number
        if padded not in CHARSETS:
            raise DecodeError(f"texts of the collation number {number} cannot be compared here, {KNOWN}")
        self.charset = CHARSETS[padded]
        self.pads = padded == number and number not in (BINARY, UCA, UTF8MB4_0900_BIN)
        self.is_single_byte = self.charset not in (*UTF8, *WIDE, *MULTI_BYTE)
        self.manner = AS_POINTS if self.charset in WIDE else AS_BYTES
        if padded in GENERAL or padded == UCA:
            self.manner = BY_WEIGHTS
            self.weights = get_weights(padded == UCA)

    cdef bytes prepare(self, str text):
        """A constant, for `compare`. Raises DecodeError if the character set lacks one of its characters."""
        cdef bytes data
        if self.manner == AS_BYTES:
            return encode(text, self.charset)
        encode(text, self.charset)
        data = text.encode()
        if self.manner == AS_POINTS:
            return data
        return put_weights(self.weights, data)

    cdef bytes prepare_pattern(self, str pattern):
        """A pattern of LIKE, for `matches`: four bytes for each of its characters. Raises DecodeError."""
        if self.charset in MULTI_BYTE:
            raise DecodeError(f"LIKE is not supported for texts in {self.charset}")
        items = []
        plain = iter(pattern)
        for char in plain:
            if char == "%" or char == "_":
                items.append(ANY if char == "%" else ONE)
                continue
            if char == "\\":
                char = next(plain, "\\")
            encoded = encode(char, self.charset)
            items.append(encoded[0] if self.is_single_byte else ord(char))
        return b"".join(it.to_bytes(4, "little") for it in items)

    def compare(self, str text not None, str other not None):
        """Below 0, 0 or above 0, for tests."""
        cdef bytes data = encode(text, self.charset) if self.manner == AS_BYTES else text.encode()
        cdef bytes constant = self.prepare(other)
        return compare(
            self, <const uint8_t *>PyBytes_AS_STRING(data), len(data),
            <const uint8_t *>PyBytes_AS_STRING(constant), len(constant),
        )

    def matches(self, str text not None, str pattern not None):
        """Whether the text matches a pattern of LIKE, for tests."""
        cdef bytes data = encode(text, self.charset) if self.is_single_byte else text.encode()
        cdef bytes prepared = self.prepare_pattern(pattern)
        return matches(
            self, <const uint8_t *>PyBytes_AS_STRING(data), len(data),
            <const uint32_t *>PyBytes_AS_STRING(prepared), len(prepared) // 4,
        )


def number_of(name):
    """The id of a collation by its name. Raises DecodeError for one that is not known here."""
    known = "utf8mb3_" + name[5:] if name.startswith("utf8_") else name
    if known not in NAMES:
        raise DecodeError(f"texts of the collation {name} cannot be compared here, {KNOWN}")
    return NAMES[known]


cdef Collation get_collation(int number):
    """The collation, made once per process."""
    if number not in COLLATIONS:
        with MAKING:
            if number not in COLLATIONS:
                COLLATIONS[number] = Collation(number)
    return COLLATIONS[number]


# --- weights ---------------------------------------------------------------------------------------------------------

cdef object LOADING = threading.Lock()


cdef Weights *get_weights(bint is_uca) except NULL:
    """The weights, read once per process."""
    with LOADING:
        if is_uca not in WEIGHTS:
            WEIGHTS[is_uca] = <size_t>load_weights(is_uca)
    return <Weights *><size_t>WEIGHTS[is_uca]


cdef Weights *load_weights(bint is_uca) except NULL:
    cdef bytes data = lzma.decompress(FILE.read_bytes())
    cdef const uint8_t *general = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef const uint8_t *gaps = general + 0x20000 + 4
    cdef uint32_t count = le32(gaps - 4)
    cdef const uint8_t *lengths = gaps + 4 * count
    cdef const uint8_t *weights = lengths + count
    cdef Weights *made = <Weights *>calloc(1, sizeof(Weights))
    cdef uint16_t *pool = <uint16_t *>calloc(max(0x10000, (PyBytes_GET_SIZE(data) - (weights - general)) // 2), 2)
    cdef uint32_t point = 0
    cdef uint32_t offset = 0
    cdef uint32_t i, j
    if made == NULL or pool == NULL:
        raise MemoryError
    made.pool = pool
    made.is_uca = is_uca
    if not is_uca:
        for point in range(0x10000):
            pool[point] = <uint16_t>(le16(general + 2 * point) + point)
            set_weights(made, point, point, 1)
        return made
    for i in range(count):
        point += le32(gaps + 4 * i)
        for j in range(lengths[i]):
            pool[offset + j] = le16(weights + 2 * (offset + j))
        set_weights(made, point, offset, lengths[i])
        offset += lengths[i]
        point += 1
    return made


cdef int set_weights(Weights *weights, uint32_t point, uint32_t offset, uint32_t count) except -1:
    cdef uint32_t *page = <uint32_t *>weights.pages[point >> 8]
    cdef int i
    if page == NULL:
        page = <uint32_t *>calloc(256, sizeof(uint32_t))
        if page == NULL:
            raise MemoryError
        for i in range(256):
            page[i] = LONGEST_WEIGHTS  # none of its own
        weights.pages[point >> 8] = page
    page[point & 0xFF] = offset << 4 | count
    return 0


# What has no weights of its own has two that follow from its code point (UCA 9.0.0, 10.1.3); Hangul syllables have
# those of their two or three letters.

cdef inline bint is_unified(uint32_t point) noexcept nogil:
    """Whether it is one of the Han characters that sort first."""
    return 0x4E00 <= point <= 0x9FD5 or (
        0xFA0E <= point <= 0xFA29 and (
            point == 0xFA0E or point == 0xFA0F or point == 0xFA11 or point == 0xFA13 or point == 0xFA14
            or point == 0xFA1F or point == 0xFA21 or point == 0xFA23 or point == 0xFA24 or point >= 0xFA27
        )
    )


cdef inline bint is_extended(uint32_t point) noexcept nogil:
    """Whether it is one of the other Han characters."""
    return (
        0x3400 <= point <= 0x4DB5 or 0x20000 <= point <= 0x2A6D6 or 0x2A700 <= point <= 0x2B734
        or 0x2B740 <= point <= 0x2B81D or 0x2B820 <= point <= 0x2CEA1
    )


cdef int own_weights(const Weights *weights, uint32_t point, const uint16_t **found) noexcept nogil:
    """How many weights a character has of its own; -1: they follow from its code point."""
    cdef const uint32_t *page = weights.pages[point >> 8]
    cdef uint32_t entry
    if page == NULL:
        return -1
    entry = page[point & 0xFF]
    if entry & 15 == LONGEST_WEIGHTS:
        return -1
    found[0] = weights.pool + (entry >> 4)
    return entry & 15


cdef int weights_of(const Weights *weights, uint32_t point, uint16_t *made, const uint16_t **found) noexcept nogil:
    """How many weights a character has; they are at `found`, or in `made`, which has room for LONGEST_WEIGHTS."""
    cdef int count = own_weights(weights, point, found)
    cdef uint32_t[3] letters
    cdef const uint16_t *of_letter = NULL
    cdef int i
    if count >= 0:
        return count
    found[0] = made
    if not weights.is_uca:
        made[0] = REPLACEMENT
        return 1
    if HANGUL <= point < HANGUL_END:
        point -= HANGUL
        count = 0
        letters[0], letters[1], letters[2] = 0x1100 + point // 588, 0x1161 + point % 588 // 28, 0x11A7 + point % 28
        for i in range(2 if letters[2] == 0x11A7 else 3):
            if own_weights(weights, letters[i], &of_letter) == 1:
                made[count] = of_letter[0]
                count += 1
        return count
    made[0] = (0xFB40 if is_unified(point) else 0xFB80 if is_extended(point) else 0xFBC0) + <uint16_t>(point >> 15)
    made[1] = <uint16_t>(point & 0x7FFF | 0x8000)
    if 0x17000 <= point <= 0x18AFF:
        made[0] = 0xFB00
        made[1] = <uint16_t>(point - 0x17000 | 0x8000)
    return 2


cdef bytes put_weights(const Weights *weights, bytes text):
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(text)
    cdef const uint8_t *end = p + len(text)
    cdef uint16_t[LONGEST_WEIGHTS] made
    cdef const uint16_t *found = NULL
    cdef int count
    result = bytearray()
    while p < end:
        count = weights_of(weights, next_point(&p), made, &found)
        result += (<const char *>found)[:2 * count]
    return bytes(result)


# --- comparing -------------------------------------------------------------------------------------------------------

cdef inline int compare_numbers(size_t one, size_t other) noexcept nogil:
    return (one > other) - (one < other)


cdef int compare(
    Collation collation, const uint8_t *text, size_t size, const uint8_t *constant, size_t constant_size
) noexcept nogil:
    cdef size_t common, i
    cdef int found
    if collation.manner == BY_WEIGHTS:
        return compare_weights(collation.weights, collation.pads, text, size, constant, constant_size)
    common = min(size, constant_size)
    found = memcmp(text, constant, common)
    if found or size == constant_size or not collation.pads:
        return found or compare_numbers(size, constant_size)
    for i in range(common, size):
        if text[i] != SPACE:
            return compare_numbers(text[i], SPACE)
    for i in range(common, constant_size):
        if constant[i] != SPACE:
            return compare_numbers(SPACE, constant[i])
    return 0


cdef int compare_weights(
    const Weights *weights, bint pads, const uint8_t *text, size_t size, const uint8_t *constant, size_t constant_size
) noexcept nogil:
    cdef const uint8_t *end = text + size
    cdef const uint8_t *constant_end = constant + constant_size
    cdef uint16_t[LONGEST_WEIGHTS] made
    cdef const uint16_t *found = NULL
    cdef uint16_t other
    cdef int count, i
    while text < end:
        count = weights_of(weights, next_point(&text), made, &found)
        for i in range(count):
            if constant < constant_end:
                memcpy(&other, constant, 2)
                constant += 2
            elif pads:
                other = SPACE
            else:
                return 1
            if found[i] != other:
                return compare_numbers(found[i], other)
    if constant < constant_end and not pads:
        return -1
    while constant < constant_end:
        memcpy(&other, constant, 2)
        constant += 2
        if other != SPACE:
            return compare_numbers(SPACE, other)
    return 0


cdef bint is_same(const Weights *weights, uint32_t one, uint32_t other) noexcept nogil:
    """Whether two characters are equal."""
    cdef uint16_t[LONGEST_WEIGHTS] made_one
    cdef uint16_t[LONGEST_WEIGHTS] made_other
    cdef const uint16_t *found_one = NULL
    cdef const uint16_t *found_other = NULL
    cdef int count
    if one == other or weights == NULL:
        return one == other
    count = weights_of(weights, one, made_one, &found_one)
    return (
        count == weights_of(weights, other, made_other, &found_other)
        and memcmp(found_one, found_other, 2 * count) == 0
    )


cdef bint matches(
    Collation collation, const uint8_t *text, size_t size, const uint32_t *pattern, size_t pattern_size
) noexcept nogil:
    cdef const uint8_t *end = text + size
    cdef const uint32_t *pattern_end = pattern + pattern_size
    cdef const uint32_t *after_any = NULL      # where to go on in the pattern when the last % stands for more
    cdef const uint8_t *resume = NULL          # ... and in the text
    cdef const uint8_t *next
    cdef uint32_t point
    while text < end:
        if pattern < pattern_end and pattern[0] == ANY:
            pattern += 1
            after_any, resume = pattern, text
            continue
        next = text
        if collation.is_single_byte:
            point = text[0]
            next += 1
        else:
            point = next_point(&next)
        if pattern < pattern_end and (
            pattern[0] == ONE or is_same(collation.weights, point, pattern[0])
        ):
            pattern += 1
            text = next
            continue
        if after_any == NULL:
            return False
        if collation.is_single_byte:
            resume += 1
        else:
            next_point(&resume)
        pattern, text = after_any, resume
    while pattern < pattern_end and pattern[0] == ANY:
        pattern += 1
    return pattern == pattern_end
