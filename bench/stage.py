"""One stage in a process of its own: `python -m bench.stage '{...}'` takes a stream twice; the second time counts.

Each stage does what the ones before it do, and one thing more, all in one thread.
"""

import json
import os
import socket
import sys
import time
from typing import Any

from bench.captures import Capture, captured
from bench.processes import peak_of
from sluice.instance.sources.mysql.config import Address, MysqlConfig
from sluice.instance.sources.mysql.decode.decoder import Decoder, Status
from sluice.instance.sources.mysql.decode.events import BinlogEvent, Event
from sluice.instance.sources.mysql.decode.plan import PlanOptions, TablePlan
from sluice.instance.sources.mysql.decode.table_map import TableMap
from sluice.store.ring import Ring

STAGES = ("socket", "framing", "decode", "filter", "put", "get")
"""Bytes off the socket; events, skipped at their headers; entries; tables and columns chosen; entries in the ring;
batches out of it."""
SPACE = 512 << 10  # as large as the decoder's


def main() -> None:
    """Do what the command line says."""
    task = json.loads(sys.argv[1])
    capture = captured(task["source"], task["workload"], task["rows"])
    take = take_bytes if task["stage"] == "socket" else Stage(task["stage"], capture, **task.get("settings", {})).take
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", task["port"])) as connection:
            connection.recv(1, socket.MSG_PEEK)
            wall, cpu = time.perf_counter(), time.thread_time()
            rows = take(connection)
            seconds, cpu = time.perf_counter() - wall, time.thread_time() - cpu
    if rows not in {capture.rows, 0}:
        raise SystemExit(f"{rows} rows came of the {capture.rows} that were written: {task}")
    json.dump({"seconds": seconds, "cpu": cpu, "peak_mb": peak_of(os.getpid())}, sys.stdout)


def take_bytes(connection: socket.socket) -> int:
    """Receive until nothing comes; counts no rows."""
    space = memoryview(bytearray(SPACE))
    while connection.recv_into(space):
        pass
    return 0


class Stage:
    """A decoder and a ring, as far as a stage needs them."""

    def __init__(self, stage: str, capture: Capture, **settings: Any) -> None:
        """Name one of STAGES; settings are of the destination."""
        self._depth = STAGES.index(stage)
        self._capture = capture
        self._config = MysqlConfig(
            destination="bench",
            master_address=Address("localhost"),
            db_username="bench",
            filter_regex=r"bench\..*",
            **settings,
        )
        self._conditions = self._config.conditions()

    def take(self, connection: socket.socket) -> int:
        """Take the stream to its end; returns the rows, 0 where the stage does not know them."""
        ring = Ring()
        decoder = Decoder(ring, self._config)
        decoder.begin(source="bench")
        rows = 0
        while True:
            status = decoder.run()
            if decoder.staging.count:
                if self._depth < STAGES.index("put"):
                    decoder.staging.clear()
                else:
                    ring.put(decoder.staging)
                if self._depth >= STAGES.index("get"):
                    while ring.first < ring.next:
                        taken = ring.collect(ring.first)
                        rows += taken.rows
                        ring.free_to(taken.stop)
                self.pass_on(ring)
            if status == Status.NEED_DATA:
                with decoder.receive_space() as space:
                    size = connection.recv_into(space)
                if not size:
                    return rows or ring.put_rows
                decoder.received(size)
            elif status == Status.CONTROL and decoder.event is not None:
                self._control(decoder, ring, decoder.event)

    def pass_on(self, ring: Ring) -> None:
        """Do with what is stored what comes next: here it is freed."""
        ring.free_to(ring.next)

    def _control(self, decoder: Decoder, ring: Ring, event: Event) -> None:
        """Answer what the decoder leaves to Python: here only tables matter."""
        if event.error:
            raise event.error
        if event.type != BinlogEvent.TABLE_MAP_EVENT:
            decoder.skip_event()
            return
        table_map = TableMap.parse(event.body, mariadb=self._capture.mariadb)
        name = table_map.schema, table_map.table
        options = PlanOptions(excluded=True) if self._depth < STAGES.index("decode") else PlanOptions()
        if self._depth >= STAGES.index("filter"):
            fields = self._config.field_filter()
            options = PlanOptions(
                excluded=not self._config.table_filter().accepts(*name),
                fields=fields.kept(*name),
                black_fields=fields.dropped(*name),
                where=self._conditions.of(*name) if self._conditions else None,
                splits=self._config.filter_crossing == "split",
                masks=self._config.masks().of(*name),
            )
        columns = () if options.excluded else table_map.columns(self._capture.charsets)
        decoder.add_plan(TablePlan(table_map, columns, ring.tables.intern(name), options))


if __name__ == "__main__":
    main()
