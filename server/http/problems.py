"""Errors as RFC 9457 ``application/problem+json``: a stable ``type``, what was wrong, and what to do about it."""

import http
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from sluice.protocol import errors

MEDIA_TYPE = "application/problem+json"
RETRY_STOPPED = 5  # seconds after which a stopped destination is worth another call
RETRY_BUSY = 1  # ... and a busy server


@dataclass(frozen=True, slots=True)
class Kind:
    """What all problems of one type share."""

    status: int
    title: str
    advice: str


KINDS: Mapping[type[errors.SluiceError], Kind] = {
    errors.SluiceError: Kind(500, "Internal error", "See the server's log; report it if it comes again."),
    errors.BadRequestError: Kind(400, "Bad request", "Send HTTP/1.1; /docs describes the calls."),
    errors.RequestTimeoutError: Kind(
        408,
        "Request timeout",
        "Send the request in one piece; the times are sluice.http.headerTimeout and requestTimeout.",
    ),
    errors.BodyTooLargeError: Kind(
        413, "Body too large", "Send less, or raise the limit, sluice.http.maxBody, in the server's configuration."
    ),
    errors.UrlTooLongError: Kind(
        414, "URL too long", "Send less, or raise the limit, sluice.http.maxUrl, in the server's configuration."
    ),
    errors.HeaderTooLargeError: Kind(
        431, "Header too large", "Send less, or raise the limit, sluice.http.maxHeader, in the server's configuration."
    ),
    errors.BusyError: Kind(503, "Busy", "Try again in a moment."),
    errors.BadParameterError: Kind(422, "Bad parameter", "Correct the parameter; /docs describes each."),
    errors.BadPositionError: Kind(422, "Not a position", "Use a position that this server returned."),
    errors.NotAcceptableError: Kind(406, "No acceptable format", "Accept one of the formats that /docs names."),
    errors.UnauthorizedError: Kind(
        401,
        "No valid credentials",
        "Send 'Authorization: Bearer <token>'; POST /v1/tokens exchanges a password for one.",
    ),
    errors.ForbiddenError: Kind(403, "Not allowed", "Use a token whose scope and destinations cover the call."),
    errors.TooManyAttemptsError: Kind(429, "Too many failed logins", "Wait as long as Retry-After says."),
    errors.UnknownDestinationError: Kind(
        404, "Unknown destination", "GET /v1/destinations lists those configured here."
    ),
    errors.DestinationStoppedError: Kind(
        503, "Destination not running", "Start it by POST /v1/destinations/{destination}/start, or try again later."
    ),
    errors.NotSubscribedError: Kind(409, "Not subscribed", "POST …/subscribe first."),
    errors.UnknownBatchError: Kind(
        409,
        "Unknown batch",
        "It was acked or rolled back before, or belongs to an earlier run: POST …/rollback and read on from there.",
    ),
    errors.AckOutOfOrderError: Kind(409, "Ack out of order", "Ack the outstanding batches oldest first, or roll back."),
    errors.StaleSessionError: Kind(
        409, "Stale session", "Another consumer took this client id over: stop, or open a new session."
    ),
    errors.FilterError: Kind(409, "Filter cannot match", "Correct the filter, or widen the filter of the instance."),
    errors.SourceChangedError: Kind(
        409,
        "Source changed",
        "The position belongs to another source or history: check which server this is. If it is the right"
        " one, take a new snapshot, unsubscribe, and subscribe anew.",
    ),
    errors.GoneError: Kind(
        410,
        "Gone",
        "The range is no longer in the buffer. A registered client is served again from its cursor when its destination"
        " is stopped and started, as long as the source has that binlog. Else unsubscribe, subscribe anew from"
        " 'earliest', and take a new snapshot of what lies between.",
    ),
    errors.PurgedError: Kind(
        410,
        "Purged from the source",
        "The source's binlog starts later: take a new snapshot, unsubscribe, and subscribe anew.",
    ),
    errors.SourceError: Kind(503, "Source not usable", "Mend the source as the detail says; the server tries again."),
    errors.UnknownTableError: Kind(404, "Unknown table", "Correct the name, or let the source's account see it."),
    errors.DecodeError: Kind(500, "Undecodable", "Report it with the file and offset; the destination can skip it."),
    errors.ConfigError: Kind(500, "Bad configuration", "Correct the configuration, then start the destination."),
    errors.ZooKeeperError: Kind(
        503, "ZooKeeper not usable", "Mend ZooKeeper or the way to it as the detail says; the server tries again."
    ),
    errors.NotStoredError: Kind(
        507,
        "Not stored",
        "The ack counts but would not survive the server: make room for the cursors; the server tries again.",
    ),
    errors.FencedError: Kind(421, "Not the active server", "Ask the server that has taken the destination over."),
}


