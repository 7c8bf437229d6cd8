"""The transactions of files of changes, to be applied to another server."""

import hashlib
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, Self

from ..client_sdk.tidb.message import Message
from ..protocol.canal.packet_pb2 import Messages
from ..protocol.canal.rows import Change, decode_changes
from ..protocol.canal.tags import MESSAGES
from ..protocol.errors import BadParameterError, BadPositionError, DecodeError, MarkerError, PurgedError, SourceError
from ..protocol.frames import read_note
from ..protocol.position import Position, file_number
from ..protocol.props import MARKERS
from ..protocol.tidb.encoder import Entry
from ..protocol.wire import varint
from ..sql.definitions import LONGEST_SHOWN
from ..store.archive import Index, read_file, read_indexes
from ..store.remote import RemotePath

FORMAT: Final = "pb"
NUMBER_BITS: Final = 32
"""Of the number of a transaction, those that count in its file; those above are the number of the file."""
EMPTY: Final = 2
"""Entries of a transaction of which no change was written: its begin and its end."""
LARGEST: Final = 2 << 30
"""Bytes of a transaction that can be applied: it is applied as a whole."""


class Place(NamedTuple):
    """A file of the binlog and an offset, as a dump names them."""

    file: int
    """Its number."""
    offset: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``FILE:OFFSET`` or a position. Raises BadParameterError."""
        try:
            position = Position.parse(text)
        except BadPositionError:
            file, colon, offset = text.rpartition(":")
            if not colon or not offset.isdecimal() or not file_number(file):
                raise BadParameterError(f"not FILE:OFFSET, nor a position: {text[:200]!r}", "place") from None
            return cls(file_number(file), int(offset))
        return cls(position.file_number, position.begin)

    @classmethod
    def of(cls, change: Change) -> Self:
        """Return where a change stands."""
        return cls(file_number(change.logfile_name), change.logfile_offset)


class End(NamedTuple):
    """Where to stop: before the first transaction that is not before both."""

    place: Place | None = None
    milliseconds: int = 0
    """Time since 1970; 0: any."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a time of ISO 8601, local where it names no zone, or a place. Raises BadParameterError."""
        try:
            return cls(None, round(datetime.fromisoformat(text).timestamp() * 1000))
        except ValueError:
            return cls(Place.parse(text))

    def is_before(self, begin: Place, milliseconds: int) -> bool:
        """Whether it is before a transaction that begins there, with changes of that time."""
        if self.place is not None:
            return begin >= self.place
        return 0 < self.milliseconds <= milliseconds


class Archive:
    """A folder with files of changes."""

    def __init__(self, folder: Path | RemotePath) -> None:
        """Look for the files. Raises SourceError."""
        self.folder = folder
        try:
            self.files = read_indexes(folder)
        except (OSError, DecodeError) as error:
            raise SourceError(f"{folder} cannot be read: {error}") from error
        if not self.files:
            raise SourceError(f"{folder} has no whole file of changes: an output of type file writes them")
        for it in self.files:
            if it.format != FORMAT:
                raise SourceError(f"{folder / it.file} has the format {it.format}: only {FORMAT} can be replayed")

    def check_job(self, done: int, record: int) -> None:
        """Make sure that a job, which has applied a transaction of that number, was begun with these files.

        ``record`` is the `Message.offset` of that transaction, -1 before the first one. Raises BadParameterError.
        """
        number = done >> NUMBER_BITS
        index = next((it for it in self.files if _number(it) == number), None)
        # An earlier version kept the number of the file.
        if record >= 0 and index is not None and record not in (_origin(index), number):
            raise BadParameterError(
                f"the job has applied changes of another folder: its file {number} did not begin at"
                f" {index.from_position}, as {self.folder / index.file} does. Give this folder a --job of its own",
                "job",
            )

    def transactions(self, done: int, after: Place | None, end: End) -> Iterator[Message]:
        """Give the transactions and DDL statements, each with a number, as `Message.commit_ts`.

        Their `Message.offset` tells their file from those of other folders.

        ``done``: the number of the last one that was applied, 0 if none was; ``after``: the place before the first one.
        Raises SourceError, PurgedError when something is missing before or between them, and MarkerError where rows are
        missing.
        """
        if after is not None or end.place is not None:
            self._check_histories()
        files = self._begin_at(done >> NUMBER_BITS, None if done else after)
        reader = _Transactions()
        previous: Index | None = None
        for index in files:
            if previous is not None and previous.to_position != index.from_position:
                raise PurgedError(
                    f"{self.folder / index.file} begins at {index.from_position}, and the file before it ends at"
                    f" {previous.to_position}: files are missing between them"
                )
            previous = index
            for count, it in enumerate(reader.read(self.folder, index), 1):
                if end.is_before(it.begin, it.milliseconds):
                    return
                if (after is None or it.begin >= after) and len(it.entries) != EMPTY:
                    number = (_number(index) << NUMBER_BITS) + count
                    yield Message(self.folder.name, _origin(index), number, b"", it.entries)

    def ends_before(self, end: End) -> str:
        """Say where the files end, if that is before the end that is asked for; else nothing."""
        last = self.files[-1]
        place = Place.parse(last.to_position) if last.to_position else Place(0, 0)
        if end == End() or end.is_before(place, last.last_time):
            return ""
        time_ = datetime.fromtimestamp(last.last_time / 1000).astimezone().isoformat(timespec="seconds")
        return (
            f"The files end at {last.to_position}, before --until. Their last change is of {time_}. If the source has"
            " changed since, start again when the next file is whole."
        )

    def _begin_at(self, number: int, after: Place | None) -> Sequence[Index]:
        """Return the files from one on, or from the one that has a place; from one with the begin of a transaction."""
        self._check_begin(number, after)
        first = 0
        for place, it in enumerate(self.files):
            position = Position.parse(it.from_position)
            begin = Place(position.file_number, position.begin)
            is_before = _number(it) <= number if number else after is not None and begin <= after
            if is_before and position == position.transaction:
                first = place
        return self.files[first:]

    def _check_histories(self) -> None:
        """Raise SourceError when a file of the binlog and an offset are not one place in the files."""
        places = [Position.parse(text) for it in self.files for text in (it.from_position, it.to_position) if text]
        for before, later in pairwise(places):
            if not before.is_comparable(later):
                raise SourceError(
                    f"{self.folder} has changes of several servers or histories, {before} and {later}: a file of the"
                    " binlog and an offset are not one place there. Stop at a time, and begin without --after in a"
                    " folder with the files that follow the dump, and their indexes"
                )

    def _check_begin(self, number: int, after: Place | None) -> None:
        """Raise PurgedError when the first file begins after the place that is asked for, or the last one before it."""
        end = self.files[-1].to_position
        if not number and after is not None and end and after > Place.parse(end):
            raise PurgedError(f"{self.folder} ends at {end}, before the given place: there is nothing after it yet")
        position = Position.parse(self.files[0].from_position)
        begin = Place(position.file_number, position.begin)
        is_inside = position != position.transaction
        if number and _number(self.files[0]) > number:
            raise PurgedError(
                f"{self.folder} begins with the file {self.files[0].file}, after the last one that was applied: changes"
                " may be missing. Put the files back, or begin under another --job, with --after"
            )
        if not number and after is not None and (begin > after or (is_inside and begin >= after)):
            raise PurgedError(f"{self.folder} begins at {position}, after the given place: changes are missing")
        if not number and after is None and is_inside:
            raise PurgedError(f"{self.folder} begins at {position}, inside a transaction: give a place by --after")


