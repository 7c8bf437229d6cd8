"""When the schema at hand may be younger than the rows that are read with it."""

import pytest

from sluice.instance.parser.schema import TableSchema
from sluice.protocol.position import Position

ALTERED = 1000
SEEN = (3, 500)


@pytest.mark.parametrize(
    ("timestamp", "begin", "doubtful"),
    [
        (ALTERED - 1, 499, True),
        (ALTERED, 499, True),  # the rows and the DDL are of the same second
        (ALTERED + 1, 499, False),
        (ALTERED, 500, False),  # behind the place where the source was asked, a DDL is met before the rows
        (ALTERED - 60, 500, False),  # rows that the source itself replicated late
    ],
)
def test_rows_up_to_the_second_of_the_ddl_are_in_doubt_until_the_schema_was_asked_for(
    timestamp: int, begin: int, doubtful: bool
) -> None:
    schema = TableSchema([], altered=ALTERED, seen=SEEN)
    assert schema.is_younger(timestamp, Position("source", "bin.000003", 1, begin, 0)) is doubtful


def test_without_a_time_of_the_last_ddl_nothing_is_in_doubt() -> None:
    assert not TableSchema([], altered=None, seen=SEEN).is_younger(ALTERED, None)
