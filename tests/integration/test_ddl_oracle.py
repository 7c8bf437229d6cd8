"""The oracle of DDL: after each statement the server says what its tables are, and Sluice agrees or does not know."""

import re
from pathlib import Path

import pytest

from tests.ddl.oracle import Oracle
from tests.ddl.random_statements import Statements
from tests.servers import ALL, Server

COLLECTED = Path(__file__).parents[1] / "ddl" / "collected.sql"
USUAL = "mysql56"
SERVERS = [USUAL, *(pytest.param(name, marks=pytest.mark.extended) for name in ALL if name != USUAL)]


def collected() -> list[str]:
    """The statements of the file without the comments between them."""
    pieces = COLLECTED.read_text(encoding="utf-8").split(";\n")
    return [statement for statement in (re.sub(r"\A(-- .*\n)+", "", piece) for piece in pieces) if statement]


@pytest.mark.parametrize("name", SERVERS)
def test_collected_statements_lead_to_the_tables_that_the_server_has(name: str, request: pytest.FixtureRequest) -> None:
    server: Server = request.getfixturevalue(name)
    with Oracle(server) as oracle:
        for statement in collected():
            oracle.run(statement)
    assert oracle.ran > 240
    assert len(oracle.unknown) < 20, oracle.unknown


def random_statements(server: Server, seed: int, count: int) -> list[str]:
    """Run `count` statements that succeed; return those that lead to unknown tables."""
    with Oracle(server) as oracle:
        statements = Statements(seed, mariadb=server.mariadb, version=oracle.dialect.version)
        while oracle.ran < count:
            oracle.run(statements.next(oracle.tables))
    return oracle.unknown


@pytest.mark.parametrize(
    ("name", "seed", "count"),
    [
        (USUAL, 1, 200),
        *(pytest.param(name, 2, 300, marks=pytest.mark.extended) for name in ALL),
        *(pytest.param(name, 3, 2_000, marks=[pytest.mark.soak, pytest.mark.timeout(900)]) for name in ALL),
    ],
)
def test_random_statements_lead_to_the_tables_that_the_server_has(
    name: str, seed: int, count: int, request: pytest.FixtureRequest
) -> None:
    unknown = random_statements(request.getfixturevalue(name), seed, count)
    assert len(unknown) < count / 20, unknown
