"""The folder of an output: whole files, each with its index, and beside them the part that grows, and the place.

::

    0000000007-12.jsonl.zst         the whole file 7, begun in epoch 12 of the destination; it has its name once synced
    0000000007-12.index             JSON: what the file has; it counts once this is there
    .sluice/0000000008-12.part      what will be file 8
    .sluice/owner                   whose folder it is: destination/output
    .sluice/place-12                JSON: how far the output has come, and how many bytes of the part count

The place is replaced as a whole, by renaming, after the part is synced. So a process that was killed finds the place,
cuts the part at the bytes that count, and goes on. Whatever an owner writes has its epoch in its name. A new owner
continues in a copy of the part: what a former one may still write is never read, and the place of the greatest epoch
counts.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Self

from ....instance.files import make_private_folder, open_private
from ....store.archive import SUFFIX, Index
from ....store.folder import sync_folder
from ..kept import Kept
from ..target import DeliveryError, Place, RejectedError
from .forms import FORMS, copy
from .settings import Compression, FileFormat

STATE: Final = ".sluice"
_PLACE: Final = re.compile(r"place-(\d{1,18})")
_FILE: Final = re.compile(r"(\d{10,18})-(\d{1,18})(\..+)")


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a file: what of it counts."""

    number: int
    epoch: int
    form: str
    size: int = 0
    """Bytes that count."""
    rows: int = 0
    from_: str = ""
    """The place before the first change; empty before there is one."""
    gtids_before: str = ""
    """The GTIDs that were executed there; empty if unknown."""
    to: str = ""
    """The place after the last change; empty if it has no name."""
    gtids: str = ""
    """The GTIDs that were executed there."""
    last_ms: int = 0
    """The latest time of a change, ms since 1970."""
    begun: float = 0.0
    """When its first change was written, Unix time."""

    @property
    def stem(self) -> str:
        """What the names of its files begin with."""
        return f"{self.number:010}-{self.epoch}"


