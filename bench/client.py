"""A client in a process of its own: `python -m bench.client '{...}'`. Prints `begin`, `end`, and what it had as JSON.

The source holds a workload several times, one after the other. The clock runs from the batch that ends the first of
them to the batch that ends the second: warm code is measured, with work before and after it.
"""

import json
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlencode

import urllib3
from google.protobuf.message import Message

from sluice.client_sdk import Client
from sluice.client_sdk.batch import Batch
from sluice.client_sdk.calls import FRAME, Limits
from sluice.client_sdk.tidb import OLDEST, TiDBReader
from sluice.protocol.canal.entry_pb2 import Entry
from sluice.protocol.canal.packet_pb2 import ClientAck, ClientAuth, Get, Messages, Packet, Sub
from sluice.protocol.position import Position


class Taken(NamedTuple):
    """A batch."""

    to: str
    """Position after it."""
    size: int
    """Bytes that came over the network."""
    rows: Callable[[], int]
    """Counts its rows: called when the clock has stopped, unless the way has had to look at each row before."""


def by_stream(task: Mapping[str, Any]) -> Iterator[Taken]:
    """Take the bytes of one long response; the client keeps them, and counts their rows at last."""
    with _client(task) as client:
        for batch in client.stream(limits=_limits(task)):
            yield Taken(batch.to, len(batch.data), partial(_count, batch))


def by_dropping(task: Mapping[str, Any]) -> Iterator[Taken]:
    """Take the bytes of one long response, and drop them: nobody counts their rows."""
    with _client(task) as client:
        for batch in client.stream(limits=_limits(task)):
            yield Taken(batch.to, len(batch.data), partial(int, 0))


def by_get(task: Mapping[str, Any]) -> Iterator[Taken]:
    """Take the bytes of batch after batch, each asked for and acked by a request."""
    with _client(task) as client:
        while True:
            batch = client.get_without_ack(1.0, _limits(task))
            if batch:
                yield Taken(batch.to, len(batch.data), partial(_count, batch))
                client.ack(batch)


def by_rows(task: Mapping[str, Any]) -> Iterator[Taken]:
    """Iterate over typed rows."""
    with _client(task) as client:
        for batch in client.stream(limits=_limits(task)):
            rows = 0
            for _ in batch:
                rows += 1
            yield Taken(batch.to, len(batch.data), partial(int, rows))


def by_arrow(task: Mapping[str, Any]) -> Iterator[Taken]:
    """Make record batches, in the types of one table or, where none is named, as the envelope."""
    with _client(task) as client:
        for batch in client.stream(limits=_limits(task)):
            rows = batch.to_arrow(task["table"]).num_rows
            yield Taken(batch.to, len(batch.data), partial(int, rows))


def by_json(task: Mapping[str, Any]) -> Iterator[Taken]:
    """Take the bytes of batches as Canal's FlatMessages; their rows are counted at last."""
    http = urllib3.PoolManager(maxsize=1)
    url = f"{task['url']}/v1/destinations/{task['destination']}/clients/1001"
    http.request("POST", f"{url}/subscribe", json={})
    while True:
        query = {"timeout": "1000"} | {name: str(value) for name, value in _limits(task).query().items()}
        answer = http.request("POST", f"{url}/getWithoutAck?{urlencode(query)}")
        number, to = answer.headers["Sluice-Batch-Id"], answer.headers["Sluice-To"]
        if number != "-1":
            yield Taken(to, len(answer.data), partial(_count_flat, answer.data))
            http.request("POST", f"{url}/ack", json={"batchId": int(number)})


