"""What tables were at a place that the stream has passed, after a restart, and in another stream."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from sluice.instance.sources.mysql.decode.table_map import TableMap
from sluice.instance.sources.mysql.history import versions
from sluice.instance.sources.mysql.history.database import HistoryDatabase
from sluice.instance.sources.mysql.history.file import FileDatabase
from sluice.instance.sources.mysql.history.statements import Context
from sluice.instance.sources.mysql.history.tables import Catalog, Column, Database, Table
from sluice.instance.sources.mysql.history.versions import History
from sluice.instance.sources.mysql.schema import Schemas, Snapshot, TableSchema
from sluice.protocol.errors import HistoryError
from sluice.protocol.lexer import Dialect
from sluice.protocol.position import Position
from sluice.store.cursor import Cursor
from tests.unit.plans import table_map

MYSQL80 = Dialect((8, 0, 15), mariadb=False, charsets=frozenset({"utf8mb4", "latin1"}))
T1 = "11111111-1111-1111-1111-111111111111"


def place(begin: int, *, source: str = "a", created: int = 1) -> Position:
    return Position(source, "bin.000003", created, begin, 0)


class Source:
    """A source with one table, shop.t; `seen` is where its binlog ends when it is asked."""

    def __init__(self, *names: str, seen: int = 100) -> None:
        self.table = Table(tuple(Column(name, "int") for name in names), (names[0],), "latin1")
        self.seen = seen
        self.asked: list[str] = []

    def take(self) -> Snapshot:
        self.asked.append("*")
        shop = Database("latin1", {"t": self.table}, is_complete=True)
        return Snapshot({"shop": shop}, (3, self.seen), is_complete=True)

    def fetch(self, schema: str, table: str, timestamp: int) -> TableSchema:
        self.asked.append(f"{schema}.{table}")
        return TableSchema(self.table.source_columns(), altered=1 << 40, seen=(3, self.seen), table=self.table)


class Stream:
    """A parser that follows a binlog, and stops."""

    def __init__(
        self,
        where: Path | HistoryDatabase,
        source: Source,
        start: Cursor | None,
        *,
        writes: bool = True,
        keep: float = 0,
    ) -> None:
        self.executed = ""
        database = FileDatabase(where, writes=writes) if isinstance(where, Path) else where
        self.history = History(database, writes=writes, keep=keep)
        take = source.take if writes else None
        self.schemas = Schemas(
            source, MYSQL80, take=take, history=self.history, start=start, executed=lambda: self.executed
        )

    def read(self, *statements: tuple[int, str], of: str = "a") -> "Stream":
        """Read statements that end at these offsets."""
        for end, sql in statements:
            at = place(end - 10, source=of)
            self.schemas.settle(at)
            self.history.cover(at, lambda: self.executed)
            self.schemas.apply(sql, Context("shop"), at, place(end, source=of))
        return self

    def go_to(self, begin: int, of: str = "a") -> "Stream":
        """Come to a place."""
        self.schemas.settle(place(begin, source=of))
        self.history.cover(place(begin, source=of), lambda: self.executed)
        return self

    def columns(self, begin: int, of: str = "a") -> str:
        """The names of shop.t's columns in an event there, which has one."""
        at = place(begin, source=of)
        found = self.schemas.table(TableMap.parse(table_map((3, b""))), {}, 7, at)
        names = " ".join(it.name for it in found.columns)
        return f"{names}?" if found.is_younger(7, at) else names

    def stop(self) -> None:
        self.history.pause(self.executed)
        self.history.close()