@dataclass(frozen=True, slots=True)
class Record:
    """What `place-EPOCH` has."""

    output: str
    """Whose folder it is: ``destination/output``."""
    kept: Kept
    part: Part

    def __str__(self) -> str:
        return json.dumps({"output": self.output, "kept": str(self.kept), "part": asdict(self.part)})

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Read the text form. Raises ValueError for anything else."""
        try:
            found = json.loads(text)
            part = Part(**found["part"])
            if part.form not in FORMS or part.size < 0 or part.number < 1:
                raise ValueError(f"no part of a file: {part}")
            return cls(str(found["output"]), Kept.parse(found["kept"]), part)
        except (KeyError, TypeError, RecursionError, UnicodeDecodeError) as error:
            raise ValueError(f"not one of Sluice: {text[:200]!r}") from error


class Folder:
    """The folder of one output. One thread calls it; every method raises OSError.

    Args:
        path: the folder.
        output: whose it is: ``destination/output``.
        compression: of whole files.
        pause: is called during what takes long, and may raise.
    """

    def __init__(self, path: Path, output: str, compression: Compression, pause: Callable[[], None]) -> None:
        self.path = path
        self._state = path / STATE
        self._output = output
        self._compression = compression
        self._pause = pause
        self._epoch = 0
        self._record: Record | None = None
        self._file = -1

    @property
    def part(self) -> Part:
        """The part that grows."""
        assert self._record is not None
        return self._record.part

    def read(self) -> Record | None:
        """Return the record of the last owner. Raises RejectedError for one that is damaged or of another output."""
        make_private_folder(self._state)
        epochs = self._epochs()
        if not epochs:
            return None
        path = self._place(max(epochs))
        try:
            record = Record.parse(path.read_bytes())
        except ValueError as error:
            raise RejectedError(f"{path} is {error}: put it back from a backup") from None
        if record.output != self._output:
            raise RejectedError(_is_of(self.path, record.output))
        return record

    def begin(self, record: Record | None, kept: Kept, form: FileFormat, *, is_moved: bool) -> None:
        """Become the owner: from here on, what earlier ones write does not count.

        ``record`` is what `read` has returned; ``is_moved``: the output does not go on at its place.
        """
        self.close()
        self._epoch = kept.epoch
        self._record = None
        part = Part(self._newest() + 1, kept.epoch, form)
        if record is not None:
            part = self._take_over(record, kept.epoch)
        else:
            self._claim()
        self._keep(kept, part)
        for epoch in self._epochs() - {kept.epoch}:
            self._place(epoch).unlink(missing_ok=True)
        if part.form != form or is_moved:
            self.finish(form)
        self._remove_strays()

    def append(self, pieces: Sequence[bytes], kept: Kept, *, from_: str, rows: int, last_ms: int, now: float) -> None:
        """Add to the part, durably, as one with the place after it.

        Raises DeliveryError when the folder has another owner.
        """
        self._check_owner()
        record, part = self._record, self.part
        assert record is not None
        if self._file < 0:
            path = self._part(part)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.ftruncate(self._file, part.size)
        if not part.size:
            before = record.kept.place or Place(from_, "")
            part = replace(part, from_=before.position, gtids_before=before.gtids, begun=now)
        size = part.size
        for piece in pieces:
            left = memoryview(piece)
            while left:
                written = os.pwrite(self._file, left, size)
                size, left = size + written, left[written:]
        os.fsync(self._file)
        to = kept.place or Place("", "")
        part = replace(part, size=size, rows=part.rows + rows, last_ms=max(part.last_ms, last_ms))
        self._keep(kept, replace(part, to=to.position, gtids=to.gtids))

    def finish(self, form: FileFormat) -> None:
        """Make the part a whole file, if it has something, and begin the next one."""
        self._check_owner()
        record, part = self._record, self.part
        assert record is not None
        self.close()
        if part.size:
            whole = self.path / f"{part.stem}{FORMS[FileFormat(part.form)].suffix(self._compression)}"
            unfinished = self._state / f"{part.stem}.tmp"
            FORMS[FileFormat(part.form)].finish(self._part(part), part.size, unfinished, self._compression, self._pause)
            self._check_owner()
            unfinished.replace(whole)
            sync_folder(self.path)
            index = Index(
                whole.name,
                part.form,
                part.from_,
                part.to,
                part.gtids_before,
                part.gtids,
                part.last_ms,
                part.rows,
                part.size,
            )
            self._replace(self.path / f"{part.stem}{SUFFIX}", str(index))
        self._keep(record.kept, Part(part.number + bool(part.size), self._epoch, form))
        if part.stem != self.part.stem:
            self._part(part).unlink(missing_ok=True)

    def prune(self, before: float) -> None:
        """Delete whole files that are older than a Unix time, but not the newest one.

        The index goes first: it never names a file that is gone. So a process that was killed may leave a file without.
        """
        found = [Path(it.path) for it in os.scandir(self.path) if _FILE.fullmatch(it.name)]
        indexes = sorted(path for path in found if path.suffix == SUFFIX)
        for path in indexes[:-1]:
            if path.stat().st_mtime < before:
                path.unlink()
                indexes.remove(path)
        kept = {it.stem for it in indexes}
        for path in found:
            stem = path.name.partition(".")[0]
            if path.suffix != SUFFIX and stem not in kept and int(stem.partition("-")[0]) < self.part.number:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the part."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    # --- inside

    def _claim(self) -> None:
        """Take a folder that is nobody's yet: of two outputs that begin at once, one has it."""
        owner = self._state / "owner"
        try:
            with open(owner, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(self._output)
        except FileExistsError:
            found = owner.read_text(errors="replace")
            if found not in ("", self._output):
                raise RejectedError(_is_of(self.path, found)) from None

    def _take_over(self, record: Record, epoch: int) -> Part:
        """Return the part of the former owner as ours: a copy of the bytes that count."""
        part = record.part
        if (self.path / f"{part.stem}{SUFFIX}").exists():  # it was made whole, and the next one was not begun
            return Part(part.number + 1, epoch, part.form)
        if part.epoch == epoch:
            return part
        own = replace(part, epoch=epoch)
        if part.size:
            if not self._part(part).exists():
                raise RejectedError(f"{self._part(part)} is gone, and with it {part.size} bytes that were confirmed")
            copy(self._part(part), part.size, self._part(own), self._pause)
        return own

    def _check_owner(self) -> None:
        newest = max(self._epochs(), default=0)
        if newest > self._epoch:
            raise DeliveryError(f"{self.path} was taken over in epoch {newest}, and this server is in {self._epoch}")

    def _keep(self, kept: Kept, part: Part) -> None:
        record = Record(self._output, kept, part)
        self._replace(self._place(self._epoch), str(record))
        self._record = record

    def _remove_strays(self) -> None:
        """Remove what former owners have left that does not count."""
        own = self.part
        for it in list(os.scandir(self._state)):
            name = it.name
            if name.endswith((".part", ".tmp")) and not name.startswith(f"{own.stem}."):
                Path(it.path).unlink(missing_ok=True)
        for it in list(os.scandir(self.path)):
            match = _FILE.fullmatch(it.name)
            if match and int(match[1]) >= own.number and int(match[2]) != self._epoch:
                Path(it.path).unlink(missing_ok=True)

    def _newest(self) -> int:
        """Return the greatest number of a file, 0 if there is none."""
        matches = (_FILE.fullmatch(it.name) for it in os.scandir(self.path))
        return max((int(match[1]) for match in matches if match), default=0)

    def _epochs(self) -> set[int]:
        return {int(match[1]) for it in os.scandir(self._state) if (match := _PLACE.fullmatch(it.name))}

    def _place(self, epoch: int) -> Path:
        return self._state / f"place-{epoch}"

    def _part(self, part: Part) -> Path:
        return self._state / f"{part.stem}.part"

    def _replace(self, path: Path, text: str) -> None:
        """Put a text in the place of a file, durably and as a whole."""
        unfinished = self._state / f"{path.name}.tmp"
        with open_private(unfinished, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        sync_folder(path.parent)


def _is_of(folder: Path, output: str) -> str:
    return f"{folder} is the folder of the output {output[:200]}: give this one a folder of its own"


def free_bytes(path: Path) -> int:
    """Return how many bytes a disk has free, for the nearest folder that exists."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free
