"""Where the lag of a client is."""

import time
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.serving.backlog import Backlog
from sluice.instance.sources.mysql.config import Address, MysqlConfig
from sluice.instance.sources.mysql.parser import Parser
from sluice.instance.status import ParserStatus
from sluice.server.embedded.destinations import DestinationStatus
from sluice.server.lag import Stage, explain, is_minimum
from sluice.server.metrics import CLIENT
from sluice.store.allowance import AllowanceStatus
from sluice.store.ring import Ring
from sluice.store.status import NO_LAG, ClientStatus, Lag

NOW = 1_700_000_100.0
AMOUNT = Lag(transactions=1, entries=3, rows=7, bytes=300, oldest=1_700_000_090_000)


def client(number: int = 1001, **values: object) -> ClientStatus:
    status: dict[str, object] = {
        "client_id": number,
        "filter": "",
        "where": "",
        "state": "attached",
        "error": "",
        "problem": "",
        "position": "1/bin.000001@1:4:0",
        "acked": "1/bin.000001@1:500:0",
        "got": "1/bin.000001@1:500:0",
        "marks": [],
        "given": NO_LAG,
        "waiting": NO_LAG,
        "last_active": 100.0,
        "called": True,
        "protected": False,
        "late": 0,
        "snapshots": [],
        "owner": "",
    }
    return ClientStatus(**(status | values))  # type: ignore[arg-type]


def destination(*clients: ClientStatus, behind: float | None = 0.0, **values: object) -> DestinationStatus:
    status: dict[str, object] = {
        "destination": "example",
        "state": "running",
        "clients": list(clients),
        "first": "1/bin.000001@1:4:0",
        "last": "1/bin.000001@1:500:0",
        "entries": 3,
        "bytes": 300,
        "fill": 0.5,
        "parser": ParserStatus(behind=behind),
    }
    return DestinationStatus(**(status | values))  # type: ignore[arg-type]


def test_there_is_no_lag_when_all_is_acked_and_the_source_has_no_more() -> None:
    found = explain(destination(), client(), NOW)
    assert (found.stage, found.text) == (Stage.NONE, "all that the source has sent is acked")


def test_a_source_that_cannot_be_read_comes_first() -> None:
    found = explain(destination(state="error", error="no route to host"), client(waiting=AMOUNT), NOW)
    assert found.stage == Stage.SOURCE
    assert "no route to host" in found.text


