"""A running server, and what it needs to serve TLS."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests import certificates
from tests.integration.http.served import Api, running


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with running(tmp_path) as api:
        await api.post("subscribe")
        yield api


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """Files of a certificate for 127.0.0.1 and of its key."""
    return certificates.make(tmp_path)
