"""Keys of Canal that Sluice knows and that have no effect in it, each with the reason that its user is told."""

import re

QUEUES = "changes are fetched by clients; Sluice sends to no message queue"
ADMIN = "there is no admin server; destinations are configured by files"
CORES = "one compiled loop decodes a destination"
KERNEL = "the kernel sizes the buffers of connections"
HISTORY = "the history of table schemas is not recorded yet"
STANDBY = "switching to a standby source is not supported yet"
CLOUD = "binlogs of cloud storage are not read"
STORES = "certificates are PEM files here: sluice.instance.sslCa, sluice.instance.sslCert, sluice.instance.sslKey"

WITHOUT_EFFECT = {
    r"canal\.id": "Canal itself does not use it",
    r"canal\.metrics\.pull\.port": "metrics are at /metrics of the HTTP API",
    r"canal\.admin\..*": ADMIN,
    r"canal\.instance\.(global|[^.]+)\.manager\.address": ADMIN,
    r"canal\.instance\.(global|[^.]+)\.lazy": "every destination starts with the server",
    r"canal\.instance\.[^.]+\.mode": ADMIN,
    r"canal\.instance\.memory\.rawEntry": "entries are always kept encoded",
    r"canal\.instance\.detecting\..*": STANDBY,
    r"canal\.instance\.standby.*": STANDBY,
    r"canal\.instance\.fallbackIntervalInSeconds": STANDBY,
    r"canal\.instance\.master[12]\..*": "a destination has one source; several are not merged yet",
    r"canal\.instance\.transaction\.size": "transactions are not gathered in a buffer of their own",
    r"canal\.instance\.network\.(receive|send)BufferSize": KERNEL,
    r"canal\.instance\.filter\.druid\.ddl": "there is one parser of DDL",
    r"canal\.instance\.parser\.parallel.*": CORES,
    r"canal\.instance\.tsdb\..*": HISTORY,
    r"canal\.instance\.rds\..*": CLOUD,
    r"canal\.aliyun\..*": CLOUD,
    r"canal\.instance\.multi\.stream\.on": "PolarDB-X is not supported",
    r"canal\.instance\.(master|standby)\.(tlsVersions|(trust|client)CertificateKeyStore.*)": STORES,
    r"canal\.instance\.(enableDruid|pwdPublicKey)": "write the password itself, or put it into the environment",
    r"canal\.socketChannel": "there is one kind of connection to the source",
    r"canal\.mq\..*": QUEUES,
    r"(kafka|rocketmq|rabbitmq|pulsarmq)\..*": QUEUES,
}
"""Regular expressions of keys, the first that matches counts."""

_COMPILED = [(re.compile(pattern), reason) for pattern, reason in WITHOUT_EFFECT.items()]


def why_without_effect(key: str) -> str | None:
    """Return the reason why ``key``, which Canal knows, has no effect; None when it is no such key."""
    return next((reason for pattern, reason in _COMPILED if pattern.fullmatch(key)), None)
