"""Processes that do one job each, without a word: they are ended when it takes too long, or their parent ends."""

import ctypes
import os
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

FAILED = 77
"""The exit status of a process whose work has raised an exception."""
LOOK = 0.02
"""Seconds between two looks at the processes that run."""

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

T = TypeVar("T")


def adopt_orphans() -> None:
    """Let what a process leaves behind become a child of this one, so that `run_all` ends it."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _fork(work: Callable[[], int], seconds: float) -> int:
    """Do some work in a process of its own that says nothing and ends with this one; return its id.

    It is ended by the system when it has computed for `seconds` seconds.
    """
    if child := os.fork():
        return child
    code = FAILED
    try:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        tempfile.tempdir = os.environ["PYTEST_DEBUG_TEMPROOT"] = str(_temporary(os.getpid()))
        _temporary(os.getpid()).mkdir()
        code = work()
    finally:
        os._exit(code)


def _temporary(process: int) -> Path:
    """Return the folder for what a process leaves behind: a short name, for the sockets in it."""
    return Path("/tmp", f"mutant{process}")


@dataclass
class _Running(Generic[T]):
    """What a process does, and how many seconds it may sleep. To wait for a processor does not count."""

    what: T
    seconds: float


def run_all(jobs: Iterable[tuple[T, Callable[[], int], float]], done: Callable[[T, int], None], places: int) -> None:
    """Run jobs in processes, some at a time; each may compute, and sleep, for its seconds, and is killed then."""
    running: dict[int, _Running[T]] = {}
    for what, work, seconds in jobs:
        if len(running) == places:
            _await_one(running, done)
        running[_fork(work, seconds)] = _Running(what, seconds)
    while running:
        _await_one(running, done)


def _await_one(running: dict[int, _Running[T]], done: Callable[[T, int], None]) -> None:
    """Wait until one of the processes has ended; kill those that sleep too long."""
    while True:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child in running:
            break
        for process, it in running.items():
            it.seconds -= LOOK if _sleeps(process) else 0.0
            if it.seconds < 0:
                os.kill(process, signal.SIGKILL)
        time.sleep(LOOK)
    for orphan in Path("/proc/self/task", str(os.getpid()), "children").read_text().split():
        if int(orphan) not in running:  # it was started by the one that has ended, and left behind
            os.kill(int(orphan), signal.SIGKILL)
    shutil.rmtree(_temporary(child), ignore_errors=True)
    done(running.pop(child).what, os.waitstatus_to_exitcode(status))


def _sleeps(process: int) -> bool:
    """Whether a process waits for something else than a processor."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "S"
