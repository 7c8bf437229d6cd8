"""What every call needs, held by the app."""

from dataclasses import dataclass, field
from typing import Annotated, cast

from fastapi import Depends, Request

from ...instance.config import InstanceConfig
from ..conditions import Overview
from ..embedded import EmbeddedServer
from ..metrics import Metrics
from ..pumps import Pumps
from ..waiting import Stopping
from .auth import Gate
from .waiting import Signals, Streams


@dataclass(frozen=True)
class Context:
    """The parts that the HTTP API uses."""

    embedded: EmbeddedServer
    gate: Gate
    metrics: Metrics
    stopping: Stopping
    pumps: Pumps
    acks: Signals = field(
        default_factory=Signals
    )  # key: (destination, client id); an ack, a rollback or an unsubscribe
    overview: Overview = field(init=False)
    streams: Streams = field(default_factory=Streams)  # the same keys

    def __post_init__(self) -> None:
        """Derive what depends on the other parts."""
        object.__setattr__(self, "overview", Overview(self.embedded, self.pumps))

    def config(self, destination: str) -> InstanceConfig:
        """Return the configuration that a destination was last started with. Raises UnknownDestinationError."""
        return self.embedded.config(destination)


async def _context(request: Request) -> Context:
    return cast("Context", request.app.state.context)


Ctx = Annotated[Context, Depends(_context)]
