"""An output to MySQL whose tables have other names, columns and rows on the target, which it makes itself."""

from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.faults.test_compare import compare
from tests.faults.test_mysql_output import configure, output_of, rows
from tests.servers import Server
from tests.waiting import eventually


def tables(server: Server, schema: str) -> set[str]:
    """The tables of a schema, which need not be there."""
    found = server.query("SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (schema,))
    return {name for (name,) in found}


def test_tables_are_made_filled_and_kept_equal_under_other_names(
    sluice: Sluice, mariadb118: Server, mysql97: Server, database: Database
) -> None:
    schema = database(mariadb118)
    copy = f"{schema}_copy"
    mariadb118.query(f"ALTER DATABASE {schema} COLLATE utf8mb4_bin")
    for statement in (
        "CREATE TABLE orders_1 (id INT PRIMARY KEY, v VARCHAR(9)) COLLATE utf8mb4_unicode_ci",
        "CREATE TABLE orders_2 (id INT PRIMARY KEY, v VARCHAR(9)) COLLATE utf8mb4_unicode_ci",
        "CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(9), secret INT, KEY (secret, name)) CHARSET latin1",
        "CREATE TABLE empty (id INT PRIMARY KEY)",
        "CREATE TABLE keyless (n INT)",
        "INSERT INTO orders_1 VALUES (1, 'a')",
        "INSERT INTO orders_2 VALUES (2, 'b')",
        "INSERT INTO users VALUES (1, 'x', 5)",
        "INSERT INTO keyless VALUES (1), (1)",
    ):
        mariadb118.query(statement, database=schema)
    routes = rf"{schema}\\.orders_[0-9]+ -> {copy}.orders; {schema}\\..* -> {copy}.*"
    columns = rf"{schema}\\.users: name -> called, secret ->"
    configure(sluice, mariadb118, mysql97, schema, start="snapshot", ddl="apply", routes=routes, columns=columns)
    try:
        with sluice.reading():
            eventually(lambda: tables(mysql97, copy) >= {"keyless", "empty"}, lambda: output_of(sluice))
            eventually(lambda: len(rows(mysql97, copy, "keyless")) == 2, lambda: output_of(sluice))
            for statement in (
                "UPDATE orders_1 SET v = 'c'",
                "DELETE FROM orders_2",
                "INSERT INTO orders_2 VALUES (3, 'd')",
                "INSERT INTO users VALUES (2, 'y', 6)",
                "CREATE TABLE later (id INT PRIMARY KEY) COLLATE utf8mb4_bin",
                "INSERT INTO later VALUES (7)",
            ):
                mariadb118.query(statement, database=schema)
            eventually(lambda: "later" in tables(mysql97, copy), lambda: output_of(sluice))
            eventually(lambda: rows(mysql97, copy, "later") == [(7,)], lambda: output_of(sluice))
            assert rows(mysql97, copy, "orders") == [(1, "c"), (3, "d")]
            assert rows(mysql97, copy, "users") == [(1, "x"), (2, "y")]
            ((_, made),) = mysql97.query(f"SHOW CREATE TABLE {copy}.users")
            assert "latin1" in made
            equal = compare(sluice)
            assert (equal.returncode, equal.stderr) == (0, ""), equal
            assert f"note {schema}.orders_1: further rows of its copy were not looked at" in equal.stdout
            mysql97.query(f"UPDATE {copy}.users SET called = 'z' WHERE id = 2")
            mysql97.query(f"DELETE FROM {copy}.orders WHERE id = 1")
            found = compare(sluice)
            assert found.returncode == 1, found
            assert f"differs {schema}.users: id = 2: differs in called" in found.stdout
            assert f"differs {schema}.orders_1: id = 1: only at the source" in found.stdout
            mariadb118.query("ALTER TABLE users ADD w INT", database=schema)
            eventually(lambda: output_of(sluice)["state"] == "error", lambda: output_of(sluice))
            assert "cannot be run on the target as it is: ALTER TABLE users ADD w INT" in output_of(sluice)["error"]
    finally:
        mysql97.query(f"DROP DATABASE IF EXISTS {copy}")
        mysql97.query(f"DROP DATABASE IF EXISTS {schema}_progress")
