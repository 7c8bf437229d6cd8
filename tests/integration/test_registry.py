"""What a client of the SDK learns from ZooKeeper, where other servers have nodes as well."""

import json
import threading

from sluice.client_sdk.zookeeper import Registry
from sluice.protocol.paths import SERVERS
from tests.proxy import Proxy
from tests.servers import ZooKeeper, nodes
from tests.waiting import eventually

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


def test_it_goes_on_when_zookeeper_comes_back_without_its_data() -> None:
    with ZooKeeper() as zookeeper:
        registry = Registry(zookeeper.hosts, NAME, 1001, 2.0, lambda: None)
        address, url = "10.0.0.2:11111", "http://10.0.0.2:11112"

        def serve() -> None:
            with nodes(zookeeper.hosts) as zk:
                zk.create(f"{SERVERS}/{address}", json.dumps({"url": url}).encode(), makepath=True)
                running = {"active": True, "address": address}
                zk.create(f"/otter/canal/destinations/{NAME}/running", json.dumps(running).encode(), makepath=True)

        serve()
        registry.start()
        try:
            eventually(lambda: registry.seen.active == url and registry.seen.turn)
            before = registry.seen.turn or 0
            zookeeper.lose()
            eventually(lambda: registry.seen.active is None and (registry.seen.turn or 0) > before)
            serve()
            eventually(lambda: registry.seen.active == url)
            assert registry.seen.servers == (url,)
        finally:
            registry.close()


def test_it_goes_on_after_an_answer_to_another_call(zookeeper: ZooKeeper) -> None:
    with Proxy(("127.0.0.1", zookeeper.servers[0].port)) as proxy, nodes(zookeeper.hosts) as zk:
        zk.create(f"{SERVERS}/10.0.0.3:11111", json.dumps({"url": "http://10.0.0.3:11112"}).encode(), makepath=True)
        registry = Registry(f"127.0.0.1:{proxy.port}", "confused", None, 4.0, lambda: None)
        proxy.damage((3).to_bytes(4, "big"))  # the number of the third call, in its answer
        registry.start()
        try:
            eventually(lambda: "http://10.0.0.3:11112" in registry.seen.servers)
            assert proxy.damages == 1
        finally:
            registry.close()
            zk.delete(f"{SERVERS}/10.0.0.3:11111")
