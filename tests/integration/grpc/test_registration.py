"""A pump registers itself in a real etcd, and drainers notice it."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest

from sluice.instance.pump.etcd import Etcd
from sluice.instance.pump.nodes import DRAINERS, Node, NodeError, Nodes, State
from sluice.server.grpc import registration as module
from sluice.server.grpc.registration import registered
from tests.servers.etcd import EtcdServer
from tests.waiting import soon

PUMP = Node("pump-1", "127.0.0.1:8250", State.PAUSED)


@contextlib.asynccontextmanager
async def drainer(etcd: Etcd, nodes: Nodes, seen: list[list[Node]]) -> AsyncIterator[str]:
    """Have a drainer online that writes down which pumps there are when it is called."""

    async def notify(_request: bytes, _context: Any) -> bytes:
        seen.append(nodes.pumps())
        return b""

    server = grpc.aio.server()
    handlers = {"Notify": grpc.unary_unary_rpc_method_handler(notify)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("binlog.Cistern", handlers),))
    host = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    etcd.put(DRAINERS + "drainer-1", Node("drainer-1", host, State.ONLINE).encode())
    try:
        yield host
    finally:
        await server.stop(0)


@pytest.fixture
def server() -> Any:
    with EtcdServer() as server:
        yield server


async def test_drainers_notice_a_pump_before_it_is_online_and_it_is_paused_at_the_end(
    server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PERIOD", 0.05)
    etcd, seen, times = Etcd([server.url]), list[list[Node]](), [5, 6]
    nodes = Nodes(etcd)
    etcd.put(DRAINERS + "old", Node("old", "127.0.0.1:1", State.PAUSED).encode())
    async with drainer(etcd, nodes, seen):
        async with registered(nodes, PUMP, lambda: (times[0], times[1])):
            assert [[it.state for it in pumps] for pumps in seen] == [[State.PAUSED]]
            assert nodes.pumps() == [Node("pump-1", "127.0.0.1:8250", State.ONLINE, 5, 6)]
            times[:] = [7, 8]
            await soon(lambda: nodes.pumps() == [Node("pump-1", "127.0.0.1:8250", State.ONLINE, 7, 8)])
        assert nodes.pumps() == [Node("pump-1", "127.0.0.1:8250", State.PAUSED, 7, 8)]
    etcd.close()


async def test_a_drainer_that_does_not_answer_keeps_the_pump_from_serving(server: EtcdServer) -> None:
    etcd = Etcd([server.url])
    nodes = Nodes(etcd)
    async with drainer(etcd, nodes, []):
        pass
    with pytest.raises(NodeError, match=r"the drainer 'drainer-1' at 127\.0\.0\.1:\d+ is online, and has not noticed"):
        async with registered(nodes, PUMP, lambda: (1, 1)):
            raise AssertionError("it serves")
    assert [it.state for it in nodes.pumps()] == [State.PAUSED]
    etcd.close()


async def test_a_pump_goes_on_while_etcd_is_away_and_leaves_the_cluster_when_told(
    server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PERIOD", 0.05)
    etcd = Etcd([server.url])
    nodes = Nodes(etcd)
    async with registered(nodes, PUMP, lambda: (1, 1)) as registration:
        server.kill()
        await soon(lambda: "etcd does not answer" in registration.problem)
        server.start()
        await soon(lambda: not registration.problem)
        await registration.turn(State.CLOSING)
        with pytest.raises(NodeError, match="is closing, and cannot be online next"):
            await registration.turn(State.ONLINE)
        await registration.turn(State.OFFLINE)
    assert [it.state for it in nodes.pumps()] == [State.OFFLINE]
    etcd.close()
