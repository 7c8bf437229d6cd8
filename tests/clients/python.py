"""canal-python 0.4, as a process that is led by commands (consume.py)."""

import os
import sys
from pathlib import Path

from tests.clients.java import fetched
from tests.clients.led import Led

CONSUME = Path(__file__).with_name("consume.py")


class PythonConsumer(Led):
    """One client at a time in a process."""

    def __init__(self) -> None:
        """Start it."""
        environ = os.environ | {
            "PYTHONPATH": fetched("python", sys.executable),
            "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python",  # its generated code is of 2019
            "PYTHONIOENCODING": "utf-8",
        }
        super().__init__([sys.executable, str(CONSUME)], environ)

    def connect(self, port: int, table_filter: str, password: str = "") -> None:
        """Connect and subscribe as client 7 of the destination `shop`."""
        self.call("connect", port, password, 7, "shop", table_filter)

    def get(self, size: int) -> tuple[int, list[str]]:
        """Get what is there, without an ack: the id, 0 for an empty batch, and the rows, as `INSERT 1,a`."""
        (_, batch_id), *rows = self.call("get", size)
        return int(batch_id), [f"{kind} {','.join(values)}" for kind, *values in rows]
