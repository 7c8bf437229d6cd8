"""The log on disk holds what the source has purged, whatever befalls the server that writes it."""

import random
import resource
from collections.abc import Iterator

import pytest

from tests import commands
from tests.conftest import Database
from tests.faults.harness import USUAL, Consumer, Load, Sluice, consuming
from tests.servers import Server
from tests.waiting import eventually

SOAK = [pytest.mark.soak, pytest.mark.timeout(3600)]
SETTINGS = {
    "sluice__instance__store": "mixed",
    "sluice__instance__store__minFree": 0,
    "canal__instance__memory__buffer__size": 512,
}


@pytest.fixture
def full_metadata(source: Server) -> Iterator[None]:
    """The source writes the names of columns into its events: rows of any time are read with them."""
    with source.variable("binlog_row_metadata", "FULL"):
        yield


def purge(source: Server, sluice: Sluice) -> None:
    """Let the source forget all that is not in a new file, as soon as the log is in that."""
    source.query("FLUSH BINARY LOGS")
    name = source.query("SHOW BINARY LOGS")[-1][0]
    eventually(lambda: name in sluice.destination()["log"]["stretches"][-1][1], "the log")

    def is_done() -> bool:
        source.query(f"PURGE BINARY LOGS TO '{name}'")
        return bool(source.query("SHOW BINARY LOGS")[0][0] == name)

    eventually(is_done, "the purge")


def run(command: str, sluice: Sluice) -> str:
    """What a command of the command line prints."""
    return commands.run(*command.split(), "--url", sluice.url, check=True).stdout


@pytest.mark.usefixtures("full_metadata")
@pytest.mark.parametrize("source", USUAL, indirect=True)
@pytest.mark.parametrize("lives", [pytest.param(2, id="short"), pytest.param(100, id="soak", marks=SOAK)])
def test_a_client_that_comes_last_gets_everything_though_the_server_was_killed_and_the_source_has_purged_it(
    sluice: Sluice, source: Server, database: Database, lives: int
) -> None:
    schema = database(source)
    sluice.add("shop", source, canal__instance__filter__regex=rf"{schema}\\..*", **SETTINGS)
    chance = random.Random(11)
    load = Load(source, schema)
    with sluice:
        sluice.wait_running()
        sluice.client(1009).subscribe()
        quick = Consumer(sluice.client(1001), "durable")
        with load, consuming(quick):
            for _ in range(lives):
                goal = load.committed + chance.randrange(20, 150)
                read = len(quick.seen)
                eventually(lambda: load.committed > goal and len(quick.seen) > read)  # noqa: B023
                sluice.kill()
                sluice.start()
                sluice.wait_running()
                purge(source, sluice)
            load.finish(stop=True)
            load.check(quick.finish())
        last = Consumer(sluice.client(1009), "batches")
        with consuming(last):
            changes = last.finish()
        load.check(changes)
        load.check_transactions(changes)
        assert not last.repeats
        assert "\n  log    " in run("status", sluice)
        listed = run("log list shop", sluice)
        assert "00000000000000000001.log" in listed
        assert "the changes in between are missing" not in listed
        assert "0 files, 0 bytes would go\n" in run("log prune shop --bytes 0 --dry-run", sluice)
    text = sluice.log_file.read_text()
    assert "Traceback" not in text
    assert "the log has a gap" not in text


@pytest.mark.extended
def test_on_a_full_disk_readers_go_on_and_the_rest_follows_when_there_is_room(
    sluice: Sluice, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    sluice.add("shop", mariadb118, canal__instance__filter__regex=rf"{schema}\\..*", **SETTINGS)
    load = Load(mariadb118, schema, count=200)
    with sluice:
        sluice.wait_running()
        late = sluice.client(1009)
        late.subscribe()
        with load:
            eventually(lambda: load.committed > 200)
            # The process may not make a file grow any more: every user can have that, and it fails as a full disk does.
            limits = resource.prlimit(sluice.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            load.finish()
        assert "\n" not in sluice.wait_error("the log cannot be written: .*File too large")
        batch = late.get_without_ack(5.0)
        assert batch
        late.rollback()
        resource.prlimit(sluice.process.pid, resource.RLIMIT_FSIZE, limits)
        eventually(lambda: not sluice.destination()["error"], "recovery")
        consumer = Consumer(late, "batches")
        with consuming(consumer):
            load.check(consumer.finish())
        sluice.stop()
        sluice.start()
        assert not sluice.client(1009).get_without_ack(0.5), "nothing comes again"
    assert "the log has a gap" not in sluice.log_file.read_text()
