"""Which callers are let in, and where the server listens."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sluice.protocol.canal.packet_pb2 import ClientAuth, Packet, Sub
from sluice.protocol.errors import ConfigError
from sluice.server import stamp
from sluice.server.config import Configuration
from sluice.server.credentials import Credentials, Grant
from sluice.server.embedded import EmbeddedServer
from sluice.server.logins import LoginLimiter
from sluice.server.metrics import Metrics
from sluice.server.resources import Resources
from sluice.server.serving import serving
from sluice.server.tcp import session
from sluice.server.tcp.config import TcpConfig
from sluice.server.waiting import Stopping
from tests.canal import CanalError, frames, scramble, stored
from tests.integration.tcp.served import PROTECTED, Canal, refused, running, silent
from tests.source import Source
from tests.waiting import soon


class TestLogin:
    async def test_the_server_greets_with_a_seed_of_eight_bytes(self, canal: Canal) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", canal.port)
        greeting = await reader.readexactly(20)
        writer.close()
        assert greeting[:12] == bytes.fromhex("00000010 1001 1801 2a0a 1208")

    async def test_every_connection_has_its_own_seed(self, canal: Canal) -> None:
        seeds = {(await canal.connect(login=False)).seed for _ in range(5)}
        assert len(seeds) == 5

    async def test_a_valid_login_is_answered_by_an_empty_ack(self, protected: Canal) -> None:
        client = await protected.connect(login=False)
        client.send(ClientAuth(username="canal", password=scramble("secret", client.seed)))
        assert await client.reader.readexactly(8) == bytes.fromhex("00000004 1001 1803")

    async def test_anybody_is_let_in_where_no_password_is_set(self, canal: Canal) -> None:
        client = await canal.connect("anybody", "anything")
        await client.subscribe()
        assert canal.client_ids() == [1001]

    async def test_any_name_will_do_where_none_is_set(self, tmp_path: Path) -> None:
        async with running(tmp_path, passwd=stored("secret").upper()) as canal:
            client = await canal.connect("anybody", "secret")
            await client.subscribe()
            assert canal.client_ids() == [1001]

    @pytest.mark.parametrize(("user", "password"), [("canal", "wrong"), ("other", "secret"), ("canal", None)])
    async def test_a_login_that_fails_may_be_repeated(self, protected: Canal, user: str, password: str | None) -> None:
        client = await protected.connect(login=False)
        with pytest.raises(CanalError, match=f"^auth failed for user:{user}$") as caught:
            await client.login(user, password)
        assert caught.value.code == 400
        client.send(Sub(destination="example", client_id="1001"))
        await refused(client)  # it was taken for another login
        await client.login("canal", "secret")

    @pytest.mark.parametrize("token", [b"secret", b"00" * 19, "ü".encode() * 20])
    async def test_bytes_that_are_not_a_scramble_close_the_connection(self, protected: Canal, token: bytes) -> None:
        client = await protected.connect(login=False)
        client.send(ClientAuth(username="canal", password=token))
        assert await client.closed()

    async def test_the_first_packet_is_a_login_whatever_its_type_says(self, protected: Canal) -> None:
        client = await protected.connect(login=False)
        body = ClientAuth(username="canal", password=scramble("secret", client.seed)).SerializeToString()
        client.write(frames([Packet(type=Packet.GET, body=body).SerializeToString()])[0])
        await client.acknowledged()
        await client.subscribe()
        assert protected.client_ids() == [1001]

    async def test_a_login_may_subscribe(self, canal: Canal) -> None:
        client = await canal.connect(login=False)
        await client.login(destination="example", client_id="7", filter=r"shop\..*")
        assert canal.embedded.status("example", 7).filter == r"shop\..*"

    async def test_a_login_that_cannot_subscribe_is_refused_and_may_be_repeated(self, canal: Canal) -> None:
        client = await canal.connect(login=False)
        with pytest.raises(CanalError, match="destination:nowhere should start first"):
            await client.login(destination="nowhere", client_id="7")
        await client.login()

    async def test_a_client_that_does_not_log_in_in_time_is_cut_off(self, tmp_path: Path) -> None:
        async with running(tmp_path, login_timeout=0.5) as canal:
            assert await (await canal.connect(login=False)).closed()

    async def test_before_the_login_little_is_kept_of_what_comes_after_a_frame(
        self, protected: Canal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(session, "FAILED_LOGIN", 30.0)
        client = await protected.connect(login=False)
        client.send(ClientAuth(username="canal", password=scramble("wrong", client.seed)))
        client.write(bytes(2 * TcpConfig().max_first_frame + 1))
        assert await client.closed()

    async def test_other_clients_do_not_wait_for_a_failed_login(
        self, protected: Canal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(session, "FAILED_LOGIN", 30.0)
        failing = await protected.connect(login=False)
        failing.send(ClientAuth(username="canal", password=scramble("wrong", failing.seed)))
        client = await protected.connect("canal", "secret")
        await client.subscribe()
        assert protected.client_ids() == [1001]
        await silent(failing)  # its refusal is still to come

    async def test_the_password_is_in_no_log(self, protected: Canal, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("DEBUG")
        client = await protected.connect(login=False)
        client.send(ClientAuth(username="canal", password=b"secret"))
        assert await client.closed()
        assert "secret" not in caplog.text
        assert stored("secret") not in caplog.text


class TestRenewal:
    async def test_a_password_in_a_file_of_its_own_is_renewed_unless_it_cannot_be_used(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO")
        monkeypatch.setattr(stamp, "RELOAD", 0.01)
        file, main = tmp_path / "secret", tmp_path / "canal.properties"
        file.write_text(stored("former"))
        main.write_text(f"canal.passwdFile = {file}\n")
        configuration = Configuration(tmp_path, {})
        passwd = configuration.addresses.front(TcpConfig).passwd
        async with running(tmp_path, passwd=passwd, secrets=configuration) as canal:
            await canal.connect("anybody", "former")
            file.write_text("")
            await soon(lambda: "canal.passwd is empty now" in caplog.text)
            await canal.connect("anybody", "former")
            file.write_text("beef")
            await soon(lambda: "40 hexadecimal digits" in caplog.text)
            await canal.connect("anybody", "former")
            file.write_text(stored("present"))
            await soon(lambda: "has changed: new logins need the present one" in caplog.text)
            await canal.connect("anybody", "present")
            with pytest.raises(CanalError, match="auth failed"):
                await canal.connect("anybody", "former")
        assert stored("present") not in caplog.text


def resources(embedded: EmbeddedServer) -> Resources:
    return Resources(embedded, Metrics(embedded), Stopping(), LoginLimiter())


class TestBinding:
    async def test_beyond_loopback_a_password_is_needed(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"'0\.0\.0\.0' without canal.passwd"):
            async with running(tmp_path, host="0.0.0.0"):
                pass

    @pytest.mark.parametrize("settings", [PROTECTED, {"insecure": True}])
    async def test_with_a_password_or_when_told_so_it_is_served_everywhere(
        self, tmp_path: Path, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        async with running(tmp_path, host="0.0.0.0", **settings):
            assert "is not encrypted" in caplog.text

    @pytest.mark.parametrize("settings", [{}, PROTECTED, {"without_netty": True}], ids=["open", "password", "closed"])
    async def test_a_port_that_undoes_tokens_says_so_and_what_closes_it(
        self, tmp_path: Path, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        file = tmp_path / "credentials.json"
        embedded = EmbeddedServer(lambda _: pytest.fail("nothing starts"), Source)
        config = TcpConfig(port=0, credentials=file, **settings)
        async with serving([config], resources(embedded)):
            assert "asks for no password" not in caplog.text
        Credentials(file).issue("spark", Grant())
        async with serving([config], resources(embedded)):
            assert ("asks for no password" in caplog.text) is (not settings)
        if not settings:
            assert "Set canal.user and canal.passwd, or close the port with canal.withoutNetty = true" in caplog.text

    async def test_nothing_listens_when_it_is_switched_off(self, tmp_path: Path) -> None:
        embedded = EmbeddedServer(lambda _: pytest.fail("nothing starts"), Source)
        async with serving([TcpConfig(port=0, without_netty=True)], resources(embedded)) as addresses:
            assert not addresses
