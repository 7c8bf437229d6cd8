"""A group under two servers and ZooKeeper, and under kills of one server: each merges in an order of its own."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import urllib3

from sluice.protocol.canal import entry_pb2 as pb
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.cut import Cut, parse_place
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.servers import Server, ZooKeeper
from tests.waiting import eventually

NAME = "shop"
KILLS = 3
ROWS = 20
"""Of each member between two kills, at least."""

Got = dict[str, list[int]]
"""The ids of rows, by member."""


class Writer(threading.Thread):
    """Writes the rows 0, 1, 2 … into a table."""

    def __init__(self, server: Server, schema: str) -> None:
        super().__init__(daemon=True)
        self.server, self.schema, self.rows = server, schema, 0
        self.stopping = threading.Event()

    def run(self) -> None:
        with self.server.connect(database=self.schema) as connection, connection.cursor() as cursor:
            while not self.stopping.wait(0.05):
                cursor.execute(f"INSERT INTO t VALUES ({self.rows})")
                self.rows += 1


class Consumer:
    """Takes and acks batches from whichever server serves. It remembers what was acked, and what came after that."""

    def __init__(self, servers: list[Sluice]) -> None:
        self.servers = servers
        self.acked: Got = {}
        self.repeated: Got = {}
        """Rows that came although they had been acked."""
        self._inside: list[tuple[str, int]] = []

    def call(self, server: Sluice, path: str, body: Mapping[str, Any] | None = None) -> urllib3.BaseHTTPResponse:
        with urllib3.PoolManager(retries=False) as http:
            url = f"{server.url}/v1/destinations/{NAME}/clients/1001/{path}"
            accept = {"Accept": "application/x-protobuf"} if path.startswith("get") else {}
            return http.request("POST", url, json=body or {}, timeout=10, headers=accept)

    def take(self) -> None:
        """Take a batch, and ack it; what a server does not do is tried again later."""
        for server in self.servers:
            try:
                answer = self.call(server, "getWithoutAck?timeout=200&batchSize=50")
                if answer.status != 200:
                    continue
                batch = Messages.FromString(answer.data)
                if batch.batch_id <= 0 or self.call(server, "ack", {"batchId": batch.batch_id}).status != 204:
                    continue
            except urllib3.exceptions.HTTPError:
                continue
            for member, row in self._rows(batch):
                mine = self.acked.setdefault(member, [])
                again = bool(mine) and row <= mine[-1]
                (self.repeated.setdefault(member, []) if again else mine).append(row)

    def _rows(self, batch: Messages) -> Iterator[tuple[str, int]]:
        """The member and the id of each row of which the transaction has ended: before that, a cursor is before it."""
        for entry in map(pb.Entry.FromString, batch.messages):
            if entry.entryType == pb.TRANSACTIONBEGIN:
                self._inside = []
            elif entry.entryType == pb.ROWDATA:
                (member,) = [it.value for it in entry.header.props if it.key == "sluice.member"]
                rows = pb.RowChange.FromString(entry.storeValue).rowDatas
                self._inside += [(member, int(row.afterColumns[0].value)) for row in rows]
            else:
                yield from self._inside

    def reach(self, goals: Mapping[str, int], servers: list[Sluice]) -> None:
        """Take until all rows of each member below a number have been acked."""

        def is_there() -> bool:
            self.take()
            return all(len(self.acked.get(name, ())) >= goal for name, goal in goals.items())

        eventually(is_there, lambda: (goals, self.acked, ["".join(it.log) for it in servers]))


@contextmanager
def writing(servers: Mapping[str, Server], schemas: Mapping[str, str]) -> Iterator[dict[str, Writer]]:
    """Let each member get rows while the block lasts."""
    writers = {name: Writer(server, schemas[name]) for name, server in servers.items()}
    for it in writers.values():
        it.start()
    try:
        yield writers
    finally:
        for it in writers.values():
            it.stopping.set()
        for it in writers.values():
            it.join(30)


def configure(server: Sluice, members: Mapping[str, Server], schemas: Mapping[str, str], **settings: object) -> None:
    """Configure a group of these members, in this order."""
    sources: dict[str, object] = {}
    for name, it in members.items():
        prefix = f"sluice__group__{name}__canal__instance__"
        sources |= {
            f"{prefix}master__address": f"{it.host}:{it.port}",
            f"{prefix}dbUsername": it.user,
            f"{prefix}dbPassword": it.password,
        }
    server.configure(
        NAME,
        sluice__instance__source="group",
        sluice__group__members=",".join(members),
        canal__instance__filter__regex=",".join(f"{it}\\\\..*" for it in schemas.values()),
        **sources,
        **settings,
    )


@pytest.fixture
def schemas(mysql97: Server, mariadb118: Server, database: Database) -> dict[str, str]:
    found = {"my": database(mysql97), "maria": database(mariadb118)}
    for name, server in (("my", mysql97), ("maria", mariadb118)):
        server.script("CREATE TABLE t (id INT PRIMARY KEY);\n", database=found[name])
    return found


@pytest.mark.extended
@pytest.mark.parametrize("meta", ["zookeeper", "period"])
def test_a_group_loses_and_repeats_nothing_when_the_active_server_is_killed(
    tmp_path: Path,
    own_zookeeper: ZooKeeper,
    mysql97: Server,
    mariadb118: Server,
    schemas: dict[str, str],
    meta: str,
) -> None:
    members = {"my": mysql97, "maria": mariadb118}
    servers = [Sluice(tmp_path / it) for it in "ab"]
    for server in servers:
        server.settings |= {"canal__zkServers": own_zookeeper.hosts, "sluice__ha__sessionTimeout": 4}
    # The other server takes what has arrived: it merges in another order.
    configure(servers[0], members, schemas, sluice__instance__meta=meta)
    reverse = dict(reversed(members.items()))
    configure(servers[1], reverse, schemas, sluice__instance__meta=meta, sluice__group__order="arrival")

    def active() -> Sluice:
        found: list[Sluice] = []

        def is_one() -> bool:
            found[:] = [it for it in servers if _state(it) == "running"]
            return len(found) == 1

        eventually(is_one, lambda: ["".join(it.log) for it in servers])
        return found[0]

    with ExitStack() as stack:
        for server in servers:
            stack.enter_context(server)
        consumer = Consumer(servers)
        eventually(lambda: consumer.call(active(), "subscribe").status == 200)
        writers = stack.enter_context(writing(members, schemas))
        for _ in range(KILLS):
            consumer.reach({name: it.rows + ROWS for name, it in writers.items()}, servers)
            killed = active()
            killed.kill()
            consumer.reach({name: it.rows + ROWS for name, it in writers.items()}, servers)
            killed.start()
        for it in writers.values():
            it.stopping.set()
            it.join(30)
        consumer.reach({name: it.rows for name, it in writers.items()}, servers)
        assert consumer.acked == {name: [*range(it.rows)] for name, it in writers.items()}
        if meta == "zookeeper":
            assert consumer.repeated == {}
        place = parse_place(active().destination(NAME)["clients"][0]["position"])
        assert isinstance(place, Cut)
        assert place.places.keys() == members.keys()


@pytest.mark.extended
def test_a_group_goes_on_where_each_member_was_when_its_only_server_is_killed(
    tmp_path: Path, mysql97: Server, mariadb118: Server, schemas: dict[str, str]
) -> None:
    members = {"my": mysql97, "maria": mariadb118}
    server = Sluice(tmp_path)
    configure(server, members, schemas)
    with ExitStack() as stack:
        stack.enter_context(server)
        server.wait_running()
        consumer = Consumer([server])
        assert consumer.call(server, "subscribe").status == 200
        writers = stack.enter_context(writing(members, schemas))
        for _ in range(KILLS):
            consumer.reach({name: it.rows + ROWS for name, it in writers.items()}, [server])
            server.kill()
            server.start()
        for it in writers.values():
            it.stopping.set()
            it.join(30)
        consumer.reach({name: it.rows for name, it in writers.items()}, [server])
        assert consumer.acked == {name: [*range(it.rows)] for name, it in writers.items()}


def _state(server: Sluice) -> str:
    try:
        return str(server.destination(NAME)["state"])
    except urllib3.exceptions.HTTPError:
        return "away"
