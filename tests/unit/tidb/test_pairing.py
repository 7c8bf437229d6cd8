"""Which transactions a pump gives, and in which order, whatever arrives."""

import base64
import json
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.instance.pump import pairing as module
from sluice.instance.pump.pairing import NOWHERE, Pairing, Record, Transaction, merge, read_record
from sluice.protocol.errors import DecodeError
from sluice.protocol.tidb.binlog_pb2 import Binlog, BinlogType

PREWRITE, COMMIT, ROLLBACK = BinlogType.Prewrite, BinlogType.Commit, BinlogType.Rollback
DATA = Path(__file__).parents[2] / "data/tidb"
MINUTE = 60_000 << 18
"""Of a timestamp."""


def captured(name: str) -> list[bytes]:
    lines = map(json.loads, (DATA / name).read_text().splitlines())
    return [base64.b64decode(it["payload"]) for it in lines if it["label"] != "fake"]


def prewrite(start_ts: int, place: int = 0) -> Record:
    return Record(PREWRITE, start_ts, 0, place)


def commit(start_ts: int, commit_ts: int, place: int = 0) -> Record:
    return Record(COMMIT, start_ts, commit_ts, place)


def rollback(start_ts: int, place: int = 0) -> Record:
    return Record(ROLLBACK, start_ts, 0, place)


def heartbeat(ts: int, place: int = 0) -> Record:
    return Record(ROLLBACK, ts, ts, place)


def released(pairing: Pairing, records: Iterable[Record]) -> list[int]:
    return [it.commit_ts for record in records for it in pairing.take(record)]


def test_what_a_tidb_sent_becomes_what_its_pump_gave() -> None:
    payloads = captured("write_binlog.jsonl")
    pairing = Pairing()
    given = [it for place, payload in enumerate(payloads) for it in pairing.take(read_record(payload, place))]
    assert [merge(payloads[it.prewrite], payloads[it.commit]) for it in given] == captured("pull_binlogs.jsonl")
    assert (pairing.open, pairing.counts.lone, pairing.counts.late, pairing.first_needed) == (0, 0, 0, None)


def test_a_transaction_comes_when_none_can_commit_before_it_any_more() -> None:
    pairing = Pairing()
    assert released(pairing, [prewrite(1), prewrite(2), commit(2, 5)]) == []
    assert released(pairing, [prewrite(3), commit(3, 6)]) == []
    assert released(pairing, [commit(1, 4)]) == [4, 5, 6]
    assert pairing.released == 6


def test_one_that_is_rolled_back_never_comes_and_holds_nobody() -> None:
    pairing = Pairing()
    assert released(pairing, [prewrite(1), prewrite(2), commit(2, 5), rollback(1)]) == [5]
    assert pairing.open == 0


def test_a_heartbeat_comes_in_its_place() -> None:
    pairing = Pairing()
    assert released(pairing, [prewrite(1), heartbeat(9), heartbeat(9)]) == []
    assert pairing.take(commit(1, 8, 3)) == [Transaction(8, 1, 0, 3), *[Transaction(9, 9, NOWHERE, 0)] * 2]
    assert released(pairing, [heartbeat(9), heartbeat(7)]) == [], "the clock of the cluster stands still"
    assert pairing.counts.late == 0


def test_records_that_come_once_more_change_nothing() -> None:
    pairing = Pairing()
    assert released(pairing, [prewrite(1, 10), prewrite(1, 20), prewrite(2), commit(1, 4), commit(1, 4)]) == []
    assert released(pairing, [prewrite(1), rollback(2), prewrite(2), rollback(2)]) == [4]
    assert (pairing.open, pairing.counts.repeated) == (0, 4)


def test_a_commit_without_its_prewrite_is_counted_and_holds_nobody() -> None:
    pairing = Pairing()
    assert released(pairing, [commit(1, 4), rollback(2), prewrite(3), commit(3, 5)]) == [5]
    assert pairing.counts.lone == 1


def test_a_commit_below_what_was_released_is_counted_and_left_out() -> None:
    pairing = Pairing()
    assert released(pairing, [prewrite(1), commit(1, 9), prewrite(2), commit(2, 7)]) == [9]
    assert pairing.counts.late == 1


def test_two_transactions_with_one_commit_ts_come_both() -> None:
    pairing = Pairing()
    assert released(pairing, [prewrite(1), prewrite(2), commit(2, 5), commit(1, 5)]) == [5, 5]


def test_a_prewrite_without_an_end_is_asked_for_after_ten_minutes_of_the_cluster() -> None:
    pairing = Pairing()
    released(pairing, [prewrite(MINUTE, 7), prewrite(2 * MINUTE, 8), commit(2 * MINUTE, 3 * MINUTE)])
    assert pairing.due(11 * MINUTE - 1) == []
    assert pairing.due(11 * MINUTE) == [(MINUTE, 7)]
    assert pairing.take(rollback(MINUTE)) == [Transaction(3 * MINUTE, 2 * MINUTE, 8, 0)]
    assert pairing.due(20 * MINUTE) == []


