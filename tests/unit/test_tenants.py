"""A tenant costs the others nothing: how many clients, and how large filters, it may have."""

import asyncio
import itertools
import re
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.sink.filters import Patterns
from sluice.protocol.errors import FilterError, LimitError
from sluice.server.caller import Caller, caller
from sluice.server.embedded import EmbeddedServer
from sluice.store.cursor import Cursor
from tests.source import FIRST, Source, start_embedded
from tests.waiting import SECONDS, soon

LARGE = ",".join(rf"\w+\.orders_{number}" for number in range(4))
"""A filter of some 5,000 instructions."""

Serve = Callable[..., AbstractAsyncContextManager[EmbeddedServer]]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Starts a server with settings, on the cursors of the one before."""

    @asynccontextmanager
    async def serving(**settings: Any) -> AsyncIterator[EmbeddedServer]:
        server, _ = await start_embedded(tmp_path, **settings)
        try:
            yield server
        finally:
            for destination in ("example", "other"):
                await server.stop(destination)

    return serving


def calls(token: str) -> None:
    """Let the calls from here on be those of a token; of an administrator without a name."""
    caller.set(Caller("a test", token, () if token else None))


async def test_a_token_creates_only_so_many_clients(serve: Serve) -> None:
    async with serve(max_clients=4, max_clients_of_token=2) as server:
        calls("billing")
        for client_id in (1, 2):
            await server.subscribe("example", client_id)
        with pytest.raises(LimitError, match=r"2 clients that the token 'billing' .*sluice\.instance\.maxClientsOfTok"):
            await server.subscribe("example", 3)
        await server.subscribe("example", 2, filter=r"shop\..*")
        await server.subscribe("other", 3)
        calls("shipping")
        await server.subscribe("example", 3)
        calls("")
        await server.subscribe("example", 4)
        with pytest.raises(LimitError, match=r"example has 4 clients \(sluice\.instance\.maxClients\)"):
            await server.subscribe("example", 5)
        await server.subscribe("example", 5, output="mq")
        calls("billing")
        await server.unsubscribe("example", 1)
        await server.unsubscribe("example", 2)
        await server.subscribe("example", 1)


async def test_the_client_of_an_output_counts_for_no_token(serve: Serve) -> None:
    async with serve(max_clients_of_token=1) as server:
        calls("billing")
        await server.subscribe("example", 1)
        calls("")
        await server.subscribe("example", 1, output="mq")
        calls("billing")
        await server.subscribe("example", 2)
        with pytest.raises(LimitError, match="example has 1 clients that the token 'billing' has created"):
            await server.subscribe("example", 3)


async def test_a_filter_is_only_so_large(serve: Serve) -> None:
    async with serve(max_filter_size=3000) as server:
        with pytest.raises(FilterError, match=r"too large.* 3000 instructions .*sluice\.instance\.maxFilterSize"):
            await server.subscribe("example", 1, filter=LARGE)
        with pytest.raises(FilterError, match="maxFilterSize"):
            await server.tables("example", LARGE)
        with pytest.raises(FilterError, match="maxFilterSize"):
            await server.columns("example", "shop", "goods", LARGE)


async def test_what_is_stored_stays_and_may_be_used_by_others(serve: Serve) -> None:
    async with serve() as server:
        await server.subscribe("example", 1, filter=LARGE)
    async with serve(max_filter_size=100, max_filter_sizes=100, max_clients=1) as server:
        assert server.status("example", 1).state == "attached"
        await server.subscribe("example", 1, filter=LARGE)
        with pytest.raises(LimitError):
            await server.subscribe("example", 2, filter=LARGE)
    async with serve(max_filter_size=100, max_filter_sizes=100) as server:
        await server.subscribe("example", 2, filter=LARGE)
        with pytest.raises(FilterError, match="maxFilterSize"):
            await server.subscribe("example", 2, filter=LARGE + r",shop\.x")


async def test_filters_are_together_only_so_large(serve: Serve) -> None:
    filters = [re.sub("orders", f"orders{number}", LARGE) for number in range(6)]
    async with serve(max_filter_sizes=30_000) as server:
        calls("billing")
        await server.subscribe("example", 1, filter=filters[0])
        with pytest.raises(LimitError, match=r"of 7500 \(sluice\.instance\.maxFilterSizes\)"):
            await server.subscribe("example", 2, filter=filters[1])
        assert server.instances["example"].cursors.admission.owners(2) is None
        await server.subscribe("example", 2, filter=filters[0])
        calls("")
        for number in range(1, 5):
            await server.subscribe("example", 10 + number, filter=filters[number])
        with pytest.raises(LimitError, match=r"would have \d+ instructions of 30000"):
            await server.subscribe("example", 20, filter=filters[5])
        await server.unsubscribe("example", 11)
        await server.subscribe("example", 20, filter=filters[5])


async def test_calls_at_the_same_time_get_no_more_room(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them waits for the source, so none has its filter yet when the others are compiled."""
    filters = [re.sub("orders", f"orders{number}", LARGE) for number in range(4)]
    find_place, asked, answers = Source.find_place, list[object](), threading.Event()

    def waiting(self: Source, wanted: int | str | None) -> Cursor:
        asked.append(wanted)
        assert answers.wait(SECONDS)
        return find_place(self, wanted)

    monkeypatch.setattr(Source, "find_place", waiting)
    async with serve(max_filter_sizes=30_000) as server:
        calls("billing")
        tasks = [
            asyncio.create_task(server.subscribe("example", number, filter=text, start={"timestamp": FIRST}))
            for number, text in enumerate(filters)
        ]
        await soon(lambda: len(asked) + sum(it.done() for it in tasks) == 4)
        answers.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(it) for it in found].count(LimitError) == 3


