"""A transaction of any size flows through a ring of a fixed size."""

import asyncio
from pathlib import Path

import pytest

from sluice.instance.config import BatchMode
from sluice.instance.sources.mysql.config import MysqlConfig
from sluice.instance.sources.registry import make_parser
from sluice.protocol.canal.rows import decode_rows
from sluice.server.embedded import EmbeddedServer
from tests.conftest import Database
from tests.servers import Server
from tests.waiting import soon

UNIT = 1024
UNITS = 1024
RING = UNIT * UNITS
ROW = 20_000


@pytest.mark.parametrize("mode", list(BatchMode))
async def test_transaction_twenty_times_the_ring_stays_within_bounds(
    mariadb118: Server, database: Database, tmp_path: Path, mode: BatchMode
) -> None:
    schema = database(mariadb118)
    mariadb118.query(f"CREATE TABLE {schema}.wide (id INT PRIMARY KEY, filler LONGTEXT)")
    config = MysqlConfig.model_validate(
        {
            "destination": "example",
            "master_address": f"{mariadb118.host}:{mariadb118.port}",
            "db_username": mariadb118.user,
            "db_password": mariadb118.password,
            "filter_regex": rf"{schema}\..*",
            "file_data_dir": tmp_path,
            "memory_buffer_size": UNITS,
            "memory_buffer_memunit": UNIT,
            "memory_batch_mode": mode,
        }
    )
    server = EmbeddedServer(lambda _: config, make_parser)
    await server.start("example")
    try:
        await server.subscribe("example", 1001)
        await soon(lambda: server.destination_status("example").state == "running")
        count = 20 * RING // ROW

        def write() -> None:
            with mariadb118.connect(autocommit=False) as connection, connection.cursor() as cursor:
                for number in range(count):
                    cursor.execute(f"INSERT INTO {schema}.wide VALUES (%s, REPEAT('x', %s))", (number, ROW))
                cursor.execute(f"INSERT INTO {schema}.wide VALUES (%s, REPEAT('x', %s))", (count, 3 * RING))
                connection.commit()

        await asyncio.to_thread(write)
        ring = server.instances["example"].ring
        await soon(lambda: ring.waiting, seconds=60)
        async with asyncio.timeout(60):
            given: list[int] = []
            while len(given) <= count:
                assert ring.bytes <= max(RING, 3 * RING + ROW)
                assert ring.pool.allocated <= RING + 4 * 3 * RING
                batch = await server.get_without_ack("example", 1001, batch_size=100, timeout=10)
                given += [row.after["id"] for row in decode_rows(b"".join(batch.slices)) if row.after]
                assert batch.batch_id > 0, server.destination_status("example")
                await server.ack("example", 1001, batch_id=batch.batch_id)
        assert given == list(range(count + 1))
        del batch
        assert ring.pool.pinned == 0
    finally:
        await server.close()
