"""How long a server may take itself for the owner of what it owned."""

import math

PART = 2 / 3
"""Of the session's timeout; the rest is for clocks that go differently, and for ZooKeeper's ticks."""


class Lease:
    """The time for which a session is known to live. Times are seconds of CLOCK_BOOTTIME, which goes on in suspend."""

    def __init__(self) -> None:
        self.until = -math.inf
        self._length = 0.0

    def begin(self, timeout: float) -> None:
        """A session with this timeout was opened; it proves nothing before its first beat."""
        self.until = -math.inf
        self._length = timeout * PART

    def renew(self, sent: float) -> None:
        """The leader has answered what was sent then."""
        self.until = max(self.until, sent + self._length)

    def end(self) -> None:
        """The session is lost."""
        self.until = -math.inf

    def valid(self, now: float) -> bool:
        """Whether no other server can own now what the session owns."""
        return now < self.until
