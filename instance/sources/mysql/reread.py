"""Row events in quarantine, decoded once more: from their bytes that were kept, else from the source."""

import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from ....protocol import props
from ....protocol.canal import entry_pb2 as pb
from ....protocol.canal.packet_pb2 import Messages
from ....protocol.errors import SourceError
from ....protocol.lexer import Dialect
from ....protocol.position import Position
from ....protocol.wire import varint
from ....store.cursor import Cursor
from ....store.ring import Kind, Ring
from ...quarantine import Item, Kept, Quarantine, path_of, read, read_kept
from ...source import Reread
from .config import MysqlConfig
from .connection import Connection
from .control import Control
from .decode.decoder import Decoder, Status
from .decode.events import BinlogEvent
from .history.versions import open_history
from .parser import Parser
from .schema import InformationSchema, Schemas, charsets
from .start import StartFinder

PATIENCE = 60.0
"""Seconds that the source may take for one event."""
_ROOM: Final = 1 << 40
"""Bytes of a ring that never waits: it gets one event."""
_HEADER: Final = struct.Struct("<IBIIIH")  # timestamp, type, server id, size, log_pos, flags
_ARTIFICIAL: Final = 0x20
_IN_USE: Final = 0x01
_LONGEST_PACKET: Final = 0xFFFFFF


def reread(config: MysqlConfig, connection: Connection, item: Item) -> Reread:
    """Decode a row event in quarantine again. See `sluice.instance.source.Examination.reread`."""
    with TemporaryDirectory(prefix="sluice-reread-") as folder:
        alone = config.beside(Path(folder)).model_copy(
            update={"gtid_on": False, "quarantine": True, "filter_table_error": False}
        )
        listed = path_of(alone.file_data_dir, alone.destination)
        kept = read_kept(path_of(config.file_data_dir, config.destination), item.position)
        conditions = config.conditions() if config.filter_crossing == "split" else None
        if kept is None and conditions is not None and conditions.of(item.schema, item.table) is not None:
            return Reread(
                b"",
                "its bytes were not kept (sluice.instance.quarantine.maxBytes), and with"
                " sluice.instance.filter.where.crossing = split nothing says how many entries it gives: copy its rows"
                " from the table",
            )
        ring = Ring(memory=_ROOM)
        try:
            if kept is None:
                _read(alone, connection, Position.parse(item.position), ring)
            else:
                _decode(alone, connection, item, kept, ring)
            rows, failed = _entries(ring)
        finally:
            ring.close()
        again = read(listed)
    if failed or not rows:
        return Reread(b"", again[0].error if again else "the filters of the destination drop it now")
    if kept is not None:
        rows = [_in_its_place(entry, kept) for entry in rows]
    position = Position.parse(item.position)
    places = (varint(position.begin) + varint(position.n + i) for i in range(len(rows)))
    return Reread(Messages(messages=rows).SerializeToString(), "", positions=b"".join(places))


def _read(config: MysqlConfig, connection: Connection, position: Position, ring: Ring) -> None:
    """Let the source send the event at a position again. Raises SourceError."""
    start = Cursor.at(position)
    StartFinder(connection, config, lambda: Connection(config)).find(start)
    ended = threading.Event()
    error: list[str] = []

    def on_state(state: str, text: str) -> None:
        if state != "running":
            error.extend([text] if text else [])
            ended.set()

    parser = Parser(config, ring, start=start, stop=replace(position, n=position.n + 1), on_state=on_state)
    parser.start()
    try:
        if not ended.wait(PATIENCE):
            raise SourceError(f"the source did not send the event within {PATIENCE:g} s")
        if error:
            raise SourceError(error[0])
    finally:
        parser.stop()
        parser.join(PATIENCE)


