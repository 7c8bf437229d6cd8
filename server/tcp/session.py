"""What a connection of a Canal client means, packet by packet, without I/O of its own."""

import asyncio
import contextlib
import logging
import math
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from ...protocol.canal.packet_pb2 import ClientAck, ClientAuth, ClientRollback, Get, Packet, Sub, Unsub
from ...protocol.errors import (
    AckOutOfOrderError,
    BadParameterError,
    NotSubscribedError,
    SluiceError,
    UnknownBatchError,
    UnknownDestinationError,
)
from ...protocol.formats.format import BytesLike
from ..caller import Caller, caller
from ..embedded import EmbeddedServer
from ..embedded.calls import DEFAULT_BATCH_SIZE, EMPTY
from ..metrics import Metrics
from ..problems import problem_type
from ..waiting import Waiter
from .auth import SEED_SIZE, Account
from .frames import OK, FrameError, batch_parts, handshake, refusal

IDLE = 3600.0
"""Seconds without a byte, in either direction, after which a connection is closed, unless its client says otherwise."""
FAILED_LOGIN = 1.0
"""Seconds until a failed login is answered, so that passwords are not tried quickly; others need not wait."""
LARGEST_BATCH = 1 << 30
"""Bytes of entries in a batch at most: the length of a frame is a signed 32-bit integer."""
FOR_EVER = 1e9
"""Seconds from which on a wait has no end."""
UNITS = (1e-9, 1e-6, 1e-3, 1.0, 60.0, 3600.0, 86400.0)
"""Seconds of each of Java's units of time, by its number."""
MILLISECONDS = 2
FAILED = 400
INCOMPLETE = 401
NO_BATCH = 402
SILENT = frozenset({Packet.CLIENTACK, Packet.CLIENTROLLBACK})
"""What gets no answer when all is well."""

CANAL_TEXTS: Mapping[type[Exception], str] = {
    UnknownDestinationError: "destination:{destination} should start first: ",
    NotSubscribedError: "ClientIdentity[destination={destination},clientId={client}] should subscribe first: ",
    UnknownBatchError: "clientId:{client} batchId:{batch} is not exist , please check: ",
    AckOutOfOrderError: "batchId:{batch} is not the firstly: ",
}
"""What Canal says of errors, which its clients may look for; ours says the rest."""

logger = logging.getLogger("sluice.tcp")

Client = tuple[str, int]
"""Destination and client id."""


@dataclass
class Service:
    """What the connections share."""

    embedded: EmbeddedServer
    metrics: Metrics
    account: Account
    linger: float
    """Seconds that a get waits for a full batch once there is an entry."""
    getting: dict[Client, set[Waiter]] = field(default_factory=dict)
    """The gets that wait."""

    def use_account(self, account: Account) -> None:
        """Let that account in from the next login on."""
        self.account = account

    def end_gets(self, client: Client, but: Waiter) -> None:
        """Let the gets of a client end empty, on all connections but one.

        A client that subscribes or rolls back has begun again: an older connection that was lost unnoticed must not
        take what comes next.
        """
        for waiter in tuple(self.getting.get(client, ())):
            if waiter is not but:
                waiter.end()


