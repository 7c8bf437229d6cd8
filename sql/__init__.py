"""MySQL and MariaDB servers that jobs and commands write changes to, or read tables from."""
