"""What is wrong is answered by a problem that says so."""

import asyncio
import json
from typing import Any

import pytest

from sluice.protocol.errors import BadParameterError
from tests.integration.http.served import CLIENT, Api
from tests.waiting import soon

BY_BOTH = {"batchId": 5, "position": "7/bin.000001:4:0", "operator": True}


class TestProblems:
    @pytest.mark.parametrize(
        ("method", "path", "options", "status", "kind"),
        [
            ("POST", "nowhere/clients/1/subscribe", {}, 404, "unknown-destination"),
            ("GET", "nowhere", {}, 404, "unknown-destination"),
            ("GET", "nowhere/quarantine", {}, 404, "unknown-destination"),
            ("GET", "nowhere/tables/shop.goods", {}, 404, "unknown-destination"),
            ("GET", "example/tables/shop.a%2Fb", {}, 404, "unknown-table"),
            ("GET", "example/tables/goods", {}, 422, "bad-parameter"),
            ("POST", "example/clients/7/getWithoutAck", {}, 409, "not-subscribed"),
            ("GET", "example/clients/7", {}, 409, "not-subscribed"),
            ("GET", "example/clients/7/stream", {}, 409, "not-subscribed"),
            ("POST", "example/clients/1001/ack", {"json": {"batchId": 5}}, 409, "unknown-batch"),
            ("POST", "example/clients/1001/rollback", {"json": {"batchId": 5}}, 409, "unknown-batch"),
            ("POST", "example/clients/1001/ack", {"json": {}}, 422, "bad-parameter"),
            ("POST", "example/clients/1001/ack", {"json": BY_BOTH}, 422, "bad-parameter"),
            ("POST", "example/clients/1001/ack", {"json": {"position": "nonsense"}}, 422, "bad-position"),
            ("POST", "example/clients/70000/subscribe", {}, 422, "bad-parameter"),
            ("POST", "example/clients/2/subscribe", {"json": {"start": "nonsense"}}, 422, "bad-position"),
            ("POST", "example/clients/2/subscribe", {"json": {"from": "latest"}}, 422, "bad-parameter"),
            ("POST", "example/clients/2/subscribe", {"json": {"filter": "("}}, 409, "filter-matches-nothing"),
            ("POST", "example/source/switch", {}, 409, "not-configured"),
            ("POST", "example/log/prune?bytes=0", {}, 409, "not-configured"),
            ("POST", "example/quarantine/retry?position=x", {}, 422, "bad-parameter"),
            ("POST", "example/clients/1001/protect", {"json": {"protect": 0}}, 422, "bad-parameter"),
            ("POST", "example/clients/2/subscribe", {"json": {"protect": 0}}, 422, "bad-parameter"),
            ("POST", "example/clients/1001/getWithoutAck?batchSize=0", {}, 422, "bad-parameter"),
            ("POST", "example/clients/1001/getWithoutAck?maxEntry=5", {}, 422, "bad-parameter"),
        ],
    )
    async def test_each_has_its_status_and_type(
        self, api: Api, method: str, path: str, options: dict[str, Any], status: int, kind: str
    ) -> None:
        assert await api.problem(method, f"/v1/destinations/{path}", status, **options) == kind

    @pytest.mark.parametrize(
        ("path", "allowed"),
        [(CLIENT, "GET"), (f"{CLIENT}/ack", "POST"), ("/healthz", "GET"), (f"{CLIENT}/snapshots", "GET, POST")],
    )
    async def test_a_method_that_a_path_does_not_take_is_answered_with_all_that_it_takes(
        self, api: Api, path: str, allowed: str
    ) -> None:
        answer = await api.call("PATCH", path, status=405)
        assert answer.headers["Allow"] == allowed
        assert answer.json()["detail"] == f"{path} does not take PATCH, but {allowed}."

    async def test_a_bad_parameter_is_named(self, api: Api) -> None:
        response = await api.post("getWithoutAck?maxBytes=many", status=422)
        assert response.json()["parameter"] == "maxBytes"

    @pytest.mark.parametrize(
        ("call", "body", "detail"),
        [
            ("ack", "{bad", "body: not JSON: Expecting property name enclosed in double quotes at character 1"),
            ("ack", "{}", "body: give batchId, position, or both"),
            ("getWithoutAck?timeot=1", "", "timeot: there is no such parameter"),
        ],
    )
    async def test_problems_of_a_call_are_said_in_plain_words(
        self, api: Api, call: str, body: str, detail: str
    ) -> None:
        headers = {"content-type": "application/json"}
        response = await api.call("POST", f"{CLIENT}/{call}", status=422, data=body.encode(), headers=headers)
        assert response.json()["detail"] == detail

    async def test_acks_out_of_order_change_nothing(self, api: Api) -> None:
        api.source.put(2)
        first, second = await api.get(maxEntries=1), await api.get(maxEntries=1)
        body = {"batchId": second.batch_id}
        assert await api.problem("POST", f"{CLIENT}/ack", 409, json=body) == "ack-out-of-order"
        assert await api.marks() == [first.batch_id, second.batch_id]

    async def test_a_stopped_destination_says_so_to_waiting_calls(self, api: Api) -> None:
        waiting = asyncio.create_task(api.problem("POST", f"{CLIENT}/getWithoutAck?timeout=30000", 503))
        await soon(lambda: api.waiting() == 1)
        await api.call("POST", "/v1/destinations/example/stop")
        async with asyncio.timeout(5):
            assert await waiting == "destination-stopped"

    async def test_an_error_that_was_not_foreseen_is_a_problem_without_details_which_the_log_names(
        self, api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(*_: Any) -> None:
            raise ZeroDivisionError("inner workings")

        monkeypatch.setattr(api.embedded, "destination_status", fail)
        response = await api.call("GET", "/v1/destinations/example", status=500)
        assert response.json()["type"] == "internal"
        assert "inner workings" not in response.text()
        (logged,) = [it for it in caplog.records if it.exc_info]
        assert response.json()["instance"] in logged.getMessage()
        assert "inner workings" in caplog.text

    async def test_an_error_that_quotes_half_a_character_shows_it_as_an_escape(
        self, api: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: Any) -> None:
            raise BadParameterError("there is no '\ud800'")

        monkeypatch.setattr(api.embedded, "destination_status", fail)
        response = await api.call("GET", "/v1/destinations/example", status=422)
        assert json.loads(response.body)["detail"] == r"there is no '\ud800'"

    async def test_an_error_that_was_not_foreseen_touches_no_other_call(
        self, api: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise ZeroDivisionError("inner workings")

        waiting = asyncio.create_task(api.post("getWithoutAck?timeout=30000"))
        await soon(lambda: api.waiting() == 1)
        with monkeypatch.context() as patch:
            patch.setattr(api.embedded, "ack", fail)
            assert await api.problem("POST", f"{CLIENT}/ack", 500, json={"batchId": 5}) == "internal"
        api.source.put()
        assert len((await waiting).json()["entries"]) == 1
