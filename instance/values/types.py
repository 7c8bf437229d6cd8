"""The types of columns: numbers and names, as binlogs and catalogues write them."""

from enum import IntEnum


class Type(IntEnum):
    """Column types as TABLE_MAP writes them (MySQL's ``enum_field_types``, and MariaDB's two own)."""

    DECIMAL = 0
    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    BLOB_COMPRESSED = 140
    VARCHAR_COMPRESSED = 141
    VECTOR = 242
    TYPED_ARRAY = 244
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    TINY_BLOB = 249
    MEDIUM_BLOB = 250
    LONG_BLOB = 251
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


def type_name(code: int) -> str:
    """Return the name of a column type, its number if it is unknown."""
    return Type(code).name if code in set(Type) else str(code)


DISPLAY_WIDTHS: dict[int, tuple[int, int]] = {  # signed, unsigned; MariaDB and MySQL before 8.0.19 write them
    Type.TINY: (4, 3),
    Type.SHORT: (6, 5),
    Type.INT24: (9, 8),
    Type.LONG: (11, 10),
    Type.LONGLONG: (20, 20),
    Type.YEAR: (4, 4),
}
BYTES_PER_CHARACTER = {
    "utf8mb4": 4,
    "utf16": 4,
    "utf16le": 4,
    "utf32": 4,
    "gb18030": 4,
    "utf8": 3,
    "utf8mb3": 3,
    "ujis": 3,
    "eucjpms": 3,
    "ucs2": 2,
    "gbk": 2,
    "gb2312": 2,
    "big5": 2,
    "sjis": 2,
    "cp932": 2,
    "euckr": 2,
}
# As information_schema and SHOW CREATE TABLE write the labels of ENUM and SET.
LABEL_ESCAPES = str.maketrans({"'": "''", "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\0": "\\0"})
