"""What is shown of a subscriber: its place, and how much it still has to do."""

from dataclasses import dataclass

from .allowance import AllowanceStatus


@dataclass(frozen=True, slots=True)
class Lag:
    """How much of what is stored a subscriber still has to process."""

    transactions: int
    entries: int
    rows: int
    bytes: int
    oldest: int
    """Timestamp of the oldest such entry, ms since 1970; 0 without one."""

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
    """The place and state of a subscriber."""

    client_id: int
    filter: str
    where: str
    """Its condition on rows, empty for none."""
    state: str
    """``attached``; ``ahead`` of what is stored; ``catching-up``; or ``gone``, with the reason in ``error``."""
    error: str
    """Why it is gone, or why its catch-up reader cannot read for now; empty without a reason."""
    problem: str
    """Type of the error (`SluiceError.type`), empty without one."""
    position: str
    """The durable cursor, empty if nothing was confirmed yet."""
    acked: str
    got: str
    marks: list[int]
    given: Lag
    """The batches that it was given and has not confirmed."""
    waiting: Lag
    """What is stored for it and not given yet. Of a client that catches up that is what its reader has read, and what
    the ring holds; what is between, in the log or at the source, is measured elsewhere, in bytes."""
    last_active: float
    """When its last call came, on the clock of the calls (seconds of `time.monotonic`)."""
    called: bool
    """Whether there was one since the destination was started here; else ``last_active`` says when that was."""
    protected: bool
    """Whether the log on disk keeps what it still needs, beyond its limits."""
    late: int
    """How many events' rows it is still to be given out of their order; see `sluice.store.batch.LateRows`."""
    snapshots: list[int]
    """Ids of its snapshots."""
    owner: str
    """Name of the token that has created it; empty if that was an administrator's, or none."""
    allowance: AllowanceStatus = AllowanceStatus()  # noqa: RUF009  immutable
    """How much it may be given, and has used of that."""

    @property
    def lag(self) -> Lag:
        """What is stored and it has not confirmed."""
        return self.given + self.waiting
