"""The credentials file: bearer tokens, and the passwords that buy them.

A token is ``sluice_<id>_<secret>``: a public id by which it is listed and revoked, and 256 random bits. The credentials
file keeps the SHA-256 of the secret, which needs no salt and no slow hash since the secret cannot be guessed. Passwords
are guessable, so they are hashed with argon2id and only ever exchanged for a token: no other call pays for that hash.
"""

import fcntl
import functools
import hashlib
import hmac
import os
import pathlib
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, NamedTuple

import argon2
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..protocol.errors import ConfigError, UnauthorizedError
from ..store.allowance import LARGEST
from .client_ids import FIRST, LAST, IdRanges

TOKEN_PREFIX = "sluice"  # noqa: S105  how a token begins, so that secret scanners find one that leaked
LOGIN_LIFETIME = timedelta(hours=12)  # of a token bought with a password
REREAD_INTERVAL = 1.0  # seconds between looks at the credentials file


class Scope(StrEnum):
    """How far credentials reach: ``read`` consumes changes, ``admin`` starts and stops destinations as well."""

    READ = "read"
    ADMIN = "admin"


Limit = Annotated[int, Field(ge=0, le=LARGEST)]
ClientId = Annotated[int, Field(ge=FIRST, le=LAST)]


class Grant(BaseModel):
    """A scope on some destinations, ``*`` stands for all of them, and in the scope ``read`` on some clients."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scope: Scope = Scope.READ
    destinations: tuple[str, ...] = ("*",)
    clients: tuple[tuple[ClientId, ClientId], ...] | None = None
    """The first and last ids of the clients that may be used; empty: those that the holder has created. None, as for
    tokens of before: all but an output's."""

    max_rate: Limit | None = None
    """Bytes a second that a client which the holder creates is given at most, 0 for any number; None: the destination's
    default."""
    quota: Limit | None = None
    """Bytes a day, likewise."""

    @property
    def is_unlimited(self) -> bool:
        """Whether it is of scope ``read``, and reaches the clients of all others."""
        return self.scope is Scope.READ and self.clients is None

    def covers(self, destination: str | None) -> bool:
        """Whether the grant reaches ``destination``; None asks for all destinations."""
        return "*" in self.destinations or destination in self.destinations


class Token(Grant):
    """A token as the credentials file keeps it."""

    name: str
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    created: datetime
    expires: datetime | None = None


class User(Grant):
    """A user who may buy tokens, which get the same grant."""

    argon2: str


