"""TiDB's secondary binlog, which its Drainer writes to Kafka."""
