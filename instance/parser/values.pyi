"""Only for other compiled modules: nothing here is callable from Python."""
