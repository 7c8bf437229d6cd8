"""Tries an output as a delivery would use it, and worse: kills, former owners, sends that are abandoned."""

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from ...protocol.errors import SluiceError
from ..outputs.api import API, OutputKind, OutputSettings
from ..outputs.plugin.kind import check_kind
from ..outputs.plugin.target import PluginTarget
from ..outputs.settings import Output
from .changes import batch, number_at, place_after
from .faults import BrokenError, Fault, bounded, broken

KILLS: Final = 8
LARGE: Final = 4 << 20
"""Bytes of a large row."""
UNDER_WAY: Final = 5
"""Rows of a send that a kill meets."""
ENDING: Final = 2.0
"""Seconds after which an abandoned call has to have ended."""


def output_faults(
    kind: OutputKind, settings: OutputSettings, read: Callable[[], Sequence[int]], *, seed: int = 0
) -> list[Fault]:
    """Try an output; return what is wrong, nothing if all is well.

    Args:
        kind: the class that the entry point names.
        settings: its settings, of a target that is empty. Rows are written to it, about 10 MiB in all.
        read: returns the column ``id`` of all rows that a reader of the target sees now, in their order. Processes that
            write to it were killed before.
        seed: of the moments of kills.
    """
    version = getattr(kind, "api", None)
    if version != API:
        return [Fault("api", f"it is written for version {version!r} of the interface, and this is version {API}")]
    try:
        check_kind("of the trial", kind)
    except SluiceError as error:
        return [Fault("class", str(error))]
    return list(_Trial(kind, settings, read, seed).faults())


