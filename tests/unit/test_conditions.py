"""What needs attention: each condition of the one table is found, and is in all places that are made from the table."""

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from scripts import generate_conditions
from sluice.instance.pump.log import PumpStatus
from sluice.instance.pump.pairing import Counts
from sluice.instance.serving.purges import Threat
from sluice.instance.status import MemberStatus, ParserStatus, SourceStatus
from sluice.login.nodes import State
from sluice.protocol.errors import PurgedError
from sluice.server import conditions
from sluice.server.cli.status import summarize
from sluice.server.conditions import (
    MOST_BEHIND,
    MOST_IDLE,
    MOST_STUCK,
    PUMPS,
    TABLE,
    Overview,
    Severity,
    find,
    find_of_pump,
)
from sluice.server.embedded.companions import OutputStatus
from sluice.server.embedded.destinations import DestinationStatus
from sluice.server.http.views import DestinationView, PumpView
from sluice.server.pumps import PumpStanding, Served
from sluice.store.allowance import UNLIMITED, Allowance, AllowanceStatus, Limits
from sluice.store.moves import Move, MoveState, Reason
from sluice.store.status import NO_LAG, ClientStatus, Lag
from tests.source import start_embedded
from tests.waiting import soon

SOME = Lag(transactions=1, entries=3, rows=7, bytes=300, oldest=1)
NAMES = [condition.name for condition in TABLE]


def client(**values: object) -> ClientStatus:
    texts = dict.fromkeys(("filter", "where", "error", "problem", "position", "acked", "got"), "")
    status: dict[str, Any] = {"client_id": 7, "state": "attached", "marks": [], "given": NO_LAG, "waiting": NO_LAG}
    # Examples are made long before they are used: hours in a long run.
    status |= {"last_active": time.monotonic() + 86_400, "called": True, "protected": False, "late": 0}
    status |= {"snapshots": [], "owner": ""}
    return ClientStatus(**(texts | status | values))


def used(size: int, *, of: int) -> AllowanceStatus:
    allowance = Allowance()
    allowance.limit(Limits(quota=of), UNLIMITED)
    allowance.charge(size, time.time() + 3600)
    return allowance.status()


def output(**values: object) -> OutputStatus:
    counts = dict.fromkeys(("batches", "records", "rows", "bytes", "retries", "skipped"), 0)
    status: dict[str, Any] = {"name": "events", "kind": "kafka", "client_id": 7, "state": "running", "error": ""}
    status |= {"last_error": "", "failed": 0.0, "lost": "", "statistics": {}}
    return OutputStatus(**(counts | status | values))


def destination(state: str = "running", **values: object) -> DestinationStatus:
    status: dict[str, Any] = {"destination": "shop", "state": state, "parser": ParserStatus(behind=0.0)}
    return DestinationStatus(**(status | values))


def idle(seconds: float) -> float:
    return time.monotonic() - seconds


def member(
    state: str = "merged", late: int = 0, silent: float = 0.0, *, holds: bool = False, streams: bool = False
) -> MemberStatus:
    return MemberStatus("db1", state, "", 1, 100, late, silent, holds, streams)


EXAMPLES = {
    "not-running": destination("error", error="no such host"),
    "cursors-lost": destination("standby", error="ZooKeeper has lost cursors: 1001", lost_cursors=True),
    "impeded": destination(error="the disk is full"),
    "settings-refused": destination(refused_settings="canal.instance.master.address: has to be given"),
    "unowned": destination("standby"),
    "certificate-refused": destination(refused_certificate="cert.pem cannot be used: KEY_VALUES_MISMATCH"),
    "source-silent": destination(parser=ParserStatus(behind=11.0, silent=11.0)),
    "source-down": destination(source=SourceStatus("db1:3306", failures=2, failure="timed out")),
    "source-unlisted": destination(source=SourceStatus("db1:3306", ("db2:3306",), unlisted="db3:3306")),
    "switch-refused": destination(
        member_sources={"a": SourceStatus("db1:3306", ("db2:3306",), refusal="it is not proven")}
    ),
    "source-lag": destination(parser=ParserStatus(behind=MOST_BEHIND + 1)),
    "history-away": destination(parser=ParserStatus(behind=0.0, history="the history of tables cannot be used")),
    "ring-held": destination(
        full=True, fill=1.02, stuck=MOST_STUCK + 1, first="a", clients=[client(acked="a")], parser=ParserStatus(40.0)
    ),
    "client-gone": destination(clients=[client(state="gone", error="purged", problem=PurgedError.type)]),
    "gap": destination(gaps={7: [Move(Reason.PURGE, "1/a@1:4:0", "1/b@1:4:0", "server", 1, MoveState.OPEN)]}),
    "soon-purged": destination(clients=[client()], threats={7: Threat(0.0, "the source may purge the binlog")}),
    "output-fails": destination(outputs=[output(state="error", error="refused")]),
    "client-silent": destination(clients=[client(waiting=SOME, last_active=idle(MOST_IDLE + 1))]),
    "quota-used-up": destination(clients=[client(waiting=SOME, allowance=used(1000, of=1000))]),
    "quarantine": destination(parser=ParserStatus(behind=0.0, quarantined=2)),
    "statements": destination(parser=ParserStatus(behind=0.0, dml_statements=2)),
    "disorder": destination(parser=ParserStatus(behind=0.0, members=(member(late=2),))),
}