class Transaction(NamedTuple):
    """A transaction or a DDL."""

    begin: Place
    milliseconds: int
    entries: list[Entry]


class _Transactions:
    """Joins the entries of frames to transactions, over the ends of files."""

    def __init__(self) -> None:
        self._open: list[Entry] = []
        self._begin = Place(0, 0)
        self._size = 0

    def read(self, folder: Path | RemotePath, index: Index) -> Iterator[Transaction]:
        try:
            for payload in read_file(folder, index):
                if read_note(payload) is None:
                    yield from self._take(payload)
        except (OSError, DecodeError) as error:
            raise SourceError(f"{folder / index.file} cannot be read: {error}") from error

    def _take(self, payload: bytes) -> Iterator[Transaction]:
        entries = Messages.FromString(payload).messages
        for number, (change, data) in enumerate(zip(decode_changes(payload), entries, strict=True)):
            if not change.header_props.keys().isdisjoint(MARKERS):
                raise MarkerError(number, change.schema, change.table, change.sql)
            framed = varint(MESSAGES) + varint(len(data)) + data
            entry = Entry(0, 0, change.schema, change.table, 0, framed)
            if change.is_ddl:
                yield Transaction(Place.of(change), change.execute_time, [entry])
                continue
            if change.entry_type == "TRANSACTIONBEGIN":
                self._open, self._size, self._begin = [], 0, Place.of(change)
            if change.sql and change.type == "QUERY":  # the text of a statement: its rows follow
                continue
            if change.sql:
                text = f"a change was logged as a statement, without its rows: {change.sql[:LONGEST_SHOWN]}"
                raise MarkerError(number, change.schema, change.table, text)
            self._open.append(entry)
            self._size += len(framed)
            if self._size > LARGEST:
                raise SourceError(f"the transaction at {self._begin} has more than {LARGEST} bytes")
            if change.entry_type == "TRANSACTIONEND":
                yield Transaction(self._begin, change.execute_time, self._open)
                self._open = []


def _number(index: Index) -> int:
    return int(index.file.partition("-")[0])


def _origin(index: Index) -> int:
    """Return a number for the place where a file begins."""
    return int.from_bytes(hashlib.sha256(index.from_position.encode()).digest()[:7], "big")


def batches(messages: Iterator[Message], rows: int, size: int, seconds: float) -> Iterator[list[Message]]:
    """Join messages to what is applied at once: up to ``rows`` entries and ``size`` bytes, within ``seconds``."""
    found: list[Message] = []
    count = total = 0
    begun = time.monotonic()
    for it in messages:
        found.append(it)
        count += len(it.entries)
        total += sum(len(entry.data) for entry in it.entries)
        if count >= rows or total >= size or time.monotonic() - begun > seconds:
            yield found
            found, count, total, begun = [], 0, 0, time.monotonic()
    if found:
        yield found
