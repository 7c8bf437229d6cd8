"""The decoder, on binlogs captured from real servers and on events made for the purpose."""

import re
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.instance.columns import SourceColumn
from sluice.instance.sources.mysql.decode.decoder import Decoder, Status
from sluice.instance.sources.mysql.decode.events import BinlogEvent, Event
from sluice.instance.sources.mysql.decode.plan import PlanOptions, TablePlan
from sluice.instance.sources.mysql.decode.table_map import TableMap
from sluice.instance.sources.mysql.decode.variables import statement_text
from sluice.protocol.canal.entry_pb2 import Entry, RowChange, TransactionBegin, TransactionEnd
from sluice.protocol.errors import DecodeError, SourceChangedError
from sluice.protocol.position import Position
from sluice.store.ring import Flag, Kind, Ring
from sluice.store.track import Track
from tests.binlog import CREATED, Log
from tests.decoding import SOURCE, Decoded, Options, Xa, binlogs, decode, drive, dump, feed, plan_by_types, query_text
from tests.packets import PacketWriter, file_packets
from tests.unit.plans import plan

SERVERS = ["mysql-5.6", "mysql-9.7", "mariadb-11.8"]
ROWS = {"mysql-5.6": 3038, "mysql-9.7": 6046, "mariadb-11.8": 3045}
"""Without one of an XA transaction that is rolled back."""
Parts = dict[str, tuple[Position, bytes]]


def xa_of(entry: Entry) -> str | None:
    """What the entry says of its XA transaction."""
    return next((prop.value for prop in entry.header.props if prop.key == "sluice.xa"), None)


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# --- captured binlogs -------------------------------------------------------------------------------------------------


def test_reads_everything_a_server_writes(server: str, tmp_path: Path) -> None:
    paths = binlogs(server, tmp_path)
    result = decode(dump(paths))
    assert [event.error for event in result.controls if event.error] == []
    assert sum(slot.rows for slot, _ in result.slots) == ROWS[server]
    assert result.end is not None
    assert (result.end.file, result.end.begin) == (paths[-1].name, paths[-1].stat().st_size)


def test_bytes_do_not_depend_on_how_packets_arrive(server: str, tmp_path: Path) -> None:
    paths = binlogs(server, tmp_path)
    whole = decode(dump(paths))
    for chunk in (1021, 16384, 65521):
        again = decode(dump(paths), chunk=chunk)
        assert again.data == whole.data
        assert [place for place, (slot, _) in zip(again.positions, again.slots, strict=True) if slot.length] == [
            place for place, (slot, _) in zip(whole.positions, whole.slots, strict=True) if slot.length
        ]


def test_positions_ascend_without_a_hole(server: str, tmp_path: Path) -> None:
    result = decode(dump(binlogs(server, tmp_path)))
    reached = result.positions[0][0]
    for (slot, _), (before, after) in zip(result.slots, result.positions, strict=True):
        assert reached <= before < after
        # Between two slots are events of their transaction that give no entry (BEGIN, GTID, TABLE_MAP).
        assert reached == before or (reached.begin, reached.file) == (before.begin, before.file)
        assert bool(slot.flags & Flag.BOUNDARY) == (after.n == 0)
        reached = after
    assert reached == result.end


def test_resumes_at_every_position(server: str, tmp_path: Path) -> None:
    paths = binlogs(server, tmp_path)
    kept: Parts = {}
    whole = decode(dump(paths[:1]), parts=kept)
    # Prepared parts of XA transactions that are before the position are sent again
    sent = {xid: (begin, b"".join(file_packets(paths[0], begin.begin))) for xid, (begin, _) in kept.items()}
    for i, (before, _) in enumerate(whole.positions):
        resumed = decode(file_packets(paths[0], before.begin), position=before, parts=dict(sent))
        wanted = [(entry, after) for (_, entry), (_, after) in zip(whole.slots, whole.positions, strict=True)][i:]
        got = [(entry, after) for (_, entry), (_, after) in zip(resumed.slots, resumed.positions, strict=True)]
        assert got == wanted, f"from {before}"


def test_goes_on_after_a_break_at_every_event(server: str, tmp_path: Path) -> None:
    path = binlogs(server, tmp_path)[0]
    packets = list(file_packets(path))
    whole = [entry.SerializeToString() for entry in decode(packets).entries]
    for received in range(2, len(packets)):
        kept: Parts = {}
        before = decode(packets[:received], parts=kept)
        assert before.end is not None
        after = decode(file_packets(path, before.end.begin), position=before.end, parts=kept)
        got = [entry.SerializeToString() for result in (before, after) for entry in result.entries]
        assert got == whole, f"{before.end} after {received} packets"


def test_stops_at_every_position(server: str, tmp_path: Path) -> None:
    paths = binlogs(server, tmp_path)
    whole = decode(dump(paths[:2]))
    for i, (before, _) in list(enumerate(whole.positions))[1:]:
        stopped = decode(dump(paths[:2]), stop=before)
        assert stopped.status == Status.STOPPED
        assert [entry for _, entry in stopped.slots] == [entry for _, entry in whole.slots[:i]], f"to {before}"


def test_every_transaction_has_one_begin_and_one_end(server: str, tmp_path: Path) -> None:
    open_transaction = False
    result = decode(dump(binlogs(server, tmp_path)))
    for (slot, _), (_, after) in zip(result.slots, result.positions, strict=True):
        if slot.kind == Kind.TRANSACTION_BEGIN:
            assert not open_transaction
            open_transaction = True
        elif slot.kind == Kind.TRANSACTION_END:
            assert open_transaction
            open_transaction = False
        elif slot.kind in {Kind.ROW_DATA, Kind.QUERY}:
            assert open_transaction
        else:
            assert after.n == 0 or slot.kind == Kind.DDL
    assert not open_transaction


def test_headers_are_filled_as_canal_fills_them(server: str, tmp_path: Path) -> None:
    result = decode(dump(binlogs(server, tmp_path)))
    slot, entry = next(pair for pair in result.slots if pair[0].kind == Kind.ROW_DATA)
    assert entry is not None
    header = entry.header
    assert (header.version, header.sourceType, header.serverenCode) == (1, 2, "UTF-8")
    assert (header.logfileName, header.logfileOffset) == ("mysql-bin.000001", slot.event_offset)
    assert (header.schemaName, header.tableName, header.eventType) == ("w", "a", 1)
    assert header.executeTime == slot.execute_ms
    assert header.serverId == slot.server_id
    assert [(prop.key, prop.value) for prop in header.props] == [("rowsCount", "3")]
    assert header.gtid == ""
    change = RowChange.FromString(entry.storeValue)
    assert [[column.value for column in row.afterColumns] for row in change.rowDatas] == [
        ["1", "x"],
        ["2", "yy"],
        ["3", ""],
    ]
    assert not change.isDdl


def test_counts_rows_of_events_that_hold_many(server: str, tmp_path: Path) -> None:
    result = decode(dump(binlogs(server, tmp_path)))
    for slot, entry in result.slots:
        if slot.kind == Kind.ROW_DATA and entry is not None:
            counts = [prop.value for prop in entry.header.props if prop.key == "rowsCount"]
            assert counts == [str(slot.rows)]
            assert len(RowChange.FromString(entry.storeValue).rowDatas) == slot.rows


def test_statement_text_is_an_entry_before_its_rows(server: str, tmp_path: Path) -> None:
    result = decode(dump(binlogs(server, tmp_path)))
    texts = [
        RowChange.FromString(entry.storeValue).sql
        for slot, entry in result.slots
        if slot.kind == Kind.QUERY and entry is not None
    ]
    assert "insert into a values (1,'x'),(2,'yy'),(3,null)" in texts
    assert "SET @v := 5" in texts
    dropped = decode(dump(binlogs(server, tmp_path)), Options(filter_query_dml=True))
    assert Kind.QUERY.name not in dropped.kinds
    assert sum(slot.rows for slot, _ in dropped.slots) == ROWS[server]


