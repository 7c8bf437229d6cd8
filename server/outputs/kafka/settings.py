"""What is configured of an output to Kafka."""

from ....instance.settings import setting
from ..forms.settings import RecordSettings


class KafkaSettings(RecordSettings):
    """The configuration of an output to Kafka."""

    # Safety.

    transactional: bool | None = setting("sluice.output.<name>.transactional", None)
    """Send in Kafka transactions, which fence a server that has lost the destination. Empty: on if several servers
    share the destination (`canal.zkServers`), but never with format `tidb`. Consumers then need
    `isolation.level=read_committed`."""
    transactional_id: str = setting("sluice.output.<name>.transactionalId", "")
    """Transactional id, which no other producer of these brokers may use. Empty: Sluice combines a name that the
    servers of one ZooKeeper share, the name of the destination and the name of the output."""
