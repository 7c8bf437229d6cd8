"""The application: routes, errors, credentials and the observation of every call, put together."""

import logging
import time
import uuid
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ... import __version__
from ..credentials import Credentials
from ..resources import Resources
from . import admin, data, docs, openapi, problems, snapshots
from .auth import Gate, Guard
from .config import HttpConfig
from .context import Context
from .shortcut import Shortcut

if TYPE_CHECKING:
    from fastapi.routing import APIRoute

DESCRIPTION = """\
Subscribe to the changes of MySQL and MariaDB.

1. `POST …/subscribe` registers a client; the server keeps a durable cursor for it.
2. `POST …/getWithoutAck` takes the next batch; `POST …/ack` acknowledges it, `POST …/rollback` gives it back.
   Or `GET …/stream` carries batch after batch.
3. Whatever was not acked comes again: after a rollback, a lost connection, or a restart.

A **position** `source/file@created:begin:n` permanently names a place in the binlog: the n-th event of the transaction
that begins at an offset of a file. A **batch id** rises and is never used again.

Errors are `application/problem+json` (RFC 9457) with a stable `type`, and say what to do in `advice`.
"""

NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False}
"""`/metrics` and the log tell enough. At each call FastAPI takes long to find that there is no listener."""

log = logging.getLogger("sluice.http")


class Observe:
    """Counts, times and logs every call, and answers those that fail unforeseen. Logs neither tokens nor queries."""

    def __init__(self, app: ASGIApp, context: Context) -> None:
        self.app = app
        self.context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the call on (ASGI)."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = 0
        begin = time.perf_counter()

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noting)
        except Exception:
            if status:  # too late for an answer: the server breaks the connection off
                raise
            instance = uuid.uuid4().urn
            log.exception("%s %s failed: %s", scope["method"], scope["path"], instance)
            await problems.internal_error(instance)(scope, receive, noting)
        finally:
            seconds = time.perf_counter() - begin
            route: APIRoute | None = scope.get("route")
            call = f"{scope['method']} {route.path}" if route else ""
            self.context.metrics.called(call, status, seconds, scope.get("path_params", {}).get("destination", ""))
            level = logging.WARNING if status >= 500 else logging.INFO if status >= 400 else logging.DEBUG
            log.log(level, "%s %s %d %.1f ms", scope["method"], scope["path"], status, seconds * 1000)


def create_app(config: HttpConfig, resources: Resources) -> FastAPI:
    """Build the HTTP API. Needs uvicorn as set up by ``sluice.server.http.serve``."""
    gate = Gate(Credentials(config.credentials), config.host, resources.logins, insecure=config.insecure)
    context = Context(resources.embedded, gate, resources.metrics, resources.stopping, resources.pumps)
    app = FastAPI(
        title="Sluice",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=NO_TELEMETRY,
    )
    app.state.context = context
    app.add_middleware(Shortcut, context=context)
    app.add_middleware(Guard, gate=gate)
    app.add_middleware(Observe, context=context)
    problems.install(app)
    docs.install(app)
    for router in (data.router, snapshots.router, admin.destinations, admin.process):
        app.include_router(router)
    openapi.install(app)
    return app
