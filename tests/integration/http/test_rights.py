"""What each kind of token may do: every call of the API, on its own client, on those of others and on an output's."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from sluice.server.credentials import Credentials, Grant, Scope
from sluice.server.http.auth import PUBLIC
from sluice.server.http.rights import RIGHTS, Right
from tests.integration.http.served import Api, running

POSITION: Final = "101/bin.000001@1700000000:4:0"
SUBSCRIBED: Final[Mapping[str, int]] = {"own": 1001, "named": 1002, "nobody's": 1003, "output": 1004}
KINDS: Final[Mapping[str, Grant | None]] = {
    "none": None,
    "elsewhere": Grant(destinations=("other",)),
    "owner": Grant(clients=()),
    "named": Grant(clients=((1002, 1002), (2000, 2099))),
    "before": Grant(),
    "admin": Grant(scope=Scope.ADMIN),
}
REACHED: Final[Mapping[str, set[str]]] = {
    "none": set(),
    "elsewhere": set(),
    "owner": {"own"},
    "named": {"named"},
    "before": {"own", "named", "nobody's"},
    "admin": {"own", "named", "nobody's"},
}
BY_HAND: Final = {
    "protect",
    "limitClient",
    "seek",
    "skip",
    "confirmGaps",
    "startSnapshot",
    "pauseSnapshot",
    "resumeSnapshot",
    "cancelSnapshot",
}
"""What an administrator may do to an output's client, too."""
LAST: Final = ("unsubscribe", "stopDestination", "startDestination")
OPTIONS: Final[Mapping[str, dict[str, Any]]] = {
    "createToken": {"json": {"user": "nobody", "password": "wrong"}},
    "getTable": {"params": {"filter": ""}},
    "protect": {"json": {"protect": False}},
    "limitClient": {"json": {"maxRate": 0}},
    "ack": {"json": {"batchId": 1}},
    "seek": {"json": {"start": "earliest"}},
    "skip": {"json": {"position": POSITION}},
    "markRange": {"params": {"after": POSITION}},
    "splitRange": {"params": {"from": POSITION, "to": POSITION, "n": 1}},
    "splitLongRange": {"json": {"from": POSITION, "to": POSITION, "n": 1}},
    "readRange": {"params": {"from": POSITION, "to": POSITION}},
    "readLongRange": {"json": {"from": POSITION, "to": POSITION}},
    "startSnapshot": {"json": {}},
    "pruneLog": {"params": {"bytes": 0, "dryRun": "true"}},
}


class Rights:
    """A server with a client of each kind, and a token of each."""

    def __init__(self, api: Api, tokens: Mapping[str, str]) -> None:
        self.api = api
        self.tokens = tokens
        self.calls: dict[str, tuple[str, str]] = {}

    async def learn(self) -> None:
        """Read which calls there are."""
        for path, calls in (await self.api.document()).items():
            self.calls.update({it["operationId"]: (method.upper(), path) for method, it in calls.items()})

    async def call(self, kind: str, operation: str, client_id: int) -> tuple[int, str]:
        """Make a call; return its status and the type of the problem. A stream is not waited for."""
        method, path = self.calls[operation]
        url = self.api.base + path.format(destination="example", client_id=client_id, snapshot_id=7, table="shop.goods")
        headers = {"Authorization": f"Bearer {self.tokens[kind]}"} if kind in self.tokens else {}
        async with self.api.http.request(method, url, headers=headers, **OPTIONS.get(operation, {})) as response:
            if response.status < 400:
                return response.status, ""
            return response.status, (await response.json(content_type=None))["type"]

    async def subscribe_all(self) -> None:
        """Have each client subscribe, as whose it is."""
        for name, kind in (("own", "owner"), ("named", "named")):
            status, _ = await self.call(kind, "subscribe", SUBSCRIBED[name])
            assert status == 200
        await self.api.embedded.subscribe("example", SUBSCRIBED["nobody's"])
        await self.api.embedded.subscribe("example", SUBSCRIBED["output"], output="mq")


@pytest.fixture
async def rights(tmp_path: Path) -> AsyncIterator[Rights]:
    credentials = Credentials(tmp_path / "credentials.json")
    tokens = {kind: credentials.issue(kind, grant).text for kind, grant in KINDS.items() if grant is not None}
    async with running(tmp_path) as api:
        found = Rights(api, tokens)
        await found.learn()
        await found.subscribe_all()
        yield found


def outcomes(kind: str, operation: str, whose: str) -> set[str]:
    """What a call may be answered: ``passes``, or the type of the problem that keeps it out."""
    right = RIGHTS[operation]
    if right is Right.NONE or (right is Right.TOKEN and kind != "none"):
        return {"passes"}
    if kind == "none":
        return {"unauthorized"}
    if kind == "elsewhere" or (right is Right.ADMIN and kind != "admin"):
        return {"forbidden"}
    if right is not Right.CLIENT or whose in REACHED[kind]:
        return {"passes"}
    if whose == "output" and operation not in BY_HAND:
        return {"owned"}
    return {"passes"} if whose == "output" and kind == "admin" else {"forbidden"}