def test_there_is_an_example_of_each_condition_and_errors_come_first() -> None:
    assert list(EXAMPLES) == NAMES
    severities = [condition.severity for condition in TABLE]
    assert severities == sorted(severities, key=[Severity.ERROR, Severity.WARNING].index)


@pytest.mark.parametrize("name", NAMES)
def test_each_is_found_alone_and_decides_the_first_line_and_the_exit_status(name: str) -> None:
    status = EXAMPLES[name]
    (found,) = find(status)
    condition = found.condition
    assert condition.name == name
    shown = DestinationView.of(status).model_dump(mode="json", by_alias=True)
    summary = summarize([DestinationView.of(destination()).model_dump(mode="json", by_alias=True), shown])
    ((where, said),) = summary.conditions
    assert (where, said["name"], said["text"]) == ("shop", name, found.text)
    assert said["advice"] == found.advice or condition.advice
    assert summary.is_wrong is (condition.severity == Severity.ERROR)


@pytest.mark.parametrize(
    "sound",
    [
        destination("standby", active="127.0.0.1:11111"),
        destination("finished"),
        destination(clients=[client(state="ahead"), client(state="catching-up", waiting=SOME)]),
        destination(clients=[client(last_active=idle(10 * MOST_IDLE))]),  # nothing waits for it
        destination(full=True, fill=1.02, stuck=MOST_STUCK - 1, parser=ParserStatus(behind=300.0)),  # it is taken from
        destination(parser=ParserStatus(behind=MOST_BEHIND - 1)),
        destination(outputs=[output()], clients=[client(waiting=SOME, last_active=idle(2 * MOST_IDLE))]),
        destination(clients=[client(waiting=SOME, allowance=used(999, of=1000))]),
        destination(clients=[client(given=SOME, allowance=used(1000, of=1000))]),  # nothing waits for it
    ],
)
def test_what_is_normal_is_no_condition(sound: DestinationStatus) -> None:
    assert find(sound) == []


@pytest.mark.parametrize(
    ("silent", "rest"),
    [
        (member(silent=11.0, holds=True), ": the others wait for it"),
        (member("passed", silent=11.0), ": the others go on"),
        (member(silent=11.0), ""),
    ],
)
def test_a_silent_member_is_named(silent: MemberStatus, rest: str) -> None:
    parser = ParserStatus(behind=0.0, silent=60.0, members=(silent, member(silent=9.0)))
    (found,) = find(destination(parser=parser))
    assert (found.condition.name, found.subject) == ("source-silent", "member db1")
    assert found.text == f"nothing has come for 11 s, not even a heartbeat{rest}"


def test_of_one_that_is_stopped_it_is_not_said_that_it_goes_on_as_it_was() -> None:
    _stopped, refused = find(destination("stopped", refused_settings="no address"))
    assert refused.text == "its changed file cannot be used: no address"


def test_a_client_may_be_silent_for_some_minutes() -> None:
    assert find(destination(clients=[client(waiting=SOME, last_active=idle(MOST_IDLE / 2))])) == []


def test_the_pages_have_the_table_and_its_alert_rules() -> None:
    for path, part in generate_conditions.parts().items():
        assert path.read_text() == generate_conditions.page(path, part), "run make docs"
        assert len([line for line in part.splitlines() if any(name in line for name in NAMES)]) >= len(NAMES)


