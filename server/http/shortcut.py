"""The calls that a consumer makes for every batch, past the framework, which costs several times what they do.

This is a second router, and it stays because plain routes cost a consumer of small batches most of the server's time:
the application alone takes 190 µs of CPU for a get here and 1,000 as a route, 130 and 720 for an ack
(docs/notes/performance.md). It uses no private part of FastAPI or Starlette. A call that it does not take, and one
that it does, are answered by the same functions.
"""

import functools
import re
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import parse_qsl

from fastapi import Response
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...protocol.errors import SluiceError
from . import data, problems
from .context import Context
from .rights import require

PATH: Final = re.compile(r"/v1/destinations/([^/]+)/clients/(-?[0-9]{1,4}|[12][0-9]{4})/(ack|getWithoutAck)")
"""Of such a call; the client ids that this does not know are a matter of the routes."""
DURABLE: Final = {b"": False, b"durable=true": True}
"""What the query of an ack may be, and what it says."""

Work = Callable[[], Awaitable[Response]]


class Shortcut:
    """Answers `ack` and `getWithoutAck` by the functions that their routes have, at a fifth of the routes' cost.

    It knows what the SDK sends. Whatever else comes, right or wrong, goes on to the routes as if nothing had been read
    of it: they say what is wrong with it.
    """

    def __init__(self, app: ASGIApp, context: Context) -> None:
        self.app = app
        self.context = context
        self._routes = {
            route.path.rpartition("/")[2]: route for route in data.router.routes if isinstance(route, APIRoute)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the call, or pass it on (ASGI)."""
        match = PATH.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if match is None:
            await self.app(scope, receive, send)
            return
        destination, client_id, call = match[1], int(match[2]), match[3]
        request = Request(scope, receive)
        if call == "ack":
            message = await receive()
            receive = _again(message, receive)
            work = self._ack(request, message, destination, client_id)
        else:
            work = self._get(request, destination, client_id)
        if work is None:
            await self.app(scope, receive, send)
            return
        scope["route"], scope["path_params"] = self._routes[call], {"destination": destination}
        try:
            require(call, scope["state"]["grant"], destination)
            response = await work()
        except SluiceError as error:
            response = problems.problem(error)
        await response(scope, receive, send)

    def _ack(self, request: Request, message: Message, destination: str, client_id: int) -> Work | None:
        durable = DURABLE.get(request.scope["query_string"])
        if durable is None or message.get("more_body") or request.headers.get("content-type") != "application/json":
            return None
        try:
            body = data.Ack.model_validate_json(message.get("body", b""), strict=True)
        except ValidationError:
            return None
        session = request.headers.get("sluice-session")

        async def work() -> Response:
            await data.ack(self.context, destination, client_id, body, durable, session)
            return Response(status_code=204)

        return work

    def _get(self, request: Request, destination: str, client_id: int) -> Work | None:
        if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
            return None
        parameters = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        query = dict(parameters)
        try:
            limits = data.GetQuery.model_validate(query) if len(query) == len(parameters) else None
        except ValidationError:
            return None
        if limits is None:
            return None
        session = request.headers.get("sluice-session")
        get = functools.partial(data.get_without_ack, request, self.context, destination, client_id, limits)
        return functools.partial(get, session=session)


def _again(message: Message, receive: Receive) -> Receive:
    """Return a ``receive`` that gives a message which was taken already once more."""
    taken = [message]

    async def receive_again() -> Message:
        return taken.pop() if taken else await receive()

    return receive_again
