"""A source, an output and a form for Sluice."""
