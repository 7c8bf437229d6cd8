"""Views of a destination whose changes come from the test: what they share with it, and what is their own."""

import asyncio
import contextlib
import errno
import json
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.config import InstanceConfig
from sluice.instance.meta.file import FileMetaStore
from sluice.instance.quarantine import keep_late, path_of
from sluice.instance.serving.view import View
from sluice.protocol.cut import parse_place
from sluice.protocol.errors import (
    BadParameterError,
    ConfigError,
    DestinationStoppedError,
    FilterError,
    NotStoredError,
    PurgedError,
    SluiceError,
    UnknownDestinationError,
)
from sluice.server.embedded import EmbeddedServer
from sluice.server.lag import explain
from sluice.store.batch import Batch, LateRows
from sluice.store.cursor import OLDEST
from sluice.store.log.log import Log
from tests.stream import entries
from tests.unit.test_embedded import WrittenByTest
from tests.waiting import soon

MAIN, VIEW, OTHER = "shop", "part", "rest"
CLIENT = 1001


class Setup:
    """A server with a destination and two views of it, none of them started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parser: WrittenByTest
        self.starts: list[int | None] = []
        """Where each parser was to begin: the offset, or None for where the configuration says."""
        self.main = self.config(MAIN)
        self.filters = {VIEW: r"shop\.orders", OTHER: r"shop\.items"}
        self.broken: set[str] = set()
        self.server = EmbeddedServer(self.load, self.make_parser)

    def config(self, name: str, **more: Any) -> InstanceConfig:
        options: dict[str, Any] = {"catch_up_readers": 0} | more
        return InstanceConfig(destination=name, file_data_dir=self.folder, file_flush_period=3_600_000, **options)

    def load(self, destination: str) -> InstanceConfig:
        if destination in self.broken:
            raise ConfigError(f"{destination} has a mistake")
        if destination == MAIN:
            return self.main
        if destination not in self.filters:
            raise UnknownDestinationError(destination)
        shared = {"memory_buffer_size": self.main.memory_buffer_size}
        config = self.config(destination, route=MAIN, filter_regex=self.filters[destination], **shared)
        return config.as_view(self.main)

    def make_parser(self, *arguments: Any, **options: Any) -> WrittenByTest:
        self.parser = WrittenByTest(*arguments, **options)
        start = self.parser.start_cursor
        self.starts.append(start.position.begin if start is not None and start.position is not None else None)
        return self.parser

    def write(self, table: str, row: bytes) -> None:
        self.parser.write(row, table=("shop", table))

    async def start(self, *names: str) -> None:
        for name in names:
            await self.server.start(name)
        await asyncio.sleep(0)

    async def take(self, name: str = VIEW) -> list[bytes]:
        """Take and confirm all that is there; return the rows."""
        found: list[bytes] = []
        while (batch := await self.get(name)).entries:
            await self.server.ack(name, CLIENT, batch_id=batch.batch_id, durable=True)
            found += [it for it in entries(batch.slices) if it not in (b"begin", b"end")]
        return found

    async def get(self, name: str = VIEW) -> Batch:
        return await self.server.get_without_ack(name, CLIENT)

    def state(self, name: str = VIEW) -> tuple[str, str]:
        status = self.server.destination_status(name)
        return status.state, status.error

    def where(self, name: str = VIEW) -> str:
        return self.server.status(name, CLIENT).position


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[Setup]:
    made = Setup(tmp_path)
    yield made
    made.broken.clear()
    with contextlib.suppress(SluiceError):
        await made.server.close()


@pytest.fixture
async def running(setup: Setup) -> Setup:
    """With a client on each."""
    await setup.start(MAIN, VIEW, OTHER)
    for name in (MAIN, VIEW, OTHER):
        await setup.server.subscribe(name, CLIENT)
    return setup


WAITS = ("stopped", f"destination {MAIN}, of which it is a view, does not run")


async def test_each_has_its_own_tables_and_cursor(running: Setup) -> None:
    running.write("orders", b"one")
    running.write("items", b"two")
    assert await running.take(VIEW) == [b"one"]
    assert await running.take(OTHER) == [b"two"]
    assert await running.take(MAIN) == [b"one", b"two"]
    running.write("orders", b"three")
    before = running.where(OTHER)
    assert await running.take(VIEW) == [b"three"]
    assert running.where(VIEW) > before
    assert len(running.starts) == 1
    assert [running.server.destination_status(it).route for it in (MAIN, VIEW, OTHER)] == ["", MAIN, MAIN]


async def test_a_filter_of_a_client_only_narrows(running: Setup) -> None:
    with pytest.raises(FilterError, match="matches nothing that"):
        await running.server.subscribe(VIEW, 2, filter=r"shop\.items")
    await running.server.subscribe(VIEW, CLIENT, filter=r"shop\..*")
    running.write("items", b"one")
    running.write("orders", b"two")
    assert await running.take() == [b"two"]
    assert await running.server.tables(VIEW) == ["shop.orders"]
    with pytest.raises(FilterError, match="no item of the filter matches"):
        await running.server.columns(VIEW, "shop", "items")


async def test_the_stream_begins_where_the_oldest_client_of_any_view_is(running: Setup) -> None:
    running.write("orders", b"one")
    for name in (MAIN, OTHER):
        await running.take(name)
    await running.server.close()
    place = running.where
    await running.start(VIEW, OTHER)
    assert running.state() == WAITS
    with pytest.raises(DestinationStoppedError, match=f"should start first: {WAITS[1]}"):
        place()
    await running.start(MAIN)
    assert running.state() == ("running", "")
    assert running.starts == [None, 4]


async def test_the_ring_waits_for_clients_of_views_and_not_for_those_of_stopped_ones(setup: Setup) -> None:
    setup.main = setup.main.model_copy(update={"memory_buffer_size": 8})
    await setup.start(MAIN, VIEW)
    for name in (MAIN, VIEW):
        await setup.server.subscribe(name, CLIENT)
    for row in (b"one", b"two"):
        setup.write("orders", row)
    assert await setup.take(MAIN) == [b"one", b"two"]
    setup.parser.stream.transaction(b"three")
    putting = asyncio.create_task(asyncio.to_thread(setup.parser.stream.put))
    await soon(lambda: setup.server.destination_status(MAIN).full)
    assert await setup.take(MAIN) == [b"three"]
    status = setup.server.destination_status(MAIN)
    explained = explain(status, status.clients[0], 0.0)
    assert explained.text.startswith("the ring is full until a client of another view or its main destination acks")
    await setup.server.stop(VIEW)
    assert await putting
    status = setup.server.destination_status(VIEW)
    assert (status.state, status.error, status.entries, status.first) == ("stopped", "", 0, "")
    assert [(it.state, it.position) for it in status.clients] == [("ahead", str(setup.parser.stream.position(0)))]


async def test_ids_of_batches_are_never_given_twice(running: Setup) -> None:
    given: list[int] = []
    for row in range(3):
        running.write("orders", b"%d" % row)
        given += [(await running.get(name)).batch_id for name in (MAIN, VIEW)]
        await running.server.stop(VIEW)
        await running.start(VIEW)
    assert len(set(given)) == len(given)
    assert given == sorted(given)


async def test_ids_are_higher_than_those_that_a_view_gave_as_a_destination_of_its_own(setup: Setup) -> None:
    (setup.folder / VIEW).mkdir()
    data = {"clientDatas": [], "destination": VIEW, "sluice": {"epoch": 41}}
    (setup.folder / VIEW / "meta.dat").write_text(json.dumps(data))
    await setup.start(MAIN, VIEW)
    await setup.server.subscribe(VIEW, CLIENT)
    setup.write("orders", b"one")
    assert (await setup.get()).batch_id >= 42 * 10**9
    assert setup.server.epoch(VIEW) == 42
    await setup.take()
    stored = json.loads((setup.folder / VIEW / "meta.dat").read_text())
    assert stored["sluice"]["epoch"] >= 42


async def test_to_start_a_destination_starts_its_views_but_none_that_was_stopped(running: Setup) -> None:
    await running.server.stop(OTHER)
    running.write("orders", b"one")
    await running.server.stop(MAIN)
    assert [running.state(it) for it in (VIEW, OTHER)] == [WAITS, ("stopped", "")]
    await running.start(VIEW)
    assert running.state() == WAITS
    await running.start(MAIN)
    assert [running.state(it)[0] for it in (VIEW, OTHER)] == ["running", "stopped"]
    await running.start(OTHER)
    assert running.state(OTHER) == ("running", "")


async def test_a_view_that_is_configured_otherwise_with_its_destination_is_so_when_that_starts(running: Setup) -> None:
    running.filters[VIEW] = r"shop\..*"
    running.broken.add(OTHER)
    running.main = running.main.model_copy(update={"get_ddl_isolation": True})
    await running.server.reload(MAIN)
    running.write("items", b"one")
    assert await running.take() == [b"one"]
    assert running.state(OTHER) == ("stopped", "rest has a mistake")
    running.broken.clear()
    await running.start(OTHER)
    assert running.state(OTHER)[0] == "running"


async def test_a_view_that_cannot_start_keeps_no_other_from_it(setup: Setup) -> None:
    (setup.folder / VIEW).mkdir()
    file = setup.folder / VIEW / "meta.dat"
    file.write_text("{}")
    await setup.start(VIEW, OTHER, MAIN)
    assert setup.state()[0] == "stopped"
    assert "is not a file of subscriptions and cursors" in setup.state()[1]
    assert setup.state(OTHER) == ("running", "")
    file.unlink()
    await setup.start(VIEW)
    assert setup.state() == ("running", "")


async def with_protected(setup: Setup) -> None:
    """Start with a log on disk, and a view with a protected client."""
    setup.main = setup.config(MAIN, store="mixed", store_min_free=0, catch_up_readers=1)
    await setup.start(MAIN, VIEW)
    await setup.server.subscribe(VIEW, CLIENT, protected=True)
    await setup.server.subscribe(MAIN, CLIENT)
    setup.write("orders", b"one")
    assert await setup.take() == [b"one"]


def log_of(setup: Setup) -> Log:
    log = setup.server.instances[MAIN].cursors.track.log
    assert log is not None
    return log


async def test_the_log_keeps_all_for_a_view_whose_clients_cannot_be_read(setup: Setup) -> None:
    await with_protected(setup)
    await setup.server.stop(MAIN)
    file = setup.folder / VIEW / "meta.dat"
    stored = file.read_text()
    file.write_text("{}")
    await setup.start(MAIN)
    assert [*log_of(setup).held.values()] == [OLDEST]
    assert setup.state()[1].endswith(f"Until its clients can be read, the log of {MAIN} keeps all")
    file.write_text(stored)
    await setup.start(VIEW)
    assert [it.position for it in log_of(setup).held.values()] == [parse_place(setup.where())]


async def test_the_log_keeps_what_clients_need_of_a_view_that_cannot_start_otherwise(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_protected(setup)
    where = setup.where()
    await setup.server.stop(MAIN)

    async def fail(self: View, _clients: object) -> None:
        raise ConfigError("its places are of another kind of source")

    monkeypatch.setattr(View, "_load", fail)
    await setup.start(MAIN)
    assert setup.state() == ("stopped", "its places are of another kind of source")
    assert [str(it.position) for it in log_of(setup).held.values()] == [where]


@pytest.mark.parametrize("how", ["stopped", "refused"])
async def test_the_log_keeps_what_a_view_needs_that_does_not_start_with_its_destination(setup: Setup, how: str) -> None:
    await with_protected(setup)
    where = setup.where()
    if how == "stopped":
        await setup.server.stop(VIEW)
        await setup.server.stop(MAIN)
        await setup.start(MAIN)
        assert setup.state() == ("stopped", "")
    else:
        setup.broken.add(VIEW)
        setup.main = setup.main.model_copy(update={"get_ddl_isolation": True})
        await setup.server.reload(MAIN)
        assert setup.state() == ("stopped", f"{VIEW} has a mistake")
    assert [str(it.position) for it in log_of(setup).held.values()] == [where]
    setup.broken.clear()
    del setup.filters[VIEW]
    await setup.server.stop(VIEW)
    await setup.server.stop(MAIN)
    await setup.start(MAIN)
    assert not log_of(setup).held, "it is configured no more"


async def test_a_view_whose_store_fails_in_an_unforeseen_way_says_so(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_self: object) -> None:
        raise ZeroDivisionError("by nothing")

    await setup.start(MAIN)
    monkeypatch.setattr(FileMetaStore, "open", fail)
    await setup.start(VIEW)
    assert setup.state() == ("stopped", "by nothing")


async def test_a_destination_that_cannot_start_lets_its_views_wait(setup: Setup) -> None:
    setup.folder.joinpath(MAIN).mkdir()
    file = setup.folder / MAIN / "meta.dat"
    file.write_text("{}")
    await setup.start(VIEW)
    with pytest.raises(ConfigError):
        await setup.start(MAIN)
    assert setup.state() == WAITS
    file.unlink()
    await setup.start(MAIN)
    assert setup.state() == ("running", "")


class SlowToOpen:
    """Opening what is stored of the view takes until the test lets it go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        opening: Callable[[FileMetaStore], Any] = FileMetaStore.open
        slow = self

        async def open_(store: FileMetaStore) -> Any:
            if store.path.parent.name == VIEW:
                slow.begun.set()
                await slow.may_end.wait()
            return await opening(store)

        monkeypatch.setattr(FileMetaStore, "open", open_)


