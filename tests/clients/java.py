"""Canal's own Java client, as a process that is led by commands (Consumer.java)."""

import atexit
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from tests.clients.led import Led

FETCH = Path(__file__).with_name("fetch.sh")


def fetched(kind: str, *arguments: str) -> str:
    """What fetch.sh prints for a client that is fetched."""
    command = [str(FETCH), kind, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"the {kind} client cannot be had:\n{done.stderr}"
    return done.stdout.strip()


@cache
def _classes(version: str) -> str:
    """The class path; the folder of what is compiled goes with the process."""
    folder = mkdtemp(prefix="sluice-java-")
    atexit.register(shutil.rmtree, folder)
    return fetched("java", folder, version)


class Row(NamedTuple):
    """A row, or an entry without one, of a batch."""

    file: str
    offset: int
    type: str
    table: str
    values: tuple[str, ...]


class JavaBatch(NamedTuple):
    """A batch as the client has understood it."""

    id: int
    rows: list[Row]

    def changes(self, table: str) -> list[str]:
        """The rows of a table, as `INSERT 1,a`."""
        return [f"{row.type} {','.join(row.values)}" for row in self.rows if row.table.rpartition(".")[2] == table]


class JavaConsumer(Led):
    """One connector at a time in a Java process."""

    def __init__(self, *options: str, version: str = "1.1.7") -> None:
        """Start it; the options of Java are those of a small process unless others are given."""
        options = options or ("-Xmx256m", "-XX:+UseSerialGC")
        super().__init__(["java", *options, "-cp", _classes(version), "Consumer"])

    def connect(
        self, *ports: int, destination: str = "shop", user: str = "", password: str = "", lazy: bool = False
    ) -> None:
        """Make a connector, for a cluster when there are several ports, and connect; the one before is disconnected."""
        addresses = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.call("connect", addresses, destination, user, password, "lazy" if lazy else "")

    def find(self, hosts: str, destination: str = "shop") -> None:
        """Make a connector that finds its servers in ZooKeeper, and connect.

        Once per process: a connector that is replaced may make its node again, for which the next one waits for ever.
        """
        self.call("find", hosts, destination)

    def get(self, size: int, timeout: int | None = None, unit: str = "MILLISECONDS", *, ack: bool = False) -> JavaBatch:
        """`getWithoutAck`, or `get`, which acks."""
        wait = () if timeout is None else (timeout, unit)
        (_, batch_id), *lines = self.call("get" if ack else "getWithoutAck", size, *wait)
        rows = [Row(file, int(offset), kind, table, tuple(values)) for file, offset, kind, table, *values in lines]
        return JavaBatch(int(batch_id), rows)
