"""A client that takes a table by a snapshot, in a process of its own: `python -m bench.copier '{...}'`.

Prints `begin`, `end`, and what it had as JSON; or takes the table again and again until it is killed.
"""

import json
import sys
import time
from typing import Any

from sluice.client_sdk import Client


def main() -> None:
    """Do what the command line says."""
    task = json.loads(sys.argv[1])
    with Client(task["url"], task["destination"], 2001) as client:
        client.subscribe(task["table"].replace(".", r"\."), "latest")
        _print("begin")
        result = copy(client, task["table"])
        while task.get("again"):
            result = copy(client, task["table"])
    _print("end")
    _print(json.dumps(result))


def copy(client: Client, table: str) -> dict[str, Any]:
    """Take a table; the clock stops when the last row has come."""
    begin = end = time.perf_counter()
    wanted = client.snapshot([table])
    size, batch = 0, None
    while True:
        batch = client.get_without_ack(0.1, ack=batch)
        if batch:
            size += len(batch.data)
            end = time.perf_counter()
        elif (status := client.snapshot_status(wanted))["state"] == "done":
            return {"rows": status["rows"], "seconds": end - begin, "bytes": size, "slack": 0}


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
