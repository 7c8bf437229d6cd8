"""`sluice tidb mysql` and `print` on a real broker and a real target: what is applied, once, whatever is killed."""

import itertools
import json
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sluice.client_sdk.tidb import OLDEST, TiDBReader
from sluice.client_sdk.tidb.message import Message, decode, file_of
from sluice.client_sdk.tidb.mirror import TiDBMirror
from sluice.protocol.errors import TargetError
from sluice.protocol.tidb.entries import EntryEncoder
from sluice.sql.database import Database
from tests import commands
from tests.conftest import Database as Schemas
from tests.servers import Server
from tests.servers.kafka import Kafka
from tests.tidb import Change, captured, ddl, dml, produce, table
from tests.waiting import eventually

_numbers = itertools.count(1)
FLOAT = 0.10000000149011612
TYPES = (
    "*id bigint, v varchar, d decimal, f float, g double, t datetime, b varbinary, j json, y year, s set, n tinyint,"
    " m time"
)


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """A new topic."""
    name = f"copy{next(_numbers)}_obinlog"
    kafka.create(name)
    return name


@pytest.fixture
def schema(mariadb118: Server, database: Schemas) -> Iterator[str]:
    """An empty schema on the target, and no places of jobs."""
    name = database(mariadb118)
    yield name
    mariadb118.query("DROP DATABASE IF EXISTS sluice")


def mirror_of(server: Server, job: str = "job", **options: Any) -> TiDBMirror:
    account = Database(server.host, server.port, server.user, server.password)
    return TiDBMirror(account, job, retry=10, **options)


def messages(*values: bytes) -> list[Message]:
    encoder = EntryEncoder(file_of("t"))
    return [decode(encoder, "t", offset, value) for offset, value in enumerate(values)]


def apply(server: Server, *values: bytes) -> None:
    """Apply each record by itself."""
    mirror = mirror_of(server)
    mirror.open()
    for message in messages(*values):
        assert is_new(mirror, message)
    mirror.close()


def is_new(mirror: TiDBMirror, message: Message) -> bool:
    """Apply a message; say whether that was not done before."""
    before = mirror.count
    mirror.apply([message])
    assert mirror.last is message
    return mirror.count > before


def rows(server: Server, schema: str, name: str = "t") -> list[tuple[Any, ...]]:
    return list(server.query(f"SELECT * FROM {schema}.{name} ORDER BY 1, 2"))


# --- rows ------------------------------------------------------------------------------------------------------------


def test_rows_of_every_type_arrive_and_go(server: Server, database: Schemas) -> None:
    schema = database(server)
    json_type = "LONGTEXT" if server.mariadb or server.name == "mysql56" else "JSON"
    server.query(
        f"CREATE TABLE {schema}.t (id BIGINT PRIMARY KEY, v VARCHAR(20), d DECIMAL(10,2), f FLOAT, g DOUBLE,"
        f" t DATETIME(3), b VARBINARY(20), j {json_type}, y YEAR, s SET('a','b','c'), n TINYINT, m TIME)"
    )
    values = (
        1,
        "x'\\é🐙",
        "-1.50",
        0.10000000149011612,
        0.1,
        "2026-11-24 10:00:00.123",
        b"\0'\xff",
        b'{"a": 1}',
        "2026",
    )
    first = (*values, 5, -3, "-12:30:00")
    empty = (2, *[None] * 11)
    changes: list[Change] = [(None, first), (None, empty)]
    apply(server, dml(1, table(schema, "t", TYPES.replace("s set", "s bigint"), changes)))
    (found, null) = server.query(
        "SELECT id, v, d, ROUND(f, 6), g, CAST(t AS CHAR), b, CAST(j AS CHAR), y, s, n, CAST(m AS CHAR)"
        f" FROM {schema}.t ORDER BY id"
    )
    shown = (1, "x'\\é🐙", "-1.50", 0.1, 0.1, "2026-11-24 10:00:00.123", b"\0'\xff", '{"a": 1}', 2026)
    assert [str(it) for it in found] == [str(it) for it in (*shown, "a,c", -3, "-12:30:00")]
    assert null == empty
    server.query("DELETE FROM sluice.sluice_tidb")
    apply(server, dml(2, table(schema, "t", TYPES.replace("s set", "s bigint"), [(it, None) for _, it in changes])))
    assert rows(server, schema) == []
    server.query("DROP DATABASE sluice")


