"""How outputs lay changes into records: a module a form."""
