"""Answers of status calls as JSON in camel case. Batches never pass these models."""

import time
from dataclasses import asdict
from datetime import datetime
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from ...store.log.log import Extent, FileStatus
from ...store.moves import Move, MoveState, Reason
from ...store.snapshot import ChunkStatus, Snapshot
from ...store.status import ClientStatus, Lag
from .. import conditions, lag
from ..credentials import Scope
from ..embedded.destinations import DestinationStatus
from ..embedded.ranges import RangeStatus
from ..lag import Stage
from ..problems import advice
from ..pumps import PumpStanding


class View(BaseModel):
    """Base of all answers."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, from_attributes=True)


class AmountView(View):
    """How much of what is stored."""

    seconds: float = Field(default=0.0, description="Age of the oldest change of it; 0 when there is none.")
    transactions: int
    entries: int
    rows: int
    bytes: int = Field(description="Of the encoded entries.")

    @classmethod
    def of(cls, amount: Lag) -> Self:
        """Make the view of an amount, as of now."""
        made = cls.model_validate(amount)
        made.seconds = lag.age(amount, time.time())  # noqa: TID251  shown
        return made


class BacklogView(View):
    """What a client has not come to, and the ring does not hold. It was measured in the last ten seconds."""

    bytes: int = Field(description="At most, of all tables.")
    where: Literal["log", "source"] = Field(description="Whose bytes they are: the log's, or the source's binlog's.")


class LagView(AmountView):
    """What is not acked, and why. The amounts are of what is stored in memory: see `atLeast` and `backlog`."""

    seconds: float = Field(
        description="Age of the oldest change that is not acked, stored or not; 0 when all are. For a client in state"
        " `catching-up` or `gone` at least that."
    )
    at_least: bool = Field(
        description="Whether more may wait, in the log or at the source: then transactions, entries, rows and bytes"
        " are a minimum, here and in `waiting`."
    )
    given: AmountView = Field(description="The part that the client was given and has not acked.")
    waiting: AmountView = Field(description="The part that it was not given yet.")
    backlog: BacklogView | None = Field(
        description="What waits for a client that is behind the ring, in the log or at the source; null for others, and"
        " before it is known."
    )
    stage: Stage = Field(description="What holds the changes up: `source`, `parser`, `ring`, `client`, or `none`.")
    explanation: str = Field(description="Why.")


class ClientView(View):
    """Where a client stands."""

    client_id: int
    filter: str
    where: str = Field(description="Its conditions on rows; empty for none.")
    state: str = Field(
        description="`attached`; `ahead` of what is stored; `catching-up` from the source;"
        " `gone`, for the reason in `error`."
    )
    error: str
    problem: str = Field(description="Type of the error, as a call would be answered; empty without one.")
    advice: str = Field(description="What to do about it.")
    position: str = Field(description="The durable cursor, where a restart resumes; empty: nothing was acked yet.")
    acked: str = Field(description="Position up to which everything is acked.")
    got: str = Field(description="Position up to which batches were taken.")
    marks: list[int] = Field(description="Ids of the outstanding batches, oldest first.")
    late: int = Field(description="Row events from quarantine whose rows it is still to be given.")
    snapshots: list[int] = Field(
        description="Ids of its snapshots: those that are not complete, and the last that are."
    )
    idle: float = Field(
        description="Seconds since the client's last call; where there was none since the destination was started on"
        " this server, since that start."
    )
    called: bool = Field(description="Whether it has made a call since the destination was started on this server.")
    owner: str = Field(description="Name of the token that has created it; empty for an administrator's, or none.")
    threat: str = Field(
        description="Warning that the source or the log may soon delete what is at the cursor; empty if not."
    )
    protected: bool = Field(description="Whether the log on disk keeps what it still needs, beyond its limits.")
    max_rate: int = Field(description="Bytes a second that it gets at most; 0 for any number.")
    quota: int = Field(description="Bytes a day, in UTC, that it gets at most; 0 for any number.")
    quota_used: int = Field(description="Bytes that it got today, as far as a quota counts them.")
    limited_seconds: float = Field(
        description="For how long its rate has kept calls waiting since the destination was started on this server."
    )
    lag: LagView

    @classmethod
    def of(cls, destination: DestinationStatus, status: ClientStatus) -> Self:
        """Make the view of a client, as of now."""
        explanation = lag.explain(destination, status)
        backlog = destination.backlogs.get(status.client_id) if status.state == "catching-up" else None
        return cls(
            client_id=status.client_id,
            filter=status.filter,
            where=status.where,
            state=status.state,
            error=status.error,
            problem=status.problem,
            advice=advice(status.problem),
            position=status.position,
            acked=status.acked,
            got=status.got,
            marks=status.marks,
            late=status.late,
            snapshots=status.snapshots,
            idle=time.monotonic() - status.last_active,
            called=status.called,
            protected=status.protected,
            max_rate=status.allowance.max_rate,
            quota=status.allowance.quota,
            quota_used=status.allowance.used_on(time.time()),  # noqa: TID251  shown
            limited_seconds=status.allowance.seconds,
            owner=status.owner,
            threat=threat.text if (threat := destination.threats.get(status.client_id)) else "",
            lag=LagView(
                **AmountView.of(status.lag).model_dump(exclude={"seconds"}),
                seconds=max(lag.age(status.lag, time.time()), destination.parser.behind or 0.0),  # noqa: TID251  shown
                at_least=lag.is_minimum(destination, status),
                given=AmountView.of(status.given),
                waiting=AmountView.of(status.waiting),
                backlog=None if backlog is None else BacklogView.model_validate(backlog),
                stage=explanation.stage,
                explanation=explanation.text,
            ),
        )


class MemberView(View):
    """Where a member of a group stands."""

    name: str
    state: str = Field(
        description="`merged`; `joining`: the others do not wait for it yet; `passed`: nor any more, because it is"
        " silent; `left`: its source has ended."
    )
    error: str = Field(description="Why it cannot be read at present; empty if it can.")
    transactions: int = Field(description="That are read and wait for their turn.")
    bytes: int = Field(description="Of them.")
    late: int = Field(description="Transactions that came after a younger one of another member.")
    silent: float = Field(description="Seconds since it last brought anything, a heartbeat too.")
    holds: bool = Field(description="Whether what the others have brought waits for it.")
    streams: bool = Field(
        description="Whether a transaction of it, larger than its pool, is delivered in parts. Until that has ended,"
        " nothing else is."
    )


class ParserView(View):
    """How far the parser is, and what it has done since the start."""

    behind: float | None = Field(
        description="Seconds: all that the source wrote before then is read. 0 while the source has nothing to send;"
        " null before anything was read."
    )
    received_bytes: int
    events: int
    transactions: int
    connections: int = Field(description="One, and one more after each loss of the connection to the source.")
    quarantined: int = Field(description="Row events in quarantine.")
    future_rows: int = Field(
        description="Rows that were read with columns which may be younger than they are: see `sluice.schema`."
    )
    dml_statements: int = Field(
        description="Changes that the source logged as statements, so that their rows could not be delivered."
    )
    silent: float = Field(
        description="Seconds for which nothing has come from the source, once two heartbeats are missing; else 0."
    )
    history: str = Field(description="Why the history of tables cannot be used at present; empty if it can.")
    open_xa: str = Field(
        description="Where the oldest XA transaction was prepared that has not ended yet: from there on the source is"
        " still needed. Empty if none is known."
    )
    members: list[MemberView] = Field(description="Of several sources in one stream; else empty.")


class MoveView(View):
    """A jump of a client's place over changes."""

    client_id: int
    reason: Reason = Field(
        description="`seek`, `skip`, `ack` (an operator's, by position), `unsubscribe`, `expire`, `purge`: the"
        " source had no more what came next, `switch`: only the former source knew its place, or `remove`: a member of"
        " a group was removed."
    )
    before: str = Field(description="The place that it left; empty if that had no name.")
    after: str = Field(description="Where it went on; empty as long as the client is not subscribed again.")
    who: str = Field(description="On whose behalf: a token and an address, an output, or the server itself.")
    time: int = Field(description="When, ms since 1970.")
    state: MoveState = Field(
        description="`asked`: a person wanted it. Else it is a gap: `open`; `told`, when the client has acked its"
        " marker; `confirmed`, when somebody has confirmed it."
    )
    held: bool = Field(description="Whether log or source still had then what was passed over.")
    rows: int | None = Field(description="Rows for the client that were passed over; null if they were not counted.")
    detail: str = Field(description="More about the reason.")
    members: list[str] = Field(description="The members that were removed, if that is the reason.")
    joined: int = Field(description="How many jumps it stands for: of a client the newest 100 are kept apart.")
    text: str = Field(description="What was passed over, and why, in words.")

    @classmethod
    def of(cls, client_id: int, move: Move) -> Self:
        """Make the view of a jump."""
        return cls(client_id=client_id, text=str(move), **asdict(move))


