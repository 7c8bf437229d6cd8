"""What a peer may send, and how long it may take: beyond that it is refused and cut off; others do not notice."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sluice.server.credentials import Credentials, Grant
from sluice.server.http import serve, transport
from sluice.server.http.config import HttpConfig
from tests.integration.http.served import CLIENT, Api, next_batch, running, streaming
from tests.waiting import soon

LIMITS = HttpConfig()
HEADER, URL, BODY = LIMITS.max_header, LIMITS.max_url, LIMITS.max_body
JSON = b"Content-Type: application/json\r\n"


class Reply(NamedTuple):
    status: int
    body: Any

    @property
    def type(self) -> str:
        return str(self.body["type"])


class Peer:
    """A connection on which a test sends what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        with contextlib.suppress(ConnectionError):  # refused meanwhile
            await self.writer.drain()

    async def drip(self, data: bytes, pause: float = 0.05) -> None:
        """Send one byte after the other until the server closes the connection."""
        while not self.reader.at_eof() and not self.writer.is_closing():
            for byte in data:
                await self.send(bytes([byte]))
                await asyncio.sleep(pause)

    async def reply(self) -> Reply:
        """The next answer."""
        async with asyncio.timeout(10):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            fields = dict(line.lower().split(": ") for line in head.splitlines()[1:] if line)
            body = await self.reader.readexactly(int(fields.get("content-length", 0)))
        if int(head.split()[1]) >= 400:
            assert fields["content-type"] == "application/problem+json"
        return Reply(int(head.split()[1]), json.loads(body) if body else None)

    async def closed(self) -> bool:
        """Whether the server closes the connection, with nothing more to say."""
        async with asyncio.timeout(10):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True


@asynccontextmanager
async def connected(api: Api) -> AsyncIterator[Peer]:
    peer = Peer(*await asyncio.open_connection("127.0.0.1", int(api.base.rpartition(":")[2])))
    try:
        yield peer
    finally:
        peer.writer.transport.abort()


def request(path: str, *fields: bytes, method: str = "POST") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n".encode() + b"".join(fields) + b"\r\n"


def padded(size: int, method: str = "GET", path: str = "/healthz") -> bytes:
    """A request whose URL and header fields have `size` bytes."""
    spare = size - len(path) - len("Host: localhost\r\n") - len("X: \r\n")
    return request(path, b"X: " + b"x" * spare + b"\r\n", method=method)


