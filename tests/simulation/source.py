"""A source of changes, and the ring that they are put into."""

from itertools import accumulate

from sluice.protocol.position import Position
from sluice.protocol.wire import varint
from sluice.store.ring import Flag, Kind, Ring, Staging
from sluice.store.segment import SegmentWriter
from tests.simulation.world import World

SOURCE, FILE, CREATED = "1", "binlog.000001", 7
ADDRESSES = ("db1:3306", "db2:3306")
"""Of the servers that have the changes; the first one is read before any other was chosen."""
TABLES = ("one", "two")
RING_SLOTS, RING_BYTES = 64, 1 << 14


def place(index: int) -> Position:
    """Return the position before a change."""
    return Position(SOURCE, FILE, CREATED, 4 + 10 * index, 0)


def index_of(position: str | Position) -> int:
    """Return the number of the change after a position."""
    if isinstance(position, str):
        position = Position.parse(position)
    return (position.begin - 4) // 10


def _framed(index: int) -> bytes:
    data = b"%d" % index
    return b"\x12" + varint(len(data)) + data


_ENTRIES = [_framed(index) for index in range(4096)]
_BYTES = b"".join(_ENTRIES)
_OFFSETS = [0, *accumulate(map(len, _ENTRIES))]


def entries(start: int, stop: int) -> bytes:
    """Return what is between two changes, framed as in ``Messages``."""
    return _BYTES[_OFFSETS[start] : _OFFSETS[stop]]


class Host:
    """A server of the source: it has all changes, or the first of them, and comes to have the others."""

    def __init__(self, address: str, number: int) -> None:
        self.address = address
        self.source = str(number)
        self.file = FILE.replace("1", str(number))
        self.has = 0
        """So many changes."""
        self.down_until = 0.0

    def place(self, index: int) -> Position:
        """Return its position before a change."""
        return Position(self.source, self.file, CREATED, 4 + 10 * index, 0)


class Source:
    """What was written: transactions of a few changes each.

    Of two servers one is written to. If it dies, the other one is, once it has all that was written before: so nothing
    that was delivered is ever lost.
    """

    def __init__(self, world: World, hosts: int = 1) -> None:
        self.world = world
        self.tables: list[int] = []
        """Of each change its table's number, 0 for the end of a transaction."""
        self.hosts = [Host(address, number + 1) for number, address in enumerate(ADDRESSES[:hosts])]
        self._written = self.hosts[0]

    def __len__(self) -> int:
        return len(self.tables)

    def grow(self) -> None:
        """Commit a transaction, if one of the servers can take it."""
        able = [it for it in self.hosts if self.is_up(it) and it.has == len(self)]
        if not able:
            return
        self._written = self._written if self._written in able else able[0]
        random = self.world.random
        for _ in range(1 + int(random.random() * 4)):
            self.tables.append(1 + (random.random() < 0.5))
        self.tables.append(0)
        self._written.has = len(self)

    def is_up(self, host: Host) -> bool:
        """Whether a server answers."""
        return host.down_until <= self.world.now

    def replicate(self) -> None:
        """Let the servers that live have all that was written."""
        for host in self.hosts:
            if self.is_up(host):
                host.has = len(self)


class Reader:
    """Fills a ring from a place of a server of the source on."""

    def __init__(self, source: Source, host: Host, ring: Ring, start: int) -> None:
        self.ring = ring
        self.next = start
        self.host = host
        self.is_reading = False
        self._source = source
        self._writer = SegmentWriter(ring.pool)
        self._staging = Staging()
        self._number = ring.sources.intern(("", host.source))
        self._file = ring.files.intern((host.file, CREATED))
        for table in TABLES:
            ring.tables.intern(("shop", table))

    def read(self, most: int) -> int:
        """Put at most `most` changes, if there is room and the server answers; return how many."""
        has = self.host.has if self._source.is_up(self.host) else self.next
        stop = min(self.next + min(most, RING_SLOTS - len(self.ring)), has)
        for index in range(self.next, stop):
            table = self._source.tables[index]
            begin = 4 + 10 * index
            self._writer.write(_ENTRIES[index])
            self._staging.add_entry(
                self._writer,
                Kind.ROW_DATA if table else Kind.TRANSACTION_END,
                table=table,
                flags=0 if table else Flag.BOUNDARY,
                source=self._number,
                file=self._file,
                begin=begin,
                next_file=self._file,
                next_begin=begin + 10,
                event_offset=begin,
            )
        count = stop - self.next
        if count:
            self.ring.put(self._staging)
            self.next = stop
        return count
