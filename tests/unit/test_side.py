"""What the batches beside the stream say: markers of gaps, and rows of snapshots."""

from sluice.protocol import props
from sluice.protocol.canal.entry_pb2 import Entry, EventType, RowChange
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.canal.touched import TouchedKeys
from sluice.protocol.cut import Cut
from sluice.protocol.position import Position
from sluice.store.batch import Batch
from sluice.store.moves import Move, MoveState, Reason
from sluice.store.side import gaps_batch, rows_batch
from sluice.store.snapshot import Chunk, Piece, Window, Wish
from tests.unit.test_touched import block

AT = Position("101", "binlog.000007", 1_700_000_000, 400, 2)


def read(batch: Batch) -> list[tuple[Entry, RowChange]]:
    found = [Entry.FromString(it) for it in Messages.FromString(b"".join(batch.slices)).messages]
    return [(it, RowChange.FromString(it.storeValue)) for it in found]


def said(entry: Entry) -> dict[str, str]:
    return {it.key: it.value for it in entry.header.props}


def whole_table(*rows: str, member: str = "") -> Window:
    """A table without a key, read at half a second past a full one."""
    window = Window(Wish(7, 0, "shop", "goods", "", None, None, 0, member), TouchedKeys("shop", "goods", ()))
    window.is_whole = True
    chunk = Chunk([Piece(block(*((it, "1") for it in rows)), None)], AT, (), None, True, 101, 1_700_000_001.5)
    window.fill(chunk)
    return window


def test_a_marker_is_a_statement_of_the_gap_at_the_place_where_its_client_is() -> None:
    gaps = [Move(Reason.PURGE, "a", "b", "w", time, MoveState.OPEN) for time in (1500, 2500)]
    batch = gaps_batch(3, gaps, AT)
    assert (batch.from_, batch.to, batch.entries, batch.rows) == (str(AT), str(AT), 2, 0)
    assert batch.timestamp == 2500, "that of the last one"
    assert batch.snapshot == 0, "it has no rows of a snapshot"
    for gap, (entry, change) in zip(gaps, read(batch), strict=True):
        header = entry.header
        assert said(entry) == {props.GAP: str(gap)}
        assert (header.version, header.logfileName, header.logfileOffset) == (1, "binlog.000007", 400)
        assert (header.executeTime, header.eventType) == (gap.time, EventType.QUERY)
        assert (change.sql, change.isDdl) == (f"-- {props.GAP}: {gap}", False)


def test_a_whole_table_is_emptied_by_a_statement_of_the_time_at_which_it_was_read() -> None:
    window = whole_table("a", "b")
    batch = rows_batch(3, window, [it.block for it in window.pieces], AT)
    (entry, change), (rows, _) = read(batch)
    assert (change.sql, change.isDdl, change.ddlSchemaName) == ("TRUNCATE TABLE `shop`.`goods`", True, "shop")
    assert (entry.header.eventType, entry.header.tableName) == (EventType.TRUNCATE, "goods")
    assert entry.header.executeTime == rows.header.executeTime == batch.timestamp == 1_700_000_001_500
    assert (batch.snapshot, batch.rows) == (7, 2)


def test_rows_of_a_group_name_their_member_and_are_at_its_place() -> None:
    window = whole_table("a", member="south")
    south = Position("102", "binlog.000009", 1_700_000_000, 900, 0)
    for entry, _ in read(rows_batch(3, window, [it.block for it in window.pieces], Cut({"north": AT, "south": south}))):
        assert said(entry)[props.MEMBER] == "south"
        assert (entry.header.logfileName, entry.header.logfileOffset) == ("binlog.000009", 900)


def test_rows_of_the_only_source_name_no_member() -> None:
    window = whole_table("a")
    for entry, _ in read(rows_batch(3, window, [it.block for it in window.pieces], AT)):
        assert props.MEMBER not in said(entry)
