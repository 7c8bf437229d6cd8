"""A client with a limit of bytes a second, or a day: over HTTP, by ranges, and by the SDK."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sluice.client_sdk import AsyncClient, QuotaExceededError
from sluice.server.credentials import Credentials, Grant, Scope
from tests import commands
from tests.integration.http.served import CLIENT, MEGABYTE, Api, running
from tests.source import numbers
from tests.waiting import soon

BEGIN = "101/bin.000001@1700000000:4:0"


async def limit(api: Api, **limits: Any) -> dict[str, Any]:
    view: dict[str, Any] = (await api.post("limit", json=limits)).json()
    return view


async def test_a_client_above_its_rate_waits_until_it_may_go_on(api: Api) -> None:
    assert (await limit(api, maxRate=1000))["maxRate"] == 1000
    api.source.put(2, size=MEGABYTE)
    first = await api.get()
    assert numbers(first) == [0], "a large entry comes alone"
    await api.ack(first.batch_id)
    assert (await api.get()).batch_id == -1
    shown = (await api.call("GET", CLIENT)).json()
    assert shown["lag"]["explanation"] == "the client is limited to 1000 bytes/s; 1 row waiting"
    waiting = asyncio.create_task(api.get(timeout=60_000))
    await soon(lambda: api.waiting() == 1)
    assert "sluice_client_limited_seconds_total{" in (await api.call("GET", "/metrics")).text()
    await limit(api, maxRate=0)
    assert numbers(await waiting) == [1]


async def test_a_batch_has_no_more_bytes_than_the_rate_lets_through(api: Api) -> None:
    await limit(api, maxRate=10_000)
    api.source.put(20, size=2000)
    given = numbers(await api.get())
    assert given == list(range(len(given)))
    assert 2 <= len(given) < 5


async def test_a_quota_that_is_used_up_is_a_problem_that_says_how_long_and_survives_a_restart(api: Api) -> None:
    await limit(api, quota=1000)
    api.source.put(3, size=2000)
    first = await api.get(maxEntries=1)
    answer = await api.post("getWithoutAck", status=429)
    problem = answer.json()
    assert problem["type"] == "quota-exceeded"
    assert f"client 1001 has used up its quota: it was given {len(first.messages[0])}"[:50] in problem["detail"]
    assert 0 < int(answer.headers["Retry-After"]) <= 86_400
    for method, path, options in (
        ("GET", "stream", {}),
        ("POST", "position", {"params": {"after": BEGIN}}),
        ("GET", "rows", {"params": {"from": BEGIN, "to": BEGIN}}),
    ):
        assert await api.problem(method, f"{CLIENT}/{path}", 429, **options) == "quota-exceeded"
    await api.ack(first.batch_id)
    await api.embedded.stop("example")
    api.sources.clear()
    await api.embedded.start("example")
    assert await api.problem("POST", f"{CLIENT}/getWithoutAck", 429) == "quota-exceeded"
    shown = (await api.call("GET", CLIENT)).json()
    assert shown["quotaUsed"] >= shown["quota"] == 1000
    page = (await api.call("GET", "/metrics")).text()
    assert 'sluice_client_quota_bytes{client="1001",destination="example"} 1000.0' in page


async def test_the_sdk_raises_a_quota_that_is_used_up_and_knows_that_its_ack_counts(api: Api) -> None:
    await limit(api, quota=1)
    api.source.put(1)
    async with AsyncClient(api.base, "example", 1001) as client:
        batch = await client.get_without_ack(5.0)
        with pytest.raises(QuotaExceededError) as caught:
            await client.get_without_ack(ack=batch)
        assert caught.value.retry_after > 0
        assert batch.acked
        assert await api.marks() == []
        with pytest.raises(QuotaExceededError):
            await anext(client.stream())


async def test_a_range_counts_when_it_is_marked_and_is_read_without_waiting(api: Api) -> None:
    await limit(api, maxRate=1000)
    api.source.put(1, size=MEGABYTE)
    marked = (await api.post("position", params={"after": BEGIN, "timeout": 5000})).json()
    assert marked["entries"] == 1
    between = {"from": marked["from"], "to": marked["to"]}
    for _ in range(2):
        assert len((await api.call("GET", f"{CLIENT}/rows", params=between)).body) > MEGABYTE
    api.source.put(1)
    after = (await api.post("position", params={"after": marked["to"]})).json()
    assert (after["batchId"], after["from"], after["to"]) == (-1, marked["to"], marked["to"])
    await api.post("ack", json={"position": marked["to"]}, status=204)
    await limit(api, maxRate=0)
    assert (await api.post("position", params={"after": marked["to"], "timeout": 5000})).json()["entries"] == 1


async def test_a_range_that_is_not_marked_waits_for_the_rate(api: Api) -> None:
    await limit(api, maxRate=1000)
    await api.embedded.subscribe("example", 1002)  # keeps the changes
    api.source.put(1, size=MEGABYTE)
    batch = await api.get()
    await api.ack(batch.batch_id)
    place = (await api.call("GET", CLIENT)).json()["acked"]
    query = {"from": BEGIN, "to": place}
    assert await api.problem("GET", f"{CLIENT}/rows", 503, params=query) == "busy"


async def test_only_an_administrator_changes_limits_and_a_token_gives_its_own_to_its_clients(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path / "credentials.json")
    admin = credentials.issue("ops", Grant(scope=Scope.ADMIN)).text
    mine = credentials.issue("billing", Grant(clients=(), max_rate=5000))
    credentials.limit(mine.id, {"quota": 70_000})
    async with running(tmp_path, instance={"client_max_rate": 1, "client_quota": 2}) as api:
        api.headers["Authorization"] = f"Bearer {mine.text}"
        shown = (await api.post("subscribe")).json()
        assert (shown["maxRate"], shown["quota"]) == (5000, 70_000)
        assert await api.problem("POST", f"{CLIENT}/limit", 403, json={"maxRate": 0}) == "forbidden"
        api.headers["Authorization"] = f"Bearer {admin}"
        shown = await limit(api, maxRate=None)
        assert (shown["maxRate"], shown["quota"]) == (1, 70_000)
        assert await api.problem("POST", f"{CLIENT}/limit", 422, json={}) == "bad-parameter"
        audit = (await api.call("GET", "/v1/destinations/example/audit")).json()
        assert [it["after"] for it in audit if it["action"] == "limit"] == [
            "default bytes/s and 70000 bytes a day",
        ]


async def test_a_client_of_an_output_has_only_limits_of_its_own(tmp_path: Path) -> None:
    async with running(tmp_path, instance={"client_max_rate": 1}) as api:
        await api.embedded.subscribe("example", 1001, output="mq")
        assert (await api.call("GET", CLIENT)).json()["maxRate"] == 0
        assert (await limit(api, maxRate=7))["maxRate"] == 7


async def test_the_commands_set_and_show_limits(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "canal.properties").write_text("canal.destinations = example\n")

    async def run(*arguments: str, status: int = 0) -> str:
        done = await asyncio.to_thread(commands.run, *arguments, environ={"COLUMNS": "300"})
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    async with running(tmp_path) as api:
        await api.post("subscribe")
        client = ("limit", "example", "1001", "--url", api.base)
        said = await run(*client, "--max-rate", "1000", "--quota", "5000")
        assert said == "client 1001 gets at most 1000 bytes/s, 5000 bytes a day\n"
        assert "limit    1000 bytes/s, 0 of 5000 bytes of today" in await run("status", "--url", api.base)
        said = await run(*client, "--quota", "default")
        assert said == "client 1001 gets at most 1000 bytes/s, any number of bytes a day\n"
        assert "give --max-rate, --quota, or both" in await run(*client, status=2)
        assert "'-1' is not a number from 0 up" in await run(*client, "--quota=-1", status=2)
    token = ("--conf", str(conf))
    await run("token", "create", "--name", "billing", "--clients", "7", "--max-rate", "1000", *token)
    (identity,) = Credentials(conf / "credentials.json").tokens
    assert "7, each at most 1000 bytes/s" in await run("token", "list", *token)
    said = await run("token", "limit", identity, "--quota", "0", *token)
    assert said.endswith("clients: 7, each at most 1000 bytes/s and any number of bytes a day\n")
    said = await run("token", "create", "--name", "ops", "--admin", "--quota", "1", *token, status=2)
    assert "an administrator sets limits, and has none" in said
