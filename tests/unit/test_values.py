"""A value's bytes in a row event become the text that Canal writes, with Canal's sqlType."""

import math
import struct
import zlib
from datetime import UTC, datetime
from decimal import Decimal, localcontext
from ipaddress import IPv6Address
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.instance.columns import SourceColumn
from sluice.instance.sources.mysql.decode.plan import PlanOptions, TablePlan
from sluice.instance.sources.mysql.decode.table_map import TableMap
from sluice.instance.values.binary import Zone
from sluice.instance.values.types import Type
from sluice.protocol.canal.tags import EventType
from sluice.protocol.errors import ConfigError, DecodeError
from tests.unit.plans import column, plan, rows, table_map, text

UTC_ZONE = {"time_zone": "UTC"}


@pytest.mark.parametrize(
    ("mysql_type", "data", "value"),
    [
        ("tinyint(4)", "80", "-128"),
        ("tinyint(1)", "01", "1"),
        ("tinyint unsigned", "ff", "255"),
        ("smallint", "0080", "-32768"),
        ("smallint unsigned", "ffff", "65535"),
        ("mediumint", "000080", "-8388608"),
        ("mediumint", "ffff7f", "8388607"),
        ("mediumint unsigned", "ffffff", "16777215"),
        ("int(11)", "00000080", "-2147483648"),
        ("int(10) unsigned zerofill", "07000000", "7"),
        ("bigint", "0000000000000080", "-9223372036854775808"),
        ("bigint unsigned", "ffffffffffffffff", "18446744073709551615"),
        ("float", "0000c03f", "1.5"),
        ("double", "000000000000f0bf", "-1.0"),
        ("decimal(10,2)", "8000000500", "5.00"),
        ("decimal(10,2)", "7ffffffafe", "-5.01"),
        ("decimal(5,5)", "803039", "0.12345"),
        ("decimal(18,9)", "8000000100000001", "1.000000001"),
        ("decimal(14,4)", "810dfb38d204d2", "1234567890.1234"),
        ("decimal(14,4)", "7ef204c72dfb2d", "-1234567890.1234"),
        ("bit(1)", "01", "1"),
        ("bit(9)", "01ff", "511"),
        ("bit(64)", "ffffffffffffffff", "18446744073709551615"),
        ("year(4)", "00", "0000"),
        ("year", "7c", "2024"),
        ("date", "21e80f", "2036-01-01"),
        ("date", "000000", "0000-00-00"),
        ("date", "00c80f", "2020-00-00"),
        ("enum('a','b')", "02", "2"),
        ("enum('a','b')", "00", "0"),
        ("set('a','b','c')", "05", "5"),
        ("char(10)", "03c3a961", "éa"),
        ("char(200)", "0300e282ac", "€"),
        ("varchar(10)", "00", ""),
        ("varchar(300)", "0400f09f9880", "😀"),
        ("text", "0200c3a9", "é"),
        ("binary(4)", "0300ff80", "\x00ÿ\x80"),
        ("varbinary(300)", "020041e9", "Aé"),
        ("blob", "010081", "\x81"),
        ("geometry", "0300000001e9ff", "\x01éÿ"),
        ("vector", "040000000000803f", "\x00\x00\x80?"),
        ("inet4", "0401020304", "1.2.3.4"),
        ("inet4", "010a", "10.0.0.0"),  # trailing zero bytes are not in the event
        ("inet6", "00", "::"),
    ],
)
def test_a_value_becomes_text(mysql_type: str, data: str, value: str) -> None:
    assert text(mysql_type, bytes.fromhex(data)) == value


