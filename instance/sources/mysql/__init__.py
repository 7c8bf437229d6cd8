"""From a source's binlog to finished entries."""
