"""A destination with two sources that replicate: it reads the other when told, or when the first does not answer."""

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from sluice.client_sdk import Batch, Client
from sluice.protocol.errors import UnknownBatchError
from tests import commands
from tests.faults.harness import SECONDS, USUAL, Sluice
from tests.faults.pair import DETECTING, OLD, SCHEMA, Pair, Writer, address, configure, pair_of, wait_for_replica
from tests.proxy import Proxy
from tests.servers import Server, ZooKeeper
from tests.servers.server import free_port
from tests.waiting import eventually


class Consumer(threading.Thread):
    """Gets and acks, and records the rows of each batch that it was given."""

    def __init__(self, client: Client) -> None:
        super().__init__(daemon=True)
        self.client = client
        self.rows: list[int] = []
        self.failure: BaseException | None = None
        self._stopping = threading.Event()
        client.subscribe()

    def run(self) -> None:
        try:
            with self.client:
                while not self._stopping.is_set():
                    batch = self.client.get_without_ack(0.5)
                    if batch:
                        self.rows += [row.after["id"] for row in batch.rows() if row.after]
                        with contextlib.suppress(UnknownBatchError):
                            self.client.ack(batch)
        except Exception as error:  # noqa: BLE001  the test raises it
            self.failure = error

    def wait_for(self, row: int) -> None:
        eventually(lambda: row in self.rows or self.failure, lambda: (row, self.rows[-5:], self.failure))
        assert self.failure is None, self.failure

    def stop(self) -> list[int]:
        self._stopping.set()
        self.join(SECONDS)
        assert self.failure is None, self.failure
        return self.rows


@contextlib.contextmanager
def consuming(sluice: Sluice, pair: Pair, **settings: object) -> Iterator[Consumer]:
    """Serve a pair while the block lasts, to a consumer that takes everything."""
    configure(sluice, pair, **settings)
    with sluice:
        sluice.wait_running()
        consumer = Consumer(sluice.client())
        consumer.start()
        yield consumer


@pytest.fixture(params=USUAL)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with pair_of(request.param) as found:
        yield found


@pytest.fixture(params=["mysql97", pytest.param("mariadb118", marks=pytest.mark.extended)])
def mysql_pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """For what MySQL makes more difficult: a dump by GTID begins with what it leaves out."""
    with pair_of(request.param) as found:
        yield found


def switch(sluice: Sluice, **query: str) -> dict[str, Any]:
    found: dict[str, Any] = sluice.call("POST", f"/shop/source/switch?{urlencode(query)}")
    return found


def command(sluice: Sluice, *arguments: str) -> str:
    """Run a command; what it prints."""
    return commands.run(*arguments, "--url", sluice.url, environ={"COLUMNS": "200"}, check=True).stdout


def source_of(sluice: Sluice) -> dict[str, Any]:
    found: dict[str, Any] = sluice.destination()["source"]
    return found


def test_a_switch_by_hand_and_back_loses_and_doubles_nothing(sluice: Sluice, pair: Pair) -> None:
    configure(sluice, pair)
    with sluice:
        sluice.wait_running()
        consumer, writer = Consumer(sluice.client()), Writer(pair.first)
        consumer.start()
        writer.start()
        writer.reach(50)
        assert source_of(sluice)["address"] == address(pair.first)
        for wanted in (pair.second, pair.first, pair.second):
            assert f"source {address(wanted)}, can switch to" in command(sluice, "source", "switch", "shop")
            assert f"source {address(wanted)}" in command(sluice, "status", "shop")
            writer.reach(50)
            consumer.wait_for(writer.committed[-1])
            assert sluice.destination()["last"].startswith(f"{wanted.query('SELECT @@server_id')[0][0]}/") or not (
                wanted.mariadb
            )
        # It is known after a restart, and after a kill.
        for end in (sluice.stop, sluice.kill):
            end()
            sluice.start()
            sluice.wait_running()
            assert source_of(sluice)["address"] == address(pair.second)
            writer.reach(20)
            consumer.wait_for(writer.committed[-1])
        written = writer.stop()
        consumer.wait_for(written[-1])
        rows = consumer.stop()
        assert sorted(set(rows)) == written
        before_restarts = rows[: rows.index(written[150]) + 1]
        assert before_restarts == written[: len(before_restarts)]


