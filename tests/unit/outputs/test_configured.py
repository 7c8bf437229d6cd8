"""Which outputs a destination has, and what their settings mean."""

import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from sluice.instance.properties import Property
from sluice.protocol.errors import ConfigError
from sluice.server.config import Configuration
from sluice.server.config.warnings import find_warnings, of_outputs
from sluice.server.outputs.forms.registry import rules_of
from sluice.server.outputs.kafka.settings import KafkaSettings
from sluice.server.outputs.kafka.translation import FIXED, SAME, translate
from sluice.server.outputs.registry import make
from sluice.server.outputs.settings import Output
from sluice.server.tcp.config import TcpConfig

SOURCE = """
canal.instance.master.address = 127.0.0.1:3306
canal.instance.dbUsername = cdc
canal.instance.dbPassword = secret
"""
SHIPPED = """
canal.destinations = shop
canal.serverMode = kafka
canal.mq.flatMessage = true
canal.mq.canalBatchSize = 50
canal.mq.canalGetTimeout = 100
canal.mq.accessChannel = local
canal.mq.database.hash = true
canal.mq.send.thread.size = 30
canal.mq.build.thread.size = 8
kafka.bootstrap.servers = 127.0.0.1:9092
kafka.acks = all
kafka.compression.type = none
kafka.batch.size = 16384
kafka.linger.ms = 1
kafka.max.request.size = 1048576
kafka.buffer.memory = 33554432
kafka.max.in.flight.requests.per.connection = 1
kafka.retries = 0
kafka.kerberos.enable = false
kafka.kerberos.krb5.file = "../conf/kerberos/krb5.conf"
kafka.kerberos.jaas.file = "../conf/kerberos/jaas.conf"
"""
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="a\\"b;c";'


