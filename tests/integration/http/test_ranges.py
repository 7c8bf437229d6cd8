"""Ranges by position: marked, read in every format, as a whole or in pieces, and never cut short without a sign."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path

import aiohttp
import pyarrow as pa
import pytest

from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.errors import SourceError
from sluice.store.batch import Batch
from tests.integration.http.served import ARROW, CLIENT, NDJSON, PROTOBUF, Api, running
from tests.source import numbers
from tests.waiting import soon

PLACES = [f"101/bin.000001@1700000000:{4 + 100 * number}:0" for number in range(4)]
RANGE = {"from": PLACES[0], "to": PLACES[-1]}


async def test_range_in_every_format(tmp_path: Path) -> None:
    async with running(tmp_path) as api:
        await api.post("subscribe")
        api.source.put(3)
        query = {"after": "101/bin.000001@1700000000:4:0", "timeout": "5000"}
        marked = (await api.post("position", params=query)).json()
        assert marked["rows"] == 3
        between = {"from": marked["from"], "to": marked["to"]}
        answer = await api.call("GET", f"{CLIENT}/rows", params=between, headers=PROTOBUF)
        messages = Messages.FromString(answer.body)
        assert numbers(messages) == [0, 1, 2]
        assert list(messages.positions) == [4, 0, 104, 0, 204, 0]
        assert (answer.headers["Sluice-From"], answer.headers["Sluice-To"]) == (marked["from"], marked["to"])
        body = (await api.call("GET", f"{CLIENT}/rows", params=between)).json()
        assert [it["data"][0]["id"] for it in body["entries"]] == ["0", "1", "2"]
        lines = (await api.call("GET", f"{CLIENT}/rows", params=between, headers=NDJSON)).text().splitlines()
        assert json.loads(lines[-1]) == {"batchId": 0, **between}
        await api.post("ack", json={"position": marked["to"]}, status=204)
        assert await api.marks() == []


async def test_positions_may_be_in_the_body_since_those_of_several_sources_are_longer_than_a_url(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as api:
        await api.post("subscribe")
        api.source.put(3)
        marked = (await api.post("position", json={"after": PLACES[0], "timeout": 5000})).json()
        between = {"from": marked["from"], "to": marked["to"]}
        answer = await api.post("rows", json=between, headers=PROTOBUF)
        messages = Messages.FromString(answer.body)
        assert numbers(messages) == [0, 1, 2]
        assert {"from": messages.from_position, "to": messages.to_position} == between
        parts = (await api.post("splits", json=between | {"n": 2})).json()["splits"]
        assert [it["to"] for it in parts][-1] == marked["to"]
        for call, body in (("position", {}), ("rows", {"from": PLACES[0]}), ("splits", between)):
            assert await api.problem("POST", f"{CLIENT}/{call}", 422, json=body) == "bad-parameter"
        taken = (await api.post("getWithoutAck", json={"ack": marked["to"], "timeout": 0})).json()
        assert taken["batchId"] == -1
        assert await api.marks() == []


async def test_position_without_changes_answers_after_its_timeout(tmp_path: Path) -> None:
    async with running(tmp_path) as api:
        await api.post("subscribe")
        after = "101/bin.000001@1700000000:4:0"
        found = (await api.post("position", params={"after": after, "timeout": "50"})).json()
        assert (found["batchId"], found["from"], found["to"], found["reached"]) == (-1, after, after, True)


async def test_range_of_a_stale_session_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as api:
        await api.post("subscribe")
        old, _new = [(await api.post("session")).json()["session"] for _ in range(2)]
        query = {"after": "101/bin.000001@1700000000:4:0"}
        headers = {"Sluice-Session": old}
        assert await api.problem("POST", f"{CLIENT}/position", 409, params=query, headers=headers) == "stale-session"


class TestPieces:
    """What has left the ring is read from the source again and comes in pieces; here the ring gives them one by one."""

    @pytest.fixture
    async def api(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> Api:
        """Goes on after the first piece, fails, or waits, as the test says by `then`."""
        rows = api.embedded.rows
        self.then = asyncio.Event()
        self.failure: Exception | None = None

        async def in_pieces(destination: str, client_id: int, from_: str, to: str) -> AsyncGenerator[Batch]:
            for end in PLACES[1:]:
                async for batch in rows(destination, client_id, from_, end):
                    yield batch
                await self.then.wait()
                if self.failure is not None:
                    raise self.failure
                from_ = end
            assert from_ == to

        api.source.put(3)
        monkeypatch.setattr(api.embedded, "rows", in_pieces)
        return api

    async def test_they_are_one_answer_in_every_format(self, api: Api) -> None:
        self.then.set()
        path = f"{CLIENT}/rows"
        messages = Messages.FromString((await api.call("GET", path, params=RANGE, headers=PROTOBUF)).body)
        assert numbers(messages) == [0, 1, 2]
        assert list(messages.positions) == [4, 0, 104, 0, 204, 0]
        found = (await api.call("GET", path, params=RANGE)).json()
        assert [it["data"][0]["id"] for it in found.pop("entries")] == ["0", "1", "2"]
        assert found == {"batchId": 0, **RANGE}
        lines = (await api.call("GET", path, params=RANGE, headers=NDJSON)).text().splitlines()
        *changes, batch = map(json.loads, lines)
        assert [it["data"][0]["id"] for it in changes] == ["0", "1", "2"]
        assert batch == {"batchId": 0, **RANGE}
        rows = pa.ipc.open_stream((await api.call("GET", path, params=RANGE, headers=ARROW)).body).read_all()
        assert rows.column("after").to_pylist() == [[("id", "0")], [("id", "1")], [("id", "2")]]

    @pytest.mark.parametrize("headers", [PROTOBUF, NDJSON], ids=["protobuf", "ndjson"])
    async def test_when_the_source_is_lost_in_between_the_answer_breaks_off(
        self, api: Api, headers: dict[str, str]
    ) -> None:
        self.failure = SourceError("the source is gone")
        reading = asyncio.create_task(api.call("GET", f"{CLIENT}/rows", params=RANGE, headers=headers))
        await soon(lambda: api.waiting() == 1)
        self.then.set()
        with pytest.raises(aiohttp.ClientPayloadError):
            await reading

    async def test_when_the_server_stops_in_between_the_answer_breaks_off(self, api: Api) -> None:
        reading = asyncio.create_task(api.call("GET", f"{CLIENT}/rows", params=RANGE, headers=PROTOBUF))
        await soon(lambda: api.waiting() == 1)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(aiohttp.ClientPayloadError):
            async with asyncio.timeout(5):
                await reading
