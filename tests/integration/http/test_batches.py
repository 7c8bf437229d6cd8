"""Changes are taken, acknowledged and given back by calls of HTTP, in every format."""

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.position import Position
from tests.integration.http.served import ARROW, CLIENT, MEGABYTE, NDJSON, PROTOBUF, Api, running
from tests.source import numbers
from tests.waiting import soon


class TestGet:
    async def test_changes_are_taken_acked_and_not_given_again(self, api: Api) -> None:
        api.source.put(3)
        first = await api.get()
        assert numbers(first) == [0, 1, 2]
        await api.ack(first.batch_id)
        api.source.put()
        assert numbers(await api.get(timeout=5000)) == [3]

    async def test_an_empty_batch_has_the_id_minus_one(self, api: Api) -> None:
        batch = await api.get()
        assert (batch.batch_id, list(batch.messages)) == (-1, [])

    async def test_a_waiting_call_is_answered_by_the_first_change(self, api: Api) -> None:
        waiting = asyncio.create_task(api.get(timeout=30_000))
        await soon(lambda: api.waiting() == 1)
        api.source.put()
        async with asyncio.timeout(5):
            assert numbers(await waiting) == [0]

    async def test_a_waiting_call_ends_with_its_timeout(self, api: Api) -> None:
        begin = time.monotonic()
        assert (await api.get(timeout=200)).batch_id == -1
        assert 0.15 < time.monotonic() - begin < 5

    async def test_what_is_rolled_back_comes_again_under_another_id(self, api: Api) -> None:
        api.source.put(2)
        first = await api.get()
        await api.post("rollback", status=204)
        second = await api.get()
        assert numbers(second) == numbers(first)
        assert second.batch_id > first.batch_id

    async def test_limits_bound_a_batch(self, api: Api) -> None:
        api.source.put(10, size=1000)
        assert len((await api.get(maxEntries=3)).messages) == 3
        assert len((await api.get(maxBytes=2500)).messages) == 2
        assert len((await api.get()).messages) == 5

    async def test_min_bytes_and_linger_wait_for_more(self, api: Api) -> None:
        api.source.put()
        waiting = asyncio.create_task(api.get(timeout=30_000, minBytes=1, linger=30_000))
        assert numbers(await waiting) == [0]
        waiting = asyncio.create_task(api.get(timeout=30_000, minBytes=5000, linger=30_000))
        await soon(lambda: api.waiting() == 1)
        api.source.put()
        assert len(await api.marks()) == 1  # what it waits with is not taken yet
        api.source.put(size=5000)
        assert numbers(await waiting) == [1, 2]

    async def test_acks_may_name_a_position(self, api: Api) -> None:
        api.source.put(3)
        response = await api.post("getWithoutAck", headers=PROTOBUF)
        await api.post("ack", json={"position": response.headers["Sluice-To"]}, status=204)
        assert await api.marks() == []

    async def test_calls_may_be_written_in_unusual_ways(self, api: Api) -> None:
        """The common form takes a shortcut; every other one that is right means the same."""
        api.source.put(3)
        headers = {"Content-Type": "application/json; charset=utf-8"}
        for query, body in ("?durable=yes", '{"batchId": "%d"}'), ("", ' {"position": null, "batchId": %d}'):
            answer = await api.post("getWithoutAck?maxEntries=%31", headers=PROTOBUF)
            assert len(Messages.FromString(answer.body).messages) == 1
            await api.post(f"ack{query}", data=body % (await api.marks())[0], headers=headers, status=204)
        assert await api.marks() == []
        path = f"{CLIENT}/getWithoutAck?maxEntries=1&maxEntries=x"
        assert await api.problem("POST", path, 422) == "bad-parameter"

    @pytest.mark.parametrize("call", ["getWithoutAck", "ack"])
    async def test_nothing_is_taken_or_acked_by_a_call_that_only_reads(self, api: Api, call: str) -> None:
        api.source.put()
        await api.call("GET", f"{CLIENT}/{call}", status=405)
        assert await api.marks() == []

    async def test_a_durable_ack_is_on_disk_when_it_is_answered(self, api: Api, tmp_path: Path) -> None:
        api.source.put(3)
        batch = await api.get()
        await api.post("ack?durable=true", json={"batchId": batch.batch_id}, status=204)
        assert "bin.000001@1700000000:304:0" in "".join(
            path.read_text() for path in (tmp_path / "data").rglob("*") if path.is_file()
        )