def rows_of(server: Server) -> list[int]:
    return [row[0] for row in server.query(f"SELECT id FROM {SCHEMA}.t ORDER BY id")]


@pytest.mark.extended
@pytest.mark.parametrize("end", [Server.kill, Server.freeze])
def test_with_semi_sync_a_master_that_dies_or_freezes_loses_and_doubles_nothing(
    sluice: Sluice, pair: Pair, end: Callable[[Server], None]
) -> None:
    wait_for_replica(pair)
    configure(sluice, pair, **DETECTING)
    with sluice:
        sluice.wait_running()
        consumer, writer = Consumer(sluice.client()), Writer(pair.first)
        consumer.start()
        writer.start()
        writer.reach(200)
        end(pair.first)
        eventually(lambda: source_of(sluice)["address"] == address(pair.second), sluice.destination)
        sluice.wait_running()
        pair.promote(pair.second)
        later = Writer(pair.second, 100_000)
        later.start()
        later.reach(50)
        written = later.stop()
        consumer.wait_for(written[-1])
        rows = consumer.stop()
        assert rows == rows_of(pair.second)
        assert set(writer.committed) <= set(rows)
        pair.first.kill()


def test_what_was_delivered_and_is_lost_is_listed_and_has_to_be_accepted(sluice: Sluice, pair: Pair) -> None:
    with consuming(sluice, pair, **DETECTING) as consumer:
        insert(pair.first, 1, 2, 3)
        pair.catch_up(pair.second, pair.first)
        common = f"'{pair.first.query('SELECT @@gtid_binlog_pos')[0][0]}'" if pair.first.mariadb else ""
        pair.promote(pair.second)
        insert(pair.first, 4, 5)  # a branch that only the first one has, and the consumer
        consumer.wait_for(5)
        insert(pair.second, 10, 11)
        pair.first.kill()
        # The switch by itself stops.
        sluice.wait_error(r"does not have 2 transactions that were delivered.*--accept")
        lost = source_of(sluice)["lost"]
        assert len(lost) == 1
        assert sluice.destination()["state"] == "error"
        with pytest.raises(AssertionError, match="transactions-lost"):
            switch(sluice)
        assert sluice.destination()["state"] == "error"
        # Somebody accepts it.
        assert switch(sluice, accept="true")["source"]["accepted"] == lost
        consumer.wait_for(11)
        insert(pair.second, 12)
        consumer.wait_for(12)
        # It is remembered.
        sluice.kill()
        sluice.start()
        insert(pair.second, 13)
        consumer.wait_for(13)
        sluice.wait_running()
        # The first one comes back with its branch: it lacks what was delivered since ...
        pair.first.start()
        with pytest.raises(AssertionError, match="transactions-lost"):
            switch(sluice, to=address(pair.first))
        insert(pair.second, 14)
        consumer.wait_for(14)
        assert sluice.destination()["state"] == "running"
        assert source_of(sluice)["address"] == address(pair.second)
        # ... until it has replicated that.
        pair.replicate(pair.first, pair.second, common)
        insert(pair.second, 15)
        eventually(lambda: 15 in rows_of(pair.first), "the first one replicates")
        switch(sluice, to=address(pair.first))
        insert(pair.second, 16)
        consumer.wait_for(16)
        assert source_of(sluice)["address"] == address(pair.first)
        once = list(dict.fromkeys(consumer.stop()))
        assert once == [1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15, 16]


def insert(server: Server, *numbers: int) -> None:
    for number in numbers:
        server.query(f"INSERT INTO {SCHEMA}.t VALUES (%s, '')", (number,))


