"""canal-python as its users use it: subscribe, get and ack, and print the rows until there are enough of them.

python pull.py PORT DESTINATION FILTER COUNT
"""

import sys
import time

from canal.client import Client
from canal.protocol import EntryProtocol_pb2 as entries

port, destination, table_filter, count = sys.argv[1:]
client = Client()
client.connect(host="127.0.0.1", port=int(port))
client.check_valid(username=b"", password=b"")
client.subscribe(client_id=b"7", destination=destination.encode(), filter=table_filter.encode())
found = 0
while found < int(count):
    message = client.get_without_ack(100)
    for entry in message["entries"]:
        if entry.entryType != entries.EntryType.ROWDATA:
            continue
        change = entries.RowChange()
        change.MergeFromString(entry.storeValue)
        for row in change.rowDatas:
            kind = entries.EventType.Name(change.eventType)
            columns = row.afterColumns or row.beforeColumns
            sys.stdout.write(f"ROW {kind} {','.join(column.value for column in columns)}\n")
            found += 1
    client.ack(message["id"])
    time.sleep(0.01)
client.disconnect()
