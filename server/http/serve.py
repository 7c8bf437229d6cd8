"""The life of the HTTP server in a process."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import uvicorn

from ..certificates import load_certificate
from ..embedded import EmbeddedServer
from ..network import address_text, listen
from ..resources import Resources
from ..stamp import changes
from ..waiting import STOP_SECONDS
from .app import create_app
from .config import HttpConfig
from .transport import Server

KEEP_ALIVE = 75  # seconds that an idle connection stays open: longer than what consumers sleep between two calls

logger = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def serving(config: HttpConfig, resources: Resources) -> AsyncIterator[str]:
    """Serve the HTTP API while the block runs; gives its URL. See `sluice.server.resources.Serve`."""
    settings = uvicorn.Config(
        create_app(config, resources),
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(config.proxies),
        forwarded_allow_ips=list(config.proxies),
        ssl_certfile=config.tls_cert,
        ssl_keyfile=config.tls_key,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=int(STOP_SECONDS) + 1,
    )
    with listen(config.host, config.port, f"{config.key_of('host')} and {config.key_of('port')}") as sock:
        settings.load()
        server = Server(settings, config, resources.metrics, STOP_SECONDS)
        async with contextlib.AsyncExitStack() as stack:
            if settings.ssl is not None and config.tls_cert is not None and config.tls_key is not None:
                renewing = _renew(resources.embedded, settings.ssl, config.tls_cert, config.tls_key)
                stack.callback(asyncio.create_task(renewing, name="renew the certificate").cancel)
            running = asyncio.create_task(server.serve([sock]), name="HTTP")
            running.add_done_callback(lambda _: resources.stopping.announce())  # if it fails, the process ends
            try:
                yield base_url(sock, tls=config.tls_cert is not None)
            finally:
                server.should_exit = True
                await running


async def _renew(embedded: EmbeddedServer, context: ssl.SSLContext, cert: Path, key: Path) -> None:
    async for _ in changes((cert, key)):
        try:
            load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), cert, key)  # of a bad one half would be taken
            load_certificate(context, cert, key)
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