@pytest.mark.extended
def test_a_branch_that_was_never_delivered_is_not_left_out(sluice: Sluice, pair: Pair) -> None:
    with consuming(sluice, pair) as consumer:
        insert(pair.first, 1, 2)
        pair.catch_up(pair.second, pair.first)
        common = f"'{pair.first.query('SELECT @@gtid_binlog_pos')[0][0]}'" if pair.first.mariadb else ""
        switch(sluice)
        pair.promote(pair.second)
        insert(pair.first, 3, 4)  # nobody reads it
        insert(pair.second, 10)
        consumer.wait_for(10)
        pair.replicate(pair.first, pair.second, common)
        insert(pair.second, 11)
        eventually(lambda: 11 in rows_of(pair.first), "the first one replicates")
        if pair.first.mariadb:
            with pytest.raises(
                AssertionError, match=r"switch-refused.*history diverged.*`sluice seek shop CLIENT FILE"
            ):
                switch(sluice)
            insert(pair.second, 12)
            consumer.wait_for(12)
            assert consumer.stop() == [1, 2, 10, 11, 12]
        else:
            switch(sluice)
            consumer.wait_for(4)
            insert(pair.first, 12)
            consumer.wait_for(12)
            assert consumer.stop() == [1, 2, 10, 11, 3, 4, 12]


@pytest.mark.extended
def test_a_view_goes_on_with_its_destination(sluice: Sluice, pair: Pair) -> None:
    configure(sluice, pair)
    sluice.configure("view", sluice__instance__route="shop")
    with sluice:
        sluice.wait_running()
        consumers = [Consumer(sluice.client(name=name)) for name in ("shop", "view")]
        for consumer in consumers:
            consumer.start()
        for number, wanted in enumerate((pair.second, pair.first), 1):
            insert(pair.first, number)
            assert switch(sluice)["source"]["address"] == address(wanted)
            assert sluice.destination("view")["source"]["address"] == address(wanted)
        insert(pair.first, 3)
        for consumer in consumers:
            consumer.wait_for(3)
            assert consumer.stop() == [1, 2, 3]
        with pytest.raises(AssertionError, match=r"is a view of shop.*ask shop"):
            sluice.call("POST", "/view/source/switch")


@pytest.mark.extended
def test_a_view_goes_on_where_the_address_of_its_destination_leads_to(sluice: Sluice, pair: Pair) -> None:
    with Proxy((pair.first.host, pair.first.port)) as proxy:
        here = f"{proxy.host}:{proxy.port}"
        sluice.add("shop", pair.first, canal__instance__master__address=here)
        sluice.configure("view", sluice__instance__route="shop")
        with sluice:
            sluice.wait_running()
            consumers = [Consumer(sluice.client(name=name)) for name in ("shop", "view")]
            for consumer in consumers:
                consumer.start()
            insert(pair.first, 1)
            pair.catch_up(pair.second, pair.first)
            proxy.target = (pair.second.host, pair.second.port)
            proxy.cut()
            insert(pair.second, 2)
            for consumer in consumers:
                consumer.wait_for(2)
                assert consumer.stop() == [1, 2]
            assert [sluice.destination(name)["state"] for name in ("shop", "view")] == ["running"] * 2


@pytest.mark.extended
def test_a_switch_by_hand_that_is_refused_leaves_the_first_one_read(sluice: Sluice, pair: Pair) -> None:
    with consuming(sluice, pair) as consumer:
        pair.promote(pair.second)
        for number in (1, 2, 3):
            insert(pair.first, number)
            consumer.wait_for(number)
            with pytest.raises(AssertionError, match="transactions-lost"):
                switch(sluice)
            sluice.wait_running()
        with pytest.raises(AssertionError, match="is not a source of destination shop"):
            switch(sluice, to="127.0.0.1:1")
        assert source_of(sluice)["address"] == address(pair.first)
        assert consumer.stop() == [1, 2, 3]


@pytest.mark.extended
def test_a_replica_is_waited_for_until_it_has_executed_what_it_has_received(sluice: Sluice, pair: Pair) -> None:
    with consuming(sluice, pair) as consumer:
        insert(pair.first, 1)
        pair.catch_up(pair.second, pair.first)
        with pair.second.connect() as lock, lock.cursor() as cursor:
            cursor.execute(f"LOCK TABLES {SCHEMA}.t READ")
            insert(pair.first, *range(2, 20))
            consumer.wait_for(19)
            call = threading.Thread(target=switch, args=(sluice,), daemon=True)
            call.start()
            eventually(lambda: source_of(sluice)["switching"] == address(pair.second), "it waits")
            call.join(2.5)  # longer than it waits for what is still to be received
            assert call.is_alive()
            cursor.execute("UNLOCK TABLES")
        call.join(SECONDS)
        assert source_of(sluice)["address"] == address(pair.second)
        insert(pair.first, 20)
        consumer.wait_for(20)
        assert consumer.stop() == list(range(1, 21))


