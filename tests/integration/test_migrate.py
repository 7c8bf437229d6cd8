"""`sluice migrate` on the conf folder of a Canal: what it says, and by its exit status, whether it can be."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import commands
from tests.conftest import Database
from tests.servers import Server, ZooKeeper, nodes

MAIN = """
canal.port = 11111
canal.destinations = shop
canal.conf.dir = ../conf
canal.file.data.dir = ${canal.conf.dir}
canal.instance.parser.parallel = true
kafka.bootstrap.servers = 127.0.0.1:9092
canal.instance.global.spring.xml = classpath:spring/file-instance.xml
"""


STANDBY = """canal.instance.standby.address = 127.0.0.1:2
canal.instance.detecting.enable = true
canal.instance.detecting.heartbeatHaEnable = true
"""


class Event(NamedTuple):
    """An event of the binlog, as a cursor of Canal's names it."""

    file: str
    offset: int
    milliseconds: int
    server_id: int

    def cursor(self) -> dict[str, Any]:
        place = {
            "gtid": "",
            "included": False,
            "journalName": self.file,
            "position": self.offset,
            "serverId": self.server_id,
            "timestamp": self.milliseconds,
        }
        return {
            "identity": {"slaveId": -1, "sourceAddress": {"address": "127.0.0.1", "port": 3306}},
            "postion": place,
        }


class Run(NamedTuple):
    status: int
    lines: list[str]

    def line(self, text: str) -> str:
        """The one line that has this."""
        (found,) = [line for line in self.lines if text in line]
        return found


@pytest.fixture
def event(mysql56: Server, database: Database) -> Event:
    """The XID of a transaction, in a file that has nothing of other tests."""
    mysql56.query("FLUSH BINARY LOGS")
    schema = database(mysql56)
    mysql56.script(
        "SET timestamp = 1700000000;\nCREATE TABLE t (id INT);\nINSERT INTO t VALUES (1);\n", database=schema
    )
    file = mysql56.query("SHOW MASTER STATUS")[0][0]
    xid = [row for row in mysql56.query(f"SHOW BINLOG EVENTS IN '{file}'") if row[2] == "Xid"][-1]
    return Event(file, xid[1], 1_700_000_000_000, mysql56.port)


@pytest.fixture
def conf(tmp_path: Path, mysql56: Server) -> Path:
    folder = tmp_path / "canal"
    (folder / "shop").mkdir(parents=True)
    (folder / "canal.properties").write_text(MAIN)
    (folder / "shop" / "instance.properties").write_text(
        f"canal.instance.master.address = 127.0.0.1:{mysql56.port}\ncanal.instance.dbUsername = cdc\n"
        "canal.instance.dbPassword = cdc\ncanal.mq.topic = shop\n"
    )
    return folder


def write_meta(conf: Path, *cursors: Event | None, table_filter: str = "") -> None:
    """As Canal writes it: clients 1001, 1002, …"""
    clients: list[dict[str, Any]] = []
    for number, event in enumerate(cursors, 1001):
        identity = {"clientId": number, "destination": "shop", "filter": table_filter}
        clients.append({"clientIdentity": identity} | ({"cursor": event.cursor()} if event else {}))
    (conf / "shop" / "meta.dat").write_text(json.dumps({"clientDatas": clients, "destination": "shop"}))


def migrate(conf: Path, *options: str) -> Run:
    done = commands.run("migrate", "--from", str(conf), *options)
    return Run(done.returncode, (done.stdout + done.stderr).splitlines())


def test_what_would_be_served_and_what_has_no_effect_is_said(conf: Path, event: Event) -> None:
    write_meta(conf, event, None)
    before = {path: path.read_bytes() for path in conf.rglob("*") if path.is_file()}
    run = migrate(conf)
    assert run.status == 0, run.lines
    assert run.line("ok   shop, client 1001").endswith(
        f"would resume at {event.file}:{event.offset} (2023-11-14 22:13:20 UTC), which the source still has"
    )
    assert "would begin where the destination does" in run.line("note shop, client 1002")
    assert f"cursors in {conf}/shop/meta.dat" in run.line("ok   shop: ")
    assert "canal.{port, destinations" in run.line("canal.properties: 5 keys are understood")
    queue = run.line("they are for canal.serverMode = kafka, or for queues that Sluice does not send to")
    assert "kafka.bootstrap.servers (line 7)" in queue
    assert "instance.properties: canal.mq.topic (line 4)" in queue
    assert before == {path: path.read_bytes() for path in conf.rglob("*") if path.is_file()}, "nothing is changed"


