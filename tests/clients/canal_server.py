"""Canal's own server 1.1.7, as a process on a conf folder (CanalServer.java)."""

import atexit
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
FETCH = ROOT / "bench" / "canal" / "canal.sh"


@cache
def _classes() -> str:
    """The class path; the folder of what is compiled goes with the process."""
    folder = mkdtemp(prefix="sluice-canal-")
    atexit.register(shutil.rmtree, folder)
    command = [str(FETCH), folder, str(Path(__file__).with_name("CanalServer.java"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"Canal's server cannot be had:\n{done.stderr}"
    return done.stdout.strip()


class CanalServer:
    """`with CanalServer(conf):`, or start() and stop(). It serves what `canal.destinations` names."""

    def __init__(self, conf: Path) -> None:
        self.conf = conf
        self.log = conf / "canal.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return when its port is open; a destination that another server has stands by."""
        command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", _classes(), "CanalServer", str(self.conf)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
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
