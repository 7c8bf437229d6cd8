"""What a consumer learns from ZooKeeper, and its election, in Canal's nodes. The client's only module that knows kazoo.

::

    /otter/canal/cluster/<address>                        a live server; {"tls":false,"url":"http://…"}
    /otter/canal/destinations/<d>/running                 the active server; {"active":true,"address":"<address>"}
    /otter/canal/destinations/<d>/<client id>/running     the consumer whose turn it is;
                                                          {"active":true,"address":"<ip:port>","clientId":1001}
"""

import json
import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from kazoo import exceptions as kazoo
from kazoo.client import KazooClient, KazooState
from kazoo.handlers.threading import KazooTimeoutError

from ..protocol.errors import BadParameterError
from ..protocol.paths import SERVERS, running_node, turn_node

logger = logging.getLogger(__name__)

HOLD_OFF = 5.0
"""Seconds for which a consumer that was told to give its turn up lets others have it (Canal's delay)."""
RETRY = 0.5
"""Seconds after which ZooKeeper is asked again when it has not answered."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known at a time."""

    servers: tuple[str, ...] = ()
    """URLs of the live servers."""
    active: str | None = None
    """URL of the one that has the destination."""
    turn: int | None = None
    """Number of this consumer's turn, counted from 1; None while another consumer has the client id."""


