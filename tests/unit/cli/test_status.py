"""What `sluice status` says first; what needs attention is in tests/unit/test_conditions.py."""

import io
from typing import Any

import pytest
from rich.console import Console

from sluice.server.cli.status import Summary, show, show_all, summarize
from sluice.server.embedded.companions import OutputStatus
from sluice.server.http.views import DestinationView
from sluice.store.status import Lag
from tests.unit.test_lag import client as client_status
from tests.unit.test_lag import destination as status_of


def destination(state: str = "running", *clients: dict[str, Any]) -> dict[str, Any]:
    return {
        "destination": "shop",
        "state": state,
        "clients": list(clients),
        "outputs": [],
        "conditions": [],
    }


def client(state: str = "attached", seconds: float = 0.0) -> dict[str, Any]:
    return {"clientId": 7, "state": state, "lag": {"seconds": seconds}}


def test_destinations_clients_and_the_longest_lag_are_told() -> None:
    summary = summarize([destination("running", client(), client("ahead", 12.34)), destination()])
    assert summary.text == "2 destinations (2 running), 2 clients (1 ahead, 1 attached), at most 12.3 s behind"


def test_of_one_that_catches_up_not_all_is_counted_that_waits() -> None:
    summary = summarize([destination("running", client(), client("catching-up", 12.34))])
    assert summary.text == "1 destination (1 running), 2 clients (1 attached, 1 catching-up), at least 12.3 s behind"


@pytest.mark.parametrize(
    ("state", "behind", "expected"),
    [
        ("attached", 0.0, "0.0 s, 7 transactions, 7 rows behind"),
        ("attached", 40.0, "40.0 s, at least 7 transactions, 7 rows behind"),
        ("ahead", 0.0, "0.0 s, at least 7 transactions, 7 rows behind"),
        ("catching-up", 0.0, "at least 0.0 s, at least 7 transactions, 7 rows behind"),
        ("gone", 0.0, "at least 0.0 s, at least 7 transactions, 7 rows behind"),
    ],
)
def test_it_says_at_least_where_more_may_wait_than_is_counted(state: str, behind: float, expected: str) -> None:
    """An output shows the seconds of its client."""
    waiting = Lag(transactions=7, entries=21, rows=7, bytes=700, oldest=0)
    output = OutputStatus("copy", "kafka", 1001, "running", "", 0, 0, 0, 0, 0, 0, "", 0.0, "", {})
    found = status_of(client_status(state=state, waiting=waiting), behind=behind, outputs=[output])
    text = io.StringIO()
    show(Console(file=text, width=200), DestinationView.of(found).model_dump(by_alias=True))
    lines = text.getvalue().splitlines()
    assert f"  client 1001  {state}, {expected}" in lines
    seconds = expected.partition(",")[0]
    assert f"  output copy  running, client 1001, {seconds} behind, 0 rows in 0 records, 0 bytes" in lines


def test_a_server_without_destinations_says_so() -> None:
    assert summarize([]).text == "no destinations"
    assert not summarize([]).conditions


def test_what_needs_attention_is_named_with_what_to_do_and_errors_come_first() -> None:
    def found(severity: str, subject: str, text: str) -> dict[str, Any]:
        return {"name": "x", "severity": severity, "subject": subject, "text": text, "advice": "Look."}

    one = destination() | {"conditions": [found("warning", "client 7", "is silent")]}
    two = destination() | {"conditions": [found("error", "", "the disk is full")]}
    assert shown(summarize([destination()])) == ["all is well: 1 destination (1 running)"]
    assert shown(summarize([one])) == [
        "something needs attention: 1 destination (1 running)",
        "  shop, client 7: is silent",
        "    to do: Look.",
    ]
    assert not summarize([one]).is_wrong
    assert shown(summarize([one, two])) == [
        "something is wrong: 2 destinations (2 running)",
        "  shop: the disk is full",
        "    to do: Look.",
        "  shop, client 7: is silent",
        "    to do: Look.",
    ]
    assert summarize([one, two]).is_wrong


def shown(summary: Summary) -> list[str]:
    text = io.StringIO()
    summary.show(Console(file=text, width=200))
    return text.getvalue().splitlines()


def test_of_many_destinations_each_has_a_line_and_the_slowest_is_first() -> None:
    trouble = {"conditions": [{"name": "silent", "severity": "warning"}]}
    many = [
        destination("running", client(seconds=2.0)) | {"destination": "a"},
        destination("running", client(seconds=0.5), client("catching-up", 1549.0)) | {"destination": "b"} | trouble,
        destination("stopped") | {"destination": "c"},
        destination("running", client(seconds=90_000.0)) | {"destination": "d"},
    ]
    text = io.StringIO()
    show_all(Console(file=text, width=200), many)
    assert [line.split() for line in text.getvalue().splitlines()] == [
        ["destination", "state", "clients", "behind", "problems"],
        ["d", "running", "1", "1", "d", "1", "h"],
        ["b", "running", "2", "at", "least", "25", "min", "49", "s", "silent"],
        ["a", "running", "1", "2.0", "s"],
        ["c", "stopped", "0", "-"],
    ]
