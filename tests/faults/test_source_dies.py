"""The source is restarted, killed, stalls, is reset, or purges what was not read."""

import random
import time

from tests.conftest import Database
from tests.faults.harness import Consumer, Load, Sluice, consuming, eventually
from tests.proxy import Proxy
from tests.servers import Server


def test_restarts_and_kills_of_the_source_under_load(sluice: Sluice, doomed: Server, database: Database) -> None:
    schema = database(doomed)
    sluice.add("shop", doomed, canal__instance__filter__regex=rf"{schema}\\..*")
    chance = random.Random(9)
    load = Load(doomed, schema)
    with sluice:
        sluice.wait_running()
        consumer = Consumer(sluice.client())
        with load, consuming(consumer):
            for end in (doomed.stop, doomed.kill, doomed.kill):
                goal = load.committed + chance.randrange(50, 200)
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


def _reset(server: Server) -> None:
    server.query("RESET MASTER" if server.mariadb else "RESET BINARY LOGS AND GTIDS")


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
        time.sleep(1.1)  # a binlog's time of creation has seconds
        _reset(doomed)
        doomed.query(f"INSERT INTO {schema}.t VALUES (100, 'new')")
        doomed.restart()
        sluice.wait_error("reset, restored|another (source|history)|source-changed")
        assert not client.get(0.3)
        # And when the new binlog has grown beyond the place, with the names of the old.
        for number in range(101, 141):
            doomed.query(f"INSERT INTO {schema}.t VALUES ({number}, REPEAT('y', 1000))")
        sluice.stop()
        sluice.start()
        sluice.wait_error("reset, restored|another (source|history)|source-changed")
        assert sluice.stored() == kept


def test_what_was_purged_meanwhile_is_a_clear_error_and_the_cursor_stays(
    sluice: Sluice, doomed: Server, database: Database
) -> None:
    schema = database(doomed)
    doomed.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    sluice.add("shop", doomed, canal__instance__filter__regex=rf"{schema}\\..*")
    with sluice:
        sluice.wait_running()
        client = sluice.client()
        client.subscribe()
        doomed.query(f"INSERT INTO {schema}.t VALUES (1)")
        while not client.get(1.0).rows():
            pass
        sluice.stop()
        kept = sluice.stored()
        assert kept is not None
        for number in (2, 3):
            doomed.query(f"INSERT INTO {schema}.t VALUES ({number})")
            doomed.query("FLUSH BINARY LOGS")
        (*_, (last, *_)) = doomed.query("SHOW BINARY LOGS")

        def purged() -> bool:  # a replica that has just gone holds files for a moment
            doomed.query(f"PURGE BINARY LOGS TO '{last}'")
            return len(doomed.query("SHOW BINARY LOGS")) == 1

        eventually(purged)
        sluice.start()
        error = sluice.wait_error("purged")
        assert kept.file in error
        assert last in error
        assert sluice.stored() == kept
        assert sluice.call("GET", "/shop/clients/1001")["position"] in ("", str(kept))

        # What the operations page says to do about it.
        doomed.query(f"INSERT INTO {schema}.t VALUES (4)")
        client.unsubscribe()
        sluice.add(
            "shop",
            doomed,
            canal__instance__filter__regex=rf"{schema}\\..*",
            canal__instance__master__journal__name=last,
        )
        sluice.call("POST", "/shop/stop")
        sluice.call("POST", "/shop/start")
        client.subscribe()
        rows: list[int] = []
        while not rows:
            rows = [row.after["id"] for row in client.get(1.0).rows() if row.after]
        assert rows == [4]
