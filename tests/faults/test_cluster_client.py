"""The client of several servers goes on with the next one, and the consumers of one client id take turns."""

import asyncio
import itertools
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest

from sluice.client_sdk import AsyncClusterClient, Batch, Client, ClusterClient
from sluice.client_sdk.calls import Call, Limits
from sluice.protocol.errors import BadParameterError, ConnectionLostError, UnknownBatchError
from tests.faults.harness import SECONDS, Sluice
from tests.faults.test_ha import NAME, ROOT, Pair, state
from tests.proxy import Proxy
from tests.servers import Server, ZooKeeper, freeze, nodes
from tests.servers.server import free_port
from tests.waiting import eventually

T = TypeVar("T")

ROOT_OF_CLIENT = f"{ROOT}/1001/running"
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "several-servers.md"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeper, mariadb118: Server) -> Iterator[Pair]:
    """Two servers of this module; a test that kills one starts it again."""
    schema = "cluster_client"
    mariadb118.query(f"CREATE DATABASE {schema}")
    pair = Pair(tmp_path_factory.mktemp("pair"), zookeeper.hosts, mariadb118, schema)
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        for server in pair.servers:
            stack.callback(server.__exit__)
        list(pool.map(Sluice.start, pair.servers))
        yield pair


_numbers = itertools.count(1)


def insert(pair: Pair, count: int = 1) -> list[int]:
    """Insert rows with the next numbers, each in a transaction of its own."""
    numbers = list(itertools.islice(_numbers, count))
    pair.insert(*numbers)
    return numbers


def ids(batch: Batch) -> list[int]:
    return [int(row.after["id"]) for row in batch if row.table == "t" and row.after is not None]


def yield_from(pair: Pair, zookeeper: ZooKeeper) -> None:
    """Let the active server give the destination up, as `sluice yield` does."""
    with nodes(zookeeper.hosts) as zk:
        data, _ = zk.get(f"{ROOT}/running")
        zk.set(f"{ROOT}/running", json.dumps(json.loads(data) | {"active": False}).encode())


class Reader(threading.Thread):
    """Takes what comes until the last number has come; remembers what, and what was acked."""

    def __init__(self, client: ClusterClient | AsyncClusterClient, way: str, **options: Any) -> None:
        super().__init__(daemon=True)
        self.client, self.way = client, way
        self.options = {"limits": Limits(max_entries=7), **options}
        self.goes_on = threading.Event()
        """Unless set, it works on a batch of a stream."""
        self.goes_on.set()
        self.seen: list[int] = []
        self.acked: set[int] = set()
        """What may not come again: a durable cursor stands between transactions, so they have to have ended."""
        self._open: set[int] = set()
        self.last = sys.maxsize
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            if isinstance(self.client, AsyncClusterClient):
                asyncio.run(self._of_asyncio(self.client))
            else:
                with self.client:
                    getattr(self, f"_by_{self.way}")(self.client)
        except Exception as error:  # noqa: BLE001  the test raises it
            self.failure = error

    def _by_get(self, client: ClusterClient) -> None:
        while self.last not in self.acked:
            batch = client.get_without_ack(0.5, Limits(max_entries=7))
            self.seen += ids(batch)
            assert not self.acked & set(ids(batch)), "what was acked durably comes again"
            try:
                client.ack(batch)
            except UnknownBatchError:
                continue  # it comes again
            self._confirm(batch)

    def _by_get_with_ack(self, client: ClusterClient) -> None:
        batch: Batch | None = None
        while self.last not in self.acked:
            done = batch
            try:
                batch = client.get_without_ack(0.5, Limits(max_entries=7), ack=done)
            except UnknownBatchError:
                batch = None  # it comes again
                continue
            if done:
                self._confirm(done)
            self.seen += ids(batch)
            assert not self.acked & set(ids(batch)), "what was acked durably comes again"

    def _confirm(self, batch: Batch) -> None:
        """Note what the ack of a batch has made durable."""
        for change in batch.changes():
            self._open |= {row.after["id"] for row in change.rows() if row.after}
            if change.entry_type == "TRANSACTIONEND":
                self.acked |= self._open
                self._open = set()

    def _by_stream(self, client: ClusterClient) -> None:
        for batch in client.stream(**self.options):
            self.seen += ids(batch)
            self.goes_on.wait()
            if self.last in self.seen:
                return

    async def _of_asyncio(self, client: AsyncClusterClient) -> None:
        async with client:
            async for batch in getattr(client, self.way)(**self.options):
                self.seen += ids(batch)
                await asyncio.to_thread(self.goes_on.wait)
                if self.last in self.seen:
                    return

    def wait_for(self, number: int) -> None:
        eventually(lambda: number in self.seen, lambda: (self.seen[-3:], self.failure))

    def finish(self) -> list[int]:
        """Wait for the end; return the numbers, each once, in the order in which they came first."""
        self.join(30)
        assert self.failure is None, self.failure
        assert not self.is_alive(), self.seen[-10:]
        return list(dict.fromkeys(self.seen))


