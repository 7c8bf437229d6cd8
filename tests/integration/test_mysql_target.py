"""What an output of type mysql does on a real target: its place, former owners, DDL, and tables of all sorts."""

import threading
from collections.abc import Iterator

import pytest

from sluice.protocol.canal.entry_pb2 import Entry, EventType
from sluice.protocol.errors import RefusedError
from sluice.server.outputs.target import DeliveryError, RejectedError, SplitError
from tests.conftest import Database
from tests.integration.mysql_copy import BEGIN, END, Copy, Row, copy_of, place
from tests.servers import Server
from tests.waiting import eventually

pytestmark = pytest.mark.extended


@pytest.fixture
def copy(server: Server, database: Database) -> Iterator[Copy]:
    """A schema on each server, and an output that resumes there."""
    with copy_of(server, database(server)) as found:
        yield found


def test_changes_are_merged_by_key_and_their_place_is_kept_with_them(copy: Copy) -> None:
    copy.create("id INT PRIMARY KEY, u INT UNIQUE")
    with copy.opened() as target:
        one, two = {"id": 1, "u": 10}, {"id": 2, "u": 20}
        copy.send(target, BEGIN, copy.change("t", None, one), copy.change("t", None, two), END, end=100)
        swap = [
            copy.change("t", one, {"id": 1, "u": 30}),
            copy.change("t", two, {"id": 2, "u": 10}),
            copy.change("t", {"id": 1, "u": 30}, {"id": 1, "u": 20}),
        ]
        moved = copy.change("t", {"id": 2, "u": 10}, {"id": 3, "u": 10})
        copy.send(target, BEGIN, *swap, END, BEGIN, moved, END, end=200)
    assert copy.rows() == [(1, 20), (3, 10)]
    assert copy.target().open(copy.memory, "", 2) == place(200)


def test_the_number_of_the_place_is_kept_by_which_a_restored_target_is_noticed(copy: Copy) -> None:
    copy.create("id INT PRIMARY KEY")
    with copy.opened() as target:
        prepared = copy.prepare(target, BEGIN, copy.change("t", None, {"id": 1}), END)
        target.send([prepared], place(100)._replace(number=7))
    assert copy.target().open(copy.memory, "", 2) == place(100)._replace(number=7)


def test_an_output_with_the_longest_name_keeps_its_place(copy: Copy) -> None:
    target = copy.target()
    target._progress.job = f"{'d' * 200}/{'o' * 64}"
    target.open("", "", 1)
    try:
        target.send([copy.prepare(target, BEGIN, END)], place(100))
    finally:
        target.close()
    assert copy.server.query(f"SELECT job FROM {copy.progress}.sluice_output") == [(target._progress.job,)]


def test_a_part_of_a_transaction_is_seen_only_when_it_ends(copy: Copy) -> None:
    copy.create("id INT PRIMARY KEY")
    with copy.opened() as target:
        copy.send(target, BEGIN, copy.change("t", None, {"id": 1}), END, BEGIN, end=100, n=1)
        copy.send(target, copy.change("t", None, {"id": 2}), end=100, n=2)
        assert copy.rows() == [(1,)]
    with copy.opened(2) as target:
        assert copy.rows() == [(1,)]
        copy.send(target, BEGIN, copy.change("t", None, {"id": 2}), end=100, n=2)
        copy.send(target, copy.change("t", None, {"id": 3}), END, end=200)
    assert copy.rows() == [(1,), (2,), (3,)]
    assert copy.target().open(copy.memory, "", 3) == place(200)


def test_a_former_owner_is_ended_and_cannot_commit(copy: Copy) -> None:
    copy.create("id INT PRIMARY KEY")
    with copy.opened(1) as former:
        copy.send(former, BEGIN, copy.change("t", None, {"id": 1}), end=0, n=2)  # it holds the row
        with copy.opened(2) as target:
            copy.send(target, BEGIN, copy.change("t", None, {"id": 1}), END, end=100)
            with pytest.raises(DeliveryError):
                copy.send(former, copy.change("t", None, {"id": 2}), END, end=100)
    assert copy.rows() == [(1,)]
    with pytest.raises(RejectedError, match="another server has the destination"):
        copy.target().open(copy.memory, "", 1)


