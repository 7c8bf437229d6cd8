"""Sessions with what changes come from: what the parser of a source and the clients of the SDK share.

These are logins to a MySQL or MariaDB server, the rules of reading its tables, readers of a topic of TiDB's secondary
binlog, and the etcd where the pumps of a TiDB cluster are registered.
Neither of them imports the other, and what guards a password exists once. `protocol` has no sockets and no TLS, and the
client without Spark does not need this folder; the linter of imports checks that.
"""