DDL: Sequence[tuple[int, str]] = (
    (200, "ALTER TABLE t CHANGE a b INT"),
    (300, "ALTER TABLE t CHANGE b c INT"),
    (400, "DROP TABLE t"),
    (500, "CREATE TABLE t (d INT)"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a destination that has followed a stream from 100 to 600."""
    Stream(tmp_path, Source("a"), None).go_to(100).read(*DDL).go_to(600).stop()
    return tmp_path


@pytest.mark.parametrize(
    ("begin", "names"), [(100, "a"), (190, "a"), (200, "b"), (250, "b"), (300, "c"), (500, "d"), (600, "d")]
)
def test_a_stream_that_begins_again_anywhere_reads_with_the_columns_of_that_place(
    folder: Path, begin: int, names: str
) -> None:
    source = Source("today", seen=900)
    again = Stream(folder, source, Cursor.at(place(begin)))
    assert again.columns(begin) == names
    assert again.read(*(it for it in DDL if it[0] > begin)).columns(600) == "d"
    assert source.asked == []


@pytest.mark.parametrize("writes", [False, True])
def test_before_it_began_nothing_is_known_and_from_there_on_all(folder: Path, *, writes: bool) -> None:
    again = Stream(folder, Source("today", seen=900), Cursor.at(place(50)), writes=writes)
    assert again.columns(60) == "today?"
    again.read((80, "ALTER TABLE t CHANGE y z INT"))
    assert again.columns(90) == "today?"
    assert [change.kind for change in again.schemas.settle(place(100))] == ["all"]
    assert again.columns(190) == "a"
    assert again.read(*DDL[:2]).columns(350) == "c"
    assert again.read(*DDL[2:], (700, "ALTER TABLE t CHANGE d e INT")).columns(750) == "e"
    again.go_to(1000).stop()
    places = [550, *((700,) if writes else ())]
    found = [Stream(folder, Source("x", seen=2000), Cursor.at(place(it))).columns(it) for it in places]
    assert found == ["d", "e"][: len(places)]


def test_where_it_begins_again_all_is_known_again(folder: Path) -> None:
    """Between the two stretches a DDL may have been missed."""
    Stream(folder, Source("e", seen=900), Cursor.at(place(700))).go_to(950).stop()
    reader = Stream(folder, Source("today", seen=2000), Cursor.at(place(700)), writes=False)
    assert reader.columns(800) == "today?"
    assert reader.columns(950) == "e"


def test_where_the_stream_was_not_followed_nothing_is_known(folder: Path) -> None:
    """A DDL may have been there."""
    source = Source("today", seen=900)
    later = Stream(folder, source, Cursor.at(place(700)))
    assert later.columns(700) == "today?"
    assert later.columns(900) == "today"
    later.read((1000, "ALTER TABLE t CHANGE today tomorrow INT")).go_to(1100).stop()
    assert Stream(folder, Source("x", seen=2000), Cursor.at(place(1050))).columns(1050) == "tomorrow"
    assert Stream(folder, Source("x", seen=2000), Cursor.at(place(800))).columns(800) == "x?"
    assert Stream(folder, Source("x", seen=2000), Cursor.at(place(250))).columns(250) == "b"


def test_it_says_how_far_the_stream_was_followed_also_after_a_kill(tmp_path: Path) -> None:
    Stream(tmp_path, Source("a"), None).go_to(100).read(*DDL[:1]).go_to(250)  # nothing is closed
    assert Stream(tmp_path, Source("x", seen=900), Cursor.at(place(250))).columns(250) == "b"
    assert Stream(tmp_path, Source("x", seen=900), Cursor.at(place(251))).columns(251) == "x?"


def test_statements_that_are_read_again_are_noted_once(folder: Path) -> None:
    history = History(FileDatabase(folder, writes=False), writes=False)
    (stretch,) = history.stretches()
    before = history.versions(stretch)
    Stream(folder, Source("x", seen=900), Cursor.at(place(100))).read(*DDL).go_to(600).stop()
    assert history.versions(stretch) == before
    assert [(it.place.begin, it.sql) for it in before] == [(100, ""), *DDL]


def test_it_goes_on_where_it_ended(folder: Path) -> None:
    more = Stream(folder, Source("x", seen=900), Cursor.at(place(450)))
    more.read(DDL[-1], (700, "ALTER TABLE t CHANGE d e INT")).go_to(800).stop()
    assert [Stream(folder, Source("x"), Cursor.at(place(at))).columns(at) for at in (550, 750)] == ["d", "e"]


def test_a_parser_beside_that_of_the_destination_reads_and_notes_nothing(folder: Path) -> None:
    reader = Stream(folder, Source("x", seen=900), Cursor.at(place(150)), writes=False)
    assert reader.columns(150) == "a"
    assert reader.read(*DDL, (700, "ALTER TABLE t CHANGE d e INT")).columns(750) == "e"
    reader.stop()
    assert History(FileDatabase(folder, writes=False), writes=False).stretches()[-1].until == place(600)


def test_a_table_of_which_the_source_was_asked_is_noted_where_that_is_certain(tmp_path: Path) -> None:
    source = Source("a")
    first = Stream(tmp_path, source, None).go_to(100).read((200, "ALTER TABLE t nobody knows this"))
    source.seen = 300
    assert first.columns(250) == "a?"
    first.go_to(320).stop()
    other = Source("x", seen=900)
    again = Stream(tmp_path, other, Cursor.at(place(210)))
    assert again.columns(250) == "x?"
    assert again.columns(320) == "a"
    assert other.asked == ["shop.t"]


def test_the_same_names_of_files_after_a_reset_are_another_history(folder: Path) -> None:
    reset = Cursor.at(place(250, created=2))
    assert not History(FileDatabase(folder, writes=False), writes=False).begin_at(Catalog(), reset)


class TestAnotherSourceTakesOver:
    """The places of one say nothing of the other's; the GTID sets do."""

    def follow(self, folder: Path, *, kill: bool = False) -> None:
        first = Stream(folder, Source("a"), None)
        first.executed = f"{T1}:1-5"
        first.go_to(100)
        first.executed = f"{T1}:1-6"
        first.read(*DDL[:1]).go_to(250)
        if not kill:
            first.stop()
        saved = Cursor.at(place(250), f"{T1}:1-6")
        other = Stream(folder, Source("x", seen=9000), saved)
        other.executed = f"{T1}:1-6"
        other.go_to(4000, of="b")
        other.executed = f"{T1}:1-7"
        other.read((5000, "ALTER TABLE t CHANGE b c INT"), of="b").go_to(5100, of="b").stop()

    @pytest.mark.parametrize("kill", [False, True])
    def test_the_history_goes_on_there(self, tmp_path: Path, *, kill: bool) -> None:
        self.follow(tmp_path, kill=kill)
        found = [(place(4500, source="b"), "b"), (place(5050, source="b"), "c"), (place(150), "a"), (place(220), "b")]
        for at, names in found:
            stream = Stream(tmp_path, Source("x", seen=9000), Cursor.at(at))
            assert stream.columns(at.begin, of=at.source) == names

    def test_a_place_before_it_is_found_by_its_gtid_set(self, tmp_path: Path) -> None:
        self.follow(tmp_path)
        at = place(3500, source="b")
        assert Stream(tmp_path, Source("x", seen=9000), Cursor.at(at, f"{T1}:1-5")).columns(3500, of="b") == "a"
        assert Stream(tmp_path, Source("x", seen=9000), Cursor.at(at, f"{T1}:1-6")).columns(3500, of="b") == "b"
        assert Stream(tmp_path, Source("x", seen=9000), Cursor.at(at, f"{T1}:1-4")).columns(3500, of="b") == "x?"


def age(folder: Path, *, up_to: int) -> None:
    """Let what was noted up to a place be very old."""
    with sqlite3.connect(folder / "schema.db") as database:
        for number, text in database.execute("SELECT id, place FROM schema_places").fetchall():
            if Position.parse(text).begin <= up_to:
                database.execute("UPDATE schema_places SET time = 0 WHERE id = ?", (number,))


def test_parts_that_the_stream_has_left_are_dropped_after_their_time(folder: Path) -> None:
    age(folder, up_to=600)
    history = History(FileDatabase(folder, writes=True), writes=True, keep=3600)
    assert not history.begin_at(Catalog(), None)
    history.begin(Catalog(), place(2000), "")
    assert [it.since.begin for it in history.stretches()] == [2000]
    with sqlite3.connect(folder / "schema.db") as database:
        assert database.execute("SELECT COUNT(*) FROM schema_changes").fetchone() == (1,)


def test_the_beginning_of_a_stretch_is_dropped_after_its_time(folder: Path) -> None:
    age(folder, up_to=300)
    stream = Stream(folder, Source("x", seen=900), Cursor.at(place(600)), keep=3600)
    stream.read((700, "ALTER TABLE t CHANGE d e INT")).go_to(800).stop()
    history = History(FileDatabase(folder, writes=False), writes=False)
    (stretch,) = history.stretches()
    assert [it.place.begin for it in history.versions(stretch)] == [300, 400, 500, 700]
    found = [Stream(folder, Source("x", seen=900), Cursor.at(place(at))).columns(at) for at in (250, 350, 550, 750)]
    assert found == ["x?", "c", "d", "e"]


def test_a_clock_that_was_set_back_drops_nothing_that_is_needed(folder: Path) -> None:
    with sqlite3.connect(folder / "schema.db") as database:
        database.execute("UPDATE schema_places SET time = 0 WHERE place LIKE '%:400:0'")
    stream = Stream(folder, Source("x", seen=900), Cursor.at(place(600)), keep=3600)
    stream.read((700, "ALTER TABLE t CHANGE d e INT")).go_to(800).stop()
    found = [Stream(folder, Source("x", seen=900), Cursor.at(place(at))).columns(at) for at in (150, 250, 350, 750)]
    assert found == ["a", "b", "c", "e"]


def test_only_the_owner_may_read_it(folder: Path) -> None:
    assert {it.stat().st_mode & 0o777 for it in folder.iterdir()} == {0o600}


FORMAT_1 = """
CREATE TABLE stretches (id INTEGER PRIMARY KEY, since TEXT, gtids TEXT, until TEXT, until_gtids TEXT);
CREATE TABLE places (id INTEGER PRIMARY KEY, stretch INTEGER, place TEXT, gtids TEXT, sql TEXT, time REAL);
CREATE TABLE changes (place INTEGER, kind TEXT, db TEXT, tbl TEXT, body TEXT);
INSERT INTO stretches SELECT id, since, gtids, until, until_gtids FROM schema_stretches;
INSERT INTO places SELECT id, stretch, place, gtids, statement, time FROM schema_places;
INSERT INTO changes SELECT place, kind, db, tbl, body FROM schema_changes ORDER BY id;
DROP TABLE schema_stretches;
DROP TABLE schema_places;
DROP TABLE schema_changes;
CREATE INDEX changes_of_places ON changes (place);
PRAGMA user_version = 1;
"""


def test_a_file_of_an_earlier_version_goes_on(folder: Path) -> None:
    with sqlite3.connect(folder / "schema.db") as database:
        database.executescript(FORMAT_1)
    with pytest.raises(HistoryError, match="of an earlier version of Sluice: start the server once, to renew it"):
        History(FileDatabase(folder, writes=False), writes=False).stretches()
    found = [Stream(folder, Source("x", seen=900), Cursor.at(place(at))).columns(at) for at in (150, 250, 600)]
    assert found == ["a", "b", "d"]
    stream = Stream(folder, Source("x", seen=900), Cursor.at(place(600)))
    stream.read((700, "ALTER TABLE t CHANGE d e INT")).go_to(800).stop()
    assert Stream(folder, Source("x", seen=900), Cursor.at(place(750))).columns(750) == "e"


@pytest.fixture(params=["damaged", "of a later version"])
def unusable(request: pytest.FixtureRequest, folder: Path) -> Path:
    if request.param == "damaged":
        (folder / "schema.db").write_bytes(b"?" * 4096)
    else:
        with closing(sqlite3.connect(folder / "schema.db")) as database:
            database.execute("PRAGMA user_version = 99")
    return folder


def test_a_file_that_cannot_be_used_is_an_error_that_names_it(unusable: Path) -> None:
    with pytest.raises(HistoryError, match=r"schema\.db (cannot be used|is of a later version of Sluice \(99\))"):
        History(FileDatabase(unusable, writes=True), writes=True).stretches()


def test_with_a_file_that_cannot_be_used_the_stream_goes_on_without_a_history(
    unusable: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = (unusable / "schema.db").read_bytes()
    stream = Stream(unusable, Source("today", seen=300), Cursor.at(place(250)))
    assert stream.columns(250) == "today?"
    stream.go_to(310).read((400, "ALTER TABLE t CHANGE today later INT"))
    assert stream.columns(410) == "later"
    stream.stop()
    assert [it.partition(":")[0] for it in caplog.messages] == [
        "nothing is known of earlier tables",
        "changes of tables are not recorded, until the next attempt in a minute",
    ]
    assert (unusable / "schema.db").read_bytes() == before


class TestTheDiskIsFull:
    """As sqlite3 says it: a page more than the file may have."""

    def fill(self, stream: Stream, *, more: int = 0) -> None:
        with stream.history._database.reading() as session:
            assert session is not None
            ((pages,),) = session.execute("PRAGMA page_count").fetchall()
            session.execute(f"PRAGMA max_page_count = {pages + more}")

    def test_nothing_passes_a_statement_that_cannot_be_noted(self, folder: Path) -> None:
        stream = Stream(folder, Source("x", seen=900), Cursor.at(place(600)))
        self.fill(stream)
        with pytest.raises(HistoryError, match="is full"):
            stream.read((700, f"ALTER TABLE t CHANGE d {'e' * 60} INT COMMENT '{'x' * 90_000}'"))
        found = [Stream(folder, Source("x", seen=900), Cursor.at(place(at))).columns(at) for at in (690, 700)]
        assert found == ["d", "x?"]

    def test_rows_flow(self, folder: Path) -> None:
        stream = Stream(folder, Source("x", seen=900), Cursor.at(place(600)))
        self.fill(stream)
        stream.executed = ",".join(f"{T1}:{number}" for number in range(1, 20_000, 2))
        stream.go_to(650).stop()
        assert Stream(folder, Source("x", seen=900), Cursor.at(place(650))).columns(650) == "d"

    def test_once_it_has_room_the_history_goes_on(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(versions, "AGAIN", 0.0)
        stream = Stream(folder, Source("x", seen=900), Cursor.at(place(600)))
        self.fill(stream)
        stream.executed = ",".join(f"{T1}:{number}" for number in range(1, 20_000, 2))
        stream.history.pause(stream.executed)
        self.fill(stream, more=1000)
        stream.read((700, "ALTER TABLE t CHANGE d e INT")).go_to(800).stop()
        assert Stream(folder, Source("x", seen=900), Cursor.at(place(750))).columns(750) == "e"
