"""Transactions that do not depend on one another are applied at the same time, each once, as if one by one."""

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pymysql.constants import ER
from pymysql.err import OperationalError

from sluice.protocol.canal.entry_pb2 import Entry
from sluice.server.outputs.mysql.session import Session, Turns
from sluice.server.outputs.mysql.settings import Existing, SafeMode
from sluice.server.outputs.mysql.target import MysqlTarget
from sluice.server.outputs.target import DeliveryError, RejectedError
from sluice.sql.database import Database as Account
from sluice.sql.tables import Tables
from sluice.store.cursor import SKIP
from tests.conftest import Database
from tests.effort import times
from tests.integration.mysql_copy import BEGIN, END, Copy, copy_of, place
from tests.servers import Server
from tests.waiting import eventually


@pytest.fixture
def copy(server: Server, database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Copy]:
    """An output that applies each transaction by itself, and expects no rows that are there already."""
    monkeypatch.setattr("sluice.server.outputs.mysql.units.SIZE", 1)
    with copy_of(server, database(server), safe_mode="never", workers=8) as found:
        yield found


def transactions(*changes: Entry | tuple[Entry, ...]) -> list[Entry]:
    """One transaction for each of them."""
    return [it for some in changes for it in (BEGIN, *(some if isinstance(some, tuple) else (some,)), END)]


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_transaction_waits_only_for_those_that_it_depends_on(copy: Copy) -> None:
    # INSERT of rows 3 and 4, INSERT of 5 and 2, UPDATE of 3: the third waits for the first, and not for the second.
    copy.create("id INT PRIMARY KEY, v INT")
    one, two, three, four, five = ({"id": it, "v": 0} for it in range(1, 6))
    sql = transactions(
        (copy.change("t", None, three), copy.change("t", None, four)),
        (copy.change("t", None, five), copy.change("t", None, two)),
        copy.change("t", three, {"id": 3, "v": 1}),
        copy.change("t", None, one),
    )
    with (
        copy.server.connect(database=copy.schema, autocommit=False) as other,
        copy.opened(preserve_order=False) as target,
    ):
        other.cursor().execute("INSERT INTO t VALUES (5, 9)")
        sending = in_thread(lambda: copy.send(target, *sql, end=100))
        eventually(lambda: copy.rows() == [(1, 0), (3, 1), (4, 0)], copy.rows)
        other.rollback()
        sending.join(60)
    assert copy.rows() == [(1, 0), (2, 0), (3, 1), (4, 0), (5, 0)]
    assert copy.target().open(copy.memory, "", 2) == place(100)


def test_the_target_is_always_as_the_source_was_at_one_moment(copy: Copy) -> None:
    count = times(30, 300)
    for table in "abc":
        copy.create("id INT PRIMARY KEY", table)
    changes = transactions(*(copy.change("abc"[number % 3], None, {"id": number}) for number in range(count)))
    seen: list[tuple[int, int]] = []
    with copy.opened() as target:
        sending = in_thread(lambda: copy.send(target, *changes, end=100))
        union = " UNION ALL ".join(f"SELECT id FROM {copy.schema}.{table}" for table in "abc")
        while sending.is_alive():
            seen += copy.server.query(f"SELECT COUNT(*), COALESCE(MAX(id), -1) + 1 FROM ({union}) found")
    assert all(rows == last for rows, last in seen), seen
    assert len([row for table in "abc" for row in copy.rows(table)]) == count


def test_two_changes_of_a_row_are_applied_in_their_order(copy: Copy) -> None:
    copy.create("id INT PRIMARY KEY, v INT")
    rows = [{"id": it, "v": 0} for it in range(8)]
    deletes = [copy.change("t", it, None) for it in rows]
    replaces = [copy.change("t", None, it | {"v": 1}) for it in rows]
    pairs = [it for pair in zip(deletes, replaces, strict=True) for it in pair]
    with copy.opened(preserve_order=False) as target:
        copy.send(target, *transactions(tuple(copy.change("t", None, it) for it in rows)), end=100)
        copy.send(target, *transactions(*pairs), end=200)
    assert copy.rows() == sorted(((it, 1) for it in range(8)), key=repr)


