"""The source is restarted, killed, stalls, is reset, or purges what was not read."""

import asyncio
import random
import re
import signal

import pytest

from sluice.client_sdk import Client
from sluice.protocol.canal.packet_pb2 import Get
from sluice.protocol.errors import BadPositionError, PurgedError, SourceChangedError
from sluice.protocol.position import Position
from tests.canal import CanalClient, CanalError
from tests.conftest import Database
from tests.faults.harness import Consumer, Load, Sluice, consuming
from tests.proxy import Proxy
from tests.servers import Server, freeze, next_second
from tests.waiting import eventually


def test_restarts_and_kills_of_the_source_under_load(sluice: Sluice, doomed: Server, database: Database) -> None:
    schema = database(doomed)
    sluice.add("shop", doomed, canal__instance__filter__regex=rf"{schema}\\..*")
    chance = random.Random(9)
    load = Load(doomed, schema)
    with sluice:
        sluice.wait_running()
        consumer = Consumer(sluice.client())
        with load, consuming(consumer):
            for end in (doomed.stop, doomed.kill):
                goal = load.committed + chance.randrange(50, 150)
                eventually(lambda: load.committed > goal)  # noqa: B023
                end()
                sluice.wait_error("closed the connection|ended the dump|cannot log in|lost")
                doomed.start()
            goal = load.committed + 20
            eventually(lambda: load.committed > goal)
            load.finish(stop=True)
            changes = consumer.finish()
            assert not consumer.repeats
        load.check(changes)
        load.check_transactions(changes)


@pytest.mark.extended
def test_a_source_that_stalls_is_connected_to_again(sluice: Sluice, source: Server, database: Database) -> None:
    schema = database(source)
    load = Load(source, schema)
    with Proxy((source.host, source.port)) as proxy:
        sluice.add(
            "shop",
            source,
            canal__instance__master__address=f"{proxy.host}:{proxy.port}",
            canal__instance__filter__regex=rf"{schema}\\..*",
            canal__instance__network__soTimeout=2,
        )
        with sluice:
            sluice.wait_running()
            consumer = Consumer(sluice.client())
            with load, consuming(consumer):
                eventually(lambda: load.committed > 30)
                proxy.stall()
                sluice.wait_error("sent nothing, not even a heartbeat, for 2 s|timed out")
                proxy.resume()
                sluice.wait_running()
                goal = load.committed + 30
                eventually(lambda: load.committed > goal)
                load.finish(stop=True)
                changes = consumer.finish()
                assert not consumer.repeats
            load.check(changes)
            load.check_transactions(changes)


@pytest.mark.extended
def test_a_reset_of_the_binlog_is_refused_and_not_resumed(sluice: Sluice, doomed: Server, database: Database) -> None:
    schema = database(doomed)
    doomed.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v VARCHAR(2000))")
    sluice.add("shop", doomed, canal__instance__filter__regex=rf"{schema}\\..*")
    with sluice:
        sluice.wait_running()
        client = sluice.client()
        client.subscribe()
        for number in range(20):
            doomed.query(f"INSERT INTO {schema}.t VALUES ({number}, REPEAT('x', 1000))")
        while not any(row.after and row.after["id"] == 19 for row in client.get(1.0)):
            pass
        eventually(lambda: (it := sluice.stored()) is not None and str(it) == client.status()["acked"])
        # While it is read: the source closes the dump, and then lacks the place.
        kept = sluice.stored()
        next_second()
        doomed.reset_binlog()
        doomed.query(f"INSERT INTO {schema}.t VALUES (100, 'new')")
        doomed.restart()
        sluice.wait_error("reset, restored|another (source|history)|source-changed")
        with pytest.raises(SourceChangedError, match="reset, restored"):
            client.get(60)
        # And when the new binlog has grown beyond the place, with the names of the old.
        for number in range(101, 141):
            doomed.query(f"INSERT INTO {schema}.t VALUES ({number}, REPEAT('y', 1000))")
        sluice.stop()
        sluice.start()
        sluice.wait_error("reset, restored|another (source|history)|source-changed")
        assert sluice.stored() == kept


def _read(client: Client) -> list[int]:
    rows: list[int] = []
    while not rows:
        rows = [row.after["id"] for row in client.get(1.0).rows() if row.after]
    return rows


