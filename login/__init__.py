"""Logging in to a MySQL or MariaDB server: what the parser of a source and the jobs of Spark share.

Neither of them imports the other, and what guards a password exists once. `protocol` has no sockets and no TLS, and the
client without Spark does not need this folder; the linter of imports checks that.
"""
