"""What processes use: CPU time and memory, as proc(5) tells."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import urllib3

TICK = os.sysconf("SC_CLK_TCK")


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process: utime and stime, fields 14 and 15 of its stat."""
    return _seconds(_stat(Path(f"/proc/{pid}"))[11:13])


def peak_of(pid: int) -> float:
    """Return the largest resident memory that a process has had, in MB; VmHWM of proc(5)."""
    return _memory(Path(f"/proc/{pid}/status").read_text(), "VmHWM")


def memory_of(pid: int | str = "self") -> float:
    """Return the resident memory of a process in MB; VmRSS of proc(5)."""
    return _memory(Path(f"/proc/{pid}/status").read_text(), "VmRSS")


def cpu_of_server(url: str) -> float:
    """Return the CPU seconds of a `sluice serve`."""
    return _metric(url, "process_cpu_seconds_total")


def memory_of_server(url: str) -> float:
    """Return the resident memory of a `sluice serve` in MB."""
    return _metric(url, "process_resident_memory_bytes") / 1e6


def cpu_of_session() -> float:
    """Return the CPU seconds of all processes of this session, and of those that they have waited for."""
    return sum(_seconds(fields[11:15]) for fields, _ in _session())


def peak_of_session() -> float:
    """Return the sum of the largest resident memory that each process of this session has had, in MB."""
    return sum(_memory(status, "VmHWM") for _, status in _session())


class Meter:
    """What named processes use while something is measured."""

    def __init__(self, **pids: int) -> None:
        """Name the processes, and begin."""
        self._pids = pids
        self._before: dict[str, float] = {}
        self.begin()

    def begin(self) -> None:
        """Begin again."""
        self._before = {name: cpu_of(pid) for name, pid in self._pids.items()}

    def cpu(self) -> dict[str, float]:
        """Return the CPU seconds of each process since the beginning."""
        return {name: cpu_of(pid) - self._before[name] for name, pid in self._pids.items()}

    def peaks(self) -> dict[str, float]:
        """Return the largest resident memory that each process has ever had, in MB."""
        return {name: peak_of(pid) for name, pid in self._pids.items()}


def _session() -> Iterator[tuple[list[str], str]]:
    """Give the stat and the status of each process of this session."""
    session = str(os.getsid(0))
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields, status = _stat(process), (process / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
        if fields[3] == session:
            yield fields, status


def _stat(process: Path) -> list[str]:
    """The fields from the third on: the second, the name in parentheses, may hold anything."""
    return (process / "stat").read_text().rpartition(")")[2].split()


def _memory(status: str, field: str) -> float:
    found = re.search(rf"^{field}:\s*(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * 1024 / 1e6 if found else 0.0


def _seconds(fields: list[str]) -> float:
    return sum(map(int, fields)) / TICK


def _metric(url: str, name: str) -> float:
    text = urllib3.request("GET", f"{url}/metrics").data.decode()
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"the server does not tell its {name}")
    return float(found[1])
