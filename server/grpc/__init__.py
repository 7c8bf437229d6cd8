"""The front of a pump: TiDB writes its binlog to it by gRPC, and drainers read the transactions of it."""