def _decode(config: MysqlConfig, connection: Connection, item: Item, kept: Kept, ring: Ring) -> None:
    """Decode what was kept of an event, with the columns that are known now. Raises SourceError, DecodeError."""
    facts = connection.facts
    quarantine = Quarantine(path_of(config.file_data_dir, config.destination))
    decoder = Decoder(ring, config)
    control = Control(config, ring, decoder, quarantine)
    control.charsets = charsets(connection)
    control.mariadb = facts.mariadb
    control.asks_schemas = facts.asks_schemas
    control.renames_silently = facts.renames_silently
    control.finder = lambda: nullcontext(StartFinder(connection, config, lambda: Connection(config)))
    history = open_history(config, writes=False) if config.tsdb_enable else None
    position = Position.parse(item.position)
    control.schemas = Schemas(
        InformationSchema(lambda: Connection(config)),
        Dialect(facts.version, facts.mariadb, frozenset(control.charsets.values())),
        ignore_case=facts.lower_case_table_names != 0,
        only_open=facts.only_open,
        history=history if control.asks_schemas else None,
        start=Cursor.at(position),
    )
    decoder.begin(source=position.source)
    data = memoryview(b"".join(_packets(item, kept)))
    try:
        while True:
            status = decoder.run()
            ring.put(decoder.staging)
            if status is Status.CONTROL and decoder.event is not None:
                control.answer(decoder.event)
            elif status is Status.NEED_DATA:
                if not data:
                    break
                with decoder.receive_space() as space:
                    size = min(len(space), len(data))
                    space[:size] = data[:size]
                decoder.received(size)
                data = data[size:]
        quarantine.sync()
    finally:
        decoder.close()
        if history is not None:
            history.close()


def _packets(item: Item, kept: Kept) -> Iterator[bytes]:
    """Make a dump of a file that has only the event, its TABLE_MAP, and no checksums."""
    position = Position.parse(item.position)
    table_map = bytes.fromhex(item.table_map)
    # A table's id takes 4 bytes where the post-header of TABLE_MAP has 6, and 6 where it has 8.
    lengths = kept.description[57:]
    id_size = 4 if lengths[BinlogEvent.TABLE_MAP_EVENT - 1] == 6 else 6
    unchecked = kept.description[:-1] + b"\0"
    events = (
        (BinlogEvent.ROTATE_EVENT, struct.pack("<Q", 4) + position.file.encode(), _ARTIFICIAL),
        (BinlogEvent.FORMAT_DESCRIPTION_EVENT, unchecked, _IN_USE),
        (BinlogEvent.TABLE_MAP_EVENT, kept.body[:id_size] + b"\1\0" + table_map, 0),
        (kept.type, kept.body, 0),
    )
    number, offset = 1, 4
    for type_, body, flags in events:
        checked = type_ == BinlogEvent.FORMAT_DESCRIPTION_EVENT  # whatever it says of the others
        size = _HEADER.size + len(body) + 4 * checked
        offset += 0 if flags & _ARTIFICIAL else size
        log_pos = 0 if flags & _ARTIFICIAL else offset & 0xFFFFFFFF
        event = _HEADER.pack(item.timestamp, type_, item.server_id, size, log_pos, flags) + body
        payload = b"\0" + event + (zlib.crc32(event).to_bytes(4, "little") if checked else b"")
        for start in range(0, len(payload) + 1, _LONGEST_PACKET):
            part = payload[start : start + _LONGEST_PACKET]
            yield len(part).to_bytes(3, "little") + bytes([number & 0xFF]) + part
            number += 1


def _entries(ring: Ring) -> tuple[list[bytes], bool]:
    """Return the row entries of a ring, and whether one of them could not be decoded."""
    rows: list[bytes] = []
    failed = False
    for sequence in range(ring.first, ring.next):
        kind = ring.slot(sequence).kind
        failed = failed or kind == Kind.QUARANTINE
        if kind == Kind.ROW_DATA:
            framed = b"".join(bytes(part) for part in ring.collect(sequence, max_entries=1).slices)
            rows += Messages.FromString(framed).messages
    return rows, failed


def _in_its_place(data: bytes, kept: Kept) -> bytes:
    """Give an entry the header that it would have had in the stream."""
    entry = pb.Entry.FromString(data)
    header = pb.Header.FromString(kept.header)
    found = [it for it in header.props if it.key != props.QUARANTINE]
    del header.props[:]
    header.props.extend([*found, *entry.header.props])
    header.eventType = entry.header.eventType
    entry.header.CopyFrom(header)
    return entry.SerializeToString()
