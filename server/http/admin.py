"""The calls of an operator: destinations, their life, their quarantine; health and metrics of the process."""

import asyncio
import time
from collections import Counter
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from prometheus_client.exposition import choose_encoder
from pydantic import BaseModel, ConfigDict, Field

from ..conditions import summary
from ..credentials import LOGIN_LIFETIME
from ..embedded.quarantine import listed
from .auth import Destination, Granted
from .context import Ctx
from .rights import checked
from .views import (
    AuditView,
    ColumnView,
    DestinationView,
    HealthView,
    LogFileView,
    MoveView,
    PositionView,
    PumpView,
    QuarantinedView,
    RetriedView,
    TablesView,
    TableView,
    TokenView,
)

destinations = APIRouter(prefix="/v1/destinations", tags=["destinations"], dependencies=[checked])
process = APIRouter(tags=["process"])


@destinations.get("", operation_id="listDestinations", summary="List the destinations")
async def list_destinations(context: Ctx, grant: Granted) -> list[DestinationView]:
    """Every destination that the token reaches, with its state, clients and lag."""
    names = [name for name in context.embedded.names if grant.covers(name)]
    return [DestinationView.of(context.embedded.destination_status(name)) for name in names]


@destinations.get("/{destination}", operation_id="getDestination", summary="One destination")
async def destination_detail(context: Ctx, destination: Destination) -> DestinationView:
    """Tell state, source position, clients, lag by stage."""
    return DestinationView.of(context.embedded.destination_status(destination))


@destinations.post(
    "/{destination}/start",
    operation_id="startDestination",
    summary="Start a destination",
)
async def start(context: Ctx, destination: Destination) -> DestinationView:
    """Start it; a running one goes on. One in an error begins again if its file was changed."""
    await context.embedded.start(destination)
    await context.embedded.audit(destination, "start")
    return DestinationView.of(context.embedded.destination_status(destination))


@destinations.post("/{destination}/stop", operation_id="stopDestination", summary="Stop a destination")
async def stop(context: Ctx, destination: Destination) -> DestinationView:
    """Stop it; cursors are saved, waiting calls are answered with `destination-stopped`."""
    await context.embedded.stop(destination)
    await context.embedded.audit(destination, "stop")
    return DestinationView.of(context.embedded.destination_status(destination))


@destinations.post(
    "/{destination}/source/switch",
    operation_id="switchSource",
    summary="Read another server with the same data",
)
async def switch_source(
    context: Ctx,
    destination: Destination,
    to: Annotated[
        str, Query(max_length=300, description="Its address, as configured; without one the other of two.")
    ] = "",
    member: Annotated[
        str, Query(max_length=100, description="The member of a group of which another server is read.")
    ] = "",
    accept: Annotated[
        bool, Query(description="Also if it lacks transactions or places of clients; else these are listed.")
    ] = False,
) -> DestinationView:
    """Switch if it is proven that nothing is missed by that. Otherwise what was read before is read on.

    The call waits until the other server, a replica, has executed what it has received.
    """
    await context.embedded.switch_source(destination, to, member=member, accept=accept)
    return DestinationView.of(context.embedded.destination_status(destination))


@destinations.get(
    "/{destination}/quarantine",
    operation_id="listQuarantine",
    summary="Row events in quarantine",
)
async def quarantine(context: Ctx, destination: Destination) -> list[QuarantinedView]:
    """List the row events that could not be decoded: where each stands in the binlog, of which table, and why."""
    items = await asyncio.to_thread(listed, context.config(destination))
    return [QuarantinedView.model_validate(item) for item in items]


@destinations.post(
    "/{destination}/quarantine/retry",
    operation_id="retryQuarantine",
    summary="Decode what is in quarantine again",
)
async def retry_quarantine(
    context: Ctx,
    destination: Destination,
    position: Annotated[
        str | None, Query(description="Only the event at this position; else all, 1000 a call.")
    ] = None,
) -> list[RetriedView]:
    """Decode row events in quarantine with the tables as they are now, and give the rows to those who miss them.

    A client that has passed the marker gets them in a batch of their own, whose `from` and `to` are equal: each entry
    has the position where it belongs in the header property `sluice.late`. One that has not gets them in their place:
    the destination reads its source again from where its clients are. What could be decoded is listed no longer.
    """
    found = await context.embedded.retry_quarantine(destination, position)
    return [RetriedView.model_validate(it) for it in found]


@destinations.get(
    "/{destination}/moves",
    operation_id="listMoves",
    summary="Jumps of clients over changes",
)
async def moves(
    context: Ctx,
    destination: Destination,
    client: Annotated[int | None, Query(description="Only those of this client.")] = None,
) -> list[MoveView]:
    """List the changes that clients were moved over, by client, oldest first; also of clients that have left.

    An ack is no jump.
    """
    found = context.embedded.moves(destination)
    if client is not None:
        found = {client: found.get(client, ())}
    return [MoveView.of(client_id, move) for client_id in sorted(found) for move in found[client_id]]


@destinations.get("/{destination}/audit", operation_id="listAudit", summary="What was changed")
async def audit(
    context: Ctx, destination: Destination, limit: Annotated[int, Query(ge=1, le=10_000)] = 100
) -> list[AuditView]:
    """List what was last changed on somebody's behalf, oldest first: places, clients, snapshots, source, start, stop.

    Among several servers each has a list of its own.
    """
    return [AuditView.model_validate(it) for it in await context.embedded.audited(destination, limit)]


