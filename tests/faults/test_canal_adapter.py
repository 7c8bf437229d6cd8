"""What `sluice migrate` prints of a client-adapter keeps the same tables equal."""

from pathlib import Path

import yaml

from tests import commands
from tests.conftest import Database
from tests.faults.harness import Sluice
from tests.faults.test_mysql_output import output_of, rows
from tests.servers import Server
from tests.waiting import eventually


def adapter(folder: Path, source: Server, target: Server, schema: str) -> None:
    """Write the conf folder of an adapter that copies a table under another name, with some of its columns."""
    (folder / "rdb").mkdir(parents=True)
    jdbc = {"jdbc.url": f"jdbc:mysql://{target.host}:{target.port}/{schema}", "jdbc.username": target.user}
    groups = [{"groupId": "g1", "outerAdapters": [{"name": "rdb", "key": "copy", "properties": jdbc}]}]
    url = f"jdbc:mysql://{source.host}:{source.port}/{schema}?useUnicode=true"
    sources = {"defaultDS": {"url": url, "username": source.user, "password": source.password}}
    conf = {"srcDataSources": sources, "canalAdapters": [{"instance": "shop", "groups": groups}]}
    (folder / "application.yml").write_text(yaml.safe_dump({"canal.conf": conf}))
    mapping = {"database": schema, "table": "user", "targetTable": "people", "targetPk": {"id": "id"}}
    mapping |= {"targetColumns": {"id": None, "user_name": "name"}}
    file = {"dataSourceKey": "defaultDS", "destination": "shop", "outerAdapterKey": "copy", "dbMapping": mapping}
    (folder / "rdb" / "user.yml").write_text(yaml.safe_dump(file))


def test_a_mapping_of_an_adapter_is_kept_equal_by_the_output_that_replaces_it(
    sluice: Sluice, mariadb118: Server, mysql97: Server, database: Database, tmp_path: Path
) -> None:
    schema, secret = database(mariadb118), tmp_path / "secret"
    secret.write_text(mysql97.password)
    mariadb118.query("CREATE TABLE user (id INT PRIMARY KEY, name VARCHAR(9), secret INT)", database=schema)
    mariadb118.query("INSERT INTO user VALUES (1, 'Ann', 5)", database=schema)
    mysql97.query(f"CREATE DATABASE {schema}")
    mysql97.query(f"CREATE TABLE {schema}.people (id INT PRIMARY KEY, user_name VARCHAR(9))")
    adapter(tmp_path / "adapter", mariadb118, mysql97, schema)
    printed = commands.run("migrate", "--from", str(tmp_path / "adapter"), check=True).stdout
    sluice.add("shop", mariadb118, canal__instance__filter__regex=rf"{schema}\\..*")
    with (sluice.conf / "shop" / "instance.properties").open("a") as file:
        lines = [it for it in printed.splitlines() if it.startswith("sluice.")]
        file.write("\n".join(lines).replace("/run/secrets/copy", str(secret)))
        file.write(f"\nsluice.output.copy.progress = {schema}_progress\n")
    try:
        with sluice.reading():
            eventually(lambda: rows(mysql97, schema, "people") == [(1, "Ann")], lambda: output_of(sluice))
            mariadb118.query("INSERT INTO user VALUES (2, 'Bob', 6)", database=schema)
            mariadb118.query("UPDATE user SET name = 'Cid', secret = 7 WHERE id = 1", database=schema)
            wanted = [(1, "Cid"), (2, "Bob")]
            eventually(lambda: rows(mysql97, schema, "people") == wanted, lambda: output_of(sluice))
    finally:
        mysql97.query(f"DROP DATABASE {schema}")
        mysql97.query(f"DROP DATABASE IF EXISTS {schema}_progress")
    assert "name -> user_name, secret ->" in printed
