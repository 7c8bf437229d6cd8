"""A stream of changes written by a test instead of a decoder."""

import threading

from sluice.protocol.position import Position
from sluice.store.ring import Flag, Kind, Ring, Staging
from sluice.store.segment import SegmentWriter

SOURCE = "101"
FILE = "binlog.000007"
CREATED = 1_700_000_000
SERVER_ID = 101
STEP = 100  # bytes of each event in the imagined file


class Stream:
    """Puts transactions into a ring. The i-th event starts at offset ``4 + i * STEP``; each is a place of its own."""

    def __init__(self, ring: Ring, events: int = 0, member: str = "", name: str = SOURCE) -> None:
        self.ring = ring
        self.name = name
        self.writer = SegmentWriter(ring.pool)
        self.staging = Staging()
        self.events = events  # already in the file before this stream begins
        self.transactions = 0
        self.source = ring.sources.intern((member, name))
        self.file = ring.files.intern((FILE, CREATED))
        self.gtid = ring.gtid_sources.intern((member, (0, SERVER_ID)))

    def position(self, events: int) -> Position:
        """The place after this number of events."""
        return Position(self.name, FILE, CREATED, 4 + events * STEP, 0)

    @property
    def end(self) -> Position:
        return self.position(self.events)

    def stage(self, entry: bytes, kind: Kind, table: tuple[str, str] | None = None, *, boundary: bool = False) -> None:
        if entry:
            self.writer.write_framed(entry)
        begin = 4 + self.events * STEP
        self.events += 1
        self.transactions += boundary
        self.staging.add_entry(
            self.writer,
            kind,
            flags=Flag.BOUNDARY if boundary else 0,
            table=self.ring.tables.intern(table) if table else 0,
            rows=int(kind == Kind.ROW_DATA),
            source=self.source,
            server_id=SERVER_ID,
            execute_ms=(CREATED + self.events) * 1000,
            event_offset=begin,
            file=self.file,
            begin=begin,
            next_file=self.file,
            next_begin=begin + STEP,
            gtid=self.gtid if boundary else 0,
            gtid_first=self.transactions if boundary else 0,
            gtid_last=self.transactions if boundary else 0,
        )

    def transaction(self, *rows: bytes, table: tuple[str, str] = ("shop", "orders")) -> None:
        """Stage a begin, the rows and an end: ``len(rows) + 2`` events."""
        self.stage(b"begin", Kind.TRANSACTION_BEGIN)
        for row in rows:
            self.stage(row, Kind.ROW_DATA, table)
        self.stage(b"end", Kind.TRANSACTION_END, boundary=True)

    def advance(self) -> None:
        """Stage a transaction that gives no entry."""
        self.stage(b"", Kind.ADVANCE, boundary=True)

    def put(self, stop: threading.Event | None = None) -> bool:
        return self.ring.put(self.staging, stop)


def entries(slices: list[memoryview]) -> list[bytes]:
    """The entries of a batch, without their frames (which are shorter than 128 bytes in these tests)."""
    data = b"".join(slices)
    found = []
    while data:
        assert data[0] == 0x12
        found.append(data[2 : 2 + data[1]])
        data = data[2 + data[1] :]
    return found
