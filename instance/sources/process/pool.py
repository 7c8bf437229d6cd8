"""The processes that call the function of a destination: batches go in and come out in order, within limits."""

import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Final

from ....protocol.errors import SourceError
from .config import ProcessConfig
from .rows import Failure
from .worker import Request, Result

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

PATIENCE: Final = 120.0
"""Seconds for which a process is waited for that imports the function."""
_PROGRAM: Final = "import sys; from sluice.instance.sources.process.worker import main; main(*sys.argv[1:])"


class ProcessorError(SourceError):
    """The function cannot be used, or its call has failed."""


class EndedError(Exception):
    """A process has ended, or was ended, during a call; why."""


class Worker:
    """A process, started when it is first needed, and again after it has ended."""

    def __init__(self, config: ProcessConfig) -> None:
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        self._stopped = False
        self._began = 0.0

    def start(self) -> None:
        """Start it, and wait until the function is imported. Raises ProcessorError."""
        with self._lock:
            if self._process is not None:
                return
            if self._stopped:
                raise ProcessorError("the destination stops")
            self._connection, of_child = Pipe()
            config, descriptor = self._config, of_child.fileno()
            arguments = (str(descriptor), config.processor, str(config.memory), config.added)
            # -P: nothing is imported from where the server happens to be started. What is printed goes to its log.
            self._process = subprocess.Popen(  # noqa: S603  the program is Python's own
                [sys.executable, "-P", "-c", _PROGRAM, *arguments],
                pass_fds=[descriptor],
                stdin=subprocess.DEVNULL,
                stdout=2,
            )
            of_child.close()
        try:
            wrong = self._receive(PATIENCE, f"{PATIENCE:g} s")
        except EndedError as error:
            raise ProcessorError(f"{config.processor} was not imported: its process {error}") from None
        if wrong:
            self.end()
            raise ProcessorError(f"sluice.processor = {config.processor}: {wrong}")

    def send(self, request: Request) -> None:
        """Let it begin a frame. Raises ProcessorError."""
        self.start()
        self._began = time.monotonic()
        connection = self._connection
        try:
            assert connection is not None
            connection.send(request)
        except OSError:  # the answer says so
            return

    def result(self, request: Request) -> Result:
        """Return what became of the frame that it was sent. Raises ProcessorError."""
        timeout = self._config.timeout
        try:
            result = self._receive(timeout - (time.monotonic() - self._began), self._limit)
            assert isinstance(result, Result)
        except EndedError as error:
            result = Result(error=str(error))
        if not result.error or not self._config.quarantine:
            return result
        return self._single(request._replace(is_single=True))

    def _single(self, request: Request) -> Result:
        """Process a frame entry by entry: one that ends the process is left to a marker."""
        failed: dict[int, str] = {}
        while True:
            self.send(request._replace(failed=failed))
            number = -1
            try:
                while not isinstance(found := self._receive(self._config.timeout, self._limit), Result):
                    number = int(str(found))
            except EndedError as error:
                if number < 0 or number in failed:
                    return Result(error=str(error))
                failed[number] = str(error)
            else:
                return found

    def end(self) -> None:
        """End it; it can be started again."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def stop(self) -> None:
        """Kill it, and never start it again; any thread may call this."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()  # whoever waits for it sees that

    @property
    def _limit(self) -> str:
        return f"{self._config.timeout} s (sluice.processor.timeout)"

    def _receive(self, seconds: float, limit: str) -> object:
        """Return what it says next. Raises EndedError when it says nothing in time, or has ended."""
        connection = self._connection
        try:
            if connection is not None and connection.poll(max(0.0, seconds)):
                return connection.recv()
            text = f"took longer than {limit}, and was ended"
        except (EOFError, OSError, ValueError):
            text = "ended by itself, or by a signal"
        self.end()
        raise EndedError(text)


class Pool:
    """Processes that take frames in turn; one thread calls it, but for `stop`."""

    def __init__(self, config: ProcessConfig) -> None:
        self._config = config
        self._workers = [Worker(config) for _ in range(config.workers)]
        self._next = 0
        self._pending: deque[tuple[Worker, Request]] = deque()

    @property
    def is_busy(self) -> bool:
        """Whether a frame is in work."""
        return bool(self._pending)

    @property
    def is_full(self) -> bool:
        """Whether every process has a frame."""
        return len(self._pending) == len(self._workers)

    def start(self) -> None:
        """Make sure that the function can be used. Raises ProcessorError."""
        self._workers[0].start()

    def add(self, data: bytes) -> None:
        """Let a process begin a frame. Raises ProcessorError."""
        worker = self._workers[self._next]
        request = Request(data, is_single=False, failed={})
        worker.send(request)
        self._next = (self._next + 1) % len(self._workers)
        self._pending.append((worker, request))

    def take(self) -> tuple[bytes, Sequence[Failure]]:
        """Wait for the oldest frame; return it, processed, and the entries that have failed. Raises ProcessorError."""
        worker, request = self._pending.popleft()
        result = worker.result(request)
        if result.error:
            raise ProcessorError(f"{self._config.processor} has failed: {result.error}")
        return result.data, result.failures

    def drop(self) -> None:
        """Forget the frames that are in work."""
        for worker, _ in self._pending:
            worker.end()
        self._pending.clear()

    def stop(self) -> None:
        """Kill the processes, and start no more; any thread may call this."""
        for it in self._workers:
            it.stop()

    def close(self) -> None:
        """End the processes."""
        for it in self._workers:
            it.end()