@pytest.mark.parametrize("kind", KINDS)
async def test_the_table_says_what_each_kind_of_token_may(rights: Rights, kind: str) -> None:
    assert rights.calls.keys() == RIGHTS.keys()
    seen: dict[tuple[str, str], str] = {}
    expected: dict[tuple[str, str], str] = {}
    for operation in sorted(RIGHTS, key=lambda it: (it in LAST, LAST.index(it) if it in LAST else 0)):
        for whose, client_id in SUBSCRIBED.items():
            if "{client_id}" not in rights.calls[operation][1] and whose != "own":
                continue
            _, problem = await rights.call(kind, operation, client_id)
            assert problem != "bad-parameter", operation
            kept_out = problem in {"unauthorized", "forbidden", "owned"} and operation != "createToken"
            seen[operation, whose] = problem if kept_out else "passes"
            (expected[operation, whose],) = outcomes(kind, operation, whose)
    assert seen == expected


async def test_what_needs_no_token_is_what_the_guard_lets_pass(rights: Rights) -> None:
    called = {rights.calls[it][1].encode() for it, right in RIGHTS.items() if right is Right.NONE}
    assert called | {b"/docs", b"/openapi.json"} == PUBLIC


async def test_an_output_and_others_keep_what_they_have_asked_for(rights: Rights) -> None:
    """A reader that re-filters the client of an output lets its topic lack rows, and nobody would see it."""
    for whose in ("named", "nobody's", "output"):
        before = rights.api.embedded.status("example", SUBSCRIBED[whose]).filter
        url = f"{rights.api.base}/v1/destinations/example/clients/{SUBSCRIBED[whose]}/subscribe"
        headers = {"Authorization": f"Bearer {rights.tokens['owner']}"}
        async with rights.api.http.post(url, json={"filter": r"shop\.x"}, headers=headers) as response:
            assert response.status in (403, 409)
        assert rights.api.embedded.status("example", SUBSCRIBED[whose]).filter == before


async def test_a_client_belongs_to_the_token_that_creates_it(rights: Rights) -> None:
    owners = {whose: rights.api.embedded.status("example", it).owner for whose, it in SUBSCRIBED.items()}
    assert owners == {"own": "owner", "named": "named", "nobody's": "", "output": ""}
    assert await rights.call("admin", "subscribe", SUBSCRIBED["own"]) == (200, "")
    assert rights.api.embedded.status("example", SUBSCRIBED["own"]).owner == "owner"
    assert await rights.call("before", "subscribe", 1005) == (200, "")
    assert rights.api.embedded.status("example", 1005).owner == "before"


async def test_a_token_takes_over_the_clients_that_it_names(rights: Rights) -> None:
    assert await rights.call("owner", "subscribe", 2000) == (200, "")
    assert await rights.call("named", "subscribe", 2000) == (200, "")
    assert await rights.call("owner", "rollback", 2000) == (403, "forbidden")
    assert await rights.call("named", "subscribe", 2100) == (403, "forbidden")
    assert await rights.call("owner", "confirmGaps", 2100) == (403, "forbidden")


async def test_an_output_takes_a_client_from_its_token(rights: Rights) -> None:
    await rights.api.embedded.subscribe("example", SUBSCRIBED["own"], output="mq")
    await rights.api.embedded.release("example", SUBSCRIBED["own"])
    assert await rights.call("owner", "subscribe", SUBSCRIBED["own"]) == (403, "forbidden")


async def test_an_operators_ack_of_an_outputs_client_needs_an_administrator(rights: Rights) -> None:
    url = f"{rights.api.base}/v1/destinations/example/clients/{SUBSCRIBED['output']}/ack"
    for kind, status in (("before", 403), ("owner", 403), ("admin", 204)):
        headers = {"Authorization": f"Bearer {rights.tokens[kind]}"}
        ack = {"position": rights.api.embedded.status("example", SUBSCRIBED["output"]).position, "operator": True}
        async with rights.api.http.post(url, json=ack, headers=headers) as response:
            assert response.status == status, await response.text()


async def test_a_shared_filter_is_changed_by_those_who_may_change_it_for_all(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path / "credentials.json")
    tokens = {kind: credentials.issue(kind, grant).text for kind, grant in KINDS.items() if grant is not None}
    async with running(tmp_path, instance={"shared_filter": True}) as api:

        async def subscribe(kind: str, client_id: int, text: str, status: int) -> None:
            api.headers = {"Authorization": f"Bearer {tokens[kind]}"}
            path = f"/v1/destinations/example/clients/{client_id}/subscribe"
            await api.call("POST", path, json={"filter": text}, status=status)

        await subscribe("owner", 1, r"shop\.a", 403)
        await subscribe("owner", 1, "", 200)
        await subscribe("before", 2, r"shop\.a", 200)
        await subscribe("owner", 1, r"shop\.a", 200)
        await api.embedded.subscribe("example", 3, output="mq")
        await subscribe("before", 2, r"shop\.b", 403)
        await subscribe("admin", 4, r"shop\.b", 200)
        found = {it.client_id: it.filter for it in api.embedded.clients("example")}
        assert (found[2], found[4]) == (r"shop\.a", r"shop\.b")
