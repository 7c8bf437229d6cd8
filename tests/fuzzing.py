"""Feeds the decoder mutated real events: ``python -m tests.fuzzing INPUTS [--seed N]``.

The inputs come in blocks of 1,000, which depend on nothing but the seed and their number. Each core has a process that
takes block after block, so that a crash is seen as one: it ends everything and names the block, which can be run again
alone. Any error that is not a DecodeError counts as a crash. Prints how the inputs ended.
Half of the decoders have conditions on the rows of all tables, and split the updates that cross them.

`make fuzz` runs what is compiled with AddressSanitizer and UndefinedBehaviorSanitizer. There the mutated event is the
last that was received, and the space after it is poisoned: reading one byte too far is found, although the buffer goes
on.
"""

import argparse
import contextlib
import ctypes
import itertools
import json
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from decimal import Decimal
from pathlib import Path

from sluice.instance.conditions.condition import And, Compare, IsNull, Not, Or, Test
from sluice.instance.sources.mysql.decode.decoder import Decoder, Status
from sluice.instance.sources.mysql.decode.events import BinlogEvent
from sluice.instance.sources.mysql.decode.plan import PlanOptions
from sluice.instance.sources.mysql.decode.table_map import TableMap
from sluice.instance.values.types import Type
from sluice.protocol.errors import DecodeError
from sluice.store.ring import Kind, Ring
from tests.decoding import Options, binlogs, decode, feed, plan_by_types
from tests.packets import PacketWriter, file_packets

ROOT = Path(__file__).parents[1]
BLOCK = 1000
PIECE = 20
"""Blocks that a process runs."""
ASAN = ctypes.CDLL(None) if hasattr(ctypes.CDLL(None), "__asan_poison_memory_region") else None
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
TYPES = [kind for kind in BinlogEvent if kind < 256]
INTEGERS = {Type.TINY, Type.LONG, Type.LONGLONG}


def with_checksum(event: bytearray) -> bytes:
    event[9:13] = len(event).to_bytes(4, "little")
    event[-4:] = zlib.crc32(bytes(event[:-4])).to_bytes(4, "little")
    return bytes(event)


Case = tuple[list[bytes], list[bytes]]
"""What precedes a transaction in a dump from it (ROTATE, FORMAT_DESCRIPTION), and its events."""


def transactions(path: Path) -> Iterator[Case]:
    """The transactions of a file, those that can be packed once more as a payload."""
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
        yield head, events
        if len(events) > 3 and events[0][4] in {BinlogEvent.GTID_EVENT, BinlogEvent.GTID_TAGGED_EVENT}:
            yield head, [events[0], payload(events[1:])]


def payload(events: list[bytes]) -> bytes:
    """The events as an uncompressed TRANSACTION_PAYLOAD event, so that mutations reach those within."""
    inner = b""
    for event in events:
        plain = bytearray(event[:-4])
        plain[9:13] = len(plain).to_bytes(4, "little")
        inner += plain
    size = b"\xfd" + len(inner).to_bytes(3, "little")
    body = b"\x02\x03\xfc\xff\x00" + b"\x03\x04" + size + b"\x01\x04" + size + b"\x00" + inner
    header = bytearray(events[-1][:19])
    header[4] = BinlogEvent.TRANSACTION_PAYLOAD_EVENT
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


@contextlib.contextmanager
def poisoned(address: int, size: int) -> Iterator[None]:
    """Make AddressSanitizer, if present, report any access to these bytes."""
    if ASAN is None:
        yield
        return
    region = ctypes.c_void_p(address), ctypes.c_size_t(size)
    ASAN.__asan_poison_memory_region(*region)
    try:
        yield
    finally:
        ASAN.__asan_unpoison_memory_region(*region)


def condition(table_map: TableMap) -> Test:
    """A condition on all columns of a table, which holds of some rows."""
    columns = [(f"c{i}", kind) for i, kind in enumerate(table_map.types)]
    numbers = [Compare(name, "<", Decimal(50)) for name, kind in columns if kind in INTEGERS]
    return Or((And((*numbers, *(Not(IsNull(name)) for name, _ in columns))), IsNull(columns[-1][0])))


def drain(decoder: Decoder, ring: Ring, packets: bytes, *, conditions: bool) -> str:
    """Decode some packets; how it ended, nothing if it goes on."""
    while packets:
        packets = feed(decoder, packets)
        with decoder.receive_space() as space:
            behind = ctypes.addressof(ctypes.c_char.from_buffer(space)), len(space)
        with poisoned(*behind):
            while (status := decoder.run()) != Status.NEED_DATA:
                ring.put(decoder.staging)
                ring.free_to(ring.next)
                event = decoder.event
                if status != Status.CONTROL or event is None:
                    continue
                if event.error is not None:
                    return "undecodable rows"
                if event.type == BinlogEvent.TABLE_MAP_EVENT:
                    table_map = TableMap.parse(event.body)
                    if not set(table_map.types) <= set(Type):
                        return "unknown type of column"
                    where = condition(table_map) if conditions and table_map.types else None
                    decoder.add_plan(plan_by_types(table_map, 1, PlanOptions(where=where, splits=conditions)))
                elif event.type == BinlogEvent.QUERY_EVENT:
                    decoder.put_entry(b"\x10\x02", Kind.DDL, 7)
    return ""


