"""How much a client may be given: bytes a second, and bytes a day. No I/O, and no clock.

A rate is a token bucket that holds the bytes of one second. A batch has at most what is there; an entry that is larger
comes alone, and nothing follows before that is made up for. A quota counts what was given in a day of UTC. What a batch
has is known when it is given, so the last one of a day may go beyond the quota.
"""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from ..protocol.errors import QuotaExceededError

DAY = 86_400
"""Seconds of the day that a quota is for."""
LEAST = 10
"""A get waits until this part of a second's bytes is there: it would be given tiny batches otherwise."""
LARGEST = 1 << 50
"""Bytes that a rate or a quota may have."""


class Limits(NamedTuple):
    """How much a client may be given: 0 for any number, None for the default."""

    max_rate: int | None = None
    """Bytes a second."""
    quota: int | None = None
    """Bytes a day."""


UNLIMITED = Limits()
"""As a default, nothing is limited."""


@dataclass(frozen=True, slots=True)
class AllowanceStatus:
    """How much a client may be given, and how much of that it has used."""

    max_rate: int = 0
    """Bytes a second, 0 for any number."""
    quota: int = 0
    """Bytes a day, 0 for any number."""
    used: int = 0
    """Bytes that it was given on the day ``day``."""
    day: int = 0
    """Days since 1970, in UTC."""
    until: float = 0.0
    """Until when its rate lets nothing through, on the clock of the calls."""
    seconds: float = 0.0
    """For how long its rate has kept its calls waiting, since the destination was started."""

    def used_on(self, unix_time: float) -> int:
        """Return how many bytes count for the quota at that time."""
        return self.used if _day(unix_time) <= self.day else 0


class Allowance:
    """What one client may be given. ``now`` is a clock that is never set, ``unix_time`` one that people set.

    Nothing limits it before `limit`.
    """

    def __init__(self, used: str = "") -> None:
        """``used`` is what `stored` has returned."""
        self.max_rate = self.quota = 0
        self.is_limited = False
        """Whether anything else has to be called: a get without limits costs nothing more."""
        day, _, size = used.partition(":")
        self._day, self._used = (int(day), int(size)) if used else (0, 0)
        self._level = 0.0
        self._at: float | None = None
        self._refused = self._until = 0.0  # from when to when a call was last told to wait
        self._seconds = 0.0

    def limit(self, limits: Limits, default: Limits) -> None:
        """Let other limits count from here on; what was given counts."""
        max_rate = (default.max_rate if limits.max_rate is None else limits.max_rate) or 0
        quota = (default.quota if limits.quota is None else limits.quota) or 0
        if max_rate != self.max_rate:
            self._level = min(self._level, float(max_rate)) if self.max_rate else float(max_rate)
        self.max_rate, self.quota = max_rate, quota
        self.is_limited = bool(max_rate or quota)

    def require_quota(self, client_id: int, unix_time: float) -> None:
        """Raise QuotaExceededError when nothing is left of the quota of the day."""
        if not self.quota:
            return
        self._enter(unix_time)
        if self._used >= self.quota:
            end = (self._day + 1) * DAY
            raise QuotaExceededError(
                f"client {client_id} has used up its quota: it was given {self._used} bytes of {self.quota} a day; more"
                f" comes from {datetime.fromtimestamp(end, UTC):%Y-%m-%dT%H:%M:%SZ} on",
                max(1.0, end - unix_time),
            )

    def allowed(self, now: float) -> int | None:
        """Return how many bytes the client may be given now: 0 for none yet, None for any number."""
        if not self.max_rate:
            return None
        wait = self.wait(now)
        self._seconds += max(0.0, min(now, self._until) - self._refused)
        self._refused, self._until = now, now + wait
        return 0 if wait else max(1, int(self._level))

    def wait(self, now: float) -> float:
        """Return the seconds until the client may be given something, by its rate alone."""
        if not self.max_rate:
            return 0.0
        elapsed = 0.0 if self._at is None else max(0.0, now - self._at)
        self._at = now
        self._level = min(float(self.max_rate), self._level + elapsed * self.max_rate)
        return self._missing()

    def charge(self, size: int, unix_time: float) -> bool:
        """Count what the client was given. Return whether that is to be stored."""
        self._level -= size if self.max_rate else 0
        if not self.quota:
            return False
        self._enter(unix_time)
        self._used += size
        return True

    def stored(self) -> str:
        """Return what was used of the quota, as it is to be stored."""
        return f"{self._day}:{self._used}" if self.quota and self._used else ""

    def status(self) -> AllowanceStatus:
        """Return it as it is shown."""
        until = (self._at or 0.0) + self._missing()
        return AllowanceStatus(self.max_rate, self.quota, self._used, self._day, until, self._seconds)

    def _missing(self) -> float:
        """Return the seconds until there is enough, from the last look."""
        least = max(1.0, self.max_rate / LEAST)
        return max(0.0, (least - self._level) / self.max_rate) if self.max_rate else 0.0

    def _enter(self, unix_time: float) -> None:
        """Begin a new day. A clock that is set back begins none: what was used counts for the day that it shows."""
        day = _day(unix_time)
        if day > self._day:
            self._used = 0
        self._day = day


def parse_used(text: str) -> str:
    """Return what `Allowance.stored` has written. Raises ValueError if it is something else."""
    if text:
        day, colon, size = text.partition(":")
        if not (colon and _is_number(day) and _is_number(size)):
            raise ValueError(f"not what a client has used of its quota: {text!r}")
    return text


def parse_limit(text: str) -> int:
    """Read a rate or a quota that was stored. Raises ValueError if it is none."""
    if not _is_number(text) or int(text) > LARGEST:
        raise ValueError(f"not a number of bytes up to {LARGEST}: {text!r}")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 20


def _day(unix_time: float) -> int:
    return math.floor(unix_time / DAY)
