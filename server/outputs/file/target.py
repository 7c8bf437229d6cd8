"""Files in a folder as the other side of an output: each change is there once."""

import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from ....protocol.cut import parse_place
from ....store.batch import Batch
from ..kept import Kept, memory_of, read_memory, resume, seek_advice
from ..markers import without_markers
from ..settings import Output
from ..target import DeliveryError, Place, Prepared
from .folder import Folder
from .forms import FORMS
from .settings import FileSettings

PRUNING: Final = 60.0
"""Seconds between two looks for files that are too old."""


class FileTarget:
    """See `Target`."""

    trouble = ""
    statistics: Mapping[str, float] = {}
    keeps_place = True
    takes_transactions = False
    is_ahead = False

    def __init__(self, output: Output, settings: FileSettings) -> None:
        self._output = output
        self._settings = settings
        self._form = FORMS[settings.form]
        self._abandoned = threading.Event()
        name = f"{output.destination}/{output.name}"
        self._folder = Folder(settings.folder, name, settings.compression, self._look)
        self._kept = Kept(None, 0, "")
        self._pruned = 0.0

    def open(self, memory: str, moved: str, epoch: int) -> Place | None:
        """See `Target.open`."""
        self._abandoned.clear()
        advice = partial(seek_advice, self._output.destination, self._output.client_id)
        try:
            found = self._folder.read()
            kept = None if found is None else found.kept
            known = read_memory(memory, moved)
            place, moved = resume(kept, known, epoch, where=str(self._settings.folder), advice=advice)
            self._kept = Kept(place, epoch, moved)
            self._folder.begin(found, self._kept, self._settings.form, is_moved=place is None)
        except OSError as error:
            raise self._failed(error) from error
        return place

    def prepare(self, batch: Batch) -> Prepared:
        """See `Target.prepare`."""
        batch, skipped = without_markers(batch, self._settings.on_marker)
        data = self._form.encode(batch, strict=self._output.strict)
        return Prepared(batch, data, max(batch.rows, 1) if data else 0, len(data), skipped)

    def send(self, batches: Sequence[Prepared], place: Place | None) -> None:
        """See `Target.send`."""
        some = [it for it in batches if it.content]
        if not some:
            return
        self._look()
        self._kept = self._kept._replace(place=place)
        try:
            self._folder.append(
                [*(it.content for it in some), b"" if place is None else self._form.note(place)],
                self._kept,
                from_=some[0].batch.from_,
                rows=sum(it.batch.rows for it in some),
                last_ms=max(it.batch.timestamp for it in some),
                now=time.time(),  # noqa: TID251  it is stored
            )
        except OSError as error:
            raise self._failed(error) from error
        self.idle()

    def memory_before(self, batches: Sequence[Prepared]) -> str | None:
        """See `Target.memory_before`: nothing."""
        del batches
        return None

    def memory_after(self, prepared: Prepared) -> str:
        """See `Target.memory_after`."""
        del prepared
        return memory_of(self._kept.moved)

    def idle(self) -> None:
        """See `Target.idle`: a file may be due to be whole, and others to be deleted."""
        part, settings = self._folder.part, self._settings
        now = time.time()  # noqa: TID251  it is stored
        is_old = part.size > 0 and not 0 <= now - part.begun < settings.file_seconds
        try:
            # Only the files that follow can say what was executed before them.
            is_first = part.gtids != "" and not part.gtids_before
            if (is_old or is_first or part.size >= settings.file_bytes) and (
                is_boundary(part.to) or part.size >= 2 * settings.file_bytes
            ):
                self._folder.finish(settings.form)
            if settings.max_age and not 0 <= now - self._pruned < PRUNING:
                self._pruned = now
                self._folder.prune(now - settings.max_age * 3600.0)
        except OSError as error:
            raise self._failed(error) from error

    def abandon(self) -> None:
        """See `Target.abandon`."""
        self._abandoned.set()

    def losses(self) -> list[str]:
        """See `Target.losses`: nothing is asked again."""
        return []

    def close(self) -> None:
        """See `Target.close`."""
        self._folder.close()

    def _look(self) -> None:
        if self._abandoned.is_set():
            raise DeliveryError("it was stopped")

    def _failed(self, error: OSError) -> DeliveryError:
        return DeliveryError(f"{self._settings.folder} cannot be written: {error}")


def is_boundary(text: str) -> bool:
    """Whether a place is between two transactions, or has no name."""
    position = parse_place(text) if text else None
    return position is None or position == position.transaction
