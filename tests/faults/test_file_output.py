"""Changes reach files, each of them once and in order, while servers die and disks are full."""

import contextlib
import random
import re
import resource
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from sluice.store.archive import read_indexes
from tests.conftest import Database
from tests.faults.harness import Load, Sluice
from tests.kafka import ops, seen
from tests.servers import Server, ZooKeeper, freeze
from tests.waiting import eventually


def configure(sluice: Sluice, folder: Path | str, source: Server, schema: str, **settings: object) -> None:
    """Configure a destination whose changes go to files."""
    sluice.add(
        "shop",
        source,
        canal__instance__filter__regex=rf"{schema}\\..*",
        sluice__outputs="copy",
        sluice__output__copy__type="file",
        sluice__output__copy__folder=folder,
        **settings,
    )


def lines(folder: Path) -> list[bytes]:
    """Wait for the end of the load in a whole file; return the lines of all files."""

    def read() -> list[bytes]:
        return [line for it in read_indexes(folder) for line in (folder / it.file).read_bytes().splitlines()]

    eventually(lambda: any(b'"finished"' in line and b'"INSERT"' in line for line in read()), "the end in a file")
    return read()


@pytest.mark.parametrize("kills", [2, pytest.param(30, marks=pytest.mark.extended)])
@pytest.mark.timeout(600)
def test_each_change_is_in_the_files_once_whatever_is_killed(
    sluice: Sluice, mariadb118: Server, database: Database, tmp_path: Path, kills: int
) -> None:
    schema = database(mariadb118)
    small = {"sluice__output__copy__fileBytes": 1 << 16, "sluice__output__copy__fileSeconds": 5}
    configure(sluice, tmp_path / "files", mariadb118, schema, **small)
    load = Load(mariadb118, schema)
    chance = random.Random(7)
    with sluice.reading():
        with load:
            for _ in range(kills):
                goal = load.committed + chance.randrange(20, 150)
                eventually(lambda: load.committed > goal)  # noqa: B023
                sluice.kill()
                sluice.start()
            load.finish(stop=True)
        assert load.check(seen(ops(lines(tmp_path / "files")))) == load.changes()


@pytest.mark.extended
def test_a_full_disk_is_waited_for_and_nothing_is_lost(
    sluice: Sluice, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    schema, folder = database(mariadb118), tmp_path / "files"
    configure(sluice, folder, mariadb118, schema, sluice__output__copy__fileSeconds=1)
    load = Load(mariadb118, schema)
    with sluice.reading():
        with load:
            eventually(lambda: load.committed > 20)
            # The process may not make a file grow any more: every user can have that, and it fails as a full disk does.
            limits = resource.prlimit(sluice.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            eventually(lambda: output(sluice)["state"] == "retrying", lambda: output(sluice))
            assert re.search("files cannot be written: .*File too large", output(sluice)["error"])
            resource.prlimit(sluice.process.pid, resource.RLIMIT_FSIZE, limits)
            load.finish(stop=True)
        assert load.check(seen(ops(lines(folder)))) == load.changes()
        assert output(sluice)["state"] == "running"


def output(sluice: Sluice) -> dict[str, Any]:
    """Where the output stands."""
    found: dict[str, Any] = sluice.destination()["outputs"][0]
    return found


@pytest.mark.extended
def test_two_servers_write_each_change_once_whoever_is_frozen(
    tmp_path: Path, own_zookeeper: ZooKeeper, mariadb118: Server, database: Database
) -> None:
    schema, folder = database(mariadb118), tmp_path / "files"
    load = Load(mariadb118, schema)
    servers = [Sluice(tmp_path / name) for name in "ab"]
    small = {"sluice__output__copy__fileBytes": 1 << 16, "sluice__output__copy__fileSeconds": 5}
    with contextlib.ExitStack() as stack:
        for server in servers:
            server.settings = {"canal__zkServers": own_zookeeper.hosts, "sluice__ha__sessionTimeout": 2}
            configure(server, folder, mariadb118, schema, **small)
            stack.enter_context(server)
        eventually(lambda: owners(servers), "an owner")
        with load:
            for _ in range(3):
                goal = load.committed + 50
                eventually(lambda: load.committed > goal)  # noqa: B023
                (owner,) = owners(servers)
                others = [it for it in servers if it is not owner]
                freeze(owner.process.pid)
                eventually(lambda: owners(others), "another owner")  # noqa: B023
                owner.process.send_signal(signal.SIGCONT)
                eventually(lambda: len(owners(servers)) == 1, "one owner")
            load.finish(stop=True)
        assert load.check(seen(ops(lines(folder)))) == load.changes()


def owners(servers: Iterable[Sluice]) -> list[Sluice]:
    """Those which have the destination."""
    return [it for it in servers if it.destination()["state"] == "running"]
