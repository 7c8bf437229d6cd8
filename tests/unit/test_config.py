"""The configuration of the server and its destinations."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.instance.config import BatchMode, Probing
from sluice.instance.meta.base import InUse
from sluice.instance.properties import Property, environment_name
from sluice.instance.sources.mysql.config import Address, MysqlConfig
from sluice.instance.zones import offsets_of
from sluice.login.ssl_mode import SslMode
from sluice.protocol.errors import ConfigError, FencedError, UnknownDestinationError
from sluice.server.config import Configuration
from sluice.server.config.keys import KEYS
from sluice.server.config.settings import expand
from sluice.server.config.warnings import find_warnings, understood
from sluice.server.fronts import served
from sluice.server.grpc.config import PumpConfig
from sluice.server.http.config import HttpConfig
from sluice.server.processes import Share
from sluice.server.tcp.config import TcpConfig
from tests.canal import stored

SOURCE = """
canal.instance.master.address = 127.0.0.1:3306
canal.instance.dbUsername = cdc
canal.instance.dbPassword = secret
"""


def instance(**given: Any) -> MysqlConfig:
    return MysqlConfig(**({"destination": "d", "master_address": "db", "db_username": "cdc"} | given))


def filled(**values: str) -> MysqlConfig:
    properties = {key.replace("__", "."): Property(value, f"f:{n}") for n, (key, value) in enumerate(values.items(), 1)}
    return MysqlConfig.fill(properties, Path(), destination="d", master_address="db", db_username="cdc")


class Conf:
    """A conf folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def read(self, environ: dict[str, str] | None = None, **given: Any) -> Configuration:
        return Configuration(self.folder, environ or {}, **given)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process's zone has no daylight saving, of which there would be a warning."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    offsets_of.cache_clear()
    yield
    monkeypatch.undo()
    time.tzset()
    offsets_of.cache_clear()


@pytest.fixture
def conf(tmp_path: Path) -> Conf:
    folder = Conf(tmp_path / "conf")
    folder.write("canal.properties", "canal.destinations = example\n")
    folder.write("example/instance.properties", SOURCE)
    return folder


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("db:3307", Address("db", 3307)),
        ("db", Address("db", 3306)),
        ("10.0.0.1:1", Address("10.0.0.1", 1)),
        ("[::1]:3307", Address("::1", 3307)),
        ("[::1]", Address("::1", 3306)),
    ],
)
def test_an_address_is_host_and_port(text: str, address: Address) -> None:
    assert instance(master_address=text).master_address == address


@pytest.mark.parametrize("text", ["", ":3306", "db:x", "db:0", "db:65536", "::1", "[::1", "[::1]3306"])
def test_text_that_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address; write host:port"):
        instance(master_address=text)


def test_an_address_is_written_as_it_is_read() -> None:
    assert str(Address("db", 1)) == "db:1"
    assert str(Address("::1", 1)) == "[::1]:1"


