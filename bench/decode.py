"""Bytes of a binlog to entries in the ring, in one thread: no network, no consumer."""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.binlogs import TABLES, Binlog, binlog
from sluice.instance.config import Address, InstanceConfig
from sluice.instance.parser.decoder import Decoder, Status
from sluice.instance.parser.events import Event, EventType
from sluice.instance.parser.file_packets import file_packets
from sluice.instance.parser.plan import TablePlan
from sluice.instance.parser.table_map import TableMap
from sluice.store.ring import Collected, Ring
from tests.servers import ALL


@dataclass(slots=True)
class Run:
    """One pass over the file."""

    rows: int = 0
    entries: int = 0
    bytes: int = 0
    seconds: float = 0
    cpu_seconds: float = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    parser.add_argument("--source", choices=["mysql97", "mysql80", "mariadb118", "mariadb1011"], default="mysql97")
    parser.add_argument("--table", choices=TABLES, default="sysbench")
    parser.add_argument("--rows", type=int, default=200_000, help="row changes in the file (%(default)s)")
    parser.add_argument("--runs", type=int, default=5, help="passes over it, of which the best counts (%(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Decode the same bytes several times; the best is what the code can, the spread what the machine does."""
    log = binlog(arguments.source, arguments.table, arguments.rows)
    data = b"".join(file_packets(log.path))
    runs = [decode(data, log, mariadb=arguments.source.startswith("mariadb")) for _ in range(arguments.runs)]
    best = min(runs, key=lambda one: one.seconds)
    if best.rows != log.rows:
        raise SystemExit(f"{best.rows} rows were decoded of the {log.rows} that were written")
    return {
        "source": {"server": ALL[arguments.source], "version": log.version},
        "table": arguments.table,
        "rows": best.rows,
        "entries": best.entries,
        "binlog_bytes": len(data),
        "entry_bytes": best.bytes,
        "rows_per_second": round(best.rows / best.seconds),
        "binlog_mb_per_second": round(len(data) / best.seconds / 1e6),
        "cpu_seconds_per_million_rows": round(best.cpu_seconds / best.rows * 1e6, 3),
        "seconds_of_each_run": [round(one.seconds, 4) for one in runs],
    }


def decode(data: bytes, log: Binlog, *, mariadb: bool, keep: Callable[[Collected], None] | None = None) -> Run:
    """Feed packets as a socket would, put what is staged, and free it at once; `keep` sees it before."""
    config = InstanceConfig(destination="bench", master_address=Address("localhost"), db_username="bench")
    ring = Ring()
    decoder = Decoder(ring, config)
    decoder.begin(source="bench")
    result, fed = Run(), 0
    wall, cpu = time.perf_counter(), time.thread_time()
    while True:
        status = decoder.run()
        if decoder.staging.count:
            ring.put(decoder.staging)
            taken = ring.collect(ring.first)
            result.rows += taken.rows
            result.entries += taken.entries
            result.bytes += taken.bytes
            if keep is not None:
                keep(taken)
            del taken
            ring.free_to(ring.next)
        if status == Status.NEED_DATA:
            if fed == len(data):
                break
            with decoder.receive_space() as space:
                chunk = data[fed : fed + len(space)]
                space[: len(chunk)] = chunk
            decoder.received(len(chunk))
            fed += len(chunk)
        elif status == Status.CONTROL:
            control(decoder, ring, log, mariadb=mariadb)
    result.seconds, result.cpu_seconds = time.perf_counter() - wall, time.thread_time() - cpu
    return result


def control(decoder: Decoder, ring: Ring, log: Binlog, *, mariadb: bool) -> None:
    """Answer what the decoder leaves to Python: here only tables matter."""
    event = decoder.event
    if not isinstance(event, Event):
        raise TypeError("no event")
    if event.error:
        raise event.error
    if event.type == EventType.TABLE_MAP_EVENT:
        table_map = TableMap.parse(event.body, mariadb=mariadb)
        number = ring.tables.intern((table_map.schema, table_map.table))
        decoder.add_plan(TablePlan(table_map, table_map.columns(log.charsets), number))
    else:
        decoder.skip_event()
