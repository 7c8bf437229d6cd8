"""A consumer as a process of its own, which writes down all that it is given and all that it acks.

``python -m tests.chaos.consumer JOURNAL URLS DESTINATION CLIENT WAY`` reads until it is ended. Ways: ``ack`` gets and
acks, ``durable`` asks for durable acks, ``stream`` reads the stream of the SDK.
"""

import contextlib
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, TypeVar

import urllib3

from sluice.client_sdk import Batch, Client
from sluice.client_sdk.calls import Call, Limits
from sluice.client_sdk.connections import Connections
from sluice.client_sdk.endpoint import Interrupted
from sluice.protocol.errors import GoneError, NotStoredError, PurgedError, SluiceError, UnknownBatchError
from tests.chaos.journal import Acked, Failed, Journal, Received, Run

T = TypeVar("T")

PATIENCE = 3.0
"""Seconds that an answer may take before the consumer tries elsewhere."""
LATE = 12.0
"""Seconds that the answer to a late ack may take: a server that stands still has to come to it first."""
LIMITS = Limits(max_entries=60)


class Recorded(Client):
    """The SDK's client; its acks are written down with the server that has answered."""

    def __init__(self, journal: Journal, urls: list[str], destination: str, client_id: int) -> None:
        super().__init__(urls, destination, client_id, timeout=PATIENCE, retry=1e9)
        self.journal = journal
        self.asked = 0.0
        """When the stream was opened that is read now."""

    def _open_stream(self, call: Call[str], stop: threading.Event) -> tuple[urllib3.BaseHTTPResponse, int]:
        self.asked = time.time()
        return super()._open_stream(call, stop)

    def _exchange(self, server: str, call: Call[T], http: Connections | None = None) -> T:
        if call.path != "/ack":
            return super()._exchange(server, call, http)
        asked, answer = time.time(), "unknown"
        try:
            result = super()._exchange(server, call, http)
            answer = "ok"
        except Interrupted as failure:
            answer = answer if failure.may_be_done else failure.reason.type
            raise
        except SluiceError as error:
            answer = error.type
            raise
        finally:
            what = call.body or {}
            position = what.get("position", "")
            batch_id = 0 if position else what.get("batchId", 0)  # with both, a batch of before counts by its position
            self.journal.write(Acked(asked, time.time(), server, batch_id, position, answer))
        return result


class Consumer:
    """Reads for ever. Batches of epochs that are over it acks once more at all servers: they have to refuse that."""

    def __init__(self, journal: Path, urls: list[str], destination: str, client_id: int) -> None:
        self._journal = Journal(journal)
        self._urls = urls
        self._path = f"/v1/destinations/{destination}/clients/{client_id}/ack"
        self._client = Recorded(self._journal, urls, destination, client_id)
        self._recent: deque[Received] = deque(maxlen=3)

    def run(self, way: str) -> None:
        """Read in this way."""
        try:
            while True:
                with contextlib.suppress(GoneError, PurgedError):  # until somebody moves it to where the stream goes on
                    if way == "stream":
                        self._read_stream()
                    else:
                        self._get_and_ack(durable=way == "durable")
                time.sleep(0.5)
        except Exception as error:
            self._journal.write(Failed(time.time(), f"{type(error).__name__}: {error}"))
            raise

    def _read_stream(self) -> None:
        for batch in self._client.stream(window=4, limits=LIMITS):
            self._receive(self._client.asked, batch)

    def _get_and_ack(self, *, durable: bool) -> None:
        self._client.open_session()
        self._client.rollback()
        while True:
            asked = time.time()
            batch = self._client.get_without_ack(1.0, LIMITS)
            if not batch:
                continue
            self._receive(asked, batch)
            while not self._ack(batch, durable=durable):
                time.sleep(0.2)

    def _ack(self, batch: Batch, *, durable: bool) -> bool:
        """Ack; False when it has to be tried again."""
        try:
            self._client.ack(batch, durable=durable)
        except UnknownBatchError:  # it comes again
            self._client.rollback()
        except NotStoredError:
            return False
        return True

    def _receive(self, asked: float, batch: Batch) -> None:
        received = describe(batch, asked)
        self._journal.write(received)
        if self._recent and self._recent[-1].epoch < received.epoch:
            for url in self._urls:
                threading.Thread(target=self._ack_late, args=(url, tuple(self._recent)), daemon=True).start()
            self._recent.clear()
        self._recent.append(received)

    def _ack_late(self, url: str, batches: tuple[Received, ...]) -> None:
        with urllib3.PoolManager(retries=False, timeout=LATE) as http:
            for batch in batches:
                asked, answer = time.time(), "unknown"
                with contextlib.suppress(urllib3.exceptions.HTTPError):
                    reply = http.request("POST", url + self._path, json={"batchId": batch.batch_id})
                    answer = "ok" if reply.status < 300 else str(reply.json()["type"])
                acked = Acked(asked, time.time(), url, batch.batch_id, "", answer, late=True)
                self._journal.write(acked)


def describe(batch: Batch, asked: float) -> Received:
    """Return what the journal says of a batch. Raises AssertionError for a row that nobody has written."""
    runs: list[Run] = []
    read: list[Run] = []
    ended, snapshot = 0, ""
    for change in batch.changes():
        if change.entry_type == "TRANSACTIONEND" and runs:
            ended = runs[-1][2]
        for row in change.rows():
            assert row.before is None, row
            assert row.after is not None, row
            number = int(row.after["id"])
            assert row.after["v"] == f"number {number}", row
            snapshot = row.snapshot or snapshot
            _extend(read if row.type == "READ" else runs, change.table, number)
    marked = bool(batch.markers())
    return Received(
        asked, time.time(), batch.batch_id, batch.to, tuple(runs), ended, tuple(read), snapshot, marked=marked
    )


def _extend(runs: list[Run], table: str, number: int) -> None:
    if runs and runs[-1][0] == table and runs[-1][2] == number - 1:
        runs[-1] = (table, runs[-1][1], number)
    else:
        runs.append((table, number, number))


def main(arguments: list[str]) -> Any:
    """Run what the command line says."""
    journal, urls, destination, client_id, way = arguments
    Consumer(Path(journal), urls.split(","), destination, int(client_id)).run(way)


if __name__ == "__main__":
    main(sys.argv[1:])
