"""Run one server until Ctrl-C: `python -m tests.servers mariadb118 --binlog-row-metadata=FULL`."""

import signal
import sys

from tests.servers.server import ALL, Server


def main() -> None:
    """Start the named server, print how to reach it, and stop it on Ctrl-C."""
    if len(sys.argv) < 2 or sys.argv[1] not in ALL:
        sys.exit(f"usage: python -m tests.servers {{{','.join(ALL)}}} [server option...]")
    with Server(sys.argv[1], sys.argv[2:]) as server:
        print(f"{server.dsn}  (Ctrl-C stops it)", flush=True)  # noqa: T201
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
main()
