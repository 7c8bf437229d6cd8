"""A peer that speaks enough of MySQL's protocol to lie: the test says what it answers.

The protocol: https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_connection_phase.html
"""

import contextlib
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Self

OK = bytes.fromhex("00 00 00 02 00 00 00")
"""No rows changed, autocommit, no warnings."""
EOF = bytes.fromhex("fe 00 00 02 00")
SALT = b"abcdefghijklmnopqrst"

# Long password, connect with database, protocol 4.1, transactions, secure connection; plugins, their data by length.
CAPABILITIES = 0x0000_0001 | 0x0008 | 0x0200 | 0x2000 | 0x8000 | 0x0008_0000 | 0x0020_0000
SSL = 0x0800
SSL_REQUEST = 32
"""Bytes of the packet by which a client asks for TLS."""


def lenenc(data: bytes) -> bytes:
    """A string after its length."""
    if len(data) < 251:
        return bytes([len(data)]) + data
    assert len(data) < 1 << 16
    return b"\xfc" + struct.pack("<H", len(data)) + data


class Talk:
    """One connection, seen from the server's side."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sequence = 0
        self.received: list[bytes] = []
        """The payloads of the packets that came."""

    def send(self, *payloads: bytes) -> None:
        for payload in payloads:
            self.sock.sendall(struct.pack("<I", len(payload))[:3] + bytes([self.sequence]) + payload)
            self.sequence = (self.sequence + 1) & 0xFF

    def send_for_ever(self, payload: bytes) -> None:
        """Send this packet again and again, until the other side has left."""
        numbers = [(self.sequence + i) & 0xFF for i in range(256)]
        length = struct.pack("<I", len(payload))[:3]
        round_of_numbers = b"".join(length + bytes([number]) + payload for number in numbers)
        while True:
            self.sock.sendall(round_of_numbers)

    def receive(self) -> bytes:
        """The payload of the next packet. Raises ConnectionError when the other side has left."""
        header = self._read(4)
        self.sequence = (header[3] + 1) & 0xFF
        self.received.append(self._read(int.from_bytes(header[:3], "little")))
        return self.received[-1]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.sock.recv(size - len(data))
            if not piece:
                raise ConnectionError("left")
            data += piece
        return data

    def greet(self, plugin: str = "mysql_native_password", *, tls: ssl.SSLContext | None = None) -> bytes:
        """Send the handshake, and go over to TLS when the other side wants to; returns its answer."""
        flags = CAPABILITIES | (SSL if tls else 0)
        self.send(
            b"\x0a8.4.0\0"
            + struct.pack("<I", 1)
            + SALT[:8]
            + b"\0"
            + struct.pack("<HBHHB", flags & 0xFFFF, 45, 2, flags >> 16, 21)
            + bytes(10)
            + SALT[8:]
            + b"\0"
            + plugin.encode()
            + b"\0"
        )
        answer = self.receive()
        if tls is not None and len(answer) == SSL_REQUEST:
            self.sock = tls.wrap_socket(self.sock, server_side=True)
            answer = self.receive()
        return answer

    def switch(self, plugin: str, data: bytes = SALT + b"\0") -> bytes:
        """Ask for another authentication plugin; returns the answer to it."""
        self.send(b"\xfe" + plugin.encode() + b"\0" + data)
        return self.receive()

    def more(self, data: bytes) -> bytes:
        """Send further data of the plugin; returns the answer to it."""
        self.send(b"\x01" + data)
        return self.receive()

    def let_in(self) -> None:
        """End the login, and whatever PyMySQL does at the end of it."""
        self.send(OK)
        self.receive()
        self.send(OK)

    def result(self, names: Sequence[str], *rows: Sequence[str | bytes]) -> None:
        """Answer with texts, whose columns say that they are UTF-8 also where they are not."""
        self.send(bytes([len(names)]), *map(column, names), EOF)
        texts = ([it.encode() if isinstance(it, str) else it for it in row] for row in rows)
        self.send(*(b"".join(map(lenenc, row)) for row in texts), EOF)


def column(name: str) -> bytes:
    """The description of a column of type VARCHAR."""
    texts = b"".join(map(lenenc, (b"def", b"", b"", b"", name.encode(), b"")))
    return texts + struct.pack("<BHIBHBH", 12, 45, 1000, 0xFD, 0, 0, 0)


VARIABLES = {
    "binlog_checksum": "CRC32",
    "binlog_format": "ROW",
    "gtid_mode": "OFF",
    "log_bin": "ON",
    "lower_case_table_names": "0",
    "server_id": "1",
    "server_uuid": "01234567-89ab-cdef-0123-456789abcdef",
    "system_time_zone": "UTC",
    "time_zone": "SYSTEM",
    "version": "8.4.0",
}


class Peer:
    """Listens while the block lasts, and talks with everyone as `behave` says, each in a thread of its own."""

    def __init__(self, behave: Callable[[Talk], None]) -> None:
        self._behave = behave
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.talks: list[Talk] = []
        self.failures: list[BaseException] = []
        """What `behave` raised, but for the end of a connection."""
        self._threads: list[threading.Thread] = []

    @property
    def received(self) -> bytes:
        """All that ever came, one after the other."""
        return b"".join(payload for talk in self.talks for payload in talk.received)

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for talk in self.talks:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(talk.sock, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        assert not self.failures, self.failures

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True, name=f"peer {self.port}")
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            talk = Talk(sock)
            self.talks.append(talk)
            self._start(lambda talk=talk: self._talk(talk))  # type: ignore[misc]

    def _talk(self, talk: Talk) -> None:
        try:
            self._behave(talk)
        except OSError:
            pass  # the other side has left, as it should
        except BaseException as error:  # noqa: BLE001  shown by the test's thread
            self.failures.append(error)
        finally:
            talk.sock.close()


class Recorder(Peer):
    """Passes everything on to a server, and keeps what it answers: for each connection its answers, in order."""

    def __init__(self, target: tuple[str, int]) -> None:
        super().__init__(self._relay)
        self.answers: list[list[bytes]] = []
        """The first one is the greeting, which comes without a question."""
        self._target = target

    def _relay(self, talk: Talk) -> None:
        answers = [b""]
        self.answers.append(answers)
        with socket.create_connection(self._target) as server:
            while True:
                for sock in select.select([talk.sock, server], [], [])[0]:
                    data = sock.recv(1 << 20)
                    if not data:
                        return
                    if sock is talk.sock:
                        server.sendall(data)
                        if answers[-1]:
                            answers.append(b"")
                    else:
                        talk.sock.sendall(data)
                        answers[-1] += data


def replay(answers: Sequence[bytes]) -> Callable[[Talk], None]:
    """Give these answers, one after each packet that comes, whatever it says."""

    def behave(talk: Talk) -> None:
        for answer in answers:
            talk.sock.sendall(answer)
            talk.receive()

    return behave
