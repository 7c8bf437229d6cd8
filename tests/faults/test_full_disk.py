"""The disk of the cursors is full: acks that have to be durable fail, nothing is lost, and it recovers by itself."""

import resource
from collections.abc import Iterable

import pytest

from sluice.protocol.errors import SluiceError
from tests.conftest import Database
from tests.faults.harness import Load, Seen, Sluice, seen
from tests.servers import Server
from tests.waiting import eventually


def test_without_room_for_cursors_durable_acks_fail_until_there_is_room_again(
    sluice: Sluice, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    sluice.add("shop", mariadb118, canal__instance__filter__regex=rf"{schema}\\..*")
    load = Load(mariadb118, schema, count=20)
    with sluice:
        sluice.wait_running()
        client = sluice.client()
        client.subscribe()
        with load:
            load.finish()
        before = client.get_without_ack(5.0)
        client.ack(before.batch_id, durable=True)
        kept = sluice.stored()
        load.server.query("INSERT INTO finished VALUES (2, 0, 0, NULL)", database=schema)
        batch = client.get_without_ack(5.0)
        # The process may not make a file grow any more: every user can have that, and it fails as a full disk does.
        limits = resource.prlimit(sluice.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        with pytest.raises(SluiceError, match=r"cannot be stored|cannot store|File too large"):
            client.ack(batch, durable=True)
        error = sluice.wait_error("cursors cannot be stored: .*File too large")
        assert error.count("\n") == 0
        assert sluice.stored() == kept, "the file is the old one, and whole"
        resource.prlimit(sluice.process.pid, resource.RLIMIT_FSIZE, limits)
        eventually(lambda: not sluice.destination()["error"], "recovery")
        eventually(lambda: sluice.stored() != kept, "the ack that could not be stored")
        load.server.query("INSERT INTO finished VALUES (3, 0, 0, NULL)", database=schema)
        entries = [*seen(before), *seen(batch)]
        while 3 not in finished(entries):
            rest = client.get_without_ack(5.0)
            client.ack(rest, durable=True)
            entries += seen(rest)
        load.check(entries)
        assert finished(entries) == [1, 2, 3]
        sluice.stop()
        assert not (sluice.data / "shop" / "meta.tmp").exists()
        sluice.start()
        assert not sluice.client().get_without_ack(0.5), "nothing comes again"


def finished(entries: Iterable[Seen]) -> list[object]:
    """The ids that were written to the table in which a load says that it has finished."""
    return [op.image["id"] for it in entries for op in it.ops if op.table == "finished"]


@pytest.mark.extended
def test_a_server_that_stops_on_a_full_disk_keeps_the_old_cursors_whole(
    sluice: Sluice, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    sluice.add("shop", mariadb118, canal__instance__filter__regex=rf"{schema}\\..*")
    load = Load(mariadb118, schema, count=5)
    with sluice:
        sluice.wait_running()
        client = sluice.client()
        client.subscribe()
        resource.prlimit(sluice.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        kept = sluice.stored()
        with load:
            load.finish()
        first = client.get_without_ack(5.0)
        client.ack(first)
        sluice.process.terminate()
        sluice.process.wait(10)
        assert sluice.stored() == kept
        assert not any("Traceback" in line for line in sluice.log), "".join(sluice.log)
        sluice.start()
        assert list(seen(sluice.client().get_without_ack(5.0)))[:1] == list(seen(first))[:1]
