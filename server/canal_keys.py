"""Keys of Canal that Sluice knows and that have no effect in it, each with the reason, and what to do instead."""

import re

QUEUES = (
    "they are for canal.serverMode = kafka, or for queues that Sluice does not send to: let a consumer fetch the"
    " changes and send them on"
)
BATCHES = "sluice.output.mq.maxBytes limits batches, and an output sends changes as soon as it has any: nothing to do"
ADMIN = "Sluice has no admin server: configure destinations in files, start and stop them over HTTP"
CORES = "one compiled loop decodes a destination: nothing to do"
KERNEL = "the kernel sizes the socket buffers: nothing to do"
HISTORY = "the table history stores each statement and needs no snapshots: nothing to do"
CLOUD = (
    "Sluice reads no binlogs from cloud storage: let the source retain them as long as a consumer may be unavailable"
)
DRUID = "Sluice does not support druid's encryption: put the plain password into SLUICE_INSTANCE_DB_PASSWORD"
NUMBERED = "only group-instance.xml reads it: set canal.instance.<destination>.spring.xml to it, or leave it out"
STORES = "Sluice reads PEM files: set sluice.instance.sslCa, sluice.instance.sslCert, sluice.instance.sslKey"

WITHOUT_EFFECT = {
    r"canal\.id": "Canal itself does not use it: nothing to do",
    r"canal\.metrics\.pull\.port": "metrics have no port of their own: let Prometheus scrape /metrics of the HTTP API",
    r"canal\.admin\..*": ADMIN,
    r"canal\.instance\.(global|[^.]+)\.manager\.address": ADMIN,
    r"canal\.instance\.(global|[^.]+)\.lazy": "every destination starts with the server: nothing to do",
    r"canal\.instance\.[^.]+\.mode": ADMIN,
    r"canal\.instance\.memory\.rawEntry": "Sluice always keeps entries encoded: nothing to do",
    r"canal\.instance\.(master|standby)[0-9]+\.(address|journal\.name|position|timestamp|gtid)": NUMBERED,
    r"canal\.instance\.transaction\.size": "Sluice has no transaction buffer: nothing to do",
    r"canal\.instance\.network\.(receive|send)BufferSize": KERNEL,
    r"canal\.instance\.filter\.druid\.ddl": "Sluice has its own DDL parser instead of druid's: nothing to do",
    r"canal\.instance\.parser\.parallel.*": CORES,
    r"canal\.instance\.tsdb\..*": HISTORY,
    r"canal\.instance\.rds\..*": CLOUD,
    r"canal\.aliyun\..*": CLOUD,
    r"canal\.instance\.multi\.stream\.on": "Sluice does not support PolarDB-X: stay with Canal for it",
    r"canal\.instance\.(master|standby)\.(tlsVersions|(trust|client)CertificateKeyStore.*)": STORES,
    r"canal\.instance\.(enableDruid|pwdPublicKey)": DRUID,
    r"canal\.socketChannel": "Sluice has one kind of connection to the source: nothing to do",
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
