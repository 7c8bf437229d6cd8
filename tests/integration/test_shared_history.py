"""The history of tables in a database of MySQL or MariaDB, for servers that share destinations."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.sources.mysql.config import parse_history_url
from sluice.instance.sources.mysql.examination import Examination
from sluice.instance.sources.mysql.history import shared, versions
from sluice.instance.sources.mysql.history.shared import SharedDatabase
from sluice.instance.sources.mysql.history.tables import Catalog
from sluice.instance.sources.mysql.history.versions import History, open_history
from sluice.protocol.errors import HistoryError
from sluice.store.cursor import Cursor
from tests.conftest import Database
from tests.proxy import Proxy
from tests.reading import Reading, config
from tests.servers import Server
from tests.unit.test_schema_versions import DDL, Source, Stream, place

EXTENDED = ("mysql97", "mysql80", "mysql57", "mysql56", "mariadb1011")
Shared = Callable[..., SharedDatabase]


@pytest.fixture(params=["mariadb118", *(pytest.param(it, marks=pytest.mark.extended) for it in EXTENDED)])
def server(request: pytest.FixtureRequest) -> Server:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Server)
    return found


@pytest.fixture
def schema(server: Server, database: Database) -> str:
    return database(server)


@pytest.fixture
def share(server: Server, schema: str, tmp_path: Path) -> Shared:
    """Make the database of a server, which has a folder of its own, in an epoch."""

    def make(name: str, epoch: int | None = 1, **settings: Any) -> SharedDatabase:
        port = settings.pop("port", server.port)
        url = f"jdbc:mysql://127.0.0.1:{port}/{schema}?useUnicode=true"
        account = {"tsdb_url": url, "tsdb_username": server.user, "tsdb_password": server.password}
        made = config(server, tmp_path / name, **(account | settings))
        assert made.tsdb_url is not None
        return SharedDatabase(made, made.tsdb_url, epoch=epoch)

    return make


def follow(where: SharedDatabase) -> Stream:
    """Follow a stream from 100 to 600."""
    return Stream(where, Source("a"), None).go_to(100).read(*DDL).go_to(600)


def columns(where: SharedDatabase, begin: int) -> str:
    """The names of shop.t's columns as another server knows them, `today?` if it does not."""
    return Stream(where, Source("today", seen=9000), Cursor.at(place(begin))).columns(begin)


def test_what_one_server_has_followed_another_one_knows(share: Shared) -> None:
    follow(share("a")).stop()
    found = [(at, columns(share("b", 2), at)) for at in (90, 100, 200, 300, 500, 600, 610)]
    assert found == [(90, "today?"), (100, "a"), (200, "b"), (300, "c"), (500, "d"), (600, "d"), (610, "today?")]


def test_another_server_goes_on_where_the_first_one_ended(share: Shared) -> None:
    follow(share("a")).stop()
    other = Stream(share("b", 2), Source("x", seen=900), Cursor.at(place(450)))
    other.read(DDL[-1], (700, "ALTER TABLE t CHANGE d e INT")).go_to(800).stop()
    assert [columns(share("a", 3), at) for at in (250, 550, 750)] == ["b", "d", "e"]
    (stretch,) = History(share("a", 3), writes=False).stretches()
    assert [it.place.begin for it in History(share("a", 3), writes=False).versions(stretch)] == [
        100, 200, 300, 400, 500, 700,
    ]  # fmt: skip


def test_after_a_kill_it_is_known_how_far_it_goes_at_least(share: Shared) -> None:
    """The rest is read again. Readers of the server itself know the place exactly."""
    follow(share("a"))  # nothing is closed
    assert History(share("a"), writes=False).stretches()[-1].until == place(600)
    assert History(share("b"), writes=False).stretches()[-1].until == place(500)
    assert History(share("b"), writes=False).end_before(Cursor.at(place(600))) == place(500)
    assert columns(share("b", 2), 350) == "c"


