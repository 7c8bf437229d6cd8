"""The OpenAPI document: what FastAPI knows of the calls, and what it cannot know: their errors, batches and streams."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Annotated, Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, Field, WithJsonSchema
from pydantic.json_schema import models_json_schema

from ...protocol import errors
from ...protocol.formats import JSON, NDJSON, PROTOBUF
from ..problems import problem_type
from . import errors as http_errors
from . import problems

REFERENCE: Final = "#/components/schemas/{model}"

Error = type[errors.SluiceError]

OF_ANY_CALL: Collection[Error] = (
    http_errors.BadRequestError,
    http_errors.RequestTimeoutError,
    http_errors.UrlTooLongError,
    http_errors.HeaderTooLargeError,
    errors.SluiceError,
)
OF_CREDENTIALS: Collection[Error] = (errors.UnauthorizedError, errors.ForbiddenError)
OF_BODIES: Collection[Error] = (http_errors.BodyTooLargeError, errors.BadParameterError, errors.BusyError)
OF_DESTINATIONS: Collection[Error] = (
    errors.UnknownDestinationError,
    errors.DestinationStoppedError,
    errors.SourceError,
    errors.ZooKeeperError,
    errors.FencedError,
)
OF_CLIENTS: Collection[Error] = (
    errors.NotSubscribedError,
    errors.UnknownBatchError,
    errors.AckOutOfOrderError,
    errors.StaleSessionError,
    errors.FilterError,
    errors.LimitError,
    errors.SourceChangedError,
    errors.BadPositionError,
    errors.GoneError,
    errors.PurgedError,
    errors.ReshapedError,
    errors.NotStoredError,
    errors.QuotaExceededError,
)
OF_SNAPSHOTS: Collection[Error] = (errors.UnknownSnapshotError,)
OF_OPERATIONS: dict[str, Collection[Error]] = {
    "createToken": (errors.UnauthorizedError, errors.TooManyAttemptsError),
    "startDestination": (errors.ConfigError,),
    "switchSource": (errors.NotConfiguredError,),
    "pruneLog": (errors.NotConfiguredError,),
    "getSourceEnd": (errors.SourceChangedError,),
    "listTables": (errors.FilterError,),
    "markRange": (errors.SnapshotRunningError,),
    "startSnapshot": (errors.UnknownTableError, errors.NotConfiguredError),
    "getSnapshot": OF_SNAPSHOTS,
    "pauseSnapshot": OF_SNAPSHOTS,
    "resumeSnapshot": OF_SNAPSHOTS,
    "cancelSnapshot": OF_SNAPSHOTS,
    "getTable": (errors.FilterError, errors.UnknownTableError),
}


class InvalidParameter(BaseModel):
    """A parameter, or a field of a body, that does not validate."""

    parameter: str
    in_: str = Field(alias="in", description="`path`, `query`, `header` or `body`.")
    reason: str


class Problem(BaseModel):
    """An error (RFC 9457)."""

    type: str = Field(description="Which error it is; the name is stable.", examples=["not-subscribed"])
    title: str
    status: int = Field(description="The HTTP status again.")
    detail: str = Field(description="What was wrong.")
    advice: str = Field(description="What to do about it.")
    parameter: str | None = Field(default=None, description="The first bad parameter, where there is one.")
    errors: list[InvalidParameter] | None = Field(default=None, description="All bad parameters, where there are any.")
    instance: str | None = Field(default=None, description="Of an internal error: what the server's log calls it.")
    active: str | None = Field(default=None, description="URL of the server that has the destination, where known.")


Value = Annotated[str | None, WithJsonSchema({"type": ["string", "null"]})]
"""Of a row; generators make a model of what pydantic would write."""


class FlatMessage(BaseModel):
    """An entry, as Canal writes it to message queues: the rows of one table that one event changed, or a DDL.

    Every value of a row is a text or null.
    """

    id: int = Field(description="Id of its batch.")
    database: str
    table: str
    pkNames: list[str] | None = Field(  # noqa: N815
        description="Columns of the primary key. Without one, those of an image before that has not all columns."
    )
    isDdl: bool  # noqa: N815
    type: str = Field(description="`INSERT`, `UPDATE`, `DELETE`, `CREATE`, `ALTER` …")
    es: int = Field(description="When the source executed it, ms since 1970.")
    ts: int = Field(description="When the message was made, ms since 1970.")
    sql: str = Field(description="The statement of a DDL, else empty.")
    sqlType: dict[str, int] | None = Field(description="Type of each column, as `java.sql.Types` numbers it.")  # noqa: N815
    mysqlType: dict[str, str] | None = Field(description="Type of each column, as MySQL writes it.")  # noqa: N815
    data: list[dict[str, Value]] | None = Field(
        description="The rows after the change, or before it for a DELETE; null for a DDL."
    )
    old: list[dict[str, Value]] | None = Field(
        description="For an UPDATE what each row had before in the columns that changed."
    )
    gtid: str
    xa: str | None = Field(
        default=None, description="The XA transaction that it belongs to, `committed X'…'` for one; absent without one."
    )
    late: str | None = Field(
        None, description="Where the rows belong, which come out of their order; on such messages only."
    )
    snapshot: str | None = Field(
        None, description="Id of the snapshot that the rows were read for; absent for changes."
    )
    member: str | None = Field(
        None, description="Of several sources in one stream: the one that it comes from; else absent."
    )
    absent: list[str] | None = Field(
        default=None,
        description="The columns that the source did not send, which are not null. The key is there only when"
        " `binlog_row_image` is not `FULL`.",
    )


class BatchEnd(BaseModel):
    """Which batch it was."""

    batchId: int = Field(description="To be acked; -1 for an empty batch, 0 for a range.")  # noqa: N815
    from_: str = Field(alias="from", description="Position of the first entry.")
    to: str = Field(description="Position after the last entry.")


class FlatBatch(BatchEnd):
    """A batch."""

    entries: list[FlatMessage] = Field(description="Without the begin and end of transactions.")


class StreamProblem(BaseModel):
    """Why a stream ends."""

    problem: Problem


MODELS: Final = (Problem, FlatBatch, BatchEnd, StreamProblem)


def install(app: FastAPI) -> None:
    """Have ``app`` give this document."""
    document: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not document:
            document.update(describe(app))
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the document."""
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    schemas = document["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    _, made = models_json_schema([(model, "validation") for model in MODELS], ref_template=REFERENCE)
    schemas |= made["$defs"]
    schemas["StreamLine"] = {
        "description": "A line of `application/x-ndjson`.",
        "oneOf": [_reference(name) for name in ("FlatMessage", "BatchEnd", "StreamProblem")],
    }
    named = [field for schema in schemas.values() for field in schema.get("properties", {}).values()]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            _complete(operation, path)
            named += [parameter["schema"] for parameter in operation.get("parameters", ())]
    for schema in named:  # a generator would take the title of a field for the name of a model
        schema.pop("title", None)
    return document


def _complete(operation: dict[str, Any], path: str) -> None:
    for content in operation.get("requestBody", {}).get("content", {}).values():
        if "anyOf" in content["schema"]:  # a body that may be left out is not null
            (content["schema"],) = (it for it in content["schema"]["anyOf"] if it != {"type": "null"})
    responses = operation["responses"]
    responses.pop("422", None)  # as FastAPI would write it
    for answer in responses.values():
        content = answer.get("content", {})
        if JSON.media_type in content and "schema" not in content[JSON.media_type]:
            content[JSON.media_type]["schema"] = _reference("FlatBatch")
        if NDJSON.media_type in content:
            content[NDJSON.media_type]["x-itemSchema"] = _reference("StreamLine")  # as OpenAPI 3.2 says it
    texts = defaultdict(list)
    for error in _errors(operation, path):
        described = problem_type(error, problems.PROBLEM_TYPES_OF_HTTP)
        texts[str(described.status)].append(f"`{error.type}`: {described.title}.")
    for status, lines in sorted(texts.items()):
        if status in responses:
            responses[status]["description"] += " ".join(["", *lines])
            responses[status]["content"][problems.MEDIA_TYPE] = {"schema": _reference("Problem")}
        else:
            responses[status] = {
                "description": " ".join(lines),
                "content": {problems.MEDIA_TYPE: {"schema": _reference("Problem")}},
            }


def _errors(operation: dict[str, Any], path: str) -> Iterator[Error]:
    """Yield what a call may be answered, besides what is all right."""
    yield from OF_ANY_CALL
    yield from OF_OPERATIONS.get(operation["operationId"], ())
    if "security" in operation:
        yield from OF_CREDENTIALS
    if "requestBody" in operation:
        yield from OF_BODIES
    elif "parameters" in operation:
        yield errors.BadParameterError
    if "{destination}" in path:
        yield from OF_DESTINATIONS
    if "{client_id}" in path:
        yield from OF_CLIENTS
    if PROTOBUF.media_type in operation["responses"].get("200", {}).get("content", {}):
        yield http_errors.NotAcceptableError


def _reference(model: str) -> dict[str, str]:
    return {"$ref": REFERENCE.format(model=model)}