def test_savepoints_and_their_rollbacks_give_nothing(server: str, tmp_path: Path) -> None:
    paths = binlogs(server, tmp_path)
    assert any(b"SAVEPOINT" in path.read_bytes() for path in paths)
    result = decode(dump(paths))
    texts = [query_text(event) for event in result.controls if event.type == BinlogEvent.QUERY_EVENT]
    assert not [text for text in texts if "SAVEPOINT" in text or "ROLLBACK TO" in text]


def test_ends_of_transactions_name_the_xid_or_zero(server: str, tmp_path: Path) -> None:
    result = decode(dump(binlogs(server, tmp_path)))
    ends = [
        TransactionEnd.FromString(entry.storeValue).transactionId
        for slot, entry in result.slots
        if slot.kind == Kind.TRANSACTION_END and entry is not None
    ]
    assert "0" in ends  # the table that knows no transactions: COMMIT instead of XID
    xids = [int(end) for end in ends if end != "0"]
    assert len(xids) >= 16
    assert xids == sorted(set(xids))


def test_xa_start_and_end_carry_their_xid(tmp_path: Path) -> None:
    result = decode(dump(binlogs("mysql-9.7", tmp_path)), Options(strict_canal=True))
    begins = [
        TransactionBegin.FromString(entry.storeValue)
        for slot, entry in result.slots
        if slot.kind == Kind.TRANSACTION_BEGIN and entry is not None
    ]
    assert all(begin.threadId for begin in begins)
    props = [{prop.key: prop.value for prop in begin.props} for begin in begins if begin.props]
    assert {"XA_TYPE": "XA START", "XA_XID": " X'7832',X'62',7"} in props
    assert {"XA_TYPE": "XA START", "XA_XID": " X'7a31',X'',1"} in props  # from a compressed payload


def test_a_transaction_ends_with_xa_prepare_not_with_xa_end(tmp_path: Path) -> None:
    result = decode(dump(binlogs("mysql-9.7", tmp_path)), Options(strict_canal=True))
    ends = [
        i
        for i, (slot, entry) in enumerate(result.slots)
        if slot.kind == Kind.TRANSACTION_END and entry is not None and b"XA END" in entry.storeValue
    ]
    assert len(ends) == 4
    for i in ends:
        assert not result.slots[i][0].flags & Flag.BOUNDARY
        assert result.slots[i + 1][0].kind == Kind.ADVANCE
        assert result.slots[i + 1][0].flags & Flag.BOUNDARY


def test_every_entry_of_an_xa_transaction_says_how_it_ends(tmp_path: Path) -> None:
    paths = binlogs("mysql-9.7", tmp_path)
    marks = Counter(xa_of(entry) for entry in decode(dump(paths)).entries)
    found = {state: {text for text in marks if text and text.startswith(state)} for state in ("committed", "one-phase")}
    assert found["committed"] == {"committed X'7831',X'',1", "committed X'7a31',X'',1"}  # the second was compressed
    assert all(marks[text] >= 3 for texts in found.values() for text in texts)
    assert {xa_of(entry) for entry in decode(dump(paths), Options(strict_canal=True)).entries} == {None}


# --- XA transactions, whose rows come where they are committed --------------------------------------------------------

XID = "X'61',X'',1"


def prepared(log: Log, *values: int) -> Log:
    """The events of an XA transaction that is prepared."""
    return log.query(f"XA START {XID}").table_map().insert(*values).query(f"XA END {XID}").xa_prepare(one_phase=False)


@pytest.mark.parametrize("chunk", [1, 64, 1 << 20])
def test_rows_that_are_prepared_come_where_they_are_committed(chunk: int) -> None:
    log = prepared(Log().transaction(1), 2, 3).transaction(4)
    place = log.offset
    log.query(f"XA COMMIT {XID}", time=CREATED + 60).transaction(5)
    result = decode(log.packets, chunk=chunk)
    entries = [it for it in result.slots if it[1] is not None]
    rows = [RowChange.FromString(it.storeValue) for slot, it in entries if it and slot.kind == Kind.ROW_DATA]
    assert [[row.afterColumns[0].value for row in it.rowDatas] for it in rows] == [["1"], ["4"], ["2", "3"], ["5"]]
    committed = [(slot, entry) for slot, entry in entries if entry is not None and xa_of(entry)]
    assert {xa_of(entry) for _, entry in committed} == {f"committed {XID}"}
    assert [Kind(slot.kind).name for slot, _ in committed] == ["TRANSACTION_BEGIN", "ROW_DATA", "TRANSACTION_END"]
    assert {(entry.header.logfileOffset, entry.header.executeTime) for _, entry in committed} == {
        (place, (CREATED + 60) * 1000)
    }
    # Its events are counted after the XA COMMIT: XA START, TABLE_MAP, rows, XA END, XA PREPARE
    assert [(slot.begin, slot.n) for slot, _ in committed] == [(place, 0), (place, 3), (place, 5)]
    assert [slot.flags & Flag.BOUNDARY for slot, _ in committed] == [0, 0, Flag.BOUNDARY]
    assert result.end is not None
    assert result.end.begin == log.offset


def test_rows_that_are_prepared_do_not_come_when_they_are_rolled_back() -> None:
    result = decode(prepared(Log(), 1).query(f"XA ROLLBACK {XID}").transaction(2).packets)
    assert [it.rowDatas[0].afterColumns[0].value for it in result.changes] == ["2"]
    assert [xa_of(entry) for entry in result.entries] == [None] * 3


def test_a_prepared_part_is_the_same_from_a_dump_of_its_file_with_other_checksums() -> None:
    log = prepared(Log(checksum=False).transaction(1), 2)
    dumped = b"".join(prepared(Log(checksum=False).transaction(1), 2).transaction(9).packets)
    kept: Parts = {}
    decode(log.packets, parts=kept)
    commit = Log(file="bin.000002").query(f"XA COMMIT {XID}").transaction(3).packets
    begin, _ = kept[XID]
    assert begin.begin > 4
    near, far = (decode(commit, parts={XID: (begin, data)}) for data in (kept[XID][1], dumped))
    assert near.data == far.data
    assert near.positions == far.positions
    assert sum(slot.rows for slot, _ in near.slots) == 2


@pytest.mark.parametrize(
    ("dumped", "error"),
    [
        (Log().query(f"XA START {XID}").transaction(1), "BEGIN in the middle"),
        (Log().query(f"XA START {XID}").table_map().insert(1).xid(), "ends otherwise than by XA PREPARE"),
        (Log().query(f"XA START {XID}").add(BinlogEvent.ROTATE_EVENT, b"\4" + bytes(7) + b"b.2"), "in the middle"),
        (Log().query(f"XA START {XID}").add(BinlogEvent.STOP_EVENT, log_pos=77), "but at 77 by its header"),
        (Log().query(f"XA START {XID}"), "without XA PREPARE"),
    ],
    ids=["another", "committed", "cut", "moved", "without an end"],
)
def test_a_prepared_part_that_is_not_one_is_an_error(dumped: Log, error: str) -> None:
    begin = Position(SOURCE, "bin.000001", CREATED, Log().offset, 0)
    dumped.add(BinlogEvent.ANONYMOUS_GTID_EVENT, bytes(42))
    with pytest.raises(DecodeError, match=error):
        decode(Log(file="bin.000002").query(f"XA COMMIT {XID}").packets, parts={XID: (begin, b"".join(dumped.packets))})


def test_a_prepared_part_of_a_file_that_was_made_again_is_not_taken() -> None:
    begin = Position(SOURCE, "bin.000001", CREATED - 1, Log().offset, 0)
    dumped = b"".join(prepared(Log(), 1).packets)
    with pytest.raises(SourceChangedError, match="was reset, or restored"):
        decode(Log(file="bin.000002").query(f"XA COMMIT {XID}").packets, parts={XID: (begin, dumped)})