def test_values_are_read_as_canal_reads_them() -> None:
    config = filled(
        canal__instance__gtidon="true",
        canal__instance__master__sslMode="verify_ca",
        canal__instance__memory__batch__mode="itemsize",
        canal__instance__binlog__image="full, minimal",
        canal__instance__connectionCharset="UTF-8",
        canal__instance__master__position="0",
        canal__instance__filter__black__regex="",
    )
    assert config.gtid_on is True
    assert config.ssl_mode is SslMode.VERIFY_CA
    assert config.memory_batch_mode is BatchMode.ITEMSIZE
    assert config.binlog_image == ("FULL", "MINIMAL")
    assert config.connection_charset == "utf8mb4"
    assert config.master_position is None
    assert config.filter_black_regex == ""


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (
            {"canal.instance.memory.buffer.size": "1000"},
            "canal.instance.memory.buffer.size has to be a power of two, such as 512 or 1024, not 1000",
        ),
        (
            {"sluice.instance.store": "mixed", "sluice.instance.catchUp.readers": "0"},
            "sluice.instance.store = mixed needs sluice.instance.catchUp.readers",
        ),
        (
            {"sluice.instance.store": "mixed", "sluice.instance.sharedFilter": "true"},
            "sluice.instance.store = mixed needs sluice.instance.sharedFilter = false",
        ),
        (
            {"sluice.instance.filter.where.crossing": "split", "sluice.instance.sharedFilter": "true"},
            "sluice.instance.filter.where.crossing = split needs sluice.instance.sharedFilter = false",
        ),
        ({"canal.instance.master.sslMode": "yes"}, "f:1: canal.instance.master.sslMode: .*'DISABLED', 'PREFERRED'"),
        ({"canal.instance.binlog.image": "FULL,NONE"}, "f:1: canal.instance.binlog.image: .*'FULL', 'MINIMAL' or 'NO"),
        ({"canal.instance.memory.batch.mode": "SIZE"}, "batch.mode: has to be 'MEMSIZE' or 'ITEMSIZE'"),
        ({"canal.instance.gtidon": "maybe"}, "f:1: canal.instance.gtidon: has to be true or false"),
        ({"sluice.instance.timeZone": "Mars/Base"}, "'Mars/Base' is not a time zone"),
        ({"canal.instance.master.position": "4"}, "position needs canal.instance.master.journal.name"),
        ({"canal.instance.master.gtid": "0-1-2"}, "gtid needs canal.instance.gtidon = true"),
        ({"sluice.instance.sslCert": "a.pem"}, "sslCert and sluice.instance.sslKey belong together"),
        (
            {"sluice.instance.serverPublicKey": "a.pem", "canal.instance.master.sslMode": "PREFERRED"},
            "serverPublicKey is for a connection without TLS",
        ),
        ({"sluice.instance.sslCa": "a.pem"}, "certificates are configured, but .* is DISABLED"),
        ({"canal.instance.filter.regex": "x(("}, r"f:1: canal.instance.filter.regex: 'x\(\(' cannot be a filter"),
        ({"canal.instance.filter.black.regex": "shop"}, "f:1: .*'shop' matches no table"),
        ({"canal.instance.filter.field": "shop:id"}, "f:1: .*'shop:id' is not a field filter"),
        ({"canal.instance.filter.black.field": "shop.orders"}, "f:1: .*'shop.orders' is not a field filter"),
    ],
)
def test_what_cannot_work_is_refused(values: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        filled(**{key.replace(".", "__"): value for key, value in values.items()})


def test_all_that_is_wrong_is_said_at_once_with_its_place(conf: Conf) -> None:
    conf.write("example/instance.properties", "canal.instance.gtidon = x\ncanal.instance.mysql.slaveId = -1\n")
    with pytest.raises(ConfigError) as caught:
        conf.read().instance("example")
    lines = str(caught.value).splitlines()
    assert "canal.instance.master.address: has to be given" in lines
    assert "canal.instance.dbUsername: has to be given" in lines
    assert any("example/instance.properties:1: canal.instance.gtidon: " in line for line in lines)
    assert any("example/instance.properties:2: canal.instance.mysql.slaveId: " in line for line in lines)


def test_a_password_never_shows() -> None:
    assert "hunter2" not in repr(instance(db_password="hunter2"))
    with pytest.raises(ConfigError) as caught:
        filled(canal__instance__dbPassword="hunter2", canal__instance__gtidon="hunter2")
    assert "hunter2" not in str(caught.value)


def test_a_destination_is_read_from_its_file_over_the_main_file(conf: Conf) -> None:
    conf.write(
        "canal.properties",
        "canal.instance.memory.buffer.size = 1024\ncanal.instance.gtidon = true\n"
        "canal.file.data.dir = ../data/${canal.instance.destination:}",
    )
    conf.write("example/instance.properties", SOURCE + "canal.instance.gtidon = false\n")
    config = conf.read().instance("example")
    assert isinstance(config, MysqlConfig)
    assert config.destination == "example"
    assert config.memory_buffer_size == 1024
    assert config.gtid_on is False
    assert config.db_password.get_secret_value() == "secret"
    assert config.file_data_dir == conf.folder.parent / "data" / "example"


def test_the_environment_overrides_files(conf: Conf) -> None:
    configuration = conf.read({"SLUICE_INSTANCE_DB_PASSWORD": "other", "canal.instance.master.address": "db2:3307"})
    config = configuration.instance("example")
    assert isinstance(config, MysqlConfig)
    assert config.db_password.get_secret_value() == "other"
    assert config.master_address == Address("db2", 3307)


def test_a_destination_needs_no_file_when_main_file_and_environment_say_enough(conf: Conf) -> None:
    conf.write("canal.properties", SOURCE + "canal.destinations = other\n")
    assert conf.read().instance("other").destination == "other"


@pytest.mark.parametrize("name", ["nowhere", "..", "example/../example", ""])
def test_a_destination_without_configuration_is_unknown(conf: Conf, name: str) -> None:
    with pytest.raises(UnknownDestinationError, match="there is no destination"):
        conf.read().instance(name)


def test_the_destinations_to_start_are_those_named_and_when_watched_those_found(conf: Conf) -> None:
    conf.write("a/instance.properties", SOURCE)
    assert conf.read().destinations() == ["example"]
    conf.write("canal.properties", "canal.destinations = example\ncanal.auto.scan = true\n")
    assert conf.read().destinations() == ["example", "a"]


def test_a_destination_that_is_read_twice_is_the_same_whatever_its_outputs(conf: Conf) -> None:
    first = conf.read().instance("example")
    conf.write("example/instance.properties", SOURCE + "sluice.outputs = a\n")
    assert conf.read().instance("example") == first
    conf.write("example/instance.properties", SOURCE + "canal.instance.gtidon = true\n")
    assert conf.read().instance("example") != first


def test_a_check_names_the_faults_of_all_destinations(conf: Conf) -> None:
    conf.write("canal.properties", "canal.destinations = example, a, b\n")
    conf.write("a/instance.properties", SOURCE + "canal.instance.gtidon = x\n")
    with pytest.raises(
        ConfigError, match=r"(?s)^a: .*/a/instance.properties:5: .*\nb: canal.instance.master.address: has"
    ):
        conf.read().check()


def test_the_main_file_may_be_named_itself(conf: Conf) -> None:
    assert Configuration(conf.folder / "canal.properties", {}).server.destinations == ("example",)


def test_a_conf_folder_without_main_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"canal.properties does not exist; .* --conf"):
        Configuration(tmp_path, {})


def test_destinations_are_a_list_or_a_range(conf: Conf) -> None:
    conf.write("canal.properties", "canal.destinations = a, b,\n")
    assert conf.read().server.names == ("a", "b")
    conf.write("canal.properties", "canal.destinations = a\ncanal.destinations.expr = shard{9-11}\n")
    assert conf.read().server.names == ("shard9", "shard10", "shard11")


@pytest.mark.parametrize("expression", ["shard", "shard{1}", "shard{2-1}", "shard{a-b}"])
def test_an_invalid_range_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="is not a range"):
        expand(expression)


