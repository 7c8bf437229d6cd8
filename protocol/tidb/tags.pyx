"""Numbers of TiDB's secondary binlog, for Python: what is public in tags.pxd."""
