"""Pumps and drainers in a real etcd."""

import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.login import etcd as module
from sluice.login.etcd import Etcd, EtcdError, Value, tls_of
from sluice.login.nodes import DRAINERS, PUMPS, Node, NodeError, Nodes, State
from tests import certificates
from tests.servers.etcd import EtcdServer

PUMP = Node("pump-1", "127.0.0.1:8250", State.ONLINE)
CAPTURED = (
    b'{"nodeId":"pump-1","host":"127.0.0.1:8250","state":"online","isAlive":false,"score":0,"label":null,'
    b'"maxCommitTS":7,"updateTS":8}'
)
"""As a pump of TiDB writes it."""


@pytest.fixture(scope="module")
def server() -> Iterator[EtcdServer]:
    with EtcdServer() as server:
        yield server


@pytest.fixture
def etcd(server: EtcdServer) -> Iterator[Etcd]:
    etcd = Etcd([server.url])
    for prefix in (PUMPS, DRAINERS):
        for key in etcd.list(prefix):
            etcd._call("kv/deleterange", {"key": module._encode(key)})
    yield etcd
    etcd.close()


def test_a_status_has_the_keys_of_a_pump_of_tidb() -> None:
    found = Node.decode(CAPTURED)
    assert found == Node("pump-1", "127.0.0.1:8250", State.ONLINE, max_commit_ts=7, update_ts=8)
    assert found.encode() == CAPTURED
    labelled = Node("a", "b:1", State.PAUSED, labels={"zone": "east"})
    assert b'"label":{"labels":{"zone":"east"}}' in labelled.encode()
    assert Node.decode(labelled.encode()) == labelled


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"nodeId":"a","host":"b","state":"asleep"}', b"[" * 100_000])
def test_what_is_no_status_is_named(data: bytes) -> None:
    with pytest.raises(NodeError, match="is no status of a node"):
        Node.decode(data)


def test_states_follow_in_their_order() -> None:
    node = PUMP
    for state in (State.PAUSING, State.PAUSED, State.ONLINE, State.ONLINE, State.CLOSING, State.OFFLINE):
        node = node.turned(state)
    with pytest.raises(NodeError, match="the node 'pump-1' is offline, and cannot be online next"):
        node.turned(State.ONLINE)


def test_a_pump_is_claimed_and_written_where_tidb_looks(etcd: Etcd) -> None:
    nodes = Nodes(etcd)
    claimed = nodes.claim(PUMP)
    assert nodes.pumps() == [claimed]
    assert claimed.state == State.PAUSED
    nodes.write(claimed.turned(State.ONLINE))
    assert Node.decode(etcd.get("/tidb-binlog/v1/pumps/pump-1").data) == PUMP
    assert (nodes.pumps(), nodes.drainers()) == ([PUMP], [])


def test_the_id_of_another_pump_that_serves_is_refused(etcd: Etcd) -> None:
    nodes = Nodes(etcd)
    nodes.write(PUMP)
    moved = Node("pump-1", "127.0.0.1:9999", State.PAUSED)
    with pytest.raises(NodeError, match=r"a pump at 127\.0\.0\.1:8250 is online with the node id 'pump-1'"):
        nodes.claim(moved)
    assert nodes.claim(PUMP).host == PUMP.host, "it was killed, and is started again"
    assert nodes.claim(moved).host == "127.0.0.1:9999"


def test_of_two_that_write_at_once_one_does(etcd: Etcd) -> None:
    seen = etcd.get("key")
    assert seen == Value(b"", 0)
    assert etcd.put("key", b"one", seen.revision)
    assert not etcd.put("key", b"two", seen.revision)
    assert etcd.get("key").data == b"one"


def test_a_pump_may_leave_when_all_drainers_have_read_it(etcd: Etcd) -> None:
    nodes = Nodes(etcd)
    assert nodes.have_read(10)
    for name, state, ts in (("a", State.ONLINE, 10), ("b", State.PAUSED, 9), ("c", State.OFFLINE, 1)):
        etcd.put(DRAINERS + name, Node(name, "x:1", state, max_commit_ts=ts).encode())
    assert not nodes.have_read(10)
    assert nodes.have_read(9)


def test_the_next_server_is_asked_when_one_is_dead_or_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.5)
    with EtcdServer() as first, EtcdServer() as second:
        etcd = Etcd([first.url, second.url])
        first.freeze()
        etcd.put("key", b"value")
        began = time.monotonic()
        assert etcd.get("key").data == b"value"
        assert time.monotonic() - began < 0.4, "the one that has answered is asked first"
        second.kill()
        first.kill()
        with pytest.raises(EtcdError, match=f"etcd does not answer: {second.url}: .*; {first.url}: "):
            etcd.get("key")
        second.start()
        assert etcd.get("key").data == b"value"
        etcd.close()


def test_certificates_are_checked_both_ways(tmp_path: Path) -> None:
    cert, key = certificates.make(tmp_path)
    with EtcdServer((cert, key)) as server:
        etcd = Etcd([server.url], tls_of(cert, cert, key))
        assert etcd.put("key", b"value")
        assert etcd.get("key").data == b"value"
        etcd.close()
        for tls, problem in (
            (ssl.create_default_context(), "CERTIFICATE_VERIFY_FAILED"),
            (ssl.create_default_context(cafile=str(cert)), "etcd does not answer"),
        ):
            stranger = Etcd([server.url], tls)
            with pytest.raises(EtcdError, match=problem):
                stranger.get("key")
            stranger.close()


def test_more_than_may_be_read_is_an_error_and_the_connection_goes_on(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    etcd.put(PUMPS + "a", bytes(2000))
    etcd.put(PUMPS + "b", b"{}")
    monkeypatch.setattr(module, "LONGEST", 1000)
    with pytest.raises(EtcdError, match="more than 1000 bytes"):
        etcd.get(PUMPS + "a")
    assert etcd.get(PUMPS + "b").data == b"{}"
    monkeypatch.setattr(module, "MOST", 1)
    monkeypatch.setattr(module, "LONGEST", 100_000)
    with pytest.raises(EtcdError, match="more than 1 keys"):
        etcd.list(PUMPS)
