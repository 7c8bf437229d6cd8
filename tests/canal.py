"""A client of Canal's protocol that does what a test says, packet by packet."""

import asyncio
import hashlib
import struct
from collections.abc import Iterable
from typing import Self

from google.protobuf.message import Message

from sluice.protocol.canal.packet_pb2 import (
    Ack,
    ClientAck,
    ClientAuth,
    ClientRollback,
    Get,
    Handshake,
    Messages,
    Packet,
    Sub,
    Unsub,
)

LENGTH = struct.Struct(">i")
TYPES: dict[type[Message], Packet.PacketType.ValueType] = {
    ClientAuth: Packet.CLIENTAUTHENTICATION,
    Sub: Packet.SUBSCRIPTION,
    Unsub: Packet.UNSUBSCRIPTION,
    Get: Packet.GET,
    ClientAck: Packet.CLIENTACK,
    ClientRollback: Packet.CLIENTROLLBACK,
}


class CanalError(Exception):
    """What the server refused."""

    def __init__(self, ack: Ack) -> None:
        super().__init__(ack.error_message)
        self.code = ack.error_code


def scramble(password: str, seed: bytes) -> bytes:
    """What a client sends of its password."""
    once = hashlib.sha1(password.encode()).digest()
    mask = hashlib.sha1(seed + hashlib.sha1(once).digest()).digest()
    return bytes(a ^ b for a, b in zip(once, mask, strict=True)).hex().encode()


def stored(password: str) -> str:
    """What `canal.passwd` is set to."""
    return hashlib.sha1(hashlib.sha1(password.encode()).digest()).hexdigest()


class CanalClient:
    """One connection. Calls of a consumer are for one client id of one destination."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.seed = b""
        self.destination = "example"
        self.client_id = "1001"

    @classmethod
    async def connect(cls, port: int, user: str = "", password: str | None = None, *, login: bool = True) -> Self:
        """Connect and, if wanted, authenticate."""
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        try:
            packet = await client.receive()
            assert packet.type == Packet.HANDSHAKE
            client.seed = Handshake.FromString(packet.body).seeds
            if login:
                await client.login(user, password)
        except BaseException:
            client.cut()
            raise
        return client

    def cut(self) -> None:
        """Go away without a word."""
        self.writer.transport.abort()

    # --- packets

    def send(self, *bodies: Message) -> None:
        """Send requests, all of them by one write."""
        packets = [Packet(type=TYPES[type(body)], body=body.SerializeToString()) for body in bodies]
        self.write(b"".join(frames(packet.SerializeToString() for packet in packets)))

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def receive(self) -> Packet:
        """The next packet; IncompleteReadError when the server has closed the connection."""
        async with asyncio.timeout(10):
            (length,) = LENGTH.unpack(await self.reader.readexactly(LENGTH.size))
            return Packet.FromString(await self.reader.readexactly(length))

    async def acknowledged(self) -> None:
        """Wait for an answer without content; CanalError when it is an error."""
        packet = await self.receive()
        assert packet.type == Packet.ACK
        ack = Ack.FromString(packet.body)
        if ack.error_code:
            raise CanalError(ack)

    async def batch(self) -> Messages:
        """Wait for a batch; CanalError when it is an error."""
        packet = await self.receive()
        if packet.type == Packet.ACK:
            raise CanalError(Ack.FromString(packet.body))
        assert packet.type == Packet.MESSAGES
        return Messages.FromString(packet.body)

    async def closed(self) -> bool:
        """Whether the server closes the connection without a word."""
        async with asyncio.timeout(10):
            return await self.reader.read() == b""

    # --- calls

    async def login(self, user: str = "", password: str | None = None, **fields: object) -> None:
        token = b"" if password is None else scramble(password, self.seed)
        self.send(ClientAuth(username=user, password=token, **fields))  # type: ignore[arg-type]
        await self.acknowledged()

    async def subscribe(self, text: str = "") -> None:
        self.send(Sub(destination=self.destination, client_id=self.client_id, filter=text))
        await self.acknowledged()

    async def unsubscribe(self) -> None:
        self.send(Unsub(destination=self.destination, client_id=self.client_id))
        await self.acknowledged()

    def ask(self, size: int = 1000, timeout: int | None = -1, unit: int | None = 2) -> None:
        """Ask for a batch, and do not wait for it. None leaves a field out."""
        self.send(
            Get(destination=self.destination, client_id=self.client_id, fetch_size=size, timeout=timeout, unit=unit)
        )

    async def get(self, size: int = 1000, timeout: int | None = -1, unit: int | None = 2) -> Messages:  # noqa: ASYNC109
        self.ask(size, timeout, unit)
        return await self.batch()

    def ack(self, batch_id: int) -> None:
        self.send(ClientAck(destination=self.destination, client_id=self.client_id, batch_id=batch_id))

    def rollback(self, batch_id: int = 0) -> None:
        self.send(ClientRollback(destination=self.destination, client_id=self.client_id, batch_id=batch_id))


def frames(packets: Iterable[bytes]) -> list[bytes]:
    """The packets, each after its length."""
    return [LENGTH.pack(len(packet)) + packet for packet in packets]