def test_what_waits_for_a_transaction_that_never_ends_is_bounded_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING", 3)
    monkeypatch.setattr(module, "OPEN", 2)
    pairing = Pairing()
    released(pairing, [prewrite(1), prewrite(2)])
    assert pairing.refusal == "2 transactions are open: TiDB ends none of them"
    pairing = Pairing()
    released(pairing, [prewrite(1), *[it for ts in (10, 20, 30) for it in (prewrite(ts), commit(ts, ts + 1))]])
    assert pairing.refusal == "3 transactions wait for the end of the one with start_ts 1"
    assert released(pairing, [commit(1, 40)]) == [11, 21, 31, 40]
    assert pairing.refusal == ""


def test_what_waits_for_one_transaction_takes_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 100)
    count = 20_000
    pairing = Pairing()
    pairing.take(prewrite(1))
    tracemalloc.start()
    for ts in range(10, 10 + 2 * count, 2):
        pairing.take(prewrite(ts, ts))
        assert pairing.take(commit(ts, ts + 1, ts + 1)) == []
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken / count < 120
    assert pairing.first_needed == 0
    assert released(pairing, [rollback(1)]) == list(range(11, 11 + 2 * count, 2))


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b"\xff", "not a Binlog"),
        (Binlog(tp=BinlogType.PreDDL, start_ts=1).SerializeToString(), "a Binlog of type 3, which no TiDB sends"),
        (Binlog(tp=PREWRITE).SerializeToString(), "a Binlog with start_ts 0"),
        (Binlog(tp=COMMIT, start_ts=5, commit_ts=5).SerializeToString(), "a Commit with commit_ts 5, and start_ts 5"),
    ],
)
def test_what_is_no_half_of_a_transaction_is_refused(payload: bytes, problem: str) -> None:
    with pytest.raises(DecodeError, match=problem):
        read_record(payload, 0)


def test_a_merged_commit_has_the_ddl_of_its_prewrite() -> None:
    half = Binlog(tp=PREWRITE, start_ts=1, ddl_query=b"DROP TABLE t;", ddl_job_id=7, ddl_schema_state=0)
    whole = Binlog.FromString(
        merge(half.SerializeToString(), Binlog(tp=COMMIT, start_ts=1, commit_ts=2).SerializeToString())
    )
    assert (whole.tp, whole.commit_ts, whole.ddl_query, whole.ddl_job_id) == (COMMIT, 2, b"DROP TABLE t;", 7)
    assert whole.HasField("ddl_schema_state")


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[Record], list[int]]:
    """Two-phase commits as TiDBs do them, some halves twice; and the commit_ts of those that have committed.

    A commit_ts is drawn after the Prewrite has arrived; the Commit may come any time later. A Prewrite comes again only
    before its end: no call that began before a restart arrives after it.
    """
    clock = 0
    records: list[Record] = []
    begun: list[int] = []
    prewritten: list[int] = []
    ending: list[Record] = []
    committed: list[int] = []
    ended: list[Record] = []

    def arrive(record: Record) -> None:
        records.append(record._replace(place=len(records)))

    for _ in range(draw(st.integers(0, 40))):
        clock += 1
        match draw(st.sampled_from("bbpppccceeeerh")):
            case "b":
                begun.append(clock)
            case "p" if begun:
                start_ts = begun.pop(draw(st.integers(0, len(begun) - 1)))
                arrive(prewrite(start_ts))
                prewritten.append(start_ts)
            case "c" if prewritten:
                start_ts = prewritten.pop(draw(st.integers(0, len(prewritten) - 1)))
                if draw(st.booleans()):
                    committed.append(clock)
                    ending.append(commit(start_ts, clock))
                else:
                    ending.append(rollback(start_ts))
            case "e" if ending:
                ended.append(ending.pop(draw(st.integers(0, len(ending) - 1))))
                arrive(ended[-1])
            case "r" if ended or prewritten:
                arrive(draw(st.sampled_from([*ended, *map(prewrite, prewritten)])))
            case "h":
                arrive(heartbeat(clock))
    for start_ts in prewritten:
        arrive(rollback(start_ts))
    for record in ending:
        arrive(record)
    arrive(heartbeat(clock + 1))
    return records, committed


@given(arrivals(), st.data())
def test_each_committed_transaction_comes_once_in_order_whatever_is_read_again(
    made: tuple[list[Record], list[int]], data: st.DataObject
) -> None:
    records, committed = made
    pairing, found, following = Pairing(), list[Transaction](), 0
    restarts = data.draw(st.sets(st.integers(0, len(records))))
    while following < len(records):
        if following in restarts:
            restarts.remove(following)
            first = pairing.first_needed
            following = following if first is None else first
            pairing = Pairing(pairing.released)
            continue
        found += pairing.take(records[following])
        following += 1
    given_ts = [it.commit_ts for it in found if it.prewrite != NOWHERE]
    assert given_ts == sorted(committed)
    assert [it.commit_ts for it in found] == sorted(it.commit_ts for it in found)
    assert all(records[it.prewrite].start_ts == records[it.commit].start_ts for it in found if it.prewrite != NOWHERE)
    assert (pairing.open, pairing.counts.lone, pairing.counts.late) == (0, 0, 0)
