"""`sluice` in processes that begin at once: each is a fork of one that has imported what the commands need.

An interpreter takes one to two seconds of CPU to import the server, which most tests are not about. The tests of the
wheel, of the demo and of the pages start `sluice` as a user does.
"""

import contextlib
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import IO, Any, Self

Ended = subprocess.CompletedProcess[str]
"""What has become of a command: its exit status, and what it said."""

_forking = multiprocessing.get_context("forkserver")
# Not `sluice.server.cli`: how wide its output is, is decided by the environment when it is imported.
_forking.set_forkserver_preload(
    [
        "rich.table",
        "rich.progress",
        "sluice.client_sdk",
        "sluice.instance.sources.registry",
        "sluice.server.logging",
        "sluice.server.process",
        "uvloop",
    ]
)


def run(
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    check: bool = False,
    timeout: float = 90,
) -> Ended:
    """Run a command to its end, as `subprocess.run` with captured output does; what takes longer is killed."""
    with Command(*arguments, environ=environ, cwd=cwd) as command:
        try:
            out, err = command.communicate(timeout)
        finally:
            command.kill()
    done = subprocess.CompletedProcess(arguments, command.wait(), out, err)
    if check:
        done.check_returncode()
    return done


class Command:
    """A process that runs `sluice ARGUMENTS`, with those parts of `subprocess.Popen` that tests use.

    `environ` is added to the environment. Without `stdout` and `stderr`, which are open files, there are pipes.
    """

    def __init__(
        self,
        *arguments: str,
        environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdout: IO[Any] | int | None = None,
        stderr: IO[Any] | int | None = None,
    ) -> None:
        self.args = arguments
        self.stdout, out = _pipe(stdout)
        self.stderr, err = _pipe(stderr)
        try:
            self._process = _forking.Process(
                target=_main,
                args=(arguments, os.environ | dict(environ or {}), str(cwd or Path.cwd()), _Outputs(out, err)),
                daemon=True,
            )
            self._process.start()
        finally:
            os.close(out)
            os.close(err)
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status once the end was noticed, negative for a signal."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit status. Raises TimeoutExpired."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read both outputs to their ends and wait for that of the process. Raises TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        found = ["", ""]

        def read(number: int, stream: IO[str]) -> None:
            with stream:
                found[number] = stream.read()

        readers = [
            threading.Thread(target=read, args=(number, stream), daemon=True)
            for number, stream in enumerate((self.stdout, self.stderr))
            if stream is not None and not stream.closed
        ]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join(None if deadline is None else max(deadline - time.monotonic(), 0))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return found[0], found[1]

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile, which is not known here yet
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()


def _pipe(given: IO[Any] | int | None) -> tuple[IO[str] | None, int]:
    """Return what to read of an output, and the number of the file that the process writes to, which we then close."""
    if given == subprocess.DEVNULL:
        return None, os.open(os.devnull, os.O_WRONLY)
    if given is not None:
        return None, os.dup(given if isinstance(given, int) else given.fileno())
    reading, writing = os.pipe()
    return os.fdopen(reading), writing


class _Outputs:
    """Standard output and error on their way to the process, where they are in use as soon as they have arrived."""

    def __init__(self, out: int, err: int) -> None:
        self._numbers = out, err

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return _redirect, tuple(map(DupFd, self._numbers))


def _redirect(*outputs: Any) -> None:
    for number, output in enumerate(outputs, 1):
        arrived = output.detach()
        os.dup2(arrived, number)
        os.close(arrived)


def _main(arguments: tuple[str, ...], environ: dict[str, str], cwd: str, _: None) -> None:
    gc.freeze()  # a collection would look through all that was imported, and so copy the memory that is shared
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup, which may have started the tests, has it ignored
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    os.chdir(cwd)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    sys.argv = ["sluice", *arguments]
    from sluice.server.cli import main

    main()
