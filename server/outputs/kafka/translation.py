"""The settings of Java's producer, as Canal's files have them, for librdkafka, which sends here."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ....instance.properties import Property, nearest
from ....protocol.errors import ConfigError

SAME: Final = frozenset(
    {
        *("bootstrap.servers", "client.id", "client.rack", "client.dns.lookup", "security.protocol", "sasl.mechanism"),
        *("compression.type", "request.timeout.ms", "transaction.timeout.ms"),
        *("max.in.flight.requests.per.connection", "metadata.max.age.ms", "connections.max.idle.ms"),
        *("reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms", "retry.backoff.max.ms"),
        *("ssl.key.password", "ssl.keystore.password"),
    }
)
"""Settings that have one name and one meaning in both."""
RENAMED: Final = {
    "max.request.size": "message.max.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.cipher.suites": "ssl.cipher.suites",
}
"""Java's names, and librdkafka's."""
OWN: Final = frozenset(
    {
        *("broker.address.family", "compression.codec", "compression.level", "debug"),
        "enable.ssl.certificate.verification",
        *("message.max.bytes", "queue.buffering.max.kbytes", "queue.buffering.max.messages"),
        *("sasl.mechanisms", "sasl.password", "sasl.username", "socket.connection.setup.timeout.ms"),
        *("socket.keepalive.enable", "socket.nagle.disable", "socket.timeout.ms", "ssl.ca.location", "ssl.ca.pem"),
        *("ssl.certificate.location", "ssl.certificate.pem", "ssl.crl.location", "ssl.key.location", "ssl.key.pem"),
        *("ssl.endpoint.identification.algorithm", "topic.metadata.refresh.interval.ms"),
        "topic.metadata.propagation.max.ms",
    }
)
"""Settings of librdkafka that may be given by its own names."""
OTHERS: Final = frozenset(
    {
        *("buffer.memory", "sasl.jaas.config", "ssl.keystore.location", "ssl.keystore.type", "ssl.truststore.location"),
        *("ssl.truststore.type", "ssl.truststore.password", "kerberos.enable"),
    }
)
"""Settings of Java that are taken apart."""
ALWAYS: Final = {
    "acks": "all: anything less loses changes when a broker dies",
    "enable.idempotence": "true: else changes come out of order after an error",
    "retries": "for ever: nothing is left out",
    "delivery.timeout.ms": "no limit: nothing is left out",
    "max.block.ms": "no limit: nothing is left out",
}
"""Settings that are always the same here, and what they are."""
NEEDLESS: Final = re.compile(
    r"(key|value)\.serializer|transactional\.id|kerberos\.(krb5|jaas)\.file|interceptor\.classes|metric.*|partitioner\..*"
    r"|linger\.ms|batch\.size|queue\.buffering\.max\.ms"
)
"""Settings that mean nothing here, as Canal sets them itself, as they are about Java, or as they say how long to wait
for more records: what is ready is sent at once, in requests as large as they may be."""
JAAS: Final = re.compile(r"""\s*[\w.]*\.(Plain|Scram)LoginModule\s+required\b(?P<options>.*?);?\s*""", re.DOTALL)
OPTION: Final = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')""")
SECRETS: Final = ("sasl.password", "ssl.key.password", "ssl.keystore.password", "ssl.key.pem")
"""Settings of librdkafka that no log may show."""
DEFAULTS: Final = {"message.max.bytes": "1048576", "queue.buffering.max.kbytes": "32768", "client.id": "sluice"}
"""The first two as in Canal."""
BATCH: Final = 1_000_000
"""Bytes of records that make a request, unless one alone is larger."""
FIXED: Final = {
    "acks": "all",
    "allow.auto.create.topics": False,  # a topic that vanishes is an error, not an empty topic
    "batch.size": BATCH,
    "delivery.report.only.error": True,
    "enable.idempotence": True,
    "linger.ms": 60_000,  # its thread spins while older records wait for the request under way; see `KafkaTarget`
    "log_level": 2,  # what is in the way is told by errors
    "message.timeout.ms": 0,
}


def names() -> frozenset[str]:
    """Return all settings that have a meaning here, by their names without the prefix ``kafka.``."""
    return SAME | RENAMED.keys() | OWN | OTHERS | ALWAYS.keys()


@dataclass(slots=True)
class Translated:
    """What librdkafka is given, and what is to be said of it."""

    settings: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    """Complaints about names that neither knows."""
    unlike: list[str] = field(default_factory=list)
    """What is done otherwise than is written."""

    @property
    def secrets(self) -> list[str]:
        """Values that no log may show."""
        return [self.settings[name] for name in SECRETS if self.settings.get(name)]

    @property
    def largest(self) -> int:
        """Bytes that a request, and so a record, may have."""
        return int(self.settings["message.max.bytes"])


