"""What `sluice check` says of the client of an output that somebody else has called."""

import io
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from sluice.server.cli.check import report_call
from sluice.server.cli.findings import Findings
from sluice.store.cursor import StoredClient


@pytest.mark.parametrize(("hours", "healthy"), [(1, False), (23, False), (25, True)])
def test_a_refused_call_is_an_error_for_a_day(hours: int, healthy: bool) -> None:
    time = (datetime.now(UTC) - timedelta(hours=hours)).isoformat(timespec="seconds")
    lines = io.StringIO()
    findings = Findings(Console(file=lines, width=1000))
    report_call("shop", StoredClient(1001, output="mq", refused=f"{time} rollback"), findings)
    assert findings.healthy == healthy
    assert "shop, client 1001: is that of the output mq, and somebody else called it" in lines.getvalue()
    assert f"rollback was refused at {time}" in lines.getvalue()


def test_one_whose_time_cannot_be_read_is_an_error() -> None:
    findings = Findings(Console(file=io.StringIO()))
    report_call("shop", StoredClient(1001, output="mq", refused="yesterday"), findings)
    assert not findings.healthy
