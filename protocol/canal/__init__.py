"""Canal's messages: their tags, the one reader of an entry, and what is made of one."""
