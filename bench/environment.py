"""What a measurement depends on besides the code measured."""

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any


def _cpu() -> str:
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def _commit() -> str:
    """The commit, with `+` when the tree differs from it; empty outside a repository."""
    described = subprocess.run(
        ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip()


def environment() -> dict[str, Any]:
    """Versions, commit and hardware."""
    return {
        "commit": _commit(),
        "versions": {
            "sluice": version("sluice-cdc"),
            "python": platform.python_version(),
            "cython": version("cython"),
            "kernel": platform.release(),
        },
        "hardware": {
            "cpu": _cpu(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
            "load_before": os.getloadavg()[0],
        },
    }
