"""The settings of topics as sources: with TiDB's secondary binlog, and what others share with it."""

from abc import abstractmethod
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, SecretStr, model_validator

from ...config import InstanceConfig, lower, upper
from ...settings import FolderPath, setting


class TidbConfig(InstanceConfig):
    """The configuration of a destination whose source has transactions of TiDB: its places are a commit_ts."""

    @property
    @abstractmethod
    def file(self) -> str:
        """What entries name as their file."""

    @property
    @abstractmethod
    def start_after(self) -> int:
        """The commit_ts to start after if no client has a cursor; 0 for the end."""

    @model_validator(mode="after")
    def _check_filters(self) -> Self:
        if self.filter_field or self.filter_black_field or self.filter_where or self.filter_mask:
            raise ValueError(
                "canal.instance.filter.field, canal.instance.filter.black.field, sluice.instance.filter.where and"
                " sluice.instance.filter.mask are for MySQL: columns and rows of TiDB are delivered as they come"
            )
        return self


class TopicConfig(TidbConfig):
    """The configuration of a destination whose source is a topic with TiDB's changes."""

    brokers: str = setting("sluice.instance.kafka.brokers", min_length=1)
    """Kafka brokers: `host:port`, separated by commas."""
    topic: str = setting("sluice.instance.kafka.topic", pattern=r"^[A-Za-z0-9._-]{1,249}$")
    """The topic that TiDB's Drainer or TiCDC writes to. Drainer's default is `<cluster id>_obinlog`."""
    commit_ts: int = setting("sluice.instance.kafka.commitTs", 0, ge=0, lt=1 << 63)
    """The commit_ts to start after if no client has a cursor. 0 starts at the end of the topic."""
    security_protocol: Annotated[Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"], BeforeValidator(upper)] = (
        setting("sluice.instance.kafka.securityProtocol", "PLAINTEXT")
    )
    """Security protocol of the connections to the brokers."""
    sasl_mechanism: str = setting("sluice.instance.kafka.saslMechanism", "SCRAM-SHA-512")
    """SASL mechanism for the SASL protocols: `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`."""
    sasl_username: str = setting("sluice.instance.kafka.saslUsername", "")
    """Account on the brokers. It needs READ and DESCRIBE on the topic."""
    sasl_password: SecretStr = setting("sluice.instance.kafka.saslPassword", SecretStr(""))
    """Password of the account."""
    ca_location: FolderPath = setting("sluice.instance.kafka.caLocation", Path())
    """PEM file of the CA certificates that signed the brokers' certificates. Empty: the system's."""

    @property
    def file(self) -> str:
        """See `TidbConfig.file`: topic and partition."""
        return f"{self.topic}.0"

    @property
    def start_after(self) -> int:
        """See `TidbConfig.start_after`."""
        return self.commit_ts

    @property
    def place(self) -> str:
        """Where the source is, for people."""
        return f"topic {self.topic} at {self.brokers}"

    def library_settings(self) -> dict[str, str]:
        """Return the settings of librdkafka."""
        found: dict[str, str] = {"security.protocol": self.security_protocol}
        if self.security_protocol.startswith("SASL"):
            found |= {
                "sasl.mechanism": self.sasl_mechanism,
                "sasl.username": self.sasl_username,
                "sasl.password": self.sasl_password.get_secret_value(),
            }
        if self.ca_location != Path() and self.security_protocol.endswith("SSL"):
            found["ssl.ca.location"] = str(self.ca_location)
        return found


class KafkaConfig(TopicConfig):
    """The configuration of a destination whose source is a topic with TiDB's secondary binlog."""

    source_title: ClassVar[str] = "TiDB's secondary binlog in Kafka"

    source: Annotated[Literal["kafka"], BeforeValidator(lower)] = setting("sluice.instance.source", "kafka")
