"""Many clients in a process of its own: `python -m bench.subscribers '{...}'` takes all up to a place by each of them.

They keep nothing. Prints `begin` when all are subscribed, and `end` with the seconds when all have everything.
"""

import asyncio
import json
import sys
import time
from typing import Any

from sluice.client_sdk import AsyncClient
from sluice.protocol.position import Position


async def main() -> None:
    """Do what the command line says."""
    task = json.loads(sys.argv[1])
    clients = [
        AsyncClient(task["url"], destination, number)
        for destination in task["destinations"]
        for number in range(1, task["subscribers"] + 1)
    ]
    for client in clients:
        await client.subscribe()
    _print("begin")
    begin = time.perf_counter()
    await asyncio.gather(*(_take(client, tuple(task["end"])) for client in clients))
    seconds = time.perf_counter() - begin
    _print("end")
    _print(json.dumps(seconds))
    for client in clients:
        await client.close()


async def _take(client: AsyncClient, end: tuple[Any, ...]) -> None:
    async for batch in client.stream():
        to = Position.parse(batch.to)
        if (to.file, to.begin) >= end:
            return


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