def test_rows_without_a_key_are_found_by_all_columns_null_too(server: Server, database: Schemas) -> None:
    schema = database(server)
    json_type = "LONGTEXT" if server.mariadb or server.name == "mysql56" else "JSON"
    server.query(
        f"CREATE TABLE {schema}.t (id BIGINT, v VARCHAR(20), d DECIMAL(10,2), f FLOAT, g DOUBLE, t DATETIME(3),"
        f" b VARBINARY(20), j {json_type}, y YEAR, s SET('a','b','c'), n TINYINT, m TIME)"
    )
    values = (1, "a", "-1.50", FLOAT, 0.1, "2026-11-24 10:00:00.123", b"\0'\xff", b'{"a": 1}', "2026")
    full = (*values, 5, -3, "-12:30:00")
    other = (1, "A", *full[2:])  # equal by the collation
    empty = (None,) * 12
    types = TYPES.replace("s set", "s bigint").replace("*", "")

    def change(commit_ts: int, *changes: Change) -> bytes:
        return dml(commit_ts, table(schema, "t", types, changes))

    apply(
        server,
        change(1, (None, full), (None, full), (None, other), (None, empty), (None, empty)),
        change(2, (other, None), (empty, None)),
        change(3, (full, (2, *full[1:])), (empty, (None, "z", *empty[2:])), (full, None)),
    )
    found = server.query(f"SELECT id, v, n FROM {schema}.t ORDER BY v")
    assert list(found) == [(2, "a", -3), (None, "z", None)]
    server.query("DROP DATABASE sluice")


def test_changes_of_one_row_in_one_transaction_end_as_the_last(mariadb118: Server, schema: str) -> None:
    mariadb118.query(f"CREATE TABLE {schema}.t (id BIGINT PRIMARY KEY, v INT UNIQUE)")
    mariadb118.query(f"INSERT INTO {schema}.t VALUES (1, 10), (2, 20)")
    swap: list[Change] = [((1, 10), (1, 30)), ((2, 20), (2, 10)), ((1, 30), (1, 20)), (None, (3, 5)), ((3, 5), None)]
    apply(mariadb118, dml(1, table(schema, "t", "*id bigint, v int", swap)))
    assert rows(mariadb118, schema) == [(1, 20), (2, 10)]


def test_a_new_key_leaves_no_old_row(mariadb118: Server, schema: str) -> None:
    mariadb118.query(f"CREATE TABLE {schema}.t (id BIGINT PRIMARY KEY, v INT)")
    mariadb118.query(f"INSERT INTO {schema}.t VALUES (1, 10)")
    apply(mariadb118, dml(1, table(schema, "t", "*id bigint, v int", [((1, 10), (7, 10))])))
    assert rows(mariadb118, schema) == [(7, 10)]


def test_what_was_applied_is_not_applied_again(mariadb118: Server, schema: str) -> None:
    mariadb118.query(f"CREATE TABLE {schema}.t (id BIGINT, v INT)")
    found = messages(*(dml(number, table(schema, "t", "id bigint, v int", [(None, (1, 1))])) for number in (5, 6, 7)))
    for commit_ts, expected in ((0, [True, True, True]), (0, [False, False, False])):
        mirror = mirror_of(mariadb118)
        mirror.open(commit_ts)
        assert [is_new(mirror, it) for it in found] == expected
        mirror.close()
    assert len(rows(mariadb118, schema)) == 3
    mirror = mirror_of(mariadb118, "another job")
    assert mirror.open(6)[:2] == (6, -1)
    mirror.apply(found)  # two of them are done
    assert (mirror.count, mirror.last) == (1, found[-1])
    mirror.close()