def test_what_needs_a_part_that_is_not_there_is_refused(conf: Conf) -> None:
    conf.write("canal.properties", "canal.instance.global.mode = manager\n")
    with pytest.raises(ConfigError, match=r"global.mode: .*'spring'"):
        conf.read()


@pytest.mark.parametrize(("bean", "meta"), [("file-instance.xml", "file"), ("memory-instance.xml", "memory")])
def test_canals_bean_files_say_where_cursors_are_kept(conf: Conf, bean: str, meta: str) -> None:
    conf.write("canal.properties", f"canal.instance.global.spring.xml = classpath:spring/{bean}\n")
    assert conf.read().instance("example").meta == meta


def test_a_bean_file_of_one_destination_wins(conf: Conf) -> None:
    conf.write(
        "canal.properties",
        "canal.instance.example.spring.xml = classpath:spring/memory-instance.xml\n"
        "canal.instance.global.spring.xml = classpath:spring/file-instance.xml\n",
    )
    assert conf.read().instance("example").meta == "memory"


def test_a_bean_file_that_needs_zookeeper_is_refused_without(conf: Conf) -> None:
    conf.write("canal.properties", "canal.instance.global.spring.xml = classpath:spring/default-instance.xml\n")
    with pytest.raises(ConfigError, match=r"kept in ZooKeeper \(period\): set canal.zkServers"):
        conf.read().instance("example")
    conf.write(
        "canal.properties",
        "canal.instance.global.spring.xml = classpath:spring/default-instance.xml\ncanal.zkServers = zk:2181\n",
    )
    assert conf.read().instance("example").meta == "period"


def test_a_bean_file_without_a_part_here_is_refused(conf: Conf) -> None:
    conf.write("canal.properties", "canal.instance.global.spring.xml = classpath:spring/our-instance.xml\n")
    with pytest.raises(ConfigError, match=r"canal.properties:1: our-instance.xml is not supported; use file-"):
        conf.read().instance("example")


def test_with_other_servers_cursors_are_kept_in_zookeeper(conf: Conf) -> None:
    conf.write("canal.properties", "canal.zkServers = zk:2181\n")
    assert conf.read().instance("example").meta == "zookeeper"


@pytest.mark.parametrize(
    "settings", ["sluice.instance.meta = file", "canal.instance.global.spring.xml = memory-instance.xml"]
)
def test_with_other_servers_cursors_that_only_one_can_see_are_refused(conf: Conf, settings: str) -> None:
    conf.write("canal.properties", f"canal.destinations = example\ncanal.zkServers = zk:2181\n{settings}\n")
    with pytest.raises(ConfigError, match=r"example: canal.zkServers is set, but cursors are kept in (file|memory)"):
        conf.read().check()


@pytest.mark.parametrize("hosts", ["zk:many", "zk:2181,", ":2181", "zk:99999", "[zk:2181"])
def test_invalid_servers_of_zookeeper_are_refused(conf: Conf, hosts: str) -> None:
    conf.write("canal.properties", f"canal.zkServers = {hosts}\n")
    with pytest.raises(ConfigError, match=r"canal.properties:1: canal.zkServers.* is not host:port"):
        conf.read()


@pytest.mark.parametrize("hosts", ["zk1:2181/canal,zk2:2181", "zk1:2181/canal;zk2:2181/canal"])
def test_a_path_in_zookeeper_is_given_once(conf: Conf, hosts: str) -> None:
    conf.write("canal.properties", f"canal.zkServers = {hosts}\n")
    with pytest.raises(ConfigError, match=r"canal.properties:1: canal.zkServers.*after the last host"):
        conf.read()


@pytest.mark.parametrize("hosts", ["zk", "zk1:2181;zk2:2181", "zk1:2181, zk2:2181/canal", "[::1]:2181", ""])
def test_servers_of_zookeeper_are_named_as_in_canal(conf: Conf, hosts: str) -> None:
    conf.write("canal.properties", f"canal.zkServers = {hosts}\n")
    assert conf.read().server.zk_servers == hosts


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ("canal.ip = 0.0.0.0", "canal.zkServers needs canal.register.ip"),
        ("canal.port = 0", "canal.zkServers needs fixed ports"),
        ("sluice.http.port = 0", "canal.zkServers needs fixed ports"),
    ],
)
def test_among_other_servers_each_is_known_by_its_address(conf: Conf, settings: str, complaint: str) -> None:
    conf.write("canal.properties", f"canal.zkServers = zk:2181\n{settings}\n")
    with pytest.raises(ConfigError, match=complaint):
        conf.read()


def test_an_unknown_key_is_named_with_its_place_and_the_nearest_known_one(conf: Conf) -> None:
    conf.write("example/instance.properties", SOURCE + "canal.instance.filter.regexp = shop\\\\..*\n")
    (warning,) = find_warnings(conf.read())
    assert warning.endswith(
        "example/instance.properties:5: canal.instance.filter.regexp is unknown; is canal.instance.filter.regex meant?"
    )


def test_a_mistake_in_a_key_of_a_group_without_effect_is_named_where_the_right_one_has_one(conf: Conf) -> None:
    conf.write(
        "canal.properties",
        "canal.serverMode = kafka\nkafka.bootstrap.servers = b:9092\ncanal.mq.partitiionHash = x:id\n",
    )
    conf.write("example/instance.properties", SOURCE)
    (warning,) = find_warnings(conf.read())
    assert warning.endswith("canal.properties:3: canal.mq.partitiionHash is unknown; is canal.mq.partitionHash meant?")
    conf.write("canal.properties", "canal.mq.partitiionHash = x:id\n")
    (warning,) = find_warnings(conf.read())
    assert warning.startswith("without effect here")


