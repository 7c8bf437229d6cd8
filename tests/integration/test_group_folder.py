"""A conf folder of Canal with group-instance.xml: what the commands say of it, and that it is served."""

import re
from pathlib import Path

import pytest

from tests import commands
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.groups import Group, take
from tests.servers import Server
from tests.servers.server import free_port

MAIN = """
canal.destinations = shop
canal.conf.dir = ../conf
canal.file.data.dir = {data}
canal.port = {canal}
sluice.http.port = {http}
canal.instance.global.spring.xml = classpath:spring/group-instance.xml
"""
INSTANCE = """
canal.instance.gtidon = false
canal.instance.master1.address = {one}
canal.instance.master1.journal.name =
canal.instance.master1.position =
canal.instance.master2.address = {two}
canal.instance.dbUsername = {user}
canal.instance.dbPassword = {password}
canal.instance.connectionCharset = UTF-8
canal.instance.filter.regex = {tables}
"""


@pytest.fixture
def group(mysql97: Server, mariadb118: Server, database: Database) -> Group:
    return Group({name: (it, database(it)) for name, it in (("master1", mysql97), ("master2", mariadb118))})


@pytest.fixture
def conf(group: Group, tmp_path: Path) -> Path:
    folder = tmp_path / "canal"
    (folder / "shop").mkdir(parents=True)
    ports = {"http": free_port(), "canal": free_port()}
    (folder / "canal.properties").write_text(MAIN.format(data=tmp_path / "data", **ports))
    (one, _), (two, _) = group.members.values()
    assert (one.user, one.password) == (two.user, two.password)
    places = {"one": f"{one.host}:{one.port}", "two": f"{two.host}:{two.port}"}
    tables = ",".join(rf"{schema}\\..*" for _, schema in group.members.values())
    account = {"user": one.user, "password": one.password, "tables": tables}
    (folder / "shop" / "instance.properties").write_text(INSTANCE.format(**places, **account))
    return folder


def run(*command: str, conf: Path) -> tuple[int, str]:
    done = commands.run(*command, environ={"SLUICE_CONF": str(conf)})
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_the_commands_know_each_source_by_its_number(conf: Path) -> None:
    for command, what in (
        (("check",), r"(MySQL 9\.7|MariaDB 11\.8)"),
        (("migrate", "--from", str(conf)), "at mysql-bin"),
    ):
        status, said = run(*command, conf=conf)
        assert status == 0, said
        assert re.search(rf"member master1: {what}.* member master2: {what}", said), said


def test_more_sources_than_a_group_may_have_are_named(conf: Path) -> None:
    with (conf / "shop" / "instance.properties").open("a") as file:
        file.write("canal.instance.master65.address = elsewhere\n")
    for command in (("check",), ("migrate", "--from", str(conf))):
        status, said = run(*command, conf=conf)
        assert status == 1
        assert "canal.instance.master65.address: a group has at most 64 sources, numbered from 1 on" in said


def test_a_client_gets_the_changes_of_both(conf: Path, group: Group, tmp_path: Path) -> None:
    sluice = Sluice(tmp_path / "served")
    sluice.port = int((conf / "canal.properties").read_text().partition("http.port = ")[2].split()[0])
    sluice.conf = conf
    with sluice, sluice.client() as client:
        sluice.wait_running("shop")
        client.subscribe()
        for name in group.members:
            group.write(name, 1)
        assert sorted(take(client, 2)[0]) == [("master1", "1"), ("master2", "1")]