def translate(given: Mapping[str, Property], folder: Path) -> Translated:
    """Translate settings by their names without the prefix ``kafka.``; relative paths start at ``folder``.

    Raises ConfigError for what only Java can do, and says what to set instead.
    """
    given = {name: item for name, item in given.items() if item.value}
    made = Translated(dict(DEFAULTS))
    settings = made.settings
    for name, item in given.items():
        if name in SAME or name in OWN:
            settings[name] = item.value
        elif name in RENAMED:
            settings[RENAMED[name]] = item.value
        elif name in ALWAYS:
            if item.value not in (ALWAYS[name].partition(":")[0], "-1", "2147483647"):
                made.unlike.append(f"{item.origin}: kafka.{name} is not followed: it is always {ALWAYS[name]}")
        elif name not in OTHERS and not NEEDLESS.fullmatch(name):
            meant = f"; is kafka.{found} meant?" if (found := nearest(name, names())) else ""
            made.unknown.append(f"{item.origin}: kafka.{name} is unknown to Java's producer and to librdkafka{meant}")
    _refuse_kerberos(given)
    if memory := given.get("buffer.memory"):
        settings["queue.buffering.max.kbytes"] = str(_number(memory, "buffer.memory") // 1024)
    _check_numbers(settings, given)
    if jaas := given.get("sasl.jaas.config"):
        settings["sasl.username"], settings["sasl.password"] = _credentials(jaas)
    _translate_stores(settings, given)
    for name in settings:
        if name.endswith(".location"):
            settings[name] = str(folder / settings[name])
    return made


def _refuse_kerberos(given: Mapping[str, Property]) -> None:
    for name, wanted in (("kerberos.enable", "TRUE"), ("sasl.mechanism", "GSSAPI"), ("sasl.mechanisms", "GSSAPI")):
        if name in given and given[name].value.upper() == wanted:
            raise ConfigError(
                f"{given[name].origin}: kafka.{name}: Kerberos (GSSAPI) is not supported: let the broker offer"
                " SASL_SSL, and set"
                " kafka.sasl.mechanism = SCRAM-SHA-512 with kafka.sasl.username and kafka.sasl.password"
            )


def _check_numbers(settings: dict[str, str], given: Mapping[str, Property]) -> None:
    """Have a queue that takes the largest record."""
    origin = next((given[it] for it in ("max.request.size", "message.max.bytes") if it in given), Property("", ""))
    largest = _number(Property(settings["message.max.bytes"], origin.origin), "max.request.size")
    kbytes = _number(Property(settings["queue.buffering.max.kbytes"], ""), "queue.buffering.max.kbytes")
    settings["queue.buffering.max.kbytes"] = str(max(kbytes, 2 * largest // 1024))


def _number(item: Property, name: str) -> int:
    if not item.value.isdecimal():
        raise ConfigError(f"{item.origin}: kafka.{name}: has to be a whole number")
    return int(item.value)


def _credentials(item: Property) -> tuple[str, str]:
    """Return user and password of a line for Java's login modules."""
    match = JAAS.fullmatch(item.value)
    options = {name: double or single for name, double, single in OPTION.findall(match["options"])} if match else {}
    if not {"username", "password"} <= options.keys():
        raise ConfigError(
            f"{item.origin}: kafka.sasl.jaas.config: only PlainLoginModule and ScramLoginModule are understood, with"
            ' username="…" and password="…"; or set kafka.sasl.username and kafka.sasl.password'
        )
    user, password = (re.sub(r"\\(.)", r"\1", options[name]) for name in ("username", "password"))
    return user, password


def _translate_stores(settings: dict[str, str], given: Mapping[str, Property]) -> None:
    """Translate the places of certificates."""
    for store, what in (("truststore", "ssl.ca.location"), ("keystore", "ssl.certificate.location")):
        location = given.get(f"ssl.{store}.location")
        if location is None:
            continue
        kind = given.get(f"ssl.{store}.type", Property("JKS", "")).value.upper()
        if kind == "PKCS12" and store == "keystore":
            settings["ssl.keystore.location"] = location.value
        elif kind == "PEM":
            settings[what] = location.value
            if store == "keystore":
                settings["ssl.key.location"] = location.value
        else:
            raise ConfigError(
                f"{location.origin}: kafka.ssl.{store}.location: Java's key stores ({kind}) cannot be read here."
                f" Convert it: keytool -importkeystore -srckeystore {location.value} -destkeystore store.p12"
                f" -deststoretype PKCS12; openssl pkcs12 -in store.p12 -out {store}.pem -nodes; then set"
                f" kafka.ssl.{store}.type = PEM and kafka.ssl.{store}.location = {store}.pem"
            )
