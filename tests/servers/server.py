"""A database server in a folder of its own, owned by the process that started it."""

import atexit
import contextlib
import fcntl
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pymysql

SCRIPT = Path(__file__).with_name("server.sh")

CI = {"mariadb118": "mariadb-trixie", "mysql97": "mysql97"}
"""The servers of every test run: fixture name to the name that server.sh knows."""

ALL = CI | {"mysql56": "mysql56", "mysql80": "mysql80", "mysql57": "mysql57", "mariadb1011": "mariadb-bookworm"}
"""The servers of `make test-all`."""


_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For servers that take nothing else. PyMySQL's own context would load all authorities of the system each time."""
_TLS.check_hostname, _TLS.verify_mode = False, ssl.CERT_NONE


class ServerError(Exception):
    """The server could not be fetched or did not start; the message ends with its log."""


_given: set[int] = set()
_ports = os.open(Path(tempfile.gettempdir(), f"sluice-ports-{os.getuid()}"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
"""An empty file; a process has a lock on the byte at the number of each port that it was given."""


def free_port(count: int = 1) -> int:
    """Return a port that no process listens on, or is given before this one has ended, or the first of several.

    It is below the range of the kernel for outgoing connections: a server stopped for a while finds it free again.
    """
    while True:
        port = random.randrange(20000, 32000)
        if all(_take(port + number) for number in range(count)):
            return port


def _take(port: int) -> bool:
    """Take a port if it is free."""
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        if port not in _given:
            fcntl.lockf(_ports, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            _given.add(port)
            return True
    return False


def fetch(name: str, *command: str) -> None:
    """Let a script download what a server needs, unless it is there. Raises ServerError."""
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise ServerError(f"{name} cannot be had:\n{done.stderr}")


def ending(name: str, process: "subprocess.Popen[bytes] | None", log: Path) -> str:
    """Say how a server ended that nobody has stopped, with the end of its log; nothing of one that runs."""
    status = None if process is None else process.poll()
    if status is None:
        return ""
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
    return f"{name} {how} though no test has stopped it; its log ends:\n{log.read_text(errors='replace')[-4000:]}"


def finish(process: "subprocess.Popen[bytes] | None", number: signal.Signals, seconds: float) -> None:
    """Send a signal, also to a frozen process, and wait.

    What does not end in time is killed, and raises TimeoutExpired.
    """
    if process is None:
        return
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def freeze(pid: int) -> None:
    """SIGSTOP, which returns before the process stands still: its other threads may still answer what comes after."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + 30
    while any(_state(thread) not in "TZ" for thread in Path(f"/proc/{pid}/task").iterdir()):
        if time.monotonic() > deadline:
            raise ServerError(f"the process {pid} does not stop")
        time.sleep(0.001)


def _state(thread: Path) -> str:
    """The letter of `ps`; Z of a thread that is no more."""
    try:
        return (thread / "stat").read_text().rpartition(") ")[2][0]
    except FileNotFoundError:
        return "Z"


def next_second() -> None:
    """Wait until the clock shows another second: servers have no finer times of binlog files and of tables."""
    time.sleep(1 - time.time() % 1 + 0.02)  # times of files lag behind the clock by a tick of the kernel


class Server:
    """One running server; `with Server("mysql97") as server:` or start() and stop().

    The port and the data live as long as the object: kill() and start() is a crash and a recovery, restart() with
    options a change of configuration.
    """

    host = "127.0.0.1"
    user = "cdc"
    password = "cdc"

    def __init__(self, name: str, options: Iterable[str] = (), *, port: int | None = None) -> None:
        """Name one of ALL; `options` are the server's own, as on its command line."""
        self.name = name
        self.options = list(options)
        self.port = port or free_port()
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def directory(self) -> Path:
        """The folder that holds the data (`data/`) and the log (`log`)."""
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix=f"sluice-{self.name}-"))
            atexit.register(self.close)
        return self._directory

    @property
    def data(self) -> Path:
        """The data folder, where the binlog files are too."""
        return self.directory / "data"

    @property
    def dsn(self) -> str:
        """`user:password@host:port`, the form that SLUICE_MYSQL takes."""
        return f"{self.user}:{self.password}@{self.host}:{self.port}"

    @property
    def mariadb(self) -> bool:
        """Whether this is MariaDB."""
        return self.name.startswith("mariadb")

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        if self._process is None:
            raise ServerError(f"{self.name} does not run")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def end(self) -> str:
        """How it ended, if nobody has stopped it."""
        return ending(self.name, self._process, self.directory / "log")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the server and wait until it answers; the first time ever it is downloaded."""
        if self.running:
            return
        fetch(self.name, str(SCRIPT), ALL[self.name], "fetch")
        options = [f"--port={self.port}", f"--server-id={self.port}", *self.options]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(SCRIPT), ALL[self.name], "run", str(self.directory), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us; we then stop the server in good order
            )
        self._wait_until_ready()

    def _wait_until_ready(self, seconds: float = 90) -> None:
        deadline = time.monotonic() + seconds
        while self.running and time.monotonic() < deadline:
            with contextlib.suppress(pymysql.err.MySQLError):
                self.query("SELECT 1")
                return
            time.sleep(0.05)
        self.kill()
        log = (self.directory / "log").read_text(errors="replace")[-4000:]
        raise ServerError(f"{self.name} did not start:\n{log}")

    def stop(self, seconds: float = 60) -> None:
        """Shut the server down in good order; the data stays for the next start()."""
        self._finish(signal.SIGTERM, seconds)

    def kill(self) -> None:
        """kill -9."""
        self._finish(signal.SIGKILL, 60)

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, and nothing is answered. A server that is frozen can be killed and closed."""
        freeze(self.pid)

    def _finish(self, number: signal.Signals, seconds: float) -> None:
        process, self._process = self._process, None
        finish(process, number, seconds)

    def restart(self, *options: str) -> None:
        """Stop and start; when options are given they take the place of the former ones."""
        self.stop()
        if options:
            self.options = list(options)
        self.start()

    def close(self) -> None:
        """Stop for good: the data goes too."""
        self.kill()
        if self._directory is not None:
            atexit.unregister(self.close)
            shutil.rmtree(self._directory)
            self._directory = None

    def connect(self, **options: Any) -> "pymysql.connections.Connection[Any]":
        """Open a connection in autocommit mode; `options` are PyMySQL's."""
        return pymysql.connect(
            **{
                "host": self.host,
                "port": self.port,
                "user": self.user,
                "password": self.password,
                "charset": "utf8mb4",
                "autocommit": True,
                **({"ssl": _TLS} if "--require-secure-transport=ON" in self.options else {"ssl_disabled": True}),
                **options,
            }
        )

    def query(
        self, sql: str, args: Sequence[object] | None = None, *, database: str | None = None
    ) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own and return the rows."""
        connection = self.connect(database=database)
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql, args)
                return list(cursor.fetchall())
        finally:
            connection.close()

    @contextlib.contextmanager
    def variable(self, name: str, value: str | int) -> Iterator[None]:
        """Let a global variable have another value for a while; connections that are open keep what they have."""
        ((before,),) = self.query(f"SELECT @@GLOBAL.{name}")
        self.query(f"SET GLOBAL {name} = %s", (value,))
        try:
            yield
        finally:
            self.query(f"SET GLOBAL {name} = %s", (before,))

    def purge_binlogs(self, first: str, seconds: float = 60) -> None:
        """Purge the binlog files before one; a replica that has just gone may hold them for a moment."""
        deadline = time.monotonic() + seconds
        while self.query("SHOW BINARY LOGS")[0][0] != first:
            if time.monotonic() > deadline:
                raise ServerError(f"{self.name} keeps the binlog files before {first}")
            self.query(f"PURGE BINARY LOGS TO '{first}'")
            time.sleep(0.05)

    def reset_binlog(self) -> None:
        """Remove all binlog files and forget all GTIDs, as if the server were new."""
        self.query("RESET BINARY LOGS AND GTIDS" if self.name == "mysql97" else "RESET MASTER")

    def script(self, statements: str, *, database: str | None = None) -> None:
        """Run statements, each ended by a semicolon at a line's end, on one connection."""
        connection = self.connect(database=database)
        try:
            with connection.cursor() as cursor:
                for statement in statements.split(";\n"):
                    if statement.strip():
                        cursor.execute(statement)
        finally:
            connection.close()
