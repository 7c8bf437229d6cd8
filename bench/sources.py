"""The databases that are read, each a process of its own with data of its own."""

import contextlib
from collections.abc import Iterator

from tests.servers import Server

SOURCES: dict[str, tuple[str, tuple[str, ...]]] = {
    "mariadb118": ("mariadb118", ("--binlog-row-metadata=FULL",)),
    "mariadb118-minimal": ("mariadb118", ("--binlog-row-metadata=NO_LOG",)),
    "mariadb1011": ("mariadb1011", ("--binlog-row-metadata=FULL",)),
    "mysql97": ("mysql97", ("--binlog-row-metadata=FULL",)),
    "mysql97-compressed": ("mysql97", ("--binlog-row-metadata=FULL", "--binlog-transaction-compression=ON")),
    "mysql56": ("mysql56", ()),
}
"""A server of the tests, and the options that make it the source of a measurement."""


@contextlib.contextmanager
def source(name: str, *more: str) -> Iterator[Server]:
    """Start one of SOURCES, with more options; it does not wait for disks, for how fast it writes is not measured."""
    server, options = SOURCES[name]
    with Server(server, ("--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0", *options, *more)) as started:
        yield started


def version_of(server: Server) -> str:
    """Return the version that a server tells."""
    return str(server.query("SELECT version()")[0][0])
