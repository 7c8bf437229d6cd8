"""Places in binlog files, found by reading these."""

import struct
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

from ....protocol.errors import DecodeError, SourceError
from ....protocol.gtid import GtidSet, MariadbGtidSet, MysqlGtidSet
from ....protocol.position import Position
from ...source import Expiry
from ..mysql.decode.events import BinlogEvent, Event
from ..mysql.dump import FIRST_EVENT
from ..mysql.start import PlaceFinder, Start, gtid_of, is_same
from ..mysql.xa import prepared_xid
from .config import FilesConfig
from .dump import FileDump
from .folder import Folder

PATIENCE: Final = 2.0
"""Seconds for which a call waits for another one that looks for the end of a file."""
END: Final = 1 << 62
"""An offset after that of any event."""
_COUNT: Final = 0x0FFFFFFF
"""The bits of the number in a GTID_LIST event; the others are flags."""
_LISTED_GTID: Final = struct.Struct("<IIQ")


class Ends:
    """Where the last whole transactions of files were seen to end."""

    def __init__(self) -> None:
        self.found: dict[str, int] = {}
        """Offsets by the names of files."""
        self._lock = threading.Lock()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Let one thread at a time look for an end. Raises SourceError if another one takes long."""
        if not self._lock.acquire(timeout=PATIENCE):
            raise SourceError("it is not known yet where the last file ends: another call reads it now")
        try:
            yield
        finally:
            self._lock.release()


class FolderFinder(PlaceFinder):
    """Finds places in the files of a folder."""

    _config: FilesConfig
    _binlog: Folder

    def __init__(
        self,
        binlog: Folder,
        config: FilesConfig,
        stopping: threading.Event | None = None,
        ends: Ends | None = None,
    ) -> None:
        """See `PlaceFinder`; ``ends`` is remembered from one to the next."""
        super().__init__(binlog, config, stopping)
        self._ends = Ends() if ends is None else ends

    def end(self) -> Start:
        """See `PlaceFinder.end`: where the last whole transaction ends."""
        file = self._binlog.last_file()
        return self._at_boundary(file, self._find_end(file))

    def end_position(self, known: Iterable[tuple[str, int]]) -> Position:
        """See `PlaceFinder.end_position`: as `end`."""
        file = self._binlog.last_file()
        return self.position_of(file, self._find_end(file), known)

    def _find_end(self, file: str) -> int:
        """Return the offset at which the last whole transaction of a file ends, read on from where it ended before."""
        with self._ends.lock(), self._walking() as decoder:
            try:
                with closing(self._events(decoder, file, self._ends.found.get(file, FIRST_EVENT))) as events:
                    deque(events, maxlen=0)
            except SourceError:
                self._ends.found.pop(file, None)  # another file may have taken its place
                raise
            found: int | None = decoder.position.begin if decoder.position is not None else None
        if found is None:
            raise SourceError(f"{self._binlog.path / file} ends before its first event: it is not copied yet")
        self._ends.found = {file: found}
        return found

    def _files(self) -> list[str]:
        return self._binlog.begun_files()

    def expiries(self, places: Sequence[Position]) -> list[Expiry | None]:
        """See `sluice.instance.source.Parser.expiries`: nobody says when files go."""
        return [None] * len(places)

    def commits_in_one_phase(self, file: str, begin: int) -> bool:
        """Whether the XA transaction that begins there ends by ``XA COMMIT … ONE PHASE``, not by ``XA PREPARE``."""
        with closing(self._walk(file, only_xa=True)) as walk:
            for event, position in walk:
                if event.type == BinlogEvent.XA_PREPARE_EVENT and position.begin == begin:
                    return not prepared_xid(event.body)
        raise SourceError(f"{self._binlog.path / file} does not have the end of the XA transaction at {begin}")

    def check_follower(self, file: str, follower: str) -> bool:
        """Return whether GTIDs show that nothing is missing between a file and the one that follows it.

        Raises SourceError if they show that the end of the file is.
        """
        until, since = self._executed(file, END), self._executed(follower, FIRST_EVENT)
        if until is None or since is None:
            return False
        if not is_same(until, since):
            raise SourceError(
                f"{self._binlog.path / file} ends after the GTIDs {until}, and {follower} begins after {since}: one of"
                " them is not copied as a whole"
            )
        return bool(str(since)) and not self._has_anonymous(file)

    def _has_anonymous(self, file: str) -> bool:
        """Whether a file has a transaction without a GTID."""
        with closing(self._walk(file)) as walk:
            return any(event.type == BinlogEvent.ANONYMOUS_GTID_EVENT for event, _ in walk)

    def _by_default(self) -> Start:
        return self._at_boundary(self._binlog.binlog_files()[0][0], FIRST_EVENT)

    def _executed(self, file: str, offset: int) -> GtidSet | None:
        """See `PlaceFinder`: it is what the file begins with, and all GTIDs from there on."""
        gtids: GtidSet | None = None
        with closing(self._walk(file)) as walk:
            for event, _ in walk:
                if event.type in (BinlogEvent.PREVIOUS_GTIDS_EVENT, BinlogEvent.MARIADB_GTID_LIST_EVENT):
                    gtids = self._listed(event)
                elif event.offset >= offset and event.offset > FIRST_EVENT:
                    break
                elif gtids is not None and (gtid := gtid_of(event)) is not None:
                    gtids.add(*gtid)
        return gtids

    def _listed(self, event: Event) -> GtidSet:
        try:
            if event.type == BinlogEvent.PREVIOUS_GTIDS_EVENT:
                return MysqlGtidSet.decode(event.body)
            return _listed_gtids(event.body)
        except DecodeError as error:
            raise SourceError(f"{self._binlog.path}, {event.position}: {error}") from error

    def _executed_now(self) -> GtidSet:
        found = self._executed(self._binlog.last_file(), END)
        return found if found is not None else self._gtids("")

    def _after(self, gtids: GtidSet, executed: GtidSet | None = None) -> Start:
        del executed
        return self._at_gtids(gtids, self._binlog.begun_files())

    def _dump(self, file: str, offset: int) -> FileDump:
        return FileDump(self._binlog, file, offset, most=self._config.event_bytes)


def _listed_gtids(body: bytes) -> MariadbGtidSet:
    """Read what a GTID_LIST event has: number 4, then for each GTID domain 4, server id 4, number 8.

    (Gtid_list_log_event, sql/log_event.h of MariaDB.) Raises DecodeError.
    """
    count = int.from_bytes(body[:4], "little") & _COUNT
    if len(body) < 4 + _LISTED_GTID.size * count:
        raise DecodeError("a GTID_LIST event that is too short for its fields")
    found = MariadbGtidSet()
    for domain, server_id, number in _LISTED_GTID.iter_unpack(body[4 : 4 + _LISTED_GTID.size * count]):
        found.add((domain, server_id), number)
    return found
