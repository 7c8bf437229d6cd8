"""Several servers, each destination on one of them: which one serves it, for how long, and that no other does."""