@pytest.mark.parametrize(
    ("mysql_type", "data", "value"),
    [
        ("time", "800000", "00:00:00"),
        ("time", "b46efb", "838:59:59"),
        ("time", "4b9105", "-838:59:59"),
        ("time(1)", "7fffffce", "-00:00:00.5"),
        ("time(2)", "86400107", "100:00:01.07"),
        ("time(3)", "80c84b1388", "12:33:11.500"),
        ("time(4)", "7f37b4ffff", "-12:33:11.0001"),
        ("time(6)", "7fffffffffff", "-00:00:00.000001"),
        ("datetime", "8000000000", "0000-00-00 00:00:00"),
        ("datetime", "99a5bb7efb", "2020-02-29 23:59:59"),
        ("datetime", "99a5bd7efb", "2020-02-30 23:59:59"),
        ("datetime", "99a500a000", "2020-00-00 10:00:00"),
        ("datetime(6)", "fef3ff7efb0f423f", "9999-12-31 23:59:59.999999"),
        ("datetime(3)", "8000000000 0000", "0000-00-00 00:00:00.000"),
        ("timestamp", "00000000", "0000-00-00 00:00:00"),
        ("timestamp", "00000001", "1970-01-01 00:00:01"),
        ("timestamp(2)", "5e0be0ff 63", "2019-12-31 23:59:59.99"),
        ("timestamp(5)", "5e0be0ff 0f4236", "2019-12-31 23:59:59.99999"),
        ("timestamp(6)", "ffffffff 000001", "2106-02-07 06:28:15.000001"),
    ],
)
def test_temporal_values_keep_their_digits_and_their_zeros(mysql_type: str, data: str, value: str) -> None:
    assert text(mysql_type, bytes.fromhex(data), **UTC_ZONE) == value


@pytest.mark.parametrize(
    ("mysql_type", "code", "data", "value"),
    [
        ("time", Type.TIME, (8385959).to_bytes(3, "little"), "838:59:59"),
        ("time", Type.TIME, (10000).to_bytes(3, "little"), "01:00:00"),
        ("time", Type.TIME, (-10203).to_bytes(3, "little", signed=True), "-01:02:03"),
        ("datetime", Type.DATETIME, (20240229235958).to_bytes(8, "little"), "2024-02-29 23:59:58"),
        ("datetime", Type.DATETIME, bytes(8), "0000-00-00 00:00:00"),
        ("timestamp", Type.TIMESTAMP, (1577836799).to_bytes(4, "little"), "2019-12-31 23:59:59"),
        ("timestamp", Type.TIMESTAMP, bytes(4), "0000-00-00 00:00:00"),
        ("date", Type.NEWDATE, (2024 << 9 | 2 << 5 | 29).to_bytes(3, "little"), "2024-02-29"),
    ],
)
def test_the_layouts_before_mysql_5_6_4_are_read(mysql_type: str, code: int, data: bytes, value: str) -> None:
    assert text(mysql_type, data, code=code, **UTC_ZONE) == value


@pytest.mark.parametrize("number", [60, 6000, 8390000])
def test_a_number_that_is_not_a_time_of_the_old_layout_is_an_error(number: int) -> None:
    with pytest.raises(DecodeError, match="not a time"):
        text("time", number.to_bytes(3, "little"), code=Type.TIME)


@pytest.mark.parametrize("number", [20240229235960, 20240229236058, 20240229245958])
def test_a_number_that_is_not_a_date_and_time_of_the_old_layout_is_an_error(number: int) -> None:
    with pytest.raises(DecodeError, match="not a date and time"):
        text("datetime", number.to_bytes(8, "little"), code=Type.DATETIME)


@pytest.mark.parametrize(
    ("mysql_type", "data"),
    [
        ("date", "ffffff"),
        ("time", "800fc0"),
        ("time", "800f00"),
        ("time", "80003c"),
        ("time", "ffffff"),
        ("datetime", "0000000001"),
        ("datetime", "99a5bb8000"),
        ("decimal(9,0)", "ffffffff"),
        ("datetime(6)", "8000000000ffffff"),
        ("inet4", "050102030405"),
    ],
)
def test_bytes_that_are_not_a_value_of_the_type_are_an_error(mysql_type: str, data: str) -> None:
    with pytest.raises(DecodeError, match=r"shop\.t\.c0: .* at byte \d+ of the event's rows"):
        text(mysql_type, bytes.fromhex(data))


