"""A client subscribes with a condition on rows, and gets those that match."""

from tests.integration.http.served import CLIENT, Api


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

    async def test_a_condition_that_is_none_is_refused(self, api: Api) -> None:
        assert (
            await api.problem("POST", f"{CLIENT}/subscribe", 409, json={"where": "id > 2"}) == "filter-matches-nothing"
        )