def test_outputs_of_one_name_with_progress_in_two_schemas_leave_each_other_alone(copy: Copy) -> None:
    copy.create("id INT PRIMARY KEY")
    with copy_of(copy.server, copy.schema) as other:
        with copy.opened() as target, other.opened() as another:
            copy.send(target, BEGIN, copy.change("t", None, {"id": 1}), END, end=100)
            other.send(another, BEGIN, other.change("t", None, {"id": 2}), END, end=200)
        assert other.target().open(other.memory, "", 2) == place(200)
    assert copy.rows() == [(1,), (2,)]
    assert copy.target().open(copy.memory, "", 2) == place(100)


def test_rows_without_a_key_are_found_by_all_columns_or_stop_the_output(copy: Copy) -> None:
    copy.create("id INT, v INT")
    row, other = {"id": 1, "v": None}, {"id": 1, "v": 5}

    def change(before: Row | None, after: Row | None) -> Entry:
        return copy.change("t", before, after, key=())

    with copy.opened() as target:
        copy.send(target, BEGIN, change(None, row), change(None, row), change(row, other), END, end=100)
        assert copy.rows() == [(1, 5), (1, None)]
        with pytest.raises(RejectedError, match="does not have a row that"):
            copy.send(target, BEGIN, change({"id": 2, "v": 2}, None), END, end=200)


def test_foreign_keys_act_on_the_target_as_they_did_on_the_source(copy: Copy) -> None:
    copy.create("id INT PRIMARY KEY, v INT", "parent")
    copy.create(
        f"id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES {copy.schema}.parent (id) ON DELETE CASCADE ON UPDATE"
        " CASCADE",
        "child",
    )
    with copy.opened() as target:
        parents = [copy.change("parent", None, {"id": it, "v": 0}) for it in (1, 2)]
        children = [copy.change("child", None, {"id": it * 10, "p": it}) for it in (1, 2)]
        copy.send(target, BEGIN, *parents, *children, END, end=100)
        changed = copy.change("parent", {"id": 1, "v": 0}, {"id": 1, "v": 1})
        moved = copy.change("parent", {"id": 1, "v": 1}, {"id": 3, "v": 1})
        gone = copy.change("parent", {"id": 2, "v": 0}, None)
        copy.send(target, BEGIN, changed, moved, gone, END, end=200)
    assert copy.rows("parent") == [(3, 1)]
    assert copy.rows("child") == [(10, 3)]


def test_what_a_foreign_key_without_an_action_refers_to_is_there_when_a_row_is_repeated(copy: Copy) -> None:
    copy.create("id INT PRIMARY KEY", "parent")
    copy.create("id INT PRIMARY KEY", "kind")
    copy.create(
        f"id INT PRIMARY KEY, p INT, k INT, FOREIGN KEY (p) REFERENCES {copy.schema}.parent (id) ON DELETE CASCADE,"
        f" FOREIGN KEY (k) REFERENCES {copy.schema}.kind (id)",
        "child",
    )
    kind, parent, child = {"id": 1}, {"id": 1}, {"id": 1, "p": 1, "k": 1}
    with copy.opened() as target:
        made = copy.change("kind", None, kind), copy.change("parent", None, parent), copy.change("child", None, child)
        gone = copy.change("child", child, None), copy.change("kind", kind, None)
        copy.send(target, BEGIN, *made, END, BEGIN, *gone, END, end=100)
    assert (copy.rows("parent"), copy.rows("kind"), copy.rows("child")) == ([(1,)], [], [])


def test_a_trigger_on_the_target_stops_the_output(copy: Copy) -> None:
    copy.create("id INT PRIMARY KEY")
    copy.server.query(f"CREATE TRIGGER {copy.schema}.twice BEFORE INSERT ON {copy.schema}.t FOR EACH ROW SET @a = 1")
    with copy.opened() as target, pytest.raises(RejectedError, match=r"has the trigger twice.*drop it there"):
        copy.send(target, BEGIN, copy.change("t", None, {"id": 1}), END, end=100)


