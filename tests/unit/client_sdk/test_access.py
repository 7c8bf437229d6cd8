"""Where a token may go, and whom the clients trust."""

import ssl
from datetime import timedelta
from pathlib import Path

import pytest

from sluice.client_sdk import Client, calls
from sluice.protocol import errors
from sluice.server.credentials import Credentials, Grant
from tests.unit.client_sdk.served import MakeClient, ServerThread, numbers


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")  # urllib3's own word on verify=False
def test_tokens_and_tls(make_client: MakeClient, tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    token = Credentials(tmp_path / "credentials.json").issue("test", Grant(), timedelta(hours=1)).text
    thread = ServerThread(tmp_path, tls_cert=cert, tls_key=key)
    thread.start()
    try:
        client = make_client(thread.url, token=token, ca=cert)
        client.subscribe()
        thread.source.write(1)
        assert numbers(client.get(5)) == [0]
        assert make_client(thread.url, token=token, verify=False).status()["clientId"] == 1001
        with pytest.raises(errors.UnauthorizedError):
            make_client(thread.url, ca=cert).status()
        with pytest.raises(errors.ConnectionLostError, match=r"(?i)certificate"):
            make_client(thread.url, token=token).status()
    finally:
        thread.stop()


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:11180",
        "ftp://127.0.0.1",
        "http://127.0.0.1/?q",
        "http://[::1",
        "http://127.0.0.1:many",
        "http://127.0.0.1:1,",
    ],
)
def test_text_that_is_not_the_url_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(errors.BadParameterError, match="not the URL of a server"):
        Client(url)


def test_a_server_has_to_be_given() -> None:
    with pytest.raises(errors.BadParameterError, match="no server is given"):
        Client([])


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://user:secret@127.0.0.1", "credentials go into `token`"),
        ("http://user:secret@127.0.0.1:many", "not the URL of a server: '127.0.0.1:many'"),
        ("http://user:secret@127.0.0.1?q", "not the URL of a server"),
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str, why: str) -> None:
    with pytest.raises(errors.BadParameterError, match=why) as caught:
        Client(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1,http://db.example.org", "http://db.example.org", "http://192.0.2.1:11180"],
)
def test_a_token_goes_nowhere_where_others_read_it(url: str) -> None:
    with pytest.raises(errors.BadParameterError, match="a token over http can be read by others"):
        Client(url, token="t")


@pytest.mark.parametrize("url", ["http://localhost:1", "http://[::1]:1", "https://db.example.org"])
def test_a_token_goes_only_where_others_cannot_read_it(url: str) -> None:
    with Client(url, token="t") as client:
        endpoint = client._endpoint
    assert endpoint.server == url
    assert endpoint.headers(url, calls.rollback())["Authorization"] == "Bearer t"


def test_tls_is_verified_by_default() -> None:
    from sluice.client_sdk.client import tls_context

    context = tls_context(None, verify=True)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
