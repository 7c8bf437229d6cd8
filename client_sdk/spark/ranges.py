"""Reading a range of the stream in Spark's executors, as Arrow record batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from sluice.client_sdk.batch import Part
from sluice.client_sdk.client import Client
from sluice.client_sdk.spark.options import Options
from sluice.protocol.arrow import EnvelopeDecoder

PIECE = 16 << 20
"""Bytes of entries that are fetched and decoded at once: more than 10,000 rows, unless they are large."""
TASK = 1 << 20
"""Bytes of entries that are worth a task of their own."""
PARTS = 10_000
"""The most parts that a range can be cut into by the server."""


@dataclass
class RangePartition(InputPartition):
    """What one task reads: pieces of a range, one behind the other, each from a position to another."""

    pieces: list[tuple[str, str]]


def plan(client: Client, from_: str, to: str, tasks: int) -> list[RangePartition]:
    """Cut a range for at most so many tasks: contiguous parts of about equal bytes, each in pieces that fit memory."""
    parts = client.splits(from_, to, PARTS)
    total = sum(part.bytes for part in parts)
    tasks = max(1, min(tasks, total // TASK))
    planned: list[list[Part]] = [[]]
    done = 0
    for part in parts:
        if done >= total * len(planned) / tasks and len(planned) < tasks:
            planned.append([])
        planned[-1].append(part)
        done += part.bytes
    return [RangePartition(_pieces(group)) for group in planned]


def _pieces(parts: Sequence[Part]) -> list[tuple[str, str]]:
    pieces: list[tuple[str, str]] = []
    size = 0
    for part in parts:
        if pieces and size + part.bytes <= PIECE:
            pieces[-1] = (pieces[-1][0], part.to)
            size += part.bytes
        else:
            pieces.append((part.from_, part.to))
            size = part.bytes
    return pieces


def read(options: Options, partition: RangePartition) -> Iterator[pa.RecordBatch]:
    """Fetch and decode the pieces one by one."""
    decoder = EnvelopeDecoder()
    with options.client() as client:
        for from_, to in partition.pieces:
            batch = client.rows(from_, to)
            yield decoder.decode(batch.data)
