"""What is asked of ZooKeeper: nodes, their versions, transactions. Code that keeps data there needs only this."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...protocol.errors import ZooKeeperError

ANY_VERSION = -1


class NodeError(ZooKeeperError):
    """Something is wrong with one node; nothing was changed. ``path`` is its path."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


class NoNodeError(NodeError):
    """The node, or its parent, does not exist."""


class NodeExistsError(NodeError):
    """The node exists already."""


class BadVersionError(NodeError):
    """The node was changed since the version that the call names."""


class NotEmptyError(NodeError):
    """The node has children, and so cannot be deleted."""


class UnknownOutcomeError(ZooKeeperError, ConnectionError):
    """The connection broke before the answer came: the call has had its effect, has not, or will still have it.

    The session may live on.
    """


class SessionExpiredError(ZooKeeperError):
    """The session is over, and with it its ephemeral nodes. It can do nothing more."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as it was read."""

    data: bytes
    version: int
    """How often the data was set since the node was created."""
    owner: int
    """The session that it will end with; 0 for a node that stays."""
    created: int
    """Number of the transaction that created it; they ascend."""
    changed: int
    """Number of the transaction that set its data last."""


@dataclass(frozen=True, slots=True)
class Check:
    """Part of a transaction: fail unless the node has this version."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Put:
    """Part of a transaction: set the data of an existing node."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Create:
    """Part of a transaction: create a node; its parent has to exist."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """Part of a transaction: delete a node without children."""

    path: str
    version: int = ANY_VERSION


Operation = Check | Put | Create | Delete
Watch = Callable[[], None]
"""Called once, in the event loop, when what was read may have changed, or the connection was lost."""


class NodeSession(Protocol):
    """A session with ZooKeeper. Calls are done in order, and wait while the connection is broken.

    Independent calls are made together (`asyncio.gather`), which costs one round trip. As many are under way at a time
    as ZooKeeper takes from one client; the others wait for these.

    Once it is over it does nothing more, and no other session takes its place.

    Every method raises `UnknownOutcomeError`, `SessionExpiredError`, and ZooKeeperError for what ZooKeeper refuses.
    """

    @property
    def session_id(self) -> int:
        """The owner of its ephemeral nodes."""

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """Read a node. Raises NoNodeError; it is then not watched."""

    async def find(self, path: str, watch: Watch | None = None) -> Node | None:
        """Read a node; None if it does not exist, which is watched too."""

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of a node's children, sorted. Raises NoNodeError."""

    async def ensure(self, path: str) -> None:
        """Create a node and its parents, permanent and empty, unless they exist."""

    async def commit(self, operations: Sequence[Operation]) -> list[int | None]:
        """Do all or nothing; return the new version of each node that was set, None for the others.

        Raises the NodeError of the first operation that fails.
        """
