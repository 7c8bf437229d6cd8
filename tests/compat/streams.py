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

from tests.clients.java import fetched
from tests.faults.harness import Sluice
from tests.servers import Server
from tests.servers.server import free_port

ROOT = Path(__file__).parents[2]
SCHEMA = "compat"
FILTER = rf"{SCHEMA}.*\..*"
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
        """The last row of the marker table that has come."""
        self._log = log

    def add(self, entry: Entry) -> None:
        """Note an entry."""
        self.entries.append(entry)
        if entry["header"].get("tableName") == MARKER:
            for row in entry["storeValue"].get("rowDatas", ()):
                self.marker = row["afterColumns"][0]["value"]

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
    place = (file, str(offset), *((gtids,) if gtid else ()))
    log = folder / "canal.log"
    with contextlib.ExitStack() as stack:
        canal_port = stack.enter_context(_canal(source, place, log))
        sluice = _sluice(source, folder, place)
        stack.enter_context(sluice)
        sluice.wait_running()
        streams = (
            Stream("canal", lambda: log.read_text()[-6000:]),
            Stream("default", lambda: "".join(sluice.log)),
            Stream("strict", lambda: "".join(sluice.log)),
        )
        addresses = (f"{canal_port}:canal", f"{sluice.canal_port}:default", f"{sluice.canal_port}:strict")
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


def _sluice(source: Server, folder: Path, place: Sequence[str]) -> Sluice:
    sluice = Sluice(folder / "sluice")
    file, offset, *gtids = place
    settings: dict[str, object] = {
        "canal__instance__filter__regex": FILTER.replace("\\", "\\\\"),
        "canal__instance__master__journal__name": file,
        "canal__instance__master__position": offset,
        "sluice__instance__timeZone": ZONE,
    }
    if gtids:
        settings |= {"canal__instance__gtidon": "true", "canal__instance__master__gtid": gtids[0]}
    sluice.add("default", source, **settings)
    sluice.add("strict", source, canal__instance__parser__strictCanal="true", **settings)
    return sluice


@contextlib.contextmanager
def _canal(source: Server, place: Sequence[str], log: Path) -> Iterator[int]:
    port = free_port()
    account = (str(source.port), source.user, source.password)
    options = (HEAP, f"-Duser.timezone={ZONE}")
    command = ["java", *options, "-cp", _server(), "CanalServer", str(port), "canal", *account, FILTER, *place]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=log.parent)
    try:
        deadline = time.monotonic() + 60
        while "ready\n" not in log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise StreamError(f"Canal did not get ready:\n{log.read_text()[-5000:]}")
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


@cache
def _server() -> str:
    done = subprocess.run([str(ROOT / "bench/canal/canal.sh"), _folder()], capture_output=True, text=True, check=False)
    if done.returncode:
        raise StreamError(f"Canal cannot be had:\n{done.stderr}")
    return done.stdout.strip()


@cache
def _client() -> str:
    folder = _folder()
    path = fetched("java", folder)
    subprocess.run(["javac", "-cp", path, "-d", folder, str(Path(__file__).with_name("Entries.java"))], check=True)
    return path


def _folder() -> str:
    """Make a folder that goes with the process."""
    folder = tempfile.mkdtemp(prefix="sluice-compat-")
    atexit.register(shutil.rmtree, folder)
    return folder