async def test_a_view_that_is_stopped_while_it_starts_lets_go_of_its_file(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setup.start(MAIN)
    slow = SlowToOpen(monkeypatch)
    starting = asyncio.create_task(setup.server.start(VIEW))
    await slow.begun.wait()
    view = setup.server.instances[VIEW]
    assert isinstance(view, View)
    await view.stop()
    slow.may_end.set()
    await starting
    assert setup.state() == ("stopped", "")
    await setup.start(VIEW)
    assert setup.state() == ("running", "")


async def test_a_view_that_starts_while_its_destination_stops_or_starts_follows_it(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setup.start(MAIN)
    slow = SlowToOpen(monkeypatch)
    starting = asyncio.create_task(setup.server.start(VIEW))
    await slow.begun.wait()
    main = setup.server._known_main(MAIN)
    await main.stop()  # as another server takes over
    slow.may_end.set()
    await starting
    view = setup.server.instances[VIEW]
    assert isinstance(view, View)
    assert not view.is_open
    slow.begun.clear()
    slow.may_end.clear()
    beginning = asyncio.create_task(main.start())
    await slow.begun.wait()
    late = View(setup.load(OTHER), setup.make_parser)
    late.use_main(main)
    await late.start()
    slow.may_end.set()
    await beginning
    await asyncio.sleep(0)
    assert [it.state for it in (main, view, late)] == ["running"] * 3
    await late.stop()


async def test_what_fails_for_the_destination_fails_for_its_views(running: Setup) -> None:
    running.parser.stream.gtid = 99  # of a source that the ring does not know
    running.parser.stream.advance()
    running.parser.stream.put()
    await soon(lambda: running.state(MAIN)[0] == "error")
    assert running.state(VIEW) == running.state(MAIN)
    with pytest.raises(DestinationStoppedError, match=f"destination:{VIEW} has failed: IndexError: 99"):
        await running.get()
    await running.server.stop(MAIN)
    await running.start(MAIN)
    running.write("orders", b"one")
    assert await running.take() == [b"one"]


async def test_a_source_that_cannot_be_read_is_the_state_of_views_too(running: Setup) -> None:
    failed, works = ("error", "the source does not answer"), ("running", "")
    running.parser.on_state(*failed)
    await soon(lambda: running.state(MAIN) == failed)
    assert [running.state(it) for it in (VIEW, OTHER)] == [failed] * 2
    running.parser.on_state(*works)
    await soon(lambda: running.state(MAIN) == works)
    assert [running.state(it) for it in (VIEW, OTHER)] == [works] * 2


async def test_a_client_of_a_view_that_has_lost_its_place_is_told_and_the_others_are_served(running: Setup) -> None:
    running.write("orders", b"one")
    await running.take(MAIN)
    await running.server.stop(MAIN)
    purged = PurgedError("the source has purged it")

    def make(*arguments: Any, **options: Any) -> WrittenByTest:
        running.parser = WrittenByTest(*arguments, **options)
        running.parser.refused = {options["start"]: purged}
        running.parser.stream.events = 3
        return running.parser

    running.server._make_parser = make
    running.main = running.main.model_copy(update={"catch_up_readers": 2})
    await running.start(MAIN)
    await soon(lambda: running.server.status(VIEW, CLIENT).state == "gone")
    with pytest.raises(PurgedError, match="has purged it"):
        await running.get()
    running.write("orders", b"two")
    assert await running.take(MAIN) == [b"two"]


async def test_a_client_of_a_view_whose_place_is_of_another_source_is_told_to_move_it(
    running: Setup, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running.write("orders", b"one")
    await running.take()
    place = running.where()
    await running.server.stop(VIEW)
    stored = tmp_path / VIEW / "meta.dat"
    data = json.loads(stored.read_text())
    for client in data["clientDatas"]:
        del client["cursor"]["postion"]["gtid"]
    stored.write_text(json.dumps(data).replace(place, f"4711/{place.partition('/')[2]}"))
    await running.server.start(VIEW)
    assert running.server.status(VIEW, CLIENT).problem == "source-changed"
    (told,) = (it.message for it in caplog.records if "is not served" in it.message)
    assert "Move its cursor (sluice seek)" in told
    assert "filter" not in told


async def test_rows_from_quarantine_come_to_clients_of_views_that_have_passed_them(running: Setup) -> None:
    place = running.parser.stream.position(1)
    running.write("orders", b"one")
    for name in (MAIN, VIEW):
        await running.take(name)
    rows = LateRows(place, "shop", "orders", b"\x12\x04late", 1, 1000, b"\x04\x01")
    given = await running.server._known_main(MAIN).redeliver([rows])
    assert given == {str(place): [CLIENT]}
    for name in (MAIN, VIEW):
        assert await running.take(name) == [b"late"]
    await running.server.stop(VIEW)
    await running.start(VIEW)
    assert await running.take() == []


async def test_a_destination_runs_on_when_late_rows_cannot_be_noted(
    running: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = running.parser.stream.position(1)
    running.write("orders", b"one")
    for name in (MAIN, VIEW):
        await running.take(name)
    rows = LateRows(place, "shop", "orders", b"\x12\x04late", 1, 1000, b"\x04\x01")

    async def fails(*_: object) -> None:
        raise OSError(errno.EFBIG, "File too large")

    with monkeypatch.context() as patch:
        patch.setattr(running.server._known_main(MAIN)._meta, "write", fails)
        with pytest.raises(NotStoredError, match="File too large"):
            await running.server._known_main(MAIN).redeliver([rows])
    assert running.server.destination_status(MAIN).state == "running"
    assert await running.server._known_main(MAIN).redeliver([rows]) == {str(place): [CLIENT]}
    for name in (MAIN, VIEW):
        assert await running.take(name) == [b"late"]
        assert await running.take(name) == []


async def test_late_rows_of_a_view_are_still_known_after_a_restart(running: Setup) -> None:
    place = running.parser.stream.position(1)
    running.write("orders", b"one")
    for name in (MAIN, VIEW, OTHER):
        await running.take(name)
    rows = LateRows(place, "shop", "orders", b"\x12\x04late", 1, 1000, b"\x04\x01")
    await running.server._known_main(MAIN).redeliver([rows])
    keep_late(path_of(running.folder, MAIN), [rows])
    await running.server.close()
    await running.start(MAIN, VIEW)
    assert await running.take() == [b"late"]


async def test_a_client_of_a_view_may_have_the_stream_begin_again(setup: Setup) -> None:
    setup.main = setup.main.model_copy(update={"memory_buffer_size": 8})
    await setup.start(MAIN, VIEW)
    await setup.server.subscribe(VIEW, CLIENT)
    session = setup.server.open_session(VIEW, CLIENT)
    setup.write("orders", b"one")
    assert await setup.take() == [b"one"]
    assert await setup.server.go_back(VIEW, CLIENT, session=session)
    await setup.server.subscribe(MAIN, CLIENT)
    before = [setup.server.status(name, CLIENT) for name in (MAIN, VIEW)]
    await setup.server.begin_again(VIEW)
    after = [setup.server.status(name, CLIENT) for name in (MAIN, VIEW)]
    assert [(it.last_active, it.called) for it in after] == [(it.last_active, True) for it in before]
    await setup.server.unsubscribe(MAIN, CLIENT)
    assert setup.state() == ("running", "")
    setup.write("orders", b"two")
    assert await setup.take() == [b"two"]
    assert len(setup.starts) == 2


async def test_what_is_of_the_source_is_refused_with_the_name_of_the_destination(running: Setup) -> None:
    said = f"destination {VIEW} is a view of {MAIN}, which has its source, its log and its quarantine: ask {MAIN}"
    with pytest.raises(BadParameterError) as caught:
        await running.server.retry_quarantine(VIEW)
    assert str(caught.value) == said
    with pytest.raises(BadParameterError) as caught:
        await running.server.prune_log(VIEW, 0)
    assert str(caught.value) == said


async def test_clients_of_a_view_expire_as_that_is_configured(setup: Setup) -> None:
    await setup.start(MAIN, VIEW)
    await setup.server.subscribe(VIEW, CLIENT)
    await setup.server.subscribe(MAIN, CLIENT)
    view = setup.server.instances[VIEW]
    view.cursors._expire_after = 1
    view.cursors.clients.subscribers[CLIENT].last_active -= 2
    await soon(lambda: not view.cursors.clients.ids)
    assert setup.server.instances[MAIN].cursors.clients.ids == [CLIENT]


async def test_a_view_that_begins_with_its_destination_is_not_made_twice(setup: Setup) -> None:
    """Both are started at once, and the view has waited for that."""
    await setup.start(VIEW)
    assert setup.state() == WAITS
    await asyncio.gather(setup.server.start(MAIN), setup.server.start(VIEW))
    assert setup.state() == ("running", "")
    assert len(setup.server.instances[MAIN].cursors.with_views) == 2
    await setup.server.stop(VIEW)
    await setup.server.start(VIEW)
    assert setup.state() == ("running", "")


async def test_a_view_that_is_stopped_while_its_destination_begins_anew_is_stopped(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setup.start(MAIN, VIEW)
    setup.main = setup.config(MAIN, get_ddl_isolation=True)
    load, loads, go_on = setup.server._load, asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def wait(name: str) -> InstanceConfig:
        if name == VIEW:
            loop.call_soon_threadsafe(loads.set)
            go_on.wait(5)
        return load(name)

    monkeypatch.setattr(setup.server, "_load", wait)
    reloading = asyncio.create_task(setup.server.reload(MAIN))
    await loads.wait()
    stopping = asyncio.create_task(setup.server.stop(VIEW))
    await asyncio.sleep(0.05)
    go_on.set()
    await asyncio.gather(reloading, stopping)
    assert (setup.state(MAIN)[0], setup.state()[0]) == ("running", "stopped")


async def test_a_view_whose_cursors_cannot_be_stored_keeps_no_other_from_it(
    running: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.write("orders", b"one")
    for name in (MAIN, VIEW):
        batch = await running.get(name)
        await running.server.ack(name, CLIENT, batch_id=batch.batch_id)

    async def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(running.server.instances[VIEW]._meta, "write", fail)
    with pytest.raises(SluiceError, match="No space left"):
        await running.server.close()
    monkeypatch.undo()
    await running.start(MAIN)
    assert await running.take(MAIN) == []
