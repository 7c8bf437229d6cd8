"""A broker of Kafka, owned by the process that started it."""

import atexit
import base64
import contextlib
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from confluent_kafka import Consumer, ElectionType, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.servers.server import ServerError, ending, fetch, finish, free_port, freeze

SCRIPT = Path(__file__).with_name("kafka.sh")


class Brokers:
    """What can be asked of one broker or several."""

    size = 1
    """Brokers, and replicas of a topic."""

    @property
    def servers(self) -> str:
        """What ``bootstrap.servers`` is set to."""
        raise NotImplementedError

    def create(self, topic: str, partitions: int = 1, **options: str) -> None:
        """Make a topic, and wait until it is there."""
        config = {name.replace("_", "."): value for name, value in options.items()}
        admin = self._admin()  # which has to live until the answer
        deadline = time.monotonic() + 20
        while True:
            try:
                admin.create_topics([NewTopic(topic, partitions, self.size, config=config)])[topic].result(20)
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.TOPIC_ALREADY_EXISTS:
                    return  # by an attempt whose answer was lost
                if code != KafkaError._DESTROY_BROKER or time.monotonic() > deadline:
                    raise
            else:
                return

    def enlarge(self, topic: str, partitions: int) -> None:
        """Let a topic have more partitions."""
        admin = self._admin()
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(20)

    def alter(self, topic: str, **options: str) -> None:
        """Change options of a topic."""
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in options.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        admin = self._admin()
        admin.incremental_alter_configs([resource])[resource].result(20)

    def allow(self, operation: AclOperation, kind: ResourceType, name: str) -> None:
        """Allow the user something, where there is an authorizer."""
        binding = AclBinding(
            kind, name, ResourcePatternType.LITERAL, f"User:{Kafka.user}", "*", operation, AclPermissionType.ALLOW
        )
        admin = self._admin()
        admin.create_acls([binding])[binding].result(20)

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        admin = self._admin()
        admin.delete_topics([topic])[topic].result(20)

    def truncate(self, topic: str, offset: int) -> None:
        """Remove the records of a topic before an offset, as its retention does."""
        place = TopicPartition(topic, 0, offset)
        admin = self._admin()
        admin.delete_records([place])[place].result(20)

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the number of the broker that leads a partition; -1 while none does."""
        return int(self._admin().list_topics(topic, 20).topics[topic].partitions[partition].leader)

    def read(self, topic: str, *, key: str = "", committed: bool = True) -> list[list[bytes]]:
        """Return the values of a topic, or of a key there, those of each of its partitions in their order."""
        found = self._messages(topic, committed=committed)
        return [[it.value() or b"" for it in part if not key or it.key() == key.encode()] for part in found]

    def read_headers(self, topic: str) -> list[list[tuple[str, bytes]]]:
        """Return the headers of each record of a topic."""
        return [it.headers() or [] for part in self._messages(topic, committed=True) for it in part]  # type: ignore[misc]

    def _messages(self, topic: str, *, committed: bool) -> list[list[Message]]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "test",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        try:
            found = consumer.list_topics(topic, 20).topics[topic]
            if found.error is not None:
                return []
            values: list[list[Message]] = [[] for _ in found.partitions]
            consumer.assign([TopicPartition(topic, number, 0) for number in found.partitions])
            ended: set[int] = set()
            while len(ended) < len(values):
                for message in consumer.consume(10_000, 0.1):
                    partition = message.partition()
                    assert partition is not None
                    error = message.error()
                    if error is None:
                        values[partition].append(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        ended.add(partition)
                    else:
                        raise KafkaException(error)
            return values
        finally:
            consumer.close()

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})


class Kafka(Brokers):
    """One broker; `with Kafka() as kafka:` or start() and close().

    Port and data live as long as the object: kill() and start() is a crash and a recovery.
    """

    user = "cdc"
    password = "cdc-secret"

    def __init__(
        self,
        options: Mapping[str, str] | None = None,
        *,
        name: str = "kafka",
        port: int | None = None,
        certificate: Path | None = None,
    ) -> None:
        """``options`` are the broker's own, as in its server.properties; ``name`` is that of a version, see kafka.sh.

        With the file of a certificate and its key it listens for SASL_SSL, too: to a user by PLAIN and by SCRAM.
        """
        self.number = 1
        self.name = name
        self.port = port or free_port()
        self.secure_port = free_port()
        self.certificate = certificate
        self.controller = free_port()
        self._options = dict(options or {})
        self._cluster = _identity()
        self._voters: Sequence[Kafka] = (self,)
        self._folder = Path(tempfile.mkdtemp(prefix="sluice-kafka-"))
        self.data = self._folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    @property
    def servers(self) -> str:
        """What ``bootstrap.servers`` is set to."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id; it must have been started."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there, frozen or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def end(self) -> str:
        """How it ended, if nobody has stopped it."""
        return ending("Kafka", self._process, self._folder / "log")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the broker and wait until it answers; the first time ever it is downloaded."""
        self.begin()
        self.wait()

    def join(self, voters: "Sequence[Kafka]", cluster: str) -> None:
        """Be one of several brokers; before it is started."""
        self._voters, self._cluster, self.number, self.size = voters, cluster, voters.index(self) + 1, len(voters)

    def begin(self) -> None:
        """Start the process; it does not answer yet."""
        if self.running:
            return
        fetch("Kafka", str(SCRIPT), self.name, "fetch")
        config = self._folder / "server.properties"
        if not config.exists():
            config.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))
            scram = f"SCRAM-SHA-512=[name={self.user},password={self.password}]"
            self._run("format", str(config), self._cluster, "--add-scram", scram).wait()
        self._process = self._run("run", str(config))

    def stop(self) -> None:
        """Shut it down in good order; the data stays."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, and nothing is answered."""
        assert self._process is not None
        freeze(self._process.pid)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop for good: the data goes too."""
        self.kill()
        atexit.unregister(self.close)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _settings(self) -> dict[str, str]:
        replicas, least = str(self.size), str(self.size // 2 + 1)
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.number),
            "controller.quorum.voters": ",".join(f"{it.number}@127.0.0.1:{it.controller}" for it in self._voters),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.data),
            "num.partitions": "1",
            "default.replication.factor": replicas,
            "min.insync.replicas": least,
            "offsets.topic.replication.factor": replicas,
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": least,
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": least,
            "group.initial.rebalance.delay.ms": "0",
            **(self._secure_settings() if self.certificate is not None else {}),
            **self._options,
        }

    def _secure_settings(self) -> dict[str, str]:
        listeners = f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller}"
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return {
            "listeners": f"{listeners},SASL_SSL://127.0.0.1:{self.secure_port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificate),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{module} required user_{self.user}="{self.password}";',
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{scram} required;",
        }

    def _run(self, *arguments: str) -> "subprocess.Popen[bytes]":
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                [str(SCRIPT), self.name, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self, seconds: float = 60) -> None:
        """Wait until the broker that was started answers."""
        deadline = time.monotonic() + seconds
        while self.running and time.monotonic() < deadline:
            with contextlib.suppress(KafkaException):
                self._admin().list_topics(timeout=1)
                return
        self.kill()
        log = (self._folder / "log").read_text(errors="replace")[-4000:]
        raise ServerError(f"Kafka did not start:\n{log}")

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        finish(process, number, 30)


class KafkaCluster(Brokers):
    """Three brokers, each of them a controller, too: topics have three replicas, and two have to take a record."""

    def __init__(self, name: str = "kafka") -> None:
        self.size = 3
        self.brokers = [Kafka(name=name) for _ in range(self.size)]
        cluster = _identity()
        for broker in self.brokers:
            broker.join(self.brokers, cluster)

    @property
    def servers(self) -> str:
        """What ``bootstrap.servers`` is set to."""
        return ",".join(it.servers for it in self.brokers)

    def __enter__(self) -> Self:
        for broker in self.brokers:
            broker.begin()
        for broker in self.brokers:
            broker.wait()
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers:
            broker.close()

    def elect(self) -> None:
        """Give the partitions back to those that led them first, if these have caught up."""
        admin = self._admin()
        admin.elect_leaders(ElectionType.PREFERRED).result(20)


def _identity() -> str:
    return "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
