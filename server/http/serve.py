"""The life of the HTTP server in a process."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import uvicorn

from ..config import ServerConfig
from ..embedded import EmbeddedServer
from ..logins import LoginLimiter
from ..metrics import Metrics
from ..network import address_text, listen
from ..stamp import stamp_of
from ..waiting import STOP_SECONDS, Stopping
from .app import create_app
from .auth import require_safe_server
from .transport import Server

KEEP_ALIVE = 75  # seconds that an idle connection stays open: longer than what consumers sleep between two calls
RELOAD = 5.0
"""Seconds after which the files of the certificate are looked at again."""

logger = logging.getLogger(__name__)


async def serve(
    embedded: EmbeddedServer,
    config: ServerConfig,
    metrics: Metrics,
    stopping: Stopping,
    listening: Callable[[str], None] | None = None,
    limiter: LoginLimiter | None = None,
) -> None:
    """Serve the HTTP API until SIGINT or SIGTERM; announce the stop then, answer what was called, and end streams.

    ``listening`` is called with the base URL once the socket is open. ``limiter`` counts failed logins. Raises
    ConfigError when the server may not listen there, OSError when it cannot.
    """
    require_safe_server(config)
    app = create_app(embedded, config, metrics, stopping, limiter)
    settings = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(config.http_proxies),
        forwarded_allow_ips=list(config.http_proxies),
        ssl_certfile=config.http_tls_cert,
        ssl_keyfile=config.http_tls_key,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=int(STOP_SECONDS) + 1,
    )
    with listen(config.http_host, config.http_port, "sluice.http.host and sluice.http.port") as sock:
        if listening is not None:
            listening(base_url(sock, tls=config.http_tls_cert is not None))
        server = Server(settings, config, metrics, stopping, STOP_SECONDS)
        if config.http_tls_cert is None or config.http_tls_key is None:
            await server.serve([sock])
            return
        settings.load()
        assert settings.ssl is not None
        async with _renewing(embedded, settings.ssl, config.http_tls_cert, config.http_tls_key):
            await server.serve([sock])


@contextlib.asynccontextmanager
async def _renewing(embedded: EmbeddedServer, context: ssl.SSLContext, cert: Path, key: Path) -> AsyncIterator[None]:
    """While the block lasts, give new connections the certificate that the files have."""
    task = asyncio.create_task(_renew(embedded, context, cert, key), name="renew the certificate")
    try:
        yield
    finally:
        task.cancel()


async def _renew(embedded: EmbeddedServer, context: ssl.SSLContext, cert: Path, key: Path) -> None:
    def look() -> object:
        try:
            return stamp_of(cert), stamp_of(key)
        except OSError as error:  # what it is about comes when they are loaded
            return str(error)

    seen = look()
    while True:
        await asyncio.sleep(RELOAD)
        found = await asyncio.to_thread(look)
        if found == seen:
            continue
        seen = found
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)  # of a bad one half would be taken
            context.load_cert_chain(cert, key)
        except OSError as error:
            embedded.refused_certificate = f"{cert} cannot be used: {error}"
            text = "the certificate in %s cannot be used, and the one before it is served on: %s"
            logger.error(text, cert, error)  # noqa: TRY400  the text says all
        else:
            embedded.refused_certificate = ""
            logger.info("new connections get the certificate that %s has now", cert)


def base_url(sock: socket.socket, *, tls: bool) -> str:
    """Return the URL of a server that listens on ``sock``."""
    return f"{'https' if tls else 'http'}://{address_text(sock.getsockname())}"
