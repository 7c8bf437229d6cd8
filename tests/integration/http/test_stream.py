"""A stream carries batch after batch, and ends when it should."""

import asyncio
import json

import pytest

from sluice.server.http import stream
from tests.integration.http.served import CLIENT, MEGABYTE, NDJSON, Api, next_batch, streaming
from tests.source import numbers
from tests.waiting import soon


class TestStream:
    async def test_batch_follows_batch_while_they_are_acked(self, api: Api) -> None:
        async with streaming(api, maxEntries=1, window=2) as response:
            for number in range(5):
                api.source.put()
                batch = await next_batch(response)
                assert numbers(batch) == [number]
                assert batch.from_position.endswith(f":{4 + 100 * number}:0")
                await api.ack(batch.batch_id)

    async def test_no_more_batches_are_outstanding_than_the_window_allows(self, api: Api) -> None:
        api.source.put(10)
        async with streaming(api, maxEntries=1, window=3) as response:
            batches = [await next_batch(response) for _ in range(3)]
            assert len(await api.marks()) == 3
            await api.ack(batches[0].batch_id)
            assert numbers(await next_batch(response)) == [3]
            assert len(await api.marks()) == 3

    async def test_it_begins_with_a_rollback(self, api: Api) -> None:
        api.source.put(2)
        await api.get()
        async with streaming(api) as response:
            assert numbers(await next_batch(response)) == [0, 1]
            assert len(await api.marks()) == 1

    async def test_an_idle_stream_carries_empty_batches(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(stream, "HEARTBEAT", 0.05)
        async with streaming(api, window=1) as response:
            assert (await next_batch(response)).batch_id == -1
            api.source.put()
            while (batch := await next_batch(response)).batch_id == -1:
                pass
            assert (await next_batch(response)).batch_id == -1  # the window is full
            await api.ack(batch.batch_id)

    async def test_a_newer_stream_ends_an_older_one(self, api: Api) -> None:
        async with streaming(api) as older, streaming(api) as newer:
            assert older.headers["Sluice-Session"] != newer.headers["Sluice-Session"]
            async with asyncio.timeout(5):
                assert await older.content.read() == b""
            api.source.put()
            assert numbers(await next_batch(newer)) == [0]

    async def test_a_newer_stream_of_the_same_session_ends_an_older_one_that_takes_nothing_more(self, api: Api) -> None:
        api.source.put()
        async with streaming(api, maxEntries=1, window=20) as older:
            headers = {"Sluice-Session": older.headers["Sluice-Session"]}
            assert numbers(await next_batch(older)) == [0]
            async with streaming(api, maxEntries=1, window=1, headers=headers) as newer:
                api.source.put(7)
                for number in range(8):
                    batch = await next_batch(newer)
                    assert numbers(batch) == [number]
                    await api.ack(batch.batch_id)
            async with asyncio.timeout(5):
                assert await older.content.read() == b""

    async def test_in_ndjson_the_last_line_says_why_it_ended(self, api: Api) -> None:
        async with streaming(api, headers=NDJSON) as response:
            api.source.put()
            change, batch = [json.loads(await response.content.readline()) for _ in range(2)]
            assert change["id"] == batch["batchId"]
            await api.embedded.stop("example")
            last = json.loads(await response.content.readline())
            assert last["problem"]["type"] == "destination-stopped"
            assert await response.content.read() == b""

    async def test_a_client_that_goes_away_ends_its_stream(self, api: Api) -> None:
        async with streaming(api):
            assert api.waiting() == 1
        await soon(lambda: not api.waiting())

    async def test_json_cannot_be_streamed(self, api: Api) -> None:
        headers = {"Accept": "application/json"}
        assert await api.problem("GET", f"{CLIENT}/stream", 406, headers=headers) == "not-acceptable"

    async def test_a_large_batch_arrives_whole(self, api: Api) -> None:
        for _ in range(8):
            api.source.put(size=MEGABYTE // 2)
        async with streaming(api, maxEntries=8) as response:
            assert numbers(await next_batch(response)) == list(range(8))
