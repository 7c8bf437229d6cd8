"""What operators ask: destinations, their state, metrics, and the description of the calls."""

import base64
import hashlib
import re
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from sluice.instance.quarantine import Item, Quarantine, path_of
from sluice.instance.zones import local_time_zone
from sluice.server.conditions import TABLE
from sluice.server.http import formats
from sluice.server.metrics import PUMP
from tests.integration.http.served import Api


class TestDestinations:
    async def test_they_are_listed(self, api: Api) -> None:
        listed = (await api.call("GET", "/v1/destinations")).json()
        assert [(it["destination"], it["state"]) for it in listed] == [("example", "running"), ("other", "running")]
        assert listed[0]["clients"][0]["clientId"] == 1001

    async def test_they_are_stopped_and_started(self, api: Api) -> None:
        assert ((await api.call("POST", "/v1/destinations/other/stop")).json())["state"] == "stopped"
        assert await api.problem("POST", "/v1/destinations/other/clients/1/subscribe", 503) == "destination-stopped"
        started = (await api.call("POST", "/v1/destinations/other/start")).json()
        assert started["state"] in {"starting", "running"}

    async def test_the_ring_and_the_time_zone_of_values_are_told(self, api: Api) -> None:
        found = (await api.call("GET", "/v1/destinations/example")).json()
        assert found["capacity"] == 16384 * 1024
        assert found["timeZone"] == local_time_zone()

    async def test_the_end_of_the_source_is_told(self, api: Api) -> None:
        api.source.put(3)
        found = (await api.call("GET", "/v1/destinations/example/latest")).json()
        assert found == {"position": "101/bin.000001@1700000000:304:0"}

    async def test_the_columns_of_a_table_are_told(self, api: Api) -> None:
        assert (await api.call("GET", "/v1/destinations/example/tables/shop.goods")).json() == {
            "schema": "shop",
            "table": "goods",
            "columns": [
                {"name": "id", "mysqlType": "bigint(20) unsigned", "isKey": True},
                {"name": "name", "mysqlType": "varchar(20)", "isKey": False},
            ],
        }

    async def test_the_tables_are_told(self, api: Api) -> None:
        call = "/v1/destinations/example/tables"
        assert (await api.call("GET", call)).json() == {"tables": ["crm.notes", "shop.goods", "shop.orders"]}
        assert (await api.call("GET", call + "?filter=.*[.]notes,SHOP[.]g.*")).json() == {
            "tables": ["crm.notes", "shop.goods"]
        }
        assert (await api.call("GET", call + "?filter=(", status=409)).json()["type"] == "filter-matches-nothing"

    async def test_row_events_in_quarantine_are_listed(self, api: Api, tmp_path: Path) -> None:
        assert (await api.call("GET", "/v1/destinations/example/quarantine")).json() == []
        quarantine = Quarantine(path_of(tmp_path / "data", "example"))
        position = "101/bin.000001@1700000000:4:2"
        quarantine.add(Item(position, "shop", "goods", 30, 1_700_000_000, 101, 64, "a row ends too early", "00"))
        quarantine.sync()
        (listed,) = (await api.call("GET", "/v1/destinations/example/quarantine")).json()
        assert (listed["position"], listed["schema"], listed["table"]) == (position, "shop", "goods")
        assert listed["error"] == "a row ends too early"

    async def test_the_process_is_alive_and_ready(self, api: Api) -> None:
        assert (await api.call("GET", "/healthz")).json() == {"status": "ok"}
        ready = (await api.call("GET", "/readyz")).json()
        states = {"running": 2}
        assert ready == {
            "status": "ok",
            "meaning": "The server takes calls.",
            "destinations": states,
            "conditions": {},
        }

    async def test_readiness_says_what_it_means(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        await api.call("POST", "/v1/destinations/other/stop")
        ready = (await api.call("GET", "/readyz")).json()
        assert (ready["status"], ready["destinations"]) == ("ok", {"running": 1, "stopped": 1})
        assert ready["conditions"] == {"not-running": 1}
        assert ready["meaning"] == (
            "The server takes calls. Needs attention: not-running in 1 place (Do what the error says; POST"
            " …/start starts a stopped one). GET /v1/destinations says more."
        )
        (found,) = (await api.call("GET", "/v1/destinations/other")).json()["conditions"]
        assert (found["name"], found["severity"], found["text"]) == ("not-running", "error", "stopped")
        text = (await api.call("GET", "/metrics")).text()
        for condition in TABLE:
            value = 1.0 if condition.name == "not-running" else 0.0
            labels = f'condition="{condition.name}",destination="other",severity="{condition.severity}"'
            assert f"sluice_condition{{{labels}}} {value}" in text
        monkeypatch.setattr(api.embedded.instances["other"], "state", "starting")
        starting = (await api.call("GET", "/readyz", status=503)).json()
        assert starting["status"] == "starting"
        assert starting["meaning"].startswith("1 of 2 destinations are starting; those that run are served.")

    async def test_every_call_is_described(self, api: Api) -> None:
        paths = ((await api.call("GET", "/openapi.json")).json())["paths"]
        operations = [operation for path in paths.values() for operation in path.values()]
        assert len(operations) >= 16
        assert all(operation["summary"] and operation["tags"] for operation in operations)
        get = paths["/v1/destinations/{destination}/clients/{client_id}/getWithoutAck"]["post"]
        assert set(get["responses"]["200"]["content"]) == {it.media_type for it in formats.SINGLE}
        assert all(parameter["description"] for parameter in get["parameters"])

    async def test_the_page_of_the_calls_loads_nothing_from_elsewhere(self, api: Api) -> None:
        page = await api.call("GET", "/docs")
        assert page.content_type == "text/html"
        assert "//" not in re.sub("<!--.*?-->", "", page.text())
        loaded = re.findall(r"""(?:src|href|url)(?:=|: *)["']([^"']+)["']""", page.text())
        assert {"docs/assets/swagger-ui-bundle.js", "docs/assets/swagger-ui.css", "openapi.json"} <= set(loaded)
        for url in loaded:
            if url != "data:,":
                assert len((await api.call("GET", f"/{url}")).body) > 1000
        policy = dict(part.strip().split(" ", 1) for part in page.headers["Content-Security-Policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert {source for part in policy.values() for source in part.split()} <= {
            *("'none'", "'self'", "data:", "'unsafe-inline'"),
            *re.findall("'sha256-[^']+'", policy["script-src"]),
        }
        (script,) = re.findall("<script>(.*?)</script>", page.text(), re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert policy["script-src"] == f"'self' 'sha256-{digest}'"


class TestMetrics:
    async def test_canals_names_and_ours_are_there(self, api: Api) -> None:
        api.source.put(2)
        await api.get(maxEntries=1)
        await api.get(maxEntries=1)
        await api.get()
        text = (await api.call("GET", "/metrics")).text()
        samples = {
            (sample.name, *(value for label, value in sample.labels.items() if label != "destination")): sample.value
            for family in parse_text(text)
            for sample in family.samples
            if sample.labels.get("destination") == "example"
        }
        assert samples["canal_instance_subscriptions",] == 1
        assert samples["canal_instance_client_packets", "GET"] == 2
        assert samples["canal_instance_client_packets", "SUBSCRIPTION"] == 1
        assert samples["canal_instance_client_empty_batches",] == 1
        assert samples["canal_instance_get_rows",] == 2
        assert samples["canal_instance_put_rows",] == 2
        assert samples["canal_instance_ack_rows",] == 0
        assert samples["canal_instance_store_produce_seq",] == 1
        assert samples["canal_instance_store_consume_seq",] == -1
        assert samples["canal_instance_store_produce_mem",] == samples["canal_instance_client_bytes",] > 0
        assert samples["canal_instance_store_consume_mem",] == 0
        assert samples["canal_instance_traffic_delay",] == 0
        assert 0 <= samples["canal_instance_put_delay",] <= samples["canal_instance_get_delay",] < 60_000
        assert ("canal_instance_ack_delay",) not in samples
        assert samples["canal_instance_transactions",] == 0
        assert samples["canal_instance_sink_blocking_time",] == 0
        assert samples["canal_instance_received_binlog_bytes", "0"] == 0
        assert samples["sluice_destination_state", "running"] == 1
        assert samples["sluice_destination_state", "error"] == 0
        assert samples["sluice_client_lag_transactions", "1001", "given"] == 2
        assert samples["sluice_client_lag_transactions", "1001", "waiting"] == 0
        assert samples["sluice_client_lag_bytes", "1001", "given"] > 0
        assert samples["sluice_client_outstanding_batches", "1001"] == 2
        assert samples["sluice_client_rows_total", "1001"] == 2

    async def test_what_is_acked_is_counted_as_freed(self, api: Api) -> None:
        api.source.put(2)
        await api.ack((await api.get()).batch_id)
        text = (await api.call("GET", "/metrics")).text()
        assert 'canal_instance_ack_rows{destination="example"} 2.0' in text
        assert 'canal_instance_ack_delay{destination="example"}' in text
        assert 'sluice_ring_fill{destination="example"} 0.0' in text

    async def test_the_page_of_metrics_names_them_all(self, api: Api) -> None:
        page = (Path(__file__).parents[3] / "docs/metrics.md").read_text()
        described = set(re.findall(r"^\| `(sluice_\w+|canal_\w+)`(?:, `(\w+)`)?", page, re.MULTILINE))
        text = (await api.call("GET", "/metrics")).text()
        exposed = set(re.findall(r"^# TYPE ((?:sluice|canal)_\w+)", text, re.MULTILINE))
        names = {name for pair in described for name in pair if name}
        of_pump = {name for name in names if name.startswith("sluice_pump_")}  # only with a pump
        assert {name.removeprefix("sluice_").removesuffix("_total") for name in of_pump} == PUMP.keys()
        assert names - of_pump == {name for name in exposed if not name.endswith("_created")}

    async def test_openmetrics_is_valid(self, api: Api) -> None:
        api.source.put()
        await api.get()
        response = await api.call("GET", "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        found = parse_openmetrics(response.text())  # type: ignore[no-untyped-call]
        families = {family.name for family in found}
        assert "sluice_http_request_duration_seconds" in families
