"""What is configured of an output that sends records, whatever takes them."""

from enum import StrEnum

from ....instance.settings import setting
from ..settings import OutputSettings


class Key(StrEnum):
    """What is the key of a record."""

    NONE = "none"
    PK = "pk"


class OnInvalidTopic(StrEnum):
    """What is done with a table whose topic would have a name that no topic can have."""

    STOP = "stop"
    MAP = "map"


class RecordSettings(OutputSettings):
    """The configuration of an output that sends records."""

    # Records.

    form: str = setting("sluice.output.<name>.format", "flat")
    """Content of a record. `flat`: a change in JSON (Canal's FlatMessage). `canal`: a protobuf Packet of Canal's
    protocol, as with `canal.mq.flatMessage = false`. `tdsql`: a message of TDSQL's data subscription. `tidb`: a
    transaction or DDL in the format of TiDB's Drainer, its secondary binlog. Any other name is a form of an
    [installed package](howto/plugins.md)."""
    key: Key = setting("sluice.output.<name>.key", Key.NONE)
    """Key of a record. `none`: no key, as in Canal. `pk`: the primary key, with one row in each record; for compacted
    topics."""
    split_key_updates: bool = setting("sluice.output.<name>.splitKeyUpdates", default=False)
    """Send an UPDATE that changes the key as a DELETE of the old key and an INSERT of the new one."""
    headers: bool = setting("sluice.output.<name>.headers", default=False)
    """Add two headers to each record. `sluice-position` is the position of its (first) entry in the stream.
    `sluice-epoch` counts the starts of the destination over all servers."""
    statements: bool = setting("sluice.output.<name>.statements", default=False)
    """Also send the texts of statements, if the source writes them (rows-query and annotate events). Canal sends them.
    They then make up half of all records."""

    # Topics and partitions.

    topic: str = setting("sluice.output.<name>.topic", "")
    """The topic. Empty: the name of the destination, or with format `tidb` the topic of the cluster."""
    cluster_id: int = setting("sluice.output.<name>.clusterId", 0, ge=0, lt=1 << 64)
    """For format `tidb`: the ID of the TiDB cluster that readers see as the source. The topic is then
    `<clusterId>_obinlog`, where readers look for it, unless `topic` names another."""
    dynamic_topic: str = setting("sluice.output.<name>.dynamicTopic", "")
    """Rules that select a topic by table, as in `canal.mq.dynamicTopic`."""
    on_invalid_topic: OnInvalidTopic = setting("sluice.output.<name>.onInvalidTopic", OnInvalidTopic.STOP)
    """What to do if a rule derives the topic from a table name that is not valid in a topic, such as `shop.x y`. `stop`
    waits for an operator. `map` uses a topic with `_` for each invalid character and a digest of the name: `shop_x_y-`
    and 8 digits."""
    partition: int = setting("sluice.output.<name>.partition", 0, ge=0)
    """Partition of all records, unless `partitionHash` selects another."""
    partitions: int = setting("sluice.output.<name>.partitionsNum", 1, ge=1, le=100_000)
    """Number of partitions that `partitionHash` distributes to. Each topic needs this many."""
    partition_hash: str = setting("sluice.output.<name>.partitionHash", "")
    """Rules that select a partition by the values of columns, as in `canal.mq.partitionHash`. Changes are then in order
    only per value."""
    topic_partitions: str = setting("sluice.output.<name>.dynamicTopicPartitionNum", "")
    """Number of partitions per topic, as in `canal.mq.dynamicTopicPartitionNum`."""
    database_hash: bool = setting("sluice.output.<name>.databaseHash", default=True)
    """Include the name of the database in the hash, as `canal.mq.database.hash`."""
