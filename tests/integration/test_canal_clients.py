"""Clients that were written for Canal, unchanged, on a real server: Canal's own Java client, and canal-python."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.canal import stored
from tests.clients.java import JavaBatch, JavaConsumer
from tests.clients.led import ClientError
from tests.clients.python import PythonConsumer
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.servers import Server
from tests.waiting import eventually


class Shop:
    """A server with the destination `shop`, which reads a table `t` of (id, v)."""

    def __init__(self, sluice: Sluice, source: Server, schema: str) -> None:
        self.sluice = sluice
        self.schema = schema
        self._source = source
        self._next = 1

    @property
    def port(self) -> int:
        return self.sluice.canal_port

    def insert(self, count: int = 1) -> list[str]:
        """Insert rows, each in a transaction; what is to be delivered of them."""
        numbers = range(self._next, self._next + count)
        self._next += count
        for number in numbers:
            self._source.query("INSERT INTO t VALUES (%s, 'ü')", (number,), database=self.schema)
        return [f"INSERT {number},ü" for number in numbers]

    def insert_at_once(self, count: int) -> list[str]:
        """Insert rows by one statement."""
        numbers = range(self._next, self._next + count)
        self._next += count
        rows = ",".join(f"({number}, 'ü')" for number in numbers)
        self._source.query(f"INSERT INTO t VALUES {rows}", database=self.schema)
        return [f"INSERT {number},ü" for number in numbers]

    def marks(self, client_id: int = 1001) -> list[int]:
        (client,) = [it for it in self.sluice.destination()["clients"] if it["clientId"] == client_id]
        return list(client["marks"])


@pytest.fixture
def shop(tmp_path: Path, mariadb118: Server, database: Database) -> Iterator[Shop]:
    """Served with the password `secret` for `canal`."""
    with serving(tmp_path, mariadb118, database, canal__user="canal", canal__passwd=stored("secret")) as shop:
        yield shop


@pytest.fixture
def open_shop(tmp_path: Path, mariadb118: Server, database: Database) -> Iterator[Shop]:
    """Served without a password."""
    with serving(tmp_path, mariadb118, database) as shop:
        yield shop


@contextmanager
def serving(folder: Path, source: Server, database: Database, **settings: object) -> Iterator[Shop]:
    schema = database(source)
    source.query("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", database=schema)
    source.query("CREATE TABLE u LIKE t", database=schema)
    sluice = Sluice(folder)
    sluice.settings |= settings
    sluice.add("shop", source, canal__instance__filter__regex=rf"{schema}\\.[tu]", sluice__instance__timeZone="UTC")
    with sluice:
        sluice.wait_running()
        yield Shop(sluice, source, schema)


Connect = Callable[..., JavaConsumer]


@pytest.fixture(scope="module")
def process() -> Iterator[JavaConsumer]:
    """One Java process for all tests that do not kill it: it takes long to start."""
    with JavaConsumer() as consumer:
        yield consumer


@pytest.fixture
def java(shop: Shop, process: JavaConsumer) -> Connect:
    """Connects the Java client."""

    def connect(*, lazy: bool = False) -> JavaConsumer:
        process.connect(shop.port, user="canal", password="secret", lazy=lazy)
        return process

    return connect


def take(java: JavaConsumer, count: int) -> tuple[list[int], list[str]]:
    """Take batches, without ack, until `count` changes have come: the ids of the batches, and the changes."""
    ids: list[int] = []
    changes: list[str] = []

    def enough() -> bool:
        batch = java.get(1000, 1000)
        if batch.id != -1:
            ids.append(batch.id)
            changes.extend(batch.changes("t"))
        return len(changes) >= count

    eventually(enough, lambda: changes)
    return ids, changes


@pytest.mark.parametrize("lazy", [False, True])
def test_java_gets_and_acks_what_was_written(shop: Shop, java: Connect, lazy: bool) -> None:
    client = java(lazy=lazy)
    client.call("subscribe", r".*\..*")
    assert client.get(100) == JavaBatch(-1, [])
    written = shop.insert(3)
    ids, changes = take(client, 3)
    assert changes == written
    for batch_id in ids:
        client.call("ack", batch_id)
    eventually(lambda: not shop.marks())
    written = shop.insert()
    batch = client.get(100, 30, "SECONDS", ack=True)
    assert batch.changes("t") == written
    assert [row.type for row in batch.rows if row.type.startswith("TRANSACTION")] == [
        "TRANSACTIONBEGIN",
        "TRANSACTIONEND",
    ]
    eventually(lambda: not shop.marks())
    client.call("rollback")
    assert client.get(100).rows == []


@pytest.mark.extended
def test_java_has_several_batches_outstanding_and_acks_them_in_order(shop: Shop, java: Connect) -> None:
    client = java()
    client.call("subscribe", "")
    batches = []
    for _ in range(4):
        written = shop.insert()
        batch = client.get(1, 0)  # waits for a change as long as it takes
        while not batch.changes("t"):
            batch = client.get(1, 0)
        assert batch.changes("t") == written
        batches.append(batch.id)
    assert set(batches) <= set(shop.marks())
    for batch_id in shop.marks():
        client.call("ack", batch_id)
    eventually(lambda: not shop.marks())
    assert client.get(100) == JavaBatch(-1, [])


@pytest.mark.extended
def test_java_is_refused_an_ack_out_of_order_and_goes_on_after_it_has_reconnected(shop: Shop, java: Connect) -> None:
    client = java()
    client.call("subscribe", "")
    shop.insert()
    take(client, 1)
    shop.insert()
    take(client, 1)
    oldest, *_, newest = shop.marks()
    client.call("ack", newest)  # has no answer: the error is read as that of the next request
    with pytest.raises(ClientError, match=f"batchId:{newest} is not the firstly: .* batch {oldest}"):
        client.get(100)
    assert oldest in shop.marks()
    client.call("disconnect")
    client.connect(shop.port, user="canal", password="secret")  # which rolls back
    client.call("subscribe", "")
    assert take(client, 2)[1] == ["INSERT 1,ü", "INSERT 2,ü"]


def test_java_is_given_again_what_it_has_rolled_back(shop: Shop, java: Connect) -> None:
    client = java()
    client.call("subscribe", "")
    written = shop.insert(2)
    ids, changes = take(client, 2)
    client.call("rollback")
    again, repeated = take(client, 2)
    assert changes == repeated == written
    assert min(again) > max(ids)
    client.call("rollback", again[0])
    assert take(client, 2)[1] == written


@pytest.mark.extended
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_java_goes_on_after_a_restart_of_the_server(shop: Shop, java: Connect, end: str) -> None:
    client = java()
    client.call("subscribe", "")
    written = shop.insert(2)
    ids, changes = take(client, 2)
    assert changes == written
    for batch_id in ids:
        client.call("ack", batch_id)
    eventually(lambda: not shop.marks())
    acked = shop.sluice.destination()["clients"][0]["position"]
    eventually(lambda: str(shop.sluice.stored()) == acked)
    unacked = shop.insert(2)
    assert take(client, 2)[1] == unacked
    getattr(shop.sluice, end)()
    written_meanwhile = shop.insert()
    with pytest.raises(ClientError):
        client.get(100, 1000)
    shop.sluice.start()
    client.call("disconnect")
    client.connect(shop.port, user="canal", password="secret")
    client.call("subscribe", "")
    assert take(client, 3)[1] == unacked + written_meanwhile


@pytest.mark.extended
def test_java_for_clusters_finds_the_server_again_by_itself(shop: Shop, process: JavaConsumer) -> None:
    process.connect(shop.port, shop.port, user="canal", password="secret")
    process.call("subscribe", "")
    written = shop.insert()
    assert take(process, 1)[1] == written
    shop.sluice.stop()
    shop.sluice.start()
    assert take(process, 1)[1] == written


@pytest.mark.extended
def test_java_is_refused_with_a_wrong_password_and_an_unknown_destination(shop: Shop, process: JavaConsumer) -> None:
    with pytest.raises(ClientError, match="auth failed for user:canal"):
        process.connect(shop.port, user="canal", password="wrong")
    process.connect(shop.port, user="canal", password="secret", destination="nowhere")
    with pytest.raises(ClientError, match="destination:nowhere should start first"):
        process.call("subscribe", "")


@pytest.mark.extended
def test_java_survives_odd_orders(shop: Shop, java: Connect) -> None:
    client = java()
    with pytest.raises(ClientError, match="should subscribe first"):
        client.get(10)
    client.call("unsubscribe")
    client.call("subscribe", "")
    client.call("subscribe", "")
    client.call("ack", -1)
    client.call("rollback")
    client.call("rollback")
    written = shop.insert()
    assert take(client, 1)[1] == written
    client.call("ack", 5)  # of no get
    with pytest.raises(ClientError, match="batchId:5 is not exist"):
        client.get(10)
    client.call("disconnect")
    client = java()
    client.call("unsubscribe")
    with pytest.raises(ClientError, match="should subscribe first"):
        client.get(10)
    client.call("subscribe", "")
    shop.insert()
    assert "INSERT 2,ü" in take(client, 1)[1]
    client.call("disconnect")
    with pytest.raises(ClientError):
        client.get(10)


@pytest.mark.extended
def test_java_that_is_killed_while_it_waits_takes_nothing_from_the_next_client(shop: Shop, java: Connect) -> None:
    dying = JavaConsumer()
    dying.connect(shop.port, user="canal", password="secret")
    dying.call("subscribe", "")
    dying.begin("getWithoutAck", 1000, 0, "SECONDS")
    time.sleep(0.2)
    dying.kill()
    written = shop.insert()
    client = java()
    client.call("subscribe", "")
    assert take(client, 1)[1] == written


@pytest.mark.extended
def test_java_reads_a_batch_of_megabytes(shop: Shop, java: Connect) -> None:
    client = java(lazy=True)
    client.call("subscribe", "")
    rows = sum(len(shop.insert_at_once(1000)) for _ in range(20))
    ((_, found, _gets, _seconds),) = client.call("drain", 4000, rows)
    assert int(found) == rows


@pytest.fixture
def python() -> Iterator[PythonConsumer]:
    with PythonConsumer() as consumer:
        yield consumer


def pull(python: PythonConsumer, count: int) -> tuple[list[int], list[str]]:
    """Take batches, without ack, until `count` rows have come: the ids of the batches, and the rows."""
    ids: list[int] = []
    rows: list[str] = []

    def enough() -> bool:
        batch_id, found = python.get(1)
        ids.extend([batch_id] if batch_id else [])
        rows.extend(found)
        return len(rows) >= count

    eventually(enough, lambda: rows)
    return ids, rows


def test_canal_python_gets_rolls_back_and_acks_and_goes_on_after_a_restart(
    open_shop: Shop, python: PythonConsumer
) -> None:
    python.connect(open_shop.port, r".*\.t")
    written = open_shop.insert(2)
    ids, rows = pull(python, 2)
    assert rows == written
    assert set(ids) <= set(open_shop.marks(7))
    python.call("rollback", 0)
    again, repeated = pull(python, 2)
    assert repeated == written
    assert min(again) > max(ids)
    for batch_id in open_shop.marks(7):
        python.call("ack", batch_id)
    eventually(lambda: not open_shop.marks(7))
    unacked = open_shop.insert()
    assert pull(python, 1)[1] == unacked
    open_shop.sluice.stop()
    with pytest.raises(ClientError):
        python.get(1)
    open_shop.sluice.start()
    python.connect(open_shop.port, r".*\.t")
    assert pull(python, 1)[1] == unacked


@pytest.mark.extended
@pytest.mark.parametrize("shared", [False, True])
def test_filters_are_of_each_client_or_that_of_the_last_one_is_for_all(
    tmp_path: Path, mariadb118: Server, database: Database, process: JavaConsumer, python: PythonConsumer, shared: bool
) -> None:
    with serving(tmp_path, mariadb118, database, sluice__instance__sharedFilter=str(shared).lower()) as shop:
        process.connect(shop.port)
        process.call("subscribe", rf"{shop.schema}\.t")
        python.connect(shop.port, rf"{shop.schema}\.u")
        shop.insert()
        mariadb118.query("INSERT INTO u VALUES (7, 'u')", database=shop.schema)
        assert pull(python, 1)[1] == ["INSERT 7,u"]
        batch = process.get(100, 1000)
        assert (batch.changes("t"), batch.changes("u")) == (([], ["INSERT 7,u"]) if shared else (["INSERT 1,ü"], []))


@pytest.mark.extended
def test_canal_python_is_refused_acks_out_of_order_and_unknown_destinations(
    open_shop: Shop, python: PythonConsumer
) -> None:
    python.connect(open_shop.port, "")
    open_shop.insert()
    pull(python, 1)
    open_shop.insert()
    pull(python, 1)
    marks = open_shop.marks(7)
    python.call("ack", marks[-1])
    with pytest.raises(ClientError):
        python.get(1)
    assert open_shop.marks(7) == marks
    with pytest.raises(ClientError, match="destination:nowhere should start first"):
        python.call("connect", open_shop.port, "", 7, "nowhere", "")


@pytest.mark.extended
def test_canal_python_cannot_log_in_where_a_password_is_wanted(shop: Shop, python: PythonConsumer) -> None:
    with pytest.raises(ClientError, match="Could not read bytes"):  # it sends the password as it is
        python.connect(shop.port, "", "secret")
    with pytest.raises(ClientError, match="auth failed for user:canal"):
        python.connect(shop.port, "")
