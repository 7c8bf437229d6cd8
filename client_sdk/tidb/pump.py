"""The client of the pumps of a TiDB cluster, for programs without asyncio."""

import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import grpc

from ...protocol.errors import ConnectionLostError
from ...protocol.tidb.binlog_pb2 import Binlog
from .cluster import CLOSED, Cluster, failure, refusal, writer
from .pumps import NOBODY, PERIOD, Failure, Pump, Strategy, Writing


class PumpClient:
    """Writes binlog to the pumps of a TiDB cluster, as a TiDB does. Threads may share it.

    A Prewrite goes to one of the pumps that are online. If that one does not store it, another one is tried. The Commit
    or the Rollback of the transaction goes to the pump that has the Prewrite.

    A pump that fails three times in a row, or does not answer, is left out. Every two seconds an empty message asks
    whether it is back. Pumps that join, pause or leave the cluster are noticed as often.
    """

    def __init__(
        self,
        cluster_id: int,
        pumps: str | Sequence[str] = (),
        *,
        pd: str | Sequence[str] = (),
        strategy: Strategy = "range",
        labels: Mapping[str, str] | None = None,
        ca: str | Path | None = None,
        cert: tuple[str | Path, str | Path] | None = None,
        timeout: float = 5.0,
        retry: float = 15.0,
    ) -> None:
        """Look for the pumps.

        Args:
            cluster_id: of the TiDB cluster. Pumps refuse messages of another one.
            pumps: their addresses, ``host:port`` or the path of a Unix socket, as a list, or separated by commas.
            pd: URLs of PD, or of an etcd, where the pumps are registered; instead of ``pumps``.
            strategy: which pump gets a Prewrite. ``range``: one after the other. ``hash``: by its start_ts. ``score``:
                by the scores that pumps have registered; one with twice the score gets twice as many.
            labels: use only pumps that have registered all of these labels.
            ca: PEM file with the authorities that have signed the certificates of pumps and PD. With it, or with
                ``cert``, pumps are called with TLS.
            cert: PEM files of the own certificate and its key, for pumps and PD that ask for one.
            timeout: seconds that a pump may take to answer.
            retry: seconds for which a Prewrite is tried; each pump that can be used is tried once at least.

        Raises:
            BadParameterError: an argument cannot be used.
            EtcdError: PD does not answer.
            NodeError: what is registered there is no pump.
            OSError: a PEM file cannot be used.
        """
        self._cluster = Cluster(cluster_id, pumps, pd, strategy, labels, ca, cert)
        self._timeout = timeout
        self._retry = retry
        self._lock = threading.Lock()
        self._channels: list[Any] = []
        self._calls: dict[str, Any] = {}  # by address
        self._closed = threading.Event()
        try:
            self._cluster.look()
        except BaseException:
            self._cluster.close()
            raise
        self._thread = threading.Thread(target=self._keep, name="sluice-pumps", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Calls of other threads end at once, like later ones, with a ConnectionLostError."""
        self._closed.set()
        with self._lock:
            for channel in self._channels:
                channel.close()
        self._thread.join()
        self._cluster.close()

    def write(self, binlog: Binlog) -> None:
        """Write a Prewrite, a Commit or a Rollback, and return when a pump has stored it.

        After an error a Prewrite may be stored all the same, so its transaction must not commit. The end of a
        transaction is tried for 10 minutes, and can be written again after an error. If it never comes, the pump asks
        TiDB for it.

        Raises:
            PumpError: no pump has stored it.
            BadParameterError: it is none of these, or there is no Prewrite whose end it could be.
            ConnectionLostError: the client is closed.
        """
        writing = Writing(self._cluster.pumps, binlog, self._retry, time.monotonic())
        payload = binlog.SerializeToString()
        while True:
            pump = writing.begin()
            failed = NOBODY if pump is None else self._ask(pump, payload)
            if failed is None:
                writing.stored()
                return
            if self._closed.is_set() or self._closed.wait(writing.failed(failed, time.monotonic())):
                raise ConnectionLostError(CLOSED)

    def _ask(self, pump: Pump, payload: bytes) -> Failure | None:
        """Send a message to a pump; return why it has not stored it."""
        call = self._call(pump)
        try:
            return refusal(call(self._cluster.request(payload), timeout=self._timeout))
        except grpc.RpcError as error:
            return failure(error)
        except ValueError:  # of a channel that was closed just now
            raise ConnectionLostError(CLOSED) from None

    def _call(self, pump: Pump) -> Any:
        """Return the call that writes to a pump."""
        host = pump.node.host
        with self._lock:
            if self._closed.is_set():
                raise ConnectionLostError(CLOSED)
            if host not in self._calls:
                channel = self._cluster.channel(grpc, host)
                self._channels.append(channel)
                self._calls[host] = writer(channel)
            return self._calls[host]

    def _keep(self) -> None:
        """Look after the pumps until the client is closed."""
        while not self._closed.wait(PERIOD):
            self._cluster.look_again()
            self._run_errands()

    def _run_errands(self) -> None:
        begun = []
        for errand in self._cluster.pumps.errands():
            request = self._cluster.request(errand.payload)
            with contextlib.suppress(ConnectionLostError, ValueError):  # the client is being closed
                begun.append((errand, self._call(errand.pump).future(request, timeout=self._timeout)))
        for errand, call in begun:
            with contextlib.suppress(grpc.RpcError, grpc.FutureCancelledError):  # the next look asks again
                if refusal(call.result()) is None:
                    self._cluster.pumps.done(errand)
