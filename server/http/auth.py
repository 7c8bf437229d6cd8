"""Access over HTTP: which calls need a token, and how logins are slowed down."""

import asyncio
import functools
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated

from fastapi import Depends, Path, Request
from fastapi.security import HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param
from starlette.datastructures import URL
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as ASGIScope

from ...protocol.errors import (
    ForbiddenError,
    SluiceError,
    TooManyAttemptsError,
    UnauthorizedError,
)
from ...store.allowance import Limits
from ..caller import Caller, caller
from ..credentials import Credentials, Grant, IssuedToken, Scope, Token
from ..logins import LoginLimiter, network_of
from ..network import is_address, is_loopback
from . import problems

PARALLEL_LOGINS = 2  # an argon2id hash takes 64 MiB and a core for some 50 ms
WAITING_LOGINS = 16
WAITING_OF_AN_ADDRESS = 4  # of them, so that one caller with many user names does not fill the queue
PUBLIC = frozenset({b"/healthz", b"/readyz", b"/docs", b"/openapi.json", b"/v1/tokens"})
"""The calls that need no credentials."""
PUBLIC_FOLDER = b"/docs/assets/"

EVERYTHING = Grant(scope=Scope.ADMIN)


@dataclass(slots=True)
class _Callers:
    """The logins that are under way from one network; their passwords are hashed one at a time."""

    count: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Gate:
    """Decides whether a call may pass.

    As long as no credentials are on file everything may on loopback, and elsewhere when the server is told to be
    insecure. Elsewhere else nothing may, even when the credentials vanish while the server runs.
    """

    def __init__(
        self, credentials: Credentials, host: str, limiter: LoginLimiter | None = None, *, insecure: bool = False
    ) -> None:
        self.credentials = credentials
        self._loopback = is_loopback(host)
        self._insecure = insecure
        self._limiter = limiter or LoginLimiter()
        self._logins = asyncio.Semaphore(PARALLEL_LOGINS)
        self._waiting = 0
        self._callers: dict[str, _Callers] = {}  # by network; a login that ends leaves nothing

    def grant(self, request: Request) -> Grant:
        """Tell what the caller may do. Raises UnauthorizedError or ForbiddenError."""
        if not self.credentials.any and (self._insecure or self._loopback):
            if not self._insecure:
                refuse_browsers_from_elsewhere(request)
            return EVERYTHING
        scheme, token = get_authorization_scheme_param(request.headers.get("authorization"))
        if scheme.lower() != "bearer" or not token:
            raise UnauthorizedError("The call carries no bearer token.")
        return self.credentials.authenticate(token)

    async def login(self, user: str, password: str, lifetime: timedelta, address: str) -> IssuedToken:
        """Exchange a password for a token. Raises UnauthorizedError, TooManyAttemptsError.

        One network never has more than one hash at a time, nor more than a part of the queue: whoever changes the user
        name with each call is not slowed down by failures, and would keep all others out.
        """
        network = network_of(address)
        callers = self._callers.setdefault(network, _Callers())
        if self._waiting >= WAITING_LOGINS or callers.count >= WAITING_OF_AN_ADDRESS:
            self._forget(network)
            raise TooManyAttemptsError("Too many logins at once.", 1.0)
        self._waiting += 1
        callers.count += 1
        try:
            async with callers.turn, self._logins:
                wait = self._limiter.wait(user, address, time.monotonic())
                if wait:
                    raise TooManyAttemptsError("Too many failed logins of this user from this address.", wait)
                issued = await asyncio.to_thread(self.credentials.login, user, password, lifetime)
        except UnauthorizedError:
            self._limiter.failed(user, address, time.monotonic())
            raise
        finally:
            self._waiting -= 1
            callers.count -= 1
            self._forget(network)
        self._limiter.succeeded(user, address)
        return issued

    def _forget(self, network: str) -> None:
        if not self._callers[network].count:
            del self._callers[network]


class Guard:
    """Lets nothing but the public calls pass without a grant, which it notes as ``scope["state"]["grant"]``.

    It stands before the framework, which reads the body of a call before it looks at any dependency.
    """

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self.app = app
        self._gate = gate

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Pass the call on, or refuse it (ASGI)."""
        if scope["type"] == "http" and not is_public(scope["raw_path"]):
            try:
                grant = scope["state"]["grant"] = self._gate.grant(Request(scope))
                caller.set(_caller(grant, scope.get("client")))
            except SluiceError as error:
                await problems.problem(error)(scope, receive, send)
                return
        await self.app(scope, receive, send)


def _caller(grant: Grant, client: tuple[str, int] | None) -> Caller:
    """Say who calls: by the token, and from where."""
    name = f"token {grant.name}" if isinstance(grant, Token) else "no token"
    name = name if client is None else f"{name}, {client[0]}"
    if isinstance(grant, Token) and grant.scope is not Scope.ADMIN:
        return Caller(name, grant.name, grant.clients, Limits(grant.max_rate, grant.quota))
    return Caller(name)


def is_public(raw_path: bytes) -> bool:
    """Tell whether a call to that path, as it was sent, needs no credentials."""
    return raw_path in PUBLIC or raw_path.startswith(PUBLIC_FOLDER)


def refuse_browsers_from_elsewhere(request: Request) -> None:
    """Keep web pages away from an open server on loopback. Raises ForbiddenError.

    Neither a form on another site nor a name that was rebound to 127.0.0.1 may reach it. Browsers that do not send
    Sec-Fetch-Site still send Origin with what changes something.
    """
    authority = request.headers.get("host", "")
    host = _hostname(authority) or request.url.hostname or ""
    if host != "localhost" and not is_address(host):
        raise ForbiddenError(f"A server without credentials answers to localhost and addresses, not to {host!r}.")
    origin = request.headers.get("origin")
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin") or (
        origin is not None and origin.rpartition("://")[2].lower() != authority.lower()
    ):
        raise ForbiddenError("A server without credentials does not answer pages of other sites.")


@functools.lru_cache(maxsize=64)
def _hostname(host_header: str) -> str | None:
    """Return the host that the header of a call names, if any; clients send the same one with every call."""
    return URL(scope={"path": "/", "headers": [(b"host", host_header.encode("latin-1"))]}).hostname


bearer_scheme = HTTPBearer(auto_error=False, description="A token made by `sluice token` or bought at `/v1/tokens`.")


async def _grant(request: Request, _bearer: Annotated[object, Depends(bearer_scheme)]) -> Grant:
    grant: Grant = request.state.grant  # of Guard
    return grant


Granted = Annotated[Grant, Depends(_grant)]


Destination = Annotated[str, Path(description="Name of the destination: one source, one stream of changes.")]
