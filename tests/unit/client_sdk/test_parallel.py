"""A function that processes changes in parallel, by `process()`."""

import asyncio
import contextlib
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from sluice.client_sdk import AsyncClient, Change, Client, Limits, ProcessingError, Row
from sluice.client_sdk.endpoint import Endpoint
from sluice.client_sdk.process import Processing
from sluice.protocol import errors
from sluice.protocol.canal.entry_pb2 import ALTER, ROWDATA, UPDATE, Column, Entry, Header, RowChange
from tests.effort import times
from tests.proxy import Proxy
from tests.unit.client_sdk.served import MakeClient, ServerThread, Waiting, entry, position
from tests.waiting import eventually, soon

ONE = Limits(max_entries=1)
Function = Callable[..., object]


@pytest.fixture
def other(make_client: MakeClient, client: Any, server: ServerThread) -> Any:
    """The one that processes; `client` has subscribed, and is asked how things stand."""
    del client
    return make_client(server.url)


def update(before: int, after: int) -> bytes:
    change = RowChange(eventType=UPDATE)
    row = change.rowDatas.add()
    for columns, number in ((row.beforeColumns, before), (row.afterColumns, after)):
        columns.append(Column(name="id", mysqlType="int", sqlType=4, value=str(number), updated=True, isKey=True))
    header = Header(logfileName="bin.000001", schemaName="shop", tableName="goods", eventType=UPDATE)
    return Entry(header=header, entryType=ROWDATA, storeValue=change.SerializeToString()).SerializeToString()


def ddl() -> bytes:
    change = RowChange(eventType=ALTER, isDdl=True, sql="ALTER TABLE goods ADD name TEXT")
    header = Header(logfileName="bin.000001", schemaName="shop", tableName="goods", eventType=ALTER)
    return Entry(header=header, entryType=ROWDATA, storeValue=change.SerializeToString()).SerializeToString()


def number(change: Any) -> int:
    image = change.after if change.before is None else change.before
    return int(image["id"])


def of(client: Any, function: Function) -> Function:
    """As the client wants it."""
    if not isinstance(client, Waiting):
        return function

    async def later(*arguments: object) -> None:
        await asyncio.to_thread(function, *arguments)

    return later


@contextlib.contextmanager
def processing(client: Any, function: Function, **options: Any) -> Iterator[Future[None]]:
    """Process what comes until the end of the block, or an error."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(client.process, of(client, function), **options)
        try:
            yield running
        finally:
            client.close()
            with contextlib.suppress(errors.SluiceError):
                running.result()


class Gate:
    """A function that shows what runs, and lets nothing through unless it was opened for it."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.opened: set[int] = set()
        self.changed = threading.Condition()

    def __call__(self, change: Row | Change) -> None:
        me = number(change)
        with self.changed:
            self.begun.append(me)
            self.changed.wait_for(lambda: me in self.opened)
            self.ended.append(me)

    def open(self, *numbers: int) -> None:
        with self.changed:
            self.opened |= set(numbers)
            self.changed.notify_all()


