"""The calls of a consumer: subscribe, get, ack, roll back, stream."""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from ...protocol.cut import is_cut
from ...protocol.errors import BadParameterError, DestinationStoppedError
from ...protocol.formats import JSON, NDJSON
from ...protocol.formats.format import Format
from ...store.allowance import LARGEST
from ...store.batch import Batch
from ...store.snapshot import Selection
from ..embedded import EmbeddedServer
from ..embedded.calls import EMPTY
from .auth import Destination
from .context import Context, Ctx
from .formats import SINGLE, STREAMED, PartsResponse, described, encode, negotiate
from .rights import checked
from .stream import HEARTBEAT, RangeResponse, StreamResponse, join_pieces
from .views import (
    ClientView,
    ConfirmedView,
    MovedView,
    MoveView,
    PartsView,
    PartView,
    RangeView,
    RemovedView,
    SessionView,
)
from .waiting import Listener

LONGEST_WAIT = 3_600_000  # ms

router = APIRouter(
    prefix="/v1/destinations/{destination}/clients/{client_id}", tags=["consumers"], dependencies=[checked]
)

ClientId = Annotated[
    int, Path(ge=-(1 << 15), lt=1 << 15, description="Number of the client, 16 bits as in Canal.", examples=[1001])
]
SessionToken = Annotated[
    str | None,
    Header(alias="Sluice-Session", description="Token of a session; refused once a newer session was opened."),
]


class BatchLimits(BaseModel):
    """How much a batch holds. An unknown parameter is refused: it would be a misspelt limit."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)

    batch_size: int | None = Field(
        default=None,
        ge=1,
        description="Size of a batch: entries (ITEMSIZE) or units of 1 KiB (MEMSIZE), as the destination is configured;"
        " 1000 if there is no limit at all.",
    )
    max_entries: int | None = Field(default=None, ge=1, description="Maximum number of entries in a batch.")
    max_bytes: int | None = Field(
        default=None, ge=1, description="Maximum number of bytes in a batch; a larger entry comes alone."
    )
    min_bytes: int | None = Field(default=None, ge=0, description="Number of bytes to wait for, up to `linger`.")
    linger: int | None = Field(
        default=None, ge=0, le=LONGEST_WAIT, description="ms to wait for `minBytes` after the first entry is there."
    )

    async def take(
        self,
        embedded: EmbeddedServer,
        destination: str,
        client_id: int,
        seconds: float,
        form: Format,
        session: str | None,
    ) -> Batch:
        """Take a batch within these limits to be written in a format; wait ``seconds`` for its first entry."""
        return await embedded.get_without_ack(
            destination,
            client_id,
            batch_size=self.batch_size,
            timeout=seconds,
            max_entries=self.max_entries,
            max_bytes=self.max_bytes,
            min_bytes=self.min_bytes,
            linger=None if self.linger is None else self.linger / 1000,
            content=form.content,
            session=session,
        )


class GetQuery(BatchLimits):
    """Parameters of a get, in the query or the body."""

    ack: int | str | None = Field(
        default=None,
        union_mode="left_to_right",
        description="Ack this first, as the call `ack` does: a batch by its id, or all before a position. If that is"
        " refused, nothing is taken.",
    )
    durable: bool = Field(default=False, description="Take the batch only when that ack is on disk.")
    timeout: int = Field(
        default=0, ge=0, le=LONGEST_WAIT, description="ms to wait for a first entry; 0 answers at once."
    )


class StreamQuery(BatchLimits):
    """Parameters of a stream."""

    window: int = Field(default=4, ge=1, le=1024, description="Maximum number of unacknowledged batches.")


class PositionQuery(BaseModel):
    """Parameters of a range to be marked, in the query or the body."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)

    after: str = Field(default="", description="Where the range begins: what comes before it is processed.")
    until: str | None = Field(default=None, description="Where it ends at the latest.")
    timeout: int = Field(
        default=0, ge=0, le=LONGEST_WAIT, description="ms to wait for something to read; then the range is empty."
    )
    max_rows: int | None = Field(default=None, ge=1, description="Maximum number of rows; a larger entry comes alone.")
    max_bytes: int | None = Field(
        default=None, ge=1, description="Maximum number of bytes; a larger entry comes alone."
    )


