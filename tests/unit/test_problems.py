"""Every error has a problem: a stable type, a status, and advice."""

import json
import re
from typing import Annotated, Any, NamedTuple

import pytest
import urllib3
from fastapi import FastAPI, Query
from starlette.types import Message

from sluice.client_sdk import endpoint
from sluice.client_sdk.calls import Reply
from sluice.protocol import errors
from sluice.server.cli import remote
from sluice.server.http import errors as http_errors
from sluice.server.http import problems
from sluice.server.problems import PROBLEM_TYPES, problem_type

STATUSES = {
    "internal": 500,
    "unknown-destination": 404,
    "unknown-table": 404,
    "destination-stopped": 503,
    "not-subscribed": 409,
    "unknown-batch": 409,
    "ack-out-of-order": 409,
    "stale-session": 409,
    "owned": 409,
    "unknown-snapshot": 404,
    "snapshot-running": 409,
    "gap": 409,
    "limit": 409,
    "filter-matches-nothing": 409,
    "bad-position": 422,
    "source-changed": 409,
    "switch-refused": 409,
    "transactions-lost": 409,
    "gone": 410,
    "source-error": 503,
    "purged": 410,
    "reshaped": 410,
    "undecodable": 500,
    "not-configured": 409,
    "bad-configuration": 500,
    "fenced": 421,
    "zookeeper-error": 503,
    "not-stored": 507,
    "history": 500,
    "bad-parameter": 422,
    "bad-request": 400,
    "request-timeout": 408,
    "body-too-large": 413,
    "url-too-long": 414,
    "header-too-large": 431,
    "busy": 503,
    "not-acceptable": 406,
    "unauthorized": 401,
    "forbidden": 403,
    "too-many-attempts": 429,
    "quota-exceeded": 429,
}

ERRORS = [
    it
    for it in (vars(errors) | vars(http_errors)).values()
    if isinstance(it, type)
    and issubclass(it, errors.SluiceError)
    and it not in (errors.ConnectionLostError, errors.TargetError)  # of clients and jobs
    and not issubclass(it, errors.RefusedError)  # of outputs
]


def make(kind: type[errors.SluiceError]) -> errors.SluiceError:
    waits = issubclass(kind, errors.TooManyAttemptsError | errors.QuotaExceededError)
    return kind("what was wrong", 2.5) if waits else kind("what was wrong")


def test_types_and_statuses_are_stable() -> None:
    assert {it.type: problem_type(it, problems.PROBLEM_TYPES_OF_HTTP).status for it in ERRORS} == STATUSES


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.type)
def test_a_problem_says_what_was_wrong_and_what_to_do(kind: type[errors.SluiceError]) -> None:
    response = problems.problem(make(kind))
    body = json.loads(bytes(response.body))
    assert response.media_type == "application/problem+json"
    assert body["type"] == kind.type
    assert body["status"] == response.status_code == STATUSES[kind.type]
    assert body["detail"] == "what was wrong"
    assert body["title"]
    assert body["advice"]


def test_a_missing_token_is_asked_for() -> None:
    assert problems.problem(errors.UnauthorizedError("x")).headers["www-authenticate"].startswith("Bearer")


def test_waiting_is_told_in_whole_seconds() -> None:
    assert problems.problem(errors.TooManyAttemptsError("x", 2.5)).headers["retry-after"] == "3"


def test_a_bad_parameter_is_named() -> None:
    body = json.loads(bytes(problems.problem(errors.BadParameterError("too large", "batchSize")).body))
    assert body["parameter"] == "batchSize"


def test_the_active_server_is_named_where_it_is_known() -> None:
    body = json.loads(bytes(problems.problem(errors.FencedError("x", "https://b:11180")).body))
    assert body["active"] == "https://b:11180"
    assert "active" not in json.loads(bytes(problems.problem(errors.FencedError("x")).body))


class Answer(NamedTuple):
    status: int
    media_type: str
    body: dict[str, Any]


@pytest.fixture
def app() -> FastAPI:
    app = FastAPI()
    problems.install(app)

    @app.get("/number")
    async def number(size: Annotated[int, Query(alias="batchSize", ge=1)]) -> int:
        return size

    @app.get("/gone")
    async def gone() -> None:
        raise errors.GoneError("too old")

    return app


async def call(app: FastAPI, method: str, path: str, query: str = "") -> Answer:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": []}
    await app(scope, receive, send)
    start, body = sent
    return Answer(start["status"], dict(start["headers"])[b"content-type"].decode(), json.loads(body["body"]))


async def test_a_parameter_that_does_not_validate_is_named_and_not_echoed(app: FastAPI) -> None:
    answer = await call(app, "GET", "/number", "batchSize=secret-text")
    assert (answer.status, answer.media_type) == (422, "application/problem+json")
    assert (answer.body["type"], answer.body["parameter"]) == ("bad-parameter", "batchSize")
    assert "batchSize" in answer.body["detail"]
    assert "secret-text" not in str(answer.body)


async def test_an_error_of_sluice_becomes_its_problem(app: FastAPI) -> None:
    answer = await call(app, "GET", "/gone")
    assert (answer.status, answer.body["type"]) == (410, "gone")


@pytest.mark.parametrize(
    ("method", "path", "kind", "detail"),
    [
        ("GET", "/nowhere", "not-found", "There is no /nowhere."),
        ("POST", "/gone", "method-not-allowed", "/gone does not take POST, but GET."),
    ],
)
async def test_a_call_that_does_not_exist_is_a_problem_too(
    app: FastAPI, method: str, path: str, kind: str, detail: str
) -> None:
    body = (await call(app, method, path)).body
    assert (body["type"], body["detail"]) == (kind, detail)


@pytest.mark.parametrize("advice", [endpoint.ADVICE, remote.ADVICE], ids=["methods", "commands"])
def test_what_advises_calls_of_http_has_another_text_for_those_who_make_none(advice: dict[str, str]) -> None:
    calls = re.compile(r"\b(GET|POST|PUT|DELETE)\b|/docs|getWithoutAck|Authorization")
    named = {kind.type for kind, it in PROBLEM_TYPES.items() if calls.search(it.advice)}
    assert set(advice) == named
    assert [it for it in advice.values() if calls.search(it)] == []


def test_the_sdk_advises_methods_and_the_command_line_commands() -> None:
    answer = problems.problem(errors.GapError("rows are missing"))
    body = bytes(answer.body)
    assert str(endpoint.error_of(Reply(409, {}, body))) == f"rows are missing. {endpoint.ADVICE['gap']}"
    refused = remote._refusal(urllib3.HTTPResponse(body=body, status=409))
    assert str(refused) == f"rows are missing. {remote.ADVICE['gap']}"