class MovedView(ClientView):
    """Where a client stands after its place was moved."""

    passed_over: MoveView | None = Field(description="What it is not given by that; null if there is nothing.")

    @classmethod
    def after(cls, client: ClientView, move: Move | None) -> Self:
        """Make the view of a client that was moved."""
        passed = None if move is None else MoveView.of(client.client_id, move)
        return cls(**{name: getattr(client, name) for name in ClientView.model_fields}, passed_over=passed)


class RemovedView(View):
    """What became of a client that was removed."""

    passed_over: MoveView = Field(description="What it has not had, and is not given any more.")


class AuditView(View):
    """Something that was changed on somebody's behalf."""

    action: str
    who: str = Field(description="Token and address of the caller, or the part of the server that did it.")
    time: int = Field(description="When, ms since 1970; 0 if the line of the list cannot be read.")
    client: int | None = Field(description="The client whose place, batches or snapshots they were.")
    before: str = Field(description="The place, or the source, before it.")
    after: str = Field(description="And after it.")
    detail: str


class ConfirmedView(View):
    """What was confirmed."""

    confirmed: int = Field(description="Jumps that nobody had confirmed before.")


class OutputView(View):
    """Where an output stands."""

    name: str
    kind: str
    client_id: int = Field(description="The client that it is: its lag is that of the output.")
    state: str = Field(
        description="`starting`, `running`, `retrying` (it may pass by itself), `error` (somebody has to do something),"
        " or `stopped`."
    )
    error: str = Field(
        description="Current error; of one that runs, why it keeps its previous settings instead of the new ones."
    )
    batches: int
    records: int = Field(description="Confirmed by the other side since the start, repetitions included.")
    rows: int
    bytes: int
    retries: int = Field(description="How often it began again after an error.")
    skipped: int = Field(description="What was left out, as configured.")
    last_error: str = Field(description="Last error; empty if there never was one.")
    failed: float = Field(description="When, in seconds since 1970; 0 if never.")
    lost: str = Field(
        description="What the other side had confirmed and has no more, as last noticed; empty if nothing."
    )