class RefusedError(Exception):
    """A request that is answered by a code and a text of Canal's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class CanalSession:
    """One connection, from its handshake on."""

    def __init__(self, service: Service, peer: str) -> None:
        """``peer`` is the address of the other side."""
        self.authenticated = False
        self.read_timeout = IDLE
        self.write_timeout = IDLE
        self._service = service
        self._embedded = service.embedded
        self._peer = peer
        self._seed = secrets.token_bytes(SEED_SIZE)
        self._get_waiter = Waiter()
        self._client: Client = ("", 0)  # of the request at hand ...
        self._batch_id = 0  # ... and what it confirms or rolls back
        self._handlers: dict[Packet.PacketType.ValueType, Callable[[bytes], Awaitable[list[BytesLike]]]] = {
            Packet.SUBSCRIPTION: self._subscribe,
            Packet.UNSUBSCRIPTION: self._unsubscribe,
            Packet.GET: self._get,
            Packet.CLIENTACK: self._ack,
            Packet.CLIENTROLLBACK: self._rollback,
        }

    @property
    def greeting(self) -> bytes:
        """What the server says first."""
        return handshake(self._seed)

    @property
    def waiting(self) -> bool:
        """Whether a get waits: meanwhile what is `SILENT` may be answered."""
        return self._get_waiter.waiting

    def end_get(self) -> None:
        """Let a get that waits end empty."""
        self._get_waiter.end()

    async def answer(self, packet: Packet) -> list[BytesLike]:
        """Do what a packet asks for, and return what to send: nothing when it is `SILENT` and all is well.

        Raises FrameError when the connection has to be closed without a word.
        """
        begin = time.perf_counter()
        caller.set(Caller(self._peer))
        kind = _name(packet.type) if self.authenticated else "CLIENTAUTHENTICATION"
        self._client = ("", 0)
        code = 0
        try:
            if not self.authenticated:  # as in Canal, whatever the type says
                return await self._authenticate(packet.body)
            handler = self._handlers.get(packet.type)
            if handler is None:
                raise RefusedError(FAILED, f"packet type: {kind} is NOT supported!")  # noqa: TRY301  answered below
            return await handler(packet.body)
        except RefusedError as error:
            code, text = error.code, str(error)
        except (SluiceError, DecodeError) as error:
            code, text = FAILED, self._failure(self._explain(error))
        except FrameError:
            code = FAILED
            raise
        except Exception:
            logger.exception("%s: %s failed", self._peer, kind)
            code, text = FAILED, self._failure("internal error; see the server's log")
        finally:
            seconds = time.perf_counter() - begin
            self._service.metrics.answered(kind, code, seconds, self._client[0])
            logger.debug("%s: %s %s %d %.1f ms", self._peer, kind, self._client, code, seconds * 1000)
        logger.info("%s: %s refused: %s", self._peer, kind, text, extra={"destination": self._client[0]})
        return [refusal(code, text)]

    # --- authentication ----------------------------------------------------------------------------------------------

    async def _authenticate(self, body: bytes) -> list[BytesLike]:
        try:
            auth = ClientAuth.FromString(body)
            admitted = self._service.account.admits(auth.username, auth.password, self._seed)
        except (DecodeError, ValueError) as error:
            raise FrameError(f"this is not an authentication: {error}") from None
        if not admitted:
            await asyncio.sleep(FAILED_LOGIN)
            raise RefusedError(FAILED, f"auth failed for user:{auth.username}")
        if auth.destination and auth.client_id:
            await self._register(self._named(auth, "Auth"), auth.filter)
        if auth.net_read_timeout > 0:
            self.read_timeout = auth.net_read_timeout / 1000
        if auth.net_write_timeout > 0:
            self.write_timeout = auth.net_write_timeout / 1000
        self.authenticated = True
        return [OK]

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _subscribe(self, body: bytes) -> list[BytesLike]:
        request = Sub.FromString(body)
        await self._register(self._named(request, "Sub"), request.filter)
        return [OK]

    async def _register(self, client: Client, text: str) -> None:
        await self._embedded.subscribe(*client, filter=text, where=None)  # which this protocol has no field for
        self._embedded.open_session(*client)  # which this protocol has no token for: it fences those of HTTP
        self._service.end_gets(client, self._get_waiter)

    async def _unsubscribe(self, body: bytes) -> list[BytesLike]:
        client = self._named(Unsub.FromString(body), "Unsub")
        with contextlib.suppress(NotSubscribedError):  # as in Canal
            await self._embedded.unsubscribe(*client)
        return [OK]

    async def _get(self, body: bytes) -> list[BytesLike]:
        request = Get.FromString(body)
        client = self._named(request, "Get")
        instance = self._embedded.instances.get(client[0])
        strict = instance is not None and instance.config.strict_canal
        seconds = _timeout(request)
        waiter = self._get_waiter = Waiter()
        gets = self._service.getting.setdefault(client, set())
        gets.add(waiter)
        try:
            batch = await waiter.wait(
                self._embedded.get_without_ack(
                    *client,
                    batch_size=request.fetch_size if request.fetch_size > 0 else DEFAULT_BATCH_SIZE,
                    timeout=seconds,
                    max_bytes=LARGEST_BATCH,
                    linger=None if strict else self._service.linger,
                    wait_full=seconds is not None,
                )
            )
        finally:
            gets.discard(waiter)
            if not gets:
                self._service.getting.pop(client, None)
        self._service.metrics.delivered(*client, batch or EMPTY)
        return batch_parts(batch or EMPTY)

    async def _ack(self, body: bytes) -> list[BytesLike]:
        request = ClientAck.FromString(body)
        client = self._named(request, "Ack")
        if request.batch_id == 0:
            raise RefusedError(NO_BATCH, f"batchId should assign value. Ack: {request}")
        if request.batch_id != EMPTY.batch_id:
            self._batch_id = request.batch_id
            await self._embedded.ack(*client, batch_id=request.batch_id)
        return []

    async def _rollback(self, body: bytes) -> list[BytesLike]:
        request = ClientRollback.FromString(body)
        client = self._named(request, "Rollback")
        self._batch_id = request.batch_id
        with contextlib.suppress(NotSubscribedError):  # clients roll back before they subscribe
            await self._embedded.rollback(*client, batch_id=request.batch_id or None)
        if request.batch_id == 0:
            self._service.end_gets(client, self._get_waiter)
        return []

    # --- inside ------------------------------------------------------------------------------------------------------

    def _named(self, request: ClientAuth | Sub | Unsub | Get | ClientAck | ClientRollback, name: str) -> Client:
        """Return the client that a request names."""
        destination, text = request.destination, request.client_id
        if not destination or not text:
            raise RefusedError(INCOMPLETE, f"destination or clientId is null. {name}: {request}")
        if not re.fullmatch(r"[+-]?[0-9]{1,6}", text) or not -(1 << 15) <= int(text) < 1 << 15:
            raise BadParameterError(f"client id {text!r} is not an integer from -32768 to 32767")
        self._client = destination, int(text)
        return self._client

    def _explain(self, error: Exception) -> str:
        """Return the text of an error, after that of Canal where there is one, else before what to do about it."""
        destination, client_id = self._client
        text = CANAL_TEXTS.get(type(error))
        if text is None:
            return f"{error}. {problem_type(type(error)).advice}" if isinstance(error, SluiceError) else str(error)
        return text.format(destination=destination, client=client_id, batch=self._batch_id) + str(error)

    def _failure(self, text: str) -> str:
        return f"something goes wrong with channel: {self._peer}, exception: {text}"


def _timeout(request: Get) -> float | None:
    """Return the seconds that a get waits: None for not at all, infinity for as long as it takes."""
    if request.timeout == -1:
        return None
    unit = UNITS[request.unit if 0 <= request.unit < len(UNITS) else MILLISECONDS]
    seconds = request.timeout * unit
    return seconds if 0 < seconds < FOR_EVER else math.inf


def _name(kind: Packet.PacketType.ValueType) -> str:
    """Return the name of a packet type, as Java prints it."""
    try:
        return Packet.PacketType.Name(kind)
    except ValueError:
        return "UNRECOGNIZED"
