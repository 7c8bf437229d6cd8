"""A call whose reply does not arrive is done once, or repeated without a loss."""

import asyncio
import threading
from typing import Any, TypeVar

import pytest

from sluice.client_sdk import AsyncClient, Batch
from sluice.client_sdk import calls as sdk_calls
from sluice.client_sdk.attempts import Attempts
from sluice.client_sdk.calls import Call, Limits, Reply
from sluice.client_sdk.endpoint import Endpoint, Interrupted
from sluice.protocol import errors
from tests.proxy import Proxy
from tests.unit.client_sdk.served import MakeClient, ServerThread, numbers, position

T = TypeVar("T")

ENDPOINT = Endpoint("http://localhost", "example", 1001, None, insecure=False)


def test_an_ack_whose_reply_is_lost_is_done_once(make_client: MakeClient, client: Any, server: ServerThread) -> None:
    server.source.write(1)
    with Proxy(("127.0.0.1", server.port)) as proxy:
        shaky = make_client(f"http://127.0.0.1:{proxy.port}")
        batch = shaky.get_without_ack(5)
        proxy.cut_after(20)  # within the reply's head
        timer = threading.Timer(0.5, proxy.heal)
        timer.start()
        shaky.ack(batch)
        timer.join()
    assert client.status()["acked"] == position(1)


def test_a_get_whose_reply_is_lost_loses_nothing(make_client: MakeClient, client: Any, server: ServerThread) -> None:
    server.source.write(1)
    with Proxy(("127.0.0.1", server.port)) as proxy:
        proxy.cut_after(20)
        timer = threading.Timer(0.5, proxy.heal)
        timer.start()
        batch = make_client(f"http://127.0.0.1:{proxy.port}").get_without_ack(5)
        timer.join()
    assert numbers(batch) == [0]
    assert client.status()["marks"] == [batch.batch_id]


def test_a_get_that_is_given_up_keeps_nothing_from_the_next(
    make_client: MakeClient, client: Any, server: ServerThread
) -> None:
    server.source.write(1)
    with Proxy(("127.0.0.1", server.port)) as proxy:
        shaky = make_client(f"http://127.0.0.1:{proxy.port}", retry=0)
        proxy.cut_after(20)
        with pytest.raises(errors.ConnectionLostError):
            shaky.get_without_ack(5)
        proxy.heal()
        batch = shaky.get_without_ack(5)
    assert numbers(batch) == [0]
    assert client.status()["marks"] == [batch.batch_id]


def test_get_goes_on_after_an_ack_that_did_not_arrive(
    make_client: MakeClient, client: Any, server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    del client  # it has subscribed
    server.source.write(2)
    ack = sdk_calls.ack
    with Proxy(("127.0.0.1", server.port)) as proxy:

        def stalled(*arguments: Any, **options: Any) -> Call[None]:
            proxy.stall()
            return ack(*arguments, **options)

        shaky = make_client(f"http://127.0.0.1:{proxy.port}", retry=0, timeout=0.5)
        monkeypatch.setattr(sdk_calls, "ack", stalled)
        with pytest.raises(errors.ConnectionLostError):
            shaky.get(5, Limits(max_entries=1))
        monkeypatch.undo()
        proxy.cut()
        proxy.heal()
        assert [numbers(shaky.get(5, Limits(max_entries=1))) for _ in range(2)] == [[0], [1]]


def test_a_get_that_is_cancelled_when_its_reply_is_there_loses_nothing(client: Any, server: ServerThread) -> None:
    server.source.write(1)
    replied = asyncio.Event()

    class Slow(AsyncClient):
        async def _exchange(self, server: str, call: Call[T]) -> T:
            result = await super()._exchange(server, call)
            if isinstance(result, Batch) and not replied.is_set():
                replied.set()
                await asyncio.sleep(60)
            return result

    async def run() -> Batch:
        async with Slow(server.url) as slow:
            lost = asyncio.create_task(slow.get_without_ack(5))
            await replied.wait()
            lost.cancel()
            batch = await slow.get_without_ack(5)
            await slow.ack(batch)
            return batch

    assert numbers(asyncio.run(run())) == [0]
    assert client.status()["acked"] == position(1)


@pytest.mark.parametrize("status", [200, 409, 503])
def test_an_answer_that_breaks_off_within_its_headers_does_not_count(status: int) -> None:
    call = sdk_calls.get_without_ack(0, Limits(), "text")
    with pytest.raises(Interrupted) as caught:
        ENDPOINT.read(ENDPOINT.server, call, Reply(status, {"con": ""}, b""))
    assert caught.value.may_be_done


class TestAttempts:
    LOST = Interrupted(errors.ConnectionLostError("cut"), may_be_done=True)
    REFUSED = Interrupted(errors.ConnectionLostError("refused"), may_be_done=False)

    def test_delays_grow_to_a_limit(self) -> None:
        attempts = Attempts(ENDPOINT, sdk_calls.status(), 1000)
        delays = [attempts.delay(self.REFUSED) for _ in range(10)]
        assert delays[0] <= 0.1
        assert 2.5 <= delays[-1] <= 5

    def test_patience_ends(self) -> None:
        with pytest.raises(errors.ConnectionLostError):
            Attempts(ENDPOINT, sdk_calls.status(), 0).delay(self.REFUSED)

    def test_a_call_that_was_never_sent_is_repeated_unchanged(self) -> None:
        call = sdk_calls.get_without_ack(0, Limits(), "text")
        attempts = Attempts(ENDPOINT, call, 60)
        attempts.delay(self.REFUSED)
        assert (attempts.before, attempts.call) == ([], call)

    def test_a_get_rolls_back_before_it_is_repeated(self) -> None:
        attempts = Attempts(ENDPOINT, sdk_calls.get_without_ack(0, Limits(), "text"), 60)
        attempts.delay(self.LOST)
        assert [before.rolls_back for before in attempts.before] == [True]

    def test_an_ack_by_id_alone_is_not_repeated(self) -> None:
        attempts = Attempts(ENDPOINT, sdk_calls.ack(7, durable=False), 60)
        with pytest.raises(errors.ConnectionLostError):
            attempts.delay(self.LOST)

    def test_an_ack_of_a_batch_is_repeated_by_position(self) -> None:
        attempts = Attempts(ENDPOINT, sdk_calls.ack(Batch(7, "a", "b", b""), durable=True), 60)
        attempts.delay(self.LOST)
        assert (attempts.call.body, attempts.call.query) == ({"batchId": 7, "position": "b"}, {"durable": "true"})
