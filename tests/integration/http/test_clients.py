"""Subscriptions and sessions: what a client is given, and which clients are refused."""

import asyncio

from sluice.protocol.canal.packet_pb2 import Messages
from tests.integration.http.served import CLIENT, PROTOBUF, Api
from tests.source import numbers
from tests.waiting import soon


class TestSubscriptions:
    async def test_the_status_tells_where_a_client_stands(self, api: Api) -> None:
        api.source.put(3)
        batch = await api.get(maxEntries=1)
        await api.ack(batch.batch_id)
        await api.get(maxEntries=1)
        status = (await api.call("GET", CLIENT)).json()
        assert status["acked"] == "101/bin.000001@1700000000:104:0"
        assert status["got"] == "101/bin.000001@1700000000:204:0"
        assert status["position"] == "101/bin.000001@1700000000:104:0"
        assert len(status["marks"]) == 1
        assert (status["lag"]["entries"], status["lag"]["rows"]) == (2, 2)
        assert status["lag"]["bytes"] > 0
        assert 0 <= status["lag"]["seconds"] < 60

    async def test_a_filter_narrows_what_a_client_gets(self, api: Api) -> None:
        await api.post("subscribe", json={"filter": "shop\\.orders"})
        api.source.put()
        assert (await api.get()).batch_id == -1

    async def test_a_client_that_unsubscribes_has_to_subscribe_again(self, api: Api) -> None:
        await api.post("unsubscribe", status=204)
        assert await api.problem("POST", f"{CLIENT}/getWithoutAck", 409) == "not-subscribed"

    async def test_latest_starts_after_what_is_there(self, api: Api) -> None:
        api.source.put(2)
        path = "/v1/destinations/example/clients/2"
        await api.call("POST", f"{path}/subscribe", json={"start": "latest"})
        api.source.put()
        response = await api.call("POST", f"{path}/getWithoutAck?timeout=5000", headers=PROTOBUF)
        assert numbers(Messages.FromString(response.body)) == [2]

    async def test_a_cursor_is_moved_by_hand(self, api: Api) -> None:
        await api.call("POST", "/v1/destinations/example/clients/2/subscribe")  # holds what was put
        api.source.put(3)
        for start, expected in (("latest", []), ("earliest", [0, 1, 2])):
            await api.call("POST", f"{CLIENT}/seek", json={"start": start})
            response = await api.call("POST", f"{CLIENT}/getWithoutAck", headers=PROTOBUF)
            assert numbers(Messages.FromString(response.body)) == expected

    async def test_a_transaction_is_skipped_by_its_position(self, api: Api) -> None:
        api.source.put(3)
        response = await api.call("POST", f"{CLIENT}/getWithoutAck?maxEntries=1", headers=PROTOBUF)
        place = response.headers["sluice-from"]
        for expected in ([1], [2]):
            view = (await api.call("POST", f"{CLIENT}/skip", json={"position": place})).json()
            place = view["position"]
            response = await api.call("POST", f"{CLIENT}/getWithoutAck?maxEntries=1", headers=PROTOBUF)
            assert numbers(Messages.FromString(response.body)) == expected
        assert await api.problem("POST", f"{CLIENT}/skip", 422, json={"position": "x"}) == "bad-position"

    async def test_what_is_passed_over_is_said_and_listed(self, api: Api) -> None:
        await api.call("POST", "/v1/destinations/example/clients/2/subscribe")  # holds what was put
        api.source.put(3)
        view = (await api.call("POST", f"{CLIENT}/seek", json={"start": "latest"})).json()
        passed = view["passedOver"]
        assert (passed["reason"], passed["state"], passed["rows"]) == ("seek", "asked", 3)
        assert passed["text"] == f"3 rows from {passed['before']} to {view['position']}: seek"
        assert passed["who"] == "no token, 127.0.0.1"
        assert (await api.call("POST", f"{CLIENT}/seek", json={"start": "earliest"})).json()["passedOver"] is None
        await api.call("POST", f"{CLIENT}/getWithoutAck")
        await api.call("POST", f"{CLIENT}/ack", status=204, json={"position": view["position"], "operator": True})
        moves = (await api.call("GET", "/v1/destinations/example/moves")).json()
        assert [(it["clientId"], it["reason"], it["rows"]) for it in moves] == [(1001, "seek", 3), (1001, "ack", 3)]
        assert (await api.call("POST", f"{CLIENT}/gaps/confirm")).json() == {"confirmed": 0}

    async def test_what_was_changed_is_listed_with_who_did_it(self, api: Api) -> None:
        api.source.put(3)
        await api.call("POST", f"{CLIENT}/rollback", status=204)  # of nothing: nothing was changed
        batch = (await api.call("POST", f"{CLIENT}/getWithoutAck", headers=PROTOBUF)).headers
        await api.call("POST", f"{CLIENT}/rollback", status=204)
        await api.call("POST", f"{CLIENT}/seek", json={"start": batch["sluice-to"]})
        await api.call("POST", f"{CLIENT}/unsubscribe", status=204)
        found = (await api.call("GET", "/v1/destinations/example/audit")).json()
        assert [(it["action"], it["client"], it["who"]) for it in found] == [
            (action, 1001, "no token, 127.0.0.1") for action in ("rollback", "seek", "unsubscribe")
        ]
        assert found[0]["detail"] == "1 outstanding batches"
        assert (found[1]["before"], found[1]["after"]) == (batch["sluice-from"], batch["sluice-to"])
        assert (await api.call("GET", "/v1/destinations/example/audit?limit=1")).json() == found[-1:]
        assert await api.problem("GET", "/v1/destinations/example/audit?limit=0", 422) == "bad-parameter"

    async def test_a_cursor_is_not_moved_to_a_time_that_may_be_before_what_is_stored(self, api: Api) -> None:
        api.source.put()
        assert await api.problem("POST", f"{CLIENT}/seek", 410, json={"start": {"timestamp": 1}}) == "purged"


class TestSessions:
    async def test_a_newer_session_fences_the_older(self, api: Api) -> None:
        api.source.put(2)
        older = {"Sluice-Session": ((await api.post("session")).json())["session"]}
        await api.post("getWithoutAck?maxEntries=1", headers=older)
        newer = {"Sluice-Session": (await api.post("session")).headers["Sluice-Session"]}
        body = {"batchId": (await api.marks())[0]}
        assert await api.problem("POST", f"{CLIENT}/ack", 409, json=body, headers=older) == "stale-session"
        await api.post("ack", json=body, headers=newer, status=204)

    async def test_a_waiting_call_of_an_older_session_is_told(self, api: Api) -> None:
        older = {"Sluice-Session": ((await api.post("session")).json())["session"]}
        waiting = asyncio.create_task(api.problem("POST", f"{CLIENT}/getWithoutAck?timeout=30000", 409, headers=older))
        await soon(lambda: api.waiting() == 1)
        await api.post("session")
        async with asyncio.timeout(5):
            assert await waiting == "stale-session"
