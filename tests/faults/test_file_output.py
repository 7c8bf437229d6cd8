"""Changes reach files, each of them once and in order, while servers die and disks are full."""

import json
import random
from pathlib import Path

import pytest

from tests.conftest import Database
from tests.faults.harness import Load, Sluice
from tests.kafka import ops, seen
from tests.servers import Server
from tests.waiting import eventually


def configure(sluice: Sluice, folder: Path, source: Server, schema: str, **settings: object) -> None:
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
        indexes = [json.loads(it.read_text()) for it in sorted(folder.glob("*.index"))]
        return [line for it in indexes for line in (folder / it["file"]).read_bytes().splitlines()]

    eventually(lambda: any(b'"finished"' in line for line in read()), "the end in a file")
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
