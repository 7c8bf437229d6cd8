"""The values of numbers and times in their order: each has a key, an integer that the decoder reads from its bytes.

So every comparison with a constant is a range of keys, also where the column cannot hold the constant.
"""

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Final

from ...protocol.errors import ConfigError
from ..columns import SourceColumn
from ..values.types import Type
from .condition import Compare, Constant


class Encoding(IntEnum):
    """How the bytes of a value encode its key."""

    SIGNED = 0
    """A little-endian integer; the key is 2^63 more."""
    UNSIGNED = 1
    """A little-endian integer."""
    BIG_ENDIAN = 2
    """The bytes themselves, first things first; of a DECIMAL there may be more than 8."""
    YEAR = 3
    FLOAT = 4
    DOUBLE = 5
    TIMESTAMP = 6
    """µs since 1970, plus a day, in the time zone of the texts; 0 for the zero date. The µs are the lowest 20 bits."""


DAY: Final = 86_400
"""Seconds by which keys of TIMESTAMP are raised: the first one may be in 1969 by its local time."""
_INTEGERS: Final = {Type.TINY: 8, Type.SHORT: 16, Type.INT24: 24, Type.LONG: 32, Type.LONGLONG: 64}
_OLD: Final = (Type.TIME, Type.DATETIME, Type.TIMESTAMP)
_DATE: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?)?"
)
_TIME: Final = re.compile(r"(-?)([0-9]{2,3}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?")
_DIGITS: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes that a DECIMAL takes, by the number of digits."""


@dataclass(frozen=True, slots=True)
class Domain:
    """The values of a column, as integers in their order."""

    encoding: Encoding
    size: int
    """Bytes of a value."""
    least: int
    greatest: int
    bounds: Callable[[Constant], tuple[int, int]]
    """The least integer whose value is not less than a constant, and the least whose value is greater. Raises
    ConfigError for a constant of another type."""
    key: Callable[[int], int]
    zeros: int = 0
    """How many keys below that of 0 mean 0, too."""

    def range(self, test: Compare) -> tuple[int, int] | None:
        """Return the first and the last key for which a comparison is true; None for no value. Raises ConfigError."""
        low, high = self.bounds(test.constant)
        first, last = {
            "=": (low, high - 1),
            "<": (self.least, low - 1),
            "<=": (self.least, high - 1),
            ">": (high, self.greatest),
            ">=": (low, self.greatest),
        }[test.operator]
        first, last = max(first, self.least), min(last, self.greatest)
        if first > last:
            return None
        return self.key(first) - (self.zeros if first == 0 else 0), self.key(last)


def domain_of(column: SourceColumn, code: int, meta: int) -> Domain | None:
    """Return that of a column by its type in the event; None for one of texts, and for others without an order.

    Raises ConfigError for values in the layout of an old server.
    """
    if code in _OLD:
        raise ConfigError("its values are in the layout from before MySQL 5.6.4; ALTER TABLE … FORCE converts them")
    if code in _INTEGERS:
        bits = _INTEGERS[Type(code)]
        if column.is_unsigned:
            return Domain(Encoding.UNSIGNED, bits // 8, 0, (1 << bits) - 1, _number, _same)
        return Domain(Encoding.SIGNED, bits // 8, -(1 << bits - 1), (1 << bits - 1) - 1, _number, _raised)
    if code == Type.NEWDECIMAL:
        return _decimals(meta >> 8, meta & 0xFF)
    if code == Type.BIT:
        return Domain(Encoding.BIG_ENDIAN, (meta + 7) // 8, 0, (1 << meta) - 1, _number, _same)
    if code in (Type.FLOAT, Type.DOUBLE):
        encoding = Encoding.FLOAT if code == Type.FLOAT else Encoding.DOUBLE
        return Domain(encoding, 4 if code == Type.FLOAT else 8, 0, (1 << 64) - 1, _float, _same)
    if code == Type.YEAR:
        return Domain(Encoding.YEAR, 1, 0, 2155, _year, _same)
    if code in (Type.DATE, Type.NEWDATE):
        return Domain(Encoding.UNSIGNED, 3, 0, (1 << 24) - 1, _date, _same)
    fraction = (meta + 1) // 2
    if code == Type.TIME2:
        return Domain(Encoding.BIG_ENDIAN, 3 + fraction, 0, (1 << 24 + 8 * fraction) - 1, _time_bounds(meta), _same)
    if code == Type.DATETIME2:
        size = 5 + fraction
        return Domain(Encoding.BIG_ENDIAN, size, 0, (1 << 8 * size) - 1, _datetime_bounds(fraction), _same)
    if code == Type.TIMESTAMP2:
        return Domain(Encoding.TIMESTAMP, 4 + fraction, 0, (1 << 64) - 1, _timestamp, _same)
    return None


def _same(number: int) -> int:
    return number


def _raised(number: int) -> int:
    return number + (1 << 63)


# --- numbers


def _exact(constant: Constant) -> Fraction:
    if isinstance(constant, Decimal):
        return Fraction(constant)
    if isinstance(constant, float):
        raise ConfigError(f"{constant} has an exponent, which makes it inexact; write the digits")
    raise ConfigError(f"{constant!r} is a text, but the column has numbers; write a number, without quotes")


def _around(number: Fraction) -> tuple[int, int]:
    return math.ceil(number), math.floor(number) + 1


def _number(constant: Constant) -> tuple[int, int]:
    return _around(_exact(constant))


def _year(constant: Constant) -> tuple[int, int]:
    number = _exact(constant)
    if 0 < number < 1000:  # 99 is 1999, but 100 is not a year
        raise ConfigError(f"{number} is not a year; write its four digits")
    return _around(number)


def _float(constant: Constant) -> tuple[int, int]:
    if not isinstance(constant, Decimal | float):
        _exact(constant)
    key = float_key(float(constant))
    return key, key + 1


def float_key(number: float) -> int:
    """Return the key of a FLOAT or DOUBLE: its bits, for a negative one inverted, else with the highest bit."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", number + 0.0))
    return int(bits) ^ (0xFFFF_FFFF_FFFF_FFFF if bits >> 63 else 1 << 63)