class Conf:
    """A conf folder with a destination ``shop``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "shop").mkdir(parents=True)
        self.write("canal.destinations = shop\n")

    def write(self, main: str, own: str = "") -> None:
        (self.folder / "canal.properties").write_text(main)
        (self.folder / "shop" / "instance.properties").write_text(SOURCE + own)

    def read(self, environ: dict[str, str] | None = None) -> Configuration:
        return Configuration(self.folder, environ or {})


@pytest.fixture
def conf(tmp_path: Path) -> Conf:
    return Conf(tmp_path / "conf")


def settings_of(output: Output) -> KafkaSettings:
    assert isinstance(output.settings, KafkaSettings)
    return output.settings


def given(**values: str) -> dict[str, Property]:
    return {key.replace("__", "."): Property(value, f"f:{n}") for n, (key, value) in enumerate(values.items(), 1)}


def translated(**values: str) -> dict[str, str]:
    return translate(given(**values), Path("/conf")).settings


def test_without_a_word_of_it_there_is_no_output(conf: Conf) -> None:
    assert conf.read().outputs("shop") == []
    assert conf.read().addresses.front(TcpConfig).is_served


def test_canals_own_files_for_kafka_make_one_output_a_destination(conf: Conf) -> None:
    conf.write(SHIPPED, "canal.mq.topic = orders\ncanal.mq.partitionsNum = 3\ncanal.mq.partitionHash = .*\\\\..*:id\n")
    configuration = conf.read()
    (output,) = configuration.outputs("shop")
    assert (output.name, output.client_id, settings_of(output).form) == ("mq", 1001, "flat")
    assert rules_of(output, settings_of(output))[:5] == ("orders", "", 0, 3, r".*\..*:id")
    assert not configuration.addresses.front(TcpConfig).is_served
    configuration.check()
    assert [it for it in find_warnings(configuration) if "unknown" in it] == []
    unknown, (unlike,) = of_outputs(configuration)
    assert unknown == []
    assert unlike == (
        f"{conf.folder}/canal.properties:19: kafka.retries is not followed: it is always for ever: nothing is left out"
    )
    assert translate(output.library, conf.folder).settings == {
        "bootstrap.servers": "127.0.0.1:9092",
        "compression.type": "none",
        "message.max.bytes": "1048576",
        "queue.buffering.max.kbytes": "32768",
        "max.in.flight.requests.per.connection": "1",
        "client.id": "sluice",
    }


def test_the_keys_of_older_canals_mean_what_they_meant(conf: Conf) -> None:
    conf.write(
        "canal.destinations = shop\ncanal.serverMode = kafka\ncanal.mq.servers = a:1\ncanal.mq.maxRequestSize = 2000\n"
        "canal.mq.properties.security.protocol = SSL\ncanal.mq.flatMessage = false\ncanal.mq.transaction = true\n"
    )
    (output,) = conf.read().outputs("shop")
    made = translate(output.library, conf.folder).settings
    assert (made["bootstrap.servers"], made["message.max.bytes"], made["security.protocol"]) == ("a:1", "2000", "SSL")
    assert (settings_of(output).form, settings_of(output).transactional) == ("canal", True)


def test_an_output_is_the_same_wherever_its_lines_stand(conf: Conf) -> None:
    line = "kafka.bootstrap.servers = a:1\n"
    conf.write(f"canal.destinations = shop\ncanal.serverMode = kafka\n{line}")
    (before,) = conf.read().outputs("shop")
    conf.write(f"# moved\n{line}canal.destinations = shop\ncanal.serverMode = kafka\n", "canal.mq.nothing = 1\n")
    (moved,) = conf.read().outputs("shop")
    assert moved.is_same(before)
    conf.write("canal.destinations = shop\ncanal.serverMode = kafka\nkafka.bootstrap.servers = b:1\n")
    (other,) = conf.read().outputs("shop")
    assert not other.is_same(before)


def test_an_output_can_have_conditions_on_rows(conf: Conf) -> None:
    conf.write(
        "canal.destinations = shop\nkafka.bootstrap.servers = a:1\n",
        "sluice.outputs = a\nsluice.output.a.where = shop.orders: total > 10\n",
    )
    (output,) = conf.read().outputs("shop")
    assert output.settings.where == "shop.orders: total > 10"


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("total > 10", ".* is not a condition of a table"),
        (f"shop.orders: note LIKE '{'x' * 300}'", "the patterns of LIKE have 300 characters in all, more than 256"),
    ],
)
def test_conditions_of_an_output_are_checked_as_those_of_other_clients(conf: Conf, condition: str, reason: str) -> None:
    conf.write(
        "canal.destinations = shop\nkafka.bootstrap.servers = a:1\n",
        f"sluice.outputs = a\nsluice.output.a.where = {condition}\n",
    )
    with pytest.raises(ConfigError, match=rf"sluice\.output\.a\.where: {reason}"):
        conf.read().outputs("shop")


def test_a_destination_can_have_several_outputs_with_settings_of_their_own(conf: Conf) -> None:
    conf.write(
        "canal.destinations = shop\nkafka.bootstrap.servers = a:1\nkafka.request.timeout.ms = 5000\n",
        "sluice.outputs = a, b\nsluice.output.a.clientId = 7\nsluice.output.a.filter = shop\\\\.orders\n"
        "sluice.output.b.kafka.request.timeout.ms = 9000\nsluice.output.b.format = canal\n",
    )
    configuration = conf.read({"SLUICE_OUTPUT_A_TOPIC": "orders", "SLUICE_KAFKA_SASL_PASSWORD": "secret"})
    a, b = configuration.outputs("shop")
    assert (a.name, a.client_id, a.settings.filter, settings_of(a).topic) == ("a", 7, r"shop\.orders", "orders")
    assert (b.name, b.settings.client_id, settings_of(b).form) == ("b", None, "canal")
    timeouts = [translate(it.library, conf.folder).settings["request.timeout.ms"] for it in (a, b)]
    assert timeouts == ["5000", "9000"]
    assert translate(a.library, conf.folder).secrets == ["secret"]
    assert find_warnings(configuration) == []
    assert configuration.addresses.front(TcpConfig).is_served


def test_the_client_of_canals_own_output_is_canals_unless_another_is_configured(conf: Conf) -> None:
    main = "canal.destinations = shop\ncanal.serverMode = kafka\nkafka.bootstrap.servers = a:1\n"
    for own, expected in (("", 1001), ("sluice.output.mq.clientId =\n", 1001), ("sluice.output.mq.clientId = 7\n", 7)):
        conf.write(main, own)
        assert [it.client_id for it in conf.read().outputs("shop")] == [expected]
    conf.write(main, "sluice.outputs = a\nsluice.output.a.clientId = 1001\n")
    with pytest.raises(ConfigError, match="the outputs mq and a are the same client, 1001"):
        conf.read().outputs("shop")


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (
            "sluice.output.a.window = many\n",
            r"instance.properties:\d+: sluice.output.a.window: has to be a whole number",
        ),
        ("sluice.output.a.type = pigeon\n", "sluice.output.a.type has to be kafka"),
        ("sluice.output.a.where = total > 10\n", "is not a condition of a table"),
        ("sluice.output.a.filter = shop.(\n", r"sluice.output.a.filter: .*shop\.\("),
        ("sluice.output.a.partitionHash = (:id\n", "canal.mq.partitionHash: rule"),
    ],
)
def test_one_with_a_mistake_is_due_what_can_be_understood_and_the_others_are_as_configured(
    conf: Conf, mistake: str, said: str
) -> None:
    conf.write(
        "canal.destinations = shop\nkafka.bootstrap.servers = a:1\n",
        "sluice.outputs = a,b\nsluice.output.a.clientId = 7\nsluice.output.a.filter = shop\\\\.orders\n"
        f"sluice.output.a.start = latest\n{mistake}",
    )
    a, b = conf.read().outputs_as_found("shop")
    assert re.search(said, a.mistake)
    assert (a.client_id, a.settings.start, b.mistake) == (7, "latest", "")
    assert a.settings.filter == ("shop.(" if ".filter" in mistake else r"shop\.orders")
    with pytest.raises(ConfigError, match=said):
        conf.read().outputs("shop")


def test_one_whose_name_or_client_is_a_mistake_is_there(conf: Conf) -> None:
    conf.write("canal.destinations = shop\n", "sluice.outputs = a b,c,c\nsluice.output.c.clientId = many\n")
    found = conf.read().outputs_as_found("shop")
    assert [(it.name, it.settings.client_id) for it in found] == [("a b", None), ("c", None)]
    assert "'a b' is not a name" in found[0].mistake
    assert "sluice.output.c.clientId: has to be a whole number" in found[1].mistake


def test_a_topic_of_tidb_is_that_of_its_cluster_and_never_has_transactions(conf: Conf) -> None:
    conf.write(
        "canal.destinations = shop\nkafka.bootstrap.servers = a:1\ncanal.zkServers = z:1\n",
        "sluice.outputs = a,b\nsluice.output.a.format = tidb\nsluice.output.a.clusterId = 7\n"
        "sluice.output.b.format = tidb\nsluice.output.b.topic = x\nsluice.output.b.clientId = 1002\n",
    )
    outputs = conf.read().outputs("shop")
    targets = [make(it, lambda: "group") for it in outputs]
    assert [rules_of(it, settings_of(it)).topic for it in outputs] == [
        "7_obinlog",
        "x",
    ]
    assert [(it.takes_transactions, it.keeps_place) for it in targets] == [(True, False)] * 2


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (
            "sluice.outputs = a,b\nsluice.output.a.clientId = 7\nsluice.output.b.clientId = 7\n",
            "the outputs a and b are the same client, 7: set sluice.output.b.clientId to another number",
        ),
        (
            "sluice.outputs = a\nsluice.output.a.type = pigeon\n",
            "instance.properties:6: sluice.output.a.type has to be",
        ),
        ("sluice.outputs = a\nsluice.output.a.window = 0\n", "sluice.output.a.window: has to be 1 or more"),
        ("sluice.outputs = a/b\n", "'a/b' is not a name"),
        ("sluice.outputs = a\nsluice.output.a.dynamicTopic = shop\\\\.(\n", "dynamicTopic"),
        ("sluice.outputs = a\nkafka.kerberos.enable = true\n", "Kerberos (GSSAPI) is not supported"),
        *(
            (
                f"sluice.outputs = a\nsluice.output.a.format = tdsql\nsluice.output.a.{line}\n",
                f"output a of shop: sluice.output.a.{key} cannot be used with format tdsql",
            )
            for line, key in (
                ("dynamicTopic = shop", "dynamicTopic"),
                ("partition = 1", "partition"),
                ("partitionHash = shop.goods:id", "partitionHash"),
                ("key = pk", "key"),
                ("splitKeyUpdates = true", "splitKeyUpdates"),
                ("statements = true", "statements"),
                ("late = true", "late"),
                ("onMarker = send", "onMarker = send"),
            )
        ),
        ("sluice.outputs = a\nsluice.output.a.clusterId = 7\n", "sluice.output.a.clusterId belongs to format tidb"),
        (
            "sluice.outputs = a\nsluice.output.a.format = tidb\n",
            "format tidb needs sluice.output.a.clusterId, for the topic <clusterId>_obinlog, or sluice.output.a.topic",
        ),
        *(
            (
                f"sluice.outputs = a\nsluice.output.a.format = tidb\nsluice.output.a.clusterId = 7\n{line}\n",
                said,
            )
            for line, said in (
                ("sluice.output.a.transactional = true", "a.transactional cannot be used with format tidb"),
                ("sluice.output.a.partition = 1", "sluice.output.a.partition cannot be used with format tidb"),
                ("canal.instance.parser.strictCanal = true", "format tidb cannot be used with"),
                ("canal.instance.filter.transaction.entry = true", "format tidb needs the begins and ends"),
                ("sluice.instance.sharedFilter = true", "format tidb needs sluice.instance.sharedFilter = false"),
            )
        ),
        (
            "sluice.outputs = a\nsluice.output.a.format = tdsql\ncanal.instance.filter.transaction.entry = true\n",
            "format tdsql needs the begins and ends of transactions",
        ),
    ],
)
def test_what_cannot_be_used_is_an_error_that_names_the_place(conf: Conf, own: str, said: str) -> None:
    conf.write("canal.destinations = shop\nkafka.bootstrap.servers = a:1\n", own)
    with pytest.raises(ConfigError) as caught:
        conf.read().check()
    assert said in str(caught.value)


def test_a_key_that_no_output_reads_is_named(conf: Conf) -> None:
    conf.write(
        "canal.destinations = shop\ncanal.serverMode = kafka\nkafka.bootstrap.server = a:1\n",
        "sluice.output.mq.topik = x\n",
    )
    main, own = f"{conf.folder}/canal.properties", f"{conf.folder}/shop/instance.properties"
    nobodys = "is unknown to Java's producer and to librdkafka"
    assert of_outputs(conf.read()).unknown == [
        f"{own}:5: sluice.output.mq.topik is unknown; is sluice.output.mq.topic meant?",
        f"{main}:3: kafka.bootstrap.server {nobodys}; is kafka.bootstrap.servers meant?",
    ]


def test_without_an_output_settings_of_kafka_are_said_to_have_no_effect(conf: Conf) -> None:
    conf.write("canal.destinations = shop\nkafka.acks = 1\n")
    (warning,) = find_warnings(conf.read())
    assert "they are for canal.serverMode = kafka" in warning


def complaint(settings: dict[str, Any]) -> str:
    """What librdkafka says of settings, if anything."""
    try:
        Producer(settings)
    except KafkaException as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", sorted(SAME))
def test_settings_that_java_and_librdkafka_share_are_known_to_it(name: str) -> None:
    values = {
        "security.protocol": "ssl",
        "sasl.mechanism": "PLAIN",
        "compression.type": "lz4",
        "client.dns.lookup": "use_all_dns_ips",
        "ssl.key.password": "x",
        "ssl.keystore.password": "x",
    }
    number = "5" if name == "max.in.flight.requests.per.connection" else "1000"
    settings = {"bootstrap.servers": "127.0.0.1:1", **FIXED, name: values.get(name, number)}
    assert complaint(settings) == ""
    assert "No such configuration property" in complaint({**settings, f"{name}.x": "1"})


def test_the_line_of_javas_login_module_is_taken_apart() -> None:
    made = translated(sasl__jaas__config=SCRAM, sasl__mechanism="SCRAM-SHA-512")
    assert (made["sasl.username"], made["sasl.password"]) == ("alice", 'a"b;c')


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sasl__jaas__config": "com.sun.security.auth.module.Krb5LoginModule required;"}, "only PlainLoginModule"),
        ({"sasl__mechanism": "GSSAPI"}, "f:1: kafka.sasl.mechanism: Kerberos (GSSAPI) is not supported"),
        ({"ssl__truststore__location": "trust.jks"}, "kafka.ssl.truststore.type = PEM"),
        ({"max__request__size": "1 MB"}, "f:1: kafka.max.request.size: has to be a whole number"),
    ],
)
def test_what_only_java_can_do_is_refused_with_what_to_set_instead(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        translate(given(**settings), Path())
    assert said in str(caught.value)


def test_certificates_in_pem_files_are_found_from_the_conf_folder() -> None:
    made = translated(
        ssl__truststore__type="PEM",
        ssl__truststore__location="ca.pem",
        ssl__keystore__type="PEM",
        ssl__keystore__location="own.pem",
    )
    assert made["ssl.ca.location"] == "/conf/ca.pem"
    assert made["ssl.certificate.location"] == made["ssl.key.location"] == "/conf/own.pem"


def test_the_queue_takes_the_largest_record() -> None:
    made = translated(max__request__size="100000000", buffer__memory="1048576")
    assert int(made["queue.buffering.max.kbytes"]) * 1024 >= 199_000_000


def test_transactions_without_other_servers_need_a_name(conf: Conf) -> None:
    conf.write(
        "canal.destinations = shop\ncanal.serverMode = kafka\nkafka.bootstrap.servers = a:1\n",
        "sluice.output.mq.transactional = true\n",
    )
    (output,) = conf.read().outputs("shop")
    with pytest.raises(ConfigError, match=r"set sluice\.output\.mq\.transactionalId"):
        make(output, lambda: "group")


def test_an_output_knows_when_its_destination_delivers_other_changes(conf: Conf) -> None:
    shapes = []
    for line in ("", "canal.instance.filter.black.regex = shop\\\\.a", "canal.file.flush.period = 99"):
        conf.write("canal.destinations = shop\n", f"sluice.outputs = a\n{line}\n")
        (output,) = conf.read().outputs("shop")
        shapes.append(output.shape)
    plain, filtered, flushed = shapes
    assert plain == flushed != filtered


@pytest.mark.parametrize("regex", ["shop\\\\..*,retl\\\\..*", ""])
def test_an_output_with_a_channel_is_usable_with_the_table_of_marks(conf: Conf, regex: str) -> None:
    conf.write("canal.destinations = shop\n", with_channel(regex))
    assert [it.mistake for it in conf.read().outputs("shop")] == [""]


@pytest.mark.parametrize(("regex", "own"), [("shop\\\\..*", ""), ("", "sluice.output.copy.filter = shop\\\\..*\n")])
def test_an_output_with_a_channel_is_refused_without_the_table_of_marks(conf: Conf, regex: str, own: str) -> None:
    conf.write("canal.destinations = shop\n", with_channel(regex) + own)
    with pytest.raises(ConfigError, match=r"leave out retl\._drainer_repl_mark, which it needs"):
        conf.read().outputs("shop")


def with_channel(regex: str) -> str:
    own = "sluice.outputs = copy\nsluice.output.copy.type = mysql\nsluice.output.copy.url = mysql://writer@db/\n"
    return f"{own}sluice.output.copy.channel = 7\ncanal.instance.filter.regex = {regex}\n"
