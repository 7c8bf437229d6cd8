"""Every column type, with the values that tend to go wrong, and how to ask the server what is right.

A sample is written by SQL and read back by SELECT on the same server; what arrives must equal that. `text` is an SQL
expression over the column `c` that gives Canal's text of the value (canal's own rules: an ENUM is its index, a SET its
mask, binary data its bytes as Latin-1 characters), `render` what is left to do to the result in Python.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

TEXT = "CAST(c AS CHAR CHARACTER SET utf8mb4)"
NUMBER = "CAST(c + 0 AS CHAR)"
MASK = "CAST(CAST(c AS UNSIGNED) AS CHAR)"
HEX = "HEX(c)"


def from_hex(result: Any) -> str:
    """Bytes as Canal writes them: each the character of that number."""
    return bytes.fromhex(result).decode("latin-1")


def java_text(number: float, single: bool) -> str:
    """`Double.toString` or `Float.toString` of Java: the shortest digits that give the number back."""
    if number == 0:
        return "-0.0" if str(number).startswith("-") else "0.0"
    for precision in range(17):
        text = f"{number:.{precision}e}"
        same = float(text)
        if single:
            same = struct.unpack("f", struct.pack("f", same))[0]
        if same == number:
            break
    mantissa, exponent = text.split("e")
    sign = "-" if mantissa.startswith("-") else ""
    digits = mantissa.lstrip("-").replace(".", "").rstrip("0") or "0"
    power = int(exponent)
    if -3 <= power < 7:
        digits = "0" * -power + digits if power < 0 else digits.ljust(power + 1, "0")
        whole = max(power, 0) + 1
        return f"{sign}{digits[:whole]}.{digits[whole:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"


@dataclass(frozen=True)
class Sample:
    """One column type and its values, as SQL literals."""

    type: str
    values: tuple[str, ...]
    text: str = TEXT
    render: Callable[[Any], str] = str
    servers: frozenset[str] = field(default_factory=frozenset)
    """The servers that have the type; all of them when empty."""

    def runs_on(self, server: str) -> bool:
        """Whether the server of that fixture name has the type."""
        return not self.servers or server in self.servers


MYSQL_57_ON = frozenset({"mysql57", "mysql80", "mysql97"})
MYSQL_97 = frozenset({"mysql97"})
MARIADB = frozenset({"mariadb118", "mariadb1011"})


def _integers() -> list[Sample]:
    samples = []
    for name, bits in (("tinyint", 8), ("smallint", 16), ("mediumint", 24), ("int", 32), ("bigint", 64)):
        half = 1 << (bits - 1)
        samples.append(Sample(name, ("0", "1", "-1", str(half - 1), str(-half))))
        samples.append(Sample(f"{name} unsigned", ("0", "1", str(half - 1), str(half), str(2 * half - 1))))
    samples.append(Sample("int(6) zerofill", ("0", "42", "4294967295"), NUMBER))
    samples.append(Sample("boolean", ("TRUE", "FALSE")))
    return samples


def _temporals() -> list[Sample]:
    samples = [
        Sample(
            "date", ("'2026-11-21'", "'1000-01-01'", "'9999-12-31'", "'0000-00-00'", "'2020-00-00'", "'2020-02-00'")
        ),
        Sample("year", ("1901", "2026", "2155", "0"), "LPAD(c, 4, '0')"),
    ]
    for digits in range(7):
        fraction = f".{'1234567'[:digits]}" if digits else ""
        nines = f".{'9' * digits}" if digits else ""
        samples.append(
            Sample(
                f"time({digits})",
                (
                    "'00:00:00'",
                    f"'12:34:56{fraction}'",
                    f"'-12:34:56{fraction}'",
                    f"'-00:00:00{fraction}'",
                    f"'-00:00:01{fraction}'",
                    f"'838:59:58{nines}'",
                    f"'-838:59:58{nines}'",
                    "'100:00:00'",
                    "'99:59:59'",
                ),
            )
        )
        samples.append(
            Sample(
                f"datetime({digits})",
                (
                    f"'2026-11-21 12:34:56{fraction}'",
                    f"'1000-01-01 00:00:00{fraction}'",
                    f"'9999-12-31 23:59:59{nines}'",
                    "'0000-00-00 00:00:00'",
                    "'2020-00-00 10:00:00'",
                    "'2021-02-31 10:00:00'",
                ),
            )
        )
        samples.append(
            Sample(
                f"timestamp({digits}) null",
                (
                    f"'2026-11-21 12:34:56{fraction}'",
                    f"'1970-01-01 00:00:01{fraction}'",
                    f"'2038-01-19 03:14:06{nines}'",
                    "'0000-00-00 00:00:00'",
                ),
            )
        )
    return samples


def _strings() -> list[Sample]:
    plain = ("''", "'a'", "'  blanks  '", "'tab\\tquote\\'\"\\\\'", "REPEAT('x', 30)")
    samples = [
        Sample("varchar(40) character set utf8mb4", (*plain, "'žluťoučký 中文 😀'", "X'00'")),
        Sample("char(40) character set utf8mb4", (*plain, "'中文 😀'")),
        Sample("varchar(300) character set utf8mb4", (*plain, "REPEAT('é', 300)")),
        Sample("char(255) character set utf8mb4", ("REPEAT('中', 255)", "''", "'x'")),
        Sample("varchar(40) character set utf8", (*plain, "'中文'")),
        Sample("varchar(40) character set ascii", plain),
    ]
    words = {
        "latin1": "'café €‰™'",
        "latin2": "'žluťoučký'",
        "latin5": "'ğüşıöç'",
        "latin7": "'šžąčęė'",
        "cp1250": "'žluťoučký €'",
        "cp1251": "'привет №'",
        "cp1256": "'مرحبا'",
        "cp1257": "'šžąčęė'",
        "cp850": "'éèüñ'",
        "cp852": "'žluťoučký'",
        "cp866": "'привет'",
        "koi8r": "'привет'",
        "koi8u": "'привіт'",
        "greek": "'Ελλάδα'",
        "hebrew": "'שלום'",
        "tis620": "'สวัสดี'",
        "macroman": "'éèüñ'",
        "macce": "'žluťoučký'",
        "armscii8": "'abc'",
        "geostd8": "'abc'",
        "dec8": "'éèüñ'",
        "hp8": "'éèü'",
        "keybcs2": "'žluťoučký'",
        "swe7": "'abc'",
        "gbk": "'中文abc你好'",
        "gb2312": "'中文abc你好'",
        "big5": "'中文abc繁體'",
        "sjis": "'日本語ｱｲｳabc'",
        "cp932": "'日本語ｱｲｳ①'",
        "ujis": "'日本語ｱｲｳabc'",
        "eucjpms": "'日本語ｱｲｳ①'",
        "euckr": "'한국어abc'",
        "ucs2": "'žluť 中文'",
        "utf16": "'žluť 中文 😀'",
        "utf16le": "'žluť 中文 😀'",
        "utf32": "'žluť 中文 😀'",
    }
    samples += [Sample(f"varchar(40) character set {name}", ("''", "'abc'", word)) for name, word in words.items()]
    samples.append(
        Sample("varchar(40) character set gb18030", ("''", "'中文😀žluť'"), servers=MYSQL_57_ON),
    )
    for name in ("tinytext", "text", "mediumtext", "longtext", "text(100)"):
        samples.append(Sample(f"{name} character set utf8mb4", (*plain, "'中文 😀'")))
    samples.append(Sample("mediumtext character set latin1", ("''", "'café'", "REPEAT('é', 70000)")))
    return samples


def _binaries() -> list[Sample]:
    values = ("''", "X'00'", "X'00FF80'", "'abc'", "X'E4B8AD'")
    sent = "HEX(TRIM(TRAILING X'00' FROM c))"
    fixed = ("X'0102030405060708'", "X'FFFEFDFC80818283'", "X'01'", "X'0100200000'", "''")
    samples = [Sample("binary(8)", fixed, sent, from_hex)]
    names = ("varbinary(20)", "varbinary(300)", "tinyblob", "blob", "mediumblob", "longblob")
    samples += [Sample(name, values, HEX, from_hex) for name in names]
    samples.append(Sample("mediumblob", ("REPEAT(X'00FF', 40000)",), HEX, from_hex))
    return samples


JSON_VALUES = (
    "'null'",
    "'true'",
    "'[]'",
    "'{}'",
    "'0'",
    "'-1'",
    "'32767'",
    "'-32769'",
    "'2147483648'",
    "'9223372036854775807'",
    "'18446744073709551615'",
    "'1.5'",
    "'1e20'",
    "'1e-7'",
    "'123456789012345680000'",
    "'-0.1'",
    "'\"text\"'",
    '\'"quote \\\\" back \\\\\\\\ line \\\\n tab \\\\t nul \\\\u0000 del \\\\u007f 中文 😀"\'',
    '\'{"a": 1, "bb": [1, 2, {"c": null}], "longer key": "v"}\'',
    "JSON_ARRAY(CAST('2026-11-21' AS DATE), CAST('2026-11-21 12:34:56.5' AS DATETIME(6)), CAST('-01:02:03' AS TIME))",
    "JSON_ARRAY(CAST(1.50 AS DECIMAL(10,2)), CAST('0.00' AS DECIMAL(10,2)))",
    "JSON_ARRAY(CAST(-12345678901234567890.5 AS DECIMAL(30,5)))",
    "JSON_OBJECT('big', REPEAT('x', 70000), 'after', 1)",
    "JSON_ARRAY(TRUE, FALSE, NULL, 1, 'one')",
    "JSON_OBJECT('t', CAST('10:00:00.000001' AS TIME(6)), 'y', CAST(X'61FF' AS BINARY))",
)


def _others() -> list[Sample]:
    # Long: a list.
    return [
        Sample(
            "decimal(65,30)",
            (
                "0",
                "1",
                "-1",
                "99999999999999999999999999999999999.999999999999999999999999999999",
                "-0.000000000000000000000000000001",
            ),
        ),
        Sample("decimal(10,2)", ("0", "5", "5.1", "5.01", "-99999999.99")),
        Sample("decimal(20,10)", ("1.5", "-1.0000000001", "0.0000000001")),
        Sample("decimal(9,9)", ("0.123456789", "0", "-0.000000001")),
        Sample("decimal(18,0)", ("0", "999999999999999999", "-7")),
        Sample("decimal(5,5)", ("0.00001", "-0.99999")),
        Sample("decimal(65,0)", ("9" * 65, "-" + "9" * 65)),
        Sample(
            "float",
            ("0", "1", "-1.5", "3.4028234e38", "1.17549435e-38", "1e-5", "16777216", "0.1", "1e7", "123456.7"),
            "c + 0e0",
            lambda x: java_text(x, True),
        ),
        Sample(
            "double",
            (
                "0",
                "1",
                "-1.5",
                "1.7976931348623157e308",
                "2.2250738585072014e-308",
                "1e-5",
                "0.1",
                "1e7",
                "0.001",
                "123456789.125",
                "9999999",
            ),
            "c + 0e0",
            lambda x: java_text(x, False),
        ),
        Sample("float unsigned", ("0.5", "12.25"), "c + 0e0", lambda x: java_text(x, True)),
        Sample("bit(1)", ("b'0'", "b'1'"), NUMBER),
        Sample("bit(8)", ("b'0'", "b'10000001'"), NUMBER),
        Sample("bit(17)", ("b'0'", "b'11111111111111111'", "65537"), NUMBER),
        Sample("bit(64)", ("0", "18446744073709551615", "9223372036854775808"), NUMBER),
        Sample(
            "enum('a','b','with,comma','quo''te','ž')", ("'a'", "'with,comma'", "'quo''te'", "'ž'", "'nothing'"), NUMBER
        ),
        Sample("enum(" + ",".join(f"'v{i}'" for i in range(300)) + ")", ("'v0'", "'v299'", "'v255'"), NUMBER),
        Sample("set('a','b','c')", ("''", "'a'", "'a,b,c'", "'c'"), NUMBER),
        Sample("set(" + ",".join(f"'s{i}'" for i in range(64)) + ")", ("'s0'", "'s63'", "'s0,s31,s32,s63'"), MASK),
        Sample("point", ("ST_GeomFromText('POINT(1 2)')",), HEX, from_hex),
        Sample(
            "geometry",
            ("ST_GeomFromText('LINESTRING(0 0,1 1,2 2)')", "ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))')"),
            HEX,
            from_hex,
        ),
        Sample("json", JSON_VALUES, servers=MYSQL_57_ON),
        Sample("json", ("'100.0'", "'[-0.0, 1e0, 1e14, 1.50, {\"a\": 2.0}]'"), servers=MYSQL_57_ON),
        Sample("json", tuple(value for value in JSON_VALUES if "CAST" not in value), servers=MARIADB),
        Sample(
            "vector(3)",
            ("STRING_TO_VECTOR('[1,2,3]')", "STRING_TO_VECTOR('[-1.5,0,1e10]')"),
            HEX,
            from_hex,
            servers=MYSQL_97,
        ),
        Sample("vector(3)", ("Vec_FromText('[1,2,3]')",), HEX, from_hex, servers=frozenset({"mariadb118"})),
        Sample("inet6", ("'::'", "'::1'", "'2001:db8::ff00:42:8329'", "'::ffff:192.0.2.128'"), servers=MARIADB),
        Sample("inet4", ("'0.0.0.0'", "'192.0.2.128'", "'255.255.255.255'"), servers=MARIADB),
        Sample(
            "uuid",
            (
                "'00000000-0000-0000-0000-000000000000'",
                "'123e4567-e89b-12d3-a456-426655440000'",
                "'f47ac10b-58cc-4372-a567-0e02b2c3d479'",
                "'017f22e2-79b0-7cc3-98c4-dc0c0c07398f'",
            ),
            servers=MARIADB,
        ),
        Sample("varchar(40) compressed", ("''", "'abc'", "REPEAT('é', 40)"), servers=MARIADB),
        Sample("text compressed", ("''", "'abc'", "REPEAT('abc', 5000)"), servers=MARIADB),
        Sample("blob compressed", ("''", "REPEAT(X'00FF', 5000)"), HEX, from_hex, servers=MARIADB),
    ]


SAMPLES = [*_integers(), *_temporals(), *_strings(), *_binaries(), *_others()]
