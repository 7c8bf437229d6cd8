"""Binlogs made for the purpose: events with checksums and offsets, as the packets of a dump."""

import struct
import zlib

from sluice.instance.sources.mysql.decode.events import BinlogEvent
from tests.packets import PacketWriter

CREATED = 1_700_000_000
"""Unix time of every event that is given no other."""


class Log:
    """Writes events of a binlog in MySQL 8's way, with checksums and offsets."""

    def __init__(
        self, version: str = "8.0.36", file: str = "bin.000001", *, checksum: bool = True, event_types: int = 42
    ) -> None:
        self.event_types = event_types
        self.writer = PacketWriter()
        self.checksum = checksum
        self.offset = 4
        self.packets: list[bytes] = []
        self.version = version
        self.begin(file)

    def begin(self, file: str, offset: int = 4) -> "Log":
        """Send what a file begins with."""
        self.offset = 4
        self.add(BinlogEvent.ROTATE_EVENT, struct.pack("<Q", offset) + file.encode(), flags=0x20, counts=False)
        lengths = bytearray(42) + bytes([0xAA]) * (self.event_types - 42)
        lengths[BinlogEvent.TABLE_MAP_EVENT - 1] = 8
        for kind in (
            BinlogEvent.WRITE_ROWS_EVENT,
            BinlogEvent.UPDATE_ROWS_EVENT,
            BinlogEvent.DELETE_ROWS_EVENT,
        ):
            lengths[kind - 1] = 10
        body = struct.pack("<H50sIB", 4, self.version.encode(), 0, 19)
        body += bytes(lengths) + bytes([self.checksum])
        return self.add(BinlogEvent.FORMAT_DESCRIPTION_EVENT, body, described=True)

    def add(
        self,
        kind: int,
        body: bytes = b"",
        *,
        flags: int = 0,
        counts: bool = True,
        time: int = CREATED,
        log_pos: int | None = None,
        described: bool = False,
    ) -> "Log":
        size = 19 + len(body) + (4 if self.checksum or described else 0)
        if counts:
            self.offset += size
        place = (self.offset & 0xFFFFFFFF if counts else 0) if log_pos is None else log_pos
        event = struct.pack("<IBIIIH", time, kind, 7, size, place, flags) + body
        if self.checksum or described:
            event += zlib.crc32(event).to_bytes(4, "little")
        self.packets += self.writer.event(event)
        return self

    def query(self, text: str, *, time: int = CREATED) -> "Log":
        return self.add(
            BinlogEvent.QUERY_EVENT, struct.pack("<IIBHH", 9, 0, 2, 0, 0) + b"db\0" + text.encode(), time=time
        )

    def table_map(self, table_id: int = 5, name: str = "t") -> "Log":
        schema = b"\x02db\0" + bytes([len(name)]) + name.encode() + b"\0"
        return self.add(BinlogEvent.TABLE_MAP_EVENT, table_id.to_bytes(6, "little") + b"\1\0" + schema + b"\1\3\0\0")

    def insert(self, *values: int, table_id: int = 5, width: int = 1) -> "Log":
        rows = b"".join(b"\0" + value.to_bytes(4, "little") for value in values)
        body = table_id.to_bytes(6, "little") + b"\1\0\2\0" + bytes([width]) + b"\xff" + rows
        return self.add(BinlogEvent.WRITE_ROWS_EVENT, body)

    def xid(self, *, time: int = CREATED, log_pos: int | None = None) -> "Log":
        return self.add(BinlogEvent.XID_EVENT, struct.pack("<Q", 1), time=time, log_pos=log_pos)

    def xa_prepare(self, *, one_phase: bool) -> "Log":
        return self.add(BinlogEvent.XA_PREPARE_EVENT, struct.pack("<?III", one_phase, 1, 1, 0) + b"a")

    def transaction(self, value: int = 1) -> "Log":
        return self.query("BEGIN").table_map().insert(value).xid()
