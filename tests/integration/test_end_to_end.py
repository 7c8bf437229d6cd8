"""From a real source to a consumer, the server a process between them, while whatever can break does."""

import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import pymysql
import pytest

from sluice.client_sdk import AsyncClient, Batch, Client, Snapshot
from sluice.client_sdk.calls import Limits
from sluice.protocol.errors import BadParameterError, UnknownBatchError, UnknownSnapshotError
from tests.commands import Command
from tests.conftest import Database
from tests.proxy import Proxy
from tests.servers import Server
from tests.servers.server import free_port
from tests.waiting import eventually

PAGES = Path(__file__).parents[2] / "docs" / "howto"
ROWS = 2000
SMALL = Limits(max_entries=50)


class Serving:
    """`sluice serve` on the one destination `example`; it keeps its port and its data when it is started again."""

    def __init__(self, folder: Path, source: Server, port: int, schema: str) -> None:
        self.port = free_port()
        self._conf = folder / "conf"
        (self._conf / "example").mkdir(parents=True)
        (self._conf / "canal.properties").write_text(
            f"canal.destinations = example\ncanal.file.data.dir = ../data\ncanal.file.flush.period = 50\n"
            f"sluice.http.port = {self.port}\n"
            "canal.port = 0\n"
        )
        (self._conf / "example/instance.properties").write_text(
            f"canal.instance.master.address = 127.0.0.1:{port}\n"
            f"canal.instance.dbUsername = {source.user}\ncanal.instance.dbPassword = {source.password}\n"
            f"canal.instance.filter.regex = {schema}\\\\..*\n"
        )
        self._log = folder / "log"
        self.start()

    def start(self) -> None:
        """Start the process; the client waits until it answers."""
        with self._log.open("ab") as log:
            self.process = Command("serve", "--conf", str(self._conf), stdout=log, stderr=log)

    def restart(self) -> None:
        """Stop in good order, and start again."""
        self.process.terminate()
        assert self.process.wait(10) == 0, self._log.read_text()
        self.start()

    def crash(self) -> None:
        """kill -9, and start again."""
        self.process.kill()
        self.process.wait()
        self.start()


def write(source: Server, table: str) -> None:
    """Write ROWS rows with ascending ids, in transactions of some sizes; wait while the source is away."""
    chance = random.Random(7)
    written = 0
    while written < ROWS:
        try:
            with source.connect() as connection, connection.cursor() as cursor:
                cursor.execute(f"SELECT COALESCE(MAX(id), 0) FROM {table}")
                ((written,),) = cursor.fetchall()
                while written < ROWS:
                    ids = range(written + 1, min(written + chance.choice([1, 2, 30]), ROWS) + 1)
                    cursor.executemany(f"INSERT INTO {table} VALUES (%s, %s)", [(it, "x" * 90) for it in ids])
                    written = ids[-1]
                    time.sleep(0.005)
        except pymysql.MySQLError:
            time.sleep(0.05)


def with_rollbacks(client: Client) -> Generator[Batch, None, None]:
    """Take and ack batch by batch, and every now and then give back what was taken."""
    chance = random.Random(11)
    while True:
        batches = [client.get_without_ack(1, SMALL) for _ in range(chance.choice([1, 2, 4]))]
        if chance.random() < 0.3:
            client.rollback()
            continue
        for batch in filter(None, batches):
            yield batch
            try:
                client.ack(batch)
            except UnknownBatchError:  # it was taken back when a reply was lost, or the server was started again
                client.rollback()
                break


WAYS: dict[str, Callable[[Client], Generator[Batch, None, None]]] = {
    "batches": lambda client: client.batches(limits=SMALL),
    "stream": lambda client: client.stream(limits=SMALL),
    "rollbacks": with_rollbacks,
}


