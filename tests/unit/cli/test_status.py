"""What `sluice status` says first, and whether something needs attention."""

from typing import Any

import pytest

from sluice.server.cli.status import summarize


def destination(state: str = "running", *clients: dict[str, Any], error: str = "", active: str = "") -> dict[str, Any]:
    return {
        "destination": "shop",
        "state": state,
        "error": error,
        "active": active,
        "clients": list(clients),
        "outputs": [],
        "gaps": [],
    }


def client(state: str = "attached", seconds: float = 0.0, **texts: str) -> dict[str, Any]:
    none = {"error": "", "advice": "", "threat": ""}
    return {"clientId": 7, "state": state, "lag": {"seconds": seconds}} | none | texts


def test_destinations_clients_and_the_longest_lag_are_told() -> None:
    summary = summarize([destination("running", client(), client("catching-up", 12.34)), destination()])
    assert summary.text == "2 destinations (2 running), 2 clients (1 attached, 1 catching-up), at most 12.3 s behind"


def test_a_server_without_destinations_says_so() -> None:
    assert summarize([]).text == "no destinations"
    assert not summarize([]).wrong


@pytest.mark.parametrize(
    "sound",
    [
        destination("running", client("attached"), client("ahead"), client("catching-up")),
        destination("standby", active="127.0.0.1:11111"),
    ],
)
def test_what_runs_or_stands_by_is_well(sound: dict[str, Any]) -> None:
    assert summarize([sound]).wrong == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (destination("starting"), "shop: starting"),
        (destination("stopped"), "shop: stopped"),
        (destination("error", error="no such host"), "shop: error: no such host"),
        (destination("running", error="the disk is full"), "shop: running: the disk is full"),
        (destination("standby"), "shop: standby, and no server has it"),
        (
            destination("running", client("gone", error="purged", advice="Subscribe again.")),
            "shop, client 7: gone: purged. Subscribe again.",
        ),
        (
            destination("running", client(threat="the source may purge the binlog")),
            "shop, client 7: the source may purge the binlog",
        ),
    ],
)
def test_what_needs_attention_is_named(wrong: dict[str, Any], said: str) -> None:
    assert summarize([destination(), wrong]).wrong == [said]
