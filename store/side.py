"""Batches that are given beside the stream: markers of gaps, and rows of snapshots, as protobuf.

Their entries have no place of their own: they are at the place where their client is.
"""

from collections.abc import Sequence

from ..protocol import props
from ..protocol.canal.entry_pb2 import MYSQL, Entry, EntryType, EventType, Header, Pair, RowChange
from ..protocol.canal.packet_pb2 import Messages
from ..protocol.canal.resultset import RowBlock
from ..protocol.cut import ONE, Cut
from ..protocol.identifiers import quote_table
from ..protocol.position import Position
from ..protocol.wire import varint
from .batch import Batch
from .moves import Move
from .snapshot import Window


def _header(at: Position, prop: Pair) -> Header:
    """Return the header of an entry that the stream does not have, for a client that is at a position."""
    file, offset = at.canal_place
    return Header(
        version=1, logfileName=file, logfileOffset=offset, serverenCode="UTF-8", sourceType=MYSQL, props=[prop]
    )


def _of_member(at: Position, member: str) -> Position:
    """Return where a client is in a member of a group, or in the only source."""
    return at.places.get(member, at) if isinstance(at, Cut) else at


def _batch(
    batch_id: int,
    entries: Sequence[bytes],
    at: Position,
    *,
    timestamp: int,
    rows: int = 0,
    snapshot: int = 0,
    member: str = ONE,
) -> Batch:
    *_, begin, n = _of_member(at, member).parts
    return Batch(
        batch_id=batch_id,
        slices=[memoryview(entry) for entry in entries],
        from_=str(at),
        to=str(at),
        entries=len(entries),
        rows=rows,
        bytes=sum(map(len, entries)),
        timestamp=timestamp,
        positions=(varint(begin) + varint(n)) * len(entries),
        snapshot=snapshot,
    )


def gaps_batch(batch_id: int, gaps: Sequence[Move], at: Position) -> Batch:
    """Return the batch of markers that tell a client that is at a position of what it does not get."""
    entries = []
    for gap in gaps:
        header = _header(at, Pair(key=props.GAP, value=str(gap)))
        header.executeTime, header.eventType = gap.time, EventType.QUERY
        statement = RowChange(eventType=EventType.QUERY, isDdl=False, sql=f"-- {props.GAP}: {gap}")
        entry = Entry(header=header, entryType=EntryType.ROWDATA, storeValue=statement.SerializeToString())
        entries.append(Messages(messages=[entry.SerializeToString()]).SerializeToString())
    return _batch(batch_id, entries, at, timestamp=gaps[-1].time)


def rows_batch(batch_id: int, window: Window, blocks: Sequence[RowBlock], at: Position) -> Batch:
    """Return the batch of rows of a snapshot for a client that is at a position; a whole table is emptied before."""
    chunk, wish = window.chunk, window.wish
    assert chunk is not None
    header = _header(_of_member(at, wish.member), Pair(key=props.SNAPSHOT, value=str(wish.snapshot_id)))
    header.serverId = chunk.server_id
    if wish.member:
        header.props.add(key=props.MEMBER, value=wish.member)
    more = header.SerializeToString()
    entries = [block.entry(chunk.time, more) for block in blocks if len(block)]
    if window.is_whole:
        header.schemaName, header.tableName, header.eventType = wish.schema, wish.name, EventType.TRUNCATE
        header.executeTime = int(chunk.time * 1000)
        sql = f"TRUNCATE TABLE {quote_table(wish.schema, wish.name)}"
        statement = RowChange(eventType=EventType.TRUNCATE, isDdl=True, sql=sql, ddlSchemaName=wish.schema)
        emptied = Entry(header=header, entryType=EntryType.ROWDATA, storeValue=statement.SerializeToString())
        entries.insert(0, Messages(messages=[emptied.SerializeToString()]).SerializeToString())
    rows = sum(map(len, blocks))
    ms, of = int(chunk.time * 1000), wish.snapshot_id
    return _batch(batch_id, entries, at, timestamp=ms, rows=rows, snapshot=of, member=wish.member)
