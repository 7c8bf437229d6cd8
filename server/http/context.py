"""What every call needs, held by the app."""

from dataclasses import dataclass, field
from typing import Annotated, cast

from fastapi import Depends, Request

from sluice.server.embedded import EmbeddedServer
from sluice.server.http.auth import Gate
from sluice.server.http.waiting import Signals, Stopping
from sluice.server.metrics import Metrics


@dataclass(frozen=True)
class Context:
    """The parts behind the HTTP API."""

    embedded: EmbeddedServer
    gate: Gate
    metrics: Metrics
    stopping: Stopping = field(default_factory=Stopping)
    acks: Signals = field(
        default_factory=Signals
    )  # key: (destination, client id); an ack, a rollback or an unsubscribe

    def strict(self, destination: str) -> bool:
        """Tell whether a destination writes everything exactly as Canal does."""
        return self.embedded.instances[destination].config.strict_canal


async def _context(request: Request) -> Context:
    return cast("Context", request.app.state.context)


Ctx = Annotated[Context, Depends(_context)]
