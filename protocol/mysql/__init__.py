"""Logging in to a MySQL or MariaDB server: the one room of `protocol` with sockets and TLS.

The parser of a source and the jobs of Spark both log in, and neither imports the other. Nothing else of `protocol`
needs what is here, nor does the client without Spark: the linter of imports says so.
"""
