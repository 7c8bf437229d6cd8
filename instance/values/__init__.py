"""Values of MySQL as its binlog writes them, for every source that has its types."""
