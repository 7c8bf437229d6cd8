"""Drives the decoder as the parser does, without a source: captured binlogs in, entries and slots out."""

import base64
import gzip
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from sluice.instance.columns import SourceColumn
from sluice.instance.sources.mysql.decode.decoder import Decoder, Status
from sluice.instance.sources.mysql.decode.events import BinlogEvent, Event
from sluice.instance.sources.mysql.decode.plan import PlanOptions, TablePlan
from sluice.instance.sources.mysql.decode.table_map import TableMap
from sluice.instance.sources.mysql.xa import prepared_xid, resolved_xid
from sluice.instance.values.types import Type
from sluice.protocol.canal.entry_pb2 import Entry, EntryType, EventType, RowChange
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.position import Position
from sluice.store.ring import Kind, Ring, SlotView
from tests.packets import MAGIC, PacketWriter, file_packets

DATA = Path(__file__).parent / "data"
SOURCE = "source"
_TEXTS = {Type.VARCHAR, Type.STRING}
_TYPE_NAMES: dict[int, str] = {
    Type.LONG: "int",
    Type.LONGLONG: "bigint",
    Type.TINY: "tinyint",
    Type.JSON: "json",
    Type.STRING: "char(120)",
}


@dataclass(frozen=True)
class Options:
    """The options of a decoder: an instance's configuration without what concerns others."""

    gtid_on: bool = False
    strict_canal: bool = False
    filter_dml_insert: bool = False
    filter_dml_update: bool = False
    filter_dml_delete: bool = False
    filter_rows: bool = False
    filter_query_dml: bool = False
    filter_transaction_entry: bool = False
    event_bytes: int = 1 << 30


@dataclass
class Decoded:
    """What came out of a run."""

    slots: list[tuple[SlotView, Entry | None]] = field(default_factory=list)
    data: bytes = b""
    controls: list[Event] = field(default_factory=list)
    positions: list[tuple[Position, Position]] = field(default_factory=list)
    status: Status = Status.NEED_DATA
    end: Position | None = None

    @property
    def kinds(self) -> list[str]:
        return [Kind(slot.kind).name for slot, _ in self.slots]

    @property
    def entries(self) -> list[Entry]:
        return [entry for _, entry in self.slots if entry is not None]

    @property
    def changes(self) -> list[RowChange]:
        return [
            RowChange.FromString(entry.storeValue)
            for slot, entry in self.slots
            if entry is not None and slot.kind == Kind.ROW_DATA
        ]


def binlogs(server: str, folder: Path) -> list[Path]:
    """The binlog files captured from a server: mysql-bin.000001 and so on, in tests/data joined, zipped and in base64.

    They hold what tests/data/README.md says.
    """
    joined = gzip.decompress(base64.b64decode((DATA / f"{server}.b64").read_text()))
    paths = []
    for number, content in enumerate(joined.split(MAGIC)[1:], 1):
        paths.append(folder / f"mysql-bin.{number:06d}")
        paths[-1].write_bytes(MAGIC + content)
    return paths


def dump(paths: Iterable[Path]) -> Iterator[bytes]:
    """The packets of one dump over all files."""
    writer = PacketWriter()
    for path in paths:
        yield from file_packets(path, writer=writer)


def plan_by_types(table_map: TableMap, number: int, options: PlanOptions | None = None) -> TablePlan:
    """A plan without a schema: columns c0, c1 ... typed as the event says, the first one the key."""
    columns = [
        SourceColumn(f"c{i}", _TYPE_NAMES.get(kind, "varchar(100)"), "utf8mb4" if kind in _TEXTS else None, i == 0)
        for i, kind in enumerate(table_map.types)
    ]
    return TablePlan(table_map, columns, number, options)


def query_text(event: Event) -> str:
    """The statement of a QUERY event."""
    body = event.body
    return body[13 + int.from_bytes(body[11:13], "little") + body[8] + 1 :].decode("utf-8", "replace")


def query_entry(event: Event) -> bytes:
    """A DDL entry such as the parser would put."""
    entry = Entry(entryType=EntryType.ROWDATA)
    entry.header.eventType = EventType.QUERY
    entry.storeValue = RowChange(sql=query_text(event), isDdl=True).SerializeToString()
    return entry.SerializeToString()


def feed(decoder: Decoder, data: bytes) -> bytes:
    """Give the decoder as much as it has room for; returns what is left."""
    with decoder.receive_space() as space:
        size = min(len(space), len(data))
        space[:size] = data[:size]
    decoder.received(size)
    return data[size:]


