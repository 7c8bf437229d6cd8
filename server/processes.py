"""Several processes of one server: which of them has which destination, and what starts them and starts them again."""

import asyncio
import contextlib
import logging
import os
import signal
import threading
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

logger = logging.getLogger(__name__)

MOST = 64
"""Processes of a server: the ports of HTTP and those of Canal's clients are 69 apart by default."""
SHORTEST, LONGEST = 1.0, 30.0
"""Seconds before a process that has ended is started again; each time twice as many."""
STEADY = 60.0
"""Seconds after which a process counts as one that runs: when it ends then, it is started again soon."""
STOP_SECONDS = 10.0
"""For which processes may take to stop; they need 5."""


@dataclass(frozen=True, slots=True)
class Share:
    """The destinations that one of ``count`` processes has, the one with ``number``, from 0."""

    number: int
    count: int

    def holder(self, destination: str) -> int:
        """Return the number of the process that has a destination: by its name alone, so that all know it."""
        return zlib.crc32(destination.encode()) % self.count


ALL = Share(0, 1)
"""Of the only process."""


async def supervise(commands: Sequence[Sequence[str]], files: Sequence[int] = ()) -> None:
    """Run commands until SIGINT or SIGTERM; start one that ends again.

    Each inherits the files with these descriptors, and gets a pipe as its standard input that nothing is written to,
    and that ends with this process: see `end_with_supervisor`.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for reason in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(reason, stopping.set)
    async with asyncio.TaskGroup() as group:
        for number, command in enumerate(commands):
            group.create_task(_keep(number, command, files, stopping), name=f"process {number}")


async def _keep(number: int, command: Sequence[str], files: Sequence[int], stopping: asyncio.Event) -> None:
    """Run one process until all are to stop."""
    pause = SHORTEST
    while not stopping.is_set():
        begin = time.monotonic()
        try:
            what = await _run(number, command, files, stopping)
        except OSError as error:  # the others serve on
            what = f"not started: {error}"
        if stopping.is_set():
            return
        pause = SHORTEST if time.monotonic() - begin > STEADY else pause
        logger.error("process %d has %s; it starts again in %.0f s", number, what, pause)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), pause)
        pause = min(2 * pause, LONGEST)


async def _run(number: int, command: Sequence[str], files: Sequence[int], stopping: asyncio.Event) -> str:
    """Run one process until it ends, and say how, or until all are to stop. Raises OSError if it cannot be started."""
    # Ctrl-C goes to all processes of a terminal's session: they are told once, from here.
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, pass_fds=files, start_new_session=True
    )
    ending = asyncio.create_task(process.wait())
    told = asyncio.create_task(stopping.wait())
    await asyncio.wait((ending, told), return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if stopping.is_set():
        await _stop(process, number)
    return _how(await ending)


async def _stop(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    except TimeoutError:
        logger.error("process %d has not stopped within %.0f s: it is killed", number, STOP_SECONDS)  # noqa: TRY400
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _how(code: int) -> str:
    names = {it.value: it.name for it in signal.Signals}
    return f"ended with status {code}" if code >= 0 else f"been ended by {names.get(-code, f'signal {-code}')}"


def end_with_supervisor() -> None:
    """Stop this process in good order, as SIGTERM does, when its standard input ends: its supervisor is gone then.

    If it takes too long to stop, it is killed, as its supervisor would do.
    """

    def wait() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(STOP_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="supervisor", daemon=True).start()