ASCII, MORE = ["a", "B", "b ", "cafe", "x"], ["cafe", "café", "CAFÉ", "ß", "ss", "x"]


@pytest.mark.parametrize(
    ("texts", "safe_mode", "size"),
    [(ASCII, "never", 1), (ASCII, "always", 1), (MORE, "never", 1), (ASCII, "never", 2000), (MORE, "always", 2000)],
)
def test_values_of_unique_keys_pass_from_row_to_row_as_at_the_source(
    copy: Copy, monkeypatch: pytest.MonkeyPatch, texts: list[str], safe_mode: str, size: int
) -> None:
    monkeypatch.setattr("sluice.server.outputs.mysql.units.SIZE", size)
    text = "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci UNIQUE"
    copy.create(f"id INT PRIMARY KEY, u {text}, w INT UNIQUE, v INT")
    chance, source = random.Random(7), Source(copy)
    changes = transactions(*(source.change(chance, texts) for _ in range(times(40, 1000))))
    with copy.opened(preserve_order=False, safe_mode=safe_mode) as target:
        copy.send(target, *changes, end=100)
    assert copy.rows() == sorted(((key, *row) for key, row in source.rows.items()), key=repr)


class Source:
    """A table with unique keys, as it is at a source whose collation takes all these texts for one another."""

    def __init__(self, copy: Copy) -> None:
        self._copy = copy
        self.rows: dict[int, tuple[str | None, int | None, int]] = {}
        self.changes = 0

    def change(self, chance: random.Random, texts: list[str]) -> Entry:
        """Change the one row that has a text, or another one; its number becomes one that no other row has."""
        key, text = chance.randrange(6), chance.choice([*texts, None])
        if text is not None:
            key = next((it for it, (u, *_) in self.rows.items() if u is not None), key)
        before = self._row(key)
        self.changes += 1
        if before is not None and chance.random() < 0.4:
            del self.rows[key]
        else:
            free = {*range(8)} - {w for it, (_, w, _) in self.rows.items() if it != key}
            self.rows[key] = text, chance.choice([*free, None]), self.changes
        return self._copy.change("t", before, self._row(key))

    def _row(self, key: int) -> dict[str, object] | None:
        return dict(zip(("id", "u", "w", "v"), (key, *self.rows[key]), strict=True)) if key in self.rows else None


def test_a_unique_key_of_a_column_that_is_not_sent_stays_unique(mariadb118: Server, database: Database) -> None:
    with copy_of(mariadb118, database(mariadb118), safe_mode="never", workers=8) as copy:
        copy.create("id INT PRIMARY KEY, v INT, g INT AS (v + id) VIRTUAL UNIQUE")
        copy.server.query(f"INSERT INTO {copy.schema}.t (id, v) VALUES (1, 0), (2, 0)")
        changes = [copy.change("t", {"id": it, "v": 0}, {"id": it, "v": 5}) for it in (2, 1)]
        with copy.opened() as target:
            copy.send(target, *transactions(*changes), end=100)
        assert copy.rows() == [(1, 5, 6), (2, 5, 7)]


def test_an_update_without_a_column_of_a_unique_key_names_that(copy: Copy) -> None:
    copy.create("id INT PRIMARY KEY, v INT, w INT UNIQUE")
    copy.server.query(f"INSERT INTO {copy.schema}.t VALUES (1, 0, 1)")
    update = copy.change("t", {"id": 1, "v": 0}, {"id": 1, "v": 5})
    with copy.opened() as target, pytest.raises(RejectedError, match="the change lacks w"):
        copy.send(target, *transactions(update), end=100)
    assert copy.rows() == [(1, 0, 1)]


