"""The files of a pump's log, as one looks at them who does not write them: without its lock, and from any process."""

import os
from pathlib import Path

from ...store.log.errors import DamagedLogError, LogError
from .files import ENTRY, HEAD, SUFFIX, Segment, collected_of, read_entries, read_head


class NoLogError(LogError):
    """No pump has written into a folder yet."""


class LogView:
    """Sees what is released in the log of a pump. Not locked: one thread at a time calls it."""

    def __init__(self, folder: Path, cluster_id: int) -> None:
        """Look into a folder; the cluster is that of `sluice.pump.clusterId`."""
        self._folder = folder
        self._cluster_id = cluster_id
        self._known: dict[str, Segment] = {}
        self._last = ""  # the name of the last file when it was looked at last

    def segments(self) -> tuple[Segment, ...]:
        """Return the files, with what their indexes have now. Raises LogError and OSError."""
        names = self._names()
        if names and not self._has_begun(names[-1]):
            names.pop()
        known, last = self._known, names[-1] if names else ""
        self._known = {
            # Only the last file grows, and what was the last one may have grown before the next one began.
            it: known[it] if it in known and it not in (self._last, last) else self._look(it)
            for it in names
        }
        self._last = last
        if not names:
            raise NoLogError(f"no pump has written into {self._folder} yet")
        return tuple(self._known.values())

    @property
    def collected(self) -> int:
        """The commit_ts after which all transactions are kept. Raises as `segments`."""
        return collected_of(self.segments()) or 0

    @property
    def released(self) -> int:
        """The commit_ts up to which all was released. Raises as `segments`."""
        *_, last = self.segments()
        if not last.entries:
            return last.head.released
        fd = os.open(last.index, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return read_entries(fd, last.entries - 1, 1, last.index)[0].commit_ts
        finally:
            os.close(fd)

    def _names(self) -> list[str]:
        """Return the names of the files in their order: without objects of paths, since this is asked all the time."""
        try:
            with os.scandir(self._folder) as found:
                names = [it.name for it in found]
        except FileNotFoundError:
            return []
        return sorted(it for it in names if it.endswith(SUFFIX) and it[: -len(SUFFIX)].isdecimal())

    def _has_begun(self, name: str) -> bool:
        """Whether a file has its head: a pump may be about to write it, and has the file before it until then."""
        path = self._folder / name
        if name in self._known or path.stat().st_size > HEAD.size:
            return True
        try:
            read_head(path)
        except DamagedLogError:
            return False
        return True

    def _look(self, name: str) -> Segment:
        path = self._folder / name
        known = self._known.get(name)
        found = Segment(path, read_head(path) if known is None else known.head, 0)
        if found.head.cluster_id != self._cluster_id:
            raise LogError(
                f"{path} belongs to the cluster {found.head.cluster_id}, and sluice.pump.clusterId is"
                f" {self._cluster_id}"
            )
        # The index first: what it names is in the file.
        found.entries = found.index.stat().st_size // ENTRY.size if found.index.exists() else 0
        found.size = path.stat().st_size
        return found
