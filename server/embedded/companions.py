"""What lives with a destination and uses its calls as clients do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class OutputStatus:
    """Where an output stands: a companion that sends the changes to another system."""

    name: str
    kind: str
    client_id: int
    state: str
    """``starting``, ``running``, ``retrying`` (something is in the way that may pass by itself), ``error`` (somebody
    has to do something), or ``stopped``."""
    error: str
    """Current error, also of a call that does not return; of one that runs, why it keeps its previous settings."""
    batches: int
    records: int
    rows: int
    bytes: int
    """What was confirmed since the start of the destination, repetitions included."""
    retries: int
    """How often it began again after an error."""
    skipped: int
    """What was left out, as configured."""
    last_error: str
    """Last error; empty if there never was one."""
    failed: float
    """When, Unix time; 0 if never."""
    lost: str
    """What the other side had confirmed and has no more, as last noticed; empty if nothing."""
    statistics: Mapping[str, float]
    """Of the connection to the other side, by name."""


class Companions(Protocol):
    """What lives with a destination: it uses the calls of this server, as clients do, and ends before it."""

    async def start(self, destination: str) -> None:
        """Start them as configured now; those that run and stay the same try again now what has failed.

        Of those that cannot start, they say so themselves.
        """

    async def stop(self, destination: str) -> None:
        """Stop them; when it returns they do nothing more."""

    def status(self, destination: str) -> Sequence[OutputStatus]:
        """Return where they stand."""


class NoCompanions:
    """A destination without."""

    async def start(self, destination: str) -> None:
        """Do nothing."""

    async def stop(self, destination: str) -> None:
        """Do nothing."""

    def status(self, destination: str) -> Sequence[OutputStatus]:  # noqa: ARG002
        """Return nothing."""
        return ()
