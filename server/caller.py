"""Who calls: which clients it may use, and the name with which what is changed on its behalf is written down."""

from contextvars import ContextVar
from dataclasses import dataclass

from ..instance.serving.serving import moved_now
from ..protocol.errors import ForbiddenError
from ..store.allowance import UNLIMITED, Limits
from ..store.moves import SERVER, By
from .client_ids import IdRanges, show_ranges


@dataclass(frozen=True, slots=True)
class Caller:
    """Who has sent a call, or which part of the server makes it; the latter may use every client."""

    name: str
    """Name and address, for what is written down."""
    token: str = ""
    """Name of its token, which owns the clients that it creates; empty for an administrator."""
    clients: IdRanges | None = None
    """Ids of the clients that it may use; empty: those that its token owns; None: all, but an output's."""
    limits: Limits = UNLIMITED
    """How much a client which it creates may be given."""

    def names(self, client_id: int) -> bool:
        """Whether its token names the client by its id."""
        return any(first <= client_id <= last for first, last in self.clients or ())

    def require(self, client_id: int, owner: str) -> None:
        """Raise ForbiddenError unless it may use a client of that owner, empty for none."""
        if self.clients is None or self.names(client_id) or (owner == self.token and not self.clients):
            return
        may = f"may use those with the ids {show_ranges(self.clients)}" if self.clients else "has not created it"
        raise ForbiddenError(
            f"client {client_id} is not one of the token {self.token!r}, which {may}. Take another client id, or let an"
            " administrator give this one to the token: sluice token limit ID --clients"
        )


_SERVER = Caller(SERVER)
caller: ContextVar[Caller] = ContextVar("caller", default=_SERVER)
"""Who has sent the call at hand, or which part of the server makes it."""


def by_caller() -> By:
    """Return on whose behalf a place is moved now."""
    return moved_now(caller.get().name)