class Document(BaseModel):
    """The credentials file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokens: dict[str, Token] = {}
    users: dict[str, User] = {}


class IssuedToken(NamedTuple):
    """A new token. ``text`` is shown once and kept nowhere."""

    id: str
    text: str
    token: Token


class Credentials:
    """The credentials file, written by the command line and by a running server.

    It is read again when it changed, and replaced as a whole under a lock. Writing and logging in block: keep them off
    the event loop.
    """

    def __init__(self, path: pathlib.Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self._clock = clock
        self._hasher = argon2.PasswordHasher()
        self._version: tuple[int, ...] | None = None
        self._looked = clock()
        self._document = self._read()

    @functools.cached_property
    def _unknown(self) -> str:
        """The hash of a password that was never given out."""
        return self._hasher.hash(secrets.token_bytes())

    @property
    def any(self) -> bool:
        """Whether anybody could present valid credentials."""
        document = self._current()
        return bool(document.tokens or document.users)

    @property
    def tokens(self) -> dict[str, Token]:
        """The tokens by id, expired ones included."""
        return self._current().tokens

    @property
    def users(self) -> dict[str, User]:
        """The users by name."""
        return self._current().users

    def authenticate(self, text: str) -> Token:
        """Return the token that ``text`` spells. Raises UnauthorizedError for an unknown or expired one."""
        prefix, _, rest = text.partition("_")
        identity, _, secret = rest.partition("_")
        token = self._current().tokens.get(identity)
        if token is None or prefix != TOKEN_PREFIX or not hmac.compare_digest(_digest(secret), token.sha256):
            raise UnauthorizedError("The token is not known here; it may have been revoked.")
        if token.expires is not None and token.expires <= datetime.now(UTC):  # noqa: TID251  is stored
            raise UnauthorizedError(f"The token expired at {token.expires:%Y-%m-%dT%H:%M:%SZ}.")
        return token

    def issue(self, name: str, grant: Grant, lifetime: timedelta | None = None) -> IssuedToken:
        """Make and store a token; without ``lifetime`` it never expires."""
        now = datetime.now(UTC).replace(microsecond=0)  # noqa: TID251  is stored
        identity, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        token = Token(
            name=name,
            sha256=_digest(secret),
            **{field: getattr(grant, field) for field in Grant.model_fields},
            created=now,
            expires=None if lifetime is None else now + lifetime,
        )
        with self._change() as (tokens, _users):
            for old in [old for old, it in tokens.items() if it.expires is not None and it.expires <= now]:
                del tokens[old]
            tokens[identity] = token
        return IssuedToken(identity, f"{TOKEN_PREFIX}_{identity}_{secret}", token)

    def limit(self, identity: str, limits: Mapping[str, IdRanges | int]) -> Token | None:
        """Limit a token, by fields of `Grant`, and return it; None when there is none. What is not given stays."""
        with self._change() as (tokens, _users):
            if identity in tokens:
                tokens[identity] = tokens[identity].model_copy(update=limits)
            return tokens.get(identity)

    def revoke(self, identity: str) -> bool:
        """Forget a token; False when there was none."""
        with self._change() as (tokens, _users):
            return tokens.pop(identity, None) is not None

    def set_password(self, user: str, password: str, grant: Grant) -> None:
        """Let ``user`` buy tokens of ``grant`` with ``password``."""
        entry = User(argon2=self._hasher.hash(password), **grant.model_dump())
        with self._change() as (_tokens, users):
            users[user] = entry

    def remove_user(self, user: str) -> bool:
        """Forget a user, whose tokens stay; False when there was none."""
        with self._change() as (_tokens, users):
            return users.pop(user, None) is not None

    def login(self, user: str, password: str, lifetime: timedelta = LOGIN_LIFETIME) -> IssuedToken:
        """Exchange a password for a token. Takes as long for an unknown user as for a wrong password."""
        entry, unknown = self._current().users.get(user), self._unknown
        try:
            self._hasher.verify(entry.argon2 if entry else unknown, password)
        except argon2.exceptions.VerifyMismatchError:
            entry = None
        if entry is None:
            raise UnauthorizedError("The user is unknown or the password is wrong.")
        return self.issue(user, entry, min(lifetime, LOGIN_LIFETIME))

    def _current(self) -> Document:
        if self._clock() - self._looked >= REREAD_INTERVAL:
            self._looked = self._clock()
            if self._stat() != self._version:
                self._document = self._read()
        return self._document

    def _stat(self) -> tuple[int, ...] | None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _read(self) -> Document:
        self._version = self._stat()
        if self._version is None:
            return Document()
        try:
            return Document.model_validate_json(self.path.read_bytes())
        except ValidationError as error:
            places = ", ".join(".".join(map(str, item["loc"])) or "the file" for item in error.errors())
            raise ConfigError(f"{self.path} is not a credentials file of Sluice: see {places}.") from None

    @contextmanager
    def _change(self) -> Iterator[tuple[dict[str, Token], dict[str, User]]]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            document = self._read()
            tokens, users = dict(document.tokens), dict(document.users)
            yield tokens, users
            document = Document(tokens=tokens, users=users)
            with tempfile.NamedTemporaryFile(dir=self.path.parent, delete=False) as file:  # created with mode 0600
                file.write(document.model_dump_json(indent=1, exclude_none=True).encode())
                file.flush()
                os.fsync(file.fileno())
            pathlib.Path(file.name).replace(self.path)
            self._version, self._document = self._stat(), document


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
