"""A topic of Kafka with TiDB's secondary binlog as a source."""
