"""What an output to MySQL knows of transactions that its target has after its place."""

import pytest

from sluice.server.outputs.mysql.progress import _may_repeat

SINGLE, A, B, NAMED = " binlog.1@4", "a binlog.1@4", "b binlog.1@9", "a 0-1-7"


@pytest.mark.parametrize(
    ("applied", "read_from", "names", "server", "expected"),
    [
        ([SINGLE], {"s"}, SINGLE, "t", True),
        ([" 0-1-6"], {"s"}, " 0-1-7", "t", False),
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
