"""What the tests of promises share: `sluice serve` as a process, writers that remember, consumers that record."""

import contextlib
import json
import random
import re
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pymysql
import pytest
import urllib3

from sluice.client_sdk import Batch, Client
from sluice.client_sdk.calls import Limits
from sluice.protocol.canal.rows import Change
from sluice.protocol.errors import UnknownBatchError
from sluice.protocol.position import Position
from tests.commands import Command
from tests.servers import Server
from tests.servers.server import free_port
from tests.waiting import eventually

SECONDS = 30.0
"""That anything may take ..."""
START_SECONDS = 90.0
"""... but the start of a server, for which a machine that does much else has needed 30."""

USUAL = ["mariadb118", pytest.param("mysql97", marks=pytest.mark.extended)]
"""The sources of tests that take long and in which it matters little what the source is."""

PACE = 0.01
"""Seconds between two transactions of a writer: what 2 cores can also read while they are at it."""

Image = dict[str, Any]
Key = tuple[str, Any]
"""A table and the primary key of a row in it."""


class Sluice:
    """A server process with a conf folder of its own. Its port stays, so that clients find it after a restart.

    With several ``processes`` it is the one that starts them; ``url`` is that of the first.
    """

    def __init__(self, folder: Path, processes: int = 1) -> None:
        self.conf = folder / "conf"
        self.data = folder / "data"
        self.conf.mkdir(parents=True, exist_ok=True)
        self.processes = processes
        self.port = free_port(processes)
        self.canal_port = free_port(processes)
        self.settings: dict[str, object] = {}
        """Of the server; a dot in a key is written as two underscores."""
        self.log: deque[str] = deque(maxlen=200)
        """Its last lines ..."""
        self.log_file = folder / "log"
        """... and all of them, of every process."""
        self._names: list[str] = []
        self._process: Command | None = None

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def process(self) -> Command:
        assert self._process is not None
        return self._process

    def add(self, name: str, source: Server, **settings: object) -> None:
        """Configure a destination of a server; a dot in a key is written as two underscores."""
        place: dict[str, object] = {
            "canal__instance__master__address": f"{source.host}:{source.port}",
            "canal__instance__dbUsername": source.user,
            "canal__instance__dbPassword": source.password,
        }
        self.configure(name, **place | settings)

    def configure(self, name: str, **settings: object) -> None:
        """Configure a destination of any source; a dot in a key is written as two underscores."""
        _write(self.conf / name / "instance.properties", settings)
        self._names += [name] if name not in self._names else []
        main = {
            "sluice__http__port": self.port,
            "canal__port": self.canal_port,
            "canal__file__data__dir": self.data,
            "canal__file__flush__period": 50,
            "canal__destinations": ",".join(self._names),
        } | self.settings
        _write(self.conf / "canal.properties", main)

    def start(self) -> None:
        """Start the process and wait until the API answers."""
        self._process = Command(
            *("serve", "--processes", str(self.processes)),
            environ={"SLUICE_CONF": str(self.conf)},
            stdout=subprocess.DEVNULL,
        )
        serves = threading.Semaphore(0)
        threading.Thread(target=self._read_log, args=(self._process, serves), daemon=True).start()
        for _ in range(self.processes):
            eventually(
                lambda: serves.acquire(blocking=False) or self.process.poll() is not None, "the API", START_SECONDS
            )
        assert self.process.poll() is None, "".join(self.log)

    def _read_log(self, process: Command, serves: threading.Semaphore) -> None:
        assert process.stderr is not None
        with process.stderr as lines, self.log_file.open("a") as file:
            for line in lines:
                self.log.append(line)
                file.write(line)
                file.flush()
                if re.search(r"serves http", line):
                    serves.release()

    def stop(self) -> float:
        """SIGTERM; it has to end in good order and in time. Returns the seconds that it took."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(SECONDS)
        seconds = time.monotonic() - begin
        assert code == 0, "".join(self.log)
        assert seconds < 5, "".join(self.log)
        return seconds

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            self.kill()

    def call(self, method: str, path: str = "", **options: Any) -> Any:
        """Make a call of the API that has to succeed."""
        with urllib3.PoolManager() as http:
            answer = http.request(method, f"{self.url}/v1/destinations{path}", **options)
        assert answer.status < 300, answer.data
        return answer.json() if answer.data else None

    def destination(self, name: str = "shop") -> dict[str, Any]:
        status: dict[str, Any] = self.call("GET", f"/{name}")
        return status

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Start, and read the sources: without a cursor, what was written before that is not delivered."""
        with self:
            self.wait_running()
            yield

    def wait_running(self, *names: str) -> None:
        for name in names or tuple(self._names):
            eventually(
                lambda name=name: self.destination(name)["state"] == "running",  # type: ignore[misc]
                lambda name=name: self.destination(name),  # type: ignore[misc]
            )

    def wait_error(self, text: str, name: str = "shop") -> str:
        """Wait until the destination says this about what is wrong (a regular expression); return all it says."""
        eventually(lambda: re.search(text, self.destination(name)["error"]), lambda: (text, self.destination(name)))
        return str(self.destination(name)["error"])

    def client(self, client_id: int = 1001, name: str = "shop", url: str = "") -> Client:
        return Client(url or self.url, name, client_id, retry=SECONDS, timeout=10)

    def stored(self, client_id: int = 1001, name: str = "shop", key: str = "position") -> Position | None:
        """The cursor in the file, which has to be whole."""
        data = json.loads((self.data / name / "meta.dat").read_text())
        for client in data["clientDatas"]:
            if client["clientIdentity"]["clientId"] == client_id and key in client.get("sluice", {}):
                return Position.parse(client["sluice"][key])
        return None

    def memory(self, key: str) -> int:
        """A size out of ``/proc/PID/status`` in bytes: ``VmRSS``, ``VmHWM``."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(rf"{key}:\s+(\d+) kB", text)[0]) * 1024

    def forget_peak(self) -> None:
        """Reset ``VmHWM``."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")


