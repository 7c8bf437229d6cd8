"""The command line against real servers: check, serve, tail, status, ack, rollback, snapshot, filter try, verify."""

import contextlib
import itertools
import json
import os
import re
import signal
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import urllib3

from sluice.protocol.position import Position
from sluice.store.log.files import frame, read_head
from sluice.store.log.log import Limits, Log
from tests import commands
from tests.conftest import Database
from tests.delivery import end_of_binlog
from tests.servers import Server, ZooKeeper, nodes
from tests.waiting import eventually

SECONDS = 90.0  # that anything may take
STOP_SECONDS = 5.0


@dataclass
class Conf:
    """A conf folder with destinations, and the command line on it."""

    folder: Path

    def main(self, **settings: str) -> None:
        """Write ``canal.properties``; a dot in a key is written as two underscores."""
        lines = {"sluice__http__port": "0", "canal__port": "0", "canal__file__data__dir": "../data"} | settings
        text = "".join(f"{key.replace('__', '.')} = {value}\n" for key, value in lines.items())
        (self.folder / "canal.properties").write_text(text)

    def destination(self, name: str, server: Server, tables: str = ".*\\\\..*", **settings: str) -> None:
        """Write the file of a destination."""
        lines = {
            "canal__instance__master__address": f"{server.host}:{server.port}",
            "canal__instance__dbUsername": server.user,
            "canal__instance__dbPassword": server.password,
            "canal__instance__filter__regex": tables,
        } | settings
        (self.folder / name).mkdir(exist_ok=True)
        text = "".join(f"{key.replace('__', '.')} = {value}\n" for key, value in lines.items())
        (self.folder / name / "instance.properties").write_text(text)

    def start(self, *arguments: str, **environ: str) -> commands.Command:
        """Start a command."""
        return commands.Command(*arguments, environ={"SLUICE_CONF": str(self.folder)} | environ)

    def run(self, *arguments: str, **environ: str) -> commands.Ended:
        """Run a command to its end."""
        done = commands.run(*arguments, environ={"SLUICE_CONF": str(self.folder)} | environ)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    @contextmanager
    def serving(self, **environ: str) -> Iterator["Serving"]:
        """Run the server; stops it at the end, and checks that it stops in good order and in time."""
        process = self.start("serve", **environ)
        try:
            assert process.stderr is not None
            url, log = "", []
            while not url and (line := process.stderr.readline()):
                log.append(line)
                if found := re.search(r"serves (http\S+)", line):
                    url = found[1]
            assert url, "".join(log)
            serving = Serving(url, self, "".join(log))
            yield serving
            process.send_signal(signal.SIGTERM)
            begin = time.monotonic()
            _, rest = process.communicate(timeout=SECONDS)
            assert time.monotonic() - begin < STOP_SECONDS
            assert process.returncode == 0, rest
            serving.log += rest
        finally:
            process.kill()
            process.communicate()