def test_what_acts_on_the_target_is_noticed_when_it_is_added(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.sql.tables.LOOK", 0.0)
    monkeypatch.setattr("sluice.sql.tables.SHARE", 1e9)
    for table, columns in ("parent", "id INT PRIMARY KEY"), ("child", "id INT PRIMARY KEY, p INT"):
        copy.create(columns, table)
    parent, child = {"id": 1}, {"id": 1, "p": 1}
    key = f"FOREIGN KEY (p) REFERENCES {copy.schema}.parent (id) ON DELETE CASCADE"
    with copy.opened() as target:
        rows = copy.change("parent", None, parent), copy.change("child", None, child)
        copy.send(target, BEGIN, *rows, END, end=100)
        copy.server.query(f"ALTER TABLE {copy.schema}.child ADD {key}")
        copy.send(target, BEGIN, copy.change("parent", parent, None), END, end=200)
        assert copy.rows("child") == []
        copy.server.query(
            f"CREATE TRIGGER {copy.schema}.x BEFORE INSERT ON {copy.schema}.child FOR EACH ROW SET @a = 1"
        )
        with pytest.raises(RejectedError, match="has the trigger x"):
            copy.send(target, BEGIN, *rows, END, end=300)


def test_the_source_itself_is_refused_as_target(copy: Copy) -> None:
    with copy.opened() as target:
        found = copy.prepare(target, BEGIN, END)
        target._identity = "source"
        with pytest.raises(RejectedError, match="is the source itself"):
            target.send([found], place(100))


# --- DDL -------------------------------------------------------------------------------------------------------------


def test_a_ddl_is_refused_left_out_or_applied_by_itself(copy: Copy) -> None:
    copy.create("id INT PRIMARY KEY")
    statement = copy.ddl("ALTER TABLE t ADD v INT COMMENT 'a\\'b'")
    insert = copy.change("t", None, {"id": 1})
    with copy.opened() as target:
        with pytest.raises(RefusedError, match="a DDL is refused: ALTER TABLE t ADD v INT") as refused:
            copy.prepare(target, BEGIN, insert, END, statement)
        assert refused.value.entry == 3
    with copy.opened(2, ddl="ignore") as target:
        copy.send(target, BEGIN, insert, END, statement, end=100)
    with copy.opened(3, ddl="apply") as target:
        with pytest.raises(SplitError) as split:
            copy.prepare(target, BEGIN, insert, END, statement)
        assert split.value.entries == 3
        assert copy.prepare(target, statement).is_alone
        copy.send(target, statement, end=200)
        copy.send(target, BEGIN, copy.change("t", None, {"id": 2, "v": 2}), END, end=300)
    assert copy.rows() == [(1, None), (2, 2)]


def test_databases_that_the_target_does_not_have_stop_nothing(copy: Copy) -> None:
    with copy.opened() as target:
        for sql in ("CREATE DATABASE other", f"CREATE DATABASE {copy.schema}", "DROP DATABASE other"):
            assert copy.prepare(target, copy.ddl(sql, EventType.QUERY, "")).records == 0
        with pytest.raises(RefusedError, match="a DDL is refused: DROP DATABASE"):
            copy.prepare(target, copy.ddl(f"DROP DATABASE {copy.schema}", EventType.QUERY, ""))


def test_a_database_that_the_target_has_is_never_dropped(copy: Copy) -> None:
    with copy.opened(ddl="apply") as target:
        with pytest.raises(RefusedError, match="a DDL is refused: DROP DATABASE"):
            copy.prepare(target, copy.ddl(f"DROP DATABASE {copy.schema}", EventType.QUERY, ""))
        assert copy.prepare(target, copy.ddl("DROP DATABASE other", EventType.QUERY, "")).records == 0
        assert copy.prepare(target, copy.ddl("CREATE DATABASE other", EventType.QUERY, "")).is_alone


def test_a_database_that_the_target_has_is_not_created_again(copy: Copy) -> None:
    copy.create("id INT PRIMARY KEY")
    statement = copy.ddl(f"/* the shop */ CREATE DATABASE {copy.schema}", EventType.QUERY, "")
    with copy.opened(ddl="apply") as target:
        copy.send(target, statement, end=100)
    assert copy.target().open(copy.memory, "", 2) == place(100)


def interrupt(copy: Copy, entry: Entry, monkeypatch: pytest.MonkeyPatch, *, is_done: bool) -> None:
    """Begin a DDL, and lose the target before or after it was done."""
    with copy.opened(ddl="apply") as target, monkeypatch.context() as patch:
        if is_done:
            patch.setattr(target._progress, "move", lambda *_: target.abandon())
        else:
            patch.setattr("sluice.server.outputs.mysql.target.define", lambda *_: target.abandon())
        with pytest.raises(DeliveryError):
            copy.send(target, entry, end=100)


@pytest.mark.parametrize("is_done", [False, True])
def test_a_ddl_that_was_interrupted_is_done_once(copy: Copy, monkeypatch: pytest.MonkeyPatch, *, is_done: bool) -> None:
    copy.create("id INT PRIMARY KEY")
    statement = copy.ddl("ALTER TABLE t ADD v INT")
    interrupt(copy, statement, monkeypatch, is_done=is_done)
    with copy.opened(2, ddl="apply") as target:
        copy.send(target, statement, end=100)
        copy.send(target, BEGIN, copy.change("t", None, {"id": 1, "v": 1}), END, end=200)
    assert copy.rows() == [(1, 1)]


def test_another_change_of_the_schema_does_not_let_a_ddl_count_as_done(
    copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy.create("id INT PRIMARY KEY")
    statement = copy.ddl("ALTER TABLE t ADD v INT")
    interrupt(copy, statement, monkeypatch, is_done=False)
    copy.create("id INT PRIMARY KEY", "other")
    with copy.opened(2, ddl="apply") as target:
        copy.send(target, statement, end=100)
        copy.send(target, BEGIN, copy.change("t", None, {"id": 1, "v": 1}), END, end=200)
    assert copy.rows() == [(1, 1)]


def test_a_rename_that_was_interrupted_stops_the_output(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    copy.create("id INT PRIMARY KEY", "t")
    copy.create("id INT PRIMARY KEY", "u")
    statement = copy.ddl("RENAME TABLE t TO tmp, u TO t, tmp TO u", EventType.RENAME)
    interrupt(copy, statement, monkeypatch, is_done=True)
    with (
        copy.opened(2, ddl="apply") as target,
        pytest.raises(RejectedError, match=r"it is not known whether .* RENAME"),
    ):
        copy.send(target, statement, end=100)


# --- a snapshot ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("existing", "left"), [("merge", [(1,), (9,)]), ("replace", [(1,)])])
def test_a_snapshot_fills_a_table_with_rows_only_as_configured(
    copy: Copy, existing: str, left: list[tuple[int]]
) -> None:
    copy.create("id INT PRIMARY KEY")
    copy.server.query(f"INSERT INTO {copy.schema}.t VALUES (9)")
    with (
        copy.opened(start="snapshot") as target,
        pytest.raises(RejectedError, match="has rows already: empty it, or set"),
    ):
        copy.send(target, copy.read("t", {"id": 1}), end=0, snapshot=1)
    with copy.opened(2, start="snapshot", existing=existing) as target:
        copy.send(target, copy.read("t", {"id": 1}), end=0, snapshot=1)
    assert copy.rows() == left
    with copy.opened(3, start="snapshot", existing=existing) as target:
        copy.send(target, BEGIN, copy.change("t", None, {"id": 2}), END, end=100)
    assert copy.rows() == sorted([*left, (2,)])


def test_rows_of_a_table_without_a_key_are_all_that_it_has(copy: Copy) -> None:
    copy.create("id INT")
    copy.server.query(f"INSERT INTO {copy.schema}.t VALUES (9)")
    row = copy.change("t", None, {"id": 1}, key=())
    row.header.props.add(key="sluice.snapshot", value="1")
    with copy.opened(start="snapshot", existing="merge") as target:
        copy.send(target, copy.ddl("TRUNCATE TABLE t", EventType.TRUNCATE), row, end=0, snapshot=1)
    assert copy.rows() == [(1,)]


@pytest.mark.parametrize("rows", [0, 1])
def test_rows_that_are_there_are_not_deleted_for_a_table_without_a_key(copy: Copy, rows: int) -> None:
    copy.create("id INT")
    copy.server.query(f"INSERT INTO {copy.schema}.t VALUES (9)")
    row = copy.change("t", None, {"id": 1}, key=())
    row.header.props.add(key="sluice.snapshot", value="1")
    with copy.opened(start="snapshot") as target, pytest.raises(RejectedError, match="has rows already"):
        copy.send(target, copy.ddl("TRUNCATE TABLE t", EventType.TRUNCATE), *[row][:rows], end=0, snapshot=1)
    assert copy.rows() == [(9,)]


def test_a_stop_does_not_wait_for_a_locked_row(copy: Copy) -> None:
    copy.create("id INT PRIMARY KEY")
    with copy.server.connect(database=copy.schema, autocommit=False) as other, copy.opened() as target:
        other.cursor().execute("INSERT INTO t VALUES (1)")
        failed: list[BaseException] = []

        def send() -> None:
            try:
                copy.send(target, BEGIN, copy.change("t", None, {"id": 1}), END, end=100)
            except DeliveryError as error:
                failed.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        eventually(
            lambda: copy.server.query(
                "SELECT 1 FROM information_schema.processlist WHERE info LIKE 'REPLACE INTO%%' AND db IS NULL"
            )
        )
        target.abandon()
        thread.join(30)
        assert [str(it) for it in failed] == ["it was stopped"]
