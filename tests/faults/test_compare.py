"""`sluice compare` beside a running output: both sides change, and only what really differs is found."""

from tests import commands
from tests.conftest import Database
from tests.faults.harness import Load, Sluice
from tests.faults.test_mysql_output import configure, copy_of, output_of
from tests.servers import Server
from tests.waiting import eventually


def compare(sluice: Sluice, *more: str) -> commands.Ended:
    environ = {"SLUICE_CONF": str(sluice.conf), "SLUICE_URL": sluice.url, "COLUMNS": "300"}
    return commands.run("compare", "shop", "copy", *more, environ=environ)


def test_both_sides_are_compared_while_they_change_and_a_seeded_difference_is_found(
    sluice: Sluice, mariadb118: Server, mysql97: Server, database: Database
) -> None:
    schema = database(mariadb118)
    load = Load(mariadb118, schema, writers=1)
    mariadb118.query("CREATE TABLE quiet (id INT PRIMARY KEY, v INT)", database=schema)
    mariadb118.query("INSERT INTO quiet VALUES (1, 1), (2, 2)", database=schema)
    with copy_of(mariadb118, mysql97, schema):
        configure(sluice, mariadb118, mysql97, schema, start="snapshot")
        with sluice.reading(), load:
            eventually(lambda: load.committed > 20 and output_of(sluice)["rows"] > 20, lambda: output_of(sluice))
            eventually(lambda: "still fills its tables" not in compare(sluice).stderr)
            equal = compare(sluice)
            assert (equal.returncode, equal.stderr) == (0, ""), equal
            assert "5 tables" in equal.stdout
            assert ": equal" in equal.stdout
            mysql97.query("UPDATE quiet SET v = 3 WHERE id = 2", database=schema)
            found = compare(sluice)
            assert found.returncode == 1, found
            assert f"differs {schema}.quiet: id = 2: differs in v" in found.stdout
            assert compare(sluice, f"{schema}.ledger").returncode == 0
            load.finish(stop=True)
    refused = compare(sluice)
    assert (refused.returncode, "no server answers at" in refused.stderr) == (3, True), refused


def test_an_output_that_does_not_move_on_is_an_error_that_says_why(
    sluice: Sluice, mariadb118: Server, mysql97: Server, database: Database
) -> None:
    schema = database(mariadb118)
    mariadb118.query("CREATE TABLE t (id INT PRIMARY KEY)", database=schema)
    with copy_of(mariadb118, mysql97, schema):
        configure(sluice, mariadb118, mysql97, schema)
        with sluice.reading():
            mariadb118.query("ALTER TABLE t ADD v INT", database=schema)
            eventually(lambda: output_of(sluice)["state"] == "error", lambda: output_of(sluice))
            found = compare(sluice, "--wait", "1")
            assert (found.returncode, "does not move on" in found.stderr) == (3, True), found
            assert "a DDL is refused: ALTER TABLE t ADD v INT" in found.stderr
            nothing = compare(sluice, f"{schema}.none")
            assert (nothing.returncode, "no table at the source" in nothing.stderr) == (2, True), nothing
