"""A pump registers itself in a real etcd, drainers notice it, and it goes where operators want it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from sluice.login.etcd import Etcd
from sluice.login.nodes import DRAINERS, PUMPS, WANTED, Node, Nodes, State
from sluice.server.grpc import registration as module
from sluice.server.grpc.registration import Registration
from tests.integration.grpc.served import WatchedLog, commit, opened, prewrite
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


@contextlib.asynccontextmanager
async def registered(nodes: Nodes, log: WatchedLog, clock: list[int]) -> AsyncIterator[Registration]:
    """Keep a pump registered."""
    registration = Registration(nodes, PUMP, log, lambda: clock[0])
    keeping = asyncio.create_task(registration.keep())
    try:
        yield registration
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
        await registration.leave()


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PERIOD", 0.05)


@pytest.fixture
def nodes(etcd: Etcd) -> Nodes:
    return Nodes(etcd)


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[WatchedLog]:
    async with opened(tmp_path) as log:
        yield log


def states(nodes: Nodes) -> list[State]:
    return [it.state for it in nodes.pumps()]


async def refusal(log: WatchedLog, start_ts: int) -> str:
    """Write a Prewrite; return why it is refused, empty if it is not."""
    (answer,) = await asyncio.to_thread(log.store, [prewrite(start_ts)])
    return str(answer or "")


async def test_drainers_notice_a_pump_before_it_is_online_and_it_is_paused_at_the_end(
    etcd: Etcd, nodes: Nodes, log: WatchedLog
) -> None:
    seen, clock = list[list[Node]](), [6]
    etcd.put(DRAINERS + "old", Node("old", "127.0.0.1:1", State.PAUSED).encode())
    async with drainer(etcd, nodes, seen):
        async with registered(nodes, log, clock):
            assert await refusal(log, 1) == "no online: paused"
            await soon(lambda: states(nodes) == [State.ONLINE])
            assert [[it.state for it in pumps] for pumps in seen] == [[State.PAUSED]]
            assert nodes.pumps() == [Node("pump-1", "127.0.0.1:8250", State.ONLINE, 0, 6)]
            clock[:] = [8]
            await log.append(prewrite(1))
            await log.append(commit(1, 7))
            await soon(lambda: nodes.pumps() == [Node("pump-1", "127.0.0.1:8250", State.ONLINE, 7, 8)])
        assert nodes.pumps() == [Node("pump-1", "127.0.0.1:8250", State.PAUSED, 7, 8)]
        assert await refusal(log, 9) == "no online: paused"


async def test_a_pump_is_not_online_before_a_drainer_that_is_silent_answers_or_is_paused(
    etcd: Etcd, nodes: Nodes, log: WatchedLog
) -> None:
    async with drainer(etcd, nodes, []):
        pass
    async with registered(nodes, log, [1]) as registration:
        await soon(lambda: "the drainer 'drainer-1' at 127.0.0.1:" in registration.problem)
        assert registration.problem.endswith("start it, or pause it")
        assert states(nodes) == [State.PAUSED]
        assert await refusal(log, 1) == "no online: paused"
        etcd.put(DRAINERS + "drainer-1", Node("drainer-1", "127.0.0.1:1", State.PAUSED).encode())
        await soon(lambda: states(nodes) == [State.ONLINE])
        assert await refusal(log, 1) == ""


async def test_a_pump_takes_transactions_while_etcd_is_away(
    etcd_server: EtcdServer, nodes: Nodes, log: WatchedLog
) -> None:
    async with registered(nodes, log, [1]) as registration:
        await soon(lambda: registration.state == State.ONLINE)
        etcd_server.kill()
        await soon(lambda: "etcd does not answer" in registration.problem)
        assert await refusal(log, 1) == ""
        etcd_server.start()
        await soon(lambda: not registration.problem)
        assert states(nodes) == [State.ONLINE]


async def test_a_paused_pump_ends_what_has_begun_stays_paused_over_a_restart_and_is_resumed(
    nodes: Nodes, log: WatchedLog
) -> None:
    async with registered(nodes, log, [1]):
        await soon(lambda: states(nodes) == [State.ONLINE])
        await log.append(prewrite(1))
        nodes.want("pump-1", State.PAUSED)
        await soon(lambda: states(nodes) == [State.PAUSING])
        assert await refusal(log, 3) == "no online: pausing"
        await log.append(commit(1, 2))
        await soon(lambda: states(nodes) == [State.PAUSED])
    async with registered(nodes, log, [2]) as registration:
        await soon(lambda: nodes.pumps()[0].update_ts == 2)
        assert registration.state == State.PAUSED
        assert await refusal(log, 3) == "no online: paused"
        nodes.want("pump-1", State.ONLINE)
        await soon(lambda: states(nodes) == [State.ONLINE])
        assert await refusal(log, 3) == ""


async def test_a_pump_that_is_closed_leaves_the_cluster_when_all_drainers_have_read_it(
    etcd: Etcd, nodes: Nodes, log: WatchedLog
) -> None:
    for name, state, commit_ts in (("behind", State.PAUSED, 1), ("gone", State.OFFLINE, 0)):
        etcd.put(DRAINERS + name, Node(name, "127.0.0.1:1", state, commit_ts).encode())
    async with registered(nodes, log, [1]):
        await soon(lambda: states(nodes) == [State.ONLINE])
        await log.append(prewrite(1))
        nodes.want("pump-1", State.OFFLINE)
        await soon(lambda: states(nodes) == [State.CLOSING])
        await log.append(commit(1, 2))
        await soon(lambda: nodes.pumps()[0].max_commit_ts == 2)
        assert states(nodes) == [State.CLOSING]
        etcd.put(DRAINERS + "behind", Node("behind", "127.0.0.1:1", State.PAUSED, 2).encode())
        await soon(lambda: states(nodes) == [State.OFFLINE])
        assert await refusal(log, 3) == "no online: offline"
    async with registered(nodes, log, [2]):
        await soon(lambda: nodes.pumps()[0].update_ts == 2)
        assert states(nodes) == [State.OFFLINE]
        nodes.want("pump-1", State.ONLINE)
        await soon(lambda: states(nodes) == [State.ONLINE])


async def test_a_pump_does_not_leave_while_what_came_before_is_being_stored(nodes: Nodes, log: WatchedLog) -> None:
    async with registered(nodes, log, [1]) as registration:
        await soon(lambda: registration.state == State.ONLINE)
        log.disk.clear()
        storing = asyncio.create_task(log.append(prewrite(1)))
        await asyncio.sleep(0.2)
        nodes.want("pump-1", State.OFFLINE)
        await soon(lambda: states(nodes) != [State.ONLINE])
        await asyncio.sleep(0.5)
        assert states(nodes) == [State.CLOSING]
        log.disk.set()
        await storing
        await soon(lambda: registration.state == State.CLOSING and log.status.open == 1)
        await log.append(commit(1, 2))
        await soon(lambda: states(nodes) == [State.OFFLINE])


@pytest.mark.parametrize(
    ("key", "data", "said"),
    [
        (WANTED + "pump-1", b"asleep", "which is no state that a pump can go to"),
        (PUMPS + "pump-1", Node("pump-1", "10.0.0.1:8250", State.ONLINE).encode(), "a pump at 10.0.0.1:8250 is online"),
    ],
)
async def test_what_keeps_a_pump_from_being_registered_is_said_until_it_is_mended(
    etcd: Etcd, nodes: Nodes, log: WatchedLog, key: str, data: bytes, said: str
) -> None:
    etcd.put(key, data)
    async with registered(nodes, log, [1]) as registration:
        await soon(lambda: said in registration.problem)
        assert registration.state == State.PAUSED
        etcd.put(key, State.ONLINE.encode() if key.startswith(WANTED) else PUMP.encode())
        await soon(lambda: states(nodes) == [State.ONLINE])
        await soon(lambda: not registration.problem)
