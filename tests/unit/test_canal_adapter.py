"""The configuration of Canal's client-adapter becomes outputs, and what has no equal is named."""

from pathlib import Path

import pytest

from sluice.protocol.errors import ConfigError
from sluice.server.canal_adapter import LARGEST, ClientAdapter, Known, Made
from sluice.server.config import Configuration
from sluice.server.config.warnings import of_outputs
from sluice.server.outputs.mysql.checks import routes_of
from sluice.server.outputs.mysql.settings import MysqlSettings
from tests import commands

APPLICATION = """
server:
  port: 8081
canal.conf:
  mode: tcp
  syncBatchSize: 1000
  retries: -1
  srcDataSources:
    defaultDS:
      url: jdbc:mysql://source:3306/mytest?useUnicode=true
      username: reader
      password: 121212
  canalAdapters:
  - instance: example
    groups:
    - groupId: g1
      outerAdapters:
      - name: logger
      - name: rdb
        key: mysql1
        properties:
          jdbc.driverClassName: com.mysql.jdbc.Driver
          jdbc.url: jdbc:mysql://target:3307/mytest2?useUnicode=true&sslMode=VERIFY_CA
          jdbc.username: writer
          jdbc.password: secret-121212
          threads: 5
"""
USER = """
dataSourceKey: defaultDS
destination: example
groupId: g1
outerAdapterKey: mysql1
concurrent: true
dbMapping:
  database: mytest
  table: user
  targetTable: mytest2.tb_user
  targetPk:
    id: id
  targetColumns:
    id:
    user_name: name
    c_time:
  commitBatch: 3000
"""
KNOWN = {("defaultDS", "mytest", "user"): Known(("id", "name", "c_time", "secret"), ("id",))}


def configured(folder: Path, application: str = APPLICATION, **files: str) -> ClientAdapter:
    """An adapter's conf folder with mappings by the names of their files."""
    (folder / "rdb").mkdir()
    (folder / "application.yml").write_text(application)
    for name, text in files.items():
        (folder / "rdb" / f"{name}.yml").write_text(text)
    return ClientAdapter(folder)


def lines(*outputs: Made) -> dict[str, str]:
    """The lines of outputs, without what they begin with."""
    split = (line.partition(" = ") for it in outputs for line in it.lines())
    return {key.removeprefix("sluice.output."): value for key, _, value in split}


def wrong(adapter: ClientAdapter) -> list[str]:
    return [it.text for it in adapter.findings if it.is_wrong]


def test_a_mapping_of_a_table_becomes_an_output(tmp_path: Path) -> None:
    adapter = configured(tmp_path, user=USER)
    assert lines(*adapter.outputs(KNOWN)) == {
        "mysql1.type": "mysql",
        "mysql1.url": "mysql://writer@target:3307/?sslMode=VERIFY_CA",
        "mysql1.passwordFile": "/run/secrets/mysql1",
        "mysql1.filter": r"mytest\\.user",
        "mysql1.routes": r"mytest\\.user -> mytest2.tb_user",
        "mysql1.columns": r"mytest\\.user: name -> user_name, secret ->",
        "mysql1.ddl": "ignore",
        "mysql1.existing": "merge",
    }
    assert wrong(adapter) == []


def test_the_lines_are_what_an_output_is_configured_with(tmp_path: Path) -> None:
    (made,) = configured(tmp_path, user=USER).outputs(KNOWN)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    lines_ = "\n".join(made.lines()).replace("/run/secrets/mysql1", str(secret))
    (tmp_path / "example").mkdir()
    (tmp_path / "canal.properties").write_text("canal.destinations = example\n")
    source = "canal.instance.master.address = source:3306\ncanal.instance.dbUsername = reader\n"
    text = f"{source}canal.instance.dbPassword = x\nsluice.outputs = mysql1\n{lines_}\n"
    (tmp_path / "example" / "instance.properties").write_text(text)
    configuration = Configuration(tmp_path, {})
    (output,) = configuration.outputs("example")
    assert isinstance(output.settings, MysqlSettings)
    routes = routes_of(output)
    assert routes.target("mytest", "user") == ("mytest2", "tb_user")
    assert routes.columns("mytest", "user") == {"name": "user_name", "secret": ""}
    assert of_outputs(configuration).unknown == []


def test_a_whole_schema_is_mirrored_with_its_ddl(tmp_path: Path) -> None:
    mirror = USER.partition("  database")[0] + "  mirrorDb: true\n  database: my_db\n  targetDb: copy\n"
    found = lines(*configured(tmp_path, mirror=mirror).outputs({}))
    assert found["mysql1.filter"] == r"my_db\\..*"
    assert found["mysql1.routes"] == r"my_db\\..* -> copy.*"
    assert found["mysql1.ddl"] == "apply"