@pytest.mark.parametrize(
    ("mysql_type", "data", "sql_type", "of_null"),
    [
        ("tinyint unsigned", "7f", -6, -6),
        ("tinyint unsigned", "80", 5, -6),
        ("smallint unsigned", "0080", 4, 5),
        ("mediumint unsigned", "ffffff", 4, 4),
        ("int unsigned", "00000080", -5, 4),
        ("int", "ffffffff", 4, 4),
        ("bigint unsigned", "0000000000000080", 3, -5),
        ("float", "00000000", 7, 7),
        ("double", "0000000000000000", 8, 8),
        ("decimal(1,0)", "81", 3, 3),
        ("bit(3)", "01", -7, -7),
        ("date", "000000", 91, 91),
        ("year", "00", 12, 12),
        ("time", "800000", 92, 92),
        ("datetime", "8000000000", 93, 93),
        ("timestamp", "00000000", 93, 93),
        ("char(1)", "0161", 1, 1),
        ("varchar(1)", "0161", 12, 12),
        ("binary(1)", "0161", 2004, 2004),
        ("varbinary(1)", "0161", 2004, 2004),
        ("text", "010061", 2005, 2005),
        ("blob", "010061", 2004, 2004),
        ("enum('a')", "01", 4, 4),
        ("set('a')", "01", -7, 2004),
        ("json", "020000000400", 12, 1111),
        ("geometry", "0100000061", 2004, 2004),
    ],
)
def test_sql_types_are_those_of_canal(mysql_type: str, data: str, sql_type: int, of_null: int) -> None:
    assert column(mysql_type, bytes.fromhex(data)).sqlType == sql_type
    ((_, (null,)),) = rows(plan(mysql_type).encode(b"\xff", EventType.INSERT))
    assert (null.sqlType, null.isNull, null.value) == (of_null, True, "")


class TestStrictCanal:
    @pytest.mark.parametrize(
        ("mysql_type", "data", "value"),
        [
            ("decimal(10,2)", "8000000500", "5.0"),
            ("decimal(10,2)", "8000000000", "0.0"),
            ("decimal(10,2)", "800000050a", "5.10"),
            ("decimal(20,10)", "8000000001 1dcd6500 00", "1.500000000"),
            ("decimal(18,9)", "8000000100000000", "1.000000000"),
        ],
    )
    def test_the_last_short_group_of_a_decimal_is_left_out_when_zero(
        self, mysql_type: str, data: str, value: str
    ) -> None:
        assert text(mysql_type, bytes.fromhex(data), strict_canal=True) == value

    def test_texts_are_in_the_character_set_of_the_connection(self) -> None:
        assert text("varchar(9)", b"\1\xe9", charset="latin1") == "é"
        assert text("varchar(9)", b"\1\xe9", charset="latin1", strict_canal=True) == "\ufffd"

    def test_text_with_a_length_is_binary(self) -> None:
        assert column("text(10)", b"\2\0\xc3\xa9").sqlType == 2005
        assert column("text(10)", b"\2\0\xc3\xa9", strict_canal=True).value == "Ã©"

    def test_a_hundred_hours_lose_their_one_in_the_old_layout(self) -> None:
        data = (1000102).to_bytes(3, "little")
        assert text("time", data, code=Type.TIME) == "100:01:02"
        assert text("time", data, code=Type.TIME, strict_canal=True) == "00:01:02"


def pack_decimal(number: Decimal, precision: int, scale: int) -> bytes:
    """Write MySQL's packed decimal, plainly."""
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    digits = f"{abs(number):.{scale}f}".replace(".", "").rjust(precision, "0")[-precision:]
    whole, part = digits[: precision - scale], digits[precision - scale :]
    groups = [whole[: len(whole) % 9]] + [whole[i : i + 9] for i in range(len(whole) % 9, len(whole), 9)]
    groups += [part[i : i + 9] for i in range(0, len(part), 9)]
    data = bytearray(b"".join(int(group).to_bytes(sizes[len(group)], "big") for group in groups if group))
    data[0] ^= 0x80
    return bytes(data) if number >= 0 else bytes(byte ^ 0xFF for byte in data)


