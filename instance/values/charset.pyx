"""Character sets of MySQL and MariaDB: the bytes of a text to UTF-8."""

import threading

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from ...protocol.utf8 cimport is_utf8, put_utf8, skip_ascii, utf8_size
from .binary cimport Field, Value, reserve

from ...protocol.errors import DecodeError

cdef enum:
    REPLACEMENT = 0xFFFD
    FOURS = 39420              # characters of four bytes in gb18030 before those from U+10000 on ...
    FIRST_SUPPLEMENTARY = 189000  # ... which have the numbers from here on, in order


cdef struct Character:     # in UTF-8; written as four bytes; the next one overwrites those after its size
    uint8_t[3] utf8
    uint8_t size           # 0 for none


cdef struct Bytes:         # a character set of one byte per character
    Character[256] characters
    bint is_ascii_based    # the first 128 are ASCII


cdef struct Pairs:         # a character set of several bytes; the first 128 bytes are ASCII, and begin no pair
    bint has_triples
    bint has_fours
    Character[128] singles
    Character[32768] pairs     # of two bytes, by the first without its highest bit, and the second
    Character[32768] triples   # ... and after 0x8F
    uint16_t[FOURS] fours      # code points, by the number of the four bytes


cdef inline int finish(Value *value, const uint8_t *end) noexcept nogil:
    value.text = value.scratch
    value.size = end - value.scratch
    return 0


# utf8mb4 and utf8mb3 (utf8): as they are when well-formed.