@pytest.mark.parametrize(
    ("file", "settings", "said"),
    [
        ("canal.properties", "canal.serverMode = rocketmq", "of message queues there is Kafka only"),
        (
            "canal.properties",
            "canal.instance.shop.spring.xml = classpath:spring/our-instance.xml",
            "our-instance.xml is not supported",
        ),
        (
            "canal.properties",
            "canal.instance.shop.spring.xml = classpath:spring/group-instance.xml",
            "group-instance.xml needs canal.instance.master1.address",
        ),
    ],
)
def test_what_canal_does_and_sluice_does_not_is_a_failure(
    conf: Path, event: Event, file: str, settings: str, said: str
) -> None:
    write_meta(conf, event)
    assert migrate(conf).status == 0
    with (conf / file).open("a") as properties:
        properties.write(f"{settings}\n")
    run = migrate(conf)
    assert run.status == 1
    assert run.line(said).startswith("FAIL ")


def test_a_standby_source_is_switched_to_here_too(conf: Path, event: Event) -> None:
    write_meta(conf, event)
    with (conf / "shop" / "instance.properties").open("a") as properties:
        properties.write(STANDBY)
    assert migrate(conf).status == 0


def test_a_filter_that_cannot_be_used_is_found(conf: Path, event: Event) -> None:
    write_meta(conf, event, table_filter=r"shop\.(?=orders).*")
    run = migrate(conf)
    assert run.status == 1
    assert "'(?=' at character 7" in run.line("FAIL shop, client 1001: would not be served")
    write_meta(conf, event, table_filter=r"shop\.orders")
    assert migrate(conf).status == 0
    with (conf / "shop" / "instance.properties").open("a") as properties:
        properties.write("canal.instance.filter.regex = shop\\\\.\\\\bitems\n")
    run = migrate(conf)
    assert run.status == 1
    assert "canal.instance.filter.regex: 'shop\\.\\bitems' cannot be a filter" in run.line("FAIL shop: ")


def test_a_position_that_is_purged_or_of_another_history_is_found(conf: Path, event: Event) -> None:
    write_meta(
        conf, event, event._replace(file="mysql-bin.000000"), event._replace(milliseconds=event.milliseconds - 1000)
    )
    run = migrate(conf)
    assert run.status == 1
    assert run.line("shop, client 1001").startswith("ok")
    assert "has purged the binlog at mysql-bin.000000" in run.line("FAIL shop, client 1002")
    assert "was reset, restored, or is another server" in run.line("FAIL shop, client 1003")


def test_cursors_that_cannot_be_read_are_found(conf: Path) -> None:
    (conf / "shop" / "meta.dat").write_text("{")
    run = migrate(conf)
    assert run.status == 1
    assert f"{conf}/shop/meta.dat is not a file of subscriptions and cursors" in run.line("FAIL shop: ")


def test_without_cursors_the_beginning_is_said(conf: Path, mysql56: Server) -> None:
    run = migrate(conf)
    assert run.status == 0
    file, offset = mysql56.query("SHOW MASTER STATUS")[0][:2]
    assert run.line("no client has a position").endswith(f"it would begin at {file}:{offset}")


def test_without_cursors_the_place_that_is_kept_counts(conf: Path, mysql56: Server, event: Event) -> None:
    with (conf / "canal.properties").open("a") as main:
        main.write("sluice.instance.logPosition = parse\n")
    write_meta(conf, None)
    (conf / "shop" / "parse.dat").write_text(json.dumps(event.cursor()))
    run = migrate(conf)
    assert run.status == 0
    begin = next(row[1] for row in mysql56.query(f"SHOW BINLOG EVENTS IN '{event.file}'") if row[5] == "BEGIN")
    assert run.line("no client has a position").endswith(f"it would begin at {event.file}:{begin}")
    (conf / "shop" / "parse.dat").write_text(json.dumps(event._replace(file="mysql-bin.000000").cursor()))
    assert "has purged the binlog at mysql-bin.000000" in migrate(conf).line("FAIL shop: ")


def test_positions_in_zookeeper_are_read_and_stay_as_they_are(conf: Path, event: Event, zookeeper: ZooKeeper) -> None:
    main = conf / "canal.properties"
    main.write_text(main.read_text().replace("file-instance.xml", "default-instance.xml"))
    root = "/otter/canal/destinations/shop"
    cursor = {"@type": "com.alibaba.otter.canal.protocol.position.LogPosition", **event.cursor()}
    with nodes(zookeeper.hosts) as zk:
        zk.create(f"{root}/1001/cursor", json.dumps(cursor).encode(), makepath=True)
        zk.create(f"{root}/1001/mark/0000000001", b"{}", makepath=True)
        zk.create(f"{root}/running", b'{"active":true,"address":"10.0.0.1:11111"}')
        run = migrate(conf, "--zk", zookeeper.hosts)
        assert run.status == 0, run.lines
        assert f"would resume at {event.file}:{event.offset}" in run.line("ok   shop, client 1001")
        assert f"cursors in ZooKeeper ({zookeeper.hosts}, period)" in run.line("ok   shop: ")
        assert "10.0.0.1:11111" in run.line("is served now")
        assert zk.get_children(f"{root}/1001/mark") == ["0000000001"]


def test_a_missing_conf_folder_is_status_2(tmp_path: Path) -> None:
    run = migrate(tmp_path)
    assert run.status == 2
    assert "canal.properties does not exist" in run.lines[-1]
