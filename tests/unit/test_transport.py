"""The parts of uvicorn that the HTTP server builds on are there: neither it nor its documentation promises them."""

import ast
import asyncio
import inspect
import socket
from importlib.metadata import version
from typing import Any

import httptools
import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from sluice.server.http import transport
from tests.waiting import soon

CYCLES = {"cycle", "answered"}
"""What the module calls a request and its answer (`RequestResponseCycle`)."""
OWN = {"leave", "limits", "metrics", "receiving"}
"""Public names that the module's classes add."""


def used(owner: type) -> set[str]:
    """The attributes that a class of the module has from its base: those that it reads, overrides or calls there."""
    found, called, own = set(), set(), set(OWN)
    for node in ast.walk(ast.parse(inspect.getsource(owner))):
        match node:
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name):
                called.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()) if name.startswith("_"):
                own.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                (own if name.startswith("_") else found).add(name)
    return (found - own) | called


def used_of_cycles() -> set[str]:
    """The attributes of requests that the module uses."""
    found = set()
    for node in ast.walk(ast.parse(inspect.getsource(transport))):
        match node:
            case ast.Attribute(value=ast.Name(id=name) | ast.Attribute(attr=name), attr=attribute) if name in CYCLES:
                found.add(attribute)
    return found


def missing(thing: Any, names: set[str]) -> list[str]:
    """Say which attributes are not there, of which library."""
    library = type(thing).__module__.partition(".")[0]
    return [
        f"{library} {version(library)}: {type(thing).__name__}.{name} is missing, which server/http/transport.py needs"
        for name in sorted(names)
        if not hasattr(thing, name)
    ]


@pytest.fixture
async def protocol() -> HttpToolsProtocol:
    """uvicorn's own, which has begun to answer a request."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    made = HttpToolsProtocol(uvicorn.Config(app, lifespan="off", log_config=None), ServerState(), {})
    near, far = socket.socketpair()
    await asyncio.get_running_loop().create_connection(lambda: made, sock=near)
    far.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    await soon(lambda: made.cycle is not None)
    far.close()
    return made


async def test_uvicorn_has_all_that_the_protocol_uses(protocol: HttpToolsProtocol) -> None:
    names = used(transport.Protocol)
    assert {"_unset_keepalive_if_required", "_start_asgi_task", "on_header", "shutdown", "pipeline", "flow"} <= names
    assert missing(protocol, names) == []
    assert missing(protocol.cycle, used_of_cycles()) == []
    assert missing(protocol.flow, {"read_paused"}) == []


async def test_uvicorn_has_all_that_the_server_uses() -> None:
    server = uvicorn.Server(uvicorn.Config("app", lifespan="off", log_config=None))
    names = used(transport.Server)
    assert {"capture_signals", "startup", "shutdown", "server_state", "servers"} <= names
    assert missing(server, (names - {"servers"}) | {"should_exit"}) == []
    assert missing(server.server_state, {"connections"}) == []
    assert "self.servers" in inspect.getsource(uvicorn.Server.shutdown)  # which ends what `startup` has begun


def test_httptools_has_all_that_the_protocol_uses() -> None:
    parser = httptools.HttpRequestParser(object())
    assert missing(parser, {"feed_data", "should_upgrade"}) == []
    assert issubclass(httptools.HttpParserUpgrade, Exception)


async def test_what_a_new_version_lacks_is_named(protocol: HttpToolsProtocol, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(HttpToolsProtocol, "_start_asgi_task")
    (text,) = missing(protocol, used(transport.Protocol))
    assert text.startswith(f"uvicorn {version('uvicorn')}: HttpToolsProtocol._start_asgi_task is missing")
