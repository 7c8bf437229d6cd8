"""What is shown of a subscriber: where it stands, and how much it still has to do."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lag:
    """How much of what is stored a subscriber still has to do with."""

    transactions: int
    entries: int
    rows: int
    bytes: int
    oldest: int
    """Timestamp of the oldest such entry, ms since 1970; 0 when there is none."""

    def __add__(self, later: "Lag") -> "Lag":
        return Lag(
            self.transactions + later.transactions,
            self.entries + later.entries,
            self.rows + later.rows,
            self.bytes + later.bytes,
            self.oldest or later.oldest,
        )


NO_LAG = Lag(0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ClientStatus:
    """Where a subscriber stands."""

    client_id: int
    filter: str
    state: str
    """``attached``; ``ahead`` of what is stored; ``catching-up``; or ``gone``, with the reason in ``error``."""
    error: str
    problem: str
    """Type of the error (`SluiceError.type`), empty without one."""
    position: str
    """The durable cursor, empty when nothing was confirmed yet."""
    acked: str
    got: str
    marks: list[int]
    given: Lag
    """What it was given and has not confirmed."""
    waiting: Lag
    """What is stored for it and was not given yet."""
    last_active: float
    """When its last call came, on the clock of the calls (seconds of `time.monotonic`)."""

    @property
    def lag(self) -> Lag:
        """What it has not confirmed of what is stored."""
        return self.given + self.waiting
