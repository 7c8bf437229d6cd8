"""Another destination as a source, whose rows a function processes."""