def test_what_is_off_is_not_said_to_be_without_effect(conf: Conf) -> None:
    conf.write("canal.properties", "canal.instance.memory.rawEntry = false\ncanal.mq.flatMessage = False\n")
    assert find_warnings(conf.read()) == []


def test_variables_that_kubernetes_sets_for_a_service_are_not_settings(conf: Conf) -> None:
    link = "tcp://10.0.0.1:80"
    set_by_kubernetes = {
        "SLUICE_SERVICE_HOST": "10.0.0.1",
        "SLUICE_SERVICE_PORT": "80",
        "SLUICE_SERVICE_PORT_API": "80",
        "SLUICE_PORT": link,
        "SLUICE_PORT_80_TCP": link,
        "SLUICE_PORT_80_TCP_PROTO": "tcp",
        "SLUICE_PORT_80_TCP_PORT": "80",
        "SLUICE_PORT_80_TCP_ADDR": "10.0.0.1",
        "SLUICE_HTTP_PORT": link,
    }
    read = conf.read(set_by_kubernetes | {"SLUICE_INSTANCE_MASTER_ADDRESS": "db:3306", "SLUICE_WRONG": "1"})
    assert [front.port for front in read.fronts] == [11180, 11111, 8250]
    warnings = [it for it in find_warnings(read) if "SLUICE_" in it]
    assert [it.partition(":")[0] for it in warnings] == [
        "environment variable SLUICE_HTTP_PORT is ignored",
        "environment variable SLUICE_PORT is ignored",
        "environment variable SLUICE_WRONG is unknown; is SLUICE_CONF meant?",
    ]
    assert link in warnings[1]
    assert "a service called sluice; rename" in warnings[1]
    assert conf.read({"SLUICE_PORT": "11112"}).addresses.front(TcpConfig).port == 11112
    with pytest.raises(ConfigError, match="SLUICE_PORT"):
        conf.read({"SLUICE_PORT": "10.0.0.1:80"})


def test_an_unknown_variable_is_named_with_the_nearest_known_one(conf: Conf) -> None:
    assert find_warnings(conf.read({"SLUICE_HTTP_PROT": "1", "SLUICE_HTTP_PORT": "2", "HOME": "/"})) == [
        "environment variable SLUICE_HTTP_PROT is unknown; is SLUICE_HTTP_PORT meant?"
    ]


def test_what_names_a_file_with_a_secret_is_not_unknown(conf: Conf) -> None:
    conf.write("example/instance.properties", SOURCE + "canal.instance.tsdb.dbPasswordFile = /run/db\n")
    read = conf.read({"SLUICE_INSTANCE_DB_PASSWORD_FILE": "/run/db", "SLUICE_PASSWD_FIEL": "", "SLUICE_TOKEN_FILE": ""})
    assert [it for it in find_warnings(read) if "unknown" in it] == [
        "environment variable SLUICE_PASSWD_FIEL is unknown; is SLUICE_PASSWD_FILE meant?"
    ]


def test_a_key_that_a_placeholder_names_is_not_unknown(conf: Conf) -> None:
    conf.write("canal.properties", "my.host = db\ncanal.instance.master.address = ${my.host}:3306\n")
    assert find_warnings(conf.read()) == []


def test_keys_of_canal_without_effect_are_one_warning_for_each_reason(conf: Conf) -> None:
    conf.write(
        "canal.properties",
        "canal.mq.flatMessage = true\nkafka.acks = all\ncanal.instance.tsdb.snapshot.interval = 24\ncanal.user =\n",
    )
    queues, history = find_warnings(conf.read())
    assert queues.startswith("without effect here: they are for canal.serverMode = kafka, or for queues that")
    assert queues.endswith("canal.properties: canal.mq.flatMessage (line 1), kafka.acks (line 2)")
    assert "canal.instance.tsdb.snapshot.interval (line 3)" in history


