"""`PumpClient` and `AsyncPumpClient` write to real pumps, which fail, pause, leave and join."""

import asyncio
import contextlib
import re
import socket
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from sluice.client_sdk.tidb import AsyncPumpClient, Binlog, BinlogType, PumpClient, PumpError, aio_pump, pump, pumps
from sluice.login.etcd import Etcd, EtcdError, tls_of
from sluice.login.nodes import PUMPS, Node, Nodes, State
from sluice.protocol.errors import BadParameterError, ConnectionLostError, SluiceError
from sluice.server.grpc import registration
from sluice.server.grpc.registration import Registration
from tests import certificates
from tests.integration.grpc.served import CLUSTER, Served, WatchedLog, calling, commit, prewrite, serving
from tests.integration.grpc.test_pump_dies import SERVER, process
from tests.servers.etcd import EtcdServer
from tests.waiting import SECONDS, soon

PAGE = Path(__file__).parents[3] / "docs/howto/pump.md"
QUICK = 0.1
"""Seconds between two looks at the cluster, in these tests."""


class Client(Protocol):
    """One of the two clients, as the tests use it."""

    async def write(self, binlog: Binlog) -> None: ...

    async def close(self) -> None: ...


class Threaded:
    """The client without asyncio."""

    def __init__(self, client: PumpClient) -> None:
        self.client = client

    async def write(self, binlog: Binlog) -> None:
        await asyncio.to_thread(self.client.write, binlog)

    async def close(self) -> None:
        await asyncio.to_thread(self.client.close)


class Clients:
    """Makes clients of one kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    @contextlib.asynccontextmanager
    async def __call__(self, *pumps: str, cluster: int = CLUSTER, **settings: Any) -> AsyncIterator[Client]:
        if self.kind == "asyncio":
            async with AsyncPumpClient(cluster, pumps, **settings) as client:
                yield client
            return
        made = await asyncio.to_thread(lambda: PumpClient(cluster, pumps, **settings))
        try:
            yield Threaded(made)
        finally:
            await asyncio.to_thread(made.close)


@pytest.fixture(params=["threads", "asyncio"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Clients:
    for module in (pump, aio_pump):
        monkeypatch.setattr(module, "PERIOD", QUICK)
    monkeypatch.setattr(pumps, "END_PAUSE", 0.05)
    return Clients(request.param)


SLOW = pytest.mark.parametrize(
    "client", ["asyncio", pytest.param("threads", marks=pytest.mark.extended)], indirect=True
)
"""Tests that take longer: what they are about is the same code in both clients."""


@contextlib.asynccontextmanager
async def several(folder: Path, count: int, **settings: Any) -> AsyncIterator[list[Served]]:
    """Serve some pumps."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(one(folder / f"pump-{it + 1}", **settings)) for it in range(count)]


def one(folder: Path, **settings: Any) -> contextlib.AbstractAsyncContextManager[Served]:
    """Serve a pump in a folder, which may be there from an earlier life."""
    folder.mkdir(exist_ok=True)
    return serving(folder, **settings)


@contextlib.asynccontextmanager
async def registered(etcd: Etcd, folder: Path, **settings: Any) -> AsyncIterator[Served]:
    """Serve a pump and keep it registered by the name of its folder. It is paused in the end."""
    async with one(folder, **settings) as served:
        node = Node(folder.name, served.address, State.PAUSED)
        kept = Registration(Nodes(etcd), node, served.log, lambda: 1)
        keeping = asyncio.create_task(kept.keep())
        try:
            await soon(lambda: kept.state == kept.wanted)
            yield served
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await kept.leave()


def register(etcd: Etcd, number: int, host: str, **settings: Any) -> None:
    """Register a pump that is online, as a pump of TiDB is, by hand."""
    etcd.put(f"{PUMPS}pump-{number}", Node(f"pump-{number}", host, State.ONLINE, **settings).encode())


def begins(start_ts: int, value: bytes = b"rows") -> Binlog:
    return Binlog.FromString(prewrite(start_ts, value))


def commits(start_ts: int, commit_ts: int = 0) -> Binlog:
    return Binlog.FromString(commit(start_ts, commit_ts or start_ts + 1))


def rolls_back(start_ts: int) -> Binlog:
    return Binlog(tp=BinlogType.Rollback, start_ts=start_ts, commit_ts=0)


