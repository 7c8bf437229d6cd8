"""Canal's numbers, for Python: the enums of tags.pxd."""