@pytest.mark.extended
def test_what_comes_next_may_not_be_purged(sluice: Sluice, pair: Pair) -> None:
    with consuming(sluice, pair) as consumer:
        insert(pair.first, 1)
        consumer.wait_for(1)
        sluice.stop()
        insert(pair.first, 2)
        pair.catch_up(pair.second, pair.first)
        pair.promote(pair.second)
        pair.second.query("FLUSH BINARY LOGS")
        pair.second.purge_binlogs(pair.second.query("SHOW BINARY LOGS")[-1][0])
        pair.first.kill()
        sluice.start()
        with pytest.raises(AssertionError, match="purged"):
            switch(sluice)
        assert source_of(sluice)["address"] == address(pair.first)


@pytest.mark.extended
@pytest.mark.parametrize("store", ["memory", "mixed"])
def test_a_server_that_starts_while_the_master_is_dead_goes_to_the_other_one(
    sluice: Sluice, pair: Pair, store: str
) -> None:
    configure(sluice, pair, **DETECTING, sluice__instance__store=store)
    with sluice:
        sluice.wait_running()
        clients = [sluice.client(number) for number in (1, 2)]
        for client in clients:
            client.subscribe()
        insert(pair.first, 1, 2)
        assert read(clients[0], 2) == [1, 2]
        sluice.stop()
        insert(pair.first, 3)
        pair.catch_up(pair.second, pair.first)
        pair.first.kill()
        sluice.start()
        eventually(lambda: source_of(sluice)["address"] == address(pair.second), sluice.destination)
        pair.promote(pair.second)
        insert(pair.second, 4)
        assert read(clients[0], 4) == [3, 4]
        assert read(clients[1], 4) == [1, 2, 3, 4]  # each goes on at its own place
        insert(pair.second, 5)
        for client in clients:
            assert read(client, 5) == [5]


@pytest.mark.extended
def test_with_a_log_the_switch_goes_on_after_it(sluice: Sluice, mysql_pair: Pair) -> None:
    pair = mysql_pair
    configure(sluice, pair, sluice__instance__store="mixed")
    with sluice:
        sluice.wait_running()
        ahead, behind = sluice.client(1), sluice.client(2)
        for client in (ahead, behind):
            client.subscribe()
        insert(pair.first, 1, 2)
        assert read(ahead, 2) == [1, 2]
        switch(sluice)
        insert(pair.first, 3)
        assert read(ahead, 3) == [3]
        switch(sluice)
        insert(pair.first, 4)
        assert read(ahead, 4) == [4]
        assert read(behind, 4) == [1, 2, 3, 4]


@contextlib.contextmanager
def reading_in_part(sluice: Sluice, pair: Pair, before: Callable[[], None] = lambda: None) -> Iterator[Client]:
    """Serve a client that has row 1; of a transaction with the rows 10 to 2009 only a part was read.

    ``before`` is called between the two.
    """
    with Proxy((pair.first.host, pair.first.port)) as proxy:
        configure(sluice, pair, canal__instance__master__address=f"{proxy.host}:{proxy.port}")
        with sluice:
            sluice.wait_running()
            client = sluice.client()
            client.subscribe()
            insert(pair.first, 1)
            assert read(client, 1) == [1]
            before()
            proxy.cut_after(500_000)
            values = ", ".join(f"({number}, REPEAT('x', 1000))" for number in range(10, 2010))
            pair.first.query(f"INSERT INTO {SCHEMA}.t VALUES {values}")
            eventually(lambda: sluice.destination()["entries"] > 1 and sluice.destination()["state"] == "error", "cut")
            yield client


@pytest.mark.extended
def test_a_transaction_that_was_read_in_part_comes_again_as_a_whole(sluice: Sluice, pair: Pair) -> None:
    with reading_in_part(sluice, pair) as client:
        pair.catch_up(pair.second, pair.first)
        switch(sluice)
        assert read(client, 2009) == list(range(10, 2010))


