"""The disk of the log is full, or cannot be written at all: others go on, nothing is lost, and it is over by itself."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Database
from tests.faults.harness import Consumer, Load, Sluice, consuming
from tests.faults.test_log_dies import SETTINGS
from tests.servers import Server
from tests.waiting import eventually

pytestmark = pytest.mark.extended  # they mount a disk of their own, which not every root may


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MiB."""
    found = tmp_path / "disk"
    found.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", found], check=True)
    yield found
    subprocess.run(["umount", "--lazy", found], check=True)


def test_on_a_full_disk_readers_go_on_also_after_a_restart_and_all_follows_when_there_is_room(
    sluice: Sluice, mariadb118: Server, database: Database, disk: Path
) -> None:
    schema = database(mariadb118)
    settings = SETTINGS | {"sluice__instance__store__dir": disk, "sluice__instance__store__maxBytes": 1 << 40}
    sluice.add("shop", mariadb118, canal__instance__filter__regex=rf"{schema}\\..*", **settings)
    load = Load(mariadb118, schema)
    with sluice.reading():
        late = sluice.client(1009)
        late.subscribe()
        with load:
            eventually(lambda: load.committed > 100)
            with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            for _ in range(2):
                sluice.wait_error("the log cannot be written: .*(waits for room|No space left on device)")
                batch = late.get_without_ack(5.0)
                assert batch
                late.rollback()
                sluice.kill()
                sluice.start()
            sluice.wait_error("the log cannot be written: ")
            (disk / "filler").unlink()
            eventually(lambda: not sluice.destination()["error"], "recovery")
            load.finish(stop=True)
        consumer = Consumer(late, "batches")
        with consuming(consumer):
            load.check(consumer.finish())
    text = sluice.log_file.read_text()
    assert "the log has a gap" not in text
    assert "Traceback" not in text


def test_a_log_on_a_disk_that_is_read_only_keeps_only_its_destination_from_starting(
    sluice: Sluice, mariadb118: Server, database: Database, disk: Path
) -> None:
    schema = database(mariadb118)
    filter_ = {"canal__instance__filter__regex": rf"{schema}\\..*"}
    sluice.add("shop", mariadb118, **filter_, **SETTINGS, sluice__instance__store__dir=disk)
    sluice.add("plain", mariadb118, **filter_)
    load = Load(mariadb118, schema, count=20)
    with sluice.reading():
        sluice.client().subscribe()
        with load:
            load.finish()
        eventually(lambda: sluice.destination()["log"]["bytes"] > 10_000)
        sluice.stop()
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        sluice.start()
        sluice.wait_running("plain")
        problem = (
            rf"the log in {disk}/shop/log \(sluice\.instance\.store\.dir\) cannot be used: .*Read-only file system"
        )
        sluice.wait_error(problem)
        states = {name: sluice.destination(name)["state"] for name in ("shop", "plain")}
        assert states == {"shop": "stopped", "plain": "running"}
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        sluice.call("POST", "/shop/start")
        consumer = Consumer(sluice.client(), "batches")
        with consuming(consumer):
            assert load.check(consumer.finish()) == load.changes()
