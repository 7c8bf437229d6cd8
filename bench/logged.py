"""A log in a process of its own: `python -m bench.logged '{...}'` fills one, or opens it.

Ways: ``put`` decodes a stream into the ring, over and over; ``log`` writes what is there to a log, too, synced each
second; ``write`` writes as many bytes as that log has, as fast as the disk takes them; ``open`` opens a log, and reads
a block of its last file.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.captures import captured
from bench.processes import peak_of
from bench.stage import Stage
from sluice.protocol.position import Position
from sluice.store.log.files import EntriesReader, read_block
from sluice.store.log.log import Limits, Log, Piece, take
from sluice.store.ring import Ring
from sluice.store.track import Track

PIECES = 4
SYNC = 1.0
"""Seconds between two syncs."""
WRITE = 1 << 20


class LogStage(Stage):
    """Decodes into the ring, and writes to a log in another thread; the ring keeps what is not written."""

    def __init__(self, capture: Any, log: Log) -> None:
        super().__init__("put", capture)
        self._log = log
        self._writer = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None
        self._track: Track | None = None
        self._taken = self._stop = 0
        self._synced = time.monotonic()

    def pass_on(self, ring: Ring) -> None:
        """Give the writer what is stored as soon as it has written what it was given before."""
        if self._track is None or self._track.ring is not ring:
            self.finish()
            self._track, self._taken = Track(ring), 0
            first = self._track.position_before(0)
            assert first is not None
            self._log.begin(first, None, {})  # the same stream again, in files of its own
        if self._writing is not None and (self._writing.done() or ring.fill > 0.5):
            self.finish()
        if self._writing is not None:
            return
        pieces: list[Piece] = []
        while self._taken < ring.next and len(pieces) < PIECES:
            pieces.append(take(self._track, self._taken, ring.next))
            self._taken = pieces[-1].packed.stop
        self._stop = self._taken
        self._writing = self._writer.submit(self._write, pieces)

    def finish(self) -> None:
        """Wait for the writer, and free what it has written."""
        if self._writing is not None and self._track is not None:
            self._writing.result()
            self._writing = None
            self._track.ring.free_to(self._stop)

    def _write(self, pieces: list[Piece]) -> None:
        self._log.append(pieces)
        if time.monotonic() - self._synced > SYNC:
            self._synced = time.monotonic()
            self._log.sync()


def main() -> None:
    """Do what the command line says."""
    task = json.loads(sys.argv[1])
    wall, cpu = time.perf_counter(), time.process_time()
    rows, size = {"put": put, "log": put, "write": write, "open": open_log}[task["way"]](task)
    seconds, cpu = time.perf_counter() - wall, time.process_time() - cpu
    json.dump(
        {"rows": rows, "bytes": size, "seconds": seconds, "cpu": cpu, "peak_mb": peak_of(os.getpid())}, sys.stdout
    )


def put(task: dict[str, Any]) -> tuple[int, int]:
    """Decode a stream ``times`` times; return its rows and, with a log, the bytes of the log."""
    capture = captured(task["source"], task["workload"], task["rows"])
    if task["way"] == "put":
        return _repeat(task, Stage("put", capture).take), 0
    with Log(Path(task["folder"]), "bench", Limits(bytes=1 << 50)) as log:
        stage = LogStage(capture, log)
        rows = _repeat(task, stage.take)
        stage.finish()
        log.sync()
        return rows, log.extent.bytes


def _repeat(task: dict[str, Any], take_all: Callable[[socket.socket], int]) -> int:
    rows = 0
    for _ in range(task["times"]):
        with socket.create_connection(("127.0.0.1", task["port"])) as connection:
            rows += take_all(connection)
    return rows


def write(task: dict[str, Any]) -> tuple[int, int]:
    """Write bytes one after the other, synced each second."""
    data, left = os.urandom(WRITE), task["bytes"]
    synced = time.monotonic()
    with Path(task["folder"], "plain").open("wb", buffering=0) as file:
        while left > 0:
            left -= file.write(data)
            if time.monotonic() - synced > SYNC:
                synced = time.monotonic()
                os.fdatasync(file)
        os.fdatasync(file)
    return task["all_rows"], task["bytes"]


def open_log(task: dict[str, Any]) -> tuple[int, int]:
    """Open a log, and read the last block of it."""
    with Log(Path(task["folder"]), "bench", Limits(bytes=1 << 50)) as log:
        if log.end is None:
            return 1, 0
        file, offset = log.find(Position.parse(str(log.extent.files[-1].start))) or (None, 0)
        assert file is not None
        fd = os.open(file.path, os.O_RDONLY)
        block = read_block(fd, offset, file.path)
        assert block is not None
        with EntriesReader().read(fd, block, file.path):
            pass
        os.close(fd)
        return 1, log.extent.bytes


if __name__ == "__main__":
    main()