def test_what_is_applied_at_once_is_one_transaction_but_for_a_ddl(mariadb118: Server, schema: str) -> None:
    mariadb118.query(f"CREATE TABLE {schema}.t (id BIGINT PRIMARY KEY, v INT UNIQUE)")
    mariadb118.query(f"CREATE TABLE {schema}.p (id BIGINT)")

    def change(commit_ts: int, *changes: Change) -> bytes:
        plain = table(schema, "p", "id bigint", [(None, (commit_ts,))])
        return dml(commit_ts, table(schema, "t", "*id bigint, v int", changes), plain)

    mirror = mirror_of(mariadb118)
    mirror.open()
    transact, places = mirror.target.transact, list[int]()

    def noted(work: Callable[..., Any]) -> Any:
        result = transact(work)
        places.append(place(mariadb118))
        return result

    mirror.target.transact = noted  # type: ignore[method-assign]
    found = messages(
        change(1, (None, (1, 10)), (None, (2, 20))),
        change(2, ((1, 10), (1, 30)), ((2, 20), (2, 10))),
        change(3, ((1, 30), None), (None, (3, 30))),
        ddl(4, schema, "ALTER TABLE `p` ADD COLUMN `w` INT;", "p"),
        dml(5, table(schema, "p", "id bigint, w int", [(None, (5, 5)), ((1, None), None)])),
    )
    mirror.apply(found)
    mirror.close()
    assert places == [3, 3, 3, 4, 5]  # of a DDL: what is noted, the statement, the place
    assert (mirror.count, mirror.last) == (5, found[-1])
    assert rows(mariadb118, schema) == [(2, 10), (3, 30)]
    assert rows(mariadb118, schema, "p") == [(2, None), (3, None), (5, 5)]


