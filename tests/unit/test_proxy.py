"""The proxy must do its faults exactly, or the tests built on it prove nothing."""

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.proxy import Proxy


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """Address of a server that sends back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(peer: socket.socket) -> None:
        with peer:
            try:
                while chunk := peer.recv(4096):
                    peer.sendall(chunk)
            except OSError:  # cut
                return

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(peer,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def ask(proxy: Proxy, size: int) -> int:
    """Send `size` bytes and return how many came back before the end of the connection."""
    got = 0
    with socket.create_connection((proxy.host, proxy.port), 5) as client:
        client.settimeout(1)
        client.sendall(b"x" * size)
        try:
            while got < size and (chunk := client.recv(65536)):
                got += len(chunk)
        except (ConnectionResetError, TimeoutError):
            pass
    return got


def test_passes_everything_on(echo: tuple[str, int]) -> None:
    with Proxy(echo) as proxy:
        assert ask(proxy, 100_000) == 100_000
        assert (proxy.connections, proxy.cuts) == (1, 0)


def test_cuts_at_the_byte(echo: tuple[str, int]) -> None:
    with Proxy(echo) as proxy:
        proxy.cut_after(777)
        assert ask(proxy, 100_000) == 777
        proxy.heal()
        assert ask(proxy, 100_000) == 100_000


def test_cuts_at_random_bytes(echo: tuple[str, int]) -> None:
    with Proxy(echo, seed=5) as proxy:
        proxy.cut_randomly(10)
        assert ask(proxy, 100_000) < 1000
        assert proxy.cuts >= 1


def test_a_stalled_connection_neither_answers_nor_closes(echo: tuple[str, int]) -> None:
    with Proxy(echo) as proxy, socket.create_connection((proxy.host, proxy.port), 5) as client:
        client.settimeout(0.3)
        proxy.stall()
        client.sendall(b"hello")
        with pytest.raises(TimeoutError):
            client.recv(5)
        proxy.resume()
        assert client.recv(5) == b"hello"


def test_cut_ends_living_connections(echo: tuple[str, int]) -> None:
    with Proxy(echo) as proxy, socket.create_connection((proxy.host, proxy.port), 5) as client:
        client.sendall(b"hello")
        assert client.recv(5) == b"hello"
        proxy.cut()
        assert client.recv(5) == b""