@given(st.data())
def test_a_decimal_keeps_every_digit_of_its_scale(data: st.DataObject) -> None:
    precision = data.draw(st.integers(1, 65))
    scale = data.draw(st.integers(0, min(30, precision)))
    with localcontext(prec=80):
        number = Decimal(data.draw(st.integers(-(10**precision) + 1, 10**precision - 1))).scaleb(-scale)
        assert text(f"decimal({precision},{scale})", pack_decimal(number, precision, scale)) == f"{number:f}"


def java(digits: str, exponent: int) -> str:
    """Lay out the digits d.ddd and the exponent of ten as Java's Double.toString."""
    if -3 <= exponent < 0:
        return "0." + "0" * (-exponent - 1) + digits
    if 0 <= exponent < 7:
        digits = digits.ljust(exponent + 2, "0")
        return digits[: exponent + 1] + "." + digits[exponent + 1 :]
    return f"{digits[0]}.{digits[1:] or '0'}E{exponent}"


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_is_written_as_java_does(number: float) -> None:
    if number == 0:
        expected = "-0.0" if math.copysign(1, number) < 0 else "0.0"
    else:
        digits, exponent = f"{Decimal(repr(abs(number))):e}".lower().split("e") if number else ("0", "0")
        digits = digits.replace(".", "").rstrip("0") or "0"
        if len(digits) == 1:  # the nearest of two digits
            digits, exponent = f"{abs(number):.1e}".split("e")
            digits = digits.replace(".", "").rstrip("0")
        expected = ("-" if number < 0 else "") + java(digits, int(exponent))
    result = text("double", struct.pack("<d", number))
    assert result == expected
    assert float(result) == number


def as_float(digits: str) -> bytes:
    """Return the 32 bits of the nearest float, which may be infinite."""
    try:
        return struct.pack("<f", float(digits))
    except OverflowError:
        return struct.pack("<f", math.inf)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_has_the_fewest_digits_that_read_back_as_it(number: float) -> None:
    result = text("float", struct.pack("<f", number))
    assert as_float(result) == struct.pack("<f", number)
    digits = len(result.split("E")[0].replace("-", "").replace(".", "").strip("0"))
    assert digits <= 9
    for fewer in range(2, digits):
        assert as_float(f"{number:.{fewer - 1}e}") != struct.pack("<f", number)


