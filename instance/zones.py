"""Time zones: how far they are from UTC, and from when on."""

import contextlib
import functools
import os
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ..protocol.errors import ConfigError

_FIXED = re.compile(r"(?:GMT|UTC|Z)?(?:([+-])(\d{1,2})(?::?(\d{2}))?)?")
_DAY = 86400


@functools.cache
def offsets_of(name: str | None) -> tuple[tuple[int, int], ...]:
    """Return the offsets of a zone for all that a TIMESTAMP can hold (1970 to 2106): since when, and seconds to UTC.

    ``name`` is an IANA name, an offset such as ``+08:00`` or ``GMT+8``, or None for the zone of the process. The first
    offset counts since 1970, in seconds. Takes some 50 ms, once. Raises ConfigError if the zone does not exist.
    """
    offset_at = _offset_function(name)
    found = [(0, offset_at(0))]
    for day in range(_DAY, 1 << 32, _DAY):
        offset = offset_at(day)
        if offset == found[-1][1]:
            continue
        low, high = day - _DAY, day
        while high - low > 1:
            middle = (low + high) // 2
            if offset_at(middle) == offset:
                high = middle
            else:
                low = middle
        found.append((high, offset))
    return tuple(found)


def is_utc(name: str | None) -> bool:
    """Whether local times are those of UTC. Raises ConfigError."""
    return offsets_of(name) == ((0, 0),)


def has_daylight_saving(name: str | None) -> bool:
    """Whether the offset will change again, so that one hour per year has two meanings. Raises ConfigError."""
    return offsets_of(name)[-1][0] > time.time()  # noqa: TID251  beside points in time


@functools.cache
def local_time_zone() -> str:
    """Return the name of the zone of the process; empty if nothing names it."""
    name = os.environ.get("TZ", "").removeprefix(":")
    if not name and not (name := Path("/etc/localtime").resolve().as_posix().partition("/zoneinfo/")[2]):
        with contextlib.suppress(OSError):
            name = Path("/etc/timezone").read_text().strip()
    now = datetime.now(UTC)  # noqa: TID251  asks for the zone, not the time
    try:
        is_that = now.astimezone(ZoneInfo(name)).utcoffset() == now.astimezone().utcoffset()
    except (ZoneInfoNotFoundError, ValueError, OSError):  # a zone that TZ describes instead of naming it
        return ""
    return name if is_that else ""


def _offset_function(name: str | None) -> Callable[[int], int]:
    """Return a function from a time, in seconds since 1970, to the zone's offset in seconds."""
    if name is None:
        return lambda seconds: time.localtime(seconds).tm_gmtoff
    if fixed := _FIXED.fullmatch(name):
        sign, hours, minutes = fixed.groups()
        offset = (int(hours or 0) * 60 + int(minutes or 0)) * (-60 if sign == "-" else 60)
        if abs(offset) <= 18 * 3600:
            return lambda _: offset
    try:
        zone = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(f"{name!r} is not a time zone: use an IANA name such as Asia/Shanghai, or +08:00") from error

    def offset_at(seconds: int) -> int:
        offset = zone.utcoffset(datetime.fromtimestamp(seconds, zone))
        assert offset is not None
        return int(offset.total_seconds())

    return offset_at