class RangeQuery(BaseModel):
    """Parameters of a range, in the query, or in the body of a POST."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)

    from_: str = Field(alias="from", description="Position of the first entry.")
    to: str = Field(description="Position after the last entry.")


class SplitsQuery(RangeQuery):
    """Parameters of the parts of a range, as of the range."""

    n: int = Field(ge=1, le=10_000, description="Maximum number of parts.")


class Start(BaseModel):
    """A start by time."""

    model_config = ConfigDict(extra="forbid")

    timestamp: int = Field(ge=0, description="ms since 1970")


class SnapshotWish(BaseModel):
    """Which rows of tables are wanted."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"tables": "shop\\..*", "where": {"shop.orders": "id > 1000"}}]},
    )

    tables: str = Field(
        default="",
        max_length=100_000,
        description="The tables, of those whose changes the client gets: Canal's regular expressions over"
        " `schema.table`, comma separated; empty: all.",
    )
    where: dict[str, str] = Field(
        default={},
        description="Conditions on the rows, by `schema.table`: comparisons of columns with values, joined by AND, OR"
        " and NOT.",
    )
    maxRowsPerSecond: int = Field(  # noqa: N815
        default=0, ge=0, le=1_000_000_000, description="Rows that are read a second at most; 0 for any number."
    )
    member: str = Field(
        default="", max_length=64, description="Of a group: the member whose tables are wanted; empty: of all members."
    )

    def selection(self) -> Selection:
        """Return it as the store has it."""
        return Selection(self.tables, self.where, self.maxRowsPerSecond, self.member)


class SnapshotStart(BaseModel):
    """A start with tables as they are now."""

    model_config = ConfigDict(extra="forbid")

    snapshot: SnapshotWish


class Subscription(BaseModel):
    """How to subscribe."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"filter": "shop\\..*"}]})

    filter: str = Field(
        default="", description="Canal's regular expressions over `schema.table`, comma separated; empty: all."
    )
    where: str = Field(
        default="",
        description="Conditions on rows, by table: `shop.orders: status = 'paid' AND total > 10; …`; empty: all rows.",
    )
    start: Start | SnapshotStart | str = Field(
        default="earliest",
        description="Where a new client starts: the `earliest` stored change, the `oldest` change that Sluice or the"
        " source still has, the `latest`, a position, or a time. With a `snapshot` it also gets the current rows of"
        " tables, between the changes. A client that has a cursor resumes there.",
    )
    expireAfter: int | None = Field(  # noqa: N815
        default=None,
        ge=0,
        le=315_360_000,
        description="Seconds without a call after which the client is removed, with its cursor; 0 for never. When it is"
        " not given, `sluice.instance.clientExpiry` counts.",
    )
    protect: bool | None = Field(
        default=None,
        strict=True,
        description="Whether the log on disk keeps what the client still needs, whatever its limits of bytes and age."
        " A client that has subscribed stays as it is when this is not given.",
    )


class Protection(BaseModel):
    """Whether the log on disk keeps what a client needs."""

    model_config = ConfigDict(extra="forbid")

    protect: bool = Field(
        strict=True, description="What it still needs stays, whatever the log's limits of bytes and age."
    )


class ClientLimits(BaseModel):
    """How much a client may be given. What is not in the body stays."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"maxRate": 1048576}]})

    maxRate: int | None = Field(  # noqa: N815
        default=None,
        ge=0,
        le=LARGEST,
        strict=True,
        description="Bytes a second at most, 0 for any number; null: as `sluice.client.maxRate` says.",
    )
    quota: int | None = Field(
        default=None,
        ge=0,
        le=LARGEST,
        strict=True,
        description="Bytes a day at most, 0 for any number; null: as `sluice.client.quota` says.",
    )

    @model_validator(mode="after")
    def _any(self) -> "ClientLimits":
        if not self.model_fields_set:
            raise ValueError("give maxRate, quota, or both")
        return self


class Seek(BaseModel):
    """Where a cursor is moved."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"start": "latest"}]})

    start: Start | str = Field(
        description="Where it resumes: the `earliest` stored change, the `oldest` change that Sluice or the source"
        " still has, the `latest`, a position, or a time."
    )


class Skip(BaseModel):
    """What to skip: the transaction that holds a position."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"position": "101/mariadb-bin.000001@1700000000:344:1"}]}
    )

    position: str = Field(description="As an output says in its error.")


