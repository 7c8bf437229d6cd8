"""ZooKeeper, one server or an ensemble, owned by the process that started it."""

import atexit
import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from kazoo.client import KazooClient

from tests.servers.server import ServerError, ending, fetch, finish, free_port, freeze

SCRIPT = Path(__file__).with_name("zookeeper.sh")

TICK = 500
"""Of its clock, ms: sessions last from 2 to 20 of them."""


@contextlib.contextmanager
def nodes(hosts: str) -> Iterator[KazooClient]:
    """Give a session of these ZooKeeper servers, to look at nodes and to change them."""
    client = KazooClient(hosts, timeout=10.0)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


class ZooKeeperServer:
    """One server. Its ports and its data live as long as the object: kill() and start() is a crash and a recovery."""

    def __init__(self, folder: Path, number: int) -> None:
        """Make the server ``number`` of an ensemble, or the only one."""
        self.folder = folder
        self.number = number
        self.port, self.quorum_port, self.election_port = free_port(), free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self.port}"

    @property
    def started(self) -> bool:
        """Whether it was started and not ended since, by us."""
        return self._process is not None

    @property
    def running(self) -> bool:
        """Whether the process is there, frozen or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def end(self) -> str:
        """How it ended, if nobody has stopped it."""
        return ending(f"ZooKeeper {self.number}", self._process, self.folder / "log")

    @property
    def mode(self) -> str:
        """`leader`, `follower` or `standalone`; empty while it does not serve."""
        answer = b""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as connection:
            connection.sendall(b"srvr")
            while data := connection.recv(4096):
                answer += data
        return answer.partition(b"Mode: ")[2].partition(b"\n")[0].decode()

    def configure(self, servers: "list[ZooKeeperServer]") -> None:
        """Write its configuration as one of these servers."""
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        lines = [
            f"tickTime={TICK}",
            "initLimit=20",
            "syncLimit=4",
            f"dataDir={data}",
            f"clientPort={self.port}",
            "clientPortAddress=127.0.0.1",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr",
            "maxClientCnxns=0",
        ]
        if len(servers) > 1:
            (data / "myid").write_text(str(self.number))
            lines += [f"server.{it.number}=127.0.0.1:{it.quorum_port}:{it.election_port}" for it in servers]
        (self.folder / "zoo.cfg").write_text("\n".join(lines) + "\n")

    def start(self) -> None:
        """Start the process; it does not serve yet (`ZooKeeper.wait`)."""
        if self.running:
            return
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(SCRIPT), "run", str(self.folder / "zoo.cfg")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self, seconds: float = 30) -> None:
        """Shut it down in good order; the data stays."""
        self._end(signal.SIGTERM, seconds)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL, 30)

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, and nothing is answered."""
        freeze(self._running.pid)

    def thaw(self) -> None:
        """SIGCONT."""
        self._running.send_signal(signal.SIGCONT)

    @property
    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise ServerError(f"ZooKeeper {self.number} does not run")
        return self._process

    def _end(self, number: signal.Signals, seconds: float) -> None:
        process, self._process = self._process, None
        finish(process, number, seconds)


class ZooKeeper:
    """A ZooKeeper of one or more servers; `with ZooKeeper() as zookeeper:` or start() and close()."""

    def __init__(self, size: int = 1, *, port: int | None = None) -> None:
        """``size``: how many servers; three go on without any one of them. ``port`` is for clients of the first."""
        self._directory = Path(tempfile.mkdtemp(prefix="sluice-zookeeper-"))
        atexit.register(self.close)
        self.servers = [ZooKeeperServer(self._directory / str(number), number) for number in range(1, size + 1)]
        self.servers[0].port = port or self.servers[0].port
        for server in self.servers:
            server.configure(self.servers)

    @property
    def hosts(self) -> str:
        """What `canal.zkServers` has to be."""
        return ",".join(server.address for server in self.servers)

    @property
    def end(self) -> str:
        """How one of the servers ended, if nobody has stopped it."""
        return next(filter(None, (it.end for it in self.servers)), "")

    @property
    def leader(self) -> ZooKeeperServer:
        """The server that leads, or the only one."""
        for server in self.servers:
            if server.running and server.mode in ("leader", "standalone"):
                return server
        raise ServerError("no ZooKeeper server leads")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start all servers that do not run and wait until they serve; the first time ever they are downloaded."""
        fetch("ZooKeeper", str(SCRIPT), "fetch")
        for server in self.servers:
            server.start()
        self.wait()

    def wait(self, seconds: float = 60) -> None:
        """Wait until each server that was started serves."""
        deadline = time.monotonic() + seconds
        for server in self.servers:
            while server.started and not server.mode:
                if not server.running or time.monotonic() > deadline:
                    raise ServerError(f"ZooKeeper {server.number} does not serve:\n{self._log(server)}")
                time.sleep(0.05)

    def _log(self, server: ZooKeeperServer) -> str:
        return (server.folder / "log").read_text(errors="replace")[-4000:]

    def stop(self) -> None:
        """Shut all servers down in good order; sessions and data stay for the next start()."""
        for server in self.servers:
            server.stop()

    def kill(self) -> None:
        """kill -9 of all servers."""
        for server in self.servers:
            server.kill()

    def freeze(self) -> None:
        """SIGSTOP of all servers."""
        for server in self.servers:
            server.freeze()

    def thaw(self) -> None:
        """SIGCONT of all servers."""
        for server in self.servers:
            server.thaw()

    def restart(self) -> None:
        """Stop and start all servers; sessions survive it."""
        self.stop()
        self.start()

    def lose(self) -> None:
        """Stop all servers, and start them at the same ports without their data."""
        self.kill()
        for server in self.servers:
            shutil.rmtree(server.folder / "data")
            server.configure(self.servers)
        self.start()

    def back_up(self) -> None:
        """Keep a copy of the data, for `go_back`."""
        self.stop()
        for server in self.servers:
            shutil.copytree(server.folder / "data", server.folder / "copy")
        self.start()

    def go_back(self) -> None:
        """Stop all servers, and start them with the copy of `back_up`."""
        self.kill()
        for server in self.servers:
            shutil.rmtree(server.folder / "data")
            (server.folder / "copy").rename(server.folder / "data")
        self.start()

    def close(self) -> None:
        """Stop for good: the data goes too."""
        self.kill()
        atexit.unregister(self.close)
        shutil.rmtree(self._directory, ignore_errors=True)
