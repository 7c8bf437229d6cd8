"""What `sluice snapshot` says of how far a snapshot is, and which options it refuses."""

from typing import Any

import pytest

from sluice.server.cli.command import argument_parser
from sluice.server.cli.snapshot import described, snapshot_command

ORDERS = {"table": "shop.orders", "state": "done", "rows": 1000}
ITEMS = {"table": "shop.items", "state": "running", "rows": 200}


def view(
    state: str = "running", left: float | None = 12.4, error: str = "", tables: list[Any] | None = None
) -> dict[str, Any]:
    return {
        "state": state,
        "error": error,
        "rows": 1200,
        "expected": 3000,
        "rowsPerSecond": 145.2,
        "secondsLeft": left,
        "tables": tables or [ORDERS, ITEMS | {"state": "done" if state == "done" else "running"}],
    }


@pytest.mark.parametrize(
    ("snapshot", "text"),
    [
        (view(), "shop.items (2 of 2), 1200 of about 3000 rows, 145 rows/s, 0:00:12 left"),
        (view(left=None), "shop.items (2 of 2), 1200 of about 3000 rows, 145 rows/s"),
        (view("paused"), "shop.items (2 of 2), 1200 of about 3000 rows, paused"),
        (
            view(left=None, error="the source is gone"),
            "shop.items (2 of 2), 1200 of about 3000 rows, 145 rows/s: the source is gone",
        ),
        (view("done"), "1200 rows of 2 tables"),
        (view("done", tables=[ORDERS]), "1200 rows of shop.orders"),
        (view("done", tables=[ORDERS]) | {"rows": 1}, "1 row of shop.orders"),
        (view(tables=[ITEMS]) | {"rows": 0, "expected": 1}, "shop.items, 0 of about 1 row, 145 rows/s, 0:00:12 left"),
        (view(tables=[ITEMS]), "shop.items, 1200 of about 3000 rows, 145 rows/s, 0:00:12 left"),
    ],
    ids=["running", "pace unknown", "paused", "error", "done", "one is done", "one row", "one row to come", "one"],
)
def test_the_text_of_the_bar_tells_table_rows_pace_and_time_left(snapshot: dict[str, Any], text: str) -> None:
    assert described(snapshot) == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shop.orders", "--cancel", "7"], "name TABLEs to begin a snapshot, or the ID"),
        (["--rate", "5"], "name its TABLEs"),
        (["--cancel", "7", "--where", "shop.orders: id > 1"], "name its TABLEs"),
        (["shop.orders", "--where", "id > 1"], "'id > 1' has to be 'schema.table: condition'"),
        (["shop.orders", "--where", "shop.orders: a > 1", "--where", "shop.orders: b > 1"], "join its conditions"),
        (["--pause", "7", "--cancel", "7"], "not allowed with argument"),
    ],
)
def test_options_that_say_two_things_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as end:
        snapshot_command(argument_parser().parse_args(["snapshot", "example", "1001", *arguments]))
    assert end.value.code == 2
    assert message in capsys.readouterr().err
