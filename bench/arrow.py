"""Entries to Arrow record batches, in one thread: in the types of one table, and as the envelope of all tables."""

import argparse
import time

import pyarrow as pa

from bench.binlogs import binlog
from bench.decode import add_arguments as add_decode_arguments
from bench.decode import decode
from sluice.instance.parser.file_packets import file_packets
from sluice.protocol.arrow import Decoder, EnvelopeDecoder, TableDecoder, columns_of
from sluice.protocol.rows import decode_changes
from sluice.store.ring import Collected
from tests.servers import ALL
from tests.unit.entries import length_delimited

BATCH = 4 << 20  # bytes of entries that are decoded at once


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what can be chosen."""
    add_decode_arguments(parser)
    parser.add_argument("--as", choices=["typed", "envelope"], default="typed", dest="form")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, object]:
    """Decode the entries of a binlog several times; the best is what the code can, the spread what the machine does."""
    log = binlog(arguments.source, arguments.table, arguments.rows)
    parts: list[bytes] = []

    def keep(taken: Collected) -> None:
        parts.append(length_delimited(103, taken.positions) + b"".join(taken.slices))

    packets = b"".join(file_packets(log.path))
    decode(packets, log, mariadb=arguments.source.startswith("mariadb"), keep=keep)
    batches = gather(parts)
    change = next(it for part in batches for it in decode_changes(part) if it.type in ("INSERT", "UPDATE"))
    columns = columns_of(b"".join(batches), change.schema, change.table)
    decoder: Decoder = EnvelopeDecoder()
    if arguments.form == "typed":
        decoder = TableDecoder(change.schema, change.table, columns)
    return {
        "source": {"server": ALL[arguments.source], "version": log.version},
        "table": arguments.table,
        "columns": len(columns),
        "entry_bytes": sum(map(len, batches)),
        "pyarrow": pa.__version__,
        "as": arguments.form,
        **measure(decoder, batches, arguments.runs),
    }


def gather(parts: list[bytes]) -> list[bytes]:
    """Join parts to batches."""
    batches, batch, size = [], [], 0
    for part in parts:
        batch.append(part)
        size += len(part)
        if size >= BATCH:
            batches.append(b"".join(batch))
            batch, size = [], 0
    return [*batches, b"".join(batch)]


def measure(decoder: Decoder, batches: list[bytes], runs: int) -> dict[str, object]:
    """Time passes over the batches."""
    seconds, rows, size = [], 0, 0
    cpu = time.thread_time()
    for _ in range(runs):
        start = time.perf_counter()
        decoded = [decoder.decode(batch) for batch in batches]
        seconds.append(time.perf_counter() - start)
        rows, size = sum(it.num_rows for it in decoded), sum(it.nbytes for it in decoded)
        del decoded
    cpu = (time.thread_time() - cpu) / runs
    return {
        "rows": rows,
        "arrow_bytes": size,
        "rows_per_second": round(rows / min(seconds)),
        "cpu_seconds_per_million_rows": round(cpu / rows * 1e6, 3),
        "seconds_of_each_run": [round(one, 4) for one in seconds],
    }
