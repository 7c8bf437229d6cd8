"""The merger of several sources to one stream, a machine without I/O. Its rules stand in docs/internals.md."""