@pytest.mark.parametrize(
    ("number", "value"),
    [
        (5e-324, "4.9E-324"),
        (1e-5, "1.0E-5"),
        (0.001, "0.001"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (math.nan, "NaN"),
    ],
)
def test_the_ends_of_javas_rules(number: float, value: str) -> None:
    assert text("double", struct.pack("<d", number)) == value


@pytest.mark.parametrize(
    ("number", "value"), [(3.4028234663852886e38, "3.4028235E38"), (1e-45, "1.4E-45"), (0.1, "0.1"), (1e10, "1.0E10")]
)
def test_a_float_has_the_digits_of_32_bits(number: float, value: str) -> None:
    assert text("float", struct.pack("<f", number)) == value


class TestTimeZones:
    @pytest.mark.parametrize(
        "zone",
        ["UTC", "Asia/Shanghai", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"],
    )
    @given(seconds=st.lists(st.integers(1, 2**32 - 1), min_size=1, max_size=20))
    def test_a_timestamp_is_local_time_summer_and_winter(self, zone: str, seconds: list[int]) -> None:
        data = b"".join(b"\xfe" + value.to_bytes(4, "big") for value in seconds)
        encoded = plan("timestamp", time_zone=zone).encode(data, EventType.INSERT)
        expected = [f"{datetime.fromtimestamp(value, ZoneInfo(zone)):%Y-%m-%d %H:%M:%S}" for value in seconds]
        assert [after[0].value for _, after in rows(encoded)] == expected

    @pytest.mark.parametrize(
        ("seconds", "value"),
        [
            (1711846799, "2024-03-31 01:59:59"),
            (1711846800, "2024-03-31 03:00:00"),
            (1729990799, "2024-10-27 02:59:59"),
            (1729990800, "2024-10-27 02:00:00"),
        ],
    )
    def test_the_second_of_a_transition_is_exact(self, seconds: int, value: str) -> None:
        assert text("timestamp", seconds.to_bytes(4, "big"), time_zone="Europe/Berlin") == value

    @pytest.mark.parametrize(
        ("zone", "value"), [("+08:00", "08:00:01"), ("-03:30", "20:30:01"), ("GMT+8", "08:00:01"), ("UTC", "00:00:01")]
    )
    def test_an_offset_is_a_zone(self, zone: str, value: str) -> None:
        assert text("timestamp", b"\0\0\0\1", time_zone=zone).endswith(value)

    def test_none_is_the_zone_of_the_process(self) -> None:
        local = datetime.fromtimestamp(1_700_000_000, UTC).astimezone()
        assert text("timestamp", (1_700_000_000).to_bytes(4, "big")) == f"{local:%Y-%m-%d %H:%M:%S}"

    def test_an_unknown_zone_is_a_configuration_error(self) -> None:
        with pytest.raises(ConfigError, match="'Mars/Base' is not a time zone"):
            Zone("Mars/Base")


@given(st.binary(min_size=16, max_size=16))
def test_an_inet6_reads_back(octets: bytes) -> None:
    assert IPv6Address(text("inet6", b"\x10" + octets)).packed == octets


@pytest.mark.parametrize(
    ("octets", "value"),
    [
        ("20010db8000000000000ff0000428329", "2001:db8::ff00:42:8329"),
        ("00000000000000000000ffff01020304", "::ffff:1.2.3.4"),
        ("00000000000000000000000001020304", "::1.2.3.4"),
        ("00010000000200030004000500060007", "1::2:3:4:5:6:7"),
        ("00010002000300040005000600070000", "1:2:3:4:5:6:7::"),
        ("00000000000000000000000000000001", "::1"),
    ],
)
def test_an_inet6_is_written_as_mariadb_prints_it(octets: str, value: str) -> None:
    assert text("inet6", b"\x10" + bytes.fromhex(octets)) == value


@pytest.mark.parametrize(
    ("stored", "value"),
    [
        ("426655440000a45612d3e89b123e4567", "123e4567-e89b-12d3-a456-426655440000"),  # version 1: segments reversed
        ("018c2e65f2a77abc8def0123456789ab", "018c2e65-f2a7-7abc-8def-0123456789ab"),  # version 7: unchanged
        ("", "00000000-0000-0000-0000-000000000000"),
    ],
)
def test_a_uuid_is_put_back_into_order(stored: str, value: str) -> None:
    data = bytes.fromhex(stored)
    assert text("uuid", bytes([len(data)]) + data) == value


class TestCompressedColumns:
    def column(self, data: bytes) -> str:
        table = TableMap.parse(table_map((Type.VARCHAR_COMPRESSED, (401).to_bytes(2, "little"))))
        only = TablePlan(table, [SourceColumn("c", "varchar(100) /*M!100301 COMPRESSED*/", "utf8mb4")], 1)
        size = len(data).to_bytes(2, "little")
        return rows(only.encode(b"\xfe" + size + data, EventType.INSERT))[0][1][0].value

    @pytest.mark.parametrize("wrapped", [True, False])
    def test_a_deflated_value_is_inflated(self, *, wrapped: bool) -> None:
        packer = zlib.compressobj(wbits=15 if wrapped else -15)
        deflated = packer.compress("é".encode() * 100) + packer.flush()
        assert self.column(bytes([0x81 if wrapped else 0x89, 200]) + deflated) == "é" * 100

    def test_a_short_value_is_stored(self) -> None:
        assert self.column(b"\0abc") == "abc"
        assert self.column(b"") == ""

    @pytest.mark.parametrize("data", [b"\x81", b"\x81\x05abc", b"\x70abc", b"\x84\xff\xff\xff\xffabc"])
    def test_what_does_not_inflate_is_an_error(self, data: bytes) -> None:
        with pytest.raises(DecodeError, match="not a compressed value"):
            self.column(data)


def test_mariadbs_old_fractional_times_are_refused_by_name() -> None:
    table = TableMap.parse(table_map((Type.DATETIME, b"")))
    with pytest.raises(DecodeError, match=r"shop\.t\.c: .*mysql56_temporal_format"):
        TablePlan(table, [SourceColumn("c", "datetime(3)")], 1, PlanOptions())
