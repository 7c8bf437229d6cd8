"""The tables of a source as its own statements leave them: a reader of DDL, and the columns that it makes."""
