"""What a parser says about itself, and a destination about the servers that it can read."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """Where a member of a group stands."""

    name: str
    state: str
    """``merged``; ``joining``: the others do not wait for it yet; ``passed``: nor any more, because it is silent;
    ``left``: its source has ended."""
    error: str
    """Why it cannot be read at present; empty if it can."""
    transactions: int
    """That are read and wait for their turn."""
    bytes: int
    """Of them."""
    late: int
    """Transactions that came after one of another member that is younger."""
    silent: float
    """Seconds since it last brought anything, a heartbeat too."""
    holds: bool
    """What the others have brought waits for it."""
    streams: bool = False
    """A transaction of it is larger than its pool, and is delivered in parts: nothing else is until that has ended."""


@dataclass(frozen=True, slots=True)
class ParserStatus:
    """How far a parser is, and what it has done since its start."""

    behind: float | None = None
    """Seconds: all that the source wrote before then is read; None if unknown so far. It is 0 while the source has
    nothing to send. The source's clock counts, and its events give whole seconds."""
    received_bytes: int = 0
    events: int = 0
    transactions: int = 0
    connections: int = 0
    """Dumps begun: one, and another after each loss of the connection."""
    quarantined: int = 0
    """Row events in the quarantine list."""
    future_rows: int = 0
    """Rows that were read with columns which may be younger than they are."""
    dml_statements: int = 0
    """Changes that the source logged as statements, so that their rows could not be delivered."""
    open_xa: str = ""
    """Position where the oldest XA transaction was prepared that has not ended yet; empty if none is known."""
    silent: float = 0.0
    """Seconds for which nothing has come from the source, once it should have sent a heartbeat twice; else 0."""
    history: str = ""
    """Why the history of tables cannot be used at present; empty if it can, or is not needed."""
    members: tuple[MemberStatus, ...] = ()
    """Of a group."""
    gtid_in_part: tuple[int, int] | None = None
    """The GTID of the transaction of which a part had been put when reading ended, None if there is none: the number of
    its source in the ring, and its own."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """Which of several servers with the same data a destination reads, and what keeps it from reading another."""

    address: str
    """The one that is read."""
    others: tuple[str, ...] = ()
    """Those that can be switched to."""
    unlisted: str = ""
    """The one that was chosen, if the configuration here does not name it: then it is not read."""
    failures: int = 0
    """How often in a row the one that is read did not answer; 0 also if nobody asks it."""
    failure: str = ""
    """Why not, the last time."""
    switching: str = ""
    """The address that is switched to now; empty if none is."""
    refusal: str = ""
    """Why the last switch was refused, and what to do; empty when none was since the last one that was done."""
    lost: tuple[str, ...] = ()
    """The transactions that keep the switch back: they were delivered, and the other server does not have them."""
    accepted: tuple[str, ...] = ()
    """Those with which a switch was accepted nevertheless."""