class TestOrder:
    def test_different_keys_run_at_once_and_never_more_than_the_workers(
        self, other: Any, client: Any, server: ServerThread
    ) -> None:
        server.source.write(6)
        gate = Gate()
        with processing(other, gate, workers=3, limits=ONE):
            eventually(lambda: len(gate.begun) == 3)
            gate.open(1)
            eventually(lambda: len(gate.begun) == 4)
            assert sorted(gate.begun) == [0, 1, 2, 3]
            gate.open(*range(6))
            eventually(lambda: client.status()["acked"] == position(6))

    @pytest.mark.parametrize("limits", [ONE, Limits()], ids=["batch after batch", "in one batch"])
    def test_changes_of_a_key_run_one_after_the_other(
        self, other: Any, client: Any, server: ServerThread, limits: Limits
    ) -> None:
        seen: list[tuple[int, int]] = []
        running: set[int] = set()
        server.source.entry = lambda it: entry(it) if it < 5 else update(it % 5, it % 5)
        server.source.write(100)

        def function(change: Any) -> None:
            key = number(change)
            assert key not in running
            running.add(key)
            time.sleep(0.001)
            seen.append((key, change.change.logfile_offset))
            running.discard(key)

        with processing(other, function, workers=4, limits=limits):
            eventually(lambda: client.status()["acked"] == position(100))
        assert [len([it for key, it in seen if key == wanted]) for wanted in range(5)] == [20] * 5

    def test_a_key_that_changes_waits_for_both(self, other: Any, client: Any, server: ServerThread) -> None:
        server.source.entry = lambda it: [entry(0), entry(1), update(0, 1), update(1, 7), entry(3)][it]
        server.source.write(5)
        order: list[str] = []
        held = {it: threading.Event() for it in (0, 1)}

        def function(change: Any) -> None:
            if change.type == "INSERT" and number(change) in held:
                assert held[number(change)].wait(60)
            order.append(f"{change.type} {number(change)}")

        with processing(other, function, workers=4, limits=ONE):
            eventually(lambda: order == ["INSERT 3"])
            held[0].set()
            eventually(lambda: order == ["INSERT 3", "INSERT 0"])
            held[1].set()
            eventually(lambda: client.status()["acked"] == position(5))
        assert order == ["INSERT 3", "INSERT 0", "INSERT 1", "UPDATE 0", "UPDATE 1"]

    def test_a_ddl_waits_for_all_and_all_wait_for_it(self, other: Any, client: Any, server: ServerThread) -> None:
        server.source.entry = lambda it: ddl() if it == 2 else entry(it)
        server.source.write(5)
        gate = Gate()
        altered = threading.Event()
        seen: list[str] = []

        def function(change: Row | Change) -> None:
            if isinstance(change, Row):
                gate(change)
            else:
                seen.append(f"{change.type} after {sorted(gate.ended)}, {len(gate.begun) - 2} after it")
                assert altered.wait(60)

        with processing(other, function, workers=4):
            eventually(lambda: sorted(gate.begun) == [0, 1])
            gate.open(0, 1)
            eventually(lambda: seen)
            altered.set()
            eventually(lambda: sorted(gate.begun) == [0, 1, 3, 4])
            gate.open(3, 4)
            eventually(lambda: client.status()["acked"] == position(5))
        assert seen == ["ALTER after [0, 1], 0 after it"]


