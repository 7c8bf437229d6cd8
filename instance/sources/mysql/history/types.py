"""The types of columns: from what a statement says to what information_schema shows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .....protocol.canal.types import labels_of
from .....protocol.errors import DecodeError
from .....protocol.lexer import MAXDB, ORACLE, REAL_AS_FLOAT, Dialect, UnreadableError
from ....values.charset import decode, encode
from ....values.types import BYTES_PER_CHARACTER, DISPLAY_WIDTHS, LABEL_ESCAPES, Type
from .reader import Reader
from .tables import LOST, LOST_EMPTY

_INTEGERS: Final = {
    **dict.fromkeys(("TINYINT", "INT1"), ("tinyint", Type.TINY)),
    **dict.fromkeys(("SMALLINT", "INT2"), ("smallint", Type.SHORT)),
    **dict.fromkeys(("MEDIUMINT", "INT3", "MIDDLEINT"), ("mediumint", Type.INT24)),
    **dict.fromkeys(("INT", "INTEGER", "INT4"), ("int", Type.LONG)),
    **dict.fromkeys(("BIGINT", "INT8"), ("bigint", Type.LONGLONG)),
}
_GEOMETRIES: Final = frozenset(
    ("GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON")
)
_COLLECTIONS: Final = ("GEOMETRYCOLLECTION", "GEOMCOLLECTION")
_TEXT_SIZES: Final = (("tiny", 1 << 8), ("", 1 << 16), ("medium", 1 << 24), ("long", 1 << 32))
_WHOLE_TEXTS: Final = {prefix.upper() + kind: (prefix, kind) for prefix, _ in _TEXT_SIZES for kind in ("TEXT", "BLOB")}
_BINARY_OF: Final = {"char": "binary", "varchar": "varbinary", "text": "blob"}
_COMPRESSED: Final = " /*M!100301 COMPRESSED*/"
_LONGEST_CHAR: Final = 255
"""Characters; without strict mode a longer one becomes another type."""
_LONGEST_VARCHAR: Final = 65535
"""Bytes; the same."""
_WIDE: Final = frozenset({"ucs2", "utf16", "utf16le", "utf32"})


@dataclass(slots=True)
class ColumnType:
    """A type as a statement writes it; `text` needs the character set that is the default."""

    kind: str
    """The type as information_schema writes it, complete unless it is one of char, varchar, text, enum and set."""
    length: int | None = None
    """Of char and varchar, and of text where it is given: characters."""
    prefix: str = ""
    """Of text: tiny, medium or long."""
    labels: tuple[str, ...] = ()
    """Of enum and set."""
    charset: str | None = None
    """As the statement says; None: it does not."""
    is_compressed: bool = False

    @property
    def is_text(self) -> bool:
        """Whether it has a character set."""
        return self.kind in ("char", "varchar", "text", "enum", "set")

    def resolve(self, default: str | None, dialect: Dialect) -> tuple[str, str | None]:
        """Return the type and the character set as information_schema shows them. Raises UnreadableError."""
        suffix = _COMPRESSED if self.is_compressed else ""
        if not self.is_text:
            return self.kind + suffix, None
        charset = self.charset or default
        if charset is None:
            raise UnreadableError("the default character set is unknown")
        if self.kind in ("enum", "set"):
            is_shown = charset != "binary" or has_binary_enums(dialect)
            return self._labels(charset, dialect), charset if is_shown else None
        width = BYTES_PER_CHARACTER.get(charset, 1)
        kind = self.kind if charset != "binary" else _BINARY_OF[self.kind]
        if self.kind == "text":
            prefix = self.prefix
            if self.length is not None:
                prefix = next((name for name, limit in _TEXT_SIZES if self.length * width < limit), "long")
            text = prefix + kind
        else:
            assert self.length is not None
            if self.length * width > _LONGEST_VARCHAR or (self.kind == "char" and self.length > _LONGEST_CHAR):
                raise UnreadableError(f"{kind}({self.length}) is too long")
            text = f"{kind}({self.length})"
        return text + suffix, None if charset == "binary" else charset

    def _labels(self, charset: str, dialect: Dialect) -> str:
        labels = self.labels
        if charset != "binary":  # the server drops spaces at the end
            labels = tuple(label.rstrip(" ") for label in labels)
        for label in labels:
            if charset == "binary" and not label.isascii():
                raise UnreadableError(f"{label!r} in {charset}")
            _require_labels(label, charset, dialect)
        quoted = ",".join("'" + label.translate(LABEL_ESCAPES) + "'" for label in labels)
        return f"{self.kind}({quoted})"


def _require_labels(text: str, charset: str, dialect: Dialect) -> None:
    """Raise UnreadableError for labels that the server cannot have, or show, in a character set."""
    _require_shown(charset, dialect)
    try:
        encode(text, charset)
    except DecodeError as error:  # the server has a question mark there
        raise UnreadableError(str(error)) from error


def _require_shown(charset: str, dialect: Dialect) -> None:
    if charset in _WIDE and not dialect.mariadb and dialect.version < (8,):  # it shows enum('','') for enum('a','b')
        raise UnreadableError(f"labels in {charset}")


def has_binary_enums(dialect: Dialect) -> bool:
    """Whether information_schema shows the character set of ENUM and SET columns that is binary."""
    return dialect.mariadb or dialect.version < (8,)


def has_widths(dialect: Dialect) -> bool:
    """Whether information_schema shows the display width of integers."""
    return dialect.mariadb or dialect.version < (8, 0, 19)


def charset_of(name: str, dialect: Dialect) -> str:
    """Return the server's own name of a character set. Raises UnreadableError."""
    name = name.lower()
    if name in ("utf8", "utf8mb3"):
        name = "utf8mb3" if "utf8mb3" in dialect.charsets else "utf8"
    if name not in dialect.charsets:
        raise UnreadableError(f"the character set {name} is unknown")
    return name


