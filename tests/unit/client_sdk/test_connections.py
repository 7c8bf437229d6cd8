"""What becomes of a call when its connection is cut while it is opened, or its server is left by another thread."""

import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import urllib3

from sluice.client_sdk import Client
from sluice.client_sdk.client import tls_context
from sluice.client_sdk.cluster import ClusterClient
from sluice.client_sdk.connections import Connections
from tests.proxy import Proxy
from tests.unit.client_sdk.served import MakeClient, ServerThread


def test_next_server_is_asked_when_one_closes_while_tls_begins(
    make_client: MakeClient, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    thread = ServerThread(tmp_path, tls_cert=cert, tls_key=key)
    thread.start()
    try:
        with Proxy(("127.0.0.1", thread.port)) as proxy:
            proxy.cut_after(1)
            client = make_client([f"https://127.0.0.1:{proxy.port}", thread.url], ca=cert)
            assert client.destination()["destination"] == "example"
            assert proxy.cuts
    finally:
        thread.stop()


@pytest.mark.parametrize("tls", [False, True])
def test_leaving_a_server_ends_what_waits_for_it_and_nothing_else(
    tls: bool, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    options = {"tls_cert": cert, "tls_key": key} if tls else {}
    left, other = (ServerThread(tmp_path / name, **options) for name in ("left", "other"))
    context = tls_context(cert, verify=True) if tls else None
    with closing(Connections(context)) as connections, ThreadPoolExecutor() as pool:

        def wait(server: ServerThread, seconds: float) -> int:
            path = f"/v1/destinations/example/clients/1001/getWithoutAck?timeout={seconds * 1000:.0f}"
            return connections.pool(server.url).urlopen("POST", path, timeout=30).status

        try:
            for server in left, other:
                server.start()
                with Client(server.url, ca=cert if tls else None) as client:
                    client.subscribe()
            waiting, staying = pool.submit(wait, left, 20), pool.submit(wait, other, 1)
            while not waiting.done():
                connections.leave(left.url)
                time.sleep(0.05)
            with pytest.raises(urllib3.exceptions.HTTPError) as ended:  # what a server that has died would leave
                waiting.result()
            if isinstance(ended.value, urllib3.exceptions.SSLError):  # the call was being sent
                assert isinstance(ended.value.args[0], ssl.SSLEOFError)
            else:
                assert isinstance(ended.value, urllib3.exceptions.ProtocolError)
            assert staying.result() == 200
            assert wait(left, 0) == 200
        finally:
            left.stop()
            other.stop()


def test_a_server_that_one_call_has_left_is_left_by_all_unless_it_is_active_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = "http://127.0.0.1:1", "http://127.0.0.1:2"
    with ClusterClient(zookeeper="127.0.0.1:3", elect=False) as client:
        left: list[str] = []
        monkeypatch.setattr(client._http, "leave", left.append)
        for active in (first, second):
            client._endpoint.hear([first, second], active, None)
        client._endpoint.leave(first, second)
        client._leave_deposed(first)
        assert left == [first]
        client._endpoint.hear([first, second], first, None)
        client._leave_deposed(first)
        assert left == [first]
