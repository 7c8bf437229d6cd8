"""A thousand destinations of one server: how long they take to start and stop, and what they cost while idle."""

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3

from bench.processes import cpu_of, memory_of
from bench.sources import source, version_of
from scripts.serving import lines_for, write_conf
from tests.servers import Server
from tests.servers.server import free_port

COUNT, SOURCES = 1000, 20
"""Destinations, and addresses at which their sources listen."""
SOURCE = "mariadb118"
GOALS = {"start_s": 30.0, "idle_cpu": 0.05, "mb_each": 1.0, "stop_s": 10.0}
"""At most: until all run, cores while idle, memory of each beside its ring, until the process has ended."""
IDLE = 20.0
"""Seconds for which it is watched."""
PATIENCE = 600.0
_NO_LIMIT = urllib3.Timeout(60.0)


@dataclass(frozen=True, slots=True)
class Serving:
    """A `sluice serve`."""

    process: "subprocess.Popen[bytes]"
    url: str
    log: Path

    def status(self) -> list[dict[str, Any]]:
        """Return where each destination stands."""
        answer = urllib3.request("GET", f"{self.url}/v1/destinations", retries=False, timeout=_NO_LIMIT)
        found: list[dict[str, Any]] = answer.json()
        return found

    def wait(self, seconds: float = PATIENCE) -> None:
        """Wait until all destinations run; leave with the server's log when they do not."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                ready = urllib3.request("GET", f"{self.url}/readyz", retries=False, timeout=_NO_LIMIT).json()
                if ready["destinations"].keys() <= {"running"} and ready["destinations"]:
                    return
            time.sleep(0.1)
        sys.exit(f"the server did not get ready:\n{self.log.read_text()[-4000:]}")


def measure(count: int, versions: dict[str, str], *, routed: bool = False) -> dict[str, object]:
    """Measure ``count`` destinations beside a single one; the sources are one server that listens at many addresses.

    Its version is added. Where they are routed, they are views, of one destination for each source.
    """
    addresses = [f"127.0.0.{1 + number}" for number in range(SOURCES)]
    options = (f"--bind-address={','.join(addresses)}", f"--max-connections={4 * count + 100}")
    with source(SOURCE, *options) as server:
        versions[SOURCE] = version_of(server)
        with _serving(server, addresses[:1], 1) as alone:
            alone.wait()
            time.sleep(2)
            memory_of_one = memory_of(alone.process.pid)
            _stop(alone)
        begin = time.monotonic()
        with _serving(server, addresses, count, routed=routed) as serving:
            serving.wait()
            start = time.monotonic() - begin
            start_cpu = cpu_of(serving.process.pid)
            begin = time.monotonic()
            found = serving.status()
            status = time.monotonic() - begin
            time.sleep(5)
            before = cpu_of(serving.process.pid)
            time.sleep(IDLE)
            idle = (cpu_of(serving.process.pid) - before) / IDLE
            memory = memory_of(serving.process.pid)
            threads = len(list(Path(f"/proc/{serving.process.pid}/task").iterdir()))
            stop = _stop(serving)
        ring = sum(it["bytes"] for it in found if not it["route"]) / 1e6
        return {
            "case": f"destinations-{count}{'-routed' if routed else ''}",
            "unit": "s until all run",
            "ours": round(start, 2),
            "spread": [round(start, 2), round(start, 2)],
            "anchor_name": "goal",
            "anchor": GOALS["start_s"],
            "ratio": round(start / GOALS["start_s"], 3),
            "sources": f"1 server at {SOURCES} addresses",
            "start_cpu_s": round(start_cpu, 1),
            "idle_cpu": round(idle, 4),
            "mb_each": round((memory - memory_of_one - ring) / max(count - 1, 1), 3),
            "memory_mb": round(memory),
            "threads": threads,
            "status_s": round(status, 3),
            "stop_s": round(stop, 2),
            "goals": GOALS,
        }


@contextlib.contextmanager
def _serving(server: Server, addresses: list[str], count: int, *, routed: bool = False) -> Iterator[Serving]:
    """Serve ``count`` destinations, each of the addresses in turn, without history and outputs."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
        lines = {
            f"d{number:04d}": [
                *lines_for(f"{addresses[number % len(addresses)]}:{server.port}", server.user, server.password),
                "tsdb.enable = false",
            ]
            for number in range(len(addresses) if routed else count)
        }
        if routed:
            mains = list(lines)
            lines |= {
                f"v{number:04d}": [f"sluice.instance.route = {mains[number % len(mains)]}"] for number in range(count)
            }
        main = f"canal.file.data.dir = {folder}/data", f"sluice.http.port = {port}", "canal.port = 0"
        conf = write_conf(Path(folder, "conf"), lines, *main)
        log = Path(folder, "log")
        command = [sys.executable, "-m", "sluice.server.cli", "serve", "--conf", str(conf)]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            yield Serving(process, f"http://127.0.0.1:{port}", log)
        finally:
            process.kill()
            process.wait()


def _stop(serving: Serving) -> float:
    """Stop it in good order; return how long that took."""
    begin = time.monotonic()
    serving.process.terminate()
    serving.process.wait(PATIENCE)
    return time.monotonic() - begin
