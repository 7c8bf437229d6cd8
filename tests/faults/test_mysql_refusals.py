"""A row that the target refuses: the output stops at its transaction and names it, and it can be passed over."""

import re

from tests import commands
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.faults.test_mysql_output import configure, copy_of, output_of, rows
from tests.servers import Server
from tests.waiting import eventually


def write_at_once(sluice: Sluice, source: Server, target: Server, schema: str) -> None:
    """Commit transactions of which two do not fit, while the output waits: so that they come in one batch."""
    with target.connect(database=schema) as other:
        other.cursor().execute("LOCK TABLES t READ")
        for number, value in enumerate(("one", "two", "three", "six", "seven", "ten")):
            source.query(f"INSERT INTO t VALUES ({number}, '{value}'), ({number + 10}, 'x')", database=schema)
        eventually(lambda: sluice.destination()["clients"][0]["lag"]["entries"] > 15)


def test_the_transaction_of_a_refused_row_is_found_named_and_passed_over(
    sluice: Sluice, mariadb118: Server, mysql97: Server, database: Database
) -> None:
    schema = database(mariadb118)
    mariadb118.query("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9) CHARSET latin1)", database=schema)
    with copy_of(mariadb118, mysql97, schema):
        mysql97.query("ALTER TABLE t MODIFY v VARCHAR(3) CHARSET latin1", database=schema)
        configure(sluice, mariadb118, mysql97, schema)
        with sluice.reading():
            eventually(lambda: output_of(sluice)["state"] == "running", lambda: output_of(sluice))
            write_at_once(sluice, mariadb118, mysql97, schema)
            for good, key in (([0, 1], 2), ([0, 1, 3], 4)):
                eventually(lambda: output_of(sluice)["state"] == "error", lambda: output_of(sluice))
                error = output_of(sluice)["error"]
                assert f"{schema}.t on the target refuses a change" in error
                assert "Data too long for column 'v'" in error
                assert re.search(rf"in (REPLACE|INSERT) INTO `{schema}`\.`t` \(`id`,`v`\)", error)
                assert f"The key of the row is {key}," in error
                assert [it for it, _ in rows(mysql97, schema, "t") if it < 10] == good
                found = re.search(r"`sluice (skip shop \d+ \S+)` passes over", error)
                assert found is not None, error
                done = commands.run(*found[1].split(), environ={"SLUICE_URL": sluice.url})
                assert done.returncode == 0, done
                eventually(lambda said=error: said != output_of(sluice)["error"], lambda: output_of(sluice))  # type: ignore[misc]
            eventually(lambda: output_of(sluice)["state"] == "running" and len(rows(mysql97, schema, "t")) == 8)
            assert [it for it, _ in rows(mysql97, schema, "t") if it < 10] == [0, 1, 3, 5]


def test_the_transaction_of_a_refused_row_is_left_out_and_listed_where_that_is_configured(
    sluice: Sluice, mariadb118: Server, mysql97: Server, database: Database
) -> None:
    schema = database(mariadb118)
    mariadb118.query("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9) CHARSET latin1)", database=schema)
    with copy_of(mariadb118, mysql97, schema):
        mysql97.query("ALTER TABLE t MODIFY v VARCHAR(3) CHARSET latin1", database=schema)
        configure(sluice, mariadb118, mysql97, schema, onRefused="skip")
        with sluice.reading():
            eventually(lambda: output_of(sluice)["state"] == "running", lambda: output_of(sluice))
            write_at_once(sluice, mariadb118, mysql97, schema)
            eventually(lambda: len(rows(mysql97, schema, "t")) == 8, lambda: output_of(sluice))
            assert [it for it, _ in rows(mysql97, schema, "t") if it < 10] == [0, 1, 3, 5]
            assert output_of(sluice)["skipped"] == 2
            listed = commands.run(
                "quarantine", "skipped", "shop", environ={"SLUICE_CONF": str(sluice.conf), "COLUMNS": "300"}
            )
            assert listed.stdout.count("Data too long for column 'v'") == 2, listed