def _write(path: Path, lines: Mapping[str, object]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{key.replace('__', '.')} = {value}\n" for key, value in lines.items()))


# --- writers


@dataclass(frozen=True, slots=True)
class Op:
    """One change of a row."""

    table: str
    kind: str
    before: Image | None
    after: Image | None

    @property
    def image(self) -> Image:
        """The row after the change, or before its deletion."""
        image = self.after if self.after is not None else self.before
        assert image is not None
        return image


class Writer(threading.Thread):
    """Makes random transactions on rows of its own in tables `a` and `b`, and remembers those that were committed.

    Each transaction leaves its number in table `ledger`: after a lost connection that tells whether it was committed.
    """

    def __init__(self, server: Server, schema: str, number: int, count: int | None = None) -> None:
        super().__init__(daemon=True, name=f"writer {number}")
        self.server = server
        self.schema = schema
        self.number = number
        self.count = count
        self.committed: list[list[Op]] = []
        self.failure: BaseException | None = None
        self._rows: dict[Key, Image] = {}
        self._random = random.Random(number)
        self._next = number * 10_000_000
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001  the test raises it
            self.failure = error

    def _run(self) -> None:
        n = 0
        while not self._stopping.is_set() and n != self.count:
            try:
                with self.server.connect(database=self.schema, autocommit=False, read_timeout=15) as connection:
                    alive = True
                    while alive and not self._stopping.is_set() and n != self.count:
                        n += 1
                        alive = self._transaction(connection, n)
                        self._stopping.wait(PACE)
            except (pymysql.err.OperationalError, pymysql.err.InterfaceError):
                self._stopping.wait(0.1)

    def _transaction(self, connection: "pymysql.connections.Connection[Any]", n: int) -> bool:
        """Make one; whether the connection still lives."""
        ledger = {"id": self.number * 10_000_000 + n, "writer": self.number, "n": n, "v": None}
        ops = [Op("ledger", "INSERT", None, ledger)]
        rows = dict(self._rows)
        for _ in range(self._random.choice((1, 1, 2, 5))):
            ops += self._change(rows, n)
        alive = True
        try:
            with connection.cursor() as cursor:
                for op in ops:
                    _execute(cursor, op)
            connection.commit()
        except (pymysql.err.OperationalError, pymysql.err.InterfaceError):
            alive = False
            connection._force_close()  # type: ignore[attr-defined]
        if alive or self._is_committed(ledger["id"]):
            self._rows = rows
            self.committed.append(ops)
        return alive

    def _change(self, rows: dict[Key, Image], n: int) -> Iterable[Op]:
        table = self._random.choice("ab")
        text = self._random.choice((None, "", "grün ✓", "x" * self._random.randrange(400)))
        mine = [key for key in rows if key[0] == table]
        kind = self._random.choice(("INSERT", "INSERT", "UPDATE", "UPDATE", "DELETE")) if mine else "INSERT"
        if kind == "INSERT":
            self._next += 1
            after = {"id": self._next, "writer": self.number, "n": n, "v": text}
            rows[table, self._next] = after
            return [Op(table, kind, None, after)]
        key = self._random.choice(mine)
        before = rows.pop(key)
        if kind == "DELETE":
            return [Op(table, kind, before, None)]
        after = before | {"n": n, "v": f"{text}{self._random.random()}"}
        rows[key] = after
        return [Op(table, kind, before, after)]

    def _is_committed(self, ledger_id: int | None) -> bool:
        found: list[bool] = []

        def ask() -> bool:
            with contextlib.suppress(pymysql.err.OperationalError):
                rows = self.server.query("SELECT id FROM ledger WHERE id = %s", (ledger_id,), database=self.schema)
                found.append(bool(rows))
            return bool(found)

        eventually(ask, f"{self.name} cannot ask what became of its transaction")
        return found[0]


def _execute(cursor: "pymysql.cursors.Cursor", op: Op) -> None:
    if op.after is None:
        cursor.execute(f"DELETE FROM {op.table} WHERE id = %s", (op.image["id"],))
    elif op.before is None:
        cursor.execute(f"INSERT INTO {op.table} VALUES (%s, %s, %s, %s)", tuple(op.after.values()))
    else:
        cursor.execute(
            f"UPDATE {op.table} SET n = %s, v = %s WHERE id = %s", (op.after["n"], op.after["v"], op.after["id"])
        )


class Load:
    """Several writers on one schema. `finish()` waits for them and writes the row that ends every consumer's work."""

    TABLES = ("a", "b", "ledger")

    def __init__(self, server: Server, schema: str, *, writers: int = 3, count: int | None = None) -> None:
        self.server = server
        self.schema = schema
        for table in (*self.TABLES, "finished"):
            server.query(
                f"CREATE TABLE {table} (id INT PRIMARY KEY, writer INT, n INT, v VARCHAR(500)) CHARSET utf8mb4",
                database=schema,
            )
        self.writers = [Writer(server, schema, number, count) for number in range(1, writers + 1)]

    def __enter__(self) -> Self:
        for writer in self.writers:
            writer.start()
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self.writers:
            writer.stop()
            writer.join(SECONDS)

    @property
    def committed(self) -> int:
        """Transactions until now."""
        return sum(len(writer.committed) for writer in self.writers)

    def changes(self, tables: Iterable[str] = TABLES) -> int:
        """Changes of rows of these tables in them."""
        done = (transaction for writer in self.writers for transaction in writer.committed)
        return sum(op.table in tables for transaction in done for op in transaction)

    def finish(self, *, stop: bool = False) -> None:
        """Wait for the writers (``stop``: tell them to end first), and mark the end of the stream."""
        for writer in self.writers:
            if stop:
                writer.stop()
            writer.join(SECONDS)
            assert not writer.is_alive(), f"{writer.name} does not end"
            assert writer.failure is None, writer.failure
        self.server.query("INSERT INTO finished VALUES (1, 0, 0, NULL)", database=self.schema)

    def check(self, changes: "list[Seen]", tables: Iterable[str] = TABLES) -> int:
        """Check that these are exactly the changes that were committed to the tables: nothing else, and in order.

        Returns how many changes of rows there are.
        """
        ops = [op for seen in changes for op in seen.ops if op.table != "finished"]
        for writer in self.writers:
            wanted = [op for transaction in writer.committed for op in transaction if op.table in tables]
            given = [op for op in ops if op.image["writer"] == writer.number]
            assert len(given) == len(wanted)
            assert given == wanted
        for table in tables:
            state: dict[int, Image] = {}
            for op in ops:
                if op.table == table:
                    state.pop(op.image["id"], None)
                    state |= {op.after["id"]: op.after} if op.after is not None else {}
            rows = self.server.query(f"SELECT id, writer, n, v FROM {table}", database=self.schema)
            assert state == {row[0]: dict(zip(("id", "writer", "n", "v"), row, strict=True)) for row in rows}
        return len(ops)

    def check_transactions(self, changes: "list[Seen]") -> int:
        """Check that each transaction is delivered in one piece, with its begin and its end; return how many."""
        ops: list[Op] | None = None
        count = 0
        for seen in changes:
            if seen.type == "TRANSACTIONBEGIN":
                assert ops is None
                ops = []
            elif seen.type == "TRANSACTIONEND":
                assert ops is not None
                count += len([op for op in ops if op.table == "ledger"])
                assert len({op.image["writer"] for op in ops}) <= 1
                ops = None
            elif seen.ops:
                assert ops is not None
                ops += seen.ops
        assert count == self.committed
        return count


# --- consumers


@dataclass(frozen=True, slots=True)
class Seen:
    """One entry as it was delivered."""

    place: tuple[str, int, str]
    type: str
    ops: tuple[Op, ...]
    begin: str
    """Where its batch begins."""


def seen(batch: Batch) -> Iterator[Seen]:
    assert not batch.markers(), [marker.sql for marker in batch.markers()]
    for change in batch.changes():
        yield Seen(
            (change.logfile_name, change.logfile_offset, change.entry_type),
            change.entry_type,
            _ops(change),
            batch.from_,
        )


def _ops(change: Change) -> tuple[Op, ...]:
    return tuple(Op(change.table, row.type, row.before, row.after) for row in change.rows())


class Consumer(threading.Thread):
    """Reads until the row that ends the load, in one of several ways, and records every entry it was given.

    ``stream``, ``batches``: the iterators of the SDK. ``ack``: get and ack. ``durable``: the same with durable acks.
    ``rollback``: takes some batches, acks some of them, and gives the others back, at random.
    """

    def __init__(self, client: Client, way: str = "stream", *, filter: str = "", limits: Limits | None = None) -> None:  # noqa: A002
        super().__init__(daemon=True, name=f"consumer by {way}")
        self.client = client
        self.way = way
        self.seen: list[Seen] = []
        self.failure: BaseException | None = None
        self.acked: Position | None = None
        """How far the durable acks have come."""
        self.floor: Position | None = None
        """Nothing before it may be given again."""
        self.pause = threading.Event()
        self.pause.set()
        self._limits = limits or Limits(max_entries=40)
        self._random = random.Random(5)
        client.subscribe(filter)

    def run(self) -> None:
        try:
            with self.client:
                getattr(self, f"_by_{self.way}")()
        except Exception as error:  # noqa: BLE001  the test raises it
            self.failure = error

    def finish(self) -> list[Seen]:
        """Wait for the end as long as anything comes; return everything once, in the order in which it came first."""
        count = -1
        while self.is_alive() and len(self.seen) > count:
            count = len(self.seen)
            self.join(SECONDS)
        assert self.failure is None, self.failure
        assert not self.is_alive(), f"{self.name} has {len(self.seen)} entries, the last {self.seen[-1:]}"
        first: dict[tuple[str, int, str], Seen] = {}
        for it in self.seen:
            known = first.setdefault(it.place, it)
            assert (known.type, known.ops) == (it.type, it.ops), "what is repeated is the same"
        places = [(int(file.rpartition(".")[2]), offset) for file, offset, _ in first]
        assert places == sorted(places), "in the order of the binlog"
        return list(first.values())

    @property
    def repeats(self) -> int:
        """Entries that came more than once."""
        return len(self.seen) - len({it.place for it in self.seen})

    def _record(self, batch: Batch) -> bool:
        """Whether it goes on."""
        self.pause.wait()
        if self.floor is not None:
            assert Position.parse(batch.from_) >= self.floor, "repeats begin at the durable cursor"
        found = list(seen(batch))
        self.seen += found
        return not any(op.table == "finished" for it in found for op in it.ops)

    def _by_stream(self) -> None:
        for batch in self.client.stream(window=3, limits=self._limits):
            if not self._record(batch):
                self.client.ack(batch)
                return

    def _by_batches(self) -> None:
        for batch in self.client.batches(prefetch=3, limits=self._limits):
            if not self._record(batch):
                self.client.ack(batch)
                return

    def _by_ack(self) -> None:
        self._get_and_ack(durable=False)

    def _by_durable(self) -> None:
        self._get_and_ack(durable=True)

    def _get_and_ack(self, *, durable: bool) -> None:
        going = True
        while going:
            batch = self.client.get_without_ack(1.0, self._limits)
            if not batch:
                continue
            going = self._record(batch)
            try:
                self.client.ack(batch, durable=durable)
            except UnknownBatchError:  # the server was restarted: the batch comes again
                self.client.rollback()
                going = True
                continue
            if durable:
                self.acked = Position.parse(batch.to)
                # The durable cursor stands between transactions.
                self.floor = replace(self.acked, n=0)

    def _by_rollback(self) -> None:
        going = True
        while going:
            batches = [self.client.get_without_ack(1.0, self._limits) for _ in range(self._random.randrange(1, 5))]
            batches = [batch for batch in batches if batch]
            kept = self._random.randrange(len(batches) + 1)
            for index, batch in enumerate(batches):
                goes_on = self._record(batch)
                if index < kept:
                    self.client.ack(batch)
                    going = going and goes_on
            self.client.rollback()


@contextlib.contextmanager
def consuming(*consumers: Consumer) -> Iterator[None]:
    """Run consumers; a test that fails leaves none waiting."""
    for consumer in consumers:
        consumer.start()
    try:
        yield
    finally:
        for consumer in consumers:
            consumer.pause.set()