class LogFileView(View):
    """A file of the log on disk."""

    name: str
    bytes: int
    start: str = Field(serialization_alias="from", description="The place before its first change.")
    end: str = Field(serialization_alias="to", description="The place after its last one.")
    continues: bool = Field(description="It begins where the file before ends; else what is between them is missing.")
    written: float = Field(description="When it was written last, seconds since 1970.")

    @classmethod
    def of(cls, status: FileStatus) -> Self:
        """Make the view of a file."""
        return cls.model_validate({**asdict(status), "start": str(status.start), "end": str(status.end)})


class HoldView(View):
    """What the log on disk keeps for a protected client."""

    client_id: int
    files: int
    bytes: int


class LogView(View):
    """What the log on disk holds."""

    bytes: int
    files: int
    stretches: list[list[str]] = Field(
        description="Where its uninterrupted parts begin and end; what is between two of them is missing."
    )
    held: str = Field(
        description="The oldest position that the logs of all servers hold: a take-over loses nothing from there on."
        " Empty if one of them writes none; then it is what the source still has."
    )
    holds: list[HoldView] = Field(description="What protected clients still need of it: it stays beyond the limits.")

    @classmethod
    def of(cls, extent: Extent, held: str) -> Self:
        """Make the view of a log."""
        stretches = [[str(start), str(end)] for start, end in extent.stretches]
        holds = [HoldView(client_id=it, **asdict(hold)) for it, hold in extent.holds.items()]
        return cls(bytes=extent.bytes, files=len(extent.files), stretches=stretches, held=held, holds=holds)