CANALS_OWN = r"""
canal.ip =
canal.register.ip =
canal.port = 11111
canal.metrics.pull.port = 11112
canal.admin.port = 11110
canal.admin.user = admin
canal.admin.passwd =
canal.zkServers =
canal.zookeeper.flush.period = 1000
canal.withoutNetty = false
canal.serverMode = tcp
canal.file.data.dir = ${canal.conf.dir}
canal.file.flush.period = 1000
canal.instance.memory.buffer.size = 16384
canal.instance.memory.buffer.memunit = 1024
canal.instance.memory.batch.mode = MEMSIZE
canal.instance.memory.rawEntry = true
canal.instance.detecting.enable = false
canal.instance.detecting.sql = select 1
canal.instance.detecting.interval.time = 3
canal.instance.detecting.retry.threshold = 3
canal.instance.detecting.heartbeatHaEnable = false
canal.instance.transaction.size = 1024
canal.instance.fallbackIntervalInSeconds = 60
canal.instance.network.receiveBufferSize = 16384
canal.instance.network.sendBufferSize = 16384
canal.instance.network.soTimeout = 30
canal.instance.filter.druid.ddl = true
canal.instance.filter.query.dcl = false
canal.instance.filter.query.dml = false
canal.instance.filter.query.ddl = false
canal.instance.filter.table.error = false
canal.instance.filter.rows = false
canal.instance.filter.transaction.entry = false
canal.instance.filter.dml.insert = false
canal.instance.filter.dml.update = false
canal.instance.filter.dml.delete = false
canal.instance.binlog.format = ROW,STATEMENT,MIXED
canal.instance.binlog.image = FULL,MINIMAL,NOBLOB
canal.instance.get.ddl.isolation = false
canal.instance.parser.parallel = true
canal.instance.parser.parallelBufferSize = 256
canal.instance.tsdb.enable = true
canal.instance.tsdb.dir = ${canal.file.data.dir:../conf}/${canal.instance.destination:}
canal.instance.tsdb.url = jdbc:h2:${canal.instance.tsdb.dir}/h2;CACHE_SIZE=1000;MODE=MYSQL;
canal.instance.tsdb.dbUsername = canal
canal.instance.tsdb.snapshot.interval = 24
canal.destinations = example
canal.conf.dir = ../conf
canal.auto.scan = true
canal.auto.scan.interval = 5
canal.auto.reset.latest.pos.mode = false
canal.instance.tsdb.spring.xml = classpath:spring/tsdb/h2-tsdb.xml
canal.instance.global.mode = spring
canal.instance.global.lazy = false
canal.instance.global.manager.address = ${canal.admin.manager}
canal.instance.global.spring.xml = classpath:spring/file-instance.xml
canal.aliyun.accessKey =
canal.mq.flatMessage = true
canal.mq.canalBatchSize = 50
kafka.bootstrap.servers = 127.0.0.1:9092
kafka.max.in.flight.requests.per.connection = 1
rocketmq.producer.group = test
rabbitmq.virtual.host =
pulsarmq.serverUrl =
"""
CANALS_OWN_INSTANCE = r"""
canal.instance.gtidon=false
canal.instance.rds.instanceId=
canal.instance.master.address=127.0.0.1:3306
canal.instance.master.journal.name=
canal.instance.master.position=
canal.instance.master.timestamp=
canal.instance.master.gtid=
canal.instance.multi.stream.on=false
canal.instance.tsdb.enable=true
canal.instance.dbUsername=canal
canal.instance.dbPassword=canal
canal.instance.connectionCharset = UTF-8
canal.instance.enableDruid=false
canal.instance.filter.regex=.*\\..*
canal.instance.filter.black.regex=mysql\\.slave_.*
canal.mq.topic=example
canal.mq.partition=0
"""


def test_canals_own_files_can_be_used_and_no_key_of_theirs_is_unknown(conf: Conf) -> None:
    conf.write("canal.properties", CANALS_OWN)
    conf.write("example/instance.properties", CANALS_OWN_INSTANCE)
    configuration = conf.read()
    configuration.check()
    config = configuration.instance("example")
    assert configuration.server.conf_dir == config.file_data_dir == conf.folder
    assert config.filter_regex == r".*\..*"
    assert config.filter_black_regex == r"mysql\.slave_.*"
    assert config.meta == "file"
    warnings = find_warnings(configuration)
    assert [warning for warning in warnings if not warning.startswith("without effect here: ")] == []
    reasons = [warning.partition(". In ")[0] for warning in warnings]
    assert len(set(reasons)) == len(reasons), "a line each"
    assert all(": " in reason.removeprefix("without effect here: ") for reason in reasons), "and what to do instead"
    keys = understood(configuration)[f"{conf.folder}/canal.properties"]
    assert "canal.instance.global.mode" in keys
    assert "canal.instance.tsdb.spring.xml" not in keys
    assert not any(key in warning for warning in warnings for key in ("global.mode (", "global.spring.xml ("))


def test_a_time_in_seconds_is_noticed(conf: Conf) -> None:
    conf.write("example/instance.properties", SOURCE + "canal.instance.master.timestamp = 1700000000\n")
    (warning,) = find_warnings(conf.read())
    assert warning == (
        "example: canal.instance.master.timestamp = 1700000000 is in 1970, for it counts milliseconds; is 1700000000000"
        " meant?"
    )


def test_a_destination_without_a_file_is_named_with_it(conf: Conf) -> None:
    conf.write("canal.properties", "canal.destinations = example, other\n")
    with pytest.raises(ConfigError, match=r"^canal\.instance\.master\.address: has to be given\n") as caught:
        conf.read().instance("other")
    last = str(caught.value).splitlines()[-1]
    assert last == f"{conf.folder}/other/instance.properties does not exist: write it, or change canal.destinations"


def test_canals_own_folder_may_have_any_name(conf: Conf) -> None:
    conf.write("canal.properties", "canal.conf.dir = ../conf\ncanal.file.data.dir = ${canal.conf.dir}\n")
    configuration = conf.read()
    assert configuration.server.conf_dir == configuration.instance("example").file_data_dir == conf.folder


def test_changes_that_a_queue_would_get_wait_for_a_client(conf: Conf) -> None:
    conf.write("canal.properties", "canal.serverMode = rocketMQ\n")
    (warning,) = find_warnings(conf.read())
    assert "canal.serverMode = rocketmq: of message queues there is Kafka only, and nothing is lost" in warning


def test_a_destination_with_another_bean_file_keeps_no_other_from_starting(conf: Conf) -> None:
    conf.write(
        "canal.properties",
        "canal.destinations = example,other\ncanal.instance.other.spring.xml = classpath:spring/our-instance.xml\n",
    )
    conf.write("other/instance.properties", SOURCE)
    configuration = conf.read()
    configuration.check()
    with pytest.raises(ConfigError, match=r"our-instance\.xml is not supported"):
        configuration.instance("other")


def test_an_address_that_other_hosts_cannot_reach_is_a_warning(conf: Conf) -> None:
    conf.write("canal.properties", "canal.zkServers = zk:2181\n")
    (warning,) = find_warnings(conf.read())
    assert "others know this server as 127.0.0.1:11111" in warning