class Xa:
    """What the parser does for XA transactions; `parts` are their prepared parts by xid, and what is kept of others."""

    def __init__(
        self,
        decoder: Decoder,
        parts: dict[str, tuple[Position, bytes]] | None,
        ask: Callable[[Event], None] | None = None,
    ) -> None:
        self.parts = {} if parts is None else parts
        self._decoder = decoder
        self._ask = ask
        self._recalls = False
        self._part = b""

    def feed(self, most: int) -> None:
        assert self._part, "a prepared part ends before its XA PREPARE"
        with self._decoder.part_space() as space:
            size = min(len(space), len(self._part), most)
            space[:size] = self._part[:size]
        self._decoder.part_received(size)
        self._part = self._part[size:]

    def prepare(self, event: Event) -> None:
        if not event.body:
            if self._ask is not None:
                self._ask(event)
        elif self._recalls:
            self._recalls = False
        elif self._decoder.kept is not None:
            assert event.position is not None
            self.parts[prepared_xid(event.body)] = (replace(event.position, n=0), self._decoder.kept)

    def resolves(self, event: Event) -> bool:
        """Whether the statement is the end of an XA transaction, whose rows then follow."""
        xid = resolved_xid(event.body) if self._decoder.moves_xa else ""
        if xid in self.parts and "COMMIT" in query_text(event) and not self._decoder.is_past:
            begin, self._part = self.parts[xid]
            self._decoder.recall(xid, begin)
            self._recalls = True
        return bool(xid)


def drive(
    decoder: Decoder,
    ring: Ring,
    packets: Iterable[bytes],
    *,
    make_plan: Callable[[TableMap, int], TablePlan] = plan_by_types,
    chunk: int = 1 << 20,
    result: Decoded | None = None,
    xa: Xa | None = None,
) -> Decoded:
    """Run until the packets end or the stop position is reached."""
    result = result or Decoded()
    xa = xa or Xa(decoder, None)
    source = _chunks(packets, chunk)
    data = b""
    while True:
        status = decoder.run()
        ring.put(decoder.staging)
        if status == Status.NEED_DATA:
            data = data or next(source, b"")
            if not data:
                break
            data = feed(decoder, data)
        elif status == Status.NEED_PART:
            xa.feed(chunk)
        elif status == Status.CONTROL:
            assert decoder.event is not None
            result.controls.append(decoder.event)
            _answer(decoder, ring, decoder.event, make_plan, xa)
        elif status == Status.STOPPED:
            break
        _collect(ring, result)
    _collect(ring, result)
    result.status = status
    result.end = decoder.position
    return result


def _answer(
    decoder: Decoder, ring: Ring, event: Event, make_plan: Callable[[TableMap, int], TablePlan], xa: Xa
) -> None:
    if event.error is not None:
        decoder.skip_event()
    elif event.type == BinlogEvent.TABLE_MAP_EVENT:
        table_map = TableMap.parse(event.body)
        number = ring.tables.intern((table_map.schema, table_map.table))
        decoder.add_plan(make_plan(table_map, number))
    elif event.type == BinlogEvent.XA_PREPARE_EVENT:
        xa.prepare(event)
    elif event.type == BinlogEvent.QUERY_EVENT and not xa.resolves(event):
        decoder.put_entry(query_entry(event), Kind.DDL, 7)


def decode(
    packets: Iterable[bytes],
    options: Options | None = None,
    *,
    position: Position | None = None,
    stop: Position | None = None,
    gtid: bool = False,
    executed: str = "",
    make_plan: Callable[[TableMap, int], TablePlan] = plan_by_types,
    chunk: int = 1 << 20,
    parts: dict[str, tuple[Position, bytes]] | None = None,
    moves_xa: bool = True,
) -> Decoded:
    """Decode with a decoder of its own."""
    ring = Ring(size=1 << 16, memory=1 << 30)
    decoder = Decoder(ring, options or Options(), moves_xa=moves_xa)
    decoder.begin(source=SOURCE, position=position, stop=stop, gtid=gtid, executed=executed)
    return drive(decoder, ring, packets, make_plan=make_plan, chunk=chunk, xa=Xa(decoder, parts))


def _chunks(packets: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The bytes of the packets, cut without regard to where packets end."""
    pending = bytearray()
    for packet in packets:
        pending += packet
        while len(pending) >= size:
            yield bytes(pending[:size])
            del pending[:size]
    if pending:
        yield bytes(pending)


def _collect(ring: Ring, result: Decoded) -> None:
    for sequence in range(ring.first, ring.next):
        slot = ring.slot(sequence)
        result.slots.append((slot, None))
        _, source = ring.sources[slot.source]
        file, created = ring.files[slot.file]
        before = Position(source, file, created, slot.begin, slot.n)
        file, created = ring.files[slot.next_file]
        after = Position(source, file, created, slot.next_begin, slot.next_n)
        result.positions.append((before, after))
    if ring.first == ring.next:
        return
    data = b"".join(ring.collect(ring.first).slices)
    result.data += data
    entries = iter(Messages.FromString(data).messages)
    first = len(result.slots) - len(ring)
    for i, (slot, _) in enumerate(result.slots[first:], first):
        if slot.length:
            result.slots[i] = (slot, Entry.FromString(next(entries)))
    ring.free_to(ring.next)