class Registry:
    """Follows the servers of a destination and, unless told otherwise, competes for a client id of it.

    It works in a thread. The turn belongs to the session with ZooKeeper: when that ends, another consumer has it.

    Args:
        hosts: ``host:port,host:port``, also with semicolons, as in Canal; perhaps with a path, under which all is.
        destination: its name.
        client_id: to compete for; None to follow the servers only.
        timeout: seconds without a sign of life after which ZooKeeper gives the turn to another consumer.
        hear: called in a thread of the registry whenever `seen` has changed.

    Raises:
        BadParameterError: ``hosts`` are not addresses.
    """

    def __init__(
        self, hosts: str, destination: str, client_id: int | None, timeout: float, hear: Callable[[], None]
    ) -> None:
        self.hosts = hosts.replace(";", ",")
        self.seen = Seen()
        self._destination = destination
        self._client_id = client_id
        self._hear = hear
        self._turns = 0
        self._held_off = 0.0
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self.was_reached = False
        """Whether ZooKeeper has ever told what there is."""
        self._closed = False
        self._timeout = timeout
        self._lost_at: float | None = None
        """When the connection was lost; None while there is one."""
        try:
            self._zookeeper = self._new_client()
        except ValueError as error:
            raise BadParameterError(f"not addresses of ZooKeeper servers: {hosts!r} ({error})", "zookeeper") from None
        self._zookeeper.add_listener(self._connection_changed)
        self._thread = threading.Thread(target=self._run, name="sluice-registry", daemon=True)

    def start(self) -> None:
        """Begin; `seen` follows as soon as ZooKeeper is reached, which is tried until `close`."""
        self._zookeeper.start_async()
        self._thread.start()

    def close(self) -> None:
        """End the session, so that the next consumer has its turn at once."""
        self._closed = True
        self._wake.set()
        client = self._zookeeper
        _end(client)
        if self._thread.ident is not None:
            self._thread.join()
        if self._zookeeper is not client:
            _end(self._zookeeper)

    def doubt(self) -> None:
        """Take the turn for over until ZooKeeper says that it is not: then another one begins."""
        self._change(turn=None)
        self._wake.set()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed:
            wait = None
            if self._zookeeper.connected:
                try:
                    wait = self._read()
                except (kazoo.KazooException, KazooTimeoutError, OSError) as error:
                    logger.info("ZooKeeper (%s) does not answer: %s", self.hosts, type(error).__name__)
                    wait = RETRY
                except Exception:  # whatever it is, without this thread no caller hears of another server again
                    logger.exception("what ZooKeeper (%s) holds cannot be read", self.hosts)
                    wait = RETRY
            elif (lost_at := self._lost_at) is not None:
                if time.monotonic() >= lost_at + self._timeout:
                    self._replace_if_it_went_back()
                wait = self._timeout if not self._zookeeper.connected else 0
            self._wake.wait(wait)
            self._wake.clear()

    def _new_client(self) -> KazooClient:
        client = KazooClient(
            self.hosts,
            timeout=self._timeout,
            connection_retry={"max_tries": -1, "delay": 0.05, "max_delay": 1.0, "ignore_expire": False},
        )
        reject_foreign_answers(client)
        return client

    def _replace_if_it_went_back(self) -> None:
        """Begin a new session if ZooKeeper is without transactions that the old one has seen: it would be refused."""
        client, old = self._new_client(), self._zookeeper
        begun = client.start_async()  # a session is a transaction, so a majority has agreed on it
        deadline = time.monotonic() + self._timeout
        try:
            while not begun.wait(0.1):
                if self._closed or time.monotonic() > deadline:
                    return
            client.exists("/")
            if client.last_zxid < old.last_zxid:
                logger.warning("ZooKeeper (%s) has lost data: a new session begins", self.hosts)
                old.remove_listener(self._connection_changed)
                self._zookeeper, self._lost_at = client, None
                client.add_listener(self._connection_changed)
                self._change(turn=None)
        except kazoo.KazooException as error:
            logger.info("ZooKeeper (%s) does not answer: %s", self.hosts, type(error).__name__)
        finally:
            _end(old if self._zookeeper is client else client)

    def _connection_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._lost_at = None
        elif self._lost_at is None:
            self._lost_at = time.monotonic()
        if state == KazooState.LOST:
            self._change(turn=None)
        self._wake.set()

    def _changed(self, _event: object) -> None:
        self._wake.set()

    def _read(self) -> float | None:
        """Read the nodes, and take the turn if it is free; return after how many seconds to do so again."""
        self._result(self._zookeeper.sync_async("/"))
        urls = self._urls()
        running = self._find(running_node(self._destination))
        servers = tuple(url for url in urls.values() if url)
        self._change(servers=servers, active=urls.get(_text(running, "address")) or None)
        self.was_reached = True
        return self._compete() if self._client_id is not None else None

    def _urls(self) -> dict[str, str]:
        """Return the URLs of the live servers by address; Canal's own have none."""
        if self._result(self._zookeeper.exists_async(SERVERS, self._changed)) is None:
            return {}
        names = sorted(self._result(self._zookeeper.get_children_async(SERVERS, self._changed)))
        return {name: _text(self._find(f"{SERVERS}/{name}"), "url") for name in names}

    def _compete(self) -> float | None:
        assert self._client_id is not None
        path = turn_node(self._destination, self._client_id)
        node, owner = self._find_owned(path)
        if node is None:
            wait = self._held_off - time.monotonic()
            if wait > 0:
                self._change(turn=None)
                return wait
            data = {"active": True, "address": self._address(), "clientId": self._client_id}
            try:
                text = json.dumps(data, separators=(",", ":")).encode()
                self._result(self._zookeeper.create_async(path, text, ephemeral=True, makepath=True))
            except kazoo.NodeExistsError:
                logger.debug("another consumer was faster at %s", path)
            node, owner = self._find_owned(path)
        if owner != self._zookeeper.client_id[0]:
            self._change(turn=None)
            return RETRY if node is None else None
        if node is not None and node.get("active") is False:
            logger.info("told to give up the turn of client %d", self._client_id)
            self._held_off = time.monotonic() + HOLD_OFF
            self._change(turn=None)
            self._result(self._zookeeper.delete_async(path))
            return HOLD_OFF
        if self.seen.turn is None:
            self._turns += 1
            self._change(turn=self._turns)
        return None

    def _result(self, asked: Any) -> Any:
        """Return what ZooKeeper answers: without a connection a call would wait until there is one, maybe for ever."""
        return asked.get(timeout=self._timeout)

    def _find(self, path: str) -> dict[str, Any] | None:
        return self._find_owned(path)[0]

    def _find_owned(self, path: str) -> tuple[dict[str, Any] | None, int]:
        """Return the object in a node, and the session that owns it; the node is watched, also while there is none."""
        if self._result(self._zookeeper.exists_async(path, self._changed)) is None:
            return None, 0
        try:
            data, stat = self._result(self._zookeeper.get_async(path))
        except kazoo.NoNodeError:
            return None, 0
        try:
            found = json.loads(data or b"")  # Java's clients can create a node whose data is null
        except ValueError:
            found = None
        return found if isinstance(found, dict) else {}, stat.ephemeralOwner

    def _address(self) -> str:
        """Return by what address others see this host, and a port that no other consumer of the host has now."""
        reason = OSError()
        for host, port in self._zookeeper.hosts:
            try:
                family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
                with socket.socket(family, kind) as probe:
                    probe.connect(address)
                    here = probe.getsockname()
                    return f"{here[0]}:{here[1]}"
            except OSError as error:  # a server that is gone for good does not keep a caller from the others
                reason = error
        raise reason

    def _change(self, **changes: Any) -> None:
        with self._lock:
            before, self.seen = self.seen, replace(self.seen, **changes)
            if self.seen == before:
                return
        self._hear()


def reject_foreign_answers(client: KazooClient) -> None:
    """Let kazoo drop a connection on which an answer belongs to no call, or to another one than the oldest.

    By itself it raises RuntimeError, which ends its thread: it would never connect again. Dropped, the session goes
    on, and the calls under way end with ConnectionLoss.
    """
    read = client._connection._read_response  # noqa: SLF001

    def reading(header: Any, *rest: Any) -> Any:
        pending = client._pending  # noqa: SLF001
        if not pending or pending[0][2] != header.xid:
            raise kazoo.ConnectionDropped(f"the answer {header.xid} is not that to the oldest call")
        return read(header, *rest)

    client._connection._read_response = reading  # noqa: SLF001


def _end(client: KazooClient) -> None:
    client.stop()
    client.close()


def _text(node: dict[str, Any] | None, key: str) -> str:
    return str((node or {}).get(key) or "")
