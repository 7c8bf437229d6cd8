"""Batch after batch, by `batches()` and `stream()`."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice, pairwise
from typing import Any

import pytest

from sluice.client_sdk.calls import Limits
from sluice.protocol import errors
from tests.effort import times
from tests.proxy import Proxy
from tests.unit.client_sdk.served import MakeClient, ServerThread, calls_of, numbers, position
from tests.waiting import eventually

CHANGES = times(500, 2000)


@pytest.mark.parametrize("method", ["batches", "stream"])
class TestIterators:
    def test_every_change_comes_once_and_is_acked(self, client: Any, server: ServerThread, method: str) -> None:
        server.source.write(50)
        received: list[int] = []
        with closing(getattr(client, method)(limits=Limits(max_entries=7))) as batches:
            for batch in batches:
                received += numbers(batch)
                if len(received) == 50:
                    server.source.write(10)
                if len(received) == 60:
                    client.ack(batch)
                    break
        assert received == list(range(60))
        status = client.status()
        assert (status["acked"], status["marks"]) == (position(60), [])

    def test_what_is_left_in_the_middle_comes_again(self, client: Any, server: ServerThread, method: str) -> None:
        server.source.write(20)
        with closing(getattr(client, method)(limits=Limits(max_entries=1))) as batches:
            assert [numbers(next(batches)) for _ in range(3)] == [[0], [1], [2]]
        assert numbers(client.get_without_ack(5, Limits(max_entries=1))) == [2]

    def test_another_loop_of_the_same_client_ends_the_one_before(
        self, client: Any, server: ServerThread, method: str
    ) -> None:
        """They share a session: each would take batches that the other one never gets."""
        server.source.write(20)
        one = Limits(max_entries=1)
        with closing(getattr(client, method)(limits=one)) as former:
            assert numbers(next(former)) == [0]
            with closing(client.batches(limits=one)) as later:
                received = numbers(next(later))
                with pytest.raises(errors.StaleSessionError, match="another loop of the same client object has begun"):
                    list(islice(former, 3))
                received += [number for _ in range(19) for number in numbers(next(later))]
        assert received == list(range(20))

    def test_without_auto_ack_the_caller_acks(self, client: Any, server: ServerThread, method: str) -> None:
        server.source.write(3)
        with closing(getattr(client, method)(auto_ack=False, limits=Limits(max_entries=1))) as batches:
            for batch in [next(batches) for _ in range(3)]:
                client.ack(batch)
        assert client.status()["acked"] == position(3)

    def test_over_a_connection_that_is_cut_nothing_is_missing_and_order_is_kept(
        self, make_client: MakeClient, client: Any, server: ServerThread, method: str
    ) -> None:
        server.source.write(CHANGES)
        received: list[int] = []
        with Proxy(("127.0.0.1", server.port), seed=5) as proxy:
            proxy.cut_randomly(times(5_000, 20_000))
            cut = make_client(f"http://127.0.0.1:{proxy.port}")
            with closing(getattr(cut, method)(limits=Limits(max_entries=20))) as batches:
                for batch in batches:
                    received += numbers(batch)
                    if received[-1] == CHANGES - 1:
                        proxy.heal()
                        break
            assert proxy.cuts > 0
        assert list(dict.fromkeys(received)) == list(range(CHANGES))
        assert all(after <= before + 1 for before, after in pairwise(received))

    def test_a_restart_of_the_server_is_survived(self, client: Any, server: ServerThread, method: str) -> None:
        server.source.write(30)
        received: list[int] = []
        with closing(getattr(client, method)(limits=Limits(max_entries=1))) as batches:
            for batch in batches:
                received += numbers(batch)
                if received == list(range(10)):
                    server.stop()
                    server.start()
                if received[-1] == 29:
                    break
        assert list(dict.fromkeys(received)) == list(range(30))

    def test_another_consumer_takes_over(
        self, make_client: MakeClient, client: Any, server: ServerThread, method: str
    ) -> None:
        server.source.write(5)
        one = Limits(max_entries=1)
        with (
            closing(getattr(client, method)(limits=one)) as first,
            closing(getattr(make_client(server.url), method)(limits=one)) as other,
        ):
            assert numbers(next(first)) == [0]
            assert numbers(next(other)) == [0]
            with pytest.raises(errors.StaleSessionError):
                list(first)
            assert numbers(next(other)) == [1]

    def test_an_unreachable_server_is_given_up_after_a_while(
        self, make_client: MakeClient, server: ServerThread, method: str
    ) -> None:
        client = make_client("http://127.0.0.1:1", retry=0.3)
        asked = r"tried for 0\.3 s: http://127\.0\.0\.1:1: .*\. Check that one runs"
        with pytest.raises(errors.ConnectionLostError, match=asked):
            next(getattr(client, method)())


class TestAcksOfAStream:
    def test_batches_that_follow_at_once_share_an_ack(self, client: Any, server: ServerThread) -> None:
        server.source.write(200)
        with closing(client.stream(window=20, limits=Limits(max_entries=1))) as batches:
            assert [numbers(next(batches)) for _ in range(200)] == [[number] for number in range(200)]
        assert client.status()["acked"] == position(199)
        assert calls_of(server)["ack"] < 100

    def test_a_pause_acks_what_is_done(self, client: Any, server: ServerThread) -> None:
        server.source.write(3)
        with closing(client.stream(window=20, limits=Limits(max_entries=1))) as batches, ThreadPoolExecutor(1) as pool:
            for _ in range(3):
                next(batches)
            waiting = pool.submit(next, batches)
            eventually(lambda: client.status()["acked"] == position(3), client.status)
            server.source.write(1)
            assert numbers(waiting.result()) == [3]

    def test_what_is_done_is_not_rolled_back(self, client: Any, server: ServerThread) -> None:
        server.source.write(9)
        with closing(client.stream(window=20, limits=Limits(max_entries=1))) as batches:
            received = [numbers(next(batches)) for _ in range(5)]
            client.rollback()
            received += [numbers(next(batches)) for _ in range(5)]
        assert received == [[0], [1], [2], [3], [4], [4], [5], [6], [7], [8]]
