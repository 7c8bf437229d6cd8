"""Logging in to a MySQL or MariaDB server: the one folder of `protocol` with sockets and TLS.

The parser of a source and the jobs of Spark both log in, and neither imports the other. The rest of `protocol` and the
client without Spark do not need this folder; the linter of imports checks that.
"""