@pytest.mark.extended
@pytest.mark.parametrize(
    ("name", "way"), [("mariadb118", "batches"), ("mysql97", "stream"), ("mariadb118", "rollbacks")]
)
def test_all_changes_arrive_in_order_whatever_breaks(
    request: pytest.FixtureRequest, database: Database, tmp_path: Path, name: str, way: str
) -> None:
    source: Server = request.getfixturevalue(name)
    schema = database(source)
    source.query(f"CREATE TABLE {schema}.numbers (id INT PRIMARY KEY, filler VARCHAR(100))")
    received: list[int] = []
    with Proxy((source.host, source.port), seed=1) as behind:
        serving = Serving(tmp_path, source, behind.port, schema)
        try:
            with Proxy(("127.0.0.1", serving.port), seed=3) as before:
                client = Client(f"http://127.0.0.1:{before.port}", "example", 1001)
                client.subscribe()
                accidents = iter(
                    [
                        (ROWS // 4, serving.crash),
                        (ROWS // 2, source.restart),
                        (ROWS * 3 // 4, serving.restart),
                    ]
                )
                writer = threading.Thread(target=write, args=(source, f"{schema}.numbers"))
                writer.start()
                behind.cut_randomly(60_000)
                before.cut_randomly(100_000)
                with client, closing(WAYS[way](client)) as batches:
                    due, accident = next(accidents)
                    for batch in batches:
                        received += [row.after["id"] for row in batch if row.after]
                        if received and received[-1] >= due:
                            accident()
                            due, accident = next(accidents, (ROWS + 1, accident))
                        if received and received[-1] == ROWS:
                            before.heal()
                            break
                writer.join()
                assert behind.cuts > 0
                assert before.cuts > 0
                assert due > ROWS, "all of it has happened"
        finally:
            serving.process.kill()
            serving.process.wait()
    assert list(dict.fromkeys(received)) == list(range(1, ROWS + 1)), (
        "nothing is missing; what was not confirmed is repeated"
    )


@pytest.mark.parametrize(
    ("page", "sign", "emptied"),
    [("consumers", "# TRUNCATE, too", "TRUNCATE {} t"), ("copies", 'print("empty"', "empty {} t")],
    ids=["shows", "copies"],
)
def test_the_loops_of_the_pages_show_ddl_and_truncate(
    mariadb118: Server, database: Database, tmp_path: Path, page: str, sign: str, emptied: str
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (PAGES / f"{page}.md").read_text(), re.DOTALL)
    (example,) = (code for code in blocks if sign in code)
    schema = database(mariadb118)
    serving = Serving(tmp_path, mariadb118, mariadb118.port, schema)
    client = f"client = Client('http://127.0.0.1:{serving.port}', 'example', 1001)\nclient.subscribe()\n"
    program = (
        f"from sluice.client_sdk import Client\n{client}print('subscribed')\n{example[example.index('for batch') :]}"
    )
    try:
        command = [sys.executable, "-u", "-c", program]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            try:
                assert running.stdout.readline() == "subscribed\n"
                for statement in ("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", "TRUNCATE t"):
                    mariadb118.query(statement, database=schema)
                lines = []
                for line in running.stdout:
                    lines.append(line.strip())
                    if "mpty" in line or "TRUNCATE" in line:
                        break
            finally:
                running.kill()
    finally:
        serving.process.kill()
        serving.process.wait()
    created, inserted, truncated = lines
    assert "CREATE TABLE t" in created
    assert inserted.startswith("INSERT ")
    assert truncated.startswith(emptied.format(schema))


def streamed(port: int, table: str, count: int) -> list[int]:
    """The ids of a table's rows as a stream gives them to a client that is slow at first, so that acks are shared."""
    with Client(f"http://127.0.0.1:{port}", "example", 1002) as client:
        client.subscribe(start="latest")
        client.snapshot([table])
        with closing(client.stream(window=20)) as batches:
            found = [row.after["id"] for row in next(batches) if row.after]
            eventually(lambda: len(client.status()["marks"]) > 3)
            while len(found) < count:
                found += [row.after["id"] for row in next(batches) if row.after]
    return found


@pytest.mark.extended
def test_a_client_gets_a_table_over_http_though_the_server_is_killed_meanwhile(
    mysql97: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mysql97)
    mysql97.query(f"CREATE TABLE {schema}.numbers (id INT PRIMARY KEY, filler VARCHAR(100))")
    mysql97.query(f"CREATE TABLE {schema}.others (id INT PRIMARY KEY)")
    with mysql97.connect(autocommit=True) as connection, connection.cursor() as cursor:
        values = [(number, "x" * 90) for number in range(20 * ROWS)]
        cursor.executemany(f"INSERT INTO {schema}.numbers VALUES (%s, %s)", values)
    serving = Serving(tmp_path, mysql97, mysql97.port, schema)
    table = f"{schema}.numbers"
    try:
        with Client(f"http://127.0.0.1:{serving.port}", "example", 1001) as client:
            client.subscribe(start="latest")
            wanted = client.snapshot([table], {table: f"id < {10 * ROWS}"}, max_rows_per_second=2 * ROWS)
            cancelled = client.snapshot(rf"{schema}\.others")
            client.cancel_snapshot(cancelled)
            client.pause_snapshot(wanted)
            assert client.snapshot_status(wanted)["state"] == "paused"
            client.resume_snapshot(wanted)
            copy: set[int] = set()
            kills = 0
            while (status := client.snapshot_status(wanted))["state"] != "done":
                batch = client.get_without_ack(1)
                chunk = status["chunk"]
                assert chunk is None or (chunk["table"], chunk["to"] is None) == (table, not chunk["rows"])
                assert {(row.type, row.snapshot) for row in batch} <= {("READ", str(wanted))}
                copy |= {row.after["id"] for row in batch if row.after}
                if len(copy) > (kills + 1) * 2 * ROWS and kills < 2:
                    kills += 1
                    serving.crash()
                try:
                    if batch:
                        client.ack(batch)
                except UnknownBatchError:  # the server was started again: it comes again
                    client.rollback()
            assert kills == 2
            assert copy == set(range(10 * ROWS))
            assert status["rows"] == 10 * ROWS
            assert status["chunk"] is None
            assert status["tables"][0] | {"bytes": 0, "expected": 0} == {
                "member": "",
                "table": table,
                "where": f"id < {10 * ROWS}",
                "state": "done",
                "rows": 10 * ROWS,
                "bytes": 0,
                "expected": 0,
            }
            assert client.position(client.status()["acked"]).partial is False
        assert sorted(streamed(serving.port, table, 20 * ROWS)) == list(range(20 * ROWS)), "each row once"
    finally:
        serving.process.kill()
        serving.process.wait()


async def test_a_new_client_begins_with_tables_as_they_are_by_both_clients(
    mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mariadb118)
    goods, other = f"{schema}.goods", f"{schema}.other"
    for table in (goods, other):
        mariadb118.query(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
        mariadb118.query(f"INSERT INTO {table} VALUES (1), (2), (3)")
    serving = Serving(tmp_path, mariadb118, mariadb118.port, schema)
    url = f"http://127.0.0.1:{serving.port}"
    try:
        async with AsyncClient(url, "example", 1001) as client:
            start = Snapshot([goods], {goods: "id <> 2"}, max_rows_per_second=1000)
            [wanted] = (await client.subscribe(start=start))["snapshots"]
            await client.pause_snapshot(wanted)
            assert (await client.snapshot_status(wanted))["state"] == "paused"
            await client.resume_snapshot(wanted)
            rows = []
            while (await client.snapshot_status(wanted))["state"] != "done":
                batch = await client.get_without_ack(1)
                rows += [(row.type, row.table, row.after) for row in batch]
                await client.ack(batch)
            assert rows == [("READ", "goods", {"id": 1}), ("READ", "goods", {"id": 3})]
            assert (await client.subscribe(start="snapshot"))["snapshots"] == [wanted]
            cancelled = await client.snapshot([other])
            await client.cancel_snapshot(cancelled)
            with pytest.raises(UnknownSnapshotError):
                await client.snapshot_status(cancelled)
            mariadb118.query(f"INSERT INTO {goods} VALUES (4)")
            while not (found := (await client.get_without_ack(5)).rows()):
                pass  # a batch may end after the beginning of a transaction
            [row] = found
            assert (row.type, row.snapshot, row.after) == ("INSERT", None, {"id": 4})
        with Client(url, "example", 1002) as client:
            client.subscribe(re.escape(other), start="snapshot")
            batch = client.get_without_ack(5)
            assert [(row.type, row.table, row.after["id"]) for row in batch if row.after] == [
                ("READ", "other", number) for number in (1, 2, 3)
            ]
        with Client(url, "example", 1003) as client:
            client.subscribe()
            with pytest.raises(BadParameterError, match="has subscribed before, without a snapshot"):
                client.subscribe(start="snapshot")
    finally:
        serving.process.kill()
        serving.process.wait()
