# Only compiled modules use it.