def test_a_key_of_the_server_in_a_destinations_file_is_a_warning(conf: Conf) -> None:
    conf.write("example/instance.properties", SOURCE + "sluice.http.port = 80\n")
    (warning,) = find_warnings(conf.read())
    assert warning.endswith(":5: sluice.http.port has an effect in canal.properties only")


def test_canals_port_is_configured_by_canals_keys(conf: Conf) -> None:
    conf.write("canal.properties", f"canal.port = 7\ncanal.user = u\ncanal.passwd = {'0aF9' * 10}\ncanal.ip =\n")
    front = conf.read().addresses.front(TcpConfig)
    assert (front.host, front.port, front.user, front.without_netty) == ("127.0.0.1", 7, "u", False)
    assert front.passwd.get_secret_value() == "0aF9" * 10
    assert "0aF9" not in repr(front)


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("canal.passwd = secret\n", "canal.passwd: has to be the SHA-1 of the password's SHA-1"),
        ("canal.passwd = *E3619321C1A937C46A0D8BD1DAC39F93B27D4458\n", "canal.passwd: has to be the SHA-1"),
        ("canal.user = canal\n", "canal.user needs canal.passwd"),
    ],
)
def test_a_password_that_protects_nothing_is_an_error(conf: Conf, lines: str, complaint: str) -> None:
    conf.write("canal.properties", lines)
    with pytest.raises(ConfigError, match=complaint) as caught:
        conf.read()
    assert "= secret" not in str(caught.value)


@pytest.mark.parametrize("password", ["canal", "admin", "123456"])
def test_a_password_that_everybody_knows_is_a_warning(conf: Conf, password: str) -> None:
    conf.write("canal.properties", f"canal.passwd = {stored(password).upper()}\n")
    (warning,) = find_warnings(conf.read())
    assert f"that of the password {password}, which is in Canal's own files" in warning


def test_a_time_zone_with_daylight_saving_is_a_warning(conf: Conf) -> None:
    conf.write("example/instance.properties", SOURCE + "sluice.instance.timeZone = Europe/Berlin\n")
    (warning,) = find_warnings(conf.read())
    assert warning.startswith("example: TIMESTAMP values are written in Europe/Berlin, which has daylight saving")
    for zone in ("UTC", "Asia/Shanghai", "+08:00"):
        conf.write("example/instance.properties", SOURCE + f"sluice.instance.timeZone = {zone}\n")
        assert find_warnings(conf.read()) == []


def test_settings_of_the_command_line_win(conf: Conf) -> None:
    conf.write("canal.properties", "sluice.http.insecure = false\n")
    assert [front.insecure for front in conf.read(insecure=True).fronts] == [True, True, True]


def test_mistakes_of_the_server_and_of_its_fronts_are_said_together(conf: Conf) -> None:
    conf.write(
        "canal.properties",
        "sluice.ha.sessionTimeout = x\nsluice.http.port = x\nsluice.http.insecure = x\ncanal.port = x\n",
    )
    with pytest.raises(ConfigError) as caught:
        conf.read()
    keys = [line.split(": ")[1] for line in str(caught.value).splitlines()]
    assert keys == ["sluice.ha.sessionTimeout", "sluice.http.port", "sluice.http.insecure", "canal.port"]


def test_a_certificate_needs_its_key() -> None:
    with pytest.raises(ValueError, match=r"sluice.http.tlsCert and sluice.http.tlsKey belong together"):
        HttpConfig(tls_cert=Path("cert.pem"))


def test_no_two_keys_share_a_variable() -> None:
    assert len({environment_name(key) for key in set(KEYS)}) == len(set(KEYS))


@pytest.mark.parametrize("given", ["", "mysql", "MySQL"])
def test_the_kind_of_source_is_mysql_unless_another_is_given(conf: Conf, given: str) -> None:
    conf.write("example/instance.properties", SOURCE + f"sluice.instance.source = {given}\n")
    config = conf.read().instance("example")
    assert isinstance(config, MysqlConfig)
    assert config.source == "mysql"
    assert find_warnings(conf.read()) == []


def test_an_unknown_kind_of_source_is_refused_with_key_and_place(conf: Conf) -> None:
    conf.write("example/instance.properties", SOURCE + "sluice.instance.source = oracle\n")
    with pytest.raises(
        ConfigError,
        match=r"instance\.properties:5: sluice\.instance\.source: has to be 'changes' or .* or 'ticdc', or what a",
    ):
        conf.read().instance("example")
    with pytest.raises(ConfigError, match=r"^example: .*sluice\.instance\.source"):
        conf.read().check()
    with pytest.raises(ConfigError, match=r"^environment variable SLUICE_INSTANCE_SOURCE: "):
        conf.read({"SLUICE_INSTANCE_SOURCE": "oracle"}).instance("example")


SHAPING = {
    "filter_regex": r"shop\..*",
    "filter_black_regex": r"shop\.x",
    "filter_field": "shop.orders:id",
    "filter_black_field": "shop.orders:note",
    "filter_rows": True,
    "filter_query_dcl": True,
    "filter_query_dml": True,
    "filter_query_ddl": True,
    "filter_dml_insert": True,
    "filter_dml_update": True,
    "filter_dml_delete": True,
    "filter_transaction_entry": True,
    "filter_table_error": True,
    "filter_where": "shop.orders: id > 3",
    "filter_crossing": "split",
    "strict_canal": True,
    "time_zone": "+09:30",
    "quarantine": False,
    "connection_charset": "latin1",
    "tsdb_enable": False,
    "gtid_on": True,
}
"""What changes the entries of a change, each with another value than the default."""