async def test_tokens_leave_room_for_one_more(serve: Serve) -> None:
    """However many there are already, each with as much as it may have."""

    async def fill(server: EmbeddedServer, token: int) -> int:
        calls(f"tenant {token}")
        for number in itertools.count():
            try:
                await server.subscribe("example", 100 * token + number, filter=rf"shop\.t{token}_{number}_[0-9]{{1,9}}")
            except LimitError:
                return number
        raise AssertionError

    async with serve(max_filter_sizes=2000) as server:
        found = [await fill(server, token) for token in range(8)]
        assert found == sorted(found, reverse=True)
        assert found[0] > found[-1] >= 1
        calls("tenant 0")
        await server.subscribe("example", 0, filter=r"shop\.t0_1_[0-9]{1,9}")
        calls("")
        await server.subscribe("example", 5000, filter=r"shop\.t9_[0-9]{1,9}")


async def test_filters_that_are_alike_are_compiled_once(serve: Serve) -> None:
    async with serve() as server:
        for client_id in (1, 2, 3):
            await server.subscribe("example", client_id, filter=r"shop\..*")
        cursors = server.instances["example"].cursors
        assert len({id(cursors.clients.wanted(client_id).tables) for client_id in (1, 2, 3)}) == 1
        assert len(cursors.ring.masks) == 1


@pytest.mark.parametrize("shared", [False, True])
async def test_filters_are_compiled_by_one_thread_in_parts(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, *, shared: bool
) -> None:
    compile_, threads, sizes = Patterns.__init__, set[int](), list[int | None]()

    def noting(self: Patterns, text: str, most: int | None = None) -> None:
        if "crm" in text:
            threads.add(threading.get_ident())
            sizes.append(most)
        compile_(self, text, most)

    monkeypatch.setattr(Patterns, "__init__", noting)
    async with serve(shared_filter=shared) as server:
        await asyncio.gather(*(server.subscribe("example", it, filter=rf"crm\.a{it}") for it in range(1, 9)))
        await server.subscribe("example", 1, filter=r"crm\.b.*")
        await server.subscribe("example", 2, filter=r"crm\.a2")
        await server.tables("example", r"crm\..*")
    async with serve(shared_filter=shared) as server:
        assert server.status("example", 1).filter == r"crm\.b.*"
    assert None not in sizes, "as a whole it takes the interpreter's lock from the event loop for long"
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_a_filter_that_all_share_is_only_so_large(serve: Serve) -> None:
    async with serve(shared_filter=True, max_filter_size=3000) as server:
        with pytest.raises(FilterError, match=r"sluice\.instance\.maxFilterSize"):
            await server.subscribe("example", 1, filter=LARGE)
