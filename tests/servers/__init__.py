"""Real servers, of databases and ZooKeeper, for tests, the demo and the benchmarks; `kafka` needs its library."""

from tests.servers.server import ALL, CI, Server, ServerError, freeze, next_second
from tests.servers.zookeeper import ZooKeeper, ZooKeeperServer, nodes

__all__ = ["ALL", "CI", "Server", "ServerError", "ZooKeeper", "ZooKeeperServer", "freeze", "next_second", "nodes"]
