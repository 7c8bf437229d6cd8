"""Run one server until Ctrl-C: `python -m tests.servers mariadb118 3307 --binlog-row-metadata=FULL`.

`python -m tests.servers zookeeper 2181` runs ZooKeeper.
"""

import signal
import sys

from tests.servers.server import ALL, Server
from tests.servers.zookeeper import ZooKeeper


def main() -> None:
    """Start the named server, print how to reach it, and stop it on Ctrl-C."""
    name, port, *options = [*sys.argv[1:], "", ""]
    if name not in (*ALL, "zookeeper") or not port.isdecimal():
        sys.exit(f"usage: python -m tests.servers {{{','.join((*ALL, 'zookeeper'))}}} PORT [server option...]")
    if name == "zookeeper":
        with ZooKeeper(port=int(port)) as zookeeper:
            print(f"{zookeeper.hosts}  (Ctrl-C stops it)", flush=True)  # noqa: T201
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
        return
    with Server(name, [option for option in options if option], port=int(port)) as server:
        print(f"{server.dsn}  (Ctrl-C stops it)", flush=True)  # noqa: T201
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
main()