def shape(**values: object) -> dict[str, Any]:
    given: dict[str, Any] = {"destination": "shop", "master_address": "db", "db_username": "cdc"}
    return MysqlConfig(**(given | values)).shape()


@pytest.mark.parametrize("name", SHAPING)
def test_what_changes_entries_is_part_of_their_shape(name: str) -> None:
    changed = {key for key, value in shape(**{name: SHAPING[name]}).items() if value != shape()[key]}
    assert changed == {MysqlConfig.model_fields[name].alias}


def test_nothing_else_is_part_of_the_shape_and_a_long_value_is_not_kept_whole() -> None:
    assert len(shape()) == len(SHAPING) + len(["masks", "codec", "schema history"])
    assert shape(master_address="other", slave_id=7, store="mixed") == shape()
    assert shape(time_zone=None)["sluice.instance.timeZone"], "that of the process has a name"
    long = "|".join([r"shop\.t"] * 1000)
    one, other = (shape(filter_regex=long + end)["canal.instance.filter.regex"] for end in "ab")
    assert one != other
    assert len(one) < 400


def test_the_standby_takes_the_place_of_the_master_with_its_own_place_to_begin_at() -> None:
    config = MysqlConfig(
        destination="example",
        master_address=Address("db1"),
        standby_address=Address("db2", 3307),
        standby_journal_name="bin.000007",
        standby_position=120,
        master_journal_name="bin.000003",
        db_username="canal",
    )
    assert (config.in_use, list(config.others)) == ("db1:3306", ["db2:3307"])
    other = config.using(InUse("db2:3307", "0-1-4-5"))
    assert (other.in_use, list(other.others)) == ("db2:3307", ["db1:3306"])
    assert (other.master_journal_name, other.master_position) == ("bin.000007", 120)
    assert (other.standby_journal_name, other.standby_position) == ("bin.000003", None)
    assert other.accepted == "0-1-4-5"
    back = other.using(InUse("db1:3306"))
    assert back == config
    assert config.using(None) is config
    assert config.using(InUse("db9:3306")) is config


def test_a_source_is_asked_whether_it_lives_as_canal_does_it() -> None:
    settings: dict[str, Any] = {"destination": "example", "master_address": Address("db1"), "db_username": "canal"}
    assert MysqlConfig(**settings).probing is None
    alone = MysqlConfig(**settings, detecting_enable=True, heartbeat_ha_enable=True)
    assert alone.probing == Probing(3, 3, switches=False)
    assert "canal.instance.standby.address" in "".join(alone.warnings())
    both = MysqlConfig(**settings, detecting_enable=True, heartbeat_ha_enable=True, standby_address=Address("db2"))
    assert both.probing == Probing(3, 3, switches=True)
    assert both.warnings() == []
    assert both.for_reader().probing is None
    assert alone.others == ()
    with pytest.raises(ValueError, match=r"is that of canal\.instance\.master\.address"):
        MysqlConfig(**settings, standby_address=Address("db1"))
    with pytest.raises(ValueError, match=r"needs canal\.instance\.standby\.journal\.name"):
        MysqlConfig(**settings, standby_position=4)


def test_the_first_of_several_processes_has_the_pump(conf: Conf) -> None:
    conf.write("canal.properties", "sluice.pump.listen = 127.0.0.1\nsluice.pump.clusterId = 1\n")
    assert [conf.read(share=Share(number, 2)).has_pump for number in range(2)] == [True, False]
    assert conf.read(share=Share(0, 2)).addresses.front(PumpConfig).port == 8250


def test_each_of_several_processes_has_a_part_of_the_destinations_and_names_the_holder_of_others(conf: Conf) -> None:
    names = [f"shop{number}" for number in range(1, 9)]
    conf.write("canal.properties", f"canal.destinations = {','.join(names)}\n{SOURCE}")
    parts = [conf.read(share=Share(number, 3)) for number in range(3)]
    assert [part.destinations() for part in parts] == [
        ["shop1", "shop8"],
        ["shop6"],
        ["shop2", "shop3", "shop4", "shop5", "shop7"],
    ]
    assert [tuple(front.port for front in part.fronts[:2]) for part in parts] == [
        (11180, 11111),
        (11181, 11112),
        (11182, 11113),
    ]
    with pytest.raises(FencedError, match="process 2") as raised:
        parts[0].instance("shop2")
    assert raised.value.active == "http://127.0.0.1:11182"
    assert parts[2].instance("shop2").destination == "shop2"


@pytest.mark.parametrize(
    ("count", "text", "complaint"),
    [
        (0, "", "1 to 64"),
        (65, "", "1 to 64"),
        (2, "canal.zkServers = zk:2181\ncanal.register.ip = 10.0.0.1", "canal.zkServers is set"),
        (2, "sluice.http.host = 0.0.0.0", "needs canal.register.ip"),
        (2, "sluice.http.port = 0", "sluice.http.port = 0"),
        (4, "canal.port = 65533", r"canal.port = 65533: .* set one from 1 to 65532"),
        (2, "sluice.http.port = 11110", "overlap"),
        (2, "sluice.http.port = 11112", "overlap"),
    ],
)
def test_processes_that_cannot_be_are_refused_with_what_to_set(
    conf: Conf, count: int, text: str, complaint: str
) -> None:
    conf.write("canal.properties", text)
    with pytest.raises(ConfigError, match=complaint):
        conf.read().addresses.require_processes(count)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "sluice.http.port = 0"),
        (64, ""),
        (3, "canal.port = 65533"),
        (2, "sluice.http.host = 0.0.0.0\ncanal.register.ip = 10.0.0.1"),
        (2, "sluice.http.port = 11111\ncanal.withoutNetty = true"),
    ],
)
def test_processes_that_have_ports_and_an_address_are_taken(conf: Conf, count: int, text: str) -> None:
    conf.write("canal.properties", text)
    conf.read().addresses.require_processes(count)
    parts = [conf.read(share=Share(number, count)) for number in range(count)]
    ports = [front.port for part in parts for front in served(part.fronts)]
    assert len(set(ports)) == len(ports)
    assert max(ports) < 1 << 16


