"""One destination: the parser that reads a source, the sink that filters, the meta data that survives."""
