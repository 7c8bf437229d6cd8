"""Stock Canal and Sluice side by side on one source, both read by Canal's own Java client (Entries.java)."""

import atexit
import contextlib
import json
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.clients.canal_server import CanalServer
from tests.clients.java import fetched
from tests.faults.harness import Sluice
from tests.servers import Server

SCHEMA = "compat"
FILTER = r".*\..*"
"""Texts of statements come only where nothing is left out."""
MARKER = "marker"
ZONE = "Europe/Berlin"
"""In which both write TIMESTAMP values; it has a daylight saving time."""
HEAP = "-Xmx512m"

Entry = dict[str, Any]


class StreamError(Exception):
    """A stream does not come along; the message ends with the log of its server."""


class Stream:
    """What a client has received from one destination, in its order."""

    def __init__(self, name: str, log: Callable[[], str]) -> None:
        self.name = name
        self.entries: list[Entry] = []
        self.marker = ""
        """The last row of the marker table whose transaction has come to its end."""
        self._unended = ""
        self._log = log

    def add(self, entry: Entry) -> None:
        """Note an entry."""
        self.entries.append(entry)
        if entry["header"].get("tableName") == MARKER:
            for row in entry["storeValue"].get("rowDatas", ()):
                self._unended = row["afterColumns"][0]["value"]
        elif entry["entryType"] == "TRANSACTIONEND":
            self.marker = self._unended

    def complaint(self) -> str:
        """Say what its server has logged last."""
        return f"{self.name} does not come along, its last entry is {self.entries[-1:]}\n{self._log()}"


class Reading:
    """The streams of all destinations, while they are read; a marker in the source tells how far they are."""

    def __init__(self, source: Server, streams: Sequence[Stream]) -> None:
        self.streams = streams
        self._source = source.connect(database=SCHEMA)
        self._number = 0
        self._arrived = threading.Condition()

    def take(self, number: int, entry: Entry) -> None:
        """Note an entry of a stream."""
        with self._arrived:
            self.streams[number].add(entry)
            self._arrived.notify_all()

    def mark(self, topic: str, seconds: float = 30) -> None:
        """Begin a topic: write its name as a marker, and wait until it has come by every stream."""
        self._number += 1
        marker = f"{self._number} {topic}"
        with self._source.cursor() as cursor:
            cursor.execute(f"INSERT INTO {MARKER} VALUES (%s)", (marker,))
        deadline = time.monotonic() + seconds
        with self._arrived:
            for stream in self.streams:
                while stream.marker != marker:
                    if not self._arrived.wait(max(0, deadline - time.monotonic())):
                        raise StreamError(stream.complaint())


@contextlib.contextmanager
def reading(source: Server, folder: Path, *, gtid: bool = False) -> Iterator[Reading]:
    """Read the source from its end on: by Canal, by Sluice as it is, and by Sluice under `strictCanal`.

    `gtid`: by GTID, which the entries then have too.
    """
    source.query(f"CREATE DATABASE {SCHEMA} CHARACTER SET utf8mb4")
    source.query(f"CREATE TABLE {MARKER} (name VARCHAR(100))", database=SCHEMA)
    file, offset, gtids = _end(source)
    settings: dict[str, object] = {
        "canal__instance__filter__regex": FILTER.replace("\\", "\\\\"),
        "canal__instance__master__journal__name": file,
        "canal__instance__master__position": offset,
        "sluice__instance__timeZone": ZONE,
    }
    if gtid:
        settings |= {"canal__instance__gtidon": "true", "canal__instance__master__gtid": gtids}
    with contextlib.ExitStack() as stack:
        sluice, canal = Sluice(folder / "sluice"), Sluice(folder / "canal")  # of this one Canal reads the conf folder
        canal.settings["canal__instance__global__spring__xml"] = "classpath:spring/memory-instance.xml"
        canal.add("canal", source, **settings)
        stack.enter_context(server := CanalServer(canal.conf, (HEAP, f"-Duser.timezone={ZONE}")))
        sluice.add("default", source, **settings)
        sluice.add("strict", source, canal__instance__parser__strictCanal="true", **settings)
        stack.enter_context(sluice)
        sluice.wait_running()
        streams = (
            Stream("canal", lambda: server.log.read_text()[-6000:]),
            Stream("default", lambda: "".join(sluice.log)),
            Stream("strict", lambda: "".join(sluice.log)),
        )
        addresses = (f"{canal.canal_port}:canal", f"{sluice.canal_port}:default", f"{sluice.canal_port}:strict")
        found = Reading(source, streams)
        with (folder / "client.log").open("wb") as errors:
            client = subprocess.Popen(
                ["java", HEAP, "-cp", _client(), "Entries", *addresses],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        collector = threading.Thread(target=_collect, args=(client, found), daemon=True)
        collector.start()
        for end in (collector.join, client.wait, client.kill):  # the last one first
            stack.callback(end)
        yield found


def _collect(client: "subprocess.Popen[str]", found: Reading) -> None:
    assert client.stdout is not None
    with client.stdout as lines:
        for line in lines:
            number, _, entry = line.partition("\t")
            found.take(int(number), json.loads(entry))


def _end(source: Server) -> tuple[str, int, str]:
    """The end of the binlog: file, offset, and the GTID set of what is before it."""
    status = "SHOW BINARY LOG STATUS" if source.name == "mysql97" else "SHOW MASTER STATUS"
    file, offset = source.query(status)[0][:2]
    variable = "gtid_binlog_pos" if source.mariadb else "gtid_executed"
    ((gtids,),) = source.query(f"SELECT @@GLOBAL.{variable}")
    return file, offset, gtids.replace("\n", "")


@cache
def _client() -> str:
    """The class path; the folder of what is compiled goes with the process."""
    folder = tempfile.mkdtemp(prefix="sluice-compat-")
    atexit.register(shutil.rmtree, folder)
    path = fetched("java", folder)
    subprocess.run(["javac", "-cp", path, "-d", folder, str(Path(__file__).with_name("Entries.java"))], check=True)
    return path
