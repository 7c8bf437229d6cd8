"""A client of merged changes, in a process of its own: `python -m bench.merged '{...}'`.

Each member holds a workload several times, with a row after each that has the text `END`. The clock runs from when the
first end of all members has come to when the second has. Prints `begin`, `end`, and what it had as JSON.
"""

import json
import sys
import time
from typing import TYPE_CHECKING, Final

from bench.workloads import END
from sluice.client_sdk import Client

if TYPE_CHECKING:
    from sluice.client_sdk.batch import Batch

TIMES: Final = 3
"""How often each member holds a workload: to warm up, to measure, and to go on after that."""


def main() -> None:
    """Do what the command line says."""
    task = json.loads(sys.argv[1])
    mark, members, ends, begin = END.encode(), task["members"], 0, 0.0
    kept: list[Batch] = []  # the one after which the clock runs, and those that count
    with Client(task["url"], task["destination"]) as client:
        client.subscribe()
        for batch in client.stream():
            ends += batch.data.count(mark)
            if begin:
                kept.append(batch)
            elif ends >= 2 * members:
                raise SystemExit("one batch holds the whole workload: it takes more rows, or smaller batches")
            elif ends >= members:
                kept.append(batch)
                _print("begin")
                begin = time.perf_counter()
            if ends >= 2 * members:
                break
        seconds = time.perf_counter() - begin
    _print("end")
    before, *rows = (len(batch.rows()) for batch in kept)
    size = sum(len(batch.data) for batch in kept[1:])
    slack = max(before, rows[-1]) + members
    _print(json.dumps({"rows": sum(rows), "slack": slack, "seconds": seconds, "bytes": size}))


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
