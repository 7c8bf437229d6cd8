"""Every command of the operations page runs, in order, on a pair of servers and beside Canal's own server 1.1.7."""

import contextlib
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3

from tests.clients.canal_server import CanalServer
from tests.clients.java import JavaConsumer
from tests.clients.led import ClientError
from tests.conftest import Database
from tests.pages import ROOT, Shell, shape, steps
from tests.servers import Server, ZooKeeper
from tests.servers.server import free_port
from tests.waiting import eventually

PAGE = "docs/operations.md"
PORTS = {port: str(free_port()) for port in ("3307", "2181", "11111", "11112", "11180", "11181", "11182")}
"""Those of the page, and those that are free."""
CANAL_PORT = str(free_port())
STOP, START = "/opt/canal/bin/stop.sh", "/opt/canal/bin/startup.sh"


def answers(port: str) -> bool:
    """Whether a server does; for one of ours, whether its destination has an owner."""
    if port not in (PORTS["11180"], PORTS["11181"], PORTS["11182"]):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", int(port))) == 0
    with contextlib.suppress(urllib3.exceptions.HTTPError):
        found = urllib3.request("GET", f"http://127.0.0.1:{port}/v1/destinations/shop", retries=False).json()
        return found.get("state") == "running" or bool(found.get("active"))
    return False


def wait_for(command: str) -> None:
    """Wait as the reader would, until what was started in the background serves."""
    http = [PORTS[port] for port in ("11180", "11181") if PORTS[port] in command]
    ports = http or ([PORTS["11182"]] if " serve " in command else [it for it in PORTS.values() if it in command])
    eventually(lambda: all(map(answers, ports)), command, seconds=60)


class Reader:
    """Runs the page, with what a step needs done before it or checked after it."""

    def __init__(self, shell: Shell, replaced: dict[str, str]) -> None:
        self.before: dict[str, Callable[[], None]] = {}
        self.after: dict[str, Callable[[], None]] = {}
        self._shell, self._replaced = shell, replaced
        self._names: dict[str, Any] = {}

    def read(self) -> None:
        for step in steps(PAGE):
            self.before.get(step.code, lambda: None)()
            code = re.sub("|".join(map(re.escape, self._replaced)), lambda found: self._replaced[found[0]], step.code)
            if step.language == "python":
                exec(compile(code, PAGE, "exec"), self._names)
                continue
            output = self._shell.run(code)
            if step.output:
                assert shape(output) == shape(step.output), step.code
            self.after.get(step.code, lambda: None)()


class Canal:
    """A Canal installation, its programs replaced by ones that do the same to Canal's own server."""

    def __init__(self, folder: Path, source: Server, schema: str, hosts: str) -> None:
        source.script("CREATE TABLE numbers (id INT PRIMARY KEY);\n", database=schema)
        self.source, self.schema, self.hosts = source, schema, hosts
        self.conf = folder / "conf"
        self.written = 0
        self.received: list[int] = []
        (self.conf / "shop").mkdir(parents=True)
        (folder / "bin").mkdir()
        for name in ("stop.sh", "startup.sh"):
            (folder / "bin" / name).write_text("#!/bin/sh\n")
            (folder / "bin" / name).chmod(0o755)
        (self.conf / "canal.properties").write_text(
            f"canal.port = {CANAL_PORT}\ncanal.destinations = shop\ncanal.zkServers = {hosts}\n"
            "canal.conf.dir = ../conf\ncanal.serverMode = tcp\ncanal.instance.parser.parallel = true\n"
            "canal.instance.global.spring.xml = classpath:spring/default-instance.xml\n"
        )
        file, offset = source.query("SHOW MASTER STATUS")[0][:2]
        (self.conf / "shop" / "instance.properties").write_text(
            f"canal.instance.master.address = 127.0.0.1:{source.port}\ncanal.instance.dbUsername = cdc\n"
            f"canal.instance.dbPassword = cdc\ncanal.instance.filter.regex = {schema}\\\\..*\n"
            f"canal.instance.master.journal.name = {file}\ncanal.instance.master.position = {offset}\n"
        )
        self.server = CanalServer(self.conf)

    def pass_on(self, consumer: JavaConsumer) -> None:
        """Write some rows, and let Canal's Java client take and ack what comes until they have come."""
        numbers = range(self.written + 1, self.written + 11)
        self.written += 10
        self.source.script("".join(f"INSERT INTO numbers VALUES ({it});\n" for it in numbers), database=self.schema)

        def connected() -> bool:
            with contextlib.suppress(ClientError):
                consumer.connect(int(CANAL_PORT), destination="shop")
                consumer.call("subscribe", "")
                return True
            return False

        eventually(connected, "Canal's client connects")

        def came() -> bool:
            batch = consumer.get(1000)
            self.received += [int(it.removeprefix("INSERT ")) for it in batch.changes("numbers")]
            if batch.id > 0:
                consumer.call("ack", batch.id)
            return self.written in self.received and batch.rows[-1].type == "TRANSACTIONEND"

        eventually(came, lambda: self.received, seconds=90)
        consumer.call("subscribe", "")