def pump_log(**values: Any) -> PumpStatus:
    status: dict[str, Any] = {"bytes": 0, "files": 1, "released": 0, "collected": 0, "open": 0, "counts": Counts()}
    return PumpStatus(**(status | {"newest": 0, "written": 0, "failure": "", "refusal": ""} | values))


def pump(state: State = State.ONLINE, **values: Any) -> PumpStanding:
    standing: dict[str, Any] = {"node_id": "pump-1", "address": "127.0.0.1:8250", "cluster_id": 1, "state": state}
    standing |= {
        "wanted": State.ONLINE,
        "problem": "",
        "clock_problem": "",
        "unresolved": "",
        "log": pump_log(),
        "served": Served(),
    }
    return PumpStanding(**(standing | values))


PUMP_EXAMPLES = {
    "pump-refuses": pump(log=pump_log(refusal="9 bytes are free on the disk")),
    "pump-unregistered": pump(State.PAUSED, problem="etcd does not answer"),
    "unresolved-prewrite": pump(unresolved="the transaction with start_ts 1 has no end"),
    "pump-clock": pump(clock_problem="TiDB does not say the time"),
    "pump-late": pump(log=pump_log(counts=Counts(late=2))),
}


def test_there_is_an_example_of_each_condition_of_a_pump() -> None:
    assert list(PUMP_EXAMPLES) == [it.name for it in PUMPS]


@pytest.mark.parametrize("name", PUMP_EXAMPLES)
def test_each_condition_of_a_pump_is_found_alone_and_decides_the_first_line_and_the_exit_status(name: str) -> None:
    (found,) = find_of_pump(PUMP_EXAMPLES[name])
    assert found.condition.name == name
    summary = summarize([], [PumpView.of(PUMP_EXAMPLES[name]).model_dump(mode="json", by_alias=True)])
    ((where, said),) = summary.conditions
    assert (where, said["name"], said["text"]) == ("pump pump-1", name, found.text)
    assert summary.is_wrong


@pytest.mark.parametrize(
    "sound",
    [
        pump(),
        pump(State.PAUSED, wanted=State.PAUSED, log=pump_log(refusal="no online: paused")),
        pump(log=pump_log(open=3, counts=Counts(repeated=1, lone=1))),
    ],
)
def test_what_is_normal_of_a_pump_is_no_condition(sound: PumpStanding) -> None:
    assert find_of_pump(sound) == []


def test_a_pump_that_waits_for_transactions_says_for_how_many() -> None:
    (found,) = find_of_pump(pump(State.CLOSING, wanted=State.OFFLINE, log=pump_log(open=2)))
    assert found.text == "closing, with 2 transactions under way, on the way to be offline"


class Shown:
    """Destinations in the states of the examples; it counts how often it is asked."""

    names = NAMES

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def destination_status(self, name: str) -> DestinationStatus:
        self.asked[name] += 1
        return EXAMPLES[name]


def test_who_only_counts_looks_once_a_second() -> None:
    shown = Shown()
    overview = Overview(shown, [lambda: pump(log=pump_log(failure="the disk fails"))])
    expected = dict.fromkeys([*NAMES, "pump-refuses"], 1)
    assert overview.counts(10.0) == overview.counts(10.5) == expected
    assert set(shown.asked.values()) == {1}
    overview.counts(11.0)
    assert set(shown.asked.values()) == {2}


async def test_a_full_ring_is_held_until_somebody_takes_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "MOST_STUCK", 0.0)
    embedded, sources = await start_embedded(tmp_path, memory_buffer_size=16)
    try:
        await embedded.subscribe("example", 7)
        putting = asyncio.create_task(asyncio.to_thread(sources["example"].put, 40))

        def found() -> list[str]:
            return [it.condition.name for it in find(embedded.destination_status("example"))]

        await soon(lambda: found() == ["ring-held"])
        (held,) = find(embedded.destination_status("example"))
        assert "client 7 acks" in held.text
        while not putting.done():
            batch = await embedded.get_without_ack("example", 7, timeout=0.1)
            if batch.entries:
                await embedded.ack("example", 7, batch_id=batch.batch_id)
        assert found() == []
    finally:
        await embedded.close()