class _Trial:
    """An output whose target has the rows from 0 to before `sent`, if it keeps its promises."""

    def __init__(
        self, kind: OutputKind, settings: OutputSettings, read: Callable[[], Sequence[int]], seed: int
    ) -> None:
        self._kind, self._settings, self._read = kind, settings, read
        self._random = random.Random(seed)  # noqa: S311
        self._epoch = 0
        self._sent = 0
        self._acked = 0
        self._memory = ""

    def faults(self) -> Iterator[Fault]:
        """Try each promise; after one that was not kept, the others are tried only as far as they make sense."""
        trials: dict[str, Callable[[], None]] = {
            "check": self._try_check,
            "order": self._try_order,
            "large": self._try_large,
            "restart": self._try_restart,
            "rollback": self._try_rollback,
            "abandon": self._try_abandon,
            "kill": self._try_kills,
        }
        if self._kind.exactly_once:
            trials["fencing"] = self._try_fencing
        for promise, run in trials.items():
            yield from broken(promise, run)
            self._begin_anew()

    # --- the promises

    def _try_check(self) -> None:
        """`check` changes nothing."""
        before = list(self._read())
        bounded(self._make().check)
        if list(self._read()) != before:
            raise BrokenError("`check` has changed what readers see")

    def _try_order(self) -> None:
        """All that is confirmed is there, once, in order: of a batch, of several, and of none."""
        target = self._open()
        self._send(target, 1)
        self._send(target, 3, 2, 1)
        self._send(target)
        self._send(target, 0)
        self._send(target, 100)
        bounded(target.close)
        self._compare()

    def _try_large(self) -> None:
        """A large row, and many rows at once."""
        target = self._open()
        self._send(target, 1, size=LARGE)
        self._send(target, 2000)
        bounded(target.close)
        self._compare()

    def _try_restart(self) -> None:
        """It goes on where it was, in another epoch and in the same one."""
        for _ in range(3):
            target = self._open()
            self._send(target, 2)
            bounded(target.close)
        target = self._make()
        self._resume(target, self._epoch)
        self._send(target, 1)
        bounded(target.close)
        self._compare()

    def _try_rollback(self) -> None:
        """What was confirmed, and acked too late, is there once, or comes again as a whole."""
        target = self._open()
        self._send(target, 2)
        acked = self._acked
        self._send(target, 3, 1)
        bounded(target.close)
        self._acked = acked
        target = self._open()
        self._send(target, 4)
        bounded(target.close)
        self._compare()

    def _try_abandon(self) -> None:
        """A send that is abandoned ends, and so does the next one; after an `open` all goes on."""
        target = self._open()
        ended = threading.Event()

        def send() -> None:
            with contextlib.suppress(SluiceError):
                while not ended.is_set():
                    self._send(target, 50)
            ended.set()

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        time.sleep(0.05)
        bounded(target.abandon, 0.5)
        if not ended.wait(ENDING):
            ended.set()
            raise BrokenError(f"sends go on, or wait, {ENDING:g} s after `abandon`")
        sender.join(ENDING)
        bounded(target.close)
        target = self._open()
        self._send(target, 50)
        bounded(target.close)
        self._compare()

    def _try_kills(self) -> None:
        """What was confirmed survives SIGKILL; with `exactly_once` nothing is there twice."""
        for _ in range(KILLS):
            self._epoch += 1
            self._live_and_die(self._random.randrange(1, 6), self._random.random() / 200)
            target = self._open()
            self._send(target, UNDER_WAY)
            bounded(target.close)
            self._compare()

    def _try_fencing(self) -> None:
        """A former owner changes nothing, whether its epoch is earlier or the same."""
        former = self._open()
        former_epoch = self._epoch
        for same in (True, False):
            owner = self._make()
            self._epoch += not same
            self._resume(owner, self._epoch)
            try:
                bounded(partial(former.send, [former.prepare(batch(10**9, 1))], place_after(10**9 + 1)))
            except SluiceError:
                pass
            else:
                raise BrokenError("a former owner can send after another one has opened the output")
            self._send(owner, 1)
            bounded(former.close)
            self._compare()
            if not same:
                try:
                    bounded(partial(self._make().open, self._memory, "", former_epoch))
                except SluiceError:
                    self._send(owner, 1)
                else:
                    raise BrokenError("`open` of an earlier epoch is not refused")
            bounded(owner.close)
            former, former_epoch = self._open(), self._epoch
        bounded(former.close)
        self._compare()

    # --- inside

    def _make(self) -> PluginTarget:
        return PluginTarget(Output("conformance", "trial", self._settings, shared=True), self._kind)

    def _open(self) -> PluginTarget:
        self._epoch += 1
        target = self._make()
        self._resume(target, self._epoch)
        return target

    def _resume(self, target: PluginTarget, epoch: int) -> None:
        """Open it, and find out where it goes on, as a delivery does."""
        place = bounded(partial(target.open, self._memory, "", epoch))
        if place is not None:
            if number_at(place) < self._acked:
                raise BrokenError(f"its place is before row {number_at(place)}, and {self._acked - 1} was confirmed")
            self._acked = number_at(place)
        if self._acked > self._sent:
            raise BrokenError(f"its place is after row {self._acked - 1}, and {self._sent - 1} was the last one sent")
        if self._kind.exactly_once and place is None and self._memory:
            raise BrokenError("`open` returns no place, although one was sent")
        self._sent = self._acked

    def _send(self, target: PluginTarget, *counts: int, size: int = 0) -> None:
        """Send batches with these counts of rows, and ack them."""
        first, prepared = self._sent, []
        for count in counts:
            prepared.append(target.prepare(batch(first, count, size)))
            first += count
        self._sent = max(self._sent, first)
        bounded(partial(target.send, prepared, place_after(first)))
        self._acked = first
        for it in prepared:
            self._memory = target.memory_after(it)

    def _compare(self) -> None:
        """Raise BrokenError unless readers see what was sent."""
        found = list(bounded(self._read))
        if not self._kind.exactly_once:
            found = _without_repetitions(found)
        wanted = range(self._acked)
        if found == list(wanted):
            return
        missing = sorted(set(wanted) - set(found))
        twice = len(found) - len(set(found))
        foreign = sorted(set(found) - set(wanted))
        parts = [f"{len(missing)} rows are missing, the first is {missing[0]}"] if missing else []
        parts += [f"{twice} rows are there twice"] if twice else []
        parts += [f"{len(foreign)} rows are there that nobody confirmed, the first is {foreign[0]}"] if foreign else []
        raise BrokenError("; ".join(parts) or "rows are not in their order")

    def _live_and_die(self, batches: int, later: float) -> None:
        """Send in another process that is killed after ``batches`` batches, in the middle of the next one."""
        out, into = os.pipe()
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                target = self._make()
                self._resume(target, self._epoch)
                os.write(into, f"{self._acked}\n".encode())
                while True:
                    self._send(target, 3, UNDER_WAY - 3)
                    os.write(into, f"{self._acked}\n".encode())
            os._exit(1)
        os.close(into)
        try:
            with os.fdopen(out) as lines:
                seen = [line for _, line in zip(range(batches + 1), lines, strict=False)]
                time.sleep(later)
                os.kill(child, signal.SIGKILL)
                seen += lines.readlines()
        finally:
            os.waitpid(child, 0)
        if len(seen) <= batches:
            raise BrokenError("a process of its own could not send")
        confirmed = int(seen[-1])
        self._acked = self._sent = confirmed
        if self._kind.exactly_once:
            self._memory = self._memory or "{}"
            self._sent = confirmed + UNDER_WAY  # what was under way may be there, too

    def _begin_anew(self) -> None:
        """Take the target as it is: what is wrong with it was said."""
        with contextlib.suppress(Exception):
            found = list(self._read())
            self._sent = self._acked = max([-1, *found]) + 1


def _without_repetitions(found: Sequence[int]) -> list[int]:
    """Return numbers without those that came again: after each restart some of the last ones may."""
    kept: list[int] = []
    for number in found:
        if not kept or number > kept[-1]:
            kept.append(number)
    return kept
