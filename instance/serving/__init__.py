"""What serves a destination: its stream, log, readers, clients and views."""
