"""An etcd, which also the PD of a TiDB cluster has, owned by the process that started it."""

import atexit
import shutil
import signal
import ssl
import subprocess
import tempfile
from pathlib import Path
from typing import Self

import urllib3

from tests.servers.server import ending, fetch, finish, free_port, freeze
from tests.waiting import eventually

SCRIPT = Path(__file__).with_name("etcd.sh")


class EtcdServer:
    """One server; `with EtcdServer() as etcd:`. Its port and data live as long as the object."""

    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        """``certificate``: its certificate and key; callers need one that it has signed, such as itself."""
        self.folder = Path(tempfile.mkdtemp(prefix="sluice-etcd-"))
        atexit.register(self.close)
        self.certificate = certificate
        self.port = free_port()
        self._peers = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start it and wait until it serves; the first time ever it is downloaded."""
        fetch("etcd", str(SCRIPT), "fetch")
        peers = f"http://127.0.0.1:{self._peers}"
        options = {
            "data-dir": str(self.folder / "data"),
            "listen-client-urls": self.url,
            "advertise-client-urls": self.url,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
        }
        if self.certificate is not None:
            cert, key = map(str, self.certificate)
            options |= {"cert-file": cert, "key-file": key, "trusted-ca-file": cert, "client-cert-auth": "true"}
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(SCRIPT), "run", *(f"--{name}={value}" for name, value in options.items())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        eventually(self._serves, lambda: ending("etcd", self._process, self.folder / "log"))

    def kill(self) -> None:
        """kill -9; the data stays."""
        process, self._process = self._process, None
        finish(process, signal.SIGKILL, 30)

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, and nothing is answered."""
        assert self._process is not None
        freeze(self._process.pid)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End it, and remove its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _serves(self) -> bool:
        tls = None
        if self.certificate is not None:
            tls = ssl.create_default_context(cafile=str(self.certificate[0]))
            tls.load_cert_chain(*self.certificate)
        with urllib3.PoolManager(retries=False, timeout=2.0, ssl_context=tls) as pool:
            try:
                return bool(pool.request("GET", f"{self.url}/health").json().get("health") == "true")
            except urllib3.exceptions.HTTPError:
                return False
