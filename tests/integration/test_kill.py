"""A server that is killed at any moment goes on where its file says: nothing is missing, nothing out of order."""

import asyncio
import itertools
import json
import os
import random
import signal
import sys
import threading
from pathlib import Path

import pytest

from tests.conftest import Database
from tests.servers import Server
from tests.waiting import soon

pytestmark = pytest.mark.extended

LIVES = 8
CONSUMER = """
import asyncio, json, sys
from pathlib import Path
from sluice.instance.sources.mysql.config import MysqlConfig
from sluice.instance.sources.registry import make_parser
from sluice.protocol.canal.rows import decode_rows
from sluice.server.embedded import EmbeddedServer

settings = json.loads(sys.argv[1])
settings["file_data_dir"] = Path(settings["file_data_dir"])
config = MysqlConfig(destination="example", file_flush_period=20, **settings)

async def main():
    server = EmbeddedServer(lambda destination: config, make_parser)
    await server.start("example")
    await server.subscribe("example", 1001)
    print("[]", flush=True)
    while True:
        batch = await server.get_without_ack("example", 1001, batch_size=8, timeout=10)
        if batch.batch_id > 0:
            rows = decode_rows(b"".join(batch.slices))
            print(json.dumps([row.after["id"] for row in rows if row.after]), flush=True)
            await server.ack("example", 1001, batch_id=batch.batch_id)

asyncio.run(main())
"""


@pytest.mark.parametrize("name", ["mysql97", pytest.param("mariadb118", marks=pytest.mark.extended)])
async def test_kill_at_random_moments_under_load(  # noqa: PLR0915
    request: pytest.FixtureRequest, database: Database, tmp_path: Path, name: str
) -> None:
    # Long: one story of processes that live side by side until its end.
    source = request.getfixturevalue(name)
    assert isinstance(source, Server)
    schema = database(source)
    source.query(f"CREATE TABLE {schema}.numbers (id INT PRIMARY KEY, filler VARCHAR(100))")
    settings = {
        "master_address": f"{source.host}:{source.port}",
        "db_username": source.user,
        "db_password": source.password,
        "filter_regex": rf"{schema}\..*",
        "file_data_dir": str(tmp_path),
    }
    chance = random.Random(3)
    written = 0
    writing = threading.Event()

    def write() -> None:
        nonlocal written
        numbers = itertools.count(1)
        with source.connect(autocommit=True) as connection, connection.cursor() as cursor:
            while writing.is_set():
                ids = list(itertools.islice(numbers, chance.choice([1, 3, 40])))
                cursor.executemany(
                    f"INSERT INTO {schema}.numbers VALUES (%s, %s)", [(number, "x" * 90) for number in ids]
                )
                written = ids[-1]

    async def start() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-c", CONSUMER, json.dumps(settings), stdout=asyncio.subprocess.PIPE
        )

    async def live(*, until: int | None, seconds: float) -> list[int]:
        """Run the consumer, kill it after some time or when it has seen a number; return what it was given."""
        process = await start()
        given: list[int] = []
        assert process.stdout is not None
        try:
            async with asyncio.timeout(60 if until is not None else seconds):
                async for line in process.stdout:
                    given += json.loads(line)
                    if until is not None and given and given[-1] >= until:
                        break
        except TimeoutError:
            assert until is None, "the last changes never came"
        os.kill(process.pid, signal.SIGKILL)
        rest = await process.stdout.read()
        for whole in rest.split(b"\n")[:-1]:
            given += json.loads(whole)
        await process.wait()
        return given

    first = await start()  # subscribes before the first row
    stored = tmp_path / "example" / "meta.dat"
    await soon(lambda: stored.exists() and '"position"' in stored.read_text(), seconds=60)
    first.kill()
    await first.communicate()
    writing.set()
    writer = threading.Thread(target=write)
    writer.start()
    # Every other life lasts until it was given something, however slow the machine is.
    lives = [await live(until=0 if number % 2 else None, seconds=1.0 + chance.random()) for number in range(LIVES)]
    writing.clear()
    writer.join()
    lives.append(await live(until=written, seconds=0.0))

    seen = 0
    for given in lives:
        if given:
            assert given == list(range(given[0], given[-1] + 1)), "in order, and nothing twice in one life"
            assert given[0] <= seen + 1, "nothing is missing"
            seen = max(seen, given[-1])
    assert seen == written > 0
    assert sum(map(bool, lives)) > LIVES // 2, "the lives were long enough to be interrupted at work"
