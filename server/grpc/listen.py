"""The life of a pump's gRPC server: where it listens, and what one caller may take."""

import contextlib
import logging
import socket as sockets
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from ..network import address_text
from ..waiting import STOP_SECONDS, Stopping
from .config import PumpConfig
from .pump import Pump

FRAME = 64
"""Bytes of a request around its message."""
CALLS = 4096
"""Calls under way, of all callers; further ones get RESOURCE_EXHAUSTED."""
OPTIONS = (
    ("grpc.max_concurrent_streams", 256),  # calls of a connection; further ones wait at the caller's
    ("grpc.so_reuseport", 0),  # a port that is taken is an error
    ("grpc.keepalive_time_ms", 60_000),  # a caller that is gone without a word is noticed
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),  # callers may look more often whether the pump is there
    ("grpc.http2.max_ping_strikes", 0),
)

logger = logging.getLogger("sluice.pump")


@contextlib.asynccontextmanager
async def listening(config: PumpConfig, pump: Pump, stopping: Stopping) -> AsyncIterator[list[str]]:
    """Serve a pump while the block runs; gives its addresses, that of the port first.

    When the stop is announced, streams end. The end of the block leaves writes under way `STOP_SECONDS`. Raises OSError
    when an address is taken.

    Of what callers can make it hold: a message has at most ``max_message`` bytes, and is refused by its length before
    the rest is read; those that have arrived have `pump.TOGETHER` bytes in all. What is arriving is bounded by the
    number of calls only, since gRPC tells the size of a message when it is whole.
    """
    limits = [("grpc.max_receive_message_length", config.max_message + FRAME), *OPTIONS]
    server = grpc.aio.server(handlers=[pump.handler()], options=limits, maximum_concurrent_rpcs=CALLS)
    addresses = []
    if config.host:
        addresses.append(address_text((config.host, _listen_at_port(server, config))))
    if config.socket is not None:
        _listen_at_socket(server, config.socket)
        addresses.append(str(config.socket))
    await server.start()
    stopping.listeners.add(pump)
    if stopping.set:
        pump.end()
    try:
        yield addresses
    finally:
        stopping.listeners.discard(pump)
        pump.end()
        await server.stop(STOP_SECONDS)


def _listen_at_port(server: Any, config: PumpConfig) -> int:
    """Return the port."""
    address = address_text((config.host, config.port))
    try:
        if config.tls_cert is None:
            port: int = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, _credentials(config))
    except RuntimeError:
        raise OSError(
            f"cannot listen on {address}; {config.key_of('host')} and {config.key_of('port')} choose another"
        ) from None
    return port


def _listen_at_socket(server: Any, file: Path) -> None:
    """Take the place of a socket that nobody listens on any more, and of nothing else."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(file.lstat().st_mode):
            raise OSError(f"sluice.pump.socket: {file} is there, and is not a socket")
        with sockets.socket(sockets.AF_UNIX) as probe:
            try:
                probe.connect(str(file))
            except ConnectionRefusedError:
                file.unlink()
            else:
                raise OSError(f"sluice.pump.socket: another process listens on {file}")
    try:
        server.add_insecure_port(f"unix:{file}")
    except RuntimeError:
        raise OSError(
            f"sluice.pump.socket: cannot listen on {file}: its folder has to exist, and to be writable"
        ) from None


def _credentials(config: PumpConfig) -> Any:
    """Return the pump's certificate, which is read anew for each connection."""

    def read() -> Any:
        assert config.tls_cert is not None
        assert config.tls_key is not None
        pair = config.tls_key.read_bytes(), config.tls_cert.read_bytes()
        authorities = None if config.tls_ca is None else config.tls_ca.read_bytes()
        return grpc.ssl_server_certificate_configuration([pair], authorities)

    def fetch() -> Any:
        try:
            return read()
        except OSError as error:
            logger.error("the certificate cannot be read, and the one before it is served on: %s", error)  # noqa: TRY400
            return None

    return grpc.dynamic_ssl_server_credentials(read(), fetch, require_client_authentication=config.tls_ca is not None)
