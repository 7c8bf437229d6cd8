"""Real servers, of databases and ZooKeeper, for tests, the demo and the benchmarks."""

from tests.servers.server import ALL, CI, Server, ServerError
from tests.servers.zookeeper import ZooKeeper, ZooKeeperServer, nodes

__all__ = ["ALL", "CI", "Server", "ServerError", "ZooKeeper", "ZooKeeperServer", "nodes"]
