"""Several servers, each destination on one of them: who serves it, for how long, and that nobody else does."""
