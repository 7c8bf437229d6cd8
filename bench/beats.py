"""The client of paced rows, in a process of its own: `python -m bench.beats '{...}'` takes the time until it has each.

Prints `begin` when it is ready, `end` when it has all that count, and their latencies.
"""

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from bench.pace import in_ms
from sluice.client_sdk import Client
from sluice.client_sdk.batch import Batch


def main() -> None:
    """Do what the command line says."""
    task = json.loads(sys.argv[1])
    latencies: list[float] = []
    for now, due in of_topic(task) if "topic" in task else of_server(task):
        latencies.append(now - due / 1e6)
        if len(latencies) == task["rows"]:
            break
    _print("end")
    _print(json.dumps(in_ms(latencies[task["warm_up_rows"] :])))


def of_server(task: dict[str, Any]) -> Iterator[tuple[float, int]]:
    """Give for each row when it came, and when it was due."""
    with Client(task["url"], task["destination"]) as client:
        client.subscribe(task["filter"], "latest")
        _print("begin")
        for batch in poll(client) if task["way"] == "poll" else client.stream():
            now = time.time()
            yield from ((now, row.after["due"]) for row in batch if row.after is not None)


def poll(client: Client) -> Iterator[Batch]:
    """Ask for batch after batch; the server answers as soon as there is one, and each call acks the batch before."""
    batch = None
    while True:
        batch = client.get_without_ack(1.0, ack=batch)
        if batch:
            yield batch


def of_topic(task: dict[str, Any]) -> Iterator[tuple[float, int]]:
    """Give the same for the rows of a topic, of FlatMessages that are committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": task["servers"],
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    try:
        consumer.assign([TopicPartition(task["topic"], 0, OFFSET_END)])
        begun = False
        while True:
            message = consumer.poll(10)
            now = time.time()
            error = message.error() if message is not None else None
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  so it is called
                    raise KafkaException(error)
                if not begun:
                    _print("begin")
                begun = True
            elif message is not None:
                yield from ((now, int(row["due"])) for row in json.loads(message.value() or b"")["data"])
    finally:
        consumer.close()


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