def test_all_columns_are_kept_where_all_are_mapped(tmp_path: Path) -> None:
    every = USER.replace("  targetColumns", "  mapAll: true\n  targetColumns")
    assert (
        lines(*configured(tmp_path, user=every).outputs(KNOWN))["mysql1.columns"] == r"mytest\\.user: name -> user_name"
    )


def test_a_table_without_a_schema_goes_to_that_of_the_connection(tmp_path: Path) -> None:
    plain = USER.replace("targetTable: mytest2.tb_user", "targetTable: user")
    assert lines(*configured(tmp_path, user=plain).outputs(KNOWN))["mysql1.routes"] == r"mytest\\.user -> mytest2.user"


def test_a_table_that_goes_to_two_places_has_two_outputs(tmp_path: Path) -> None:
    found = lines(*configured(tmp_path, one=USER, two=USER.replace("tb_user", "other")).outputs(KNOWN))
    assert found["mysql1.routes"] == r"mytest\\.user -> mytest2.tb_user"
    assert found["mysql1-2.routes"] == r"mytest\\.user -> mytest2.other"


@pytest.mark.parametrize(
    ("application", "user", "text"),
    [
        (
            "",
            USER.replace("  commitBatch", "  etlCondition: where c_time>={}\n  commitBatch"),
            "sluice.output.mysql1.where",
        ),
        ("", USER.replace("id: id", "name: name"), "targetPk is name, and the primary key of the source is id"),
        (
            "",
            USER.replace("outerAdapterKey: mysql1", "outerAdapterKey: other"),
            "no adapter of application.yml uses it",
        ),
        ("", USER.replace("c_time:", "c_time: name"), "a column goes to several of the target"),
        ("jdbc:oracle:thin:@localhost:1521:XE", USER, "its target is not MySQL or MariaDB"),
    ],
)
def test_what_has_no_equal_is_named_with_the_next_step(tmp_path: Path, application: str, user: str, text: str) -> None:
    url = "jdbc:mysql://target:3307/mytest2?useUnicode=true&sslMode=VERIFY_CA"
    adapter = configured(tmp_path, APPLICATION.replace(url, application or url), user=user)
    adapter.outputs(KNOWN)
    assert any(text in it for it in wrong(adapter)), wrong(adapter)


@pytest.mark.parametrize(("name", "text"), [("es7", "examples/elasticsearch"), ("hbase", "docs/howto/plugins.md")])
def test_other_kinds_of_adapters_are_refused_with_what_to_do_instead(tmp_path: Path, name: str, text: str) -> None:
    adapter = configured(tmp_path, APPLICATION.replace("name: logger", f"name: {name}"), user=USER)
    assert len(adapter.outputs(KNOWN)) == 1
    assert [text in it for it in wrong(adapter)] == [True]


def test_columns_that_are_left_out_are_not_guessed(tmp_path: Path) -> None:
    adapter = configured(tmp_path, user=USER)
    adapter.outputs({})
    assert any("the source was not asked which other columns are to be left out" in it for it in wrong(adapter))


@pytest.mark.parametrize(
    ("application", "user", "text"),
    [
        ("canal.conf: [", USER, "application.yml, line 1, column 14: it is not YAML"),
        ("server: {}", USER, "application.yml has no canal.conf"),
        (APPLICATION, "dbMapping: {table: t}", "user.yml: dbMapping.database: Field required"),
        (APPLICATION, "", "user.yml is empty, or no mapping"),
        (APPLICATION, "x: " + "y" * LARGEST, f"user.yml has more than {LARGEST} bytes"),
        (APPLICATION.replace("//target:3307", "//one:1,two:2"), USER, "jdbc.url names no single server"),
    ],
)
def test_files_that_cannot_be_read_are_errors_that_name_them(
    tmp_path: Path, application: str, user: str, text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        configured(tmp_path, application, user=user).outputs({})


def test_the_command_prints_the_lines_and_no_password(tmp_path: Path) -> None:
    unreachable = APPLICATION.replace("source:3306", "127.0.0.1:1")
    configured(tmp_path, unreachable, user=USER)
    said = commands.run("migrate", "--from", str(tmp_path))
    assert said.returncode == 1  # the source was not asked
    assert "sluice.outputs = mysql1\nsluice.output.mysql1.type = mysql\n" in said.stdout
    assert "srcDataSources.defaultDS: was not asked for columns: cannot log in" in " ".join(said.stdout.split())
    assert "121212" not in said.stdout + said.stderr


@pytest.mark.parametrize("password", ["@geheim", "*geheim", "!geheim", "x: geheim", "'geheim"])
def test_a_mistake_in_the_yaml_is_named_without_what_the_line_has(tmp_path: Path, password: str) -> None:
    with pytest.raises(ConfigError, match=r"application.yml, line \d+, column \d+: it is not YAML") as error:
        configured(tmp_path, f"canal.conf:\n  srcDataSources:\n    a:\n      password: {password}\n")
    assert "geheim" not in str(error.value)
