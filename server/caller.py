"""Who calls: what is changed on somebody's behalf is written down with their name."""

from contextvars import ContextVar

from ..instance.serving import moved_now
from ..store.moves import SERVER, By

caller: ContextVar[str] = ContextVar("caller", default=SERVER)
"""Name and address of who has sent the call at hand, or which part of the server makes it."""


def by_caller() -> By:
    """Return on whose behalf a place is moved now."""
    return moved_now(caller.get())
