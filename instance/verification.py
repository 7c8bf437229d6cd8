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
from ..protocol.cut import Before, Cut, parse_place, places_in
from ..protocol.errors import ConfigError, GoneError, PurgedError, SourceChangedError, SourceError
from ..protocol.member import KEYS
from ..protocol.position import Position
from ..store.chain import Had
from ..store.cursor import Cursor
from ..store.log.errors import DamagedLogError, LogError
from ..store.log.files import Block, EntriesReader, Words, read_block, words_of
from ..store.log.log import File, stored_files
from ..store.log.shapes import Shape, difference, of_member
from ..store.log.slots import unpack
from ..store.ring import Collected, Ring, Staging
from ..store.segment import SegmentWriter
from ..store.track import Track
from .config import InstanceConfig
from .source import Findings, ParserFactory

PATIENCE: Final = 60.0
"""Seconds that the source may take for what follows."""
LAST: Final = 1 << 62
"""A rank that no file has: all before it is had."""
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
    """Compare what a log holds with what its source gives now, entry by entry; of a group each member by itself.

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
    if files[0].head.start.is_merged != config.is_merged:
        kinds = ("a group", "a single source") if config.is_merged else ("a single source", "a group")
        raise ConfigError(f"{config.destination} reads {kinds[0]}, and the log in {folder} has places of {kinds[1]}")
    limits = parse_place(start) if start else None, parse_place(stop) if stop else None
    clock = time.monotonic()
    report = LogReport(start or str(files[0].head.start), stop or "its end")
    total, done = sum(it.size for it in files), 0
    with TemporaryDirectory(prefix="sluice-verify-") as temporary:
        for file in files:
            comparison = Comparison(config.beside(Path(temporary)), make_parser, file, report, limits)
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


def alone(config: InstanceConfig, shape: Shape, member: str) -> InstanceConfig | None:
    """Return the configuration that reads a member alone as it was written; None if it is not configured any more."""
    if not config.is_merged:
        return as_written(config, shape)
    part = config.sources().get(member)
    if part is None:
        return None
    own = {key.removeprefix(f"{KEYS}{member}."): it for key, it in of_member(shape, member).items()}
    return as_written(config, shape).with_sources({member: as_written(part, own)})


def at(member: str, place: Position) -> Position:
    """Return a place of a member as one of its stream: that of a single source is the place itself."""
    return Cut({member: place}) if member else place


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a block has of a member."""

    block: Block
    words: Words
    start: Position
    end: Position


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
        """Compare; give the offset after each block: in a group as far as all members together are."""
        fd = self._open()
        if fd is None:
            self._report.unread[f"file that the log has deleted meanwhile: {self._file.path.name}"] += 1
            return
        try:
            blocks = list(self._blocks(fd))
            members = sorted({name for _, words in blocks for name in places_in(words.to)})
            for number, name in enumerate(members):
                for offset in self._run_member(fd, name, self._stretches(fd, name, blocks)):
                    yield (number * self._file.size + offset) // len(members)
        finally:
            os.close(fd)

    def _run_member(self, fd: int, name: str, stretches: Sequence[Stretch]) -> Iterator[int]:
        # The source may have purged a part of it, which ends with a file of its own.
        whole = [it.start for it in stretches if not it.start.n]
        places = [it for i, it in enumerate(whole) if not i or it.file_key != whole[i - 1].file_key]
        if not places:
            return
        of_whom, config = f" of member {name}" if name else "", alone(self._config, self._file.head.shape, name)
        now = None if config is None else of_member(config.shape(), name)
        then = of_member(self._file.head.shape, name)
        if config is None or now is None or now != then:
            why = "is not configured any more" if now is None else ""
            why = (
                why or f"written with another configuration, which is not known in full: {difference(then, now or {})}"
            )
            for it in stretches:
                self._report.unread[f"entries of {self._file.path.name}{of_whom}, {why}"] += it.block.count
                yield it.block.end
            return
        with Again(config, self._make_parser, name, places) as again:
            begin = again.begin()
            for it in stretches:
                if begin is None or it.start < begin:
                    self._report.unread[f"entries of {it.start.file}{of_whom}, {again.refusal}"] += it.block.count
                else:
                    self._compare(fd, name, it, again)
                yield it.block.end

    def _stretches(self, fd: int, name: str, blocks: Sequence[tuple[Block, Words]]) -> list[Stretch]:
        """Return what is wanted of a member, block by block."""
        found: list[Stretch] = []
        for block, words in blocks:
            start, end = (places_in(it).get(name) for it in (words.from_, words.to))
            if start is None and end is not None:  # it joins here, in a slot of its own
                track = self._unpack(fd, name, None, block, words)
                start = None if track is None else track.position(track.ring.place(track.ring.first))
            if start is not None and end is not None and start != end and self._is_wanted(name, start, end):
                found.append(Stretch(block, words, start, end))
        return found

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

    def _is_wanted(self, name: str, from_: Position, to: Position) -> bool:
        start, stop = (None if it is None else places_in(it).get(name) for it in (self._start, self._stop))
        return (start is None or (to.is_comparable(start) and to > start)) and (
            stop is None or (from_.is_comparable(stop) and from_ < stop)
        )

    def _unpack(self, fd: int, name: str, start: Position | None, block: Block, words: Words) -> Track | None:
        """Return a ring with what a block has of a member; None, and a difference, if it makes no sense."""
        ring = Ring(1 << block.count.bit_length(), max(block.size, 1) * 2)
        track, writer, staging = Track(ring), SegmentWriter(ring.pool), Staging()
        track.begin(at(name, start) if start is not None else Cut())
        sources = [ring.sources.intern(it) for it in words.sources]
        files = [ring.files.intern(it) for it in words.files]
        others = [(number, LAST, 0, 0) for number, it in zip(sources, words.sources, strict=True) if it[0] != name]
        try:
            with self._entries.read(fd, block, self._file.path) as entries:
                unpack(
                    block.slots,
                    block.count,
                    entries,
                    sources,
                    files,
                    [ring.tables.intern(it) for it in words.tables],
                    [ring.gtid_sources.intern(it) for it in words.gtid_sources],
                    staging,
                    writer,
                    Had(ring, others, [0] * (len(ring.files) + 1)) if others else None,
                )
        except LogError as error:
            self._report.differs(str(error))
            return None
        ring.put(staging)
        return track

    def _compare(self, fd: int, name: str, stretch: Stretch, again: "Again") -> None:
        """Compare the entries of a member in a block."""
        track = self._unpack(fd, name, stretch.start, stretch.block, stretch.words)
        if track is None:
            again.pass_to(stretch.end)
            return
        ring = track.ring
        start, last = ring.first, ring.last_data(ring.first, ring.next)
        while start <= last:
            start = self._compare_slots(track, name, start, last + 1, again)

    def _compare_slots(self, track: Track, name: str, start: int, stop: int, again: "Again") -> int:
        """Compare slots with as much as is there of the source; return the next one to compare."""
        before = track.position_before(stop)
        assert before is not None
        end = places_in(before)[name]
        reached = again.reach(end)
        if reached is not None and reached < end:  # a full ring, or the source has no more
            stop = stop if again.is_idle else track.sequence_of(at(name, reached)) or stop
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

    def __init__(
        self, config: InstanceConfig, make_parser: ParserFactory, member: str, places: Sequence[Position]
    ) -> None:
        """Nothing is read before it is entered. The places are of a member: in a group it is the only one."""
        self._member = member
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
            start=Cursor.at(at(member, places[0])),
            later=[Cursor.at(at(member, it)) for it in places[1:]],
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
        self._begun = self._own(position)
        self._changed.set()

    def _own(self, place: Position | None) -> Position | None:
        """Return the place of its member."""
        return None if place is None else places_in(place).get(self._member)

    @property
    def _is_at_end(self) -> bool:
        """Whether it has read, and put, all that the source has."""
        status = self._parser.status
        return status.behind == 0.0 and not any(it.transactions for it in status.members)

    def begin(self) -> Position | None:
        """Return where it begins; None when the source has none of the places. Raises SourceError."""
        deadline = time.monotonic() + PATIENCE
        while self._begun is None and not self._is_refused():
            self._wait(deadline)
        refused = next(iter(self._parser.refused.values()), self._parser.failure)
        self.refusal = f"which the source does not have{'' if refused is None else f': {refused}'}"
        return self._begun

    def reach(self, place: Position) -> Position | None:
        """Wait until it has read up to a place, has no more room, or nothing more to read; return how far it is."""
        deadline = time.monotonic() + PATIENCE
        while True:
            self._changed.clear()
            is_idle, end = self._is_at_end, self._own(self._track.end)
            self.is_idle = is_idle
            if (end is not None and end >= place) or self._ring.waiting:
                self.is_idle = False
                return end
            if self.is_idle:
                return end
            self._wait(deadline)

    def sequence_of(self, place: Position) -> int:
        """Return the slot at a place, or after the last one."""
        try:
            found = self._track.sequence_of(at(self._member, place))
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
    for it in (ours, theirs):  # where it came in the order of a group, whose members are read one by one here
        known = [prop for prop in it.header.props if prop.key != props.DISORDER]
        del it.header.props[:]
        it.header.props.extend(known)
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
