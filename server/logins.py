"""Failed logins, counted together by all processes of a server, and how long the next attempt has to wait."""

import hashlib
import ipaddress
import mmap
import os
import secrets
import struct
from typing import Final

FREE_FAILURES = 5
"""Failed logins of a user from an address before they must wait."""
LONGEST_WAIT = 900.0
"""Seconds."""
MOST: Final = 1000
"""Failures that are counted: more make no difference."""
_SECRET: Final = 32
_SLOT: Final = struct.Struct("=16sIdd")
"""What stands for user and network, failures, until when they wait, when they failed last."""
_SLOTS, _SETS = 16, 1024
"""A pair may be in any slot of one set, so that at most 16,384 are remembered."""
SIZE: Final = _SECRET + _SLOT.size * _SLOTS * _SETS


def make_table() -> int:
    """Make the memory in which processes count: a file without a name, which each maps. Returns its descriptor."""
    table = os.memfd_create("sluice-logins")
    os.ftruncate(table, SIZE)
    os.pwrite(table, secrets.token_bytes(_SECRET), 0)  # nobody knows who shares a set with whom
    return table


class LoginLimiter:
    """Delays the next attempt of a user whose logins keep failing: 1 s after the fifth failure, then double.

    Failures count by user and network, so that one user does not keep another out who comes through the same proxy.
    Nothing is locked, since a process that stands still would stop the others: failures of two processes in the same
    microsecond may count as one.
    """

    def __init__(self, table: int | None = None) -> None:
        """Count in the memory that `make_table` has made, by default in one of its own. Takes the descriptor over."""
        table = make_table() if table is None else table
        try:
            self._table = mmap.mmap(table, SIZE)
        finally:
            os.close(table)
        self._secret = self._table[:_SECRET]

    def wait(self, user: str, address: str, now: float) -> float:
        """Seconds until ``user`` may try again from ``address``; 0 when that may be now.

        ``now`` is on the clock that all processes of a machine share, `time.monotonic`.
        """
        key, slots = self._set_of(user, address)
        return max((until - now for _, (found, _, until, _) in slots if found == key and until > now), default=0.0)

    def failed(self, user: str, address: str, now: float) -> None:
        """Note a failed login; in a full set it takes the place of who failed longest ago."""
        key, slots = self._set_of(user, address)
        at, (found, count, _, _) = min(slots, key=lambda slot: (slot[1][0] != key, slot[1][3]))
        count = min(count, MOST) + 1 if found == key else 1
        pause = 0.0 if count < FREE_FAILURES else min(2.0 ** (count - FREE_FAILURES), LONGEST_WAIT)
        _SLOT.pack_into(self._table, at, key, count, now + pause, now)

    def succeeded(self, user: str, address: str) -> None:
        """Forget the failures of ``user`` from ``address``."""
        key, slots = self._set_of(user, address)
        for at, (found, *_) in slots:
            if found == key:
                self._table[at : at + _SLOT.size] = bytes(_SLOT.size)

    def _set_of(self, user: str, address: str) -> tuple[bytes, list[tuple[int, tuple[bytes, int, float, float]]]]:
        """Return what stands for user and network, and the slots in which it may be, each with its place."""
        text = f"{network_of(address)} {user}".encode(errors="surrogatepass")
        key = hashlib.blake2b(text, digest_size=16, key=self._secret).digest()
        begin = _SECRET + int.from_bytes(key[:4], "little") % _SETS * _SLOTS * _SLOT.size
        places = range(begin, begin + _SLOTS * _SLOT.size, _SLOT.size)
        return key, [(at, _SLOT.unpack_from(self._table, at)) for at in places]


def network_of(address: str) -> str:
    """Return what stands for a caller's address: of IPv6 its /64, which is what one customer usually holds."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False)) if parsed.version == 6 else address
