"""The contract of positions: a consumer that calls as Spark does sees every change once, whatever is killed when.

Its order (Spark's micro-batch execution): initialOffset; latestOffset(start), which acks `start`; offsets/N is written;
commit(end of N - 1), which may be skipped; for the first batch initialOffset again; partitions(start, end); the
partitions are read, perhaps twice; the sink commits; commits/N is written. A restart repeats a batch that has offsets/N
and no commits/N: it begins with partitions and does not ask for the position.
"""

import hashlib
import json
import random
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import urllib3

from sluice.client_sdk import Batch, Client
from sluice.protocol.canal.packet_pb2 import Messages
from tests.conftest import Database
from tests.integration.test_end_to_end import Serving
from tests.servers import Server
from tests.waiting import eventually

pytestmark = pytest.mark.extended

CLIENT = 1001
LIVES = 8


def digest(batches: list[Batch]) -> str:
    """Of all entries and their positions, however they were cut into parts."""
    found = hashlib.sha256()
    for batch in batches:
        messages = Messages.FromString(batch.data)
        for number, entry in enumerate(messages.messages):
            found.update(b"%d:%d:%d:" % (*messages.positions[2 * number : 2 * number + 2], len(entry)) + entry)
    return found.hexdigest()


def save(path: Path, content: Any) -> None:
    """Write a file so that it is there as a whole or not at all."""
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(content))
    unfinished.rename(path)


class Driver:
    """Spark's driver with a source and a sink; its checkpoint is a folder."""

    def __init__(self, url: str, folder: Path, seed: int) -> None:
        self.client = Client(url, "example", CLIENT)
        self.chance = random.Random(seed)
        self.offsets, self.commits, self.out = (folder / name for name in ("offsets", "commits", "out"))
        for path in (self.offsets, self.commits, self.out):
            path.mkdir(parents=True, exist_ok=True)

    def run(self) -> None:
        """Batch after batch, for ever."""
        self.client.open_session()
        number = len(list(self.offsets.glob("*.json"))) - 1
        if number >= 0 and not (self.commits / f"{number}.json").exists():
            self.execute(number)
        while True:
            start = self.end_of(number)
            end = self.latest_offset(start)
            if end == start:
                continue
            number += 1
            save(self.offsets / f"{number:06}.json", end)
            if number > 0 and self.chance.random() < 0.5:
                self.client.ack(start)  # commit
            self.execute(number)

    def end_of(self, number: int) -> str:
        """Where a batch ended; what initialOffset says before the first."""
        if number < 0:
            return str(self.client.status()["position"])
        return str(json.loads((self.offsets / f"{number:06}.json").read_text()))

    def latest_offset(self, start: str) -> str:
        self.client.ack(start)
        found = self.client.position(start, timeout=0.5, max_rows=self.chance.choice([5, 50, 500]))
        return found.to if found.entries else start

    def execute(self, number: int) -> None:
        start, end = self.end_of(number - 1), self.end_of(number)
        parts = self.client.splits(start, end, 3)
        batches = [self.client.rows(part.from_, part.to) for part in parts]
        if self.chance.random() < 0.3:  # a task is tried again
            again = self.chance.randrange(len(parts))
            assert self.client.rows(parts[again].from_, parts[again].to).data, "a part has entries"
        ids = [row.after["id"] for batch in batches for row in batch if row.after]
        save(self.out / f"{number:06}.json", {"from": start, "to": end, "ids": ids, "digest": digest(batches)})
        save(self.commits / f"{number}.json", {})