def test_a_large_prepared_part_is_not_kept() -> None:
    for rows, is_kept in ((1000, True), (20_000, False)):
        kept: Parts = {}
        log = Log().query(f"XA START {XID}").table_map()
        for _ in range(4):
            log.insert(*range(rows))
        decode(log.query(f"XA END {XID}").xa_prepare(one_phase=False).packets, parts=kept)
        assert (XID in kept) is is_kept


@pytest.mark.parametrize("one_phase", [True, False])
@pytest.mark.parametrize("chunk", [1, 64, 1 << 20])
def test_how_an_xa_transaction_ends_is_known_before_its_begin_is_put(one_phase: bool, chunk: int) -> None:
    log = Log().transaction().query(f"XA START {XID}").table_map().insert(2).query(f"XA END {XID}")
    result = decode(log.xa_prepare(one_phase=one_phase).transaction(3).packets, chunk=chunk)
    marks = [f"one-phase {XID}"] * 3 if one_phase else []
    assert [xa_of(entry) for entry in result.entries] == [*[None] * 3, *marks, *[None] * 3]


def test_of_a_large_xa_transaction_the_source_is_asked() -> None:
    log = Log().query(f"XA START {XID}").table_map()
    for _ in range(17):
        log.insert(*range(200_000))
    log.query(f"XA END {XID}").xa_prepare(one_phase=True)
    for answer in (True, False, None):
        ring = Ring(size=1 << 16, memory=1 << 30)
        decoder = Decoder(ring, Options())
        decoder.begin(source=SOURCE)

        def decide(event: Event, decoder: Decoder = decoder, answer: bool | None = answer) -> None:
            assert event.position is not None
            assert (event.position.file, event.position.n) == ("bin.000001", 0)
            if answer is not None:
                decoder.decide_xa(one_phase=answer)

        result = drive(decoder, ring, log.packets, xa=Xa(decoder, None, decide))
        assert {xa_of(entry) for entry in result.entries} == ({f"one-phase {XID}"} if answer else set())
        assert sum(slot.rows for slot, _ in result.slots) == (17 * 200_000 if answer else 0)
        asked = [event for event in result.controls if event.type == BinlogEvent.XA_PREPARE_EVENT and not event.body]
        assert len(asked) == 1


def test_of_an_xa_transaction_that_breaks_off_nothing_is_put_before_the_source_is_asked() -> None:
    log = Log().query(f"XA START {XID}").table_map().insert(2)
    assert decode(log.packets).kinds == ["ADVANCE"]
    log.packets += log.writer.packets(b"\xff\xd4\x04#HY000gone")
    result = decode(log.packets)
    assert [event.type for event in result.controls][2:] == [BinlogEvent.XA_PREPARE_EVENT, BinlogEvent.ERROR_PACKET]
    assert result.kinds == ["ADVANCE"]


def test_gtids_stand_on_the_slot_that_ends_the_transaction(tmp_path: Path) -> None:
    paths = binlogs("mysql-9.7", tmp_path)
    ring = Ring()
    decoder = Decoder(ring, Options())
    decoder.begin(source="s")
    result = drive(decoder, ring, dump(paths))
    seen: dict[int, list[int]] = {}
    for slot, _ in result.slots:
        if slot.gtid:
            assert slot.flags & Flag.BOUNDARY
            seen.setdefault(slot.gtid, []).extend(range(slot.gtid_first, slot.gtid_last + 1))
    tags = {ring.gtid_sources[number][1][1]: numbers for number, numbers in seen.items()}
    assert tags["tagx"] == [1]
    assert tags[""] == list(range(1, len(tags[""]) + 1))


def test_mariadb_gtids_are_told_apart_by_domain_and_server(tmp_path: Path) -> None:
    ring = Ring()
    decoder = Decoder(ring, Options())
    decoder.begin(source="s")
    result = drive(decoder, ring, dump(binlogs("mariadb-11.8", tmp_path)))
    sources = {ring.gtid_sources[slot.gtid][1] for slot, _ in result.slots if slot.gtid}
    server_id = result.slots[-1][0].server_id
    assert sources == {(0, server_id), (5, server_id)}


def test_headers_carry_the_executed_set_with_gtid_on(tmp_path: Path) -> None:
    result = decode(
        dump(binlogs("mysql-9.7", tmp_path)), Options(gtid_on=True), executed="aaaaaaaa-0000-0000-0000-000000000001:1-7"
    )
    first = next(entry for entry in result.entries if entry.entryType == 1)
    uuid = first.header.gtid.split(",")[0].split(":")[0]
    assert first.header.gtid == f"{uuid}:1-5,aaaaaaaa-0000-0000-0000-000000000001:1-7"
    assert {prop.key: prop.value for prop in first.header.props} == {
        "curtGtid": f"{uuid}:5",
        "curtGtidSn": "5",
        "curtGtidLct": "4",
    }
    tagged = next(entry for entry in result.entries if any(":tagx:" in prop.value for prop in entry.header.props))
    assert tagged.header.gtid.startswith(f"{uuid}:1-31:tagx:1,")


def test_mariadb_headers_carry_the_last_gtid_of_each_domain_and_that_of_the_transaction(tmp_path: Path) -> None:
    result = decode(dump(binlogs("mariadb-11.8", tmp_path)), Options(gtid_on=True))
    sets = [entry.header.gtid for entry in result.entries if entry.header.gtid.count(",")]
    server_id = result.entries[-1].header.serverId
    assert sets[0] == f"0-{server_id}-36,5-{server_id}-1"
    gtids = [prop.value for entry in result.entries for prop in entry.header.props if prop.key == "curtGtid"]
    assert f"5-{server_id}-1" in gtids
    assert gtids[-1] == f"0-{server_id}-{sets[-1].split(',')[0].rpartition('-')[2]}"
    strict = decode(dump(binlogs("mariadb-11.8", tmp_path)), Options(gtid_on=True, strict_canal=True))
    assert not any(prop.key == "curtGtid" for entry in strict.entries for prop in entry.header.props)


