"""The folder of an output: whole files, each with its index, and beside them the part that grows, and the place.

::

    0000000007-12.jsonl.zst         the whole file 7, begun in epoch 12 of the destination; it has its name once synced
    0000000007-12.index             JSON: what the file has; it counts once this is there
    .sluice/0000000008-12.part      what will be file 8
    .sluice/owner                   whose folder it is: destination/output
    .sluice/place-12                JSON: how far the output has come, and how many bytes of the part count

The place is replaced as a whole, after the part is synced. So a process that was killed finds the place,
cuts the part at the bytes that count, and goes on. Whatever an owner writes has its epoch in its name. A new owner
continues in a copy of the part: what a former one may still write is never read, and the place of the greatest epoch
counts.
"""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Self

from ....store.archive import SUFFIX, Index
from ....store.remote import RemotePath
from ..kept import Kept
from ..target import DeliveryError, Place, RejectedError
from .bucket import Bucket
from .disk import STATE, Disk, Storage
from .forms import FORMS
from .settings import Compression, FileFormat

_PLACE: Final = re.compile(r"place-(\d{1,18})")
_FILE: Final = re.compile(r"(\d{10,18})-(\d{1,18})(\..+)")


@dataclass(frozen=True, slots=True)
class PartFile:
    """A file that is being written, and what of it counts."""

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
    part: PartFile

    def __str__(self) -> str:
        return json.dumps({"output": self.output, "kept": str(self.kept), "part": asdict(self.part)})

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Read the text form. Raises ValueError for anything else."""
        try:
            found = json.loads(text)
            part = PartFile(**found["part"])
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

    def __init__(
        self, path: Path | RemotePath, output: str, compression: Compression, pause: Callable[[], None]
    ) -> None:
        self.path = path
        self._storage: Storage = Bucket(path, pause) if isinstance(path, RemotePath) else Disk(path, pause)
        self._output = output
        self._compression = compression
        self._pause = pause
        self._epoch = 0
        self._first = 0  # the number of the first file of this epoch
        self._record: Record | None = None

    @property
    def part(self) -> PartFile:
        """The part that grows."""
        assert self._record is not None
        return self._record.part

    def read(self) -> Record | None:
        """Return the record of the last owner. Raises RejectedError for one that is damaged or of another output."""
        self._storage.prepare(STATE)
        epochs = self._epochs()
        if not epochs:
            return None
        name = _place(max(epochs))
        try:
            record = Record.parse(self._storage.read(name))
        except ValueError as error:
            raise RejectedError(f"{self.path / name} is {error}: put it back from a backup") from None
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
        part = PartFile(self._newest() + 1, kept.epoch, form)
        if record is not None:
            part = self._take_over(record, kept.epoch)
        else:
            self._claim()
        self._first = part.number
        self._keep(kept, part)
        for epoch in self._epochs() - {kept.epoch}:
            self._storage.remove(_place(epoch))
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
        if not part.size:
            before = record.kept.place or Place(from_, "")
            part = replace(part, from_=before.position, gtids_before=before.gtids, begun=now)
        size = self._storage.append(_part(part), part.size, pieces)
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
            own = FORMS[FileFormat(part.form)]
            whole = f"{part.stem}{own.suffix(self._compression)}"

            def make(unfinished: Path, target: Path) -> None:
                own.finish(unfinished, part.size, target, self._compression, self._pause)

            self._storage.make_whole(_part(part), part.size, whole, make, self._check_owner)
            index = Index(
                whole,
                part.form,
                part.from_,
                part.to,
                part.gtids_before,
                part.gtids,
                part.last_ms,
                part.rows,
                part.size,
            )
            self._check_owner()
            self._storage.replace(f"{part.stem}{SUFFIX}", str(index))
            self._remove_files_of_former_owners()
        self._keep(record.kept, PartFile(part.number + bool(part.size), self._epoch, form))
        if part.stem != self.part.stem:
            self._storage.remove(_part(part))

    def prune(self, before: float) -> None:
        """Delete whole files that are older than a Unix time, but not the newest one.

        The index goes first: it never names a file that is gone. So a process that was killed may leave a file without.
        """
        names = self._storage.names()
        indexes = sorted(it for it in names if it.endswith(SUFFIX))
        for name in indexes[:-1]:
            if names[name] < before:
                self._storage.remove(name)
                indexes.remove(name)
        kept = {it.removesuffix(SUFFIX) for it in indexes}
        for name in names:
            match = _FILE.fullmatch(name)
            is_whole = match is not None and match[3] != SUFFIX and int(match[1]) < self.part.number
            if is_whole and name.partition(".")[0] not in kept:
                self._storage.remove(name)

    def close(self) -> None:
        """Close the part."""
        self._storage.close()

    # --- inside

    def _claim(self) -> None:
        """Take a folder that is nobody's yet: of two outputs that begin at once, one has it."""
        found = self._storage.create(f"{STATE}/owner", self._output)
        if found not in ("", self._output):
            raise RejectedError(_is_of(self.path, found))

    def _take_over(self, record: Record, epoch: int) -> PartFile:
        """Return the part of the former owner as ours: a copy of the bytes that count."""
        part = record.part
        if f"{part.stem}{SUFFIX}" in self._storage.names():  # it was made whole, and the next one was not begun
            return PartFile(part.number + 1, epoch, part.form)
        own = replace(part, epoch=epoch)
        if part.size and not self._storage.has(_part(part), part.size):
            where = self.path / _part(part)
            raise RejectedError(f"{where} is gone, and with it {part.size} bytes that were confirmed")
        if part.size and own != part:
            self._storage.copy(_part(part), part.size, _part(own))
        return own

    def _check_owner(self) -> None:
        newest = max(self._epochs(), default=0)
        if newest > self._epoch:
            raise DeliveryError(f"{self.path} was taken over in epoch {newest}, and this server is in {self._epoch}")

    def _keep(self, kept: Kept, part: PartFile) -> None:
        record = Record(self._output, kept, part)
        self._storage.replace(_place(self._epoch), str(record))
        self._record = record

    def _remove_strays(self) -> None:
        """Remove what former owners have left that does not count."""
        own = self.part
        for name in self._storage.names(STATE):
            if name.endswith((".part", ".tmp")) and not name.startswith(f"{own.stem}."):
                self._storage.remove(f"{STATE}/{name}")
        self._remove_files_of_former_owners()

    def _remove_files_of_former_owners(self) -> None:
        """Remove files that this epoch replaces: one that was paused may have written them since."""
        for name in sorted(self._storage.names(), key=lambda it: not it.endswith(SUFFIX)):
            match = _FILE.fullmatch(name)
            if match and int(match[1]) >= self._first and int(match[2]) < self._epoch:
                self._storage.remove(name)

    def _newest(self) -> int:
        """Return the greatest number of a file, 0 if there is none."""
        matches = map(_FILE.fullmatch, self._storage.names())
        return max((int(match[1]) for match in matches if match), default=0)

    def _epochs(self) -> set[int]:
        return {int(match[1]) for it in self._storage.names(STATE) if (match := _PLACE.fullmatch(it))}


def _place(epoch: int) -> str:
    return f"{STATE}/place-{epoch}"


def _part(part: PartFile) -> str:
    return f"{STATE}/{part.stem}.part"


def _is_of(folder: Path | RemotePath, output: str) -> str:
    return f"{folder} is the folder of the output {output[:200]}: give this one a folder of its own"


def free_bytes(path: Path) -> int:
    """Return how many bytes a disk has free, for the nearest folder that exists."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free