class TestSizes:
    async def test_a_header_may_be_as_long_as_is_configured_and_no_longer(self, api: Api) -> None:
        async with connected(api) as peer:
            await peer.send(padded(HEADER))
            assert (await peer.reply()).status == 200
            await peer.send(padded(HEADER + 1))
            reply = await peer.reply()
            assert (reply.status, reply.type) == (431, "header-too-large")
            assert "sluice.http.maxHeader" in reply.body["detail"]
            assert await peer.closed()

    @pytest.mark.parametrize(
        "begin",
        [
            pytest.param(request("/healthz", method="GET")[:-2] + b"X: ", id="a field"),
            pytest.param(b"GET /healthz HTTP/1.1\r\n", id="the name of a field"),
            pytest.param(
                request(CLIENT + "/ack", JSON, b"Transfer-Encoding: chunked\r\n") + b"1;x=", id="an extension"
            ),
            pytest.param(
                request(CLIENT + "/ack", JSON, b"Transfer-Encoding: chunked\r\n") + b"1\r\n{\r\n0\r\nX: ",
                id="a trailer",
            ),
        ],
    )
    async def test_what_never_ends_is_refused_as_soon_as_it_is_too_long(self, api: Api, begin: bytes) -> None:
        async with connected(api) as peer:
            await peer.send(begin + b"x" * (3 * HEADER))
            assert (await peer.reply()).type == "header-too-large"
            assert await peer.closed()

    async def test_blank_lines_instead_of_a_request_are_too_long_some_time(self, api: Api) -> None:
        async with connected(api) as peer:
            await peer.send(b"\r\n" * HEADER)
            assert (await peer.reply()).type == "header-too-large"

    async def test_a_url_may_be_as_long_as_is_configured_and_no_longer(self, api: Api) -> None:
        async with connected(api) as peer:
            await peer.send(request("/healthz?" + "x" * (URL - len("/healthz?")), method="GET"))
            assert (await peer.reply()).status == 200
            await peer.send(b"GET /healthz?" + b"x" * (2 * URL))  # and no end of the line
            reply = await peer.reply()
            assert (reply.status, reply.type) == (414, "url-too-long")
            assert await peer.closed()

    async def test_a_body_may_be_as_long_as_is_configured(self, api: Api) -> None:
        body = json.dumps({"filter": r"shop\..*"}).encode().ljust(BODY)
        answer = await api.post("subscribe", data=body, headers={"Content-Type": "application/json"})
        assert answer.json()["filter"] == r"shop\..*"

    async def test_a_longer_body_is_refused_before_it_comes(self, api: Api) -> None:
        async with connected(api) as peer:
            await peer.send(request(CLIENT + "/subscribe", JSON, f"Content-Length: {BODY + 1}\r\n".encode()))
            reply = await peer.reply()
            assert (reply.status, reply.type) == (413, "body-too-large")
            assert await peer.closed()

    async def test_a_body_whose_length_was_not_said_is_refused_when_it_is_too_long(self, api: Api) -> None:
        async with connected(api) as peer:
            await peer.send(request(CLIENT + "/subscribe", JSON, b"Transfer-Encoding: chunked\r\n"))
            for _ in range(BODY // 65536 + 1):
                await peer.send(b"10000\r\n" + b" " * 65536 + b"\r\n")
            assert (await peer.reply()).type == "body-too-large"
            assert await peer.closed()

    async def test_all_unfinished_bodies_together_are_limited_but_short_ones_pass(
        self, api: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(transport, "ALL_BODIES", 3 * transport.SMALL_BODY)
        start = request(CLIENT + "/subscribe", JSON, f"Content-Length: {BODY}\r\n".encode())
        long = {"data": b" " * (2 * transport.SMALL_BODY) + b"{}", "headers": {"Content-Type": "application/json"}}
        async with connected(api) as greedy:
            await greedy.send(start + b" " * (3 * transport.SMALL_BODY))
            assert await self.refused_for_a_while(api, long) == "busy"
            await api.post("subscribe", json={})
        await self.taken_at_last(api, long)

    @staticmethod
    async def refused_for_a_while(api: Api, call: dict[str, Any]) -> str:
        for _ in range(100):
            async with api.http.post(f"{api.base}{CLIENT}/subscribe", **call) as response:
                if response.status != 200:
                    assert (response.status, response.headers["Retry-After"]) == (503, "1")
                    return str((await response.json(content_type=None))["type"])
        return ""

    @staticmethod
    async def taken_at_last(api: Api, call: dict[str, Any]) -> None:
        async with asyncio.timeout(10):
            while True:
                async with api.http.post(f"{api.base}{CLIENT}/subscribe", **call) as response:
                    if response.status == 200:
                        return

    async def test_few_requests_may_run_ahead_of_their_answers(self, api: Api) -> None:
        get = request("/healthz", method="GET")
        async with connected(api) as peer:
            await peer.send(get * transport.PIPELINED)
            for _ in range(transport.PIPELINED):
                assert (await peer.reply()).status == 200
            await peer.send(get * 1000)
            for _ in range(transport.PIPELINED + 1):
                assert (await peer.reply()).status == 200
            reply = await peer.reply()
            assert (reply.status, reply.type) == (400, "bad-request")
            assert "32 requests ahead" in reply.body["detail"]
            assert await peer.closed()

    @pytest.mark.parametrize(
        "refused", [b"?\r\n\r\n", request(CLIENT + "/ack", b"Transfer-Encoding: chunked\r\n") + b"?"]
    )
    async def test_a_request_that_is_refused_costs_no_answer_to_those_before_it(self, api: Api, refused: bytes) -> None:
        api.source.put(2)
        get = request(CLIENT + "/getWithoutAck?maxEntries=1", b"Content-Length: 0\r\n")
        async with connected(api) as peer:
            await peer.send(get + get + refused)
            assert [(await peer.reply()).body["entries"][0]["data"] for _ in range(2)] == [[{"id": "0"}], [{"id": "1"}]]
            assert (await peer.reply()).status == 400
            assert await peer.closed()

    async def test_what_is_not_http_is_a_bad_request(self, api: Api) -> None:
        async with connected(api) as peer:
            await peer.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")  # a TLS handshake
            reply = await peer.reply()
            assert (reply.status, reply.type) == (400, "bad-request")
            assert await peer.closed()

    async def test_refusals_are_counted(self, api: Api) -> None:
        async with connected(api) as peer:
            await peer.send(padded(HEADER + 1))
            await peer.reply()
        assert 'duration_seconds_count{call="",status="431"} 1.0' in (await api.call("GET", "/metrics")).text()


class TestTime:
    @pytest.fixture
    async def hasty(self, tmp_path: Path) -> AsyncIterator[Api]:
        async with running(tmp_path, header_timeout=0.3, request_timeout=0.6) as api:
            await api.post("subscribe")
            yield api

    @pytest.mark.parametrize("sent", [b"", b"GET /heal", b"\r\n"], ids=["nothing", "a beginning", "a blank line"])
    async def test_a_header_has_to_come_in_time(self, hasty: Api, sent: bytes) -> None:
        async with connected(hasty) as peer:
            await peer.send(sent)
            reply = await peer.reply()
            assert (reply.status, reply.type) == (408, "request-timeout")
            assert await peer.closed()

    @pytest.mark.extended
    @pytest.mark.parametrize(
        "begin",
        [
            b"GET /healthz HTTP/1.1\r\nX: ",
            request(CLIENT + "/ack", JSON, b"Content-Length: 1000\r\n"),
            request("/healthz", method="GET") + b"GET /healthz HTTP/1.1\r\nX: ",
            request("/healthz", method="GET") + b"\r\n",
        ],
        ids=["a header", "a body", "a second header", "blank lines"],
    )
    async def test_dripping_wins_no_time(self, hasty: Api, begin: bytes) -> None:
        async with connected(hasty) as peer:
            await peer.send(begin)
            async with asyncio.timeout(10):
                dripping = asyncio.create_task(peer.drip(b"\r\n" if begin.endswith(b"\r\n\r\n\r\n") else b"x"))
                while (reply := await peer.reply()).status == 200:
                    pass
                assert reply.type == "request-timeout"
                await dripping

    async def test_a_body_that_the_app_does_not_read_has_to_come_in_time_too(self, hasty: Api) -> None:
        async with connected(hasty) as peer:
            await peer.send(request("/nowhere", b"Content-Length: 1000\r\n"))
            assert (await peer.reply()).status == 404
            assert await peer.closed()

    @pytest.mark.parametrize("comes", [True, False])
    async def test_an_answer_is_not_undone_by_a_body_that_comes_after_it(self, hasty: Api, comes: bool) -> None:
        fields = b"Connection: close\r\n", b"Content-Length: 2\r\n"
        async with connected(hasty) as peer:
            await peer.send(request("/nowhere", *fields))
            assert (await peer.reply()).status == 404
            for _ in range(10):  # whatever the server does next has been done
                await asyncio.sleep(0)
            assert not peer.reader.at_eof()
            if comes:
                await peer.send(b"{}")
            assert await peer.closed()

    async def test_an_answer_may_take_longer_than_a_request(self, hasty: Api) -> None:
        async with connected(hasty) as peer:
            await peer.send(request(CLIENT + "/getWithoutAck?timeout=1200"))
            assert (await peer.reply()).body["batchId"] == -1

    async def test_a_stream_lasts(self, hasty: Api) -> None:
        async with streaming(hasty) as response:
            await asyncio.sleep(1.2)
            hasty.source.put()
            assert (await next_batch(response)).batch_id > 0

    async def test_a_request_that_waits_for_another_is_not_late(self, hasty: Api) -> None:
        body = b'{"batchId": 7}'
        length = f"Content-Length: {len(body)}\r\n".encode()
        async with connected(hasty) as peer:
            await peer.send(request(CLIENT + "/getWithoutAck?timeout=1200"))
            await peer.send(request(CLIENT + "/ack", JSON, length) + body[:1])
            assert (await peer.reply()).status == 200
            await peer.send(body[1:])
            assert (await peer.reply()).type == "unknown-batch"

    async def test_a_client_that_goes_away_waits_no_longer_although_another_request_follows(self, api: Api) -> None:
        async with connected(api) as peer:
            await peer.send(request(CLIENT + "/getWithoutAck?timeout=60000") + request("/healthz", method="GET"))
            await soon(lambda: api.waiting() == 1)
        await soon(lambda: api.waiting() == 0)
        api.source.put()
        assert await api.marks() == []

    async def test_between_two_requests_a_connection_may_idle(self, hasty: Api) -> None:
        async with connected(hasty) as peer:
            for _ in range(2):
                await peer.send(request("/healthz", method="GET"))
                assert (await peer.reply()).status == 200
                await asyncio.sleep(0.8)

    async def test_a_connection_that_idles_for_long_is_closed_whatever_its_last_request_was(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(serve, "KEEP_ALIVE", 1)
        async with running(tmp_path) as api, connected(api) as peer:
            await peer.send(request("/nowhere", b"Content-Length: 4\r\n"))
            assert (await peer.reply()).status == 404
            await peer.send(b"late")
            assert await peer.closed()

    async def test_a_tls_handshake_has_to_come_in_time(self, tmp_path: Path, certificate: tuple[Path, Path]) -> None:
        tls = {"tls_cert": certificate[0], "tls_key": certificate[1]}
        async with running(tmp_path, header_timeout=0.2, **tls) as api, connected(api) as peer:
            await peer.send(b"\x16\x03\x01")
            assert await peer.closed()

    @pytest.mark.extended
    @pytest.mark.parametrize(
        "pieces",
        [
            [b"", b"\r\n"],
            [b"", b"\r", b"\n"],
            [b"\r", b"\n"],
            [b"", b"\r\n" + request("/healthz", method="GET")],
        ],
    )
    async def test_an_empty_line_after_a_body_does_not_end_a_long_poll(self, hasty: Api, pieces: list[bytes]) -> None:
        async with connected(hasty) as peer:
            call = (
                request(CLIENT + "/getWithoutAck?timeout=1200", JSON, b"Content-Length: 16\r\n") + b'{"timeout":1200}'
            )
            for piece in [call + pieces[0], *pieces[1:]]:
                await peer.send(piece)
                await asyncio.sleep(0.1)
            assert (await peer.reply()).status == 200
            await asyncio.sleep(0.5)  # more than a header may take
            if pieces[-1].endswith(b"\n\r\n"):
                assert (await peer.reply()).status == 200
            await peer.send(b"\r\n")
            await peer.send(request("/healthz", method="GET"))
            assert (await peer.reply()).status == 200

    async def test_further_empty_lines_begin_a_request(self, hasty: Api) -> None:
        async with connected(hasty) as peer:
            await peer.send(request("/healthz", method="GET"))
            assert (await peer.reply()).status == 200
            await peer.send(b"\r\n\r\n")
            assert (await peer.reply()).type == "request-timeout"


class TestCredentialsFirst:
    @pytest.fixture
    async def guarded(self, tmp_path: Path) -> AsyncIterator[Api]:
        Credentials(tmp_path / "credentials.json").issue("spark", Grant())
        async with running(tmp_path) as api:
            yield api

    @pytest.mark.parametrize(
        "path", [f"{CLIENT}/subscribe", f"{CLIENT}/ack", "/v1/destinations/example/stop", "/nowhere"]
    )
    @pytest.mark.parametrize("length", [f"Content-Length: {BODY}\r\n".encode(), b"Transfer-Encoding: chunked\r\n"])
    async def test_without_credentials_a_call_is_refused_before_its_body_comes(
        self, guarded: Api, path: str, length: bytes
    ) -> None:
        async with connected(guarded) as peer:
            await peer.send(request(path, JSON, length))
            assert (await peer.reply()).status == 401

    async def test_after_the_rest_of_a_refused_call_the_next_one_is_answered(self, guarded: Api) -> None:
        async with connected(guarded) as peer:
            await peer.send(request(f"{CLIENT}/subscribe", JSON, f"Content-Length: {BODY}\r\n".encode()))
            assert (await peer.reply()).status == 401
            await peer.send(b" " * BODY + request("/healthz", method="GET"))
            assert (await peer.reply()).status == 200

    @pytest.mark.parametrize("path", ["/v1/tokens", "http://localhost/v1/tokens"])
    async def test_a_login_is_short(self, guarded: Api, path: str) -> None:
        async with connected(guarded) as peer:
            length = f"Content-Length: {transport.SMALL_BODY + 1}\r\n".encode()
            await peer.send(request(path, JSON, length))
            assert (await peer.reply()).type == "body-too-large"

    async def test_another_spelling_of_a_public_path_is_not_public(self, guarded: Api) -> None:
        async with connected(guarded) as peer:
            await peer.send(request("/v1/tok%65ns", JSON, b"Content-Length: 1000\r\n"))
            assert (await peer.reply()).status == 401
