"""Tokens, passwords, and where a server may listen."""

import asyncio
import base64
import contextlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import argon2
import pytest
from fastapi import Request
from pydantic import ValidationError

from sluice.protocol.errors import ConfigError, ForbiddenError, TooManyAttemptsError, UnauthorizedError
from sluice.server.credentials import REREAD_INTERVAL, Credentials, Document, Grant, IssuedToken, Scope
from sluice.server.http.auth import (
    EVERYTHING,
    WAITING_OF_AN_ADDRESS,
    Gate,
    Guard,
    refuse_browsers_from_elsewhere,
)
from sluice.server.http.checks import require_safe_binding
from sluice.server.http.rights import require
from sluice.server.logins import FREE_FAILURES, LONGEST_WAIT, LoginLimiter, make_table

READ = Grant(scope=Scope.READ, destinations=("example",))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "credentials.json"


@pytest.fixture
def credentials(path: Path) -> Credentials:
    """Hashed as always, but at a thousandth of the cost."""
    made = Credentials(path)
    made._hasher = argon2.PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
    return made


class TestTokens:
    def test_a_token_is_valid_for_what_it_was_issued_for(self, credentials: Credentials) -> None:
        issued = credentials.issue("spark", READ)
        token = credentials.authenticate(issued.text)
        assert (token.name, token.scope, token.destinations) == ("spark", Scope.READ, ("example",))

    def test_a_token_carries_256_random_bits(self, credentials: Credentials) -> None:
        secrets = {credentials.issue(name, READ).text.split("_", 2)[2] for name in ("spark", "flink")}
        assert [len(base64.urlsafe_b64decode(f"{secret}=")) for secret in secrets] == [32, 32]

    def test_the_file_keeps_no_secret_and_is_for_its_owner_only(self, credentials: Credentials, path: Path) -> None:
        secret = credentials.issue("spark", READ).text.split("_", 2)[2]
        assert secret not in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    @pytest.mark.parametrize(
        "spoil", [lambda t: t[:-1] + ("A" if t[-1] != "A" else "B"), lambda t: "x" + t, lambda t: ""]
    )
    def test_any_other_text_is_refused(self, credentials: Credentials, spoil: Callable[[str], str]) -> None:
        text = credentials.issue("spark", READ).text
        with pytest.raises(UnauthorizedError):
            credentials.authenticate(spoil(text))

    def test_a_token_without_secret_is_refused(self, credentials: Credentials) -> None:
        with pytest.raises(UnauthorizedError):
            credentials.authenticate("sluice_" + credentials.issue("spark", READ).id)

    def test_a_token_is_refused_from_the_second_on_at_which_it_expires(
        self, credentials: Credentials, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seconds = 0

        class Frozen(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> "Frozen":
                return cls(2026, 11, 22, 20, 15, seconds, tzinfo=tz)

        monkeypatch.setattr("sluice.server.credentials.datetime", Frozen)
        issued = credentials.issue("spark", READ, timedelta(seconds=5))
        seconds = 4
        assert credentials.authenticate(issued.text).name == "spark"
        seconds = 5
        with pytest.raises(UnauthorizedError, match=r"expired at 2026-11-22T20:15:05Z"):
            credentials.authenticate(issued.text)
        credentials.issue("other", READ)
        assert issued.id not in credentials.tokens

    def test_a_token_is_dated_in_whole_seconds(self, credentials: Credentials) -> None:
        token = credentials.issue("spark", READ, timedelta(hours=1)).token
        assert token.created.microsecond == 0
        assert token.expires == token.created + timedelta(hours=1)

    def test_a_token_without_time_to_live_has_expired(self, credentials: Credentials) -> None:
        with pytest.raises(UnauthorizedError, match="expired"):
            credentials.authenticate(credentials.issue("spark", READ, timedelta(0)).text)

    def test_a_revoked_token_is_refused(self, credentials: Credentials) -> None:
        issued = credentials.issue("spark", READ)
        assert credentials.revoke(issued.id)
        assert not credentials.revoke(issued.id)
        with pytest.raises(UnauthorizedError):
            credentials.authenticate(issued.text)

    def test_an_expired_token_is_refused_and_later_forgotten(self, credentials: Credentials, path: Path) -> None:
        issued = credentials.issue("spark", READ, timedelta(seconds=-5))
        with pytest.raises(UnauthorizedError, match="expired"):
            credentials.authenticate(issued.text)
        credentials.issue("other", READ)
        assert issued.id not in json.loads(path.read_text())["tokens"]

    def test_the_folder_of_the_file_is_made_with_the_first_token(self, tmp_path: Path) -> None:
        path = tmp_path / "etc" / "sluice" / "credentials.json"
        for name in ("spark", "flink"):
            Credentials(path).issue(name, READ)
        assert len(Credentials(path).tokens) == 2

    def test_tokens_survive_a_restart(self, credentials: Credentials, path: Path) -> None:
        issued = credentials.issue("spark", READ)
        assert Credentials(path).authenticate(issued.text).name == "spark"

    def test_a_token_made_by_another_process_is_taken_up(self, path: Path) -> None:
        clock = Clock()
        server = Credentials(path, clock)
        assert not server.any
        issued = Credentials(path).issue("spark", READ)
        clock.now += REREAD_INTERVAL
        assert server.authenticate(issued.text).name == "spark"
        assert server.any

    def test_what_a_token_does_not_limit_is_not_in_the_file_and_0_is_no_limit(
        self, credentials: Credentials, path: Path
    ) -> None:
        issued = credentials.issue("etl", Grant(max_rate=0), timedelta(hours=1))
        assert "null" not in path.read_text()
        assert (issued.token.max_rate, issued.token.quota) == (0, None)

    def test_two_writers_lose_nothing(self, path: Path) -> None:
        one, other = Credentials(path), Credentials(path)
        first, second = one.issue("one", READ), other.issue("other", READ)
        again = Credentials(path)
        assert {again.authenticate(it.text).name for it in (first, second)} == {"one", "other"}

    def test_writers_at_the_same_time_lose_nothing(self, path: Path) -> None:
        def write(number: int) -> list[IssuedToken]:
            mine = Credentials(path)
            return [mine.issue(f"{number}", READ) for _ in range(4)]

        with ThreadPoolExecutor(8) as writers:
            issued = [it for found in writers.map(write, range(8)) for it in found]
        assert set(Credentials(path).tokens) == {it.id for it in issued}

    def test_the_file_is_durable_before_it_replaces_the_one_before(
        self, credentials: Credentials, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fsync = os.fsync
        durable: list[bytes] = []

        def spy(number: int) -> None:
            durable.append(Path(f"/proc/self/fd/{number}").read_bytes())
            assert not path.exists()
            fsync(number)

        monkeypatch.setattr(os, "fsync", spy)
        credentials.issue("spark", READ)
        assert durable == [path.read_bytes()]

    def test_a_broken_file_is_an_error_that_does_not_show_it(self, path: Path) -> None:
        path.write_text('{"tokens": {"a": {"name": "n", "sha256": "top-secret"}}}')
        with pytest.raises(ConfigError, match=r"tokens\.a\.sha256") as raised:
            Credentials(path)
        assert "top-secret" not in str(raised.value)


class TestPasswords:
    def test_a_password_buys_a_token_of_its_user(self, credentials: Credentials) -> None:
        credentials.set_password("ops", "correct horse", Grant(scope=Scope.ADMIN))
        issued = credentials.login("ops", "correct horse")
        token = credentials.authenticate(issued.text)
        assert token.scope is Scope.ADMIN
        assert token.expires is not None

    def test_a_token_that_was_bought_lives_as_long_as_was_asked_for_but_not_longer_than_half_a_day(
        self, credentials: Credentials
    ) -> None:
        credentials.set_password("ops", "correct horse", READ)
        for asked, given in ((timedelta(minutes=5), timedelta(minutes=5)), (timedelta(days=9), timedelta(hours=12))):
            token = credentials.login("ops", "correct horse", asked).token
            assert token.expires == token.created + given

    def test_the_file_keeps_no_password(self, credentials: Credentials, path: Path) -> None:
        credentials.set_password("ops", "correct horse", READ)
        assert "correct horse" not in path.read_text()
        assert "$argon2id$" in path.read_text()

    @pytest.mark.parametrize(("user", "password"), [("ops", "wrong"), ("nobody", "correct horse")])
    def test_a_wrong_password_and_an_unknown_user_look_the_same(
        self, credentials: Credentials, user: str, password: str
    ) -> None:
        credentials.set_password("ops", "correct horse", READ)
        with pytest.raises(UnauthorizedError, match="unknown or the password is wrong"):
            credentials.login(user, password)

    async def test_a_user_that_keeps_failing_has_to_wait(self, credentials: Credentials) -> None:
        credentials.set_password("ops", "correct horse", READ)
        credentials.set_password("spark", "battery staple", READ)
        gate = Gate(credentials, "127.0.0.1")
        for _ in range(FREE_FAILURES):
            with pytest.raises(UnauthorizedError):
                await gate.login("ops", "wrong", timedelta(hours=1), "192.0.2.7")
        with pytest.raises(TooManyAttemptsError) as raised:
            await gate.login("ops", "correct horse", timedelta(hours=1), "192.0.2.7")
        assert 0 < raised.value.retry_after <= 1
        assert (await gate.login("ops", "correct horse", timedelta(hours=1), "192.0.2.8")).token.name == "ops"
        assert (await gate.login("spark", "battery staple", timedelta(hours=1), "192.0.2.7")).token.name == "spark"

    async def test_failures_before_a_login_that_succeeds_are_forgiven(self, credentials: Credentials) -> None:
        credentials.set_password("ops", "correct horse", READ)
        gate = Gate(credentials, "127.0.0.1")
        for password in [*["wrong"] * (FREE_FAILURES - 1), "correct horse", "wrong"]:
            with contextlib.suppress(UnauthorizedError):
                await gate.login("ops", password, timedelta(hours=1), "192.0.2.7")
        assert (await gate.login("ops", "correct horse", timedelta(hours=1), "192.0.2.7")).token.name == "ops"

    async def test_a_user_that_is_unknown_has_to_wait_as_well(self, credentials: Credentials) -> None:
        gate = Gate(credentials, "127.0.0.1")
        for _ in range(FREE_FAILURES):
            with pytest.raises(UnauthorizedError):
                await gate.login("nobody", "wrong", timedelta(hours=1), "192.0.2.7")
        with pytest.raises(TooManyAttemptsError):
            await gate.login("nobody", "wrong", timedelta(hours=1), "192.0.2.7")

    async def test_a_flood_of_logins_is_refused_instead_of_queued(self, credentials: Credentials) -> None:
        credentials.set_password("ops", "correct horse", READ)
        gate = Gate(credentials, "127.0.0.1")
        for _ in range(2):  # the first flood leaves nothing
            logins = [gate.login("ops", "correct horse", timedelta(hours=1), f"192.0.2.{n}") for n in range(20)]
            results = await asyncio.gather(*logins, return_exceptions=True)
            assert sum(isinstance(it, TooManyAttemptsError) for it in results) == 4
            assert gate._callers == {}

    @pytest.mark.parametrize("address", ["192.0.2.7", "2001:db8::{}"])
    async def test_one_address_with_many_user_names_leaves_room_for_others(
        self, credentials: Credentials, address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        under_way: list[str] = []
        together: list[tuple[str, ...]] = []
        hashed = credentials.login

        def login(user: str, password: str, lifetime: timedelta) -> IssuedToken:
            under_way.append(user)
            together.append(tuple(under_way))
            try:
                return hashed(user, password, lifetime)
            finally:
                under_way.remove(user)

        monkeypatch.setattr(credentials, "login", login)
        credentials.set_password("ops", "correct horse", READ)
        gate = Gate(credentials, "127.0.0.1")
        guesses = [gate.login(f"guess{n}", "wrong", timedelta(hours=1), address.format(n)) for n in range(40)]
        guessing = asyncio.gather(*guesses, return_exceptions=True)
        await asyncio.sleep(0)
        issued = await gate.login("ops", "correct horse", timedelta(hours=1), "192.0.2.8")
        assert issued.token.name == "ops"
        refused = [it for it in await guessing if isinstance(it, TooManyAttemptsError)]
        assert len(refused) == 40 - WAITING_OF_AN_ADDRESS
        assert {it.retry_after for it in refused} == {1.0}
        assert max(sum(name != "ops" for name in names) for names in together) == 1
        assert gate._callers == {}


class TestLimiter:
    def test_waits_double_up_to_a_limit(self) -> None:
        limiter = LoginLimiter()
        waits = []
        for _ in range(FREE_FAILURES + 12):
            limiter.failed("ops", "192.0.2.1", 0.0)
            waits.append(limiter.wait("ops", "192.0.2.1", 0.0))
        assert waits[: FREE_FAILURES + 2] == [0.0] * (FREE_FAILURES - 1) + [1.0, 2.0, 4.0]
        assert waits[-1] == LONGEST_WAIT

    def test_success_forgives(self) -> None:
        limiter = LoginLimiter()
        for _ in range(FREE_FAILURES):
            limiter.failed("ops", "192.0.2.1", 0.0)
        limiter.succeeded("ops", "192.0.2.1")
        assert limiter.wait("ops", "192.0.2.1", 0.0) == 0.0

    def test_those_that_failed_longest_ago_are_forgotten_when_there_are_too_many(self) -> None:
        limiter = LoginLimiter()
        addresses = [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(40_000)]
        for _ in range(FREE_FAILURES):
            limiter.failed("ops", addresses[0], 0.0)
        for second, address in enumerate(addresses[1:-100]):
            limiter.failed("ops", address, second / 1e6)
        for address in addresses[-100:] * FREE_FAILURES:
            limiter.failed("ops", address, 0.1)
        assert limiter.wait("ops", addresses[0], 0.1) == 0.0
        assert all(limiter.wait("ops", address, 0.1) > 0 for address in addresses[-100:])

    def test_another_process_counts_in_the_same_memory(self) -> None:
        table = make_table()
        program = f"""if True:
            from sluice.server.logins import LoginLimiter
            limiter = LoginLimiter({table})
            for _ in range({FREE_FAILURES}):
                limiter.failed("ops", "192.0.2.1", 0.0)
            for _ in range({FREE_FAILURES}):
                limiter.failed("dev", "192.0.2.1", 0.0)
            limiter.succeeded("dev", "192.0.2.1")
        """
        subprocess.run([sys.executable, "-c", program], pass_fds=[table], check=True)
        limiter = LoginLimiter(table)
        assert limiter.wait("ops", "192.0.2.1", 0.0) > 0
        assert limiter.wait("dev", "192.0.2.1", 0.0) == 0.0
        limiter.failed("ops", "192.0.2.1", 0.0)
        assert limiter.wait("ops", "192.0.2.1", 0.0) == 2.0

    def test_half_a_character_in_a_name_is_a_failure_as_any(self) -> None:
        limiter = LoginLimiter()
        for _ in range(FREE_FAILURES):
            limiter.failed("\ud800", "192.0.2.1", 0.0)
        assert limiter.wait("\ud800", "192.0.2.1", 0.0) > 0

    def test_ipv6_neighbours_count_as_one(self) -> None:
        limiter = LoginLimiter()
        for n in range(FREE_FAILURES):
            limiter.failed("ops", f"2001:db8::{n}", 0.0)
        assert limiter.wait("ops", "2001:db8::ffff:0:0:1", 0.0) > 0
        assert limiter.wait("ops", "2001:db8:0:1::1", 0.0) == 0.0


def is_taken(host: str, *, tls: bool = False, credentials: bool = False, insecure: bool = False) -> bool:
    """Whether a server may listen there."""
    try:
        require_safe_binding(host, tls=tls, credentials=credentials, insecure=insecure)
    except ConfigError:
        return False
    return True


class TestBinding:
    @pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
    def test_loopback_needs_nothing(self, host: str) -> None:
        assert is_taken(host)

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
    @pytest.mark.parametrize(("tls", "credentials"), [(False, False), (True, False), (False, True)])
    def test_elsewhere_needs_credentials_and_tls(self, host: str, tls: bool, credentials: bool) -> None:
        with pytest.raises(ConfigError, match="Refusing to listen"):
            require_safe_binding(host, tls=tls, credentials=credentials, insecure=False)

    def test_elsewhere_with_both_is_fine(self) -> None:
        assert is_taken("0.0.0.0", tls=True, credentials=True)

    def test_insecure_is_taken_at_its_word(self) -> None:
        assert is_taken("0.0.0.0", insecure=True)


def request(host: str, **headers: str) -> Request:
    raw = [(b"host", host.encode()), *((k.replace("_", "-").encode(), v.encode()) for k, v in headers.items())]
    return Request(
        {"type": "http", "scheme": "http", "method": "GET", "path": "/", "query_string": b"", "headers": raw}
    )


class TestOpenServer:
    @pytest.mark.parametrize("host", ["localhost:11180", "127.0.0.1:11180", "[::1]:11180"])
    def test_answers_to_localhost_and_addresses(self, credentials: Credentials, host: str) -> None:
        assert Gate(credentials, "127.0.0.1").grant(request(host)) == EVERYTHING

    def test_answers_a_call_that_names_no_host_as_the_address_that_it_came_to(self) -> None:
        call = request("")
        del call.scope["headers"][0]
        with pytest.raises(ForbiddenError):
            refuse_browsers_from_elsewhere(call)
        refuse_browsers_from_elsewhere(Request({**call.scope, "server": ("127.0.0.1", 11180)}))

    def test_refuses_a_name_that_was_rebound_to_loopback(self) -> None:
        with pytest.raises(ForbiddenError):
            refuse_browsers_from_elsewhere(request("attacker.example:11180"))

    @pytest.mark.parametrize("site", ["cross-site", "same-site", ""])
    def test_refuses_a_page_of_another_site(self, site: str) -> None:
        with pytest.raises(ForbiddenError):
            refuse_browsers_from_elsewhere(request("localhost", sec_fetch_site=site))

    @pytest.mark.parametrize("site", ["same-origin", "none"])
    def test_answers_its_own_page_and_what_a_user_typed(self, credentials: Credentials, site: str) -> None:
        assert Gate(credentials, "127.0.0.1").grant(request("localhost", sec_fetch_site=site)) == EVERYTHING

    @pytest.mark.parametrize(
        "origin",
        ["https://attacker.example", "http://localhost:8080", "http://127.0.0.1:11180", "http://localhost", "null", ""],
    )
    def test_refuses_another_origin_of_a_browser_that_says_nothing_else(self, origin: str) -> None:
        with pytest.raises(ForbiddenError):
            refuse_browsers_from_elsewhere(request("localhost:11180", origin=origin))

    def test_answers_its_own_origin(self, credentials: Credentials) -> None:
        gate = Gate(credentials, "127.0.0.1")
        assert gate.grant(request("localhost:11180", origin="http://LOCALHOST:11180")) == EVERYTHING
        assert gate.grant(request("[::1]:11180", origin="http://[::1]:11180")) == EVERYTHING


class TestGate:
    def test_without_credentials_everything_is_allowed_on_loopback(self, credentials: Credentials) -> None:
        assert Gate(credentials, "127.0.0.1").grant(request("localhost")) == EVERYTHING

    def test_without_credentials_pages_of_other_sites_are_refused(self, credentials: Credentials) -> None:
        with pytest.raises(ForbiddenError):
            Gate(credentials, "127.0.0.1").grant(request("attacker.example"))

    def test_without_credentials_nothing_is_allowed_elsewhere(self, credentials: Credentials) -> None:
        with pytest.raises(UnauthorizedError):
            Gate(credentials, "0.0.0.0").grant(request("192.0.2.1"))

    def test_insecure_allows_everything_everywhere(self, credentials: Credentials) -> None:
        assert Gate(credentials, "0.0.0.0", insecure=True).grant(request("a.example")) == EVERYTHING

    def test_with_credentials_a_token_is_needed_on_loopback_too(self, credentials: Credentials) -> None:
        text = credentials.issue("spark", READ).text
        gate = Gate(credentials, "127.0.0.1")
        for other in ({}, {"authorization": ""}, {"authorization": f"Basic {text}"}, {"authorization": "Bearer"}):
            with pytest.raises(UnauthorizedError):
                gate.grant(request("localhost", **other))
        assert gate.grant(request("localhost", authorization=f"bearer {text}")).destinations == ("example",)


class TestGuard:
    @pytest.mark.parametrize(
        ("call", "passes"),
        [("/healthz", True), ("/docs", True), ("/docs/assets/page.js", True), ("/docs/x", False), ("/metrics", False)],
    )
    async def test_calls_need_a_token_unless_they_are_public(
        self, credentials: Credentials, call: str, passes: bool
    ) -> None:
        credentials.issue("spark", READ)
        assert await passed(credentials, {**request("localhost").scope, "raw_path": call.encode()}) is passes

    async def test_what_is_not_a_call_passes(self, credentials: Credentials) -> None:
        credentials.issue("spark", READ)
        assert await passed(credentials, {"type": "lifespan"})


async def passed(credentials: Credentials, scope: MutableMapping[str, Any]) -> bool:
    """Whether what arrives gets past the guard."""
    arrived = False

    async def app(*_: object) -> None:
        nonlocal arrived
        arrived = True

    async def send(_: object) -> None:
        pass

    await Guard(app, Gate(credentials, "127.0.0.1"))(scope, send, send)  # type: ignore[arg-type]
    return arrived


def test_administration_needs_the_scope_for_it() -> None:
    require("stopDestination", EVERYTHING, "example")
    with pytest.raises(ForbiddenError, match="scope 'admin'"):
        require("stopDestination", READ, "example")


def test_a_grant_covers_its_destinations() -> None:
    assert READ.covers("example")
    assert not READ.covers("other")
    assert Grant().covers("anything")


def test_what_a_token_may_is_not_changed_in_place() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Grant().scope = Scope.ADMIN
    with pytest.raises(ValidationError, match="frozen"):
        Document().users = {}