def charset_of_collation(name: str, dialect: Dialect) -> str | None:
    """Return the character set, with which the name of a collation begins; None: it goes with any.

    Raises UnreadableError.
    """
    if dialect.mariadb and name.lower().startswith("uca1400_"):
        return None
    return charset_of(name.split("_", 1)[0], dialect)


def widened(text: str, old: str, new: str, dialect: Dialect) -> str:
    """Return the type of a column after its character set was converted: a TEXT keeps room for as many characters."""
    if text.startswith(("enum(", "set(")):
        for charset in (old, new):
            _require_shown(charset, dialect)
        labels = ",".join(f"'{_converted(it, old, new).translate(LABEL_ESCAPES)}'" for it in labels_of(text))
        return f"{text.partition('(')[0]}({labels})"
    before, after = BYTES_PER_CHARACTER.get(old, 1), BYTES_PER_CHARACTER.get(new, 1)
    name, _, suffix = text.partition(" ")
    if name.endswith("text"):
        if after <= before:
            return text
        sizes = [prefix for prefix, _ in _TEXT_SIZES]
        index = sizes.index(name.removesuffix("text"))
        return f"{sizes[min(index + 1, 3)]}text" + (f" {suffix}" if suffix else "")
    if name.startswith("varchar(") and int(name[8:-1]) * after > _LONGEST_VARCHAR:
        raise UnreadableError(f"{name} is too long for {new}")
    return text


def _converted(label: str, old: str, new: str) -> str:
    """Return a label whose bytes a server takes for those of another character set; LOST where they are none."""
    if LOST in label or LOST_EMPTY in label:
        return LOST
    try:
        data = encode(label, old)
        found = decode(data, new)
        return found if encode(found, new) == data else LOST
    except DecodeError:
        return LOST


def read_type(reader: Reader, dialect: Dialect, sql_mode: int) -> ColumnType:
    """Read a type with all that follows it and belongs to it. Raises UnreadableError."""
    found = _read_name(reader, dialect, sql_mode)
    if found.is_text:
        _read_charset(reader, found, dialect)
    return found


