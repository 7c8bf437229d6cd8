"""Canal's own protocol."""