def interrupt(copy: Copy, target: MysqlTarget, *entries: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send entries, and lose the target when all workers have committed."""
    with monkeypatch.context() as patch:
        patch.setattr(target._progress, "move", lambda *_: target.abandon())
        with pytest.raises(DeliveryError):
            copy.send(target, *entries, end=100)


def test_what_was_applied_before_a_crash_is_not_applied_again(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    copy.create("v INT")
    rows = [copy.change("t", None, {"v": number}, key=()) for number in range(5)]
    with copy.opened() as target:
        interrupt(copy, target, *transactions(*rows[:3]), monkeypatch=monkeypatch)
    assert copy.rows() == [(0,), (1,), (2,)]
    with copy.opened(2) as target:  # the first of them alone, the second in two parts, and what follows
        copy.send(target, *transactions(rows[0]), BEGIN, rows[1], end=1, n=2)
        assert copy.server.query(f"SELECT COUNT(*) FROM {copy.progress}.sluice_output_applied") == [(2,)]
        copy.send(target, END, *transactions(*rows[2:]), end=100, begin=1)
    assert copy.rows() == [(0,), (1,), (2,), (3,), (4,)]
    assert copy.server.query(f"SELECT * FROM {copy.progress}.sluice_output_applied") == []
    assert copy.target().open(copy.memory, "", 3) == place(100)


def test_what_was_applied_is_forgotten_once_it_has_passed_also_transactions_without_rows(
    copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.server.outputs.mysql.units.SIZE", 64 << 10)
    copy.create("id INT PRIMARY KEY")
    rows = [copy.change("t", None, {"id": number}) for number in range(3)]
    with copy.opened() as target:
        first = copy.prepare(target, *transactions(rows[0]), BEGIN, END)
        second = copy.prepare(target, *transactions(rows[1]), begin=2)
        with monkeypatch.context() as patch:
            patch.setattr(target._progress, "move", lambda *_: target.abandon())
            with pytest.raises(DeliveryError):
                target.send([first, second], place(3))
    with copy.opened(2) as target:
        copy.send(target, *transactions(rows[0]), end=1)
        copy.send(target, BEGIN, END, begin=1, end=2)
        copy.send(target, *transactions(rows[1], rows[2]), begin=2, end=4)
    assert copy.rows() == [(0,), (1,), (2,)]
    assert copy.server.query(f"SELECT * FROM {copy.progress}.sluice_output_applied") == []


def test_a_cursor_that_was_moved_by_hand_lets_all_be_applied_again(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    copy.create("v INT")
    rows = [copy.change("t", None, {"v": number}, key=()) for number in range(2)]
    with copy.opened() as target:
        interrupt(copy, target, *transactions(*rows), monkeypatch=monkeypatch)
    target = copy.target()
    assert target.open(copy.memory, "2 by hand", 2) is None
    try:
        copy.send(target, *transactions(*rows), end=100)
    finally:
        target.close()
    assert copy.rows() == [(0,), (0,), (1,), (1,)]


def test_a_skip_lets_nothing_be_applied_again(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    copy.create("v INT")
    rows = [copy.change("t", None, {"v": number}, key=()) for number in range(3)]
    with copy.opened() as target:
        interrupt(copy, target, *transactions(*rows[1:]), monkeypatch=monkeypatch)
    target = copy.target()
    assert target.open(copy.memory, f"2-by-hand{SKIP}", 2) is None
    try:
        copy.send(target, *transactions(*rows[1:]), end=100)
    finally:
        target.close()
    assert copy.rows() == [(1,), (2,)]
    assert copy.server.query(f"SELECT * FROM {copy.progress}.sluice_output_applied") == []


def test_another_source_without_gtids_is_refused_while_its_transactions_may_be_there(
    copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy.create("v INT")
    rows = [copy.change("t", None, {"v": number}, key=()) for number in range(2)]
    with copy.opened() as target:
        interrupt(copy, target, *transactions(*rows), monkeypatch=monkeypatch)
    with copy.opened(2) as target:
        found = copy.prepare(target, *transactions(*rows), server="other")
        with pytest.raises(RejectedError, match=r"that were read from source\. Without GTIDs they cannot be found"):
            target.send([found], place(100, server="other"))
    assert copy.rows() == [(0,), (1,)]


def test_all_of_a_source_is_done_before_another_one_without_gtids_begins(copy: Copy) -> None:
    copy.create("id INT PRIMARY KEY")
    with copy.opened() as target:
        first = copy.prepare(target, *transactions(*(copy.change("t", None, {"id": it}) for it in range(3))))
        other = transactions(copy.change("t", None, {"id": 1}), copy.change("t", None, {"id": 2}))
        second = copy.prepare(target, *other, server="other")
        with pytest.raises(RejectedError, match="refuses a change"):  # the rows are there
            target.send([first, second], place(100, server="other"))
    assert copy.target().open(copy.memory, "", 2) == place(3)


def test_a_former_owner_cannot_commit_by_any_of_its_sessions(copy: Copy) -> None:
    copy.create("id INT PRIMARY KEY")
    rows = [copy.change("t", None, {"id": number}) for number in range(4)]
    with copy.opened(1) as former:
        copy.send(former, *transactions(*rows[:2]), end=100)  # its workers have sessions
        with copy.opened(2) as target:
            with pytest.raises(DeliveryError):
                copy.send(former, *transactions(*rows[2:]), end=200)
            assert copy.rows() == [(0,), (1,)]
            copy.send(target, *transactions(*rows[2:]), end=200)
    assert copy.rows() == [(0,), (1,), (2,), (3,)]


def test_a_stop_does_not_wait_for_locked_rows(copy: Copy) -> None:
    copy.create("id INT PRIMARY KEY")
    failed: list[str] = []
    with copy.server.connect(database=copy.schema, autocommit=False) as other, copy.opened() as target:
        other.cursor().execute("INSERT INTO t VALUES (0)")

        def send() -> None:
            try:
                copy.send(target, *transactions(*(copy.change("t", None, {"id": it}) for it in range(3))), end=100)
            except DeliveryError as error:
                failed.append(str(error))

        sending = in_thread(send)
        waits = "SELECT 1 FROM information_schema.processlist WHERE info LIKE 'INSERT INTO%%' AND db IS NULL"
        eventually(lambda: copy.server.query(waits))
        target.abandon()
        sending.join(30)
    assert failed == ["it was stopped"]


@pytest.mark.parametrize(("safe_mode", "is_replaced"), [("never", False), ("auto", True), ("always", True)])
def test_a_row_in_the_place_of_a_new_one_is_replaced_or_stops_the_output(
    copy: Copy, safe_mode: str, *, is_replaced: bool
) -> None:
    copy.create("id INT PRIMARY KEY, u INT UNIQUE")
    with copy.opened() as target:
        copy.send(target, BEGIN, END, end=50)  # from here on its place is known
    copy.server.query(f"INSERT INTO {copy.schema}.t VALUES (9, 1)")
    changes = transactions(copy.change("t", None, {"id": 1, "u": 1}), copy.change("t", None, {"id": 2, "u": 2}))
    with copy.opened(2, safe_mode=safe_mode) as target:
        if is_replaced:
            copy.send(target, *changes, end=100)
        else:
            with pytest.raises(RejectedError, match="refuses a change of"):
                copy.send(target, *changes, end=100)
    assert copy.rows() == ([(1, 1), (2, 2)] if is_replaced else [(9, 1)])


def test_what_another_output_of_the_channel_has_applied_is_left_out_also_in_parts(copy: Copy) -> None:
    copy.create("id INT PRIMARY KEY")
    one, two, three = (copy.change("t", None, {"id": number}) for number in (1, 2, 3))
    ours, other = (copy.change("_drainer_repl_mark", None, {"id": 1, "channel_id": channel}) for channel in (7, 8))
    ours.header.schemaName = other.header.schemaName = "retl"
    try:
        with copy.opened(channel=7) as target:
            copy.send(target, BEGIN, ours, one, end=0, n=3)
            copy.send(target, two, END, BEGIN, other, three, END, end=100)
        assert copy.rows() == [(3,)]
        marks = copy.server.query("SELECT channel_id, val, channel_info FROM retl._drainer_repl_mark")
        assert marks == [(7, 1, "shop/copy")]
    finally:
        copy.server.query("DROP DATABASE IF EXISTS retl")


def test_a_snapshot_whose_transaction_is_repeated_deletes_the_rows_that_are_there_once(
    copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy.create("id INT PRIMARY KEY")
    copy.server.query(f"INSERT INTO {copy.schema}.t VALUES (9)")
    settings: dict[str, Any] = {"start": "snapshot", "existing": Existing.REPLACE, "safe_mode": "auto"}
    with copy.opened(**settings) as target:
        move, moved = target._progress.move, list[int]()

        def meet_a_deadlock_once(*arguments: Any) -> None:
            moved.append(1)
            if len(moved) == 1:
                raise OperationalError(ER.LOCK_DEADLOCK, "Deadlock found")
            move(*arguments)

        monkeypatch.setattr(target._progress, "move", meet_a_deadlock_once)
        copy.send(target, copy.read("t", {"id": 1}), end=100, snapshot=1)
    assert copy.rows() == [(1,)]
    with copy.opened(2, **settings) as target:
        copy.send(target, *transactions(copy.change("t", None, {"id": 2})), end=200, begin=100)
    assert copy.rows() == [(1,), (2,)]


# --- locks -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def session(copy: Copy) -> Iterator[Callable[[], Session]]:
    """Makes sessions with the target."""
    opened: list[Session] = []
    server = copy.server

    def make() -> Session:
        opened.append(Session(Account(server.host, server.port, server.user, server.password), "UTC", Tables()))
        return opened[-1]

    yield make
    for it in opened:
        it.close()


def test_a_later_transaction_gives_back_what_an_earlier_one_needs(copy: Copy, session: Callable[[], Session]) -> None:
    copy.create("id INT PRIMARY KEY, v INT")
    copy.server.query(f"INSERT INTO {copy.schema}.t VALUES (1, 0)")
    turns, earlier, later = Turns(), session(), session()
    written = threading.Event()
    done: list[int] = []

    def write(one: Session, number: int) -> Callable[[bool], None]:
        def work(_: bool) -> None:
            one.cursor.execute(f"UPDATE {copy.schema}.t SET v = v * 10 + {number}")
            done.append(number)
            written.set()

        return work

    thread = in_thread(lambda: later.transact(write(later, 2), SafeMode.NEVER, turns, 1))
    assert written.wait(30)
    earlier.transact(write(earlier, 1), SafeMode.NEVER, turns, 0)
    thread.join(30)
    assert copy.rows() == [(1, 12)]
    assert done == [2, 1, 2]


def test_a_transaction_that_meets_a_deadlock_is_run_again(copy: Copy, session: Callable[[], Session]) -> None:
    copy.create("id INT PRIMARY KEY, v INT")
    table = f"{copy.schema}.t"
    copy.server.query(f"INSERT INTO {table} VALUES " + ", ".join(f"({it}, 0)" for it in range(100)))
    ours, is_held, runs = session(), threading.Event(), list[int]()
    with copy.server.connect(autocommit=False) as other:
        cursor: Any = other.cursor()
        cursor.execute(f"UPDATE {table} SET v = 1 WHERE id > 1")  # the one that has changed less is the victim

        def work(_: bool) -> None:
            runs.append(len(runs))
            ours.cursor.execute(f"UPDATE {table} SET v = v + 10 WHERE id = 1")
            is_held.set()
            ours.cursor.execute(f"UPDATE {table} SET v = v + 10 WHERE id = 2")

        thread = in_thread(lambda: ours.transact(work, SafeMode.NEVER))
        assert is_held.wait(30)
        cursor.execute(f"UPDATE {table} SET v = 1 WHERE id = 1")
        other.commit()
        thread.join(60)
    assert len(runs) > 1
    assert copy.server.query(f"SELECT v FROM {table} WHERE id IN (1, 2)") == [(11,), (11,)]