def by_tcp(task: Mapping[str, Any]) -> Iterator[Taken]:
    """Take the bytes of batches as Canal's protocol has them; of each the last entry's header tells the place."""
    with socket.create_connection(("127.0.0.1", task["canal_port"])) as connection:
        reader = connection.makefile("rb")

        def receive() -> Packet:
            (size,) = FRAME.unpack(reader.read(FRAME.size))
            return Packet.FromString(reader.read(size))

        def send(kind: "Packet.PacketType.ValueType", body: Message) -> None:
            packet = Packet(type=kind, body=body.SerializeToString()).SerializeToString()
            connection.sendall(FRAME.pack(len(packet)) + packet)

        name, client_id = task["destination"], "1001"
        receive()  # the handshake
        send(Packet.CLIENTAUTHENTICATION, ClientAuth())
        receive()
        send(Packet.SUBSCRIPTION, Sub(destination=name, client_id=client_id, filter=""))
        receive()
        while True:
            send(
                Packet.GET,
                Get(destination=name, client_id=client_id, fetch_size=task["batch_size"] or 1000, timeout=-1, unit=2),
            )
            data = receive().body
            messages = Messages.FromString(data)
            if messages.batch_id == -1:
                time.sleep(0.001)
                continue
            header = Entry.FromString(messages.messages[-1]).header
            to = Position("source", header.logfileName, 0, header.logfileOffset + header.eventLength, 0)
            yield Taken(str(to), len(data), partial(_count, Batch(messages.batch_id, "", "", data)))
            send(Packet.CLIENTACK, ClientAck(destination=name, client_id=client_id, batch_id=messages.batch_id))


def by_topic_rows(task: Mapping[str, Any]) -> Iterator[Taken]:
    """Make typed rows of a topic with TiDB's secondary binlog."""
    for batch in _topic(task):
        yield Taken(batch.to, len(batch.data), partial(int, len(batch.rows())))


def by_topic_arrow(task: Mapping[str, Any]) -> Iterator[Taken]:
    """Make record batches of a table of such a topic."""
    for batch in _topic(task):
        yield Taken(batch.to, len(batch.data), partial(int, batch.to_arrow(task["table"]).num_rows))


WAYS = {
    "tcp": by_tcp,
    "stream": by_stream,
    "drop": by_dropping,
    "get": by_get,
    "rows": by_rows,
    "arrow": by_arrow,
    "json": by_json,
    "topic-rows": by_topic_rows,
    "topic-arrow": by_topic_arrow,
}


def _client(task: Mapping[str, Any]) -> Client:
    client = Client(task["url"], task["destination"])
    client.subscribe()
    return client


def _topic(task: Mapping[str, Any]) -> Iterator[Batch]:
    with TiDBReader(task["brokers"], topic=task["topic"], offset=OLDEST) as reader:
        yield from reader.batches()


def _limits(task: Mapping[str, Any]) -> Limits:
    return Limits(batch_size=task["batch_size"])


def _count(batch: Batch) -> int:
    return len(batch.rows())


def _count_flat(data: bytes) -> int:
    return sum(len(message["data"] or ()) for message in json.loads(data)["entries"] if not message["isDdl"])


def main() -> None:
    """Do what the command line says."""
    task = json.loads(sys.argv[1])
    first, last = (tuple(end) for end in task["ends"])
    begin = 0.0
    kept: list[Taken] = []  # the one after which the clock runs, and those that count
    for taken in WAYS[task["way"]](task):
        to = Position.parse(taken.to)
        if begin:
            kept.append(taken)
        elif (to.file, to.begin) >= last:
            raise SystemExit("one batch holds the whole workload: it takes more rows, or smaller batches")
        elif (to.file, to.begin) >= first:
            kept.append(taken)
            _print("begin")
            begin = time.perf_counter()
        if len(kept) > 1 and (to.file, to.begin) >= last:
            break
    seconds = time.perf_counter() - begin
    _print("end")
    before, *rows = (taken.rows() for taken in kept)
    size = sum(taken.size for taken in kept[1:])
    result = {"rows": sum(rows), "slack": max(before, rows[-1])} if task["way"] != "drop" else {}
    _print(json.dumps(result | {"seconds": seconds, "bytes": size}))


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
