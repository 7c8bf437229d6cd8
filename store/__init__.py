"""The ring of entries in memory, the log on disk, and how far each subscriber has read them."""
