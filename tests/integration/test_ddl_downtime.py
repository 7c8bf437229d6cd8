"""Random statements and rows in a stretch that nobody followed: each row is what was selected, or in doubt."""

from pathlib import Path

import pytest

from tests.ddl.downtime import Outcome, sequence
from tests.servers import CI, Server

MOST = 0.002
"""The part of the rows that may be in doubt."""
SOAK = [pytest.param(seed, marks=pytest.mark.soak) for seed in range(10, 210)]


@pytest.mark.extended
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CI)
async def test_few_rows_are_in_doubt_after_a_downtime_and_none_is_wrong(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server: Server = request.getfixturevalue(name)
    total = Outcome()
    for seed in range(10):
        found = await sequence(server, tmp_path / str(seed), seed)
        total.rows += found.rows
        total.wrong += found.wrong
        total.doubtful += found.doubtful
    assert total.rows >= 600
    assert not total.wrong
    assert len(total.doubtful) <= total.rows * MOST, total.doubtful


@pytest.mark.parametrize("name", CI)
@pytest.mark.parametrize("seed", SOAK)
async def test_only_a_statement_that_is_not_understood_puts_rows_in_doubt(
    seed: int, name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    found = await sequence(request.getfixturevalue(name), tmp_path, seed)
    assert not found.wrong
    assert found.unknown or not found.doubtful, found.doubtful