def test_commit_times_come_from_the_gtid_event(tmp_path: Path) -> None:
    result = decode(dump(binlogs("mysql-9.7", tmp_path)))
    slots = [slot for slot, entry in result.slots if entry is not None]
    assert all(0 <= slot.commit_us // 1000 - slot.execute_ms < 60_000 for slot in slots)
    assert any(slot.commit_us % 1000 for slot in slots)  # the times of all other events are in seconds


def test_entries_of_a_compressed_transaction_have_the_place_of_the_payload(tmp_path: Path) -> None:
    result = decode(dump(binlogs("mysql-9.7", tmp_path)))
    payload = [
        (slot, entry, before)
        for (slot, entry), (before, _) in zip(result.slots, result.positions, strict=True)
        if entry is not None and entry.header.eventLength == 11506
    ]
    assert len(payload) == 12
    assert len({entry.header.logfileOffset for _, entry, _ in payload}) == 1
    assert len({before.begin for _, _, before in payload}) == 1
    # The GTID event is 0, the payload 1, its BEGIN 2, and each TABLE_MAP, SAVEPOINT and so on counts.
    assert [before.n for _, _, before in payload] == [2, 3, 5, 6, 8, 10, 12, 13, 14, 15, 16, 17]
    assert sum(slot.rows for slot, _, _ in payload) == 1 + 1 + 2999


def test_mariadb_compressed_events_give_what_they_would_uncompressed(tmp_path: Path) -> None:
    result = decode(dump(binlogs("mariadb-11.8", tmp_path)))
    values = [column.value for change in result.changes for row in change.rowDatas for column in row.afterColumns]
    assert values.count("c" * 90) == 3
    assert values.count("d" * 90) == 1
    statements = [query_text(event) for event in result.controls if event.type == BinlogEvent.QUERY_EVENT]
    assert any(text.startswith("create table comp ") and text.endswith("compressed'") for text in statements)


def test_strict_canal_drops_what_canal_drops(tmp_path: Path) -> None:
    paths = binlogs("mariadb-11.8", tmp_path)
    strict = decode(dump(paths), Options(strict_canal=True))
    dropped = Counter(decode(dump(paths), moves_xa=False).kinds) - Counter(strict.kinds)
    assert dropped == {"TRANSACTION_BEGIN": 29, "DDL": 1}
    assert not any("create table comp" in query_text(e) for e in strict.controls if e.type == BinlogEvent.QUERY_EVENT)


def test_a_two_phase_alter_is_one_ddl(tmp_path: Path) -> None:
    result = decode(dump(binlogs("mariadb-11.8", tmp_path)))
    statements = [query_text(event) for event in result.controls if event.type == BinlogEvent.QUERY_EVENT]
    assert statements.count("alter table a drop column k") == 1


def test_create_select_is_a_ddl_inside_its_transaction(server: str, tmp_path: Path) -> None:
    result = decode(dump(binlogs(server, tmp_path)))
    inside = [i for i, (slot, _) in enumerate(result.slots) if slot.kind == Kind.DDL and not slot.flags & Flag.BOUNDARY]
    assert inside
    assert result.kinds[inside[0] - 1] == Kind.TRANSACTION_BEGIN.name


# --- filters ----------------------------------------------------------------------------------------------------------


def test_excluded_tables_leave_only_the_advance_of_their_transactions(tmp_path: Path) -> None:
    def exclude(table_map: TableMap, number: int) -> TablePlan:
        return plan_by_types(table_map, number, PlanOptions(excluded=True))

    result = decode(dump(binlogs("mysql-9.7", tmp_path)[:1]), Options(filter_query_dml=True), make_plan=exclude)
    assert Kind.ROW_DATA.name not in result.kinds
    gtids = [n for slot, _ in result.slots if slot.gtid for n in range(slot.gtid_first, slot.gtid_last + 1)]
    assert len(gtids) == 40  # each transaction is still accounted for
    assert result.positions[-1][1] == result.end


@pytest.mark.parametrize(
    ("option", "gone"), [("filter_dml_insert", 1), ("filter_dml_update", 2), ("filter_dml_delete", 3)]
)
def test_dml_switches_drop_their_kind_of_change(option: str, gone: int, server: str, tmp_path: Path) -> None:
    result = decode(dump(binlogs(server, tmp_path)), replace(Options(), **{option: True}))
    kept = {slot.event_type for slot, _ in result.slots if slot.kind == Kind.ROW_DATA}
    assert kept == {1, 2, 3} - {gone}


def test_filter_rows_drops_all_rows(server: str, tmp_path: Path) -> None:
    paths = binlogs(server, tmp_path)
    others = [kind for kind in decode(dump(paths)).kinds if kind != Kind.ROW_DATA.name]
    assert decode(dump(paths), Options(filter_rows=True)).kinds == others


def test_filter_transaction_entry_lets_one_end_in_five_seconds_pass(server: str, tmp_path: Path) -> None:
    result = decode(dump(binlogs(server, tmp_path)), Options(filter_transaction_entry=True))
    assert result.kinds.count(Kind.TRANSACTION_END.name) == 1
    assert result.kinds.count(Kind.TRANSACTION_BEGIN.name) == 1
    assert result.positions[-1][1] == result.end


# --- made events ------------------------------------------------------------------------------------------------------


def test_without_checksums() -> None:
    result = decode(Log(checksum=False).transaction().packets)
    assert result.kinds == ["ADVANCE", "TRANSACTION_BEGIN", "ROW_DATA", "TRANSACTION_END"]


def test_a_wrong_checksum_is_an_error_that_names_the_place() -> None:
    log = Log().transaction()
    log.packets[-1] = log.packets[-1][:-1] + bytes([log.packets[-1][-1] ^ 1])
    with pytest.raises(DecodeError, match=r"checksum .*type 16 at bin.000001:"):
        decode(log.packets)


def test_an_event_at_another_offset_than_the_sum_is_an_error() -> None:
    with pytest.raises(DecodeError, match="by the events before it"):
        decode(Log().query("BEGIN").xid(log_pos=9999).packets)


def test_log_pos_zero_within_a_transaction_is_summed_up() -> None:
    log = Log().query("BEGIN")
    log.add(BinlogEvent.ROWS_QUERY_EVENT, b"\1x", log_pos=0)
    result = decode(log.xid().packets)
    assert result.end is not None
    assert result.end.begin == log.offset


def test_offsets_go_on_beyond_four_gibibytes() -> None:
    log = Log(checksum=False)
    log.packets = log.packets[1:]
    start = (1 << 32) - 50
    writer = PacketWriter()
    rotate = struct.pack("<Q", start) + b"bin.000001"
    head = struct.pack("<IBIIIH", 0, 4, 7, 19 + len(rotate), 0, 0x20)
    description = bytearray(log.packets[0][5:])
    description[13:17] = bytes(4)
    log.packets = [*writer.event(head + rotate), *writer.event(bytes(description))]
    log.writer, log.offset = writer, start
    result = decode(log.transaction().transaction().packets)
    assert result.end is not None
    assert result.end.begin == log.offset > 1 << 32
    assert result.entries[-1].header.logfileOffset > 1 << 32


def test_a_dump_by_gtid_may_leave_transactions_out() -> None:
    log = Log()
    log.offset += 5000
    log.add(BinlogEvent.GTID_EVENT, b"\1" + bytes(15) + b"\1" + struct.pack("<q", 8)).transaction()
    result = decode(log.packets, gtid=True)
    assert result.end is not None
    assert result.end.begin == log.offset
    with pytest.raises(DecodeError, match="by the events before it"):
        decode(log.packets)


def test_a_heartbeat_of_a_dump_by_gtid_moves_the_position() -> None:
    log = Log()
    log.offset += 5000
    log.add(BinlogEvent.HEARTBEAT_EVENT, b"bin.000001", counts=False, log_pos=log.offset)
    result = decode(log.packets, gtid=True)
    # Nothing is said of what is before it: it was left out because it was executed already.
    assert [place.begin for place in result.positions[-1]] == [log.offset, log.offset]
    assert result.kinds == ["ADVANCE"]
    with pytest.raises(DecodeError, match="heartbeat"):
        decode(log.packets)


def test_a_dump_by_gtid_that_leaves_a_whole_file_out_begins_in_the_next_one() -> None:
    log = Log().begin("bin.000002")
    begin = log.offset
    log.add(BinlogEvent.HEARTBEAT_EVENT, b"bin.000002", counts=False, log_pos=begin)
    result = decode(log.packets, gtid=True)
    ((before, after),) = result.positions
    assert result.kinds == ["ADVANCE"]
    assert before == after
    assert (before.begin, before.n) == (begin, 0)


def test_a_heartbeat_of_version_2_has_a_position_of_64_bits() -> None:
    log = Log()
    log.offset += 5000
    place = b"\xfe" + struct.pack("<Q", log.offset)
    log.add(BinlogEvent.HEARTBEAT_EVENT_V2, b"\1\x0abin.000001" + b"\2\x09" + place + b"\0", counts=False)
    assert decode(log.packets, gtid=True).positions[-1][1].begin == log.offset


def compressed(inner: bytes, announced: int | None = None) -> list[bytes]:
    """Packets of a transaction whose events are in a payload, which announces its length as `announced` bytes."""
    packed: bytes = pa.compress(inner, codec="zstd", asbytes=True)
    sizes = struct.pack("<BBBQ", 3, 9, 0xFE, len(inner) if announced is None else announced)
    sizes += struct.pack("<BBBQ", 1, 9, 0xFE, len(packed))
    log = Log().add(BinlogEvent.GTID_EVENT, b"\1" + bytes(15) + b"\1" + struct.pack("<q", 8))
    return log.add(BinlogEvent.TRANSACTION_PAYLOAD_EVENT, b"\2\1\0" + sizes + b"\0" + packed).packets


def inner(log: Log) -> bytes:
    """The events of a log without checksums as a payload has them."""
    return b"".join(packet[5:] for packet in log.packets[2:])


def virtual_peak() -> int:
    """KiB of memory that this process has ever asked for."""
    return int(re.search(r"VmPeak:\s+(\d+)", Path("/proc/self/status").read_text())[1])  # type: ignore[index]


def test_a_compressed_transaction_of_small_and_large_events() -> None:
    log = Log(checksum=False).query("BEGIN").table_map()
    for size in (1, 100_000, 3, 400_000, 2):  # less and more than is inflated at once
        log.insert(*range(size))
    packets = compressed(inner(log.xid()))
    assert [slot.rows for slot, _ in decode(packets).slots if slot.rows] == [1, 100_000, 3, 400_000, 2]


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ((1 << 30) + 1, r"of 1073741825 bytes in a transaction payload, more than 1073741824 \(sluice"),
        (0xFFFFFFFF, "more than 1073741824"),
        (1 << 30, "ends in the middle of an event"),
        (18, "an event of 18 bytes where"),
    ],
)
def test_an_event_in_a_payload_that_claims_to_be_large_takes_no_memory(claim: int, message: str) -> None:
    event = bytearray(inner(Log(checksum=False).query("BEGIN")))
    event[9:13] = claim.to_bytes(4, "little")
    packets = compressed(bytes(event), announced=1 << 40)
    before = virtual_peak()
    with pytest.raises(DecodeError, match=message):
        decode(packets)
    assert virtual_peak() < before + (256 << 10)


