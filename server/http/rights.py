"""What a caller needs for each call of the API: one table, which every route stands in."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from fastapi import Depends, Request

from ...protocol.errors import ForbiddenError
from ..credentials import Grant, Scope
from .auth import Granted


class Right(Enum):
    """What a caller needs. Each includes those before it."""

    NONE = auto()
    """Nothing, not even a token."""
    TOKEN = auto()
    """A token, which sees what belongs to its destinations."""
    READ = auto()
    """A token that reaches the destination."""
    CLIENT = auto()
    """One that may use the client, too: see `sluice.server.caller`. An output's client is for administrators."""
    ADMIN = auto()
    """One of scope ``admin`` that reaches the destination."""


RIGHTS: Final[Mapping[str, Right]] = {
    "getHealth": Right.NONE,
    "getReadiness": Right.NONE,
    "createToken": Right.NONE,
    "getMetrics": Right.TOKEN,
    "listDestinations": Right.TOKEN,
    "listPumps": Right.TOKEN,
    "getDestination": Right.READ,
    "listQuarantine": Right.READ,
    "listMoves": Right.READ,
    "listLog": Right.READ,
    "getSourceEnd": Right.READ,
    "listTables": Right.READ,
    "getTable": Right.READ,
    "getClient": Right.READ,
    "listSnapshots": Right.READ,
    "getSnapshot": Right.READ,
    "subscribe": Right.CLIENT,
    "unsubscribe": Right.CLIENT,
    "protect": Right.CLIENT,
    "openSession": Right.CLIENT,
    "getWithoutAck": Right.CLIENT,
    "ack": Right.CLIENT,
    "rollback": Right.CLIENT,
    "streamBatches": Right.CLIENT,
    "seek": Right.CLIENT,
    "skip": Right.CLIENT,
    "confirmGaps": Right.CLIENT,
    "markRange": Right.CLIENT,
    "splitRange": Right.CLIENT,
    "splitLongRange": Right.CLIENT,
    "readRange": Right.CLIENT,
    "readLongRange": Right.CLIENT,
    "startSnapshot": Right.CLIENT,
    "pauseSnapshot": Right.CLIENT,
    "resumeSnapshot": Right.CLIENT,
    "cancelSnapshot": Right.CLIENT,
    "limitClient": Right.ADMIN,
    "startDestination": Right.ADMIN,
    "stopDestination": Right.ADMIN,
    "switchSource": Right.ADMIN,
    "retryQuarantine": Right.ADMIN,
    "listAudit": Right.ADMIN,
    "pruneLog": Right.ADMIN,
}
"""By the operation ids of the routes."""


def require(operation: str, grant: Grant, destination: str) -> None:
    """Raise ForbiddenError unless a grant has the right for a call on a destination.

    Whether it may use a client is asked where the client is known, by the call itself.
    """
    right = RIGHTS[operation]
    if right in (Right.NONE, Right.TOKEN):
        return
    if not grant.covers(destination):
        raise ForbiddenError(f"The token does not reach destination {destination!r}.")
    if right is Right.ADMIN and grant.scope is not Scope.ADMIN:
        raise ForbiddenError("The call needs a token of scope 'admin'.")


async def _require(request: Request, grant: Granted) -> None:
    require(request.scope["route"].operation_id, grant, request.path_params.get("destination", ""))


checked = Depends(_require)
"""What lets a call of a router pass by the table."""