def try_input(rng: random.Random, cases: list[Case], decoder: Decoder, ring: Ring, *, conditions: bool) -> str:
    """Mutate an event of a transaction, and decode all of it; how it ended."""
    head, events = rng.choice(cases)
    stream = [*head, *events]
    target = len(head) + rng.randrange(len(events)) if rng.random() < 0.998 else 1
    stream[target] = mutate(rng, stream[target])
    writer = PacketWriter()
    packets = [b"".join(writer.event(event)) for event in stream]
    decoder.begin(source="s")
    pieces = packets[:target], packets[target : target + 1], packets[target + 1 :]
    try:
        ends = (drain(decoder, ring, b"".join(piece), conditions=conditions) for piece in pieces)
        outcome = next(filter(None, ends), "decoded")
    except DecodeError:
        outcome = "DecodeError"
    except BaseException:
        sys.stderr.write(f"event {target} of the types {[event[4] for event in stream]}: {stream[target].hex()}\n")
        raise
    ring.put(decoder.staging)
    ring.free_to(ring.next)
    return outcome


def run_blocks(seed: int, blocks: range) -> None:
    """Run blocks in this process: prints the number of each before it, and at last how the inputs ended."""
    with tempfile.TemporaryDirectory() as folder:
        cases = [
            case
            for server in SERVERS
            for path in binlogs(server, Path(folder))
            if b"no checksum" not in path.read_bytes()
            for case in transactions(path)
        ]
    outcomes: Counter[str] = Counter()
    for block in blocks:
        sys.stdout.write(f"{block}\n")
        sys.stdout.flush()
        rng = random.Random(f"{seed} {block}")
        ring = Ring()
        decoder = Decoder(ring, Options(gtid_on=True))
        conditions = block % 2 == 1
        outcomes.update(try_input(rng, cases, decoder, ring, conditions=conditions) for _ in range(BLOCK))
    sys.stdout.write(json.dumps(outcomes))


def run_process(seed: int, blocks: range, sanitized: Path | None) -> Counter[str]:
    """Run blocks in a process of its own. Raises SystemExit, with what it said, when it fails."""
    command = [sys.executable, "-m", "tests.fuzzing", "--seed", str(seed), "--blocks", f"{blocks.start}:{blocks.stop}"]
    environment = dict(os.environ) if sanitized is None else sanitizing(sanitized)
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    *begun, last = done.stdout.splitlines() or [""]
    if done.returncode:
        raise SystemExit(
            f"{done.stderr[-8000:]}\nexit {done.returncode} in block {last or blocks.start} of seed {seed}; this block"
            f" again: --seed {seed} --block {last or blocks.start}, or SEED={seed} BLOCK={last or blocks.start} of make"
        )
    if len(begun) != len(blocks):
        raise SystemExit(f"{len(begun)} of {len(blocks)} blocks were run")
    return Counter(json.loads(last))


def sanitizing(folder: Path) -> dict[str, str]:
    """Return the environment in which the modules of a folder, compiled with both sanitizers, are run and report.

    Python's own allocator is left out, so that its objects are watched, too; what Python does not free at its end
    is not a leak. Raises SystemExit when a module is compiled without them, since then nothing would be found.
    """
    modules = list(folder.rglob("*.so"))
    blind = [path.name for path in modules if b"__asan_init" not in path.read_bytes()]
    if blind or not modules:
        raise SystemExit(f"not compiled with AddressSanitizer in {folder}: {', '.join(blind) or 'no module at all'}")
    libraries = [
        subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so", "libstdc++.so")
    ]
    return {
        **os.environ,
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(folder.resolve()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    parser.add_argument("inputs", nargs="?", type=int, default=1_000_000, help="in whole thousands (%(default)s)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="otherwise a new one")
    parser.add_argument("--block", type=int, help="only this one")
    parser.add_argument("--sanitized", type=Path, help="folder of the package compiled with sanitizers")
    parser.add_argument("--blocks", help=argparse.SUPPRESS)  # what a process of its own runs
    arguments = parser.parse_args()
    if arguments.blocks:
        run_blocks(arguments.seed, range(*map(int, arguments.blocks.split(":"))))
        return
    first, count = (0, -(-arguments.inputs // BLOCK)) if arguments.block is None else (arguments.block, 1)
    pieces = [range(at, min(at + PIECE, first + count)) for at in range(first, first + count, PIECE)]
    sys.stderr.write(f"seed {arguments.seed}, {count} blocks of {BLOCK} inputs\n")
    begin = time.monotonic()
    outcomes: Counter[str] = Counter()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as processes:
        running = [processes.submit(run_process, arguments.seed, piece, arguments.sanitized) for piece in pieces]
        try:
            for done in as_completed(running):
                outcomes += done.result()
                sys.stderr.write(f"{outcomes.total():,} inputs, {time.monotonic() - begin:.0f} s\n")
        finally:
            processes.shutdown(cancel_futures=True)
    sys.stdout.write(json.dumps(outcomes) + "\n")


if __name__ == "__main__":
    main()
