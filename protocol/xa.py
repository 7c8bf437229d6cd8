"""The XA transaction that a change belongs to, as its entry says it."""

from typing import Literal, NamedTuple, cast, get_args

from .errors import DecodeError

XaState = Literal["committed", "one-phase"]
"""How it was committed: by ``XA COMMIT`` after it was prepared, or at once by ``XA COMMIT … ONE PHASE``."""


class Xa(NamedTuple):
    """An XA transaction."""

    state: XaState
    xid: str
    """As MySQL writes it: ``X'<gtrid>',X'<bqual>',<format id>``, the texts in hexadecimal."""

    def __str__(self) -> str:
        return f"{self.state} {self.xid}"

    @classmethod
    def parse(cls, text: str) -> "Xa":
        """Read the text form. Raises DecodeError."""
        state, _, xid = text.partition(" ")
        if state not in get_args(XaState):
            raise DecodeError(f"not the text of an XA transaction: {text!r}")
        return cls(cast("XaState", state), xid)
