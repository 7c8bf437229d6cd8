"""What a delivery asks of the other side, whatever it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ...instance.skipped import Skipped
from ...protocol.errors import SluiceError
from ...store.batch import Batch

if TYPE_CHECKING:
    from ...instance.source import Examination


class DeliveryError(SluiceError):
    """The other side has not confirmed what it was sent; it may do so later."""


class MissingError(SluiceError):
    """What changes are sent to is not there yet, and is made when the first of them comes."""


class RejectedError(SluiceError):
    """The other side does not take what it is sent, and will not before somebody changes something.

    ``position`` is that of the change which it does not take, empty if that is unknown. ``is_change``: it is a matter
    of one change, and others may be taken.
    """

    def __init__(self, message: str, position: str = "", *, is_change: bool = False) -> None:
        super().__init__(message)
        self.position = position
        self.is_change = is_change


class SplitError(SluiceError):
    """A batch has to come in parts; ``entries`` are those of the first one."""

    def __init__(self, entries: int) -> None:
        super().__init__(f"the batch has to come in parts, the first with {entries} entries")
        self.entries = entries


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch in the form of the other side."""

    batch: Batch
    content: Any
    """What the target has made of it."""
    records: int
    bytes: int
    skipped: Sequence[Skipped] = ()
    """What is left out of it, as configured."""
    state: str = ""
    """What the target has to know when the next batch is prepared."""
    is_alone: bool = False
    """It is sent by itself, without those before it and after it."""


def server_of(batch: Batch) -> str:
    """Return which server a batch was read from, as positions call it; of a group, each with its member."""
    return ",".join(f"{member}={source}" if member else source for member, source in _sources(batch))


def servers_of(batch: Batch) -> set[str]:
    """Return which servers the source of a batch is, as positions call them: several if it is a group."""
    return {source for _, source in _sources(batch)}


def _sources(batch: Batch) -> list[tuple[str, str]]:
    from ...protocol.cut import parse_place, places_in  # noqa: PLC0415  is compiled; configuration loads this module

    return [(member, it.source) for member, it in places_in(parse_place(batch.to)).items()]


class Place(NamedTuple):
    """How far an output has come, as the other side keeps it: with what it has confirmed, as one."""

    position: str
    """After the last change that is confirmed."""
    gtids: str
    """The full set of GTIDs that are executed there, empty if unknown."""
    number: int = 0
    """How many sends with something in them were confirmed there; 0 if an earlier version wrote it.

    Of a target that takes whole transactions: how many that ended with one."""


class Target(Protocol):
    """The other side of an output.

    `open`, `send` and `close` are called in one thread, one after the other; `prepare` in another one, also while
    `send` runs; the rest on the event loop.
    """

    @property
    def trouble(self) -> str:
        """What is in the way just now, although it may pass by itself; empty when all is well."""

    @property
    def statistics(self) -> Mapping[str, float]:
        """What there is to say of the connection, by name, as people who know the other side name it."""

    @property
    def keeps_place(self) -> bool:
        """Whether the other side keeps the place of the output with what it confirms: each change is there once."""

    @property
    def is_ahead(self) -> bool:
        """Whether it has applied transactions after its place, which it has to know when they come again."""

    @property
    def takes_transactions(self) -> bool:
        """Whether it needs each transaction from its begin on: what is prepared first begins with a whole one."""

    def open(self, memory: str, moved: str, epoch: int) -> Place | None:
        """Connect; from here on no earlier connection of this output, of any process, can write.

        ``memory`` is the `memory_after` of the last batch before the cursor, or what `memory_before` has returned
        since, in whatever process; empty at the first time. ``moved`` says how the cursor was moved by hand since,
        empty if it was not (`StoredClient.moved`). ``epoch`` grows with each life of the destination. Returns the place
        that the other side keeps; None when the cursor counts.

        Raises DeliveryError, RejectedError.
        """

    def prepare(self, batch: Batch) -> Prepared:
        """Encode a batch. Raises RefusedError, which names the entry that cannot be sent, and SplitError."""

    def send(self, batches: Sequence[Prepared], place: Place | None) -> None:
        """Return when the other side has confirmed all of them, durably and in this order.

        ``place`` is that after them, for a target that keeps it; None when it has no name. After an error it is unknown
        what it has taken. Raises DeliveryError, RejectedError.
        """

    def memory_before(self, batches: Sequence[Prepared]) -> str | None:
        """Return what has to be kept with the cursor, durably, before batches are sent; None when nothing has to."""

    def memory_after(self, prepared: Prepared) -> str:
        """Return what is to be kept with the cursor after a batch that is confirmed, a few KiB of text: see `open`.

        Of a target that keeps the place this is an object of JSON, to which the delivery adds the place's number.
        """

    def idle(self) -> None:
        """See to what is due from time to time while nothing is sent; like `send`, but without waiting."""

    def abandon(self) -> None:
        """Let `open` and `send` end soon, by an error, and send nothing more; called on the event loop."""

    def losses(self) -> list[str]:
        """Return, once, what the other side had confirmed and has no more, so far as it was noticed."""

    def close(self) -> None:
        """Disconnect, within a second or two. It can be opened again."""


class Complaints(NamedTuple):
    """What of a configuration has no effect."""

    unknown: list[str]
    """Keys that nothing reads: mistakes."""
    unlike: list[str]
    """What is done otherwise than is written, with the reason."""


class Asked(NamedTuple):
    """The source whose changes an output is to take."""

    source: "Examination"
    tables: Sequence[tuple[str, str]]
    """Those that it has now, and that pass the filter of the destination."""


class Report(Protocol):
    """Takes what an examination finds; see `Findings` of the command line."""

    def good(self, what: object, text: object) -> None:
        """Report something that is as it should be."""

    def note(self, what: object, text: object) -> None:
        """Report something that is worth knowing."""

    def wrong(self, what: object, text: object) -> None:
        """Report something that would not work."""
