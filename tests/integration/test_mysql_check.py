"""`sluice check` says beforehand what keeps an output from writing to its target, and which statement helps."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import commands
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.faults.test_mysql_output import configure
from tests.servers import Server


@pytest.fixture
def sluice(tmp_path: Path) -> Sluice:
    """A configuration; no server runs."""
    return Sluice(tmp_path)


def check(sluice: Sluice) -> commands.Ended:
    return commands.run("check", environ={"SLUICE_CONF": str(sluice.conf), "COLUMNS": "300"})


@pytest.fixture
def poor(mysql97: Server) -> Iterator[Server]:
    """The target, with an account that may only read."""
    with mysql97.connect(user="root", password="") as root, root.cursor() as cursor:
        cursor.execute("CREATE USER poor@'%' IDENTIFIED BY 'hunter2'")
        cursor.execute("GRANT SELECT, TRIGGER ON *.* TO poor@'%'")
        yield mysql97
        cursor.execute("DROP USER poor@'%'")


def test_rights_engines_and_triggers_are_named_with_the_statement_that_helps(
    sluice: Sluice, mariadb118: Server, poor: Server, database: Database
) -> None:
    schema = database(mariadb118)
    for table in ("a", "b", "missing"):
        mariadb118.query(f"CREATE TABLE {table} (id INT PRIMARY KEY)", database=schema)
    poor.query(f"CREATE DATABASE {schema}")
    try:
        poor.query("CREATE TABLE a (id INT PRIMARY KEY) ENGINE = MyISAM", database=schema)
        poor.query("CREATE TABLE b (id INT PRIMARY KEY)", database=schema)
        poor.query("CREATE TRIGGER twice BEFORE INSERT ON b FOR EACH ROW SET @a = 1", database=schema)
        url = f"mysql://poor@{poor.host}:{poor.port}/"
        configure(sluice, mariadb118, poor, schema, start="snapshot", url=url, password="hunter2")
        found = check(sluice)
        assert found.returncode == 1, found
        for text in (
            f"lacks rights: GRANT CREATE, INSERT, UPDATE, DELETE ON `{schema}_progress`.* TO 'poor'@'%'",
            f"lacks rights: GRANT INSERT, UPDATE, DELETE, CREATE, ALTER, DROP ON `{schema}`.* TO 'poor'@'%'",
            f"{schema}.a has the engine MyISAM, which has no transactions: ALTER TABLE {schema}.a ENGINE = InnoDB",
            f"{schema}.b has the trigger twice",
            f"DROP TRIGGER {schema}.twice",
        ):
            assert text in found.stdout, found.stdout
        assert "hunter2" not in found.stdout + found.stderr
        configure(sluice, mariadb118, poor, schema)
        found = check(sluice)
        assert f"{schema}.missing is not on the target: create it there" in found.stdout
        assert "lacks rights" not in found.stdout
        assert "takes changes, each once" in found.stdout
    finally:
        poor.query(f"DROP DATABASE {schema}")


def test_routes_that_cannot_work_are_named(
    sluice: Sluice, mariadb118: Server, mysql97: Server, database: Database
) -> None:
    schema, copy = database(mariadb118), database(mysql97)
    mariadb118.query("CREATE TABLE t_1 (id INT PRIMARY KEY, v INT)", database=schema)
    mariadb118.query("CREATE TABLE t_2 (id INT, v INT PRIMARY KEY)", database=schema)
    mariadb118.query("CREATE TABLE u (id INT PRIMARY KEY, v INT)", database=schema)
    mysql97.query("CREATE TABLE u (id INT PRIMARY KEY, v INT)", database=copy)
    configure(
        sluice,
        mariadb118,
        mysql97,
        schema,
        start="snapshot",
        routes=rf"{schema}\\.t_. -> {copy}.t; {schema}\\.u -> {copy}.u; {schema}\\.none -> {copy}.none",
        columns=rf"{schema}\\.u: v ->, w -> x; {schema}\\.t_1: id ->",
    )
    found = check(sluice)
    assert found.returncode == 1, found
    for text in (
        f"{copy}.t would have the rows of tables without a common primary key: {schema}.t_1 (none); {schema}.t_2 (v)",
        f"leave out id, of the key of {schema}.t_1",
        f"{copy}.u has the column v, which is left out: ALTER TABLE {copy}.u DROP v",
        rf"the rule '{schema}\.none' of routes matches none of the tables that there are",
        "of columns names w, which no table has that it matches",
    ):
        assert text in found.stdout, found.stdout
    configure(sluice, mariadb118, mysql97, schema, routes="shop -> x")
    found = check(sluice)
    assert (found.returncode, "has to be TABLES -> SCHEMA.TABLE" in found.stdout) == (1, True), found


@pytest.mark.extended
def test_a_target_that_is_read_only_or_takes_short_statements_is_named(
    sluice: Sluice, mariadb118: Server, mysql97: Server, database: Database
) -> None:
    configure(sluice, mariadb118, mysql97, database(mariadb118))
    with mysql97.variable("max_allowed_packet", 1 << 20):
        found = check(sluice)
    assert "takes statements of 1048576 bytes" in found.stdout
    assert "SET GLOBAL max_allowed_packet = 67108864" in found.stdout
    with mysql97.variable("read_only", 1):
        found = check(sluice)
    assert (found.returncode, "is read-only: SET GLOBAL read_only = 0" in found.stdout) == (1, True), found
