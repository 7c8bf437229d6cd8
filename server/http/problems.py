"""Errors as RFC 9457 ``application/problem+json``: a stable ``type``, what happened, and what to do about it."""

import http
import json
import math
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from ...protocol import errors
from ..problems import PROBLEM_TYPES, ProblemType, ProblemTypes, problem_type
from . import errors as http_errors

MEDIA_TYPE = "application/problem+json"
METHODS = "DELETE", "GET", "HEAD", "PATCH", "POST", "PUT"
RETRY_STOPPED = 5  # seconds after which a stopped destination is worth another call
RETRY_BUSY = 1  # ... and a busy server


PROBLEM_TYPES_OF_HTTP: ProblemTypes = {
    **PROBLEM_TYPES,
    http_errors.BadRequestError: ProblemType(400, "Bad request", "Send HTTP/1.1; /docs describes the calls."),
    http_errors.RequestTimeoutError: ProblemType(
        408,
        "Request timeout",
        "Send the request in one piece; the times are sluice.http.headerTimeout and requestTimeout.",
    ),
    http_errors.BodyTooLargeError: ProblemType(
        413, "Body too large", "Send less, or raise the limit, sluice.http.maxBody, in the server's configuration."
    ),
    http_errors.UrlTooLongError: ProblemType(
        414, "URL too long", "Send less, or raise the limit, sluice.http.maxUrl, in the server's configuration."
    ),
    http_errors.HeaderTooLargeError: ProblemType(
        431, "Header too large", "Send less, or raise the limit, sluice.http.maxHeader, in the server's configuration."
    ),
    http_errors.NotAcceptableError: ProblemType(
        406, "No acceptable format", "Accept one of the formats that /docs names."
    ),
}


class ProblemResponse(Response):
    """One problem. ``extensions`` are fields beside the usual ones (RFC 9457 section 3.2)."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        type_: str,
        described: ProblemType,
        detail: str,
        extensions: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.type = type_
        body = {
            "type": type_,
            "title": described.title,
            "status": described.status,
            "detail": detail,
            "advice": described.advice,
        }
        content = json.dumps(body | dict(extensions or {}), ensure_ascii=False).encode(errors="backslashreplace")
        super().__init__(content, described.status, dict(headers or {}))


def problem(error: errors.SluiceError) -> ProblemResponse:
    """Answer a call that failed with ``error``."""
    described = problem_type(type(error), PROBLEM_TYPES_OF_HTTP)
    headers = {}
    if isinstance(error, errors.UnauthorizedError):
        headers["www-authenticate"] = 'Bearer realm="sluice"'
    elif isinstance(error, errors.TooManyAttemptsError | errors.QuotaExceededError):
        headers["retry-after"] = str(math.ceil(error.retry_after))
    elif isinstance(error, errors.DestinationStoppedError):
        headers["retry-after"] = str(RETRY_STOPPED)
    elif isinstance(error, errors.BusyError):
        headers["retry-after"] = str(RETRY_BUSY)
    extensions: dict[str, Any] = {}
    if isinstance(error, errors.BadParameterError) and error.parameter:
        extensions["parameter"] = error.parameter
    elif isinstance(error, errors.FencedError) and error.active:
        extensions["active"] = error.active
    elif isinstance(error, errors.LostTransactionsError):
        extensions["lost"] = list(error.lost)
    return ProblemResponse(error.type, described, str(error) or described.title, extensions, headers)


def invalid_request(error: RequestValidationError) -> ProblemResponse:
    """Answer with a 422 that names each parameter or field of a body that does not validate, without what was sent."""
    found = [_invalid(item) for item in error.errors()]
    detail = "; ".join(f"{item['parameter']}: {item['reason']}" for item in found)
    described = PROBLEM_TYPES[errors.BadParameterError]
    return ProblemResponse(
        errors.BadParameterError.type, described, detail, {"parameter": found[0]["parameter"], "errors": found}
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
    described = ProblemType(status, status.phrase, "See /docs for the calls that exist.")
    name = status.phrase.lower().replace(" ", "-").replace("'", "")
    detail, headers = str(error.detail), error.headers
    if status == http.HTTPStatus.NOT_FOUND:
        detail = f"There is no {request.url.path}."
    elif status == http.HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(it for it in METHODS if _takes(request, it))
        detail, headers = f"{request.url.path} does not take {request.method}, but {allowed}.", {"Allow": allowed}
    return ProblemResponse(name, described, detail, headers=headers)


def _takes(request: Request, method: str) -> bool:
    scope = {**request.scope, "method": method}
    return any(it.matches(scope)[0] is Match.FULL for it in request.app.routes)


def internal_error(instance: str) -> ProblemResponse:
    """Answer to an error that was not foreseen; its text stays in the log, which names it by `instance`."""
    detail = f"The server failed on this call; its log has the cause, beside {instance}."
    return ProblemResponse(errors.SluiceError.type, PROBLEM_TYPES[errors.SluiceError], detail, {"instance": instance})


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