@pytest.mark.extended
def test_a_transaction_that_was_given_in_part_and_is_lost_is_listed_too(sluice: Sluice, pair: Pair) -> None:
    def part() -> None:
        pair.catch_up(pair.second, pair.first)
        pair.promote(pair.second)

    with reading_in_part(sluice, pair, part) as client:
        while not (batch := client.get_without_ack(SECONDS)).rows():
            client.ack(batch)
        client.ack(batch)
        for _ in range(2):  # the stream has begun again before the second one
            with pytest.raises(AssertionError, match="does not have 1 transactions that were delivered"):
                switch(sluice)
        (lost,) = switch(sluice, accept="true")["source"]["accepted"]
        newest = "gtid_binlog_pos" if pair.first.mariadb else "gtid_executed"
        ((executed,),) = pair.first.query(f"SELECT @@{newest}")
        assert re.findall(r"[0-9]+$", lost) == re.findall(r"[0-9]+$", executed)
        insert(pair.second, 5000)
        assert read(client, 5000) == [5000]


@pytest.mark.extended
def test_after_a_switch_too_a_lost_connection_repeats_nothing(sluice: Sluice, pair: Pair) -> None:
    with Proxy((pair.first.host, pair.first.port)) as first, Proxy((pair.second.host, pair.second.port)) as second:
        places = {"master": first, "standby": second}
        addresses = {f"canal__instance__{name}__address": f"{it.host}:{it.port}" for name, it in places.items()}
        configure(sluice, pair, canal__instance__gtidon="true", **addresses)
        with sluice:
            sluice.wait_running()
            client = sluice.client()
            client.subscribe()
            last = 0
            for proxy in (second, first):
                switch(sluice)
                for _ in range(2):
                    insert(pair.first, last + 1, last + 2)
                    assert read(client, last + 2) == [last + 1, last + 2]
                    proxy.cut()
                    insert(pair.first, last + 3)
                    assert read(client, last + 3) == [last + 3]
                    last += 3


@pytest.mark.extended
def test_a_client_that_is_behind_the_ring_goes_on_after_two_switches(sluice: Sluice, mysql_pair: Pair) -> None:
    pair = mysql_pair
    small = {"canal__instance__memory__buffer__size": 16, "sluice__instance__detachAfter": 1}
    configure(sluice, pair, **small)
    with sluice:
        sluice.wait_running()
        ahead, behind = sluice.client(1), sluice.client(2)
        for client in (ahead, behind):
            client.subscribe()
        last = 0
        for _ in range(3):
            insert(pair.first, *range(last + 1, last + 11))
            assert read(ahead, last + 10) == list(range(last + 1, last + 11))
            last += 10
            switch(sluice)
        assert behind.status()["state"] == "catching-up"
        insert(pair.first, last + 1)
        assert read(behind, last + 1) == list(range(1, last + 2))
        insert(pair.first, last + 2)
        assert read(behind, last + 2) == [last + 2]
        assert read(ahead, last + 2) == [last + 1, last + 2]


@pytest.mark.extended
def test_the_server_that_takes_over_reads_the_same_source(tmp_path: Path, own_zookeeper: ZooKeeper, pair: Pair) -> None:
    servers = [Sluice(tmp_path / name) for name in "ab"]
    with contextlib.ExitStack() as stack:
        for server in servers:
            server.settings |= {"canal__zkServers": own_zookeeper.hosts, "sluice__ha__sessionTimeout": 2}
            configure(server, pair, **DETECTING)
            stack.callback(server.__exit__)
            server.start()

        def active() -> Sluice:
            eventually(lambda: any(it.process.poll() is None and state(it) == "running" for it in servers), "one runs")
            return next(it for it in servers if it.process.poll() is None and state(it) == "running")

        former = active()
        client = former.client()
        client.subscribe()
        insert(pair.first, 1)
        assert read(client, 1) == [1]
        assert switch(former)["source"]["address"] == address(pair.second)
        insert(pair.first, 2)
        pair.catch_up(pair.second, pair.first)
        pair.promote(pair.second)
        pair.first.kill()
        former.kill()
        insert(pair.second, 3)
        present = active()
        assert present is not former
        assert source_of(present)["address"] == address(pair.second)
        assert read(present.client(), 3) == [2, 3]


def state(server: Sluice) -> str:
    return str(server.destination()["state"])


