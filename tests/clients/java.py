"""Canal's own Java client, as a process that is led by commands (Consumer.java)."""

import atexit
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple, Self

FETCH = Path(__file__).with_name("fetch.sh")


def fetched(kind: str, argument: object) -> str:
    """What fetch.sh prints for a client that is fetched."""
    command = [str(FETCH), kind, str(argument)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"the {kind} client cannot be had:\n{done.stderr}"
    return done.stdout.strip()


@cache
def _classes() -> str:
    """The class path; the folder of what is compiled goes with the process."""
    folder = mkdtemp(prefix="sluice-java-")
    atexit.register(shutil.rmtree, folder)
    return fetched("java", folder)


class JavaError(Exception):
    """What the client has thrown."""


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


class JavaConsumer:
    """One connector at a time in a Java process."""

    def __init__(self, *options: str) -> None:
        """Start it; the options of Java are those of a small process unless others are given."""
        options = options or ("-Xmx256m", "-XX:+UseSerialGC")
        command = ["java", *options, "-cp", _classes(), "Consumer"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def kill(self) -> None:
        """kill -9."""
        self.__exit__()

    def call(self, *words: object) -> list[list[str]]:
        """Run a command; the lines of its answer, each as its words. JavaError when the client has thrown."""
        self.begin(*words)
        assert self._process.stdout is not None
        lines: list[list[str]] = []
        while True:
            line = self._process.stdout.readline()
            assert line, "the Java process is gone"
            lines.append(line.rstrip("\n").split("\t"))
            if lines[-1][0] == "error":
                raise JavaError(lines[-1][1])
            if lines[-1] == ["ok"]:
                return lines[:-1]

    def connect(
        self, *ports: int, destination: str = "shop", user: str = "", password: str = "", lazy: bool = False
    ) -> None:
        """Make a connector, for a cluster when there are several ports, and connect."""
        addresses = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.call("connect", addresses, destination, user, password, "lazy" if lazy else "")

    def begin(self, *words: object) -> None:
        """Run a command, and do not wait for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def get(self, size: int, timeout: int | None = None, unit: str = "MILLISECONDS", *, ack: bool = False) -> JavaBatch:
        """`getWithoutAck`, or `get`, which acks."""
        wait = () if timeout is None else (timeout, unit)
        (_, batch_id), *lines = self.call("get" if ack else "getWithoutAck", size, *wait)
        rows = [Row(file, int(offset), kind, table, tuple(values)) for file, offset, kind, table, *values in lines]
        return JavaBatch(int(batch_id), rows)
