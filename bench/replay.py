"""A binlog file as a source sends it, from a process of its own: `python -m bench.replay FILE` prints its port.

Each client that connects gets all of it, as fast as it reads.
"""

import socket
import sys
from pathlib import Path

from tests.packets import file_packets


def main() -> None:
    """Do what the command line says."""
    data = b"".join(file_packets(Path(sys.argv[1])))
    with socket.create_server(("127.0.0.1", 0)) as server:
        sys.stdout.write(f"{server.getsockname()[1]}\n")
        sys.stdout.flush()
        while True:
            connection, _ = server.accept()
            with connection:
                connection.sendall(data)


if __name__ == "__main__":
    main()