@pytest.mark.extended
def test_a_purge_stops_only_those_who_have_lost_their_place_and_moves_no_cursor(  # noqa: PLR0915
    sluice: Sluice, doomed: Server, database: Database
) -> None:
    # Long: one story, of which each step begins where the one before it has ended.
    schema = database(doomed)
    doomed.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    options: dict[str, object] = {"canal__instance__filter__regex": rf"{schema}\\..*"}
    sluice.add("shop", doomed, **options)
    clients = {client_id: sluice.client(client_id) for client_id in (1001, 1002, 1003)}
    living = clients[1001]

    def write(number: int) -> None:
        doomed.query(f"INSERT INTO {schema}.t VALUES ({number})")

    def flush() -> str:
        doomed.query("FLUSH BINARY LOGS")
        return str(doomed.query("SHOW BINARY LOGS")[-1][0])

    with sluice:
        sluice.wait_running()
        for client in clients.values():
            client.subscribe()
        for number, readers in enumerate(((1001, 1002, 1003), (1001, 1002), (1001,)), 1):
            write(number)
            assert [_read(clients[client_id]) for client_id in readers] == [[number]] * len(readers)
            file = flush()
        write(4)
        assert _read(living) == [4]
        eventually(lambda: (place := sluice.stored()) is not None and place.file == file)
        sluice.stop()
        kept = {client_id: sluice.stored(client_id) for client_id in (1002, 1003)}
        doomed.purge_binlogs(file)
        write(5)

        # Two have lost their place.
        sluice.start()
        assert _read(living) == [5]
        assert sluice.destination()["state"] == "running"
        for client_id, place in kept.items():
            client = clients[client_id]
            eventually(lambda: client.status()["state"] == "gone", client.status)  # noqa: B023
            status = client.status()
            assert (status["problem"], status["position"]) == ("purged", str(place))
            assert "'oldest', where it resumes with all that is left" in status["advice"]
            assert place is not None
            lost = rf"has purged the binlog at {place.file}.*oldest file that it has is {file}"
            with pytest.raises(PurgedError, match=lost):
                client.get(1.0)
            with pytest.raises(PurgedError, match=lost):
                next(client.stream())
            with pytest.raises(PurgedError, match=lost):
                list(client.rows(str(place), living.status()["acked"]))
            with pytest.raises(CanalError, match=f"{lost}.*then move the client to 'oldest'"):
                asyncio.run(_get_by_canal(sluice.canal_port, client_id))
            (line,) = [line for line in sluice.log if f"client {client_id} is not served any more" in line]
            assert re.search(lost, line)
        listed = {client["clientId"]: client["state"] for client in sluice.destination()["clients"]}
        assert listed == {1001: "attached", 1002: "gone", 1003: "gone"}
        clients[1002].unsubscribe()
        with pytest.raises(BadPositionError, match=r"would skip changes .* start `oldest` .* or with `latest`"):
            clients[1002].subscribe()
        clients[1002].subscribe(start="latest")
        write(6)
        assert [_read(clients[client_id]) for client_id in (1001, 1002)] == [[6], [6]]
        sluice.stop()

        # All have.
        write(7)
        kept = {client_id: sluice.stored(client_id) for client_id in clients}
        file = flush()
        doomed.purge_binlogs(file)
        sluice.start()
        error = sluice.wait_error("purged")
        assert kept[1003] is not None
        assert kept[1003].file in error
        assert file in error
        assert {client_id: sluice.stored(client_id) for client_id in clients} == kept
        write(8)
        for client in clients.values():
            client.unsubscribe()
        sluice.add("shop", doomed, **options, canal__instance__master__journal__name=file)
        sluice.call("POST", "/shop/stop")
        sluice.call("POST", "/shop/start")
        living.subscribe()
        assert _read(living) == [8]


async def _get_by_canal(port: int, client_id: int) -> None:
    client = await CanalClient.connect(port)
    try:
        client.destination, client.client_id = "shop", str(client_id)
        client.send(Get(destination="shop", client_id=str(client_id), fetch_size=10, timeout=-1))
        await client.batch()
    finally:
        client.cut()


@pytest.mark.extended
def test_a_purge_while_it_is_read_is_told_in_the_stream_where_it_goes_on_as_configured(
    sluice: Sluice, doomed: Server, database: Database
) -> None:
    schema = database(doomed)
    doomed.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    sluice.settings["canal__auto__reset__latest__pos__mode"] = "true"
    sluice.add("shop", doomed, canal__instance__filter__regex=rf"{schema}\\..*")
    with sluice, sluice.client() as client:
        sluice.wait_running()
        client.subscribe()
        doomed.query(f"INSERT INTO {schema}.t VALUES (1)")
        assert _read(client) == [1]
        doomed.query(f"INSERT INTO {schema}.t VALUES (2)")
        eventually(lambda: client.status()["lag"]["rows"] == 1)
        freeze(sluice.process.pid)
        doomed.restart()  # its dump ends
        doomed.query(f"INSERT INTO {schema}.t VALUES (3)")
        doomed.query("FLUSH BINARY LOGS")
        doomed.purge_binlogs(str(doomed.query("SHOW BINARY LOGS")[-1][0]))
        sluice.process.send_signal(signal.SIGCONT)
        eventually(lambda: bool(sluice.destination()["gaps"]), sluice.destination)
        doomed.query(f"INSERT INTO {schema}.t VALUES (4)")
        rows, markers = list[int](), list[str]()
        while 4 not in rows:
            batch = client.get(1.0)
            rows += [row.after["id"] for row in batch.rows() if row.after]
            markers += [it.header_props["sluice.gap"] for it in batch.markers()]
        assert rows == [2, 4], "what the ring had comes before the gap"
        (gap,) = sluice.destination()["gaps"]
        assert (gap["state"], gap["reason"]) == ("told", "purge")
        end = Position.parse(gap["after"])
        assert [it.partition(": ")[0] for it in markers] == [f"changes from {gap['before']} to {end.file}:{end.begin}"]
        assert client.confirm_gaps() == 1
        assert not sluice.destination()["gaps"]


def test_a_start_takes_a_corrected_password(sluice: Sluice, source: Server, database: Database) -> None:
    schema = database(source)
    options: dict[str, object] = {"canal__instance__filter__regex": rf"{schema}\\..*"}
    sluice.add("shop", source, canal__instance__dbPassword="a wrong one", **options)
    with sluice, sluice.client() as client:
        sluice.wait_error("denied|cannot log in")
        assert "a wrong one" not in "".join(sluice.log)
        sluice.call("POST", "/shop/start")
        sluice.wait_error("denied|cannot log in")
        sluice.add("shop", source, **options)
        sluice.call("POST", "/shop/start")
        sluice.wait_running()
        client.subscribe()
        source.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
        source.query(f"INSERT INTO {schema}.t VALUES (1)")
        assert _read(client) == [1]
