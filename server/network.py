"""What HTTP and Canal's protocol ask of the network: where to listen, from where it is reached, slow readers."""

import asyncio
import functools
import ipaddress
import os
import socket
from collections.abc import Awaitable, Callable, Sequence

from ..protocol.errors import ConfigError

HIGH_WATER = 64 * 1024  # bytes not sent yet from which on a sender pauses
COPIED = 64 * 1024  # what is no longer than this is copied: cheaper than a pinned segment and further writes
STALLED = 60.0  # seconds without a byte taken after which a reader of slices is cut off


def listen(host: str, port: int, keys: str) -> socket.socket:
    """Open a listening socket whose options the accepted connections inherit.

    ``keys`` says where the address is configured. Raises OSError, which says so, when it is taken or not this host's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        sock = socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise OSError(f"cannot listen on {address_text((host, port))}: {reason}; {keys} choose another") from error
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def address_text(address: Sequence[object]) -> str:
    """Write an address as ``host:port``."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


def refuse_open(host: str, missing: Sequence[str], *, insecure: bool, advice: str) -> None:
    """Refuse to listen beyond loopback while something is missing that protects it. Raises ConfigError."""
    if missing and not insecure and not is_loopback(host):
        raise ConfigError(
            f"Refusing to listen on {host!r} without {' and '.join(missing)}. {advice}, listen on 127.0.0.1, or accept"
            " the danger with --insecure."
        )


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches a server that listens on ``host``."""
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


@functools.lru_cache(maxsize=64)
def is_address(host: str) -> bool:
    """Tell whether ``host`` is an address, not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def unless_stalled(transport: asyncio.WriteTransport, step: Callable[[], Awaitable[object]]) -> None:
    """Take a step that waits for what was written before, and abort the transport when its reader takes nothing.

    The step has to do nothing but wait until then: one that is broken off is repeated.
    """
    while True:
        waiting = transport.get_write_buffer_size()
        try:
            async with asyncio.timeout(STALLED):
                await step()
        except TimeoutError:
            if transport.get_write_buffer_size() >= waiting:
                transport.abort()
        else:
            return
