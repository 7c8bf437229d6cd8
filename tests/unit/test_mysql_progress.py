"""What an output to MySQL knows of transactions that its target has after its place."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from sluice.instance.properties import Property
from sluice.server.outputs.mysql.progress import Progress, _may_repeat
from sluice.server.outputs.mysql.settings import MysqlSettings
from sluice.server.outputs.settings import PLACE, PREFIX, Output
from sluice.server.outputs.target import DeliveryError, RejectedError
from sluice.sql.database import Database

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

SINGLE, A, B, NAMED = " binlog.1@4", "a binlog.1@4", "b binlog.1@9", "a binlog.1@4 0-1-7"


@pytest.mark.parametrize(
    ("applied", "read_from", "names", "server", "expected"),
    [
        ([SINGLE], {"s"}, SINGLE, "t", True),
        ([" 0-1-6"], {"s"}, " binlog.1@4 0-1-7", "t", False),
        ([A], {"a=s"}, B, "a=s,b=t", False),  # b has joined
        ([A, B], {"a=s,b=t"}, A, "a=s,b=u", False),  # b has another server, and a comes
        ([A, B], {"a=s,b=t"}, B, "a=s,b=u", True),
        ([NAMED, B], {"a=s,b=t"}, NAMED, "a=r,b=t", False),
        ([A], {"a=s,b=t"}, NAMED, "a=r,b=t", True),
        ([A], {"a=s", "a=r"}, A, "a=r", True),
        ([SINGLE], {"s"}, A, "a=s", True),
        ([" 0-1-7"], {"s"}, NAMED, "a=s", True),
        ([A], {"a=s"}, SINGLE, "s", True),
    ],
)
def test_transactions_may_be_there_under_other_names_only_of_a_member_that_has_another_server(
    applied: list[str], read_from: set[str], names: str, server: str, expected: bool
) -> None:
    assert _may_repeat(applied, read_from, names, server) is expected


class Applied:
    """A session whose target has applied these after the place: server and names of each."""

    def __init__(self, *rows: tuple[str, str]) -> None:
        self._applied = [(number, *row) for number, row in enumerate(rows)]
        self._found: Sequence[tuple[object, ...]] = ()

    def execute(self, statement: str, _values: object = ()) -> int:
        self._found = self._applied if statement.startswith("SELECT number") else [("", "", "")]
        return 1

    def executemany(self, statement: str, values: object) -> None: ...

    def fetchall(self) -> Sequence[tuple[object, ...]]:
        return self._found


def progress(*applied: tuple[str, str]) -> Progress:
    settings = MysqlSettings.fill({f"{PREFIX}{PLACE}.url": Property("mysql://root@db", "")}, Path())
    made = Progress(Output("shop", "copy", settings, shared=False).of_client(7), Database("db", 3306, "root"))
    made._take_over(cast("Cursor", Applied(*applied)), "", "")
    return made


@pytest.mark.parametrize(
    ("noted", "server", "coming", "expected"),
    [
        ("f@4 0-1-5", "s", "f@4 0-1-5", True),
        ("f@4 0-1-5", "t", "g@9 0-1-5", True),  # another server has it elsewhere
        ("f@4 0-1-5", "t", "f@4 0-1-6", False),  # and has another one at this place
        ("f@4 0-1-5", "s", "f@4", True),  # its end, with the GTID, has not come yet
        ("f@4", "s", "f@4 0-1-5", True),  # an earlier version had no GTID
        ("0-1-5", "t", "g@9 0-1-5", True),  # ... or only that
        ("0-1-5", "s", "f@4 0-1-6", False),
        ("my log@4", "s", "my log@4 0-1-5", True),
        ("f@4", "s", "f@9", False),
    ],
)
def test_what_is_applied_is_known_again_by_its_gtid_and_at_the_same_server_by_its_place(
    noted: str, server: str, coming: str, expected: bool
) -> None:
    found = progress(("s", f" {noted}\n"))
    assert found.is_ahead
    assert found.pass_over(server, f" {coming}\n f@99 0-1-99\n") == ([1] if expected else None)
    assert found.is_ahead is not expected
    assert progress(("s", f" {noted}\n")).has_open(server, f" {coming}\n") is expected


def test_without_a_gtid_what_comes_from_another_server_is_refused_as_long_as_something_is_applied() -> None:
    found = progress(("s", " f@4 0-1-5\n"))
    with pytest.raises(RejectedError, match="read from s"):
        found.pass_over("t", " g@4\n")
    assert found.pass_over("t", " g@4 0-1-5\n") == []
    assert found.pass_over("t", " g@9\n") is None


def test_a_part_of_a_transaction_from_another_server_waits_for_its_gtid_if_that_comes_with_its_end() -> None:
    found = progress(("s", " f@4 0-1-5\n"))
    with pytest.raises(DeliveryError, match="at g@4 was read"):
        found.has_open("t", " g@4\n")
    assert found.has_open("t", " g@4 0-1-5\n")
    assert not found.has_open("t", " g@9 0-1-6\n")
    with pytest.raises(RejectedError, match="read from s"):
        progress(("s", " f@4\n")).has_open("t", " g@4\n")
