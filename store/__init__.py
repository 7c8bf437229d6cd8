"""The ring of entries, the segments of memory that hold them, and the cursors that walk them."""
