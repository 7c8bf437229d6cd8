"""The log of a destination beside its source: does the source still give what was written."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self

from pydantic import ValidationError

from ..protocol import props
from ..protocol.canal import entry_pb2 as pb
from ..protocol.canal.packet_pb2 import Messages
from ..protocol.cut import Before
from ..protocol.errors import ConfigError, GoneError, PurgedError, SourceChangedError, SourceError
from ..protocol.position import Position
from ..store.cursor import Cursor
from ..store.log.errors import DamagedLogError, LogError
from ..store.log.files import Block, EntriesReader, Words, read_block, words_of
from ..store.log.log import File, stored_files
from ..store.log.shapes import Shape, difference
from ..store.log.slots import unpack
from ..store.ring import Collected, Ring, Staging
from ..store.segment import SegmentWriter
from ..store.track import Track
from .config import InstanceConfig
from .source import Findings, ParserFactory

PATIENCE: Final = 60.0
"""Seconds that the source may take for what follows."""
ROOM: Final = 64 << 20
"""Bytes of entries of the source that wait for those of the log."""


@dataclass(slots=True)
class LogReport(Findings):
    """What a comparison of a log with its source found."""

    entries: int = 0
    """Those of the log that were compared."""
    bytes: int = 0


def compare_log(
    config: InstanceConfig,
    make_parser: ParserFactory,
    start: str | None,
    stop: str | None,
    advance: Callable[[str, int, int], None],
) -> LogReport:
    """Compare what a log holds with what its source gives now, entry by entry.

    Each file is compared as it was configured when it was written. The range are positions; None are the begin and the
    end of the log. A server may use the log meanwhile. ``advance`` is told which file it is at, and how many bytes of
    how many that are.

    Raises ConfigError when there is no log, BadPositionError, LogError, OSError, and SourceError when the source does
    not answer.
    """
    folder = config.log_folder
    files = stored_files(folder)
    if not files:
        raise ConfigError(f"there is no log in {folder} (sluice.instance.store)")
    if files[0].head.start.is_merged:
        raise ConfigError(f"the log in {folder} is that of a group: it cannot be compared with its members yet")
    limits = Position.parse(start) if start else None, Position.parse(stop) if stop else None
    clock = time.monotonic()
    report = LogReport(start or str(files[0].head.start), stop or "its end")
    total, done = sum(it.size for it in files), 0
    with TemporaryDirectory(prefix="sluice-verify-") as temporary:
        for file in files:
            then = as_written(config, file.head.shape)
            comparison = Comparison(then.beside(Path(temporary)), make_parser, file, report, limits)
            for offset in comparison.run():
                advance(file.path.name, done + offset, total)
            done += file.size
    report.seconds = time.monotonic() - clock
    return report


def as_written(config: InstanceConfig, shape: Shape) -> InstanceConfig:
    """Return the configuration with what shaped the entries of a file, as far as the file's head has it.

    It has no secret, and of long values the beginning only.
    """
    now, names = config.shaping(), config.fields_by_key()
    then = {"sluice.group.as": "", **shape}  # which a shape leaves out while it is empty
    changed = {names[key]: then[key] for key in now if key in then and then[key] != config.shape().get(key, "")}
    try:
        valid = type(config).model_validate(dict(config) | changed)
    except ValidationError:
        return config
    return config.model_copy(update={name: getattr(valid, name) for name in changed})


class Comparison:
    """A file of a log beside the source."""

    def __init__(
        self,
        config: InstanceConfig,
        make_parser: ParserFactory,
        file: File,
        report: LogReport,
        limits: tuple[Position | None, Position | None],
    ) -> None:
        """``config`` writes nowhere that matters."""
        self._config = config
        self._make_parser = make_parser
        self._file = file
        self._report = report
        self._start, self._stop = limits
        self._entries = EntriesReader()

    def run(self) -> Iterator[int]:
        """Compare; give the offset after each block."""
        fd = self._open()
        if fd is None:
            self._report.unread[f"file that the log has deleted meanwhile: {self._file.path.name}"] += 1
            return
        try:
            blocks = [it for it in self._blocks(fd) if self._is_wanted(it[1])]
            # The source may have purged a part of it, which ends with a file of its own.
            whole = [words.from_ for _, words in blocks if not words.from_.n]
            places = [it for i, it in enumerate(whole) if not i or it.file_key != whole[i - 1].file_key]
            if not places:
                return
            now, then = self._config.shape(), self._file.head.shape
            if now != then:
                why = f"another configuration, which is not known in full: {difference(then, now)}"
                for block, _ in blocks:
                    self._report.unread[f"entries of {self._file.path.name}, written with {why}"] += block.count
                    yield block.end
                return
            with Again(self._config, self._make_parser, places) as again:
                begin = again.begin()
                for block, words in blocks:
                    if begin is None or words.from_ < begin:
                        self._report.unread[f"entries of {words.from_.file}, {again.refusal}"] += block.count
                    else:
                        self._compare(fd, block, words, again)
                    yield block.end
        finally:
            os.close(fd)

    def _open(self) -> int | None:
        """Open the file; None when it was taken away."""
        files = [self._file]
        while files:
            self._file = files[0]
            try:
                return os.open(self._file.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:  # it was compressed meanwhile, or taken away
                files = [it for it in stored_files(self._file.path.parent) if it.number == self._file.number]
        return None

    def _blocks(self, fd: int) -> Iterator[tuple[Block, Words]]:
        """Give the heads of all blocks; what follows a damaged one is not found."""
        offset, path = self._file.first, self._file.path
        while offset < self._file.size:
            try:
                block = read_block(fd, offset, path)
                if block is None:
                    return
                yield block, words_of(block, path)
            except DamagedLogError as error:
                self._report.differs(f"{error}; what follows in this file is not compared")
                return
            offset = block.end

    def _is_wanted(self, words: Words) -> bool:
        start, stop = self._start, self._stop
        return (start is None or (words.to.is_comparable(start) and words.to > start)) and (
            stop is None or (words.from_.is_comparable(stop) and words.from_ < stop)
        )

    def _compare(self, fd: int, block: Block, words: Words, again: "Again") -> None:
        """Compare the entries of a block."""
        ring = Ring(1 << block.count.bit_length(), max(block.size, 1) * 2)
        track, writer, staging = Track(ring), SegmentWriter(ring.pool), Staging()
        track.begin(words.from_)
        try:
            with self._entries.read(fd, block, self._file.path) as entries:
                unpack(
                    block.slots,
                    block.count,
                    entries,
                    [ring.sources.intern(it) for it in words.sources],
                    [ring.files.intern(it) for it in words.files],
                    [ring.tables.intern(it) for it in words.tables],
                    [ring.gtid_sources.intern(it) for it in words.gtid_sources],
                    staging,
                    writer,
                )
        except LogError as error:
            self._report.differs(str(error))
            again.pass_to(words.to)
            return
        ring.put(staging)
        start, last = ring.first, ring.last_data(ring.first, ring.next)
        while start <= last:
            start = self._compare_slots(track, start, last + 1, again)

    def _compare_slots(self, track: Track, start: int, stop: int, again: "Again") -> int:
        """Compare slots with as much as is there of the source; return the next one to compare."""
        end = track.position_before(stop)
        assert end is not None
        reached = again.reach(end)
        if reached is not None and reached < end:  # a full ring, or the source has no more
            stop = stop if again.is_idle else track.sequence_of(reached) or stop
            end = reached
        ours = track.ring.read(start, stop)
        until = again.sequence_of(end)
        theirs = again.read(until)
        self._report.entries += ours.entries
        self._report.bytes += ours.bytes
        if ours.positions != theirs.positions or b"".join(ours.slices) != b"".join(theirs.slices):
            self._name_differences(_by_place(track, start, stop), again.by_place(until))
        again.free(until)
        return stop

    def _name_differences(self, ours: dict[str, bytes], theirs: dict[str, bytes]) -> None:
        for place, entry in ours.items():
            if place not in theirs and _is_marker(entry):
                self._report.unread["markers, which no source has"] += 1
                self._report.entries -= 1
            elif place not in theirs:
                self._report.differs(f"{place}: only the log has it: {_describe(entry)}")
            elif entry != theirs[place] and not _is_equal(entry, theirs[place]):
                self._report.differs(f"{place}: the source gives other bytes: {_describe(entry)}")
        for place, entry in theirs.items():
            if place not in ours:
                self._report.differs(f"{place}: only the source has it: {_describe(entry)}")


class Again:
    """What the source gives now, from the first of some places on that it has."""

    def __init__(self, config: InstanceConfig, make_parser: ParserFactory, places: Sequence[Position]) -> None:
        """Nothing is read before it is entered."""
        self.refusal = ""
        """Why the source does not have the first place."""
        self.is_idle = False
        """It has given everything."""
        self._ring = Ring(1 << 18, ROOM)
        self._track = Track(self._ring)
        self._changed = threading.Event()
        self._ring.on_put = self._changed.set
        self._begun: Position | None = None
        self._parser = make_parser(
            config,
            self._ring,
            start=Cursor.at(places[0]),
            later=[Cursor.at(it) for it in places[1:]],
            on_begin=self._begin,
            on_state=lambda _state, _text: self._changed.set(),
        )

    def __enter__(self) -> Self:
        self._parser.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._parser.stop()
        self._ring.close()
        self._parser.join(PATIENCE)

    def _begin(self, position: Position | None, gtids: Before) -> None:
        del gtids
        if position is not None:
            self._track.begin(position)
        self._begun = position
        self._changed.set()

    def begin(self) -> Position | None:
        """Return where it begins; None when the source has none of the places. Raises SourceError."""
        deadline = time.monotonic() + PATIENCE
        while self._begun is None and not self._is_refused():
            self._wait(deadline)
        refused = next(iter(self._parser.refused.values()), self._parser.failure)
        self.refusal = "" if refused is None else f"which the source does not have: {refused}"
        return self._begun

    def reach(self, place: Position) -> Position | None:
        """Wait until it has read up to a place, has no more room, or nothing more to read; return how far it is."""
        deadline = time.monotonic() + PATIENCE
        while True:
            self._changed.clear()
            end = self._track.end
            self.is_idle = self._parser.status.behind == 0.0
            if (end is not None and end >= place) or self._ring.waiting:
                self.is_idle = False
                return end
            if self.is_idle:
                return self._track.end
            self._wait(deadline)

    def sequence_of(self, place: Position) -> int:
        """Return the slot at a place, or after the last one."""
        try:
            found = self._track.sequence_of(place)
        except GoneError:  # the source gives nothing up to there that is not forgotten
            return self._ring.first
        return self._ring.next if found is None else found

    def read(self, stop: int) -> Collected:
        """Return the entries before a slot."""
        return self._ring.read(self._ring.first, stop)

    def by_place(self, stop: int) -> dict[str, bytes]:
        """Return the entries before a slot by their positions."""
        return _by_place(self._track, self._ring.first, stop)

    def free(self, sequence: int) -> None:
        """Forget the slots before one."""
        self._track.free_to(sequence)

    def pass_to(self, place: Position) -> None:
        """Leave out the entries before a place."""
        while True:
            reached = self.reach(place)
            self.free(self.sequence_of(place))
            if self.is_idle or reached is None or reached >= place:
                return

    def _is_refused(self) -> bool:
        return isinstance(self._parser.failure, PurgedError | SourceChangedError)

    def _wait(self, deadline: float) -> None:
        self._changed.wait(0.1)
        if self._parser.failure is not None and not self._is_refused():
            raise SourceError(str(self._parser.failure))
        if time.monotonic() > deadline:
            raise SourceError(f"the source has sent nothing for {PATIENCE:g} s")


def _by_place(track: Track, start: int, stop: int) -> dict[str, bytes]:
    """Return the entries of slots by their positions."""
    slots = ((it, b"".join(track.ring.read(it, it + 1).slices)) for it in range(start, stop))
    return {str(track.position_of(it)): entry for it, entry in slots if entry}


def _is_equal(one: bytes, other: bytes) -> bool:
    """Whether two entries say the same; how long a number is written does not matter."""
    ours, theirs = _entry(one), _entry(other)
    if (ours.header, ours.entryType) != (theirs.header, theirs.entryType):
        return False
    if ours.entryType != pb.ROWDATA:
        return ours.storeValue == theirs.storeValue
    return pb.RowChange.FromString(ours.storeValue) == pb.RowChange.FromString(theirs.storeValue)


def _entry(framed: bytes) -> pb.Entry:
    (entry,) = Messages.FromString(framed).messages
    return pb.Entry.FromString(entry)


def _is_marker(framed: bytes) -> bool:
    """Whether an entry says what has become of the stream, at the time it was written."""
    return any(it.key in (props.GAP, props.SHAPE) for it in _entry(framed).header.props)


def _describe(framed: bytes) -> str:
    header = _entry(framed).header
    table = f"{header.schemaName}.{header.tableName}" if header.tableName else ""
    return f"{pb.EntryType.Name(_entry(framed).entryType)} {table}".strip()
