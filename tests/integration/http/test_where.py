"""A client subscribes with a condition on rows, and gets those that match."""

import json

import pyarrow as pa
import pytest

from sluice.protocol.canal.entry_pb2 import Entry, RowChange
from sluice.protocol.canal.packet_pb2 import Messages
from tests.integration.http.served import ARROW, CLIENT, NDJSON, PROTOBUF, Api, next_batch, streaming


async def subscribe(api: Api, where: str, **more: object) -> None:
    await api.post("subscribe", json={"where": where, **more})


async def rows(api: Api, **options: object) -> list[list[int]]:
    """The rows of each entry of a batch."""
    batch = (await api.post("getWithoutAck", params={"timeout": 2000, **options})).json()
    if batch["batchId"] > 0:
        await api.ack(batch["batchId"])
    return [[int(row["id"]) for row in entry["data"]] for entry in batch["entries"]]


class TestGet:
    async def test_entries_without_a_row_that_matches_are_passed_over(self, api: Api) -> None:
        await subscribe(api, "shop.goods: id >= 2 AND id <> 4; shop.orders: total > 10")
        api.source.put(6)
        assert await rows(api) == [[2], [3], [5]]
        assert await rows(api, timeout=0) == []

    async def test_of_an_entry_the_rows_come_that_match(self, api: Api) -> None:
        await subscribe(api, "shop.goods: id BETWEEN 1 AND 2001")
        api.source.put(3, rows=3)
        assert await rows(api) == [[1000, 2000], [1, 1001, 2001], [2, 1002]]

    async def test_the_status_has_the_condition_until_another_subscription(self, api: Api) -> None:
        await subscribe(api, "shop.goods: id > 2")
        assert (await api.call("GET", CLIENT)).json()["where"] == "shop.goods: id > 2"
        await api.post("subscribe", json={"filter": ""})
        assert (await api.call("GET", CLIENT)).json()["where"] == ""
        api.source.put(2)
        assert await rows(api) == [[0], [1]]

    @pytest.mark.parametrize(
        "where", ["id > 2", *(f"shop.goods: {it}" for it in ("id IN", "id > 1e", "id > 1 /* \ud800 */"))]
    )
    async def test_a_condition_that_is_none_is_refused(self, api: Api, where: str) -> None:
        assert await api.problem("POST", f"{CLIENT}/subscribe", 409, json={"where": where}) == "filter-matches-nothing"


class TestFormats:
    async def test_each_format_has_the_rows_that_match(self, api: Api) -> None:
        await subscribe(api, "shop.goods: id IN (1, 1000, 2000, 2001)")
        api.source.put(3, rows=3)
        expected = [[1000, 2000], [1, 2001]]
        flat = [it for entries in expected for it in entries]
        batch = await api.get(timeout=2000)
        changes = [RowChange.FromString(Entry.FromString(it).storeValue) for it in batch.messages]
        assert [[int(row.afterColumns[0].value) for row in change.rowDatas] for change in changes] == expected
        await api.post("rollback", status=204)
        lines = (await api.post("getWithoutAck", headers=NDJSON)).text().splitlines()[:-1]
        assert [[int(row["id"]) for row in json.loads(line)["data"]] for line in lines] == expected
        await api.post("rollback", status=204)
        table = pa.ipc.open_stream((await api.post("getWithoutAck", headers=ARROW)).body).read_all()
        assert [int(dict(it)["id"]) for it in table["after"].to_pylist()] == flat
        async with streaming(api) as response:
            assert len((await next_batch(response)).messages) == 2

    async def test_a_range_has_them_too(self, api: Api) -> None:
        await subscribe(api, "shop.goods: id IN (1, 1000, 2000, 2001)")
        begin = (await api.call("GET", CLIENT)).json()["position"]
        api.source.put(3, rows=3)
        found = (await api.post("position", params={"after": begin, "timeout": 2000})).json()
        assert (found["entries"], found["rows"]) == (2, 4)
        query = {"from": begin, "to": found["to"]}
        table = pa.ipc.open_stream(
            (await api.call("GET", f"{CLIENT}/rows", params=query, headers=ARROW)).body
        ).read_all()
        assert [int(dict(it)["id"]) for it in table["after"].to_pylist()] == [1000, 2000, 1, 2001]
        data = (await api.call("GET", f"{CLIENT}/rows", params=query, headers=PROTOBUF)).body
        assert found["bytes"] == sum(len(frame(it)) for it in Messages.FromString(data).messages)
        parts = (await api.call("GET", f"{CLIENT}/splits", params=query | {"n": 2})).json()["splits"]
        assert [part["rows"] for part in parts] == [2, 2]


def frame(entry: bytes) -> bytes:
    return Messages(messages=[entry]).SerializeToString()
