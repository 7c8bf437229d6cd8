"""A server that costs next to nothing: `python -m bench.recorded '{...}'` serves what a real one has answered.

It takes batches over Canal's protocol up to a place, prints the port at which it listens, and from then on answers
every GET by the next of these frames, in a circle. How fast a client reads from it is what the client itself can do.
"""

import asyncio
import itertools
import json
import socket
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from sluice.protocol.canal.entry_pb2 import Entry
from sluice.protocol.canal.packet_pb2 import Packet
from sluice.server.tcp.frames import OK, FrameReader, handshake
from tests.canal import CanalClient, frames

REQUEST = 65536
"""Bytes of a request at most."""


async def record(task: Mapping[str, Any]) -> list[bytes]:
    """Take the frames of all batches up to a place of the binlog, each confirmed."""
    client = await CanalClient.connect(task["canal_port"])
    client.destination = task["destination"]
    await client.subscribe()
    taken: list[bytes] = []
    end = tuple(task["end"])
    while True:
        batch = await client.get(task["batch_size"])
        if not batch.messages:
            await asyncio.sleep(0.001)
            continue
        packet = Packet(type=Packet.MESSAGES, body=batch.SerializeToString())
        taken += frames([packet.SerializeToString()])
        client.ack(batch.batch_id)
        header = Entry.FromString(batch.messages[-1]).header
        if (header.logfileName, header.logfileOffset + header.eventLength) >= end:
            client.cut()
            return taken


def serve(connection: socket.socket, batches: Iterator[bytes]) -> None:
    """Answer one client until it goes."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(handshake(bytes(8)))
    requests = FrameReader(REQUEST)
    while data := connection.recv(REQUEST):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)  # as the server does
        requests.feed(data)
        while (request := requests.take()) is not None:
            kind = Packet.FromString(request).type
            if kind == Packet.GET:
                connection.sendall(next(batches))
            elif kind in (Packet.CLIENTAUTHENTICATION, Packet.SUBSCRIPTION):
                connection.sendall(OK)


def main() -> None:
    """Do what the command line says."""
    batches = itertools.cycle(asyncio.run(record(json.loads(sys.argv[1]))))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        while True:
            with listening.accept()[0] as connection:
                serve(connection, batches)


if __name__ == "__main__":
    main()