def read(client: Client, last: int) -> list[int]:
    """Get and ack until a row has come; all rows that came."""
    rows: list[int] = []

    def has_come() -> bool:
        batch = client.get_without_ack(0.5)
        if batch:
            rows.extend(row.after["id"] for row in batch.rows() if row.after)
            client.ack(batch, durable=True)
        return last in rows

    eventually(has_come, lambda: (rows, client.status()))
    return rows


@pytest.fixture(params=["mysql97", pytest.param("mysql56", marks=pytest.mark.extended)])
def plain_pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Two servers without GTIDs."""
    options = [] if request.param in OLD else ["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"]
    with Pair(request.param, *options, gtids=False) as found:
        yield found


@pytest.mark.extended
def test_without_gtids_the_place_is_proven_by_comparing_the_last_transactions(sluice: Sluice, plain_pair: Pair) -> None:
    pair = plain_pair
    configure(sluice, pair, **DETECTING)
    with sluice:
        sluice.wait_running()
        consumer, writer = Consumer(sluice.client()), Writer(pair.first)
        consumer.start()
        writer.start()
        for wanted in (pair.second, pair.first):
            writer.reach(50)
            assert switch(sluice)["source"]["address"] == address(wanted)
        writer.reach(50)
        written = writer.stop()
        consumer.wait_for(written[-1])
        pair.catch_up(pair.second, pair.first)
        pair.promote(pair.second)
        pair.first.kill()
        eventually(lambda: source_of(sluice)["address"] == address(pair.second), sluice.destination)
        insert(pair.second, 100_000)
        consumer.wait_for(100_000)
        assert consumer.stop() == [*written, 100_000]


@pytest.mark.extended
def test_without_gtids_a_switch_that_cannot_be_proven_is_refused(sluice: Sluice, plain_pair: Pair) -> None:
    pair = plain_pair
    configure(sluice, pair)
    with sluice:
        sluice.wait_running()
        with pytest.raises(AssertionError, match=r"none was read since the start.*`sluice seek shop CLIENT"):
            switch(sluice)
        consumer = Consumer(sluice.client())
        consumer.start()
        insert(pair.first, 1, 2)
        consumer.wait_for(2)
        pair.catch_up(pair.second, pair.first)
        pair.promote(pair.second)
        insert(pair.first, 3)  # the other one does not have it
        consumer.wait_for(3)
        with pytest.raises(AssertionError, match=r"are not there in this order.*`sluice seek shop CLIENT"):
            switch(sluice)
        insert(pair.first, 4)
        consumer.wait_for(4)
        assert source_of(sluice)["address"] == address(pair.first)
        assert consumer.stop() == [1, 2, 3, 4]
    sluice.add("shop", pair.second, canal__instance__filter__regex=rf"{SCHEMA}\\..*")
    status = "SHOW MASTER STATUS" if pair.second.name in OLD else "SHOW BINARY LOG STATUS"
    file, offset, *_ = pair.second.query(status)[0]
    with sluice:  # as the text says
        eventually(lambda: "is of another source" in sluice.destination()["error"], sluice.destination)
        command(sluice, "seek", "shop", "1001", f"{file}:{offset}")
        insert(pair.second, 4)
        assert read(sluice.client(), 4) == [4]


@pytest.mark.extended
def test_without_gtids_a_client_that_is_behind_the_ring_is_named_and_then_told(
    sluice: Sluice, plain_pair: Pair
) -> None:
    pair = plain_pair
    configure(sluice, pair, canal__instance__memory__buffer__size=16, sluice__instance__detachAfter=1)
    with sluice:
        sluice.wait_running()
        fast, slow = sluice.client(), sluice.client(7)
        for client in (fast, slow):
            client.subscribe()
        insert(pair.first, *range(1, 21))
        assert read(fast, 20) == [*range(1, 21)]
        eventually(lambda: slow.status()["state"] == "catching-up", slow.status)
        pair.catch_up(pair.second, pair.first)
        with pytest.raises(AssertionError, match=r"1 clients wait for places .* 7 of shop"):
            switch(sluice)
        assert source_of(sluice)["address"] == address(pair.first)
        assert switch(sluice, accept="true")["source"]["address"] == address(pair.second)
        assert "switch (" in commands.run("gaps", "list", "shop", "--url", sluice.url).stdout
        insert(pair.first, 21)
        assert read(fast, 21) == [21]
        found = read(slow, 21)
        assert found == [*range(found[0], 22)]
        assert found[0] > 1


@pytest.mark.extended
def test_after_a_switch_the_oldest_place_is_where_the_log_begins_that_of_the_former_source(
    sluice: Sluice, pair: Pair
) -> None:
    configure(sluice, pair, sluice__instance__store="mixed", sluice__instance__store__minFree=0)
    sluice.configure("part", sluice__instance__route="shop")
    with sluice:
        sluice.wait_running()
        clients = {name: sluice.client(name=name) for name in ("shop", "part")}

        for client in clients.values():
            client.subscribe()
        for number in (1, 2, 3):
            pair.first.query(f"INSERT INTO {SCHEMA}.t VALUES (%s, 'a')", (number,))
        assert [read(client, 3) for client in clients.values()] == [[1, 2, 3]] * 2
        switch(sluice)
        pair.second.query(f"INSERT INTO {SCHEMA}.t VALUES (4, 'b')")
        assert [read(client, 4) for client in clients.values()] == [[4]] * 2
        for name, client in clients.items():
            assert "resumes at" in command(sluice, "seek", name, "1001", "oldest")
            assert read(client, 4) == [1, 2, 3, 4]


def purge(server: Server) -> None:
    """Let a server forget all that it has written so far."""
    server.query("FLUSH BINARY LOGS")
    name = server.query("SHOW BINARY LOGS")[-1][0]

    def is_done() -> bool:
        server.query(f"PURGE BINARY LOGS TO '{name}'")
        return bool(server.query("SHOW BINARY LOGS")[0][0] == name)

    eventually(is_done, "the purge")


def gtids_of(sluice: Sluice, client_id: int) -> str:
    """What a client has executed, as its cursor is stored."""
    clients = json.loads((sluice.data / "shop" / "meta.dat").read_text())["clientDatas"]
    (cursor,) = [it["cursor"] for it in clients if it["clientIdentity"]["clientId"] == client_id]
    return str(cursor["postion"]["gtid"])


def read_what_comes_from_the_new_source(sluice: Sluice, pair: Pair, client: Client) -> Batch:
    """Switch, and kill the server before any cursor is stored; the last batch, which was acked."""
    sluice.wait_running()
    client.subscribe()
    insert(pair.first, 1, 2)
    assert read(client, 2) == [1, 2]
    insert(pair.first, 3)
    eventually(lambda: client.status()["lag"]["rows"], "row 3")
    switch(sluice)
    insert(pair.first, 4)
    batch = client.get_without_ack(5.0)
    while not any(row.after and row.after["id"] == 4 for row in batch.rows()):
        client.ack(batch)
        batch = client.get_without_ack(5.0)
    client.ack(batch)
    sluice.kill()
    assert str(sluice.stored()).partition("/")[0] != batch.to.partition("/")[0]
    sluice.start()
    return batch


@pytest.mark.extended
@pytest.mark.parametrize("store", ["memory", "mixed"])
def test_what_came_from_the_new_source_is_acked_after_a_kill_though_the_stored_cursor_is_of_the_former_one(
    sluice: Sluice, pair: Pair, store: str
) -> None:
    sluice.settings |= {"canal__file__flush__period": 3_600_000}
    configure(sluice, pair, sluice__instance__store=store, sluice__instance__store__minFree=0)
    with sluice:
        client = sluice.client()
        client.ack(read_what_comes_from_the_new_source(sluice, pair, client).to)
        insert(pair.first, 5)
        assert read(client, 5) == [5]


@pytest.mark.extended
def test_what_came_from_the_new_source_comes_again_when_it_was_rolled_back_since(sluice: Sluice, pair: Pair) -> None:
    sluice.settings |= {"canal__file__flush__period": 3_600_000}
    configure(sluice, pair)
    with sluice:
        urls = [f"http://127.0.0.1:{free_port()}", sluice.url]  # it acks by position once it has left a server
        client = Client(urls, "shop", 1001, retry=SECONDS)
        batch = read_what_comes_from_the_new_source(sluice, pair, client)
        client.rollback()
        with pytest.raises(UnknownBatchError):
            client.ack(batch)
        assert read(client, 4)[-1] == 4


@pytest.mark.extended
@pytest.mark.parametrize("store", ["memory", "mixed"])
def test_ranges_give_the_rest_of_the_former_source_and_who_takes_batches_goes_on_after_it(
    sluice: Sluice, pair: Pair, store: str
) -> None:
    configure(sluice, pair, sluice__instance__store=store, sluice__instance__store__minFree=0)
    with sluice:
        sluice.wait_running()
        client = sluice.client()
        client.subscribe()
        begin = client.status()["position"]
        insert(pair.first, 1, 2)
        eventually(lambda: client.status()["lag"]["rows"] == 2, client.status)
        switch(sluice)
        before = sluice.destination()["last"]
        insert(pair.first, 3)
        eventually(lambda: sluice.destination()["last"] != before, sluice.destination)
        found = client.position(begin, timeout=SECONDS)
        assert [row.after["id"] for row in client.rows(found.from_, found.to).rows() if row.after] == [1, 2]
        client.ack(found.to)
        assert read(client, 3) == [3]


LOGGED = {"sluice__instance__store": "mixed", "sluice__instance__store__minFree": 0}


@pytest.mark.extended
@pytest.mark.parametrize("gtidon", ["true", "false"])
def test_the_log_has_all_that_two_sources_have_purged_for_a_client_that_had_acked_and_for_a_new_one(
    sluice: Sluice, mysql_pair: Pair, gtidon: str
) -> None:
    """So it has for one of a view that was stopped meanwhile."""
    pair = mysql_pair
    configure(sluice, pair, canal__instance__gtidon=gtidon, **LOGGED)
    sluice.configure("part", sluice__instance__route="shop")
    with sluice:
        sluice.wait_running()
        ahead, behind, part = sluice.client(1), sluice.client(2), sluice.client(4, name="part")
        for client in (ahead, behind, part):
            client.subscribe()
        insert(pair.first, 1, 2)
        for client in (ahead, part):
            assert read(client, 2) == [1, 2]
        sluice.call("POST", "/part/stop")
        switch(sluice)
        insert(pair.first, 3)
        assert read(behind, 3) == [1, 2, 3]
        switch(sluice)
        insert(pair.first, 4)
        assert read(behind, 4) == [4]
        sluice.stop()
        sluice.start()
        sluice.wait_running()
        assert len(sluice.destination()["log"]["stretches"]) == 1
        insert(pair.first, 5)
        assert read(behind, 5) == [5]
        pair.catch_up(pair.second, pair.first)
        for server in (pair.first, pair.second):
            purge(server)
        for client in (ahead, part):
            assert read(client, 5) == [3, 4, 5], "it had acked everything of the first source"
        newest = sluice.client(3)
        newest.subscribe()
        assert gtids_of(sluice, 3), "before its first ack"
        assert read(newest, 5) == [1, 2, 3, 4, 5], "`earliest` is where the log begins"
    text = sluice.log_file.read_text()
    assert "the log has a gap" not in text
    assert "is read instead of the log" not in text


@pytest.mark.extended
def test_without_gtids_rows_of_a_snapshot_are_given_before_the_other_server_writes_anything(
    sluice: Sluice, plain_pair: Pair
) -> None:
    pair = plain_pair
    pair.first.query(f"INSERT INTO {SCHEMA}.t (id) VALUES (1), (2), (3)")
    configure(sluice, pair)
    with sluice:
        sluice.wait_running()
        client = sluice.client()
        client.subscribe()
        pair.first.query(f"INSERT INTO {SCHEMA}.t (id) VALUES (4)")
        client.ack(client.get_without_ack(SECONDS))
        pair.catch_up(pair.second, pair.first)
        pair.promote(pair.second)
        switch(sluice)
        client.snapshot(f"{SCHEMA}.t")
        found = list[int]()
        while len(found) < 4:
            batch = client.get_without_ack(SECONDS)
            assert batch, "no row came"
            found += [row.after["id"] for row in batch.rows() if row.after]
            client.ack(batch)
        assert found == [1, 2, 3, 4]
