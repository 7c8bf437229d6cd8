"""Feeds the decoder mutated real events: ``python -m tests.fuzzing COUNT [SEED]``.

Runs in a process of its own, so that a crash is seen as one. Prints how the cases ended; any error that is not a
DecodeError ends it with a traceback, which names the case by its number.
"""

import itertools
import random
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from sluice.instance.parser.decoder import Decoder, Status
from sluice.instance.parser.events import EventType
from sluice.instance.parser.file_packets import PacketWriter, file_packets
from sluice.instance.parser.table_map import TableMap, Type
from sluice.protocol.errors import DecodeError
from sluice.store.ring import Kind, Ring
from tests.decoding import Options, binlogs, decode, plan_by_types

SERVERS = ("mysql-5.6", "mysql-9.7", "mariadb-11.8")
LARGEST_TRANSACTION = 16 << 10
EXTREMES = (
    b"\x00",
    b"\x7f",
    b"\x80",
    b"\xfb",
    b"\xfc",
    b"\xfd",
    b"\xfe",
    b"\xff",
    b"\xff\xff",
    b"\xff" * 4,
    b"\xff" * 8,
)
TYPES = [kind for kind in EventType if kind < 256]


def with_checksum(event: bytearray) -> bytes:
    event[9:13] = len(event).to_bytes(4, "little")
    event[-4:] = zlib.crc32(bytes(event[:-4])).to_bytes(4, "little")
    return bytes(event)


def transactions(path: Path) -> Iterator[tuple[list[bytes], int, list[bytes]]]:
    """What precedes a transaction in a dump from it (ROTATE, FORMAT_DESCRIPTION), its offset, and its events."""
    content = path.read_bytes()
    whole = decode(file_packets(path))
    offsets = sorted({after.begin for _, after in whole.positions if after.n == 0 and after.file == path.name})
    for start, end in itertools.pairwise(offsets):
        if end - start > LARGEST_TRANSACTION:
            continue
        packets = file_packets(path, start)
        head = [next(packets)[5:], next(packets)[5:]]
        events = []
        at = start
        while at < end:
            size = int.from_bytes(content[at + 9 : at + 13], "little")
            events.append(content[at : at + size])
            at += size
        yield head, offsets[0], events
        if len(events) > 3 and events[0][4] in {EventType.GTID_EVENT, EventType.GTID_TAGGED_EVENT}:
            yield head, offsets[0], [events[0], payload(events[1:])]


def payload(events: list[bytes]) -> bytes:
    """The events as an uncompressed TRANSACTION_PAYLOAD event, so that mutations reach those within."""
    inner = b""
    for event in events:
        plain = bytearray(event[:-4])
        plain[9:13] = len(plain).to_bytes(4, "little")
        inner += plain
    size = b"\xfd" + len(inner).to_bytes(3, "little")
    body = b"\x02\x01\xff" + b"\x03\x04" + size + b"\x01\x04" + size + b"\x00" + inner
    body = body.replace(b"\x02\x01\xff", b"\x02\x03\xfc\xff\x00", 1)
    header = bytearray(events[-1][:19])
    header[4] = EventType.TRANSACTION_PAYLOAD_EVENT
    return with_checksum(header + body + bytes(4))


def mutate(rng: random.Random, event: bytes) -> bytes:
    """Change a few bytes, or cut some out, or double some; the checksum fits again, mostly."""
    result = bytearray(event)
    for _ in range(rng.randint(1, 3)):
        low = 0 if rng.random() < 0.05 else 19
        if len(result) < 24:
            result += bytes(24 - len(result))
        at = rng.randrange(low, len(result) - 4)
        match rng.randrange(8):
            case 0 | 1:
                result[at] = rng.randrange(256)
            case 2:
                result[at] ^= 1 << rng.randrange(8)
            case 3 | 4:
                extreme = rng.choice(EXTREMES)
                result[at : at + len(extreme)] = extreme
            case 5:
                del result[at : at + rng.randint(1, 16)]
            case 6:
                result[at:at] = result[at : at + rng.randint(1, 32)]
            case _:
                result[4] = rng.choice(TYPES)
    result += bytes(max(0, 23 - len(result)))
    if rng.random() < 0.02:
        return bytes(result)
    return with_checksum(result)


def run(decoder: Decoder, ring: Ring, packets: bytes) -> str:
    """Feed the packets; how it ended."""
    while packets:
        with decoder.receive_space() as space:
            size = min(len(space), len(packets))
            space[:size] = packets[:size]
        decoder.received(size)
        packets = packets[size:]
        while (status := decoder.run()) != Status.NEED_DATA:
            ring.put(decoder.staging)
            ring.free_to(ring.next)
            event = decoder.event
            if status != Status.CONTROL or event is None:
                continue
            if event.error is not None:
                return "undecodable rows"
            if event.type == EventType.TABLE_MAP_EVENT:
                table_map = TableMap.parse(event.body)
                if not set(table_map.types) <= set(Type):
                    return "unknown type of column"
                decoder.add_plan(plan_by_types(table_map, 1))
            elif event.type == EventType.QUERY_EVENT:
                decoder.put_entry(b"\x10\x02", Kind.DDL, 7)
    return "decoded"


def main(count: int, seed: int) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        cases = [
            case
            for server in SERVERS
            for path in binlogs(server, Path(folder))
            if b"no checksum" not in path.read_bytes()
            for case in transactions(path)
        ]
    ring = Ring()
    decoder = Decoder(ring, Options(gtid_on=True))
    outcomes: Counter[str] = Counter()
    for number in range(count):
        head, _, events = rng.choice(cases)
        target = rng.randrange(len(events) + (rng.random() < 0.02))
        stream = [*head, *events]
        if target < len(events):
            stream[len(head) + target] = mutate(rng, events[target])
        else:
            stream[1] = mutate(rng, head[1])
        writer = PacketWriter()
        packets = b"".join(packet for event in stream for packet in writer.event(event))
        decoder.begin(source="s")
        if number % 1000 == 0:
            decoder.forget_plans()
        try:
            outcomes[run(decoder, ring, packets)] += 1
        except DecodeError:
            outcomes["DecodeError"] += 1
        except BaseException:
            sys.stderr.write(f"case {number} of seed {seed}: event {target} of {[event[4] for event in stream]}\n")
            raise
        ring.put(decoder.staging)
        ring.free_to(ring.next)
    sys.stdout.write(repr(dict(outcomes)))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
