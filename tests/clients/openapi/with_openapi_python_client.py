"""What a consumer does, with a client that openapi-python-client has generated; prints what it saw as JSON."""

import json
import sys
from typing import Any

from generated import AuthenticatedClient
from generated.api.consumers import ack, get_client, get_without_ack, rollback, stream_batches, subscribe, unsubscribe
from generated.api.destinations import list_destinations
from generated.api.process import get_health
from generated.models import Ack, Rollback, Subscription

url, token = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=token)
who = ("example", 1001)
seen: dict[str, Any] = {}


def refused(response: Any) -> list[object]:
    return [int(response.status_code), response.parsed.type_, bool(response.parsed.advice)]


seen["health"] = get_health.sync(client=client).status
seen["destinations"] = [it.destination for it in list_destinations.sync(client=client)]
seen["forbidden"] = refused(get_client.sync_detailed("other", 7, client=client))
seen["unauthorized"] = refused(get_client.sync_detailed(*who, client=AuthenticatedClient(base_url=url, token="wrong")))
seen["subscribed"] = subscribe.sync(*who, client=client, body=Subscription(filter_=r"shop\..*")).filter_
batch = get_without_ack.sync(*who, client=client, max_entries=1, timeout=5000)
entry = batch.entries[0]
seen["entry"] = [entry.database, entry.table, entry.type_, [row.to_dict() for row in entry.data]]
seen["marks"] = get_client.sync(*who, client=client).marks == [batch.batch_id]
ack.sync_detailed(*who, client=client, body=Ack(batch_id=batch.batch_id))
seen["unknown"] = refused(ack.sync_detailed(*who, client=client, body=Ack(batch_id=batch.batch_id)))
seen["invalid"] = refused(ack.sync_detailed(*who, client=client, body=Ack()))
second = get_without_ack.sync(*who, client=client, max_entries=1)
rollback.sync_detailed(*who, client=client, body=Rollback())
again = get_without_ack.sync(*who, client=client, max_entries=1)
seen["repeated"] = [it.data[0].to_dict() for it in (*second.entries, *again.entries)]
with client.get_httpx_client().stream(**stream_batches._get_kwargs(*who, max_entries=1)) as response:
    lines = response.iter_lines()
    seen["stream"] = [sorted(json.loads(next(lines)))[:2], sorted(json.loads(next(lines)))]
seen["unsubscribed"] = int(unsubscribe.sync_detailed(*who, client=client).status_code)
seen["gone"] = refused(get_client.sync_detailed(*who, client=client))
sys.stdout.write(json.dumps(seen))
