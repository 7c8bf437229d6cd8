"""A client that keeps nothing, in a process of its own: `python -m bench.taker '{...}'` takes all up to a place.

Prints `end`, then the rows and the seconds.
"""

import json
import sys
import time

from sluice.client_sdk import Client
from sluice.protocol.position import Position


def main() -> None:
    """Do what the command line says."""
    task = json.loads(sys.argv[1])
    end, rows = tuple(task["end"]), 0
    begin = time.perf_counter()
    with Client(task["url"], task["destination"]) as client:
        client.subscribe()
        for batch in client.stream():
            to = Position.parse(batch.to)
            rows += sum(1 for _ in batch)
            if (to.file, to.begin) >= end:
                break
    seconds = time.perf_counter() - begin
    sys.stdout.write(f"end\n{rows} {seconds}\n")


if __name__ == "__main__":
    main()