class SourceView(View):
    """Which of several servers with the same data is read."""

    address: str = Field(description="The one that is read.")
    others: list[str] = Field(description="Those that can be switched to.")
    unlisted: str = Field(
        description="The one that was chosen, if the configuration here does not name it: then it is not read."
    )
    failures: int = Field(
        description="How often in a row it did not answer `canal.instance.detecting.sql`; 0 also if it is not asked."
    )
    failure: str = Field(description="Why not, the last time.")
    switching: str = Field(description="The address that is switched to now; empty if none is.")
    refusal: str = Field(description="Why the last switch was refused, and what to do; empty if it was not.")
    lost: list[str] = Field(
        description="The transactions that keep the switch back: they were delivered, and the other server lacks them."
        " 100 runs of their numbers at most."
    )
    accepted: list[str] = Field(description="Those that were accepted as lost, of all switches.")


class ConditionView(View):
    """Something that needs attention."""

    name: str = Field(description="Of the condition; docs/metrics.md has the table of all.")
    severity: conditions.Severity = Field(
        description="`error`: changes are not delivered, or will be lost; `warning`: somebody should look at it."
    )
    subject: str = Field(description="What of the destination it is about, as `client 1001`; empty for all of it.")
    text: str = Field(description="What is wrong.")
    advice: str = Field(description="What to do next.")

    @classmethod
    def of(cls, found: conditions.Found) -> Self:
        """Make the view of what was found."""
        condition = found.condition
        return cls(
            name=condition.name,
            severity=condition.severity,
            subject=found.subject,
            text=found.text,
            advice=found.advice or condition.advice,
        )


class DestinationView(View):
    """Where a destination stands."""

    destination: str
    state: str = Field(
        description="`starting`, `running`, `error` (it tries again), `standby` (for another server), `stopped`, or"
        " `finished`: the source has ended, and clients get what is left."
    )
    error: str = Field(description="Why it does not run; of one that runs, its current error.")
    active: str = Field(
        description="Address, as in ZooKeeper, of the server that has it; empty when none has, or there are no others."
    )
    conditions: list[ConditionView] = Field(description="What needs attention, errors first; empty if all is well.")
    clients: list[ClientView]
    outputs: list[OutputView]
    first: str = Field(description="The oldest position that is stored; empty when the stream has not begun.")
    last: str = Field(description="Position up to which the source was read.")
    entries: int = Field(description="Entries that are stored.")
    bytes: int = Field(description="Bytes of them.")
    full: bool = Field(description="Whether the parser waits for room.")
    fill: float = Field(description="Part of the ring in use, of its entries or its bytes, whichever is more.")
    capacity: int = Field(description="Bytes that the ring holds at most.")
    pinned: int = Field(description="Bytes that only slow readers still hold.")
    blocked: float = Field(description="Seconds for which the parser has waited for room since the start.")
    log: LogView | None = Field(description="The log on disk; null without one.")
    parser: ParserView
    source: SourceView | None = Field(
        description="Which of several servers is read; null if there is only one, and no health check."
    )
    member_sources: dict[str, SourceView] = Field(
        description="The same of the members of a group that have several servers, or a health check, by their names."
    )
    time_zone: str = Field(
        description="The zone that TIMESTAMP values are written in; empty where that of the process has no name."
    )
    route: str = Field(description="The destination that it is a view of; empty if it has a source of its own.")
    gaps: list[MoveView] = Field(description="Changes that clients missed, and nobody has confirmed.")

    @classmethod
    def of(cls, status: DestinationStatus) -> Self:
        """Make the view of a status, as of now."""
        clients = [ClientView.of(status, client) for client in status.clients]
        log = None if status.log is None else LogView.of(status.log, status.held)
        found = [ConditionView.of(it) for it in conditions.find(status)]
        gaps = [MoveView.of(client_id, gap) for client_id, gaps in status.gaps.items() for gap in gaps]
        made = {"clients": clients, "log": log, "gaps": gaps, "conditions": found}
        values = {name: getattr(status, name) for name in cls.model_fields.keys() - made.keys()}
        return cls.model_validate(values | made)


