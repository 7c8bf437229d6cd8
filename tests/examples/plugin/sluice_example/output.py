"""An output that appends records to a file, each once: what counts of the file is in another file beside it."""

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sluice.server.outputs.api import (
    RECORDS,
    Batch,
    DeliveryError,
    FolderPath,
    RecordSettings,
    RejectedError,
    setting,
)


class JournalSettings(RecordSettings):
    """What can be configured of the output."""

    file: FolderPath = setting("sluice.output.<name>.file", Path("journal"))
    """The file that grows by a line for each record."""


class Journal:
    """Writes the value of each record as a line."""

    api = 1
    settings = JournalSettings
    format = RECORDS
    exactly_once = True

    def __init__(self, settings: JournalSettings, identity: str) -> None:
        self._file = settings.file
        self._state = settings.file.with_name(f"{settings.file.name}.state")
        self._mine: dict[str, Any] = {}
        self._abandoned = False

    def check(self) -> str:
        """Say whether the folder can be written."""
        if not os.access(self._file.parent, os.W_OK):
            raise RejectedError(f"{self._file.parent} cannot be written: create it, or grant it to this user")
        return f"{self._file} can be written"

    def open(self, epoch: int) -> str | None:
        """Make the file ours: each `open` has a number, and who wrote it last is the owner."""
        self._abandoned = False
        with self._locked():
            state = self._read()
            if state["epoch"] > epoch:
                raise RejectedError(f"{self._file} is written in epoch {state['epoch']}, and this is epoch {epoch}")
            self._write({**state, "epoch": epoch, "opened": state["opened"] + 1})
        return state["place"] or None

    def send(self, batches: Sequence[Batch], place: str) -> None:
        """Append lines, and then say in the other file that they count, with the place."""
        with self._locked():
            if self._abandoned or self._read() != self._mine:
                raise DeliveryError(f"{self._file} is not open, or belongs to another process by now")
            with self._file.open("ab") as file:
                file.truncate(self._mine["size"])  # without what a process wrote that died before it counted
                for batch in batches:
                    file.writelines(record.value + b"\n" for record in batch.records)
                file.flush()
                os.fsync(file.fileno())
                size = os.fstat(file.fileno()).st_size
            self._write({**self._mine, "size": size, "place": place})

    def abandon(self) -> None:
        """Nothing waits for long here; the next `send` has to fail."""
        self._abandoned = True

    def close(self) -> None:
        """Nothing is open between two calls."""
        self._mine = {}

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with self._state.with_suffix(".lock").open("wb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise DeliveryError(f"{error.filename or self._file}: {error.strerror}") from error

    def _read(self) -> dict[str, Any]:
        if not self._state.exists():
            return {"size": 0, "place": "", "epoch": 0, "opened": 0}
        found: dict[str, Any] = json.loads(self._state.read_text())
        return found

    def _write(self, state: dict[str, Any]) -> None:
        new = self._state.with_suffix(".new")
        with new.open("w") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._state)
        folder = os.open(self._state.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        self._mine = state


def read(file: Path) -> bytes:
    """Return what counts of a journal."""
    state = file.with_name(f"{file.name}.state")
    return file.read_bytes()[: json.loads(state.read_text())["size"]] if state.exists() else b""