@pytest.mark.parametrize("excess", [-1, 1, 19, 1 << 62])
def test_a_payload_that_is_not_as_large_as_it_says_is_an_error(excess: int) -> None:
    events = inner(Log(checksum=False).transaction())
    with pytest.raises(DecodeError, match="transaction payload"):
        decode(compressed(events, announced=len(events) + excess))


@pytest.mark.parametrize("rows", [3, 52_353], ids=["in the buffer", "after a full buffer"])
def test_a_payload_with_a_byte_after_its_last_event_is_an_error(rows: int) -> None:
    log = Log(checksum=False).query("BEGIN").table_map()
    for count in (10, 10, 10, rows):  # with the larger one: 256 KiB, what is inflated at once
        log.insert(*range(count))
    events = inner(log.xid())
    assert len(events) < 1000 or len(events) == 1 << 18
    assert decode(compressed(events)).slots
    with pytest.raises(DecodeError, match="a transaction payload is longer than it says"):
        decode(compressed(events + b"\0", announced=len(events)))


def test_an_unknown_event_is_an_error_unless_it_may_be_ignored() -> None:
    with pytest.raises(DecodeError, match="unknown type"):
        decode(Log().add(99).packets)
    assert decode(Log().add(99, flags=0x80).packets).kinds == ["ADVANCE"]


def test_load_data_that_was_not_logged_as_rows_is_an_error() -> None:
    with pytest.raises(DecodeError, match="LOAD DATA"):
        decode(Log().add(BinlogEvent.BEGIN_LOAD_QUERY_EVENT).packets)


def test_rows_without_their_table_map_are_an_error_that_names_the_table_id() -> None:
    with pytest.raises(DecodeError, match="table id 77"):
        decode(Log().query("BEGIN").insert(1, table_id=77).packets)


def test_rows_that_do_not_fit_come_as_a_control_event_and_the_stream_goes_on() -> None:
    log = Log().query("BEGIN").table_map().insert(1).insert(1, width=2).insert(2).xid()
    result = decode(log.packets)
    assert result.kinds == ["ADVANCE", "TRANSACTION_BEGIN", "ROW_DATA", "ROW_DATA", "TRANSACTION_END"]
    (failed,) = [event for event in result.controls if event.error]
    assert failed.type == BinlogEvent.WRITE_ROWS_EVENT
    assert failed.position == Position("source", "bin.000001", CREATED, 127, 3)
    assert "2 columns" in str(failed.error)


def test_rows_that_end_early_name_their_column() -> None:
    log = Log().query("BEGIN").table_map()
    log.add(BinlogEvent.WRITE_ROWS_EVENT, b"\5\0\0\0\0\0\1\0\2\0\1\xff\0\1\0")
    (failed,) = [event for event in decode(log.packets).controls if event.error]
    assert "c0" in str(failed.error)


def test_a_rows_event_that_only_ends_a_statement_gives_nothing() -> None:
    log = Log().query("BEGIN").table_map().insert(1)
    log.add(BinlogEvent.WRITE_ROWS_EVENT, b"\xff\xff\xff\0\0\0\1\0\2\0\0").xid()
    assert decode(log.packets).kinds == ["ADVANCE", "TRANSACTION_BEGIN", "ROW_DATA", "TRANSACTION_END"]