@pytest.mark.parametrize("name", ["mariadb118", pytest.param("mysql97", marks=pytest.mark.extended)])
def test_every_range_is_the_same_for_ever_though_both_sides_are_killed(  # noqa: PLR0915
    request: pytest.FixtureRequest, database: Database, tmp_path: Path, name: str
) -> None:
    # Long: one story of processes that live side by side until its end.
    source = request.getfixturevalue(name)
    assert isinstance(source, Server)
    schema = database(source)
    before = source.query("SELECT @@global.binlog_row_metadata")[0][0]
    source.query("SET GLOBAL binlog_row_metadata = FULL")
    source.query(f"CREATE TABLE {schema}.numbers (id INT PRIMARY KEY, filler VARCHAR(100))")
    serving = Serving(tmp_path, source, source.port, schema)
    checkpoint = tmp_path / "checkpoint"
    chance = random.Random(5)
    client = Client(f"http://127.0.0.1:{serving.port}", "example", CLIENT)
    driver: subprocess.Popen[bytes] | None = None
    writing = threading.Event()
    writing.set()
    written = 0

    def write() -> None:
        nonlocal written
        with source.connect(autocommit=False) as connection, connection.cursor() as cursor:
            while writing.is_set():
                ids = range(written + 1, written + chance.choice([1, 3, 60]) + 1)
                cursor.executemany(f"INSERT INTO {schema}.numbers VALUES (%s, %s)", [(it, "x" * 90) for it in ids])
                connection.commit()
                written = ids[-1]
                time.sleep(0.01)

    writer = threading.Thread(target=write)
    try:
        client.subscribe()
        eventually(lambda: client.status()["position"])
        writer.start()
        for seed in range(1, LIVES + 1):
            command = [sys.executable, "-m", "tests.integration.test_contract", client_url(serving), str(checkpoint)]
            driver = subprocess.Popen([*command, str(seed)])
            if seed % 2:  # this life gets work done, on a busy machine too
                goal = len(read(checkpoint)) + 3
                deadline = time.monotonic() + 60
                while len(read(checkpoint)) < goal and time.monotonic() < deadline:
                    time.sleep(0.05)
            time.sleep(chance.uniform(0.2, 2.0))
            victim = chance.choice(["driver", "server", "both"])
            if victim != "driver":
                serving.crash()
                time.sleep(chance.uniform(0.0, 1.0))
            assert driver.poll() is None, "the driver survives the server"
            driver.kill()
            driver.wait()
        writing.clear()
        writer.join()
        assert len(read(checkpoint)) > LIVES, "the lives were long enough to get work done"
        driver = subprocess.Popen([*command, "0"])
        eventually(
            lambda: any(written in it["ids"] for it in read(checkpoint)) or driver.poll() is not None, "the last rows"
        )
        assert driver.poll() is None
        outputs = read(checkpoint)
        driver.kill()
        driver.wait()
        assert [number for it in outputs for number in it["ids"]] == list(range(1, written + 1)), (
            "every row once, in order"
        )
        assert all(first["to"] == second["from"] for first, second in pairwise(outputs))
        client.open_session()
        client.ack(outputs[-1]["to"])  # the ring is empty now
        for output in outputs[:: max(1, len(outputs) // 20)]:
            assert digest([client.rows(output["from"], output["to"])]) == output["digest"]
        serving.crash()
        whole = client.rows(outputs[0]["from"], outputs[-1]["to"])
        assert [row.after["id"] for row in whole if row.after] == list(range(1, written + 1))
        for output in outputs[:3]:
            assert digest([client.rows(output["from"], output["to"])]) == output["digest"]
        assert ids_in_other_formats(serving, whole) == [list(range(1, written + 1))] * 3
    finally:
        writing.clear()
        if driver is not None:
            driver.kill()
            driver.wait()
        serving.process.kill()
        serving.process.wait()
        client.close()
        source.query(f"SET GLOBAL binlog_row_metadata = {before}")


def ids_in_other_formats(serving: Serving, whole: Batch) -> list[list[int]]:
    """The ids of a range as JSON, as NDJSON and as Arrow."""

    def get(accept: str) -> bytes:
        url = f"{client_url(serving)}/v1/destinations/example/clients/{CLIENT}/rows"
        query = {"from": whole.from_, "to": whole.to}
        answer = urllib3.request("GET", url, fields=query, headers={"Accept": accept})
        assert answer.status == 200, answer.data
        return answer.data

    body = json.loads(get("application/json"))
    assert (body["from"], body["to"]) == (whole.from_, whole.to)
    *lines, last = map(json.loads, get("application/x-ndjson").splitlines())
    assert (last["from"], last["to"]) == (whole.from_, whole.to)
    table = pa.ipc.open_stream(get("application/vnd.apache.arrow.stream")).read_all()
    found = [
        [int(row["id"]) for message in messages for row in message["data"] or ()]
        for messages in (body["entries"], lines)
    ]
    return [*found, [int(dict(row)["id"]) for row in table["after"].to_pylist() if row]]


def client_url(serving: Serving) -> str:
    """Where the server answers."""
    return f"http://127.0.0.1:{serving.port}"


def read(checkpoint: Path) -> list[Any]:
    """What the sink has, batch by batch."""
    return [json.loads(path.read_text()) for path in sorted((checkpoint / "out").glob("*.json"))]


if __name__ == "__main__":
    Driver(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])).run()
