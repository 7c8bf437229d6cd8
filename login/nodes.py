"""The pumps and drainers of a TiDB cluster, as they are registered in the etcd of its PD.

The key of a node is ``/tidb-binlog/v1/pumps/<nodeId>`` or ``/tidb-binlog/v1/drainers/<nodeId>``. Its value is a JSON
object with the keys of `Node.encode` (tidb-tools, tidb-binlog/node/node.go: Status). TiDB writes to the pumps whose
state is online. A key has no lease: a pump that has died stays online until its failed calls show it.

What an operator wants of a pump of Sluice is under a key beside them, ``/tidb-binlog/v1/sluice/<nodeId>``, as the name
of a state: online, paused or offline. The pump goes there by itself, and begins there after a restart.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from ..protocol.errors import SluiceError
from .etcd import Etcd, EtcdError

PUMPS: Final = "/tidb-binlog/v1/pumps/"
DRAINERS: Final = "/tidb-binlog/v1/drainers/"
WANTED: Final = "/tidb-binlog/v1/sluice/"


class NodeError(SluiceError):
    """A node cannot be registered, or another one is registered wrongly."""


class State(StrEnum):
    """What a node does."""

    ONLINE = "online"
    PAUSING = "pausing"
    """It takes no transaction any more, and what has begun ends."""
    PAUSED = "paused"
    """It does not run, or takes no transaction. It may have some that drainers need."""
    CLOSING = "closing"
    """It takes no transaction any more, and waits until all drainers have read what it has."""
    OFFLINE = "offline"
    """It has left the cluster."""


GOALS: Final = (State.ONLINE, State.PAUSED, State.OFFLINE)
"""Where an operator can have a pump go."""
NEXT: Final[Mapping[State, frozenset[State]]] = {
    State.ONLINE: frozenset({State.PAUSING, State.CLOSING}),
    State.PAUSING: frozenset({State.PAUSED}),
    State.PAUSED: frozenset({State.ONLINE, State.CLOSING}),
    State.CLOSING: frozenset({State.OFFLINE}),
    State.OFFLINE: frozenset({State.PAUSED}),
}
"""Which state may follow which, besides itself. A pump that begins is paused, unless it has left the cluster."""


@dataclass(frozen=True, slots=True)
class Node:
    """What a pump or a drainer says of itself."""

    node_id: str
    host: str
    """Its address, with the port."""
    state: State
    max_commit_ts: int = 0
    """Of a pump up to which commit_ts it has all, of a drainer up to which it has applied all."""
    update_ts: int = 0
    """The time of the cluster when it said that."""
    labels: Mapping[str, str] = field(default_factory=dict)
    score: int = 0
    is_alive: bool = False

    def encode(self) -> bytes:
        """Return its JSON, with the keys in the order in which a pump of TiDB has them."""
        return json.dumps(
            {
                "nodeId": self.node_id,
                "host": self.host,
                "state": str(self.state),
                "isAlive": self.is_alive,
                "score": self.score,
                "label": {"labels": dict(self.labels)} if self.labels else None,
                "maxCommitTS": self.max_commit_ts,
                "updateTS": self.update_ts,
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Node":
        """Read its JSON; what is left out has its default, but not id, host and state. Raises NodeError."""
        try:
            said = json.loads(data)
            return cls(
                str(said["nodeId"]),
                str(said["host"]),
                State(said["state"]),
                int(said.get("maxCommitTS", 0)),
                int(said.get("updateTS", 0)),
                _labels(said.get("label")),
                int(said.get("score", 0)),
                bool(said.get("isAlive", False)),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise NodeError(f"{data[:200]!r} is no status of a node ({type(error).__name__}: {error})") from error

    def turned(self, state: State) -> "Node":
        """Return it with another state. Raises NodeError if that may not follow."""
        if state != self.state and state not in NEXT[self.state]:
            raise NodeError(f"the node {self.node_id!r} is {self.state}, and cannot be {state} next")
        return replace(self, state=state)


class Nodes:
    """The nodes of a cluster, and one that this process writes. It blocks; one thread at a time writes."""

    def __init__(self, etcd: Etcd) -> None:
        self._etcd = etcd

    def pumps(self) -> list[Node]:
        """Return all pumps. Raises EtcdError and NodeError."""
        return self._nodes(PUMPS)

    def drainers(self) -> list[Node]:
        """Return all drainers. Raises EtcdError and NodeError."""
        return self._nodes(DRAINERS)

    def claim(self, node: Node) -> Node:
        """Register a pump that does not serve yet, as paused, or as offline if it was; return it. Raises EtcdError.

        Raises NodeError when a pump at another address has its id, and is not offline or paused.
        """
        key, state = PUMPS + node.node_id, State.PAUSED
        value = self._etcd.get(key)
        if value.revision:
            found = Node.decode(value.data)
            state = State.OFFLINE if found.state == State.OFFLINE else State.PAUSED
            if found.host != node.host and found.state not in {State.PAUSED, State.OFFLINE}:
                raise NodeError(
                    f"a pump at {found.host} is {found.state} with the node id {node.node_id!r}: give this one"
                    f" another id, or pause that one; if it is gone for ever, sluice pump offline {node.node_id}"
                )
        claimed = replace(node, state=state)
        if not self._etcd.put(key, claimed.encode(), value.revision):
            raise NodeError(f"another pump has just taken the node id {node.node_id!r}")
        self._etcd.put(WANTED + node.node_id, State.ONLINE.encode(), 0)  # unless something is wanted of it
        return claimed

    def find(self, node_id: str) -> tuple[Node, int]:
        """Return a pump, and the revision of its last status. Raises EtcdError, and NodeError if it is not there."""
        value = self._etcd.get(PUMPS + node_id)
        if not value.revision:
            raise NodeError(f"no pump {node_id!r} is registered: sluice pump list shows those that are")
        return Node.decode(value.data), value.revision

    def write(self, node: Node, revision: int | None = None) -> None:
        """Write what a pump says of itself. Raises EtcdError, also when its last status has not that revision."""
        if not self._etcd.put(PUMPS + node.node_id, node.encode(), revision):
            raise EtcdError(f"etcd has not stored the status of {node.node_id!r}")

    def wanted(self, node_id: str) -> State | None:
        """Return where a pump is to go, one of `GOALS`; None if it is none of Sluice.

        Raises EtcdError, and NodeError for another state.
        """
        value = self._etcd.get(WANTED + node_id)
        found = next((it for it in GOALS if it.encode() == value.data), None)
        if value.revision and found is None:
            raise NodeError(
                f"the key {WANTED}{node_id} has {value.data[:100]!r}, which is no state that a pump can go to"
            )
        return found

    def want(self, node_id: str, state: State) -> None:
        """Have a pump go to one of `GOALS`. Raises EtcdError."""
        if not self._etcd.put(WANTED + node_id, state.encode()):
            raise EtcdError(f"etcd has not stored what is wanted of {node_id!r}")

    def have_read(self, commit_ts: int) -> bool:
        """Whether all drainers that are not offline have applied what committed until then. Raises as `drainers`."""
        return all(it.max_commit_ts >= commit_ts for it in self.drainers() if it.state != State.OFFLINE)

    def _nodes(self, prefix: str) -> list[Node]:
        return [Node.decode(value.data) for value in self._etcd.list(prefix).values()]


def _labels(said: Any) -> dict[str, str]:
    labels = said.get("labels") if said is not None else None
    return {str(name): str(value) for name, value in (labels or {}).items()}
