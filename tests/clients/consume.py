"""canal-python, led by commands on the standard input as `tests.clients.led` says; `tests.clients.python` starts it."""

import sys

from canal.client import Client
from canal.protocol import EntryProtocol_pb2 as entries


class Consumer:
    """One client at a time."""

    def connect(self, port: str, password: str, client_id: str, destination: str, table_filter: str) -> None:
        """Connect and subscribe; an empty password means none."""
        self.client = Client()
        self.client.connect(host="127.0.0.1", port=int(port))
        self.client.check_valid(username=b"canal", password=password.encode())
        self.client.subscribe(client_id.encode(), destination.encode(), table_filter.encode())

    def get(self, size: str) -> None:
        """Get a batch, without an ack."""
        message = self.client.get_without_ack(int(size))
        answer("batch", message["id"])
        for entry in message["entries"]:
            change = entries.RowChange()
            if entry.entryType == entries.EntryType.ROWDATA:
                change.MergeFromString(entry.storeValue)
            for row in change.rowDatas:
                columns = row.afterColumns or row.beforeColumns
                answer(entries.EventType.Name(change.eventType), *(column.value for column in columns))

    def ack(self, batch_id: str) -> None:
        """Confirm a batch."""
        self.client.ack(int(batch_id))

    def rollback(self, batch_id: str) -> None:
        """Have a batch again, or with 0 all."""
        self.client.rollback(int(batch_id))


def answer(*words: object) -> None:
    """Print a line."""
    print(*words, sep="\t", file=OUT, flush=True)


OUT = sys.stdout
sys.stdout = sys.stderr  # where the client prints what it does
consumer = Consumer()
for line in sys.stdin:
    name, *arguments = line.rstrip("\n").split("\t")
    try:
        getattr(consumer, name)(*arguments)
        answer("ok")
    except Exception as error:  # noqa: BLE001  the test is told
        answer("error", str(error))