class TestAckOfAGet:
    """A get that acks the batch before it."""

    async def test_it_acks_then_gives_the_next_batch(self, api: Api) -> None:
        api.source.put(3)
        first = await api.get(maxEntries=1)
        second = await api.get(maxEntries=1, ack=first.batch_id)
        assert numbers(second) == [1]
        assert await api.marks() == [second.batch_id]
        await api.post("rollback", status=204)
        again = await api.get()
        assert numbers(again) == [1, 2]

    async def test_it_may_name_a_position(self, api: Api) -> None:
        api.source.put(3)
        for _ in range(2):
            response = await api.post("getWithoutAck?maxEntries=1", headers=PROTOBUF)
        third = await api.get(ack=response.headers["Sluice-To"])
        assert numbers(third) == [2]
        assert await api.marks() == [third.batch_id]

    async def test_a_durable_one_is_on_disk_before_the_next_batch_comes(self, tmp_path: Path) -> None:
        async with running(tmp_path, instance={"file_flush_period": 60_000}) as api:
            await api.post("subscribe")
            api.source.put(2)
            first = await api.get(maxEntries=1)
            second = await api.get(ack=first.batch_id, durable="true")
            stored = "".join(path.read_text() for path in (tmp_path / "data").rglob("*") if path.is_file())
        assert numbers(second) == [1]
        assert "bin.000001@1700000000:104:0" in stored

    @pytest.mark.parametrize(
        ("ack", "status", "kind"),
        [
            ("{second}", 409, "ack-out-of-order"),
            ("7", 409, "unknown-batch"),
            ("-1", 409, "unknown-batch"),
            ("101/bin.000001@1700000000:9999:0", 422, "bad-position"),
            ("seven", 422, "bad-position"),
        ],
    )
    async def test_one_that_is_refused_changes_nothing(self, api: Api, ack: str, status: int, kind: str) -> None:
        api.source.put(3)
        first, second = await api.get(maxEntries=1), await api.get(maxEntries=1)
        path = f"{CLIENT}/getWithoutAck?ack={ack.format(second=second.batch_id)}"
        assert await api.problem("POST", path, status) == kind
        assert await api.marks() == [first.batch_id, second.batch_id]
        assert numbers(await api.get()) == [2]

    async def test_an_unavailable_format_acks_nothing(self, api: Api) -> None:
        api.source.put(2)
        first = await api.get(maxEntries=1)
        path = f"{CLIENT}/getWithoutAck?ack={first.batch_id}"
        assert await api.problem("POST", path, 406, headers={"Accept": "text/html"}) == "not-acceptable"
        assert await api.marks() == [first.batch_id]

    async def test_one_of_an_older_session_acks_and_takes_nothing(self, api: Api) -> None:
        api.source.put(2)
        older = {"Sluice-Session": ((await api.post("session")).json())["session"]}
        await api.post("getWithoutAck?maxEntries=1", headers=older)
        marks = await api.marks()
        await api.post("session")
        path = f"{CLIENT}/getWithoutAck?ack={marks[0]}"
        assert await api.problem("POST", path, 409, headers=older) == "stale-session"
        assert await api.marks() == marks

    async def test_without_a_further_change_the_ack_stands(self, api: Api) -> None:
        api.source.put()
        first = await api.get()
        assert (await api.get(ack=first.batch_id, timeout=100)).batch_id == -1
        await api.post("rollback", status=204)
        assert (await api.get()).batch_id == -1

    async def test_when_the_client_goes_away_the_ack_stands_and_no_batch_is_taken(self, api: Api) -> None:
        api.source.put()
        first = await api.get()
        waiting = asyncio.create_task(api.get(ack=first.batch_id, timeout=30_000))
        await soon(lambda: api.waiting() == 1)
        assert await api.marks() == []
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await soon(lambda: not api.waiting())
        api.source.put()
        assert numbers(await api.get()) == [1]

    async def test_when_the_server_stops_it_says_so_and_the_ack_stands(self, tmp_path: Path) -> None:
        async with running(tmp_path) as api:
            await api.post("subscribe")
            api.source.put()
            path = f"{CLIENT}/getWithoutAck?timeout=60000&ack={(await api.get()).batch_id}"
            waiting = asyncio.create_task(api.problem("POST", path, 503))
            await soon(lambda: api.waiting() == 1)
            os.kill(os.getpid(), signal.SIGTERM)
            async with asyncio.timeout(5):
                assert await waiting == "destination-stopped"
                await api.serving
        async with running(tmp_path) as api:
            status = (await api.call("GET", CLIENT)).json()
            assert status["position"] == "101/bin.000001@1700000000:104:0"

    async def test_an_ack_that_waits_for_the_stream_is_answered_when_the_server_stops(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with running(tmp_path) as api:
            await api.post("subscribe")
            api.source.put(1)
            place = (await api.post("getWithoutAck")).headers["Sluice-To"]
            for call in ("stop", "start"):
                await api.call("POST", f"/v1/destinations/example/{call}")
            monkeypatch.setattr(type(api.source), "end", lambda _: Position.parse(place))  # it is yet to send it
            path, body = f"{CLIENT}/ack", {"position": place}
            waiting = asyncio.create_task(api.call("POST", path, status=503, json=body))
            await soon(lambda: api.waiting() == 1)
            os.kill(os.getpid(), signal.SIGTERM)
            async with asyncio.timeout(5):
                assert (await waiting).json()["type"] == "destination-stopped"


class TestFormats:
    async def test_json_is_the_default(self, api: Api) -> None:
        api.source.put(2)
        response = await api.post("getWithoutAck")
        body = response.json()
        assert response.content_type == "application/json"
        assert [entry["data"] for entry in body["entries"]] == [[{"id": "0"}], [{"id": "1"}]]
        assert {entry["id"] for entry in body["entries"]} == {body["batchId"]}
        assert str(body["batchId"]) == response.headers["Sluice-Batch-Id"]
        assert (body["from"], body["to"]) == ("101/bin.000001@1700000000:4:0", "101/bin.000001@1700000000:204:0")
        assert (body["from"], body["to"]) == (response.headers["Sluice-From"], response.headers["Sluice-To"])

    async def test_an_empty_batch_is_json_too(self, api: Api) -> None:
        body = (await api.post("getWithoutAck")).json()
        assert (body["batchId"], body["entries"]) == (-1, [])

    async def test_ndjson_is_a_change_a_line_then_the_batch(self, api: Api) -> None:
        api.source.put(2)
        response = await api.post("getWithoutAck", headers=NDJSON)
        *changes, batch = map(json.loads, (response.text()).splitlines())
        assert [change["data"] for change in changes] == [[{"id": "0"}], [{"id": "1"}]]
        assert str(batch["batchId"]) == response.headers["Sluice-Batch-Id"]

    async def test_arrow_is_a_stream_of_rows_that_says_which_batch_it_is(self, api: Api) -> None:
        api.source.put(2)
        response = await api.post("getWithoutAck", headers=ARROW)
        rows = pa.ipc.open_stream(response.body).read_all()
        assert response.content_type == "application/vnd.apache.arrow.stream"
        assert rows.column("after").to_pylist() == [[("id", "0")], [("id", "1")]]
        assert [it["begin"] for it in rows.column("_pos").to_pylist()] == [4, 104]
        assert rows.schema.metadata[b"batchId"].decode() == response.headers["Sluice-Batch-Id"]
        assert rows.schema.metadata[b"to"].decode() == response.headers["Sluice-To"]

    async def test_an_empty_batch_is_arrow_too(self, api: Api) -> None:
        response = await api.post("getWithoutAck", headers=ARROW)
        rows = pa.ipc.open_stream(response.body).read_all()
        assert (rows.num_rows, rows.schema.metadata[b"batchId"]) == (0, b"-1")

    @pytest.mark.parametrize("accept", [None, NDJSON, ARROW])
    async def test_a_batch_has_a_change_and_what_has_none_is_acked_with_it(
        self, api: Api, accept: Mapping[str, str] | None
    ) -> None:
        api.source.put(transaction=True)
        first = await api.post("getWithoutAck?maxEntries=1", headers=accept or {})
        if accept is ARROW:
            assert pa.ipc.open_stream(first.body).read_all().num_rows == 1
        else:
            assert b'"data":[{"id":"1"}]' in first.body.replace(b" ", b"")
        assert (await api.post("getWithoutAck", headers=accept or {})).headers["Sluice-Batch-Id"] == "-1"
        await api.ack(int(first.headers["Sluice-Batch-Id"]))
        status = (await api.call("GET", CLIENT)).json()
        assert (status["acked"], status["lag"]["entries"]) == ("101/bin.000001@1700000000:304:0", 0)

    async def test_what_the_server_cannot_write_is_not_acceptable_and_takes_no_batch(self, api: Api) -> None:
        api.source.put()
        kind = await api.problem("POST", f"{CLIENT}/getWithoutAck", 406, headers={"Accept": "text/csv"})
        assert kind == "not-acceptable"
        assert await api.marks() == []

    async def test_a_large_batch_arrives_whole(self, api: Api) -> None:
        for _ in range(8):
            api.source.put(size=MEGABYTE // 2)
        response = await api.post("getWithoutAck", params={"maxEntries": 8}, headers=PROTOBUF)
        body = response.body
        assert int(response.headers["Content-Length"]) == len(body) > 4 * MEGABYTE
        assert numbers(Messages.FromString(body)) == list(range(8))


class TestWaiting:
    async def test_a_client_that_goes_away_while_it_waits_takes_no_batch(self, api: Api) -> None:
        waiting = asyncio.create_task(api.get(timeout=30_000))
        await soon(lambda: api.waiting() == 1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await soon(lambda: not api.waiting())
        api.source.put()
        assert await api.marks() == []
        assert numbers(await api.get()) == [0]

    async def test_a_hundred_clients_wait_at_once(self, api: Api) -> None:
        paths = [f"/v1/destinations/example/clients/{number}" for number in range(100)]
        for path in paths:
            await api.call("POST", f"{path}/subscribe")
        calls = [api.call("POST", f"{path}/getWithoutAck?timeout=30000", headers=PROTOBUF) for path in paths]
        waiting = asyncio.gather(*calls)
        await soon(lambda: api.waiting() == 100)
        api.source.put()
        async with asyncio.timeout(5):
            responses = await waiting
        assert [numbers(Messages.FromString(it.body)) for it in responses] == [[0]] * 100

    async def test_a_put_of_another_thread_wakes_waiting_calls(self, api: Api) -> None:
        waiting = asyncio.create_task(api.get(timeout=30_000))
        await soon(lambda: api.waiting() == 1)
        thread = threading.Thread(target=api.source.put, daemon=True)
        thread.start()
        async with asyncio.timeout(5):
            assert numbers(await waiting) == [0]
        thread.join()