def _decimals(precision: int, scale: int) -> Domain:
    whole = precision - scale
    groups = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]  # digits of each
    size = sum(_DIGITS[it] for it in groups)
    most = 10**precision - 1
    zero = 1 << 8 * size - 1

    def bounds(constant: Constant) -> tuple[int, int]:
        return _around(_exact(constant) * 10**scale)

    def key(number: int) -> int:
        """Pack it as MySQL does: see `put_packed_decimal` in `values/binary.pyx`."""
        packed, rest = b"", abs(number)
        for count in reversed(groups):
            rest, group = divmod(rest, 10**count)
            packed = group.to_bytes(_DIGITS[count], "big") + packed
        found = int.from_bytes(packed, "big") | zero
        return found ^ (1 << 8 * size) - 1 if number < 0 else found

    return Domain(Encoding.BIG_ENDIAN, size, -most, most, bounds, key, zeros=1)  # -0


# --- dates and times


def _parse(constant: Constant) -> tuple[tuple[int, int, int, int, int, int], int]:
    """Year to second, and µs."""
    found = _DATE.fullmatch(constant) if isinstance(constant, str) else None
    if found is None:
        raise ConfigError(f"{constant!r} is not a date; write '2026-12-31' or '2026-12-31 23:59:59'")
    numbers = [int(it or 0) for it in found.groups()[:6]]
    if any(numbers[:3]):
        try:
            datetime(*numbers)  # type: ignore[arg-type]  # noqa: DTZ001  as the column, it has no zone
        except ValueError as error:
            raise ConfigError(f"{constant!r} is not a date: {error}") from None
    elif any(numbers):
        raise ConfigError(f"{constant!r} is not a date")
    year, month, day, hour, minute, second = numbers
    return (year, month, day, hour, minute, second), int((found[7] or "").ljust(6, "0"))


def _between(key: int, *, is_exact: bool) -> tuple[int, int]:
    """Return the bounds of what has a key, or is between that key and the next one."""
    return (key, key + 1) if is_exact else (key + 1, key + 1)


def _date(constant: Constant) -> tuple[int, int]:
    (year, month, day, *clock), microseconds = _parse(constant)
    return _between(year << 9 | month << 5 | day, is_exact=not any(clock) and not microseconds)


def _datetime_bounds(fraction: int) -> Callable[[Constant], tuple[int, int]]:
    """`fraction`: bytes of a second's fraction."""

    def bounds(constant: Constant) -> tuple[int, int]:
        (year, month, day, hour, minute, second), microseconds = _parse(constant)
        units, rest = divmod(microseconds, 10 ** (6 - 2 * fraction))
        key = 1 << 39 | (year * 13 + month) << 22 | day << 17 | hour << 12 | minute << 6 | second
        return _between(key << 8 * fraction | units, is_exact=not rest)

    return bounds


def _timestamp(constant: Constant) -> tuple[int, int]:
    moment, microseconds = _parse(constant)
    if not any(moment):
        return _between(microseconds, is_exact=True)
    seconds = (datetime(*moment) - datetime(1970, 1, 1)).total_seconds()  # noqa: DTZ001  as above
    # Of constants before the first TIMESTAMP the key is no value's: greater than the zero date, less than all others.
    return _between(max(int(seconds) + DAY, 1) << 20 | microseconds, is_exact=True)


def _time_bounds(digits: int) -> Callable[[Constant], tuple[int, int]]:
    """`digits`: of a second's fraction. MySQL does not compare exactly with a constant that has more of them."""
    fraction = (digits + 1) // 2

    def bounds(constant: Constant) -> tuple[int, int]:
        found = _TIME.fullmatch(constant) if isinstance(constant, str) else None
        if found is None or int(found[2]) > 838 or int(found[3]) > 59 or int(found[4]) > 59:
            raise ConfigError(f"{constant!r} is not a time; write '23:59:59' or '-23:59:59.5'")
        microseconds = int((found[5] or "").ljust(6, "0"))
        if microseconds % 10 ** (6 - digits):
            raise ConfigError(f"{constant!r} has more digits after the point than the column: {digits}")
        units = microseconds // 10 ** (6 - 2 * fraction)
        size = (int(found[2]) << 12 | int(found[3]) << 6 | int(found[4])) << 8 * fraction | units
        zero = 0x800000 << 8 * fraction
        return _between(zero + (-size if found[1] else size), is_exact=True)

    return bounds
