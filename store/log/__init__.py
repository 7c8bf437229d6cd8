"""The log: what passed the ring, kept on disk in files of blocks."""
