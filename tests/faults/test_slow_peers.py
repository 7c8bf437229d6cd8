"""A thousand peers that send byte by byte cost little memory, and others are served beside them."""

import contextlib
import resource
import socket
import statistics
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.harness import Sluice
from tests.servers import Server
from tests.waiting import eventually

pytestmark = pytest.mark.extended

MIB = 1 << 20
PEERS = 1000
PATH = "/v1/destinations/shop/clients/1001"
BEGINNINGS = {
    "a header": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ",
    "a long header": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 15_000,
    "a body": f"POST {PATH}/ack HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n".encode(),
    "a long body": f"POST {PATH}/subscribe HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n".encode()
    + b" " * 200_000,
    "a login": b"POST /v1/tokens HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8192\r\n\r\n" + b" " * 8_000,
    "a frame": struct.pack(">i", 16_000) + b"x" * 15_000,
}
"""What a peer sends at once; the rest drips."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, mariadb118: Server) -> Iterator[tuple[Sluice, int]]:
    """A running server that was started with room for few files, and its memory."""
    sluice = Sluice(tmp_path_factory.mktemp("slow"))
    sluice.add("shop", mariadb118)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        sluice.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    with contextlib.closing(sluice.client()) as client:
        sluice.wait_running()
        client.subscribe()
        latency(sluice)
        yield sluice, sluice.memory("VmRSS")
    sluice.__exit__()


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_a_thousand_dripping_peers_cost_little(served: tuple[Sluice, int], beginning: str) -> None:
    sluice, idle = served
    alone = latency(sluice)
    sluice.forget_peak()
    with contextlib.ExitStack() as stack:
        address = ("127.0.0.1", sluice.canal_port) if beginning == "a frame" else sluice.address
        peers = [stack.enter_context(socket.create_connection(address)) for _ in range(PEERS)]
        for peer in peers:
            peer.setblocking(False)
            send(peer, BEGINNINGS[beginning])
        latencies = []
        for _ in range(5):
            for peer in peers:
                send(peer, b"x")
            latencies.append(latency(sluice))
        peak = sluice.memory("VmHWM")
    print(f"{(peak - idle) / MIB:.1f} MiB; {alone:.2f} ms alone, {statistics.median(latencies):.2f} ms beside {PEERS}")  # noqa: T201
    assert peak - idle <= 64 * MIB
    eventually(lambda: files(sluice) < 256, "the end of their connections")


def send(peer: socket.socket, data: bytes) -> None:
    """Send as much as the connection takes; it may be refused by now."""
    with contextlib.suppress(BlockingIOError, ConnectionError):
        peer.send(data)


def latency(sluice: Sluice) -> float:
    """The median time of a call, in ms; each has to be answered."""
    times = []
    with contextlib.closing(sluice.client()) as client:
        for _ in range(50):
            begin = time.perf_counter()
            assert client.get_without_ack(0).batch_id == -1
            times.append((time.perf_counter() - begin) * 1000)
    return statistics.median(times)


def files(sluice: Sluice) -> int:
    """How many files it has open."""
    return len(list(Path(f"/proc/{sluice.process.pid}/fd").iterdir()))