cdef int utf8(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    cdef uint8_t *p
    if is_utf8(data, size):
        value.text = data
        value.size = size
        return 0
    p = reserve(value, utf8_size(data, size))
    if p == NULL:
        return -1
    return finish(value, put_utf8(p, data, size))


cdef inline uint8_t *put_character(uint8_t *p, uint32_t point) noexcept nogil:
    if point < 0x80:
        p[0] = <uint8_t>point
        return p + 1
    if point < 0x800:
        p[0] = <uint8_t>(0xC0 | point >> 6)
        p[1] = <uint8_t>(0x80 | point & 0x3F)
        return p + 2
    if point < 0x10000:
        p[0] = <uint8_t>(0xE0 | point >> 12)
        p[1] = <uint8_t>(0x80 | point >> 6 & 0x3F)
        p[2] = <uint8_t>(0x80 | point & 0x3F)
        return p + 3
    p[0] = <uint8_t>(0xF0 | point >> 18)
    p[1] = <uint8_t>(0x80 | point >> 12 & 0x3F)
    p[2] = <uint8_t>(0x80 | point >> 6 & 0x3F)
    p[3] = <uint8_t>(0x80 | point & 0x3F)
    return p + 4


# One byte per character: a table of 256 characters.

cdef int single_byte(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    cdef const Bytes *table = <const Bytes *>field.context
    cdef const uint8_t *end = data + size
    cdef const uint8_t *first = skip_ascii(data, end) if table.is_ascii_based else data
    cdef Character found
    cdef uint8_t *p
    if first == end:
        value.text = data
        value.size = size
        return 0
    p = reserve(value, 3 * size + 4)
    if p == NULL:
        return -1
    memcpy(p, data, first - data)
    p += first - data
    while first < end:
        found = table.characters[first[0]]
        memcpy(p, &found, sizeof(Character))
        p += found.size
        first += 1
    return finish(value, p)


# One or two bytes per character (after 0x8F three in ujis and eucjpms; four of some in gb18030).

cdef int multi_byte(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    cdef const Pairs *table = <const Pairs *>field.context
    cdef const uint8_t *end = data + size
    cdef const uint8_t *at = skip_ascii(data, end)
    cdef Character found
    cdef uint64_t eight
    cdef uint8_t *p
    if at == end:
        value.text = data
        value.size = size
        return 0
    p = reserve(value, 3 * size + 4)
    if p == NULL:
        return -1
    memcpy(p, data, at - data)
    p += at - data
    while at < end:
        if at[0] < 0x80:
            while end - at >= 8:
                memcpy(&eight, at, 8)
                if eight & <uint64_t>0x8080808080808080:
                    break
                memcpy(p, &eight, 8)
                p += 8
                at += 8
            while at < end and at[0] < 0x80:
                p[0] = at[0]
                p += 1
                at += 1
            continue
        if end - at >= 2:
            found = table.pairs[(at[0] & 0x7F) << 8 | at[1]]
            if found.size:
                memcpy(p, &found, sizeof(Character))
                p += found.size
                at += 2
                continue
        at = put_other(table, at, end, &p)
    return finish(value, p)


cdef const uint8_t *put_other(
    const Pairs *table, const uint8_t *at, const uint8_t *end, uint8_t **to
) noexcept nogil:
    """Writes what does not begin with a pair: a character of another size, or U+FFFD; the place after it."""
    cdef const Character *found = &table.singles[at[0] & 0x7F]
    cdef int taken = 1
    cdef uint32_t number
    if not found.size and table.has_triples and at[0] == 0x8F and end - at >= 3 and at[1] >= 0x80:
        found = &table.triples[(at[1] & 0x7F) << 8 | at[2]]
        taken = 3
    if found.size:
        memcpy(to[0], found, sizeof(Character))
        to[0] += found.size
        return at + taken
    if table.has_fours and end - at >= 4 and is_four(at):
        number = number_of_four(at)
        if number < FOURS and table.fours[number]:
            to[0] = put_character(to[0], table.fours[number])
            return at + 4
        if FIRST_SUPPLEMENTARY <= number < FIRST_SUPPLEMENTARY + 0x100000:
            to[0] = put_character(to[0], 0x10000 + number - FIRST_SUPPLEMENTARY)
            return at + 4
    # Malformed: an ASCII byte that follows is a character of its own.
    to[0] = put_character(to[0], REPLACEMENT)
    return at + (2 if end - at >= 2 and at[1] >= 0x80 else 1)


cdef inline uint32_t number_of_four(const uint8_t *p) noexcept nogil:
    return (((p[0] - 0x81) * 10 + p[1] - 0x30) * 126 + p[2] - 0x81) * 10 + p[3] - 0x30


cdef inline bint is_four(const uint8_t *p) noexcept nogil:
    return 0x81 <= p[0] <= 0xFE and 0x30 <= p[1] <= 0x39 and 0x81 <= p[2] <= 0xFE and 0x30 <= p[3] <= 0x39


# Units of two or four bytes.

cdef int wide(
    const uint8_t *data, size_t size, Value *value, int width, bint is_little, bint has_surrogates
) noexcept nogil:
    cdef const uint8_t *end = data + size
    cdef uint8_t *p = reserve(value, 3 * size + 4)
    cdef uint32_t point
    cdef uint32_t low
    if p == NULL:
        return -1
    while end - data >= width:
        if width == 4:
            point = <uint32_t>data[0] << 24 | <uint32_t>data[1] << 16 | data[2] << 8 | data[3]
        else:
            point = data[0] << 8 | data[1] if not is_little else data[1] << 8 | data[0]
        data += width
        if has_surrogates and point >> 10 == 0x36 and end - data >= 2:
            low = data[0] << 8 | data[1] if not is_little else data[1] << 8 | data[0]
            if low >> 10 == 0x37:
                point = 0x10000 + ((point & 0x3FF) << 10 | low & 0x3FF)
                data += 2
        p = put_character(p, REPLACEMENT if point >> 11 == 0x1B or point > 0x10FFFF else point)
    if data < end:
        p = put_character(p, REPLACEMENT)
    return finish(value, p)


cdef int ucs2(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    return wide(data, size, value, 2, False, False)


cdef int utf16(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    return wide(data, size, value, 2, False, True)


cdef int utf16le(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    return wide(data, size, value, 2, True, True)


cdef int utf32(Field *field, const uint8_t *data, size_t size, Value *value) noexcept nogil:
    return wide(data, size, value, 4, False, False)


# MySQL's single-byte character sets: the codec of Python that has the same characters, and what differs in MySQL
# (first byte, characters from there on; U+FFFD: none). Checked against CONVERT of MySQL 9.7 and MariaDB 11.8.
cdef dict SINGLE_BYTE = {
    "armscii8": ("latin-1", (
        (0xA1, "\u2741§։)(»«—.՝,-՟…՜՛՞ԱաԲբԳգԴդԵեԶզԷէԸըԹթԺժԻիԼլԽխԾծԿկՀհՁձՂղՃճՄմՅյՆնՇշՈոՉչՊպՋջՌռՍսՎվՏտՐրՑցՒւՓփՔքՕօՖֆ’'"),
    )),
    "ascii": ("ascii", ()),
    "cp1250": ("cp1250", ()),
    "cp1251": ("cp1251", ()),
    "cp1256": ("cp1256", ()),
    "cp1257": ("cp1257", ()),
    "cp850": ("cp850", ()),
    "cp852": ("cp852", ()),
    "cp866": ("cp866", ((0xFC, "ⁿ²"),)),
    "dec8": ("latin-1", (
        (0xA4, "\ufffd"), (0xA6, "\ufffd"), (0xA8, "¤"), (0xAC, "\ufffd" * 4), (0xB4, "\ufffd"), (0xB8, "\ufffd"),
        (0xBE, "\ufffd"), (0xD0, "\ufffd"), (0xD7, "Œ"), (0xDD, "Ÿ\ufffd"), (0xF0, "\ufffd"), (0xF7, "œ"),
        (0xFD, "ÿ\ufffd\ufffd"),
    )),
    "geostd8": ("latin-1", (
        (0x80, "€\ufffd‚\ufffd„…†‡\ufffd‰\ufffd‹" + "\ufffd" * 5 + "‘’“”•–—\ufffd\ufffd\ufffd›" + "\ufffd" * 4),
        (0xC0, "აბგდევზჱთიკლმნჲოპჟრსტჳუფქღყშჩცძწჭხჴჯჰჵ" + "\ufffd" * 23 + "№\ufffd\ufffd"),
    )),
    "greek": ("iso8859_7", ((0xA1, "ʽʼ"),)),
    "hebrew": ("iso8859_8", ((0xAF, "‾"),)),
    "hp8": ("hp_roman8", ()),
    "keybcs2": ("cp437", ((0x80, "ČüéďäĎŤčěĚĹÍľĺÄÁÉžŽôöÓůÚýÖÜŠĽÝŘťáíóúňŇŮÔšřŕŔ¼"), (0xAD, "¡"))),
    "koi8r": ("koi8_r", ()),
    "koi8u": ("koi8_u", ((0x95, "•"),)),
    "latin1": ("cp1252", ((0x81, "\x81"), (0x8D, "\x8d"), (0x8F, "\x8f\x90"), (0x9D, "\x9d"))),
    "latin2": ("iso8859_2", ()),
    "latin5": ("iso8859_9", ()),
    "latin7": ("iso8859_13", ()),
    "macce": ("mac_latin2", ()),
    "macroman": ("mac_roman", ()),
    "swe7": ("ascii", ((0x40, "É"), (0x5B, "ÄÖÅÜ_é"), (0x7B, "äöåü\ufffd"))),
    "tis620": ("tis_620", ()),
}

# Likewise, of several bytes. MySQL reads euckr as Microsoft's extension of it, and 0x815F of sjis as a backslash.
cdef dict MULTI_BYTE = {
    "big5": ("big5", ((0xF9D6, "碁銹裏墻恒粧嫺"),)),
    "cp932": ("cp932", ()),
    "eucjpms": ("euc_jp", (  # in its last rows IBM's characters; escaped: what Unicode normalizes away
        (0x8FA2B7, "～"), (0x8FA2C3, "￤"), (0x8FF3F3, "ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹⅠⅡ"),
        (0x8FF4A1, "ⅢⅣⅤⅥⅦⅧⅨⅩ＇＂㈱№℡炻仼僴凬匇匤\ufa0e咊坙\ufa0f\ufa10"
                   "增寬峵嵓\ufa11德悅愠敎昻晥\ufa12\uf929栁\ufa13\ufa14橫櫢淸淲瀨\ufa15\ufa16甁"
                   "皂皞\ufa17礰\ufa18\ufa19\ufa1a\ufa1b竧\ufa1c\ufa1d綠緖\ufa1e荢\ufa1f薰\ufa20\ufa21蠇\ufa22譿賴赶"
                   "\ufa23\ufa24\ufa25郞\ufa26鄕\ufa27\ufa28閒\uf9dc\ufa29霻靍靑\ufa2a\ufa2b\ufa2c馞髙魲\ufa2d黑"),
    )),
    "euckr": ("cp949", ()),
    "gb18030": ("gb18030", ((0xA8BC, "ḿ"),)),
    "gb2312": ("gb2312", ()),
    "gbk": ("gbk", ()),
    "sjis": ("shift_jis", ((0x815F, "\\"),)),
    "ujis": ("euc_jp", ((0xA1C0, "\\"),)),
}

cdef dict UNICODE = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}

cdef dict CHARSETS = {}            # plans point into their tables: they are never replaced or removed
cdef dict NUMBERS = {}             # str (charset) -> dict of str (character) -> int or bytes
cdef object MAKING = threading.Lock()


cdef str character(bytes data, str codec):
    """The only character of the bytes, or nothing."""
    try:
        text = data.decode(codec)
    except UnicodeDecodeError:
        return ""
    return text if len(text) == 1 else ""


cdef int set_character(Character *to, str text) except -1:
    """An empty text: the character does not exist."""
    cdef bytes encoded = text.encode()
    memcpy(to.utf8, PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded))
    to.size = <uint8_t>PyBytes_GET_SIZE(encoded)
    return 0


cdef bytes single_byte_table(str codec, tuple differences):
    cdef Bytes table
    cdef int i
    memset(&table, 0, sizeof(table))
    characters = [character(bytes([i]), codec) or "\ufffd" for i in range(256)]
    for start, text in differences:
        characters[start:start + len(text)] = text
    for i in range(256):
        set_character(&table.characters[i], characters[i])
    table.is_ascii_based = all(ord(characters[i]) == i for i in range(128))
    return PyBytes_FromStringAndSize(<const char *>&table, sizeof(table))


cdef bytes shift_jis(int row, int cell):
    """The bytes of a character of JIS X 0208, or of the user's rows after it, by its row and cell from 0."""
    lead = row // 2 + (0x81 if row < 62 else 0xC1)
    trail = cell + 0x9F if row % 2 else cell + 0x40 + (cell >= 0x3F)
    return bytes((lead, trail))


cdef bytes multi_byte_table(str name, str codec, tuple differences):
    """Takes about 50 ms, once per process for each character set that is met."""
    cdef bytes data = bytes(sizeof(Pairs))
    cdef Pairs *table = <Pairs *>PyBytes_AS_STRING(data)
    cdef int lead
    cdef int trail
    cdef int place
    cdef int point
    cdef bytes encoded
    table.has_fours = name == "gb18030"
    table.has_triples = codec == "euc_jp"
    for lead in range(0x80, 0x100):
        set_character(&table.singles[lead & 0x7F], character(bytes((lead,)), codec))
        if table.singles[lead & 0x7F].size:
            continue
        for trail in range(0x40, 0x100):
            set_character(&table.pairs[(lead & 0x7F) << 8 | trail], character(bytes((lead, trail)), codec))
    if table.has_triples:
        for lead in range(0xA1, 0xFF):
            for trail in range(0xA1, 0xFF):
                place = (lead & 0x7F) << 8 | trail
                set_character(&table.triples[place], character(bytes((0x8F, lead, trail)), codec))
                if lead >= 0xF5:  # ten rows for the user's own characters, and ten more after 0x8F
                    set_character(&table.pairs[place], chr(0xE000 + (lead - 0xF5) * 94 + trail - 0xA1))
                    set_character(&table.triples[place], chr(0xE3AC + (lead - 0xF5) * 94 + trail - 0xA1))
                elif name == "eucjpms":  # the characters of cp932 at their places in EUC
                    set_character(&table.pairs[place], character(shift_jis(lead - 0xA1, trail - 0xA1), "cp932"))
    for lead, text in differences:
        for trail, found in enumerate(text):
            place = lead + trail & 0x7FFF
            set_character(&table.triples[place] if lead > 0xFFFF else &table.pairs[place], found)
    if table.has_fours:
        for point in range(0x80, 0x10000):
            encoded = chr(point).encode(codec, "ignore")
            if len(encoded) == 4:
                table.fours[number_of_four(<const uint8_t *>PyBytes_AS_STRING(encoded))] = point
    return data


cdef Charset get_charset(str name):
    """The character set of that MySQL name, made once per process. Raises DecodeError if it is unknown."""
    if name not in CHARSETS:
        with MAKING:
            if name not in CHARSETS:
                CHARSETS[name] = make_charset(name)
    return CHARSETS[name]


cdef Charset make_charset(str name):
    cdef Charset charset = Charset.__new__(Charset)
    charset.name = name
    if name in ("utf8mb4", "utf8mb3", "utf8"):
        charset.decode = utf8
    elif name == "utf16":
        charset.decode = utf16
    elif name == "utf16le":
        charset.decode = utf16le
    elif name == "utf32":
        charset.decode = utf32
    elif name == "ucs2":
        charset.decode = ucs2
    elif name in SINGLE_BYTE:
        codec, differences = SINGLE_BYTE[name]
        charset.owner = single_byte_table(codec, differences)
        charset.decode = single_byte
    elif name in MULTI_BYTE:
        codec, differences = MULTI_BYTE[name]
        charset.owner = multi_byte_table(name, codec, differences)
        charset.decode = multi_byte
    else:
        raise DecodeError(f"the character set {name} is unknown")
    if charset.owner is not None:
        charset.table = PyBytes_AS_STRING(charset.owner)
    return charset


def decode(bytes data not None, str charset not None):
    """The text of the bytes in the MySQL character set of that name; malformed bytes give U+FFFD.

    Raises DecodeError if the character set is unknown.
    """
    cdef Charset found = get_charset(charset)
    cdef Field field
    cdef Value value
    memset(&field, 0, sizeof(field))
    memset(&value, 0, sizeof(value))
    field.context = found.table
    try:
        if found.decode(&field, <const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), &value):
            raise DecodeError(value.error.decode())
        return value.text[:value.size].decode("utf-8")
    finally:
        free(value.scratch)


cdef dict get_numbers(str charset):
    """The bytes of the characters of a character set of single bytes, found once per process."""
    if charset not in NUMBERS:
        NUMBERS[charset] = {decode(bytes([i]), charset): i for i in reversed(range(256))}
    return NUMBERS[charset]


cdef dict get_pairs(str charset):
    """The bytes of the characters of a character set that have two, or three from 0x8F on, found once per process."""
    if charset not in NUMBERS:
        pairs = [bytes([lead, trail]) for lead in reversed(range(0x81, 0xFF)) for trail in reversed(range(0x40, 0xFF))]
        codes = [prefix + pair for prefix in (b"\x8F", b"") for pair in pairs]
        NUMBERS[charset] = {decode(code, charset): code for code in codes}
    return NUMBERS[charset]


cpdef bytes encode(str text, str charset):
    """The bytes of the text in the MySQL character set of that name (`binary`: UTF-8).

    Raises DecodeError if the character set is unknown, or lacks one of the characters.
    """
    cdef bytes data = b""
    if charset == "binary":
        return text.encode()
    if charset in SINGLE_BYTE:
        numbers = get_numbers(charset)
        data = bytes([numbers.get(char, 0) for char in text])
    else:
        codec = MULTI_BYTE[charset][0] if charset in MULTI_BYTE else UNICODE.get(charset, "utf-8")
        data = text.encode(codec, "ignore")
        if charset in MULTI_BYTE and decode(data, charset) != text:  # some that the codec lacks, or has elsewhere
            pairs = get_pairs(charset)
            data = b"".join([
                char.encode() if char.isascii() else pairs.get(char) or char.encode(codec, "ignore") for char in text
            ])
    if decode(data, charset) != text or (charset in ("utf8", "utf8mb3", "ucs2") and not is_basic(text)):
        raise DecodeError(f"the character set {charset} lacks characters of '{text[:100]}'")
    return data


cdef bint is_basic(str text):
    """Whether all its characters are in the first plane of Unicode."""
    return not text or max(text) <= "\uffff"