class PumpView(View):
    """Where the pump for TiDB stands."""

    node_id: str = Field(description="Its name in the cluster.")
    address: str = Field(description="Where it listens.")
    cluster_id: int
    state: str = Field(description="`online`, `pausing`, `paused`, `closing` or `offline`.")
    wanted: str = Field(description="Where it is to go: `online`, `paused` or `offline`.")
    conditions: list[ConditionView] = Field(description="What needs attention; empty if all is well.")
    released: int = Field(description="The commit_ts up to which drainers get all transactions.")
    collected: int = Field(description="The commit_ts up to which transactions may have been removed.")
    open: int = Field(description="Prewrites without an end.")
    repeated: int = Field(description="Messages that came once more since the start.")
    lone: int = Field(description="Commits without a Prewrite since the start.")
    late: int = Field(description="Commits that came after later ones were given, since the start.")
    log_bytes: int
    log_files: int
    messages: int = Field(description="Messages stored since the start.")
    message_bytes: int
    refused: int = Field(description="Messages refused since the start.")
    streams: int = Field(description="Streams of transactions that are open.")

    @classmethod
    def of(cls, pump: PumpStanding) -> Self:
        """Make the view of a pump."""
        log, served = pump.log, pump.served
        return cls(
            node_id=pump.node_id,
            address=pump.address,
            cluster_id=pump.cluster_id,
            state=pump.state,
            wanted=pump.wanted,
            conditions=[ConditionView.of(it) for it in conditions.find_of_pump(pump)],
            released=log.released,
            collected=log.collected,
            open=log.open,
            repeated=log.counts.repeated,
            lone=log.counts.lone,
            late=log.counts.late,
            log_bytes=log.bytes,
            log_files=log.files,
            messages=served.messages,
            message_bytes=served.bytes,
            refused=served.refused,
            streams=served.streams,
        )


class PositionView(View):
    """A place in the stream."""

    position: str


class TablesView(View):
    """Tables that the source has now."""

    tables: list[str] = Field(description="`schema.table`, in their order.")


class ColumnView(View):
    """A column of a table."""

    name: str
    mysql_type: str = Field(description="As `information_schema` writes it.", examples=["bigint(20) unsigned"])
    is_key: bool = Field(description="Whether it is part of the primary key.")


class TableView(View):
    """A table as the source has it now, or had it at a place."""

    schema_name: str = Field(serialization_alias="schema")
    table: str
    columns: list[ColumnView] = Field(description="In their order; without those that are filtered out.")


class QuarantinedView(View):
    """A row event that could not be decoded, so that a marker was delivered in its place."""

    position: str = Field(description="Of the event.")
    schema_name: str = Field(validation_alias="schema", serialization_alias="schema")
    table: str
    event_type: int = Field(description="MySQL's number of the event's type.")
    timestamp: int = Field(description="Of the event, seconds since 1970.")
    server_id: int
    length: int = Field(description="Bytes of the event.")
    error: str = Field(description="Why it could not be decoded.")


class RetriedView(View):
    """What has become of a row event in quarantine."""

    item: QuarantinedView
    reason: str = Field(description="Why it still cannot be decoded; empty if it could.")
    clients: list[int] = Field(
        description="The clients that have passed its place: each gets its rows in a batch of their own."
    )


class SnapshotTableView(View):
    """A table of a snapshot."""

    table: str = Field(description="`schema.table`")
    member: str = Field(description="Of a group: the member whose table it is; else empty.")
    where: str = Field(description="Condition on its rows; empty for all.")
    state: str = Field(description="`waiting`, `running` or `done`.")
    rows: int = Field(description="Of them acked, or brought by changes.")
    bytes: int = Field(description="Of these rows, encoded.")
    expected: int = Field(description="Rows of the whole table, about, when the snapshot was begun.")