@destinations.get("/{destination}/log", operation_id="listLog", summary="Files of the log on disk")
async def log(context: Ctx, destination: Destination) -> list[LogFileView]:
    """List the files of the log on disk, oldest first; none without a log."""
    extent = context.embedded.destination_status(destination).log
    return [LogFileView.of(it) for it in (extent.files if extent is not None else ())]


@destinations.post(
    "/{destination}/log/prune",
    operation_id="pruneLog",
    summary="Take old files of the log away",
)
async def prune_log(
    context: Ctx,
    destination: Destination,
    most: Annotated[int, Query(alias="bytes", ge=0, le=1 << 50, description="Bytes that the log keeps at most.")],
    dry_run: Annotated[bool, Query(alias="dryRun", description="Only say which files would go.")] = False,
) -> list[LogFileView]:
    """Take the oldest files away, and list them. The last file stays, and what protected clients still need.

    Another client that needs what has gone reads the source; if that has purged it, the client is `gone`.
    """
    return [LogFileView.of(it) for it in await context.embedded.prune_log(destination, most, dry_run=dry_run)]


@destinations.get("/{destination}/latest", operation_id="getSourceEnd", summary="The source's end")
async def latest(context: Ctx, destination: Destination) -> PositionView:
    """Ask the source for the place after its last change."""
    return PositionView(position=str(await context.embedded.latest(destination)))


@destinations.get("/{destination}/tables", operation_id="listTables", summary="Tables")
async def tables(
    context: Ctx,
    destination: Destination,
    wanted: Annotated[str, Query(alias="filter", description="Only those that it matches.")] = "",
) -> TablesView:
    """Ask the source for the tables that it has now and that pass the filter of the destination."""
    return TablesView(tables=await context.embedded.tables(destination, wanted))


@destinations.get("/{destination}/tables/{table:path}", operation_id="getTable", summary="Columns of a table")
async def table(
    context: Ctx,
    destination: Destination,
    table: Annotated[str, Path(description="`schema.table`", pattern=r".+\..+", examples=["shop.orders"])],
    wanted: Annotated[str, Query(alias="filter", description="A filter that has to pass the table, too.")] = "",
    at: Annotated[str, Query(description="A position: the columns that the table had there.")] = "",
) -> TableView:
    """Ask the source for the columns of a table as they are now, or the history for what they were."""
    schema, _, name = table.partition(".")
    columns = await context.embedded.columns(destination, schema, name, wanted, at)
    return TableView(schema_name=schema, table=name, columns=[ColumnView.model_validate(it) for it in columns])


@process.get("/v1/pumps", operation_id="listPumps", summary="The pump for TiDB")
async def pumps(context: Ctx, grant: Granted) -> list[PumpView]:
    """Tell where the pump of this server stands, if it has one. A token for some destinations only gets none."""
    return [PumpView.of(it()) for it in context.pumps] if grant.covers(None) else []


class Login(BaseModel):
    """A password to be exchanged for a token."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    user: str = Field(max_length=256)
    password: str = Field(max_length=1024)
    lifetime: int = Field(
        default=int(LOGIN_LIFETIME.total_seconds()),
        ge=60,
        description="Seconds for which the token is valid; at most 12 hours.",
    )


@process.post("/v1/tokens", operation_id="createToken", summary="Exchange a password for a token", status_code=201)
async def buy_token(request: Request, context: Ctx, body: Login, response: Response) -> TokenView:
    """Get a token with the scope and the destinations of the user."""
    address = request.client.host if request.client else ""
    issued = await context.gate.login(body.user, body.password, timedelta(seconds=body.lifetime), address)
    response.headers["Cache-Control"] = "no-store"
    token = issued.token
    return TokenView(
        token=issued.text, id=issued.id, scope=token.scope, destinations=token.destinations, expires=token.expires
    )


@process.get("/healthz", operation_id="getHealth", summary="Liveness", response_model_exclude_unset=True)
async def healthz() -> HealthView:
    """Answer, as long as the process does."""
    return HealthView(status="ok")


@process.get(
    "/readyz",
    operation_id="getReadiness",
    summary="Readiness",
    responses={503: {"description": "A destination is still starting, or the server stops.", "model": HealthView}},
)
async def readyz(context: Ctx, response: Response) -> HealthView:
    """Whether the server takes calls: it does not stop, and no destination is still starting.

    A destination that failed, is stopped, or stands by for another server does not make it unready: the others are
    served. What needs attention is counted.
    """
    states = Counter(map(context.embedded.state, context.embedded.names))
    status = "stopping" if context.stopping.set else "starting" if states["starting"] else "ok"
    if status == "stopping":
        meaning = "The server stops: go to another one."
    elif status == "starting":
        meaning = f"{states['starting']} of {states.total()} destinations are starting; those that run are served."
    else:
        meaning = "The server takes calls."
    found = context.overview.counts(time.monotonic())
    if found:
        meaning += f" Needs attention: {summary(found)}. GET /v1/destinations says more."
    if status != "ok":
        response.status_code = 503
    return HealthView(status=status, meaning=meaning, destinations=states, conditions=found)


@process.get(
    "/metrics",
    operation_id="getMetrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={
        200: {
            "description": "The metrics.",
            "content": {
                media: {"schema": {"type": "string"}} for media in ("text/plain", "application/openmetrics-text")
            },
        }
    },
)
async def metrics(request: Request, context: Ctx, grant: Granted) -> Response:
    """Canal's metric names where they exist, and Sluice's own; Prometheus text or OpenMetrics by `Accept`.

    A token that is limited to destinations gets their metrics, without those of the process.
    """
    encoder, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encoder(context.metrics.reached(grant)), headers={"Content-Type": content_type})
