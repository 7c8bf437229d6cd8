"""`sluice serve` on one source as a process of its own, for the demo and the measurements."""

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import urllib3

from tests.servers.server import free_port


@dataclass(frozen=True, slots=True)
class Sluice:
    """A running `sluice serve`."""

    url: str
    canal_port: int
    """Where it speaks Canal's own protocol; 0 where it does not."""
    pid: int


@contextlib.contextmanager
def serving(destination: str, address: str, user: str, password: str, *settings: str) -> Iterator[str]:
    """Serve a destination, with a configuration as short as can be and further lines for it; gives the URL."""
    with started({destination: lines_for(address, user, password, *settings)}) as server:
        yield server.url


def lines_for(address: str, user: str, password: str, *settings: str) -> list[str]:
    """Return the lines of a destination, as short as can be, and further ones: what stands after ``canal.instance.``.

    A line that begins with ``sluice.`` is taken as it is.
    """
    return [f"master.address = {address}", f"dbUsername = {user}", f"dbPassword = {password}", *settings]


def write_conf(conf: Path, destinations: Mapping[str, Sequence[str]], *main: str) -> Path:
    """Write a conf folder, with the lines of each destination and further ones of the main file; return the folder."""
    conf.mkdir(exist_ok=True)
    lines = (f"canal.destinations = {','.join(destinations)}", *main)
    (conf / "canal.properties").write_text("".join(f"{line}\n" for line in lines))
    for destination, its in destinations.items():
        (conf / destination).mkdir()
        instance = conf / destination / "instance.properties"
        instance.touch(mode=0o600)
        instance.write_text("".join(f"{'' if it.startswith('sluice.') else 'canal.instance.'}{it}\n" for it in its))
    return conf


@contextlib.contextmanager
def started(
    destinations: Mapping[str, Sequence[str]], *, canal_port: int = 0, main: Sequence[str] = ()
) -> Iterator[Sluice]:
    """Serve destinations, each with its lines; over Canal's own protocol too where a port is given for it.

    ``main`` has further lines of the main file.
    """
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
        ports = f"sluice.http.port = {port}", f"canal.port = {canal_port}"
        conf = write_conf(Path(folder, "conf"), destinations, f"canal.file.data.dir = {folder}/data", *ports, *main)
        log = Path(folder, "log")
        command = [sys.executable, "-m", "sluice.server.cli", "serve", "--conf", str(conf)]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            url = f"http://127.0.0.1:{port}"
            for destination in destinations:
                _wait(f"{url}/v1/destinations/{destination}", process, log)
            yield Sluice(url, canal_port, process.pid)
        finally:
            process.terminate()
            process.wait(10)


def _wait(status: str, process: "subprocess.Popen[bytes]", log: Path, seconds: float = 30) -> None:
    """Wait until the destination runs; leave with the server's log when it does not."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            answer = urllib3.request("GET", status, retries=False)
            if answer.status == 200 and answer.json()["state"] == "running":
                return
        time.sleep(0.05)
    sys.exit(f"the server did not get ready:\n{log.read_text()}")
