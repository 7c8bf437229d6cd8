"""The raw dump in a process of its own: `python -m bench.dump '{...}'` takes a binlog to its end, no more."""

import json
import sys
import time

from sluice.instance.sources.mysql.config import Address, MysqlConfig
from sluice.instance.sources.mysql.connection import Connection
from sluice.instance.sources.mysql.dump import Dump, FileStart, Replica

SPACE = 512 << 10  # as large as the parser's


def main() -> None:
    """Do what the command line says."""
    task = json.loads(sys.argv[1])
    config = MysqlConfig(
        destination="bench",
        master_address=Address(task["host"], task["port"]),
        db_username=task["user"],
        db_password=task["password"],
    )
    space, size = memoryview(bytearray(SPACE)), 0
    with Connection(config) as connection:
        dump = Dump(connection, FileStart(task["file"]), Replica.unique(), timeout=60, non_blocking=True)
    _print("begin")
    begin = time.perf_counter()
    tail = b""
    while not _ends(tail):
        received = dump.receive_into(space)
        size += received
        tail = (tail + bytes(space[max(0, received - 9) : received]))[-9:]
    seconds = time.perf_counter() - begin
    _print("end")
    dump.close()
    _print(json.dumps({"rows": task["rows"], "seconds": seconds, "bytes": size, "slack": 0}))


def _ends(tail: bytes) -> bool:
    """Whether the last packet is EOF: 5 bytes of payload that begin with 0xFE."""
    return len(tail) == 9 and tail[:3] == b"\x05\0\0" and tail[4] == 0xFE


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