def test_a_view_has_its_own_tables_and_all_else_of_its_destination(conf: Conf) -> None:
    conf.write("canal.properties", "canal.destinations = orders,shop")
    conf.write(
        "shop/instance.properties", SOURCE + "canal.instance.filter.regex = shop\\\\..*\nsluice.instance.timeZone = UTC"
    )
    own = "canal.instance.filter.regex = shop\\\\.orders,crm\\\\..*\nsluice.instance.clientExpiry = 5"
    conf.write("orders/instance.properties", f"sluice.instance.route = shop\n{own}\ncanal.instance.dbUsername =")
    configuration = conf.read()
    configuration.check()
    found, main = configuration.instance("orders"), configuration.instance("shop")
    assert (found.destination, found.route, found.client_expiry, main.client_expiry) == ("orders", "shop", 5, 0)
    assert found.main == main == main.main
    assert (found.time_zone, found.address) == (main.time_zone, main.address)
    passes = found.table_filter().accepts
    tables = [("shop", "orders"), ("shop", "items"), ("crm", "notes")]
    assert [passes(*it) for it in tables] == [True, False, False]
    assert found.table_filter().explain("crm", "notes").reason.startswith("its main destination leaves it out")
    assert configuration.views_first(["shop", "orders"]) == ["orders", "shop"]


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (
            "sluice.instance.route = orders",
            "orders/instance.properties:1: sluice.instance.route: a destination cannot be a view of itself",
        ),
        ("sluice.instance.route = other", "there is no destination 'other'"),
        ("sluice.instance.route = view", "sluice.instance.route: view is itself a view, of shop: name that one"),
        ("sluice.instance.route = sh op", "there is no destination 'sh op'"),
        ("sluice.instance.route = open", "open has sluice.instance.sharedFilter = true"),
        (
            "sluice.instance.route = narrow\ncanal.instance.filter.regex = shop\\\\.orders",
            "canal.instance.filter.regex of orders: the filter 'shop\\.orders' matches nothing that 'crm\\..*'",
        ),
        *(
            (
                f"sluice.instance.route = shop\n{key} = {value}",
                f"{key} belongs to destination shop, of which orders is a view",
            )
            for key, value in {
                "canal.instance.master.address": "db",
                "canal.instance.dbPassword": "secret",
                "canal.instance.filter.field": "a.b:c",
                "sluice.instance.filter.where": "a.b: c = 1",
                "sluice.instance.filter.mask": "a.b.c: null",
                "sluice.instance.timeZone": "UTC",
                "sluice.instance.store": "mixed",
                "canal.instance.parser.strictCanal": "true",
                "canal.instance.memory.buffer.size": "64",
                "sluice.instance.detachAfter": "1",
            }.items()
        ),
    ],
)
def test_a_view_that_cannot_be_is_refused_with_key_and_destination(conf: Conf, lines: str, complaint: str) -> None:
    conf.write("canal.properties", "canal.destinations = orders")
    conf.write("shop/instance.properties", SOURCE)
    conf.write("open/instance.properties", SOURCE + "sluice.instance.sharedFilter = true")
    conf.write("view/instance.properties", "sluice.instance.route = shop")
    conf.write("narrow/instance.properties", SOURCE + "canal.instance.filter.regex = crm\\\\..*")
    conf.write("orders/instance.properties", lines)
    with pytest.raises(ConfigError) as caught:
        conf.read().instance("orders")
    assert complaint in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_key_in_the_main_file_is_that_of_all_destinations_and_refused_for_none(conf: Conf) -> None:
    conf.write("canal.properties", "canal.destinations = orders\nsluice.instance.timeZone = UTC" + SOURCE)
    conf.write("shop/instance.properties", "")
    conf.write("orders/instance.properties", "sluice.instance.route = shop")
    assert conf.read().instance("orders").time_zone == "UTC"
    conf.write("canal.properties", "canal.destinations = orders\nsluice.instance.route = shop" + SOURCE)
    with pytest.raises(ConfigError, match="shop is itself a view"):
        conf.read().instance("orders")


def test_a_view_is_in_the_process_of_its_main_destination(conf: Conf) -> None:
    conf.write("canal.properties", "canal.destinations = shop1,shop2,shop6")
    conf.write("shop6/instance.properties", SOURCE)
    for view in ("shop1", "shop2"):
        conf.write(f"{view}/instance.properties", "sluice.instance.route = shop6")
    parts = [conf.read(share=Share(number, 3)) for number in range(3)]
    assert [part.destinations() for part in parts] == [[], ["shop1", "shop2", "shop6"], []]
    assert parts[1].instance("shop2").route == "shop6"
    conf.write("shop2/instance.properties", r"sluice.instance.route = \uZZZZ")  # it stays where it was
    assert [part.has("shop2") for part in parts] == [False, True, False]
    with pytest.raises(FencedError, match="process 1") as raised:
        parts[0].require("shop1")
    assert raised.value.active == "http://127.0.0.1:11181"
