"""Tables that a target lacks are made as the source defines them, or it is said what the target cannot take."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.instance.sources.registry import examine
from sluice.protocol.errors import TargetError
from sluice.server.outputs.mysql.creation import Creation
from sluice.server.outputs.mysql.routes import Name, Routes
from sluice.sql.database import Database as Account
from tests.conftest import Database
from tests.delivery import config_for
from tests.servers import Server


class Copies:
    """A schema of MariaDB 11.8, and what is made of it on MySQL 9.7."""

    def __init__(self, source: Server, target: Server, schema: str, folder: Path) -> None:
        self.source, self.target, self.schema = source, target, schema
        self._folder = folder

    def create(self, *tables: str, routes: str = "", columns: str = "") -> list[Name]:
        account = Account(self.target.host, self.target.port, self.target.user, self.target.password)
        with examine(config_for(self.source, self._folder)) as source:
            creation = Creation(account, Routes(routes, columns), source.definition)
            return creation.create([(self.schema, it) for it in tables], lambda: None)

    def definition(self, table: str, schema: str = "") -> str:
        ((_, sql, *_),) = self.target.query(f"SHOW CREATE TABLE {schema or self.schema}.{table}")
        return str(sql)

    def define(self, *statements: str) -> None:
        for it in statements:
            self.source.query(it, database=self.schema)


@pytest.fixture
def copies(mariadb118: Server, mysql97: Server, database: Database, tmp_path: Path) -> Iterator[Copies]:
    """A schema with a collation that both know."""
    schema = database(mariadb118)
    mariadb118.query(f"ALTER DATABASE {schema} COLLATE utf8mb4_unicode_520_ci")
    yield Copies(mariadb118, mysql97, schema, tmp_path)
    mysql97.query(f"DROP DATABASE IF EXISTS {schema}")


def test_schema_and_tables_are_made_with_character_sets_keys_and_defaults(copies: Copies) -> None:
    copies.define(
        "CREATE TABLE parent (id INT PRIMARY KEY AUTO_INCREMENT, u INT UNIQUE) AUTO_INCREMENT = 100",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, v VARCHAR(9) CHARSET latin1 DEFAULT 'a\\\\''b' COMMENT 'x;--',"
        " e ENUM('a', 'b') NOT NULL, d DATE NOT NULL DEFAULT '2024-01-01', g INT AS (id + 1) STORED,"
        " FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE) DEFAULT CHARSET gbk COLLATE gbk_bin",
    )
    assert copies.create("child", "parent") == [(copies.schema, "child"), (copies.schema, "parent")]
    child = copies.definition("child")
    assert "REFERENCES `parent` (`id`) ON DELETE CASCADE" in child
    assert "`v` varchar(9) CHARACTER SET latin1" in child
    assert "COLLATE=gbk_bin" in child
    assert "DEFAULT 'a\\\\''b' COMMENT 'x;--'" in child
    assert "UNIQUE KEY" in copies.definition("parent")
    ((collation,),) = copies.target.query(
        f"SELECT default_collation_name FROM information_schema.schemata WHERE schema_name = '{copies.schema}'"
    )
    assert collation == "utf8mb4_unicode_520_ci"
    assert copies.create("child", "parent") == []


def test_a_table_is_made_under_its_other_name_with_the_columns_that_it_is_to_have(copies: Copies) -> None:
    copies.define("CREATE TABLE t_1 (id INT PRIMARY KEY, a INT, b INT, KEY (a, b))", "CREATE TABLE t_2 LIKE t_1")
    schema = f"{copies.schema}_copy"
    try:
        made = copies.create(
            *("t_1", "t_2"), routes=f"{copies.schema}.t_. -> {schema}.t", columns=f"{copies.schema}.t_.: a ->, b -> c"
        )
        assert made == [(schema, "t")]
        sql = copies.definition("t", schema)
        assert "`a` int" not in sql
        assert "KEY `a` (`c`)" in sql
        assert copies.target.query(f"SHOW TABLES FROM {schema}") == [("t",)]
    finally:
        copies.target.query(f"DROP DATABASE IF EXISTS {schema}")


def test_a_unique_key_is_left_out_with_any_of_its_columns(copies: Copies) -> None:
    # Without the column it would be unique in the others, and take different rows for one.
    copies.define("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, UNIQUE (a), UNIQUE ab (a, b), KEY (b, a))")
    copies.create("t", columns=f"{copies.schema}.t: b ->")
    sql = copies.definition("t")
    assert "UNIQUE KEY `a` (`a`)" in sql
    assert "`ab`" not in sql
    assert "KEY `b` (`a`)" in sql


def test_what_the_target_does_not_know_is_named(copies: Copies) -> None:
    copies.define("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9) COLLATE utf8mb4_uca1400_ai_ci)")
    with pytest.raises(TargetError, match=r"cannot make its copy of .*\.t .*utf8mb4_uca1400_ai_ci.*Create it there"):
        copies.create("t")


def test_a_foreign_key_to_a_table_that_is_called_otherwise_is_refused(copies: Copies) -> None:
    copies.define(
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE child (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES parent (id))",
    )
    with pytest.raises(TargetError, match=r"has a foreign key to parent, which is .*\.other on the target"):
        copies.create("child", routes=f"{copies.schema}.parent -> {copies.schema}.other")