class TestAcks:
    def test_a_batch_is_acked_when_all_before_it_is_processed(
        self, other: Any, client: Any, server: ServerThread
    ) -> None:
        server.source.write(4)
        gate = Gate()
        with processing(other, gate, workers=4, limits=ONE):
            gate.open(1, 2, 3)
            eventually(lambda: sorted(gate.ended) == [1, 2, 3])
            assert client.status()["acked"] == position(0)
            gate.open(0)
            eventually(lambda: client.status()["acked"] == position(4))

    def test_what_was_given_before_a_quota_was_used_up_is_processed_and_acked(
        self, other: Any, client: Any, server: ServerThread, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fail, is_used_up = Processing.fail, threading.Event()

        def tell(self: Processing[Any], failure: BaseException) -> None:
            fail(self, failure)
            is_used_up.set()

        monkeypatch.setattr(Processing, "fail", tell)
        headers = {"content-type": "application/json"}
        url = f"{server.url}/v1/destinations/example/clients/1001/limit"
        with urllib.request.urlopen(urllib.request.Request(url, b'{"quota": 1}', headers, method="POST")) as answer:
            assert answer.status == 200
        server.source.write(6)
        gate = Gate()
        with processing(other, gate, workers=1) as running:
            eventually(lambda: gate.begun == [0] and is_used_up.is_set())
            gate.open(*range(6))
            with pytest.raises(errors.QuotaExceededError):
                running.result(60)
        assert gate.ended == list(range(6))
        assert client.status()["acked"] == position(6)

    @pytest.mark.parametrize("limit", [{"window": 2}, {"max_bytes": 250}], ids=["batches", "bytes"])
    def test_no_more_is_fetched_than_may_be_in_flight(
        self, other: Any, client: Any, server: ServerThread, limit: dict[str, int]
    ) -> None:
        server.source.write(10)
        gate = Gate()
        with processing(other, gate, workers=4, limits=ONE, **limit):
            for it in range(10):
                eventually(lambda it=it: it in gate.begun)  # type: ignore[misc]
                eventually(lambda it=it: client.status()["acked"] == position(it))  # type: ignore[misc]
                eventually(lambda it=it: len(client.status()["marks"]) == min(2, 10 - it))  # type: ignore[misc]
                assert max(gate.begun) < it + 2
                gate.open(it)

    def test_a_newer_loop_of_the_same_client_ends_it_and_gets_what_it_has_not_processed(
        self, other: Any, client: Any, server: ServerThread
    ) -> None:
        server.source.write(4)
        gate = Gate()
        with processing(other, gate, workers=1, limits=ONE) as former:
            gate.open(0)
            eventually(lambda: gate.begun == [0, 1])
            eventually(lambda: client.status()["acked"] == position(1))
            seen: list[int] = []
            with processing(other, lambda change: seen.append(number(change)), workers=1, limits=ONE):
                eventually(lambda: client.status()["acked"] == position(4))
                gate.open(1, 2, 3)
                with pytest.raises(errors.StaleSessionError, match="another loop of the same client object has begun"):
                    former.result()
        assert (seen, gate.ended) == ([1, 2, 3], [0, 1])

    def test_what_is_processed_is_acked_when_the_client_is_closed(self, server: ServerThread) -> None:
        server.source.write(4)
        gate = Gate()
        with Client(server.url) as client, Client(server.url) as other, ThreadPoolExecutor(1) as pool:
            client.subscribe()
            running = pool.submit(other.process, gate, workers=2, limits=ONE)
            eventually(lambda: sorted(gate.begun) == [0, 1])
            other.close()
            gate.open(0, 1, 2, 3)  # until it is noticed more may begin
            with pytest.raises(errors.ConnectionLostError, match="the client is closed"):
                running.result()
            status = client.status()
        assert sorted(gate.ended) == sorted(gate.begun)
        assert (status["acked"], status["marks"]) == (position(len(gate.ended)), [])

    async def test_what_is_processed_is_acked_when_it_is_cancelled(self, server: ServerThread) -> None:
        server.source.write(4)
        begun: list[int] = []
        release = asyncio.Event()

        async def function(change: Row | Change) -> None:
            begun.append(number(change))
            await release.wait()

        async with AsyncClient(server.url) as other:
            await other.subscribe()
            running = asyncio.create_task(other.process(function, workers=2, limits=ONE))
            await soon(lambda: begun == [0, 1])
            running.cancel()
            release.set()
            await asyncio.gather(running, return_exceptions=True)
            assert running.cancelled()
            status = await other.status()
        assert begun == [0, 1]
        assert (status["acked"], status["marks"]) == (position(2), [])

    @pytest.mark.parametrize("window", [2, 8], ids=["nothing is fetched", "a get waits"])
    def test_what_does_not_end_in_time_is_given_up(
        self, other: Any, client: Any, server: ServerThread, caplog: pytest.LogCaptureFixture, window: int
    ) -> None:
        server.source.write(3)
        gate = Gate()
        with processing(other, gate, workers=2, limits=ONE, window=window, grace=0.1) as running:
            gate.open(0)
            eventually(lambda: sorted(gate.begun) == [0, 1, 2])
            other.close()
            try:
                eventually(running.done)
            finally:
                gate.open(1, 2)
            with pytest.raises(errors.ConnectionLostError):
                running.result()
        assert "2 changes have begun and did not end within 0.1 s of the stop; they come again" in caplog.text
        assert client.status()["acked"] in (position(0), position(1))


class TestFailures:
    def test_an_error_ends_it_and_nothing_after_is_acked(self, other: Any, client: Any, server: ServerThread) -> None:
        server.source.write(10)
        gate = Gate()
        gate.open(*range(10))

        def function(change: Row | Change) -> None:
            gate(change)
            if number(change) == 3:
                raise ValueError("no such product")

        match = r"`function` failed for INSERT shop\.goods \{'id': 3\} at bin\.000001:\d+: ValueError: no such product"
        with pytest.raises(ProcessingError, match=match) as caught:
            other.process(of(other, function), workers=2, limits=ONE)
        assert isinstance(caught.value.__cause__, ValueError)
        assert isinstance(caught.value.change, Row)
        status = client.status()
        assert (status["acked"], status["marks"]) == (position(3), [])

    def test_what_runs_beside_it_ends_and_its_error_is_logged(
        self, other: Any, client: Any, server: ServerThread, caplog: pytest.LogCaptureFixture
    ) -> None:
        server.source.write(3)
        gate = Gate()

        def function(change: Row | Change) -> None:
            gate(change)
            if number(change):
                raise ValueError("no")

        with processing(other, function, workers=3) as running:
            eventually(lambda: sorted(gate.begun) == [0, 1, 2])
            gate.open(1)
            eventually(lambda: 1 in gate.ended)
            gate.open(0, 2)
            with pytest.raises(ProcessingError, match="'id': 1"):
                running.result()
        assert sorted(gate.ended) == [0, 1, 2]
        assert "`function` failed for INSERT shop.goods {'id': 2}" in caplog.text
        assert client.status()["acked"] == position(0)

    def test_what_on_error_takes_is_processed(self, other: Any, client: Any, server: ServerThread) -> None:
        server.source.write(10)
        dead: list[tuple[int, str]] = []

        def function(change: Row | Change) -> None:
            if number(change) % 4 == 1:
                raise ValueError(f"no {number(change)}")

        def on_error(change: Row | Change, error: Exception) -> None:
            dead.append((number(change), str(error)))

        with processing(other, function, on_error=of(other, on_error)):
            eventually(lambda: client.status()["acked"] == position(10))
        assert sorted(dead) == [(1, "no 1"), (5, "no 5"), (9, "no 9")]

    def test_what_on_error_raises_ends_it(self, other: Any, client: Any, server: ServerThread) -> None:
        server.source.write(2)

        def function(change: Row | Change) -> None:
            raise KeyError(number(change))

        def on_error(change: Row | Change, error: Exception) -> None:
            raise OSError("the disk is full") from error

        with pytest.raises(ProcessingError, match=r"`on_error` failed for .*'id': 0.*OSError: the disk is full"):
            other.process(of(other, function), workers=1, on_error=of(other, on_error))
        assert client.status()["acked"] == position(0)

    def test_a_coroutine_function_is_refused_where_nobody_would_run_it(self, server: ServerThread) -> None:
        server.source.write(1)

        async def function(change: Row | Change) -> None:
            """Do nothing."""

        with Client(server.url) as client:
            client.subscribe()
            with pytest.raises(ProcessingError, match="it is a coroutine function: give it to an AsyncClient"):
                client.process(function)

    def test_a_key_that_cannot_be_found_ends_it(self, other: Any, client: Any, server: ServerThread) -> None:
        server.source.write(1)
        with pytest.raises(errors.BadParameterError, match=r"INSERT shop.goods \{'id': 0\} at .* no column 'customer'"):
            other.process(print, key={"shop.goods": ["customer"]})
        with pytest.raises(ProcessingError, match=r"`key` failed for INSERT shop.goods \{'id': 0\}.*KeyError: 'name'"):
            other.process(print, key=lambda table, values: (table, values["name"]))
        assert client.status()["acked"] == position(0)

    @pytest.mark.parametrize(
        ("arguments", "wrong"),
        [
            ({"workers": 0}, "workers is 1 to 1000, not 0"),
            ({"window": 2000}, "window is 1 to 1024, not 2000"),
            ({"max_bytes": 0}, "max_bytes is at least 1, not 0"),
            ({"grace": float("inf")}, "grace is 0 to 3600, not inf"),
            ({"key": {"goods": ["id"]}}, r"write `schema\.table` and a list of its columns"),
            ({"key": {"shop.goods": "id"}}, r"write `schema\.table` and a list of its columns"),
        ],
    )
    def test_arguments_that_cannot_be_used_are_refused(self, other: Any, arguments: Any, wrong: str) -> None:
        with pytest.raises(errors.BadParameterError, match=wrong):
            other.process(print, **arguments)


class TestRepetitions:
    def test_what_runs_at_a_rollback_ends_before_its_repetition_begins(
        self, other: Any, client: Any, server: ServerThread
    ) -> None:
        server.source.write(3)
        gate = Gate()
        with processing(other, gate, workers=4, limits=ONE):
            gate.open(1, 2)
            eventually(lambda: sorted(gate.ended) == [1, 2])
            other.rollback()
            eventually(lambda: sorted(gate.ended) == [1, 1, 2, 2])
            assert gate.begun.count(0) == 1
            assert client.status()["acked"] == position(0)
            gate.open(0)
            eventually(lambda: client.status()["acked"] == position(3))
        assert gate.ended.count(0) == 2

    def test_a_get_from_before_a_move_acks_nothing_that_comes_again(
        self, make_client: MakeClient, client: Any, server: ServerThread
    ) -> None:
        """The batch that it brings comes after the ones that the move has dropped, so its ack would be theirs, too."""
        first, second = server.url, f"http://localhost:{server.port}"
        endpoint = Endpoint([first, second], "example", 1001, None, insecure=False)
        server.source.entry = lambda it: update(0, 0) if it == 1 else entry(it)
        server.source.write(2)
        gate = Gate()
        with processing(make_client(endpoint), gate, workers=2, max_bytes=500):
            eventually(lambda: gate.begun == [0] and server.waiting() == 1)
            endpoint.leave(first, second)  # as any other call does when its connection breaks
            gate.open(*range(2, 20))
            server.source.write(18)  # enough that no further get is made before they are acked
            eventually(lambda: len(set(gate.ended)) == 18)
            assert client.status()["acked"] == position(0)
            gate.open(0)
            eventually(lambda: client.status()["acked"] == position(20))
        assert gate.ended.count(0) >= 3, "the change that waited is processed"

    def test_over_a_connection_that_is_cut_nothing_is_missing_and_order_is_kept(
        self, make_client: MakeClient, client: Any, server: ServerThread
    ) -> None:
        count, keys = times(300, 2000), 7
        server.source.entry = lambda it: update(it % keys, it % keys)
        server.source.write(count)
        running: set[int] = set()
        calls: list[int] = []

        def function(change: Any) -> None:
            key = number(change)
            assert key not in running
            running.add(key)
            calls.append(key)
            time.sleep(0.001)
            running.discard(key)

        with Proxy(("127.0.0.1", server.port), seed=5) as proxy:
            proxy.cut_randomly(times(5_000, 20_000))
            cut = make_client(f"http://127.0.0.1:{proxy.port}")
            with processing(cut, function, workers=4, limits=Limits(max_entries=5)) as ending:
                eventually(lambda: client.status()["acked"] == position(count) or ending.done())
                assert not ending.done()
            assert proxy.cuts > 0
        assert len(calls) >= count

    def test_a_restart_of_the_server_is_survived(
        self, other: Any, make_client: MakeClient, server: ServerThread
    ) -> None:
        server.source.write(20)
        gate = Gate()
        with processing(other, gate, workers=4, limits=ONE, window=4) as ending:
            gate.open(*range(10))
            eventually(lambda: 9 in gate.ended)
            server.stop()
            server.start()
            gate.open(*range(10, 20))
            status = make_client(server.url).status
            eventually(lambda: status()["acked"] == position(20) or ending.done())
            assert not ending.done()
        assert set(gate.ended) == set(range(20))

    def test_another_consumer_takes_over(self, other: Any, make_client: MakeClient, server: ServerThread) -> None:
        server.source.write(3)
        gate = Gate()
        with processing(other, gate, workers=1, limits=ONE, grace=0) as running:
            eventually(lambda: gate.begun == [0])
            successor = make_client(server.url)
            successor.open_session()
            successor.rollback()
            gate.open(0, 1, 2)
            with pytest.raises(errors.StaleSessionError):
                running.result()
            assert [row.after["id"] for row in successor.get_without_ack(5)] == [0, 1, 2]
