"""A server with a pump, as users start it."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import urllib3

from tests.commands import Command, Ended, run
from tests.integration.grpc.served import CLUSTER
from tests.waiting import eventually


class Server:
    """A server with a conf folder."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.folder = folder
        self.log = folder / "server.log"
        self.url = ""
        keys = {"clusterId": CLUSTER, "socket": "pump.sock", "stopWriteAt": 0, **settings}
        lines = [f"sluice.pump.{key} = {value}" for key, value in keys.items()]
        text = "\n".join(["sluice.http.port = 0", "canal.port = 0", *lines])
        (folder / "canal.properties").write_text(text)

    @contextlib.contextmanager
    def running(self) -> Iterator[Command]:
        """Run it until the end of the block, where it is killed if it runs still."""
        with self.log.open("w") as log, Command("serve", "--conf", str(self.folder), stdout=log, stderr=log) as process:
            try:
                eventually(lambda: "serves http" in self.log.read_text() or process.poll() is not None)
                found = re.search(r"serves (http\S+)", self.log.read_text())
                assert found, self.log.read_text()
                self.url = found[1]
                yield process
            finally:
                process.kill()

    @property
    def socket(self) -> str:
        """Where TiDB writes."""
        return str(self.folder / "pump.sock")

    def status(self) -> Ended:
        return run("status", "--url", self.url)

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> str:
        return urllib3.request("GET", self.url + path, headers=headers).data.decode()
