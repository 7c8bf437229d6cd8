"""Where the pumps of a cluster are, and how to call them: what both clients of pumps have in common. Needs grpcio."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

import grpc

from ...login.etcd import Etcd, EtcdError, tls_of
from ...login.nodes import Node, NodeError, Nodes, State
from ...protocol.errors import BadParameterError
from ...protocol.tidb.pump_pb2 import WriteBinlogReq, WriteBinlogResp
from .pumps import Failure, Pumps, Strategy

WRITE: Final = "/binlog.Pump/WriteBinlog"
"""The call that writes a message."""
OPTIONS: Final = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),  # by default 2 minutes, for which a pump that is back would be away
)
UNKNOWN: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
"""Codes of calls that may have done what they were to do."""
CLOSED: Final = "the client is closed"

logger = logging.getLogger(__name__)


class Cluster:
    """The pumps of a TiDB cluster, and the way to them."""

    def __init__(
        self,
        cluster_id: int,
        pumps: str | Sequence[str],
        pd: str | Sequence[str],
        strategy: Strategy,
        labels: Mapping[str, str] | None,
        ca: str | Path | None,
        cert: tuple[str | Path, str | Path] | None,
    ) -> None:
        """Read the arguments of a client. Raises BadParameterError, and OSError for files that cannot be used."""
        addresses, urls = _names(pumps), _names(pd)
        if bool(addresses) == bool(urls):
            raise BadParameterError("either pumps or pd has to be given: where the pumps are, or who knows that", "pd")
        if strategy not in get_args(Strategy):
            raise BadParameterError(f"a strategy is one of {', '.join(get_args(Strategy))}, and not {strategy!r}")
        if labels and addresses:
            raise BadParameterError("labels need pd: addresses have none", "labels")
        self._id = cluster_id
        self._trouble = ""
        self._fixed = [Node(it, it, State.ONLINE) for it in addresses]
        self._credentials = None
        authorities = None if ca is None else Path(ca)
        own = (None, None) if cert is None else (Path(cert[0]), Path(cert[1]))
        tls = tls_of(authorities, *own)
        if tls is not None:
            chain, key = (None if it is None else it.read_bytes() for it in own)
            root = None if authorities is None else authorities.read_bytes()
            self._credentials = grpc.ssl_channel_credentials(root, key, chain)
        self._etcd = Etcd(urls, tls) if urls else None
        self.pumps = Pumps(strategy, labels or {})
        """The pumps, after `look`."""

    def close(self) -> None:
        """Close what `look` uses."""
        if self._etcd is not None:
            self._etcd.close()

    def look(self) -> None:
        """Learn which pumps there are; it blocks. Raises EtcdError and NodeError."""
        self.pumps.learn(self._fixed if self._etcd is None else Nodes(self._etcd).pumps())

    def look_again(self) -> None:
        """Learn which pumps there are now; it blocks. What is in the way is logged once, and they stay as known."""
        try:
            self.look()
        except (EtcdError, NodeError) as error:
            if str(error) != self._trouble:
                logger.warning("the pumps stay as they are known: %s", error)
            self._trouble = str(error)
        else:
            self._trouble = ""

    def request(self, payload: bytes) -> WriteBinlogReq:
        """Return what is sent to a pump."""
        return WriteBinlogReq(clusterID=self._id, payload=payload)

    def channel(self, module: Any, host: str) -> Any:
        """Return a channel to a pump, of ``grpc`` or ``grpc.aio``."""
        if host.startswith(("/", "unix:")):  # who may open the file may write: there is no TLS
            return module.insecure_channel(f"unix:{host.removeprefix('unix:')}", options=OPTIONS)
        if self._credentials is None:
            return module.insecure_channel(host, options=OPTIONS)
        return module.secure_channel(host, self._credentials, options=OPTIONS)


def writer(channel: Any) -> Any:
    """Return the call that writes over a channel."""
    return channel.unary_unary(WRITE, WriteBinlogReq.SerializeToString, WriteBinlogResp.FromString)


def refusal(answer: WriteBinlogResp) -> Failure | None:
    """Return why a pump has not stored what it has answered to; None: it has."""
    return Failure(answer.errmsg) if answer.errmsg else None


def failure(error: Any) -> Failure:
    """Return what a call that has failed says."""
    code, text = error.code(), str(error.details())
    return Failure(
        f"{code.name}: {text}",
        is_final=code == grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in text,
        is_silent=code == grpc.StatusCode.DEADLINE_EXCEEDED,
        is_unknown=code in UNKNOWN and "failed to connect" not in text,
    )


def _names(given: str | Sequence[str]) -> list[str]:
    parts = given.split(",") if isinstance(given, str) else given
    return [it.strip() for it in parts if it.strip()]
