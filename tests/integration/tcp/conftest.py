"""A served port and clients of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sluice.server.tcp import session
from tests.canal import CanalClient
from tests.integration.tcp.served import PROTECTED, Canal, running


@pytest.fixture(autouse=True)
def quick_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "FAILED_LOGIN", 0.01)


@pytest.fixture
async def canal(tmp_path: Path) -> AsyncIterator[Canal]:
    async with running(tmp_path) as canal:
        yield canal


@pytest.fixture
async def protected(tmp_path: Path) -> AsyncIterator[Canal]:
    async with running(tmp_path, **PROTECTED) as canal:
        yield canal


@pytest.fixture
async def client(canal: Canal) -> CanalClient:
    """A client that has logged in and subscribed."""
    made = await canal.connect()
    await made.subscribe()
    return made
