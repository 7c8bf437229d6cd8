"""What of the binlog reaches the store."""
