"""A session with ZooKeeper for asyncio. The server's only module that knows kazoo, which runs in threads of its own."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as kazoo
from kazoo.client import KazooClient, KazooState
from kazoo.protocol.serialization import Connect

from ...client_sdk.zookeeper import reject_foreign_answers
from ...instance.meta.nodes import (
    BadVersionError,
    Check,
    Create,
    Delete,
    Node,
    NodeError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Put,
    SessionExpiredError,
    UnknownOutcomeError,
    Watch,
)
from ...protocol.errors import ZooKeeperError

logger = logging.getLogger(__name__)
ATTEMPTS = logging.getLogger("kazoo.attempts")
"""Where kazoo tells of each attempt to connect; the user of the session says once that the connection is lost."""
ATTEMPTS.setLevel(logging.ERROR)

NODE_ERRORS: tuple[tuple[type[Exception], type[NodeError], str], ...] = (
    (kazoo.NoNodeError, NoNodeError, "is not there"),
    (kazoo.NodeExistsError, NodeExistsError, "is there already"),
    (kazoo.BadVersionError, BadVersionError, "has been changed meanwhile"),
    (kazoo.NotEmptyError, NotEmptyError, "has children"),
)
IN_FLIGHT = 100
"""Calls that ZooKeeper is asked for before the first of them is answered; it takes 1000 of all its clients together
(globalOutstandingLimit)."""
UNKNOWN = (kazoo.ConnectionLoss, kazoo.OperationTimeoutError, kazoo.SessionMovedError, kazoo.RequestTimeoutError)


class ZooKeeperSession:
    """One session, from `connect` until it expires or is closed; it is never continued by another.

    Close also one that has expired: until then kazoo goes on with a session that is not wanted.
    All methods belong to one event loop. See `sluice.instance.meta.nodes.Session` for what they raise.
    """

    def __init__(self, hosts: str, timeout: float, on_connected: Callable[[bool], None] | None = None) -> None:
        """Nothing runs before `connect`.

        Args:
            hosts: ``host:port,host:port``, also with semicolons, as in Canal; perhaps with a path, under which all is.
            timeout: seconds of silence after which ZooKeeper should end the session; it may choose another.
            on_connected: called in the loop when the connection is lost (False) and found again (True).
        """
        self.hosts = hosts.replace(";", ",")
        self.timeout = timeout
        """Seconds of silence after which ZooKeeper ends the session, as it has said."""
        self.session_id = 0
        self._on_connected = on_connected
        self._loop = asyncio.get_running_loop()
        self._looking: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._begun = asyncio.Event()
        self._ended = False  # guarded by the lock: set in kazoo's thread before kazoo makes another session
        self._lock = threading.Lock()
        self._in_flight = asyncio.Semaphore(IN_FLIGHT)  # first come, first served: the order of the calls is kept
        self._client = KazooClient(
            self.hosts,
            timeout=timeout,
            connection_retry={"max_tries": -1, "delay": 0.05, "max_delay": 1.0},
            logger=ATTEMPTS,
        )
        # A server that is silent may not cost the session: kazoo waits for it as long as it wants the session to last.
        parts = len(self._client.hosts) + 1
        connect, invoke = self._client.handler.create_connection, self._client._connection._invoke  # noqa: SLF001

        def connecting(*address: Any, **arguments: Any) -> Any:
            return connect(*address, **{**arguments, "timeout": self.timeout / parts})

        def invoking(limit: float, request: Any, *rest: Any) -> Any:
            if not isinstance(request, Connect):
                return invoke(limit, request, *rest)
            answer = invoke(self.timeout / parts if request.session_id else limit, request, *rest)
            if answer[0].time_out > 0:  # nothing else tells the timeout that was agreed on
                self._note(answer[0].time_out / 1000, answer[0].session_id)
            return answer

        reject_foreign_answers(self._client)
        self._client.handler.create_connection = connecting
        self._client._connection._invoke = invoking  # noqa: SLF001
        self._client.add_listener(self._state_changed)

    async def connect(self) -> None:
        """Return when ZooKeeper has given a session; as long as it cannot be reached, go on trying."""
        self._client.start_async()
        await self._begun.wait()

    @property
    def over(self) -> bool:
        """Whether the session has expired or was closed."""
        return self._over.is_set()

    @property
    def zxid(self) -> int:
        """The number of the last transaction of ZooKeeper that the session has seen."""
        return int(self._client.last_zxid)

    async def wait_until_over(self) -> None:
        """Return when the session has expired or was closed."""
        await self._over.wait()

    async def close(self) -> None:
        """End the session: ZooKeeper drops its ephemeral nodes at once, if it can be told so within 2 s."""
        with self._lock:
            self._ended = True
        self._look_no_more()
        await self._stop()
        self._over.set()

    # --- calls -------------------------------------------------------------------------------------------------------

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """Read a node. Raises NoNodeError; it is then not watched."""
        data, stat = await self._call(path, lambda: self._client.get_async(path, self._watcher(watch)))
        data = data or b""  # Java's clients can create a node whose data is null
        return Node(data, stat.version, stat.ephemeralOwner, stat.czxid, stat.mzxid)

    async def find(self, path: str, watch: Watch | None = None) -> Node | None:
        """Read a node; None when there is none, which is watched too."""
        while True:
            with contextlib.suppress(NoNodeError):
                return await self.get(path, watch)
            if await self._call(path, lambda: self._client.exists_async(path, self._watcher(watch))) is None:
                return None

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of a node's children, sorted. Raises NoNodeError."""
        return sorted(await self._call(path, lambda: self._client.get_children_async(path, self._watcher(watch))))

    async def ensure(self, path: str) -> None:
        """Create a node, and those above it, that stay and hold nothing, unless they are there."""
        try:
            await self._call(path, lambda: self._client.ensure_path_async(path))
        except NoNodeError as error:
            raise ZooKeeperError(f"ZooKeeper ({self.hosts}) has no {self._client.chroot or path}: create it") from error

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        """Create a node. Raises NodeExistsError, and NoNodeError when its parent is not there."""
        await self._call(path, lambda: self._client.create_async(path, data, ephemeral=ephemeral))

    async def set(self, path: str, data: bytes, version: int = -1) -> int:
        """Set the data of a node and return its new version. Raises NoNodeError, BadVersionError."""
        stat = await self._call(path, lambda: self._client.set_async(path, data, version))
        return int(stat.version)

    async def delete(self, path: str, version: int = -1) -> None:
        """Delete a node. Raises NoNodeError, BadVersionError, NotEmptyError."""
        await self._call(path, lambda: self._client.delete_async(path, version))

    async def sync(self) -> None:
        """Return when what all others have done until now is seen by the calls that follow."""
        await self._call("/", lambda: self._client.sync_async("/"))

    async def commit(self, operations: Sequence[Operation]) -> list[int | None]:
        """Do all or nothing; return the new version of each node that was set, None for the others.

        Raises NodeError of the first operation that fails.
        """
        request = self._client.transaction()
        for operation in operations:
            match operation:
                case Check(path, version):
                    request.check(path, version)
                case Put(path, data, version):
                    request.set_data(path, data, version)
                case Create(path, data, ephemeral):
                    request.create(path, data, ephemeral=ephemeral)
                case Delete(path, version):
                    request.delete(path, version)
        results = await self._call("", request.commit_async)
        for operation, result in zip(operations, results, strict=True):
            if isinstance(result, Exception) and not isinstance(result, kazoo.RolledBackError):
                raise self._translated(result, operation.path) from result
        return [getattr(result, "version", None) for result in results]

    async def _call(self, path: str, submit: Callable[[], Any]) -> Any:
        """Submit a call to kazoo, and wait for the answer; without a connection it waits until there is one again."""
        async with self._in_flight:
            future: asyncio.Future[Any] = self._loop.create_future()
            with self._lock:
                if self._ended:
                    raise SessionExpiredError(f"the session {self.session_id:#x} with ZooKeeper is over")
                result = submit()

            def answered(_result: Any) -> None:
                with contextlib.suppress(RuntimeError):  # the loop has ended, and so has the wait
                    self._loop.call_soon_threadsafe(self._settle, future, result)

            result.rawlink(answered)
            try:
                return await future
            except kazoo.KazooException as error:
                raise self._translated(error, path) from error

    @staticmethod
    def _settle(future: "asyncio.Future[Any]", result: Any) -> None:
        if future.done():
            return
        if result.exception is not None:
            future.set_exception(result.exception)
        else:
            future.set_result(result.value)

    def _translated(self, error: Exception, path: str) -> ZooKeeperError:
        for kind, ours, text in NODE_ERRORS:
            if isinstance(error, kind):
                return ours(f"{path} {text} in ZooKeeper", path)
        if isinstance(error, kazoo.SessionExpiredError):
            return SessionExpiredError(f"the session {self.session_id:#x} with ZooKeeper is over")
        if isinstance(error, UNKNOWN):
            return UnknownOutcomeError(f"the connection to ZooKeeper ({self.hosts}) was lost")
        return ZooKeeperError(f"ZooKeeper ({self.hosts}) refuses {path or 'a transaction'}: {type(error).__name__}")

    def _watcher(self, watch: Watch | None) -> Callable[[object], None] | None:
        if watch is None:
            return None

        def changed(_event: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and so has the watch
                self._loop.call_soon_threadsafe(watch)

        return changed

    # --- the life of the session -------------------------------------------------------------------------------------

    def _note(self, timeout: float, session_id: int) -> None:
        with self._lock:
            if not self._ended:
                self.timeout, self.session_id = timeout, session_id

    def _state_changed(self, state: str) -> None:
        """Take notice of a change, in kazoo's thread, which goes on only then."""
        with self._lock:
            if self._ended:
                return
            self._ended = state == KazooState.LOST
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._follow, state)

    def _follow(self, state: str) -> None:
        self._look_no_more()
        if state == KazooState.LOST:
            logger.warning("the session %#x with ZooKeeper has expired", self.session_id)
            self._over.set()
            return
        self._begun.set()
        if state == KazooState.SUSPENDED and not self._over.is_set():
            self._looking = self._loop.create_task(self._look_whether_it_went_back(), name="look at ZooKeeper")
        if self._on_connected is not None:
            self._on_connected(state == KazooState.CONNECTED)

    def _look_no_more(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def _look_whether_it_went_back(self) -> None:
        """End the session when ZooKeeper is without transactions that it has seen: it would be refused for ever."""
        while True:
            await asyncio.sleep(self.timeout)
            zxid = await self._current_zxid()
            if zxid is not None and zxid < self.zxid:
                break
        logger.warning(
            "ZooKeeper (%s) has lost data: its last transaction is %#x, and the session %#x has seen %#x",
            self.hosts,
            zxid,
            self.session_id,
            self.zxid,
        )
        with self._lock:
            self._ended = True
        self._over.set()

    async def _current_zxid(self) -> int | None:
        """Return the number of the last transaction of ZooKeeper; None when it gives no session now."""
        other = ZooKeeperSession(self.hosts, self.timeout)  # that is a transaction, so a majority has agreed on it
        try:
            async with asyncio.timeout(self.timeout):
                await other.connect()
                await other.sync()
                return other.zxid
        except (TimeoutError, ZooKeeperError):
            return None
        finally:
            await other.close()

    async def _stop(self) -> None:
        """Stop kazoo; its threads end with the process if ZooKeeper does not let go of them."""
        stopped = asyncio.Event()

        def stop() -> None:
            self._stop_client()
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(stopped.set)

        threading.Thread(target=stop, name="close ZooKeeper session", daemon=True).start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                await stopped.wait()

    def _stop_client(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except kazoo.KazooException as error:
            logger.warning("the session %#x with ZooKeeper did not end properly: %s", self.session_id, error)