@pytest.mark.parametrize(
    ("wanted", "before", "after", "absent"),
    [
        (None, {0, 9}, {0, 2, 9}, '["c1","c3","c4","c5","c6","c7","c8"]'),
        (None, {2, 7, 8}, {1, 3}, '["c0","c4","c5","c6","c9"]'),
        (None, {0, 2, 4, 6, 8}, {1, 3, 5, 7, 9}, "[]"),
        (None, {*range(10)}, {8}, "[]"),
        (None, {*range(10)}, {*range(10)}, None),
        ({3, 9}, {0}, {0, 3}, '["c9"]'),
        ({3}, {0, 3}, {0}, "[]"),
        ({3}, {0}, {0, 3}, "[]"),
        ({1, 9}, {1, 9}, {1, 9}, None),
    ],
)
def test_an_update_says_which_wanted_columns_both_images_lack(
    wanted: set[int] | None, before: set[int], after: set[int], absent: str | None
) -> None:
    def make_plan(table_map: TableMap, number: int) -> TablePlan:
        columns = [SourceColumn(f"c{i}", "int", None, i == 0) for i in range(10)]
        fields = None if wanted is None else frozenset(f"C{i}" for i in wanted)
        return TablePlan(table_map, columns, number, PlanOptions(fields=fields))

    bitmaps = [sum(1 << i for i in image).to_bytes(2, "little") for image in (before, after)]
    row = [bytes((len(image) + 7) // 8) + b"".join(i.to_bytes(4, "little") for i in image) for image in (before, after)]
    log = Log().query("BEGIN")
    log.add(BinlogEvent.TABLE_MAP_EVENT, b"\5\0\0\0\0\0\1\0\2db\0\1t\0\12" + b"\3" * 10 + b"\0\0\0")
    log.add(BinlogEvent.UPDATE_ROWS_EVENT, b"\5\0\0\0\0\0\1\0\2\0\12" + b"".join(bitmaps + row)).xid()
    (change,) = decode(log.packets, make_plan=make_plan).changes
    assert [(it.key, it.value) for it in change.props] == ([] if absent is None else [("sluice.absent", absent)])


def test_an_insert_of_null_says_which_columns_its_image_lacks() -> None:
    log = Log().query("BEGIN")
    log.add(BinlogEvent.TABLE_MAP_EVENT, b"\5\0\0\0\0\0\1\0\2db\0\1t\0\2\3\3\0\3")
    # The bits of the row's NULLs that have no column are set, as MySQL sets them.
    log.add(BinlogEvent.WRITE_ROWS_EVENT, b"\5\0\0\0\0\0\1\0\2\0\2\1\xff").xid()
    (change,) = decode(log.packets).changes
    assert [(it.key, it.value) for it in change.props] == [("sluice.absent", '["c1"]')]


class Planner:
    """Plans tables of one column, and notes which."""

    def __init__(self, column: str = "id") -> None:
        self.planned: list[str] = []
        self._columns = [SourceColumn(column, "int", None, True)]

    def __call__(self, table_map: TableMap, number: int) -> TablePlan:
        self.planned.append(table_map.table)
        return TablePlan(table_map, self._columns, number)


def test_a_table_is_planned_once_and_again_after_it_is_forgotten() -> None:
    make_plan = Planner()
    ring = Ring()
    decoder = Decoder(ring, Options())
    decoder.begin(source="s")
    log = Log().transaction().transaction()
    log.query("BEGIN").table_map(table_id=6).insert(1, table_id=6).xid()  # the same table under another id
    drive(decoder, ring, log.packets, make_plan=make_plan)
    assert make_plan.planned == ["t"]
    log.packets.clear()
    decoder.forget_plans("other", "t")
    drive(decoder, ring, log.transaction().packets, make_plan=make_plan)
    assert make_plan.planned == ["t"]
    log.packets.clear()
    decoder.forget_plans("db", "t")
    drive(decoder, ring, log.transaction().packets, make_plan=make_plan)
    assert make_plan.planned == ["t", "t"]
    log.packets.clear()
    decoder.forget_plans("d")
    drive(decoder, ring, log.transaction().packets, make_plan=make_plan)
    assert make_plan.planned == ["t", "t"]
    log.packets.clear()
    decoder.forget_plans("db")
    drive(decoder, ring, log.transaction().packets, make_plan=make_plan)
    assert make_plan.planned == ["t", "t", "t"]


@pytest.mark.parametrize(("size", "plans"), [(100, 60), (100_000, 120)], ids=["small", "large"])
def test_plans_are_kept_up_to_a_bound_of_bytes(size: int, plans: int) -> None:
    make_plan = Planner("x" * size)
    log = Log()
    for number in (*range(60), *range(60)):
        log.query("BEGIN").table_map(number, f"t{number}").insert(1, table_id=number).xid()
    decode(log.packets, make_plan=make_plan)
    assert len(make_plan.planned) == plans


def test_a_table_that_has_other_columns_again_is_planned_for_each() -> None:
    planned: list[int] = []

    def make_plan(table_map: TableMap, number: int) -> TablePlan:
        planned.append(len(table_map.types))
        return plan_by_types(table_map, number)

    log = Log()
    for columns in (b"\3", b"\3\3", b"\3"):
        body = b"\5\0\0\0\0\0\1\0\2db\0\1t\0" + bytes((len(columns),)) + columns + b"\0\0"
        row = b"\0" + b"\1\0\0\0" * len(columns)
        log.query("BEGIN").add(BinlogEvent.TABLE_MAP_EVENT, body)
        log.add(
            BinlogEvent.WRITE_ROWS_EVENT,
            b"\5\0\0\0\0\0\1\0\2\0" + bytes((len(columns),)) + b"\xff" + row,
        ).xid()
    result = decode(log.packets, make_plan=make_plan)
    assert result.kinds.count("ROW_DATA") == 3
    assert planned == [1, 2, 1]


@pytest.mark.parametrize("limit", [1 << 16, 20 << 20])
def test_an_event_that_is_longer_than_allowed_is_refused_before_it_has_come(limit: int) -> None:
    """By the header of its packet, or of the packet that it goes on in."""
    decoder = Decoder(Ring(), Options(event_bytes=limit))
    decoder.begin(source="s")
    whole, rest = divmod(limit + 2, 0xFFFFFF)  # the byte before the event, and one too many
    for number in range(whole):
        feed_all(decoder, b"\xff\xff\xff" + bytes([number]) + bytes(0xFFFFFF))
        assert decoder.run() == Status.NEED_DATA
    feed_all(decoder, rest.to_bytes(3, "little") + bytes([whole]))
    with pytest.raises(DecodeError, match=rf"more than {limit} bytes \(sluice\.instance\.event\.maxBytes\)"):
        decoder.run()


def test_an_event_as_long_as_allowed_passes() -> None:
    log = Log().query("BEGIN").add(BinlogEvent.ROWS_QUERY_EVENT, b"\0" + b"x" * (1 << 16)).table_map().insert(1).xid()
    longest = max(len(packet) - 5 for packet in log.packets)  # the packet's header, and the byte before the event
    assert decode(log.packets, Options(event_bytes=longest)).kinds.count("ROW_DATA") == 1
    with pytest.raises(DecodeError, match=f"more than {longest - 1} bytes"):
        decode(log.packets, Options(event_bytes=longest - 1))


def feed_all(decoder: Decoder, data: bytes) -> None:
    while data:
        data = feed(decoder, data)


def test_no_more_is_staged_than_there_is_room_in_the_ring() -> None:
    ring = Ring(memory=4 << 20)
    decoder = Decoder(ring, Options())
    decoder.begin(source="s")
    log = Log().query("BEGIN")
    for _ in range(8000):
        log.add(BinlogEvent.ROWS_QUERY_EVENT, b"\0" + b"x" * 1000)
    data = b"".join(log.packets)
    sizes: list[int] = []
    while True:
        status = decoder.run()
        if status == Status.NEED_DATA:
            data = feed(decoder, data)
        elif status == Status.CONTROL:
            decoder.skip_event()
        else:
            sizes.append(decoder.staging.bytes)
            if ring.pool.allocated > ring.memory - ring.pool.segment_size:
                break
            ring.put(decoder.staging)
    assert sizes[0] >= ring.memory // 8
    assert sizes[-1] < sizes[0]
    assert ring.pool.allocated <= ring.memory + ring.pool.segment_size


def test_plans_that_are_forgotten_in_the_middle_of_a_statement_count_to_its_end() -> None:
    make_plan = Planner()
    ring = Ring()
    decoder = Decoder(ring, Options())
    decoder.begin(source="s")
    log = Log().query("BEGIN").table_map(5, "t").table_map(6, "u").insert(1, table_id=5)
    drive(decoder, ring, log.packets, make_plan=make_plan)
    decoder.forget_plans()
    decoder.forget_plans()
    log.packets.clear()
    result = drive(decoder, ring, log.insert(2, table_id=6).insert(3, table_id=5).packets, make_plan=make_plan)
    assert result.kinds.count("ROW_DATA") == 2
    assert make_plan.planned == ["t", "u"]
    log.packets.clear()
    log.table_map(5, "t").insert(4).xid().transaction()
    result = drive(decoder, ring, log.packets, make_plan=make_plan)
    assert result.kinds.count("ROW_DATA") == 2
    assert make_plan.planned == ["t", "u", "t"]


def empties(count: int, *, step: int = 0) -> Iterator[bytes]:
    log = Log()
    for i in range(count):
        log.query("BEGIN", time=CREATED + i * step).xid(time=CREATED + i * step)
    return iter(log.packets)


def test_empty_transactions_are_one_advance_but_for_one_in_five_seconds() -> None:
    assert decode(empties(10)).kinds == ["ADVANCE", "TRANSACTION_BEGIN", "TRANSACTION_END", "ADVANCE"]
    assert decode(empties(3, step=6)).kinds == ["ADVANCE"] + 3 * ["TRANSACTION_BEGIN", "TRANSACTION_END"]


def test_transactions_before_the_position_do_not_count_as_empty_ones() -> None:
    log = Log().transaction().transaction().query("BEGIN").xid()
    whole = decode(log.packets)
    assert whole.kinds[-2:] == ["TRANSACTION_BEGIN", "TRANSACTION_END"]
    resumed = decode(log.packets, position=whole.positions[-2][0])
    assert resumed.kinds == ["TRANSACTION_BEGIN", "TRANSACTION_END"]


def test_one_empty_transaction_in_8193_is_delivered() -> None:
    assert decode(empties(8195)).kinds.count("TRANSACTION_END") == 2


def test_a_begin_is_put_before_the_first_entry_of_its_transaction() -> None:
    log = Log().query("BEGIN").table_map().insert(1).xid()
    result = decode(log.packets)
    begin = result.slots[1][0]
    assert (begin.kind, begin.begin, begin.n, begin.next_n) == (
        Kind.TRANSACTION_BEGIN,
        result.positions[0][1].begin,
        0,
        1,
    )


def test_a_ddl_outside_a_transaction_is_a_boundary() -> None:
    result = decode(Log().query("create table x (i int)").packets)
    assert result.kinds == ["ADVANCE", "DDL"]
    assert result.slots[1][0].flags & Flag.BOUNDARY


def test_packets_of_16_mebibytes_are_joined() -> None:
    log = Log().query("BEGIN")
    for size in (0xFFFFFF - 25, 0xFFFFFF - 24, 0xFFFFFF - 23, 3 * 0xFFFFFF):
        log.add(BinlogEvent.ROWS_QUERY_EVENT, b"\0" + b"x" * size)
    result = decode(log.xid().packets, chunk=1 << 22)
    assert [len(RowChange.FromString(e.storeValue).sql) for e in result.entries if e.entryType == 2] == [
        0xFFFFFF - 25,
        0xFFFFFF - 24,
        0xFFFFFF - 23,
        3 * 0xFFFFFF,
    ]


def test_the_receive_buffer_shrinks_after_a_huge_event() -> None:
    ring = Ring(memory=1 << 30)
    decoder = Decoder(ring, Options(filter_query_dml=True))
    decoder.begin(source="s")
    log = Log().query("BEGIN").add(BinlogEvent.ROWS_QUERY_EVENT, bytes(40 << 20)).xid()
    drive(decoder, ring, log.packets)
    assert len(decoder.receive_space()) <= 1 << 20


def test_an_idle_decoder_holds_little_memory() -> None:
    decoder = Decoder(Ring(), Options())
    decoder.begin(source="s")
    assert len(decoder.receive_space()) <= 16 << 10


def test_a_packet_out_of_order_is_an_error() -> None:
    log = Log().query("BEGIN").xid()
    del log.packets[2]
    with pytest.raises(DecodeError, match="packet number 4"):
        decode(log.packets)


def test_error_and_end_packets_are_control_events() -> None:
    log = Log()
    log.packets += log.writer.packets(b"\xff\xd4\x04#HY000gone")
    log.packets += log.writer.packets(b"\xfe\0\0\2\0")
    result = decode(log.packets)
    assert [(event.type, event.body) for event in result.controls[-2:]] == [
        (BinlogEvent.ERROR_PACKET, b"\xd4\x04#HY000gone"),
        (BinlogEvent.EOF_PACKET, b"\0\0\2\0"),
    ]


def test_a_position_of_a_file_that_was_created_again_is_refused() -> None:
    with pytest.raises(SourceChangedError, match="created at"):
        decode(Log().packets, position=Position("source", "bin.000001", CREATED - 1, 4, 0))


def test_a_position_beyond_the_end_of_its_transaction_is_an_error() -> None:
    with pytest.raises(DecodeError, match="event 17 was asked for"):
        decode(Log().transaction().packets, position=Position("source", "bin.000001", CREATED, 127, 17))


def test_text_that_is_not_utf8_is_made_valid() -> None:
    log = Log().query("BEGIN").add(BinlogEvent.ROWS_QUERY_EVENT, b"\0a\xff\xe2\x82b\xf0\x9f\x98\x80").xid()
    (change,) = [RowChange.FromString(e.storeValue) for e in decode(log.packets).entries if e.entryType == 2]
    assert change.sql == b"a\xff\xe2\x82b\xf0\x9f\x98\x80".decode("utf-8", "replace")


def test_an_incident_is_a_control_event() -> None:
    result = decode(Log().add(BinlogEvent.INCIDENT_EVENT, b"\1\0\4lost").packets)
    assert result.controls[-1].type == BinlogEvent.INCIDENT_EVENT
    assert result.controls[-1].body == b"\1\0\4lost"


def test_a_transaction_within_another_is_an_error() -> None:
    gtid = b"\1" + bytes(16) + struct.pack("<q", 8)
    with pytest.raises(DecodeError, match="in the middle of another"):
        decode(Log().add(BinlogEvent.GTID_EVENT, gtid).add(BinlogEvent.GTID_EVENT, gtid).packets)


def gtid(number: int) -> bytes:
    return b"\1" + bytes(range(16)) + (number & (1 << 64) - 1).to_bytes(8, "little")


def test_a_domain_of_mariadb_has_32_bits() -> None:
    log = Log("11.8.6-MariaDB")
    for domain in (255, 0x01020304):
        gtid_event = (9).to_bytes(8, "little") + domain.to_bytes(4, "little") + b"\0"
        log.add(BinlogEvent.MARIADB_GTID_EVENT, gtid_event).table_map().insert(1).xid()
    result = decode(log.packets, Options(gtid_on=True))
    rows = [entry for slot, entry in result.slots if slot.kind == Kind.ROW_DATA and entry is not None]
    assert [entry.header.gtid for entry in rows] == ["255-7-9", "255-7-9,16909060-7-9"]


@pytest.mark.parametrize("number", [0, -1, -(1 << 63), (1 << 63) - 1])
def test_a_gtid_whose_number_no_server_gives_is_an_error(number: int) -> None:
    with pytest.raises(DecodeError, match=rf"a GTID event with the number {number} \(event of type 33 at bin.000001"):
        decode(Log().add(BinlogEvent.GTID_EVENT, gtid(number)).query("BEGIN").packets)
    mariadb = (number & (1 << 64) - 1).to_bytes(8, "little") + bytes(4) + b"\1"
    with pytest.raises(DecodeError, match=f"a GTID event with the number {number} "):
        decode(Log("11.8.6-MariaDB").add(BinlogEvent.MARIADB_GTID_EVENT, mariadb).query("BEGIN").packets)


def test_a_gtid_that_only_the_other_product_writes_is_an_error() -> None:
    mariadb = (1).to_bytes(8, "little") + bytes(4) + b"\1"
    with pytest.raises(DecodeError, match=r"another product in a binlog of 8\.0\.36"):
        decode(Log().add(BinlogEvent.MARIADB_GTID_EVENT, mariadb).query("BEGIN").packets)
    with pytest.raises(DecodeError, match=r"another product in a binlog of 11\.8\.6-MariaDB"):
        decode(Log("11.8.6-MariaDB").add(BinlogEvent.GTID_EVENT, gtid(1)).query("BEGIN").packets)


def tagged(tag: bytes) -> bytes:
    """The body of a GTID event with a tag."""
    fields = b"\x02" + bytes(2 * value for value in range(16)) + b"\x04\x04"  # UUID, number 1
    fields += b"\x06" + bytes([2 * len(tag)]) + tag
    return b"\x02" + bytes([2 * (3 + len(fields))]) + b"\x00" + fields


@pytest.mark.parametrize("tag", [b"a,b", b"1a", b"UP", b"a:1", b"\xff"])
def test_a_tag_that_no_set_of_gtids_takes_is_an_error(tag: bytes) -> None:
    with pytest.raises(DecodeError, match="a GTID event with the tag"):
        decode(Log("9.7.4").add(BinlogEvent.GTID_TAGGED_EVENT, tagged(tag)).query("BEGIN").packets)


@pytest.mark.parametrize("tag", [b"a1", b"_9z", b"z_0"])
def test_a_tag_has_lower_case_letters_underscores_and_after_the_first_character_digits(tag: bytes) -> None:
    log = Log("9.7.4").add(BinlogEvent.GTID_TAGGED_EVENT, tagged(tag)).query("BEGIN").table_map().insert(1).xid()
    result = decode(log.packets, Options(gtid_on=True))
    assert result.changes
    assert result.entries[-1].header.gtid.partition(":")[2] == f"{tag.decode()}:1"


def test_a_server_may_have_more_types_of_events_than_a_byte_can_number() -> None:
    many, few = (decode(Log(event_types=number).transaction().packets) for number in (600, 42))
    assert [row for change in many.changes for row in change.rowDatas] == [
        row for change in few.changes for row in change.rowDatas
    ]
    assert {entry.header.logfileName for entry in many.entries} == {"bin.000001"}


@pytest.mark.parametrize("name", ["bin", "bin.", "bin.index", ".000001", "bin.000001\n", f"bin.{'9' * 5000}"])
def test_a_file_whose_name_gives_no_order_is_an_error(name: str) -> None:
    with pytest.raises(DecodeError, match="no number at its end"):
        decode(Log(file=name).transaction().packets)


@pytest.mark.parametrize("offset", [0, 3, (1 << 62) + 1, (1 << 64) - 1])
def test_a_file_that_begins_where_none_does_is_an_error(offset: int) -> None:
    with pytest.raises(DecodeError, match="a file that begins at"):
        decode(Log().begin("bin.000002", offset).transaction().packets)


def test_a_file_that_comes_before_the_one_at_hand_is_an_error() -> None:
    assert decode(Log(file="bin.000009").begin("bin.000010").transaction().packets).changes
    with pytest.raises(DecodeError, match=r"the file bin\.000008 after bin\.000009"):
        decode(Log(file="bin.000009").begin("bin.000008").transaction().packets)


def test_run_before_begin_is_refused() -> None:
    with pytest.raises(RuntimeError, match="begin"):
        Decoder(Ring(), Options()).run()


def test_answers_that_nothing_asked_for_are_refused() -> None:
    decoder = Decoder(Ring(), Options())
    decoder.begin(source="s")
    with pytest.raises(RuntimeError, match="no prepared part"):
        decoder.part_space()
    with pytest.raises(RuntimeError, match="no prepared part"):
        decoder.part_received(1)
    with pytest.raises(RuntimeError, match="not a TABLE_MAP"):
        decoder.add_plan(plan("int"))


def test_segments_go_back_to_the_pool_when_the_decoder_is_closed() -> None:
    ring = Ring()
    decoder = Decoder(ring, Options())
    decoder.begin(source="s")
    result = Decoded()
    drive(decoder, ring, Log().transaction().packets, result=result)
    ring.pool.close()  # it keeps nothing that comes back
    assert ring.pool.allocated == ring.pool.segment_size
    decoder.close()
    assert ring.pool.allocated == 0


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        (BinlogEvent.INTVAR_EVENT, b"\2" + struct.pack("<Q", 17), "SET INSERT_ID = 17"),
        (BinlogEvent.INTVAR_EVENT, b"\1" + struct.pack("<Q", 17), "SET LAST_INSERT_ID = 17"),
        (BinlogEvent.RAND_EVENT, struct.pack("<QQ", 3, 4), "SET SESSION rand_seed1 = 3 , rand_seed2 = 4"),
        (BinlogEvent.USER_VAR_EVENT, b"\1\0\0\0n\1", "SET @n := NULL"),
        (BinlogEvent.USER_VAR_EVENT, b"\1\0\0\0n\0\0\x2d\0\0\0\3\0\0\0abc", "SET @n := 'abc'"),
        (BinlogEvent.USER_VAR_EVENT, b"\1\0\0\0n\0\2\x3f\0\0\0\x08\0\0\0" + b"\xff" * 8 + b"\0", "SET @n := -1"),
        (
            BinlogEvent.USER_VAR_EVENT,
            b"\1\0\0\0n\0\2\x3f\0\0\0\x08\0\0\0" + b"\xff" * 8 + b"\1",
            f"SET @n := {2**64 - 1}",
        ),
        (
            BinlogEvent.USER_VAR_EVENT,
            b"\1\0\0\0n\0\1\x3f\0\0\0\x08\0\0\0" + struct.pack("<d", 1.5),
            "SET @n := 1.5",
        ),
        (BinlogEvent.USER_VAR_EVENT, b"\1\0\0\0n\0\4\x3f\0\0\0\5\0\0\0\4\2\x8c\x22", "SET @n := 12.34"),
    ],
)
def test_variables_of_statements_are_canals_text(kind: BinlogEvent, body: bytes, text: str) -> None:
    if b"\4\2\x8c\x22" in body:
        body = body.replace(b"\5\0\0\0\4\2", b"\4\0\0\0\4\2")
    assert statement_text(kind, body) == text


