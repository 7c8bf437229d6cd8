"""The login: Canal's scramble, which is that of MySQL 4.1 with SHA-1.

The server keeps ``stored = SHA1(SHA1(password))`` and greets each connection with a seed. The client proves that it
knows ``SHA1(password)`` without sending it::

    token = SHA1(seed + stored) XOR SHA1(password)       sent as 40 hexadecimal digits
    SHA1(token XOR SHA1(seed + stored)) == stored        is what the server checks
"""

import hashlib
import hmac
from binascii import unhexlify
from dataclasses import dataclass

SEED_SIZE = 8
TOKEN_SIZE = 20


def is_scramble_of(token: bytes, seed: bytes, stored: bytes) -> bool:
    """Tell whether a token was made with the seed and the password that is stored."""
    if len(token) != TOKEN_SIZE:
        return False
    mask = _sha1(seed + stored)
    return hmac.compare_digest(_sha1(bytes(one ^ other for one, other in zip(token, mask, strict=True))), stored)


@dataclass(frozen=True, slots=True)
class Account:
    """The account that the server lets in: ``canal.user`` and ``canal.passwd``; what is empty is not asked for."""

    user: str
    stored: bytes

    def admits(self, user: str, token: bytes, seed: bytes) -> bool:
        """Tell whether a client that gives this name and token may pass, in the order in which Canal decides.

        Raises ValueError for a token that is not a scramble at all, such as a password in clear.
        """
        if self.user and user != self.user:
            return False
        if not self.stored:
            return True
        if not token:
            return False
        scramble = unhexlify(token)
        if len(scramble) < TOKEN_SIZE:
            raise ValueError(f"{len(scramble)} bytes are not a scramble")
        return is_scramble_of(scramble, seed, self.stored)


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()
