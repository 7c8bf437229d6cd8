"""Canal's own server 1.1.7, as a process on a conf folder (CanalServer.java), and parts of it that are led."""

import atexit
import base64
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Self

from sluice.server.outputs.routing import Rules
from tests.clients.led import Led

FETCH = Path(__file__).with_name("canal.sh")
SMALL = ("-Xmx256m", "-XX:+UseSerialGC")
"""Options of Java for a server that has little to do."""


@cache
def _classes() -> str:
    """The class path; the folder of what is compiled goes with the process."""
    folder = mkdtemp(prefix="sluice-canal-")
    atexit.register(shutil.rmtree, folder)
    done = subprocess.run([str(FETCH), folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"Canal's server cannot be had:\n{done.stderr}"
    return done.stdout.strip()


class CanalServer:
    """`with CanalServer(conf):`, or start() and stop(). It serves what `canal.destinations` names."""

    def __init__(self, conf: Path, options: Sequence[str] = SMALL) -> None:
        """``options`` are those of Java."""
        self.conf = conf
        self.log = conf / "canal.log"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id; it must have been started."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Return when its port is open; a destination that another server has stands by."""
        command = ["java", *self._options, "-cp", _classes(), "CanalServer", str(self.conf)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=self.conf
            )
        assert self._process.stdout is not None
        printed = []
        while line := self._process.stdout.readline():
            if line == b"ready\n":
                return
            printed.append(line.decode())
        raise AssertionError("Canal's server did not start:\n" + "".join(printed) + self.log.read_text())

    def stop(self) -> None:
        """End it in good order."""
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class FilterProcess(Led):
    """Canal's own matcher of table filters, in a Java process (Filters.java)."""

    def __init__(self) -> None:
        """Start it."""
        super().__init__(["java", *SMALL, "-cp", _classes(), "Filters"])

    def accepts(self, text: str, names: Sequence[tuple[str, str]]) -> list[bool]:
        """Tell which names a filter takes. ClientError when it is refused."""
        ((*verdicts,),) = self.call("match", text, *(f"{schema}.{table}" for schema, table in names))
        return [verdict == "true" for verdict in verdicts]


class ProducerProcess(Led):
    """Canal's own producer for Kafka, in a Java process (Producer.java)."""

    def __init__(self) -> None:
        """Start it."""
        super().__init__(["java", *SMALL, "-cp", _classes(), "Producer"])

    def send(self, rules: Rules, batch_id: int, messages: bytes, *, flat: bool) -> list[tuple[str, int, bytes]]:
        """Return topic, partition and value of each record of a batch: framed entries. ClientError if it fails."""
        answer = self.call(
            "send",
            str(flat).lower(),
            str(rules.database_hash).lower(),
            rules.topic,
            rules.dynamic_topic,
            rules.topic_partitions,
            rules.partition,
            rules.partitions,
            rules.partition_hash,
            batch_id,
            base64.b64encode(messages).decode(),
        )
        return [(topic, int(partition), base64.b64decode(value)) for topic, partition, value in answer]
