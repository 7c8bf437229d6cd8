"""Several sources that become one stream."""
