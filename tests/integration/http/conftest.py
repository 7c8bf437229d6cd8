"""A running server, and what it needs to serve TLS."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import argon2
import pytest

from tests import certificates
from tests.integration.http.served import Api, running


@pytest.fixture(autouse=True)
def cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords cost what a test can pay: each would take a tenth of a second and 64 MiB."""
    monkeypatch.setattr(argon2, "PasswordHasher", partial(argon2.PasswordHasher, time_cost=1, memory_cost=64))


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with running(tmp_path) as api:
        await api.post("subscribe")
        yield api


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """Files of a certificate for 127.0.0.1 and of its key."""
    return certificates.make(tmp_path)