def _read_name(reader: Reader, dialect: Dialect, sql_mode: int) -> ColumnType:  # noqa: C901, PLR0912 - a list
    word = reader.word()
    if dialect.mariadb and word in _SCHEMAS and reader.skip("."):
        sql_mode = sql_mode & ~(ORACLE | MAXDB) | _SCHEMAS[word]
        word = reader.word()
    if dialect.mariadb and sql_mode & ORACLE and word in _ORACLES:
        return _ORACLES[word](reader)
    if word in _INTEGERS:
        return _integer(reader, dialect, *_INTEGERS[word])
    if word in ("BOOL", "BOOLEAN"):
        return ColumnType("tinyint(1)")
    if word == "SERIAL":
        return ColumnType("bigint(20) unsigned" if has_widths(dialect) else "bigint unsigned")
    if word in ("FLOAT", "DOUBLE", "REAL", "FLOAT4", "FLOAT8"):
        return _float(reader, word, sql_mode)
    if word in ("DECIMAL", "DEC", "NUMERIC", "FIXED"):
        numbers = reader.numbers(2)
        precision, scale = [*numbers, *(10, 0)[len(numbers) :]]
        return ColumnType(f"decimal({precision or 10},{scale})" + _signs(reader))
    if word == "BIT":
        return ColumnType(f"bit({_one(reader, 1)})")
    if word == "YEAR":
        if _one(reader, 4) != 4:
            raise UnreadableError("a year of less than four digits")
        _signs(reader)
        return ColumnType("year(4)" if has_widths(dialect) else "year")
    if word == "DATE":
        return ColumnType("date")
    if word in ("DATETIME", "TIMESTAMP", "TIME"):
        if word == "TIMESTAMP" and sql_mode & MAXDB and has_widths(dialect):
            word = "DATETIME"
        digits = sum(reader.numbers(1))
        return ColumnType(word.lower() + (f"({digits})" if digits else ""))
    if word in ("NATIONAL", "NCHAR", "NVARCHAR"):
        found = _national(reader, word)
        found.charset = charset_of("utf8", dialect)
        return found
    if word in ("CHAR", "CHARACTER"):
        return _characters(reader, "varchar" if reader.skip("VARYING") else "char")
    if word in ("VARCHAR", "VARCHARACTER"):
        return _characters(reader, "varchar")
    if word in ("BINARY", "VARBINARY"):
        found = _characters(reader, "char" if word == "BINARY" else "varchar")
        text, _ = ColumnType(found.kind, found.length).resolve("binary", dialect)
        return ColumnType(text, is_compressed=_compressed(reader))
    if word in _WHOLE_TEXTS or word == "LONG":
        return _blob(reader, word, dialect)
    if word in ("ENUM", "SET"):
        reader.expect("(")
        labels = [reader.string()]
        while reader.skip(","):
            labels.append(reader.string())
        reader.expect(")")
        return ColumnType(word.lower(), labels=tuple(labels))
    if word == "JSON":
        return ColumnType("text", prefix="long", charset="utf8mb4") if dialect.mariadb else ColumnType("json")
    if word in _GEOMETRIES:
        return ColumnType(word.lower())
    if word in _COLLECTIONS:
        shorter = not dialect.mariadb and dialect.version >= (8,)
        return ColumnType("geomcollection" if shorter else "geometrycollection")
    if word == "VECTOR":
        return ColumnType(f"vector({_one(reader, 2048)})")
    if word in ("UUID", "INET4", "INET6") and dialect.mariadb:
        return ColumnType(word.lower())
    raise UnreadableError(f"the type {word} is unknown")


def _number(reader: Reader) -> ColumnType:
    numbers = reader.numbers(2)
    return ColumnType(f"decimal({numbers[0] or 10},{sum(numbers[1:])})" if numbers else "double")


_SCHEMAS: Final = {"MARIADB_SCHEMA": 0, "ORACLE_SCHEMA": ORACLE, "MAXDB_SCHEMA": MAXDB}
"""What MariaDB writes before a type that it means in another sql_mode."""
_ORACLES: Final[dict[str, Callable[[Reader], ColumnType]]] = {
    "DATE": lambda _: ColumnType("datetime"),
    "BLOB": lambda _: ColumnType("longblob"),
    "CLOB": lambda _: ColumnType("text", prefix="long"),
    "NUMBER": _number,
    "RAW": lambda reader: ColumnType(f"varbinary({_one(reader, 1)})"),
    "VARCHAR2": lambda reader: _characters(reader, "varchar"),
}


def sequence_types(reader: Reader, dialect: Dialect, sql_mode: int) -> str:
    """Read the type of MariaDB's CREATE SEQUENCE AS; return that of the columns with its numbers."""
    name, _, rest = read_type(reader, dialect, sql_mode).kind.partition("(")
    kinds = dict(_INTEGERS.values())
    if name not in kinds:
        raise UnreadableError(f"a sequence of {name}")
    return f"{name}({DISPLAY_WIDTHS[kinds[name]][False] + 1}){' unsigned' if 'unsigned' in rest else ''}"


def _integer(reader: Reader, dialect: Dialect, name: str, kind: Type) -> ColumnType:
    width = reader.numbers(1)
    signs = _signs(reader)
    shown = width[0] if width else DISPLAY_WIDTHS[kind][bool(signs)]
    if not shown:
        raise UnreadableError(f"{name} of no width")
    if has_widths(dialect) or "zerofill" in signs or (name == "tinyint" and width == [1] and not signs):
        name += f"({shown})"
    return ColumnType(name + signs)


