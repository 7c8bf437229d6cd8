"""When the batches of a stream are acked."""

import math
import time

from .batch import Batch

ACK_EVERY = 0.05  # seconds within which the batches of a stream may share an ack
PAUSE = 0.005  # seconds without a further batch after which those that are done are acked


class Done:
    """The batches of a stream that are done and not acked yet: acks that would follow one another closely go as one."""

    def __init__(self, window: int) -> None:
        self.generation = 0
        """They belong to it."""
        self._most = max(window // 2, 1)
        self._batches: list[Batch] = []
        self._last = -math.inf

    def add(self, batch: Batch) -> bool:
        """Add one; whether it is time to ack."""
        if not batch.acked:
            self._batches.append(batch)
        return len(self._batches) >= self._most or time.monotonic() > self._last + ACK_EVERY

    def __bool__(self) -> bool:
        self._batches = [it for it in self._batches if not it.acked]
        return bool(self._batches)

    def take(self) -> list[Batch]:
        """Take what is to be acked."""
        batches, self._batches = self._batches, []
        self._last = time.monotonic()
        return batches
