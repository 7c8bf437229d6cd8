"""The client of paced rows, in a process of its own: `python -m bench.beats '{...}'` takes the time until it has each.

Prints `begin` when it is ready, `end` when it has all that count, and their latencies.
"""

import json
import sys
import time
from collections.abc import Iterator

from bench.pace import in_ms
from sluice.client_sdk import Client
from sluice.client_sdk.batch import Batch


def main() -> None:
    """Do what the command line says."""
    task = json.loads(sys.argv[1])
    latencies: list[float] = []
    with Client(task["url"], task["destination"]) as client:
        client.subscribe(task["filter"], "latest")
        _print("begin")
        left = task["rows"]
        for batch in poll(client) if task["way"] == "poll" else client.stream():
            now = time.time()
            for row in batch:
                if row.after is not None:
                    latencies.append(now - row.after["due"] / 1e6)
                    left -= 1
            if left <= 0:
                break
    _print("end")
    _print(json.dumps(in_ms(latencies[task["warm_up_rows"] :])))


def poll(client: Client) -> Iterator[Batch]:
    """Ask for batch after batch; the server answers as soon as there is one, and each call acks the batch before."""
    batch = None
    while True:
        batch = client.get_without_ack(1.0, ack=batch)
        if batch:
            yield batch


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
