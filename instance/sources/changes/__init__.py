"""Files that an output has written as a source."""
