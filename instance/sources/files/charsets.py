"""The character set of each collation by its id, as MySQL 5.6 to 9.7 and MariaDB have them: files do not say it."""

from collections.abc import Iterator, Mapping
from typing import Final

_IDS: Final = {
    "armscii8": "32 64",
    "ascii": "11 65",
    "big5": "1 84",
    "binary": "63",
    "cp1250": "26 34 44 66 99",
    "cp1251": "14 23 50-52",
    "cp1256": "57 67",
    "cp1257": "29 58-59",
    "cp850": "4 80",
    "cp852": "40 81",
    "cp866": "36 68",
    "cp932": "95-96",
    "dec8": "3 69",
    "eucjpms": "97-98",
    "euckr": "19 85",
    "gb18030": "248-250",
    "gb2312": "24 86",
    "gbk": "28 87",
    "geostd8": "92-93",
    "greek": "25 70",
    "hebrew": "16 71",
    "hp8": "6 72",
    "keybcs2": "37 73",
    "koi8r": "7 74",
    "koi8u": "22 75",
    "latin1": "5 8 15 31 47-49 94",
    "latin2": "2 9 21 27 77",
    "latin5": "30 78",
    "latin7": "20 41-42 79",
    "macce": "38 43",
    "macroman": "39 53",
    "sjis": "13 88",
    "swe7": "10 82",
    "tis620": "18 89",
    "ucs2": "35 90 128-159 640-642",
    "ujis": "12 91",
    "utf16": "54-55 101-124 672-674",
    "utf16le": "56 62",
    "utf32": "60-61 160-183 736-738",
    "utf8mb3": "33 76 83 192-215 223 576-579",
    "utf8mb4": "45-46 224-247 255-323 608-611",
}
_NOPAD: Final = 1024
"""MariaDB has collations that do not pad, with the id of the padding one and this (include/m_ctype.h)."""
_UCA1400: Final = ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32")
"""MariaDB's UCA 14.0.0 collations: 256 ids from 2048 on for each of these (my_uca1400_make_builtin_collation_id)."""


def _all() -> Iterator[tuple[int, str]]:
    for charset, text in _IDS.items():
        for part in text.split():
            first, _, last = part.partition("-")
            for number in range(int(first), int(last or first) + 1):
                yield number, charset
                yield number + _NOPAD, charset
    for block, charset in enumerate(_UCA1400):
        for number in range(256):
            yield 2048 + 256 * block + number, charset


CHARSETS: Final[Mapping[int, str]] = dict(_all())
"""The character set of each collation id."""
