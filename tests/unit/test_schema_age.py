"""When the known schema may be younger than the rows that are read with it."""

import pickle

import pytest

from sluice.instance.columns import SourceColumn
from sluice.instance.sources.mysql.decode.table_map import TableMap
from sluice.instance.sources.mysql.history.statements import Context
from sluice.instance.sources.mysql.schema import Schemas, TableSchema
from sluice.protocol.lexer import Dialect
from sluice.protocol.position import Position
from tests.unit.plans import table_map

ALTERED = 1000
SEEN = (3, 500)

MYSQL80 = Dialect((8, 0, 15), mariadb=False, charsets=frozenset({"utf8mb4", "latin1"}))


@pytest.mark.parametrize(
    ("timestamp", "begin", "doubtful"),
    [
        (ALTERED - 1, 499, True),
        (ALTERED, 499, True),  # the rows and the DDL are of the same second
        (ALTERED + 1, 499, False),
        (ALTERED, 500, False),  # after the place where the source was asked, a DDL is met before the rows
        (ALTERED - 60, 500, False),  # rows that the source itself replicated late
    ],
)
def test_rows_up_to_the_second_of_the_ddl_are_in_doubt_until_the_schema_was_asked_for(
    timestamp: int, begin: int, doubtful: bool
) -> None:
    schema = TableSchema([], altered=ALTERED, seen=SEEN)
    assert schema.is_younger(timestamp, Position("source", "bin.000003", 1, begin, 0)) is doubtful


def test_without_a_time_of_the_last_ddl_rows_before_the_place_where_the_schema_was_asked_for_are_in_doubt() -> None:
    schema = TableSchema([], altered=None, seen=SEEN)
    assert schema.is_younger(ALTERED, None)
    assert schema.is_younger(ALTERED, Position("source", "bin.000003", 1, 499, 0))
    assert not schema.is_younger(ALTERED, Position("source", "bin.000003", 1, 500, 0))


def test_a_schema_of_the_time_of_the_rows_is_never_in_doubt() -> None:
    assert not TableSchema([], altered=None, seen=None).is_younger(ALTERED, None)


class Seen:
    """A source that is asked after all DDL."""

    def fetch(self, schema: str, table: str, timestamp: int) -> TableSchema:
        return TableSchema([SourceColumn("c", "int")], altered=ALTERED, seen=SEEN)


def test_a_ddl_leaves_only_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    schemas = Schemas(Seen(), MYSQL80)
    sizes = set()
    for begin in range(260, 460, 2):  # numbers of as many bytes
        at = Position("source", "bin.000003", 1, begin, 0)
        schemas.table(TableMap.parse(table_map((3, b""))), {}, ALTERED + 1, at)
        schemas.apply("ALTER TABLE shop.t COMMENT 'x'", Context(""), at)
        sizes.add(len(pickle.dumps({name: value for name, value in vars(schemas).items() if name != "_source"})))
    assert len(sizes) == 1
    assert "shop.t from source/bin.000003@1:260:0 to source/bin.000003@1:260:0 was read with" in caplog.messages[0]
    assert len(caplog.messages) == 100