def test_nothing_is_lost_when_the_active_server_is_killed_and_when_it_yields(pair: Pair, zookeeper: ZooKeeper) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    listed = ClusterClient([dead, *(server.url for server in pair.servers)], NAME, 1002)
    found = ClusterClient(zookeeper=zookeeper.hosts, destination=NAME)
    carrying = ClusterClient(zookeeper=zookeeper.hosts, destination=NAME, client_id=1003)
    first = pair.active()
    for client in listed, found, carrying:
        client.subscribe(start="latest")
    readers = [Reader(found, "get"), Reader(listed, "stream"), Reader(carrying, "get_with_ack")]
    numbers = insert(pair, 20)
    for reader in readers:
        reader.start()
    numbers += insert(pair, 20)
    first.kill()
    numbers += insert(pair, 20)
    for reader in readers:
        reader.wait_for(numbers[-1])
    first.start()
    eventually(lambda: state(first) == "standby")
    numbers += insert(pair, 5)
    yield_from(pair, zookeeper)
    numbers += insert(pair, 5)
    eventually(lambda: state(first) == "running", lambda: "".join(first.log))
    for reader in readers:
        reader.last = numbers[-1] + 1
    numbers += insert(pair)
    for reader in readers:
        assert reader.finish() == numbers, "all, and in order"


@pytest.mark.extended
def test_server_that_vanishes_is_left_when_another_is_active_however_long_the_client_would_wait(
    pair: Pair, zookeeper: ZooKeeper
) -> None:
    def settings(client_id: int) -> dict[str, Any]:
        return {"zookeeper": zookeeper.hosts, "destination": NAME, "client_id": client_id, "timeout": 10 * SECONDS}

    readers = [
        Reader(ClusterClient(**settings(2001)), "get"),
        Reader(ClusterClient(**settings(2002)), "get_with_ack"),
        Reader(ClusterClient(**settings(2003)), "stream"),
        Reader(AsyncClusterClient(**settings(2004)), "batches"),
        Reader(AsyncClusterClient(**settings(2005)), "stream"),
    ]
    busy = [
        Reader(ClusterClient(**settings(2006)), "stream", auto_ack=False, window=100),
        Reader(AsyncClusterClient(**settings(2007)), "stream", auto_ack=False, window=100),
    ]
    first = pair.active()
    with (
        ClusterClient(**settings(2008)) as asking,
        ClusterClient(**settings(2009)) as idle,
        ThreadPoolExecutor() as pool,
    ):
        for client_id in range(2001, 2010):
            with first.client(client_id, NAME) as client:
                client.subscribe(start="latest")
        numbers = insert(pair, 20)
        for reader in readers + busy:
            reader.start()
            reader.wait_for(numbers[-1])
        for reader in busy:
            reader.goes_on.clear()
        numbers += insert(pair)
        for reader in readers + busy:
            reader.wait_for(numbers[-1])
        taken = [wait_for_batch(client) for client in (asking, idle)]
        freeze(first.process.pid)
        try:
            ack = pool.submit(asking.ack, taken[0])  # while the former server seems to be active
            numbers += insert(pair, 20)
            for reader in readers:
                reader.wait_for(numbers[-1])
            ack.result(SECONDS)
            idle.ack(taken[1])  # long after the news, as these:
            for reader in busy:
                reader.goes_on.set()
                reader.wait_for(numbers[-1])
            for client, batch in zip((asking, idle), taken, strict=True):
                assert ids(wait_for_batch(client))[0] == ids(batch)[-1] + 1, "what was acked is acked, and no more"
            for reader in readers + busy:
                reader.last = numbers[-1] + 1
            numbers += insert(pair)
            for reader in readers + busy:
                assert reader.finish() == numbers, "all, and in order"
        finally:
            first.process.send_signal(signal.SIGCONT)
    eventually(lambda: state(first) == "standby", lambda: "".join(first.log))


