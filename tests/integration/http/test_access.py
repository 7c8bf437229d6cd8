"""Tokens, passwords and TLS: which callers are let in."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.errors import ConfigError
from sluice.server import stamp
from sluice.server.conditions import find
from sluice.server.credentials import Credentials, Grant, Scope
from sluice.server.logins import FREE_FAILURES
from tests import certificates
from tests.integration.http.served import CLIENT, MEGABYTE, PROTOBUF, Api, running
from tests.source import numbers
from tests.waiting import soon


class TestCredentials:
    @pytest.fixture
    async def guarded(self, tmp_path: Path) -> AsyncIterator[Api]:
        credentials = Credentials(tmp_path / "credentials.json")
        credentials.set_password("ops", "correct horse", Grant(scope=Scope.ADMIN))
        token = credentials.issue("spark", Grant(destinations=("example",))).text
        async with running(tmp_path) as api:
            api.headers = {"Authorization": f"Bearer {token}"}
            yield api

    async def test_without_a_token_nothing_but_health_is_answered(self, guarded: Api) -> None:
        guarded.headers = {}
        for path in ("/v1/destinations", "/v1/destinations/example", CLIENT, "/metrics"):
            response = await guarded.call("GET", path, status=401)
            assert response.headers["WWW-Authenticate"].startswith("Bearer")
        await guarded.call("GET", "/healthz")
        await guarded.call("GET", "/readyz")

    async def test_a_wrong_token_is_refused(self, guarded: Api) -> None:
        guarded.headers = {"Authorization": "Bearer sluice_0_0"}
        assert await guarded.problem("GET", "/v1/destinations", 401) == "unauthorized"

    async def test_a_token_reaches_its_destinations_only(self, guarded: Api) -> None:
        await guarded.post("subscribe")
        assert await guarded.problem("POST", "/v1/destinations/other/clients/1/subscribe", 403) == "forbidden"
        listed = (await guarded.call("GET", "/v1/destinations")).json()
        assert [it["destination"] for it in listed] == ["example"]

    async def test_a_reader_does_not_administer(self, guarded: Api) -> None:
        assert await guarded.problem("POST", "/v1/destinations/example/stop", 403) == "forbidden"

    async def test_a_password_buys_a_token(self, guarded: Api) -> None:
        guarded.headers = {}
        login = {"user": "ops", "password": "correct horse"}
        bought = (await guarded.call("POST", "/v1/tokens", json=login, status=201)).json()
        guarded.headers = {"Authorization": f"Bearer {bought['token']}"}
        await guarded.call("POST", "/v1/destinations/other/stop")
        assert bought["scope"] == "admin"

    async def test_a_wrong_password_buys_nothing(self, guarded: Api) -> None:
        guarded.headers = {}
        login = {"user": "ops", "password": "wrong-horse"}
        assert await guarded.problem("POST", "/v1/tokens", 401, json=login) == "unauthorized"

    async def test_tokens_and_passwords_are_not_logged(self, guarded: Api, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("DEBUG")
        await guarded.post("subscribe")
        login = {"user": "ops", "password": "wrong-horse"}
        await guarded.problem("POST", "/v1/tokens", 401, json=login)
        await guarded.problem("POST", "/v1/tokens", 422, json=login | {"lifetime": "wrong-horse"})
        assert "/v1/tokens" in caplog.text
        assert "wrong-horse" not in caplog.text
        assert guarded.headers["Authorization"].split("_", 2)[2] not in caplog.text

    async def test_a_login_through_a_proxy_counts_for_the_caller(self, tmp_path: Path) -> None:
        Credentials(tmp_path / "credentials.json").set_password("ops", "correct horse", Grant())
        right, wrong = ({"user": "ops", "password": word} for word in ("correct horse", "wrong"))
        async with running(tmp_path, proxies=("127.0.0.0/8",)) as api:
            for _ in range(FREE_FAILURES):
                await api.problem("POST", "/v1/tokens", 401, json=wrong, headers={"X-Forwarded-For": "192.0.2.7"})
            headers = {"X-Forwarded-For": "192.0.2.9, 192.0.2.7"}  # the first is what the caller says
            assert await api.problem("POST", "/v1/tokens", 429, json=right, headers=headers) == "too-many-attempts"
            await api.call("POST", "/v1/tokens", json=right, headers={"X-Forwarded-For": "192.0.2.8"}, status=201)

    async def test_a_peer_that_is_not_a_proxy_is_not_believed(self, tmp_path: Path) -> None:
        Credentials(tmp_path / "credentials.json").set_password("ops", "correct horse", Grant())
        login = {"user": "ops", "password": "wrong"}
        async with running(tmp_path) as api:
            for n in range(FREE_FAILURES):
                await api.problem("POST", "/v1/tokens", 401, json=login, headers={"X-Forwarded-For": f"192.0.2.{n}"})
            headers = {"X-Forwarded-For": "192.0.2.9"}
            assert await api.problem("POST", "/v1/tokens", 429, json=login, headers=headers) == "too-many-attempts"

    async def test_a_token_sees_the_metrics_of_its_destinations_only(self, guarded: Api) -> None:
        spark = guarded.headers
        login = {"user": "ops", "password": "correct horse"}
        bought = (await guarded.call("POST", "/v1/tokens", json=login, headers={}, status=201)).json()
        everything = {"Authorization": f"Bearer {bought['token']}"}
        for name, headers in (("example", spark), ("other", everything)):
            path = f"/v1/destinations/{name}/clients/1/"
            await guarded.call("POST", path + "subscribe", headers=headers)
            guarded.sources[name].put()
            await guarded.call("POST", path + "getWithoutAck", headers=headers)
        page = (await guarded.call("GET", "/metrics", headers=everything)).text()
        assert 'canal_instance_get_rows{destination="other"}' in page
        assert "process_resident_memory_bytes" in page
        for accept in ("*/*", "application/openmetrics-text"):
            page = (await guarded.call("GET", "/metrics", headers={"Accept": accept})).text()
            samples = [line for line in page.splitlines() if not line.startswith("#")]
            assert 'canal_instance_get_rows{destination="example"} 1.0' in samples
            assert [line for line in samples if 'destination="example"' not in line] == []
            assert '"other"' not in page

    @pytest.mark.parametrize("path", ["/healthz/", "/docs/", "/docs/assets", "/v1/destinations/"])
    async def test_no_answer_follows_the_host_header(self, api: Api, path: str) -> None:
        headers = {"Host": "127.0.0.1:1"}
        response = await api.call("GET", path, status=404, headers=headers, allow_redirects=False)
        assert "127.0.0.1:1" not in f"{response.headers} {response.text()}"

    async def test_a_post_of_another_origin_changes_nothing(self, api: Api) -> None:
        headers = {"Origin": "https://attacker.example"}
        assert await api.problem("POST", f"{CLIENT}/unsubscribe", 403, headers=headers) == "forbidden"
        await api.post("unsubscribe", headers={"Origin": api.base})

    async def test_a_name_that_was_rebound_to_loopback_is_refused(self, api: Api) -> None:
        headers = {"Host": "attacker.example"}
        assert await api.problem("GET", "/v1/destinations", 403, headers=headers) == "forbidden"

    async def test_beyond_loopback_the_server_refuses_to_start(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="Refusing to listen"):
            async with running(tmp_path, host="0.0.0.0"):
                pytest.fail("it listens")


class TestTls:
    async def test_large_batches_arrive_whole_over_a_verified_connection(
        self, tmp_path: Path, certificate: tuple[Path, Path]
    ) -> None:
        trusted = ssl.create_default_context(cafile=str(certificate[0]))
        async with running(tmp_path, tls_cert=certificate[0], tls_key=certificate[1]) as api:
            assert api.base.startswith("https://127.0.0.1:")
            await api.post("subscribe", ssl=trusted)
            for _ in range(8):
                api.source.put(size=MEGABYTE // 2)
            response = await api.post("getWithoutAck?maxEntries=8", headers=PROTOBUF, ssl=trusted)
            assert numbers(Messages.FromString(response.body)) == list(range(8))

    async def test_a_certificate_that_is_replaced_is_served_once_its_key_fits(
        self,
        tmp_path: Path,
        certificate: tuple[Path, Path],
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        caplog.set_level(logging.INFO)
        monkeypatch.setattr(stamp, "RELOAD", 0.01)
        (tmp_path / "new").mkdir()
        renewed = certificates.make(tmp_path / "new")
        before = certificate[0].read_text().strip()

        async def served(api: Api) -> str:
            host, port = api.base.removeprefix("https://").split(":")
            return (await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))).strip()

        def is_told(api: Api) -> bool:
            status = api.embedded.destination_status("example")
            return "certificate-refused" in {it.condition.name for it in find(status)}

        async with running(tmp_path, tls_cert=certificate[0], tls_key=certificate[1]) as api:
            assert await served(api) == before
            certificate[0].unlink()
            certificate[0].symlink_to(certificate[0])
            await soon(lambda: "Too many levels of symbolic links" in caplog.text)
            caplog.clear()
            renewed[0].replace(certificate[0])
            await soon(lambda: "the one before it is served on" in caplog.text)
            assert await served(api) == before
            assert is_told(api)
            renewed[1].replace(certificate[1])
            await soon(lambda: "new connections get the certificate" in caplog.text)
            assert not is_told(api)
            assert await served(api) == certificate[0].read_text().strip() != before

    async def test_with_tls_and_a_token_the_server_listens_everywhere(
        self, tmp_path: Path, certificate: tuple[Path, Path]
    ) -> None:
        token = Credentials(tmp_path / "credentials.json").issue("spark", Grant()).text
        tls = {"tls_cert": certificate[0], "tls_key": certificate[1]}
        async with running(tmp_path, host="0.0.0.0", **tls) as api:
            api.base = api.base.replace("0.0.0.0", "127.0.0.1")
            assert await api.problem("GET", "/v1/destinations", 401) == "unauthorized"
            api.headers = {"Authorization": f"Bearer {token}"}
            await api.post("subscribe")
