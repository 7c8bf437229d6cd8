"""Outputs to MySQL and MariaDB: a database kept equal."""