def test_error_names_all_servers_and_what_to_do() -> None:
    servers = [f"http://127.0.0.1:{free_port()}" for _ in range(2)]
    with ClusterClient(servers, NAME, retry=0.3) as client, pytest.raises(ConnectionLostError) as caught:
        client.status()
    assert all(server in str(caught.value) for server in servers)
    assert "sluice status" in str(caught.value)
    with (
        ClusterClient(zookeeper=f"127.0.0.1:{free_port()}", destination=NAME, retry=0.3) as client,
        pytest.raises(ConnectionLostError, match=r"ZooKeeper.*could not be reached.*see that it runs"),
    ):
        client.status()
    with pytest.raises(BadParameterError, match="either by `url` or by `zookeeper`"):
        ClusterClient(servers, NAME, zookeeper="127.0.0.1:2181")
    with pytest.raises(BadParameterError, match="not addresses of ZooKeeper servers"):
        ClusterClient(zookeeper="127.0.0.1:many", destination=NAME)


def test_closed_client_connects_to_nothing_any_more() -> None:
    before = threading.active_count()
    client = ClusterClient(zookeeper=f"127.0.0.1:{free_port()}", destination=NAME)
    client.close()
    with pytest.raises(ConnectionLostError, match="closed"):
        client.status()
    assert threading.active_count() == before


@pytest.mark.extended
def test_consumers_of_a_client_id_take_turns_by_the_nodes_of_canal(pair: Pair, zookeeper: ZooKeeper) -> None:
    pair.active()
    gone = f"gone.invalid,{zookeeper.hosts}"  # one of its servers is no longer in the DNS
    with (
        nodes(zookeeper.hosts) as zk,
        ClusterClient(zookeeper=gone, destination=NAME) as first,
        ClusterClient(zookeeper=zookeeper.hosts, destination=NAME) as second,
        ThreadPoolExecutor() as pool,
    ):
        first.subscribe()
        first.open_session()
        numbers = insert(pair)
        data, stat = zk.get(ROOT_OF_CLIENT)
        assert re.fullmatch(rb'\{"active":true,"address":"127\.0\.0\.1:\d+","clientId":1001\}', data)
        assert stat.ephemeralOwner
        waiting = pool.submit(take, second, numbers)
        first.status()
        assert not waiting.done()
        assert not second.has_turn
        assert ids(wait_for_batch(first))[-1:] == numbers
        first.close()
        assert waiting.result(10)[-1:] == numbers, "it was not acked: the consumer that waited has it"

        # One of Canal's clients is there; and an operator tells this one to let another work.
        zk.set(ROOT_OF_CLIENT, json.dumps(json.loads(zk.get(ROOT_OF_CLIENT)[0]) | {"active": False}).encode())
        eventually(lambda: zk.exists(ROOT_OF_CLIENT) is None)
        zk.create(ROOT_OF_CLIENT, b'{"active":true,"address":"192.0.2.7:50123","clientId":1001}', ephemeral=True)
        waiting = pool.submit(take, second, numbers := insert(pair))
        eventually(lambda: not second.has_turn)
        assert not waiting.done()
        zk.delete(ROOT_OF_CLIENT)
        assert waiting.result(20)[-1:] == numbers


def take(client: ClusterClient, wanted: list[int]) -> list[int]:
    """Get and ack until these have come."""
    found: list[int] = []
    while wanted[-1] not in found:
        batch = client.get_without_ack(1)
        found += ids(batch)
        client.ack(batch)
    return found


