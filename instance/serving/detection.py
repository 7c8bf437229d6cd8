"""Whether a source lives: it is asked again and again, apart from what is read of it."""

import logging
import threading
import time
from collections.abc import Callable

from ...protocol.errors import SluiceError
from ..config import Probing

logger = logging.getLogger(__name__)


class Detection:
    """Asks a source in a thread of its own: one that does not answer holds up nothing else."""

    def __init__(
        self, destination: str, probing: Probing, probe: Callable[[], None], on_down: Callable[[], None]
    ) -> None:
        """``probe`` raises SluiceError when it gets no answer; ``on_down``, called in the thread, is to act on it.

        That is called again after each further failure.
        """
        self.failures = 0
        """How often in a row the source did not answer."""
        self.failure = ""
        """Why not, the last time."""
        self._probing = probing
        self._probe = probe
        self._on_down = on_down
        self._where = {"destination": destination}
        self._stopping = threading.Event()
        self._start()

    def stop(self) -> None:
        """Tell the thread to end, and return at once; a question that is asked may still take its time."""
        self._stopping.set()

    def _start(self) -> None:
        name = f"detect {self._where['destination']}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopping.wait(max(0.0, due - time.monotonic())):
            due = time.monotonic() + self._probing.interval
            self._ask()

    def _ask(self) -> None:
        try:
            self._probe()
        except SluiceError as error:
            if not self._stopping.is_set():
                self._failed(str(error))
        except Exception as error:
            logger.exception("the health check of the source failed", extra=self._where)
            self._failed(f"{type(error).__name__}: {error}")
        else:
            if self.failures > self._probing.most:
                logger.warning("the source answers again", extra=self._where)
            self.failures, self.failure = 0, ""

    def _failed(self, text: str) -> None:
        self.failures, self.failure = self.failures + 1, text
        if self.failures == self._probing.most + 1:
            what = "" if self._probing.switches else "; canal.instance.detecting.heartbeatHaEnable would switch it"
            logger.warning(
                "the source did not answer %d times in a row: %s%s", self.failures, text, what, extra=self._where
            )
        if self.failures > self._probing.most:
            self._on_down()
