"""A server among others, in a real ZooKeeper: it keeps nothing that it cannot serve."""

import asyncio
import contextlib

from sluice.instance.config import Address, InstanceConfig
from sluice.server.ha.cluster import Cluster, ClusterMetaStore, Identity
from tests.servers import ZooKeeper, nodes
from tests.source import eventually

NAME = "orders"


class Host:
    """Destinations none of which can start, for a reason that nobody foresaw."""

    async def activate(self, destination: str, meta: ClusterMetaStore) -> None:
        raise OSError(24, "Too many open files")

    async def deactivate(self, destination: str) -> None:
        raise AssertionError("it never started")


def configure(destination: str) -> InstanceConfig:
    return InstanceConfig(
        destination=destination, master_address=Address("127.0.0.1", 1), db_username="cdc", meta="zookeeper"
    )


async def test_what_cannot_be_started_is_left_to_others(zookeeper: ZooKeeper) -> None:
    cluster = Cluster(zookeeper.hosts, 4.0, Identity("127.0.0.1:1", "http://127.0.0.1:2"), Host(), configure)
    running = asyncio.create_task(cluster.run())
    cluster.start(NAME)
    try:
        await eventually(lambda: "Too many open files" in cluster.problem_of(NAME))
        with nodes(zookeeper.hosts) as zk:
            await eventually(lambda: zk.exists(f"/otter/canal/destinations/{NAME}/running") is None)
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
