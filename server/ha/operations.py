"""What the machines of this folder ask of ZooKeeper, what they are answered, and what they tell their host to do."""

from dataclasses import dataclass
from typing import TypeAlias

from ...instance.meta.base import InUse
from ...store.cursor import Changes, StoredClient

# --- asked -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Beat:
    """Prove that the session lives: a ``sync``, which the leader answers.

    A ping is answered by any follower, also by one that the leader has lost while it lets the session expire.
    """


@dataclass(frozen=True, slots=True)
class Look:
    """See which server owns a destination: ``sync``, read ``running``, then the epoch node. Answered by `Seen`."""

    destination: str


@dataclass(frozen=True, slots=True)
class Claim:
    """Take a free destination over. Answered by `Done` or `REFUSED`.

    One transaction: create ``running``, ephemeral, and set the epoch node if its version is this one; create it if that
    is -1.
    """

    destination: str
    epoch: int
    version: int


@dataclass(frozen=True, slots=True)
class Load:
    """Read subscriptions and cursors. Answered by `Loaded`."""

    destination: str


@dataclass(frozen=True, slots=True)
class Store:
    """Write what has changed of clients. Answered by `Done` or `REFUSED`.

    One transaction: check that the epoch node has this version, or set it if it has; then set the data.
    """

    destination: str
    version: int
    changes: Changes
    epoch: int | None = None
    """What the epoch node is to hold; None leaves it unchanged."""
    view: str = ""
    """The view of the destination whose clients they are; empty for those of the destination itself."""
    source: InUse | None = None
    """Which of several servers is read; None leaves that unchanged."""


@dataclass(frozen=True, slots=True)
class Release:
    """Give a destination up. Answered by `Done` or `REFUSED`.

    One transaction: check that the epoch node has this version, and delete ``running``.
    """

    destination: str
    version: int


OfDestination: TypeAlias = Look | Claim | Load | Store | Release
Operation: TypeAlias = Beat | OfDestination

# --- answered --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Running:
    """The node ``running`` of a destination."""

    owner: int
    """The session that it lives as long as."""
    address: str
    active: bool = True
    """False when its owner was told to give the destination up."""
    fenced: bool = True
    """Its owner has raised the epoch: the epoch node was changed when ``running`` was created, or later (compare mzxid
    with czxid). Canal's own server does not."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The owner of a destination."""

    running: Running | None
    epoch: int
    """Of the epoch node; without the node one that is not less than any earlier one."""
    version: int
    """Of the epoch node, -1 without."""
    strangers: tuple[str, ...] = ()
    """Addresses that Canal's own servers have registered for the destination."""
    loss: str = ""
    """What ZooKeeper has lost of it; empty for nothing. It is not claimed then."""


@dataclass(frozen=True, slots=True)
class Done:
    """It is durable; ``version`` is that of the epoch node since then, if it matters."""

    version: int = -1


@dataclass(frozen=True, slots=True)
class Loaded:
    """Subscriptions and cursors."""

    clients: tuple[StoredClient, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A condition did not hold: nothing was changed."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The connection broke before the answer: it was done, will still be, or never."""


REFUSED = Refused()
UNKNOWN = Unknown()

Outcome: TypeAlias = Seen | Done | Loaded | Refused | Unknown

# --- told to the host ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ask:
    """Do an operation in this session and in no other; answer with its number, in the order of asking."""

    session: int
    number: int
    operation: Operation


@dataclass(frozen=True, slots=True)
class Activate:
    """Start the destination: marks carry this epoch, clients begin at these cursors."""

    destination: str
    epoch: int
    clients: tuple[StoredClient, ...]


@dataclass(frozen=True, slots=True)
class Deactivate:
    """Stop the destination, and say so by `Participant.deactivated`."""

    destination: str


@dataclass(frozen=True, slots=True)
class Stored:
    """The changes that were given to `Participant.store` are durable, or it is not known; they are not stored again."""

    destination: str
    durable: bool


Action: TypeAlias = Ask | Activate | Deactivate | Stored
