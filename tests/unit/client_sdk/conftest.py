"""A server, and both clients of it under one set of methods."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.client_sdk import Client
from tests.unit.client_sdk.served import MakeClient, ServerThread, Waiting


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerThread]:
    thread = ServerThread(tmp_path)
    thread.start()
    yield thread
    thread.stop()


@pytest.fixture(params=[Client, Waiting], ids=["sync", "async"])
def make_client(request: pytest.FixtureRequest) -> Iterator[MakeClient]:
    with contextlib.ExitStack() as stack:

        def make(url: str, **options: Any) -> Any:
            return stack.enter_context(request.param(url, **options))

        yield make


@pytest.fixture
def client(make_client: MakeClient, server: ServerThread) -> Any:
    client = make_client(server.url)
    client.subscribe()
    return client


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key