def test_a_slow_target_gets_fewer_rows_at_once(
    mariadb118: Server, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mariadb118.query(f"CREATE TABLE {schema}.t (id BIGINT PRIMARY KEY)")
    found = messages(*(dml(it, table(schema, "t", "*id bigint", [(None, (it,))])) for it in (1, 2, 3, 4)))
    mirror = mirror_of(mariadb118)
    mirror.open()
    most = [mirror.most_rows]
    for message, seconds in zip(found, (0, 0, 100, 100), strict=True):
        monkeypatch.setattr("sluice.client_sdk.tidb.mirror.SECONDS", seconds)
        mirror.apply([message])
        most.append(mirror.most_rows)
    mirror.close()
    assert most == [10_000, 5_000, 2_500, 5_000, 10_000]


def test_a_table_that_does_not_fit_is_an_error_that_names_it(mariadb118: Server, schema: str) -> None:
    mirror = mirror_of(mariadb118)
    mirror.open()
    (message,) = messages(dml(1, table(schema, "t", "*id bigint, v int", [(None, (1, 1))])))
    with pytest.raises(TargetError, match=rf"the target has no table {schema}\.t"):
        mirror.apply([message])
    mariadb118.query(f"CREATE TABLE {schema}.t (id BIGINT, v INT)")
    with pytest.raises(TargetError, match="has no primary key"):
        mirror.apply([message])
    mariadb118.query(f"ALTER TABLE {schema}.t ADD PRIMARY KEY (id)")
    assert is_new(mirror, message)
    mirror.close()


# --- statements ------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process was killed here."""


def killed(mirror: TiDBMirror, calls: int) -> None:
    """Have a mirror die at this number of calls from now on."""
    transact, left = mirror.target.transact, itertools.count(calls, -1)

    def counted(work: Callable[..., Any]) -> Any:
        if not next(left):
            raise Killed
        return transact(work)

    mirror.target.transact = counted  # type: ignore[method-assign]


@pytest.mark.parametrize("calls", [0, 1, 2])
@pytest.mark.parametrize(
    "sql", ["ALTER TABLE `t` ADD COLUMN `w` INT;", "CREATE TABLE `u` (`a` INT);", "TRUNCATE TABLE `t`;"]
)
def test_a_statement_is_not_repeated_after_a_kill_before_its_place_is_written(
    mariadb118: Server, schema: str, calls: int, sql: str
) -> None:
    mariadb118.query(f"CREATE TABLE {schema}.t (id BIGINT PRIMARY KEY, v INT)")
    mariadb118.query(f"INSERT INTO {schema}.t VALUES (1, 1)")
    (message,) = messages(ddl(9, schema, sql, "t"))
    mirror = mirror_of(mariadb118)
    mirror.open()
    killed(mirror, calls)
    with pytest.raises(Killed):
        mirror.apply([message])
    mirror.close()
    mirror = mirror_of(mariadb118)
    assert mirror.open()[::2] == (0, 9 if calls else 0)
    assert is_new(mirror, message)
    assert mirror.open() == (9, 0, 0, "")
    assert not is_new(mirror, message)
    mirror.close()
    assert len(mariadb118.query(f"SHOW COLUMNS FROM {schema}.t")) == 2 + ("ADD" in sql)
    assert len(rows(mariadb118, schema)) == ("TRUNCATE" not in sql)


def test_a_statement_that_the_target_refuses_goes_on_once_it_was_done_by_hand(mariadb118: Server, schema: str) -> None:
    mariadb118.query(f"CREATE TABLE {schema}.t (id BIGINT PRIMARY KEY)")
    (message,) = messages(ddl(9, schema, "ALTER TABLE `t` ADD COLUMN `w` NOTHING;", "t"))
    mirror = mirror_of(mariadb118)
    mirror.open()
    for _ in range(2):
        with pytest.raises(TargetError, match=r"refuses a statement of TiDB.*ADD COLUMN `w` NOTHING.*counts as done"):
            mirror.apply([message])
    mariadb118.query(f"ALTER TABLE {schema}.t ADD COLUMN w INT")
    assert is_new(mirror, message)
    mirror.close()


def test_a_job_runs_once_at_a_time(mariadb118: Server, schema: str) -> None:
    first = mirror_of(mariadb118)
    first.open()
    second = mirror_of(mariadb118)
    second.target.retry = 0.6
    with pytest.raises(TargetError, match="another session works under the name 'sluice tidb "):
        second.open()
    first.close()
    assert second.open().commit_ts == 0
    second.close()


# --- the commands ----------------------------------------------------------------------------------------------------


def command(kafka: Kafka, topic: str, *arguments: str) -> list[str]:
    return ["tidb", arguments[0], kafka.servers, "--topic", topic, *arguments[1:]]


def environment(mariadb118: Server) -> dict[str, str]:
    return {"SLUICE_TARGET_PASSWORD": mariadb118.password}


def address(mariadb118: Server) -> str:
    return f"mysql://{mariadb118.user}@{mariadb118.host}:{mariadb118.port}/?sslMode=DISABLED"


def test_what_a_drainer_wrote_makes_the_tables_that_tidb_had(kafka: Kafka, topic: str, mysql97: Server) -> None:
    produce(kafka, topic, [it.value for it in captured()])
    for name in ("shop", "gone", "sluice"):
        mysql97.query(f"DROP DATABASE IF EXISTS {name}")
    applied = commands.run(
        *command(kafka, topic, "mysql", "--to", address(mysql97), "--once"), environ=environment(mysql97)
    )
    assert applied.returncode == 0, applied.stderr
    assert f"65 applied, up to {captured()[-1].commit_ts} of 2026-11-21 " in applied.stderr
    assert {it for (it,) in mysql97.query("SHOW TABLES FROM shop")} == {
        *("orders2", "items", "nopk", "types", "part", "gen", "lk")
    }
    assert mysql97.query("SELECT COUNT(*), SUM(a) FROM shop.nopk") == [(1001, 500505)]
    assert mysql97.query("SELECT id, d FROM shop.part") == [(500, 9)]  # the other's partition was truncated
    assert mysql97.query("SELECT * FROM shop.gen") == [(1, 11, 22, 12)]
    assert [it for (it,) in mysql97.query("SELECT id FROM shop.orders2 ORDER BY 1")] == left_in("orders")
    for name in ("shop", "sluice"):
        mysql97.query(f"DROP DATABASE {name}")


def left_in(name: str) -> list[int]:
    """Return the ids that the records leave in a table, whatever it is called later."""
    ids: set[int] = set()
    with_names = [it for record in captured() for it in record.decoded.get("tables", ())]
    for found in (it for it in with_names if it["table"] in (name, f"{name}2")):
        for mutation in found["mutations"]:
            (number,) = mutation["row"][0].values()
            (ids.discard if mutation["type"] == "Delete" else ids.add)(number)
    return sorted(ids)


def test_print_shows_lines_for_people_and_for_programs(kafka: Kafka, topic: str) -> None:
    produce(kafka, topic, [it.value for it in captured()])
    shown = {
        form: commands.run(
            *command(kafka, topic, "print", "--offset", "oldest", "--limit", "9", *form), check=True
        ).stdout.splitlines()
        for form in ((), ("--rows",))
    }
    assert len(shown[()]) == len(shown[("--rows",)]) == 9
    assert "shop.orders INSERT id=1, customer='Ana', amount=10.50" in shown[()][8]
    assert shown[()][0].endswith("CREATE CREATE DATABASE `shop`")
    assert json.loads(shown[("--rows",)][8])["after"]["customer"] == "Ana"
    ended = commands.run(
        *command(kafka, topic, "print", "--commit-ts", str(captured()[-2].commit_ts), "--once"), check=True
    )
    assert ended.stdout.endswith("ERASE DROP DATABASE `gone`\n")


Row = tuple[int, ...]


def workload(schema: str, count: int, seed: int) -> tuple[list[bytes], dict[int, Row], list[Row]]:
    """Return records, and what they leave: rows by key of one table, and the rows of one without a key."""
    chance = random.Random(seed)
    width, each = 2, max(40, count // 50)
    keyed: dict[int, Row] = {}
    plain: list[Row] = []
    values = [
        ddl(1, schema, "CREATE TABLE `k` (`id` BIGINT PRIMARY KEY, `c1` INT);", "k"),
        ddl(2, schema, "CREATE TABLE `p` (`id` BIGINT, `c1` INT);", "p"),
    ]
    for commit_ts in range(3, count):
        if commit_ts % each < 2:  # one after the other
            name = "kp"[commit_ts % each]
            sql = f"ALTER TABLE `{name}` ADD COLUMN `c{width}` INT NOT NULL DEFAULT 0;"
            values.append(ddl(commit_ts, schema, sql, name))
            if name == "p":
                width += 1
                keyed = {key: (*it, 0) for key, it in keyed.items()}
                plain = [(*it, 0) for it in plain]
            continue
        columns = ", ".join(["id bigint", *(f"c{number} int" for number in range(1, width))])
        of_keyed: list[Change] = []
        of_plain: list[Change] = []
        for _ in range(chance.randrange(1, 6)):
            key = chance.randrange(40)
            row = (key, *(chance.randrange(100) for _ in range(width - 1)))
            old = keyed.get(key)
            if old is not None and chance.random() < 0.3:
                of_keyed.append((old, None))
                del keyed[key]
            else:
                of_keyed.append((old, row))
                keyed[key] = row
            gone = plain.pop(chance.randrange(len(plain))) if plain and chance.random() < 0.5 else None
            of_plain.append((gone, row))
            plain.append(row)
            if len(plain) > 200:  # each is searched for among all
                of_plain.append((plain.pop(chance.randrange(200)), None))
        values.append(
            dml(commit_ts, table(schema, "k", f"*{columns}", of_keyed), table(schema, "p", columns, of_plain))
        )
    return values, keyed, plain


def check_kills(kafka: Kafka, topic: str, target: Server, schema: str, kills: int, count: int) -> dict[str, list[Row]]:
    """Kill the command again and again; return the rows that the records leave in each table."""
    values, keyed, plain = workload(schema, count, kills)
    produce(kafka, topic, values)
    chance = random.Random(kills)
    run = command(kafka, topic, "mysql", "--to", address(target))
    for number in range(kills):
        with commands.Command(*run, environ=environment(target)) as running:
            before = place(target)
            eventually(lambda: place(target) != before or running.poll() is not None, f"a place after {before}")  # noqa: B023
            time.sleep(chance.uniform(0, 0.1))
            running.kill()
            assert running.wait() == -9, running.stderr and running.stderr.read()
        if place(target) >= count - 1:
            assert number > kills // 2, "there were too few records for the kills"
            break
    commands.run(*run, "--once", environ=environment(target), check=True, timeout=900)
    return {"k": sorted(keyed.values()), "p": sorted(plain)}


def sorted_rows(target: Server, schema: str) -> dict[str, list[Row]]:
    """Return the rows of each table."""
    return {name: sorted(rows(target, schema, name)) for name in "kp"}


def place(target: Server) -> int:
    """Return how far the only job is; -1 before it has a place."""
    if not target.query("SELECT 1 FROM information_schema.tables WHERE table_name = 'sluice_tidb'"):
        return -1
    return max((int(it) for (it,) in target.query("SELECT commit_ts FROM sluice.sluice_tidb")), default=-1)


SOAK = [pytest.mark.soak, pytest.mark.timeout(3600)]


@pytest.mark.parametrize(
    ("name", "kills", "records"),
    [
        pytest.param("mariadb118", 3, 400, marks=pytest.mark.timeout(300)),
        pytest.param("mysql97", 10, 4_000, marks=[pytest.mark.extended, pytest.mark.timeout(900)]),
        pytest.param("mariadb118", 50, 20_000, marks=SOAK),
        pytest.param("mysql97", 50, 20_000, marks=SOAK),
    ],
)
def test_kills_leave_the_tables_as_the_records_say(
    kafka: Kafka,
    topic: str,
    request: pytest.FixtureRequest,
    database: Schemas,
    name: str,
    kills: int,
    records: int,
) -> None:
    target: Server = request.getfixturevalue(name)
    schema = database(target)
    left = check_kills(kafka, topic, target, schema, kills, records)
    assert sorted_rows(target, schema) == left
    target.query("DROP DATABASE sluice")


def test_reader_and_mirror_agree_on_the_place(kafka: Kafka, topic: str, mariadb118: Server, schema: str) -> None:
    mariadb118.query(f"CREATE TABLE {schema}.t (id BIGINT PRIMARY KEY, v INT)")
    values = [dml(it, table(schema, "t", "*id bigint, v int", [(None, (it, it))])) for it in (10, 20, 30)]
    produce(kafka, topic, values[:2])
    mirror = mirror_of(mariadb118)
    mirror.open()
    with TiDBReader(kafka.servers, topic=topic, offset=OLDEST) as reader:
        mirror.apply(reader.take(10))
    assert mirror.open()[:2] == (20, 1)
    kafka.truncate(topic, 2)
    produce(kafka, topic, values[2:])
    with TiDBReader(kafka.servers, topic=topic, after=(1, 20), strict=True) as reader:
        assert [it.commit_ts for it in reader.take(10)] == [30]
    mirror.close()
