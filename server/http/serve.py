"""The life of the HTTP server in a process."""

from collections.abc import Callable

import uvicorn

from sluice.server.config import ServerConfig
from sluice.server.embedded import EmbeddedServer
from sluice.server.http.app import create_app
from sluice.server.http.auth import require_safe_binding
from sluice.server.http.context import Context
from sluice.server.http.transport import Protocol, Server, listen

KEEP_ALIVE = 75  # seconds that an idle connection stays open: longer than what consumers sleep between two calls
STOP_SECONDS = 3  # for answers under way when the server stops; together with saving the cursors less than 5


async def serve(embedded: EmbeddedServer, config: ServerConfig, listening: Callable[[str], None] | None = None) -> None:
    """Serve the HTTP API until SIGINT or SIGTERM, then stop within 5 s: calls answered, streams ended, cursors saved.

    ``listening`` is called with the base URL once the socket is open. Raises ConfigError when it may not listen there,
    OSError when it cannot.
    """
    app = create_app(embedded, config)
    context: Context = app.state.context
    require_safe_binding(
        config.http_host,
        tls=config.http_tls_cert is not None,
        credentials=context.gate.credentials.any,
        insecure=config.insecure,
    )
    server = Server(
        uvicorn.Config(
            app,
            http=Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ssl_certfile=config.http_tls_cert,
            ssl_keyfile=config.http_tls_key,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=STOP_SECONDS,
        ),
        context.stopping,
    )
    with listen(config.http_host, config.http_port) as sock:
        if listening is not None:
            scheme = "https" if config.http_tls_cert else "http"
            host, port = sock.getsockname()[:2]
            listening(f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}")
        try:
            await server.serve([sock])
        finally:
            await embedded.close()