@dataclass
class Serving:
    """A running server."""

    url: str
    conf: Conf
    log: str
    """What it said before it served; at the end, all."""

    def run(self, *arguments: str) -> str:
        """Run a command on it that has to succeed; return what it printed."""
        done = self.conf.run(*arguments, "--url", self.url)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def call(self, method: str, path: str, **options: Any) -> Any:
        """Make a call of the API."""
        answer = urllib3.request(method, f"{self.url}/v1/destinations{path}", **options)
        assert answer.status < 300, answer.data
        return answer.json() if answer.data else None

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait until ``condition`` holds."""
        eventually(condition, lambda: self.call("GET", ""), SECONDS)

    def states(self) -> dict[str, str]:
        """The destinations with their states."""
        return {it["destination"]: it["state"] for it in self.call("GET", "")}


@pytest.fixture
def conf(tmp_path: Path) -> Conf:
    (tmp_path / "conf").mkdir()
    made = Conf(tmp_path / "conf")
    made.main(canal__destinations="shop")
    return made


def test_check_is_ok_for_a_usable_source(conf: Conf, server: Server) -> None:
    conf.destination("shop", server)
    done = conf.run("check")
    assert done.returncode == 0
    product = "MariaDB" if server.mariadb else "MySQL"
    password, source = done.stdout.splitlines()[:2]
    assert password == "ok   shop, password: the connection does not leave this host"
    assert re.match(rf"ok   shop: {product} \S+.* at 127\.0\.0\.1:{server.port}, binlog at ", source)


def test_check_advises_on_what_works_and_may_not_be_meant(conf: Conf, mariadb118: Server, database: Database) -> None:
    schema = database(mariadb118)
    mariadb118.query(f"CREATE TABLE {schema}.orders (id INT PRIMARY KEY)")
    conf.destination("shop", mariadb118, rf"{schema}.\\.orders")
    with mariadb118.variable("binlog_row_image", "MINIMAL"):
        done = conf.run("check")
    assert done.returncode == 0
    assert re.search(r"; 0 of \d+ tables pass the filter\n", done.stdout)
    assert "      advice: no table passes the filter, which has to match schema.table" in done.stdout
    assert "      advice: SET GLOBAL binlog_row_image = 'FULL'; -- with MINIMAL rows lack columns" in done.stdout


def test_check_names_missing_privileges_with_the_sql_that_grants_them(conf: Conf, server: Server) -> None:
    with server.connect(user="root", password="") as root, root.cursor() as cursor:
        cursor.execute("CREATE USER poor@'%' IDENTIFIED BY 'hunter2'")
        try:
            conf.destination("shop", server, canal__instance__dbUsername="poor", canal__instance__dbPassword="hunter2")
            done = conf.run("check")
        finally:
            cursor.execute("DROP USER poor@'%'")
    assert done.returncode == 1
    assert "GRANT REPLICATION SLAVE ON *.* TO 'poor'@'%';" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr


def test_check_notices_a_cursor_that_the_source_cannot_resume(conf: Conf, mariadb118: Server) -> None:
    conf.destination("shop", mariadb118)
    with conf.serving() as serving:
        serving.wait_for(lambda: serving.states() == {"shop": "running"})
        serving.call("POST", "/shop/clients/1001/subscribe")
        serving.wait_for(lambda: serving.call("GET", "/shop/clients/1001")["position"])
    assert conf.run("check").returncode == 0
    meta = conf.folder.parent / "data" / "shop" / "meta.dat"
    text = re.sub(r"mysql-bin\.\d+", "mysql-bin.000000", meta.read_text())
    meta.write_text(re.sub(r'"gtid": ?"[^"]*"', '"gtid": ""', text))  # they would say that nothing is missing
    before = meta.read_bytes()
    done = conf.run("check")
    assert done.returncode == 1
    assert re.search(r"FAIL shop: .*purged", done.stdout)
    assert meta.read_bytes() == before


def test_check_notes_one_of_several_clients_that_has_lost_its_place(conf: Conf, mariadb118: Server) -> None:
    conf.destination("shop", mariadb118)
    with conf.serving() as serving:
        serving.wait_for(lambda: serving.states() == {"shop": "running"})
        for client in (1001, 1002):
            serving.call("POST", f"/shop/clients/{client}/subscribe")
    meta = conf.folder.parent / "data" / "shop" / "meta.dat"
    data = json.loads(meta.read_text())
    lost = data["clientDatas"][1]
    lost["sluice"]["position"] = re.sub(r"mysql-bin\.\d+", "mysql-bin.000000", lost["sluice"]["position"])
    lost["cursor"]["postion"]["gtid"] = ""  # it would say that nothing is missing
    meta.write_text(json.dumps(data))
    done = conf.run("check")
    assert done.returncode == 0
    assert re.search(r"note shop, client 1002: would not be served, only the others: .*purged", done.stdout)
    assert "ok   shop: " in done.stdout
    lost["sluice"]["position"] = re.sub(r"@\d+", "@1000000000", data["clientDatas"][0]["sluice"]["position"])
    meta.write_text(json.dumps(data))
    done = conf.run("check")
    assert done.returncode == 0
    assert re.search(r"note shop, client 1002: .*reset, restored", done.stdout)


def test_further_sigterms_do_not_cut_a_stop_short(conf: Conf, mariadb118: Server) -> None:
    conf.main(canal__destinations="shop", canal__file__flush__period="60000")
    conf.destination("shop", mariadb118)
    process = conf.start("serve")
    assert process.stderr is not None
    while not (found := re.search(r"serves (http\S+)", process.stderr.readline())):
        pass
    serving = Serving(found[1], conf, "")
    serving.wait_for(lambda: serving.states() == {"shop": "running"})
    serving.call("POST", "/shop/clients/1001/subscribe")
    mariadb118.query("CREATE DATABASE IF NOT EXISTS sigterm")
    mariadb118.query("DROP DATABASE sigterm")
    batch = serving.call("POST", "/shop/clients/1001/getWithoutAck?timeout=10000")
    serving.call("POST", "/shop/clients/1001/ack", json={"batchId": batch["batchId"]})
    acked = serving.call("GET", "/shop/clients/1001")["position"]
    while process.poll() is None:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.002)
    process.communicate()
    assert acked in (conf.folder.parent / "data" / "shop" / "meta.dat").read_text()


def test_commands_ask_the_source_that_was_switched_to(conf: Conf, mariadb118: Server, database: Database) -> None:
    schema = database(mariadb118)
    mariadb118.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    other = f"{mariadb118.host}:{mariadb118.port}"
    dead = {"canal__instance__master__address": "127.0.0.1:1", "canal__instance__standby__address": other}
    conf.destination("shop", mariadb118, **dead)
    mariadb118.query("FLUSH BINARY LOGS")  # what verify reads is short then
    commands = ["check"], ["filter", "try", rf"{schema}\..*"], ["verify", "shop"]
    assert [conf.run(*command).returncode for command in commands] == [1, 3, 3]
    folder = conf.folder.parent / "data" / "shop"
    folder.mkdir(parents=True)
    chosen = {"epoch": 1, "source": {"accepted": "", "address": other}}
    (folder / "meta.dat").write_text(json.dumps({"clientDatas": [], "destination": "shop", "sluice": chosen}))
    done = [conf.run(*command) for command in commands]
    assert [it.returncode for it in done] == [0, 0, 0], done
    assert f"at {other}, binlog at" in done[0].stdout


def test_check_finds_a_stored_filter_that_cannot_be_used_any_more(conf: Conf, mariadb118: Server) -> None:
    conf.destination("shop", mariadb118)
    with conf.serving() as serving:
        serving.wait_for(lambda: serving.states() == {"shop": "running"})
        serving.call("POST", "/shop/clients/1001/subscribe", json={"filter": r"shop\.orders"})
    assert conf.run("check").returncode == 0
    meta = conf.folder.parent / "data" / "shop" / "meta.dat"
    meta.write_text(meta.read_text().replace(r"shop\\.orders", r"shop\\.orders\\b"))
    done = conf.run("check")
    assert done.returncode == 1
    assert re.search(r"FAIL shop, client 1001: would not be served: .*'\\b' at character 13", done.stdout)


def test_check_looks_at_clients_in_zookeeper_too(conf: Conf, mariadb118: Server, zookeeper: ZooKeeper) -> None:
    conf.main(
        canal__destinations="checked", canal__zkServers=zookeeper.hosts, canal__port="11111", sluice__http__port="11180"
    )
    conf.destination("checked", mariadb118)
    with nodes(zookeeper.hosts) as zk:
        zk.create("/otter/canal/destinations/checked/1001/filter", rb"shop\.(?<!a)b", makepath=True)
        done = conf.run("check")
        zk.delete("/otter/canal/destinations/checked", recursive=True)
    assert done.returncode == 1
    assert re.search(r"FAIL checked, client 1001: would not be served: .*'\(\?<!' at character 7", done.stdout)
    assert "ok   checked: " in done.stdout


@pytest.mark.extended
def test_too_few_connections_for_all_destinations_of_a_source_are_noticed_before_they_run_out(conf: Conf) -> None:
    names = [f"shop{number}" for number in range(8)]
    conf.main(canal__destinations=",".join(names))
    with Server("mariadb118", ["--max-connections=15"]) as server:
        for name, host in zip(names, itertools.cycle(["127.0.0.1", "localhost", "LOCALHOST"]), strict=False):
            conf.destination(name, server, canal__instance__master__address=f"{host}:{server.port}")
        done = conf.run("check")
        assert done.returncode == 1
        wrong = rf"FAIL source 127\.0\.0\.1:{server.port}: 8 destinations take 16 connections of it, 48 with all"
        assert re.search(wrong, done.stdout)
        assert re.search(r"it allows 15 \(max_connections\).*SET GLOBAL max_connections = 98", done.stdout)
        assert conf.run("check", *names[:7]).returncode == 0
        with conf.serving() as serving:
            assert re.search(r"source 127\.0\.0\.1:\d+: 8 destinations take 16 connections", serving.log)
            serving.wait_for(lambda: set(serving.states().values()) == {"running"})
        server.query("SET GLOBAL max_connections = 98")
        assert conf.run("check").returncode == 0


@pytest.mark.extended
def test_too_few_connections_for_a_destination_that_appears_are_noticed(conf: Conf) -> None:
    conf.main(canal__auto__scan="true", canal__auto__scan__interval="0.1")
    with Server("mariadb118", ["--max-connections=10"]) as server:
        for number in range(5):
            conf.destination(f"shop{number}", server)
        with conf.serving() as serving:
            assert "connections of it" not in serving.log
            conf.destination("late", server)
            serving.wait_for(lambda: serving.states().get("late") == "running")
    assert "6 destinations take 12 connections of it" in serving.log


def test_an_account_that_may_not_connect_as_often_is_noticed(conf: Conf, server: Server) -> None:
    conf.main(canal__destinations="one,two")
    with server.connect(user="root", password="") as root, root.cursor() as cursor:
        cursor.execute("CREATE USER few@'%' IDENTIFIED BY 'few'")
        try:
            cursor.execute("GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO few@'%'")
            grants = server.name == "mysql56"  # which has no limit in ALTER USER
            cursor.execute(f"{'GRANT USAGE ON *.* TO' if grants else 'ALTER USER'} few@'%' WITH MAX_USER_CONNECTIONS 3")
            for name in ("one", "two"):
                conf.destination(name, server, canal__instance__dbUsername="few", canal__instance__dbPassword="few")
            done = conf.run("check")
            assert "2 destinations take 4 connections of it" in done.stdout
            assert "allows 3 for 'few' (max_user_connections)" in done.stdout
            assert done.returncode == 1
        finally:
            cursor.execute("DROP USER few@'%'")


def test_check_asks_a_source_for_all_columns_over_one_connection(
    conf: Conf, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    mariadb118.query(f"CREATE TABLE {schema}.goods (id INT PRIMARY KEY)")
    conf.main(canal__destinations="shop", canal__serverMode="kafka", kafka__bootstrap__servers="127.0.0.1:1")
    rules = ",".join(f"{schema}.goods:c{number}" for number in range(3))
    with mariadb118.connect(user="root", password="") as root, root.cursor() as cursor:
        cursor.execute("CREATE USER once@'%' IDENTIFIED BY 'once'")
        try:
            cursor.execute("GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO once@'%'")
            cursor.execute("ALTER USER once@'%' WITH MAX_CONNECTIONS_PER_HOUR 1")
            login = {"canal__instance__dbUsername": "once", "canal__instance__dbPassword": "once"}
            conf.destination("shop", mariadb118, rf"{schema}\\..*", canal__mq__partitionHash=rules, **login)
            done = conf.run("check")
        finally:
            cursor.execute("DROP USER once@'%'")
    assert "max_connections_per_hour" not in done.stdout
    for number in range(3):
        assert f"names the column c{number}, which no table has that it matches" in done.stdout


def test_filter_try_shows_which_tables_match_and_why(conf: Conf, mariadb118: Server, database: Database) -> None:
    schema = database(mariadb118)
    for table in ("orders", "items"):
        mariadb118.query(f"CREATE TABLE {schema}.{table} (id INT)")
    conf.destination("shop", mariadb118)
    done = conf.run("filter", "try", rf"{schema}\.o.*")
    assert done.returncode == 0
    assert re.search(rf"✓ +{schema}\.orders +the item {schema}\\\.o\.\* matches", done.stdout)
    assert "items" not in done.stdout
    done = conf.run("filter", "try", rf"{schema}\.x.*", "--all", "--mysql", mariadb118.dsn)
    assert done.returncode == 1
    assert re.search(rf"✗ +{schema}\.items +no item of the filter matches", done.stdout)


def test_filter_try_checks_the_certificate_of_a_source_when_it_is_told_to(
    conf: Conf, mysql97: Server, authority: Path
) -> None:
    def attempt(ca: Path) -> commands.Ended:
        return conf.run("filter", "try", ".*", "--mysql", f"{mysql97.dsn}?sslMode=VERIFY_CA&sslCa={ca}")

    assert "tables match" in attempt(mysql97.data / "ca.pem").stdout
    refused = attempt(authority / "ca.pem")
    assert refused.returncode == 3
    assert "certificate verify failed" in refused.stderr


def test_versioned_tables_of_mariadb_are_tables_too(conf: Conf, mariadb118: Server, database: Database) -> None:
    schema = database(mariadb118)
    mariadb118.query(f"CREATE TABLE {schema}.prices (id INT) WITH SYSTEM VERSIONING")
    conf.destination("shop", mariadb118, rf"{schema}\\..*")
    done = conf.run("filter", "try", rf"{schema}\..*")
    assert re.search(rf"✓ +{schema}\.prices ", done.stdout)
    done = conf.run("check")
    assert re.search(r"; 1 of \d+ tables pass the filter", done.stdout)


def test_a_client_is_protected_and_what_it_holds_is_shown(conf: Conf, mariadb118: Server, database: Database) -> None:
    schema = database(mariadb118)
    mariadb118.query(f"CREATE TABLE {schema}.goods (id INT PRIMARY KEY, name VARCHAR(20))")
    conf.destination("shop", mariadb118, f"{schema}\\\\..*", sluice__instance__store="mixed")
    client = "/shop/clients/1001"
    with conf.serving() as serving:
        serving.wait_for(lambda: serving.states() == {"shop": "running"})
        serving.call("POST", f"{client}/subscribe", json={"protect": True})
        assert serving.call("GET", client)["protected"]
        mariadb118.query(f"INSERT INTO {schema}.goods VALUES (1, 'tea')")
        serving.wait_for(lambda: "client 1001 holds " in serving.run("status", "shop"))
        (hold,) = serving.call("GET", "/shop")["log"]["holds"]
        assert (hold["clientId"], hold["files"]) == (1001, 1)
        metrics = urllib3.request("GET", f"{serving.url}/metrics")
        assert (
            f'sluice_client_log_bytes{{client="1001",destination="shop"}} {hold["bytes"]:.1f}' in metrics.data.decode()
        )
        assert serving.run("log", "prune", "shop", "--bytes", "0") == "0 files, 0 bytes are gone\n"
        off = serving.run("protect", "shop", "1001", "--off")
        assert off == "client 1001: the log keeps only what its limits allow\n"
        assert not serving.call("GET", client)["protected"]
        assert serving.run("protect", "shop", "1001") == "client 1001: the log keeps what it needs\n"
        assert "what it needs stays, beyond the limits" in serving.run("status", "shop")


def test_a_change_is_seen_acked_and_not_seen_again_after_a_restart(
    conf: Conf, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    mariadb118.query(f"CREATE TABLE {schema}.goods (id INT PRIMARY KEY, name VARCHAR(20))")
    conf.destination("shop", mariadb118, f"{schema}\\\\..*")
    client = "/shop/clients/1001"
    with conf.serving() as serving:
        serving.wait_for(lambda: serving.states() == {"shop": "running"})
        serving.call("POST", f"{client}/subscribe")
        mariadb118.query(f"INSERT INTO {schema}.goods VALUES (1, 'tea')")
        serving.wait_for(lambda: serving.call("GET", client)["lag"]["rows"] == 1)
        batch = serving.call("POST", f"{client}/getWithoutAck")
        assert str(batch["batchId"]) in serving.run("status", "shop")
        assert serving.run("rollback", "shop", "1001") == "rolled back\n"
        batch = serving.call("POST", f"{client}/getWithoutAck")
        serving.run("ack", "shop", "1001", "--batch", str(batch["batchId"]))
        refused = conf.run("ack", "shop", "1001", "--batch", str(batch["batchId"]), "--url", serving.url)
        assert refused.returncode == 2
        assert len(refused.stderr.splitlines()) == 1
        cursor = serving.call("GET", client)["position"]
        assert cursor in serving.run("status")
        assert serving.run("seek", "shop", "1001", cursor) == f"client 1001 resumes at {cursor}\n"
        mariadb118.query(f"INSERT INTO {schema}.goods VALUES (2, 'poison')")
        serving.wait_for(lambda: serving.call("GET", client)["lag"]["rows"] == 1)
        skipped = serving.run("skip", "shop", "1001", cursor)
        assert skipped.startswith("skipped: client 1001 resumes at ")
        assert f"\npassed over: 1 row from {cursor} to " in skipped
        assert serving.call("GET", client)["lag"]["rows"] == 0
        cursor = serving.call("GET", client)["position"]
        cursor = serving.call("GET", client)["position"]
        refused = conf.run("seek", "shop", "1001", "nowhere", "--url", serving.url)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
    with conf.serving() as serving:
        serving.wait_for(lambda: serving.states() == {"shop": "running"})
        assert "  none since the start, 0:0" in serving.run("clients")
        (stands,) = json.loads(serving.run("status", "shop", "--json"))["clients"]
        assert Position.parse(stands["position"]) >= Position.parse(cursor)
        assert serving.call("POST", f"{client}/getWithoutAck?timeout=300")["batchId"] == -1
        assert "none since" not in serving.run("clients")


def test_what_is_passed_over_and_changed_is_said_and_listed(conf: Conf, mariadb118: Server, database: Database) -> None:
    schema = database(mariadb118)
    mariadb118.query(f"CREATE TABLE {schema}.goods (id INT PRIMARY KEY, name VARCHAR(20))")
    conf.destination("shop", mariadb118, f"{schema}\\\\..*")
    client = "/shop/clients/1001"
    with conf.serving() as serving:
        serving.wait_for(lambda: serving.states() == {"shop": "running"})
        serving.call("POST", f"{client}/subscribe")
        cursor = serving.call("GET", client)["position"]
        mariadb118.query(f"INSERT INTO {schema}.goods VALUES (3, 'milk')")
        serving.wait_for(lambda: serving.call("GET", client)["lag"]["rows"] == 1)
        said = serving.run("seek", "shop", "1001", "latest")
        assert f"passed over: 1 row from {cursor} to " in said
        assert said.splitlines()[-1] == (f"the place that it left is still there: sluice seek shop 1001 {cursor}")
        assert serving.run("seek", "shop", "1001", cursor) == f"client 1001 resumes at {cursor}\n"
        serving.run("ack", "shop", "1001", "--position", cursor)
        assert serving.run("gaps", "list", "shop") == "no gap\n"
        shown = serving.run("gaps", "list", "shop", "--all").splitlines()
        assert [line.rpartition(": ")[2] for line in shown[1::2]] == ["seek"]
        assert serving.run("gaps", "confirm", "shop", "1001") == "client 1001 has no open gap\n"
        place = Position.parse(cursor)
        for form in (f"{place.file}:{place.begin}", datetime.now(UTC).isoformat()):
            serving.run("seek", "shop", "1001", form)
        assert serving.call("GET", client)["lag"]["rows"] == 0
        changes = json.loads(serving.run("audit", "shop", "--limit", "2", "--json"))
        assert [it["action"] for it in changes] == ["seek", "seek"]
        assert "seek of client 1001 by no token, 127.0.0.1" in serving.run("audit", "shop")


def test_tail_shows_changes_as_lines_and_as_json_and_leaves_no_trace(
    conf: Conf, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    mariadb118.query(f"CREATE TABLE {schema}.goods (id INT PRIMARY KEY, name VARCHAR(20))")
    conf.destination("shop", mariadb118, f"{schema}\\\\..*", canal__instance__filter__query__dml="true")
    with conf.serving() as serving:
        serving.wait_for(lambda: serving.states() == {"shop": "running"})
        serving.call("POST", "/shop/clients/1001/subscribe")  # what a subscriber has not acked stays
        mariadb118.query(f"INSERT INTO {schema}.goods VALUES (1, 'tea')")
        mariadb118.query(f"UPDATE {schema}.goods SET name = 'green tea' WHERE id = 1")
        text = serving.run("tail", "shop", "--from", "earliest", "--limit", "2", "--filter", rf"{schema}\.goods")
        assert [line.split(" ", 2)[2] for line in text.splitlines()] == [
            f"{schema}.goods INSERT id=1, name='tea'",
            f"{schema}.goods UPDATE id=1, name: 'tea' → 'green tea'",
        ]
        where = f"{schema}.goods: name COLLATE utf8mb4_bin LIKE 'green%'"
        text = serving.run("tail", "shop", "--from", "earliest", "--limit", "1", "--where", where)
        assert text.splitlines()[-1].endswith(f"{schema}.goods UPDATE id=1, name: 'tea' → 'green tea'")
        messages = [
            json.loads(line)
            for line in serving.run("tail", "shop", "--from", "earliest", "--limit", "2", "--json").splitlines()
        ]
        assert [message["type"] for message in messages] == ["INSERT", "UPDATE"]
        assert messages[1]["data"] == [{"id": "1", "name": "green tea"}]
        time.sleep(1.1)  # execution times are whole seconds
        moment = datetime.now(UTC).replace(microsecond=0).isoformat(" ")
        mariadb118.query(f"DELETE FROM {schema}.goods")
        (row,) = serving.run("tail", "shop", "--from", moment, "--limit", "1", "--rows").splitlines()
        assert json.loads(row)["before"] == {"id": 1, "name": "green tea"}
        table = serving.run("tail", "shop", "--from", "earliest", "--limit", "2", "--csv").splitlines()
        assert [line.split(",", 1)[1] for line in table] == [
            '"type","schema","table","id","name"',
            f'"INSERT","{schema}","goods",1,"tea"',
            f'"UPDATE","{schema}","goods",1,"green tea"',
        ]
        assert [client["clientId"] for client in serving.call("GET", "/shop")["clients"]] == [1001]


def test_a_tail_ends_when_nobody_reads_it_any_more_and_after_as_many_lines_as_are_asked_for(
    conf: Conf, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    mariadb118.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    conf.destination("shop", mariadb118, f"{schema}\\\\..*")
    with conf.serving() as serving:
        serving.wait_for(lambda: serving.states() == {"shop": "running"})
        serving.call("POST", "/shop/clients/1001/subscribe")
        mariadb118.query(f"INSERT INTO {schema}.t VALUES (1), (2), (3)")
        for form, count in (("--rows", 2), ("--csv", 3), ("--full", 2)):
            shown = serving.run("tail", "shop", "--from", "earliest", "--limit", "2", form)
            assert len(shown.splitlines()) == count, shown
        with conf.start("tail", "shop", "--from", "earliest", "--rows", "--url", serving.url) as tail:
            assert tail.stdout is not None
            assert json.loads(tail.stdout.readline())
            tail.stdout.close()
            assert tail.wait(SECONDS) == 0
        assert [client["clientId"] for client in serving.call("GET", "/shop")["clients"]] == [1001]


def test_a_tail_whose_terminal_is_closed_unsubscribes_and_others_are_listed_and_removed(
    conf: Conf, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    conf.destination("shop", mariadb118, f"{schema}\\\\..*")
    with conf.serving() as serving:
        serving.wait_for(lambda: serving.states() == {"shop": "running"})

        def ids() -> list[int]:
            return [client["clientId"] for client in serving.call("GET", "/shop")["clients"]]

        tails = [conf.start("tail", "shop", "--url", serving.url) for _ in range(2)]
        serving.wait_for(lambda: len(ids()) == 2)
        listed = serving.run("clients")
        assert all(str(it) in listed for it in ids())
        for tail in tails:
            tail.send_signal(signal.SIGHUP)
            tail.communicate(timeout=SECONDS)
        assert ids() == []
        serving.call("POST", "/shop/clients/1001/subscribe")
        assert serving.run("unsubscribe", "shop", "1001") == "client 1001 and its cursor are gone\n"
        serving.call("POST", "/shop/clients/1001/subscribe")
        mariadb118.query(f"CREATE TABLE {schema}.goods (id INT PRIMARY KEY)")
        mariadb118.query(f"INSERT INTO {schema}.goods VALUES (1), (2)")
        serving.wait_for(lambda: serving.call("GET", "/shop/clients/1001")["lag"]["rows"] == 2)
        removed = serving.run("unsubscribe", "shop", "1001")
        assert removed.splitlines()[-1].endswith(", and had not acknowledged 2 rows")
        assert serving.run("clients", "shop") == "no client\n"


def test_a_snapshot_is_begun_watched_until_the_client_has_acked_it_and_cancelled(
    conf: Conf, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    mariadb118.query(f"CREATE TABLE {schema}.goods (id INT PRIMARY KEY)")
    mariadb118.query(f"INSERT INTO {schema}.goods VALUES (1), (2), (3)")
    conf.destination("shop", mariadb118, f"{schema}\\\\..*")
    with conf.serving() as serving:
        serving.wait_for(lambda: serving.states() == {"shop": "running"})
        command = "snapshot", "shop", "1001"
        refused = conf.run(*command, f"{schema}.goods", "--url", serving.url)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
        serving.call("POST", "/shop/clients/1001/subscribe")
        assert serving.run(*command) == "no snapshot\n"

        @contextmanager
        def begun(*options: str, **environ: str) -> Iterator[tuple[commands.Command, str]]:
            watching = conf.start(*command, f"{schema}.goods", *options, "--url", serving.url, **environ)
            try:
                assert watching.stderr is not None
                found = re.search(r"snapshot (\d+) has begun", watching.stderr.readline())
                assert found is not None
                yield watching, found[1]
            finally:
                watching.kill()
                watching.communicate()

        rows: list[str] = []
        with begun("--where", f"{schema}.goods: id > 1") as (watching, snapshot):

            def consume() -> bool:
                batch = serving.call("POST", "/shop/clients/1001/getWithoutAck?timeout=100")
                if batch["batchId"] > 0:
                    rows.extend(row["id"] for message in batch["entries"] for row in message["data"] or ())
                    serving.call("POST", "/shop/clients/1001/ack", json={"batchId": batch["batchId"]})
                return watching.poll() is not None

            serving.wait_for(consume)
            said, _ = watching.communicate(timeout=SECONDS)
        assert (watching.returncode, said, rows) == (0, f"done: 2 rows of {schema}.goods\n", ["2", "3"])
        assert serving.run(*command) == f"{snapshot} done: 2 rows of {schema}.goods\n"

        with begun("--rate", "1000", FORCE_COLOR="1", COLUMNS="200") as (watching, snapshot):
            time.sleep(2)  # the bar is drawn
            watching.send_signal(signal.SIGTERM)
            _, bar = watching.communicate(timeout=SECONDS)
        assert f"{schema}.goods, 0 of about" in bar
        assert "━" in bar
        assert f"sluice snapshot shop 1001 --watch {snapshot} shows it, --cancel {snapshot} ends it" in bar
        assert watching.returncode == 130
        assert serving.call("GET", f"/shop/clients/1001/snapshots/{snapshot}")["maxRowsPerSecond"] == 1000
        assert serving.run(*command, "--pause", snapshot).endswith(f"--resume {snapshot} goes on\n")
        assert f"{snapshot} paused: {schema}.goods" in serving.run(*command)
        assert serving.run(*command, "--resume", snapshot) == f"snapshot {snapshot} goes on\n"
        serving.wait_for(lambda: "; it waits" in serving.run(*command))
        assert f"{snapshot} running: " in serving.run(*command)
        assert serving.run(*command, "--cancel", snapshot) == f"snapshot {snapshot} is cancelled\n"
        gone = conf.run(*command, "--watch", snapshot, "--url", serving.url)
        assert (gone.returncode, len(gone.stderr.splitlines())) == (2, 1)


def test_destinations_follow_the_conf_folder(conf: Conf, mariadb118: Server) -> None:
    conf.main(canal__auto__scan="true", canal__auto__scan__interval="0.1")
    with conf.serving() as serving:
        assert serving.states() == {}
        conf.destination("late", mariadb118)
        serving.wait_for(lambda: serving.states() == {"late": "running"})
        conf.destination("late", mariadb118, canal__instance__master__address="127.0.0.1:1")
        serving.wait_for(lambda: serving.states() == {"late": "error"})
        (conf.folder / "late" / "instance.properties").unlink()
        serving.wait_for(lambda: serving.states() == {"late": "stopped"})


def test_a_file_that_cannot_be_used_is_wrong_until_it_is_corrected_and_stops_nothing(
    conf: Conf, mariadb118: Server
) -> None:
    conf.main(canal__auto__scan="true", canal__auto__scan__interval="0.1")
    conf.destination("shop", mariadb118)
    with conf.serving() as serving:
        serving.wait_for(lambda: serving.states() == {"shop": "running"})
        conf.destination("shop", mariadb118, canal__instance__filter__regex="(")
        conf.destination("new", mariadb118, canal__instance__filter__regex="[")
        serving.wait_for(lambda: serving.states() == {"shop": "running", "new": "error"})
        serving.wait_for(lambda: "settings-refused" in str(serving.call("GET", "/shop")["conditions"]))
        done = conf.run("status", "--url", serving.url)
        assert done.returncode == 1
        assert "  shop: it keeps its previous settings: its changed file cannot be used: " in done.stdout
        assert "  new: error: " in done.stdout
        assert done.stdout.count("canal.instance.filter.regex") >= 2
        metrics = urllib3.request("GET", f"{serving.url}/metrics").data.decode()
        assert 'sluice_condition{condition="settings-refused",destination="shop",severity="error"} 1.0' in metrics
        assert 'sluice_destination_state{destination="new",state="error"} 1.0' in metrics
        conf.destination("shop", mariadb118)
        conf.destination("new", mariadb118)
        serving.wait_for(lambda: serving.states() == {"shop": "running", "new": "running"})
        assert serving.run("status").startswith("all is well: 2 destinations (2 running)\n")
        assert len(serving.run("status", "--problems").splitlines()) == 1
        with conf.start("status", "--watch", "--url", serving.url) as watching:
            assert watching.stdout is not None
            for _ in range(2):
                while not watching.stdout.readline().startswith("all is well"):
                    pass
            watching.send_signal(signal.SIGINT)
            assert watching.wait(SECONDS) == 130
        (conf.folder / "new" / "instance.properties").write_text("canal.instance.dbUsername = nobody\n")
        serving.wait_for(lambda: serving.call("GET", "/new")["conditions"] != [])
        (conf.folder / "new" / "instance.properties").unlink()
        serving.wait_for(lambda: serving.states() == {"shop": "running", "new": "stopped"})
        assert [it["name"] for it in serving.call("GET", "/new")["conditions"]] == ["not-running"]


def test_a_destination_that_cannot_start_keeps_no_other_from_starting(conf: Conf, mariadb118: Server) -> None:
    conf.main(canal__destinations="shop,broken")
    for name in ("shop", "broken"):
        conf.destination(name, mariadb118)
    meta = conf.folder.parent / "data" / "broken" / "meta.dat"
    meta.parent.mkdir(parents=True)
    meta.write_text("{")
    with conf.serving() as serving:
        serving.wait_for(lambda: serving.states() == {"shop": "running", "broken": "stopped"})
        done = conf.run("status", "--url", serving.url)
        assert done.returncode == 1
        assert done.stdout.startswith(
            "something is wrong: 2 destinations (1 running, 1 stopped)\n  broken: stopped: "
        ), done.stdout
        assert "broken  stopped: " in done.stdout
        assert conf.run("status", "broken", "--json", "--url", serving.url).returncode == 1
        assert serving.run("status", "shop").startswith("all is well: 1 destination (1 running)\n")
    conf.main(canal__destinations="broken")
    done = conf.run("serve")
    assert done.returncode == 2
    assert f"sluice: broken: {meta} is not a file of subscriptions and cursors" in done.stderr


def test_a_stop_while_the_server_starts_ends_it_in_order(conf: Conf) -> None:
    conf.main(canal__destinations="a, b")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for name in ("a", "b"):
            (conf.folder / name).mkdir()
            (conf.folder / name / "instance.properties").write_text(
                f"canal.instance.master.address = 127.0.0.1:{silent.getsockname()[1]}\ncanal.instance.dbUsername = u\n"
            )
        process = conf.start("serve")
        with silent.accept()[0]:
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    assert "stopped" in err
    assert "Traceback" not in err


def test_serve_says_what_has_no_effect_and_never_says_a_password(conf: Conf, mariadb118: Server) -> None:
    conf.main(canal__destinations="shop", sluice__log__format="json", sluice__log__level="DEBUG", canal__mq__topic="x")
    conf.destination("shop", mariadb118, canal__instance__dbPassword="hunter2")
    process = conf.start("serve")
    assert process.stderr
    err = ""
    while "cannot log in" not in err:
        err += process.stderr.readline()
        assert process.poll() is None, err
    process.send_signal(signal.SIGTERM)
    out, rest = process.communicate(timeout=SECONDS)
    err += rest
    assert process.returncode == 0
    events = [json.loads(line) for line in err.splitlines()]
    assert any("canal.mq.topic (line 7)" in event["message"] for event in events)
    (denied,) = {event["message"] for event in events if "cannot log in" in event["message"]}
    assert all(event["destination"] == "shop" for event in events if "cannot log in" in event["message"])
    assert "Access denied" in denied
    assert "hunter2" not in out + err


COLUMNS = {
    "t TINYINT": "-128",
    "tu TINYINT UNSIGNED": "255",
    "s SMALLINT UNSIGNED": "65535",
    "m MEDIUMINT": "-8388608",
    "mu MEDIUMINT UNSIGNED": "16777215",
    "i INT UNSIGNED": "4294967295",
    "b BIGINT": "-9223372036854775808",
    "bu BIGINT UNSIGNED": "18446744073709551615",
    "f FLOAT": "0.1",
    "d DOUBLE": "1e100",
    "n DECIMAL(65,30)": "-12345.000000000000000000000000000001",
    "bits BIT(10)": "b'1100000001'",
    "y YEAR": "2026",
    "da DATE": "'2026-02-28'",
    "ti TIME(3)": "'800:59:59.125'",
    "dt DATETIME(6)": "'2026-01-02 03:04:05.000006'",
    "ts TIMESTAMP(2) NULL": "'2026-01-02 03:04:05.67'",
    "c CHAR(5)": "'ab'",
    "v VARCHAR(300)": "'grün'",
    "latin VARCHAR(9) CHARACTER SET latin1": "'grün'",
    "gbk VARCHAR(9) CHARACTER SET gbk": "'中文'",
    "bin BINARY(4)": "x'00ff'",
    "vb VARBINARY(9)": "x'00ff00'",
    "bl BLOB": "x'ff00'",
    "te TEXT": "'text'",
    "e ENUM('x','it''s')": "'it''s'",
    "st SET('a','b','c')": "'a,c'",
    "g GEOMETRY": "ST_GeomFromText('POINT(1 2)')",
}


def test_verify_finds_both_decoders_equal_on_every_type(conf: Conf, server: Server, database: Database) -> None:
    schema = database(server)
    columns = COLUMNS | ({} if server.name == "mysql56" else {"j JSON": """'{"a": [1, 2.5, "x", null, true]}'"""})
    start = "{}:{}".format(*end_of_binlog(server))
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, {', '.join(columns)}) DEFAULT CHARSET utf8mb4")
    server.query(f"INSERT INTO {schema}.t VALUES (1, {', '.join(columns.values())})")
    server.query(f"INSERT INTO {schema}.t (id) VALUES (2), (3)")
    server.query(f"UPDATE {schema}.t SET i = 7, v = NULL WHERE id = 1")
    server.query(f"DELETE FROM {schema}.t WHERE id > 1")
    conf.destination("shop", server)
    done = conf.run("verify", "shop", "--from", start)
    assert done.returncode == 0, done.stdout
    rows, values = map(int, re.findall(r"(\d+) rows, (\d+) values: equal", done.stdout)[0])
    assert rows >= 6
    assert values >= 7 * len(columns)


@pytest.mark.extended
def test_verify_counts_and_names_what_the_other_decoder_cannot_read(
    conf: Conf, mariadb118: Server, mysql97: Server, database: Database
) -> None:
    conf.main(canal__destinations="mariadb,mysql")
    for name, server, settings, named in (
        ("mariadb", mariadb118, "log_bin_compress = ON", r"2 rows of MariaDB's compressed events"),
        ("mysql", mysql97, "binlog_transaction_compression = ON", r"2 rows of compressed transactions"),
    ):
        schema = database(server)
        server.query("FLUSH BINARY LOGS")
        server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, filler VARCHAR(1000))")
        server.query(f"SET GLOBAL {settings}")
        server.query(f"INSERT INTO {schema}.t VALUES (1, REPEAT('x', 1000)), (2, REPEAT('y', 1000))")
        server.query(f"SET GLOBAL {settings.replace('ON', 'OFF')}")
        server.query(f"DELETE FROM {schema}.t WHERE id = 1")
        server.query(f"CREATE TABLE {schema}.gone (id INT)")
        server.query(f"INSERT INTO {schema}.gone VALUES (1)")
        conf.destination(name, server)
        done = conf.run("verify", name)
        assert done.returncode == 0, done.stdout
        assert re.search(rf"^not compared {named}$", done.stdout, re.MULTILINE)
        assert re.search(r" 2 rows, 3 values: equal", done.stdout)


@pytest.mark.extended
def test_verify_names_what_goes_into_quarantine_and_compares_the_rest(
    conf: Conf, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    for table in ("altered", "kept"):
        mariadb118.query(f"CREATE TABLE {schema}.{table} (id INT PRIMARY KEY)")
    mariadb118.query("FLUSH BINARY LOGS")
    for table in ("altered", "kept"):
        mariadb118.query(f"INSERT INTO {schema}.{table} VALUES (1)")
    mariadb118.query(f"ALTER TABLE {schema}.altered ADD COLUMN name VARCHAR(10)")
    conf.destination("shop", mariadb118)
    done = conf.run("verify", "shop")
    assert done.returncode == 1
    assert re.search(rf"differs {schema}\.altered at \S+ goes into quarantine: ", done.stdout)
    assert re.search(r" 2 events, 1 row, 1 value: 1 difference", done.stdout)


@pytest.mark.extended
def test_verify_counts_rows_whose_columns_only_sluice_knows(conf: Conf, mariadb118: Server, database: Database) -> None:
    schema = database(mariadb118)
    mariadb118.query("FLUSH BINARY LOGS")
    mariadb118.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, a INT)")
    mariadb118.query(f"INSERT INTO {schema}.t VALUES (1, 2), (3, 4)")
    mariadb118.query(f"ALTER TABLE {schema}.t CHANGE a b INT")
    mariadb118.query(f"INSERT INTO {schema}.t VALUES (5, 6)")
    conf.destination("shop", mariadb118)
    done = conf.run("verify", "shop")
    assert done.returncode == 0, done.stdout
    assert re.search(r"^not compared .*altered since", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r" 1 row, 2 values: equal", done.stdout), done.stdout


def test_verify_compares_the_log_with_the_source_and_names_what_differs(
    conf: Conf, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    mariadb118.query(f"CREATE TABLE {schema}.goods (id INT PRIMARY KEY, name VARCHAR(20))")
    mariadb118.query("FLUSH BINARY LOGS")
    conf.destination("shop", mariadb118, f"{schema}\\\\..*", sluice__instance__store="mixed")
    with conf.serving() as serving:
        serving.wait_for(lambda: serving.states() == {"shop": "running"})
        for number in range(50):
            mariadb118.query(f"INSERT INTO {schema}.goods VALUES ({number}, 'tea')")
        mariadb118.query("FLUSH BINARY LOGS")
        for number in range(50, 60):
            mariadb118.query(f"INSERT INTO {schema}.goods VALUES ({number}, 'tea')")
        wait_for_log(serving, serving.call("GET", "/shop/latest")["position"])
        done = conf.run("verify", "shop", "--log")
        assert done.returncode == 0, done.stdout
        assert re.search(r": 180 entries, \d+ bytes: equal \(", done.stdout), done.stdout
    refused = conf.run("verify", "shop", "--log", "--from", "nowhere")
    assert refused.returncode == 2
    (path,) = (conf.folder.parent / "data" / "shop" / "log").glob("*.log")
    content = path.read_bytes()
    path.write_bytes(with_shape(path, {"canal.instance.filter.dml.insert": True}))
    done = conf.run("verify", "shop", "--log")
    assert done.returncode == 1
    assert re.search(r"differs \S+: only the log has it: ROWDATA \S+\.goods", done.stdout), done.stdout
    assert re.search(r": 180 entries, \d+ bytes: (6\d|1[78]\d) differences", done.stdout), done.stdout  # and BEGIN, END
    path.write_bytes(with_shape(path, {"canal.instance.filter.dml.insert": False, "codec": 0}))
    done = conf.run("verify", "shop", "--log")
    assert done.returncode == 0, done.stdout
    assert re.search(r"not compared \d+ entries of \S+, .* not known in full: codec is '1', was '0'", done.stdout)
    path.write_bytes(content[:-1] + b"?")
    done = conf.run("verify", "shop", "--log")
    assert done.returncode == 1
    assert re.search(r"differs the block at byte \d+ of .*the checksum of its (entries|head) is wrong", done.stdout)
    path.write_bytes(content)
    mariadb118.query("FLUSH BINARY LOGS")
    mariadb118.purge_binlogs(mariadb118.query("SHOW BINARY LOGS")[-1][0])
    done = conf.run("verify", "shop", "--log")
    assert done.returncode == 0, done.stdout
    assert re.search(r"not compared \d+ entries of \S+, which the source does not have: ", done.stdout), done.stdout


@pytest.mark.extended
def test_verify_compares_each_file_of_the_log_as_it_was_configured_then(
    conf: Conf, mariadb118: Server, database: Database
) -> None:
    schema = database(mariadb118)
    mariadb118.query(f"CREATE TABLE {schema}.goods (id INT PRIMARY KEY, sold TIMESTAMP(3))")
    mariadb118.query("FLUSH BINARY LOGS")
    for number, zone in enumerate(("UTC", "Asia/Shanghai", "+03:00")):
        settings = {"sluice__instance__store": "mixed", "sluice__instance__timeZone": zone}
        deletes = {"canal__instance__filter__dml__delete": "true"} if number == 1 else {}
        conf.destination("shop", mariadb118, f"{schema}\\\\..*", **settings, **deletes)
        with conf.serving() as serving:
            serving.wait_for(lambda: serving.states() == {"shop": "running"})
            mariadb118.query(f"INSERT INTO {schema}.goods VALUES ({number}, '2024-05-06 07:08:09.123')")
            mariadb118.query(f"DELETE FROM {schema}.goods")
            wait_for_log(serving, serving.call("GET", "/shop/latest")["position"])
    for compressed in (False, True):
        if compressed:
            with Log(conf.folder.parent / "data" / "shop" / "log", "shop", Limits()) as log:
                assert [log.compress() for _ in range(3)] == [True, True, False]
        done = conf.run("verify", "shop", "--log")
        assert done.returncode == 0, done.stdout
        assert "not compared 2 markers, which no source has" in done.stdout
        assert re.search(r": 15 entries, \d+ bytes: equal \(", done.stdout), done.stdout


def wait_for_log(serving: "Serving", end: str) -> None:
    serving.wait_for(lambda: serving.call("GET", "/shop")["log"]["stretches"][0][1] == end)


def with_shape(path: Path, shape: dict[str, object]) -> bytes:
    """The file of a log as if something else had been configured when it was written."""
    fd = os.open(path, os.O_RDONLY)
    head, first = read_head(fd, path)
    os.close(fd)
    changed = replace(head, shape={**head.shape, **shape})
    return b"".join(bytes(it) for it in frame(changed.encode(), b"", 0, [])) + path.read_bytes()[first:]


def test_verify_refuses_a_range_that_the_source_does_not_have(conf: Conf, mariadb118: Server) -> None:
    conf.destination("shop", mariadb118)
    done = conf.run("verify", "shop", "--from", "mysql-bin.999990")
    assert done.returncode == 2
    assert re.match(r"sluice: the source has no binlog file mysql-bin\.999990, but ", done.stderr)


@pytest.mark.extended
def test_a_quarantined_update_that_is_split_gives_all_of_its_entries(
    conf: Conf, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mariadb118)
    conf.destination(
        "shop",
        mariadb118,
        f"{schema}\\\\..*",
        canal__instance__tsdb__enable="false",
        sluice__instance__filter__where=f"{schema}.t: v = 1",
        sluice__instance__filter__where__crossing="split",
    )
    mariadb118.query(f"CREATE TABLE {schema}.kept (id INT)")
    mariadb118.query(f"CREATE TABLE {schema}.t (id INT, v INT, w INT)")
    mariadb118.query(f"INSERT INTO {schema}.t VALUES (1, 0, 0), (2, 1, 0), (3, 1, 0), (4, 0, 0)")
    with conf.serving() as serving:
        serving.wait_for(lambda: serving.states() == {"shop": "running"})
        serving.call("POST", "/shop/clients/1/subscribe")
        mariadb118.query(f"INSERT INTO {schema}.kept VALUES (0)")  # from here on the destination has a cursor
        serving.wait_for(lambda: serving.call("GET", "/shop/clients/1")["lag"]["rows"] == 1)
    mariadb118.script("UPDATE t SET v = IF(id = 3, v, 1 - v), w = 1;\nDROP TABLE t;\n", database=schema)
    with conf.serving() as serving:
        serving.wait_for(lambda: serving.call("GET", "/shop")["parser"]["quarantined"] == 1)
        mariadb118.query("CREATE TABLE t (id INT, v INT, w INT)", database=schema)
        again = conf.run("quarantine", "retry", "shop", "--print")
        assert again.returncode == 0, again.stderr
        assert re.findall(r"(INSERT|UPDATE|DELETE) ", again.stdout) == ["INSERT", "DELETE", "UPDATE", "INSERT"]
    (tmp_path / "data" / "shop" / "quarantine.db").unlink()
    refused = conf.run("quarantine", "retry", "shop", "--print")
    assert refused.returncode == 1
    assert "its bytes were not kept" in refused.stderr
    assert "copy its rows from the table" in refused.stderr


def test_quarantined_events_are_decoded_again_once_their_table_is_back_even_if_the_source_has_purged_them(
    conf: Conf, mariadb118: Server, database: Database, tmp_path: Path
) -> None:
    schema = database(mariadb118)
    conf.destination("shop", mariadb118, f"{schema}\\\\..*", canal__instance__tsdb__enable="false")
    mariadb118.query(f"CREATE TABLE {schema}.kept (id INT)")
    mariadb118.query(f"CREATE TABLE {schema}.t (id INT, name VARCHAR(99))")
    with conf.serving() as serving:
        serving.wait_for(lambda: serving.states() == {"shop": "running"})
        serving.call("POST", "/shop/clients/1/subscribe")
        mariadb118.query(f"INSERT INTO {schema}.kept VALUES (0)")  # from here on the destination has a cursor
        serving.wait_for(lambda: serving.call("GET", "/shop/clients/1")["lag"]["rows"] == 1)
    mariadb118.script(
        "BEGIN;\nINSERT INTO t VALUES (1, 'a');\n"
        "INSERT INTO t VALUES (2, 'b'), (3, REPEAT('c', 99));\nCOMMIT;\nDROP TABLE t;\n",
        database=schema,
    )
    with conf.serving() as serving:
        serving.wait_for(lambda: serving.call("GET", "/shop")["parser"]["quarantined"] == 2)
        assert "2 row events in quarantine" in serving.run("status")
        done = conf.run("quarantine", "list", "shop")
        assert done.stdout.count(f"{schema}.t") >= 2
        first = done.stdout.split()[0]
        still = conf.run("quarantine", "retry", "shop", "--print")
        assert still.returncode == 1
        assert still.stderr.count("dropped or renamed") == 2
        mariadb118.query("CREATE TABLE t (id INT, name VARCHAR(99))", database=schema)
        again = conf.run("quarantine", "retry", "shop", "--print")
        assert again.returncode == 0, again.stderr
        values = ["a", "b", "c" * 99]  # whole, since they are to be applied
        assert re.findall(r"INSERT (.+)", again.stdout) == [f"id={i}, name='{it}'" for i, it in enumerate(values, 1)]
        one = conf.run("quarantine", "retry", "shop", "--print", "--position", first, "--json")
        assert [json.loads(line)["data"] for line in one.stdout.splitlines()] == [[{"id": "1", "name": "a"}]]
        assert serving.states() == {"shop": "running"}
    folder = tmp_path / "data" / "shop"
    events, elsewhere = folder / "quarantine.db", folder / "elsewhere.db"
    events.rename(elsewhere)
    assert conf.run("quarantine", "retry", "shop", "--print").stdout == again.stdout  # as the source sends them
    file = first.partition("@")[0]
    gone = re.sub(r"\d+$", "000000", file)
    listed = folder / "quarantine.jsonl"
    listed.write_text(listed.read_text().replace(file, gone))
    purged = conf.run("quarantine", "retry", "shop", "--print")
    assert purged.returncode == 1
    assert purged.stderr.count("purged") == 2
    elsewhere.rename(events)
    with contextlib.closing(sqlite3.connect(events)) as database_, database_:
        database_.execute("UPDATE events SET position = replace(position, ?, ?)", (file, gone))
    kept = conf.run("quarantine", "retry", "shop", "--print")
    assert kept.stdout == again.stdout.replace(file, gone)
