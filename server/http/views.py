"""Answers of status calls as JSON in camel case. Batches never pass these models."""

import time
from datetime import datetime
from typing import Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from sluice.server.embedded import DestinationStatus
from sluice.server.http import problems
from sluice.server.http.auth import Scope
from sluice.store.cursors import ClientStatus


class View(BaseModel):
    """Base of all answers."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, from_attributes=True)


class LagView(View):
    """What lies between the last ack and the newest change that is stored."""

    seconds: float = Field(default=0.0, description="Age of the oldest change that is not acked; 0 when all are.")
    transactions: int
    entries: int
    rows: int
    bytes: int = Field(description="Of the encoded entries.")


class ClientView(View):
    """Where a client stands."""

    client_id: int
    filter: str
    state: str = Field(description="`attached`; `ahead` of what is stored; `gone`, for the reason in `error`.")
    error: str
    problem: str = Field(description="Type of the error, as a call would be answered; empty without one.")
    advice: str = Field(default="", description="What to do about it.")
    position: str = Field(description="The durable cursor, where a restart resumes; empty: nothing was acked yet.")
    acked: str = Field(description="Position up to which everything is acked.")
    got: str = Field(description="Position up to which batches were taken.")
    marks: list[int] = Field(description="Ids of the outstanding batches, oldest first.")
    lag: LagView

    @classmethod
    def of(cls, status: ClientStatus) -> Self:
        """Make the view of a status, as of now."""
        made = cls.model_validate(status)
        made.advice = problems.advice(status.problem)
        if status.lag.oldest:
            made.lag.seconds = max(0.0, time.time() - status.lag.oldest / 1000)
        return made


class DestinationView(View):
    """Where a destination stands."""

    destination: str
    state: str = Field(description="`starting`, `running`, `error` (it tries again) or `stopped`.")
    error: str = Field(description="Why it does not run.")
    clients: list[ClientView]
    first: str = Field(description="The oldest position that is stored; empty when the stream has not begun.")
    last: str = Field(description="Position up to which the source was read.")
    entries: int = Field(description="Entries that are stored.")
    bytes: int = Field(description="Bytes of them.")
    full: bool = Field(description="Whether the parser waits for room.")

    @classmethod
    def of(cls, status: DestinationStatus) -> Self:
        """Make the view of a status, as of now."""
        made = cls.model_validate(status)
        made.clients = [ClientView.of(client) for client in status.clients]
        return made


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
    destinations: dict[str, int] = Field(default={}, description="How many destinations are in which state.")