def test_how_far_it_goes_is_noted_now_and_then(share: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_SHORT", 0.0)
    monkeypatch.setattr(shared, "_FAR", 1000)
    stream = follow(share("a"))
    for at, noted in ((1000, 500), (1200, 1200), (1300, 1200), (2300, 2300)):
        stream.go_to(at)
        assert History(share("b"), writes=False).stretches()[-1].until == place(noted)


class TestAServerThatHasLostTheDestination:
    def test_passes_no_statement(self, share: Shared) -> None:
        former = follow(share("a", 7))
        Stream(share("b", 8), Source("x", seen=900), Cursor.at(place(500))).go_to(650).stop()
        with pytest.raises(HistoryError, match="has written the history of example in epoch 8, this one has epoch 7"):
            former.read((700, "ALTER TABLE t CHANGE d e INT"))
        assert columns(share("b", 8), 640) == "d"

    def test_begins_no_other_history(self, share: Shared, caplog: pytest.LogCaptureFixture) -> None:
        follow(share("b", 8)).stop()
        former = Stream(share("a", 7), Source("today", seen=5000), Cursor.at(place(4000)))
        former.go_to(5100).stop()
        assert len(History(share("b", 8), writes=False).stretches()) == 1
        assert "delete its row in schema_owners" in caplog.text

    def test_keeps_nobody_out_when_it_stands_still_in_a_transaction(
        self, share: Shared, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        follow(share("a", 1)).stop()
        monkeypatch.setattr(shared, "_IDLE", 2)
        former = share("a", 1)
        begin = time.monotonic()

        def stand_still() -> None:
            with former.writing():
                other = Stream(share("b", 2), Source("x", seen=900), Cursor.at(place(600)))
                other.read((700, "ALTER TABLE t CHANGE d e INT")).stop()

        with pytest.raises(HistoryError, match="cannot be used"):
            stand_still()
        assert time.monotonic() - begin > 1
        assert columns(share("b", 2), 700) == "e"


class TestOneDatabaseForManyDestinations:
    @pytest.fixture
    def other(self, share: Shared) -> SharedDatabase:
        where = share("b", destination="other")
        Stream(where, Source("z"), None).go_to(100).read((150, "ALTER TABLE t CHANGE z y INT")).stop()
        return where

    def test_each_has_its_own(self, share: Shared, other: SharedDatabase) -> None:
        follow(share("a")).stop()
        assert [columns(share("a"), 120), columns(other, 120)] == ["a", "z"]

    def test_what_is_old_is_dropped_of_one(
        self, server: Server, schema: str, share: Shared, other: SharedDatabase
    ) -> None:
        follow(share("a")).stop()
        server.query("UPDATE schema_places SET time = 0", database=schema)
        history = History(share("a"), writes=True, keep=3600)
        assert not history.begin_at(Catalog(), None)
        history.begin(Catalog(), place(2000), "")
        assert [it.since.begin for it in history.stretches()] == [2000]
        assert columns(other, 120) == "z"
        assert server.query("SELECT COUNT(*) FROM schema_stretches", database=schema)[0] == (2,)

    def test_the_beginning_is_dropped_of_one(
        self, server: Server, schema: str, share: Shared, other: SharedDatabase
    ) -> None:
        follow(share("a")).stop()
        server.query(
            "UPDATE schema_places SET time = 0 WHERE place LIKE '%:100:0' OR place LIKE '%:200:0'", database=schema
        )
        where = share("a")
        history, catalog = History(where, writes=True, keep=3600), Catalog()
        assert history.begin_at(catalog, Cursor.at(place(600)))
        catalog.put("shop", "more", next(iter(catalog.tables()))[1])
        history.add(place(700), "", "a statement", catalog.changes)
        assert [(it, columns(share("b"), it)) for it in (150, 250, 350)] == [(150, "today?"), (250, "b"), (350, "c")]
        assert [columns(other, it) for it in (120, 150)] == ["z", "y"]

    def test_an_import_replaces_one(self, share: Shared, other: SharedDatabase) -> None:
        follow(share("a")).stop()
        history = History(share("a", None), writes=True)
        (stretch,) = history.stretches()
        kept = history.versions(stretch)[:2]
        (foreign,) = History(other, writes=False).stretches()
        history.replace([(stretch, kept), (foreign, [])])
        assert [it.number == stretch.number for it in history.stretches()] == [True, False]
        assert columns(share("a"), 350) == "b"
        assert columns(other, 150) == "y"


class TestTheDatabaseGoesAway:
    @pytest.fixture(autouse=True)
    def soon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(versions, "AGAIN", 0.0)
        monkeypatch.setattr(shared, "_SHORT", 0.0)
        monkeypatch.setattr(shared, "_LONG", 0.0)

    def test_rows_flow_and_statements_wait_until_it_is_back(
        self, server: Server, share: Shared, caplog: pytest.LogCaptureFixture
    ) -> None:
        with Proxy(("127.0.0.1", server.port)) as proxy:
            stream = follow(share("a", port=proxy.port))
            proxy.cut_after(0)
            stream.go_to(650)
            assert "the position of the stream is not recorded" in caplog.text
            with pytest.raises(HistoryError, match=r"canal\.instance\.tsdb\.url\) cannot be used"):
                stream.read((700, "ALTER TABLE t CHANGE d e INT"))
            proxy.heal()
            again = Stream(share("a", port=proxy.port), Source("x", seen=900), Cursor.at(place(650)))
            again.read((700, "ALTER TABLE t CHANGE d e INT")).go_to(800).stop()
        assert [columns(share("b", 2), it) for it in (640, 750)] == ["d", "e"]

    def test_the_status_says_so_while_nothing_is_written_too(self, server: Server, schema: str, tmp_path: Path) -> None:
        with Proxy(("127.0.0.1", server.port)) as proxy:
            account = {"tsdb_username": server.user, "tsdb_password": server.password}
            url = f"jdbc:mysql://127.0.0.1:{proxy.port}/{schema}"
            made = config(server, tmp_path, tsdb_url=url, **account, so_timeout=2, filter_regex=r"nobody\..*")
            with Reading(made) as reading:
                reading.wait(lambda: reading.running)
                assert reading.parser.status.history == ""
                proxy.cut()
                proxy.cut_after(0)
                reading.wait(lambda: f"{schema} at 127.0.0.1" in reading.parser.status.history)
                assert reading.running
                proxy.heal()
                reading.wait(lambda: not reading.parser.status.history)

    def test_a_connection_that_was_closed_while_nothing_was_written_is_no_trouble(
        self, share: Shared, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(shared, "_IDLE", 1)
        stream = follow(share("a"))
        time.sleep(1.5)
        with caplog.at_level(logging.WARNING):
            stream.read((700, "ALTER TABLE t CHANGE d e INT")).go_to(800).stop()
        assert caplog.messages == []
        assert columns(share("b", 2), 750) == "e"

    def test_a_history_begins_once_it_is_there(self, server: Server, share: Shared) -> None:
        with Proxy(("127.0.0.1", server.port)) as proxy:
            proxy.cut_after(0)
            stream = Stream(share("a", port=proxy.port), Source("a"), None)
            stream.go_to(100).read(*DDL[:1]).go_to(250)
            proxy.heal()
            stream.read(*DDL[1:]).go_to(600).stop()
        assert [columns(share("b", 2), it) for it in (240, 350, 600)] == ["today?", "c", "d"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"tsdb_password": "a-wrong-one"},
            r"check canal\.instance\.tsdb\.dbUsername and canal\.instance\.tsdb\.dbPassword",
        ),
        ({"tsdb_url": "jdbc:mysql://127.0.0.1:1/tables"}, "tables at 127.0.0.1:1 .* refused"),
    ],
)
def test_what_is_wrong_is_said_without_the_password(share: Shared, settings: dict[str, str], text: str) -> None:
    with pytest.raises(HistoryError, match=text) as caught:
        History(share("a", **settings), writes=True).stretches()
    assert "a-wrong-one" not in str(caught.value)


def test_a_check_says_when_the_database_cannot_be_used(server: Server, tmp_path: Path) -> None:
    settings = config(server, tmp_path, tsdb_url=f"jdbc:mysql://127.0.0.1:{server.port}/nobody_made_it")
    with Examination(settings) as examination, pytest.raises(HistoryError, match="nobody_made_it at"):
        examination.check(is_replaced=False)


@pytest.mark.parametrize("url", ["x", "jdbc:mysql://db", "jdbc:mysql://db:port/tables", "jdbc:oracle://db/tables"])
def test_a_url_that_is_none_is_an_error(url: str) -> None:
    with pytest.raises(ValueError, match=r"jdbc:mysql://host:port/database|is not an address"):
        parse_history_url(url)


def test_without_a_url_or_with_that_of_canals_own_files_it_is_a_file(server: Server, tmp_path: Path) -> None:
    for url in ("", "jdbc:h2:/conf/example/h2;CACHE_SIZE=1000;MODE=MYSQL;"):
        assert open_history(config(server, tmp_path, tsdb_url=url), writes=True).stretches() == []
    assert not list(tmp_path.iterdir())
