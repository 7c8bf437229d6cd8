"""The life of Canal's port: connections, their reading and writing, their time."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from typing import cast

from google.protobuf.message import DecodeError

from ...protocol.canal.packet_pb2 import Packet
from ...protocol.errors import ConfigError
from ...protocol.formats.format import BytesLike
from ..network import COPIED, HIGH_WATER, address_text, is_loopback, listen, unless_stalled
from ..resources import Resources, Secrets
from ..stamp import changes
from ..waiting import STOP_SECONDS, Stopping
from .auth import Account
from .config import TcpConfig
from .frames import FrameError, FrameReader
from .session import SILENT, CanalSession, Service

logger = logging.getLogger("sluice.tcp")


@contextlib.asynccontextmanager
async def serving(config: TcpConfig, resources: Resources) -> AsyncIterator[str]:
    """Serve Canal's clients while the block runs; gives the address. See `sluice.server.resources.Serve`.

    When the stop is announced, gets that wait end empty, and connections are closed as soon as what they were sent is
    on its way, or a second later.
    """
    service = Service(resources.embedded, resources.metrics, _account(config), config.linger / 1000)
    port = Port(service, config, resources.stopping)
    with listen(config.host, config.port, f"{config.key_of('host')} and {config.key_of('port')}") as sock:
        server = await asyncio.get_running_loop().create_server(lambda: CanalConnection(port), sock=sock)
        address = address_text(sock.getsockname())
        if not is_loopback(config.host):
            logger.warning(
                "Canal's protocol is not encrypted: any machine between %s and a client can read it all", address
            )
        async with contextlib.AsyncExitStack() as stack:
            if resources.secrets is not None and resources.secrets.secrets:
                renewing = asyncio.create_task(_renew(service, resources.secrets), name="renew Canal's password")
                stack.callback(renewing.cancel)
            try:
                yield address
            finally:
                server.close()
                await port.close()


def _account(config: TcpConfig) -> Account:
    return Account(config.user, bytes.fromhex(config.passwd.get_secret_value()))


def _require_password(before: Account, account: Account) -> None:
    """Raise ConfigError where there was a password and is none now: the file may be written at this moment."""
    if before.stored and not account.stored:
        raise ConfigError("canal.passwd is empty now, and would let everybody in")


async def _renew(service: Service, secrets: Secrets) -> None:
    async for _ in changes(secrets.secrets):
        try:
            account = _account(await asyncio.to_thread(secrets.renewed, TcpConfig))
            _require_password(service.account, account)
        except ConfigError as error:
            logger.error("the password of Canal's clients stays as it was: %s", error)  # noqa: TRY400  it says all
            continue
        if account != service.account:
            service.use_account(account)
            logger.info("the password of Canal's clients has changed: new logins need the present one")


class Port:
    """What is connected."""

    def __init__(self, service: Service, config: TcpConfig, stopping: Stopping) -> None:
        self.service = service
        self.config = config
        self.stopping = stopping
        self.tasks: dict[asyncio.Task[None], CanalConnection] = {}

    def add(self, connection: "CanalConnection", task: asyncio.Task[None]) -> None:
        """Take a connection up."""
        self.tasks[task] = connection
        self.stopping.listeners.add(connection)
        if self.stopping.set:
            connection.end()
        self.service.metrics.connections.inc()
        task.add_done_callback(self._remove)

    def _remove(self, task: asyncio.Task[None]) -> None:
        self.stopping.listeners.discard(self.tasks.pop(task))
        self.service.metrics.connections.dec()

    async def close(self) -> None:
        """Let all connections end, and cut those off that do not in time."""
        for connection in list(self.tasks.values()):
            connection.end()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=STOP_SECONDS)
        for task, connection in list(self.tasks.items()):
            connection.cut()
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)


class CanalConnection(asyncio.Protocol):
    """One connection. Requests are answered in their order by one task; acks and rollbacks go past a get that waits."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._loop = asyncio.get_running_loop()
        self._frames = FrameReader(port.config.max_first_frame)
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._ending = False  # nothing new is taken up
        self._next: Packet | None = None  # taken from the frames, not answered yet
        self._late: list[BytesLike] = []  # what has to be said when the get that waits is answered
        self._passing: asyncio.Task[None] | None = None
        self._paused = False
        self._read_at = self._wrote_at = self._loop.time()
        self._timer = self._loop.call_later(port.config.login_timeout, self._check_login)

    # --- what the transport tells ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet."""
        self._transport = cast("asyncio.Transport", transport)
        # Low water 0: a paused sender goes on when all is handed to the kernel and no segment is pinned any more.
        self._transport.set_write_buffer_limits(high=HIGH_WATER, low=0)
        self._socket: socket.socket = transport.get_extra_info("socket")
        self._peer = address_text(transport.get_extra_info("peername") or ("?", 0))
        self._session = CanalSession(self._port.service, self._peer)
        self._port.add(self, self._loop.create_task(self._run(), name=f"canal client {self._peer}"))

    def data_received(self, data: bytes) -> None:
        """Take what has arrived."""
        self._read_at = self._loop.time()
        self._frames.feed(data)
        if not self._session.authenticated and len(self._frames) > 2 * self._frames.limit:
            logger.warning("%s: closed: %d bytes came before the login", self._peer, len(self._frames))
            self.cut()
            return
        if len(self._frames) > self._frames.limit + HIGH_WATER:  # more than one frame waits
            self._transport.pause_reading()
            self._paused = True
        self._arrived.set()
        if self._session.waiting:
            self._let_pass()

    def pause_writing(self) -> None:
        """Note that what was written is not sent yet."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Note that all is sent."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """End what goes on; what has arrived before still counts."""
        del exc
        self._timer.cancel()
        self._writable.set()
        self.end()

    # --- the end -----------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Let a get that waits end empty, take no further one up, and close when all is answered."""
        self._ending = True
        self._arrived.set()
        self._session.end_get()

    def cut(self) -> None:
        """Close at once."""
        self._transport.abort()

    def _check_login(self) -> None:
        logger.info("%s: no authentication in %g s: closed", self._peer, self._port.config.login_timeout)
        self.cut()

    def _check_idle(self) -> None:
        """Close a connection on which nothing was read or nothing written for too long; as in Canal without a word."""
        if self._transport.is_closing():
            return
        now = self._loop.time()
        left = min(self._read_at + self._session.read_timeout, self._wrote_at + self._session.write_timeout) - now
        if left > 0:
            self._timer = self._loop.call_later(left, self._check_idle)
        else:
            logger.info("%s: idle for too long: closed", self._peer)
            self.cut()

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Answer request after request until the connection ends."""
        try:
            self._write(self._session.greeting)
            while (packet := await self._take()) is not None:
                if packet.type != Packet.GET or not self._ending:  # what it takes would not be confirmed
                    await self._answer(packet)
                if self._frames:
                    await asyncio.sleep(0)  # others have their turn between requests that came at once
        except (FrameError, DecodeError) as error:
            logger.warning("%s: closed: %s", self._peer, error)
            self.cut()
        except Exception:
            logger.exception("%s: closed", self._peer)
        finally:
            self._transport.close()

    async def _answer(self, packet: Packet) -> None:
        authenticated = self._session.authenticated
        if packet.type == Packet.GET and self._frames:
            self._let_pass()
        parts = await self._session.answer(packet)
        if self._session.authenticated and not authenticated:
            self._frames.limit = self._port.config.max_frame
            self._timer.cancel()
            self._check_idle()
        await self._send(parts)
        if self._passing is not None:
            await self._passing
        late, self._late = self._late, []
        await self._send(late)

    async def _take(self) -> Packet | None:
        """Return the next packet; None when there will be none."""
        while (packet := self._take_now()) is None:
            if self._ending:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        return packet

    def _take_now(self) -> Packet | None:
        """Return the next packet if it has arrived. Raises FrameError and DecodeError."""
        packet, self._next = self._next, None
        if packet is not None:
            return packet
        frame = self._frames.take()
        if frame is not None:
            return Packet.FromString(frame)
        self._acknowledge()
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        return None

    def _acknowledge(self) -> None:
        """Have the kernel acknowledge now what has arrived.

        Canal's Java client writes the length of a frame and the frame by two writes, without TCP_NODELAY: its kernel
        keeps the second back until the first is acknowledged, which else takes 40 ms.
        """
        if not self._transport.is_closing():
            with contextlib.suppress(OSError):  # the other side has closed it
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def _let_pass(self) -> None:
        if self._passing is None:
            self._passing = self._loop.create_task(self._pass_get())

    async def _pass_get(self) -> None:
        """Answer what may be answered while a get waits; its error is sent after the answer of the get."""
        try:
            while self._session.waiting and (packet := self._take_now()) is not None:
                if packet.type not in SILENT:
                    self._next = packet
                    break
                self._late += await self._session.answer(packet)
                await asyncio.sleep(0)
        except (FrameError, DecodeError) as error:
            logger.warning("%s: closed: %s", self._peer, error)
            self.cut()
        finally:
            self._passing = None

    # --- writing -----------------------------------------------------------------------------------------------------

    async def _send(self, parts: list[BytesLike]) -> None:
        """Write, and return when all is handed to the kernel; slices of the ring are let go one by one."""
        if sum(map(len, parts)) <= COPIED:
            parts = [b"".join(parts)] if parts else []
        parts.reverse()
        while parts:
            self._write(parts.pop())
            if not self._writable.is_set():
                await unless_stalled(self._transport, self._writable.wait)

    def _write(self, part: BytesLike) -> None:
        if not self._transport.is_closing():
            self._wrote_at = self._loop.time()
            self._transport.write(part)