def test_consumer_that_has_lost_its_turn_unawares_is_refused(pair: Pair, zookeeper: ZooKeeper) -> None:
    pair.active()
    with (
        Proxy(("127.0.0.1", zookeeper.servers[0].port)) as proxy,
        ClusterClient(zookeeper=f"127.0.0.1:{proxy.port}", destination=NAME, session_timeout=2) as stale,
        ClusterClient(zookeeper=zookeeper.hosts, destination=NAME, session_timeout=2) as other,
        ThreadPoolExecutor() as pool,
    ):
        stale.subscribe()
        stale.open_session()
        numbers = insert(pair)
        batch = wait_for_batch(stale)
        proxy.stall()
        waiting = pool.submit(wait_for_batch, other)
        again = waiting.result(20)
        assert ids(again) == ids(batch)
        assert stale.has_turn, "it has not heard of it"
        with pytest.raises(UnknownBatchError, match="comes again"):
            stale.get_without_ack(ack=batch)
        with pytest.raises(UnknownBatchError, match="comes again"):
            stale.ack(batch)
        other.ack(again)
        back = pool.submit(wait_for_batch, stale)
        proxy.heal()
        proxy.cut()
        eventually(lambda: not stale.has_turn)
        numbers = insert(pair)
        assert ids(wait_for_batch(other)) == numbers
        other.close()
        assert ids(back.result(10)) == numbers


def wait_for_batch(client: ClusterClient) -> Batch:
    """Get until there are rows, and ack what has none: a batch may end after the beginning of a transaction."""
    found: list[Batch] = []

    def get() -> bool:
        found[:] = [client.get_without_ack(1)]
        if ids(found[0]):
            return True
        client.ack(found[0])
        return False

    eventually(get)
    return found[0]


def test_consumers_of_asyncio_take_turns_and_follow_the_servers(pair: Pair, zookeeper: ZooKeeper) -> None:
    numbers: list[int] = []

    async def consume(client: AsyncClusterClient) -> list[int]:
        found: list[int] = []
        async for batch in client.batches():
            found += ids(batch)
            if numbers[-1] in found:
                break
        return found

    async def run() -> None:
        async with (
            AsyncClusterClient(zookeeper=zookeeper.hosts, destination=NAME) as first,
            AsyncClusterClient(zookeeper=zookeeper.hosts, destination=NAME) as second,
        ):
            await first.subscribe()
            await first.open_session()
            numbers.extend(await asyncio.to_thread(insert, pair, 3))
            waiting = asyncio.create_task(consume(second))
            await asyncio.to_thread(yield_from, pair, zookeeper)
            assert (await consume(first))[-3:] == numbers
            assert not waiting.done()
            numbers.extend(await asyncio.to_thread(insert, pair, 3))
            await first.close()
            assert (await asyncio.wait_for(waiting, 20))[-3:] == numbers[-3:]

    pair.active()
    asyncio.run(run())


def test_turn_restarts_when_a_consumer_without_turns_has_opened_a_session(pair: Pair, zookeeper: ZooKeeper) -> None:
    paths: list[str] = []

    class Recorded(AsyncClusterClient):
        async def _exchange(self, server: str, call: Call[T]) -> T:
            paths.append(call.path)
            return await super()._exchange(server, call)

    async def run() -> None:
        async with Recorded(zookeeper=zookeeper.hosts, destination=NAME, client_id=1003) as client:
            await client.subscribe(start="latest")
            await client.open_session()
            with Client(pair.active().url, NAME, 1003) as other:
                await asyncio.to_thread(other.open_session)
            paths.clear()
            await client.get_without_ack()
            assert client.has_turn

    pair.active()
    asyncio.run(run())
    assert paths == ["/rollback", "/session", "/rollback", "/getWithoutAck"], "refused once"


def test_example_of_the_page(pair: Pair, zookeeper: ZooKeeper) -> None:
    (example,) = (
        code for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "zookeeper=" in code
    )
    pair.active()
    program = [sys.executable, "-u", "-c", example.replace("127.0.0.1:2181", zookeeper.hosts)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            (number,) = insert(pair)
            for line in running.stdout:
                if line == f"INSERT t {{'id': {number}}}\n":
                    break
            else:
                raise AssertionError("it has ended")
        finally:
            running.kill()
