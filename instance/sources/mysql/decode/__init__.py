"""From bytes of the binlog to entries in a staging."""