async def whole(client: Client, *starts: int) -> None:
    """Write transactions."""
    for start_ts in starts:
        await client.write(begins(start_ts))
        await client.write(commits(start_ts))


def stored(log: WatchedLog) -> list[tuple[str, int]]:
    """Return kind and start_ts of what a pump has."""
    found = [Binlog.FromString(it) for it in log.stored()]
    return [(BinlogType.Name(it.tp), it.start_ts) for it in found]


def begun(served: Served) -> list[int]:
    """Return the start_ts of the Prewrites that a pump has."""
    return [start_ts for kind, start_ts in stored(served.log) if kind == "Prewrite"]


async def given(served: Served, count: int) -> list[Binlog]:
    """Return the first transactions that a drainer gets."""
    stream = served.caller.pull()
    async with asyncio.timeout(30):
        found = [Binlog.FromString((await stream.read()).entity.payload) for _ in range(count)]
    stream.cancel()
    return found


def ts(number: int) -> int:
    """Return the time of the cluster in a millisecond."""
    return number << 18


# --- strategies ------------------------------------------------------------------------------------------------------


async def test_the_pumps_of_the_article_get_its_numbers(
    tmp_path: Path, client: Clients, etcd_server: EtcdServer, etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """{1, 3, 5, 7, 9} and {2, 4, 6, 10}; a third pump joins after 7 and gets {8, 12}. 11 is rolled back."""
    monkeypatch.setattr(registration, "PERIOD", 0.05)

    async def write(number: int) -> None:
        await writer.write(begins(ts(number) - 1))
        await writer.write(rolls_back(ts(number) - 1) if number == 11 else commits(ts(number) - 1, ts(number)))

    async with (
        registered(etcd, tmp_path / "pump-1") as first,
        registered(etcd, tmp_path / "pump-2") as second,
        client(pd=etcd_server.url) as writer,
    ):
        for number in range(1, 8):
            await write(number)
        async with registered(etcd, tmp_path / "pump-3") as third:
            await asyncio.sleep(5 * QUICK)
            for number in (11, 8, 9, 10, 12):
                await write(number)
            found = [[it.commit_ts >> 18 for it in await given(*it)] for it in ((first, 5), (second, 4), (third, 2))]
            assert found == [[1, 3, 5, 7, 9], [2, 4, 6, 10], [8, 12]]
            assert stored(second.log)[-4:-2] == [("Prewrite", ts(11) - 1), ("Rollback", ts(11) - 1)]


@SLOW
async def test_hash_takes_the_pump_by_start_ts_and_spreads_times_of_a_cluster(tmp_path: Path, client: Clients) -> None:
    starts = [ts(number) for number in range(1, 61)]  # whose lower bits are all the same
    async with (
        several(tmp_path, 2) as served,
        client(*(it.address for it in served), strategy="hash") as writer,
    ):
        await whole(writer, *starts)
        ordered = sorted(served, key=lambda it: it.address)
        assert [begun(it) for it in ordered] == [
            [it for it in starts if zlib.crc32(str(it).encode()) % 2 == index] for index in (0, 1)
        ]
        assert min(len(begun(it)) for it in served) > 10


@SLOW
async def test_score_gives_each_pump_its_share_evenly(
    tmp_path: Path, client: Clients, etcd_server: EtcdServer, etcd: Etcd
) -> None:
    async with several(tmp_path, 3) as served:
        for number, (it, score) in enumerate(zip(served, (3, 1, 0), strict=True)):
            register(etcd, number, it.address, score=score)
        async with client(pd=[etcd_server.url], strategy="score") as writer:
            await whole(writer, *range(10, 110, 10))
            assert [begun(it) for it in served] == [[10, 30, 50, 60, 80, 100], [20, 70], [40, 90]]


@SLOW
async def test_labels_choose_the_pumps(tmp_path: Path, client: Clients, etcd_server: EtcdServer, etcd: Etcd) -> None:
    async with several(tmp_path, 3) as served:
        for number, zone in enumerate(("a", "b", "a")):
            register(etcd, number, served[number].address, labels={"zone": zone, "disk": "ssd"})
        async with client(pd=etcd_server.url, labels={"zone": "a"}) as writer:
            await whole(writer, 10, 20, 30, 40)
            assert [begun(it) for it in served] == [[10, 30], [], [20, 40]]
        async with client(pd=etcd_server.url, labels={"zone": "c"}, retry=0.3) as writer:
            with pytest.raises(PumpError, match=r"tried for 0\.3 s: the cluster: no pump is online that may be used"):
                await writer.write(begins(50))


# --- failures --------------------------------------------------------------------------------------------------------

DYING = SERVER.replace(
    "async def main(",
    """
import os, signal
class DyingLog(PumpLog):
    async def append(self, payload):
        await super().append(payload)
        os.kill(os.getpid(), signal.SIGKILL)

async def main(""",
).replace("log = PumpLog(", "log = DyingLog(")


@SLOW
async def test_a_pump_that_is_killed_between_append_and_answer_gives_nothing_twice_and_blocks_nobody(
    tmp_path: Path, client: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a"
    (folder / "log").mkdir(parents=True)
    path = str(folder / "pump.sock")
    async with one(tmp_path / "b", socket=tmp_path / "b.sock") as other:
        monkeypatch.setattr("tests.integration.grpc.test_pump_dies.SERVER", DYING)
        async with process(folder) as dying, client(path, str(tmp_path / "b.sock")) as writer:
            await whole(writer, 10)
            assert await dying.wait() == -9
            assert stored(other.log) == [("Prewrite", 10), ("Commit", 10)]
            monkeypatch.setattr("tests.integration.grpc.test_pump_dies.SERVER", SERVER)
            async with process(folder), calling(path) as drainer:
                number = 20
                stream = drainer.pull()
                reading = asyncio.ensure_future(stream.read())
                async with asyncio.timeout(SECONDS):
                    while not reading.done():  # the Prewrite that A has in vain must not hold up what follows
                        await whole(writer, number)
                        number += 10
                        await asyncio.wait([reading], timeout=QUICK)
                assert Binlog.FromString(reading.result().entity.payload).start_ts != 10
                stream.cancel()


@SLOW
@pytest.mark.parametrize("strategy", ["range", "hash", "score"])
async def test_a_pump_that_refuses_is_left_out_and_the_others_take_all(
    tmp_path: Path, client: Clients, caplog: pytest.LogCaptureFixture, strategy: str
) -> None:
    async with (
        one(tmp_path / "full", stop_at=1 << 60, socket=tmp_path / "a.sock") as full,
        one(tmp_path / "good", socket=tmp_path / "b.sock") as good,
        client(str(tmp_path / "a.sock"), str(tmp_path / "b.sock"), strategy=strategy) as writer,
    ):
        await whole(writer, *range(10, 110, 10))
        assert stored(full.log) == []
        assert begun(good) == list(range(10, 110, 10))
        assert "a.sock is left out until it answers again: " in caplog.text


async def test_a_pump_that_never_answers_is_left_out_and_used_again_when_it_does(
    tmp_path: Path, client: Clients
) -> None:
    async with (
        one(tmp_path / "slow", socket=tmp_path / "a.sock") as slow,
        one(tmp_path / "good", socket=tmp_path / "b.sock") as good,
        client(str(tmp_path / "a.sock"), str(tmp_path / "b.sock"), timeout=1.0) as writer,
    ):
        slow.log.disk.clear()
        await asyncio.gather(*(whole(writer, start_ts) for start_ts in range(10, 90, 10)))
        assert sorted(begun(good)) == list(range(10, 90, 10))
        slow.log.disk.set()
        number = 100
        async with asyncio.timeout(SECONDS):
            while not any(it >= 100 for it in begun(slow)):
                await whole(writer, number)
                number += 10
                await asyncio.sleep(0.05)
        early = {it for it in begun(slow) if it < 90}
        assert early
        await soon(lambda: {("Rollback", it) for it in early} <= set(stored(slow.log)))


async def test_an_end_goes_to_the_pump_of_its_prewrite_only_also_when_that_was_away(
    tmp_path: Path, client: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with one(tmp_path / "b", socket=tmp_path / "b.sock") as other:
        async with client(str(tmp_path / "a.sock"), str(tmp_path / "b.sock")) as writer:
            async with one(tmp_path / "a", socket=tmp_path / "a.sock") as home:
                for start_ts in (10, 20, 30, 40):
                    await writer.write(begins(start_ts))
                assert (begun(home), begun(other)) == ([10, 30], [20, 40])
            waiting = asyncio.ensure_future(writer.write(commits(10)))
            await whole(writer, 50, 60)
            with monkeypatch.context() as patched:
                patched.setattr(pumps, "ENDS", 0.2)
                with pytest.raises(
                    PumpError, match=r"has stored the Rollback of .* start_ts 30, tried for 0\.2 s: .*a\.sock"
                ):
                    await writer.write(rolls_back(30))
            assert not waiting.done()
            async with one(tmp_path / "a", socket=tmp_path / "a.sock") as home:
                await waiting
                await writer.write(rolls_back(30))
                assert [it for it in stored(home.log) if it[0] != "Prewrite"] == [("Commit", 10), ("Rollback", 30)]
        assert {it for kind, it in stored(other.log) if kind != "Prewrite"} == {50, 60}


async def test_a_prewrite_is_tried_for_a_bounded_time_and_stored_if_a_pump_comes_back_in_it(
    tmp_path: Path, client: Clients
) -> None:
    path = str(tmp_path / "a.sock")
    async with client(path, retry=0.5) as writer:
        begin = time.monotonic()
        with pytest.raises(PumpError) as error:
            await writer.write(begins(10))
        assert 0.5 <= time.monotonic() - begin < 20
        assert str(error.value).startswith(
            f"no pump has stored the Prewrite of the transaction with start_ts 10, tried for 0.5 s: {path}: UNAVAILABLE"
        )
        with pytest.raises(BadParameterError, match="no Prewrite with start_ts 10 that has no end yet"):
            await writer.write(commits(10))
    async with client(path, retry=30) as writer:
        waiting = asyncio.ensure_future(writer.write(begins(10)))
        await asyncio.sleep(0.5)
        async with one(tmp_path / "a", socket=tmp_path / "a.sock") as served:
            await waiting
            assert begun(served) == [10]


async def test_pumps_of_another_cluster_are_named(tmp_path: Path, client: Clients) -> None:
    async with several(tmp_path, 1) as served, client(served[0].address, cluster=1, retry=0.2) as writer:
        with pytest.raises(PumpError, match=rf"UNKNOWN: cluster ID are mismatch, 1 vs {CLUSTER}"):
            await writer.write(begins(10))


async def test_a_message_that_is_too_large_fails_at_once_and_the_pump_stays(tmp_path: Path, client: Clients) -> None:
    async with several(tmp_path, 1, max_message=1 << 20) as served, client(served[0].address, retry=3600) as writer:
        for _ in range(4):
            with pytest.raises(PumpError, match=r"start_ts 10: .*RESOURCE_EXHAUSTED: .*larger than max"):
                await writer.write(begins(10, bytes(2 << 20)))
        await whole(writer, 10)
        assert begun(served[0]) == [10]


# --- the cluster changes ---------------------------------------------------------------------------------------------


@SLOW
async def test_pumps_are_used_while_they_are_online(
    tmp_path: Path, client: Clients, etcd_server: EtcdServer, etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "PERIOD", 0.05)
    nodes, names = Nodes(etcd), ("pump-1", "pump-2")
    starts = iter(range(100, 1_000_000, 10))

    async def used(expected: set[Path]) -> None:
        """Write until the last four transactions are on these pumps."""
        async with asyncio.timeout(SECONDS):
            while True:
                wanted = [next(starts) for _ in range(4)]
                await whole(writer, *wanted)
                counts = Counter(path for path, it in served.items() for start in begun(it) if start in wanted)
                if set(counts) == expected and sum(counts.values()) == 4:
                    return

    first, second = (tmp_path / name for name in names)
    served: dict[Path, Served] = {}
    async with registered(etcd, first) as served[first], client(pd=etcd_server.url) as writer:
        await used({first})
        async with registered(etcd, second) as served[second]:
            await used({first, second})
            await writer.write(begins(11))
            await writer.write(begins(12))
            nodes.want("pump-2", State.PAUSED)
            await used({first})
            await writer.write(commits(11))  # one of them ends at a pump that takes no Prewrite
            await writer.write(commits(12))
            await soon(lambda: nodes.find("pump-2")[0].state == State.PAUSED)
            nodes.want("pump-2", State.ONLINE)
            await used({first, second})
            nodes.want("pump-1", State.OFFLINE)
            await soon(lambda: nodes.find("pump-1")[0].state == State.OFFLINE)
            await used({second})
            nodes.want("pump-1", State.ONLINE)
            await used({first, second})
        port = served.pop(second).address
        await used({first})
        async with registered(etcd, second) as served[second]:
            assert served[second].address != port
            await used({first, second})
            etcd_server.kill()
            await used({first, second})


# --- connections -----------------------------------------------------------------------------------------------------


@SLOW
async def test_mutual_tls_to_pumps_and_pd(tmp_path: Path, client: Clients) -> None:
    cert, key = certificates.make(tmp_path)
    settings = {"tls_cert": cert, "tls_key": key, "tls_ca": cert, "allowed": ("127.0.0.1",)}
    with EtcdServer((cert, key)) as server:
        async with one(tmp_path / "a", socket=tmp_path / "a.sock", **settings) as served:
            host = served.address.partition(" and ")[0]
            etcd = Etcd([server.url], tls_of(cert, cert, key))
            register(etcd, 1, host)
            etcd.close()
            async with client(pd=server.url, ca=cert, cert=(cert, key)) as writer:
                await whole(writer, 10)
            async with client(host, ca=cert, retry=0.2) as writer:
                with pytest.raises(PumpError, match="UNAVAILABLE"):
                    await writer.write(begins(20))
            async with client(host, retry=0.2) as writer:
                with pytest.raises(PumpError, match="UNAVAILABLE"):
                    await writer.write(begins(30))
            with pytest.raises(EtcdError, match="certificate"):
                async with client(pd=server.url):
                    pass
            assert begun(served) == [10]


async def test_closing_ends_calls_under_way(tmp_path: Path, client: Clients) -> None:
    async with several(tmp_path, 1) as served:
        async with client(served[0].address, timeout=3600) as writer:
            served[0].log.disk.clear()
            storing = asyncio.ensure_future(writer.write(begins(10)))
            await asyncio.sleep(0.3)
            await writer.close()
            with pytest.raises(ConnectionLostError, match="the client is closed"):
                await storing
            with pytest.raises(ConnectionLostError, match="the client is closed"):
                await writer.write(begins(20))
        served[0].log.disk.set()


async def test_what_no_pump_would_take_is_refused(tmp_path: Path, client: Clients) -> None:
    async with several(tmp_path, 1) as served, client(served[0].address) as writer:
        await writer.write(begins(10))
        for binlog, text in (
            (begins(10), "the transaction with start_ts 10 has a Prewrite, and no end yet"),
            (begins(0), "a start_ts is a number from 1 on, and not 0"),
            (commits(10, 10), "a commit_ts is greater than its start_ts 10: not 10"),
            (rolls_back(20), "no Prewrite with start_ts 20"),
            (Binlog(tp=BinlogType.PreDDL, start_ts=30), "a Prewrite, a Commit or a Rollback, and not a 3"),
        ):
            with pytest.raises(BadParameterError, match=text):
                await writer.write(binlog)
        assert stored(served[0].log) == [("Prewrite", 10)]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "either pumps or pd has to be given"),
        ({"pumps": "a:1", "pd": "http://b:2"}, "either pumps or pd has to be given"),
        ({"pumps": "a:1", "strategy": "random"}, "a strategy is one of range, hash, score, and not 'random'"),
        ({"pumps": "a:1", "labels": {"zone": "a"}}, "labels need pd"),
    ],
)
@pytest.mark.parametrize("kind", [PumpClient, AsyncPumpClient])
def test_arguments_that_cannot_be_used_are_named(kind: Any, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(BadParameterError, match=text):
        kind(CLUSTER, **arguments)


async def test_pd_that_does_not_answer_is_an_error(client: Clients) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(SluiceError, match="etcd does not answer"):
            async with client(pd=f"http://127.0.0.1:{taken.getsockname()[1]}"):
                pass


async def test_the_example_of_the_page(tmp_path: Path, etcd_server: EtcdServer, etcd: Etcd) -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    async with several(tmp_path, 1) as (served,):
        register(etcd, 1, served.address)
        await asyncio.to_thread(exec, code[0].replace("http://127.0.0.1:2379", etcd_server.url), {})
        (found,) = await given(served, 1)
        assert (found.start_ts, found.commit_ts) == (470608646180962305, 470608646180962311)
