"""The life of the HTTP server in a process."""

import socket
from collections.abc import Callable

import uvicorn

from ..config import ServerConfig
from ..embedded import EmbeddedServer
from ..metrics import Metrics
from ..network import address_text, listen
from ..waiting import STOP_SECONDS, Stopping
from .app import create_app
from .auth import require_safe_server
from .transport import Server

KEEP_ALIVE = 75  # seconds that an idle connection stays open: longer than what consumers sleep between two calls


async def serve(
    embedded: EmbeddedServer,
    config: ServerConfig,
    metrics: Metrics,
    stopping: Stopping,
    listening: Callable[[str], None] | None = None,
) -> None:
    """Serve the HTTP API until SIGINT or SIGTERM; announce the stop then, answer what was called, and end streams.

    ``listening`` is called with the base URL once the socket is open. Raises ConfigError when the server may not listen
    there, OSError when it cannot.
    """
    require_safe_server(config)
    app = create_app(embedded, config, metrics, stopping)
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
        await Server(settings, config, metrics, stopping, STOP_SECONDS).serve([sock])


def base_url(sock: socket.socket, *, tls: bool) -> str:
    """Return the URL of a server that listens on ``sock``."""
    return f"{'https' if tls else 'http'}://{address_text(sock.getsockname())}"