class Ack(BaseModel):
    """What to ack: a batch, everything before a position, or a batch and all before it."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"batchId": 3000000007}]})

    batchId: int | None = None  # noqa: N815
    position: str | None = None
    operator: bool = Field(
        default=False, description="Somebody else acks for the client: an ack by position is then written down."
    )

    @model_validator(mode="after")
    def _any(self) -> "Ack":
        if self.batchId is None and self.position is None:
            raise ValueError("give batchId, position, or both")
        return self


class Rollback(BaseModel):
    """What to roll back: one batch, or all that are outstanding."""

    model_config = ConfigDict(extra="forbid")

    batchId: int | None = None  # noqa: N815


def _start(start: Start | str) -> str | dict[str, int]:
    return {"timestamp": start.timestamp} if isinstance(start, Start) else start


def _start_of_new(start: Start | SnapshotStart | str) -> str | dict[str, int] | Selection:
    if start == "snapshot":
        return Selection()
    return start.snapshot.selection() if isinstance(start, SnapshotStart) else _start(start)


def _view(context: Context, destination: str, client_id: int) -> ClientView:
    embedded = context.embedded
    return ClientView.of(embedded.destination_status(destination), embedded.status(destination, client_id))


@router.post("/subscribe", operation_id="subscribe", summary="Register the client")
async def subscribe(
    context: Ctx, destination: Destination, client_id: ClientId, body: Subscription | None = None
) -> ClientView:
    """Register the client, or replace its filter. A cursor that was saved wins over `start`."""
    wish = body or Subscription()
    await context.embedded.subscribe(
        destination,
        client_id,
        filter=wish.filter,
        where=wish.where,
        start=_start_of_new(wish.start),
        expire_after=wish.expireAfter,
        protected=wish.protect,
    )
    return _view(context, destination, client_id)


@router.post("/unsubscribe", operation_id="unsubscribe", summary="Remove the client and its cursor")
async def unsubscribe(context: Ctx, destination: Destination, client_id: ClientId) -> RemovedView:
    """Remove the client; its cursor goes too. The answer says what the client is not given by that."""
    move = await context.embedded.unsubscribe(destination, client_id)
    context.acks.notify((destination, client_id))
    return RemovedView(passed_over=MoveView.of(client_id, move))


@router.post("/protect", operation_id="protect", summary="Let the log keep what the client needs")
async def protect(context: Ctx, destination: Destination, client_id: ClientId, body: Protection) -> ClientView:
    """Let the log on disk keep what the client still needs, whatever its limits of bytes and age, or no longer.

    What has to stay free on the disk ranks above that: then the source waits.
    """
    await context.embedded.protect(destination, client_id, protected=body.protect)
    return _view(context, destination, client_id)


@router.post("/limit", operation_id="limitClient", summary="Limit how much the client gets")
async def limit(context: Ctx, destination: Destination, client_id: ClientId, body: ClientLimits) -> ClientView:
    """Limit the bytes that the client gets a second, or a day. The limit counts from the next batch on."""
    given = {"max_rate": body.maxRate, "quota": body.quota}
    names = {"max_rate": "maxRate", "quota": "quota"}
    wanted = {field: it for field, it in given.items() if names[field] in body.model_fields_set}
    await context.embedded.limit(destination, client_id, wanted)
    return _view(context, destination, client_id)


@router.post("/session", operation_id="openSession", summary="Open a session")
async def open_session(context: Ctx, destination: Destination, client_id: ClientId, response: Response) -> SessionView:
    """Open a session and end every older one of this client id.

    Send the token as `Sluice-Session` with every further call: a consumer that was replaced while it was stuck is then
    refused instead of acking what it no longer owns.
    """
    token = context.embedded.open_session(destination, client_id)
    response.headers["Sluice-Session"] = token
    return SessionView(session=token)


_NO_CUT = "Not of a group, whose positions are too long for a header: they are in the batch."
_BATCH_HEADERS = {
    "Sluice-Batch-Id": {"description": "Id of the batch, -1 for none.", "schema": {"type": "integer"}},
    "Sluice-From": {"description": f"Position of the first entry. {_NO_CUT}", "schema": {"type": "string"}},
    "Sluice-To": {"description": f"Position after the last entry. {_NO_CUT}", "schema": {"type": "string"}},
}


def _headers(batch_id: int, from_: str, to: str) -> dict[str, str]:
    """Say in headers which batch it is. The places of a group, which may have 9 kB, are in the batch alone."""
    places = {} if is_cut(to) else {"Sluice-From": from_, "Sluice-To": to}
    return {"Sluice-Batch-Id": str(batch_id)} | places


_FLAT = {
    "id": 3000000007,
    "database": "shop",
    "table": "goods",
    "pkNames": ["id"],
    "isDdl": False,
    "type": "UPDATE",
    "es": 1700000000000,
    "ts": 1700000000123,
    "sql": "",
    "sqlType": {"id": -5, "name": 12},
    "mysqlType": {"id": "bigint(20)", "name": "varchar(32)"},
    "data": [{"id": "7", "name": "bob"}],
    "old": [{"name": "alice"}],
    "gtid": "",
}
_BATCH = {
    "batchId": 3000000007,
    "from": "101/mariadb-bin.000001@1700000000:344:0",
    "to": "101/mariadb-bin.000001@1700000000:672:0",
}
_BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_LINES: dict[str, Any] = {"schema": {"type": "string"}}
_CONTENT = {
    JSON: {"example": _BATCH | {"entries": [_FLAT]}},
    NDJSON: _LINES | {"example": '{"id": 3000000007, …}\n{"batchId": 3000000007, …}\n'},
}
_BATCH_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "One batch, in the format chosen by `Accept`; the first one is the default:\n\n"
        + described(SINGLE),
        "headers": _BATCH_HEADERS,
        "content": {it.media_type: _CONTENT.get(it, _BINARY) for it in SINGLE},
    }
}


@router.post(
    "/getWithoutAck",
    operation_id="getWithoutAck",
    summary="Take the next batch",
    response_class=Response,
    responses=_BATCH_RESPONSES,
)
async def get_without_ack(
    request: Request,
    context: Ctx,
    destination: Destination,
    client_id: ClientId,
    query: Annotated[GetQuery, Query()],
    body: GetQuery | None = None,
    session: SessionToken = None,
) -> Response:
    """Take the next batch, to be acked or rolled back.

    Answers as soon as one entry is there, or after `timeout` ms with batch id -1. Several batches may be outstanding;
    they are acked in their order. A waiting call whose client went away takes nothing;
    after any other call that got no answer, roll back. `ack` spares a call for the batch before.
    """
    form = negotiate(request.headers.get("accept"), SINGLE)
    query = body or query

    async def work() -> Batch:
        if query.ack is not None:
            what = Ack(position=query.ack) if isinstance(query.ack, str) else Ack(batchId=query.ack)
            await ack(context, destination, client_id, what, query.durable, session)
        return await query.take(context.embedded, destination, client_id, query.timeout / 1000, form, session)

    async with Listener(request.receive, context.stopping) as listener:
        batch = await listener.wait(work())
    if batch is None:  # the client is gone, or the server stops
        if query.ack is not None:
            raise DestinationStoppedError("the server stops: ack again, by position, when it is back")
        batch = EMPTY
    parts = await encode(form, form.encode, batch, strict=context.config(destination).strict_canal)
    headers = _headers(batch.batch_id, batch.from_, batch.to)
    context.metrics.delivered(destination, client_id, batch)
    return PartsResponse(parts, form.media_type, headers)


@router.post("/ack", operation_id="ack", summary="Acknowledge", status_code=204)
async def ack(
    context: Ctx,
    destination: Destination,
    client_id: ClientId,
    body: Ack,
    durable: Annotated[bool, Query(description="Answer only when the cursor is on disk.")] = False,
    session: SessionToken = None,
) -> None:
    """Ack the oldest outstanding batch by its id, or all batches that end at or before a position.

    With both: the batch, which ends at the position, and all before it; if it is not outstanding any more, everything
    before the position. This can be repeated. Rows of a snapshot have no place of their own: a position alone acks them
    only with what follows.
    """

    async def done() -> bool:
        await context.embedded.ack(
            destination,
            client_id,
            batch_id=body.batchId,
            position=body.position,
            durable=durable,
            session=session,
            by_operator=body.operator,
        )
        return True

    if body.position is None:
        await done()
    else:  # it may wait until the stream has come there again
        with context.stopping.waiter() as waiter:
            if not await waiter.wait(done()):
                raise DestinationStoppedError("the server stops: ack again, by position, when it is back")
    context.acks.notify((destination, client_id))


@router.post("/seek", operation_id="seek", summary="Move the cursor")
async def seek(context: Ctx, destination: Destination, client_id: ClientId, body: Seek) -> MovedView:
    """Move the cursor of a client by hand, forward or back, and forget its outstanding batches.

    Changes in between are skipped, or delivered again. Stop its consumer before: one that goes on acks what it has
    taken, and is told that its batches are unknown.
    """
    move = await context.embedded.seek(destination, client_id, _start(body.start))
    context.acks.notify((destination, client_id))
    return MovedView.after(_view(context, destination, client_id), move)


@router.post("/gaps/confirm", operation_id="confirmGaps", summary="Confirm what the client does not get")
async def confirm_gaps(context: Ctx, destination: Destination, client_id: ClientId) -> ConfirmedView:
    """Confirm the gaps of a client, which may have left: it goes on without what they passed over.

    Its marker, if it was not acked, is not given any more; an output that such a marker stops goes on.
    """
    return ConfirmedView(confirmed=await context.embedded.confirm_gaps(destination, client_id))


@router.post("/skip", operation_id="skip", summary="Skip a transaction")
async def skip(context: Ctx, destination: Destination, client_id: ClientId, body: Skip) -> MovedView:
    """Confirm the one transaction that the client gets next, without giving it.

    For what a consumer or an output cannot take. `position` has to lie in it: else nothing changes. Batches that are
    outstanding are forgotten.
    """
    move = await context.embedded.skip(destination, client_id, body.position)
    context.acks.notify((destination, client_id))
    return MovedView.after(_view(context, destination, client_id), move)


@router.post("/rollback", operation_id="rollback", summary="Roll back", status_code=204)
async def rollback(
    context: Ctx,
    destination: Destination,
    client_id: ClientId,
    body: Rollback | None = None,
    session: SessionToken = None,
) -> None:
    """Forget all outstanding batches: the next one begins again after the last ack. Or one, by its id, as in Canal."""
    batch_id = body.batchId if body else None
    await context.embedded.rollback(destination, client_id, batch_id=batch_id, session=session)
    context.acks.notify((destination, client_id))


@router.post("/position", operation_id="markRange", summary="Mark the range after a position")
async def position(
    request: Request,
    context: Ctx,
    destination: Destination,
    client_id: ClientId,
    query: Annotated[PositionQuery, Query()],
    body: PositionQuery | None = None,
    session: SessionToken = None,
) -> RangeView:
    """Mark what follows a position, to be read by `rows`, as often as wanted, and acked by its end.

    The range ends after a transaction, or before a DDL, which comes alone. When no transaction ends within the limits,
    it ends inside of one and is `partial`. The same position and limits give the same range until it is acked. Answers
    as soon as there is something to read, or after `timeout` ms.
    """
    query = body or query
    if not query.after:
        raise BadParameterError("it says where the range begins, and is not given", "after")
    async with Listener(request.receive, context.stopping) as listener:
        found = await listener.wait(
            context.embedded.position(
                destination,
                client_id,
                after=query.after,
                until=query.until,
                timeout=query.timeout / 1000,
                max_rows=query.max_rows,
                max_bytes=query.max_bytes,
                session=session,
            )
        )
    if found is None:  # the client is gone, or the server stops
        raise DestinationStoppedError("the server stops")
    return RangeView.of(found)


@router.get("/splits", operation_id="splitRange", summary="Cut a range into parts")
async def splits(
    context: Ctx, destination: Destination, client_id: ClientId, query: Annotated[SplitsQuery, Query()]
) -> PartsView:
    """Cut a range into at most `n` parts of about equal bytes, one after the other, to be read by `rows` each."""
    return await post_splits(context, destination, client_id, query)


@router.post("/splits", operation_id="splitLongRange", summary="Cut a range into parts")
async def post_splits(context: Ctx, destination: Destination, client_id: ClientId, query: SplitsQuery) -> PartsView:
    """As GET does, for positions that are too long for a URL, as those of a group may be."""
    parts = await context.embedded.splits(destination, client_id, query.from_, query.to, query.n)
    return PartsView(splits=[PartView.model_validate(part) for part in parts])


@router.get(
    "/rows", operation_id="readRange", summary="Read a range", response_class=Response, responses=_BATCH_RESPONSES
)
async def rows(
    request: Request,
    context: Ctx,
    destination: Destination,
    client_id: ClientId,
    query: Annotated[RangeQuery, Query()],
) -> Response:
    """Read what is between two positions, for the client's filter. It may be repeated; no cursor moves.

    Transactions without a wanted change do not come.
    """
    return await post_rows(request, context, destination, client_id, query)


@router.post(
    "/rows", operation_id="readLongRange", summary="Read a range", response_class=Response, responses=_BATCH_RESPONSES
)
async def post_rows(
    request: Request, context: Ctx, destination: Destination, client_id: ClientId, query: RangeQuery
) -> Response:
    """As GET does, for positions that are too long for a URL, as those of a group may be."""
    form = negotiate(request.headers.get("accept"), SINGLE)
    batches = context.embedded.rows(destination, client_id, query.from_, query.to)
    nothing = replace(EMPTY, from_=query.from_, to=query.to)
    async with Listener(request.receive, context.stopping) as listener:
        batch = await listener.wait(anext(batches, nothing))
    if batch is None:  # the client is gone, or the server stops
        raise DestinationStoppedError("the server stops")
    strict = context.config(destination).strict_canal
    headers = _headers(batch.batch_id, query.from_, query.to)
    if batch.to != query.to and form.pieces is not None:
        client = (destination, client_id)
        return RangeResponse(context, client, batch, batches, query.to, form, form.pieces, headers)
    if batch.to != query.to:
        batch = await join_pieces(batch, batches, query.to)
    await batches.aclose()
    parts = await encode(form, form.encode, batch, strict=strict)
    context.metrics.delivered(destination, client_id, batch)
    return PartsResponse(parts, form.media_type, headers)


@router.get("", operation_id="getClient", summary="Status of the client")
async def status(context: Ctx, destination: Destination, client_id: ClientId) -> ClientView:
    """Tell cursors, outstanding batches, lag in seconds, bytes and transactions, and what holds the changes up."""
    return _view(context, destination, client_id)


@router.get(
    "/stream",
    operation_id="streamBatches",
    summary="Stream batches",
    response_class=Response,
    responses={
        200: {
            "description": "Batch after batch until the client closes the connection or the server stops, in the format"
            f" chosen by `Accept`; the first one is the default:\n\n{described(STREAMED)}\n"
            f"An idle stream carries an empty batch (id -1) every {HEARTBEAT:.0f} s, which is not acked. A stream that"
            ' fails ends; in NDJSON its last line is `{"problem": …}`, else the next call says why.',
            "headers": {"Sluice-Session": {"description": "Session of the stream.", "schema": {"type": "string"}}},
            "content": {it.media_type: _LINES if it is NDJSON else _BINARY for it in STREAMED},
        }
    },
)
async def stream(
    request: Request,
    context: Ctx,
    destination: Destination,
    client_id: ClientId,
    query: Annotated[StreamQuery, Query()],
    session: SessionToken = None,
) -> Response:
    """One long response that begins with a rollback, then carries batch after batch while they are acked by `ack`.

    Without a `Sluice-Session` it opens one, whose token is in the response. An older stream of the client ends.
    """
    form = negotiate(request.headers.get("accept"), STREAMED)
    token = session or context.embedded.open_session(destination, client_id)
    context.embedded.check(destination, client_id, token)
    context.embedded.check_quota(destination, client_id)
    # Before the rollback, which takes back what an older one has.
    turn = await context.streams.begin((destination, client_id))
    await context.embedded.rollback(destination, client_id, session=token)
    context.acks.notify((destination, client_id))

    async def take(seconds: float) -> Batch:
        return await query.take(context.embedded, destination, client_id, seconds, form, token)

    return StreamResponse(context, (destination, client_id), take, form, query.window, token, turn)
