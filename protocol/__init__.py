"""The wire formats: Canal's protobufs, FlatMessage JSON, positions, GTID sets. Imports nothing else of Sluice."""
