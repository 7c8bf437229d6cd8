"""Subscriptions and sessions: what a client is given, and which clients are refused."""

import asyncio
import math
from dataclasses import replace
from typing import Any

import pytest

from sluice.client_sdk import Client
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.errors import OwnedError
from tests.integration.http.served import CLIENT, PROTOBUF, Api
from tests.source import numbers
from tests.waiting import soon


def place(number: int) -> str:
    """Where the change of that number begins."""
    return f"101/bin.000001@1700000000:{4 + 100 * number}:0"


async def own(api: Api) -> str:
    """Let an output own client 1001; return its session."""
    await api.embedded.subscribe("example", 1001, output="mq")
    return api.embedded.open_session("example", 1001, output="mq")


PLACE = place(0)


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

    async def test_the_client_id_minus_one_is_reserved(self, api: Api) -> None:
        client = "/v1/destinations/example/clients/-1"
        assert await api.problem("POST", f"{client}/subscribe", 422, json={}) == "bad-parameter"
        await api.call("POST", "/v1/destinations/example/clients/-2/subscribe", json={})
        listed = (await api.call("GET", "/v1/destinations/example")).json()["clients"]
        assert sorted(it["clientId"] for it in listed) == [-2, 1001]

    async def test_a_client_that_unsubscribes_has_to_subscribe_again(self, api: Api) -> None:
        await api.post("unsubscribe")
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
            passed = view["passedOver"]
            assert (passed["reason"], passed["rows"]) == ("skip", 1)
            assert (passed["before"], passed["after"]) == (place, view["position"])
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

    async def test_what_a_client_that_unsubscribes_has_not_had_is_said_and_listed(self, api: Api) -> None:
        api.source.put(3)
        taken = await api.call("POST", f"{CLIENT}/getWithoutAck?maxEntries=1", headers=PROTOBUF)
        await api.call("POST", f"{CLIENT}/ack", status=204, json={"batchId": int(taken.headers["sluice-batch-id"])})
        passed = (await api.call("POST", f"{CLIENT}/unsubscribe")).json()["passedOver"]
        assert (passed["reason"], passed["state"], passed["rows"], passed["after"]) == ("unsubscribe", "asked", 2, "")
        assert passed["before"] == taken.headers["sluice-to"]
        assert passed["who"] == "no token, 127.0.0.1"
        moves = "/v1/destinations/example/moves"
        assert (await api.call("GET", moves)).json() == [passed]
        assert (await api.call("GET", f"{moves}?client=1001")).json() == [passed]
        assert (await api.call("GET", f"{moves}?client=1002")).json() == []

    async def test_what_was_changed_is_listed_with_who_did_it(self, api: Api) -> None:
        api.source.put(3)
        await api.call("POST", f"{CLIENT}/rollback", status=204)  # of nothing: nothing was changed
        batch = (await api.call("POST", f"{CLIENT}/getWithoutAck", headers=PROTOBUF)).headers
        await api.call("POST", f"{CLIENT}/rollback", status=204)
        await api.call("POST", f"{CLIENT}/seek", json={"start": batch["sluice-to"]})
        await api.call("POST", f"{CLIENT}/unsubscribe")
        found = (await api.call("GET", "/v1/destinations/example/audit")).json()
        assert [(it["action"], it["client"], it["who"]) for it in found] == [
            (action, 1001, "no token, 127.0.0.1") for action in ("rollback", "seek", "unsubscribe")
        ]
        assert found[0]["detail"] == "1 outstanding batches"
        assert (found[1]["before"], found[1]["after"]) == (batch["sluice-from"], batch["sluice-to"])
        assert (await api.call("GET", "/v1/destinations/example/audit?limit=1")).json() == found[-1:]
        assert await api.problem("GET", "/v1/destinations/example/audit?limit=0", 422) == "bad-parameter"

    async def test_so_are_starts_and_stops_and_what_an_operator_confirms(self, api: Api) -> None:
        api.source.put(2)
        places = [(await api.call("GET", CLIENT)).json()["acked"]]
        places.append((await api.call("POST", f"{CLIENT}/skip", json={"position": places[0]})).json()["position"])
        await api.call("POST", f"{CLIENT}/getWithoutAck")
        await api.call("POST", f"{CLIENT}/ack", status=204, json={"position": places[1], "operator": True})
        for change in ("stop", "start"):
            await api.call("POST", f"/v1/destinations/example/{change}")
        found = (await api.call("GET", "/v1/destinations/example/audit")).json()
        assert [it["action"] for it in found] == ["skip", "ack", "stop", "start"]
        assert {it["who"] for it in found} == {"no token, 127.0.0.1"}
        assert (found[0]["before"], found[0]["after"], found[1]["after"]) == (*places, places[1])

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


class TestClientOfAnOutput:
    """Nobody but the output takes, confirms or forgets anything of its client; an operator moves it."""

    @pytest.mark.parametrize("headers", [{}, {"Sluice-Session": "99999999999-newer"}])
    @pytest.mark.parametrize(
        ("method", "call", "options"),
        [
            ("POST", "getWithoutAck", {}),
            ("POST", f"getWithoutAck?ack={PLACE}", {}),
            ("POST", "ack", {"json": {"batchId": 1}}),
            ("POST", "ack", {"json": {"batchId": 1, "operator": True}}),
            ("POST", "ack", {"json": {"position": PLACE}}),
            ("POST", "rollback", {}),
            ("POST", f"position?after={PLACE}", {}),
            ("POST", "subscribe", {"json": {"filter": "crm\\..*"}}),
            ("POST", "subscribe", {"json": {"start": "snapshot"}}),
            ("POST", "unsubscribe", {}),
            ("POST", "session", {}),
            ("GET", "stream", {}),
            ("GET", f"rows?from={PLACE}&to={PLACE}", {}),
            ("GET", f"splits?from={PLACE}&to={PLACE}&n=1", {}),
        ],
    )
    async def test_calls_of_consumers_are_refused(
        self, api: Api, method: str, call: str, options: dict[str, Any], headers: dict[str, str]
    ) -> None:
        session = await own(api)
        before = api.embedded.clients("example")
        assert await api.problem(method, f"{CLIENT}/{call}", 409, headers=headers, **options) == "owned"
        assert [replace(it, refused="") for it in api.embedded.clients("example")] == before
        api.embedded.check("example", 1001, session)

    async def test_calls_of_operators_are_not(self, api: Api) -> None:
        session = await own(api)
        api.source.put(4)
        await api.embedded.get_without_ack("example", 1001, batch_size=1, session=session)
        await api.post("ack", json={"position": place(1), "operator": True}, status=204)
        await api.post("skip", json={"position": place(1)})
        view = (await api.post("seek", json={"start": place(3)})).json()
        assert view["position"] == place(3)
        assert (await api.call("GET", f"{CLIENT}/snapshots")).json() == []

    async def test_the_sdk_raises_what_it_is_told(self, api: Api) -> None:
        await own(api)
        with Client(api.base, "example", 1001, retry=math.inf) as client:
            for call in (client.subscribe, client.open_session, client.get, client.rollback, client.unsubscribe):
                with pytest.raises(OwnedError, match="client 1001 is that of the output mq"):
                    await asyncio.to_thread(call)