def user_variable(value: bytes) -> bytes:
    return b"\1\0\0\0n\0\4\x3f\0\0\0" + len(value).to_bytes(4, "little") + value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\1\0\x81", "1"),
        (b"\1\1\x85", "0.5"),
        (b"\4\2\x8c\x22", "12.34"),
        (b"\4\2\x73\xdd", "-12.34"),
        (b"\2\0\x80", "0"),
        (b"\x0c\2\x81\x0d\xfb\x38\xd2\x22", "1234567890.34"),
        (b"\x51\0" + b"\x80" + bytes(35), "0"),  # as many digits as an expression can give
    ],
)
def test_a_decimal_user_variable_is_plain_text(value: bytes, text: str) -> None:
    assert statement_text(BinlogEvent.USER_VAR_EVENT, user_variable(value)) == f"SET @n := {text}"


@pytest.mark.parametrize(
    "value",
    [
        b"\4\2\x8c",
        b"\4\2\x8c\x22\0",
        b"\2\4\x8c\x22",
        b"\0\0",
        b"\4\2\xff\xff",
        b"\xff\0" + bytes(114),
    ],
    ids=["short", "long", "scale", "no digits", "no digit", "precision"],
)
def test_a_decimal_user_variable_that_does_not_fit_is_an_error(value: bytes) -> None:
    with pytest.raises(DecodeError, match="not a packed DECIMAL"):
        statement_text(BinlogEvent.USER_VAR_EVENT, user_variable(value))