def advice(problem: str) -> str:
    """Return what to do about a problem of that type; empty for none."""
    return next((kind.advice for error, kind in KINDS.items() if error.type == problem), "")


def kind_of(error: type[errors.SluiceError]) -> Kind:
    """Return the kind of an error's class, or of its nearest base that has one."""
    return next(KINDS[base] for base in error.__mro__ if base in KINDS)


class ProblemResponse(Response):
    """One problem. ``members`` are extension members (RFC 9457 section 3.2)."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        type_: str,
        kind: Kind,
        detail: str,
        members: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.type = type_
        body = {"type": type_, "title": kind.title, "status": kind.status, "detail": detail, "advice": kind.advice}
        content = json.dumps(body | dict(members or {}), ensure_ascii=False).encode()
        super().__init__(content, kind.status, dict(headers or {}))


def problem(error: errors.SluiceError) -> ProblemResponse:
    """Answer a call that failed with ``error``."""
    kind = kind_of(type(error))
    headers = {}
    if isinstance(error, errors.UnauthorizedError):
        headers["www-authenticate"] = 'Bearer realm="sluice"'
    elif isinstance(error, errors.TooManyAttemptsError):
        headers["retry-after"] = str(math.ceil(error.retry_after))
    elif isinstance(error, errors.DestinationStoppedError):
        headers["retry-after"] = str(RETRY_STOPPED)
    elif isinstance(error, errors.BusyError):
        headers["retry-after"] = str(RETRY_BUSY)
    members = {}
    if isinstance(error, errors.BadParameterError) and error.parameter:
        members["parameter"] = error.parameter
    elif isinstance(error, errors.FencedError) and error.active:
        members["active"] = error.active
    return ProblemResponse(error.type, kind, str(error) or kind.title, members, headers)


def invalid_request(error: RequestValidationError) -> ProblemResponse:
    """Answer with a 422 that names each parameter or member of a body that does not validate, without what was sent."""
    found = [_invalid(item) for item in error.errors()]
    detail = "; ".join(f"{item['parameter']}: {item['reason']}" for item in found)
    kind = KINDS[errors.BadParameterError]
    return ProblemResponse(
        errors.BadParameterError.type, kind, detail, {"parameter": found[0]["parameter"], "errors": found}
    )


def _invalid(item: Mapping[str, Any]) -> dict[str, str]:
    where, *path = item["loc"]
    if item["type"] == "json_invalid":  # the path is a number of characters then
        return {"parameter": where, "in": where, "reason": f"not JSON: {item['ctx']['error']} at character {path[0]}"}
    reason = "there is no such parameter" if item["type"] == "extra_forbidden" else item["msg"]
    name = ".".join(str(part) for part in path) or where
    return {"parameter": name, "in": where, "reason": reason.removeprefix("Value error, ")}


def http_error(request: Request, error: HTTPException) -> ProblemResponse:
    """Answer to an error of the HTTP layer itself: no such path, no such method."""
    status = http.HTTPStatus(error.status_code)
    kind = Kind(status, status.phrase, "See /docs for the calls that exist.")
    name = status.phrase.lower().replace(" ", "-").replace("'", "")
    detail = str(error.detail)
    if status == http.HTTPStatus.NOT_FOUND:
        detail = f"There is no {request.url.path}."
    elif status == http.HTTPStatus.METHOD_NOT_ALLOWED:
        detail = (
            f"{request.url.path} does not take {request.method}, but {(error.headers or {}).get('Allow', 'others')}."
        )
    return ProblemResponse(name, kind, detail, headers=error.headers)


def internal_error() -> ProblemResponse:
    """Answer to an error that nobody foresaw; its text stays in the log."""
    return ProblemResponse(errors.SluiceError.type, KINDS[errors.SluiceError], "The server failed on this call.")


def install(app: FastAPI) -> None:
    """Make ``app`` answer every error with a problem."""

    @app.exception_handler(errors.SluiceError)
    async def known(_request: Request, error: errors.SluiceError) -> Response:
        return problem(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> Response:
        return invalid_request(error)

    @app.exception_handler(HTTPException)
    async def misdirected(request: Request, error: HTTPException) -> Response:
        return http_error(request, error)
