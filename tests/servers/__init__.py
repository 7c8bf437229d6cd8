"""Real servers, of databases, Kafka and ZooKeeper, for tests, the demo and the benchmarks."""

from tests.servers.kafka import Kafka
from tests.servers.server import ALL, CI, Server, ServerError, next_second
from tests.servers.zookeeper import ZooKeeper, ZooKeeperServer, nodes

__all__ = ["ALL", "CI", "Kafka", "Server", "ServerError", "ZooKeeper", "ZooKeeperServer", "next_second", "nodes"]
