"""The XA transaction that a change belongs to, as its entry says it, and the entries that end such a transaction."""

from typing import Literal, NamedTuple, cast, get_args

from .errors import DecodeError

XaState = Literal["prepared", "one-phase", "committed", "rolled-back"]
"""How far the transaction is, as its entry knows: ended by ``XA PREPARE``, so that a later entry, ``committed`` or
``rolled-back``, says what became of it; or ended by ``XA COMMIT … ONE PHASE``, which commits it."""


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