def test_entries_are_framed_as_messages() -> None:
    result = decode(Log().transaction().packets)
    entry = Entry()
    entry.ParseFromString(result.entries[1].SerializeToString())
    assert result.data[0] == 0x12
    assert entry == result.entries[1]


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_the_gtid_of_what_was_put_in_part_is_known_however_far_the_rest_is_read(size: int) -> None:
    log, begins = Log(), {}
    for number in range(1, 5):
        begins[log.offset] = number
        log.add(BinlogEvent.GTID_EVENT, b"\1" + bytes(15) + b"\1" + struct.pack("<q", number))
        log.query("BEGIN").table_map().insert(1).insert(2).insert(3).xid()
    checked = set()
    for count in range(len(log.packets) + 1):
        ring = Ring(size)
        decoder = Decoder(ring, Options())
        decoder.begin(source=SOURCE)
        data = b"".join(log.packets[:count])
        while (status := decoder.run()) is not Status.NEED_DATA or data:
            event = decoder.event
            if status is Status.NEED_DATA:
                data = feed(decoder, data)
            elif event is not None and event.type == BinlogEvent.TABLE_MAP_EVENT:
                decoder.add_plan(plan_by_types(TableMap.parse(event.body), 1))
            else:
                decoder.skip_event()
        stop = threading.Event()
        ring.on_put = stop.set  # when the ring is full
        ring.put(decoder.staging, stop)
        place = decoder.staging.released
        position = None if place is None else Track(ring).position(place)
        if position is not None and position.n:
            source, number = decoder.gtid_in_part or (0, 0)
            assert (number, ring.gtid_sources[source]) == (begins[position.begin], ("", (bytes(15) + b"\1", "")))
            checked.add((number, len(decoder.staging)))
    assert checked


def test_the_gtid_of_a_transaction_that_is_passed_over_is_not_that_of_what_was_put_in_part() -> None:
    log, begins, counts = Log(), [], []
    for number in range(1, 4):
        begins.append(log.offset)
        log.add(BinlogEvent.GTID_EVENT, b"\1" + bytes(15) + b"\1" + struct.pack("<q", number))
        counts.append(len(log.packets))
        log.query("BEGIN").table_map().insert(1).xid()
    found = []
    for count in counts:
        ring = Ring(16)
        decoder = Decoder(ring, Options())
        decoder.begin(source=SOURCE, position=Position(SOURCE, "bin.000001", CREATED, begins[2], 3))
        drive(decoder, ring, log.packets[:count])
        found.append(decoder.gtid_in_part)
    assert found == [None, None, (1, 3)]