def test_a_quota_that_is_used_up_holds_the_changes_up_on_its_day() -> None:
    used = AllowanceStatus(quota=100, used=100, day=int(NOW // 86_400))
    found = explain(destination(), client(waiting=AMOUNT, allowance=used), NOW)
    assert (found.stage, found.text.partition(";")[0]) == (
        Stage.CLIENT,
        "the client has used up its quota of 100 bytes a day",
    )
    assert "waiting for the client" in explain(destination(), client(waiting=AMOUNT, allowance=used), NOW + 86_400).text


@pytest.mark.parametrize("pending", [NO_LAG, AMOUNT])
def test_it_is_the_parser_that_reads_changes_older_than_those_stored(pending: Lag) -> None:
    found = explain(destination(behind=300.0), client(waiting=pending), NOW)
    assert found.stage == Stage.PARSER
    assert "5 min 0 s" in found.text


def test_a_parser_within_the_resolution_of_timestamps_does_not_lag() -> None:
    assert explain(destination(behind=1.5), client(), NOW).stage == Stage.NONE


def test_a_parser_that_reads_what_is_newer_than_what_the_client_has_to_ack_is_not_to_blame() -> None:
    age = NOW - AMOUNT.oldest / 1000
    assert explain(destination(behind=age), client(waiting=AMOUNT), NOW).stage == Stage.CLIENT
    assert explain(destination(behind=age + 0.1), client(waiting=AMOUNT), NOW).stage == Stage.PARSER


def test_a_full_ring_names_the_client_that_fills_it_to_the_others() -> None:
    slow = client(7, acked="1/bin.000001@1:4:0", waiting=AMOUNT)
    full = destination(slow, client(), behind=300.0, full=True)
    others = explain(full, client(), NOW)
    assert others.stage == Stage.RING
    assert "client 7 acks" in others.text
    assert explain(full, slow, NOW).stage == Stage.CLIENT


def test_batches_that_are_not_acked_are_the_clients() -> None:
    found = explain(destination(), client(marks=[5, 6], given=AMOUNT, waiting=AMOUNT), NOW)
    assert found.stage == Stage.CLIENT
    assert found.text == "2 batches with 7 rows given and not acked, 7 rows waiting after"
    found = explain(destination(full=True), client(marks=[5, 6], given=AMOUNT, waiting=AMOUNT), NOW)
    assert found.text == "2 batches with 7 rows given and not acked, at least 7 rows waiting after"


def test_what_waits_before_the_ring_is_named_in_bytes_as_soon_as_it_is_known() -> None:
    behind = client(state="catching-up", waiting=AMOUNT)
    assert explain(destination(behind), behind, NOW).text.endswith("It is not known yet how many changes wait there")
    for backlog, place in ((Backlog(512, "log"), "of the log"), (Backlog(512, "source"), "of the source's binlog")):
        measured = destination(behind, backlogs={1001: backlog})
        expected = f"Before the ring, at most 512 bytes {place} wait, of all tables"
        assert explain(measured, behind, NOW).text.endswith(expected)
        given = client(state="catching-up", marks=[5], given=AMOUNT, waiting=AMOUNT)
        assert explain(measured, given, NOW).text.endswith(f"at least 7 rows waiting after. {expected}")
        joined = client(waiting=AMOUNT)
        assert "before the ring" not in explain(measured, joined, NOW).text.lower()


def test_changes_that_are_not_asked_for_are_the_lag_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 105.0)
    found = explain(destination(), client(waiting=AMOUNT), NOW)
    assert found.stage == Stage.CLIENT
    assert found.text == "7 rows waiting for the client to ask; its last call was 5 s ago"
    found = explain(destination(full=True), client(waiting=AMOUNT), NOW)
    assert found.text == "at least 7 rows waiting for the client to ask; its last call was 5 s ago"
    found = explain(destination(), client(waiting=AMOUNT, called=False), NOW)
    assert found.text == "7 rows waiting for the client to ask; it has not called since the start, 5 s ago"


def test_a_client_that_left_the_ring_and_one_that_waits_for_the_stream_say_so() -> None:
    assert explain(destination(), client(state="gone", error="it left"), NOW).text == "it left"
    behind = client(state="catching-up", marks=[5], given=AMOUNT)
    assert explain(destination(), behind, NOW).text.endswith("not acked, at least 0 rows waiting after")
    assert "catches up from its cursor" in explain(destination(), client(state="catching-up"), NOW).text
    assert explain(destination(), client(state="ahead"), NOW).stage == Stage.PARSER


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, False),
        ({"behind": 1.9}, False),
        ({"behind": 2.0}, True),
        ({"behind": None}, True),
        ({"full": True}, True),
        ({"state": "error"}, True),
        ({"state": "finished", "behind": None}, False),
    ],
)
def test_more_may_wait_than_is_stored_while_the_source_is_not_read_to_its_end(
    status: dict[str, Any], expected: bool
) -> None:
    assert is_minimum(destination(**status), client()) is expected


@pytest.mark.parametrize("state", ["ahead", "catching-up", "gone"])
def test_more_may_wait_for_a_client_that_is_not_in_the_ring(state: str) -> None:
    assert is_minimum(destination(), client(state=state))


@pytest.mark.parametrize("amount", ["seconds", "bytes", "rows", "transactions"])
def test_its_metrics_say_that_they_are_a_minimum(amount: str) -> None:
    assert "at least that" in CLIENT[f"client_lag_{amount}"][0]


def parser_of(folder: Path) -> Parser:
    config = MysqlConfig(
        destination="example", master_address=Address("127.0.0.1", 3306), db_username="cdc", file_data_dir=folder
    )
    return Parser(config, Ring(16), start=None)


def test_a_connection_without_heartbeats_is_not_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parser = parser_of(tmp_path)
    parser._read_until = parser._quiet_since = 60.0  # it waits since then
    monkeypatch.setattr(time, "monotonic", lambda: 69.0)
    assert (parser.status.behind, parser.status.silent) == (0.0, 0.0)
    monkeypatch.setattr(time, "monotonic", lambda: 71.0)
    assert (parser.status.behind, parser.status.silent) == (11.0, 11.0)


def test_a_clock_that_is_set_back_hides_no_lag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parser = parser_of(tmp_path)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    parser._read_until = 60.0
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert parser.status.behind == 40.0