@pytest.fixture
def canal(tmp_path: Path, mysql56: Server, database: Database, zookeeper: ZooKeeper) -> Iterator[Canal]:
    canal = Canal(tmp_path / "canal", mysql56, database(mysql56), zookeeper.hosts)
    yield canal
    canal.server.kill()


@pytest.mark.extended
@pytest.mark.timeout(300)
def test_every_command_runs_and_every_number_passes_from_canal_to_sluice_and_back_once(
    tmp_path: Path, canal: Canal
) -> None:
    environ = {"SLUICE_HA_SESSION_TIMEOUT": "2", "SLUICE_URL": f"http://127.0.0.1:{PORTS['11182']}"}
    # In the last part the port of HTTP is the third one, since the pair still runs.
    environ["SLUICE_HTTP_PORT"] = PORTS["11182"]
    replaced = {**PORTS, "/tmp/": f"{tmp_path}/", "/opt/canal": str(tmp_path / "canal")}
    with Shell(tmp_path, environ, wait_for) as shell, JavaConsumer() as consumer:
        reader = Reader(shell, replaced)
        migrate = "sluice migrate --from /opt/canal/conf"

        def run_canal() -> None:
            if not canal.written:
                canal.server.start()
                canal.pass_on(consumer)

        reader.before[migrate] = run_canal
        reader.before["sleep 2"] = lambda: time.sleep(0.1)
        reader.after[STOP] = canal.server.stop
        reader.after["sluice status"] = lambda: canal.pass_on(consumer)

        def start_again() -> None:
            canal.server.start()
            canal.pass_on(consumer)

        reader.after[START] = start_again
        reader.read()
    assert canal.received == list(range(1, 31))


def test_the_texts_and_metrics_of_the_page_are_those_of_the_program() -> None:
    page = (ROOT / PAGE).read_text()
    sources = [
        path.read_text()
        for folder in ("protocol", "login", "store", "instance", "server")
        for path in (ROOT / folder).rglob("*.py*")
        if path.suffix in (".py", ".pyx")
    ]
    program = re.sub(r'"\s*f?"', "", "".join(sources))
    table = [line for line in page.partition("## What each failure")[2].splitlines() if line.startswith("| ")]
    texts = [text for line in table[2:] for text in re.findall("`([^`]+)`", line.split(" | ")[1])]
    fragments = [part.strip() for text in texts for part in re.split(r"…|: ", text) if len(part.strip()) > 3]
    assert len(fragments) > 12
    for fragment in fragments:
        assert fragment in program, fragment
    for metric in set(re.findall(r"\bsluice_[a-z_]+", page)):
        assert f"`{metric}`" in (ROOT / "docs" / "metrics.md").read_text(), metric
