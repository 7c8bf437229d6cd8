"""What is configured of an output to Kafka."""

from enum import StrEnum

from ....instance.settings import setting
from ..settings import OutputSettings


class Form(StrEnum):
    """What a record holds."""

    FLAT = "flat"
    CANAL = "canal"
    TDSQL = "tdsql"
    TIDB = "tidb"


class Key(StrEnum):
    """What is the key of a record."""

    NONE = "none"
    PK = "pk"


class OnInvalidTopic(StrEnum):
    """What is done with a table whose topic would have a name that no topic can have."""

    STOP = "stop"
    MAP = "map"


class KafkaSettings(OutputSettings):
    """The configuration of an output to Kafka."""

    # Records.

    form: Form = setting("sluice.output.<name>.format", Form.FLAT)
    """What a record holds: `flat`, a change in JSON (Canal's FlatMessage), `canal`, a protobuf Packet of Canal's
    protocol, as with `canal.mq.flatMessage = false`, `tdsql`, a message of TDSQL's data subscription, or `tidb`, a
    transaction or DDL as TiDB's Drainer writes it, its secondary binlog."""
    key: Key = setting("sluice.output.<name>.key", Key.NONE)
    """The key of a record: `none`, as in Canal, or `pk`, the primary key, with one row in a record; for compacted
    topics."""
    split_key_updates: bool = setting("sluice.output.<name>.splitKeyUpdates", default=False)
    """Send an UPDATE that changes the key as a DELETE of the old one and an INSERT of the new one."""
    headers: bool = setting("sluice.output.<name>.headers", default=False)
    """Give each record two headers: `sluice-position`, where its (first) entry stands in the stream, and
    `sluice-epoch`, which counts the lives of the destination over all servers."""
    statements: bool = setting("sluice.output.<name>.statements", default=False)
    """Send the text of the statements, too, where the source writes it (rows-query and annotate events). Canal does;
    it is half of all records then."""

    # Topics and partitions.

    topic: str = setting("sluice.output.<name>.topic", "")
    """The topic; empty: the name of the destination, and with format `tidb` that of the cluster."""
    cluster_id: int = setting("sluice.output.<name>.clusterId", 0, ge=0, lt=1 << 64)
    """For format `tidb`: the ID of the TiDB cluster for which its readers take the source. The topic is then
    `<clusterId>_obinlog`, where they look for it, unless `topic` names another."""
    dynamic_topic: str = setting("sluice.output.<name>.dynamicTopic", "")
    """Rules for a topic by table, as in `canal.mq.dynamicTopic`."""
    on_invalid_topic: OnInvalidTopic = setting("sluice.output.<name>.onInvalidTopic", OnInvalidTopic.STOP)
    """What is done with a table whose name no topic can have, as `shop.x y`, where a rule makes the topic of the name:
    `stop` until somebody decides, or `map` it, to a topic with `_` for each other sign and a digest of the name:
    `shop_x_y-` and 8 digits."""
    partition: int = setting("sluice.output.<name>.partition", 0, ge=0)
    """The partition of all records, unless `partitionHash` says more."""
    partitions: int = setting("sluice.output.<name>.partitionsNum", 1, ge=1, le=100_000)
    """Over how many partitions `partitionHash` distributes. Each topic needs so many."""
    partition_hash: str = setting("sluice.output.<name>.partitionHash", "")
    """Rules for a partition by the values of columns, as in `canal.mq.partitionHash`. Changes are then in order for
    each value only."""
    topic_partitions: str = setting("sluice.output.<name>.dynamicTopicPartitionNum", "")
    """The number of partitions by topic, as in `canal.mq.dynamicTopicPartitionNum`."""
    database_hash: bool = setting("sluice.output.<name>.databaseHash", default=True)
    """Mix the name of the database into the hash, as `canal.mq.database.hash`."""

    # Safety.

    transactional: bool | None = setting("sluice.output.<name>.transactional", None)
    """Send in Kafka's transactions, so that a server that has lost the destination cannot write any more. Empty: where
    several servers share the destination (`canal.zkServers`), but never with format `tidb`. Consumers then need
    `isolation.level=read_committed`."""
    transactional_id: str = setting("sluice.output.<name>.transactionalId", "")
    """The name of the transactions, which no other producer of these brokers may use. Empty: made of a name that the
    servers of a ZooKeeper have in common, the destination's, and the output's."""
