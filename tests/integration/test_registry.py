"""What a client of the SDK learns from ZooKeeper, where other servers have nodes as well."""

import json
import threading

from sluice.client_sdk.zookeeper import Registry
from sluice.protocol.paths import SERVERS
from tests.servers import ZooKeeper, nodes

NAME = "orders"


def test_canals_own_servers_have_no_url_and_their_nodes_may_hold_nothing(zookeeper: ZooKeeper) -> None:
    heard = threading.Event()
    registry = Registry(zookeeper.hosts, NAME, None, 4.0, heard.set)
    with nodes(zookeeper.hosts) as zk:
        zk.create(f"{SERVERS}/10.0.0.1:11111", makepath=True)
        zk.set(f"{SERVERS}/10.0.0.1:11111", None)
        zk.create(f"{SERVERS}/10.0.0.2:11111", json.dumps({"url": "http://10.0.0.2:11112"}).encode())
        running = {"active": True, "address": "10.0.0.1:11111"}
        zk.create(f"/otter/canal/destinations/{NAME}/running", json.dumps(running).encode(), makepath=True)
        registry.start()
        try:
            assert heard.wait(30)
            assert registry.seen.servers == ("http://10.0.0.2:11112",)
            assert registry.seen.active is None
        finally:
            registry.close()
