"""The connections of a client without asyncio, which may be closed while another thread waits for an answer on them."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from ..protocol.errors import ConnectionLostError


class Connections:
    """Connections to any number of servers, until they are closed."""

    def __init__(self, ssl_context: ssl.SSLContext | None) -> None:
        """``ssl_context``: the settings of TLS; None where no server is reached by it."""
        self.closed = threading.Event()
        """Set when they are closed; callers that waited on one of them were interrupted."""
        self._ssl = ssl_context
        self._pools: dict[str, urllib3.HTTPConnectionPool] = {}  # by server; urllib3 takes long to find them
        self._sockets: WeakKeyDictionary[socket.socket, str] = WeakKeyDictionary()  # to which server
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close all, also those on which other threads wait: they see the end of the stream."""
        with self._lock:
            self.closed.set()
            sockets = list(self._sockets)
        for opened in sockets:
            _end(opened)
        for pool in list(self._pools.values()):
            pool.close()

    def leave(self, server: str) -> None:
        """End those to one server, also those on which other threads wait; later calls open new ones."""
        with self._lock:
            sockets = [it for it, of in self._sockets.items() if of == server]
        for opened in sockets:
            _end(opened)

    def check(self) -> None:
        """Raise ConnectionLostError when they are closed."""
        if self.closed.is_set():
            raise ConnectionLostError("the client is closed")

    def pool(self, server: str) -> urllib3.HTTPConnectionPool:
        """Return the connections to the server of a URL."""
        pool = self._pools.get(server)
        if pool is None:
            tls = {"ssl_context": self._ssl} if server.startswith("https:") else {}
            on_open = partial(self._opened, server)
            made = urllib3.connection_from_url(server, maxsize=4, retries=False, **tls, on_open=on_open)
            made.ConnectionCls = _TlsConnection if tls else _Connection
            pool = self._pools.setdefault(server, made)  # another thread may have been faster
        return pool

    def _opened(self, server: str, opened: socket.socket) -> None:
        with self._lock:
            self._sockets[opened] = server
        if self.closed.is_set():
            _end(opened)


def _end(opened: socket.socket) -> None:
    """End both directions, which wakes a waiting thread; TLS is passed by, since its state belongs to that thread."""
    with contextlib.suppress(OSError):  # it has ended by itself
        socket.socket.shutdown(opened, socket.SHUT_RDWR)


class _Connection(HTTPConnection):
    def __init__(self, *arguments: Any, on_open: Callable[[socket.socket], None], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._on_open = on_open

    def connect(self) -> None:
        super().connect()
        if self.sock is not None:
            self._on_open(self.sock)


class _TlsConnection(_Connection, HTTPSConnection):
    pass
