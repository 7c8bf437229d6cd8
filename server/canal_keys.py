"""Keys of Canal that Sluice knows and that have no effect in it, each with the reason, and what to do instead."""

import re

QUEUES = (
    "they are for canal.serverMode = kafka, or for queues that Sluice does not send to: let a consumer fetch the"
    " changes and send them on"
)
BATCHES = "batches are cut by sluice.output.mq.maxBytes, and sent as soon as there is something: nothing to do"
ADMIN = "there is no admin server: configure destinations by files, start and stop them over HTTP"
CORES = "one compiled loop decodes a destination: nothing to do"
KERNEL = "the kernel sizes the buffers of connections: nothing to do"
HISTORY = "the history of tables notes each statement, and needs no snapshots in between: nothing to do"
CLOUD = "binlogs of cloud storage are not read: let the source keep them as long as a consumer may be away"
DRUID = "druid's encryption is not known: put the password itself into SLUICE_INSTANCE_DB_PASSWORD"
STORES = "certificates are PEM files here: set sluice.instance.sslCa, sluice.instance.sslCert, sluice.instance.sslKey"

WITHOUT_EFFECT = {
    r"canal\.id": "Canal itself does not use it: nothing to do",
    r"canal\.metrics\.pull\.port": "metrics have no port of their own: let Prometheus ask for /metrics of the HTTP API",
    r"canal\.admin\..*": ADMIN,
    r"canal\.instance\.(global|[^.]+)\.manager\.address": ADMIN,
    r"canal\.instance\.(global|[^.]+)\.lazy": "every destination starts with the server: nothing to do",
    r"canal\.instance\.[^.]+\.mode": ADMIN,
    r"canal\.instance\.memory\.rawEntry": "entries are always kept encoded: nothing to do",
    r"canal\.instance\.master[12]\..*": "several sources are not merged yet: make a destination for each",
    r"canal\.instance\.transaction\.size": "transactions are gathered in no buffer: nothing to do",
    r"canal\.instance\.network\.(receive|send)BufferSize": KERNEL,
    r"canal\.instance\.filter\.druid\.ddl": "there is one parser of DDL, not druid's: nothing to do",
    r"canal\.instance\.parser\.parallel.*": CORES,
    r"canal\.instance\.tsdb\..*": HISTORY,
    r"canal\.instance\.rds\..*": CLOUD,
    r"canal\.aliyun\..*": CLOUD,
    r"canal\.instance\.multi\.stream\.on": "PolarDB-X is not supported: stay with Canal for it",
    r"canal\.instance\.(master|standby)\.(tlsVersions|(trust|client)CertificateKeyStore.*)": STORES,
    r"canal\.instance\.(enableDruid|pwdPublicKey)": DRUID,
    r"canal\.socketChannel": "there is one kind of connection to the source: nothing to do",
    r"canal\.mq\.(canalBatchSize|canalGetTimeout|(send|build)\.thread\.size)": BATCHES,
    r"canal\.mq\..*": QUEUES,
    r"(kafka|rocketmq|rabbitmq|pulsarmq)\..*": QUEUES,
}
"""Regular expressions of keys, the first that matches counts."""

_COMPILED = [(re.compile(pattern), reason) for pattern, reason in WITHOUT_EFFECT.items()]
_CATCH_ALL = [re.compile(pattern) for pattern in WITHOUT_EFFECT if pattern.endswith(r"\..*")]


def why_without_effect(key: str) -> str | None:
    """Return the reason why ``key``, which Canal knows, has no effect; None when it is not such a key."""
    return next((reason for pattern, reason in _COMPILED if pattern.fullmatch(key)), None)


def may_be_a_mistake(key: str) -> bool:
    """Whether nothing is known of ``key`` but the group that it belongs to."""
    pattern = next((it for it, _ in _COMPILED if it.fullmatch(key)), None)
    return pattern in _CATCH_ALL