class ChunkView(View):
    """Rows of a table that are read together."""

    table: str = Field(description="`schema.table`")
    after: list[str] | None = Field(
        description="The key of the row before them, a literal of SQL for each of its columns; null at the beginning."
    )
    to: list[str] | None = Field(description="The key of their last row; null while they are read.")
    rows: int
    bytes: int = Field(description="Encoded.")

    @classmethod
    def of(cls, chunk: ChunkStatus) -> Self:
        """Make the view of a chunk."""
        after, to = (None if key is None else list(key) for key in (chunk.after, chunk.to))
        return cls(table=chunk.table, after=after, to=to, rows=chunk.rows, bytes=chunk.bytes)


class SnapshotView(View):
    """A snapshot."""

    id: int
    state: str = Field(description="`running`, `paused` or `done`.")
    error: str = Field(description="Why nothing can be read at present; it is tried again.")
    rows: int = Field(description="Acked, or brought by changes.")
    expected: int = Field(description="Rows of all tables, about.")
    rows_per_second: float = Field(description="Since it goes on in this run of the server.")
    seconds_left: float | None = Field(description="At that pace, about; null before that is known.")
    max_rows_per_second: int
    chunk: ChunkView | None = Field(
        description="What is read now, or waits for the client's consumer; null while nothing does."
    )
    tables: list[SnapshotTableView]

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        """Make the view of a snapshot, as of now."""
        running = next((it for it in snapshot.tables if not it.is_done), None)
        tables = [
            SnapshotTableView(
                table=f"{it.schema}.{it.name}",
                member=it.member,
                where=it.where,
                state="done" if it.is_done else "running" if it is running and not snapshot.is_paused else "waiting",
                rows=it.rows,
                bytes=it.bytes,
                expected=it.expected,
            )
            for it in snapshot.tables
        ]
        pace = snapshot.pace(time.monotonic())
        left = sum(max(0, it.expected - it.rows) for it in snapshot.tables if not it.is_done)
        return cls(
            id=snapshot.snapshot_id,
            state="done" if snapshot.is_done else "paused" if snapshot.is_paused else "running",
            error=snapshot.error,
            rows=snapshot.rows,
            expected=sum(it.expected for it in snapshot.tables),
            rows_per_second=pace,
            seconds_left=left / pace if pace and running is not None else None,
            max_rows_per_second=snapshot.rate,
            chunk=None if snapshot.chunk is None or running is None else ChunkView.of(snapshot.chunk),
            tables=tables,
        )


class RangeView(View):
    """A range that was marked."""

    batch_id: int = Field(description="Its mark; -1 when there is nothing to ack.")
    from_: str = Field(validation_alias="from_", serialization_alias="from", description="The position asked for.")
    to: str = Field(description="Where the range ends; that is the position to ack, and to ask from next.")
    entries: int
    rows: int
    bytes: int = Field(description="Of the encoded entries.")
    partial: bool = Field(description="It ends inside a transaction: the durable cursor stays before that one.")
    reached: bool = Field(description="Nothing wanted is between its end and `until`; without `until`, `latest`.")
    latest: str = Field(
        description="End position of the source at the time of the call; empty if it could not be read."
    )
    acked: str = Field(description="Position up to which everything is acked.")

    @classmethod
    def of(cls, status: RangeStatus) -> Self:
        """Make the view of a range."""
        return cls.model_validate({**asdict(status.range), "latest": status.latest, "acked": status.acked})


class PartView(View):
    """A part of a range."""

    from_: str = Field(validation_alias="from_", serialization_alias="from")
    to: str
    entries: int
    rows: int
    bytes: int = Field(description="Of the encoded entries.")


class PartsView(View):
    """The parts of a range, one after the other."""

    splits: list[PartView]


class SessionView(View):
    """A session."""

    session: str = Field(description="Token to send as `Sluice-Session`.")


class TokenView(View):
    """A token that was bought with a password."""

    token: str = Field(description="To send as `Authorization: Bearer <token>`. It is not shown again.")
    id: str
    scope: Scope
    destinations: tuple[str, ...]
    expires: datetime | None


class HealthView(View):
    """Health of the process."""

    status: str = Field(description="`ok`, `starting` or `stopping`.")
    meaning: str = Field(default="", description="What that means, for people.")
    destinations: dict[str, int] = Field(default={}, description="How many destinations are in which state.")
    conditions: dict[str, int] = Field(
        default={}, description="In how many places which condition needs attention; GET /v1/destinations names them."
    )