def _float(reader: Reader, word: str, sql_mode: int) -> ColumnType:
    reader.skip("PRECISION")
    numbers = reader.numbers(2)
    kind = "float" if word in ("FLOAT", "FLOAT4") or (word == "REAL" and sql_mode & REAL_AS_FLOAT) else "double"
    text = ""
    if len(numbers) == 1:
        if word != "FLOAT":
            raise UnreadableError(f"{word} with one number")
        kind = "float" if numbers[0] <= 24 else "double"
    elif numbers:
        text = f"({numbers[0]},{numbers[1]})"
    return ColumnType(kind + text + _signs(reader))


def _signs(reader: Reader) -> str:
    """Read SIGNED, UNSIGNED and ZEROFILL in any order."""
    found = set()
    while reader.peek() in ("SIGNED", "UNSIGNED", "ZEROFILL"):
        found.add(reader.word())
    if "ZEROFILL" in found:
        return " unsigned zerofill"
    return " unsigned" if "UNSIGNED" in found else ""


def _one(reader: Reader, default: int) -> int:
    numbers = reader.numbers(1)
    if numbers == [0]:
        raise UnreadableError("a length of 0")
    return numbers[0] if numbers else default


def _characters(reader: Reader, kind: str) -> ColumnType:
    numbers = reader.numbers(1)
    if not numbers and kind == "varchar":
        raise UnreadableError("a length is missing")
    return ColumnType(kind, numbers[0] if numbers else 1)


def _national(reader: Reader, word: str) -> ColumnType:
    if word == "NVARCHAR":
        return _characters(reader, "varchar")
    if word == "NATIONAL":
        word = reader.word()
        if word in ("VARCHAR", "VARCHARACTER"):
            return _characters(reader, "varchar")
        if word not in ("CHAR", "CHARACTER"):
            raise UnreadableError(f"NATIONAL {word}")
    varying = reader.skip("VARYING") or reader.skip("VARCHAR") or reader.skip("VARCHARACTER")
    return _characters(reader, "varchar" if varying else "char")


def _blob(reader: Reader, word: str, dialect: Dialect) -> ColumnType:
    if word == "LONG":
        prefix, kind = "medium", "TEXT"
        if reader.skip("VARBINARY"):
            kind = "BLOB"
        elif reader.skip("CHAR") or reader.skip("CHARACTER"):
            reader.expect("VARYING")
        elif not reader.skip("VARCHAR"):
            reader.skip("VARCHARACTER")
    else:
        prefix, kind = _WHOLE_TEXTS[word]
    length = reader.numbers(1) if word in ("TEXT", "BLOB") else []
    if length == [0]:
        raise UnreadableError("a length of 0")
    found = ColumnType("text", length[0] if length else None, prefix)
    if kind == "BLOB":
        text, _ = found.resolve("binary", dialect)
        return ColumnType(text, is_compressed=_compressed(reader))
    return found


def _compressed(reader: Reader) -> bool:
    """Read MariaDB's COMPRESSED, with its method."""
    if not reader.skip("COMPRESSED"):
        return False
    if reader.skip("="):
        reader.take()
    return True


def _read_charset(reader: Reader, found: ColumnType, dialect: Dialect) -> None:
    """Read what says, in one of many ways, in which character set the column is."""
    explicit: list[str] = []
    while True:
        if reader.skip("CHARACTER") or reader.skip("CHAR"):
            reader.expect("SET")
            explicit.append(charset_of(reader.value(), dialect))
        elif reader.skip("CHARSET"):
            explicit.append(charset_of(reader.value(), dialect))
        elif reader.skip("ASCII"):
            explicit.append("latin1")
        elif reader.skip("UNICODE"):
            explicit.append("ucs2")
        elif reader.skip("BYTE"):
            explicit.append("binary")
        elif _compressed(reader):
            found.is_compressed = True
        elif not reader.skip("BINARY"):
            break
    if len(set(explicit)) > 1:
        raise UnreadableError("two character sets")
    if explicit:
        found.charset = explicit[0]


def read_collation(reader: Reader, found: ColumnType, dialect: Dialect) -> None:
    """Read the name of a column's collation. Raises UnreadableError."""
    charset = charset_of_collation(reader.value(), dialect)
    if charset is None or not found.is_text:
        return
    if found.charset is None:
        found.charset = charset
    elif found.charset != charset:
        raise UnreadableError(f"{found.charset} with a collation of {charset}")
